"""What each job may run on, and how long it takes there: pool, number of devices and precision.

A duration is a whole run's (`planning/run`): steps, start-up, compilation, checkpoints, failures.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import ceil

import numpy as np

from precision_time.arrays import Floats
from precision_time.errors import ConfigError, PrecisionTimeError, UnknownNameError
from precision_time.hardware.custom import load_custom
from precision_time.hardware.device_table import canonical_device
from precision_time.learn.artifact import TrainedPredictor
from precision_time.planning.run.api import work_of
from precision_time.planning.run.simulation import simulated_s
from precision_time.predict.api import predict_each
from precision_time.predict.prediction import Prediction
from precision_time.request.request import Request
from precision_time.units import format_bytes

from .jobs import QueueJob
from .pools import Pool

_LEVELS = np.linspace(0.0, 1.0, 101)
_DRAWS = 2000


@dataclass(frozen=True, kw_only=True, slots=True)
class Choice:
    """One way to run a job."""

    pool: int
    """Place among the pools."""
    devices: int
    nodes: int
    """Hosts that it spans, with as many devices on each."""
    precision: str
    quantiles_s: tuple[float, ...]
    """Of the duration at 0, 1 ... 100 %."""

    @property
    def per_node(self) -> int:
        """Devices on each of its hosts."""
        return self.devices // self.nodes

    @property
    def duration_s(self) -> float:
        """The median."""
        return self.quantile_s(0.5)

    def quantile_s(self, quantile: float) -> float:
        """The duration that is not exceeded with a probability."""
        return float(np.interp(quantile, _LEVELS, self.quantiles_s))

    def durations_s(self, shares: Floats) -> Floats:
        """Durations at quantiles, shape (n,)."""
        return np.asarray(np.interp(shares, _LEVELS, self.quantiles_s))


def choices_of(
    jobs: Sequence[QueueJob], pools: Sequence[Pool], *, predictor: TrainedPredictor | None = None
) -> list[tuple[Choice, ...]]:
    """The choices of each job that fit, predicted together.

    Raises:
        ConfigError: If a job has none: the nearest miss, and what it would take; or no length.
    """
    asked: list[tuple[int, int, Request]] = []
    refused: list[list[str]] = [[] for _ in jobs]
    for place, job in enumerate(jobs):
        for request in job.requests:
            for number, pool in enumerate(pools):
                if request.device is not None and not _is_of(str(request.device), pool, job.name):
                    continue
                reason = _misfit(request.gpus or 1, pool)
                if reason:
                    refused[place].append(reason)
                else:
                    asked.append((place, number, _in_pool(request, pool)))
    answers = predict_each([request for *_, request in asked], predictor=predictor, remedies=False)
    found: list[list[Choice]] = [[] for _ in jobs]
    short: list[list[tuple[float, str]]] = [[] for _ in jobs]
    for (place, number, request), answer in zip(asked, answers, strict=True):
        if isinstance(answer, PrecisionTimeError):
            refused[place].append(str(answer))
        elif not answer.fits:
            short[place].append(_shortfall(answer))
        else:
            found[place].append(_choice(answer, number, request, jobs[place]))
    for place, job in enumerate(jobs):
        if not found[place]:
            raise ConfigError(_fits_nowhere(job, pools, short[place], refused[place]))
    return [tuple(each) for each in found]


def _choice(answer: Prediction, pool: int, request: Request, job: QueueJob) -> Choice:
    if answer.total_steps is None:
        raise ConfigError(f"{job.name}: {answer.total_time_missing}")
    found = simulated_s([work_of(answer, request, request.resolve(), job.run)], draws=_DRAWS)
    return Choice(
        pool=pool,
        devices=answer.gpus,
        nodes=request.nodes or 1,
        precision=answer.precision,
        quantiles_s=tuple(np.quantile(found, _LEVELS).tolist()),
    )


def _is_of(device: str, pool: Pool, job: str) -> bool:
    own = load_custom(pool.custom).find_device(device) if pool.custom else None
    try:
        return (canonical_device(device) if own is None else own.name) == pool.device
    except UnknownNameError as error:
        raise ConfigError(f"{job}: {error}") from None


def _misfit(devices: int, pool: Pool) -> str:
    """Why so many devices cannot be taken from a pool; empty where they can."""
    if devices > pool.devices:
        return f"it asks for {devices} devices, and {pool.name} has {pool.devices}"
    hosts = ceil(devices / pool.devices_per_node)
    if devices % hosts:
        return f"{devices} devices do not spread evenly over {hosts} hosts of {pool.name}"
    return ""


def _in_pool(request: Request, pool: Pool) -> Request:
    devices = request.gpus or 1
    given = {"intra_node": pool.intra_node, "inter_node": pool.inter_node, "custom": pool.custom}
    return request.with_(
        device=pool.device,
        gpus=devices,
        nodes=ceil(devices / pool.devices_per_node),
        **{name: value for name, value in given.items() if value},
    )


def _shortfall(answer: Prediction) -> tuple[float, str]:
    """Bytes too many per device, and that in words."""
    missing = answer.memory_bytes_per_device - answer.device_memory_bytes
    return missing, (
        f"{answer.gpus} x {answer.device} in {answer.precision} lacks {format_bytes(missing)} per device "
        f"(needs {format_bytes(answer.memory_bytes_per_device)})"
    )


def _fits_nowhere(
    job: QueueJob, pools: Sequence[Pool], short: Sequence[tuple[float, str]], refused: Iterable[str]
) -> str:
    has = ", ".join(f"{pool.devices} x {pool.device}" for pool in pools)
    if short:
        return (
            f"{job.name} fits in no pool of the cluster ({has}). Nearest: {min(short)[1]}. To fix: allow "
            "more devices (gpus), a smaller batch_size, sharding (zero_stage: 3) or checkpointing."
        )
    reasons = list(dict.fromkeys(refused)) or [f"it asks for {job.requests[0].device}"]
    said = "; ".join(reasons[:3])
    fix = "" if "To fix" in said else " To fix: allow other devices or counts (device, gpus)."
    return f"{job.name} fits in no pool of the cluster ({has}): {said.rstrip('.')}.{fix}"
