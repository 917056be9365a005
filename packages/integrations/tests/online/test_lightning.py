"""The remaining time of Lightning's `fit`, with the real library."""

from __future__ import annotations

import csv
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from .conftest import Clock

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::UserWarning"),  # of Lightning: few workers, no logger ...
    pytest.mark.filterwarnings("ignore::FutureWarning"),  # its use of PyTorch
]
STEP_S, EVALUATION_S = 100.0, 1000.0
BATCHES = 12


@pytest.fixture
def lab(tmp_path: Path) -> Any:
    """Lightning, a clock, and what makes a module, a loader and a trainer."""
    from precision_time_integrations.online.imports import declare_torchvision

    declare_torchvision()
    import lightning

    return Lab(lightning, tmp_path)


class Lab:
    """One test's trainer and clock."""

    def __init__(self, lightning: Any, folder: Path) -> None:
        import torch

        from precision_time_integrations.online.lightning import EtaCallback

        self.lightning, self.torch, self.folder, self.clock = lightning, torch, folder, Clock()
        self.said: list[str] = []
        self.callback = EtaCallback(clock=self.clock, say=self.said.append, device="A100-SXM4-80GB")
        self.etas: list[Any] = []

    def module(self, *, at: dict[int, Any] | None = None) -> Any:
        """A module whose every batch takes `STEP_S`; `at` calls something in a batch."""
        torch, lab, made = self.torch, self, at or {}

        class Tiny(self.lightning.LightningModule):  # type: ignore[name-defined,misc]
            def __init__(self) -> None:
                super().__init__()
                self.net = torch.nn.Sequential(
                    torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4)
                )
                self.seen = 0

            def training_step(self, batch: Any, batch_idx: int) -> Any:
                inputs, targets = batch
                loss = torch.nn.functional.cross_entropy(self.net(inputs), targets)
                if inputs.device.type != "meta":
                    lab.etas.append(lab.callback.eta)
                    lab.clock.now_s += STEP_S
                    self.seen += 1
                    made.get(self.seen, lambda: None)()
                return loss

            def validation_step(self, batch: Any, batch_idx: int) -> None:
                lab.clock.now_s += EVALUATION_S

            def configure_optimizers(self) -> Any:
                return torch.optim.AdamW(self.parameters())

        return Tiny()

    def loader(self, batches: int = BATCHES) -> Any:
        torch = self.torch
        data = torch.utils.data.TensorDataset(torch.randn(4 * batches, 8), torch.zeros(4 * batches).long())
        return torch.utils.data.DataLoader(data, batch_size=4)

    def stream(self) -> Any:
        torch = self.torch

        class Stream(torch.utils.data.IterableDataset):  # type: ignore[name-defined,misc]
            def __iter__(self) -> Iterator[Any]:
                for _ in range(4 * BATCHES):
                    yield torch.zeros(8), torch.tensor(0)

        return torch.utils.data.DataLoader(Stream(), batch_size=4)

    def trainer(self, **options: Any) -> Any:
        usual = {
            "accelerator": "cpu", "max_epochs": 2, "logger": False, "enable_checkpointing": False,
            "enable_model_summary": False, "enable_progress_bar": False, "callbacks": [self.callback],
            "default_root_dir": str(self.folder), "num_sanity_val_steps": 0,
        }  # fmt: skip
        return self.lightning.Trainer(**{**usual, **options})


def test_fit_is_predicted_told_logged_and_measured(lab: Any) -> None:
    logger = lab.lightning.pytorch.loggers.CSVLogger(lab.folder)
    trainer = lab.trainer(
        accumulate_grad_batches=2, logger=logger, log_every_n_steps=3, enable_checkpointing=True,
        enable_progress_bar=True, val_check_interval=6,
    )  # fmt: skip
    trainer.fit(lab.module(), lab.loader(), lab.loader(2))
    assert not lab.callback.failure and not lab.callback.run.failure
    request = lab.callback.run.described.request
    assert (request.optimizer, request.batch_size, request.num_microbatches) == ("adamw", 4, 2)
    assert (request.gpus, request.nodes, request.precision, request.steps) == (1, 1, "fp32", 12)
    assert len(lab.said) == 1 and "a step of Tiny" in lab.said[0] and "12 steps" in lab.said[0]
    assert lab.etas[0].basis == "prediction" and lab.etas[0].total_steps == 12
    record = lab.callback.record
    assert (record.steps, record.step_time_s) == (12, pytest.approx(2 * STEP_S))
    assert record.pauses_s["evaluation"] == pytest.approx(4 * 2 * EVALUATION_S)
    assert lab.etas[14].pause_s == pytest.approx(2 * 2 * EVALUATION_S)  # two of four are made
    with open(f"{logger.log_dir}/metrics.csv") as file:
        logged = [float(row["eta/remaining_s"]) for row in csv.DictReader(file) if row["eta/remaining_s"]]
    assert len(logged) == 4 and logged[-1] == pytest.approx(2 * EVALUATION_S)
    assert "get_metrics" not in vars(trainer.progress_bar_callback)


def test_what_the_user_states_comes_first(lab: Any) -> None:
    said = {"model": "resnet50", "gpus": 16, "nodes": 2, "optimizer": "momentum-sgd", "batch_size": 32}
    lab.callback = type(lab.callback)(clock=lab.clock, say=lab.said.append, device="A100-SXM4-80GB", **said)
    lab.trainer().fit(lab.module(), lab.loader())
    request = lab.callback.run.described.request
    assert {name: request.given()[name] for name in said} == said
    assert "a step of resnet50" in lab.said[0] and "16 x A100-SXM4-80GB" in lab.said[0]


def test_stream_without_length_and_with_a_number_of_steps(lab: Any) -> None:
    lab.trainer(max_epochs=1).fit(lab.module(), lab.stream())
    assert {eta.total_steps for eta in lab.etas} == {None}
    assert lab.etas[-1].step_time_s == pytest.approx(STEP_S, rel=0.02)  # the prediction still counts a little
    assert lab.callback.record.steps == BATCHES
    lab.etas.clear()
    lab.trainer(max_epochs=-1, max_steps=20).fit(lab.module(), lab.stream())
    assert {eta.total_steps for eta in lab.etas} == {20}


def test_second_fit_resumes_where_the_first_ended(lab: Any) -> None:
    first = lab.trainer(max_epochs=1)
    first.fit(lab.module(), lab.loader())
    first.save_checkpoint(lab.folder / "half.ckpt")
    lab.etas.clear()
    lab.trainer(max_epochs=3).fit(lab.module(), lab.loader(), ckpt_path=lab.folder / "half.ckpt")
    assert (lab.etas[0].step, lab.etas[0].total_steps) == (BATCHES, 3 * BATCHES)
    assert lab.etas[BATCHES].remaining_s == pytest.approx(BATCHES * STEP_S, rel=0.1)
    assert lab.callback.record.steps == 2 * BATCHES
    assert len(lab.said) == 2


def test_interrupted_fit_keeps_what_it_measured(lab: Any) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    with pytest.raises((KeyboardInterrupt, SystemExit)):
        lab.trainer().fit(lab.module(at={8: interrupt}), lab.loader())
    assert lab.callback.record.steps == 7
    assert lab.callback.record.step_time_s == pytest.approx(STEP_S)
    lab.trainer().fit(lab.module(), lab.loader())
    assert lab.callback.record.steps == 2 * BATCHES


def test_change_of_precision_is_predicted_again(lab: Any) -> None:
    from lightning.pytorch.plugins import MixedPrecision

    trainer = lab.trainer()

    def change() -> None:
        trainer.strategy.precision_plugin = MixedPrecision("bf16-mixed", "cpu")

    trainer.fit(lab.module(at={5: change}), lab.loader())
    assert ", fp32, " in lab.said[0] and ", bf16-mixed, " in lab.said[1] and len(lab.said) == 2
    assert lab.callback.record.request["precision"] == "bf16-mixed"
    assert not lab.callback.failure


def test_two_optimizers_of_a_batch_are_one_step(lab: Any) -> None:
    module = lab.module()
    module.automatic_optimization = False
    usual, torch = module.training_step, lab.torch

    def training_step(batch: Any, batch_idx: int) -> None:
        loss = usual(batch, batch_idx)
        module.manual_backward(loss)
        for optimizer in module.optimizers():
            optimizer.step()

    module.training_step = training_step
    module.configure_optimizers = lambda: [torch.optim.SGD(module.parameters(), lr=0.0) for _ in range(2)]
    lab.trainer().fit(module, lab.loader())
    assert lab.callback.record.steps == 2 * BATCHES and lab.etas[-1].step == 2 * BATCHES - 1


def test_fit_without_batches_ends_quietly(lab: Any) -> None:
    lab.trainer(limit_train_batches=0).fit(lab.module(), lab.loader())
    lab.trainer(max_steps=0).fit(lab.module(), lab.loader())
    assert lab.said == [] and not lab.callback.failure and lab.callback.record is None


@pytest.mark.parametrize("method", ["begin", "step", "eta"])
def test_monitor_that_raises_does_not_end_the_fit(
    lab: Any, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from precision_time_integrations.online.monitor import RunMonitor

    def broken(*_: Any, **__: Any) -> None:
        raise ZeroDivisionError("broken on purpose")

    monkeypatch.setattr(RunMonitor, method, broken)
    module = lab.module()
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        lab.trainer().fit(module, lab.loader())
    assert module.seen == 2 * BATCHES
    assert sum("broken on purpose" in str(each.message) for each in said) == 1


def test_trainer_that_cannot_be_read_is_trained_all_the_same(
    lab: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer, module = lab.trainer(), lab.module()
    monkeypatch.setattr(type(trainer), "estimated_stepping_batches", property(lambda _: 1 / 0))
    with pytest.warns(RuntimeWarning, match="is not watched any more: ZeroDivisionError"):
        trainer.fit(module, lab.loader())
    assert module.seen == 2 * BATCHES


def test_strategies_become_layouts(lab: Any) -> None:
    from lightning.pytorch.strategies import FSDPStrategy

    from precision_time_integrations.online.describe import Found
    from precision_time_integrations.online.lightning import _read_strategy

    found = Found()
    strategy = FSDPStrategy(sharding_strategy="HYBRID_SHARD", cpu_offload=True, auto_wrap_policy=set())
    _read_strategy(found, SimpleNamespace(strategy=strategy, world_size=16, num_nodes=2))
    assert found.fields == {"zero_stage": 3, "dp_shard": 8, "offload": "parameters"}

    class DeepSpeedStrategy:
        config = {"zero_optimization": {"stage": 2}, "bf16": {"enabled": True}}

    found = Found()
    _read_strategy(found, SimpleNamespace(strategy=DeepSpeedStrategy(), world_size=8, num_nodes=1))
    assert found.fields["zero_stage"] == 2 and "precision" not in found.fields
