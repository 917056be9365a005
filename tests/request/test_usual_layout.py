"""Layouts of requests that do not say one: usual, fitting, said in words that ask for them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from precision_time.cost.job import Job, Jobs
from precision_time.cost.memory import memory_of, total_bytes
from precision_time.errors import LayoutError
from precision_time.request.practice import practice, scenarios
from precision_time.request.question import question_of
from precision_time.request.request import Request
from precision_time.request.schema import LAYOUT_OPTIONS
from published_runs import famous_runs

LARGE: dict[str, dict[str, Any]] = {
    "more samples than fit": {"model": "llama2-70b", "gpus": 64, "global_batch_size": 512, "seq_len": 4096},
    "fewer samples than devices": {"model": "llama3-70b", "gpus": 256, "global_batch_size": 64},
    "no batch": {"model": "llama3.1-405b", "device": "H100-SXM5-80GB", "gpus": 1024},
    "long samples": {"model": "llama3-8b", "gpus": 64, "global_batch_size": 16, "seq_len": 131072},
    "experts": {"model": "mixtral-8x22b", "device": "H100-SXM5-80GB", "gpus": 64, "global_batch_size": 256},
    "a batch of a device": {"model": "llama3-70b", "gpus": 128, "batch_size": 2},
    "one device": {"model": "gpt2", "device": "T4", "global_batch_size": 480},
    "images": {"model": "resnet50", "device": "T4", "gpus": 4, "global_batch_size": 8192},
}


@pytest.mark.parametrize(
    ("asked", "stage"),
    [
        ({"stack": "megatron"}, 1),
        ({"stack": "megatron", "software": 2022.5}, 0),
        ({"stack": "megatron", "zero_stage": 0}, 0),
        ({"stack": "megatron", "pp": 2, "num_microbatches": 4}, 1),
        ({"stack": "torchtitan"}, 3),
        ({"stack": "torchtitan", "pp": 2, "num_microbatches": 4}, 1),
        ({"stack": "megatron", "gpus": 2}, 0),
        ({"stack": "megatron", "model": "resnet50"}, 0),
        ({}, 0),
    ],
)
def test_a_named_stack_shards_language_models_as_it_does(asked: dict[str, Any], stage: int) -> None:
    plain = {"model": "llama3.2-1b", "gpus": 8, "batch_size": 1, "seq_len": 1024}
    if "model" not in asked:
        plain["tp"] = 2
    else:
        del plain["seq_len"]
    job = Request.of({**plain, **asked}).resolve()
    assert job.layout.zero_stage == stage
    said = [each.text for each in job.diagnostics if each.code == "default-sharding"]
    assert bool(said) is (stage > 0)


def chosen(job: Job) -> str:
    texts = [each.text for each in job.diagnostics if each.code == "default-layout"]
    return texts[0] if texts else ""


def fits(job: Job) -> bool:
    return bool((total_bytes(memory_of(Jobs.at(job))) <= job.cluster.device.memory_bytes).all())


@pytest.mark.parametrize("asked", LARGE.values(), ids=LARGE)
def test_what_does_not_fit_plainly_gets_a_usual_layout(
    parsed: Callable[[Sequence[str]], Request], asked: dict[str, Any]
) -> None:
    job = Request.of(asked).resolve()
    assert fits(job)
    words = chosen(job).removeprefix("Layout not given: ").partition(" assumed")[0].split()
    options = [f"--{name.replace('_', '-')}={value}" for name, value in asked.items() if name != "model"]
    if "batch_size" in asked:
        options = [option for option in options if not option.startswith("--batch-size")]
    typed = parsed([asked["model"], *options, *words]).resolve()
    assert typed.layout == job.layout
    assert typed.precision == job.precision
    if "global_batch_size" in asked:
        assert job.layout.global_batch_size == asked["global_batch_size"]


@pytest.mark.parametrize(
    "asked",
    [
        {"model": "gpt2", "gpus": 8},
        {"model": "resnet50", "gpus": 8, "batch_size": 256},
        {"model": "llama2-7b", "gpus": 64, "global_batch_size": 64, "seq_len": 2048},
        {"model": "llama3-70b", "gpus": 64, "batch_size": 8, "tp": 8},
    ],
)
def test_what_fits_or_says_its_layout_is_left_alone(asked: dict[str, Any]) -> None:
    job = Request.of(asked).resolve()
    assert chosen(job) == ""
    assert job.layout.tp == asked.get("tp", 1) and job.layout.num_microbatches == 1


def test_a_global_batch_of_a_stated_pipeline_is_cut_up() -> None:
    asked = {"model": "llama3-8b", "gpus": 16, "tp": 2, "pp": 4, "global_batch_size": 64, "seq_len": 4096}
    layout = Request.of(asked).resolve().layout
    assert (layout.tp, layout.pp, layout.global_batch_size) == (2, 4, 64)
    assert layout.num_microbatches >= layout.pp


def test_a_batch_that_no_layout_divides_is_still_refused() -> None:
    with pytest.raises(LayoutError, match="does not divide"):
        Request.of({"model": "resnet50", "gpus": 8, "global_batch_size": 4}).resolve()


def test_stages_need_be_no_power_of_two() -> None:
    # BLOOM: 2,048 samples over 384 devices, which only stages share the factor 3 of.
    layout = Request.of({"model": "bloom", "gpus": 384, "global_batch_size": 2048}).resolve().layout
    assert layout.pp % 3 == 0
    assert layout.global_batch_size == 2048


def test_context_ranks_are_assumed_where_people_have_them() -> None:
    long = {"model": "llama3.1-405b", "device": "H100-SXM5-80GB", "gpus": 1024, "seq_len": 8192}
    assert Request.of(long).resolve().layout.cp > 1
    assert Request.of({**long, "seq_len": 4096}).resolve().layout.cp == 1
    # PyTorch's own trainers shard and recompute.
    assert Request.of({"model": "llama3-70b", "device": "H100", "gpus": 64}).resolve().layout.cp == 1


NOT_SAID = [
    words
    for run in famous_runs()
    if run.kind in ("llm-large", "llm-moe") and run.steps
    for words in run.typed
    if not any(f"--{name.replace('_', '-')} " in f"{words} " for name in LAYOUT_OPTIONS)
]


@pytest.mark.parametrize("words", NOT_SAID)
def test_published_runs_fit(parsed: Callable[[Sequence[str]], Request], words: str) -> None:
    assert fits(parsed(words.split()).resolve())


@pytest.mark.parametrize(
    "batch", [{"batch_size": 2048}, {"global_batch_size": 65536}], ids=["device", "step"]
)
def test_a_recommender_that_does_not_fit_is_not_sharded(batch: dict[str, int]) -> None:
    """Its tables lie on different devices; gathered for every step they took a hundred times as long."""
    request = Request.of({"model": "synthetic-recsys-medium", "device": "A100", "gpus": 32, **batch})
    job = request.resolve()
    assert not fits(job) and job.layout.zero_stage == 0
    question = question_of(request, job.workload, job.cluster)
    assert not any(each.fields.get("zero_stage") for each in scenarios(practice(question)))
