"""What changes of a job do to its time: each is made alone and predicted again, all in one table.

Which assumptions matter (`what_matters`): each is replaced by its usual alternative. How the time moves with
each number (`sensitivity`): each is halved and doubled; Saltelli et al., Global Sensitivity Analysis (2008),
chapter 1.4. Numbers of the hardware act through the cost model alone (`Cluster.reference`), as for a device
of the user's own.
"""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import numpy as np

from ..arrays import Floats
from ..cost.job import Job, Jobs
from ..errors import PrecisionTimeError
from ..hardware.catalog import device_assumption, known_devices
from ..hardware.device import Cluster
from ..hardware.device_table import catalog_name
from ..io import packaged_toml
from ..learn.artifact import TrainedPredictor, chosen_predictor
from ..learn.calibration.calibration import Calibration
from ..learn.priced import price_jobs
from ..records import dataclass
from ..request.request import Request
from ..request.signature import as_request, takes_request_fields
from .columns import CHANGED, RunLength, calibrated_times, check_peak, columns_of, fed
from .remedies import Change, asked, assumed_sharding, at_layout

if TYPE_CHECKING:
    from .prediction import Prediction

_SIZES = ("seq_len", "image_size")
"""Fields that change the model itself."""
_LEAST_CHANGE = 0.02
"""Of the time, from which an assumption matters: less than repeats of a run differ by."""
LEAST_MEMORY_CHANGE = 0.1
"""Of the memory: twice what published peaks are missed by (data/memory_accuracy.py)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Alternative:
    """One assumption of an answer, and what the time would be under the usual alternative."""

    field: str
    """Of the request."""
    value: Any
    """The alternative, as the request takes it."""
    assumed: str
    """What the answer assumes, in words."""
    words: str
    """The alternative, in words."""
    time_change: float
    """Of the time per sample (image, token), relative: -0.18 for 18 % less."""
    memory_change: float = 0.0
    """Of the memory per device, relative."""
    fits: bool = True
    kept: str = ""
    """Sharding or network that was assumed and that the alternative alone would drop, as `option` has it."""

    @property
    def option(self) -> str:
        """What to give to have it."""
        value = str(self.value).lower() if isinstance(self.value, bool) else self.value
        said = f"{self.field}={value:g}" if isinstance(value, float) else f"{self.field}={value}"
        return f"{said} {self.kept}".strip()

    @property
    def change(self) -> str:
        """By how much the answer moves, in words."""
        moved = f"{self.time_change:+.0%}" if self.time_change < 1.0 else f"{1.0 + self.time_change:.1f} x"
        return moved if self.fits else f"{moved}, does not fit"

    @property
    def memory(self) -> str:
        """By how much the memory per device moves, in words; empty where it hardly does."""
        more = self.memory_change
        if abs(more) < LEAST_MEMORY_CHANGE:
            return ""
        return f"{more:+.0%}" if more < 1.0 else f"{1.0 + more:.1f} x"

    def __str__(self) -> str:
        memory = f", memory {self.memory}" if self.memory else ""
        return f"{self.assumed} assumed; {self.words} ({self.option}): time {self.change}{memory}"


def what_matters(
    prediction: Prediction, *, request: Request | None = None, predictor: TrainedPredictor | None = None
) -> tuple[Alternative, ...]:
    """The assumptions whose usual alternative moves the time by two percent or the memory by ten, or more.

    Those that move the time most come first.

    One alternative stands for each field, the one that moves the answer most. The changes are those of the
    predictor; a calibration moves both sides alike.

    Args:
        prediction: An answer.
        request: What it answers; None: as the prediction has it, if its model is in a catalog.
        predictor: The trained predictor; None for the one that the request names, else the one that ships.
    """
    if request is None and not prediction.request:
        return ()
    try:
        asked_for = request or Request.of(prediction.request)
        base = asked_for.resolve(named_only=request is None)
    except PrecisionTimeError:
        return ()
    if base.layout_chosen:
        # The chosen layout is kept: every alternative would search for one of its own.
        asked_for = at_layout(asked_for, base)
    elif _batch_assumed(prediction):
        answers = base.workload.answers_per_prompt
        said = {} if answers is None else {"prompts": round(base.layout.global_batch_size / answers)}
        asked_for = asked_for.with_(batch_size=prediction.batch_size, **said)
        base = asked_for.resolve(workload=base.workload)
    rows = packaged_toml(__package__, "data/alternatives.toml")["alternative"]
    tried = [(row, *found) for row in rows for found in _jobs(row, asked_for, base, prediction)]
    columns = changed([base, *(job for *_, job, _ in tried)], asked_for, predictor)
    each_s = (1.0 / columns["throughput"]).tolist()
    base_bytes, *needed = columns["memory_bytes_per_device"].tolist()
    found: dict[str, Alternative] = {}
    for (row, value, job, kept), unit_s, held in zip(tried, each_s[1:], needed, strict=True):
        fits = held <= job.cluster.device.usable_bytes
        change, more = unit_s / each_s[0] - 1.0, held / base_bytes - 1.0
        known = found.get(row["field"])
        if (
            (abs(change) < _LEAST_CHANGE and abs(more) < LEAST_MEMORY_CHANGE)
            or (prediction.fits and not fits and not row.get("told_if_too_large"))
            or (known is not None and abs(known.time_change) >= abs(change))
        ):
            continue
        found[row["field"]] = Alternative(
            field=row["field"],
            value=value,
            kept=" ".join(shlex.quote(f"{name}={said}") for name, said in kept.items()),
            assumed=row["assumed"].format(job=base, request=asked_for),
            words=row["words"].format(value=value),
            time_change=change,
            memory_change=more,
            fits=fits or not prediction.fits,
        )
    return tuple(sorted(found.values(), key=lambda item: -abs(np.log1p(item.time_change))))


def changed(
    jobs: Sequence[Job],
    request: Request,
    predictor: TrainedPredictor | None = None,
    calibration: Calibration | None = None,
    lengths: Sequence[RunLength] = (),
) -> Mapping[str, Floats]:
    """The columns of a job and its changes, which are as long runs as the request but where `lengths` says.

    Each is as certain as the predictor is of that job: what a request leaves open is not weighed again.
    """
    trained, coverage = predictor or chosen_predictor(request.predictor), np.full(len(jobs), request.coverage)
    lengths = lengths or [RunLength.of(request)] * len(jobs)
    as_fed = fed(Jobs.of(jobs), lengths)
    priced = price_jobs(as_fed)
    times, _ = calibrated_times(priced, trained, coverage, calibration)
    columns = columns_of(as_fed, lengths, priced, times, coverage=coverage, want=CHANGED)
    if calibration is not None:
        check_peak(as_fed, columns["step_time_s"])
    return columns


def _jobs(
    row: Mapping[str, Any], request: Request, base: Job, prediction: Prediction
) -> Iterator[tuple[Any, Job, Change]]:
    """The values of an alternative that applies, each with its job and what is to be said besides."""
    if not _applies(row, request, base, prediction):
        return
    for value in _values(row, request, base):
        sized = row["field"] in _SIZES
        network = _network_of(request, base) if row.get("variants") else {}
        changes = {row["field"]: value, **network}
        if "batch_times" in row and _batch_assumed(prediction):
            changes["batch_size"] = prediction.batch_size * row["batch_times"]
        known = {"named_only": sized, "workload": None if sized else base.workload}
        job, kept = asked(request, changes, **known), assumed_sharding(request, base)
        if job is None or job.layout.zero_stage == base.layout.zero_stage or row["field"] in kept:
            kept = {}
        else:  # what makes memory free would else go back to plain data parallelism, which is another job
            job = asked(request, {**kept, **changes}, **known)
        if job is not None:
            yield value, job, {**kept, **network}


def _network_of(request: Request, base: Job) -> Change:
    """The network of several nodes, said of another device too: that of its usual host may be far slower."""
    said = request.given().keys() & {"inter_node", "network", "node_type", "custom"}
    return {} if said or base.cluster.num_nodes == 1 else {"inter_node": base.cluster.inter_node.name}


def _batch_assumed(prediction: Prediction) -> bool:
    return any(item.code == "default-batch" for item in prediction.remarks)


def _applies(row: Mapping[str, Any], request: Request, base: Job, prediction: Prediction) -> bool:
    given = request.given().keys()
    if given & set(row.get("unless", ())):
        return False
    if "read_as" in row:
        if all(item.code != row["read_as"] for item in prediction.remarks):
            return False
    elif row["field"] in given:
        return False
    return holds_for(row, base)


def holds_for(row: Mapping[str, Any], base: Job) -> bool:
    """Whether a job is one of those that a row of a data file is about: its `where`, `above` and `below`."""
    for name, wanted in row.get("where", {}).items():
        if attrgetter(name)(base) not in (wanted if isinstance(wanted, list) else [wanted]):
            return False
    above = all((attrgetter(name)(base) or 0) > least for name, least in row.get("above", {}).items())
    return above and all((attrgetter(name)(base) or 0) < most for name, most in row.get("below", {}).items())


def _values(row: Mapping[str, Any], request: Request, base: Job) -> list[Any]:
    if "times" in row:
        multiple = max(row["times"] * attrgetter(row["of"])(base), 1.0)
        return [int(multiple) if multiple == int(multiple) else multiple]
    if row.get("variants"):
        return _variants(request.device, base)
    return row["values"] if "values" in row else [row["value"]]


def _variants(name: str | None, base: Job) -> list[str]:
    """The other devices that a name may stand for, as the remark on reading it lists them.

    A name in a file of the user's own stands for that device alone.
    """
    if name is None or catalog_name(base.cluster.device) is None:
        return []
    remark = device_assumption(name)
    offered = (remark or "").partition(";")[2]
    known = {device.name for device in known_devices()}
    return [word for word in re.split(r"[\s,;]+", offered) if word in known]


_FACTOR = 2.0
_OF_REQUEST: Mapping[str, str] = {
    "batch_size": "samples per device and forward pass",
    "gpus": "devices, at the same batch per device",
    "num_microbatches": "micro batches per optimizer step",
    "seq_len": "tokens per sample",
    "image_size": "side of the images",
    "frames": "frames of a video",
    "audio_seconds": "audio per sample",
    "cpus": "cores of a host that feed its devices",
}
_OF_DEVICE: Mapping[str, str] = {
    "peak_flops_per_s": "peak of the matrix units, every type",
    "memory_bandwidth_bytes_per_s": "memory bandwidth of a device",
    "launch_overhead_s": "time to launch a kernel",
}
_OF_LINKS: Mapping[str, str] = {
    "bandwidth_bytes_per_s": "bandwidth between",
    "latency_s": "latency between",
}
_LINKS: Mapping[str, str] = {"intra_node": "devices of a host", "inter_node": "hosts"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Sensitivity:
    """What one number does to the time."""

    name: str
    """A field of the request, or `device.` or a link and a figure of it."""
    words: str
    """What it is."""
    value: float
    """In the unit of the field."""
    at_half: float | None
    """Relative change of the time per sample: 0.4 for 40 % more; None where half of it is no job."""
    at_double: float | None
    step_at_half: float | None
    """The same of the step."""
    step_at_double: float | None
    elasticity: float
    """Percent by which the time per sample moves for one percent more: the slope of the logarithms."""

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready dictionary; keys are the field names."""
        return asdict(self)


@takes_request_fields()
def sensitivity(model: Any, **options: Any) -> tuple[Sensitivity, ...]:
    """What each number of a job does to its time, what moves it most first.

    Args:
        model: As `predict_time` takes it, or a `Request`.
        options: Fields of `Request`, all optional.

    Returns:
        One row for each number that the job has; the layout and the batch stay those of the answer.

    Raises:
        UnknownNameError: Model, device, precision or stack that no catalog holds.
        ConfigError: Counts, batches, lengths or a precision that do not fit together.
        CaptureError: A model that cannot be turned into an operator graph.
    """
    request = as_request(model, options)
    base = request.resolve()
    if base.layout_chosen:
        request = at_layout(request, base)
    request = request.with_(batch_size=base.layout.micro_batch_size / base.workload.rows_per_sample)
    base = request.resolve(workload=base.workload)
    tried = [*_of_request(request, base), *_of_hardware(base)]
    jobs = [base, *(job for *_, pair in tried for job in pair if job is not None)]
    columns = changed(jobs, request)
    step_s, samples = columns["step_time_s"], columns["global_batch_size"]
    steps = step_s / step_s[0]
    ratios = iter(zip(steps.tolist(), (steps * samples[0] / samples).tolist(), strict=True))
    next(ratios)  # of the job itself
    rows = []
    for name, words, value, pair in tried:
        moved = [None if job is None else next(ratios) for job in pair]
        half, double = ((None, None) if each is None else (each[0] - 1.0, each[1] - 1.0) for each in moved)
        logs = [0.0 if each is None else math.log(each[1]) for each in moved]
        spans = sum(each is not None for each in moved)
        rows.append(
            Sensitivity(
                name=name,
                words=words,
                value=value,
                at_half=half[1],
                at_double=double[1],
                step_at_half=half[0],
                step_at_double=double[0],
                elasticity=(logs[1] - logs[0]) / (spans * math.log(_FACTOR)),
            )
        )
    return tuple(sorted(rows, key=lambda row: -abs(row.elasticity)))


_Tried = tuple[str, str, float, tuple[Job | None, Job | None]]
"""Name, words, value, and the job at half and at double of it."""


def _of_request(request: Request, base: Job) -> Iterator[_Tried]:
    layout, workload = base.layout, base.workload
    values = {
        "batch_size": request.batch_size,
        "gpus": base.cluster.num_devices,
        "num_microbatches": layout.num_microbatches,
        **{name: getattr(request, name) for name in ("image_size", "frames", "audio_seconds")},
        "seq_len": workload.graph.seq_len,
        "cpus": request.cpus,
    }
    for name, value in values.items():
        pair = tuple(
            _with_number(request, base, name, value * factor) for factor in (1 / _FACTOR, _FACTOR) if value
        )
        if len(pair) == 2 and any(job is not None for job in pair):
            yield name, _OF_REQUEST[name], float(value or 0), (pair[0], pair[1])


def _with_number(request: Request, base: Job, name: str, value: float) -> Job | None:
    """The job with another number in a field; None where there is no such job."""
    changes: dict[str, Any] = {name: int(value) if value == int(value) else value}
    if name == "gpus":
        # Whole hosts where there are several: a job is not torn apart to have fewer devices.
        changes["nodes"] = None
    if name in ("gpus", "num_microbatches") and request.global_batch_size is not None:
        changes["global_batch_size"] = None
    sized = name in ("seq_len", "image_size", "frames", "audio_seconds")
    return asked(request, changes, workload=None if sized else base.workload)


def _of_hardware(base: Job) -> Iterator[_Tried]:
    cluster, device = base.cluster, base.cluster.device
    peaks = device.peak_flops_per_s
    for name, words in _OF_DEVICE.items():
        value = getattr(device, name)
        if isinstance(value, Mapping):  # shown for the type of the products; all types are changed
            value = peaks.get(base.runs.matmul.value, max(peaks.values()))
        if value > 0.0:
            pair = (_device(base, name, 1 / _FACTOR), _device(base, name, _FACTOR))
            yield f"device.{name}", words, value, pair
    levels = {"intra_node": cluster.devices_per_node > 1, "inter_node": cluster.num_nodes > 1}
    for level in (level for level, used in levels.items() if used):
        for name, words in _OF_LINKS.items():
            value = getattr(getattr(cluster, level), name)
            if value > 0.0:
                pair = (_link(base, level, name, 1 / _FACTOR), _link(base, level, name, _FACTOR))
                yield f"{level}.{name}", f"{words} {_LINKS[level]}", value, pair


def with_hardware(base: Job, factors: Mapping[str, float]) -> Job:
    """The job on hardware with other numbers: `device.` or a link and a figure, each times its factor."""
    for name, factor in factors.items():
        owner, _, figure = name.partition(".")
        base = _device(base, figure, factor) if owner == "device" else _link(base, owner, figure, factor)
    return base


def _device(base: Job, name: str, factor: float) -> Job:
    device, changed = base.cluster.device, getattr(base.cluster.device, name)
    if isinstance(changed, Mapping):
        new: Any = {dtype: factor * value for dtype, value in changed.items()}
    else:
        new = factor * changed
    return _with_cluster(base, replace(base.cluster, device=replace(device, **{name: new})))


def _link(base: Job, level: str, name: str, factor: float) -> Job:
    link = getattr(base.cluster, level)
    changes = {name: factor * getattr(link, name)}
    if name == "bandwidth_bytes_per_s" and link.stream_bytes_per_s is not None:
        changes["stream_bytes_per_s"] = factor * link.stream_bytes_per_s
    return _with_cluster(base, replace(base.cluster, **{level: replace(link, **changes)}))


def _with_cluster(base: Job, cluster: Cluster) -> Job:
    return replace(base, cluster=replace(cluster, reference=base.cluster.reference or base.cluster))
