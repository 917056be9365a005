"""One table of n answers says of each what it says alone; words are made when they are read."""

from __future__ import annotations

import math
import pickle
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from precision_time import Prediction, predict_time
from precision_time.cost.job import Jobs
from precision_time.learn.artifact import shipped_predictor
from precision_time.predict.answer import answer
from precision_time.predict.columns import ALL
from precision_time.request.request import Request

_TOO_LARGE = {"model": "llama3-8b", "device": "A100-SXM4-80GB", "precision": "bf16-mixed", "batch_size": 4}
_ASKED: tuple[Mapping[str, Any], ...] = (
    {"model": "resnet50", "device": "V100-SXM2-16GB", "precision": "fp16-mixed", "gpus": 4},
    {
        "model": "resnet50",
        "device": "V100-SXM2-16GB",
        "precision": "fp16-mixed",
        "gpus": 4,
        "input_rate": 500.0,
    },
    {"model": "bert-base-uncased", "device": "H100-SXM5-80GB", "precision": "bf16-mixed", "gpus": 8},
    {"model": "gpt2", "device": "A100-SXM4-80GB", "precision": "tf32", "gpus": 16, "nodes": 2},
    _TOO_LARGE,
)


@settings(max_examples=10, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(_ASKED), st.sampled_from((1, 2, 7, 8, 24, 64))), min_size=2))
def test_every_row_of_a_table_is_the_answer_alone(asked: list[tuple[Mapping[str, Any], int]]) -> None:
    jobs = [Request.of({**fields, "batch_size": size}).resolve() for fields, size in asked]
    together = answer(Jobs.of(jobs), shipped_predictor())
    for row, job in enumerate(jobs):
        alone = answer(Jobs.of([job]), shipped_predictor())
        for name, values in alone.figures.items():
            np.testing.assert_array_equal(together.figures[name][row], values[0], err_msg=name)
        assert together[row].remarks == alone[0].remarks


def test_rows_of_one_group_are_those_of_a_group_each() -> None:
    job = Request.of({**_ASKED[0], "batch_size": 8}).resolve()
    sizes = (8.0, 16.0, 8.0, 48.0)
    group = Jobs.at(job, sizes)
    one = answer(group, shipped_predictor())
    each = answer(Jobs.of([group.row(row) for row in range(len(sizes))]), shipped_predictor())
    assert one.figures.keys() == each.figures.keys()
    for name, values in one.figures.items():
        np.testing.assert_array_equal(values, each.figures[name], err_msg=name)


def test_a_thousand_batches_of_one_group_are_each_the_answer_alone() -> None:
    job = Request.of({**_ASKED[0], "batch_size": 8}).resolve()
    group = Jobs.at(job, np.arange(1.0, 1001.0))
    thousand = answer(group, shipped_predictor())
    for row in (0, 1, 6, 95, 511, 512, 767, 999):
        alone = answer(Jobs.at(job, [group.micro_batch_size[row]]), shipped_predictor())
        for name, values in alone.figures.items():
            np.testing.assert_array_equal(thousand.figures[name][row], values[0], err_msg=name)


def test_every_row_of_a_thousand_different_questions_is_the_answer_alone() -> None:
    sizes = range(1, 1 + 1000 // len(_ASKED))
    jobs = [Request.of({**fields, "batch_size": size}).resolve() for size in sizes for fields in _ASKED]
    assert len(jobs) == 1000
    thousand = answer(Jobs.of(jobs), shipped_predictor())
    alone = [answer(Jobs.of([job]), shipped_predictor()).figures for job in jobs]
    for name, values in thousand.figures.items():
        np.testing.assert_array_equal(values, [each[name][0] for each in alone], err_msg=name)


def test_columns_are_those_that_are_wanted() -> None:
    jobs = Jobs.of([Request.of(_ASKED[2]).resolve()])
    every = answer(jobs, shipped_predictor()).figures
    for left_out, named in (("terms", "terms.gemm_s"), ("memory", "fits"), ("run", "total_steps")):
        fewer = answer(jobs, shipped_predictor(), want=ALL - {left_out}).figures
        assert named in every and named not in fewer
        assert {name: every[name][0] for name in fewer} == pytest.approx(
            {name: values[0] for name, values in fewer.items()}, rel=1e-12, nan_ok=True
        )


def test_terms_of_every_row_add_up_to_its_step() -> None:
    found = answer(Jobs.of([Request.of(fields).resolve() for fields in _ASKED]), shipped_predictor())
    for row in range(len(found)):
        one = found[row]
        assert math.fsum(one.terms.values()) == pytest.approx(one.step_time_s, rel=1e-12)


def test_a_remedy_is_not_asked_for_before_it_is_read() -> None:
    found = predict_time(**_TOO_LARGE)
    assert not found.fits and "remedy" not in vars(found) and found.step_time_s > 0.0
    assert all(item.text != found.remedy for item in found.remarks)
    assert found.diagnostics[-1].text == found.remedy and found.remedy.startswith("To fit: ")
    assert found.warnings[-1] == found.remedy


def test_an_answer_is_the_same_after_a_copy_and_a_round_trip() -> None:
    for copied in (
        pickle.loads(pickle.dumps(predict_time(**_TOO_LARGE))),
        predict_time(**_TOO_LARGE).whole(),
    ):
        found = predict_time(**_TOO_LARGE)
        assert copied == found and copied.remedy == found.remedy
    read = Prediction.from_dict(found.to_dict())
    assert read == found and read.remedy == found.remedy and read.remarks == found.diagnostics
