"""A device that nobody measured is never the choice while a measured one keeps the limits."""

from dataclasses import replace

import pytest

DEVICES = ("A100-SXM4-40GB", "H100-SXM5-80GB", "Gaudi3")
"""Of the last no run is in the corpus."""
SAID = "no measured run on such a device"


@pytest.fixture(scope="module")
def promised(planned, offered):
    """A plan in which a data sheet wins by its price."""
    cheap = replace(offered[0], instance_type="gaudi", device="Gaudi3", usd_per_hour=0.8)
    return planned(devices=DEVICES, prices=(*offered, cheap))


def test_the_choices_rest_on_measured_devices_and_the_promise_stands_beside_them(promised) -> None:
    cheapest = promised.choice("cheapest")
    assert not any(choice.candidate.unmeasured for choice in promised.choices)
    assert cheapest.unmeasured.device == "Gaudi3"
    assert cheapest.unmeasured.usd < cheapest.candidate.usd
    best = min(
        each for each, device in zip(promised.columns()["usd"], promised.columns()["device"], strict=True)
        if device != "Gaudi3" and each is not None
    )  # fmt: skip
    assert cheapest.candidate.usd == pytest.approx(best, rel=1e-12)
    assert {each.device for even in promised.break_evens for each in even.stretches} <= {*DEVICES[:2]}


def test_every_line_that_names_it_best_says_the_doubt(promised) -> None:
    lines = str(promised).replace("\n", " ").split("  ")
    [beside] = [line for line in lines if line.strip().startswith("Cheapest by its data sheet alone")]
    assert SAID in beside
    assert "Gaudi3 (unmeasured)" in str(promised)


def test_alone_it_is_chosen_with_the_doubt(planned) -> None:
    alone = planned(devices=("Gaudi3",), prices=())
    assert alone.best.device == "Gaudi3"
    assert all(choice.unmeasured is None for choice in alone.choices)
    assert f"Fastest by its data sheet alone, {SAID}: " in " ".join(str(alone).split())


def test_where_it_would_not_win_nothing_is_said(planned, offered) -> None:
    dear = replace(offered[0], instance_type="gaudi", device="Gaudi3", usd_per_hour=8000.0)
    assert planned(devices=DEVICES, prices=(*offered, dear)).choice("cheapest").unmeasured is None


def test_a_choice_like_no_measured_run_stands_beside_the_best_that_is_like_one(planned) -> None:
    """ResNet was never measured on Blackwell: language models were."""
    plan = planned(devices=("B200-SXM-180GB", "A100-SXM4-80GB"))
    for choice in plan.choices:
        beyond = "extrapolation" in choice.candidate.warnings
        assert (
            "No measured run is like it" in choice.reason or "No candidate is like" in choice.reason
        ) == beyond
    assert any("extrapolation" in choice.candidate.warnings for choice in plan.choices)
    page = str(plan)
    marked = [each for each in plan.front if "extrapolation" in each.warnings]
    assert f"{marked[0].gpus} x {marked[0].device} *" in page and "(* no measured run is like it)" in page
