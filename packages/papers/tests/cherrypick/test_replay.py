"""The replay counts runs as it says, on jobs whose best configuration is known."""

import numpy as np
import pytest

from precision_time_papers.cherrypick.replay import (
    MOST_RUNS,
    ReplayJob,
    expected_random_runs,
    predicted_order,
    replay,
    rule_order,
)


def job(predicted_cost: np.ndarray | None = None, deadline: float = 1e9) -> ReplayJob:
    """24 configurations; cost is least at the 13th, which is also the slowest in time."""
    places = np.arange(24.0)
    cost = np.exp(0.02 * np.square(places - 12.0))
    time = 1.0 + 10.0 * np.exp(-np.square(places - 12.0))
    return ReplayJob(
        key="job",
        precision="fp32",
        features=places[:, None],
        time=time,
        cost=cost,
        predicted_time=time,
        predicted_cost=cost if predicted_cost is None else predicted_cost,
        deadline=deadline,
        devices=1.0 + places % 4,
        batch_per_device=np.floor(places / 4.0),
    )


def test_random_search_has_the_expectation_of_draws() -> None:
    draw = np.random.default_rng(0)
    firsts = [int(np.flatnonzero(draw.permutation(20) < 3)[0]) + 1 for _ in range(20_000)]
    assert expected_random_runs(20, 3) == pytest.approx(np.mean(firsts), rel=0.02)
    assert expected_random_runs(20, 3) == pytest.approx(21.0 / 4.0)
    capped = np.minimum(firsts, 5)
    assert expected_random_runs(20, 3, most=5) == pytest.approx(np.mean(capped), rel=0.02)
    assert expected_random_runs(1000, 1) <= MOST_RUNS


def test_the_rule_takes_the_largest_batches_on_the_fewest_devices() -> None:
    order = rule_order(job())
    assert order[:5].tolist() == [20, 21, 22, 23, 16]
    (found,) = replay([job()], seeds=1)
    assert found.rule_runs == 1 + order.tolist().index(12)
    assert found.rule_regret_percent == pytest.approx((float(np.exp(0.02 * 64.0)) - 1.0) * 100.0)


def test_a_perfect_predictor_needs_one_run_and_regrets_nothing() -> None:
    (found,) = replay([job()], seeds=2)
    assert found.chosen_runs == 1
    assert found.chosen_regret_percent == 0.0
    assert found.chosen_meets
    assert found.good == 3
    assert found.random_runs == expected_random_runs(24, 3)
    assert found.search_runs < found.random_runs
    assert found.search_found == 1.0
    assert 6 <= found.stopped_runs <= MOST_RUNS


def test_the_deadline_rules_out_the_cheapest() -> None:
    late = job(deadline=2.0)
    assert late.best_cost > late.cost.min()
    (found,) = replay([late], seeds=1)
    assert found.chosen_meets
    assert found.chosen_regret_percent == 0.0


def test_a_wrong_predictor_is_told_how_wrong() -> None:
    wrong = job(predicted_cost=-job().cost)
    (found,) = replay([wrong], seeds=1)
    assert found.chosen_runs == 22
    assert found.chosen_regret_percent == pytest.approx((wrong.cost.max() - 1.0) * 100.0)
    assert predicted_order(wrong)[0] == int(np.argmax(wrong.cost))
