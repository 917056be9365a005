r"""How much longer a synchronous step takes because the slowest of many devices sets its pace.

Devices of one type differ: clocks and voltages by chip, temperature by place (Sinha et al., Not all GPUs are
created equal, SC 2022), and hosts and networks jitter. A step that waits for all of them takes the
expected maximum. Blom's approximation of that maximum of N normal variables is
$z(N) = \Phi^{-1}\!\left(\frac{N-0.375}{N+0.25}\right)$ (Statistical Estimates and Transformed Beta-Variables,
1958), within 2 % from 1 to a million; it grows like $\sqrt{2\ln N}$.
"""

from __future__ import annotations

from statistics import NormalDist

from ..errors import ConfigError
from .constants import constants

_NORMAL = NormalDist()


def straggler_share(num_devices: int, num_nodes: int) -> float:
    r"""Relative lengthening of a synchronous step by its slowest participant.

    $s = \sigma\,z(N)$ for N devices; 0 for one device. The spread $\sigma$ is that of the devices with
    their hosts and adapters: published series do not separate devices from nodes, so that N counts devices,
    but never fewer than nodes.

    Returns:
        Share of the step, 0.05 for 5 %; it never falls with either count.

    Raises:
        ConfigError: A count below 1.

    Assumes: step times of devices are independent and normal, with one spread for every job; no failed
        or throttled device, which is a matter of goodput.
    Accuracy: `cost/data/stragglers.toml`, table `fit`: slopes of single sources, mixed with what the
        network model misses.
    """
    waiting = max(expected_maximum(num_devices), expected_maximum(num_nodes))
    return float(constants("stragglers")["device_spread"]) * waiting


def expected_maximum(count: int) -> float:
    """Expected maximum of that many standard normal variables.

    Raises:
        ConfigError: A count below 1.
    """
    if count < 1:
        raise ConfigError(f"count={count} participants cannot wait for each other. To fix: give 1 or more.")
    return _NORMAL.inv_cdf((count - 0.375) / (count + 0.25))
