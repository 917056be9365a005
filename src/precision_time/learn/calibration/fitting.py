"""The prior of `process.py` from residuals of the corpus: the deviations and rates of greatest likelihood.

Each block is some configurations of one source, predicted by a predictor that has not seen their models,
or not their source: what a user's own points are to the shipped predictor. A block is a multivariate Student
t, so that a few odd sources do not decide; parameters enter linearly.

Reference: Shah, Wilson, Ghahramani, Student-t processes as alternatives to Gaussian processes, AISTATS 2014.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...errors import required_module
from ...records import dataclass
from .places import DIFFERENCES, KINDS, Places
from .process import PROCESSES, USUAL_WIDTH, Process

Floats = NDArray[np.float64]
Ints = NDArray[np.intp]

_FREEDOM = 4.0
"""Degrees of freedom of Student's t."""
_OF_A_BLOCK, _BLOCKS_OF_A_SOURCE, _LEAST_OF_A_BLOCK = 40, 4, 4
_SPREAD = 1.5
"""Of the logarithm of a deviation or rate about its start: what no block says anything of stays there."""
_LEAST_NOISE = 1e-8
"""Variance: two steps that differ in nothing leave the covariance of a block without an inverse."""
_START_SD, _START_RATE, _START_NOISE = 0.15, 0.3, 0.04
_LEAST_NOISE = 0.07
"""Repeats of one configuration differ by 3.6 to 5 %; more of it is what no column shows. The likelihood of
whole sources would have 0.04, but three points then leave 81 % of the runs within intervals of 90 %."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Block:
    """Points of one source."""

    places: Places
    log_ratios: Floats
    """log(measured / predicted), shape (n,)."""


def blocks_of(
    places: Places, log_ratios: Floats, sources: Sequence[str], groups: NDArray[Any], *, seed: int = 0
) -> tuple[Block, ...]:
    """Some configurations of every source, medians of their repeats; large sources give several blocks.

    Args:
        places: Of the rows.
        log_ratios: log(measured / predicted) out of fold, shape (n,).
        sources: Of each row.
        groups: Configuration of each row.
        seed: Of the draw.
    """
    draw = np.random.default_rng(seed)
    rows: dict[str, dict[Any, list[int]]] = defaultdict(lambda: defaultdict(list))
    for row, (source, group) in enumerate(zip(sources, groups.tolist(), strict=True)):
        rows[source][group].append(row)
    found: list[Block] = []
    for source in sorted(rows):
        configurations = [np.array(same) for same in rows[source].values()]
        for part in _drawn(len(configurations), draw):
            chosen = [configurations[index] for index in part]
            medians = np.array([np.median(log_ratios[same]) for same in chosen])
            found.append(
                Block(places=places.take(np.array([same[0] for same in chosen])), log_ratios=medians)
            )
    return tuple(found)


def _drawn(count: int, draw: np.random.Generator) -> Iterator[Ints]:
    """Indices of each block of a source, disjoint."""
    shuffled = draw.permutation(count).astype(np.intp)
    for number in range(_BLOCKS_OF_A_SOURCE):
        part = shuffled[number * _OF_A_BLOCK : (number + 1) * _OF_A_BLOCK]
        if len(part) >= _LEAST_OF_A_BLOCK:
            yield part


def fit_process(blocks: Sequence[Block], card: Mapping[str, Any] | None = None) -> Process:
    """Deviations, rates and noise of greatest likelihood. A few seconds.

    Args:
        blocks: As `blocks_of` gives them.
        card: What to note with the figures.

    Raises:
        MissingExtraError: If scipy is not installed.
    """
    minimize = required_module(
        "scipy.optimize", package="scipy", extra="train", purpose="fit how errors of jobs are alike"
    ).minimize
    ready = [_Ready.of(block) for block in blocks]
    start = _pack(
        np.full(len(PROCESSES), _START_SD),
        np.full((len(PROCESSES), len(DIFFERENCES)), _START_RATE),
        0.5,
        _START_NOISE,
    )
    found = minimize(_loss, start, args=(ready, start), jac=True, method="L-BFGS-B", options={"maxiter": 60})
    sd, rates, power, noise = _unpack(found.x)
    noted = {**(card or {}), "blocks": len(blocks), "points": sum(len(item.places) for item in blocks)}
    return Process(
        sd=sd.round(4),
        rates=rates.round(4),
        power=round(power, 3),
        noise_sd=round(max(noise, _LEAST_NOISE), 4),
        card=noted,
    )


@dataclass(frozen=True, slots=True)
class _Ready:
    """A block with all that does not change while fitting."""

    log_ratios: Floats
    differences: Floats
    outer: Floats
    """Products of shares by process, shape (len(PROCESSES), n, n)."""
    log_widths: Floats
    """Sums of the logarithms of two widths over the usual one, shape (n, n)."""

    @classmethod
    def of(cls, block: Block) -> _Ready:
        shares = np.concatenate([block.places.shares, np.ones((len(block.places), 1))], axis=1)
        log_width = np.log(block.places.width / USUAL_WIDTH)
        return cls(
            block.log_ratios,
            block.places.differences(block.places),
            np.einsum("ip,jp->pij", shares, shares),
            log_width[:, None] + log_width[None, :],
        )


_FREE_RATES = np.array(
    [[process == "residual" or kind in KINDS for kind in DIFFERENCES] for process in PROCESSES]
)
"""A parameter is the same at every batch and number of devices."""


def _pack(sd: Floats, rates: Floats, power: float, noise: float) -> Floats:
    return np.concatenate([np.log(sd), np.log(rates[_FREE_RATES]), [power, np.log(noise)]])


def _unpack(point: Floats) -> tuple[Floats, Floats, float, float]:
    rates = np.zeros(_FREE_RATES.shape)
    rates[_FREE_RATES] = np.exp(point[len(PROCESSES) : -2])
    return np.exp(point[: len(PROCESSES)]), rates, float(point[-2]), float(np.exp(point[-1]))


def _loss(point: Floats, blocks: Sequence[_Ready], start: Floats) -> tuple[float, Floats]:
    """Negative log likelihood of all blocks with a weak prior about the start, and its gradient."""
    sd, rates, power, noise = _unpack(point)
    away = (point - start) / _SPREAD
    total, gradient = 0.5 * float(away @ away), away / _SPREAD
    for block in blocks:
        count = len(block.log_ratios)
        lost = np.tensordot(rates, block.differences, axes=1)
        parts = np.square(sd)[:, None, None] * block.outer * np.exp(power * block.log_widths - lost)
        covariance = parts.sum(axis=0) + max(noise**2, _LEAST_NOISE) * np.eye(count)
        inverse = np.linalg.inv(covariance)
        solved = inverse @ block.log_ratios
        squared = float(block.log_ratios @ solved)
        # One vote per block and not per point: points of a source are alike in more ways than are modelled.
        vote = 1.0 / np.sqrt(count)
        total += vote * (
            0.5 * float(np.linalg.slogdet(covariance)[1])
            + 0.5 * (_FREEDOM + count) * float(np.log1p(squared / _FREEDOM))
        )
        pull = (_FREEDOM + count) / (_FREEDOM + squared)
        slope = 0.5 * vote * (inverse - pull * np.outer(solved, solved))
        by_part = parts * slope
        gradient[: len(PROCESSES)] += 2.0 * by_part.sum(axis=(1, 2))
        by_rate = -np.einsum("pij,dij->pd", by_part, block.differences) * rates
        gradient[len(PROCESSES) : -2] += by_rate[_FREE_RATES]
        gradient[-2] += float((by_part.sum(axis=0) * block.log_widths).sum())
        gradient[-1] += 2.0 * noise**2 * float(np.trace(slope))
    return total, gradient
