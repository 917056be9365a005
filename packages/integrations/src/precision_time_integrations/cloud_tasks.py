"""Hosts that a task rents, and the command that they run, as an estimate."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from precision_time.errors import ConfigError, PrecisionTimeError, UnknownNameError, shown
from precision_time.hardware.nodes import get_node_type
from precision_time.hardware.prices.offer import Market, Offer
from precision_time.hardware.prices.offers import offers
from precision_time.io import read_input
from precision_time.planning.energy.grid import intensity
from precision_time.price_lists.catalogues import listed_device

from .commands.read import ReadCommand, read_command
from .estimate import JobEstimate, estimate_job

_MOST_BYTES = 2**20
"""Of a file that a command names."""
_PRICE = "usd_per_device_hour"
DEVICE_REMEDY = "To fix: name one, or give --device."


@dataclass(frozen=True, kw_only=True, slots=True)
class Rented:
    """The hosts of a task."""

    device: str = ""
    """Of the catalog; empty where `reason` says why none is known."""
    devices_per_node: int = 0
    nodes: int = 1
    options: Mapping[str, Any] = field(default_factory=dict)
    """Fields of `RunOptions`."""
    unpriced: str = ""
    """Why there is no price; empty where one is looked for."""
    reason: str = ""
    notes: tuple[str, ...] = ()

    @property
    def fields(self) -> dict[str, Any]:
        """Fields of a request."""
        if not self.device:
            return {}
        return {"device": self.device, "gpus": self.devices_per_node * self.nodes, "nodes": self.nodes}


def rented(
    *,
    accelerator: str = "",
    count: float = 1.0,
    nodes: int = 1,
    cloud: str = "",
    region: str = "",
    instance_type: str = "",
    spot: bool = False,
) -> Rented:
    """Hosts by what a task asks for, with the price of that very offer where it is known.

    Args:
        accelerator: As clouds list it, such as "A100-80GB"; empty for that of the instance type.
        count: Accelerators of a host.
        nodes: Hosts.
        cloud: Where they are rented; empty for anywhere.
        region: Of that cloud.
        instance_type: Of that cloud.
        spot: Whether they can be reclaimed.
    """
    cloud = cloud.lower()
    options: dict[str, Any] = {"spot": True} if spot else {}
    known, why = _place(cloud, region)
    options |= known
    if not accelerator:
        of_instance = _device_of_instance(instance_type, cloud)
        if of_instance is None:
            what = f"instance_type {shown(instance_type)} is not known" if instance_type else "none is named"
            return Rented(nodes=nodes, reason=f"No accelerator: {what}. {DEVICE_REMEDY}")
        device, devices = of_instance
    else:
        listed = listed_device(cloud, instance_type, accelerator, count)
        device, devices = listed.device, listed.devices
        if listed.reason:
            text = f"Accelerator {shown(accelerator)} x {count:g}: {listed.reason}. {DEVICE_REMEDY}"
            return Rented(nodes=nodes, options=options, reason=text)
    notes: tuple[str, ...] = ()
    if instance_type and not why:
        price, note = _price(instance_type, device, devices, known, spot=spot)
        options |= price
        notes = (note,)
    return Rented(
        device=device, devices_per_node=devices, nodes=nodes, options=options, unpriced=why, notes=notes
    )


def _place(cloud: str, region: str) -> tuple[dict[str, Any], str]:
    """Cloud and region as `RunOptions` has them, and why there is no price."""
    if not cloud and not region:
        return {}, ""
    try:
        if cloud:
            offers(clouds=[cloud])
        known: dict[str, Any] = {"cloud": cloud} if cloud else {}
        if region:
            offers(clouds=[cloud] if cloud else None, regions=[region])
            place = intensity(region, cloud=cloud or None)
            known = {"cloud": place.cloud, "region": place.region}
    except PrecisionTimeError:
        where = f"{cloud}:{region}" if cloud and region else cloud or region
        text = f"No price: no list here has {shown(where)}. To fix: --usd-per-device-hour, or --region."
        return {}, text
    return known, ""


def _device_of_instance(instance_type: str, cloud: str) -> tuple[str, int] | None:
    """Device and number of devices of an instance type."""
    if not instance_type:
        return None
    found = [offer for offer in _offers(cloud) if offer.instance_type == instance_type]
    if found:
        return found[0].device, found[0].devices_per_instance
    try:
        node = get_node_type(instance_type)
    except UnknownNameError:
        return None
    return node.device, node.devices


def _offers(cloud: str) -> tuple[Offer, ...]:
    try:
        return offers(clouds=[cloud] if cloud else None)
    except UnknownNameError:
        return ()


def _price(
    instance_type: str, device: str, devices: int, place: Mapping[str, Any], *, spot: bool
) -> tuple[dict[str, Any], str]:
    """The price of a device-hour on that instance type, and what was taken; nothing where none is listed."""
    market = Market.SPOT if spot else Market.ON_DEMAND
    found = [
        (price, offer)
        for offer in _offers(str(place.get("cloud", "")))
        if offer.instance_type == instance_type
        and offer.device == device
        and offer.devices_per_instance == devices
        and offer.region == place.get("region", offer.region)
        and (price := offer.price(market)) is not None
    ]
    if not found:
        return {}, f"No {market.value} price of {instance_type} is listed: the cheapest like it is taken."
    price, offer = min(found, key=lambda each: each[0])
    text = f"{instance_type} in {offer.cloud}:{offer.region}: {price:g} USD an hour, {market.value} (list of "
    return {_PRICE: price / devices}, f"{text}{offer.date})."


def estimate_task(
    hosts: Rented,
    *,
    source: str,
    name: str,
    command: str,
    environment: Mapping[str, str],
    unread: tuple[str, ...] = (),
    folder: Path | None = None,
    given: Mapping[str, Any] | None = None,
) -> JobEstimate:
    """The estimate of a task: its hosts, and what its command trains.

    Args:
        hosts: What is rented.
        source: What was read.
        name: Of the task.
        command: The script that runs on each host.
        environment: What it sees.
        unread: What of the file was not understood.
        folder: Where files lie that the command names; None where nothing may be read.
        given: Fields that the user typed.
    """
    typed = given or {}
    try:
        read = read_command(
            command,
            environment=environment,
            files=files_below(folder) if folder else None,
            gpus_per_node=hosts.devices_per_node or None,
            nodes=hosts.nodes,
        )
    except ConfigError as error:
        return JobEstimate(source=source, name=name, fields=hosts.fields, reason=str(error), unread=unread)
    stated = {**read.fields, **typed}
    own_hosts = any(stated.get(key) for key in ("device", "node_type"))
    fields = {**_used(read, hosts), **read.fields}
    price, idle = ({}, ()) if own_hosts or "gpus" in typed else _idle(hosts, fields)
    options = {key: value for key, value in hosts.options.items() if not own_hosts or key != _PRICE}
    found = estimate_job(
        source=source,
        name=name,
        fields=fields,
        options={**options, **price, **read.run_options},
        unread=(*unread, *read.unread),
        notes=(*hosts.notes, *read.notes, *read.assumed, *idle),
        reason="" if own_hosts else hosts.reason,
        given=typed,
    )
    return without_price(found, hosts.unpriced) if hosts.unpriced and not own_hosts else found


def _used(read: ReadCommand, hosts: Rented) -> dict[str, Any]:
    """Device and counts; where the launcher says how many processes it starts, that many."""
    if not hosts.device or read.gpus is None:
        return hosts.fields
    return {**hosts.fields, "gpus": read.gpus, "nodes": read.nodes or 1}


def _idle(hosts: Rented, fields: Mapping[str, Any]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The price of a used device-hour where some are paid and not used, and what to say of it."""
    paid, used = hosts.devices_per_node * hosts.nodes, int(fields.get("gpus") or 0)
    if not paid or used == paid:
        return {}, ()
    if used > paid:
        return {}, (f"The command starts {used} processes, and the hosts have {paid} devices.",)
    text = f"The command uses {used} of {paid} devices; all are paid."
    stated = hosts.options.get(_PRICE)
    if stated is None:
        price = _cheapest(hosts)
        if price is None:
            return {}, (text,)
        stated = price / hosts.devices_per_node
    return {_PRICE: stated * paid / used}, (text,)


def _cheapest(hosts: Rented) -> float | None:
    """USD per hour of a host, at the cheapest offer that holds its devices; None where none is known."""
    market = Market.SPOT if hosts.options.get("spot") else Market.ON_DEMAND
    prices = [
        price
        for offer in _offers(str(hosts.options.get("cloud", "")))
        if offer.device == hosts.device
        and offer.devices_per_instance >= hosts.devices_per_node
        and offer.region == hosts.options.get("region", offer.region)
        and (price := offer.price(market)) is not None
    ]
    return min(prices, default=None)


def without_price(found: JobEstimate, why: str) -> JobEstimate:
    """The same without the money, where the price of other hosts would stand for that of these."""
    if found.run is None or found.options.get(_PRICE):
        return found
    run = replace(
        found.run,
        cost_terms_usd={},
        diagnostics=tuple(item for item in found.run.diagnostics if item.code != "price"),
    )
    return replace(found, run=run, notes=(*found.notes, why))


def files_below(folder: Path) -> Callable[[str], str | None]:
    """Reads the text of small files below a folder; None for any other."""
    root = folder.resolve()

    def read(name: str) -> str | None:
        path = (root / name).resolve()
        if not path.is_relative_to(root) or not path.is_file() or path.stat().st_size > _MOST_BYTES:
            return None
        try:
            return read_input(path)
        except (OSError, UnicodeDecodeError):
            return None

    return read
