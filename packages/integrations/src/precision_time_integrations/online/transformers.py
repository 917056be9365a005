"""Hugging Face: `Trainer(callbacks=[EtaCallback()])` says when `train` will end."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any

from precision_time.errors import required_module

from .accelerate import accelerator_fields
from .adapter import Adapter
from .describe import Described, request_of
from .eta import Eta
from .first_forward import on_first_forward
from .live_run import LiveRun, harmless

_trainer_callback: Any = required_module(
    "transformers.trainer_callback",
    package="transformers",
    extra="precision-time-integrations[all]",
    purpose="watch its Trainer",
)
_STACK = "hf-trainer"


class EtaCallback(Adapter, _trainer_callback.TrainerCallback):  # type: ignore[misc]
    """Remaining time of `Trainer.train` and its interval, in the progress bar and the logs.

    Before the first step it says what the step of this very model should take: model and first inputs are
    seen as the model is called, the rest is read from `TrainingArguments` and the state of Accelerate.
    Arguments as `Adapter`.
    """

    _bar: Any = None
    _stop_waiting: Callable[[], None] | None = None

    def add_to(self, trainer: Any) -> None:
        """Add this to a trainer before its reporters: TensorBoard, W&B ... get the remaining time, too.

        As one of `callbacks=[...]` it comes after them: then the bar, the printed logs and
        trainer_state.json have it.
        """
        present = trainer.callback_handler.callbacks
        flow = _trainer_callback.DefaultFlowCallback  # says when evaluation and saving are due
        place = 1 + max((i for i, each in enumerate(present) if isinstance(each, flow)), default=-1)
        present.insert(place, self)

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """A new run: nothing is known of it yet."""
        self._end()  # of one that was interrupted
        self._new_run(speaks=bool(state.is_world_process_zero))
        self._start(args, state, **kwargs)

    @harmless
    def _start(self, args: Any, state: Any, *, model: Any = None, **kwargs: Any) -> None:
        self._bar, self._stop_waiting = None, None
        seen = model is not None and not args.torch_compile and args.n_gpu <= 1  # one call, not traced
        if self._options.predict and self.run is not None and self.run.speaks and seen:
            optimizer = kwargs.get("optimizer")
            self._stop_waiting = on_first_forward(
                model, lambda batch: self._begin(args, state, model, optimizer, batch)
            )

    @harmless
    def _begin(self, args: Any, state: Any, model: Any, optimizer: Any, batch: Any) -> None:
        if self.run is None or self._running:
            return
        self._running = True
        describe = None
        if model is not None:

            def describe() -> Described:
                return describe_trainer(args, state, model, optimizer, batch, self._fields)

        self.run.begin(
            describe, total_steps=state.max_steps or None, done=state.global_step, pauses=pauses(args, state)
        )

    @harmless
    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Whatever paused is over."""
        if self.run is None:
            return
        if self._running:
            self.run.end_pause()
        elif self._stop_waiting is None:
            self._begin(args, state, kwargs.get("model"), kwargs.get("optimizer"), None)

    @harmless
    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """An optimizer step."""
        run = self.run
        if run is None:
            return
        if not self._running:  # the model was not called: its first step is not known
            self._begin(args, state, None, None, None)
        else:
            eta = run.step(state.global_step)
            if eta is not None:
                self._show(eta, state.max_steps)
        self._announce(run, control)

    @harmless
    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
        """Add the remaining time to what is logged of the training."""
        run = self.run
        if run is None or not self._running or not run.speaks or not isinstance(logs, dict):
            return
        if "loss" in logs:
            found = run.eta().metrics()
            logs.update(found)
            if state.log_history:
                state.log_history[-1].update(found)

    @harmless
    def on_epoch_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Evaluation or a checkpoint may follow."""
        if self.run is not None and self._running:
            self._announce(self.run, control)

    @harmless
    def on_prediction_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """No step, whoever asked for it."""
        if self.run is not None and self._running:
            self.run.begin_pause("evaluation")

    @harmless
    def on_evaluate(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Steps go on, unless a checkpoint follows."""
        if self.run is not None and self._running:
            self.run.end_pause()
            if control.should_save:
                self.run.begin_pause("checkpoint")

    @harmless
    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """The checkpoint is written."""
        if self.run is not None and self._running:
            self.run.end_pause()

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """The run is over."""
        self._end()

    @harmless
    def _end(self) -> None:
        if self._stop_waiting is not None:
            self._stop_waiting()
        if self.run is not None and self._running:
            self._running = False
            self.run.end()

    def _announce(self, run: LiveRun, control: Any) -> None:
        if control.should_evaluate:
            run.begin_pause("evaluation")
        elif control.should_save:
            run.begin_pause("checkpoint")

    def _show(self, eta: Eta, total: int) -> None:
        """In the bar that the trainer made."""
        if self._bar is None:
            self._bar = _bar_of(total)
        if self._bar is not None:
            self._bar.set_postfix_str(eta.text, refresh=False)


def _bar_of(total: int) -> Any:
    """The bar of tqdm with so many steps; None where the trainer shows another, or none."""
    tqdm = sys.modules.get("tqdm")
    bars = getattr(getattr(tqdm, "tqdm", None), "_instances", ())
    return next((bar for bar in bars if bar.total == total and not bar.disable), None)


def pauses(args: Any, state: Any) -> dict[str, int] | None:
    """Every so many steps an evaluation or a checkpoint; None where neither is planned by steps or epochs."""
    an_epoch = round(state.max_steps / state.num_train_epochs) if state.num_train_epochs else 0
    planned = (
        ("evaluation", args.eval_strategy, state.eval_steps),
        ("checkpoint", args.save_strategy, state.save_steps),
    )
    every = {
        name: {"steps": int(steps or 0), "epoch": an_epoch}.get(str(getattr(strategy, "value", strategy)), 0)
        for name, strategy, steps in planned
    }
    return {name: steps for name, steps in every.items() if steps > 0} or None


def describe_trainer(
    args: Any, state: Any, model: Any, optimizer: Any, batch: Any, stated: Mapping[str, Any]
) -> Described:
    """What a trainer is, as a request.

    Args:
        args: Its `TrainingArguments`.
        state: Its `TrainerState`.
        model: What it trains.
        optimizer: What updates it; None where that is not made yet.
        batch: What the model was first called with; None where that was not seen.
        stated: Fields by the user: they come first.
    """
    found = accelerator_fields()
    found.fields.pop("num_microbatches", None)
    if (
        found.fields.get("precision") == "bf16-mixed"
        and not found.fields.get("zero_stage")
        and _is_bf16(model)
    ):
        del found.fields["precision"]  # of weights that are bf16 alone
    if "precision" not in found.fields and args.tf32:
        found.update(precision="tf32")
    if args.n_gpu > 1:
        found.update(devices=args.n_gpu, data_parallel_engine="dataparallel", zero=None)
    found.update(
        num_microbatches=args.gradient_accumulation_steps,
        batch_size=args.per_device_train_batch_size,
        steps=state.max_steps or None,
        recompute="full" if _recomputes(args) else None,
        compiler="inductor" if args.torch_compile else None,
        stack=_STACK,
    )
    read = {"model": model, "optimizer": optimizer, **found.fields}
    described = request_of(**{**read, **stated}, batch=batch)
    return Described(described.request, (*found.reasons, *described.reasons))


def _is_bf16(model: Any) -> bool:
    return str(getattr(model, "dtype", "")) == "torch.bfloat16"


def _recomputes(args: Any) -> bool:
    return bool(getattr(args, "activation_checkpointing", False) or args.gradient_checkpointing)
