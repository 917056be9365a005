"""Advice: its rows are the predictor's, its choice keeps its own rule, every fact has a source."""

from __future__ import annotations

import json
import math

import pytest

from precision_time import Request, predict_time
from precision_time.cli.main import main
from precision_time.errors import ConfigError
from precision_time.planning.precisions.advice import advise_precisions
from precision_time.planning.precisions.risk import (
    facts_of,
    number_type,
    risk_of,
    standing,
)
from precision_time.planning.run.api import predict_run
from precision_time.precision.catalog import known_precisions
from precision_time.precision.policy import DType

JOB = {"model": "bert-large", "device": "H100-SXM5-80GB", "gpus": 8, "batch_size": 32, "steps": 10_000}
SOME = ("tf32", "bf16-mixed", "fp8-mixed", "bf16")


def test_rows_are_what_predict_and_run_say() -> None:
    advice = advise_precisions(Request.of(JOB), precisions=SOME)
    assert {row.precision for row in advice.rows} == set(SOME)
    for row in advice.rows:
        alone = predict_time(**JOB, precision=row.precision)
        assert row.prediction.step_time_s == pytest.approx(alone.step_time_s, rel=1e-12)
        assert row.prediction.memory_bytes_per_device == alone.memory_bytes_per_device
        run = predict_run(Request.of(JOB | {"precision": row.precision}))
        assert row.run_time_s == pytest.approx(run.total_s, rel=1e-12)
        assert row.cost_usd == run.cost_usd
        assert row.energy_kwh == run.energy_kwh
    assert len([note for note in advice.notes if note.startswith("Cost: ")]) == 1


@pytest.mark.parametrize("budget", [0.0, 0.0025, 1.0])
def test_what_is_recommended_fits_and_keeps_the_budget(budget: float) -> None:
    advice = advise_precisions(Request.of(JOB), risk_budget=budget)
    taken = advice[advice.recommended]
    assert taken.fits
    assert taken.risk is not None
    assert taken.risk.counted <= budget
    assert taken.risk.other_recipe is None
    allowed = [
        row
        for row in advice.rows
        if row.fits and row.risk and row.risk.counted <= budget and row.risk.other_recipe is None
    ]
    assert taken.prediction.step_time_s <= 1.05 * min(row.prediction.step_time_s for row in allowed)
    assert json.loads(json.dumps(advice.to_dict(), allow_nan=False))["recommended"] == advice.recommended


def test_where_nothing_fits_it_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["precisions", "advise", "llama3-70b", "-d", "A100", "-b", "1", "-p", "bf16-mixed,fp32"])
    assert stopped.value.code == 3
    assert "Nothing fits" in capsys.readouterr().out


def test_every_policy_has_a_standing_and_every_fact_a_source() -> None:
    workload = Request(model="resnet50").resolve().workload
    for name in known_precisions():
        assert standing(name) != "unknown"
        assert all(fact.source and fact.kind in {"need", "failure", "evidence"} for fact in facts_of(name))
        risk = risk_of(workload, name)
        assert risk is None or (risk.source and risk.counted >= 0.0)


@pytest.mark.parametrize("dtype", list(DType))
def test_ranges_follow_from_the_bits(dtype: DType) -> None:
    """The smallest normal number of E exponent bits is 2^(2 - 2^(E - 1))."""
    kind = number_type(dtype)
    if kind.exponent_bits:
        smallest = math.ldexp(1.0, 2 - 2 ** (kind.exponent_bits - 1))
        assert kind.smallest_normal == pytest.approx(smallest, rel=0.01)


def test_the_bare_command_still_lists_and_says_in_full(capsys: pytest.CaptureFixture[str]) -> None:
    for words, expected in ((["precisions"], "bf16-mixed"), (["precisions", "O2"], "loss_scaling: dynamic")):
        with pytest.raises(SystemExit):
            main(words)
        assert expected in capsys.readouterr().out


def test_a_budget_that_cannot_be_says_why() -> None:
    with pytest.raises(ConfigError, match="0 to 1"):
        advise_precisions(Request.of(JOB), risk_budget="200%")


def test_what_rests_on_research_alone_is_not_recommended() -> None:
    some = ("bf16-mixed", "fp8-mixed", "nvfp4-mixed")
    job = {"device": "B200", "gpus": 64, "zero_stage": 3, "batch_size": 1}
    advice = advise_precisions("llama3-8b", precisions=some, risk_budget=1.0, **job)
    assert advice.rows[0].precision == "nvfp4-mixed"
    assert advice.recommended == "bf16-mixed"
    assert any("nvfp4-mixed" in change and "research" in change for change in advice.changes)


def test_a_recipe_is_not_taken_on_the_evidence_of_another() -> None:
    """DeepSeek-V3's gap is of blockwise scaling: of delayed scaling it is shown, and said to be another's."""
    job = {"device": "H100-SXM5-80GB", "gpus": 64, "zero_stage": 3, "batch_size": 1}
    advice = advise_precisions("llama3-8b", precisions=("bf16-mixed", "fp8-mixed"), **job)
    delayed = advice["fp8-mixed"]
    assert advice.rows[0] is delayed and delayed.fits
    assert delayed.recipe == "delayed"
    assert delayed.risk is not None and delayed.risk.other_recipe == "blockwise"
    assert advice.recommended == "bf16-mixed"
    assert any("was found with blockwise scaling" in change for change in advice.changes)
    workload = Request(model="llama3-8b").resolve().workload
    own = risk_of(workload, "fp8-mixed", recipe="blockwise")
    assert own is not None and own.other_recipe is None
