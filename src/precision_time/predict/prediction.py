"""The answer to a request."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

from ..diagnostics import UNMEASURED_DEVICE, Diagnostic, Severity, texts_of
from ..records import dataclass
from ..render.blocks import TEXT_WIDTH, Block
from ..render.result import Remarked
from .headline import Headline, Interval


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


@dataclass(frozen=True, kw_only=True, slots=True)
class Skipped:
    """A request that has no answer."""

    request: Mapping[str, Any]
    """Its fields, as `Prediction.request` has them."""
    reason: str


@dataclass(frozen=True, kw_only=True, repr=False)
class Prediction(Remarked):
    """The answer to one request, in SI units.

    Of an answer that was computed here, what is more than a number is made when it is read.
    """

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
    diagnostics: tuple[Diagnostic, ...] = dataclasses.field(default_factory=tuple)
    """What was filled in because the request does not say it, and what to act on, the remedy included."""
    params: float = 0.0
    """Parameters of the model, trained or not."""

    @classmethod
    def made(cls, reader: Callable[[str], Any], **known: Any) -> Prediction:
        """A prediction of which some fields are known, and the others are read when they are asked for.

        Args:
            reader: Gives the value of a field, and `remarks` and `remedy`.
            known: Values of the others.
        """
        found = object.__new__(cls)
        vars(found).update(known, _reader=reader)
        return found

    if TYPE_CHECKING:
        remarks: ClassVar[tuple[Diagnostic, ...]]
        """The diagnostics, without the remedy where that was not asked for yet: it takes the longest."""
        remedy: ClassVar[str]
        """What to ask for instead of a job that does not fit; empty where it fits, or among many answers."""
    else:

        def __getattr__(self, name: str) -> Any:
            reader = vars(self).get("_reader")
            if name not in _READ or (reader is None and name not in ("remarks", "remedy")):
                raise AttributeError(f"{type(self).__name__!r} has no attribute {name!r}")
            if name == "diagnostics":
                remedy = [Diagnostic("memory", Severity.WARNING, self.remedy)] if self.remedy else []
                value = (*self.remarks, *remedy)
            else:
                value = self._said(name) if reader is None else reader(name)
            vars(self)[name] = value
            return value

    def _said(self, name: str) -> Any:
        """Of an answer that was read from somewhere, all of which is known."""
        if name == "remarks":
            return self.diagnostics
        about_memory = [item.text for item in self.diagnostics if item.code == "memory"]
        return about_memory[1] if len(about_memory) > 1 else ""  # after by how much it does not fit

    def __getstate__(self) -> dict[str, Any]:
        """All fields, read."""
        return {item.name: getattr(self, item.name) for item in dataclasses.fields(self)}

    def whole(self) -> Prediction:
        """The same, with every field read here and now."""
        return replace(self)

    def remarking(self, *more: Diagnostic) -> Prediction:
        """The same with further diagnostics; a remedy that was not asked for yet is not asked for now."""
        if "_reader" not in vars(self):
            return replace(self, diagnostics=(*self.diagnostics, *more))
        found = object.__new__(Prediction)
        vars(found).update({**vars(self), "remarks": (*self.remarks, *more)})
        vars(found).pop("diagnostics", None)
        return found

    @property
    def on_measured_device(self) -> bool:
        """Whether any measured run is on such a device; else its data sheet alone answers for it."""
        return all(item.code != UNMEASURED_DEVICE for item in self.remarks)

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
        return Headline.of(self).in_words()

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


_READ = frozenset(
    {
        *("terms", "memory_terms", "link_seconds", "nearest_measurements", "request", "total_time_missing"),
        *("diagnostics", "remarks", "remedy"),
    }
)
"""What is made when it is read."""
