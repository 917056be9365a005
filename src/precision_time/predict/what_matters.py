"""Which assumptions matter: each is replaced by its usual alternative and the job predicted again."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import numpy as np

from ..cost.job import Job, Jobs
from ..diagnostics import LAYOUT_CHOSEN
from ..errors import PrecisionTimeError
from ..hardware.catalog import device_assumption, known_devices
from ..hardware.device_table import catalog_name
from ..io import packaged_toml
from ..learn.artifact import TrainedPredictor, chosen_predictor
from ..records import dataclass
from ..request.request import Request
from .answer import CHANGED, RunLength, answer
from .remedies import at_layout

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

    @property
    def option(self) -> str:
        """What to give to have it."""
        value = str(self.value).lower() if isinstance(self.value, bool) else self.value
        return f"{self.field}={value:g}" if isinstance(value, float) else f"{self.field}={value}"

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
        asked = request or Request.of(prediction.request)
        base = asked.resolve(named_only=request is None)
    except PrecisionTimeError:
        return ()
    if any(item.code == LAYOUT_CHOSEN for item in base.diagnostics):
        # The chosen layout is kept: every alternative would search for one of its own.
        asked = at_layout(asked, base)
    elif _batch_assumed(prediction):
        asked = asked.with_(batch_size=prediction.batch_size)
        base = asked.resolve(workload=base.workload)
    tried = [(row, value, job) for row in _rows() for value, job in _jobs(row, asked, base, prediction)]
    jobs = [base, *(job for *_, job in tried)]
    trained = predictor or chosen_predictor(asked.predictor)
    changed = answer(Jobs.of(jobs), trained, lengths=[RunLength.of(asked)] * len(jobs), want=CHANGED).columns
    each_s = (1.0 / changed["throughput"]).tolist()
    base_bytes, *needed = changed["memory_bytes_per_device"].tolist()
    found: dict[str, Alternative] = {}
    for (row, value, job), unit_s, held in zip(tried, each_s[1:], needed, strict=True):
        fits = held <= job.cluster.device.memory_bytes
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
            assumed=row["assumed"].format(job=base, request=asked),
            words=row["words"].format(value=value),
            time_change=change,
            memory_change=more,
            fits=fits or not prediction.fits,
        )
    return tuple(sorted(found.values(), key=lambda item: -abs(np.log1p(item.time_change))))


def _rows() -> list[Mapping[str, Any]]:
    rows: list[Mapping[str, Any]] = packaged_toml(__package__, "data/alternatives.toml")["alternative"]
    return rows


def _jobs(
    row: Mapping[str, Any], request: Request, base: Job, prediction: Prediction
) -> Iterator[tuple[Any, Job]]:
    """The values of an alternative that applies, each with the job under it."""
    if not _applies(row, request, base, prediction):
        return
    for value in _values(row, request, base):
        sized = row["field"] in _SIZES
        changes = {row["field"]: value}
        if "batch_times" in row and _batch_assumed(prediction):
            changes["batch_size"] = prediction.batch_size * row["batch_times"]
        try:
            changed = request.with_(**changes)
            job = changed.resolve(named_only=sized, workload=None if sized else base.workload)
        except PrecisionTimeError:
            continue
        yield value, job


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
