from __future__ import annotations

import hashlib
import io
import json
import zipfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from precision_time.errors import ConfigError, CorpusError
from precision_time_papers.ray_models.model import PerformanceModel, _check_tree
from precision_time_papers.ray_models.schema import StudyFile, prepared_rows, study_of
from precision_time_papers.ray_models.study import run_study


def small_model() -> PerformanceModel:
    rows = [
        {"workers": str(w), "net": net, "t": str(0.1 + 0.2 / w + (0.1 if net == "b" else 0.0))}
        for w in (1, 2, 3, 4, 6, 8)
        for net in ("a", "b")
    ]
    study: StudyFile = study_of(
        {
            "target": "t",
            "columns": ["workers"],
            "categories": ["net"],
            "features": {"inverse": "all"},
            "techniques": ["ridge"],
            "validation": {"method": "kfold", "folds": 3},
        }
    )
    points, plan = prepared_rows(study, rows, range(2, len(rows) + 2))
    return run_study(points, plan).model


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("model") / "m.ptm"
    small_model().save(path)
    return path.read_bytes()


def test_rows_are_checked_before_they_are_answered(saved: bytes, tmp_path: Path) -> None:
    path = tmp_path / "m.ptm"
    path.write_bytes(saved)
    model = PerformanceModel.load(path)
    (value,) = model.predict([{"workers": 4, "net": "b"}])
    assert value == pytest.approx(0.25, rel=0.05)
    assert model.remarks([{"workers": 40, "net": "a"}]) == (
        "workers = 40 lies outside the measured 1 to 8: extrapolated.",
    )
    with pytest.raises(ConfigError, match="Row 1 lacks net"):
        model.predict([{"workers": 4}])
    with pytest.raises(ConfigError, match=r"Row 1: workers = 'x'"):
        model.predict([{"workers": "x", "net": "a"}])
    with pytest.raises(ConfigError, match="net = 'z' was not measured; a, b were"):
        model.predict([{"workers": 4, "net": "z"}])


def test_a_newer_file_says_to_upgrade(saved: bytes, tmp_path: Path) -> None:
    old, new = tmp_path / "old.ptm", tmp_path / "new.ptm"
    old.write_bytes(saved)
    with zipfile.ZipFile(old) as source, zipfile.ZipFile(new, "w") as target:
        for name in source.namelist():
            content = source.read(name)
            if name.endswith(".json"):
                stated = json.loads(content)
                stated["schema_version"] += 1
                content = json.dumps(stated).encode()
            target.writestr(name, content)
    with pytest.raises(CorpusError, match="upgrade precision-time"):
        PerformanceModel.load(new)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match="There is no model at"):
        PerformanceModel.load(tmp_path / "none.ptm")


@settings(max_examples=60)
@given(data=st.data())
def test_damage_never_passes_unseen_as_another_error(
    saved: bytes, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    start = data.draw(st.integers(0, len(saved) - 1))
    cut = data.draw(st.booleans())
    flipped = saved[:start] + bytes([saved[start] ^ data.draw(st.integers(1, 255))]) + saved[start + 1 :]
    path = tmp_path_factory.getbasetemp() / "damaged.ptm"
    path.write_bytes(saved[:start] if cut else flipped)
    try:
        PerformanceModel.load(path).predict([{"workers": 4, "net": "b"}])
    except (CorpusError, ConfigError):
        return
    # What can be read after one flipped bit has all its checksums: the bit was in a field nobody reads.
    assert not cut


@pytest.mark.parametrize("name", ["model.json", "estimators.skops"])
def test_a_file_of_another_content_is_refused(saved: bytes, tmp_path: Path, name: str) -> None:
    path = tmp_path / "m.ptm"
    changed_archive(saved, path, name, b"{}")
    with pytest.raises(CorpusError, match=r"is not a (readable|valid) performance model.* To fix"):
        PerformanceModel.load(path)


def test_types_that_are_not_trusted_are_refused(saved: bytes, tmp_path: Path) -> None:
    """A file with another type, and a checksum that fits it: nothing of it is built."""
    import skops.io

    path = tmp_path / "m.ptm"
    forged = skops.io.dumps([Path("/tmp")])
    card = json.loads(zipfile.ZipFile(io.BytesIO(saved)).read("model.json"))
    card["sha256"] = hashlib.sha256(forged).hexdigest()
    changed_archive(saved, path, "estimators.skops", forged)
    changed_archive(path.read_bytes(), path, "model.json", json.dumps(card).encode())
    with pytest.raises(CorpusError, match="which no model of this package holds"):
        PerformanceModel.load(path)


def test_a_tree_that_points_outside_itself_is_refused() -> None:
    from sklearn.tree import DecisionTreeRegressor

    tree = DecisionTreeRegressor(max_depth=2).fit(np.arange(8.0)[:, None], np.arange(8.0)).tree_
    _check_tree(tree, 1)
    with pytest.raises(ValueError, match="reads a feature"):
        _check_tree(tree, 0)
    state = tree.__getstate__()
    state["nodes"]["left_child"][0] = 99
    tree.__setstate__(state)
    with pytest.raises(ValueError, match="points outside itself"):
        _check_tree(tree, 1)


def changed_archive(content: bytes, path: Path, name: str, replaced: bytes) -> None:
    with zipfile.ZipFile(io.BytesIO(content)) as source, zipfile.ZipFile(path, "w") as target:
        for item in source.namelist():
            target.writestr(item, replaced if item == name else source.read(item))
