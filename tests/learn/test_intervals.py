"""Conformal quantiles cover what they say, and intervals grow with the coverage asked for."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from precision_time.learn.intervals import CLASSES, IntervalModel, fit_growth, fit_quantiles, least_error
from precision_time.learn.metrics import summarize
from precision_time.learn.trees import TreeEnsemble

GROWTH = np.array([0.0, 1.0, 0.5, 0.0])
"""The scale is that of the trees, and grows with the first of two kinds of novelty."""


def constant_trees(value: float) -> TreeEnsemble:
    return TreeEnsemble(
        feature=np.zeros(1, dtype=np.int16),
        threshold=np.zeros(1),
        left=np.zeros(1, dtype=np.int32),
        right=np.zeros(1, dtype=np.int32),
        value=np.array([value]),
        roots=np.zeros(1, dtype=np.int32),
        depth=0,
    )


def model(residuals: np.ndarray) -> IntervalModel:
    quantiles = fit_quantiles(residuals, np.ones(len(residuals)))
    return IntervalModel(
        scale=constant_trees(0.0), growth=GROWTH, quantiles=dict.fromkeys(CLASSES, quantiles)
    )


@pytest.mark.parametrize("coverage", [0.5, 0.8, 0.9])
def test_fresh_residuals_are_covered(coverage: float) -> None:
    generator = np.random.default_rng(0)
    intervals = model(generator.standard_t(4, size=4000) * 0.1)
    fresh = np.exp(generator.standard_t(4, size=4000) * 0.1)
    low, high = intervals.factors(np.zeros((4000, 1)), np.zeros((4000, 2)), coverage)
    assert np.mean((fresh >= low) & (fresh <= high)) == pytest.approx(coverage, abs=0.025)


@given(st.lists(st.floats(-2, 2), min_size=3, max_size=50), st.floats(0.1, 0.8), st.floats(0.01, 0.19))
def test_more_coverage_is_never_narrower(residuals: list[float], coverage: float, more: float) -> None:
    intervals = model(np.array(residuals))
    rows = (np.zeros((1, 1)), np.zeros((1, 2)))
    low, high = intervals.factors(*rows, coverage)
    lower, higher = intervals.factors(*rows, coverage + more)
    assert lower <= low <= 1.0 <= high <= higher


@given(st.floats(0.0, 2.0), st.floats(0.0, 2.0))
def test_the_answer_lies_between_the_lower_end_and_the_median(below: float, above: float) -> None:
    low, high = np.exp(-np.array([below])), np.exp(np.array([above]))
    [answer] = least_error(3.0, 3.0 * low, 3.0 * high)
    assert 3.0 * low[0] * (1 - 1e-12) <= answer <= 3.0
    assert least_error(3.0, np.array([3.0]), 3.0 * high)[0] == 3.0
    [wider] = least_error(3.0, 3.0 * low, 3.0 * np.exp(np.array([above + 0.5])))
    assert wider <= answer


@pytest.mark.parametrize("spread", [0.1, 0.3, 0.6])
def test_the_answer_errs_less_in_percent_than_the_median(spread: float) -> None:
    measured_s = np.exp(np.random.default_rng(0).logistic(0.0, spread, 20_000))
    low, high = np.quantile(measured_s, [[0.05], [0.95]])
    [answer] = least_error(1.0, low, high)
    assert np.abs(answer / measured_s - 1.0).mean() < np.abs(1.0 / measured_s - 1.0).mean()


def test_weights_move_the_quantiles() -> None:
    residuals = np.array([-1.0, 0.0, 1.0])
    light = fit_quantiles(residuals, np.array([1.0, 1.0, 1.0]))
    heavy = fit_quantiles(residuals, np.array([1.0, 1.0, 8.0]))
    assert np.median(heavy) > np.median(light)


def test_errors_are_of_time_not_of_its_logarithm() -> None:
    summary = summarize(np.array([1.0, 1.0]), np.array([2.0, 0.5]))
    assert summary is not None
    assert summary.mape_percent == pytest.approx(75.0)
    assert summarize(np.zeros(0), np.zeros(0)) is None


def test_no_interval_is_narrower_than_repeat_noise() -> None:
    """A predicted error below 1 % counts as 1 %."""
    features = np.zeros((2, 1))
    quantiles = dict.fromkeys(CLASSES, fit_quantiles(np.linspace(-1.0, 1.0, 101), np.ones(101)))
    for error, expected in ((1e-4, 0.01), (0.05, 0.05)):
        intervals = IntervalModel(
            scale=constant_trees(float(np.log(error))), growth=GROWTH, quantiles=quantiles
        )
        assert intervals.expected_error(features, np.zeros((2, 2))) == pytest.approx(expected)
        low, high = intervals.factors(features, np.zeros((2, 2)), 1.0)
        assert np.log(high / low) == pytest.approx(2.0 * expected, rel=0.02)


def test_the_newer_the_wider_and_without_jumps() -> None:
    quantiles = {
        name: fit_quantiles(np.linspace(-most, most, 101), np.ones(101))
        for name, most in {"seen": 1.0, "new": 2.0}.items()
    }
    intervals = IntervalModel(scale=constant_trees(np.log(0.1)), growth=GROWTH, quantiles=quantiles)
    novelty = np.stack([np.linspace(0.0, 5.0, 501), np.zeros(501)], axis=1)
    low, high = intervals.factors(np.zeros((501, 1)), novelty, 0.9)
    width = np.log(high / low)
    assert (np.diff(width) > 0.0).all()
    assert np.diff(width).max() < 0.02 * width[-1]


def test_growth_is_found_again_and_is_never_negative() -> None:
    draw = np.random.default_rng(0)
    trees, novelty = draw.normal(size=2000), draw.exponential(size=(2000, 2))
    logs = -2.0 + 0.7 * trees + 1.5 * np.log1p(novelty[:, 0]) - 0.4 * np.log1p(novelty[:, 1])
    found = fit_growth(trees, novelty, np.exp(logs + 0.1 * draw.normal(size=2000)), np.ones(2000))
    assert found[1] == pytest.approx(0.7, abs=0.1)
    assert found[2] == pytest.approx(1.5, abs=0.2)
    assert found[3] == 0.0
