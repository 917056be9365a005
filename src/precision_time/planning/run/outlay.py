"""What a whole run costs in money, energy and carbon."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ...diagnostics import Diagnostics
from ...errors import PrecisionTimeError
from ...hardware.device import Device
from ...hardware.device_table import catalog_name
from ..energy.energy import run_energy
from ..energy.grid import Intensity, intensity
from ..energy.pue import Pue, given_pue, pue_of
from ..money.cost import RunCost, offer_cost, run_cost
from ..money.offers import Market, Offer, offers
from ..money.rates import Term, list_rate
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


def outlay_of(
    phases: Sequence[RunPhase],
    device: Device,
    checkpoint_bytes: float,
    options: RunOptions,
    found: Diagnostics,
) -> Outlay:
    """Money, energy and carbon of a run at its expected time.

    Args:
        phases: Of the run.
        device: What it runs on.
        checkpoint_bytes: What lies in storage.
        options: Region, market and rates.
        found: Collects what was taken, and what is not known.

    Raises:
        PrecisionTimeError: If a region or cloud is not known.
    """
    offer, cost = _cost(phases, device, checkpoint_bytes, options, found)
    place = _place(options)
    energy, carbon = _energy(phases, device, options, place, offer, found)
    return Outlay(
        cost_terms_usd={} if cost is None else {name: float(usd) for name, usd in cost.terms.items()},
        energy_terms_j=energy,
        carbon_terms_g=carbon,
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
            clouds=None if cloud is None else [cloud],
            regions=None if region is None else [region],
        )
        if name is not None
        else ()
    )
    together = math.ceil(devices / phases[0].prediction.nodes)
    priced = [
        offer for offer in known if offer.price(market) is not None and offer.devices_per_instance >= together
    ]
    if not priced:
        where = f" in {options.region or options.cloud}" if options.region or options.cloud else ""
        text = f"No {market.value} price of hosts with {together} x {device.name}{where} is known, so there "
        found.warn("price", f"{text}is no cost. To fix: usd_per_device_hour=.")
        return None, None
    costs = {}
    for offer in priced:
        rate = list_rate(offer.cloud, Term.STORAGE)
        costs[offer] = offer_cost(
            offer,
            market,
            hours=hours,
            devices=devices,
            stored_bytes=checkpoint_bytes,
            storage_usd_per_gb_month=0.0 if rate is None else rate.usd_per_gb,
        )
    best = min(costs, key=lambda one: (float(costs[one].total_usd), one.cloud, one.region, one.instance_type))
    which = "the cheapest known " if len(priced) > 1 else ""
    found.assume(
        "price",
        f"Cost: {which}{market.value} price, {int(costs[best].instances):,} x {best.instance_type} in "
        f"{best.cloud}:{best.region} at {best.stated_price(market):g} USD an hour (list of {best.date}).",
    )
    return best, costs[best]


def _cloud_region(options: RunOptions) -> tuple[str | None, str | None]:
    """Cloud and region to rent in; a country or a grid says where electricity comes from, not who rents."""
    if options.region is None:
        return options.cloud, None
    place = intensity(options.region, cloud=options.cloud)
    if not place.cloud:
        return options.cloud, None
    return place.cloud, f"{place.cloud}:{place.region}"


def _place(options: RunOptions) -> Intensity | None:
    return None if options.region is None else intensity(options.region, cloud=options.cloud)


def _pue(options: RunOptions, place: Intensity | None, offer: Offer | None) -> Pue:
    if options.pue is not None:
        return given_pue(options.pue)
    cloud = (
        place.cloud
        if place is not None and place.cloud
        else options.cloud or (offer.cloud if offer else None)
    )
    return pue_of(cloud, place.region if place is not None else None)


def _energy(
    phases: Sequence[RunPhase],
    device: Device,
    options: RunOptions,
    place: Intensity | None,
    offer: Offer | None,
    found: Diagnostics,
) -> tuple[dict[str, float], dict[str, float]]:
    """Energy [J] and carbon [g] by terms, summed over the phases."""
    pue = _pue(options, place, offer)
    energy: dict[str, float] = {}
    carbon: dict[str, float] = {}
    for phase in phases:
        busy_s = math.fsum(phase.terms[name] for name in _AT_WORK)
        try:
            one = run_energy(
                device=device,
                devices=phase.prediction.gpus,
                busy_s=busy_s,
                waiting_s=phase.total_s - busy_s,
                terms=phase.prediction.terms,
                mfu=phase.prediction.mfu,
                pue=pue,
                intensity=place,
            )
        except PrecisionTimeError as error:
            found.warn("energy", f"No energy: {error}")
            return {}, {}
        for terms, parts in ((energy, one.terms_j), (carbon, one.carbon_terms_g)):
            for name, value in parts.items():
                terms[name] = terms.get(name, 0.0) + float(value)
    said = f"PUE {pue.value:g} ({pue.cloud or ('as stated' if options.pue else 'average of data centers')})"
    where = (
        "no carbon without region="
        if place is None
        else f"{place.g_per_kwh:g} g of CO2 a kWh ({place.name}, {place.year})"
    )
    found.assume("energy", f"Energy: {said}; {where}.")
    return energy, carbon
