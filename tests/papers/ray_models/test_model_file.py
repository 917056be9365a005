from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from precision_time.errors import ConfigError, CorpusError
from precision_time.papers.ray_models.model import PerformanceModel
from precision_time.papers.ray_models.schema import StudyFile, prepared_rows, study_of
from precision_time.papers.ray_models.study import run_study


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


def test_a_model_is_asked_without_scikit_learn(saved: bytes, tmp_path: Path) -> None:
    path = tmp_path / "m.ptm"
    path.write_bytes(saved)
    code = (
        "import sys; from precision_time.papers.ray_models.model import PerformanceModel as M; "
        f"M.load({str(path)!r}).predict([{{'workers': 4, 'net': 'b'}}]); "
        "assert not {'sklearn', 'scipy', 'lightgbm', 'torch', 'ray'} & sys.modules.keys()"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
