"""Measured alternatives of one training, as a planner would be offered them.

An alternative is one configuration: devices, precision, batch, layout, software; its repeats count once, by
their medians. Alternatives of one group train the same model on the same input; what else they share is what
the key of the group says.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, fields, replace

import numpy as np

from precision_time.cache import memo
from precision_time.corpus.families import family_key
from precision_time.corpus.measurement import Measurement
from precision_time.corpus.protocols import source_name
from precision_time.cost.roofline import peak_flops_per_s
from precision_time.hardware.catalog import get_device
from precision_time.hardware.device import Device
from precision_time.hardware.prices.offers import usd_per_device_hour
from precision_time.precision.catalog import get_policy
from precision_time.precision.support import on_device
from precision_time_papers.contract import Bools, Floats, Ints

SECONDS_PER_HOUR = 3600.0
_REPORTED = ("params", "gmacs", "macts", "train_mem_gb", "neuron_cores")
"""Sizes that sources report of a run, not what defines the training."""
_SHAPES = ("image_size", "lora_rank")
"""Sizes that define a training whatever the source; others are stated by some sources only."""

_LIMIT = re.compile(r"power_limit_W=(\d+) \(default limit (\d+)\)")

Key = Callable[[Measurement], Hashable]


@dataclass(frozen=True, kw_only=True, slots=True)
class Alternatives:
    """The n alternatives of all groups; arrays have shape (n,)."""

    runs: tuple[Measurement, ...]
    """The first run of each."""
    measured_s: Floats
    """Median step time of the repeats."""
    spread: Floats
    """(largest - smallest) / median of the repeats; where there are none, what is usual."""
    predicted_s: Mapping[str, Floats]
    """Out-of-fold step times by predictor and protocol, medians likewise."""
    devices: Floats
    batch: Floats
    """Samples per step."""
    usd_per_second: Floats
    """Of all devices, on demand; NaN where the type has no price."""
    peak_flops_per_s: Floats
    """Of all devices, by data sheet, at the alternative's precision."""

    def __len__(self) -> int:
        return len(self.runs)

    @property
    def per_sample_s(self) -> Floats:
        """Measured seconds per sample."""
        seconds: Floats = self.measured_s / self.batch
        return seconds

    @property
    def usd_per_sample(self) -> Floats:
        """Measured; NaN without a price."""
        usd: Floats = self.per_sample_s * self.usd_per_second
        return usd


@dataclass(frozen=True, kw_only=True, slots=True)
class Group:
    """Alternatives of one training."""

    places: Ints
    """Among the alternatives, two or more."""
    source: str
    """Where they were measured; several names joined where they differ."""


def training(item: Measurement) -> Hashable:
    """Equal for runs of one training as one source measured it."""
    sizes = {name: value for name, value in item.sizes.items() if name not in _REPORTED}
    body = json.dumps(sizes, sort_keys=True, default=str)
    data = (item.seq_len, item.task, item.dataset)
    return (source_name(item), item.model, body, *data, item.optimizer, item.scope)


def training_anywhere(item: Measurement) -> Hashable:
    """Equal for runs of one training whoever measured it: software, input and what is timed may differ."""
    return (item.model, item.seq_len, item.task, *(str(item.sizes.get(name)) for name in _SHAPES))


def but_precision(item: Measurement) -> Hashable:
    """Equal for runs that differ in nothing but precision."""
    return family_key(item)


def _fixed(item: Measurement) -> tuple[Hashable, ...]:
    return (training(item), item.device, item.system, item.precision, item.precision_variant, item.stack)


def but_devices(item: Measurement) -> Hashable:
    """Equal for runs that differ in the number of devices, with it the replicas and the global batch."""
    layout = None if item.layout is None else replace(item.layout, dp=1)
    return (*_fixed(item), layout)


def but_devices_and_batch(item: Measurement) -> Hashable:
    """Equal for runs of one job on one type of device: what Ernest is fitted to."""
    layout = item.layout
    degrees = None if layout is None else replace(layout, dp=1, micro_batch_size=1, num_microbatches=1)
    return (*_fixed(item), degrees)


def but_devices_and_share(item: Measurement) -> Hashable:
    """Equal for runs that share one global batch over different numbers of devices."""
    return (but_devices_and_batch(item), item.global_batch_size)


def but_batch(item: Measurement) -> Hashable:
    """Equal for runs that differ in the batch and its accumulation."""
    degrees = None if item.layout is None else replace(item.layout, micro_batch_size=1, num_microbatches=1)
    return (*_fixed(item), item.num_devices, item.num_nodes, item.placement, degrees)


def but_layout(item: Measurement) -> Hashable:
    """Equal for runs that differ in how the same global batch is laid out over the same devices."""
    return (*_fixed(item), item.num_devices, item.num_nodes, item.placement, item.global_batch_size)


def power_limited(item: Measurement) -> bool:
    """Whether a limit below the device's own slowed the run down, which no planner would choose."""
    found = _LIMIT.search(item.notes)
    return found is not None and int(found[1]) < int(found[2])


def alternatives(
    rows: Sequence[Measurement], measured_s: Floats, predicted_s: Mapping[str, Floats]
) -> Alternatives:
    """Repeats joined; runs under a power limit are left out.

    Args:
        rows: Runs whose batch is known.
        measured_s: Their step times, shape (n,).
        predicted_s: Out-of-fold step times by name.
    """
    grouped: dict[Hashable, list[int]] = defaultdict(list)
    for place, item in enumerate(rows):
        if item.global_batch_size and not power_limited(item):
            grouped[source_name(item), item.configuration_key, item.system].append(place)
    members = [np.array(found, dtype=np.intp) for found in grouped.values()]
    runs = tuple(rows[found[0]] for found in members)
    spread = np.array([np.ptp(measured_s[found]) / np.median(measured_s[found]) for found in members])
    repeated = np.array([len(found) > 1 for found in members])
    devices = np.array([item.num_devices for item in runs], dtype=np.float64)
    prices = [usd_per_device_hour(item.device) for item in runs]
    usd = np.array([np.nan if price is None else price for price in prices]) / SECONDS_PER_HOUR
    return Alternatives(
        runs=runs,
        measured_s=_medians(measured_s, members),
        spread=np.where(repeated, spread, np.median(spread[repeated]) if repeated.any() else 0.0),
        predicted_s={name: _medians(values, members) for name, values in predicted_s.items()},
        devices=devices,
        batch=np.array([item.global_batch_size for item in runs], dtype=np.float64),
        usd_per_second=devices * usd,
        peak_flops_per_s=devices * np.array([_peak(item.device, item.precision) for item in runs]),
    )


def of_some(found: Alternatives, keep: Bools) -> Alternatives:
    """Some of the alternatives."""
    columns = {
        item.name: getattr(found, item.name)[keep]
        for item in fields(found)
        if item.name not in ("runs", "predicted_s")
    }
    return Alternatives(
        runs=tuple(found.runs[place] for place in np.flatnonzero(keep)),
        predicted_s={name: values[keep] for name, values in found.predicted_s.items()},
        **columns,
    )


def groups_by(found: Alternatives, key: Key, *, several_sources: bool = False) -> tuple[Group, ...]:
    """Groups of two or more alternatives.

    Args:
        found: All alternatives.
        key: What the alternatives of a group share.
        several_sources: Keep only groups that more than one source measured.
    """
    grouped: dict[Hashable, list[int]] = defaultdict(list)
    for place, item in enumerate(found.runs):
        grouped[key(item)].append(place)
    groups = []
    for places in grouped.values():
        sources = sorted({source_name(found.runs[place]) for place in places})
        if len(places) > 1 and (len(sources) > 1 or not several_sources):
            groups.append(Group(places=np.array(places, dtype=np.intp), source=" + ".join(sources)))
    return tuple(groups)


def part_of(group: Group, keep: Callable[[Ints], Bools]) -> Group | None:
    """The group without some alternatives; None where fewer than two are left.

    Args:
        group: The group.
        keep: Whether each alternative of some places stays, shape (k,).
    """
    places = group.places[keep(group.places)]
    return replace(group, places=places) if len(places) > 1 else None


def arch(device: str) -> str:
    """Architecture word of a device of the catalog."""
    return _device(device).arch


@memo(512)
def _device(name: str) -> Device:
    return get_device(name)


@memo(4096)
def _peak(device: str, precision: str) -> float:
    runs = on_device(get_policy(precision), _device(device))
    return peak_flops_per_s(_device(device), runs.matmul)


def _medians(values: Floats, members: Sequence[Ints]) -> Floats:
    return np.array([np.median(values[found]) for found in members])
