"""What watching a run costs it: seconds per step of the monitor and of every adapter, in real trainers.

    python benchmarks/online_overhead.py [--steps 1000] [--step-ms 10]

Every call of an adapter's methods by a trainer is timed while a tiny model trains in steps of 10 ms, in which
products of matrices have the caches; so are those of an adapter that does nothing, which are taken off. The
slowest twentieth of the calls is given apart: on a machine with other work most of it is that work's.
"""

from __future__ import annotations

import argparse
import functools
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any

from precision_time_integrations.online.imports import declare_torchvision

declare_torchvision()

import torch  # noqa: E402
from torch.utils.data import DataLoader, TensorDataset  # noqa: E402

from precision_time_integrations.online import RunMonitor  # noqa: E402
from precision_time_integrations.online.pytorch import track  # noqa: E402

SIDE = 500
Taken = dict[str, list[float]]


def work(seconds: float) -> None:
    """Multiply matrices."""
    left = torch.ones(SIDE, SIDE)
    until_s = time.perf_counter() + seconds
    while time.perf_counter() < until_s:
        left @ left


def timed(adapter: Any, names: tuple[str, ...]) -> Taken:
    """Replace methods of an adapter by themselves with a clock around them; the seconds of calls by name."""
    taken: Taken = {name: [] for name in names}

    def wrapped(name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(method)
        def call(*args: Any, **kwargs: Any) -> Any:
            began_s = time.perf_counter()
            try:
                return method(*args, **kwargs)
            finally:
                taken[name].append(time.perf_counter() - began_s)

        return call

    for name in names:
        setattr(adapter, name, wrapped(name, getattr(adapter, name)))
    return taken


def per_step_s(taken: Taken, steps: int) -> tuple[float, float]:
    """Seconds of a step without the slowest twentieth of the calls of each method, and with them."""
    usual = sum(
        statistics.fmean(sorted(calls)[: -(len(calls) // 20) or None]) * len(calls) / steps
        for calls in taken.values()
        if calls
    )
    return usual, sum(map(sum, taken.values())) / steps


def nexts(iterable: Any, steps: int, step_s: float) -> Taken:
    """Seconds of asking for the next item, after the first ones."""
    items: Iterator[Any] = iter(iterable)
    for _ in range(20):
        next(items)
    taken: list[float] = []
    for _ in range(steps - 21):
        began_s = time.perf_counter()
        next(items)
        taken.append(time.perf_counter() - began_s)
        work(step_s)
    return {"next": taken}


def monitored(steps: int) -> Iterator[None]:
    """Items between which a monitor is told of a step."""
    monitor = RunMonitor(total_steps=steps)
    monitor.begin()
    for _ in range(steps):
        monitor.step()
        yield


def lightning(steps: int, step_s: float) -> tuple[Taken, Taken, float]:
    """Of the callback of Lightning and of one that does nothing, and seconds before the first step."""
    from lightning import Callback, LightningModule, Trainer

    from precision_time_integrations.online.lightning import EtaCallback

    class Tiny(LightningModule):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(8, 8)

        def training_step(self, batch: Any, batch_idx: int) -> Any:
            if batch[0].device.type == "cpu":
                work(step_s)
            return self.layer(batch[0]).mean()

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=0.1)

    hooks = ("on_train_batch_start", "on_train_batch_end")
    callback, nothing = EtaCallback(), Callback()
    ours, floor = timed(callback, hooks), timed(nothing, hooks)
    with tempfile.TemporaryDirectory() as folder:
        trainer = Trainer(
            accelerator="cpu", max_epochs=1, logger=False, enable_checkpointing=False,
            callbacks=[callback, nothing], enable_progress_bar=False, enable_model_summary=False,
            default_root_dir=folder,
        )  # fmt: skip
        trainer.fit(Tiny(), DataLoader(TensorDataset(torch.randn(steps, 8)), batch_size=1))
    return ours, floor, ours[hooks[0]].pop(0)


def transformers(steps: int, step_s: float) -> tuple[Taken, Taken, float]:
    """The same of the callback of the Hugging Face Trainer."""
    from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainerCallback, TrainingArguments

    from precision_time_integrations.online.transformers import EtaCallback

    config = LlamaConfig(
        hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2, vocab_size=50
    )
    tokens = torch.randint(0, 50, (steps, 4))
    hooks = ("on_step_begin", "on_step_end", "on_log")

    class Working(TrainerCallback):  # type: ignore[misc]
        def on_pre_optimizer_step(self, *_: Any, **__: Any) -> None:
            work(step_s)

    callback, nothing = EtaCallback(), TrainerCallback()
    ours, floor = timed(callback, hooks), timed(nothing, hooks)
    begun = timed(callback, ("_begin",))["_begin"]
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            folder, num_train_epochs=1, per_device_train_batch_size=1, report_to="none", use_cpu=True,
            save_strategy="no", logging_steps=10, disable_tqdm=False,
        )  # fmt: skip
        data = [{"input_ids": row, "labels": row} for row in tokens]
        trainer = Trainer(
            model=LlamaForCausalLM(config),
            args=arguments,
            train_dataset=data,
            callbacks=[callback, nothing, Working()],
        )
        trainer.train()
    return ours, floor, begun[0]


def accelerate(steps: int, step_s: float) -> tuple[Taken, Taken, float]:
    """The same of the tracker of Accelerate, logged to in every step."""
    from accelerate import Accelerator
    from accelerate.tracking import GeneralTracker

    from precision_time_integrations.online.accelerate import EtaTracker

    tracker, nothing = EtaTracker(total_steps=steps), GeneralTracker(_blank=True)
    ours, floor = timed(tracker, ("log",)), timed(nothing, ("log",))
    nothing.name, begun = "nothing", timed(tracker, ("_begin",))["_begin"]
    accelerator = Accelerator(cpu=True, log_with=[tracker, nothing])
    accelerator.init_trackers("overhead")
    layer = torch.nn.Linear(8, 8)
    model, optimizer = accelerator.prepare(layer, torch.optim.SGD(layer.parameters(), lr=0.1))
    tracker.watch(model, optimizer=optimizer)
    for step in range(1, steps + 1):
        loss = model(torch.randn(1, 8)).mean()
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        work(step_s)
        accelerator.log({"loss": 0.0}, step=step)
    accelerator.end_training()
    return ours, floor, begun[0]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--step-ms", type=float, default=10.0)
    given = parser.parse_args()
    steps, step_s = given.steps, given.step_ms * 1e-3
    bare = nexts([None] * steps, steps, step_s)
    rows: list[tuple[str, Taken, Taken, float | None]] = [
        ("RunMonitor.step", nexts(monitored(steps), steps, step_s), bare, None),
        ("track", nexts(track([None] * steps, bar=False, predict=False), steps, step_s), bare, None),
        ("track with bar", nexts(track([None] * steps, predict=False), steps, step_s), bare, None),
        ("Lightning", *lightning(steps, step_s)),
        ("Hugging Face", *transformers(steps, step_s)),
        ("Accelerate", *accelerate(steps, step_s)),
    ]
    print(f"{'':17}{'per step':>12}{'of the step':>13}{'with slowest 5%':>18}{'before the first':>18}")
    for name, ours, floor, first_s in rows:
        (usual, mean), (off, mean_off) = per_step_s(ours, steps), per_step_s(floor, steps)
        once = "" if first_s is None else f"{first_s:.2f} s"
        print(
            f"{name:17}{(usual - off) * 1e6:9.1f} us{(usual - off) / step_s:13.3%}"
            f"{(mean - mean_off) * 1e6:15.1f} us{once:>18}"
        )


if __name__ == "__main__":
    main()
