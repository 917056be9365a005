"""The regressors in numpy against scikit-learn's own, and the choice among them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from precision_time.errors import ConfigError, NotFittedError, UnknownNameError
from precision_time_papers.predictddl.fitting import (
    Candidate,
    Examples,
    FitSettings,
    Prepared,
    choose,
    embedding_projection,
    joined,
)
from precision_time_papers.predictddl.regressors import KINDS, Regressor, Standardizer, check_kind

from .conftest import SMALL, examples

NAMES = ("cluster.a", "cluster.b", "cluster.c", "cluster.d")
SETTINGS = {
    "linear": {"alpha": 1.0},
    "polynomial-2": {"alpha": 3.0},
    "svr": {"C": 10.0, "width": 0.5},
    "mlp": {"layers": (16, 8)},
}


def reference(kind: str, z: np.ndarray, u: np.ndarray, asked: np.ndarray) -> np.ndarray:
    """What scikit-learn's own pipeline answers."""
    from sklearn.linear_model import Ridge
    from sklearn.neural_network import MLPRegressor
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import PolynomialFeatures
    from sklearn.svm import SVR

    model = {
        "linear": Ridge(alpha=1.0),
        "polynomial-2": make_pipeline(PolynomialFeatures(2, include_bias=False), Ridge(alpha=3.0)),
        "svr": SVR(C=10.0, gamma=0.5 / z.shape[1], epsilon=0.05),
        "mlp": MLPRegressor(
            hidden_layer_sizes=(16, 8), alpha=1e-3, learning_rate_init=3e-3, max_iter=120,
            early_stopping=len(z) >= 100, n_iter_no_change=15, random_state=0,
        ),
    }[kind]  # fmt: skip
    return model.fit(z, u).predict(asked)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("kind", KINDS)
def test_numpy_answers_as_scikit_learn(kind: str) -> None:
    rows = examples(NAMES)
    fitted = Prepared.of(rows).fit(
        Candidate(kind=kind, target="log", rank=4, settings=SETTINGS[kind]), FitSettings()
    )
    one = joined(rows)
    target = np.log(one.seconds)
    scaler = Standardizer.of(one.x)
    asked = examples(NAMES, seed=1).x
    expected = reference(kind, scaler(one.x), (target - target.mean()) / target.std(), scaler(asked))
    expected = np.exp(np.clip(expected * target.std() + target.mean(), fitted.low, fitted.high))
    np.testing.assert_allclose(fitted.predict(asked), expected, rtol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("target", ["raw", "log", "ratio"])
def test_written_and_read_regressors_answer_the_same(kind: str, target: str) -> None:
    rows = examples((*NAMES, *(f"ghn.{i}" for i in range(8))))
    rows = Examples(
        **{**{f: getattr(rows, f) for f in Examples.__slots__}, "analytical_s": rows.seconds * 0.7}
    )
    fitted = Prepared.of(rows).fit(
        Candidate(kind=kind, target=target, rank=3, settings=SETTINGS[kind]), FitSettings()
    )
    again = Regressor.from_arrays(kind, target, fitted.to_arrays("x"), "x")
    np.testing.assert_allclose(
        again.predict(rows.x, rows.analytical_s), fitted.predict(rows.x, rows.analytical_s), rtol=2e-4
    )


def test_a_known_function_is_learned_and_the_square_is_found_by_the_polynomial() -> None:
    rows = examples(NAMES, rows=400, groups=40)
    chosen = choose(rows, SMALL)
    assert set(chosen.scores) == set(KINDS)
    assert chosen.scores["polynomial-2"]["median_ape_percent"] < chosen.scores["linear"]["median_ape_percent"]
    assert chosen.scores[chosen.best]["median_ape_percent"] < 8.0


def test_the_ratio_target_gives_back_the_analytical_time_where_it_is_right() -> None:
    rows = examples(NAMES)
    exact = Examples(**{**{f: getattr(rows, f) for f in Examples.__slots__}, "analytical_s": rows.seconds})
    settings = FitSettings(kinds=("linear",), targets=("ratio",), ranks=(4,), linear_ridges=(1.0,), folds=2)
    assert choose(exact, settings).scores["linear"]["mape_percent"] < 1e-6
    fitted = choose(exact, settings).regressors["linear"]
    with pytest.raises(NotFittedError, match="analytical_s"):
        fitted.predict(rows.x)


def test_rows_of_equal_inputs_become_one_with_their_median() -> None:
    rows = examples(NAMES, rows=12)
    twice = Examples(
        x=np.vstack([rows.x, rows.x, rows.x]),
        names=NAMES,
        seconds=np.concatenate([rows.seconds, rows.seconds * 2.0, rows.seconds * 50.0]),
        analytical_s=None,
        groups=np.tile(rows.groups, 3),
        weights=np.ones(36),
    )
    one = joined(twice)
    order = np.argsort(one.groups)
    np.testing.assert_allclose(one.seconds[order], rows.seconds[np.argsort(rows.groups)] * 2.0)
    np.testing.assert_allclose(one.weights, np.sqrt(3.0))


def test_answers_stay_near_the_measured_times_whatever_is_asked() -> None:
    rows = examples(NAMES)
    for kind in KINDS:
        candidate = Candidate(kind=kind, target="raw", rank=4, settings=SETTINGS[kind])
        fitted = Prepared.of(rows).fit(candidate, FitSettings())
        far = fitted.predict(np.full((3, len(NAMES)), 1e9))
        assert (far >= rows.seconds.min() / 10.0 - 1e-12).all()
        assert (far <= rows.seconds.max() * 10.0 + 1e-12).all()


def test_a_column_that_never_varied_changes_nothing_and_is_reported() -> None:
    rows = examples(NAMES)
    rows.x[:, 3] = 7.0
    fitted = Prepared.of(rows).fit(
        Candidate(kind="mlp", target="log", rank=4, settings=SETTINGS["mlp"]), FitSettings()
    )
    asked = rows.x[:5].copy()
    asked[:, 3] = 9.0
    np.testing.assert_array_equal(fitted.predict(asked), fitted.predict(rows.x[:5]))
    assert fitted.inputs.outside(asked)[:, 3].all()
    assert not fitted.inputs.outside(rows.x).any()


def test_the_embedding_is_projected_and_the_cluster_is_not() -> None:
    names = ("cluster.a", *(f"ghn.{i}" for i in range(6)), "cluster.b")
    z = np.random.default_rng(0).normal(size=(50, 8))
    projection = embedding_projection(z, names, 2)
    assert projection.shape == (8, 4)
    np.testing.assert_allclose((z @ projection)[:, 2:], z[:, [0, 7]])
    np.testing.assert_allclose((z @ projection)[:, :2].std(axis=0), 1.0)
    np.testing.assert_array_equal(embedding_projection(z, names, 6), np.eye(8))


@pytest.mark.parametrize("rank", [2, 6])
def test_with_a_weight_the_embedding_counts_as_so_many_inputs_in_its_own_proportions(rank: int) -> None:
    names = ("cluster.a", *(f"ghn.{i}" for i in range(6)), "cluster.b")
    z = np.random.default_rng(0).normal(size=(50, 8)) * [1, 5, 4, 3, 2, 1, 0.1, 1]
    projected = z @ embedding_projection(z, names, rank, 1.5)
    np.testing.assert_allclose(projected[:, rank:], z[:, [0, 7]])
    assert projected[:, :rank].var(axis=0).sum() == pytest.approx(1.5)
    spread = projected[:, :rank].std(axis=0)
    assert spread.max() / spread.min() == pytest.approx(
        np.divide(*np.sort((z[:, 1:7] @ np.eye(6)).std(axis=0))[[-1, 0]]) if rank == 6 else 5 / 4, rel=0.3
    )


def test_one_architecture_cannot_be_cross_validated() -> None:
    with pytest.raises(ConfigError, match="1 architectures"):
        choose(examples(NAMES, groups=1), SMALL)


def test_unknown_regressors_are_refused() -> None:
    with pytest.raises(UnknownNameError, match="Did you mean 'linear'"):
        check_kind("linaer")


@given(st.integers(1, 5), st.integers(0, 2**32 - 1))
def test_standardised_inputs_are_centred_and_bounded(columns: int, seed: int) -> None:
    x = np.random.default_rng(seed).lognormal(sigma=3.0, size=(20, columns))
    scaler = Standardizer.of(x)
    z = scaler(x)
    np.testing.assert_allclose(z.mean(axis=0), 0.0, atol=1e-8)
    assert (np.abs(scaler(x * 1e6)) <= np.abs(z).max(axis=0) + 1.0 + 1e-9).all()
