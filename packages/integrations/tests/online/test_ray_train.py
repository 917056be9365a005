"""Ray Train: what its ScalingConfig says, and the remaining time where the workers are controlled.

packages/integrations/examples/ray_train.py is a real trainer.
"""

from __future__ import annotations

import pickle
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytestmark = pytest.mark.slow

from ray.train import ScalingConfig  # noqa: E402

from precision_time_integrations.online import ray_train  # noqa: E402
from precision_time_integrations.online.ray_train import EtaCallback, describe_scaling, scaling_fields  # noqa: E402


def test_a_scaling_config_says_devices_and_what_it_leaves_open() -> None:
    eight = ScalingConfig(
        num_workers=4, use_gpu=True, resources_per_worker={"GPU": 2}, accelerator_type="L4",
        placement_strategy="STRICT_SPREAD",
    )  # fmt: skip
    assert scaling_fields(eight).fields == {"gpus": 8, "device": "L4", "nodes": 4}
    assert not scaling_fields(eight).reasons
    elastic = scaling_fields(ScalingConfig(num_workers=(2, 8), use_gpu=True, accelerator_type="H100"))
    assert elastic.fields["gpus"] == 8 and "2 to 8 workers" in elastic.reasons[0]
    for unnamed in (ScalingConfig(num_workers=2), ScalingConfig(num_workers=2, use_gpu=True)):
        assert "say device=" in scaling_fields(unnamed).reasons[-1]
        assert describe_scaling(unnamed, 2, {"model": "resnet50"}).request is None
    stated = {"model": "resnet50", "batch_size": 32, "precision": "bf16-mixed", "device": "A100-SXM4-80GB"}
    request = describe_scaling(ScalingConfig(num_workers=2, use_gpu=True), 2, stated, total=100).request
    assert request is not None and request.resolve().layout.global_batch_size == 64


def test_reports_are_counted_where_workers_say_nothing(tmp_path: Path) -> None:
    now = [0.0]
    said: list[str] = []
    callback = EtaCallback(
        total_steps=100, steps_per_report=10, line_every_s=5.0, say=said.append, clock=lambda: now[0],
        model="resnet50", device="L4", precision="bf16-mixed", batch_size=8, share_with_corpus=True,
        store=tmp_path / "runs.csv",
    )  # fmt: skip
    context = SimpleNamespace(scaling_config=ScalingConfig(num_workers=(1, 4), use_gpu=True))
    for index in range(10):
        now[0] += 0.2
        callback.after_report(context, [{"loss": 1.0}] * 2, None)
        if index == 4:
            callback.after_exception(context, {0: RuntimeError("preempted")})
            now[0] += 60.0
    assert "resnet50" in said[0] and "2 x L4" in said[0]
    assert "step 10 of 100" in said[1] and not callback.failure
    record = callback.record
    assert record is not None and record.steps == 90
    assert record.step_time_s == pytest.approx(0.02, rel=0.01)
    assert record.pauses_s["restart of workers"] == pytest.approx(60.2, abs=0.01)
    assert "resnet50" in (tmp_path / "runs.csv").read_text()


def test_what_workers_report_is_shown() -> None:
    now = [0.0]
    said: list[str] = []
    callback = EtaCallback(line_every_s=10.0, say=said.append, clock=lambda: now[0])
    told = {"eta/step": 500, "eta/total_steps": 1000, "eta/remaining_s": 90.0, "eta/low_s": 80.0,
            "eta/high_s": 100.0}  # fmt: skip
    for _ in range(21):
        callback.after_report(None, [told, {}], None)
        now[0] += 1.0
    assert said == ["precision-time: step 500 of 1,000: 90 s left (80 s to 100 s)."] * 3
    without: list[list[dict[str, Any]]] = [[], [{}], [{"eta/step": "five"}], [{"eta/step": True}]]
    for odd in without:
        callback.after_report(SimpleNamespace(scaling_config=None), odd, None)
    assert not callback.failure
    assert pickle.loads(pickle.dumps(EtaCallback(total_steps=5))).eta is None  # it moves to the controller


@pytest.mark.filterwarnings("ignore:The remaining time of the run is not watched:RuntimeWarning")
def test_no_failure_reaches_the_controller() -> None:
    callback = EtaCallback(total_steps=-3, model="resnet50", device="L4")
    broken: list[Any] = [[{}], None, 5]
    for metrics in broken:
        callback.after_report(None, metrics, None)
    assert callback.failure


def test_rank_0_adds_the_remaining_time(monkeypatch: pytest.MonkeyPatch) -> None:
    from precision_time_integrations.online.pytorch import track

    reported: list[dict[str, Any]] = []
    monkeypatch.setattr(ray_train._ray_train, "report", lambda metrics, **_: reported.append(metrics))
    for rank in ("0", "1"):
        monkeypatch.setenv("RANK", rank)
        run = track(range(10), predict=False, bar=False)
        for _ in run:
            ray_train.report(run, {"loss": 0.5})
        assert run.record is not None and run.record.pauses_s.keys() == {"report"}
    assert len(reported) == 20 and all(metrics["loss"] == 0.5 for metrics in reported)
    assert reported[9]["eta/step"] == 9 and reported[9]["eta/total_steps"] == 10
    assert not any(name.startswith("eta/") for metrics in reported[10:] for name in metrics)
