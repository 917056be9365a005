"""Recorded step times, and what progress bars say of them."""

from __future__ import annotations

import importlib
import importlib.util
import io
import json
import re
import sys
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

ROOT = Path(__file__).resolve().parents[4]
BASIC = ("tqdm", "elapsed / step", "median of last 100")
LIBRARIES = {
    "HF Trainer": "transformers",
    "Keras": "keras",
    "Lightning (tqdm)": "lightning",
    "Lightning (rich)": "lightning",
}


@pytest.fixture(scope="module")
def modules() -> tuple[Any, Any]:
    """`packages/integrations/studies/eta_series.py` and `packages/integrations/studies/eta_baselines.py`."""
    with mock.patch.object(sys, "path", [*sys.path, str(ROOT / "packages" / "integrations" / "studies")]):
        return importlib.import_module("eta_series"), importlib.import_module("eta_baselines")


def line(**changes: Any) -> dict[str, Any]:
    """Steps of half a second, 25 to an epoch."""
    return {
        "name": "constant",
        "source": "",
        "source_ref": "",
        "project": "",
        "kind": "own",
        "features": [],
        "total_steps": 100,
        "events": [(step, step / 2) for step in range(101)],
        "pauses": [],
        "schedule": {},
        "request": None,
        "steps_per_epoch": 25,
        "units": "step",
    } | changes


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"kind": "invented"}, "kind is one of"),
        ({"features": ["nice"]}, "unknown features ['nice']"),
        ({"events": [(0, 0.0), (1, 1.0)]}, "between 3 and"),
        ({"events": [(0, 1.0), (50, 2.0), (100, 3.0)]}, "starts at 0 s"),
        ({"events": [(0, 0.0), (50, 2.0), (99, 3.0)]}, "ends at step 100"),
        ({"events": [(0, 0.0), (50, 4.0), (100, 3.0)]}, "time goes back"),
        ({"events": [(0, 0.0), (50, 1.0), (50, 2.0), (100, 3.0)]}, "steps do not increase"),
        ({"events": [(0, 0.0), (50, float("nan")), (100, 3.0)]}, "times are finite"),
        ({"events": [(0, 0.0), (50, 0.0), (100, 0.0)]}, "takes no time"),
        ({"pauses": [(3.0, 2.0, "evaluation")]}, "a pause begins"),
        ({"schedule": {"evaluation": 0}}, "a schedule is of at least 1 step"),
        ({"surplus": 1}, "missing or unknown fields ['surplus']"),
    ],
)
def test_a_series_that_breaks_a_rule_is_refused(
    modules: tuple[Any, Any], changes: dict[str, Any], said: str
) -> None:
    series, _ = modules
    with pytest.raises(series.SeriesError, match=re.escape(said)):
        series.series_of(line(**changes))


def test_time_and_steps_go_back_where_the_features_say_so(modules: tuple[Any, Any]) -> None:
    series, _ = modules
    back = series.series_of(line(events=[(0, 0.0), (50, 4.0), (100, 3.0)], features=["clock"]))
    assert back.duration_s == 3.0
    again = series.series_of(line(events=[(0, 0.0), (50, 4.0), (40, 5.0), (100, 9.0)], features=["resumed"]))
    assert again.index_at(0.5) == 1


def test_a_file_gives_back_what_was_written(modules: tuple[Any, Any], tmp_path: Path) -> None:
    series, _ = modules
    one = series.series_of(line(pauses=[(1.0, 2.0, "evaluation")], schedule={"evaluation": 2}))
    path = tmp_path / "series.jsonl.gz"
    series.write_series(path, [one])
    assert series.read_series(path) == [one]
    assert json.loads(json.dumps(one.to_dict()))["pauses"] == [[1.0, 2.0, "evaluation"]]
    series.write_series(path, [one, one])
    with pytest.raises(series.SeriesError, match="names occur twice"):
        series.read_series(path)


def test_the_recorded_series_are_many_and_of_many_projects(modules: tuple[Any, Any]) -> None:
    series, _ = modules
    read = series.read_series()
    public = [one for one in read if one.kind.startswith("public")]
    assert len(public) >= 40
    assert len({one.project for one in public}) >= 25
    assert {"warm-up", "jitter", "stall", "evaluation", "resumed"} <= {
        f for one in read for f in one.features
    }
    assert series.DATA.stat().st_size < 2_000_000


def exact(modules: tuple[Any, Any], name: str, **changes: Any) -> None:
    """Within 1 % at all shares, however far the epoch is."""
    series, baselines = modules
    constant = series.series_of(line(**changes))
    indices = [1, 5, 20, 25, 26, 50, 90]
    said = baselines.remaining_at(name, constant, indices)
    for index, left_s in zip(indices, said, strict=True):
        if left_s is None:
            # rich has no speed at the first update of an epoch, tqdm none at the start of one.
            assert index in (1, 26)
        else:
            assert left_s == pytest.approx(constant.remaining_s(index), rel=0.01)


@pytest.mark.parametrize("name", BASIC)
def test_a_constant_pace_is_told_exactly(modules: tuple[Any, Any], name: str) -> None:
    exact(modules, name)


@pytest.mark.slow
@pytest.mark.parametrize("name", LIBRARIES)
@pytest.mark.parametrize("per_epoch", [25, None])
def test_a_constant_pace_is_told_exactly_by_trainers(
    modules: tuple[Any, Any], name: str, per_epoch: int | None
) -> None:
    exact(modules, name, steps_per_epoch=per_epoch)


def test_tqdm_tells_what_its_own_bar_shows(modules: tuple[Any, Any]) -> None:
    """A bar of tqdm's own, with its text, beside the baseline: a stall, then a resumed run."""
    from tqdm import tqdm

    series, baselines = modules
    events = [(10, 0.0), (11, 1.0), (12, 61.0), (13, 62.0), (14, 63.5), (100, 240.0)]
    one = series.series_of(line(events=events, features=["stall"]))
    now_s, shown = 0.0, io.StringIO()
    with mock.patch("tqdm.std.time", lambda: now_s), mock.patch.object(tqdm, "monitor_interval", 0):
        bar = tqdm(total=100, initial=10, file=shown, ncols=80)
        for index, (step, at_s) in enumerate(events[1:-1], 1):
            now_s = at_s
            bar.update(step - bar.n)
            text = shown.getvalue().rsplit("\r", 1)[-1]
            left = re.search(r"<([\d:]+),", text)
            assert left is not None
            assert left[1] == tqdm.format_interval(baselines.baseline("tqdm", one, index))
        bar.close()


def test_a_resumed_run_looks_too_short_to_a_bar_from_zero(modules: tuple[Any, Any]) -> None:
    """The mean since the start counts only the steps since the start."""
    series, baselines = modules
    one = series.series_of(line(events=[(step, (step - 50) / 2) for step in range(50, 101)]))
    assert baselines.baseline("elapsed / step", one, 10) == pytest.approx(20.0)
    assert baselines.baseline("tqdm", one, 10) == pytest.approx(20.0)
