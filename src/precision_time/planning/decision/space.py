"""What competes: devices x hosts that clouds rent x numbers of devices x whatever else has several values.

Several hosts are taken together only where the catalog knows the network between them, and they are full
ones, or the largest that a cloud has of a device: smaller ones come without the network that training needs
(EFA of AWS: on full hosts alone). On request others are too, with the network of a plain virtual machine.
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace
from typing import Any

from ...cost.constants import constants
from ...errors import ConfigError, PrecisionTimeError, UnknownNameError
from ...hardware.catalog import Custom, NodeType, get_node_type
from ...hardware.prices.offer import Market, Offer
from ...hardware.prices.offers import newest_lists, offers
from ...io import packaged_toml
from ...parallel.space import powers_of_two
from ...precision.support import natural_precision
from ...records import dataclass
from ...request.batch import tokens_per_sample
from ...request.request import Request
from ...request.schema import GLOBAL_BATCHES
from ...workload.workload import Workload

_NEAR_SHARE = 0.05
"""Of an assumed batch, by which it may move so that the devices share it evenly."""
_FULL_HOST = 8
OWN = "own"
"""In the place of a cloud: devices of the caller's own."""
UNPRICED = -1
"""In the place of an offer's number: nobody in the list rents that device."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Spot:
    """A kind of host, and how many of it: what the same answers of the sweep are about."""

    device: str
    devices: int
    """Of a host."""
    instances: int
    gpus: int
    offers: tuple[int, ...]
    """Who rents that, by number; UNPRICED where there is none."""
    fields: Mapping[str, Any]
    """Of its request; lists where several values compete."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Space:
    """All candidates."""

    offers: tuple[Offer, ...]
    markets: tuple[Market, ...]
    spots: tuple[Spot, ...]
    unpriced: tuple[str, ...]
    """Devices without a price in these markets: they compete in time alone."""
    notes: tuple[str, ...] = ()
    own: Custom = field(default_factory=Custom)
    """Hardware of the user's own."""

    @property
    def jobs(self) -> int:
        """How many are to be timed: every combination of the values of each spot."""
        return sum(combinations(spot.fields) for spot in self.spots)


@dataclass(frozen=True, kw_only=True, slots=True)
class Wanted:
    """What a caller says of the candidates."""

    devices: tuple[str, ...]
    max_gpus: int
    gpus: tuple[int, ...] = ()
    """Numbers of devices; empty: powers of two of whole hosts up to the most."""
    clouds: tuple[str, ...] = ()
    regions: tuple[str, ...] = ()
    markets: tuple[Market, ...] = (Market.ON_DEMAND,)
    prices: tuple[Offer, ...] | None = None
    """Offers of the user's own; None for those that ship."""
    any_network: bool = False
    """Also several hosts between which the network is not known."""
    own: Custom = field(default_factory=Custom)
    """Hardware of the user's own, whose names come before those of the catalog."""


def own_hosts(own: Custom, devices: Sequence[str] | None, max_gpus: int | None) -> tuple[Offer, ...]:
    """Hosts of a caller's own devices, as offers that cost what they draw (`Outcomes`), not rent.

    Raises:
        ConfigError: If no devices are named: which ones somebody has is not guessed.
    """
    if not devices:
        raise ConfigError("own=true without devices. To fix: name yours, as in --devices RTX4090.")
    found = []
    for name in devices:
        device = own.device(name)
        usual = max(own.usual_node_type(device).devices, 1)
        most = min(usual, max_gpus or usual)
        found += [
            Offer(
                cloud=OWN,
                instance_type=f"host of {size}",
                region="at home",
                device=device.name,
                devices_per_instance=size,
                usd_per_hour=0.0,
                date=datetime.date.today().isoformat(),
                source="yours",
            )
            for size in sorted({*powers_of_two(most), most})
        ]
    return tuple(found)


def combinations(fields: Mapping[str, Any]) -> int:
    """Of the values of fields that have several in a list."""
    return math.prod(len(value) for value in fields.values() if isinstance(value, list))


def defaults() -> Mapping[str, Any]:
    """What is tried where the request does not say."""
    return packaged_toml(__package__, "data/candidates.toml")


def wanted_of(
    *,
    devices: Sequence[str] | None = None,
    gpus: Sequence[int] | None = None,
    max_gpus: int | None = None,
    clouds: Sequence[str] | None = None,
    regions: Sequence[str] | None = None,
    markets: Sequence[str] | None = None,
    prices: Sequence[Offer] | None = None,
    any_network: bool = False,
    own: Custom | None = None,
) -> tuple[Wanted, tuple[str, ...]]:
    """The candidates that a caller names, checked, and what had to be assumed of the names.

    Raises:
        UnknownNameError: A device, cloud, region or market that no list holds.
        ConfigError: Numbers of devices that are none.
    """
    usual = defaults()["devices"]
    own = own or Custom()
    named = [own.device(name).name for name in devices or usual["names"]]
    notes = [
        f"{given} read as {found}."
        for given, found in zip(devices or (), named, strict=False)
        if given.lower() != found.lower()
    ]
    counts = tuple(sorted({_count("gpus", each) for each in gpus or ()}))
    most = _count("max_gpus", max_gpus) if max_gpus is not None else max(counts, default=usual["max_gpus"])
    if counts and max_gpus is not None and min(counts) > most:
        raise ConfigError(
            f"gpus={counts[0]} is above max_gpus={most}, so that nothing is left. To fix: give one of them."
        )
    chosen = tuple(dict.fromkeys(named))
    return Wanted(
        devices=chosen,
        max_gpus=most,
        gpus=tuple(count for count in counts if count <= most),
        clouds=tuple(clouds or ()),
        regions=tuple(regions or ()),
        prices=None if prices is None else tuple(prices),
        markets=tuple(dict.fromkeys(map(_market, markets or (Market.ON_DEMAND,)))),
        any_network=any_network,
        own=own,
    ), tuple(notes)


def _count(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ConfigError(f"{name}={value!r} must be a whole number of 1 or more. To fix: such as {name}=8.")
    return value


def _market(given: str) -> Market:
    word = str(given).strip().lower().replace("_", "-").replace(" ", "-")
    try:
        return Market(word)
    except ValueError:
        known = [market.value for market in Market]
        raise UnknownNameError(
            kind="market", name=given, known=known, hint=f"One of {', '.join(known)}."
        ) from None


def space_of(
    wanted: Wanted, axes: Mapping[str, Sequence[Any]], workload: Workload, *, fed: bool = True
) -> Space:
    """All candidates of a request.

    Hosts that differ in nothing that a step depends on are timed once: those with the same links, and, of one
    host alone, whatever its network.

    Args:
        wanted: Devices, numbers and offers.
        axes: Values of the other fields of the request; several of a field compete.
        workload: Of the model, whose batch is assumed where none is given.
        fed: Samples are prepared by the cores of the hosts, so that these count.
    """
    found = _offers_of(wanted)
    batch, notes = _predicted_batch(axes, wanted, workload) or _batch(axes, workload)
    merged: dict[Any, Spot] = {}
    unpriced = []
    for device in wanted.devices:
        for host in _hosts(device, found, wanted):
            unpriced += [device] if host.alone == (UNPRICED,) else []
            for instances, gpus in _counts(host, wanted):
                own = host.alone if instances == 1 else host.together
                links = _links(host, instances, gpus, wanted.own, fed=fed)
                key = (device, host.devices, instances, gpus, links)
                if key in merged:
                    merged[key] = replace(merged[key], offers=(*merged[key].offers, *own))
                elif own:
                    merged[key] = Spot(
                        device=device,
                        devices=host.devices,
                        instances=instances,
                        gpus=gpus,
                        offers=own,
                        fields=_fields(host, instances, gpus, axes, batch, wanted.own),
                    )
    left_out = [each for each in wanted.devices if each not in {spot.device for spot in merged.values()}]
    if left_out:
        markets = " or ".join(market.value for market in wanted.markets)
        notes.append(f"Not rented where and how it is asked ({markets}): {', '.join(left_out)}.")
    largest = _largest(found)
    unknown = {
        offer.cloud
        for offer in found
        if wanted.max_gpus > offer.devices_per_instance == largest[offer.cloud, offer.device]
        and _node_type_of(offer, wanted.own) is None
    }
    if unknown:
        network, clouds = defaults()["network"], ", ".join(sorted(unknown))
        notes.append(
            f"The network between hosts of {clouds} is not known: {network['assumed']} assumed "
            f"({network['source']})."
            if wanted.any_network
            else f"The network between hosts of {clouds} is not in the catalog: single hosts of theirs alone "
            "(--any-network joins them)."
        )
    return Space(
        offers=found,
        markets=wanted.markets,
        spots=tuple(merged.values()),
        unpriced=tuple(unpriced),
        notes=tuple(notes),
        own=wanted.own,
    )


def _largest(found: Sequence[Offer]) -> dict[tuple[str, str], int]:
    """Devices of the largest host of each cloud and device."""
    largest: dict[tuple[str, str], int] = {}
    for offer in found:
        key = (offer.cloud, offer.device)
        largest[key] = max(largest.get(key, 0), offer.devices_per_instance)
    return largest


@dataclass(frozen=True, kw_only=True, slots=True)
class _Host:
    """A kind of host, and who rents it."""

    device: str
    node_type: str
    """Empty: the usual host of the device."""
    devices: int
    alone: tuple[int, ...]
    """Offers of one such host, by number; UNPRICED where there is none."""
    together: tuple[int, ...]
    """Those of which several can be joined."""


def _links(host: _Host, instances: int, gpus: int, own: Custom, *, fed: bool) -> tuple[Any, ...]:
    """What of a host a step depends on: its links, as far as they are used, and the cores that feed it."""
    if host.node_type:
        node = own.find_node_type(host.node_type) or get_node_type(host.node_type)
    else:
        node = own.usual_node_type(own.device(host.device))
    table = constants("input")["cores"]
    inside = node.intra_node if gpus > instances else ""
    between = (bool(host.node_type), node.inter_node, node.fabric) if instances > 1 else ()
    cores = table.get(node.name, table["per_device"] * host.devices) if fed else 0
    return inside, between, cores, node.domain


def _node_type_of(offer: Offer, own: Custom) -> NodeType | None:
    """The host of an offer, which knows its network: of the user's own device, as its file says."""
    device = own.find_device(offer.device)
    node = None if device is None else own.default_for(device)
    return node if node is not None and node.devices == offer.devices_per_instance else offer.node_type


def _offers_of(wanted: Wanted) -> tuple[Offer, ...]:
    """The offers of the devices that have a price in one of the markets, of the newest lists of each."""
    return newest_lists(
        offer
        for offer in offers(
            clouds=wanted.clouds or None, regions=wanted.regions or None, prices=wanted.prices
        )
        if offer.device in wanted.devices
        and any(offer.price(market) is not None for market in wanted.markets)
    )


def _hosts(device: str, found: Sequence[Offer], wanted: Wanted) -> Iterator[_Host]:
    """The kinds of hosts of a device: of one node type, or of one size where it is unknown."""
    usual = wanted.own.usual_node_type(wanted.own.device(device))
    own = [number for number, offer in enumerate(found) if offer.device == device]
    if not own:
        if all(offer.device != device for offer in offers(prices=wanted.prices)):  # else rented elsewhere
            none, devices = (UNPRICED,), max(usual.devices, 1)
            yield _Host(device=device, node_type="", devices=devices, alone=none, together=none)
        return
    largest = _largest(found)
    kinds: dict[tuple[str, int], list[int]] = {}
    for number in own:
        node = _node_type_of(found[number], wanted.own)
        kind = (node.name if node else "", found[number].devices_per_instance)
        kinds.setdefault(kind, []).append(number)
    for (node_type, devices), numbers in kinds.items():
        together = (
            number
            for number in numbers
            if wanted.any_network
            or (node_type and (devices >= _FULL_HOST or largest[found[number].cloud, device] == devices))
        )
        yield _Host(
            device=device,
            node_type=node_type,
            devices=devices,
            alone=tuple(numbers),
            together=tuple(together),
        )


def _counts(host: _Host, wanted: Wanted) -> Iterator[tuple[int, int]]:
    """Hosts and devices: of the numbers asked, or powers of two of whole hosts and the most."""
    if wanted.gpus:
        yield from ((math.ceil(gpus / host.devices), gpus) for gpus in wanted.gpus)
        return
    if host.devices > wanted.max_gpus:
        yield 1, wanted.max_gpus
        return
    most = wanted.max_gpus // host.devices
    for instances in sorted({*powers_of_two(most), most}):
        yield instances, instances * host.devices


def _fields(
    host: _Host,
    instances: int,
    gpus: int,
    axes: Mapping[str, Sequence[Any]],
    batch: int | None,
    own: Custom,
) -> dict[str, Any]:
    # A list holds values that compete: a value that is one itself (inputs, anchors) is a tuple.
    found: dict[str, Any] = {
        name: list(values) if len(values) > 1 else tuple(value) if isinstance(value, list) else value
        for name, values in axes.items()
        for value in values[:1]
    }
    if not axes.get("precision"):
        found["precision"] = natural_precision(own.device(host.device))
    found |= {"device": host.device, "gpus": gpus, "nodes": instances}
    if host.node_type:
        found["node_type"] = host.node_type
    elif instances > 1 and host.alone != (UNPRICED,):
        found["inter_node"] = defaults()["network"]["assumed"]
    if batch is not None:
        found["global_batch_size"] = near_batch(batch, gpus)
    return found


def near_batch(batch: int, gpus: int) -> int:
    """An assumed batch, or one close to it that the devices share evenly.

    >>> near_batch(1024, 24), near_batch(256, 48)
    (1032, 256)
    """
    near = max(round(batch / gpus), 1) * gpus
    return near if abs(near - batch) <= _NEAR_SHARE * batch else batch


def _predicted_batch(
    axes: Mapping[str, Sequence[Any]], wanted: Wanted, workload: Workload
) -> tuple[int | None, list[str]] | None:
    """The batch that `predict` takes where one device and one number compete; else None."""
    if len(wanted.devices) != 1 or len(wanted.gpus) != 1 or wanted.own.devices:
        return None
    if any(axes.get(name) for name in (*GLOBAL_BATCHES, "batch_size")):
        return None
    asked = {name: values[0] for name, values in axes.items()}
    try:
        job = Request.of({**asked, "device": wanted.devices[0], "gpus": wanted.gpus[0]}).resolve()
    except PrecisionTimeError:
        return None
    samples = job.layout.global_batch_size / job.workload.rows_per_sample
    if samples != int(samples):
        return None
    each = samples / wanted.gpus[0]
    return int(samples), [
        f"Global batch not given: {samples:,.0f} samples per step ({each:g} per device), as `predict` takes "
        "it for this device and number."
    ]


def _batch(axes: Mapping[str, Sequence[Any]], workload: Workload) -> tuple[int | None, list[str]]:
    """Samples per step where the request says none, and what that assumes."""
    if any(axes.get(name) for name in GLOBAL_BATCHES):
        return None, []
    if axes.get("batch_size"):
        return None, [
            "The batch is given per device, so that the global batch grows with the devices: all candidates "
            "see as many samples, but not in as many steps. global_batch_size makes them train alike."
        ]
    samples, source = usual_global_batch(workload)
    epochs = axes.get("samples") or [workload.dataset_samples or samples]
    samples = min(samples, *(int(epoch) for epoch in epochs))
    return samples, [
        f"Global batch not given: {samples:,} samples per step, the same for all candidates, so that all "
        f"train alike ({source}); up to {_NEAR_SHARE:.0%} more or less where the devices share it evenly."
    ]


def usual_global_batch(workload: Workload) -> tuple[int, str]:
    """Samples per step of such models, and the source."""
    rows: Mapping[str, Any] = defaults()["batch"]
    named = next((name for name in rows if workload.task and name in workload.task), workload.family)
    row, tokens = rows.get(named, rows["default"]), tokens_per_sample(workload)
    if "tokens" in row and tokens is not None:
        return max(round(row["tokens"] / tokens), 1), row["source"]
    return int(row["samples"]), row["source"]
