"""Samples of different lengths: packed into rows, or padded to the longest of a micro batch."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from ..cost.job import Job
from ..diagnostics import Diagnostics
from ..errors import ConfigError
from ..workload.workload import Workload
from .schema import RequestFields

_FULLY_SHARDED = 3
_ALONE = "packing changes nothing without the mean length of samples. To fix: give mean_seq_len."
_GRID = 4096
"""Points of the integral over lengths."""


def with_lengths(
    job: Job, request: RequestFields, of_length: Callable[[int], Workload], found: Diagnostics
) -> Job:
    """The job with the rows that its samples make, as `mean_seq_len`, `packing` and `padding_share` say.

    Padded rows are priced at their mean length; memory is that of rows of the whole `seq_len`.

    Raises:
        ConfigError: If the model has no length, or what is said contradicts itself.
    """
    stated = _stated(request)
    if not stated:
        return job
    workload, name = job.workload, next(iter(stated))
    if workload.largest is not None:  # of a job that was resolved before
        workload = replace(workload, graph=workload.largest, largest=None)
        job = replace(job, workload=workload)
    longest = workload.graph.seq_len
    if longest is None or workload.sample_unit != "sequence":
        raise ConfigError(
            f"{name}={stated[name]} does not apply to {workload.name}. The rule: it is for models whose "
            "samples are sequences of tokens. To fix: leave it out."
        )
    if job.stack.unpadded_sequences:
        raise ConfigError(
            f"{name}={stated[name]} does not apply where kernels skip padding, as on {job.stack.profile}. "
            "The rule: the mean share of padding that they skip is known there. To fix: leave it out, or "
            "unpadded_sequences=false."
        )
    mean = request.mean_seq_len
    if mean is not None and mean > longest:
        raise ConfigError(
            f"mean_seq_len={mean:g} exceeds seq_len={longest}. The rule: the mean of the samples is at most "
            "the longest row. To fix: a larger seq_len."
        )
    if request.packing:
        return _packed(job, request, float(longest), found)
    padding = request.padding_share
    if padding is None:
        if mean is None:
            found.warn("no-effect", _ALONE)
            return job
        row = longest_of(mean, longest, _padded_together(job))
        said = (
            f"Lengths: not packed, padded to the longest of {_padded_together(job):g} samples; lengths taken "
            f"as exponential (all that a mean says) up to {longest}: rows of {row:.0f} tokens."
        )
    else:
        row = longest if mean is None else min(mean / (1.0 - padding), float(longest))
        mean = row * (1.0 - padding) if mean is None else mean
        said = f"Lengths: rows of {row:.0f} tokens, of which {mean:.0f} are real."
    shorter = of_length(max(round(row), 1)) if round(row) < longest else workload
    if shorter.graph.seq_len != max(round(row), 1):
        raise ConfigError(
            f"{name}={stated[name]} is not possible for {workload.name}: its graph is of {longest} tokens. "
            "To fix: leave it out, or a model whose seq_len can be chosen."
        )
    found.assume("mean_seq_len", said)
    return replace(
        job,
        workload=replace(
            shorter,
            assumptions=workload.assumptions,
            units_per_sample=mean if workload.throughput_unit == "tokens/s" else 1.0,
            largest=workload.graph,
            real_share=min(mean / row, 1.0),
        ),
    )


def check_full_rows(request: RequestFields) -> None:
    """Refuse lengths of samples where layouts are searched: they are ranked by rows of the whole length.

    Raises:
        ConfigError: If the request says that samples are shorter.
    """
    for name, value in _stated(request).items():
        raise ConfigError(
            f"{name}={value} does not apply to a search for layouts. The rule: layouts are ranked for rows "
            f"of seq_len tokens. To fix: leave out {name}, or predict with the layout that is found."
        )


def _stated(request: RequestFields) -> dict[str, Any]:
    names = ("mean_seq_len", "packing", "padding_share")
    return {name: getattr(request, name) for name in names if getattr(request, name) is not None}


def _packed(job: Job, request: RequestFields, longest: float, found: Diagnostics) -> Job:
    if request.padding_share:
        raise ConfigError(
            f"padding_share={request.padding_share:g} and packing contradict each other: packed rows have no "
            "padding. To fix: leave out one of them."
        )
    if request.mean_seq_len is None:
        found.warn("no-effect", _ALONE)
        return job
    together = longest / request.mean_seq_len
    found.assume(
        "mean_seq_len",
        f"Lengths: packed, {together:.3g} samples in a row of {longest:g} tokens without padding; attention "
        "over the whole row.",
    )
    return replace(job, workload=replace(job.workload, samples_per_row=together))


def _padded_together(job: Job) -> float:
    """Samples that the longest is taken of: a micro batch, of all ranks where they wait for each other."""
    layout = job.layout
    waits = layout.num_microbatches == 1 or layout.zero_stage >= _FULLY_SHARDED
    return max(layout.micro_batch_size * (layout.dp if waits else 1), 1.0)


def longest_of(mean: float, most: float, samples: float) -> float:
    r"""Expected longest of some samples, cut at `most`: $\int_0^{most} 1 - (1 - e^{-t/s})^{samples} dt$.

    Lengths are exponential, the distribution of largest entropy that has a mean, and cut off at `most`; the
    scale s makes the mean of what is cut $s (1 - e^{-most/s})$ the stated one.

    >>> round(longest_of(100.0, 100_000.0, 1.0)), round(longest_of(100.0, 100_000.0, 2.0))
    (100, 150)
    """
    low, high = mean, mean * 1e6
    if high * -math.expm1(-most / high) <= mean:
        return float(most)
    for _ in range(200):
        scale = math.sqrt(low * high)
        low, high = (scale, high) if scale * -math.expm1(-most / scale) < mean else (low, scale)
    lengths = np.linspace(0.0, min(most, 60.0 * low), _GRID)
    longer = 1.0 - (-np.expm1(-lengths / low)) ** samples
    return float(np.trapezoid(longer, lengths))
