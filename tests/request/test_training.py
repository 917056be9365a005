"""What a request trains, on samples of which length, and by which method."""

from __future__ import annotations

import math
from typing import Any

import pytest

from precision_time import Prediction, predict_time
from precision_time.cost.job import Job, group_key
from precision_time.cost.terms import METHOD_TERMS, TERMS
from precision_time.errors import ConfigError, PrecisionTimeError
from precision_time.precision.policy import DType
from precision_time.request.lengths import longest_of
from precision_time.request.request import Request
from precision_time.testing.jobs import own_job_s

LLAMA = {"model": "llama3-8b", "device": "H100-SXM5-80GB", "seq_len": 1024, "precision": "bf16"}

SMALL = {"model": "gpt2-xl", "device": "H100-SXM5-80GB", "seq_len": 512, "precision": "bf16"}


def job(**changes: Any) -> Job:
    return Request.of({**LLAMA, "batch_size": 4, **changes}).resolve()


def answer(**changes: Any) -> Prediction:
    return predict_time(**{**LLAMA, "batch_size": 4, **changes})


def test_suffix_and_option_are_one_job() -> None:
    by_name, by_option = job(model="llama3-8b-qlora"), job(adapter="qlora")
    assert by_name.workload.graph.nodes == by_option.workload.graph.nodes
    assert by_name.workload.name == by_option.workload.name == "llama3-8b-qlora"
    assert job(model="llama3-8b-lora", lora_rank=64).workload.graph.trainable_params == pytest.approx(
        8 * by_name.workload.graph.trainable_params
    )


def test_utilization_counts_what_is_computed() -> None:
    """A frozen base takes 4 N instead of 6 N FLOPs a token, the factors and attention aside."""
    full, adapted = answer(), answer(adapter="lora")
    assert full.mfu is not None and adapted.mfu is not None
    ratio = adapted.mfu * adapted.step_time_s / (full.mfu * full.step_time_s)
    assert ratio == pytest.approx(2.0 / 3.0, abs=0.03)
    assert adapted.memory_terms["optimizer_states"] < 0.01 * full.memory_terms["optimizer_states"]
    assert adapted.memory_terms["gradients"] < 0.01 * full.memory_terms["gradients"]


def test_packed_base_is_held_in_four_bits() -> None:
    lora, qlora = answer(adapter="lora"), answer(adapter="qlora")
    saved = lora.memory_terms["parameters"] - qlora.memory_terms["parameters"]
    # All 6.98e9 weights of the layers but not embedding and head, from 2 bytes to 0.52 (QLoRA, section 3).
    assert saved == pytest.approx(6.98e9 * (2.0 - 0.516), rel=0.01)
    assert qlora.step_time_s > lora.step_time_s


@pytest.mark.parametrize("samples", [1.0, 4.0, 64.0])
def test_longest_of_exponential_lengths_is_the_harmonic_number(samples: float) -> None:
    harmonic = math.fsum(1.0 / k for k in range(1, int(samples) + 1))
    assert longest_of(100.0, 1e6, samples) == pytest.approx(100.0 * harmonic, rel=2e-3)
    assert longest_of(100.0, 100.0, samples) == 100.0
    assert 100.0 - 1e-6 <= longest_of(100.0, 250.0, samples) <= 250.0


def test_padded_rows_are_priced_at_their_mean_length_and_fit_at_their_longest() -> None:
    whole, shorter = answer(adapter="lora"), answer(adapter="lora", mean_seq_len=200, padding_share=0.2)
    assert shorter.step_time_s < 0.5 * whole.step_time_s
    assert shorter.memory_bytes_per_device == whole.memory_bytes_per_device
    assert shorter.throughput == pytest.approx(4 * 200 / shorter.step_time_s)
    padded = job(mean_seq_len=200, padding_share=0.2)
    assert padded.workload.graph.seq_len == 250 and padded.workload.real_share == pytest.approx(0.8)
    assert group_key(padded) != group_key(job(seq_len=250))


def test_a_resolved_workload_is_not_shortened_again() -> None:
    request = Request.of({**LLAMA, "batch_size": 4, "mean_seq_len": 100})
    once = request.resolve()
    again = request.resolve(workload=once.workload)
    assert again.workload.graph.seq_len == once.workload.graph.seq_len


def test_the_page_says_what_the_answer_is_the_sum_of() -> None:
    """Composition and lengths stand in the answer, not behind --why; alternatives are of the whole step."""
    page = str(answer(method="grpo", adapter="lora", batch_size=8))
    assert "Assumed: Method grpo" in page and "decode" in page
    assert "Assumed: Lengths: not packed" in str(answer(mean_seq_len=100))


def test_packing_fills_rows_and_shortens_the_epoch() -> None:
    plain = answer(samples=10_240)
    packed = answer(samples=10_240, mean_seq_len=128, packing=True)
    assert packed.step_time_s == plain.step_time_s and packed.throughput == plain.throughput
    assert (plain.steps_per_epoch, packed.steps_per_epoch) == (2560, 320)


def test_every_method_is_a_sum_of_named_parts() -> None:
    written = {"prefill_s", "decode_s", "tail_s", "logprobs_s", "sync_s"}
    names = {
        "dpo": {"reference_s"},
        "reward": set(),
        "grpo": {*written, "reference_s", "reward_s"},
        "ppo": {*written, "reference_s", "reward_model_s", "critic_s"},
    }
    own = {term.name for term in METHOD_TERMS}
    for method, parts in names.items():
        found = predict_time(**SMALL, batch_size=16, method=method)
        assert found.terms.keys() & own == parts
        assert math.fsum(found.terms.values()) == pytest.approx(found.step_time_s)
        assert f"Method {method}" in " ".join(found.assumptions)
        assert found.global_batch_size == found.batch_size == 16
    assert own.isdisjoint(term.name for term in TERMS)


def test_a_pair_is_two_rows() -> None:
    pairs = predict_time(**SMALL, stack="hf-trainer", batch_size=4, method="dpo")
    plain_s = own_job_s(**SMALL, stack="hf-trainer", batch_size=8)
    update_s = pairs.step_time_s - pairs.terms["reference_s"]
    assert update_s == pytest.approx(plain_s, rel=1e-3)
    # A forward pass is a third of the FLOPs of a step.
    assert pairs.terms["reference_s"] == pytest.approx(plain_s / 3.0, rel=0.25)


def test_chosen_layouts_hold_whole_pairs_and_generate() -> None:
    """Layouts that nothing states: micro batches of pairs, no pipeline where answers are written."""
    pairs = answer(method="dpo", gpus=8, batch_size=None, global_batch_size=24)
    assert pairs.global_batch_size == 24 and pairs.batch_size == int(pairs.batch_size)
    written = answer(
        method="grpo", gpus=8, batch_size=None, global_batch_size=64, model="llama3-70b", nodes=1
    )
    assert "pipeline_exposed_s" not in written.terms and written.global_batch_size == 64


def test_adapters_need_no_second_copy_of_the_reference() -> None:
    copied, shared = answer(method="dpo"), answer(method="dpo", adapter="lora")
    assert copied.memory_terms["other_models"] == pytest.approx(8.03e9 * 2, rel=0.01)
    assert shared.memory_terms["other_models"] == 0.0
    assert "no second copy" in " ".join(shared.assumptions)


def test_writing_answers_is_bound_by_reading_the_weights() -> None:
    """Between the time of reading 16 bits a weight once per token and twice that, for few answers or many."""
    short, long = (answer(method="grpo", batch_size=8, generate_tokens=n) for n in (128, 512))
    reading_s = 7.5e9 * DType.BF16.num_bytes / 3.35e12
    for found, tokens in ((short, 128), (long, 512)):
        assert reading_s * tokens < found.terms["decode_s"] < 2.5 * reading_s * tokens
    few, many = (answer(method="grpo", batch_size=n).terms["decode_s"] for n in (8, 32))
    assert few < many < 2.0 * few


def test_teacher_runs_forward_on_the_samples_of_the_student() -> None:
    found = predict_time(
        "resnet18", device="A100-SXM4-80GB", batch_size=64, method="distill", teacher="resnet152"
    )
    alone_s = own_job_s("resnet152", device="A100-SXM4-80GB", batch_size=64)
    assert found.terms["teacher_s"] == pytest.approx(alone_s / 3.0, rel=0.4)
    # 60.2 million frozen weights at two bytes.
    assert found.memory_terms["other_models"] == pytest.approx(60.2e6 * 2, rel=0.02)


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"lora_rank": 64}, "changes nothing without adapters"),
        ({"model": "llama3-8b-lora", "adapter": "qlora"}, "contradict"),
        ({"adapter": "lora", "lora_targets": "q,rooter"}, "'rooter' is not a projection"),
        ({"model": "resnet50", "seq_len": None, "adapter": "lora"}, "cannot carry adapters"),
        ({"teacher": "llama3-70b"}, "belongs to distill"),
        ({"method": "distill"}, "needs a teacher"),
        ({"method": "dpo", "generate_tokens": 64}, "belongs to grpo and ppo"),
        ({"method": "grpo", "batch_size": 3}, "does not divide"),
        ({"method": "grpo", "generate_tokens": 1024}, "leaves no prompt"),
        ({"method": "ppo", "engine": "hf", "gpus": 2, "pp": 2}, "cannot be priced"),
        ({"method": "ppo", "mean_seq_len": 100}, "does not apply to method=ppo"),
        ({"model": "bert-base", "method": "grpo"}, "decoder-only"),
        ({"model": "resnet50", "seq_len": None, "method": "dpo"}, "sequences of tokens"),
        ({"method": "distill", "teacher": "resnet50"}, "does not take the samples"),
        ({"mean_seq_len": 2000}, "exceeds seq_len"),
        ({"packing": True, "padding_share": 0.5}, "contradict"),
        ({"model": "resnet50", "seq_len": None, "mean_seq_len": 100}, "sequences of tokens"),
        ({"model": "bert-large", "unpadded_sequences": True, "mean_seq_len": 100}, "kernels skip padding"),
        ({"frames": 16}, "frames are of video models"),
        ({"audio_seconds": 3}, "audio_seconds of models of raw audio"),
    ],
)
def test_what_does_not_apply_is_refused(asked: dict[str, Any], message: str) -> None:
    with pytest.raises((ConfigError, PrecisionTimeError), match=message):
        job(**asked)


def test_frames_and_seconds_set_the_length_of_a_sample() -> None:
    # Wan 2.1: 81 frames are 21 latent ones of 60 x 104 / 4 tokens at 480 x 832 pixels.
    assert Request.of({"model": "wan2.1-1.3b", "frames": 81}).resolve().workload.graph.nodes[0].m == 21 * 1560
    short, long = (
        Request.of({"model": "wav2vec2-base", "audio_seconds": seconds}).resolve().workload.graph.seq_len
        for seconds in (5.0, 20.0)
    )
    assert long == pytest.approx(4 * (short or 0), abs=4)
