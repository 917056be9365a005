"""DeepSpeed: what its JSON says, and an engine that is followed without being changed."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from precision_time.errors import ConfigError
from precision_time.request.request import Request
from precision_time_integrations.online.deepspeed import config_fields, track


class Clock:
    """Seconds that pass when told."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class StandIn(torch.nn.Module):  # type: ignore[misc, name-defined]
    """An engine with the interface of DeepSpeed's that the adapter uses: micro batches of 10 ms."""

    global_rank, device, config = 0, torch.device("cpu"), {"zero_optimization": {"stage": 1}}

    def __init__(self, clock: Clock, *, accum: int = 2, done: int = 0) -> None:
        super().__init__()
        self.module = torch.nn.Linear(4, 2)
        self.optimizer = torch.optim.AdamW(self.module.parameters())
        self.clock, self.accum, self.global_steps, self.micro_steps = clock, accum, done, 0
        self.saved: list[str] = []

    def forward(self, inputs: Any) -> Any:
        self.clock.now += 0.01
        return self.module(inputs)

    def step(self) -> None:
        self.micro_steps += 1
        self.global_steps += self.micro_steps % self.accum == 0

    def train(self, mode: bool = True) -> Any:
        self.module.train(mode)
        return self

    def save_checkpoint(self, folder: str) -> None:
        self.clock.now += 5.0
        self.saved.append(folder)

    def train_micro_batch_size_per_gpu(self) -> int:
        return 8

    def gradient_accumulation_steps(self) -> int:
        return self.accum

    def zero_optimization_stage(self) -> int:
        return 1

    def steps_per_print(self) -> int:
        return 10


def test_a_configuration_says_layout_precision_batch_and_optimizer(tmp_path: Path) -> None:
    file = tmp_path / "ds.json"
    stated = {
        "train_batch_size": 256, "train_micro_batch_size_per_gpu": 4, "bf16": {"enabled": True},
        "zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu"}, "overlap_comm": "auto"},
        "optimizer": {"type": "AdamW", "params": {"lr": "auto"}},
    }  # fmt: skip
    file.write_text(json.dumps(stated))
    found = config_fields(file, devices=16)
    assert (found["batch_size"], found["num_microbatches"], found["zero_stage"]) == (4, 4, 3)
    assert (found["precision"], found["offload"], found["optimizer"]) == ("bf16-mixed", "optimizer", "AdamW")
    job = Request.of({"model": "llama3.1-8b", "device": "H100", "gpus": 16, **found}).resolve()
    assert job.layout.global_batch_size == 256 and job.layout.zero_stage == 3


def test_what_a_configuration_leaves_open_stays_open() -> None:
    auto = {
        "train_batch_size": "auto", "gradient_accumulation_steps": "auto", "fp16": {"enabled": "auto"},
        "zero_optimization": {"stage": "auto", "offload_param": {"device": "nvme"}},
    }  # fmt: skip
    found = config_fields(auto, devices=8)
    assert found.keys() & {"batch_size", "num_microbatches", "precision", "zero_stage"} == set()
    assert found["offload"] == "parameters"
    assert config_fields({"fp16": {"enabled": True}}, devices=1)["precision"] == "fp16-mixed"
    autocast = {"torch_autocast": {"enabled": True, "dtype": "torch.float16"}}
    assert config_fields(autocast, devices=1)["precision"] == "fp16-mixed"


@pytest.mark.parametrize(
    "config",
    [
        {"train_batch_size": 100, "train_micro_batch_size_per_gpu": 8},
        {"train_batch_size": 8, "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 2},
        {"train_micro_batch_size_per_gpu": 0},
        {"train_micro_batch_size_per_gpu": "eight"},
        {"train_batch_size": True},
        {"zero_optimization": {"stage": "three"}},
    ],
)
def test_batches_that_do_not_multiply_are_refused(config: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="To fix"):
        config_fields(config, devices=16)


def test_files_that_are_none_are_refused(tmp_path: Path) -> None:
    for name, text in {"cut.json": '{"bf16": {', "list.json": "[1]", "long.json": " " * 2**21}.items():
        (tmp_path / name).write_text(text)
        with pytest.raises(ConfigError, match="To fix"):
            config_fields(tmp_path / name, devices=1)
    with pytest.raises(ConfigError, match="To fix"):
        config_fields(tmp_path / "none.json", devices=1)


def train(engine: StandIn, run: track, batches: int, *, load_s: float = 0.0) -> None:
    def loader() -> Iterator[Any]:
        for _ in range(batches):
            engine.clock.now += load_s
            yield torch.zeros(8, 4)

    for batch in run.batches(loader()):
        engine(batch)
        engine.step()


def test_steps_pauses_and_waits_are_told_apart() -> None:
    said: list[str] = []
    clock = Clock()
    engine = StandIn(clock, done=100)
    with track(engine, total_steps=400, clock=clock, predict=False, say=said.append) as run:
        train(engine, run, 40, load_s=0.005)
        engine.train(False)
        for _ in range(100):
            engine(torch.zeros(8, 4))
        engine.train(True)
        train(engine, run, 40, load_s=0.005)
        engine.save_checkpoint("here")
        train(engine, run, 40, load_s=0.005)
        eta = run.eta
        assert eta is not None and (eta.step, eta.total_steps) == (160, 400)
        assert eta.step_time_s == pytest.approx(0.03, rel=0.05)
    record = run.record
    assert record is not None and record.steps == 60 and not run.failure
    assert record.pauses_s == pytest.approx({"evaluation": 1.0, "checkpoint": 5.0}, rel=0.02)
    assert record.waited_s == pytest.approx(0.01, rel=0.05)
    assert engine.saved == ["here"] and not {"step", "save_checkpoint"} & vars(engine).keys()
    assert not engine._forward_pre_hooks


def test_the_first_batch_is_described_and_the_run_offered(tmp_path: Path) -> None:
    said: list[str] = []
    clock, store = Clock(), tmp_path / "runs.csv"
    engine = StandIn(clock)
    run = track(
        engine, total_steps=30, clock=clock, share_with_corpus=True, store=store, say=said.append,
        device="A100-SXM4-80GB",
    )  # fmt: skip
    with pytest.warns(RuntimeWarning, match="Steps take 20 ms"):  # far slower than on an A100
        train(engine, run, 80)
    assert run.failure == "" and run.record is not None and run.record.steps == 30  # ended with the last
    assert "a step of Linear should take" in said[0] and "added to runs.csv" in said[-1]
    request = run.record.request
    assert (request["batch_size"], request["num_microbatches"], request["zero_stage"]) == (8, 2, 1)
    assert request["model"].params == 10 and request["precision"] == "fp32"
    assert "Linear-" in store.read_text()


def test_a_slow_loader_is_named_as_the_reason() -> None:
    clock = Clock()
    engine = StandIn(clock)
    run = track(engine, total_steps=60, clock=clock, say=lambda _: None, device="A100-SXM4-80GB")
    with pytest.warns(RuntimeWarning, match=r"(9\d\.\d|100) ms of each step pass waiting for input"):
        train(engine, run, 130, load_s=0.05)
    assert run.record is not None and run.record.waited_s == pytest.approx(0.1, rel=0.02)


@pytest.mark.filterwarnings("ignore:The remaining time of the run is not watched:RuntimeWarning")
def test_no_failure_reaches_the_training(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    for broken in ("global_steps", "train_micro_batch_size_per_gpu", "steps_per_print"):
        engine = StandIn(clock)
        run = track(engine, total_steps=10, clock=clock, say=lambda _: None)
        if broken == "global_steps":
            engine(torch.zeros(8, 4))
            del engine.global_steps
            run._after_step()
            assert run.failure
        else:
            monkeypatch.setattr(StandIn, broken, lambda self: 1 / 0)
            train(engine, run, 30)
            assert engine.global_steps == 15
            monkeypatch.undo()
        run.end()
    engine = StandIn(clock)
    run = track(object(), clock=clock)
    assert run.failure and run.eta is None
    interrupted = StandIn(clock)
    with pytest.raises(KeyboardInterrupt), track(interrupted, clock=clock, predict=False) as run:
        for _ in range(20):
            interrupted(torch.zeros(8, 4))
            interrupted.step()
        raise KeyboardInterrupt
    assert run.record is not None and (run.record.steps, run.record.waited_s) == (10, None)


REAL = """
import json, socket, sys, os
from pathlib import Path
with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    port = free.getsockname()[1]
os.environ |= {"DS_ACCELERATOR": "cpu", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "RANK": "0",
               "LOCAL_RANK": "0", "WORLD_SIZE": "1", "LOCAL_WORLD_SIZE": "1"}
import deepspeed, torch
from precision_time_integrations.online.deepspeed import track
for name in ("deepspeed_shm_comm", "deepspeed_ccl_comm"):  # else compiled for a minute: between processes
    deepspeed.ops.__compatible_ops__[name] = False
stage, found = int(sys.argv[1]), {}
net = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 8))
config = {"train_micro_batch_size_per_gpu": 8, "gradient_accumulation_steps": 2,
          "zero_optimization": {"stage": stage}, "zero_allow_untested_optimizer": True}
engine, *_ = deepspeed.initialize(model=net, optimizer=torch.optim.AdamW(net.parameters()), config=config)
with track(engine, total_steps=20, share_with_corpus=True, store=Path("runs.csv")) as run:
    for batch in run.batches([torch.randn(8, 64) for _ in range(40)]):
        engine.backward(engine(batch).square().mean())
        engine.step()
request = run.record.request
print("found", json.dumps({
    "failure": run.failure, "steps": [engine.global_steps, run.record.steps], "fields":
    [request[name] for name in ("zero_stage", "num_microbatches", "batch_size", "precision", "optimizer")],
    "params": request["model"].params, "trained": [node.weight_grad for node in request["model"].nodes],
    "predicted": run.prediction is not None, "hooked": "step" in vars(engine)}))
"""


@pytest.mark.nightly(
    covered_by="packages/integrations/tests/online/test_deepspeed.py::test_the_first_batch_is_described_and_the_run_offered"
)
@pytest.mark.parametrize("stage", [0, 3])
def test_a_real_engine_on_this_processor(stage: int, tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", REAL, str(stage)],
        cwd=tmp_path,
        check=False,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert ran.returncode == 0, ran.stderr[-3000:]
    line = next(line for line in ran.stdout.splitlines() if line.startswith("found "))
    assert json.loads(line.removeprefix("found ")) == {
        "failure": "",
        "steps": [20, 20],
        "fields": [stage, 2, 8, "fp32", "adamw"],
        "params": 64 * 256 + 256 + 256 * 8 + 8,
        "trained": [True, False, True],
        "predicted": True,
        "hooked": False,
    }
    assert "Sequential-" in (tmp_path / "runs.csv").read_text()
