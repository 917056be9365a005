r"""Which configuration to run next: expected improvement, times the chance to meet the deadline.

Formula: $EI = (y^* - \mu) \Phi(z) + \sigma \phi(z)$ with $z = (y^* - \mu) / \sigma$, on log cost, times
$P(\log T \le \log T_{max})$. On logarithms EI is the expected relative saving, to first order.
Source: Alipourfard et al., CherryPick, NSDI 2017, section 3.4.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_LEAST_DEVIATION = 1e-9


def expected_improvement(mean: Floats, deviation: Floats, best: float) -> Floats:
    """Expected amount by which a value falls below the best one, shape (k,).

    Args:
        mean: Posterior means of log cost, shape (k,).
        deviation: Posterior standard deviations.
        best: Smallest log cost so far.
    """
    from scipy.stats import norm

    spread = np.maximum(deviation, _LEAST_DEVIATION)
    z = (best - mean) / spread
    improvement: Floats = (best - mean) * norm.cdf(z) + spread * norm.pdf(z)
    return np.maximum(improvement, 0.0)


def chance_below(mean: Floats, deviation: Floats, limit: float) -> Floats:
    """Probability that a value is at most `limit`, shape (k,)."""
    from scipy.stats import norm

    chance: Floats = norm.cdf((limit - mean) / np.maximum(deviation, _LEAST_DEVIATION))
    return chance
