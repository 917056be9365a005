"""The pages on peers and on scale: quoted figures, live answers and our own hang together."""

from __future__ import annotations

import importlib.util
import json
import re
import sys
import tomllib
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from precision_time.corpus.store import load_corpus
from precision_time.cost.job import Jobs
from precision_time.cost.step import price

ROOT = Path(__file__).resolve().parents[2]
PEERS = ROOT / "benchmarks" / "peers"
PUBLISHED = tomllib.loads((PEERS / "published.toml").read_text(encoding="utf-8"))
LIVE = json.loads((PEERS / "llm_analysis.json").read_text(encoding="utf-8"))
JOBS = {entry["id"]: entry for entry in PUBLISHED["job"]}


def _script(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"script_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def peers() -> ModuleType:
    return _script(ROOT / "packages" / "papers" / "studies" / "peers.py")


@pytest.fixture(scope="module")
def scale() -> ModuleType:
    return _script(ROOT / "packages" / "papers" / "studies" / "scale.py")


def _year(entry: dict[str, Any]) -> float:
    return float(PUBLISHED["tables"][entry["table"]]["year"])


def test_calculons_own_validation_is_quoted_right() -> None:
    """Calculon reports a mean of 3.65 % and a largest error of 8.87 % on these eight jobs."""
    errors = [
        abs(entry["calculon_s"] / entry["measured_s"] - 1.0) * 100.0
        for entry in JOBS.values()
        if entry["table"] == "korthikanti"
    ]
    assert len(errors) == 8
    assert np.mean(errors) == pytest.approx(3.65, abs=0.05)
    assert max(errors) == pytest.approx(8.87, abs=0.05)


def test_days_of_a_run_become_seconds_of_a_step(peers: ModuleType) -> None:
    """84 days at 384 GPUs are 153 TFLOP/s each by the FLOPs formula of the same paper (eq. 3)."""
    entry = JOBS["sc21-175b-384"]
    job = peers.job_of_entry(entry, _year(entry))
    step_s = peers.seconds_per_step(entry, "measured", job)
    layers, hidden, seq_len, vocab = 96, 12288, 2048, 51200
    flops = 96 * 1536 * seq_len * layers * hidden**2
    flops *= 1 + seq_len / (6 * hidden) + vocab / (16 * layers * hidden)
    assert flops / step_s / 384 / 1e12 == pytest.approx(153, rel=0.01)


@pytest.mark.parametrize("name", JOBS)
def test_published_jobs_are_the_jobs_of_their_tables(name: str, peers: ModuleType) -> None:
    entry = JOBS[name]
    job = peers.job_of_entry(entry, _year(entry))
    devices = re.search(r"(\d+) A100", entry["title"])
    assert devices is not None
    assert job.cluster.num_devices == int(devices.group(1))
    assert job.layout.global_batch_size == (1536 if entry["table"] == "sc21" else entry_batch(entry))
    billions = 1000.0 if "1T" in entry["title"] else float(entry["title"].split("B")[0])
    assert job.workload.graph.params / 1e9 == pytest.approx(billions, rel=0.05)


def entry_batch(entry: dict[str, Any]) -> int:
    """Table 3 of Korthikanti et al.: 4, 64, 280, 512 sequences."""
    return {"22b": 4, "175b": 64, "530b": 280, "1t": 512}[entry["id"].split("-")[1]]


def test_llm_analysis_answered_all_jobs() -> None:
    rows = [
        row
        for row in load_corpus()
        if row.usable and row.source in {"vtrain", "megatron-lm"} and row.seq_len is not None
    ]
    answered = sum(row.configuration_key in LIVE["seconds"] for row in rows)
    assert answered == len(rows) > 1000
    assert set(JOBS) <= set(LIVE["seconds"])
    assert not LIVE["refused"]


@pytest.mark.parametrize("name", JOBS)
def test_llm_analysis_was_asked_for_the_same_job(name: str, peers: ModuleType) -> None:
    """It is FLOPs over peak: ours of the same job, but for attention scores and loss, agree to a tenth."""
    default_s, advised_s = LIVE["seconds"][name]
    assert advised_s == pytest.approx(2.0 * default_s, rel=1e-4)
    job = peers.job_of_entry(JOBS[name], _year(JOBS[name]))
    assert default_s == pytest.approx(peers.flops_time_s(job), rel=0.1)


def test_the_best_constant_is_the_best(peers: ModuleType) -> None:
    rng = np.random.default_rng(0)
    measured_s = rng.lognormal(size=101)
    predicted_s = measured_s * rng.lognormal(sigma=0.7, size=101)
    best = peers.best_constant(measured_s, predicted_s)

    def error(constant: float) -> float:
        return float(np.abs(constant * predicted_s / measured_s - 1.0).mean())

    assert all(error(best) <= error(best * factor) + 1e-12 for factor in np.linspace(0.2, 5.0, 201))


def test_page_on_peers_holds_every_job_and_quoted_figure() -> None:
    page = (ROOT / "docs" / "reference" / "peers.md").read_text(encoding="utf-8")
    assert all(f"| {entry['title']} |" in page for entry in JOBS.values())
    for peer in PUBLISHED["vtrain"]["quoted"]:
        assert f"| {peer['name']} |" in page
    vtrain = sum(row.usable for row in load_corpus() if row.source == "vtrain")
    assert f"{vtrain:,} of" in page
    assert LIVE["date"] in page


@pytest.mark.parametrize("name", JOBS)
def test_page_on_peers_states_the_cost_model_of_today(name: str, peers: ModuleType) -> None:
    """To fix: python packages/papers/studies/peers.py."""
    entry = JOBS[name]
    job = peers.job_of_entry(entry, _year(entry))
    measured_s = peers.seconds_per_step(entry, "measured", job)
    alone = peers.percent(float(price(Jobs.at(job)).step_time_s[0]), measured_s)
    line = next(
        line
        for line in (ROOT / "docs" / "reference" / "peers.md").read_text(encoding="utf-8").splitlines()
        if line.startswith(f"| {entry['title']} |")
    )
    assert line.split("|")[-3].strip() == alone


def _point(devices: int, step_s: float, terms: dict[str, float], scale: ModuleType) -> Any:
    """A point of a curve with nothing in it but its terms."""
    costs = SimpleNamespace(
        terms={name: np.array([seconds]) for name, seconds in terms.items()}, step_time_s=np.array([step_s])
    )
    layout = SimpleNamespace(global_batch_size=64.0)
    graph = SimpleNamespace(seq_len=1024)
    job = SimpleNamespace(
        cluster=SimpleNamespace(num_devices=devices),
        layout=layout,
        workload=SimpleNamespace(graph=graph),
    )
    return scale.Point(job=job, costs=costs, prediction=None)


def test_scaling_stops_where_a_doubling_gains_too_little(scale: ModuleType) -> None:
    shared = {1: 8.0, 2: 4.0, 4: 2.0, 8: 1.0}
    points = [
        _point(devices, work + 1.0, {"gemm_s": work, "pipeline_bubble_s": 1.0}, scale)
        for devices, work in shared.items()
    ]
    # 9, 5, 3 and 2 seconds: gains of 1.8, 1.67 and 1.5 are above the square root of two.
    assert scale.stop_of(points) is None
    later = _point(16, 1.5, {"gemm_s": 0.5, "pipeline_bubble_s": 1.0}, scale)
    assert scale.stop_of([*points, later]) == len(points) - 1


def test_losses_are_growth_of_device_time(scale: ModuleType) -> None:
    first = _point(1, 10.0, {"gemm_s": 8.0, "pipeline_bubble_s": 2.0}, scale)
    last = _point(4, 4.0, {"gemm_s": 2.0, "pipeline_bubble_s": 2.0}, scale)
    assert scale.losses(first, last) == [
        ("pipeline_bubble_s", pytest.approx(60.0)),
        ("gemm_s", pytest.approx(0.0)),
    ]


def test_grid_fills_the_devices_and_keeps_the_batch(scale: ModuleType) -> None:
    cluster = SimpleNamespace(num_devices=98304)
    found = list(scale.grid(None, cluster, 2048, 8192, 126))
    assert found
    assert {layout.world_size for layout in found} == {98304}
    assert {layout.global_batch_size for layout in found} == {2048.0}
    assert all(sum(layout.stage_layers) in (0, 126) for layout in found)
    assert max(layout.cp for layout in found) == 4


def test_page_on_scale_covers_every_size_and_marks_what_nobody_measured(scale: ModuleType) -> None:
    page = (ROOT / "docs" / "reference" / "scale.md").read_text(encoding="utf-8")
    picture = (ROOT / "docs" / "reference" / "scale.svg").read_text(encoding="utf-8")
    rows = [row for row in load_corpus() if row.usable]
    for model in scale.MODELS:
        limit = scale.measured_limit(rows, model)
        assert 1000 < limit < scale.SIZES[-1]
        part = page.split(f"## {model.title}\n")[1].split("\n## ")[0]
        for size in scale.SIZES:
            assert (f"| {size:,} * |" in part) == (size > limit)
            assert (f"| {size:,} | tp" in part) == (size <= limit)
        assert model.title in picture


def test_pages_read_what_was_priced_before(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The pages of large models and of peers share the module."""
    script, rows = (
        _script(ROOT / "packages" / "papers" / "studies" / "held_out_sources.py"),
        load_corpus()[::1500],
    )
    monkeypatch.setenv("PRECISION_TIME_HOME", str(tmp_path))
    monkeypatch.setattr(script, "load_corpus", lambda: rows)
    priced = script.corpus_table()
    [kept] = tmp_path.rglob("priced-*/*.npz")
    written = kept.stat().st_mtime_ns
    again = script.corpus_table()
    assert kept.stat().st_mtime_ns == written
    assert 0 < len(priced) <= len(rows)
    assert again.measurements == priced.measurements
    assert np.array_equal(again.jobs.features, priced.jobs.features)
