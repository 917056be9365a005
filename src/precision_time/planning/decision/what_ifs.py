"""What if: a node more or less, a precision lower or higher, another device, another market."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

import numpy as np

from ...hardware.catalog import Custom
from ...precision.support import supported_precisions
from ...records import dataclass
from ..money.offer import Market
from .candidate import Candidate, carbon, duration, money
from .choose import Judged
from .space import UNPRICED, Space, Spot, defaults, near_batch

_PERCENT = 0.005


@dataclass(frozen=True, kw_only=True, slots=True)
class WhatIf:
    """What one change of a choice would do."""

    question: str
    candidate: Candidate | None
    """None where there is no such run."""
    answer: str


Evaluate = Callable[[Space], tuple[Judged, Mapping[int, str]]]
"""Answers a space; with the reasons of spots that have no answer."""


def what_ifs(found: Judged, best: Candidate, evaluate: Evaluate) -> tuple[WhatIf, ...]:
    """The changes of a choice that can be made, each alone."""
    spot, offer = _spot_of(found, best)
    if spot is None:
        return ()
    asked = [*_changed(found, spot, best, offer)]
    markets = tuple(dict.fromkeys((*found.space.markets, *Market)))
    space = replace(found.space, spots=tuple(each for _, each in asked), markets=markets)
    judged, refused = evaluate(space)
    answers = []
    for number, (question, each) in enumerate(asked):
        market = question if question in (*Market,) else best.market
        candidate = _best_of(judged, number, market)
        if candidate is None and question in (*Market,):
            continue  # the offer has no price there
        words = f"on the {question} market" if question in (*Market,) else question
        reason = refused.get(number, "it has no answer") if candidate is None else ""
        answers.append(
            WhatIf(question=words, candidate=candidate, answer=reason or _compared(best, candidate, each))
        )
    return (*answers, *_other_devices(found, best))


def _spot_of(found: Judged, best: Candidate) -> tuple[Spot | None, int]:
    for each in found.space.spots:
        for number in each.offers:
            rented = None if number == UNPRICED else found.space.offers[number]
            same = rented is None or (rented.cloud, rented.instance_type, rented.region) == (
                best.cloud,
                best.instance_type,
                best.region,
            )
            if same and (each.device, each.gpus, each.instances) == (
                best.device,
                best.gpus,
                best.instances,
            ):
                return each, number
    return None, UNPRICED


def _changed(found: Judged, spot: Spot, best: Candidate, offer: int) -> Iterator[tuple[str, Spot]]:
    """Each question with the spot that answers it, which has the offer of the choice alone."""
    alone = replace(spot, offers=(offer,))
    ladder = precision_neighbors(best.precision, best.device, found.space.own)
    per_host = max(best.gpus // best.instances, 1)
    # A layout that was found for the choice is not that of another number or precision.
    asked = {name: best.request[name] for name in spot.fields if name in best.request}
    for words, instances in (("one more node", best.instances + 1), ("one node less", best.instances - 1)):
        if instances < 1:
            continue
        gpus = instances * per_host
        fields = {**asked, "gpus": gpus, "nodes": instances}
        over = ""
        if instances > 1 and not {"node_type", "inter_node"} & {*fields} and offer != UNPRICED:
            fields["inter_node"] = defaults()["network"]["assumed"]
            over = f" (network not known, {fields['inter_node']})"
        if fields.get("global_batch_size"):
            fields["global_batch_size"] = near_batch(int(fields["global_batch_size"]), gpus)
        yield words + over, replace(alone, instances=instances, gpus=gpus, fields=fields)
    for words, precision in ladder.items():
        fields = {**asked, "precision": precision}
        yield f"{words} ({precision})", replace(alone, fields=fields)
    for market in Market:
        if market.value != best.market and offer != UNPRICED:
            yield market.value, replace(alone, fields=dict(best.request))


def precision_neighbors(precision: str, device: str, own: Custom | None = None) -> dict[str, str]:
    """The next narrower and wider precision that a device has units for, by what to call the step.

    >>> precision_neighbors("bf16-mixed", "H100-SXM5-80GB")
    {'one precision lower': 'fp8-mixed', 'one precision higher': 'tf32'}
    """
    rows = defaults()["precisions"]
    able = set(supported_precisions((own or Custom()).device(device)))
    ladder = [name for name in rows["ladder"] if name in able or name == rows["equal"].get(precision)]
    here = rows["equal"].get(precision, precision)
    if here not in ladder:
        return {}
    at = ladder.index(here)
    found = {}
    if at + 1 < len(ladder):
        found["one precision lower"] = ladder[at + 1]
    if at:
        found["one precision higher"] = ladder[at - 1]
    return found


def _best_of(found: Judged, spot: int, market: str) -> Candidate | None:
    """The cheapest candidate of a spot in a market."""
    outcomes = found.outcomes
    own = found.rows.spot[outcomes.row] == spot
    numbers = [place for place, each in enumerate(found.space.markets) if each.value == market]
    if numbers and not (outcomes.offer[own] == UNPRICED).all():
        own &= outcomes.market == numbers[0]
    order = found.order("cheapest", own)
    return found.candidate(order[0]) if len(order) else None


def _other_devices(found: Judged, best: Candidate) -> Iterator[WhatIf]:
    """The next faster and the next slower device at the same number, each as cheap as it is rented."""
    outcomes, table = found.outcomes, found.rows.table
    devices = table["device"][outcomes.row]
    same = (outcomes.gpus == best.gpus) & np.isfinite(outcomes.time_s)
    fastest: list[tuple[float, str]] = []
    for device in dict.fromkeys(devices[same].tolist()):
        fastest.append((float(outcomes.time_s[same & (devices == device)].min()), device))
    names = [device for _, device in sorted(fastest)]
    if best.device not in names:
        return
    at = names.index(best.device)
    for words, place in (("one device type up", at - 1), ("one device type down", at + 1)):
        if 0 <= place < len(names):
            order = found.order("cheapest", same & (devices == names[place]))
            other = found.candidate(order[0])
            yield WhatIf(
                question=f"{words} ({names[place]}{'' if other.on_measured_device else ', unmeasured'})",
                candidate=other,
                answer=_compared(best, other, None),
            )


def _compared(best: Candidate, other: Candidate | None, spot: Spot | None) -> str:
    """Time, money and carbon of a change beside those of the choice."""
    assert other is not None
    parts = [f"{duration(other.time_s)}{_moved(other.time_s, best.time_s)}"]
    if other.usd is not None:
        parts.append(f"{money(other.usd)}{_moved(other.usd, best.usd)}")
    if other.carbon_g is not None:
        parts.append(f"{carbon(other.carbon_g)}{_moved(other.carbon_g, best.carbon_g)}")
    if other.probability is not None:
        parts.append(f"in time with {chance(other.probability)}")
    if spot is not None and other.global_batch_size != best.global_batch_size:
        parts.append(f"at a global batch of {other.global_batch_size:,.0f}")
    return ", ".join(parts) + ("" if other.feasible or not best.feasible else "; breaks a limit")


def _moved(new: float, old: float | None) -> str:
    if old is None or not old > 0.0 or not np.isfinite(new / old):
        return ""
    change = new / old - 1.0
    return " (the same)" if abs(change) < _PERCENT else f" ({change:+.0%})"


def chance(probability: float) -> str:
    """A probability in whole percent, whose ends are not certain.

    >>> chance(0.999), chance(0.5), chance(0.0)
    ('over 99%', '50%', 'under 1%')
    """
    if probability > 0.99:  # noqa: PLR2004
        return "over 99%"
    return "under 1%" if probability < 0.01 else f"{probability:.0%}"  # noqa: PLR2004
