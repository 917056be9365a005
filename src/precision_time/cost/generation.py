"""Seconds in which a policy writes answers, and in which its new weights reach what writes them.

Answers begin together, as many as memory has room for; a finished one makes room for the next. One token of
all running answers is one forward pass: it reads the weights once and the keys and values of every answer. At
the end few answers run, and the longest decides.

References: Kwon et al., Efficient Memory Management for Large Language Model Serving with PagedAttention,
SOSP 2023 (keys and values in pages; what fits at once); Yu et al., Orca, OSDI 2022 (continuous batching);
Sheng et al., HybridFlow (verl), EuroSys 2025 (stages of a step, colocated and apart); Fu et al., AReaL, 2025
(writing beside training).
"""

from __future__ import annotations

import math
from dataclasses import replace
from statistics import NormalDist
from typing import Any

import numpy as np

from ..arrays import Floats
from ..parallel.layout import Layout
from ..precision.catalog import get_policy
from ..precision.policy import DType
from ..records import dataclass
from ..workload.graph import OpGraph
from ..workload.method import Generation, as_served, with_asked_experts
from .constants import constants
from .engines import Engine, engine_of
from .job import Job, Jobs, TimingScope
from .memory import memory_of
from .step import price

_SERVED_IN = {DType.BF16: "bf16", DType.FP16: "fp16"}
_COMPILED = "cudagraphs"
_SURVIVORS = 48
"""Points of the curve of how many answers still run."""
_BATCHES = 14
"""Numbers of running answers that are priced; between them seconds are interpolated."""
_STATES = ("parameters", "expert_parameters", "master_weights", "optimizer_states")
"""Terms of memory that leave a device while an engine writes on it."""
_LENGTHS = 1000
"""Lengths of answers whose standard deviation is taken."""
_GATHERED = 3
"""ZeRO stage from which ranks gather each other's weights."""
_LONGEST_OF = 0.1
"""The tail begins where fewer of the answers that began still run."""


@dataclass(frozen=True, kw_only=True, slots=True)
class WritingTimes:
    """Seconds of one step's generation and of the transfer behind it."""

    prefill_s: float
    decode_s: float
    tail_s: float
    """While the longest tenth of the answers is finished."""
    sync_s: float


def writing_times(job: Job, generation: Generation) -> WritingTimes:
    """Seconds of generation of a step.

    Assumes: every engine gets its equal share of the answers; prompts are read once for all their answers.
    Accuracy: packages/papers/studies/rl.py.
    """
    engine = engine_of(generation, job)
    table = engine.settings
    served = _served(job, engine)
    answers = job.layout.global_batch_size / served.layout.dp
    # Where answers may be several updates old, those of further batches run beside this one's.
    running = min(answers * max(generation.staleness, 1), engine.concurrent)
    prompts = max(answers / generation.answers_per_prompt, 1.0)
    prefill_s = float(_step_s(served, generation.prompt, np.array([prompts]))[0])
    sizes = np.unique(np.geomspace(1.0, max(running, 1.0), _BATCHES))
    copies = engine.tp / min(engine.tp, generation.cache_heads) * table["cache_passes"]
    first_s, last_s = (
        np.maximum.accumulate(_token_s(served, as_served(graph, copies, table["graphs"]), sizes))
        for graph in (generation.first_token, generation.last_token)
    )

    def token_s(count: Floats, written: Floats) -> Floats:
        """Seconds of one token of so many answers that have so many tokens already."""
        share = written / generation.most_tokens
        short, long = np.interp(count, sizes, first_s), np.interp(count, sizes, last_s)
        own_s: float = table["sequence_s"]
        found: Floats = short + np.maximum(long - short, 0.0) * share + own_s * count
        return found

    if generation.staleness > 1:
        decode_s, tail_s = answers / running * _steady_s(generation, running, token_s), 0.0
    elif table["batches"] == "whole":
        decode_s, tail_s = _whole_batches(generation, answers, running, token_s)
    else:
        decode_s, tail_s = _continuous(generation, answers, running, token_s, job.layout.global_batch_size)
    return WritingTimes(prefill_s=prefill_s, decode_s=decode_s, tail_s=tail_s, sync_s=_sync_s(job, engine))


def _continuous(
    generation: Generation, answers: float, running: float, token_s: Any, total: float
) -> tuple[float, float]:
    """Seconds until a tenth of the last answers is left, and until the longest of the step is done."""
    survivors = np.geomspace(1.0, 1.0 / (total + 1.0), _SURVIVORS)
    lengths = lengths_at(generation.mean_tokens, generation.spread, generation.most_tokens, 1.0 - survivors)
    still = np.maximum(running * np.sqrt(survivors[1:] * survivors[:-1]), 1.0)
    lasting_s = np.diff(lengths) * token_s(still, 0.5 * (lengths[1:] + lengths[:-1]))
    is_tail = survivors[1:] < _LONGEST_OF
    full_s = (answers - running) / running * _steady_s(generation, running, token_s)
    return full_s + float(lasting_s[~is_tail].sum()), float(lasting_s[is_tail].sum())


def _steady_s(generation: Generation, running: float, token_s: Any) -> float:
    """Seconds in which an engine that stays full writes one answer in each of its places."""
    age = min(generation.mean_tokens * (1.0 + generation.spread**2) / 2.0, generation.most_tokens)
    return generation.mean_tokens * float(token_s(np.array(running), np.array(age)))


def _whole_batches(
    generation: Generation, answers: float, running: float, token_s: Any
) -> tuple[float, float]:
    """Seconds of batches that end with their longest answer: the mean one, and what the longest adds."""
    share = np.array([1.0 - 1.0 / (max(running, 1.0) + 1.0)])
    longest = float(lengths_at(generation.mean_tokens, generation.spread, generation.most_tokens, share)[0])
    longest = max(longest, generation.mean_tokens)
    each_s = float(token_s(np.array(running), np.array(longest / 2.0)))
    batches = answers / running
    mean_s = batches * generation.mean_tokens * each_s
    return mean_s, batches * (longest - generation.mean_tokens) * each_s


def lengths_of(mean: float, spread: float, most: float) -> NormalDist:
    """Logarithm of the lengths of answers, which are cut at `most`: their mean behind the cut is `mean`."""
    sigma = math.sqrt(math.log1p(spread**2))
    unit = NormalDist()

    def cut_mean(mu: float) -> float:
        above = (math.log(most) - mu) / sigma
        return math.exp(mu + sigma**2 / 2.0) * unit.cdf(above - sigma) + most * (1.0 - unit.cdf(above))

    low, high = math.log(mean) - sigma**2, math.log(most) + 10.0 * sigma
    for _ in range(60):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if cut_mean(middle) < mean else (low, middle)
    return NormalDist(mu=0.5 * (low + high), sigma=sigma)


def lengths_at(mean: float, spread: float, most: float, shares: Floats) -> Floats:
    """Tokens that these shares of the answers do not exceed.

    >>> [round(float(found)) for found in lengths_at(500.0, 0.5, 2000.0, np.array([0.0, 0.5, 1.0]))]
    [0, 447, 2000]
    """
    if spread <= 0.0 or mean >= most:
        return np.where(shares > 0.0, mean, 0.0)
    law = lengths_of(mean, spread, most)
    inside = np.clip(shares, 1e-12, 1.0 - 1e-12)
    found = np.array([math.exp(law.inv_cdf(float(share))) for share in inside])
    return np.where(shares <= 0.0, 0.0, np.where(shares >= 1.0, most, np.minimum(found, most)))


def _served(job: Job, engine: Engine) -> Job:
    """The job of a forward pass in the engine: whole weights per tensor-parallel group, in 16 bits."""
    cluster, devices = job.cluster, engine.devices
    if devices != cluster.num_devices:
        nodes = math.ceil(devices / cluster.devices_per_node)
        cluster = cluster.resized(num_nodes=nodes, num_devices=devices)
    stack = replace(job.stack, fused_attention=True, host_per_tensor_s=0.0)
    if engine.settings["graphs"]:
        stack = replace(stack, compiler=_COMPILED, host_per_layer_s=0.0)
    return replace(
        job,
        workload=replace(job.workload, method=None, largest=None),
        cluster=cluster,
        layout=Layout(dp=devices // engine.tp, tp=engine.tp, data_parallel_engine="none"),
        precision=get_policy(_SERVED_IN.get(job.precision.activation, job.precision.name)),
        stack=stack,
        scope=TimingScope.NO_OPTIMIZER,
        stragglers=False,
    )


def _step_s(served: Job, graph: OpGraph, answers: Floats) -> Floats:
    """Seconds of a forward pass of `answers` on an engine, shape of `answers`."""
    job = replace(served, workload=replace(served.workload, graph=graph))
    return np.asarray(price(Jobs.at(job, answers)).step_time_s)


def _token_s(served: Job, graph: OpGraph, answers: Floats) -> Floats:
    """Seconds of one token of so many answers; experts that none of them asks for are not read."""
    seconds = _step_s(served, graph, answers)
    fewest, share = with_asked_experts(graph)
    if fewest is graph:
        return seconds
    asked = 1.0 - (1.0 - share) ** answers
    single_s = _step_s(served, fewest, answers)
    return single_s + np.maximum(seconds - single_s, 0.0) * (asked - share) / (1.0 - share)


def _sync_s(job: Job, engine: Engine) -> float:
    """New weights from the layout of training into that of the engine, and its waking up where it slept."""
    if not engine.settings["graphs"]:
        return 0.0
    table, graph = constants("engines")["sync"], job.workload.graph
    cluster = job.cluster
    link = cluster.intra_node if cluster.num_nodes == 1 else cluster.inter_node
    # A single device has no link: its weights are copied in its own memory.
    rate = link.bandwidth_bytes_per_s or cluster.device.memory_bandwidth_bytes_per_s / 2.0
    moved_s = engine.weight_bytes / rate + graph.param_tensors * table["tensor_s"]
    if engine.apart or engine.resident:
        return float(moved_s)
    held = memory_of(Jobs.at(job))
    states = sum(float(np.max(held.get(name, 0.0))) for name in _STATES)
    return float(moved_s + 2.0 * states / table["state_bytes_per_s"])


def unevenness(job: Job, generation: Generation) -> float:
    """Share of the time of a pass over the answers that ranks wait for the one with most tokens.

    Ranks that gather weights (ZeRO 3) wait in every micro batch, stages of a pipeline for each other's micro
    batches, other ranks once an update. Micro batches that are filled by tokens are even.
    """
    if not generation.counted:
        return 0.0
    layout, unit = job.layout, NormalDist()
    shares = (np.arange(_LENGTHS) + 0.5) / _LENGTHS
    lengths = lengths_at(generation.mean_tokens, generation.spread, generation.most_tokens, shares)
    relative = float(np.std(lengths)) / (float(generation.prompt.seq_len or 0) + generation.mean_tokens)

    def waits(ranks: float, sequences: float) -> float:
        """The largest of so many sums of lengths over their mean, less 1 (Blom 1958)."""
        return relative / math.sqrt(sequences) * unit.inv_cdf((ranks - 0.375) / (ranks + 0.25))

    if layout.zero_stage == _GATHERED:
        return waits(layout.dp, layout.micro_batch_size)
    per_update = layout.micro_batch_size * max(layout.num_microbatches / generation.updates, 1.0)
    return waits(layout.dp, per_update) + waits(layout.pp, layout.micro_batch_size)


def reward_s(job: Job) -> float:
    """Seconds in which a rule checks the answers of a step on the host."""
    return float(job.layout.global_batch_size * constants("engines")["reward"]["answer_s"])


def logprobs_factor() -> float:
    """Seconds of log-probabilities over those of the forward pass that they are read off."""
    return float(constants("engines")["logprobs"]["factor"])
