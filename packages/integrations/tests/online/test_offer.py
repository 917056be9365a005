"""Runs offered to the user's own measurements: read back as they ran, by several writers, over any damage."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from precision_time import predict_time
from precision_time.corpus.own import read_own_steps, read_priced_steps
from precision_time.errors import ConfigError, CorpusError
from precision_time.workload.graph import Node, OpClass, OpGraph
from precision_time_integrations.online import RunRecord, offer

RESNET: dict[str, Any] = {"model": "resnet50", "device": "A100-SXM4-80GB", "precision": "bf16-mixed"}
CPU = {
    "device": {
        "CPU-of-bob": {
            "base": "Xeon-Platinum-8480+", "arch": "cpu-measured", "tflops": {"fp32": 1.0}, "sm_count": 2,
            "source": "measured by bob",
        }
    }
}  # fmt: skip


def run(step_time_s: float | None = 0.3, /, **request: Any) -> RunRecord:
    return RunRecord(
        request=request, steps=120, steady_steps=100, step_time_s=step_time_s, log_spread=0.03, elapsed_s=40.0
    )


def own_graph(width: float = 256.0) -> OpGraph:
    node = Node(
        op="linear", op_class=OpClass.GEMM, inputs=(-1,), m=1.0, n=width, k=64.0, count=1.0, in_elems=64.0,
        out_elems=width, weight_elems=64.0 * width, param_elems=64.0 * width, param_tensors=1,
        weight_grad=True, saved_elems=64.0, layer="secret_head",
    )  # fmt: skip
    return OpGraph(
        name="BobsNet", nodes=(node,), params=64.0 * width, trainable_params=64.0 * width, param_tensors=1
    )


def test_rows_are_the_jobs_that_ran(tmp_path: Path) -> None:
    store = tmp_path / "deep" / "runs.csv"
    offer.add_run(run(0.31, **RESNET, batch_size=64, gpus=8), store=store)
    offer.add_run(
        run(0.4, model="llama3.1-8b", device="8xH100", precision="fp8-mixed", batch_size=1, seq_len=4096,
            zero_stage=3, recompute="full", steps=1000, coverage=0.5), store=store)  # fmt: skip
    mine = {"device": "CPU-of-bob", "precision": "fp32", "custom": CPU}
    offer.add_run(run(0.004, model=own_graph(), batch_size=32, **mine), store=store)
    offer.add_run(run(0.005, model=own_graph(512.0), batch_size=32, **mine), store=store)
    config = {"model_type": "llama", "hidden_size": 256, "num_hidden_layers": 2, "num_attention_heads": 4,
              "intermediate_size": 512, "vocab_size": 1000}  # fmt: skip
    offer.add_run(run(0.006, model=config, batch_size=2, seq_len=128, **mine), store=store)
    steps = read_own_steps(store)
    assert [step.measured_s for step in steps] == [0.31, 0.4, 0.004, 0.005, 0.006]
    jobs = [step.job for step in steps if step.job]
    assert [job.layout.global_batch_size for job in jobs] == [512, 8, 32, 32, 2]
    assert jobs[1].layout.zero_stage == 3 and jobs[1].workload.graph.seq_len == 4096
    assert jobs[2].cluster.device.peak_flops_per_s["fp32"] == 1e12
    assert [job.workload.graph.params for job in jobs[2:4]] == [64 * 256, 64 * 512]  # two nets of one name
    assert jobs[4].workload.graph.seq_len == 128


def test_a_calibration_on_offered_runs_moves_towards_them(tmp_path: Path) -> None:
    store = tmp_path / "runs.csv"
    asked = [{**RESNET, "batch_size": size} for size in (32, 64, 128, 256)]
    before = [predict_time(**request).step_time_s for request in asked]
    for request, step_time_s in zip(asked, before, strict=True):
        offer.add_run(run(1.4 * step_time_s, **request), store=store)
    assert len(read_priced_steps(store)[0]) == len(asked)
    like = {**RESNET, "batch_size": 96}
    plain, moved = predict_time(**like), predict_time(**like, calibration=store)
    assert 1.25 < moved.step_time_s / plain.step_time_s < 1.5


def test_what_did_not_run_is_not_assumed(tmp_path: Path) -> None:
    store = tmp_path / "runs.csv"
    for missing in ("model", "device", "precision", "batch_size"):
        request = {name: value for name, value in {**RESNET, "batch_size": 8}.items() if name != missing}
        with pytest.raises(ConfigError, match=missing):
            offer.add_run(run(**request), store=store)
    with pytest.raises(ConfigError, match="no steady step"):
        offer.add_run(run(None, **RESNET, batch_size=8), store=store)
    assert not store.exists()


def test_several_writers_lose_no_row(tmp_path: Path) -> None:
    store = tmp_path / "runs.csv"
    code = (
        "import sys, pathlib; from precision_time_integrations.online import RunRecord; "
        "from precision_time_integrations.online.offer import add_run\n"
        "for name, value in dict(image_size=192, gpus=2, zero_stage=1, num_microbatches=4, cpus=8).items(): "
        "add_run(RunRecord(request={'model': 'resnet50', 'device': 'A100-SXM4-80GB', 'precision': 'fp32', "
        "'batch_size': 8, 'gpus': 4, name: value}, steps=9, steady_steps=9, step_time_s=2.5, "
        "log_spread=0.1, elapsed_s=1.0), store=pathlib.Path(sys.argv[1]))"
    )
    others = [subprocess.Popen([sys.executable, "-c", code, str(store)]) for _ in range(1)]

    def add() -> None:
        for name, value in {"software": 2024.0, "cpus": 4, "dataset": "imagenet", "real_input": True}.items():
            offer.add_run(run(1.5, **RESNET, batch_size=4, **{name: value}), store=store)

    threads = [threading.Thread(target=add) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [other.wait(timeout=60) for other in others] == [0]
    times = [step.measured_s for step in read_own_steps(store)]
    assert (times.count(1.5), times.count(2.5)) == (16, 5)


def test_a_file_that_cannot_take_a_run_stays_and_the_run_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    good = run(**RESNET, batch_size=64)
    said: list[str] = []
    damaged = {
        "binary.csv": b"\xff\xfe\x00model",
        "other.csv": b"name,price\nx,1\n",
        "half.csv": b'model,dev\x00ice,step_time_s\n"unclosed',
        "store.sqlite": b"SQLite format 3\x00",
    }
    for name, content in damaged.items():
        path = tmp_path / name
        path.write_bytes(content)
        assert offer.offer(good, store=path, on_warning=said.append) is None
        assert path.read_bytes() == content
    (tmp_path / "folder.csv").mkdir()
    assert offer.offer(good, store=tmp_path / "folder.csv", on_warning=said.append) is None
    assert offer.offer(good, store=Path(os.devnull) / "runs.csv", on_warning=said.append) is None
    monkeypatch.setattr(offer, "_WAIT_S", 0.1)
    with offer._only_writer(tmp_path / "held.csv"):
        assert offer.offer(good, store=tmp_path / "held.csv", on_warning=said.append) is None
    assert len(said) == len(damaged) + 3 and all("To fix: " in text for text in said)
    assert "Another process" in said[-1]
    assert offer.offer(None, store=None, on_warning=lambda text: 1 / 0) is None  # type: ignore[arg-type]


def test_a_row_cut_off_by_a_crash_is_moved_aside(tmp_path: Path) -> None:
    store = tmp_path / "runs.csv"
    offer.add_run(run(0.5, **RESNET, batch_size=64), store=store)
    with store.open("a") as file:
        file.write("resnet50,64,A1")
    offer.add_run(run(0.6, **RESNET, batch_size=64), store=store)
    assert [step.measured_s for step in read_own_steps(store)] == [0.5, 0.6]
    assert (tmp_path / "runs.csv.torn").read_text() == "resnet50,64,A1\n"


def test_a_file_of_graphs_that_is_damaged_is_left_alone(tmp_path: Path) -> None:
    store = tmp_path / "runs.csv"
    (tmp_path / "runs.models.json").write_text("{")
    with pytest.raises(CorpusError):
        offer.add_run(run(model=own_graph(), device="A100", precision="fp32", batch_size=1), store=store)
    assert (tmp_path / "runs.models.json").read_text() == "{" and not store.exists()
