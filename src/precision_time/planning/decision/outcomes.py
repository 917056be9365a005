"""What becomes of every candidate: hours, the chance of being in time, dollars, joules and grams, by arrays.

A candidate is a row of the sweep (devices, number, precision, layout, batch) with an offer and a market.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from statistics import NormalDist
from typing import Any

import numpy as np

from ...arrays import Floats, Ints
from ...cost import terms as step_terms
from ...errors import PrecisionTimeError
from ...hardware.prices.offer import Market
from ...predict.sweep import Table
from ...records import dataclass
from ...request.request import Request
from ...units import J_PER_KWH
from ..energy.energy import pue_of, run_energy
from ..energy.grid import grid_of_region
from ..run.api import settings_of
from ..run.duration import TERMS, Work, total_s
from ..run.schema import RunOptions
from ..run.settings import RunSettings, checkpoint_bytes
from .space import UNPRICED, Space, Spot, defaults

_SECONDS_PER_HOUR = 3600.0
_STEP_TERMS = tuple(term.name for term in (*step_terms.TERMS, *step_terms.METHOD_TERMS))
_BUSY = ("warm_up", "steps", "evaluation", "lost_work")
"""Terms of a run in which the devices train."""
_HALVINGS = 20
_TWO_SIDED = 2.0 * NormalDist().inv_cdf(0.95)
_TIES = 500
"""Different values beyond which they are compared in steps of a hundredth."""
_MANY = 250_000
"""Candidates beyond which offers that cannot be chosen are left out."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Scenario:
    """What is assumed of the numbers that nobody knows exactly; factors of what the data say."""

    step: Mapping[str, float] = field(default_factory=dict)
    """Step times, by device; the others stay."""
    price: Mapping[str, float] = field(default_factory=dict)
    """Prices, by device."""
    mtbf: float = 1.0
    """Mean time between failures."""
    reclaims: float = 1.0
    """Rate at which spot hosts are taken away."""
    start_up: float = 1.0
    power: float = 1.0


AS_IS = Scenario()


@dataclass(frozen=True, kw_only=True, slots=True)
class Rows:
    """The rows of a sweep that have an answer and fit, shape (R,) each."""

    table: Table
    spot: Ints
    """Number of the `Spot` of each."""
    samples: Floats
    """Of the whole run."""
    steps: Floats
    checkpoint_bytes: Floats
    longer: Floats
    """How many times as long each takes as predicted, by what its near ties say of its own error."""

    def __len__(self) -> int:
        return len(self.spot)


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcomes:
    """Every candidate, shape (N,) each."""

    row: Ints
    offer: Ints
    """Its number; UNPRICED where there is none."""
    market: Ints
    """Number among the space's."""
    instances: Ints
    gpus: Ints
    terms_s: Mapping[str, Floats]
    """Expected seconds of the run by what they are; they add up to `time_s`."""
    time_s: Floats
    probability: Floats
    """Of meeting the deadline; NaN without one."""
    sure_s: Floats
    """Seconds within which the run ends with the probability that is asked."""
    usd_per_hour: Floats
    """Of all hosts; NaN of unpriced ones."""
    usd: Floats
    energy_j: Floats
    carbon_g: Floats
    """NaN where nobody knows the grid."""

    def __len__(self) -> int:
        return len(self.row)

    def take(self, numbers: Ints) -> Outcomes:
        """Some of the candidates."""
        found = {name: getattr(self, name) for name in self.__slots__ if name != "terms_s"}
        terms = {name: values[numbers] for name, values in self.terms_s.items()}
        return Outcomes(terms_s=terms, **{name: values[numbers] for name, values in found.items()})


def rows_of(table: Table, spot: Ints, request: Request, space: Space) -> Rows:
    """The rows that compete: those with an answer that fit."""
    seconds = np.asarray(table["total_time_s"], dtype=float)
    kept = np.flatnonzero(np.isfinite(seconds) & (table["fits"] == True))  # noqa: E712 - objects, None among them
    taken = {name: values[kept] for name, values in table.items()}
    steps = np.rint(seconds[kept] / np.asarray(taken["step_time_s"], dtype=float))
    return Rows(
        table=taken,
        spot=spot[kept],
        samples=steps * np.asarray(taken["global_batch_size"], dtype=float),
        steps=steps,
        checkpoint_bytes=_checkpoints(taken, request),
        longer=_longer(taken, seconds[kept], spot[kept], space),
    )


def _checkpoints(table: Table, request: Request) -> Floats:
    """Bytes of a checkpoint, which depend on the precision and not on the devices."""
    found = np.zeros(len(table["precision"]))
    for precision in dict.fromkeys(table["precision"].tolist()):
        here = np.flatnonzero(table["precision"] == precision)
        first = here[0]
        asked = {
            "device": table["device"][first],
            "gpus": int(table["gpus"][first]),
            "nodes": int(table["nodes"][first]),
            "precision": precision,
            "global_batch_size": table["global_batch_size"][first],
        }
        try:
            job = request.with_(**asked).resolve()
        except PrecisionTimeError:  # such as a batch per device that is given as well
            job = request.with_(device=asked["device"]).resolve()
        found[here] = checkpoint_bytes(job)
    return found


@dataclass(frozen=True, kw_only=True, slots=True)
class Conditions:
    """What a plan asks of every run."""

    deadline_s: float | None = None
    confidence: float = 0.9
    """Probability that `sure_s` is about."""
    coverage: float = 0.9
    """Of the intervals of the steps."""
    compiler: str = "none"
    """What compiles the step, at every start."""
    options: RunOptions = field(default_factory=RunOptions)
    """What is stated of runs beside their steps; data for the rest."""
    scenario: Scenario = AS_IS


def outcomes_of(rows: Rows, space: Space, asked: Conditions, only: Outcomes | None = None) -> Outcomes:
    """What becomes of every row with every offer of its hosts in every market."""
    row, offer, market = _expanded(rows, space) if only is None else (only.row, only.offer, only.market)
    used, place = np.unique(row, return_inverse=True)
    runs = [_runs(rows, space, used, each, asked) for each in space.markets]
    # Time and energy of a row do not depend on who rents the hosts.
    of_run = {name: np.stack([run[name] for run in runs])[market, place] for name in runs[0]}
    device, instances = rows.table["device"][row], _of_spots(rows, space, row, "instances")
    pue, grams = np.array(_places(space)).T
    if asked.options.own:
        pue = np.full(len(pue), asked.options.pue or 1.0)
    energy_j = of_run["energy_j"] * pue[offer] * asked.scenario.power
    hours = of_run["time_s"] / _SECONDS_PER_HOUR
    if asked.options.own:
        kwh_usd = np.nan if asked.options.kwh_price is None else asked.options.kwh_price
        usd_per_hour = energy_j / J_PER_KWH * kwh_usd / hours
    else:
        usd_per_hour = instances * _prices(space)[offer, market]
    usd_per_hour = usd_per_hour * _factors(device, asked.scenario.price)
    return Outcomes(
        row=row,
        offer=offer,
        market=market,
        instances=instances,
        gpus=rows.table["gpus"].astype(int)[row],
        terms_s={name: of_run[f"terms.{name}"] for name in TERMS},
        time_s=of_run["time_s"],
        probability=of_run["probability"],
        sure_s=of_run["sure_s"],
        usd_per_hour=usd_per_hour,
        usd=usd_per_hour * hours,
        energy_j=energy_j,
        carbon_g=energy_j / J_PER_KWH * grams[offer],
    )


def _of_spots(rows: Rows, space: Space, some: Ints, name: str) -> Ints:
    """A number of the spots of some rows."""
    return np.array([getattr(spot, name) for spot in space.spots] or [0])[rows.spot[some]]


def _runs(rows: Rows, space: Space, used: Ints, market: Market, asked: Conditions) -> dict[str, Floats]:
    """Seconds, probability and joules of some rows in a market, shape (used,) each."""
    table, scenario = rows.table, asked.scenario
    factor = _factors(table["device"][used], scenario.step)
    step_s, low_s, high_s = (
        np.asarray(table[name], dtype=float)[used] * factor
        for name in ("step_time_s", "interval_low_s", "interval_high_s")
    )
    gpus, steps, size = table["gpus"].astype(int)[used], rows.steps[used], rows.checkpoint_bytes[used]
    instances = _of_spots(rows, space, used, "instances")
    spot = market is Market.SPOT
    stated = asked.options.changed(spot=spot, **({} if spot else {"reclaim_rate": None}))
    usual = settings_of(stated, asked.compiler, instances.astype(float), step_s)
    work = Work(
        step_s=step_s,
        low_s=low_s,
        high_s=high_s,
        coverage=asked.coverage,
        steps=steps,
        devices=gpus,
        checkpoint_bytes=size,
        hosts=instances.astype(float),
        settings=_under(usual, scenario),
    )
    terms = work.expected_s()
    time_s = np.asarray(total_s(terms))
    held = instances * _of_spots(rows, space, used, "devices")
    late, longer = asked.deadline_s, rows.longer[used]

    def chance(within_s: Any) -> Floats:
        return work.probability_within(within_s / longer)

    return {f"terms.{name}": seconds for name, seconds in terms.items()} | {
        "time_s": time_s,
        "sure_s": _quantile(chance, time_s, asked.confidence),
        "probability": np.full(len(used), np.nan) if late is None else chance(late),
        "energy_j": _energy(rows, space, used, held, terms, time_s),
    }


def _longer(table: Table, seconds: Floats, spot: Ints, space: Space) -> Floats:
    """Of each row, by its near ties in time and in money at the least price: what more of the two says."""
    if not len(seconds):
        return seconds
    ends = [np.asarray(table[f"interval_{end}_s"], dtype=float) for end in ("high", "low")]
    own = min(
        float(defaults()["chosen"]["own_error"]), float(np.median(np.log(ends[0] / ends[1]))) / _TWO_SIDED
    )
    prices = np.nan_to_num(_prices(space), nan=np.inf).min(axis=1)
    usd = np.array([each.instances * prices[list(each.offers)].min() for each in space.spots])[spot]
    excess = np.zeros(len(seconds))
    for values in (seconds, seconds * usd):
        known = np.isfinite(values) & (values > 0.0)
        excess[known] = np.maximum(excess[known], excess_by_ties(np.log(values[known]), own))
    longer: Floats = np.exp(excess)
    return longer


def excess_by_ties(predicted: Floats, own_error: float) -> Floats:
    r"""By how much true values are expected to be above predicted ones, of alternatives that are compared.

    A predicted value $m$ is the true one with an error that all share, which moves no choice, and an error of
    its own with deviation $\sigma$. By Tweedie's formula (Robbins 1956; Efron, JASA 106, 2011, on selection
    bias) the true value is expected at $m + \sigma^2 \, d \log f(m) / dm$. The density $f$ is that of the
    alternatives themselves, with kernels of $\sigma / \sqrt 2$. The least of many near ties is drawn up, the
    largest down; one without neighbors stays.

    Args:
        predicted: Logarithms, shape (n,).
        own_error: Standard deviation of the errors that are not shared; 0 for none.

    Returns:
        Expected true values less predicted ones, shape (n,).
    """
    if len(predicted) == 0 or own_error <= 0.0:
        return np.zeros(len(predicted))
    values, counts = np.unique(predicted, return_counts=True)
    if len(values) > _TIES:
        values, counts = np.unique(np.round(predicted, 2), return_counts=True)
    apart = values - values[:, None]
    weights = counts * np.exp(-((apart / own_error) ** 2))
    excess: Floats = np.interp(predicted, values, 2.0 * (weights * apart).sum(axis=1) / weights.sum(axis=1))
    return excess


def _expanded(rows: Rows, space: Space) -> tuple[Ints, Ints, Ints]:
    """Row, offer and market of every candidate.

    Of a great many, offers that are neither cheaper nor cleaner than another one of the same hosts and market
    are left out: the time is the same, so that no aim would choose them.
    """
    prices = _prices(space)
    pairs = [_pairs(spot, prices) for spot in space.spots]
    if sum(len(pairs[spot]) for spot in rows.spot.tolist()) > _MANY:
        dirt = np.nan_to_num([pue * grams for pue, grams in _places(space)], nan=np.inf)
        pairs = [_best_pairs(each, prices, dirt) for each in pairs]
    every = [pair for spot in rows.spot.tolist() for pair in pairs[spot]]
    offer, market = np.array(every, dtype=np.int64).reshape(-1, 2).T
    counts = np.array([len(each) for each in pairs], dtype=np.int64)
    return np.repeat(np.arange(len(rows)), counts[rows.spot]), offer, market


def _pairs(spot: Spot, prices: Floats) -> list[tuple[int, int]]:
    """Offers and the markets in which they have a price; an unpriced one stands once."""
    if spot.offers == (UNPRICED,):
        return [(UNPRICED, 0)]
    known = np.isfinite(prices)
    return [(offer, market) for offer in spot.offers for market in np.flatnonzero(known[offer]).tolist()]


def _best_pairs(pairs: Sequence[tuple[int, int]], prices: Floats, dirt: Floats) -> list[tuple[int, int]]:
    """Offers of hosts that no other one of the same market beats or equals in price and carbon."""
    kept: list[tuple[int, int]] = []
    for market in dict.fromkeys(market for _, market in pairs):
        own = sorted((prices[offer, market], dirt[offer], offer) for offer, its in pairs if its == market)
        least = None
        for _, grams, offer in own:
            if least is None or grams < least:
                kept.append((offer, market))
                least = grams
    return kept


def _prices(space: Space) -> Floats:
    """Dollars for an hour of a host, by offer and market; the last row is that of UNPRICED."""
    found = [
        [np.nan if (price := offer.price(market)) is None else price for market in space.markets]
        for offer in space.offers
    ]
    return np.array([*found, [np.nan] * len(space.markets)], dtype=float)


def _factors(devices: Any, by_device: Mapping[str, float]) -> Floats:
    found = np.ones(len(devices))
    for device, factor in by_device.items():
        found[devices == device] = factor
    return found


def _under(usual: RunSettings, scenario: Scenario) -> RunSettings:
    return replace(
        usual,
        mtbf_device_s=usual.mtbf_device_s * scenario.mtbf,
        reclaims_per_host_s=usual.reclaims_per_host_s * scenario.reclaims,
        start_up_s=usual.start_up_s * scenario.start_up,
        start_up_per_device_s=usual.start_up_per_device_s * scenario.start_up,
    )


def _quantile(chance: Callable[[Any], Floats], middle: Floats, confidence: float) -> Floats:
    """Seconds within which a run ends with some probability; by halving, as chances grow with the time."""
    low, high = np.log(np.maximum(middle, 1e-9)) - 3.0, np.log(np.maximum(middle, 1e-9)) + 6.0
    endless = ~np.isfinite(middle)
    low[endless], high[endless] = 0.0, 0.0
    for _ in range(_HALVINGS):
        half = 0.5 * (low + high)
        enough = chance(np.exp(half)) >= confidence
        low, high = np.where(enough, low, half), np.where(enough, half, high)
    return np.where(endless, np.inf, np.exp(high))


def _energy(
    rows: Rows, space: Space, used: Ints, held: Ints, terms: Mapping[str, Floats], time_s: Floats
) -> Floats:
    """Joules of devices and hosts without cooling: power by device and step."""
    found = np.full(len(used), np.nan)
    busy_s = np.sum([terms[name] for name in _BUSY], axis=0)
    device = rows.table["device"][used]
    for name in dict.fromkeys(device.tolist()):
        here = np.flatnonzero((device == name) & np.isfinite(time_s))
        if len(here):
            of_step = {
                term: np.nan_to_num(np.asarray(rows.table[f"terms.{term}"], dtype=float)[used[here]])
                for term in _STEP_TERMS
            }
            found[here] = run_energy(
                device=space.own.device(name),
                devices=held[here].astype(float),
                busy_s=busy_s[here],
                terms=of_step,
                waiting_s=time_s[here] - busy_s[here],
                pue=1.0,
            ).energy_j
    return found


def _places(space: Space) -> list[tuple[float, float]]:
    """PUE and grams for a kWh of every offer; the last is that of UNPRICED: nobody knows where it stands."""
    found = []
    for offer in space.offers:
        grid = grid_of_region(offer.cloud, offer.region)
        found.append((pue_of(offer.cloud, offer.region).value, np.nan if grid is None else grid.g_per_kwh))
    return [*found, (pue_of().value, np.nan)]
