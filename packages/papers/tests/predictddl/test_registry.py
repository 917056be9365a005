"""Trained predictors on disk: versions, damage, newer files, atomic writes."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from precision_time.errors import ConfigError, NotFittedError, UnknownNameError
from precision_time_papers.predictddl import registry as module
from precision_time_papers.predictddl.registry import Registry, TrainedType, registry_folder

from .conftest import ALL_NAMES, examples

CARD, ARRAYS = "predictor.json", "model.npz"


def folder_of(registry: Registry) -> Path:
    return registry.own / "cifar" / "v1"


def test_what_is_saved_is_loaded(registry: Registry, trained: TrainedType) -> None:
    found = registry.load("cifar")
    assert (found.version, found.dataset_type) == (1, "cifar")
    np.testing.assert_allclose(found.probe, trained.probe, rtol=1e-6)
    for variant, model in trained.variants.items():
        again = found.variants[variant]
        assert (again.names, again.best, again.scores) == (model.names, model.best, model.scores)
        rows = examples(model.names)
        for kind, regressor in model.regressors.items():
            np.testing.assert_allclose(
                again.regressors[kind].predict(rows.x), regressor.predict(rows.x), rtol=2e-4
            )


def test_versions_count_up_and_the_newest_serves(registry: Registry, trained: TrainedType) -> None:
    second = registry.save(replace(trained, card={**trained.card, "created": "2024-02-02"}))
    assert second.version == 2
    assert registry.load("cifar").card["created"] == "2024-02-02"
    assert registry.load("cifar", 1).card["created"] == "2024-01-01"
    assert [(entry.dataset_type, entry.version) for entry in registry.entries()] == [
        ("cifar", 1),
        ("cifar", 2),
    ]


def test_numbers_go_on_after_the_shipped_ones(
    tmp_path: Path, registry: Registry, trained: TrainedType
) -> None:
    both = Registry(own=tmp_path / "own", shipped=registry.own)
    assert both.save(trained).version == 2
    assert [entry.shipped for entry in both.entries()] == [True, False]
    with pytest.raises(ConfigError, match="ships with the package"):
        both.delete("cifar", 1)
    assert not both.delete("cifar", 2).exists()
    assert both.load("cifar").version == 1


@pytest.mark.parametrize("name", [CARD, ARRAYS])
@pytest.mark.parametrize("share", [0.0, 0.5, 0.99])
def test_a_truncated_file_is_named_and_nothing_else_is_touched(
    registry: Registry, trained: TrainedType, name: str, share: float
) -> None:
    registry.save(trained)
    path = registry.own / "cifar" / "v2" / name
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * share)])
    with pytest.raises(NotFittedError, match="To fix") as caught:
        registry.load("cifar")
    assert str(path) in str(caught.value)
    assert registry.load("cifar", 1).version == 1
    registry.delete("cifar", 2)
    assert registry.load("cifar").version == 1


def test_a_changed_byte_is_found(registry: Registry) -> None:
    path = folder_of(registry) / ARRAYS
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with pytest.raises(NotFittedError, match="cut off or changed"):
        registry.load("cifar")


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"schema": 99}, "schema 99"),
        ({"variants": {}}, "nothing is wrong"),
        ({"sha256": "0"}, "changed"),
        ({"variants": {"predictddl": {"names": ["a"], "best": "svr", "targets": {}, "scores": {}}}}, "svr"),
        (
            {
                "variants": {
                    "predictddl": {"names": [], "best": "x", "targets": {"oracle": "log"}, "scores": {}}
                }
            },
            "oracle|targets|mean",
        ),
        ({"variants": 3}, "damaged"),
    ],
)
def test_cards_that_cannot_be_are_refused_or_read(
    registry: Registry, change: dict[str, object], named: str
) -> None:
    path = folder_of(registry) / CARD
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    if change == {"variants": {}}:
        assert registry.load("cifar").variants == {}
        return
    with pytest.raises(NotFittedError, match=named):
        registry.load("cifar")
    assert len(registry.entries()) == 1


def test_a_missing_file_is_listed_with_its_problem(registry: Registry) -> None:
    (folder_of(registry) / ARRAYS).unlink()
    assert "missing" in registry.entries()[0].problem
    with pytest.raises(NotFittedError, match=ARRAYS):
        registry.load("cifar")


def test_a_crash_while_writing_leaves_the_registry_as_it_was(
    registry: Registry, trained: TrainedType, monkeypatch: pytest.MonkeyPatch
) -> None:
    def crash(folder: Path, _: TrainedType) -> None:
        (folder / ARRAYS).write_bytes(b"half")
        raise OSError("disk full")

    monkeypatch.setattr(module, "_write", crash)
    with pytest.raises(ConfigError, match="disk full"):
        registry.save(trained)
    assert [path.name for path in (registry.own / "cifar").iterdir()] == ["v1"]
    assert registry.load("cifar").version == 1


def test_unknown_types_and_versions(registry: Registry) -> None:
    with pytest.raises(UnknownNameError, match="Did you mean 'cifar'"):
        registry.load("cifer")
    with pytest.raises(ConfigError, match="no version 7.*use 1"):
        registry.load("cifar", 7)
    with pytest.raises(ConfigError):
        registry.delete("cifar", 7)


def test_the_users_registry_follows_the_home_variable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PRECISION_TIME_HOME", str(tmp_path / "home"))
    assert registry_folder() == tmp_path / "home" / "predictddl"
    assert Registry.default().own == registry_folder()


def test_no_file_of_a_predictor_is_a_pickle(registry: Registry) -> None:
    with (folder_of(registry) / ARRAYS).open("rb") as file, np.load(file, allow_pickle=False) as arrays:
        assert all(arrays[name].dtype == np.float32 for name in arrays)
    assert ALL_NAMES
