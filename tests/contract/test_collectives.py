"""What every collective algorithm must satisfy, whoever wrote it."""

from dataclasses import replace
from functools import wraps

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from precision_time.cost.collectives import LinkParams, min_time_s, sub_torus
from precision_time.cost.collectives.all_to_all import pairwise_all_to_all
from precision_time.cost.collectives.nvls import nvls_all_reduce
from precision_time.cost.collectives.ring import ring_all_gather, ring_all_reduce, ring_broadcast
from precision_time.cost.collectives.torus import (
    torus_all_gather,
    torus_all_reduce,
    torus_all_to_all,
    torus_broadcast,
)
from precision_time.cost.collectives.tree import tree_all_reduce
from precision_time.errors import ConfigError


def on_torus(algorithm):
    """The algorithm on the 8 x 16 x 16 slices that the group fills from the first dimension on."""

    @wraps(algorithm)
    def run(num_devices, num_nodes, intra, inter):
        per_node = np.maximum(np.asarray(num_devices, dtype=float) / num_nodes, 1.0)
        return algorithm(
            num_devices, num_nodes, replace(intra, torus=sub_torus(per_node, 1, (8, 16, 16))), inter
        )

    return run


on_torus_all_reduce = on_torus(torus_all_reduce)
on_torus_all_gather = on_torus(torus_all_gather)
on_torus_broadcast = on_torus(torus_broadcast)
on_torus_all_to_all = on_torus(torus_all_to_all)
ALGORITHMS = [
    ring_all_reduce,
    ring_all_gather,
    ring_broadcast,
    tree_all_reduce,
    nvls_all_reduce,
    pairwise_all_to_all,
    on_torus_all_reduce,
    on_torus_all_gather,
    on_torus_broadcast,
    on_torus_all_to_all,
]
# Bytes per direction that some link of some device must carry per byte of message, at least.
LEAST_VOLUME = {
    ring_all_reduce: lambda p: 2 * (p - 1) / p,
    ring_all_gather: lambda p: (p - 1) / p,
    ring_broadcast: lambda p: 1.0,
    tree_all_reduce: lambda p: 2 * (p - 1) / p,
    nvls_all_reduce: lambda p: 1.0,
    pairwise_all_to_all: lambda p: (p - 1) / p,
    on_torus_all_reduce: lambda p: 2 * (p - 1) / p,
    on_torus_all_gather: lambda p: (p - 1) / p,
    on_torus_broadcast: lambda p: 1.0,
    on_torus_all_to_all: lambda p: (p - 1) / p,
}
INTRA = LinkParams(bandwidth_bytes_per_s=300e9, latency_s=0.6e-6, in_network_reduction=1.0)
INTER = LinkParams(bandwidth_bytes_per_s=25e9, latency_s=2.7e-6, efficiency=0.9)
every_algorithm = pytest.mark.parametrize("algorithm", ALGORITHMS, ids=lambda a: a.__name__)
shapes = st.sampled_from([(2, 1), (3, 1), (8, 1), (16, 2), (15, 2), (64, 8), (4, 4), (1024, 128)])
sizes = st.floats(1.0, 2.0**34)


@every_algorithm
def test_one_device_communicates_nothing(algorithm):
    assert min_time_s(algorithm(1, 1, INTRA, INTER), 2.0**30) == 0.0


@every_algorithm
def test_no_bytes_cost_nothing(algorithm):
    assert min_time_s(algorithm(16, 2, INTRA, INTER), 0.0) == 0.0


@every_algorithm
@settings(max_examples=40)
@given(shape=shapes, size=sizes, more=st.floats(1.0, 100.0))
def test_a_larger_message_is_never_faster_nor_dearer_per_byte(algorithm, shape, size, more):
    lines = algorithm(*shape, INTRA, INTER)
    small, large = min_time_s(lines, size), min_time_s(lines, size * more)
    assert 0.0 < small <= large * (1 + 1e-12)
    assert large <= small * more * (1 + 1e-9)


@every_algorithm
@settings(max_examples=40)
@given(
    shape=shapes,
    size=sizes,
    level=st.sampled_from(["intra", "inter"]),
    field=st.sampled_from(["bandwidth_bytes_per_s", "latency_s", "efficiency"]),
    factor=st.floats(1.0, 50.0),
)
def test_a_better_link_is_never_slower(algorithm, shape, size, level, field, factor):
    links = {"intra": INTRA, "inter": INTER}
    value = getattr(links[level], field)
    improved = value / factor if field == "latency_s" else value * factor
    better = links | {level: replace(links[level], **{field: improved})}
    assert min_time_s(algorithm(*shape, **better), size) <= min_time_s(algorithm(*shape, **links), size) * (
        1 + 1e-12
    )


@every_algorithm
@settings(max_examples=40)
@given(
    size=sizes,
    ratio=st.floats(1.0, 16.0),
    more=st.floats(1.0, 4.0),
    pod=st.sampled_from([1.0, 2.0, 4.0, 8.0]),
)
def test_thinner_pods_are_never_faster_and_full_bandwidth_changes_nothing(algorithm, size, ratio, more, pod):
    def seconds(oversubscription):
        inter = replace(INTER, oversubscription=oversubscription, pod_nodes=pod)
        return min_time_s(algorithm(64, 8, INTRA, inter), size)

    assert seconds(1.0) == min_time_s(algorithm(64, 8, INTRA, INTER), size)
    assert seconds(1.0) <= seconds(ratio) <= seconds(ratio * more)


@every_algorithm
def test_thinned_pods_cost_at_most_the_oversubscription(algorithm):
    thinned = replace(INTER, oversubscription=4.0, pod_nodes=1.0)
    plain = min_time_s(algorithm(64, 8, INTRA, INTER), 1e9)
    assert plain < min_time_s(algorithm(64, 8, INTRA, thinned), 1e9) <= 4.0 * plain


@every_algorithm
@pytest.mark.parametrize("shape", [(2, 1), (8, 1), (64, 8)])
def test_twice_the_bandwidth_halves_the_cost_per_byte(algorithm, shape):
    fast = [replace(link, bandwidth_bytes_per_s=2 * link.bandwidth_bytes_per_s) for link in (INTRA, INTER)]
    for slow_line, fast_line in zip(algorithm(*shape, INTRA, INTER), algorithm(*shape, *fast), strict=True):
        assert fast_line.s_per_byte == pytest.approx(slow_line.s_per_byte / 2)
        assert fast_line.startup_s == pytest.approx(slow_line.startup_s)


@every_algorithm
@pytest.mark.parametrize("num_devices", [2, 3, 8])
def test_no_line_beats_what_must_pass_a_link(algorithm, num_devices):
    least = LEAST_VOLUME[algorithm](num_devices) / INTRA.bandwidth_bytes_per_s
    assert all(line.s_per_byte >= least for line in algorithm(num_devices, 1, INTRA, INTER))


@every_algorithm
def test_arrays_give_what_numbers_give(algorithm):
    devices, nodes = np.array([1.0, 8.0, 16.0, 64.0]), np.array([1.0, 1.0, 2.0, 8.0])
    size = np.array([[1e3], [1e6], [1e9]])
    together = min_time_s(algorithm(devices, nodes, INTRA, INTER), size)
    apart = [
        [float(min_time_s(algorithm(p, m, INTRA, INTER), n)) for p, m in zip(devices, nodes, strict=True)]
        for n in size[:, 0]
    ]
    np.testing.assert_allclose(together, apart, rtol=1e-12)


@every_algorithm
def test_missing_participants_and_negative_sizes_are_refused(algorithm):
    with pytest.raises(ConfigError, match="at least 1"):
        algorithm(0, 1, INTRA, INTER)
    with pytest.raises(ConfigError, match="negative"):
        min_time_s(algorithm(8, 1, INTRA, INTER), -1.0)
