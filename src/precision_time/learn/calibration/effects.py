"""What a cluster may do differently: effects on the logarithm of a step time, and where each applies.

`cluster` applies to every job, the others to jobs on one device, in one stack, of one model, at one
precision, of one model on one device (`pair`). `length` grows with the logarithm of the analytical step time:
what a host loses per step weighs on short ones. `communication` multiplies the part of a step that waits for
other devices.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ...cost.job import Job
from ..table import JobTable

Floats = NDArray[np.float64]

NAMED = ("device", "stack", "model", "precision", "pair")
KINDS = ("cluster", *NAMED, "length", "communication")
_LENGTH_S = 0.1
"""Step time at which `length` is nothing."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """Which effects apply to a job, and how much."""

    device: str
    stack: str
    model: str
    precision: str
    exposed_share: float
    """Share of the analytical step time that waits for communication, 0..1."""
    length: float
    """log(analytical step time / 0.1 s)."""

    def names(self) -> dict[str, str]:
        """Kind of NAMED to the name of the effect, such as "device" to "device A100-SXM4-40GB"."""
        pair = f"{self.model} on {self.device}"
        values = (self.device, self.stack, self.model, self.precision, pair)
        return {kind: f"{kind} {value}" for kind, value in zip(NAMED, values, strict=True)}


def places_of(jobs: Sequence[Job], table: JobTable) -> tuple[Place, ...]:
    """The places of priced jobs."""
    return tuple(
        Place(
            device=job.cluster.device.name,
            stack=job.stack.profile,
            model=job.workload.name,
            precision=job.precision.name,
            exposed_share=float(exposed_s / analytical_s),
            length=float(np.log(analytical_s / _LENGTH_S)),
        )
        for job, exposed_s, analytical_s in zip(jobs, table.exposed_s, table.analytical_s, strict=True)
    )


def effect_names(places: Iterable[Place]) -> tuple[str, ...]:
    """Every effect that some place has, in the order of KINDS."""
    found = [name for place in places for name in place.names().items()]
    named = [name for kind in NAMED for name in dict.fromkeys(n for k, n in found if k == kind)]
    return ("cluster", *named, "length", "communication")


def kind_of(name: str) -> str:
    """The kind of an effect by its name.

    >>> kind_of("device A100-SXM4-40GB")
    'device'
    """
    return name.split(" ", 1)[0]


def design(places: Sequence[Place], names: Sequence[str]) -> Floats:
    """How much each effect but `communication` (which is not linear) applies, shape (n, n_effects)."""
    column = {name: index for index, name in enumerate(names)}
    matrix = np.zeros((len(places), len(names)))
    for row, place in enumerate(places):
        matrix[row, column["cluster"]] = 1.0
        matrix[row, column["length"]] = place.length
        for name in place.names().values():
            if name in column:
                matrix[row, column[name]] = 1.0
    return matrix


def waiting(shares: Floats, log_factor: float) -> tuple[Floats, Floats]:
    """Logarithm of what a communication factor does to steps, and its derivative, shape (n,) each.

    Args:
        shares: Share of each step that waits.
        log_factor: Logarithm of the factor on that share.
    """
    factor = np.exp(log_factor)
    stretched = 1.0 - shares + shares * factor
    return np.log(stretched), shares * factor / stretched
