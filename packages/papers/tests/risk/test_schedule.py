"""Trainings whose precision changes on the way: what stays, what changes when, and what is said of them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from risk_study.plan import Training, load_risk_plan
from risk_study.schedule import Phase, load_study, loss_at_end, train_schedule
from risk_study.training import train
from schedule_training import FILE, FOUND, gap_of, page_lines, phases_of

PLAN = load_risk_plan(str(Path(__file__).with_name("risk.toml")))
MODEL = PLAN.model["tiny"]
FP4 = "nvfp4-mixed/no-hadamard"


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def trained(*phases: Phase) -> tuple[float, ...]:
    return train_schedule(MODEL, phases, seed=0, evaluations=MODEL.steps).losses


def test_a_constant_precision_is_the_training_of_the_campaign_of_risks() -> None:
    for recipe in ("fp32", FP4):
        losses = trained(Phase(end=1.0, recipe=recipe, layers={}))
        of_campaign = train(Training(model="tiny", recipe=recipe, group="all", seed=0), PLAN)
        tenth = MODEL.steps / 10 / PLAN.evaluations
        places = [MODEL.steps - round(tenth * number) for number in range(PLAN.evaluations)]
        assert sum(losses[place - 1] for place in places) / len(places) == pytest.approx(of_campaign.loss)


def test_layers_change_when_their_phase_begins_and_others_do_not() -> None:
    fp32 = trained(Phase(end=1.0, recipe="fp32", layers={}))
    late = trained(
        Phase(end=0.5, recipe="fp32", layers={}), Phase(end=1.0, recipe="fp32", layers={"linear1": FP4})
    )
    half = round(0.5 * MODEL.steps)
    assert late[:half] == fp32[:half]
    assert late[half:] != fp32[half:]
    assert trained(Phase(end=1.0, recipe="fp32", layers={"no-such-layer": FP4})) == fp32


def test_the_loss_is_that_of_the_last_tenth() -> None:
    assert loss_at_end([10, 90, 95, 100], [9.0, 8.0, 2.0, 4.0]) == 3.0


def test_gaps_are_paired_by_seed() -> None:
    trainings = [
        {"precision": name, "seed": seed, "loss": loss}
        for seed, pair in enumerate(((1.0, 1.01), (2.0, 2.02), (4.0, 4.04)))
        for name, loss in zip(("fp32", FOUND), pair, strict=True)
    ]
    gap = gap_of(trainings, FOUND, "fp32")
    assert gap.mean == pytest.approx(0.01)
    assert gap.error == pytest.approx(0.0, abs=1e-9)


def test_the_stored_trainings_are_those_of_the_study() -> None:
    study, stored = load_study(), json.loads(FILE.read_text(encoding="utf-8"))
    wanted = {(name, seed) for name in (*study.constant, FOUND) for seed in range(study.seeds)}
    assert {(item["precision"], item["seed"]) for item in stored["trainings"]} == wanted
    assert stored["trained"]["model"] == study.model.model_dump(mode="json")
    for item in stored["trainings"]:
        assert item["loss"] == pytest.approx(loss_at_end(item["steps"], item["losses"]), abs=2e-6)
    phases: list[Any] = phases_of(study, FOUND, stored["found"])
    assert phases[-1].end == 1.0
    assert len({tuple(phase.layers) for phase in phases}) == len(phases) > 1, "it changes on the way"
    for phase in phases:
        assert set(phase.layers.values()) <= {study.narrow}


def test_the_page_says_what_is_stored() -> None:
    stored, text = json.loads(FILE.read_text(encoding="utf-8")), "\n".join(page_lines())
    assert f"{stored['found']['saved_share']:.1%} of the predicted time" in text
    assert str(gap_of(stored["trainings"], FOUND, "fp32")) in text
    assert "prove nothing" in text
