"""Ray as an `Executor`: the answers of the plain `map`, a bounded number of chunks, errors as they are."""

from __future__ import annotations

import json
import os
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from precision_time.cli.main import main
from precision_time.corpus.splits import Fold
from precision_time.cost.job import Job
from precision_time.cost.stacks import usual_profile
from precision_time.errors import ConfigError, LayoutError, MissingExtraError
from precision_time.executor import Executor, open_executor
from precision_time.hardware.catalog import get_cluster
from precision_time.learn.boosting import DEFAULT_SETTINGS
from precision_time.learn.measured import MeasuredTable
from precision_time.learn.table import JobTable
from precision_time.learn.training import out_of_fold
from precision_time.parallel.layout import Layout
from precision_time.planning.layouts.search import search_layouts
from precision_time.precision.catalog import get_policy
from precision_time.predict.sweep import _Encoded, column_types
from precision_time.ray.executor import _not_connected, import_ray, ray_map, ray_session
from precision_time.request import grid as grids
from precision_time.request.grid import grid_of
from precision_time.workload.resolve import load_workload
from surface import SOURCES

# Before LightGBM is loaded, as in tests/learn: its threads must sleep, not spin, while they wait.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

SOURCE = os.pathsep.join(map(str, SOURCES.values()))
IN_FLIGHT = 4
"""Twice the CPUs."""


@pytest.fixture(scope="module")
def map_fn() -> Iterator[Executor]:
    """A map over a local Ray of two CPUs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [SOURCE, os.environ.get("PYTHONPATH")])))
        with ray_map("local", num_cpus=2) as map_fn:
            yield map_fn


needs_ray = pytest.mark.slow


@needs_ray
def test_a_sweep_is_the_same_bit_for_bit(map_fn: Executor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grids, "BLOCK_ROWS", 8)
    grid = grid_of({"model": "resnet50", "gpus": "1..8", "tp": [1, 2], "batch_size": [1, 24, 4096]})
    chunks = [(block,) for block in grid.blocks()]
    work = _Encoded(kinds=column_types(grid.fields), predictor="", suffix=".csv")
    assert len(chunks) > 2
    assert list(map_fn(work, chunks)) == list(map(work, chunks))


@needs_ray
def test_answers_come_in_order(map_fn: Executor) -> None:
    def slow_first(number: int) -> tuple[int, float]:
        import time

        time.sleep(0.3 if number == 0 else 0.0)
        return number, number / 3

    assert list(map_fn(slow_first, range(20))) == [(number, number / 3) for number in range(20)]
    assert list(map_fn(abs, [])) == []


@needs_ray
def test_no_more_chunks_are_taken_than_may_be_in_flight(map_fn: Executor) -> None:
    taken: list[int] = []

    def chunks() -> Iterator[int]:
        for number in range(50):
            taken.append(number)
            yield number

    for done, answer in enumerate(map_fn(abs, chunks())):
        assert answer == done
        assert len(taken) <= done + 1 + IN_FLIGHT
    assert len(taken) == 50


@needs_ray
def test_errors_arrive_as_they_were_raised(map_fn: Executor) -> None:
    def refuse(number: int) -> int:
        if number == 3:
            raise LayoutError(f"tp={number} cannot be. To fix: tp=4.")
        return number

    answers = iter(map_fn(refuse, range(9)))
    assert [next(answers) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(LayoutError) as caught:
        next(answers)
    assert str(caught.value) == "tp=3 cannot be. To fix: tp=4."
    assert list(map_fn(abs, [-1])) == [1]


@needs_ray
def test_a_lost_worker_is_replaced(map_fn: Executor, tmp_path: Path) -> None:
    mark = tmp_path / "tried"

    def dies_once(number: int) -> int:
        import os

        if number == 1 and not mark.exists():
            mark.touch()
            os._exit(1)
        return 10 * number

    assert list(map_fn(dies_once, range(3))) == [0, 10, 20]
    assert mark.exists()


@needs_ray
def test_stdout_is_what_a_command_writes(
    map_fn: Executor, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    mark = tmp_path / "tried"

    def loud(number: int) -> int:
        import os

        os.write(1, b"chatter of a worker")
        if not mark.exists():
            mark.touch()
            os._exit(1)
        return number

    assert list(map_fn(loud, range(3))) == [0, 1, 2]
    asked = ("llama3.2-1b", "-d", "A100-SXM4-80GB", "-g", "8", "--ray", "local", "--json")
    with pytest.raises(SystemExit) as ended:
        main(["layout", *asked])
    assert not ended.value.code
    assert json.loads(capfd.readouterr().out)["gpus"] == 8
    # It would print later, too.
    assert "ray_listen_error_messages" not in {thread.name for thread in threading.enumerate()}


def made_up_table(models: int = 6, rows_each: int = 30) -> MeasuredTable:
    """Numbers without meaning in the shape of a table."""
    draw = np.random.default_rng(0)
    count = models * rows_each
    names = ("log_params", "log_flops", "log_micro_batch_size", "log_peak", "class.gemm", "stack.made-up")
    compute_s = np.exp(draw.normal(size=count))
    exposed_s = np.where(draw.random(count) < 0.5, 0.0, 0.3 * compute_s)
    return MeasuredTable(
        jobs=JobTable(
            features=draw.normal(size=(count, len(names))),
            names=names,
            analytical_s=compute_s + exposed_s,
            compute_s=compute_s,
            exposed_s=exposed_s,
            least_s=np.zeros(count),
        ),
        measurements=(),
        measured_s=compute_s * np.exp(0.2 * draw.normal(size=count)) + exposed_s,
        sync_s=np.full(count, np.nan),
        rejected=Counter(),
    )


@needs_ray
def test_folds_are_fitted_bit_for_bit_as_here(map_fn: Executor) -> None:
    table = made_up_table()
    count = len(table.measured_s)
    part = np.arange(count) % 3
    folds = [Fold(train=np.flatnonzero(part != k), test=np.flatnonzero(part == k)) for k in range(3)]
    settings = replace(DEFAULT_SETTINGS["step"], num_trees=10, min_data_in_leaf=5, num_leaves=4)
    options: dict[str, Any] = {"weights": np.ones(count), "settings": settings, "seed": 3}
    here = list(out_of_fold(table, folds, **options))
    there = list(out_of_fold(table, folds, map_fn=map_fn, **options))
    assert len(here) == len(there) == 3
    for mine, rays in zip(here, there, strict=True):
        for name in ("step_time_s", "low_s", "high_s", "exposed_s", "distance"):
            assert np.array_equal(getattr(mine, name), getattr(rays, name)), name


@needs_ray
def test_the_search_finds_the_same_layouts_and_times(map_fn: Executor) -> None:
    workload = load_workload("llama3.2-1b", seq_len=2048)
    job = Job(
        workload=workload,
        cluster=get_cluster(device="A100-SXM4-40GB", num_devices=8),
        precision=get_policy("bf16-mixed"),
        layout=Layout(dp=8),
        stack=usual_profile(workload.family).stack(),
    )
    here, there = search_layouts(job, 32, top=5), search_layouts(job, 32, top=5, over=map_fn)
    assert [each.layout for each in there.ranked] == [each.layout for each in here.ranked]
    assert [each.step_time_s for each in there.ranked] == [each.step_time_s for each in here.ranked]
    assert there.counts == here.counts


@needs_ray
def test_a_session_that_is_open_is_used_and_left_open(map_fn: Executor) -> None:
    ray = import_ray()
    with ray_session("10.255.255.1:1") as module:
        assert module is ray
    assert ray.is_initialized()


def test_a_cluster_that_lets_nobody_in_is_not_called_absent() -> None:
    class AuthenticationError(Exception):
        """Called as Ray's is."""

    refused, nothing = ConnectionError("failed"), ConnectionError("failed")
    refused.__cause__ = RuntimeError("gcs")
    refused.__cause__.__cause__ = AuthenticationError("token is missing")
    assert "asks for an authentication token" in str(_not_connected("host:1", refused))
    said = str(_not_connected("host:1", nothing))
    assert "No Ray answers at 'host:1'" in said
    assert "token" not in said


@pytest.mark.parametrize(
    "error", [Exception("The current node timed out during startup"), ConnectionError("no")]
)
def test_a_ray_that_does_not_start_is_one_error_with_its_cause(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def init(**_: Any) -> None:
        raise error

    ray = import_ray()
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "init", init)
    with (
        pytest.raises(ConfigError, match=f"^No Ray answers at 'host:1': {error}. To fix"),
        ray_session("host:1"),
    ):
        pass


def test_without_ray_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingExtraError, match=r"precision-time\[ray\]"), open_executor("local"):
        pass


def test_without_an_address_processes_do_it() -> None:
    with open_executor(None, 1) as map_fn:
        assert map_fn is map
