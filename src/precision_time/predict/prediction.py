"""The answer to a request."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

from ..diagnostics import Diagnostic, Severity, texts_of, unmeasured
from ..errors import PrecisionTimeError
from ..records import dataclass
from ..render.blocks import TEXT_WIDTH, Block
from ..render.result import Remarked
from .headline import Headline, Interval, usd_of, usd_per_hour_of

if TYPE_CHECKING:
    from ..cost.job import Job
    from ..request.request import Request
    from .predictions import Predictions


@dataclass(frozen=True, kw_only=True, slots=True)
class NearestMeasurement:
    """One measured run that resembles the job."""

    model: str
    device: str
    gpus: int
    precision: str
    global_batch_size: float
    stack: str
    measured_step_time_s: float
    predicted_step_time_s: float
    """What the shipped predictor says of this run."""
    similarity: float
    """1 for the same configuration, toward 0 with distance."""
    source: str
    source_ref: str
    precision_inferred: bool = False
    """Whether the source does not state the precision."""


@dataclass(frozen=True, kw_only=True)
class Skipped:
    """A request that has no answer."""

    request: Mapping[str, Any]
    """Its fields, as `Prediction.request` has them."""
    reason: str
    error: ClassVar[PrecisionTimeError | None] = None
    """What was raised; None where it was read from somewhere. No field: not compared, not written."""

    @classmethod
    def of(cls, request: Request, error: PrecisionTimeError) -> Skipped:
        """A request that was refused."""
        found = cls(request=request.to_dict(), reason=str(error))
        vars(found)["error"] = error
        return found

    @property
    def raised(self) -> PrecisionTimeError:
        """What was raised, or the reason as that."""
        return self.error or PrecisionTimeError(self.reason)


@dataclass(frozen=True, kw_only=True, repr=False)
class Prediction(Remarked):
    """The answer to one request, in SI units.

    Of an answer that was computed here, what is more than a number is made when it is read.
    """

    DERIVED = ("cost_usd", "usd_per_hour")
    LEADING = (
        *("total_time_s", "total_interval", "cost_usd", "device_hours"),
        *("fits", "memory_bytes_per_device", "device_memory_bytes"),
        *("throughput", "throughput_unit", "step_time_s", "interval"),
    )

    model: str
    device: str
    gpus: int
    nodes: int
    precision: str
    stack: str
    batch_size: float
    """Samples per device and forward pass."""
    global_batch_size: float
    """Samples per optimizer step over all devices."""
    step_time_s: float
    terms: Mapping[str, float]
    """Named seconds that add up to `step_time_s` exactly."""
    interval: Interval
    steps_per_epoch: int | None
    epoch_time_s: float | None
    total_steps: int | None
    total_time_s: float | None
    throughput: float
    """Whole job, in `throughput_unit`."""
    throughput_unit: str
    mfu: float | None
    """Useful model FLOPs over the dense peak of the compute type, 0..1."""
    memory_bytes_per_device: float
    memory_terms: Mapping[str, float]
    fits: bool
    device_memory_bytes: float
    """What a device has."""
    link_seconds: Mapping[str, float]
    """Communication on the wire by parallel axis, hidden or not, by the cost model alone; `terms` have the
    exposed part after the learned correction."""
    analytical_step_time_s: float
    """What the cost model says before the learned correction."""
    total_interval: Interval | None = None
    """Of the run: in seconds of `total_time_s`."""
    device_hours: float | None = None
    """Of the run over all devices (GPU-hours)."""
    total_time_missing: str = dataclasses.field(default_factory=str)
    """Why there is no `total_time_s`, and what to give."""
    nearest_measurements: tuple[NearestMeasurement, ...] = dataclasses.field(default_factory=tuple)
    """Most similar first."""
    request: Mapping[str, Any] = dataclasses.field(default_factory=dict, compare=False)
    """The fields of the request that was asked, as a job file holds them; empty where none was."""
    assumed: Mapping[str, str] = dataclasses.field(default_factory=dict, compare=False)
    """What was filled in because the request does not say it, by the name of the field, and why so."""
    diagnostics: tuple[Diagnostic, ...] = dataclasses.field(default_factory=tuple)
    """What was filled in because the request does not say it, and what to act on, the remedy included."""
    params: float = 0.0
    """Parameters of the model, trained or not."""

    if TYPE_CHECKING:
        remarks: ClassVar[tuple[Diagnostic, ...]]
        """The diagnostics, without the remedy where that was not asked for yet: it takes the longest."""
        remedy: ClassVar[str]
        """What to ask for instead of a job that does not fit; empty where it fits, or among many answers."""
    else:

        def __getattr__(self, name: str) -> Any:
            """What is made when it is read: of a row of a table from its columns, else of the diagnostics."""
            row = vars(self).get("_row")
            readers = _OF_STORED if row is None else _OF_ROW
            if name not in readers:
                raise AttributeError(f"{type(self).__name__!r} has no attribute {name!r}")
            value = vars(self)[name] = readers[name](self if row is None or name == "diagnostics" else row)
            return value

    def __getstate__(self) -> dict[str, Any]:
        """All fields, read."""
        return {item.name: getattr(self, item.name) for item in dataclasses.fields(self)}

    def whole(self) -> Prediction:
        """The same, with every field read here and now."""
        return replace(self)

    def remarking(self, *more: Diagnostic) -> Prediction:
        """The same with further diagnostics; a remedy that was not asked for yet is not asked for now."""
        if "_row" not in vars(self):
            return replace(self, diagnostics=(*self.diagnostics, *more))
        found = object.__new__(Prediction)
        vars(found).update({**vars(self), "remarks": (*self.remarks, *more)})
        vars(found).pop("diagnostics", None)
        return found

    @property
    def unmeasured(self) -> tuple[str, ...]:
        """What no measured run bears out: such a device, or such a precision in such a model."""
        return unmeasured(item.code for item in self.remarks)

    @property
    def usd_per_hour(self) -> float | None:
        """Of all devices, at the cheapest dated offer; None where no price is known."""
        return usd_per_hour_of(self)

    @property
    def cost_usd(self) -> float | None:
        """Of the run, at the cheapest dated offer; None where its length or a price is not known."""
        return usd_of(self)

    @property
    def assumptions(self) -> tuple[str, ...]:
        """What was filled in, in words."""
        return texts_of(self.remarks, Severity.ASSUMPTION)

    def plot(self, axes: Any = None) -> Any:
        """The terms of the step as one bar, with the interval; needs matplotlib.

        Args:
            axes: Where to draw; None for a new figure.

        Returns:
            The matplotlib axes.

        Raises:
            MissingExtraError: If matplotlib is not installed.
        """
        from ..render.picture import plot_bars
        from .page import bars_of

        return plot_bars(bars_of([self]), axes=axes)

    def in_one_line(self) -> str:
        """The run and its money, the step, memory, and the job; see `headline.Headline`."""
        return Headline.of(self, remedy=False).in_words()

    def blocks(self, *, width: int = TEXT_WIDTH, why: bool = False) -> Iterator[Block]:
        """The page that `precision-time predict` prints, with the assumptions that matter."""
        from .changes import what_matters
        from .page import blocks_of

        del width  # blocks fit themselves
        return blocks_of([self], matters=what_matters(self), why=why)

    def notebook(self) -> Iterator[Block]:
        """The answer, and its terms as a bar."""
        from .page import notebook_of

        return notebook_of([self])


def row_of(found: Predictions, row: int) -> Prediction:
    """The answer at a row of a table; what is more than a number of a column is made when it is read."""
    job, has = found.jobs.row(row), {name: float(found.figures[name][row]) for name in _COLUMNS}
    known: dict[str, Any] = {name: None if math.isnan(has[name]) else has[name] for name in _NUMBERS}
    known |= {name: None if math.isnan(has[name]) else int(has[name]) for name in _COUNTS}
    step, run = (
        Interval(low_s=has[f"{of}_low_s"], high_s=has[f"{of}_high_s"], coverage=has["coverage"])
        for of in ("interval", "total")
    )
    made = object.__new__(Prediction)
    vars(made).update(
        known,
        _row=_View(found=found, row=row, job=job),
        model=job.workload.name,
        device=job.cluster.device.name,
        gpus=job.cluster.num_devices,
        nodes=job.cluster.num_nodes,
        precision=job.precision.name,
        stack=job.stack.profile,
        interval=step,
        total_interval=None if known["total_steps"] is None else run,
        throughput_unit=job.workload.throughput_unit,
        fits=bool(has["fits"]),
        device_memory_bytes=job.cluster.device.usable_bytes,
        params=float(job.workload.graph.params),
    )
    return made


_NUMBERS = (
    *("batch_size", "global_batch_size", "step_time_s", "throughput", "memory_bytes_per_device", "mfu"),
    *("analytical_step_time_s", "epoch_time_s", "total_time_s", "device_hours"),
)
_COUNTS = ("steps_per_epoch", "total_steps")
_ENDS = ("interval_low_s", "interval_high_s", "total_low_s", "total_high_s")
_COLUMNS = (*_NUMBERS, *_COUNTS, *_ENDS, "coverage", "fits")


@dataclass(frozen=True, kw_only=True, slots=True)
class _View:
    """Of which row of a table an answer is made."""

    found: Predictions
    row: int
    job: Job

    def named(self, prefix: str, *, above: float = 0.0) -> dict[str, float]:
        """The columns of a prefix, those of them that say something, without it."""
        columns = self.found.figures.items()
        found = {name: float(values[self.row]) for name, values in columns if name.startswith(prefix)}
        return {name.removeprefix(prefix): value for name, value in found.items() if value > above}

    def nearest(self) -> tuple[NearestMeasurement, ...]:
        """The measured runs nearest to it, best first, each configuration once."""
        from ..corpus.store import corpus_store

        basis, place = self.found.basis(self.row)
        index = basis.predictor.measurements
        [rows], [similarity] = index.runs.nearest(basis.times.jobs.take(slice(place, place + 1)), _SHOWN * 4)
        shown: dict[tuple[object, ...], NearestMeasurement] = {}
        for near, alike in zip(rows, similarity, strict=True):
            if alike < _LEAST_SIMILARITY or len(shown) == _SHOWN:
                break
            identity = int(index.measurement_ids[near])
            run = index.own.get(identity) or corpus_store().get(identity)
            batch, stack = float(run.global_batch_size or 0.0), run.stack.profile
            key = (run.model, run.device, run.precision, run.num_devices, batch, stack)
            if key not in shown:
                shown[key] = NearestMeasurement(
                    model=run.model,
                    device=run.device,
                    gpus=run.num_devices,
                    precision=run.precision,
                    global_batch_size=batch,
                    stack=stack,
                    measured_step_time_s=run.step_time_s,
                    predicted_step_time_s=float(index.predicted_s[near]),
                    similarity=float(alike),
                    source=run.source,
                    source_ref=run.source_ref,
                    precision_inferred=run.precision_inferred,
                )
        return tuple(shown.values())

    def request(self) -> Request:
        """What was asked."""
        return self.found.requests[int(self.found.jobs.group[self.row])]

    def missing(self) -> str:
        """Why its run has no time."""
        from .remarks import missing_length

        known = self.found.figures["total_steps"][self.row] >= 0.0
        return "" if known else missing_length(self.found, self.row, self.job)

    def remarks(self) -> tuple[Diagnostic, ...]:
        """What is said of it."""
        from .remarks import remarks_of

        return remarks_of(self.found, self.row, self.job)

    def remedy(self) -> str:
        """What to ask for instead."""
        from .remedies import suggest_fit

        basis, _ = self.found.basis(self.row)
        if not basis.remedies or self.found.figures["fits"][self.row]:
            return ""
        return suggest_fit(self.request(), self.job, basis.predictor)


def _said(found: Prediction) -> tuple[Diagnostic, ...]:
    remedy = [Diagnostic("memory", Severity.WARNING, found.remedy)] if found.remedy else []
    return (*found.remarks, *remedy)


def _stored_remedy(found: Prediction) -> str:
    about_memory = [item.text for item in found.diagnostics if item.code == "memory"]
    return about_memory[1] if len(about_memory) > 1 else ""  # after by how much it does not fit


_SHOWN = 3
"""Nearest runs."""
_LEAST_SIMILARITY = 0.05
_OF_STORED: Mapping[str, Callable[[Prediction], Any]] = {
    "remarks": lambda found: found.diagnostics,
    "remedy": _stored_remedy,
}
"""What is made when it is read of an answer that was read from somewhere, all of which is known."""
_OF_ROW: Mapping[str, Callable[[Any], Any]] = {
    "terms": lambda row: row.named("terms."),
    "memory_terms": lambda row: row.named("memory_terms.", above=-math.inf),
    "link_seconds": lambda row: row.named("link_seconds."),
    "nearest_measurements": _View.nearest,
    "request": lambda row: row.request().to_dict() if row.found.requests else {},
    "total_time_missing": _View.missing,
    "assumed": lambda row: {
        name: origin.text for name, origin in row.job.origin.items() if origin.kind == "assumed"
    },
    "remarks": _View.remarks,
    "remedy": _View.remedy,
    "diagnostics": _said,
}
"""What is made when it is read of a row."""
