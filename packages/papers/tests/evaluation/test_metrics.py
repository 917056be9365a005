"""Scores of the report on made-up numbers."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import kendalltau

from precision_time.corpus.families import PrecisionFamily
from precision_time.corpus.measurement import Measurement, Quality
from precision_time.learn.measured import MeasuredTable
from precision_time.learn.metrics import mape
from precision_time.learn.table import JobTable
from precision_time_papers.evaluation.generalization import limits_table, speed_ups
from precision_time_papers.evaluation.metrics import (
    kendall_tau,
    ranking_tau,
    repeat_deviations,
    worst_groups,
)
from precision_time_papers.evaluation.precision_tables import PAPER_WORST_PERCENT, blind_floor, spreads

TIMES = st.lists(st.floats(1e-3, 1e3), min_size=2, max_size=6)


def table_of(measured_s, *, models=None, keys=None, precisions=None, quality=Quality.FINE) -> MeasuredTable:
    count = len(measured_s)
    rows = tuple(
        Measurement(
            source="synthetic",
            source_ref="made up for this test",
            model=models[index] if models else "m",
            device="none",
            num_devices=1,
            num_nodes=1,
            precision=precisions[index] if precisions else "fp32",
            configuration_key=keys[index] if keys else f"{index}",
            quality=quality,
        )
        for index in range(count)
    )
    seconds = np.array(measured_s, dtype=np.float64)
    return MeasuredTable(
        jobs=JobTable(
            features=np.zeros((count, 0)),
            names=(),
            analytical_s=seconds,
            compute_s=seconds,
            exposed_s=seconds,
            least_s=0.0 * seconds,
        ),
        measurements=rows,
        measured_s=seconds,
        sync_s=np.full(count, np.nan),
        rejected=Counter(),
    )


@given(TIMES, st.floats(1e-3, 1e3))
def test_no_blind_answer_is_below_the_floor(times, answer) -> None:
    best, error = blind_floor(times)
    assert error <= np.mean(np.abs(answer / np.array(times) - 1.0)) + 1e-12
    assert error == pytest.approx(np.mean(np.abs(best / np.array(times) - 1.0)))


@given(st.floats(1.0, 50.0))
def test_floor_of_two_settings_is_known_in_closed_form(ratio) -> None:
    assert blind_floor([1.0, ratio])[1] == pytest.approx((1.0 - 1.0 / ratio) / 2.0)


def test_the_papers_worst_error_is_its_spread_less_one() -> None:
    spread = 1.0 + PAPER_WORST_PERCENT / 100.0
    assert spread == pytest.approx(2.4785)
    assert blind_floor([1.0, 2.4785])[1] == pytest.approx(0.298, abs=5e-4)


def test_mape_counts_what_was_asked() -> None:
    assert mape(np.array([1.0, 2.0, 5.0]), np.array([1.1, 1.8, np.nan])) == pytest.approx(10.0)
    assert mape(np.array([1.0]), np.array([np.nan])) is None


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=2, max_size=40))
def test_tau_is_scipys(pairs: list[tuple[int, int]]) -> None:
    x, y = np.array(pairs, dtype=float).T
    expected = kendalltau(x, y).statistic
    assert kendall_tau(x, y) == (None if np.isnan(expected) else expected)


def test_tau_ranks_within_groups_only() -> None:
    groups = ["a"] * 4 + ["b"] * 4
    measured = np.array([1.0, 2.0, 3.0, 4.0] * 2)
    # Group b is predicted a hundred times slower: between groups the order is wrong, within them right.
    predicted = np.concatenate([100.0 * measured[:4], measured[4:]])
    assert ranking_tau(groups, measured, predicted) == 1.0
    assert ranking_tau(groups, measured, 1.0 / predicted) == -1.0
    assert ranking_tau(list("abcdefgh"), measured, predicted) is None


def test_groups_weigh_in_the_ranking_by_their_pairs() -> None:
    measured = np.array([1.0, 2.0, 1.0, 2.0, 3.0, 4.0])
    predicted = np.array([2.0, 1.0, 1.0, 2.0, 3.0, 4.0])
    # One pair in the wrong order, six in the right one.
    assert ranking_tau(list("aabbbb"), measured, predicted) == pytest.approx((6 - 1) / 7)
    predicted[5] = np.nan
    assert ranking_tau(list("aabbbb"), measured, predicted) == pytest.approx((3 - 1) / 4)


def test_repeats_deviate_from_their_median() -> None:
    table = table_of([1.0, 1.25, 2.0, 7.0], keys=["a", "a", "a", "b"])
    np.testing.assert_allclose(repeat_deviations(table), [25.0, 0.0, 37.5, np.nan])


def test_worst_groups_come_first_with_what_limits_them() -> None:
    measured = np.ones(20)
    factors = np.repeat([1.5, 1.05, 1.3], [5, 5, 10])
    factors[10:] = np.where(np.arange(10) % 2, 1.3, 0.7)
    table = table_of(measured, models=["slow"] * 5 + ["good"] * 5 + ["mixed"] * 10)
    noise = np.where(np.arange(20) < 10, np.nan, 25.0)
    found = worst_groups(table, factors, lambda item: item.model, noise=noise)
    assert [group.name for group in found] == ["slow", "mixed", "good"]
    assert [group.errors.n for group in found] == [5, 10, 5]
    assert found[0].limit == "one factor for all"
    assert found[1].limit == "repeats differ as well"
    assert found[0].errors.bias_percent == pytest.approx(50.0)


def test_small_groups_and_rows_not_asked_are_left_out() -> None:
    table = table_of(np.ones(10), models=["few"] * 4 + ["many"] * 6, quality=Quality.SUSPECT)
    predicted = np.full(10, 2.0)
    predicted[9] = np.nan
    (group,) = worst_groups(table, predicted, lambda item: item.model, noise=np.full(10, np.nan))
    assert (group.name, group.errors.n, group.limit) == ("many", 5, "doubtful rows")


FAMILY = PrecisionFamily(rows={"fp16": np.array([0]), "fp32": np.array([1, 2]), "fp64": np.array([3])})


def test_spread_is_slowest_over_fastest() -> None:
    table = table_of([1.0, 2.0, 4.0, 60.0])
    assert spreads(table.measured_s, [FAMILY])[0].ratio == pytest.approx(60.0)
    assert spreads(table.measured_s, [FAMILY], left_out=("fp64",))[0].ratio == pytest.approx(3.0)
    assert spreads(table.measured_s, [FAMILY], left_out=("fp64", "fp16")) == []


def test_speed_ups_forgive_a_common_factor() -> None:
    measured = np.array([1.0, 2.0, 4.0, 60.0])
    found = speed_ups([FAMILY], measured, 5.0 * measured)
    assert found.pairs == ("fp16 / fp32", "fp16 / fp64", "fp32 / fp64")
    np.testing.assert_allclose(found.errors_percent(), 0.0, atol=1e-9)
    np.testing.assert_allclose(found.measured, [1 / 3, 1 / 60, 3 / 60])


def test_speed_ups_need_both_sides_predicted() -> None:
    predicted = np.array([1.0, np.nan, np.nan, 60.0])
    assert speed_ups([FAMILY], np.ones(4), predicted).pairs == ("fp16 / fp64",)


def test_limits_share_out_the_whole_error() -> None:
    measured = np.ones(30)
    factors = np.repeat([1.5, 1.05, 1.3], 10)
    table = table_of(measured, models=["slow"] * 10 + ["good"] * 10 + ["noisy"] * 10)
    noise = np.repeat([np.nan, np.nan, 25.0], 10)
    limits = limits_table(table, {"model": factors}, noise)
    ((title, *shares),) = limits.rows
    assert title == "Unseen models"
    np.testing.assert_allclose(shares, [30 / 85 * 100, 0.0, 55 / 85 * 100, 0.0, 3, 100.0], atol=1e-9)
