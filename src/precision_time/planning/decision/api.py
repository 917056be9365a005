"""`plan`: which devices, how many, at which precision, for how much money and carbon, and done in time."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import date, datetime
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ...arrays import Floats, Ints
from ...cost.input import SYNTHETIC
from ...cost.stacks import Stack
from ...diagnostics import Diagnostics, Severity, texts_of
from ...errors import ConfigError, PrecisionTimeError, shown
from ...hardware.catalog import Custom, get_device, load_custom
from ...hardware.prices.offer import Offer
from ...hardware.prices.reading import read_prices
from ...predict.api import predict
from ...predict.sweep import Table
from ...records import dataclass
from ...request.request import Request
from ...request.resolve import stack_of, workload_of
from ...request.schema import ALIASES, RUN_LENGTHS, RequestFields
from ...request.signature import takes_request_fields
from ...request.sweep import axes_of
from ...workload.workload import Workload
from ..run.schema import RunOptions
from .choose import Choice, Judged, choices_of, judged
from .explain import break_evens, moves_of, nearest_miss, what_ifs
from .limits import Limits, limits_of
from .outcomes import Conditions, Outcomes, Rows, Scenario, outcomes_of, rows_of
from .refine import refined
from .result import Plan, PlanCounts
from .space import OWN, Space, Wanted, defaults, own_hosts, space_of, wanted_of
from .timing import Progress, Timing, within_reach

_OF_THE_PLAN = frozenset(
    {
        *("device", "gpus", "nodes", "node_type", "intra_node", "inter_node", "network", "cluster"),
        *("scope", "uneven"),
    }
)
PLANNED_FIELDS = tuple(name for name in RequestFields.model_fields if name not in _OF_THE_PLAN)
"""Fields of a request that a plan takes, each with one value or several that compete."""
RUN_FIELDS = {
    name: RunOptions.model_fields[name]
    for name in (
        *("start_up", "compile_time", "warm_up_steps", "checkpoint_interval", "async_checkpoints"),
        *("storage_rate", "mtbf", "failures", "recovery", "reclaim_rate", "own", "kwh_price"),
    )
}
"""What may be stated of runs beside their steps."""
_BEYOND = (2, 4, 8, 16)
"""Times the devices allowed, tried where nothing is in time."""
_MOST_REASONS = 5
_SAID_BY_THE_PLAN = frozenset({"run-time", "default-batch"})
"""Remarks on a step that a plan makes otherwise: what a run takes beside its steps is in its time."""


@takes_request_fields(only=PLANNED_FIELDS, also=RUN_FIELDS)
def plan(
    model: Any,
    *,
    deadline: str | float | datetime | date | None = None,
    budget: str | float | None = None,
    currency: str | None = None,
    carbon_kg: float | None = None,
    confidence: float = 0.9,
    devices: str | Sequence[str] | None = None,
    gpus: int | Sequence[int] | None = None,
    max_gpus: int | None = None,
    clouds: str | Sequence[str] | None = None,
    regions: str | Sequence[str] | None = None,
    market: str | Sequence[str] | None = None,
    prices: Any = None,
    any_network: bool = False,
    layouts: int = 0,
    max_jobs: int | None = None,
    workers: int | None = None,
    ray: str | None = None,
    now: datetime | None = None,
    progress: Progress | None = None,
    **options: Any,
) -> Plan:
    """Which devices, how many, at which precision, where: cheapest, fastest and greenest under limits.

    Every candidate is evaluated, so that the choices are the best ones of what competes. All candidates see
    as many samples in steps of the same global batch.

    Args:
        model: As `predict_time` takes it, or a `Request`; the length of the run is needed: tokens, epochs or
            steps; of a named data set, one epoch is assumed.
        deadline: A duration ("24h"), or a date or time (UTC) until which the run must be done.
        budget: Most money for the run ("500", "450 EUR").
        currency: Of the budget, with what one US dollar costs in it ("EUR=0.92").
        carbon_kg: Most kilograms of CO2 equivalents.
        confidence: Probability with which the deadline is to be met.
        devices: Types that compete; None for those that clouds commonly rent.
        gpus: Numbers of devices that compete; None for powers of two of whole hosts.
        max_gpus: The most devices; None for 64.
        clouds: Who may rent them; None for all in the list of prices.
        regions: Where they may stand; None for everywhere.
        market: on-demand, spot or reserved; several compete.
        prices: A file or folder of prices of your own (`precision-time list prices`), or offers; None for
            those that ship.
        any_network: Join hosts too between which the network is not known; a slow one is assumed.
        layouts: Combinations of which all layouts may be searched (`find_layouts`), the most promising first,
            as long as they can change the cheapest choice; 0: usual layouts alone.
        max_jobs: Refuse to time more jobs than this; None for any number.
        workers: Processes for large spaces; None for one per core.
        ray: Instead of processes: "local", or a cluster's address.
        now: What a date is counted from; None for the clock.
        progress: Told where the sweep stands.
        options: Fields of `Request`, each with one value or several that compete; start-up, checkpoints and
            failures as `predict_run` takes them.

    Returns:
        The choices with their reasons, the Pareto front, what-ifs and break-even points; where nothing keeps
        the limits, the nearest miss and what it would take.

    Raises:
        UnknownNameError: Model, device, precision, cloud, region, market or currency that no list holds.
        ConfigError: A limit that breaks its rule, no length of the run, or nothing that can be timed.
    """
    limits = limits_of(
        deadline=deadline,
        budget=budget,
        currency=currency,
        carbon_kg=carbon_kg,
        confidence=confidence,
        now=now,
    )
    of_run = {name: options.pop(name) for name in RUN_FIELDS if name in options}
    axes, request = _asked(model, options)
    own = Custom() if request.custom is None else load_custom(request.custom)
    if isinstance(model, Request):  # what it says of its devices competes, unless the call says otherwise
        devices = devices or model.device
        gpus = gpus or (model.gpus if "gpus" in model.model_fields_set else None)
    of_runs = RunOptions.of(of_run)
    wanted, notes = wanted_of(
        devices=_several(devices),
        gpus=None if gpus is None else [gpus] if isinstance(gpus, int) else list(gpus),
        max_gpus=max_gpus,
        clouds=_several(clouds),
        regions=_several(regions),
        markets=_several(market),
        prices=own_hosts(own, _several(devices), max_gpus) if of_runs.own else _offers(prices, own),
        any_network=any_network,
        own=own,
    )
    workload = workload_of(request)
    sized = request.samples or (request.dataset and workload.dataset_samples)
    if sized and not {*RUN_LENGTHS} & {*axes}:
        axes, request = {**axes, "epochs": [1.0]}, request.with_(epochs=1.0)
        notes = (*notes, "Length of the run not given: one epoch.")
    _check_length(request, axes)
    timing = Timing(request=request, workload=workload, workers=workers, ray=ray, progress=progress)
    stack = _stack(request, workload)
    ask = _Ask(
        wanted=wanted,
        axes=axes,
        timing=timing,
        limits=limits,
        conditions=Conditions(
            deadline_s=limits.deadline_s,
            confidence=limits.confidence,
            coverage=request.coverage,
            compiler=stack.compiler,
            options=of_runs,
        ),
        fed=stack.loader not in ("", SYNTHETIC),
    )
    answered, out_of_reach = _answered(ask, max_jobs)
    if layouts:
        answered, said = _refined(ask, answered, layouts)
        notes = (*notes, said)
    return _planned(ask, answered, notes, out_of_reach)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Answered:
    """A space with all that is known of it."""

    judged: Judged
    table: Table
    """All rows, those without an answer among them."""
    spot: Ints


@dataclass(frozen=True, kw_only=True, slots=True)
class _Ask:
    """Answers spaces of one request."""

    wanted: Wanted
    axes: Mapping[str, Sequence[Any]]
    timing: Timing
    limits: Limits
    conditions: Conditions
    fed: bool

    def space(self, wanted: Wanted | None = None) -> Space:
        """All candidates, or those of other numbers of devices."""
        return space_of(wanted or self.wanted, self.axes, self.timing.workload, fed=self.fed)

    def __call__(self, space: Space) -> _Answered:
        table, spot = self.timing(space)
        found = self.judged(space, rows_of(table, spot, self.timing.request, space))
        return _Answered(judged=found, table=table, spot=spot)

    def quiet(self) -> _Ask:
        """The same, without telling where it stands."""
        return replace(self, timing=replace(self.timing, progress=None))

    def judged(self, space: Space, rows: Rows, only: Outcomes | None = None) -> Judged:
        """What the limits say of the candidates of a space, or of some of them."""
        return judged(space, rows, outcomes_of(rows, space, self.conditions, only), self.limits)

    def changed(self, space: Space) -> tuple[Judged, Mapping[int, str]]:
        """A space of changes, and why some of them have no answer."""
        found = self.quiet()(space)
        refused = {}
        for number in range(len(space.spots)):
            here = found.spot == number
            reasons = [str(error) for error in found.table["error"][here] if error is not None]
            refused[number] = reasons[0].partition(" To fix")[0] if reasons else "it does not fit in memory"
        return found.judged, refused


def _answered(ask: _Ask, max_jobs: int | None) -> tuple[_Answered, int]:
    """All candidates that may keep the limits, timed, and how many others were left out; errors as `plan`."""
    space = ask.space()
    if not space.spots:
        raise ConfigError(_nothing_rented(ask.wanted))
    if max_jobs is not None and (count := space.jobs) > max_jobs:
        raise ConfigError(
            f"{count:,} jobs compete: devices, hosts, numbers and what else has several values. The rule: at "
            f"most {max_jobs:,} of one plan. To fix: name devices, gpus or clouds, or fewer values of fields."
        )
    near, out_of_reach = within_reach(space, ask.timing, ask.limits)
    answered = ask(near) if near.spots else None
    if answered is None or (out_of_reach and not answered.judged.feasible.any()):
        # Nothing keeps the limits: what comes nearest is sought everywhere.
        return ask(space), 0
    return answered, out_of_reach


def _planned(ask: _Ask, answered: _Answered, notes: tuple[str, ...], out_of_reach: int) -> Plan:
    found, request = answered.judged, ask.timing.request
    counts = _counts(answered, out_of_reach)
    if not counts.timed:
        raise ConfigError(_nothing_timed(counts, request))

    def again(scenario: Scenario, only: Outcomes) -> Outcomes:
        return outcomes_of(found.rows, found.space, replace(ask.conditions, scenario=scenario), only)

    choices = choices_of(found)
    first = choices[0] if choices else None
    late = ask.limits.deadline_s is not None
    assumptions, warnings = _remarks(first, notes, found, own=bool(ask.conditions.options.own))
    return Plan(
        model=ask.timing.workload.name,
        length=_length(request, found),
        limits=ask.limits,
        choices=choices,
        front=found.candidates(_front(found)),
        counts=counts,
        miss=None if choices else nearest_miss(found, _beyond(ask) if late else None),
        what_ifs=() if first is None else what_ifs(found, first.candidate, ask.changed),
        break_evens=break_evens(found),
        moves=() if first is None else moves_of(found, first, again),
        unpriced=found.space.unpriced,
        prices=_prices(found),
        assumptions=assumptions,
        warnings=warnings,
        judged=found,
    )


def _refined(ask: _Ask, answered: _Answered, most: int) -> tuple[_Answered, str]:
    """The same with whole searches for layouts, and what was searched."""
    found = answered.judged
    again = partial(ask.judged, found.space)
    better = refined(found, ask.timing, most, again)
    return replace(answered, judged=again(better.rows, found.outcomes)), better.words


def _several(given: str | Sequence[str] | None) -> list[str] | None:
    """Words of a list, or of a text with commas."""
    if given is None:
        return None
    words = given.split(",") if isinstance(given, str) else [str(each) for each in given]
    found = [word.strip() for word in words if word.strip()]
    if not found:
        raise ConfigError(f"{given!r} names nothing. To fix: name one or more, or leave it out.")
    return found


def _offers(given: Any, own: Custom) -> Sequence[Offer] | None:
    names = [device.name for device in own.devices.values()]
    return read_prices(Path(given), own=names).offers if isinstance(given, str | Path) else given


def _asked(model: Any, options: Mapping[str, Any]) -> tuple[dict[str, list[Any]], Request]:
    """The values of every field, and the request with the first of each."""
    options = {ALIASES.get(name, name): value for name, value in options.items() if value is not None}
    if isinstance(model, Request):
        lengths = {*RUN_LENGTHS} if options.keys() & {*RUN_LENGTHS} else set()
        own = {name: value for name, value in model.given().items() if name not in lengths}
        given = {name: value for name, value in {**own, **options}.items() if name not in _OF_THE_PLAN}
    else:
        given = {"model": model, **options}
    unknown = sorted({*given} & _OF_THE_PLAN)
    if unknown:
        raise ConfigError(
            f"{', '.join(unknown)} is what a plan chooses. To fix: devices, gpus and max_gpus say what "
            "competes."
        )
    axes = {name: values for name, values in axes_of(given).items() if values != [None]}
    for name, values in axes.items():
        if None in values:
            raise ConfigError(
                f"{name}={shown(values)} holds null among values that compete. To fix: leave it out, or name "
                "the value that it stands for."
            )
    return axes, Request.of({name: values[0] for name, values in axes.items()})


def _stack(request: Request, workload: Workload) -> Stack:
    """The software, as far as the request says it before a device is chosen."""
    device = get_device(request.device or defaults()["devices"]["names"][-1])
    return stack_of(request, workload.family, device, Diagnostics())


def _check_length(request: Request, axes: Mapping[str, Sequence[Any]]) -> None:
    """Refuse a run of no stated length, and steps of batches that differ.

    Raises:
        ConfigError: In both cases.
    """
    stated = [name for name in RUN_LENGTHS if getattr(request, name) is not None]
    if not stated:
        raise ConfigError(
            "How long the run is, is not given, and time, money and carbon grow with it. To fix: --tokens "
            "300B, --epochs 90 or --steps 100000."
        )
    batches = math.prod(len(axes.get(name, [0])) for name in ("global_batch_size", "global_batch_tokens"))
    differ = batches > 1 or (
        "batch_size" in axes and not {"global_batch_size", "global_batch_tokens"} & {*axes}
    )
    if stated == ["steps"] and differ:
        raise ConfigError(
            "steps= of batches that differ is not the same training, so that the smallest batch would win. "
            "To fix: tokens= or epochs=, or one global_batch_size."
        )


def _nothing_rented(wanted: Wanted) -> str:
    where = [
        f"{name} {', '.join(values)}"
        for name, values in (("clouds", wanted.clouds), ("regions", wanted.regions))
        if values
    ]
    markets = ", ".join(market.value for market in wanted.markets)
    number = f"{min(wanted.gpus)} x " if wanted.gpus else ""
    joined = "" if wanted.any_network else ", or any_network=true: hosts of an unknown network are joined"
    return (
        f"Nobody in the list of prices rents {number}{', '.join(wanted.devices)} ({markets})"
        f"{' in ' if where else ''}{' and '.join(where)}. To fix: other devices, clouds, regions or markets"
        f"{joined if wanted.gpus else ''}."
    )


def _nothing_timed(counts: PlanCounts, request: Request) -> str:
    if counts.unfit and not counts.refused:
        return (
            f"{request.model} fits in the memory of none of the {counts.unfit} combinations of devices. To "
            "fix: more devices (max_gpus), larger ones, or a narrower precision."
        )
    return (
        f"None of the {counts.asked} combinations can be timed; {counts.unfit} do not fit in memory. The "
        f"most frequent reason: {next(iter(counts.reasons), '')}"
    )


def _counts(answered: _Answered, out_of_reach: int) -> PlanCounts:
    table, found = answered.table, answered.judged
    errors = [str(error) for error in table["error"].tolist() if error is not None]
    return PlanCounts(
        asked=len(table["job"]) + out_of_reach,
        out_of_reach=out_of_reach,
        refused=len(errors),
        unfit=table["fits"].tolist().count(False),
        timed=len(found.rows),
        candidates=len(found.outcomes),
        feasible=int(found.feasible.sum()),
        reasons=dict(Counter(errors).most_common(_MOST_REASONS)),
    )


def _front(found: Judged) -> Ints:
    """The front from the soonest done on; of candidates that differ in nothing that counts, the first."""
    numbers = np.flatnonzero(found.front)
    keys = np.stack([found.outcomes.time_s[numbers], np.nan_to_num(found.outcomes.usd[numbers], nan=np.inf),
                     np.nan_to_num(found.outcomes.carbon_g[numbers], nan=np.inf)], axis=1)  # fmt: skip
    return numbers[np.unique(keys, axis=0, return_index=True)[1]]


def _beyond(ask: _Ask) -> Judged | None:
    """The devices that came closest, with more of them than are allowed."""
    most = ask.wanted.max_gpus
    wanted = replace(ask.wanted, gpus=tuple(most * times for times in _BEYOND), max_gpus=most * _BEYOND[-1])
    space, _ = within_reach(ask.space(wanted), ask.timing, ask.limits)
    if not space.spots:
        return None
    try:
        return ask.quiet()(space).judged
    except PrecisionTimeError:
        return None


def _length(request: Request, found: Judged) -> str:
    samples = found.rows.samples
    said = {"tokens": "{:,.0f} tokens", "epochs": "{:g} epochs", "steps": "{:,} steps"}
    given = {name: getattr(request, name) for name in said}
    words = next(said[key].format(n).rstrip("s" * (n == 1)) for key, n in given.items() if n)
    alike = samples.max() <= 1.1 * samples.min()
    of = f"of {_between(samples / found.rows.steps)} samples" if alike else "of different batches"
    return f"{words}, {_between(found.rows.steps)} steps {of}"


def _between(values: Floats) -> str:
    low, high = f"{values.min():,.0f}", f"{values.max():,.0f}"
    return low if low == high else f"{low} to {high}"


def _prices(found: Judged) -> tuple[str, ...]:
    dates: dict[str, set[str]] = {}
    for offer in found.space.offers:
        if offer.cloud == OWN:
            return ()
        age = offer.age_words(date.today())
        dates.setdefault(offer.cloud, set()).add(f"{offer.date} ({age})" if age else offer.date)
    return tuple(f"{cloud} {', '.join(sorted(dates[cloud]))}" for cloud in sorted(dates))


_MONEY = (
    "Money is the rent of whole hosts from start to end; storage and egress are not in it (`precision-time "
    "run` counts the storage of checkpoints)."
)
_ELECTRICITY = (
    "Money is the electricity of your own devices and their host; what buying them costs is not in it."
)


def _remarks(
    first: Choice | None, notes: Sequence[str], found: Judged, *, own: bool
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """What was assumed of the candidates and of the choice, and what to act on."""
    assumed = [*notes, *found.space.notes, _ELECTRICITY if own else _MONEY]
    if found.space.unpriced:
        assumed.append(
            f"No price in the list for {', '.join(found.space.unpriced)}: not guessed; it competes in time "
            "alone."
        )
    if first is None:
        return tuple(assumed), ()
    answer = predict(Request.of(first.candidate.request))
    told = [item for item in answer.diagnostics if item.code not in _SAID_BY_THE_PLAN]
    return (*assumed, *texts_of(told, Severity.ASSUMPTION)), texts_of(told, Severity.WARNING)
