"""Accelerate: `Accelerator(log_with=[EtaTracker(...), ...])`, and what its state says of a run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from precision_time.errors import required_module

from .adapter import Adapter
from .describe import Described, Found, processes, request_of
from .eta import Eta
from .first_forward import on_first_forward
from .imports import declare_torchvision
from .live_run import harmless
from .sharding import deepspeed_fields, fsdp_fields

declare_torchvision()
_tracking: Any = required_module(
    "accelerate.tracking",
    package="accelerate",
    extra="precision-time-integrations[all]",
    purpose="watch its runs",
)
_state: Any = required_module(
    "accelerate.state",
    package="accelerate",
    extra="precision-time-integrations[all]",
    purpose="watch its runs",
)
_PRECISIONS = {"fp16": "fp16-mixed", "bf16": "bf16-mixed", "fp8": "fp8-mixed"}
"""Of `mixed_precision`; "no" leaves it to the parameters."""


class EtaTracker(Adapter, _tracking.GeneralTracker):  # type: ignore[misc]
    """Remaining time of a loop with Accelerate, for its other trackers too.

    `accelerator.log(values, step=step)` counts the steps. Named first in `log_with`, it adds the remaining
    time to the values of the trackers after it.
    """

    name = "precision_time"
    requires_logging_directory = False
    main_process_only = True

    def __init__(
        self,
        *,
        total_steps: int | None = None,
        done: int = 0,
        pauses: Mapping[str, int | Mapping[str, Any]] | None = None,
        **options: Any,
    ) -> None:
        """A tracker for one run.

        Args:
            total_steps: Optimizer steps of the whole run; None where it is not known.
            done: Steps of earlier runs that this one resumes.
            pauses: Pauses to come, such as `{"evaluation": 500}` for every 500 steps.
            options: Of `Adapter`.
        """
        Adapter.__init__(self, **options)
        self._total, self._done, self._pauses = total_steps, done, pauses
        self._stop_waiting: Callable[[], None] = _nothing
        self._metrics: dict[str, float] = {}
        self._new_run(speaks=processes().rank == 0)

    @property
    def tracker(self) -> Any:
        """What watches the run, as Accelerate's `get_tracker(..., unwrap=True)` returns it."""
        return self.run

    @harmless
    def watch(
        self, model: Any, *, optimizer: Any = None, loss: Callable[..., Any] | None = None, batch: Any = None
    ) -> None:
        """The model that is trained: predicted as soon as its first inputs are seen.

        Args:
            model: Before or after `accelerator.prepare`.
            optimizer: What updates it, before or after.
            loss: Function of what the model returns and of the rest of a batch.
            batch: The first batch, where it should not be waited for; needed for `loss`.
        """

        def begin(inputs: Any) -> None:
            self._begin(lambda: self._described(model, inputs, optimizer, loss))

        if not self._options.predict or self.run is None or not self.run.speaks:
            return
        if batch is not None:
            begin(batch)
        else:
            self._stop_waiting = on_first_forward(model, begin)

    @harmless
    def start(self) -> None:
        """Accelerate's `init_trackers`: only the main process speaks."""
        if self.run is not None:
            self.run.speaks = bool(_state.PartialState().is_main_process)

    @harmless
    def log(self, values: Any, step: int | None = None, **kwargs: Any) -> None:
        """Steps were made: up to `step`, or one more."""
        if self.run is None:
            return
        if not self._running:  # the first forward pass was not seen
            self._done = self._done + 1 if step is None else step
            self._begin(None)
            eta: Eta | None = self.run.eta()
        else:
            eta = self.run.step(step)
        if eta is not None:  # every second
            self._metrics = eta.metrics()
        if isinstance(values, dict):
            values.update(self._metrics)

    @harmless
    def finish(self) -> None:
        """Accelerate's `end_training`."""
        self._stop_waiting()
        self._running = False
        if self.run is not None:
            self.run.end()

    @harmless
    def _begin(self, describe: Callable[[], Described] | None) -> None:
        self._stop_waiting()
        if self.run is not None and not self._running:
            self._running = True
            self.run.begin(describe, total_steps=self._total, done=self._done, pauses=self._pauses)

    def _described(
        self, model: Any, batch: Any, optimizer: Any, loss: Callable[..., Any] | None
    ) -> Described:
        found = accelerator_fields()
        read = {"model": model, "loss": loss, "optimizer": optimizer, "steps": self._total or None}
        described = request_of(**{**read, **found.fields, **self._fields}, batch=batch)
        return Described(described.request, (*found.reasons, *described.reasons))


def _nothing() -> None:
    """Nothing is waited for."""


def accelerator_fields() -> Found:
    """What the state of the present `Accelerator` says: precision, processes, sharding, accumulation."""
    found = Found()
    if not _state.AcceleratorState._shared_state:
        found.reasons.append("There is no Accelerator yet: its precision and sharding are not known")
        return found
    state = _state.AcceleratorState()
    found.update(
        precision=_PRECISIONS.get(str(state.mixed_precision)),
        devices=int(state.num_processes),
        device=state.device,
        compiler="inductor" if "INDUCTOR" in str(getattr(state.dynamo_plugin, "backend", "")) else None,
    )
    accumulation = _state.GradientState._shared_state
    if accumulation:
        found.update(num_microbatches=int(_state.GradientState().num_steps))
    found.ask(lambda to: _read_sharding(to, state), "The sharding")
    return found


def _read_sharding(found: Found, state: Any) -> None:
    devices, kind = int(state.num_processes), str(getattr(state.distributed_type, "value", ""))
    if kind == "DEEPSPEED":
        sharding = deepspeed_fields(state.deepspeed_plugin.deepspeed_config, devices=devices)
        found.update(**{**sharding, **({"precision": found.fields.get("precision")})})
    elif kind == "FSDP":
        plugin = state.fsdp_plugin
        sharded = getattr(plugin.sharding_strategy, "name", None) or (
            "SHARD_GRAD_OP" if plugin.reshard_after_forward is False else "FULL_SHARD"
        )
        offload = plugin.cpu_offload
        found.update(
            **fsdp_fields(
                sharded,
                devices=devices,
                nodes=None,
                offload=bool(getattr(offload, "offload_params", offload)),
                recompute=bool(plugin.activation_checkpointing),
            )
        )
    elif kind.startswith("MULTI_"):
        found.update(zero_stage=0)
    elif kind != "NO":
        found.reasons.append(f"Distributed type {kind} says no layout: the usual one is taken")
