"""Many requests at once: the answers of `predict`, comparisons between them, and tables of them."""

from __future__ import annotations

import json
import pickle
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from precision_time import Request, predict_many, sweep
from precision_time.errors import ConfigError, MissingExtraError, PrecisionTimeError, UnknownNameError
from precision_time.precision.policy import DType
from precision_time.predict.api import predict
from precision_time.predict.page import blocks_of
from precision_time.predict.predictions import Predictions
from precision_time.predict.remarks import is_measured_in
from precision_time.predict.table import columns_of, rows_of, sorted_rows, write_plot
from precision_time.render.terminal import text_of_blocks
from precision_time.request.files import read_requests
from precision_time.request.sweep import combinations_of

questions = st.fixed_dictionaries(
    {
        "model": st.sampled_from(["resnet50", "bert-base", "gpt2"]),
        "device": st.sampled_from(["A100-SXM4-80GB", "V100-SXM2-16GB", "L40S"]),
        "gpus": st.sampled_from([1, 8, 24, 64]),
        "precision": st.sampled_from(["fp32", "fp16-mixed", "fp8-mixed"]),
    },
    optional={
        "batch_size": st.integers(1, 100),
        "global_batch_size": st.sampled_from([64, 192]),
        "zero_stage": st.sampled_from([0, 3]),
        "coverage": st.sampled_from([0.5, 0.9]),
        "input_rate": st.sampled_from([100.0, 1e9]),
        "steps": st.just(7),
        "anchors": st.just([{"gpus": 1, "batch_size": 4, "step_time_s": 1.0}]),
    },
)


@settings(max_examples=8)
@given(st.lists(questions, min_size=1, max_size=8))
def test_many_at_once_are_answered_as_each_alone(asked: list[dict]) -> None:
    for fields, answer in zip(asked, predict_many(asked).answers, strict=True):
        try:
            alone = predict(Request.of(fields))
        except PrecisionTimeError as error:
            assert answer.reason == str(error)
            continue
        assert answer.step_time_s == pytest.approx(alone.step_time_s, rel=1e-12)
        assert answer.interval.low_s == pytest.approx(alone.interval.low_s, rel=1e-12)
        assert answer.interval.high_s == pytest.approx(alone.interval.high_s, rel=1e-12)
        assert answer.terms == pytest.approx(dict(alone.terms), rel=1e-9, abs=1e-12)
        assert answer.memory_terms == alone.memory_terms
        assert answer.diagnostics == alone.diagnostics
        assert [run.source_ref for run in answer.nearest_measurements] == [
            run.source_ref for run in alone.nearest_measurements
        ]
        assert answer.request == alone.request


def test_answers_of_several_calibrations_are_rows_of_one_table() -> None:
    """Equal requests share a row, what was refused stands in its place, and words are those of each alone."""
    plain, anchored = {"model": "resnet50", "gpus": 8}, {"model": "resnet50", "gpus": 8, "anchors": _ANCHORS}
    asked = [plain, {"model": "nosuch"}, anchored, plain, {**anchored, "gpus": 4}]
    found = predict_many(asked)
    rows = [each for each in found.order if isinstance(each, int)]
    assert len(found) == 4 and len(found.jobs) == 3 == len({*rows}) and rows[0] == rows[2]
    assert found.skipped[0].reason.startswith("Unknown model 'nosuch'") and found.order[1] is found.skipped[0]
    for row, answer, fields in zip(rows, found, [each for each in asked if each != asked[1]], strict=True):
        assert found.figures["step_time_s"][row] == answer.step_time_s
        assert answer == predict(Request.of(fields))
    assert "Conditioned on 1 measured step" in str(found[1].remarks) and found[0] != found[1]
    for again in (
        pickle.loads(pickle.dumps(found)),
        Predictions.from_dict(json.loads(json.dumps(found.to_dict()))),
    ):
        assert again == found and again.to_dict() == found.to_dict() and not again.figures


_ANCHORS = [{"gpus": 1, "batch_size": 64, "step_time_s": 0.21}]


def test_a_sweep_leaves_out_what_cannot_be_and_refuses_what_is_unknown() -> None:
    found = sweep("resnet50", device=["V100-SXM2-16GB", "H100-SXM5-80GB"], precision="bf16-mixed, fp8-mixed")
    assert [(answer.device, answer.precision) for answer in found] == [
        ("V100-SXM2-16GB", "bf16-mixed"),
        ("H100-SXM5-80GB", "bf16-mixed"),
        ("H100-SXM5-80GB", "fp8-mixed"),
    ]
    assert {left.request["device"] for left in found.skipped} == {"V100-SXM2-16GB"}
    assert found.varied == ("device", "precision")
    with pytest.raises(UnknownNameError):
        sweep("resnet50", device=["V100", "V100000"])
    with pytest.raises(ConfigError, match="cannot compute"):
        sweep("resnet50", device="V100", gpus=[1, 2], precision="fp8-mixed")


def test_without_a_batch_all_counts_of_devices_are_compared_at_the_same() -> None:
    found = sweep("gpt2-xl", device="A100-SXM4-40GB", gpus=[8, 64], precision=["fp32", "bf16"], zero_stage=3)
    assert len({answer.batch_size for answer in found}) == 1
    assert any("in every case" in line for line in found[0].assumptions)


def test_speed_up_and_scaling() -> None:
    weak = rows_of(sweep("bert-base", gpus=[16, 8, 64], batch_size=8, precision=["fp32", "bf16-mixed"]))
    assert [row.speed_up for row in weak][0] == 1.0
    assert {row.scaling for row in weak} == {"weak"}
    assert [row.efficiency for row in weak if row.answer.gpus == 8] == [1.0, 1.0]
    strong = sweep("bert-base", gpus=[8, 16], global_batch_size=256, precision=["fp32", "bf16-mixed"])
    rows = rows_of(strong, baseline={"precision": "fp32"})
    assert {row.scaling for row in rows} == {"strong"}
    for row in rows:
        assert (row.speed_up == 1.0) == (row.answer.precision == "fp32")
    eight, sixteen = (row for row in rows if row.answer.precision == "fp32")
    assert sixteen.efficiency == pytest.approx(eight.answer.step_time_s / (2.0 * sixteen.answer.step_time_s))
    rates = [row.answer.throughput for row in sorted_rows(rows, "throughput")]
    assert rates == sorted(rates, reverse=True)


def test_columns_and_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    found = predict_many([{"model": "resnet50", "gpus": 8}, {"model": "resnet50", "gpus": 0}])
    columns = found.columns()
    assert columns == columns_of(rows_of(found))
    assert {len(values) for values in columns.values()} == {2}
    assert columns["gpus"] == [8, 0]
    assert columns["step_time_s"] == [found[0].step_time_s, None]
    assert columns["error"][0] is None and "gpus" in columns["error"][1]
    frame = found.to_frame()
    assert list(frame.columns) == list(columns)
    assert frame["step_time_s"][0] == found[0].step_time_s
    monkeypatch.setitem(sys.modules, "polars", None)
    with pytest.raises(MissingExtraError, match="polars"):
        found.to_frame("polars")


def test_one_shape_of_json() -> None:
    for asked in ([{"model": "resnet50"}], [{"model": "resnet50"}, {"model": "no-such"}]):
        document = json.loads(json.dumps(predict_many(asked).to_dict()))
        assert document.keys() == {"predictions", "skipped"}
        assert [each["request"] for each in document["predictions"]] == [{"model": "resnet50"}]
        assert all(each.keys() == {"number", "request", "reason"} for each in document["skipped"])


def test_lists_in_a_job_file_ask_for_every_combination(tmp_path: Path) -> None:
    path = tmp_path / "jobs.yaml"
    path.write_text(
        "gpus: [8, 16]\nchannels_last: [true, false]\nrank_order: [tp, cp, dp, pp]\njobs:\n"
        "- {model: resnet50, batch_size: 16..64}\n- {model: vgg16, batch_size: 8}\n"
    )
    requests = read_requests(path)
    assert [request.model for request in requests] == ["resnet50"] * 12 + ["vgg16"] * 4
    assert {request.rank_order for request in requests} == {"tp,cp,dp,pp"}
    assert len({json.dumps(request.to_dict()) for request in requests}) == 16


def test_combinations_keep_single_requests_as_they_are() -> None:
    fields = {"model": "resnet50", "num_devices": 8, "layout": {"tp": 2}, "sizes": {"a": [1, 2]}, "task": ""}
    assert combinations_of(fields) == [Request.of(fields)]


def test_a_plot_has_a_line_for_each_job(tmp_path: Path) -> None:
    found = sweep("bert-base", gpus="8..64", batch_size=8, precision=["fp32", "bf16-mixed"])
    write_plot(found, tmp_path / "sweep.svg")
    text = (tmp_path / "sweep.svg").read_text()
    assert all(word in text for word in ("fp32", "bf16-mixed", "devices", "90% interval", "step time [s]"))
    write_plot(found, tmp_path / "sweep.png")
    assert (tmp_path / "sweep.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(ConfigError, match="--gpus"):
        write_plot(Predictions.of(found.answers[:1]), tmp_path / "one.svg")


def test_nearest_runs_do_not_depend_on_what_else_is_asked() -> None:
    alone = sweep("vit_base_patch16_224", device="H100-SXM5-80GB", gpus=[1], batch_size=[1], precision="tf32")
    together = sweep(
        "vit_base_patch16_224", device="H100-SXM5-80GB", gpus=[1, 8, 64], batch_size="1..64", precision="tf32"
    )
    assert together[0].nearest_measurements == alone[0].nearest_measurements


def test_devices_that_nobody_measured_are_ranked_apart_and_named_with_the_doubt() -> None:
    found = sweep("llama3-8b", device=["A100-SXM4-80GB", "H200-SXM-141GB", "Gaudi3", "TPUv5p"], gpus=8)
    measured = [not answer.unmeasured for answer in found.predictions]
    assert measured == [True, True, False, False]
    ranked = sorted_rows(rows_of(found), "throughput")
    assert [not row.answer.unmeasured for row in ranked] == [True, True, False, False]
    for pair in (ranked[:2], ranked[2:]):
        assert pair[0].answer.throughput >= pair[1].answer.throughput
    text = " ".join(str(found).split())
    assert text.startswith("Most throughput: llama3-8b on 8 x H200-SXM-141GB")
    promised = max(found.predictions, key=lambda answer: answer.throughput)
    more = "More by its data sheet alone, no measured run on such a device: 8 x Gaudi3"
    assert (more in text) == (promised.device == "Gaudi3")
    assert "Gaudi3 (unmeasured)" in text
    assert "H200-SXM-141GB (unmeasured)" not in text
    alone = " ".join(str(sweep("llama3-8b", device=["Gaudi3", "TPUv5p"], gpus=8)).split())
    assert alone.startswith("Most throughput by its data sheet alone, no measured run on such a device: ")


def test_a_precision_that_nobody_measured_in_such_a_model_is_never_the_fastest() -> None:
    """int8 and fp8 were measured in language models and diffusion; in convolutional networks nowhere."""
    given = {"device": "A100", "batch_size": 128, "precision": ["bf16-mixed", "int8-mixed"]}
    found = predict_many([{"model": "resnet50", **given, "precision": each} for each in given["precision"]])
    measured, promised = found
    assert promised.throughput > measured.throughput
    assert not measured.unmeasured and "unmeasured-precision" in {item.code for item in promised.diagnostics}
    text = " ".join(str(sweep("resnet50", **{**given, "batch_size": [64, 128]})).split())
    assert text.startswith("Most throughput: resnet50 on 1 x A100-SXM4-80GB, bf16-mixed")
    assert "More by the peak of its units alone, no measured run of such a model in this precision: " in text
    assert "int8-mixed (unmeasured)" in text
    page = " ".join(text_of_blocks(blocks_of([measured, promised])).split())
    assert page.startswith("Fastest: bf16-mixed.") and "x (unmeasured)" in page


@pytest.mark.parametrize(
    ("family", "narrow", "measured"),
    [
        ("cnn", "fp8", False),
        ("transformer-encoder", "fp8", True),
        ("transformer-encoder", "int8", False),
        ("moe", "fp4", True),
        ("diffusion", "int8", True),
    ],
)
def test_what_was_measured_in_a_narrow_type(family: str, narrow: str, measured: bool) -> None:
    assert is_measured_in(family, DType(narrow)) is measured
