"""The replay counts runs as it says, on jobs whose best configuration is known."""

import numpy as np
import pytest

from precision_time.papers.cherrypick.replay import (
    MOST_RUNS,
    ReplayJob,
    expected_random_runs,
    predicted_order,
    replay,
)

pytest.importorskip("sklearn")


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
    )


def test_random_search_has_the_expectation_of_draws() -> None:
    draw = np.random.default_rng(0)
    firsts = [int(np.flatnonzero(draw.permutation(20) < 3)[0]) + 1 for _ in range(20_000)]
    assert expected_random_runs(20, 3) == pytest.approx(np.mean(firsts), rel=0.02)


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
