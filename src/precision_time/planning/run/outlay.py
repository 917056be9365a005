"""What a whole run costs in money, energy and carbon."""

from __future__ import annotations

import datetime
import math
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any

from ...diagnostics import Diagnostics
from ...errors import CatalogError
from ...hardware.device import Device
from ...hardware.device_table import catalog_name
from ...hardware.prices.cost import RunCost, run_cost, storage_rate
from ...hardware.prices.offer import Market, Offer
from ...hardware.prices.offers import offers, rentable
from ...records import dataclass
from ..energy.energy import Pue, RunEnergy, given_pue, pue_of, run_energy
from ..energy.grid import Intensity, intensity, read_hourly
from .prediction import RunPhase
from .schema import RunOptions

_SECONDS_PER_HOUR = 3600.0
_AT_WORK = ("warm_up", "steps", "evaluation", "lost_work")
"""Terms in which the devices train; in the others they wait."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Outlay:
    """Named terms, each kind of which adds up; empty where a price, a power or a place is not known."""

    cost_terms_usd: Mapping[str, float]
    energy_terms_j: Mapping[str, float]
    carbon_terms_g: Mapping[str, float]
    energy_log_spread: float = 0.0
    """Standard deviation of the logarithm of the power."""
    codecarbon: Mapping[str, Any] = field(default_factory=dict)
    """The fields of codecarbon's output; empty where no place is known."""


def outlay_of(
    phases: Sequence[RunPhase],
    device: Device,
    checkpoint_bytes: float,
    options: RunOptions,
    found: Diagnostics,
) -> Outlay:
    """Money, energy and carbon of a run at its expected time.

    Raises:
        PrecisionTimeError: If a region or cloud is not known.
    """
    offer, cost = (None, None) if options.own else _cost(phases, device, checkpoint_bytes, options, found)
    place = None if options.region is None else intensity(options.region, cloud=options.cloud)
    parts = _energy(phases, device, options, place, offer, found)
    cost_terms = {} if cost is None else cost.terms
    return Outlay(
        cost_terms_usd=_electricity(parts, options, found) if options.own else cost_terms,
        energy_terms_j=_summed([part.terms_j for part in parts]),
        carbon_terms_g=_summed([part.carbon_terms_g for part in parts]),
        energy_log_spread=parts[0].log_power_spread if parts else 0.0,
        codecarbon=_as_codecarbon(parts) if parts and place is not None else {},
    )


def _cost(
    phases: Sequence[RunPhase],
    device: Device,
    checkpoint_bytes: float,
    options: RunOptions,
    found: Diagnostics,
) -> tuple[Offer | None, RunCost | None]:
    """The offer that a run is cheapest on, and its cost; None where no price is known."""
    hours = math.fsum(phase.total_s for phase in phases) / _SECONDS_PER_HOUR
    devices = phases[0].prediction.gpus
    if options.usd_per_device_hour is not None:
        stated = options.usd_per_device_hour
        found.assume("price", f"Cost: {stated:g} USD for a device-hour, as stated.")
        cost = run_cost(hours=hours, devices=devices, devices_per_instance=1, usd_per_instance_hour=stated)
        return None, cost
    market = Market.SPOT if options.spot or options.reclaim_rate else Market.ON_DEMAND
    cloud, region = _cloud_region(options)
    name = catalog_name(device)
    known = (
        offers(
            devices=[name],
            clouds=None if cloud is None else [each.strip() for each in cloud.split(",")],
            regions=None if region is None else [region],
        )
        if name is not None
        else ()
    )
    nodes = phases[0].prediction.nodes
    priced = rentable(known, market, devices=devices, nodes=nodes)
    if not priced:
        together = math.ceil(devices / nodes)
        where = f" in {options.region or options.cloud}" if options.region or options.cloud else ""
        text = f"No {market.value} price of hosts with {together} x {device.name}{where} is known, so there "
        found.warn("price", f"{text}is no cost. To fix: usd_per_device_hour=.")
        return None, None
    costs = {}
    for offer in priced:
        costs[offer] = run_cost(
            hours=hours,
            devices=devices,
            devices_per_instance=offer.devices_per_instance,
            usd_per_instance_hour=offer.stated_price(market),
            stored_bytes=checkpoint_bytes,
            storage_usd_per_gb_month=storage_rate(offer.cloud) or 0.0,
        )
    best = min(costs, key=lambda one: (costs[one].total_usd, one.cloud, one.region, one.instance_type))
    which = "the cheapest known " if len(priced) > 1 else ""
    found.assume(
        "price",
        f"Cost: {which}{market.value} price, {costs[best].instances:,} x {best.instance_type} in "
        f"{best.cloud}:{best.region} at {best.stated_price(market):g} USD an hour "
        f"({best.dated(datetime.date.today())}).",
    )
    return best, costs[best]


def _electricity(parts: Sequence[RunEnergy], options: RunOptions, found: Diagnostics) -> dict[str, float]:
    """What a run on devices of one's own costs, by what they and their host draw; empty where not known."""
    if options.kwh_price is None:
        found.warn("price", "What a kWh costs you is not known, so there is no cost. To fix: kwh_price=.")
        return {}
    if not parts:
        return {}
    kwh = math.fsum(float(part.energy_kwh) for part in parts)
    found.assume(
        "price",
        f"Cost: {kwh:,.3g} kWh of electricity at {options.kwh_price:g} USD, for devices of your own; what "
        "buying them costs is not in it.",
    )
    return {"electricity_usd": kwh * options.kwh_price}


def _cloud_region(options: RunOptions) -> tuple[str | None, str | None]:
    """Cloud and region to rent in; a country or a grid says where electricity comes from, not who rents."""
    if options.region is None:
        return options.cloud, None
    place = intensity(options.region, cloud=options.cloud)
    if not place.cloud:
        return options.cloud, None
    return place.cloud, f"{place.cloud}:{place.region}"


def _pue(options: RunOptions, place: Intensity | None, offer: Offer | None) -> Pue:
    if options.pue is not None or options.own:
        return given_pue(options.pue or 1.0)
    cloud = place.cloud if place is not None and place.cloud else (offer.cloud if offer else options.cloud)
    return pue_of(cloud, place.region if place is not None else None)


def _energy(
    phases: Sequence[RunPhase],
    device: Device,
    options: RunOptions,
    place: Intensity | None,
    offer: Offer | None,
    found: Diagnostics,
) -> list[RunEnergy]:
    """Energy of each phase; none where the device's power is not known."""
    pue = _pue(options, place, offer)
    hourly = None if options.grid_hours is None else read_hourly(options.grid_hours)
    parts: list[RunEnergy] = []
    since_s = (options.start_hour or 0.0) * _SECONDS_PER_HOUR
    for phase in phases:
        busy_s = math.fsum(phase.terms[name] for name in _AT_WORK)
        per_kwh = (
            None
            if hourly is None
            else hourly.mean_g_per_kwh(start_hour=since_s / _SECONDS_PER_HOUR, duration_s=phase.total_s)
        )
        since_s += phase.total_s
        try:
            one = run_energy(
                device=device,
                devices=phase.prediction.gpus,
                busy_s=busy_s,
                waiting_s=phase.total_s - busy_s,
                terms=phase.prediction.terms,
                mfu=phase.prediction.mfu,
                power_w=options.power,
                pue=pue,
                intensity=place,
                g_per_kwh=per_kwh,
                embodied_g_per_device_hour=options.embodied_g_per_device_hour or 0.0,
            )
        except CatalogError as error:
            found.warn("energy", f"No energy: {error}")
            return []
        parts.append(one)
    said = f"PUE {pue.value:g} ({pue.cloud or _whose_pue(options)})"
    where = (
        f"CO2 a kWh by the hour of {hourly.source}"
        if hourly is not None
        else "no carbon without region="
        if place is None
        else f"{place.g_per_kwh:g} g of CO2 a kWh ({place.name}, {place.year})"
    )
    found.assume("energy", f"Energy: {said}; {where}.")
    return parts


def _whose_pue(options: RunOptions) -> str:
    if options.pue:
        return "as stated"
    return "your own room, where nothing else cools" if options.own else "average of data centers"


def _summed(parts: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Terms over the phases."""
    return {name: math.fsum(float(part[name]) for part in parts) for name in (parts[0] if parts else ())}


_ADDED = ("duration", "emissions", "cpu_energy", "gpu_energy", "ram_energy", "energy_consumed")
_MEANS = ("cpu_power", "gpu_power", "ram_power")
"""Fields of codecarbon that add up over the phases, and those that are means over time."""


def _as_codecarbon(parts: Sequence[RunEnergy]) -> dict[str, Any]:
    """All phases in the fields of codecarbon's output."""
    each = [part.to_codecarbon() for part in parts]
    added = {name: math.fsum(one[name] for one in each) for name in _ADDED}
    duration_s = max(added["duration"], 1e-9)
    means = {name: math.fsum(one[name] * one["duration"] for one in each) / duration_s for name in _MEANS}
    return {**each[0], **added, **means, "emissions_rate": added["emissions"] / duration_s}
