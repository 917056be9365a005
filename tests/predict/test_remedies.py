"""What is offered in the place of a request that does not fit can be typed, fits, and costs what is said."""

from __future__ import annotations

import re
from typing import Any

import pytest

from precision_time.cli.request_options import requests_in_words
from precision_time.predict.api import predict, predict_time
from precision_time.predict.prediction import Prediction
from precision_time.predict.remedies import memory_of_job, shortfall
from precision_time.request.request import Request
from precision_time.units import GIBI

OFFER = re.compile(
    r"(?:To fit: |; or )(?P<words>.+?) -> (?P<needed>[\d.]+) of (?P<capacity>[\d.]+) GiB, (?P<step_s>[\d.]+) "
)
A100 = {"device": "A100-SXM4-80GB", "precision": "bf16-mixed", "seq_len": 2048}
TOO_LARGE: dict[str, dict[str, Any]] = {
    "replicated": {**A100, "model": "llama3-8b", "gpus": 8, "zero_stage": 0, "batch_size": 1},
    "large batch": {**A100, "model": "llama3-8b", "gpus": 8, "zero_stage": 3, "batch_size": 16},
    "70B": {**A100, "model": "llama2-70b", "gpus": 8, "zero_stage": 1, "batch_size": 4},
    "experts": {**A100, "model": "mixtral-8x7b", "gpus": 8, "zero_stage": 2, "batch_size": 4},
    "adapters": {"model": "llama3-8b-lora", "device": "RTX4090", "recompute": "full"},
    "405B": {**A100, "model": "llama3.1-405b", "gpus": 16},
    "images": {"model": "resnet50", "device": "V100-SXM2-16GB", "precision": "fp32", "batch_size": 1024},
}


def said(answer: Prediction) -> tuple[str, str]:
    first, remedy = [each.text for each in answer.diagnostics if each.code == "memory"]
    return first, remedy


def typed(asked: dict[str, Any], words: str) -> Request:
    """The request with the words of an offer behind those that were typed; the last one of an option wins."""
    options = [f"--{name.replace('_', '-')}={value}" for name, value in asked.items() if name != "model"]
    line = [asked["model"], *options, *words.split()]
    (request,) = requests_in_words(line)
    return request


@pytest.mark.parametrize("asked", TOO_LARGE.values(), ids=TOO_LARGE)
def test_every_offer_can_be_typed_and_fits(asked: dict[str, Any]) -> None:
    answer = predict_time(**asked)
    assert not answer.fits
    offers = list(OFFER.finditer(said(answer)[1]))
    assert offers
    for offer in offers:
        job = typed(asked, offer["words"]).resolve()
        needed = sum(memory_of_job(job).values()) / GIBI
        assert f"{needed:.1f}" == offer["needed"]
        assert needed <= job.cluster.device.memory_bytes / GIBI


def test_an_offer_of_a_method_takes_what_the_whole_method_takes() -> None:
    """Generation and log-probabilities are most of a GRPO step: an offer said that of the update alone."""
    asked = {"model": "qwen2.5-0.5b", "device": "A100-SXM4-80GB", "method": "grpo", "batch_size": 64}
    first = OFFER.search(said(predict_time(**asked))[1])
    assert first is not None
    of_offer = predict(typed(asked, first["words"]))
    assert float(first["step_s"]) == pytest.approx(of_offer.step_time_s, rel=0.05)
    assert of_offer.terms["decode_s"] > 0.1 * of_offer.step_time_s


def test_the_cheapest_offer_comes_first() -> None:
    """Of the changes that keep the devices, the batch and what is trained: the shortest step."""
    asked = TOO_LARGE["large batch"]
    found = {each["words"]: float(each["step_s"]) for each in OFFER.finditer(said(predict_time(**asked))[1])}
    kept = [words for words in found if not words.startswith(("-g ", "-d ")) and not trains_other(words)]
    steps = [found[words] for words in kept]
    assert len(steps) > 2 and steps == sorted(steps)
    assert [*found][: len(kept)] == kept
    # Typed, an offer is a question of its own, and its answer the middle of what that leaves open.
    for words, step_s in zip(kept, steps, strict=True):
        assert predict(typed(asked, words)).step_time_s == pytest.approx(step_s, rel=0.25)


def trains_other(words: str) -> bool:
    return "--adapter" in words or "--seq-len" in words


MORE = {
    "experts, nothing stated": {"model": "mixtral-8x7b", "device": "A100", "gpus": 8, "seq_len": 2048},
    "one card": {"model": "llama3-8b", "device": "RTX4090", "seq_len": 2048},
    "trainer": {"model": "llama3-8b", "device": "A100", "stack": "hf-trainer"},
}


@pytest.mark.parametrize("asked", [*TOO_LARGE.values(), *MORE.values()], ids=[*TOO_LARGE, *MORE])
def test_what_is_trained_changes_last_and_the_samples_per_step_never(asked: dict[str, Any]) -> None:
    job = Request.of(asked).resolve()
    offers = [each["words"] for each in OFFER.finditer(said(predict_time(**asked))[1])]
    assert len(offers) == len({*offers})
    other = [trains_other(words) for words in offers]
    assert other == sorted(other)
    seen = []
    for words in offers:
        changed = typed(asked, words).resolve()
        scale = changed.cluster.num_devices / job.cluster.num_devices
        if "global_batch_size" not in asked:
            assert changed.layout.global_batch_size == job.layout.global_batch_size * scale
        seen.append(
            (
                changed.layout,
                changed.cluster.device.name,
                changed.workload.name,
                sum(memory_of_job(changed).values()),
            )
        )
    assert all(one not in seen[place + 1 :] for place, one in enumerate(seen))


@pytest.mark.parametrize("asked", MORE.values(), ids=MORE)
def test_more_devices_that_are_slower_are_not_offered(asked: dict[str, Any]) -> None:
    offers = [each["words"] for each in OFFER.finditer(said(predict_time(**asked))[1])]
    answers = [predict(typed(asked, words)) for words in offers if not trains_other(words)]
    for one in answers:
        for other in answers:
            if one.device == other.device and one.gpus > other.gpus:
                assert one.throughput > other.throughput


def test_the_same_chip_with_more_memory_is_offered_and_no_more_devices_than_hold_it() -> None:
    remedy = said(predict_time("llama3-8b", device="V100-SXM2-16GB", gpus=8))[1]
    offers = [match["words"] for match in OFFER.finditer(remedy)]
    assert "-d V100-SXM2-32GB" in offers
    assert [words for words in offers if words.startswith("-g ")] == ["-g 16"]


def test_weights_of_four_bits_never_need_more_than_those_of_sixteen() -> None:
    """At the batch that was asked: a batch that nobody stated would grow with the memory that is free."""
    remedy = said(predict_time(**MORE["experts, nothing stated"]))[1]
    needed = {
        words: float(offer["needed"])
        for offer in OFFER.finditer(remedy)
        for words in ("lora", "qlora")
        if f"--adapter {words} " in offer["words"] + " "
    }
    assert needed["qlora"] < needed["lora"]


def test_shorter_samples_and_eight_bit_states_are_offered() -> None:
    _, remedy = said(predict_time(**TOO_LARGE["adapters"]))
    assert "--seq-len 2048" in remedy
    tight = {**A100, "device": "A6000", "model": "llama3.2-3b", "batch_size": 1, "recompute": "full"}
    answer = predict_time(**tight)
    assert not answer.fits and "--optimizer adamw8bit -> " in said(answer)[1]
    assert predict_time(**tight, optimizer="adamw8bit").fits


def test_the_shortfall_is_what_the_memory_says() -> None:
    job = Request.of(TOO_LARGE["replicated"]).resolve()
    memory = memory_of_job(job)
    needed, usable = sum(memory.values()) / GIBI, job.cluster.device.usable_bytes / GIBI
    words = shortfall(job)
    assert f"needs {needed:.1f} GiB" in words and f"{needed - usable:.1f} too little" in words
    assert max(memory, key=lambda name: memory[name]).replace("_", " ") in words
    assert shortfall(Request.of({"model": "gpt2", "batch_size": 4}).resolve()) == ""


def test_a_job_that_only_the_allocator_could_break_is_tight() -> None:
    """Within its assumed waste nothing can be said: the run of 16,384 H100 was that full, and ran."""
    words = "llama3.1-405b -d H100-SXM5-80GB -g 16384 -p bf16-mixed --seq-len 8192 --stack nemo-tuned --tp 8 "
    words += "--pp 16 --stage-layers 7,8x14,7 --vpp 8 -b 1 --num-microbatches 16 --zero-stage 1"
    (request,) = requests_in_words(words.split())
    answer = predict(request)
    (text,) = [each.text for each in answer.diagnostics if each.code == "memory"]
    capacity, wasted = answer.device_memory_bytes, answer.memory_terms["fragmentation"]
    assert capacity < answer.memory_bytes_per_device <= capacity + wasted
    assert answer.fits and text.startswith("Tight: ")
    more, *_ = [
        each.text for each in predict(request.with_(batch_size=2)).diagnostics if each.code == "memory"
    ]
    assert more.startswith("Does not fit")


def test_a_smaller_batch_keeps_the_samples_per_step() -> None:
    asked = {**TOO_LARGE["images"]}
    (words,) = [each["words"] for each in OFFER.finditer(said(predict_time(**asked))[1])
                if "--num-microbatches" in each["words"]]  # fmt: skip
    assert typed(asked, words).resolve().layout.global_batch_size == 1024


def test_what_one_device_cannot_do_is_not_offered_to_it() -> None:
    _, remedy = said(predict_time(**{**A100, "model": "llama3-8b", "batch_size": 1, "zero_stage": 0}))
    here = remedy.partition("-g ")[0]
    assert "--tp" not in here and "--zero-stage 1" not in here


def test_a_sample_that_no_cluster_holds_is_said_so() -> None:
    first, remedy = said(predict_time("llama3.1-405b", device="RTX3070", seq_len=2**23, tp=1))
    assert first.startswith("Does not fit")
    assert "smaller model or shorter samples" in remedy and not OFFER.search(remedy)


@pytest.mark.parametrize(
    ("asked", "absent"),
    [
        (
            {"model": "qwen2.5-7b", "device": "RTX4090", "gpus": 2, "zero_stage": 3, "offload": "optimizer"},
            ("--tp ", "--pp "),
        ),
        ({"model": "llama2-7b", "device": "A100", "gpus": 8, "stack": "hf-trainer"}, ("--pp ",)),
    ],
    ids=["offload", "trainer"],
)
def test_no_axis_is_offered_that_the_trainer_does_not_have(
    asked: dict[str, Any], absent: tuple[str, ...]
) -> None:
    answer = predict_time(**{"zero_stage": 0, **asked}, batch_size=4, seq_len=2048, recompute="none")
    offers = [each["words"] for each in OFFER.finditer(said(answer)[1])]
    assert offers
    assert [words for words in offers if any(option in f"{words} " for option in absent)] == []


def test_a_batch_that_no_usual_layout_holds_says_what_it_needs_at_least() -> None:
    asked = {"model": "llama3-8b", "device": "RTX4090", "gpus": 8, "batch_size": 4}
    least = Request.of({**asked, "zero_stage": 3, "recompute": "full"}).resolve()
    needed = sum(memory_of_job(least).values()) / GIBI
    assert f"this batch needs {needed:.1f} GiB still." in said(predict_time(**asked))[1]
    assert "still" not in said(predict_time(**TOO_LARGE["large batch"]))[1]
