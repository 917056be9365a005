"""The remaining time of a loop with Accelerate, with the real library."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from .conftest import Clock

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::UserWarning"),  # of torch, where there is no GPU
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]
STEP_S = 100.0


@pytest.fixture
def accelerate() -> Any:
    from precision_time_integrations.online.imports import declare_torchvision

    declare_torchvision()
    import accelerate as library

    library.state.AcceleratorState._reset_state(reset_partial_state=True)
    library.state.GradientState._reset_state()
    return library


def train(accelerate: Any, tracker: Any, clock: Clock, *, steps: int = 12, **options: Any) -> list[Any]:
    """What `Accelerator.log` left of its values in each step."""
    import torch

    accelerator = accelerate.Accelerator(cpu=True, log_with=[tracker], **options)
    accelerator.init_trackers("test")
    layer = torch.nn.Linear(8, 8)
    model, optimizer = accelerator.prepare(layer, torch.optim.SGD(layer.parameters(), lr=0.1))
    tracker.watch(model, optimizer=optimizer)
    logged = []
    for step in range(1, steps + 1):
        accelerator.backward(model(torch.zeros(4, 8)).mean())
        optimizer.step()
        clock.now_s += STEP_S
        values = {"loss": 0.0}
        accelerator.log(values, step=step)
        logged.append(values)
    accelerator.end_training()
    return logged


def test_loop_is_predicted_told_logged_and_measured(accelerate: Any) -> None:
    from precision_time_integrations.online.accelerate import EtaTracker

    clock, said = Clock(), list[str]()
    tracker = EtaTracker(total_steps=12, pauses={}, clock=clock, say=said.append, device="A100-SXM4-80GB")
    logged = train(accelerate, tracker, clock, mixed_precision="bf16", gradient_accumulation_steps=4)
    assert not tracker.failure and not tracker.run.failure
    request = tracker.run.described.request
    assert (request.precision, request.num_microbatches, request.batch_size) == ("bf16-mixed", 4, 4)
    assert (request.gpus, request.optimizer) == (1, "sgd")
    assert len(said) == 1 and "12 steps" in said[0]
    assert logged[9]["eta/remaining_s"] == pytest.approx(2 * STEP_S, rel=0.1)
    assert (tracker.record.steps, tracker.record.step_time_s) == (12, pytest.approx(STEP_S))
    assert tracker.run is tracker.tracker


def test_without_a_watched_model_the_steps_alone_count(accelerate: Any) -> None:
    from precision_time_integrations.online.accelerate import EtaTracker

    clock, said = Clock(), list[str]()
    tracker = EtaTracker(total_steps=30, done=18, predict=False, clock=clock, say=said.append)
    logged = train(accelerate, tracker, clock)
    assert said == [] and tracker.prediction is None
    assert tracker.record.steps == 11 and "eta/remaining_s" in logged[3]


def test_tracker_that_fails_does_not_end_the_loop(accelerate: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from precision_time_integrations.online.accelerate import EtaTracker
    from precision_time_integrations.online.monitor import RunMonitor

    def broken(*_: Any, **__: Any) -> None:
        raise ZeroDivisionError("broken on purpose")

    monkeypatch.setattr(RunMonitor, "step", broken)
    clock = Clock()
    with pytest.warns(RuntimeWarning, match="broken on purpose") as said:
        logged = train(accelerate, EtaTracker(clock=clock, predict=False), clock)
    assert len(logged) == 12 and sum("broken" in str(each.message) for each in said) == 1


def test_sharding_is_that_of_the_plugins(accelerate: Any) -> None:
    from precision_time_integrations.online.accelerate import _read_sharding
    from precision_time_integrations.online.describe import Found

    kinds = accelerate.DistributedType
    deepspeed = SimpleNamespace(
        distributed_type=kinds.DEEPSPEED, num_processes=8,
        deepspeed_plugin=SimpleNamespace(deepspeed_config={"zero_optimization": {"stage": 2}}),
    )  # fmt: skip
    plugin = accelerate.FullyShardedDataParallelPlugin(activation_checkpointing=True, cpu_offload=True)
    fsdp = SimpleNamespace(distributed_type=kinds.FSDP, num_processes=8, fsdp_plugin=plugin)
    ddp = SimpleNamespace(distributed_type=kinds.MULTI_GPU, num_processes=8)
    found = []
    for state in (deepspeed, fsdp, ddp):
        found.append(Found())
        _read_sharding(found[-1], state)
    assert found[0].fields["zero_stage"] == 2
    assert found[1].fields == {"zero_stage": 3, "offload": "parameters", "recompute": "full"}
    assert found[2].fields == {"zero_stage": 0}
