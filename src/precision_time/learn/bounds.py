"""The learned answer along the batch: never shorter for more samples, with no more trees asked.

The cost model grows with the batch, the learned factors need not: in a step that waits for its host they are
all that differs between two batches. Powers of two are the batches that all jobs share: each takes at least
as long as those below it. Any other takes what lies between its neighbors, where the cost model puts it.
"""

from __future__ import annotations

import math

from ..arrays import Floats


def powers_around(batch: float) -> tuple[float, ...]:
    """Powers of two that a micro batch lies among, largest first; none where it is one itself.

    >>> powers_around(5.0), powers_around(8.0), powers_around(0.5)
    ((8.0, 4.0, 2.0, 1.0), (), ())
    """
    if batch <= 1.0 or math.log2(batch).is_integer():
        return ()
    return tuple(2.0**power for power in range(math.ceil(math.log2(batch)), -1, -1))


def between(analytical_s: float, power_s: Floats, power_analytical_s: Floats) -> float:
    """Step time of a batch among powers of two: linear in the analytical time, so it grows as that does.

    What the trees make of the batch itself is not asked: where no such job was measured, the difference
    to its neighbors is their noise.

    Args:
        analytical_s: Of the batch.
        power_s: What the trees make of `powers_around` it, the power above first.
        power_analytical_s: Their analytical times.

    >>> import numpy as np
    >>> between(3.0, np.array([14.0, 9.0, 10.0]), np.array([4.0, 2.0, 1.0]))
    12.0
    """
    low_s = float(power_s[1:].max())
    high_s, low, high = (
        max(float(power_s[0]), low_s),
        float(power_analytical_s[1]),
        float(power_analytical_s[0]),
    )
    share = (analytical_s - low) / (high - low) if high > low else 0.0
    return low_s + (high_s - low_s) * min(max(float(share), 0.0), 1.0)
