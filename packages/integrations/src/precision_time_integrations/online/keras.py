"""Keras: `model.fit(..., callbacks=[EtaCallback()])` says when `fit` will end."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

from precision_time.cost.stacks import framework_profile
from precision_time.errors import required_module

from .adapter import Adapter
from .describe import Described, processes, request_of
from .live_run import harmless

_keras: Any = required_module(
    "keras",
    package="keras",
    extra="precision-time-integrations[all]",
    purpose="watch its fit",
    remedy="set KERAS_BACKEND to a backend that is installed (torch, jax), or install the one it asks for",
)

_POLICIES = {
    "mixed_float16": "fp16-mixed", "mixed_bfloat16": "bf16-mixed", "bfloat16": "bf16", "float16": "fp16",
    "float64": "fp64",
}  # fmt: skip
"""Names of dtype policies; float32 leaves it to the backend, which may take TF32."""
_EPOCH_END = "end of an epoch"
"""Pause from the last step of an epoch to the first of the next, without evaluation."""


class EtaCallback(Adapter, _keras.callbacks.Callback):  # type: ignore[misc]
    """Remaining time of `fit` and its interval, in the progress bar, the history and the loggers.

    Before the first step it says what the step of this very model should take: policy, optimizer and
    distribution are read from the model, sizes from the first batch. Arguments as `Adapter`. Name it before
    CSVLogger, TensorBoard and others that should get the remaining time. The model itself is read with the
    torch backend; with others say `model=`.
    """

    def __init__(self, **options: Any) -> None:
        _keras.callbacks.Callback.__init__(self)
        Adapter.__init__(self, **options)
        self._epoch, self._steps, self._in_epoch, self._ended_s = 0, 0, 0, 0.0
        self._accum = 1
        self._per_epoch: int | None = None

    def on_train_begin(self, logs: Any = None) -> None:
        """A new fit: nothing is known of it yet."""
        self._end()  # of one that was interrupted
        self._new_run(speaks=processes().rank == 0)
        self._see_first_batch()

    @harmless
    def _see_first_batch(self) -> None:
        """Look at what the first step is called with; the step itself stays as it is."""
        model = self.model
        self._accum = int(getattr(model.optimizer, "gradient_accumulation_steps", None) or 1)
        self._per_epoch, self._in_epoch, self._steps, self._batch = self.params.get("steps"), 0, 0, None
        if _keras.backend.backend() != "torch" or not self._options.predict:
            return
        usual = model.train_function

        @functools.wraps(usual)
        def first(data: Any) -> Any:
            model.train_function = usual
            self._begin(data[0] if isinstance(data, list | tuple) and data else None)
            return usual(data)

        model.train_function = first

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Where the run stands: of a fit that goes on, it is not the first epoch."""
        self._epoch, self._in_epoch = epoch, 0

    @harmless
    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        """A step starts: what was since the last one was waiting for input, or the end of an epoch."""
        run = self.run
        if run is None:
            return
        if not self._running:
            if _keras.backend.backend() != "torch" or not self._options.predict:
                self._begin(None)
        elif self._in_epoch == 0:
            run.end_pause()
        elif _keras.backend.backend() == "torch":  # others fetch batches inside of the step
            run.waited(self._options.clock() - self._ended_s)

    @harmless
    def _begin(self, batch: Any) -> None:
        run, model = self.run, self.model
        if run is None or self._running:
            return
        self._running = True
        done, total = self._done(self._epoch), self._done(self.params["epochs"])
        self._steps = 0 if self._per_epoch is None else self._epoch * self._per_epoch

        def describe() -> Described:
            return describe_model(model, batch, self._fields, total_steps=total)

        run.begin(describe, total_steps=total, done=done or 0)

    def _done(self, epochs: int) -> int | None:
        """Optimizer steps of so many epochs; None where their length is not known."""
        return None if self._per_epoch is None else epochs * self._per_epoch // self._accum

    @harmless
    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """One step, or as many as `steps_per_execution`."""
        run = self.run
        if run is None or not self._running:
            return
        before = self._steps // self._accum
        self._steps += batch + 1 - self._in_epoch
        self._in_epoch = batch + 1
        if self._steps // self._accum > before:
            run.step(self._steps // self._accum)
        eta = run.shown()
        if eta is not None and eta.remaining_s is not None and isinstance(logs, dict):
            logs["eta_s"] = eta.remaining_s
        if self._in_epoch == self._per_epoch:
            run.begin_pause(_EPOCH_END)
        self._ended_s = self._options.clock()

    @harmless
    def on_test_begin(self, logs: Any = None) -> None:
        """No step, and announced as such."""
        if self.run is not None and self._running:
            self.run.end_pause()
            self.run.begin_pause("evaluation")

    @harmless
    def on_test_end(self, logs: Any = None) -> None:
        """The epoch is about to end."""
        if self.run is not None and self._running:
            self.run.end_pause()
            self.run.begin_pause(_EPOCH_END)

    @harmless
    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """The length of an epoch is known now, whatever the loader said; the history gets the time left."""
        run = self.run
        if run is None or not self._running:
            return
        if self._per_epoch is None and self._in_epoch:
            self._per_epoch = self._in_epoch
            left = (self.params["epochs"] - epoch - 1) * self._per_epoch
            run.changed(total_steps=(self._steps + left) // self._accum)
        run.begin_pause(_EPOCH_END)
        if isinstance(logs, dict):
            logs.update(run.eta().metrics())

    def on_train_end(self, logs: Any = None) -> None:
        """The run is over."""
        self._end()

    @harmless
    def _end(self) -> None:
        """Of a fit that was interrupted the next one, or `end`, comes here."""
        if self.run is not None and self._running:
            self._running = False
            self.run.end()

    def end(self) -> None:
        """The fit was interrupted, which Keras tells no callback: what it made counts."""
        self._end()


def describe_model(
    model: Any, batch: Any, stated: Mapping[str, Any], *, total_steps: int | None = None
) -> Described:
    """What `fit` trains, as a request.

    Args:
        model: A compiled `keras.Model`.
        batch: Its first, as inputs, targets and weights; None where that was not seen.
        stated: Fields by the user: they come first.
        total_steps: Of the run.
    """
    backend, reasons = _keras.backend.backend(), []
    optimizer = _innermost(model.optimizer)
    fields: dict[str, Any] = {
        "precision": _precision(model),
        "optimizer": _optimizer_name(optimizer),
        "num_microbatches": int(getattr(optimizer, "gradient_accumulation_steps", None) or 1),
        "steps": total_steps or None,
        "stack": None if backend == "torch" else framework_profile(backend).name,
    }
    if fields["stack"] is None:
        del fields["stack"]
    spread, remarks = _distribution()
    fields |= spread
    reasons += remarks
    if backend == "torch" and model.jit_compile is True:
        fields["compiler"] = "inductor"
    given = {**fields, **stated}
    module = given.pop("model", None)
    if module is None and (backend != "torch" or batch is None):
        where = f"on {backend}" if backend != "torch" else "whose first batch was not seen"
        reasons.append(f"the operators of a model {where} cannot be read: name a known one as model=")
        return Described(None, tuple(reasons))
    loss = None
    if module is None:
        from .keras_module import module_of

        module, loss, batch = module_of(model, batch)
        given.setdefault("device", model.variables[0].value.device)
    described = request_of(module, batch=batch, forward=loss, **given)
    return Described(described.request, (*reasons, *described.reasons))


def _precision(model: Any) -> str | None:
    """By the dtype policy; None where that leaves it to the types of the weights."""
    name = str(getattr(model.dtype_policy, "name", ""))
    if name == "float32" and _keras.backend.backend() == "torch":
        import torch

        on_gpu = any(value.value.device.type == "cuda" for value in model.variables[:1])
        return "tf32" if on_gpu and torch.get_float32_matmul_precision() != "highest" else "fp32"
    return _POLICIES.get(name)


def _innermost(optimizer: Any) -> Any:
    while getattr(optimizer, "inner_optimizer", None) is not None:  # of loss scaling
        optimizer = optimizer.inner_optimizer
    return optimizer


def _optimizer_name(optimizer: Any) -> str:
    """The class in lower case, and for SGD by its momentum."""
    name = type(optimizer).__name__.lower()
    if name != "sgd":
        return name
    if getattr(optimizer, "nesterov", False):
        return "nesterov"
    return "momentum-sgd" if getattr(optimizer, "momentum", 0.0) else "sgd"


def _distribution() -> tuple[dict[str, Any], list[str]]:
    """Devices of `keras.distribution`, and what of it has no field."""
    found = _keras.distribution.distribution()
    if found is None:
        return {}, []
    shape = dict(zip(found.device_mesh.axis_names, found.device_mesh.shape, strict=True))
    devices = functools.reduce(int.__mul__, map(int, shape.values()), 1)
    if type(found).__name__ == "DataParallel":
        return {"devices": devices}, []
    across = int(shape.get(str(found.batch_dim_name), 1))
    return {"devices": devices, "tp": devices // max(across, 1)}, [
        f"{type(found).__name__} shards by a layout map, which is taken as tensor parallelism"
    ]
