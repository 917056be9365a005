"""Lightning: `Trainer(callbacks=[EtaCallback()])` says when `fit` will end."""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping
from typing import Any

from precision_time.errors import required_module

from .adapter import Adapter
from .describe import Described, Found, request_of
from .imports import declare_torchvision
from .live_run import harmless
from .sharding import deepspeed_fields, fsdp_fields

declare_torchvision()
_Callback: Any = required_module(
    "lightning.pytorch.callbacks",
    package="lightning",
    extra="precision-time-integrations[all]",
    purpose="watch its Trainer",
).Callback


class EtaCallback(Adapter, _Callback):  # type: ignore[misc]
    """Remaining time of `Trainer.fit` and its interval, in the progress bar and the loggers.

    Before the first step it says what the step of this very model should take: model, precision, strategy,
    devices and accumulation are read from the trainer, sizes from the first batch. Arguments as `Adapter`.
    """

    _text = _precision = ""
    _shown = False
    _done, _ended_s = 0, 0.0

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """A new fit: nothing is known of it yet."""
        self._text = ""
        self._new_run(speaks=bool(trainer.is_global_zero))

    @harmless
    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        """The first batch says what the steps are of."""
        run = self.run
        if run is None:
            return
        if not self._running:
            self._precision, self._done = str(trainer.precision), trainer.global_step
            run.begin(
                lambda: describe_trainer(trainer, pl_module, batch, self._fields),
                total_steps=total_steps(trainer),
                done=self._done,
                pauses=evaluations(trainer),
            )
            self._running = True
            self._show_in_bar(trainer)
            return
        run.end_pause()  # of a checkpoint, which has no hook for its end
        run.waited(self._options.clock() - self._ended_s)
        if self._shown:
            self._shown = False
            if trainer.precision != self._precision:
                self._precision = str(trainer.precision)
                run.changed(lambda: describe_trainer(trainer, pl_module, batch, self._fields))

    @harmless
    def on_train_batch_end(
        self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """An optimizer step, unless gradients accumulate."""
        run, done = self.run, trainer.global_step
        self._ended_s = self._options.clock()
        if run is None or done == self._done:
            return
        if not pl_module.automatic_optimization:  # global_step counts every optimizer
            done = trainer.fit_loop.epoch_loop._batches_that_stepped + 1
        self._done = trainer.global_step
        eta = run.step(done)
        if eta is not None:
            self._text, self._shown = eta.text, True
        every = trainer.log_every_n_steps
        if run.speaks and every and done % every == 0 and trainer.loggers:
            metrics, axis = run.eta().metrics(), trainer.fit_loop.epoch_loop._batches_that_stepped
            for logger in trainer.loggers:
                logger.log_metrics(metrics, step=axis)

    @harmless
    def on_validation_start(self, trainer: Any, pl_module: Any) -> None:
        """No step, and announced as such."""
        if self.run is not None and self._running:
            self.run.end_pause()
            self.run.begin_pause("evaluation")

    @harmless
    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        """Steps go on."""
        if self.run is not None and self._running:
            self.run.end_pause()
            self._ended_s = self._options.clock()

    @harmless
    def on_save_checkpoint(self, trainer: Any, pl_module: Any, checkpoint: Any) -> None:
        """A checkpoint is about to be written: until the next batch."""
        if self.run is not None and self._running:
            self.run.begin_pause("checkpoint")

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """The run is over."""
        self._end(trainer)

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """The run is over, too, such as by Ctrl-C: what it made counts."""
        self._end(trainer)

    @harmless
    def _end(self, trainer: Any) -> None:
        if self.run is None or not self._running:
            return
        self._running = False
        bar = trainer.progress_bar_callback
        if bar is not None:
            vars(bar).pop("get_metrics", None)
        self.run.end()

    def _show_in_bar(self, trainer: Any) -> None:
        """Add an item to what Lightning's own bar shows, whichever it is."""
        bar = trainer.progress_bar_callback
        if bar is None or self.run is None or not self.run.speaks or "get_metrics" in vars(bar):
            return
        usual = bar.get_metrics

        def with_eta(*args: Any, **kwargs: Any) -> Any:
            items = usual(*args, **kwargs)
            return {**items, "eta": self._text} if self._text else items

        bar.get_metrics = with_eta


def total_steps(trainer: Any) -> int | None:
    """Optimizer steps of a whole fit; None where the trainer cannot know."""
    steps = trainer.estimated_stepping_batches
    return int(steps) if 0 <= steps < math.inf else None


def evaluations(trainer: Any) -> dict[str, dict[str, int]] | None:
    """The evaluations that a fit will make, as `RunMonitor` takes pauses; None where that is not known."""
    batches, every = sum(trainer.num_val_batches), trainer.val_check_batch
    if not trainer.enable_validation or not 0 < batches < math.inf or not 0 < every < math.inf:
        return None
    steps = math.ceil(every / trainer.accumulate_grad_batches) * (trainer.check_val_every_n_epoch or 1)
    return {"evaluation": {"every_steps": steps, "batches": int(batches)}}


def describe_trainer(trainer: Any, pl_module: Any, batch: Any, stated: Mapping[str, Any]) -> Described:
    """What a trainer is, as a request.

    Args:
        trainer: With its strategy set up.
        pl_module: What it trains.
        batch: The first.
        stated: Fields by the user: they come first.
    """
    found = Found()
    found.ask(lambda to: _read_strategy(to, trainer), "The strategy")
    found.ask(lambda to: _read_precision(to, trainer), "The precision")
    fields = {
        "model": pl_module,
        "devices": trainer.world_size,
        "nodes": None if "gpus" in stated else trainer.num_nodes,
        "num_microbatches": trainer.accumulate_grad_batches,
        "steps": total_steps(trainer) or None,
        "compiler": "inductor" if getattr(pl_module, "_compiler_ctx", None) is not None else None,
        "device": pl_module.device,
        "optimizer": next(iter(trainer.optimizers), None),
        **found.fields,
        **stated,
    }
    takes_index = len(inspect.signature(pl_module.training_step).parameters) > 1

    def step(module: Any, inputs: Any) -> Any:
        return module.training_step(inputs, 0) if takes_index else module.training_step(inputs)

    described = request_of(**fields, batch=batch, forward=step)
    return Described(described.request, (*found.reasons, *described.reasons))


def _read_precision(found: Found, trainer: Any) -> None:
    if trainer.precision != "32-true":  # the parameters say it, and whether it is TF32
        found.fields.setdefault("precision", str(trainer.precision))


def _read_strategy(found: Found, trainer: Any) -> None:
    """Sharding, by the class of the strategy."""
    strategy, devices = trainer.strategy, trainer.world_size
    kinds = {kind.__name__ for kind in type(strategy).__mro__}
    if "DeepSpeedStrategy" in kinds:
        found.update(**deepspeed_fields(strategy.config, devices=devices))
        found.fields.pop("precision", None)  # Lightning's own
    elif "FSDPStrategy" in kinds:
        sharding = fsdp_fields(
            strategy.sharding_strategy.name,
            devices=devices,
            nodes=trainer.num_nodes,
            offload=bool(strategy.cpu_offload and strategy.cpu_offload.offload_params),
            recompute=bool(getattr(strategy, "_activation_checkpointing_kwargs", None)),
        )
        found.update(**sharding)
    elif "ModelParallelStrategy" in kinds:
        found.update(tp=int(strategy._tensor_parallel_size), zero_stage=3)
    elif "DDPStrategy" in kinds and devices > 1:
        found.update(zero_stage=0)
    elif devices > 1:
        found.reasons.append(f"The strategy {type(strategy).__name__} says no layout: the usual one is taken")
