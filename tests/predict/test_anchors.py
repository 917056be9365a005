"""Measured steps that come with a request: one at a time, several, refused ones."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from precision_time import predict_time
from precision_time.errors import ConfigError
from precision_time.predict.anchors import least_step_time_s
from precision_time.predict.compare import compare_precisions
from precision_time.predict.prediction import Prediction
from precision_time.request.files import read_requests
from precision_time.request.request import Request
from precision_time.testing.jobs import own_job_s

JOB: dict[str, Any] = {
    "model": "resnet50",
    "device": "A100-SXM4-80GB",
    "gpus": 8,
    "batch_size": 128,
    "precision": "bf16-mixed",
}
PLAIN = predict_time(**JOB)


def asked(*anchors: Any, **changes: Any) -> Prediction:
    return predict_time(**{**JOB, **changes}, anchors=list(anchors))


def width(prediction: Prediction) -> float:
    return math.log(prediction.interval.high_s / prediction.interval.low_s)


def test_no_anchor_changes_nothing() -> None:
    plain = predict_time(**JOB)
    assert asked() == plain


def test_an_exact_anchor_is_converged_to_and_the_interval_narrows() -> None:
    measured = {"step_time_s": 1.4 * PLAIN.step_time_s}
    answers = [asked(*[measured] * count) for count in (1, 3, 10)]
    errors = [abs(answer.step_time_s / measured["step_time_s"] - 1.0) for answer in answers]
    before = 1.0 - PLAIN.step_time_s / measured["step_time_s"]
    assert errors == sorted(errors, reverse=True) and errors[0] < before / 2.0 and errors[-1] < 0.02
    widths = [width(answer) for answer in (PLAIN, *answers)]
    assert widths == sorted(widths, reverse=True)
    assert any("Conditioned on 3 measured steps" in line for line in answers[1].assumptions)


@pytest.mark.parametrize("factor", [0.8, 1.5, 3.0])
@pytest.mark.parametrize("changes", [{}, {"gpus": 64, "batch_size": 32}, {"precision": "tf32"}])
def test_terms_add_up(factor: float, changes: dict[str, Any]) -> None:
    answer = asked({"gpus": 1, "step_time_s": factor * PLAIN.step_time_s}, **changes)
    assert math.fsum(answer.terms.values()) == pytest.approx(answer.step_time_s, rel=1e-12)
    assert all(seconds > 0.0 for seconds in answer.terms.values())
    assert answer.interval.low_s < answer.step_time_s < answer.interval.high_s


def test_the_answer_does_not_depend_on_the_coverage() -> None:
    point = {"gpus": 1, "step_time_s": 0.2}
    assert asked(point, coverage=0.5).step_time_s == asked(point, coverage=0.95).step_time_s


def test_a_job_far_from_the_point_is_moved_less() -> None:
    point = {**JOB, "step_time_s": 1.4 * PLAIN.step_time_s}

    def factor(**changes: Any) -> float:
        return asked(point, **changes).step_time_s / own_job_s(**{**JOB, **changes})

    own, devices, precision = factor(), factor(gpus=16), factor(precision="fp32")
    other = factor(device="V100-SXM2-16GB", precision="fp32", model="bert-large", batch_size=4)
    assert own > 0.98 * devices and devices > 1.1
    assert own > 0.98 * precision and precision > other > 0.99  # of one device, precisions err alike


def test_samples_per_second_and_step_time_say_the_same() -> None:
    by_time, by_rate = {"gpus": 1, "step_time_s": 0.2}, {"gpus": 1, "samples_per_s": 128 / 0.2}
    assert asked(by_time).step_time_s == pytest.approx(asked(by_rate).step_time_s, rel=1e-12)


@pytest.mark.parametrize(
    "anchor",
    ["gpus=1,step_time_s=0.2", "gpus=1 step=0.2s", "gpus=1, step=200ms", {"gpus": 1, "step": "0.2s"}],
)
def test_an_anchor_is_read_with_units_and_spaces(anchor: Any) -> None:
    assert Request.of({**JOB, "anchors": [anchor]}).anchors == [{"gpus": 1, "step_time_s": 0.2}]


def test_an_anchor_in_json_may_have_words_with_spaces() -> None:
    (anchor,) = Request.of({**JOB, "anchors": ['{"model": "a b=c", "step_time_s": 0.2}']}).anchors
    assert anchor == {"model": "a b=c", "step_time_s": 0.2}


def test_files_and_words_bring_the_same_anchors(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text("model: resnet50\nanchors:\n- gpus: 1\n  step_time_s: 0.2\n", encoding="utf-8")
    (filed,) = read_requests(path)
    assert filed == Request.of({"model": "resnet50", "anchors": ["gpus=1,step_time_s=0.2"]})


def test_an_anchor_ran_the_software_that_is_assumed_of_the_question() -> None:
    many = {"model": "llama3-8b", "device": "H100-SXM5-80GB", "gpus": 512, "anchors": ["gpus=8 step=1.2s"]}
    open_ = predict_time(**many)
    assert open_.stack != predict_time(**{**many, "gpus": 8, "anchors": []}).stack
    assert open_.step_time_s == pytest.approx(predict_time(**many, stack=open_.stack).step_time_s)


def test_faster_than_the_roofline_is_refused_with_the_bound() -> None:
    bound_s = least_step_time_s(Request.of(JOB).resolve())
    assert bound_s < PLAIN.step_time_s
    asked({"step_time_s": 1.01 * bound_s})
    with pytest.raises(ConfigError, match="faster than the roofline") as refused:
        asked({"step_time_s": 0.99 * bound_s})
    assert f"{bound_s:.4g} s" in str(refused.value)


def test_anchors_that_contradict_each_other_are_refused() -> None:
    once, twice = {"step_time_s": 0.1}, {"step_time_s": 0.2}
    with pytest.raises(ConfigError, match=r"took 2 x as long; repeats differ by at most 1\.42 x"):
        asked(once, twice)
    with pytest.raises(ConfigError, match="differ by 2 x the batch alone"):
        asked({"batch_size": 64, "step_time_s": 0.2}, {"batch_size": 128, "step_time_s": 0.1})
    asked(once, {**twice, "precision": "fp32"})


def test_several_precisions_ask_each_anchor_for_its_own() -> None:
    with pytest.raises(ConfigError, match="does not say at which precision"):
        compare_precisions(
            precisions=["fp32", "tf32"], **{**JOB, "precision": None}, anchors=["step_time_s=1"]
        )
    found = compare_precisions(
        **{name: value for name, value in JOB.items() if name != "precision"},
        precisions=["fp32", "tf32"],
        anchors=["precision=fp32,step_time_s=0.9"],
    )
    assert len(found.predictions) == 2


@pytest.mark.parametrize(
    ("anchor", "words"),
    [
        ("gpus=1", "must state one of step_time_s and samples_per_s"),
        ("step_time_s=1,samples_per_s=2", "must state one of"),
        ("step_time_s=fast", "must be a number above 0"),
        ("step_time_s=0s", "must be a number above 0"),
        ("samples_per_s=2s", "must be a number above 0"),
        ("gpu=1,step_time_s=1", "unknown field 'gpu'. Did you mean gpus"),
        ("gpus=0,step_time_s=1", "anchor gpus=0,step_time_s=1.0: gpus=0 is invalid"),
        ("fast", "is not NAME=VALUE"),
    ],
)
def test_faults_are_told(anchor: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        asked(anchor)
