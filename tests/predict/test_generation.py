"""Answers that a policy writes before an update: what must hold of their seconds whatever the model."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from precision_time import Prediction, predict_time
from precision_time.cost.constants import constants
from precision_time.cost.engines import Engine, engine_of
from precision_time.cost.generation import _served, lengths_at, unevenness, writing_times
from precision_time.cost.job import Job, Jobs
from precision_time.cost.step import price
from precision_time.errors import PrecisionTimeError
from precision_time.request.request import Request
from precision_time.workload.graph import OpClass, OpGraph
from precision_time.workload.method import Generation, as_served, token_cache, with_asked_experts

ASKED: dict[str, Any] = {
    "model": "qwen2.5-1.5b", "device": "H100-SXM5-80GB", "gpus": 8, "method": "grpo", "engine": "vllm",
    "prompts": 32, "seq_len": 1280, "generate_tokens": 1024, "answer_tokens": 400,
}  # fmt: skip
WRITING = ("prefill_s", "decode_s", "tail_s")


def answer(**changes: Any) -> Prediction:
    return predict_time(**{**ASKED, **changes})


def job(**changes: Any) -> Job:
    return Request.of({**ASKED, **changes}).resolve()


def generation_of(found: Job) -> Generation:
    assert found.workload.method is not None and found.workload.method.generation is not None
    return found.workload.method.generation


def engine(**changes: Any) -> Engine:
    found = job(**changes)
    return engine_of(generation_of(found), found)


def written_s(found: Prediction) -> float:
    return math.fsum(found.terms.get(name, 0.0) for name in WRITING)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"method": "ppo", "updates": 4},
        {"generate_gpus": 4},
        {"generate_gpus": 4, "off_policy": 1},
        {"engine": "hf"},
        {"reference": "none"},
        {"tp": 2, "pp": 2},
    ],
)
def test_stages_add_up_to_the_step(changes: dict[str, Any]) -> None:
    found = answer(**changes)
    assert math.fsum(found.terms.values()) == pytest.approx(found.step_time_s)
    assert {"logprobs_s"} <= found.terms.keys() and min(found.terms.values()) >= 0.0
    assert ("reference_s" in found.terms) is (changes.get("reference") != "none")
    assert found.interval.low_s < found.step_time_s < found.interval.high_s


@pytest.mark.parametrize("engine_name", ["vllm", "hf"])
def test_longer_answers_are_never_shorter(engine_name: str) -> None:
    steps = [answer(engine=engine_name, answer_tokens=tokens) for tokens in (50, 200, 400, 800, 1000)]
    for seconds in ([found.step_time_s for found in steps], [written_s(found) for found in steps]):
        assert all(later >= earlier * (1.0 - 1e-9) for earlier, later in pairwise(seconds))


def test_a_longer_tail_costs_more_and_the_mean_stays() -> None:
    even, uneven = answer(answer_spread=0.2), answer(answer_spread=0.9)
    assert uneven.terms["tail_s"] > even.terms["tail_s"]
    assert uneven.global_batch_size == even.global_batch_size and uneven.throughput < even.throughput


def test_more_devices_that_generate_are_never_slower() -> None:
    times = [answer(gpus=4 + more, generate_gpus=more).step_time_s for more in (1, 2, 4, 8, 16)]
    assert times == sorted(times, reverse=True)


@pytest.mark.parametrize("apart", [1, 2, 4, 6])
def test_generation_beside_training_is_the_longer_of_the_two(apart: int) -> None:
    one_after_the_other, beside = (answer(generate_gpus=apart, **more) for more in ({}, {"off_policy": 1}))
    training_s = one_after_the_other.step_time_s - written_s(one_after_the_other)
    longer_s = max(training_s, written_s(one_after_the_other) + one_after_the_other.terms["sync_s"])
    assert beside.step_time_s <= one_after_the_other.step_time_s
    rounding = 1e-9 * longer_s
    assert longer_s - rounding <= beside.step_time_s <= longer_s + beside.terms["sync_s"] + rounding
    assert answer(generate_gpus=apart, off_policy=4).step_time_s <= beside.step_time_s


def test_memory_bounds_what_is_written_at_once() -> None:
    """Caches of an 8B model fill a card of 24 GB long before one of 80; shorter answers leave more room."""
    asked = {"model": "llama3.1-8b", "adapter": "lora", "gpus": 1}
    small, large = (engine(device=name, **asked) for name in ("RTX4090", "H100-SXM5-80GB"))
    assert small.concurrent < 8
    assert large.concurrent > 100
    assert large.concurrent < engine(device="H100-SXM5-80GB", **asked, answer_tokens=100).concurrent
    limited, free = (
        answer(device="H100-SXM5-80GB", **asked, engine=name, prompts=64) for name in ("hf", "vllm")
    )
    assert written_s(limited) > 3.0 * written_s(free)


def test_an_engine_that_the_weights_do_not_fit_beside_does_not_fit() -> None:
    asked = {"model": "llama3.1-8b", "gpus": 9, "generate_gpus": 1, "adapter": "lora", "zero_stage": 3}
    assert answer(**asked, device="H100-SXM5-80GB").fits
    crowded = answer(**asked, device="T4", precision="fp16-mixed")
    assert crowded.memory_terms["generation"] > 0.0 and not crowded.fits


def test_lengths_keep_their_mean_and_their_limit() -> None:
    shares = (np.arange(20_000) + 0.5) / 20_000
    for mean, spread, most in ((300.0, 0.6, 1024.0), (700.0, 0.6, 1024.0), (50.0, 1.5, 8192.0)):
        lengths = lengths_at(mean, spread, most, shares)
        assert lengths.mean() == pytest.approx(mean, rel=0.01) and lengths.max() <= most
        assert (np.diff(lengths) >= 0.0).all()


def test_reading_weights_once_a_token_is_the_least() -> None:
    """No engine writes a token in less than the weights take to be read."""
    found = job()
    times = writing_times(found, generation_of(found))
    reading_s = found.workload.graph.params * 2.0 / found.cluster.device.memory_bandwidth_bytes_per_s
    assert times.decode_s + times.tail_s > reading_s * 400


def test_only_asked_experts_are_read() -> None:
    found = job(model="qwen3-30b-a3b", gpus=8)
    graph = generation_of(found).first_token
    asked, share = with_asked_experts(graph)
    assert share == pytest.approx(8 / 128)
    weights, kept = (
        math.fsum(node.weight_elems * node.repeat for node in each.nodes) for each in (graph, asked)
    )
    # A3B: 3 of 30 billion.
    assert kept == pytest.approx(3e9, rel=0.2) and weights == pytest.approx(30.5e9, rel=0.05)
    dense = generation_of(job()).first_token
    assert with_asked_experts(dense) == (dense, 1.0)


def test_heads_that_share_keys_are_rows_of_one_product() -> None:
    """An engine reads keys and values once for all query heads on them: bandwidth bounds its attention."""
    found = job(model="llama3.1-8b", gpus=1)
    token = generation_of(found).last_token
    rows = {(node.m, node.count) for node in token.nodes if node.op_class is OpClass.ATTENTION}
    assert rows == {(4.0, 8.0)}  # 32 query heads on 8 of keys and values
    priced = price(
        Jobs.at(
            replace(
                _served(found, engine_of(generation_of(found), found)),
                workload=replace(found.workload, graph=token, method=None),
            ),
            np.array([64.0]),
        )
    )
    reading_s = 64 * 1280 * 2 * 8 * 128 * 32 * 2.0 / found.cluster.device.memory_bandwidth_bytes_per_s
    assert reading_s < float(priced.terms["attention_s"][0]) < 1.5 * reading_s


def test_ranks_beyond_the_heads_of_keys_hold_copies() -> None:
    token = generation_of(job(model="llama3.1-8b")).last_token

    def read(graph: OpGraph) -> float:
        return sum(node.in_elems for node in graph.nodes if node.op_class is OpClass.ATTENTION)

    assert read(as_served(token, 2.0, True)) == 2.0 * read(as_served(token, 1.0, True)) == 2.0 * read(token)


def test_an_engine_moves_rows_to_experts_in_one_kernel() -> None:
    """Of a small batch most time of routing in a framework that trains is launches; engines fuse them."""
    token = generation_of(job(model="qwen3-30b-a3b")).first_token
    sorts = [node for node in token.nodes if node.op_class is OpClass.DISPATCH]
    fused = as_served(token, 1.0, True)
    assert sorts and not any(node.op_class is OpClass.DISPATCH for node in fused.nodes)
    assert as_served(token, 1.0, False) == token


def test_latent_attention_caches_its_latent() -> None:
    """DeepSeek-V2, section 2.1: 512 + 64 elements per token and layer, and no heads to share among ranks."""
    latent = job(model="deepseek-v3", gpus=64, batch_size=1, group_size=1, prompts=None, tp=8, zero_stage=3)
    assert token_cache(latent.workload.graph) == (576 * 61, 1.0)
    grouped = job(model="llama3.1-8b")
    assert token_cache(grouped.workload.graph) == (2 * 8 * 128 * 32, 8.0)


def test_several_updates_of_a_batch_cost_more_than_one() -> None:
    once, often = answer(updates=1), answer(updates=8)
    assert "updates_s" not in once.terms and often.terms["updates_s"] > 0.0
    assert often.step_time_s > once.step_time_s


def test_a_batch_counts_prompts_or_answers() -> None:
    assert answer(group_size=16).global_batch_size == 32 * 16
    assert answer(prompts=None, global_batch_size=512, group_size=16).step_time_s == pytest.approx(
        answer(group_size=16).step_time_s
    )
    usual = answer(prompts=None)
    assert usual.global_batch_size == constants("engines")["answers"]["answers"]
    assert any("Prompts of a step not given" in text for text in usual.assumptions)


def test_prompts_and_a_micro_batch_say_different_things() -> None:
    found = job(prompts=60, group_size=5, batch_size=4)
    assert (found.layout.global_batch_size, found.layout.micro_batch_size) == (
        320,
        4,
    )  # 300, rounded up to 8 x 4
    assert job(prompts=64, group_size=5, batch_size=4).layout.num_microbatches == 10


def test_ranks_wait_for_the_longest_of_unequal_micro_batches() -> None:
    """Sums of few lengths differ by more than sums of many, and of more ranks one is longer."""

    def waits(**changes: Any) -> float:
        found = job(prompts=128, zero_stage=3, **changes)
        return unevenness(found, generation_of(found))

    assert waits() == 0.0  # filled by tokens
    few, many = waits(batch_size=2), waits(batch_size=32)
    assert few == pytest.approx(4.0 * many) and many > 0.0
    assert waits(batch_size=2, gpus=64) > few > waits(batch_size=2, answer_spread=0.2)
    replicas = job(prompts=128, batch_size=2)
    assert 0.0 < unevenness(replicas, generation_of(replicas)) < few
    terms = answer(prompts=128, batch_size=2, zero_stage=3).terms
    assert terms["uneven_s"] > 0.0 and "uneven_s" not in answer(prompts=128, zero_stage=3).terms


@pytest.mark.parametrize(("model", "share"), [("qwen3-8b", 0.7), ("qwen3-8b-base", 0.5)])
def test_base_models_do_not_think(model: str, share: float) -> None:
    found = generation_of(job(model=model, answer_tokens=None, generate_tokens=1000, seq_len=1256))
    assert found.mean_tokens == share * 1000


def test_models_that_think_are_given_longer_answers() -> None:
    for model, most in (("qwen3-8b", 4096), ("qwen3-8b-base", 1024), ("qwen2.5-7b", 1024)):
        found = job(model=model, **dict.fromkeys(("answer_tokens", "generate_tokens", "seq_len")))
        assert generation_of(found).most_tokens == most


def test_weights_move_over_the_link_between_trainers_and_engines() -> None:
    """Of few tensors: within a node over its own link, between nodes over their network."""
    within, between = (
        job(model="llama3.1-8b", gpus=gpus, generate_gpus=gpus // 2, generate_tp=1) for gpus in (8, 16)
    )
    seconds = [writing_times(found, generation_of(found)).sync_s for found in (within, between)]
    links = within.cluster.intra_node, between.cluster.inter_node
    apart_s = [16.06e9 / link.bandwidth_bytes_per_s for link in links]
    assert seconds[1] - seconds[0] == pytest.approx(apart_s[1] - apart_s[0], rel=0.01)


def test_an_engine_that_stays_moves_no_states_and_takes_its_memory() -> None:
    """TRL's vLLM does not sleep by default; verl and NeMo RL put states on the host meanwhile."""
    given = {"model": "qwen2.5-7b", "zero_stage": 3, "batch_size": 1, "recompute": "full"}
    stays, sleeps = (answer(**given, stack=stack, software=2026.0) for stack in ("trl", "verl"))
    states = sum(sleeps.memory_terms[name] for name in ("parameters", "master_weights", "optimizer_states"))
    moved_s = 2.0 * states / constants("engines")["sync"]["state_bytes_per_s"]
    assert sleeps.terms["sync_s"] - stays.terms["sync_s"] == pytest.approx(moved_s, rel=0.05)
    assert stays.memory_terms["generation"] > 15.2e9 > sleeps.memory_terms["generation"]
    assert "stay beside it" in " ".join(stays.assumptions)
    itself = answer(**given, stack="trl", engine="hf")
    assert itself.memory_terms["generation"] < 15.2e9 and "sync_s" not in itself.terms


def test_engines_of_whole_batches_write_few_answers_at_a_time() -> None:
    seconds = {name: written_s(answer(engine=name, prompts=256)) for name in ("vllm", "trtllm", "hf")}
    assert seconds["vllm"] < seconds["trtllm"] < seconds["hf"]


def test_the_page_says_what_generation_was_taken_to_be() -> None:
    found = answer(generate_gpus=4, off_policy=1, answer_tokens=None)
    words = " ".join(found.assumptions)
    for said in ("vllm on 4 devices of its own", "(assumed)", "at once", "beside training"):
        assert said in words
    assert "decode" in str(answer())


def test_training_may_be_cut_up_in_another_way_than_generation() -> None:
    found = job(model="llama3.1-8b", gpus=16, tp=2, pp=2, cp=2, generate_tp=4)
    assert (found.layout.dp, found.layout.pp) == (2, 2)
    placed = engine_of(generation_of(found), found)
    assert (placed.tp, placed.devices, placed.apart) == (4, 16, False)


def test_unstated_lengths_widen_the_interval() -> None:
    def width(found: Prediction) -> float:
        return found.interval.high_s / found.interval.low_s

    assert width(answer()) < width(answer(answer_tokens=None))
    assert width(
        answer(method="sft", **dict.fromkeys(("prompts", "generate_tokens", "answer_tokens", "engine")))
    ) < (width(answer()))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"method": "sft"}, "belongs to grpo and ppo"),
        ({"model": "bert-base", "seq_len": 512, "generate_tokens": 64, "answer_tokens": 32}, "decoder-only"),
        ({"prompts": None, "global_batch_size": 12}, "group_size=8 does not divide"),
        ({"global_batch_size": 256}, "both say the global batch"),
        ({"updates": 3}, "updates=3 does not divide"),
        ({"generate_gpus": 8}, "leaves none of the 8 devices"),
        ({"generate_tp": 3}, "generate_tp=3 does not divide the 8 devices"),
        ({"generate_gpus": 4, "generate_tp": 8}, "does not divide the 4 devices"),
        ({"gpus": 1, "off_policy": 1}, "needs generate_gpus"),
        ({"engine": "hf", "pp": 2}, "generates itself"),
        ({"answer_tokens": 2000}, "answers are cut at"),
        ({"generate_tokens": 1280}, "leaves no prompt"),
        ({"method": "ppo", "reference": "none"}, "compares the policy"),
        ({"engine": "ollama"}, "ollama"),
        ({"mean_seq_len": 100}, "does not apply to method=grpo"),
    ],
)
def test_what_does_not_fit_together_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(PrecisionTimeError, match=message):
        job(**changes)


def test_a_step_of_its_own_engine_is_not_another_job() -> None:
    """Engines apart train on fewer devices: the layout has only those."""
    apart = job(gpus=8, generate_gpus=2, prompts=36)
    assert apart.training_devices == apart.layout.world_size == 6 and apart.cluster.num_devices == 8
    assert apart.training_cluster.num_devices == 6
    assert replace(apart, stragglers=False).training_devices == 6
