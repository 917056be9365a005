"""Collective algorithms: what their lines of start-up and seconds per byte must satisfy.

An algorithm is a function of `(num_devices, num_nodes, intra, inter)` in `cost/collectives/` whose name ends
with the operation. Why these rules: layouts are ranked by these seconds, and a cost that falls with the size
of a message or rises with the bandwidth of a link would rank them wrongly without any other sign.
"""

from __future__ import annotations

import inspect
import pkgutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from importlib import import_module
from typing import Any

import numpy as np

from ..arrays import Number
from ..cost import collectives
from ..cost.collectives import Lines, LinkParams, choose, min_time_s, sub_torus
from ..errors import ConfigError
from ..records import dataclass
from .checks import refusal

Algorithm = Callable[..., Lines]
"""Of num_devices, num_nodes, intra and inter."""

LEAST_VOLUME: dict[str, Callable[[float], float]] = {
    "all_reduce": lambda p: 2 * (p - 1) / p,
    "all_gather": lambda p: (p - 1) / p,
    "broadcast": lambda p: 1.0,
    "all_to_all": lambda p: (p - 1) / p,
}
"""Bytes per direction that a link of some device must carry per byte of message, by operation."""
INTRA = LinkParams(bandwidth_bytes_per_s=300e9, latency_s=0.6e-6, in_network_reduction=1.0)
INTER = LinkParams(bandwidth_bytes_per_s=25e9, latency_s=2.7e-6, efficiency=0.9)
SHAPES = ((2, 1), (3, 1), (8, 1), (16, 2), (15, 2), (64, 8), (4, 4), (1024, 128))
"""Devices and the nodes they are spread over."""
_PARAMETERS = ["num_devices", "num_nodes", "intra", "inter"]
_TORUS = (8, 16, 16)
_EXAMPLES = 100


@dataclass(frozen=True, slots=True)
class CollectiveCase:
    """One algorithm under test."""

    name: str
    lines: Algorithm
    least_volume: Callable[[float], float]
    """Of `LEAST_VOLUME`, or less where a switch reduces."""


def registered_algorithms() -> Iterator[CollectiveCase]:
    """Every algorithm of `cost/collectives/`, those on a torus on slices of 8 x 16 x 16 devices."""
    for module in pkgutil.iter_modules(collectives.__path__):
        if module.name == "choose":
            continue
        home = import_module(f"{collectives.__name__}.{module.name}")
        for name, function in inspect.getmembers(home, inspect.isfunction):
            operation = next((each for each in LEAST_VOLUME if name.endswith(each)), "")
            own = function.__module__ == home.__name__ and not name.startswith("_")
            if own and operation and list(inspect.signature(function).parameters) == _PARAMETERS:
                least = (lambda p: 1.0) if module.name == "nvls" else LEAST_VOLUME[operation]
                lines = on_torus(function) if module.name == "torus" else function
                yield CollectiveCase(name, lines, least)


def on_torus(algorithm: Algorithm) -> Algorithm:
    """The algorithm on slices that the group fills from the first dimension on."""

    def lines(num_devices: Number, num_nodes: Number, intra: LinkParams, inter: LinkParams) -> Lines:
        per_node = np.maximum(np.asarray(num_devices, dtype=float) / num_nodes, 1.0)
        return algorithm(num_devices, num_nodes, replace(intra, torus=sub_torus(per_node, 1, _TORUS)), inter)

    return lines


class CollectiveSuite:
    """Properties of one algorithm; `case` is a `CollectiveCase`."""

    def test_is_chosen_from(self, case: CollectiveCase) -> None:
        """`choose.py` imports it: an algorithm that no operation chooses from has no effect."""
        assert hasattr(choose, case.name), f"cost/collectives/choose.py does not use {case.name}."

    def test_one_device_communicates_nothing(self, case: CollectiveCase) -> None:
        """A group of one has no one to talk to."""
        assert min_time_s(case.lines(1, 1, INTRA, INTER), 2.0**30) == 0.0

    def test_no_bytes_cost_nothing(self, case: CollectiveCase) -> None:
        """An empty message starts no kernel."""
        assert min_time_s(case.lines(16, 2, INTRA, INTER), 0.0) == 0.0

    def test_a_larger_message_is_never_faster_nor_dearer_per_byte(self, case: CollectiveCase) -> None:
        """Buckets and chunks are chosen by this trade: start-up is shared, bytes are not."""
        for draw in _draws():
            lines = case.lines(*SHAPES[draw.integers(len(SHAPES))], INTRA, INTER)
            size, more = _size(draw), draw.uniform(1.0, 100.0)
            small, large = min_time_s(lines, size), min_time_s(lines, size * more)
            assert 0.0 < small <= large * (1 + 1e-12)
            assert large <= small * more * (1 + 1e-9)

    def test_a_better_link_is_never_slower(self, case: CollectiveCase) -> None:
        """More bandwidth, less latency or a higher efficiency, within a node or between nodes."""
        for draw in _draws():
            shape, size = SHAPES[draw.integers(len(SHAPES))], _size(draw)
            links: dict[str, Any] = {"intra": INTRA, "inter": INTER}
            level = draw.choice(["intra", "inter"])
            field = str(draw.choice(["bandwidth_bytes_per_s", "latency_s", "efficiency"]))
            factor = draw.uniform(1.0, 50.0)
            value = getattr(links[level], field)
            improved = value / factor if field == "latency_s" else value * factor
            better = links | {level: replace(links[level], **{field: improved})}
            before, after = (min_time_s(case.lines(*shape, **each), size) for each in (links, better))
            assert after <= before * (1 + 1e-12), f"{level} {field} {value} -> {improved} on {shape}"

    def test_oversubscribed_pods_are_never_faster(self, case: CollectiveCase) -> None:
        """Full bandwidth between pods changes nothing, less costs at most what is missing."""
        plain = min_time_s(case.lines(64, 8, INTRA, INTER), 1e9)
        for pod_nodes in (1.0, 2.0, 4.0, 8.0):
            seconds = [
                min_time_s(
                    case.lines(64, 8, INTRA, replace(INTER, oversubscription=ratio, pod_nodes=pod_nodes)), 1e9
                )
                for ratio in (1.0, 1.5, 4.0, 16.0)
            ]
            assert seconds[0] == plain
            assert seconds == sorted(seconds)
            assert seconds[2] <= 4.0 * plain
            assert pod_nodes > 1.0 or seconds[2] > plain

    def test_twice_the_bandwidth_halves_the_cost_per_byte(self, case: CollectiveCase) -> None:
        """Seconds per byte are bytes over bandwidth and nothing else; start-up has no bandwidth in it."""
        fast = [
            replace(link, bandwidth_bytes_per_s=2 * link.bandwidth_bytes_per_s) for link in (INTRA, INTER)
        ]
        for shape in ((2, 1), (8, 1), (64, 8)):
            for slow, quick in zip(case.lines(*shape, INTRA, INTER), case.lines(*shape, *fast), strict=True):
                np.testing.assert_allclose(quick.s_per_byte, np.asarray(slow.s_per_byte) / 2)
                np.testing.assert_allclose(quick.startup_s, slow.startup_s)

    def test_no_line_beats_what_must_pass_a_link(self, case: CollectiveCase) -> None:
        """A lower bound by counting: catches a factor that was lost in a formula."""
        for num_devices in (2, 3, 8):
            least = case.least_volume(num_devices) / INTRA.bandwidth_bytes_per_s
            assert all(line.s_per_byte >= least for line in case.lines(num_devices, 1, INTRA, INTER))

    def test_arrays_give_what_numbers_give(self, case: CollectiveCase) -> None:
        """A sweep prices many layouts at once: the arrays of all of them go through the same formula."""
        devices, nodes = np.array([1.0, 8.0, 16.0, 64.0]), np.array([1.0, 1.0, 2.0, 8.0])
        size = np.array([[1e3], [1e6], [1e9]])
        together = min_time_s(case.lines(devices, nodes, INTRA, INTER), size)
        one_by_one = [
            [
                float(min_time_s(case.lines(p, m, INTRA, INTER), n))
                for p, m in zip(devices, nodes, strict=True)
            ]
            for n in size[:, 0]
        ]
        np.testing.assert_allclose(together, one_by_one, rtol=1e-12)

    def test_no_participants_and_negative_sizes_are_refused(self, case: CollectiveCase) -> None:
        """A wrong degree must not turn into a time."""
        refusal(ConfigError, lambda: case.lines(0, 1, INTRA, INTER), "at least 1")
        refusal(ConfigError, lambda: min_time_s(case.lines(8, 1, INTRA, INTER), -1.0), "negative")


def _draws() -> Iterator[np.random.Generator]:
    """The same random examples on every run."""
    draw = np.random.default_rng(0)
    for _ in range(_EXAMPLES):
        yield draw


def _size(draw: np.random.Generator) -> float:
    return float(2.0 ** draw.uniform(0.0, 34.0))
