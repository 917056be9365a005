"""Trees walked as arrays say the same as LightGBM, and survive the way to disk and back."""

import io
from pathlib import Path

import lightgbm
import numpy as np
import pytest

from precision_time.learn.trees import NO_TREES, TreeEnsemble, forest_of, trees_of


def fitted(rows: int = 600, trees: int = 30) -> tuple[lightgbm.Booster, np.ndarray]:
    generator = np.random.default_rng(3)
    x = generator.normal(size=(rows, 6))
    y = np.sin(x[:, 0]) + x[:, 1] * (x[:, 2] > 0) + 0.1 * generator.normal(size=rows)
    parameters = {"objective": "regression_l1", "verbosity": -1, "num_threads": 1, "seed": 1}
    return lightgbm.train(parameters, lightgbm.Dataset(x, y), num_boost_round=trees), x


def test_walk_equals_lightgbm() -> None:
    booster, x = fitted()
    ours = trees_of(booster.model_to_string()).predict(x)
    assert np.allclose(ours, booster.predict(x), rtol=0, atol=1e-10)


def test_rows_have_the_same_bits_alone_in_blocks_and_in_any_order() -> None:
    booster, _ = fitted()
    generator = np.random.default_rng(5)
    x = generator.normal(size=(1500, 6))
    x[500:1000] = np.sort(x[500:1000], axis=0)
    x[1000:, 1:] = x[1000, 1:]
    ensemble = trees_of(booster.model_to_string())
    together = ensemble.predict(x)
    assert np.array_equal(together, np.concatenate([ensemble.predict(x[i : i + 1]) for i in range(len(x))]))
    order = generator.permutation(len(x))
    assert np.array_equal(together[order], ensemble.predict(x[order]))
    assert np.allclose(together, booster.predict(x), rtol=0, atol=1e-10)


def test_ensembles_joined_say_what_each_says() -> None:
    some = [trees_of(fitted(trees=count)[0].model_to_string()) for count in (3, 20)]
    x = np.random.default_rng(6).normal(size=(40, 6))
    for ensembles in (some, [NO_TREES, *some], [*some, NO_TREES], [NO_TREES]):
        for rows in (x, x[:3]):
            scores = forest_of(ensembles).predict(rows)
            assert np.array_equal(scores, np.stack([each.predict(rows) for each in ensembles], axis=1))


def test_trees_without_a_split_say_their_constant() -> None:
    data = lightgbm.Dataset(np.ones((50, 2)), np.full(50, 3.0))
    booster = lightgbm.train({"verbosity": -1, "boost_from_average": True}, data, num_boost_round=2)
    ensemble = trees_of(booster.model_to_string())
    assert np.allclose(ensemble.predict(np.zeros((3, 2))), booster.predict(np.zeros((3, 2))))
    assert np.allclose(ensemble.predict(np.zeros((2000, 2))), ensemble.predict(np.zeros((1, 2)))[0])


def test_a_value_on_the_threshold_goes_left() -> None:
    booster, _ = fitted(trees=1)
    ensemble = trees_of(booster.model_to_string())
    root = int(ensemble.roots[0])
    x = np.zeros((1, 6))
    x[0, ensemble.feature[root]] = ensemble.threshold[root]
    assert np.allclose(ensemble.predict(x), booster.predict(x), atol=1e-10)


def test_round_trip_through_npz() -> None:
    booster, x = fitted()
    ensemble = trees_of(booster.model_to_string())
    buffer = io.BytesIO()
    np.savez_compressed(buffer, allow_pickle=False, **ensemble.to_arrays("a"))
    buffer.seek(0)
    with np.load(buffer, allow_pickle=False) as file:
        again = TreeEnsemble.from_arrays(dict(file), "a")
    assert np.array_equal(again.predict(x), ensemble.predict(x))
    many = np.tile(x, (3, 1))
    assert np.array_equal(again.predict(many), ensemble.predict(many))


def test_no_rows_give_no_predictions() -> None:
    booster, _ = fitted(trees=2)
    assert trees_of(booster.model_to_string()).predict(np.zeros((0, 6))).shape == (0,)


@pytest.mark.parametrize("content", [b"", b"{", b'{"schema": 99, "features": []}'])
def test_damaged_predictor_is_refused_with_the_remedy(tmp_path: Path, content: bytes) -> None:
    from precision_time.errors import NotFittedError
    from precision_time.learn.artifact import load_predictor

    (tmp_path / "predictor.json").write_bytes(content)
    with pytest.raises(NotFittedError, match="precision-time train"):
        load_predictor(tmp_path)


def test_missing_predictor_is_refused(tmp_path: Path) -> None:
    from precision_time.errors import NotFittedError
    from precision_time.learn.artifact import load_predictor

    with pytest.raises(NotFittedError, match="missing"):
        load_predictor(tmp_path)
