"""From what the workers tell to rows: labels from what was measured, and the corpus's schema."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from precision_time.corpus.importer import read_measurements
from precision_time.corpus.measurement import Measurement
from precision_time.errors import ConfigError
from precision_time.measure.campaign.capacity import RayNode, check_capacity
from precision_time.measure.campaign.finished import failed_point, finished_point
from precision_time.measure.campaign.plan import Point, Setting
from precision_time.measure.campaign.point import FinishedPoint
from precision_time.measure.campaign.rows import corpus_csv, corpus_rows

Make = Callable[..., Any]


def fact(host: str = "a", node: str = "1", *, cores: int = 2, threads: int = 1) -> dict[str, Any]:
    return {
        "host": host, "ray_node": node, "cores": cores, "threads": threads, "device": "CPU-X",
        "backend": "gloo",
        "framework_version": "2.9", "ray_version": "2.60", "python_version": "3.11",
    }  # fmt: skip


def figures(**changes: Any) -> dict[str, Any]:
    return {
        "step_time_s": 0.5, "train_time_s": 4.0, "build_s": 1.0, "warmup_s": 2.0, "peak_memory_bytes": 10.0,
        "power_w": None, **changes,
    }  # fmt: skip


def test_what_workers_told_is_put_together(point_of: Callable[..., Point]) -> None:
    point = point_of(workers=2)
    told = [figures(power_w=100.0), figures(step_time_s=9.0, peak_memory_bytes=30.0, power_w=50.0)]
    done = finished_point("c", point, [fact(), fact()], 3.0, told)
    assert (done.step_time_s, done.samples_per_s, done.peak_memory_bytes) == (0.5, 32.0, 30.0)
    assert (done.total_time_s, done.power_w, done.key) == (10.0, 150.0, point.key)
    assert done.honest
    one_blind = finished_point("c", point, [fact(), fact()], 3.0, [told[0], figures()])
    assert one_blind.power_w is None


@pytest.mark.parametrize(
    ("facts", "label"),
    [
        ([fact(), fact()], ""),
        ([fact(), fact(), fact()], "oversubscribed"),
        ([fact(threads=3)], "oversubscribed"),
        ([fact(threads=0)] * 9, ""),
        ([fact(), fact(node="2")], "simulated-nodes"),
        ([fact(), fact("b", "2")], ""),
        ([fact(cores=1), fact(node="2", cores=1)], "oversubscribed simulated-nodes"),
    ],
)
def test_labels_are_measured(point_of: Callable[..., Point], facts: list[dict[str, Any]], label: str) -> None:
    done = finished_point("c", point_of(workers=len(facts)), facts, 1.0, [figures()] * len(facts))
    assert done.label == label


def test_a_failed_point_keeps_its_reason(point_of: Callable[..., Point]) -> None:
    done = failed_point("c", point_of(), [], "RuntimeError:\n out of memory " + "x" * 900)
    assert done.status == "failed"
    assert done.error.startswith("RuntimeError: out of memory xxx")
    assert len(done.error) == 500
    assert done.step_time_s is None


NODES = [RayNode(cpus=2, gpus=0), RayNode(cpus=1, gpus=1)]


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        (Setting(num_workers=4), "4 workers x 1 CPU = 4 CPU, the cluster has 3 on 2 nodes"),
        (Setting(num_workers=2, cpus_per_worker=1.5), "1.5 CPU = 3 CPU"),
        (Setting(num_workers=2, gpus_per_worker=1), "2 GPU, the cluster has 1"),
        (Setting(num_workers=3, num_nodes=3), "over 3 nodes, the cluster has 2"),
    ],
)
def test_what_the_cluster_cannot_hold_is_refused(
    point_of: Callable[..., Point], setting: Setting, said: str
) -> None:
    point = point_of(setting=setting)
    with pytest.raises(ConfigError, match=said) as caught:
        check_capacity([point_of(), point], NODES)
    assert str(point) in str(caught.value)
    assert "To fix" in str(caught.value)


def test_what_the_cluster_holds_passes(point_of: Callable[..., Point]) -> None:
    settings = (
        Setting(num_workers=3),
        Setting(num_workers=6, cpus_per_worker=0.5),
        Setting(num_workers=2, num_nodes=2),
    )
    check_capacity([point_of(setting=setting) for setting in settings], NODES)


def test_rows_are_read_by_the_importer(tmp_path: Path, finished_of: Callable[..., FinishedPoint]) -> None:
    points = [
        finished_of(
            num_workers=2, gradient_wait_s=0.004, gradient_wait_method="ddp-hook-host-clock", num_steps=9
        ),
        finished_of(
            model="transformer",
            repeat=1,
            label="oversubscribed",
            device="H100-SXM5-80GB",
            gpus_per_worker=1.0,
        ),
        finished_of(model="mlp"),
        finished_of(model="own:loop"),
        finished_of(step_time_s=None, status="failed"),
    ]
    text, count = corpus_csv(points, source="own-ray-cpu")
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
    first, _ = corpus_rows(points, source="own-ray-cpu")
    assert (first["device"], first["devices"], first["global_batch"]) == (
        "CPU-X-1-core".replace("X", "Made-Up"),
        2,
        16,
    )
    assert "sync_time_s=0.004 (" in first["notes"]


def test_other_sizes_are_other_models(finished_of: Callable[..., FinishedPoint]) -> None:
    wider = finished_of(sizes={"filters": 64.0})
    longer = finished_of(model="transformer", sizes={"seq_len": 16.0, "hidden": 64.0})
    [row] = corpus_rows([wider, longer], source="x")
    assert row["seq_len"] == 16
    assert '"hidden":64' in row["model_config"]
