"""DeepSpeed: `with track(engine, total_steps=1000): ...` says when the training will end.

The engine is used as before. Its `step` (of a pipeline its `train_batch`) is followed from outside, its
configuration says layout, batch and precision, the first batch that it is called with the sizes.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial, wraps
from typing import Any, Self, TypeVar

from .adapter import Adapter
from .describe import Described, processes, request_of
from .live_run import LiveRun, harmless
from .sharding import config_fields, deepspeed_fields

_Batch = TypeVar("_Batch")


__all__ = ["config_fields", "track"]


class track(Adapter):  # noqa: N801 - used like a function
    """Remaining time of the training that an engine does.

    It ends with the last of `total_steps`, the `with` block, or `end()`; the engine is then as it was.
    """

    def __init__(
        self,
        engine: Any,
        *,
        total_steps: int | None = None,
        pauses: Mapping[str, int | Mapping[str, Any]] | None = None,
        line_every_s: float = 60.0,
        **options: Any,
    ) -> None:
        """Follow an engine from now on.

        Args:
            engine: Of `deepspeed.initialize`.
            total_steps: Optimizer steps of the whole run, those before a checkpoint among them; None where
                that is not known.
            pauses: Pauses to come, such as `{"evaluation": 500}` for every 500 steps.
            line_every_s: A line with the remaining time that often.
            options: Of `Adapter`; among the fields `model`, where the module itself should not be captured.
        """
        super().__init__(**options)
        self._engine, self._total, self._pauses = engine, total_steps, pauses
        self._line_every_s, self._said_s = line_every_s, 0.0
        self._removes: list[Callable[[], None]] = []
        self._paused, self._done = False, 0
        self._waited_s: float | None = None
        self._follow()

    @harmless
    def _follow(self) -> None:
        """Hook into the engine."""
        engine = self._engine
        self._new_run(speaks=int(getattr(engine, "global_rank", processes().rank)) == 0)
        if hasattr(engine, "train_schedule") or hasattr(engine, "num_stages"):  # a pipeline has no `step`
            self._around("train_batch", before=self._before_batch, after=self._after_step)
            self._around("eval_batch", before=partial(self._pauses_for, "evaluation"), after=self._goes_on)
        else:
            hook = engine.register_forward_pre_hook(self._before_forward, with_kwargs=True)
            self._removes.append(hook.remove)
            self._around("step", before=self._goes_on, after=self._after_step)
        self._around("save_checkpoint", before=partial(self._pauses_for, "checkpoint"), after=self._goes_on)

    def _around(self, name: str, *, before: Callable[[], None], after: Callable[[], None]) -> None:
        """Call something before and after a method of the engine, which itself stays as it is."""
        engine, usual = self._engine, getattr(self._engine, name)
        own = vars(engine).get(name)

        @wraps(usual)
        def followed(*args: Any, **kwargs: Any) -> Any:
            before()
            found = usual(*args, **kwargs)
            after()
            return found

        def remove() -> None:
            if vars(engine).get(name) is followed:  # else somebody else wrapped it once more
                if own is None:
                    delattr(engine, name)
                else:
                    setattr(engine, name, own)

        setattr(engine, name, followed)
        self._removes.append(remove)

    def batches(self, loader: Iterable[_Batch]) -> Iterator[_Batch]:
        """The batches of a loader, and how long they were waited for: that explains a slow run.

        Args:
            loader: A `DataLoader`, the engine's own, or any other iterable.
        """
        now, batches = (self.run or LiveRun(self._options, speaks=False)).now, iter(loader)
        while True:
            since_s = now()
            try:
                batch = next(batches)
            except StopIteration:
                return
            self._waited_s = (self._waited_s or 0.0) + now() - since_s
            yield batch

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> None:
        """The run is over: what it took is in `record`."""
        for remove in self._removes:
            remove()
        self._removes.clear()
        self._end()

    @harmless
    def _end(self) -> None:
        if self.run is not None and self._running:
            self._running = False
            self.run.end()

    @harmless
    def _before_forward(self, module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """A forward pass: the first of the training, one of it, or one of an evaluation."""
        training = module.module.training
        if not self._running:
            if training:
                self._begin(_batch(module.module, args, kwargs))
        elif not training:
            self._pauses_for("evaluation")
        elif self._paused:
            self._goes_on()

    @harmless
    def _before_batch(self) -> None:
        if not self._running:
            self._begin(None)

    @harmless
    def _begin(self, batch: Any) -> None:
        engine, run = self._engine, self.run
        if run is None:
            return
        self._running = True
        self._paused, self._done = False, int(engine.global_steps)
        self._waited_s = None if self._waited_s is None else 0.0  # without that for the first batch
        self._said_s = self._options.clock()
        run.begin(
            lambda: describe_engine(engine, batch, self._fields, total_steps=self._total),
            total_steps=self._total,
            done=self._done,
            pauses=self._pauses,
        )

    @harmless
    def _after_step(self) -> None:
        """An optimizer step, unless gradients accumulate."""
        run, done = self.run, self._engine.global_steps
        if run is None or not self._running or done == self._done:
            return
        self._done = done
        if self._waited_s is not None:
            run.waited(self._waited_s)
            self._waited_s = 0.0
        run.step(done)
        if self._total is not None and done >= self._total:
            self.end()
        else:
            self._show(done)

    @harmless
    def _pauses_for(self, name: str) -> None:
        if self.run is not None and self._running:
            self._paused = True
            self.run.begin_pause(name)

    @harmless
    def _goes_on(self) -> None:
        if self._paused and self.run is not None:
            self._paused = False
            self.run.end_pause()

    def _show(self, done: int) -> None:
        """A line now and then, and the engine's own monitor (TensorBoard, W&B, CSV, Comet)."""
        run, engine = self.run, self._engine
        if run is None or not run.speaks:
            return
        every, monitor = engine.steps_per_print(), getattr(engine, "monitor", None)
        if monitor is not None and monitor.enabled and every and done % every == 0:
            values = run.eta().metrics()
            monitor.write_events([(f"Train/{name}", value, done) for name, value in values.items()])
        now = self._options.clock()
        if now - self._said_s >= self._line_every_s and (text := run.eta().text):
            self._said_s = now
            of = f" of {self._total:,}" if self._total is not None else ""
            self._options.say(f"precision-time: step {done:,}{of}: {text}.")


def describe_engine(
    engine: Any, batch: Any, stated: Mapping[str, Any], *, total_steps: int | None = None
) -> Described:
    """What an engine is, as a request.

    Args:
        engine: Of `deepspeed.initialize`.
        batch: What its module was first called with; None where that was not seen.
        stated: Fields by the user: they come first.
        total_steps: Of the run.
    """
    config = getattr(getattr(engine, "_config", None), "_param_dict", None) or engine.config
    stages, reasons = int(getattr(engine, "num_stages", 1) or 1), []
    fields = deepspeed_fields(config, devices=max(processes().size // stages, 1))
    fields |= {
        "pp": stages,
        "batch_size": int(engine.train_micro_batch_size_per_gpu()),
        "num_microbatches": int(engine.gradient_accumulation_steps()),
        "zero_stage": int(engine.zero_optimization_stage()),
        "steps": total_steps,
    }
    if isinstance(config, Mapping) and "activation_checkpointing" in config and "recompute" not in stated:
        reasons.append(
            "activation_checkpointing is configured, and only the model knows whether it calls it: none is "
            "assumed unless recompute= says so"
        )
    given = {**fields, "optimizer": engine.optimizer, **stated}
    module = given.pop("model", None)
    if module is None:
        module = bare_module(engine.module) if fields["zero_stage"] >= 3 else engine.module
    device = given.pop("device", engine.device)
    with _plain_linear():
        described = request_of(module, batch=batch, device=device, **given)
    return Described(described.request, (*reasons, *described.reasons))


@contextlib.contextmanager
def _plain_linear() -> Iterator[None]:
    """PyTorch's own linear layer: that of ZeRO 3 hides from a capture that it has gradients."""
    import torch

    functional = torch.nn.functional
    used = functional.linear
    functional.linear = torch._C._nn.linear
    try:
        yield
    finally:
        functional.linear = used


def bare_module(module: Any) -> Any:
    """A module with the sizes that ZeRO 3 took from its parameters, and without its hooks.

    Its parameters are on the meta device: nothing is gathered, and calling it sends no messages.
    """
    import torch

    if not any(hasattr(parameter, "ds_shape") for parameter in module.parameters()):
        return module
    whole: dict[int, Any] = {}

    def parameter_of(held: Any) -> Any:
        if held is None:
            return None
        if id(held) not in whole:
            size = getattr(held, "ds_shape", held.shape)
            empty = torch.empty(size, dtype=held.dtype, device="meta")
            whole[id(held)] = torch.nn.Parameter(empty, requires_grad=held.requires_grad)
        return whole[id(held)]

    def copy_of(part: Any) -> Any:
        bare = part.__class__.__new__(part.__class__)
        bare.__dict__.update(part.__dict__)
        for name, value in part.__dict__.items():
            if name.endswith("_hooks") and isinstance(value, dict):
                bare.__dict__[name] = type(value)()
        held = dict(part.__dict__["_parameters"].items())
        bare.__dict__["_parameters"] = {name: parameter_of(value) for name, value in held.items()}
        inner = part.__dict__["_modules"].items()
        bare.__dict__["_modules"] = {name: child and copy_of(child) for name, child in inner}
        return bare

    return copy_of(module)


def _batch(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What a module is called with: by name where it has names."""
    if not kwargs:
        return args
    return {**dict(zip(inspect.signature(module.forward).parameters, args, strict=False)), **kwargs}
