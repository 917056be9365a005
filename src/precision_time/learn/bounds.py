"""The learned answer along the batch: never shorter for more samples, where no run says otherwise.

The cost model grows with the batch, the learned factors need not: in a step that waits for its host they are
all that differs between two batches. Powers of two are the batches that all jobs share: each takes at least
as long as those below it. Any other takes what lies between its neighbors, where the cost model puts it.
"""

from __future__ import annotations

import math
from functools import lru_cache


@lru_cache(maxsize=65_536)
def powers_beside(batch: float) -> tuple[float, ...]:
    """The powers of two below and above a micro batch; none where it is one itself, or below one sample.

    >>> powers_beside(5.0), powers_beside(8.0), powers_beside(0.5)
    ((4.0, 8.0), (), ())
    """
    if batch <= 1.0 or math.log2(batch).is_integer():
        return ()
    below = 2.0 ** math.floor(math.log2(batch))
    return below, 2.0 * below


def between(analytical_s: float, below: tuple[float, float], above: tuple[float, float]) -> float:
    """Step time of a batch between two others: linear in the analytical time, so that it grows as that does.

    What the trees make of the batch itself is not asked: where no such job was measured, the difference
    to its neighbors is their noise.

    Args:
        analytical_s: Of the batch.
        below: Step time and analytical time of the power of two below.
        above: Of the one above.

    >>> between(3.0, (10.0, 2.0), (14.0, 4.0))
    12.0
    """
    (low_s, low), (high_s, high) = below, above
    share = (analytical_s - low) / (high - low) if high > low else 0.0
    return low_s + (max(high_s, low_s) - low_s) * min(max(share, 0.0), 1.0)
