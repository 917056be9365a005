"""From what the workers tell to rows: labels from what was measured, and the corpus's schema."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from precision_time.corpus.importer import read_measurements
from precision_time.corpus.measurement import Measurement
from precision_time.errors import ConfigError
from precision_time_integrations.measure.trial import TrainingTrial, WorkerGroup
from precision_time_papers.campaign.ray import RayNode, check_capacity
from precision_time_papers.campaign.result import TrialResult, failed_result, measured_result
from precision_time_papers.campaign.rows import corpus_csv, corpus_rows

Make = Callable[..., Any]


def fact(host: str = "a", node: str = "1", *, cores: int = 2, busy: float = 1) -> dict[str, Any]:
    return {
        "host": host, "ray_node": node, "cores": cores, "busy_cores": busy, "device": "CPU-X",
        "backend": "gloo", "cpu_limit": "", "vector_isa": "avx2",
        "framework_version": "2.9", "ray_version": "2.60", "python_version": "3.11",
    }  # fmt: skip


def figures(**changes: Any) -> dict[str, Any]:
    return {
        "step_time_s": 0.5, "train_time_s": 4.0, "build_s": 1.0, "warmup_s": 2.0, "peak_memory_bytes": 10.0,
        "power_w": None, **changes,
    }  # fmt: skip


def test_what_workers_told_is_put_together(trial_of: Callable[..., TrainingTrial]) -> None:
    trial = trial_of(workers=2)
    told = [figures(power_w=100.0), figures(step_time_s=9.0, peak_memory_bytes=30.0, power_w=50.0)]
    done = measured_result("c", trial, [fact(), fact()], 3.0, told)
    assert (done.step_time_s, done.samples_per_s, done.peak_memory_bytes) == (0.5, 32.0, 30.0)
    assert (done.total_time_s, done.power_w, done.key) == (10.0, 150.0, trial.key)
    assert done.valid
    whole = figures(evaluation_s=0.25, checkpoint_s=0.5)
    assert measured_result("c", trial, [fact(), fact()], 3.0, [whole, whole]).total_time_s == 10.75
    one_blind = measured_result("c", trial, [fact(), fact()], 3.0, [told[0], figures()])
    assert one_blind.power_w is None


@pytest.mark.parametrize(
    ("facts", "label"),
    [
        ([fact(), fact()], ""),
        ([fact(), fact(), fact()], "oversubscribed"),
        ([fact(busy=3)], "oversubscribed"),
        ([fact(busy=0)] * 9, ""),
        ([fact(busy=0.5)] * 4, ""),
        ([fact(busy=0.5)] * 5, "oversubscribed"),
        ([fact(), fact(node="2")], "simulated-nodes"),
        ([fact(), fact("b", "2")], ""),
        ([fact(cores=1), fact(node="2", cores=1)], "oversubscribed simulated-nodes"),
    ],
)
def test_labels_are_measured(
    trial_of: Callable[..., TrainingTrial], facts: list[dict[str, Any]], label: str
) -> None:
    done = measured_result("c", trial_of(workers=len(facts)), facts, 1.0, [figures()] * len(facts))
    assert done.label == label


def test_a_failed_result_keeps_its_reason(trial_of: Callable[..., TrainingTrial]) -> None:
    done = failed_result("c", trial_of(), [], "RuntimeError:\n out of memory " + "x" * 900)
    assert done.status == "failed"
    assert done.error.startswith("RuntimeError: out of memory xxx")
    assert len(done.error) == 500
    assert done.step_time_s is None


NODES = [RayNode(cpus=2, gpus=0), RayNode(cpus=1, gpus=1)]


@pytest.mark.parametrize(
    ("group", "said"),
    [
        (WorkerGroup(num_workers=4), "4 workers x 1 CPU = 4 CPU, the cluster has 3 on 2 nodes"),
        (WorkerGroup(num_workers=2, cpus_per_worker=1.5), "1.5 CPU = 3 CPU"),
        (WorkerGroup(num_workers=2, gpus_per_worker=1), "2 GPU, the cluster has 1"),
        (WorkerGroup(num_workers=3, num_nodes=3), "over 3 nodes, the cluster has 2"),
    ],
)
def test_what_the_cluster_cannot_hold_is_refused(
    trial_of: Callable[..., TrainingTrial], group: WorkerGroup, said: str
) -> None:
    trial = trial_of(group=group)
    with pytest.raises(ConfigError, match=said) as caught:
        check_capacity([trial_of(), trial], NODES)
    assert str(trial) in str(caught.value)
    assert "To fix" in str(caught.value)


def test_what_the_cluster_holds_passes(trial_of: Callable[..., TrainingTrial]) -> None:
    groups = (
        WorkerGroup(num_workers=3),
        WorkerGroup(num_workers=6, cpus_per_worker=0.5),
        WorkerGroup(num_workers=2, num_nodes=2),
    )
    check_capacity([trial_of(group=group) for group in groups], NODES)


def test_rows_are_read_by_the_importer(tmp_path: Path, result_of: Callable[..., TrialResult]) -> None:
    trials = [
        result_of(
            num_workers=2, gradient_wait_s=0.004, gradient_wait_method="ddp-hook-host-clock", num_steps=9
        ),
        result_of(
            model="transformer",
            repeat=1,
            label="oversubscribed",
            device="H100-SXM5-80GB",
            gpus_per_worker=1.0,
        ),
        result_of(model="mlp"),
        result_of(model="own:loop"),
        result_of(step_time_s=None, status="failed"),
    ]
    text, count = corpus_csv(trials, source="own-ray-cpu")
    assert count == 2
    path = tmp_path / "rows.csv"
    path.write_text(text, encoding="utf-8")
    [gpu] = [
        row
        for row in read_measurements(path)
        if isinstance(row, Measurement) and row.model != "small-cnn-cifar-d3-f32"
    ]
    assert (gpu.model, gpu.seq_len, gpu.num_devices, gpu.quality.value) == ("gpt2", 32, 1, "suspect")
    assert gpu.quality_reason == "oversubscribed"
    first, _ = corpus_rows(trials, source="own-ray-cpu")
    assert (first["device"], first["devices"], first["global_batch"]) == (
        "CPU-X-1-core".replace("X", "Made-Up"),
        2,
        16,
    )
    assert "sync_time_s=0.004 (" in first["notes"]


def test_other_sizes_are_other_models(result_of: Callable[..., TrialResult]) -> None:
    wider = result_of(sizes={"filters": 64.0})
    longer = result_of(model="transformer", sizes={"seq_len": 16.0, "hidden": 64.0})
    [row] = corpus_rows([wider, longer], source="x")
    assert row["seq_len"] == 16
    assert '"hidden":64' in row["model_config"]
