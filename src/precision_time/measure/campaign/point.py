"""A finished point of a campaign: one training run, as it was asked for and as it was measured.

The fields are the columns of `campaign export` and of the store, in this order. They hold what the
performance models of Filippini et al. (SEAA 2023) are fitted on: training time against data-set size,
number of workers and resources per worker.
"""

from __future__ import annotations

import csv
import json
import math
import types
import typing
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from functools import cache
from pathlib import Path
from typing import Any, TextIO

from ...errors import CorpusError

SCHEMA_VERSION = 1
"""Of the columns below and of the store. A column that is added or changes its meaning raises it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class FinishedPoint:
    """One training run. None: does not apply or was not measured; nothing is ever estimated."""

    # What was asked for.
    campaign: str
    key: str
    """Equal for points that measure the same thing, repeats apart; with `repeat` unique in a store."""
    repeat: int
    """0, 1, ..."""
    model: str
    dataset: str
    """synthetic, digits, or the path of an ImageFolder."""
    dataset_fraction: float
    """Share of the data set, above 0 to 1."""
    num_samples: int
    """Of an epoch, over all workers: the fraction of the whole."""
    num_workers: int
    cpus_per_worker: float
    gpus_per_worker: float
    batch_per_worker: int
    """Samples of a worker's forward pass; the global batch is this times `num_workers`."""
    precision: str
    """fp32, tf32, bf16-mixed or fp16-mixed."""
    optimizer: str
    sizes: Mapping[str, float] = field(default_factory=dict)
    """Of the model, as the campaign gives them (hidden, layers ...); empty for the model's own."""
    status: str = "ok"
    """ok, or failed: then `error` says why and the measurements are None."""
    error: str = ""

    # Where it ran.
    framework: str = "torch"
    framework_version: str = ""
    ray_version: str = ""
    python_version: str = ""
    backend: str = ""
    """gloo or nccl; empty with one worker."""
    device: str = ""
    """Of the workers, as the device catalogue spells it where it knows it."""
    hosts: tuple[str, ...] = ()
    """Host name of each worker, by rank."""
    num_hosts: int = 1
    """Different machines among them."""
    num_ray_nodes: int = 1
    """Ray nodes of the workers: more than `num_hosts` where one machine plays several."""
    cores_per_host: int | None = None
    """Of the smallest host."""
    label: str = ""
    """"" for an honest point; oversubscribed (more busy threads than cores on a host), simulated-nodes
    (several Ray nodes on one machine), or both with a blank between."""
    timestamp: str = ""
    """End of the run, UTC, ISO 8601."""

    # Start-up, apart from training.
    group_start_s: float | None = None
    """From asking Ray for the workers to the last of them being ready, process group included. Points that
    shared a group of workers share this figure."""
    build_s: float | None = None
    """Model, data set and DDP wrapper."""
    first_step_s: float | None = None
    """Iteration 0: allocation, choice of kernels."""
    warmup_s: float | None = None
    """Iteration 0 and the warm-up steps together; they belong to no epoch."""

    # Steps, rank 0, warm-up apart [s].
    num_steps: int | None = None
    step_time_s: float | None = None
    """Median."""
    step_time_mean_s: float | None = None
    step_time_sd_s: float | None = None
    step_time_p90_s: float | None = None
    gradient_wait_s: float | None = None
    """Median per step from the last local gradient to the last reduced one; None with one worker."""
    gradient_wait_method: str = ""
    """ddp-hook-host-clock, ddp-hook-cuda-events, or empty."""

    # Epochs [s].
    steps_per_epoch: int | None = None
    num_epochs: int | None = None
    """Whole epochs that were run."""
    epoch_time_s: float | None = None
    """Mean of the whole epochs."""
    epoch_times_s: tuple[float, ...] = ()
    train_time_s: float | None = None
    """All steps after the warm-up, from the first to the last."""
    total_time_s: float | None = None
    """group_start_s + build_s + warmup_s + train_time_s: what a job of this one point would have taken."""

    # Rates and resources.
    samples_per_s: float | None = None
    """Over all workers: global batch / step_time_s."""
    params: int | None = None
    peak_memory_bytes: float | None = None
    """Largest of the workers: allocated on the GPU; on a CPU the resident set of the process."""
    power_w: float | None = None
    """Mean of the GPUs over the timed steps, summed over the workers."""

    @property
    def identity(self) -> tuple[str, int]:
        """What a store holds once."""
        return self.key, self.repeat

    @property
    def honest(self) -> bool:
        """Measured, and with as many cores and machines as it claims."""
        return self.status == "ok" and not self.label

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready dictionary, columns in order."""
        return {name: _plain(getattr(self, name)) for name in COLUMNS}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> FinishedPoint:
        """The point of a dictionary whose values may be texts, as a CSV has them.

        Raises:
            CorpusError: If a column is missing that every point has, or a value cannot be read.
        """
        given = {}
        for name, kind in _kinds().items():
            if name in values:
                given[name] = _read(name, kind, values[name])
        try:
            return cls(**given)
        except TypeError as error:
            raise CorpusError(
                f"A point of a campaign is not complete: {error}. To fix: export it with "
                "`precision-time campaign export`."
            ) from error


COLUMNS = tuple(item.name for item in fields(FinishedPoint))
"""Of the CSV, in order."""


def write_points(points: Iterable[FinishedPoint], file: TextIO) -> int:
    """Points as CSV. Returns how many there were."""
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(COLUMNS)
    count = 0
    for point in points:
        writer.writerow([_cell(value) for value in point.to_dict().values()])
        count += 1
    return count


def read_points_csv(path: str | Path) -> list[FinishedPoint]:
    """The points of a CSV that `campaign export` wrote.

    Raises:
        CorpusError: If the file cannot be read or holds something else.
    """
    try:
        with open(path, encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise CorpusError(f"{path} cannot be read: {error}. To fix: check the path.") from error
    return [FinishedPoint.from_dict({name: cell for name, cell in row.items() if cell}) for row in rows]


@cache
def _kinds() -> dict[str, Any]:
    """Name of a column -> its type, without the None."""
    kinds = {}
    for name, hint in typing.get_type_hints(FinishedPoint).items():
        options = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
        kinds[name] = next(option for option in options if option is not type(None))
    return {name: kinds[name] for name in COLUMNS}


def _read(name: str, kind: Any, value: Any) -> Any:
    if value is None:
        return None
    try:
        if kind in (int, float):
            number = float(value)
            if not math.isfinite(number) or (kind is int and not number.is_integer()):
                raise ValueError("not such a number")
            return kind(number)
        if kind is str:
            return str(value)
        read = json.loads(value) if isinstance(value, str) else value
        return dict(read) if isinstance(read, Mapping) else tuple(read)
    except (TypeError, ValueError, OverflowError) as error:
        raise CorpusError(
            f"{name}={str(value)[:60]!r} of a campaign's point cannot be read: {error}. To fix: export the "
            "store again with `precision-time campaign export`."
        ) from error


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict(value)
    return list(value) if isinstance(value, tuple) else value


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, (list, dict)):
        return json.dumps(value, separators=(",", ":")) if value else ""
    return repr(value) if isinstance(value, float) else " ".join(str(value).split())
