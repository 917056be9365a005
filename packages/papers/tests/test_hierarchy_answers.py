"""`--predictor hierarchical`: the paper's three stages answer through every door, and say so."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import precision_time
from precision_time import plugins
from precision_time.cli.main import main
from precision_time.errors import NotFittedError
from precision_time.learn import artifact
from precision_time.learn.novelty import shrinkage
from precision_time.learn.table import job_table
from precision_time.request.request import Request
from precision_time_papers import hierarchy_answers
from precision_time_papers.contract import JobViews
from precision_time_papers.hierarchy_answers import NAME, hierarchical_predictor

JOB: dict[str, Any] = {
    "model": "bert-large",
    "device": "A100-SXM4-80GB",
    "gpus": 16,
    "precision": "fp16-mixed",
    "batch_size": 8,
    "stack": "pytorch-eager",
    "seq_len": 128,
}


def test_the_stages_decide_the_step_and_its_exposed_part() -> None:
    job = Request.of(JOB).resolve()
    table = job_table([job]).select(hierarchical_predictor().names).alone()  # no smaller batches
    stages = hierarchical_predictor().hierarchy
    times = hierarchical_predictor().times(table)
    by_stages = stages.predict(JobViews.of(table, table))
    held = shrinkage(times.distance)  # far from all models less of what was learned is left
    assert times.median_s == pytest.approx(
        table.analytical_s * (by_stages / table.analytical_s) ** held, rel=1e-12
    )
    compute_s, exposed_s = stages.parts(table)
    assert times.exposed_s / times.step_time_s == pytest.approx(exposed_s / (compute_s + exposed_s))
    assert 0.0 < exposed_s[0] != pytest.approx(table.exposed_s[0], rel=1e-3)


def test_an_answer_adds_up_and_says_whose_it_is() -> None:
    ours, theirs = precision_time.predict_time(**JOB), precision_time.predict_time(**JOB, predictor=NAME)
    assert theirs.step_time_s != ours.step_time_s
    assert math.fsum(theirs.terms.values()) == pytest.approx(theirs.step_time_s)
    assert theirs.interval.low_s <= theirs.step_time_s <= theirs.interval.high_s
    assert f"per step, by the predictor {NAME}" in " ".join(str(theirs).split())
    assert any(item.text.startswith(f"Predictor {NAME}: fitted on") for item in theirs.diagnostics)
    mine, known = theirs.nearest_measurements, ours.nearest_measurements
    assert [each.source_ref for each in mine] == [each.source_ref for each in known]
    assert mine[0].predicted_step_time_s != known[0].predicted_step_time_s


def test_every_door_takes_the_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def asked(*words: str) -> float:
        with pytest.raises(SystemExit):
            main(["predict", *words, "--json"])
        (answer,) = json.loads(capsys.readouterr().out)["predictions"]
        return float(answer["step_time_s"])

    expected_s = precision_time.predict_time(**JOB, predictor=NAME).step_time_s
    words = [
        "bert-large",
        "-d",
        "16xA100-SXM4-80GB",
        "-p",
        "fp16-mixed",
        "-b",
        "8",
        "--seq-len",
        "128",
        "--stack",
        "pytorch-eager",
    ]
    assert asked(*words, "--predictor", NAME) == expected_s
    monkeypatch.setenv(artifact.PREDICTOR_VARIABLE, NAME)
    assert asked(*words) == expected_s
    monkeypatch.delenv(artifact.PREDICTOR_VARIABLE)
    (tmp_path / "job.json").write_text(json.dumps({**JOB, "predictor": NAME}))
    assert asked(str(tmp_path / "job.json")) == expected_s
    swept = precision_time.sweep(**{**JOB, "batch_size": [8, 16]}, predictor=NAME)
    assert swept[0].step_time_s == expected_s


def test_it_is_of_the_corpus_that_ships_and_errs_as_its_card_says() -> None:
    card, ours = hierarchical_predictor().model_card, artifact.shipped_card()
    assert (card["corpus"], card["rows"]) == (ours["corpus"], ours["rows"])
    assert card["held_out"].keys() == ours["held_out"].keys()
    assert set(card["settings"]) == {"compute", "communication", "aggregator", "scale"}
    predicted_s = hierarchical_predictor().measurements.predicted_s
    known = ~np.isnan(predicted_s)
    assert known.sum() == card["held_out"]["configuration"]["n"]


def test_one_of_another_corpus_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    theirs = {**artifact.shipped_card(), "corpus": "0" * 16}
    monkeypatch.setattr(hierarchy_answers.json, "loads", lambda _: theirs)
    with pytest.raises(NotFittedError, match=r"fitted on the corpus 0{16}, here is .* To fix: "):
        hierarchical_predictor.__wrapped__()


def test_without_the_papers_one_line_says_what_to_install(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(artifact, "plugins", lambda _: {})
    monkeypatch.setattr(plugins, "plugins", lambda _: {})
    with pytest.raises(SystemExit) as stopped:
        main(["predict", "resnet50", "-d", "A100", "--predictor", NAME])
    assert stopped.value.code == 2
    said = capsys.readouterr().err
    assert "The predictor hierarchical is not installed. To fix: pip install precision-time-papers." in said
