from __future__ import annotations

import numpy as np
import pytest

from precision_time_papers.ray_models.estimators import (
    ForwardRegressor,
    OverlapRegressor,
    StepwiseRegressor,
    TermsRegressor,
    TimeRegressor,
    overlapped_time,
)


def test_stepwise_takes_what_matters_and_leaves_the_rest() -> None:
    draw = np.random.default_rng(0)
    x = draw.standard_normal((80, 6))
    y = 3.0 + 2.0 * x[:, 1] - 1.5 * x[:, 4] + 0.05 * draw.standard_normal(80)
    fitted = StepwiseRegressor(p_add=0.001).fit(x, y)
    assert set(fitted.chosen_) == {1, 4}
    assert fitted.coef_[[1, 4]] == pytest.approx([2.0, -1.5], abs=0.05)
    assert fitted.intercept_ == pytest.approx(3.0, abs=0.05)


def test_stepwise_of_noise_is_the_mean() -> None:
    draw = np.random.default_rng(1)
    x, y = draw.standard_normal((40, 3)), draw.standard_normal(40)
    fitted = StepwiseRegressor(p_add=1e-6).fit(x, y)
    assert fitted.chosen_ == ()
    assert fitted.predict(x) == pytest.approx(np.full(40, y.mean()))


def test_overlap_is_found_again_beyond_the_range() -> None:
    coefficients = np.array([0.02, 0.001, 0.01, 0.002, 0.05, 0.004, 0.003, 0.01])
    rows = [
        (b, n, k, -(-n // k)) for b in (8, 16, 32, 64) for n in (1, 2, 4, 8, 16) for k in (1, 2, 4) if k <= n
    ]
    x = np.array(rows, dtype=float)
    fitted = OverlapRegressor().fit(x, overlapped_time(x, coefficients, 2.0))
    beyond = np.array([[256.0, 32.0, 8.0, 4.0]])
    assert fitted.predict(beyond) == pytest.approx(overlapped_time(beyond, coefficients, 2.0), rel=0.05)


def test_overlap_lies_between_the_longer_part_and_the_sum() -> None:
    x = np.array([[4.0, 8.0, 2.0, 4.0]])
    compute, waits = 0.5, 0.1 + 0.3 + 0.1 * np.log(8.0)
    assert max(compute, waits) < overlapped_time(x, np.full(8, 0.1), 3.0)[0] < compute + waits


def test_relative_errors_count() -> None:
    """Two groups of times a thousand times apart: a linear fit keeps to both in percent."""
    from sklearn.linear_model import Ridge

    x = np.array([[1.0], [2.0], [1000.0], [2000.0]])
    y = np.array([0.011, 0.021, 10.0, 20.0])
    fitted = TimeRegressor(Ridge(alpha=1e-9), target="seconds").fit(x, y)
    assert np.abs(fitted.predict(x) / y - 1.0).max() < 0.06


def test_ernests_own_example() -> None:
    """Runs, coefficients and predictions that amplab/ernest documents (papers.md 5.1)."""
    machines = np.array([32, 4, 4, 12, 12, 12, 16], dtype=float)
    share = np.array([0.125, 0.015625, 0.021382, 0.050164, 0.055921, 0.061678, 0.061678])
    seconds = np.array([7.945168, 4.720292, 4.876611, 6.713765, 6.715194, 6.673972, 6.835670])

    def terms(s: np.ndarray, m: np.ndarray) -> np.ndarray:
        return np.column_stack([np.ones(len(m)), s / m, np.log(m), m])

    fitted = TermsRegressor(num_terms=4).fit(terms(share, machines), seconds)
    assert fitted.coef_[0] == pytest.approx([1.90013, 162.19821, 1.58832, 0.0], rel=1e-4, abs=1e-6)
    asked = np.array([4.0, 8.0, 16.0, 28.0])
    times = fitted.predict(terms(np.ones(4), asked))
    assert times == pytest.approx([44.6516, 25.4777, 16.4413, 12.9855], rel=1e-4)


def test_a_rule_of_proportion_has_a_constant_for_each_group() -> None:
    samples = np.array([100.0, 200.0, 400.0, 100.0, 300.0])
    batch = np.array([16.0, 16.0, 16.0, 64.0, 64.0])
    x = np.column_stack([samples, batch])
    fitted = TermsRegressor(num_terms=1).fit(x, samples * np.where(batch == 16.0, 0.01, 0.004))
    asked = np.array([[1000.0, 16.0], [1000.0, 64.0], [1000.0, 256.0], [1000.0, 20.0]])
    assert fitted.predict(asked) == pytest.approx([10.0, 4.0, 4.0, 10.0])


def test_forward_selection_takes_what_matters_and_little_else() -> None:
    draw = np.random.default_rng(0)
    x = draw.standard_normal((80, 30))
    y = 3.0 + 2.0 * x[:, 1] - 1.5 * x[:, 4] + 0.05 * draw.standard_normal(80)
    fitted = ForwardRegressor().fit(x, y)
    assert set(fitted.chosen_[:2]) == {1, 4}
    assert fitted.predict(x) == pytest.approx(y, abs=0.3)
    assert len(ForwardRegressor(most=2).fit(x, y).chosen_) == 2
