"""Every field of a job is given, assumed or derived, and the job says which."""

from __future__ import annotations

from typing import Any

import pytest

from precision_time.diagnostics import FIELDS, Severity
from precision_time.request.request import Request
from precision_time.request.schema import RequestFields

LLAMA = {"model": "llama3-8b", "device": "H100-SXM5-80GB", "gpus": 16, "batch_size": 1, "seq_len": 4096}
NO_FIELDS = {"layout", "cluster", "method-price"}
"""What assumptions are about that is no single field of a request."""


@pytest.mark.parametrize(
    ("given", "field", "kind", "text"),
    [
        ({}, "gpus", "given", ""),
        ({}, "model", "given", ""),
        ({}, "zero_stage", "assumed", "Plain data parallelism does not fit: full sharding"),
        ({"zero_stage": 3}, "zero_stage", "given", ""),
        ({"dp_replicate": 2}, "zero_stage", "assumed", "zero_stage=3 assumed, for dp_replicate."),
        ({"dp_replicate": 2}, "dp_replicate", "given", ""),
        ({}, "tp", "derived", ""),
        ({}, "nodes", "derived", ""),
        ({}, "precision", "assumed", "Precision not given: bf16-mixed assumed, as usual on H100"),
        ({"precision": "bf16"}, "precision", "given", "bf16"),
        ({}, "stack", "assumed", "Software not given: "),
        ({"stack": "trl"}, "stack", "given", "trl read as "),
        ({"stack": "pytorch-llm"}, "stack", "given", ""),
        ({"batch_size": None}, "batch_size", "assumed", "Batch size not given: "),
        ({"global_batch_size": 64}, "num_microbatches", "assumed", "4 micro batches accumulated"),
        ({"device": None}, "device", "assumed", "Device not given: "),
        (
            {"adapter": "lora", "dataset": "alpaca", "seq_len": None},
            "seq_len",
            "assumed",
            "tokens a sample",
        ),
        (
            {"adapter": "lora", "dataset": "alpaca", "seq_len": None},
            "mean_seq_len",
            "assumed",
            "Lengths: ",
        ),
    ],
)
def test_where_a_field_comes_from(given: dict[str, Any], field: str, kind: str, text: str) -> None:
    origin = Request.of({**LLAMA, **given}).resolve().origin[field]
    assert origin.kind == kind
    assert text in origin.text and bool(origin.text) is (kind == "assumed" or bool(text))


def test_a_chosen_layout_is_assumed_in_every_field_that_was_searched() -> None:
    job = Request.of({**LLAMA, "model": "llama3-70b", "zero_stage": None, "gpus": 64}).resolve()
    assert job.layout_chosen and job.origin["layout"].text.startswith("Layout not given: ")
    assert job.origin["tp"] == job.origin["recompute"] == job.origin["layout"]
    assert job.origin["batch_size"].kind == "given"
    assert not Request.of(LLAMA).resolve().layout_chosen


@pytest.mark.parametrize(
    "asked",
    [
        LLAMA,
        {"model": "resnet50"},
        {"model": "llama3-70b", "device": "H100", "gpus": 64},
        {"model": "bert-base", "gpus": 4, "stack": "hf-trainer", "device": "V100"},
        {"model": "llama3-8b", "method": "grpo", "gpus": 8, "device": "H100"},
        {"model": "llama3-8b", "adapter": "qlora", "dataset": "alpaca", "device": "A100"},
        {"model": "llama3-8b", "device": "A100", "gpus": 8, "global_batch_tokens": "1M", "epochs": 1},
    ],
)
def test_every_assumption_is_the_origin_of_what_it_is_about(asked: dict[str, Any]) -> None:
    job = Request.of(asked).resolve()
    assumed = [item for item in job.diagnostics if item.severity is Severity.ASSUMPTION]
    assert assumed
    for item in assumed:
        about = FIELDS.get(item.code, item.code)
        assert about in RequestFields.model_fields.keys() | NO_FIELDS
        assert item.text in job.origin[about].text
    assert {name for name in RequestFields.model_fields if job.origin[name].kind == "given"} == asked.keys()
