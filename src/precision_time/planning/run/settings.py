"""What a whole run costs beside its steps, as numbers: data with sources, or what the user states."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping
from typing import Any

from ...arrays import Number
from ...cache import data
from ...cost.job import Job
from ...cost.optimizer import state_bytes, states_per_param
from ...io import packaged_toml
from ...predict.columns import spread_of_runs
from ...records import dataclass

_SECONDS_PER_HOUR = 3600.0


@dataclass(frozen=True, kw_only=True, slots=True)
class RunSettings:
    """Numbers or arrays that broadcast with those of the runs; the defaults are of `default_settings`."""

    start_up_s: Number
    """Before the first step, and at every restart, on one device."""
    start_up_per_device_s: Number
    compilation_s: Number
    """Of the step's program, at the start of the run and at every restart."""
    warm_up_steps: Number
    """Steps that the first ones take longer, in sum."""
    mtbf_device_s: Number
    """Mean time between failures of one device that end the job; infinite for none."""
    mtbf_spread: float
    """How uncertain that is: standard deviation of its logarithm."""
    reclaims_per_host_s: Number
    """Rate at which spot hosts are taken away."""
    detection_s: Number
    """From a failure to the start of the job on healthy hosts."""
    replacement_s: Number
    """The same after a reclaim."""
    checkpoint_interval_s: Number | None
    """Of work between checkpoints; None for what costs least (`daly_interval_s`)."""
    write_bytes_per_s_per_host: Number
    read_bytes_per_s_per_host: Number
    copy_bytes_per_s_per_device: Number
    asynchronous: bool
    """Steps go on while a checkpoint is written, once it is copied into host memory."""
    step_spread: float
    """What runs differ by beyond the interval of the step: standard deviation of the logarithm."""


@data
def run_data() -> Mapping[str, Any]:
    """The tables of `data/whole_runs.toml`."""
    return packaged_toml(__package__, "data/whole_runs.toml")


@data
def published_mtbf_s() -> tuple[float, ...]:
    """Seconds between failures of one device, of every run that counted them."""
    return tuple(
        row["devices"] * row["days"] * 24.0 * _SECONDS_PER_HOUR / row["failures"]
        for row in run_data()["interruptions"]
    )


@data
def default_settings(*, spot: bool = False) -> RunSettings:
    """What the data say: the geometric mean of published rates of failure, synchronous checkpoints."""
    data = run_data()
    mtbf = [math.log(seconds) for seconds in published_mtbf_s()]
    return RunSettings(
        start_up_s=data["start_up"]["fixed_s"],
        start_up_per_device_s=data["start_up"]["per_device_s"],
        compilation_s=0.0,
        warm_up_steps=data["warm_up"]["steps"],
        mtbf_device_s=math.exp(statistics.fmean(mtbf)),
        mtbf_spread=statistics.stdev(mtbf),
        reclaims_per_host_s=data["spot"]["reclaims_per_host_hour"] / _SECONDS_PER_HOUR if spot else 0.0,
        detection_s=data["recovery"]["detection_s"],
        replacement_s=data["recovery"]["replacement_s"],
        checkpoint_interval_s=None,
        write_bytes_per_s_per_host=data["checkpoint"]["write_bytes_per_s_per_host"],
        read_bytes_per_s_per_host=data["checkpoint"]["read_bytes_per_s_per_host"],
        copy_bytes_per_s_per_device=data["checkpoint"]["copy_bytes_per_s_per_device"],
        asynchronous=False,
        step_spread=spread_of_runs(),
    )


def forward_share() -> float:
    """A pass of evaluation, relative to a training step of as many samples."""
    return float(run_data()["evaluation"]["forward_share"])


def compilation_s(compiler: str) -> float:
    """Seconds of compiling a step, by compiler (a word of `--compiler`); one that is not named takes none."""
    return float(run_data()["compilation"].get(compiler, 0.0))


def checkpoint_bytes(job: Job) -> float:
    """Bytes of a checkpoint over all devices, each element once: weights, masters, optimizer states.

    Frozen weights do not change and are not counted. BLOOM's 176B parameters in bf16 with fp32 masters and
    Adam come to 2.46 TB; 2.3 TB are published.
    """
    policy, optimizer = job.precision, job.workload.optimizer
    states = states_per_param(optimizer) * state_bytes(optimizer, policy)
    master = policy.master.num_bytes if policy.master is not None else 0.0
    return job.workload.graph.trainable_params * (policy.param.num_bytes + master + states)


def relative_steps(batch: Number, reference: Number, critical: Number) -> Number:
    r"""Steps to the same loss at a batch over those at the reference: $S = S_{min} (1 + B_{crit} / B)$.

    Reference: McCandlish, Kaplan, Amodei and the OpenAI Dota team, An empirical model of large-batch
    training, 2018, equations 2.11 and 2.12. The critical batch size grows during training; one number is its
    mean.

    >>> relative_steps(2048.0, 1024.0, 1024.0), relative_steps(512.0, 512.0, 99.0)
    (0.75, 1.0)
    """
    return (1.0 + critical / batch) / (1.0 + critical / reference)


def relative_samples(batch: Number, reference: Number, critical: Number) -> Number:
    r"""Samples at a batch over those at the reference: $E = E_{min} (1 + B / B_{crit})$.

    >>> relative_samples(2048.0, 1024.0, 1024.0)
    1.5
    """
    return (1.0 + batch / critical) / (1.0 + reference / critical)
