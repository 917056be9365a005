"""Ray Train: the remaining time in what workers report, and on the driver.

In the training function `run = track(loader, model=model)` watches the loop of a worker, as in any loop of
PyTorch, and `report(run, {"loss": loss})` adds the remaining time to `ray.train.report`.
`RunConfig(callbacks=[EtaCallback()])` shows it once for all workers, or counts their reports where the
workers say nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from precision_time.errors import required_module
from precision_time.predict.headline import Interval
from precision_time_integrations.inventory.mapping import map_device

from .adapter import Adapter
from .describe import Described, Found, processes, request_of
from .eta import Eta
from .live_run import harmless
from .pytorch import track

_ray_train: Any = required_module("ray.train", package="ray[train]", extra="ray", purpose="watch its workers")
_ETA = "eta/"
_LINE_EVERY_S = 60.0


def report(run: track[Any] | Adapter, metrics: Mapping[str, Any], **options: Any) -> None:
    """`ray.train.report` with the remaining time among the metrics of rank 0.

    Args:
        run: What watches the loop of this worker.
        metrics: As for `ray.train.report`.
        options: Its other arguments.

    A report waits until the one before it has been taken: it is a pause of the run, not part of a step.
    """
    found: dict[str, Any] = {}
    if processes().rank == 0:
        eta = run.eta
        if eta is not None:
            found = {**eta.metrics(), f"{_ETA}step": eta.step}
            found |= {} if eta.total_steps is None else {f"{_ETA}total_steps": eta.total_steps}
    with run.pause("report" if options.get("checkpoint") is None else "checkpoint"):
        _ray_train.report({**found, **metrics}, **options)


class EtaCallback(Adapter, _ray_train.UserCallback):  # type: ignore[misc]
    """Lines with the remaining time of a trainer, from the process that controls its workers.

    Workers that use `report` know it best, and their figures are shown. Where they say none, their reports
    are counted: then `total_steps` is needed, and fields of a request (`model=`, `batch_size=`, `precision=`,
    `device=`) make the prediction before the first report; workers and resources come from ScalingConfig.
    """

    def __init__(
        self,
        *,
        total_steps: int | None = None,
        steps_per_report: int = 1,
        line_every_s: float = _LINE_EVERY_S,
        **options: Any,
    ) -> None:
        """A callback for one trainer.

        Args:
            total_steps: Optimizer steps of the run; None where the workers say it.
            steps_per_report: Of them, between two reports of the workers.
            line_every_s: A line that often.
            options: Of `Adapter`.
        """
        super().__init__(**options)
        self._total, self._per_report, self._line_every_s = total_steps, steps_per_report, line_every_s
        self._workers, self._reports, self._said_s = 0, 0, -1e9

    @harmless
    def after_report(self, run_context: Any, metrics: list[dict[str, Any]], checkpoint: Any) -> None:
        """All workers have reported once more."""
        told = eta_of(metrics[0]) if metrics else None
        if told is None:
            told = self._count(run_context, len(metrics))
        now = self._options.clock()
        if told is not None and told.text and now - self._said_s >= self._line_every_s:
            self._said_s = now
            of = f" of {told.total_steps:,}" if told.total_steps is not None else ""
            self._options.say(f"precision-time: step {told.step:,}{of}: {told.text}.")

    def after_exception(self, run_context: Any, worker_exceptions: Mapping[int, Exception]) -> None:
        """Workers are lost: what was done before still counts where Ray starts them again."""
        self._begin_pause()

    @harmless
    def _begin_pause(self) -> None:
        if self.run is not None and self._running:
            self.run.begin_pause("restart of workers")

    def _count(self, run_context: Any, workers: int) -> Eta | None:
        """The remaining time by the reports alone."""
        self._reports += 1
        done = self._reports * self._per_report

        def describe() -> Described:
            return describe_scaling(run_context.scaling_config, workers, self._fields, total=self._total)

        if not self._running:
            new = self._new_run(speaks=True)
            self._running, self._workers = True, workers
            new.begin(describe if "model" in self._fields else None, total_steps=self._total, done=done)
            return new.eta()
        run = self.run
        if run is None:
            return None
        run.end_pause()
        run.step(done)
        if workers != self._workers and "model" in self._fields:  # an elastic group that grew or shrank
            self._workers = workers
            run.changed(describe)
        if self._total is not None and done >= self._total:
            eta, self._running = run.eta(), False
            run.end()
            return eta
        return run.eta()


def eta_of(metrics: Mapping[str, Any]) -> Eta | None:
    """The remaining time that a worker reported; None where it did not."""

    def number(name: str) -> float | None:
        value = metrics.get(f"{_ETA}{name}")
        return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None

    step, left_s, low_s, high_s = (number(name) for name in ("step", "remaining_s", "low_s", "high_s"))
    if step is None:
        return None
    total, known = number("total_steps"), low_s is not None and high_s is not None
    return Eta(
        step=int(step),
        total_steps=None if total is None else int(total),
        elapsed_s=0.0,
        remaining_s=left_s,
        interval=Interval(low_s=low_s or 0.0, high_s=high_s or 0.0, coverage=0.9) if known else None,
        step_time_s=number("step_time_s"),
        pause_s=0.0,
        basis="as the workers report",
    )


def describe_scaling(
    scaling: Any, workers: int, stated: Mapping[str, Any], *, total: int | None = None
) -> Described:
    """A trainer as a request: workers, resources and accelerators by its ScalingConfig.

    Args:
        scaling: Of the trainer.
        workers: That report now, which an elastic group may change.
        stated: Fields by the user: they come first.
        total: Optimizer steps of the run.
    """
    found = scaling_fields(scaling, workers=workers)
    given = {**found.fields, "steps": total, **stated}
    model = given.pop("model", None)
    devices, nodes = given.pop("gpus", workers), given.pop("nodes", None)
    described = request_of(model, devices=devices, nodes=nodes, **given)
    reasons = () if "device" in stated else found.reasons
    return Described(described.request, (*reasons, *described.reasons))


def scaling_fields(scaling: Any, *, workers: int | None = None) -> Found:
    """What a ScalingConfig says, in fields of a request; what it leaves open is among the reasons.

    Args:
        scaling: A `ray.train.ScalingConfig`.
        workers: How many there are, where that is known; else the most that it allows.
    """
    found = Found()
    count = scaling.num_workers
    if workers is None and isinstance(count, tuple):
        found.reasons.append(f"{count[0]} to {count[1]} workers: the most are taken")
    number = workers or (count[1] if isinstance(count, tuple) else max(count, 1))
    per_worker = float(scaling.num_gpus_per_worker)
    found.update(gpus=int(number * max(per_worker, 1.0)))
    if scaling.accelerator_type:
        name, note = map_device(str(scaling.accelerator_type))
        found.update(device=name or None)
        found.reasons += [note] if note else []
        if not name:
            found.reasons.append(f"accelerator_type={scaling.accelerator_type} is in no catalog: say device=")
    elif not per_worker:
        found.reasons.append("ScalingConfig does not name the processors of the workers: say device=")
    else:
        found.reasons.append("ScalingConfig names no accelerator_type: say device=")
    if per_worker and scaling.placement_strategy in ("STRICT_PACK", "STRICT_SPREAD"):
        found.update(nodes=1 if scaling.placement_strategy == "STRICT_PACK" else number)
    return found
