"""Answers to many requests as columns: no object for each, and one resolved request for many batches.

Each row says what `predict` says of its request alone (tests/predict/test_sweep.py), but for the nearest runs
and what to ask for instead.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..arrays import Floats
from ..cost.job import Job, group_key, group_of_jobs
from ..cost.memory import memory_of
from ..cost.terms import DATA_STALL, EXPOSED_TERMS, HOST_STALL, METHOD_TERMS, TERMS
from ..diagnostics import Diagnostics, Severity
from ..errors import ConfigError, PrecisionTimeError
from ..learn.artifact import TrainedPredictor, chosen_predictor
from ..learn.priced import LikeJobs, price_groups
from ..request.batch import tokens_per_sample
from ..request.batches import SharedJob, jobs_at_batches
from ..request.fields import plain_type
from ..request.grid import Asked
from ..request.layout import option_words, said_options
from ..request.request import Request
from ..request.schema import ALIASES, request_fields
from .api import predict_each
from .plausible import unusual
from .prediction import Prediction
from .predictor import (
    _BOUND_SHARE,
    RunLength,
    _report_run,
    _warn_of_weak_answer,
    run_times,
    shown_utilization,
)
from .table import FIGURES, SAID

_SECONDS_PER_HOUR = 3600.0
_RANGES = ("interval_low_s", "interval_high_s", "total_low_s", "total_high_s")
_WORDS = frozenset(
    {"model", "device", "precision", "stack", "throughput_unit", "layout", "warnings", "error"}
)
_WHOLE = frozenset({"job", "gpus", "nodes"})
_NEW_STEPS = 1.0
"""Distance to the measured runs from which an answer is an extrapolation, as in `learn.novelty.new_kinds`."""

TERM_COLUMNS: Mapping[str, type] = {f"terms.{term.name}": float for term in (*TERMS, *METHOD_TERMS)}
"""Further columns for those who want them: seconds of a step by term."""
Table = dict[str, NDArray[Any]]
"""Columns by name: floats with NaN, or objects with None, where there is nothing."""


def column_types(fields: Sequence[str]) -> dict[str, type]:
    """The columns of a table and what they hold: int, float, bool or str.

    Args:
        fields: Fields that any of the requests state.
    """
    known = dict(request_fields())
    names = dict.fromkeys(ALIASES.get(name, name) for name in fields)
    asked = {name: _kind(known[name].annotation) for name in names if name in known and name not in SAID}
    figures = ("layout", *FIGURES, *_RANGES, "warnings", "error")
    kinds: dict[str, type] = {"job": int}
    kinds |= asked
    for name in (*SAID, *figures):
        kinds[name] = str if name in _WORDS else int if name in _WHOLE else bool if name == "fits" else float
    return kinds


def _kind(annotation: Any) -> type:
    kind = plain_type(annotation)
    return kind if kind in (bool, int, float) else str


def answer_table(
    asked: Sequence[Asked], kinds: Mapping[str, type], *, predictor: TrainedPredictor | None = None
) -> Table:
    """The answers, a row for each request in the order asked.

    Args:
        asked: What is asked, in ascending order of the rows.
        kinds: `column_types` of all tables of the sweep.
        predictor: Of requests that name none; None for that of the environment, else the one that ships.
    """
    return _Answers(asked, kinds, predictor or chosen_predictor(None)).table()


@dataclass(frozen=True, kw_only=True, slots=True)
class _Shared:
    """A group of rows that share a job."""

    request: Request
    job: Job
    rows: NDArray[np.intp]
    """Of the table."""
    micro_batch_size: Floats


class _Times(NamedTuple):
    """Predicted seconds of n jobs that differ in the micro batch alone, shape (n,) each."""

    step_time_s: Floats
    low_s: Floats
    high_s: Floats
    compute_s: Floats
    exposed_s: Floats
    novelty: Floats
    """Distance to the nearest measured run by kind, shape (n, kinds)."""
    terms: Mapping[str, Floats]
    """Of the cost model."""


class _Answers:
    def __init__(
        self, asked: Sequence[Asked], kinds: Mapping[str, type], predictor: TrainedPredictor
    ) -> None:
        self._asked, self._kinds, self._predictor = asked, kinds, predictor
        self._starts = np.cumsum([0, *(len(each) for each in asked)]).tolist()
        count = self._starts[-1]
        self._table: Table = {
            name: np.full(count, np.nan) if kind is float else np.full(count, None, dtype=object)
            for name, kind in kinds.items()
        }
        self._alone: list[tuple[int, int, Request]] = []
        self._with_terms = not self._kinds.keys().isdisjoint(TERM_COLUMNS)

    def table(self) -> Table:
        """All columns."""
        groups: list[_Shared] = []
        for each, start in zip(self._asked, self._starts, strict=False):
            self._table["job"][start : start + len(each)] = range(each.first, each.first + len(each))
            groups += self._resolved(each, start)
        named: dict[Path | None, list[_Shared]] = {}
        for group in groups:
            named.setdefault(group.request.predictor, []).append(group)
        for folder, some in named.items():
            self._answer(some, self._predictor if folder is None else chosen_predictor(folder))
        self._answer_alone()
        return self._table

    def _answer(self, groups: Sequence[_Shared], predictor: TrainedPredictor) -> None:
        """Price and predict groups together, those with one job once."""
        alike: dict[Any, tuple[Job, dict[float, int]]] = {}
        asked: list[tuple[Any, list[int]]] = []
        for each in groups:
            key = group_key(each.job)
            _, known = alike.setdefault(key, (each.job, {}))
            asked.append(
                (key, [known.setdefault(size, len(known)) for size in each.micro_batch_size.tolist()])
            )
        like = [LikeJobs(job=job, key=key, batches=tuple(known)) for key, (job, known) in alike.items()]
        starts = dict(zip(alike, accumulate((len(one.batches) for one in like), initial=0), strict=False))
        priced = price_groups(like, np.concatenate([np.array(own) + starts[key] for key, own in asked]))
        coverages = np.repeat([each.request.coverage for each in groups], [len(own) for _, own in asked])
        times = priced.times(predictor, coverage=coverages)
        costs = dict(zip(alike, priced.costs, strict=True))
        end = 0
        for each, (key, own) in zip(groups, asked, strict=True):
            here = slice(end, end := end + len(own))
            found = _Times(
                step_time_s=times.step_time_s[here],
                low_s=times.low_s[here],
                high_s=times.high_s[here],
                compute_s=times.compute_s[here],
                exposed_s=times.exposed_s[here],
                novelty=times.distance[here],
                terms={name: seconds[own] for name, seconds in costs[key].terms.items()},
            )
            self._set(each.rows, _figures_of(each, found, predictor))
            if self._with_terms:
                self._set(each.rows, _terms_of(found))

    def _set(self, rows: Any, values: Mapping[str, Any]) -> None:
        for name, value in values.items():
            if name in self._table:
                self._table[name][rows] = value

    def _resolved(self, each: Asked, start: int) -> Iterator[_Shared]:
        """The jobs of a request at its batches; what is refused says why in its row."""
        rows = np.arange(start, start + len(each))
        try:
            if each.refused:
                raise ConfigError(each.refused)
            request = Request.of(each.at(0))
            if request.predictor is not None:
                chosen_predictor(request.predictor)  # one that cannot be used is refused here
        except PrecisionTimeError as error:
            self._refuse(rows, each, error)
            return
        said = {name: value for name, value in request.to_dict().items() if name not in SAID}
        self._set(rows, {name: _as(kind, said[name]) for name, kind in self._kinds.items() if name in said})
        if request.anchors or request.calibration is not None or request.method is not None:
            self._alone += [
                (start + place, each.first + place, Request.of(each.at(place))) for place in range(len(each))
            ]
            return
        if each.axis:
            shared, refused = jobs_at_batches(request, each.axis, each.batches)
        else:
            shared, refused = _one(request)
        for place, reason in refused.items():
            self._refuse(rows[place : place + 1], each, reason, place)
        for one in shared:
            job = one.job
            if request.input_rate is not None:  # a known rate takes the place of the modeled feed
                job = replace(job, stack=replace(job.stack, loader=""))
            yield _Shared(
                request=request, job=job, rows=rows[one.rows], micro_batch_size=one.micro_batch_size
            )

    def _refuse(self, rows: Any, each: Asked, error: PrecisionTimeError, place: int = 0) -> None:
        """Say in their rows why some requests have no answer."""
        said = {ALIASES.get(name, name): value for name, value in each.at(place).items()}
        self._set(rows, {name: _as(self._kinds[name], said[name]) for name in self._kinds if name in said})
        if each.axis and len(rows) == len(each):
            self._set(rows, {each.axis: each.batches})
        self._set(rows, {"error": str(error)})

    def _answer_alone(self) -> None:
        """Requests with own measurements or several models, by `predict_each`."""
        for named in (False, True):
            some = [each for each in self._alone if (each[2].predictor is not None) is named]
            trained = None if named else self._predictor
            answers = predict_each([request for _, _, request in some], predictor=trained, remedies=False)
            self._set_alone(some, answers)

    def _set_alone(self, some: Sequence[tuple[int, int, Request]], answers: Sequence[Any]) -> None:
        for (row, number, request), answer in zip(some, answers, strict=True):
            if isinstance(answer, Prediction):
                self._set(row, _figures_alone(answer))
            else:
                said = request.to_dict()
                self._set(row, {name: _as(kind, said.get(name)) for name, kind in self._kinds.items()})
                self._set(row, {"job": number, "error": str(answer)})


def _one(request: Request) -> tuple[list[SharedJob], dict[int, PrecisionTimeError]]:
    try:
        job = request.resolve()
    except PrecisionTimeError as error:
        return [], {0: error}
    micro = np.array([job.layout.micro_batch_size])
    return [SharedJob(job=job, rows=np.zeros(1, dtype=np.intp), micro_batch_size=micro)], {}


def _figures_of(shared: _Shared, times: _Times, predictor: TrainedPredictor) -> dict[str, Any]:
    """The columns of a group: `predictor._answer` by arrays."""
    job, request, micro = shared.job, shared.request, shared.micro_batch_size
    workload, layout, device = job.workload, job.layout, job.cluster.device
    batch = micro * layout.num_micro_batches * layout.dp
    fed_s = np.zeros(len(micro)) if request.input_rate is None else batch / request.input_rate
    busy_s = times.step_time_s
    wait_s = np.maximum(fed_s - busy_s, 0.0)
    step_s = busy_s + wait_s
    low_s = np.minimum(np.maximum(times.low_s * busy_s / times.step_time_s, fed_s), step_s)
    high_s = np.maximum(times.high_s * busy_s / times.step_time_s, step_s)
    memory = memory_of(replace(group_of_jobs([job]), micro_batch_size=micro))
    needed = np.broadcast_to(np.asarray(sum(memory.values())), micro.shape)
    fits = needed - memory.get("fragmentation", 0.0) <= device.memory_bytes
    length = RunLength(
        dataset=request.dataset,
        dataset_samples=request.samples,
        epochs=request.epochs,
        steps=request.steps,
        tokens=request.tokens,
        input_samples_per_s=request.input_rate,
    )
    epoch_steps, steps = _steps(job, length, batch)
    epoch_s = None if epoch_steps is None else epoch_steps * step_s
    total_s = None if steps is None else steps * step_s
    warned = _warned(job, length, times, batch, step_s, wait_s, epoch_s, predictor)
    warned["memory"] = needed > device.memory_bytes
    said = {name: value for name, value in said_options(layout, workload).items() if name != "batch_size"}
    return {
        "model": workload.name,
        "device": device.name,
        "gpus": job.cluster.num_devices,
        "nodes": job.cluster.num_nodes,
        "precision": job.precision.name,
        "stack": job.stack.profile,
        "batch_size": micro / workload.rows_per_sample,
        "global_batch_size": batch / workload.rows_per_sample,
        "layout": option_words(said),
        "step_time_s": step_s,
        "throughput": batch * workload.units_per_sample / step_s,
        "throughput_unit": workload.throughput_unit,
        "mfu": shown_utilization(job, step_s, batch / layout.global_batch_size),
        "epoch_time_s": np.nan if epoch_s is None else epoch_s,
        "total_time_s": np.nan if total_s is None else total_s,
        "device_hours": np.nan if total_s is None else total_s * job.cluster.num_devices / _SECONDS_PER_HOUR,
        "memory_bytes_per_device": needed,
        "fits": fits,
        "interval_low_s": low_s,
        "interval_high_s": high_s,
        "total_low_s": np.nan if steps is None else low_s * steps,
        "total_high_s": np.nan if steps is None else high_s * steps,
        "warnings": _codes(warned, len(micro)),
    }


def _terms_of(times: _Times) -> dict[str, Floats]:
    """The terms of steps after the correction of their stage: `predictor.corrected_terms` by arrays."""
    terms = times.terms
    sums = {
        exposed: np.sum([terms[name] for name in terms if (name in EXPOSED_TERMS) is exposed], axis=0)
        for exposed in (True, False)
    }
    compute = times.compute_s / np.maximum(sums[False], 1e-12)
    exposed = np.divide(times.exposed_s, sums[True], out=np.zeros_like(compute), where=sums[True] > 0.0)
    return {
        f"terms.{name}": seconds * (exposed if name in EXPOSED_TERMS else compute)
        for name, seconds in terms.items()
    }


def _steps(job: Job, length: RunLength, batch: Floats) -> tuple[Floats | None, Floats | None]:
    """Steps of an epoch and of the run: `predictor.run_times` by arrays."""
    workload = job.workload
    samples, tokens = length.dataset_samples or workload.dataset_samples, tokens_per_sample(workload)
    rows_per_sample = workload.rows_per_sample / workload.samples_per_row
    of_epoch = np.ceil(samples * rows_per_sample / batch) if samples else None
    if length.tokens is not None and tokens is not None:
        return of_epoch, np.ceil(length.tokens / (batch * tokens))
    if length.steps is not None:
        return of_epoch, np.full(len(batch), float(length.steps))
    return of_epoch, None if of_epoch is None else np.ceil((length.epochs or 1.0) * of_epoch)


def _warned(
    job: Job,
    length: RunLength,
    times: _Times,
    batch: Floats,
    step_s: Floats,
    wait_s: Floats,
    epoch_s: Floats | None,
    predictor: TrainedPredictor,
) -> dict[str, Any]:
    """Codes of what to act on, in the order of an answer, and in which rows."""
    of_run, of_job = Diagnostics(), Diagnostics()
    _report_run(run_times(job, length, float(step_s[0])), length, of_run)
    _warn_of_weak_answer(job, (), predictor, of_job)
    terms = times.terms
    compute_s = sum(seconds for name, seconds in terms.items() if name not in EXPOSED_TERMS)
    factor = times.compute_s / np.maximum(compute_s, 1e-12)
    stall_s = np.where(wait_s > 0.0, wait_s, terms[DATA_STALL] * factor)
    fed = stall_s > _BOUND_SHARE * step_s
    found: dict[str, Any] = dict.fromkeys(_warnings([*job.diagnostics, *of_run.items]), True)
    found["input-bound"] = fed
    found["host-bound"] = ~fed & (terms[HOST_STALL] * factor > _BOUND_SHARE * step_s)
    found["extrapolation"] = times.novelty.max(axis=1) > _NEW_STEPS
    found |= dict.fromkeys(_warnings(of_job.items), True)
    return found | unusual(job, batch, step_s, epoch_s)


def _warnings(items: Sequence[Any]) -> list[str]:
    return [item.code for item in items if item.severity is Severity.WARNING]


def _codes(warned: Mapping[str, Any], count: int) -> NDArray[Any]:
    """The codes of each row, separated by blanks; empty where there are none."""
    names = [*warned]
    held = np.zeros(count, dtype=np.int64)
    for place, said in enumerate(warned.values()):
        held += np.asarray(said, dtype=np.int64) << place
    texts = {
        bits: " ".join(name for place, name in enumerate(names) if bits >> place & 1)
        for bits in {*held.tolist()}
    }
    return np.array([texts[bits] for bits in held.tolist()], dtype=object)


def _figures_alone(answer: Prediction) -> dict[str, Any]:
    """The columns of one answer."""
    run = answer.total_interval
    said = {name: getattr(answer, name) for name in (*SAID, *FIGURES)}
    said |= {name: np.nan for name in ("mfu", "epoch_time_s", "total_time_s") if said[name] is None}
    said |= {f"terms.{name}": seconds for name, seconds in answer.terms.items()}
    said["device_hours"] = np.nan if answer.device_hours is None else answer.device_hours
    return said | {
        "interval_low_s": answer.interval.low_s,
        "interval_high_s": answer.interval.high_s,
        "total_low_s": np.nan if run is None else run.low_s,
        "total_high_s": np.nan if run is None else run.high_s,
        "warnings": " ".join(dict.fromkeys(_warnings(answer.diagnostics))),
    }


def _as(kind: type, value: Any) -> Any:
    """A field as its column holds it; nothing where it is no such value: the error of the row quotes it."""
    if value is None:
        return np.nan if kind is float else None
    if kind is str:
        return str(value)
    try:
        return kind(value)
    except (TypeError, ValueError):
        return np.nan if kind is float else None
