"""The allowance for the slowest of many devices."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from precision_time.cost.constants import constants
from precision_time.cost.stragglers import expected_maximum, straggler_share
from precision_time.errors import ConfigError


def test_one_device_waits_for_nobody():
    assert straggler_share(1, 1) == 0.0


@given(devices=st.integers(1, 10**6), more=st.integers(1, 10**6))
def test_more_devices_never_wait_less(devices, more):
    assert straggler_share(devices, 1) < straggler_share(devices + more, 1)


@pytest.mark.parametrize(("count", "exact"), [(2, 0.5642), (8, 1.4236), (100, 2.5076), (1000, 3.2414)])
def test_expected_maximum_agrees_with_order_statistics_of_the_normal_distribution(count, exact):
    """Exact values: Harter, Expected values of normal order statistics, Biometrika 48, 1961."""
    assert expected_maximum(count) == pytest.approx(exact, rel=0.05)


def test_expected_maximum_agrees_with_draws():
    draws = np.random.default_rng(0).standard_normal((2000, 512)).max(axis=1)
    assert expected_maximum(512) == pytest.approx(float(draws.mean()), rel=0.02)


def test_the_allowance_has_the_size_that_was_published():
    assert 0.03 < straggler_share(65536, 8192) < 0.15
    assert straggler_share(8, 1) < 0.05


def test_the_spread_lies_within_what_single_sources_say():
    fitted = constants("stragglers")
    slopes = [row["slope"] for row in fitted["fit"]] + [fitted["prior"]["device_spread"]]
    assert max(min(slopes), 0.0) <= fitted["device_spread"] <= max(slopes)


@pytest.mark.parametrize("counts", [(0, 1), (-3, 1), (8, 0)])
def test_counts_below_one_are_refused(counts):
    with pytest.raises(ConfigError, match="To fix"):
        straggler_share(*counts)
