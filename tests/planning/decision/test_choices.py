"""The choices against an exhaustive search that shares no code with them, and what is said of them."""

import math
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from precision_time import predict_time
from precision_time.hardware.catalog import get_device
from precision_time.planning.decision import api, outcomes, timing
from precision_time.planning.decision.candidate import carbon, duration, money
from precision_time.planning.decision.choose import choices_of, judged
from precision_time.planning.decision.limits import Limits
from precision_time.planning.energy.energy import pue_of, run_energy
from precision_time.planning.energy.grid import intensity
from precision_time.planning.run.duration import Work
from precision_time.planning.run.settings import checkpoint_bytes
from precision_time.request.request import Request

DEVICES = ("T4", "A100-SXM4-40GB", "H100-SXM5-80GB")
KEYS = {"cheapest": "usd", "fastest": "time_s", "greenest": "carbon_g"}


@pytest.fixture(scope="module")
def exhaustive(offered, on_demand):
    """Every candidate on demand, one by one: an answer, a run, a bill."""
    rows, timed = [], on_demand().rows
    columns = (timed.table[name] for name in ("device", "gpus", "nodes"))
    ties = dict(zip(zip(*columns, strict=True), timed.longer, strict=True))
    for offer in offered:
        largest = max(
            each.devices_per_instance
            for each in offered
            if (each.cloud, each.device) == (offer.cloud, offer.device)
        )
        joined = offer.node_type is not None and offer.devices_per_instance == largest
        for hosts in [count for count in (1, 2, 4, 8, 16) if count * offer.devices_per_instance <= 16]:
            if hosts > 1 and not joined:
                continue
            gpus = hosts * offer.devices_per_instance
            node = {} if offer.node_type is None else {"node_type": offer.node_type.name}
            asked = {
                "device": offer.device, "gpus": gpus, "nodes": hosts, "global_batch_size": 256, "epochs": 30
            }  # fmt: skip
            step = predict_time("resnet50", **asked, **node)
            size = checkpoint_bytes(Request(model="resnet50", **asked, **node).resolve())
            work = Work(
                step_s=step.step_time_s, low_s=step.interval.low_s, high_s=step.interval.high_s,
                steps=step.total_steps, devices=gpus, checkpoint_bytes=size, hosts=hosts,
            )  # fmt: skip
            terms = work.expected_s()
            time_s = sum(float(seconds) for seconds in terms.values())
            busy_s = sum(float(terms[name]) for name in ("warm_up", "steps", "evaluation", "lost_work"))
            try:
                grid = intensity(offer.region, cloud=offer.cloud)
            except ValueError:
                grid = None
            energy = run_energy(
                device=get_device(offer.device), devices=gpus, busy_s=busy_s, waiting_s=time_s - busy_s,
                terms=step.terms, pue=pue_of(offer.cloud, offer.region), intensity=grid,
            )  # fmt: skip
            rows.append({
                "offer": (offer.instance_type, offer.region, gpus),
                "time_s": time_s,
                "usd": hosts * offer.usd_per_hour * time_s / 3600.0,
                "carbon_g": math.nan if energy.carbon_g is None else float(energy.carbon_g),
                "chance": lambda within, work=work, longer=ties[offer.device, gpus, hosts]: float(
                    work.probability_within(within / longer)
                ),
            })  # fmt: skip
    return lambda: rows


@pytest.fixture(scope="module")
def on_demand(planned):
    found = planned(devices=DEVICES).judged
    return lambda: found


@settings(max_examples=8, deadline=None)
@given(
    hours=st.one_of(st.none(), st.floats(2.0, 300.0)),
    usd=st.one_of(st.none(), st.floats(30.0, 600.0)),
    confidence=st.sampled_from([0.5, 0.9]),
)
def test_the_choices_are_those_of_an_exhaustive_search(exhaustive, on_demand, hours, usd, confidence):
    limits = Limits(deadline_s=hours and 3600.0 * hours, budget_usd=usd, confidence=confidence)
    space, rows = on_demand().space, on_demand().rows
    asked = outcomes.Conditions(deadline_s=limits.deadline_s, confidence=confidence)
    evaluated = outcomes.outcomes_of(rows, space, asked)
    choices = {each.aim: each.candidate for each in choices_of(judged(space, rows, evaluated, limits))}
    kept = [
        row for row in exhaustive()
        if (usd is None or row["usd"] <= usd) and (hours is None or row["chance"](3600.0 * hours) >=
    confidence) ]  # fmt: skip
    assert len(evaluated) == len(exhaustive())
    for aim, key in KEYS.items():
        known = [row for row in kept if math.isfinite(row[key])]
        assert (aim in choices) is bool(known)
        if known:
            best = min(known, key=lambda row: row[key])
            # Hosts without a type of node have as many cores as usual, which feed some scenarios otherwise.
            assert getattr(choices[aim], key) == pytest.approx(best[key], rel=0.02)
            if sum(row[key] <= best[key] * 1.02 for row in known) == 1:
                chosen = choices[aim]
                assert (chosen.instance_type, chosen.region, chosen.gpus) == best["offer"]


def test_what_a_bound_leaves_out_and_shared_layouts_change_no_choice(planned, monkeypatch):
    asked = {
        "model": "gpt2-xl", "devices": DEVICES, "max_gpus": 8, "tokens": "100M", "deadline": "3h", "budget":
        200, "epochs": None, "global_batch_size": 64, "workers": 1,
    }  # fmt: skip
    pruned = planned(**asked)
    monkeypatch.setattr(api, "within_reach", lambda space, *_: (space, 0))
    monkeypatch.setattr(timing, "_LARGE_PARAMS", math.inf)  # a layout of its own for every row
    whole = planned(**asked)
    assert pruned.counts.out_of_reach > 0 == whole.counts.out_of_reach
    assert [each.candidate for each in pruned.choices] == [each.candidate for each in whole.choices]


def test_the_request_of_a_candidate_has_its_time(planned):
    asked = {"model": "gpt2-xl", "epochs": None, "tokens": "100M", "global_batch_size": 64, "workers": 1}
    found = planned(**asked, devices="T4", max_gpus=16, deadline="30d")  # two networks, one layout
    for each in found.front:
        assert predict_time(Request.of(each.request)).step_time_s == pytest.approx(
            each.step_time_s, rel=1e-12
        )


def test_no_row_is_faster_than_the_bound(found):
    rows, space = found.judged.rows, found.judged.space
    asked = Request(model="resnet50", epochs=30, global_batch_size=256)
    times = timing.Timing(
        request=asked, workload=asked.resolve().workload, workers=1, ray=None, progress=None
    )
    for number, spot in enumerate(space.spots):
        own = rows.spot == number
        if own.any():
            bound_s = timing.least_seconds(spot, times)
            assert 0.0 < bound_s <= (rows.table["step_time_s"][own] * rows.steps[own]).min()


def test_offers_that_are_left_out_of_many_are_never_chosen(found, monkeypatch):
    space, rows, limits = found.judged.space, found.judged.rows, found.limits
    monkeypatch.setattr(outcomes, "_MANY", 0)
    asked = outcomes.Conditions(deadline_s=limits.deadline_s, confidence=limits.confidence)
    fewer = outcomes.outcomes_of(rows, space, asked)
    assert len(fewer) < len(found.judged.outcomes)
    again = choices_of(judged(space, rows, fewer, limits))
    assert [each.candidate for each in again] == [each.candidate for each in found.choices]


def test_near_ties_draw_the_best_up_and_the_worst_down_and_leave_a_lone_one() -> None:
    excess = outcomes.excess_by_ties(np.array([0.0, 0.1, 5.0]), 0.1)
    least = 0.2 * math.exp(-1.0) / (1.0 + math.exp(-1.0))
    assert excess == pytest.approx([least, -least, 0.0])
    assert outcomes.excess_by_ties(np.array([0.0, 0.1, 0.1]), 0.1)[0] > excess[0]
    assert outcomes.excess_by_ties(np.array([0.0, 0.1]), 0.0).tolist() == [0.0, 0.0]
    many = np.random.default_rng(0).uniform(0.0, 3.0, 2000)
    assert outcomes.excess_by_ties(many, 0.1)[::9] == pytest.approx(
        [outcomes.excess_by_ties(np.array([each, *many]), 0.1)[0] for each in many[::9]], abs=0.01
    )


@pytest.mark.parametrize("options", [3, 10, 100])
def test_the_chance_of_the_chosen_is_kept_where_errors_are_as_said(options: int) -> None:
    rng, own, shared = np.random.default_rng(1), 0.11, 0.13
    said, drawn = [], []
    for _ in range(2000):
        true = rng.uniform(0.0, 1.0, options)
        predicted = true + rng.normal(0.0, own, options) + rng.normal(0.0, shared)
        best = int(np.argmin(predicted))
        said.append(true[best] - predicted[best])
        drawn.append(outcomes.excess_by_ties(predicted, own)[best])
    late = 1.2816 * math.hypot(own, shared)
    before, after = np.mean(np.array(said) <= late), np.mean(np.array(said) - drawn <= late)
    assert abs(np.mean(said) - np.mean(drawn)) < 0.5 * np.mean(said)
    assert abs(after - 0.9) < abs(before - 0.9)


def test_terms_add_up_and_probabilities_grow_with_the_deadline(found):
    rows, space, all_ = found.judged.rows, found.judged.space, found.judged.outcomes
    assert sum(all_.terms_s.values()) == pytest.approx(all_.time_s)
    asked = [outcomes.Conditions(deadline_s=3600.0 * hours) for hours in (1, 5, 20, 100, 1000)]
    chances = [outcomes.outcomes_of(rows, space, each).probability for each in asked]
    assert all(((each >= 0.0) & (each <= 1.0)).all() for each in chances)
    assert all((a <= b + 1e-9).all() for a, b in zip(chances, chances[1:], strict=False))
    at = outcomes.outcomes_of(rows, space, outcomes.Conditions(deadline_s=float(all_.sure_s[3])))
    assert at.probability[3] == pytest.approx(0.9, abs=1e-3)


def test_every_choice_keeps_the_limits_and_feasible_ones_come_first(found):
    columns, limits = found.columns(), found.limits
    feasible = columns["feasible"]
    assert feasible == sorted(feasible, reverse=True) and 0 < sum(feasible) < len(feasible)
    usd = [value for value, keeps in zip(columns["usd"], feasible, strict=True) if keeps]
    assert usd == sorted(usd)
    for each in found.choices:
        best = each.candidate
        assert best.feasible and best.usd <= limits.budget_usd and best.sure_s <= limits.deadline_s
        assert best.probability >= limits.confidence
    front = [each for each, keeps in zip(columns["on_front"], feasible, strict=True) if not keeps]
    assert not any(front)


def test_reasons_say_the_figures_of_the_rows(found):
    cheapest, fastest, greenest = (found.choice(aim) for aim in ("cheapest", "fastest", "greenest"))
    best, other = cheapest.candidate, cheapest.runner_up
    assert best.usd == pytest.approx(best.usd_per_hour * best.time_s / 3600.0)
    for text in (money(best.usd), duration(best.time_s), best.place, money(best.usd_per_hour), other.label,
                 money(other.usd), f"{other.usd / best.usd - 1.0:+.0%}"):  # fmt: skip
        assert text in cheapest.reason
    hours, price = other.device_hours / best.device_hours, other.usd_per_hour / other.gpus
    assert hours * price / (best.usd_per_hour / best.gpus) == pytest.approx(other.usd / best.usd)
    assert duration(fastest.candidate.time_s) in fastest.reason
    assert carbon(greenest.candidate.carbon_g) in greenest.reason
    assert f"{sum(found.columns()['feasible']):,}" in fastest.reason


def test_what_ifs_change_one_thing(found):
    best, asked = found.best, {each.question.split(" (")[0]: each for each in found.what_ifs}
    wider = asked["one precision higher"].candidate
    assert (wider.device, wider.gpus, wider.region) == (best.device, best.gpus, best.region)
    assert wider.precision != best.precision and money(wider.usd) in asked["one precision higher"].answer
    more = asked["one more node"].candidate
    assert more.instances == best.instances + 1 and more.precision == best.precision


def test_break_evens_are_the_cheapest_devices_along_each_axis(found):
    by_count, by_deadline = found.break_evens
    all_ = found.judged.outcomes
    device = found.judged.rows.table["device"][all_.row]
    for each in by_count.stretches:
        for gpus in sorted({*all_.gpus.tolist()}):
            if each.start <= gpus <= each.end:
                here = np.flatnonzero((all_.gpus == gpus) & np.isfinite(all_.usd))
                assert device[here[np.argmin(all_.usd[here])]] == each.device
    for each, seconds in product(by_deadline.stretches, (all_.sure_s * 1.0001).tolist()):
        if each.start <= seconds < (each.end or math.inf):
            here = np.flatnonzero((all_.sure_s <= seconds) & np.isfinite(all_.usd))
            assert device[here[np.argmin(all_.usd[here])]] == each.device


def test_moves_are_recomputed(found, planned):
    by_name = {move.name: move for move in found.moves}
    price = by_name["price"]
    assert price.usd_change == pytest.approx(0.2) and price.time_change == 0.0
    # Where the carbon of the cheapest one's grid is not known, nothing is said of it.
    known = found.choice("cheapest").candidate.carbon_g is not None
    assert by_name["power"].carbon_change == (pytest.approx(0.2) if known else None)
    of_a_known_grid = planned(deadline="500h", devices="A100-SXM4-80GB,T4")
    assert of_a_known_grid.choice("cheapest").candidate.carbon_g is not None
    assert {each.name: each for each in of_a_known_grid.moves}["power"].carbon_change == pytest.approx(0.2)
    assert 0.15 < by_name["step_time"].time_change <= 0.21


def test_a_device_without_a_price_competes_in_time_alone(planned, found):
    assert found.unpriced == ("L40S",)
    assert any("L40S" in line and "not guessed" in line for line in found.assumptions)
    columns = found.columns()
    prices = {usd for usd, device in zip(columns["usd"], columns["device"], strict=True) if device == "L40S"}
    assert prices == {None}
    free = planned(devices="L40S,T4", deadline="500h")
    assert {each.aim: each.candidate.device for each in free.choices}["fastest"] == "L40S"
    assert free.choice("cheapest").candidate.device == "T4"
