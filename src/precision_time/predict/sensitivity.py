"""How the time moves with each number that it depends on: of the request, and of the hardware.

Each number is halved and doubled, alone, and the job predicted again: one-at-a-time sensitivity, Saltelli et
al., Global Sensitivity Analysis (2008), chapter 1.4. Numbers of the hardware act through the cost model alone
(`Cluster.reference`), as for a device of the user's own.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from typing import Any

from ..cost.job import Job, Jobs
from ..diagnostics import LAYOUT_CHOSEN
from ..errors import PrecisionTimeError
from ..hardware.device import Cluster
from ..learn.artifact import chosen_predictor
from ..records import dataclass
from ..request.request import Request
from ..request.signature import takes_request_fields
from .answer import TIME, RunLength, answer
from .api import as_request
from .remedies import at_layout

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
    asked = as_request(model, options)
    base = asked.resolve()
    if any(item.code == LAYOUT_CHOSEN for item in base.diagnostics):
        asked = at_layout(asked, base)
    rows_per_sample = base.workload.rows_per_sample
    asked = asked.with_(batch_size=base.layout.micro_batch_size / rows_per_sample)
    base = asked.resolve(workload=base.workload)
    tried = [*_of_request(asked, base), *_of_hardware(base)]
    jobs = [base, *(job for *_, pair in tried for job in pair if job is not None)]
    trained, lengths = chosen_predictor(asked.predictor), [RunLength.of(asked)] * len(jobs)
    steps = answer(Jobs.of(jobs), trained, lengths=lengths, want=frozenset({TIME})).columns["step_time_s"]
    step_s = dict(zip(map(id, jobs), steps.tolist(), strict=True))
    found = [_row(name, words, value, base, pair, step_s) for name, words, value, pair in tried]
    return tuple(sorted(found, key=lambda row: -abs(row.elasticity)))


_Tried = tuple[str, str, float, tuple[Job | None, Job | None]]
"""Name, words, value, and the job at half and at double of it."""


def _of_request(asked: Request, base: Job) -> Iterator[_Tried]:
    layout, workload = base.layout, base.workload
    values = {
        "batch_size": asked.batch_size,
        "gpus": base.cluster.num_devices,
        "num_microbatches": layout.num_microbatches,
        **{name: getattr(asked, name) for name in ("image_size", "frames", "audio_seconds")},
        "seq_len": workload.graph.seq_len,
        "cpus": asked.cpus,
    }
    for name, value in values.items():
        pair = tuple(
            _changed(asked, base, name, value * factor) for factor in (1 / _FACTOR, _FACTOR) if value
        )
        if len(pair) == 2 and any(job is not None for job in pair):
            yield name, _OF_REQUEST[name], float(value or 0), (pair[0], pair[1])


def _changed(asked: Request, base: Job, name: str, value: float) -> Job | None:
    """The job with another number in a field; None where there is no such job."""
    changes: dict[str, Any] = {name: int(value) if value == int(value) else value}
    if name == "gpus":
        # Whole hosts where there are several: a job is not torn apart to have fewer devices.
        changes["nodes"] = None
    sized = name in ("seq_len", "image_size", "frames", "audio_seconds")
    if name in ("gpus", "num_microbatches") and asked.global_batch_size is not None:
        changes["global_batch_size"] = None
    try:
        given = {key: each for key, each in {**asked.given(), **changes}.items() if each is not None}
        return Request.of(given).resolve(workload=None if sized else base.workload)
    except PrecisionTimeError:
        return None


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


def _row(
    name: str,
    words: str,
    value: float,
    base: Job,
    pair: tuple[Job | None, Job | None],
    step_s: Mapping[int, float],
) -> Sensitivity:
    """One row; `step_s` has the seconds of a step by the identity of its job."""
    steps = [None if job is None else step_s[id(job)] / step_s[id(base)] for job in pair]
    each = [
        None if job is None or step is None else step * _samples(base) / _samples(job)
        for job, step in zip(pair, steps, strict=True)
    ]
    logs = [math.log(ratio) if ratio is not None else 0.0 for ratio in each]
    spans = sum(ratio is not None for ratio in each)
    return Sensitivity(
        name=name,
        words=words,
        value=value,
        at_half=_change(each[0]),
        at_double=_change(each[1]),
        step_at_half=_change(steps[0]),
        step_at_double=_change(steps[1]),
        elasticity=(logs[1] - logs[0]) / (spans * math.log(_FACTOR)),
    )


def _samples(job: Job) -> float:
    return float(job.layout.global_batch_size / job.workload.rows_per_sample)


def _change(ratio: float | None) -> float | None:
    return None if ratio is None else ratio - 1.0
