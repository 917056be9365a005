"""The batch of a request, and its layout where that is left open and plain data parallelism does not fit."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np

from ..cost.constants import constants
from ..cost.job import Job, Jobs
from ..cost.memory import memory_of, total_bytes
from ..cost.search import usual_batch, usual_layout
from ..cost.stacks import Stack, get_stack_profile, policy_under, usual_variant
from ..diagnostics import Diagnostics
from ..errors import ConfigError, LayoutError
from ..parallel.degrees import nearest_multiple
from ..parallel.layout import Layout, Offload, PipelineSchedule, Recompute
from ..parallel.schedules.interleaved import check_groups
from ..parallel.space import powers_of_two
from ..precision.catalog import known_variants
from ..workload.families.tables import normalize
from ..workload.workload import Workload
from .layout import habits_with_experts, layout_words, sharded_as_usual, without_idle_operators
from .method import degrees_of_method, says_samples
from .practice import axes_of
from .published import usual_global_batch
from .question import SPREADS_TABLES, method_of, question_of
from .schema import LAYOUT, RequestFields
from .usual import usual_recomputation
from .votes import practice_file

_NOT_A_LAYOUT = frozenset({"expert_capacity_factor", "expert_nodes", "expert_overlap", "uneven"})
"""Options of the layout that say how experts or frameworks behave, but not how the job is cut up."""
_FINE_TUNES = frozenset({"full", "lora", "qlora"})
"""Methods whose recipes say what is recomputed; whoever pretrains recomputes what memory asks for."""


def with_batch(job: Job, request: RequestFields, found: Diagnostics) -> Job:
    """The job with its batch; with another layout where that is open and plain data parallelism does not fit.

    Raises:
        LayoutError: A batch that does not divide among the replicas, of which no layout makes fewer.
    """
    job = _recomputed_as_usual(job, request, found)
    asked = _global_batch(job, request, found)
    refused: LayoutError | None = None
    plain: Job | None = None
    said = Diagnostics()
    try:
        plain = _plain_job(job, request, asked, said)
    except LayoutError as error:
        refused = error
        if asked is None or not is_open(job, request, asked):
            raise
    # Replicas as long as they fit: a batch that may be cut is cut before states are sharded.
    several = plain is not None and plain.layout.micro_batch_size > job.workload.rows_per_sample
    cut = several and request.batch_size is None and asked is not None
    sharded = cut and plain is not None and plain.layout.zero_stage > job.layout.zero_stage
    if is_open(job, request, asked) and (plain is None or job.layout.pp > 1 or sharded or not _fits(plain)):
        chosen = _chosen_layout(job, request, asked, found)
        if chosen is not None:
            return chosen
    if plain is None:
        assert refused is not None
        raise refused
    found.items.extend(said.items)
    return plain


def _recomputed_as_usual(job: Job, request: RequestFields, found: Diagnostics) -> Job:
    """A fine-tune as most users of its stack recompute it, where the request does not say it."""
    if "recompute" in request.given_layout or job.layout.pp > 1:
        return job
    if method_of(request, job.workload) not in _FINE_TUNES:
        return job
    question = question_of(request, job.workload, job.cluster)
    mode = usual_recomputation(question, job.stack.profile)
    if mode is None or job.layout.recompute == mode:
        return job
    found.assume(
        "recompute",
        f"Recomputation not given: recompute={mode} assumed, as most {question.method} runs on "
        f"{job.stack.profile} have it.",
    )
    return replace(job, layout=replace(job.layout, recompute=Recompute(mode)))


def _plain_job(job: Job, request: RequestFields, global_batch: float | None, found: Diagnostics) -> Job:
    """The job as it is stated, with the batch of a device, fully sharded where it does not fit otherwise."""
    sharded = sharded_as_usual(job.layout, request, job, found)
    batch_size, layout = _stated_batch(sharded, request, global_batch, found)
    if layout.schedule is PipelineSchedule.INTERLEAVED and not request.uneven:
        check_groups(layout.pp, layout.num_microbatches)
    job = replace(job, layout=layout)
    if batch_size is not None and _is_cut(job, request):
        return _cut_up(job, int(batch_size), request, found)
    if batch_size is not None:
        return sharded_if_needed(_batched(job, batch_size), request.says_sharding, found)
    sizes, scripts = _batches_of(job)
    samples = request.samples or job.workload.dataset_samples
    held = samples is not None and samples // job.layout.data_ranks < sizes[0]
    if samples is not None and held:  # 256 copies of the one graph of Cora are no batch
        sizes = tuple(size for size in sizes if size * job.layout.data_ranks <= samples) or sizes[-1:]
    for candidate in sizes:
        trial = sharded_if_needed(_batched(job, candidate), request.says_sharding, Diagnostics())
        if _fits(trial):
            break
    most = f"within an epoch of {samples:,}" if held else f"up to {sizes[0]}{scripts}"
    fits = f", the largest that fits {most}" if _fits(trial) else ", which does not fit either"
    found.assume("batch_size", f"Batch size not given: {candidate} per device{fits}.")
    return sharded_if_needed(_batched(job, candidate), request.says_sharding, found)


def _is_cut(job: Job, request: RequestFields) -> bool:
    """Whether a batch of answers is cut into micro batches that fit: as many as memory asks for."""
    stated = request.batch_size is not None or "num_microbatches" in request.model_fields_set
    return job.workload.answers_per_prompt is not None and not stated


def _cut_up(job: Job, answers: int, request: RequestFields, found: Diagnostics) -> Job:
    """The job with so many answers per replica in the largest micro batches that fit; of one if none does."""
    sizes = [n for n in reversed(powers_of_two(practice_file("batches")["answers"])) if answers % n == 0]
    for size in sizes:
        layout = replace(job.layout, num_microbatches=answers // size)
        trial = sharded_if_needed(_batched(replace(job, layout=layout), size), request.says_sharding, found)
        if _fits(trial):
            break
    found.assume(
        "num_microbatches", f"Micro batches not given: {size} answers each, {answers // size} a step."
    )
    return trial


def says_no_layout(request: RequestFields) -> bool:
    """Whether a request leaves it open how the job is spread over its devices."""
    return not request.given_layout - _NOT_A_LAYOUT


def is_open(job: Job, request: RequestFields, global_batch: float | None) -> bool:
    """Whether a layout may be chosen: none is stated, or a global batch without how it is cut up.

    Not where answers are generated and nothing says how many: all answers to a prompt belong together.
    """
    if job.workload.answers_per_prompt is not None and global_batch is None:
        return False
    cut_up = request.batch_size is not None or "num_microbatches" in request.given_layout
    return says_no_layout(request) or (global_batch is not None and not cut_up)


def _chosen_layout(
    job: Job, request: RequestFields, global_batch: float | None, found: Diagnostics
) -> Job | None:
    """The job under the fastest usual layout that fits; None where none does.

    Of a request without a word about the layout all of it is open; else how a global batch is cut up,
    sharding and recomputation, as far as they are not stated.
    """
    stated = request.given_layout
    degrees = says_no_layout(request)
    said = Diagnostics()
    if global_batch is None and request.batch_size is not None:
        global_batch = request.batch_size * job.layout.dp
    elif global_batch is None:
        gpus = job.training_devices
        usual = usual_batch(job.workload, gpus)
        published = usual_global_batch(job.workload, gpus)
        global_batch = float(published if published > usual else min(gpus, usual))
        said.assume("batch_size", f"Batch not given: {global_batch:,.0f} samples per step assumed.")
    is_kept = request.dp_replicate or job.workload.family in SPREADS_TABLES
    held = stated | ({"dp_shard", "zero_stage"} if is_kept else set())
    fixed: dict[str, tuple[Any, ...]] = {
        name: (getattr(job.layout, name),) for name in sorted(held & LAYOUT.keys())
    }
    if job.layout.recompute is not Recompute.NONE:
        fixed["recompute"] = (job.layout.recompute,)
    rows = job.workload.rows_per_sample
    if request.batch_size is not None:
        fixed["micro_batch_size"] = (request.batch_size * rows,)
    elif rows > 1:
        fixed["micro_batch_size"] = tuple(rows * size for size in powers_of_two(int(global_batch)))
    fixed = {**degrees_of_method(job.workload), **fixed}
    # A model is cut up only where one sample per device does not fit: else a smaller batch is the remedy.
    smallest = request.batch_size is None or request.batch_size <= 1
    choice = None
    if request.batch_size is not None or not degrees:
        choice = usual_layout(job, global_batch * rows, fixed, degrees=False)
    if choice is None and degrees and smallest:
        axes, fixed = axes_of(job.stack.profile), {**habits_with_experts(job), **fixed}
        choice = usual_layout(job, global_batch * rows, fixed, degrees=True, axes=axes)
    if choice is None:
        return None
    layout = without_idle_operators(choice.layout)
    words = layout_words(layout, job.workload, without=stated)
    fastest = f"the fastest of {choice.fitting} tried that fit" if choice.fitting > 1 else "the one that fits"
    what = "Layout not given" if degrees else "Not all of the layout given"
    found.items.extend(said.items)
    found.assume("layout", f"{what}: {words} assumed, {fastest} (`precision-time layout` tries all).")
    precision = policy_under(job.precision, job.stack.profile, job.layout.weights_stage, layout.weights_stage)
    if precision is not job.precision:
        held_weights(precision.name, job.stack, layout.weights_stage, found)
    return replace(job, layout=layout, precision=precision)


def _global_batch(job: Job, request: RequestFields, found: Diagnostics) -> float | None:
    """Samples per step as given, or the nearest whole number of samples to the tokens given.

    Raises:
        ConfigError: Tokens of a model that takes none.
    """
    tokens = request.global_batch_tokens
    answers, prompts = job.workload.answers_per_prompt, request.prompts
    if answers is not None and not says_samples(request):
        if prompts is None:
            prompts = max(constants("engines")["answers"]["answers"] // answers, 1)
            found.assume(
                "batch_size",
                f"Prompts of a step not given: {prompts} assumed, {prompts * answers:,} answers (prompts=).",
            )
        shares = job.layout.dp * job.layout.num_microbatches * max(int(request.batch_size or 1), 1)
        whole = -(-prompts * answers // shares) * shares
        if whole != prompts * answers:
            found.assume(
                "batch_size",
                f"{prompts * answers:,} answers do not divide by {shares} replicas: priced as {whole:,}.",
            )
        return float(whole)
    if tokens is None:
        return request.global_batch_size
    length = tokens_per_sample(job.workload)
    if length is None:
        raise ConfigError(
            f"global_batch_tokens={tokens}: {job.workload.name} takes no tokens. To fix: global_batch_size=, "
            "in samples."
        )
    shares = job.layout.dp * job.layout.num_microbatches * max(int(request.batch_size or 1), 1)
    samples = nearest_multiple(shares, round(tokens / length)) if tokens >= shares * length else 0
    samples = samples or max(round(tokens / length), 1)
    if samples * length != tokens:
        found.assume(
            "batch_size",
            f"{tokens:,} tokens per step read as {samples:,} samples of {length:g}: {samples * length:,.0f}.",
        )
    return float(samples)


def tokens_per_sample(workload: Workload) -> float | None:
    """Tokens of a sample; None of a model that takes none."""
    return workload.units_per_sample if workload.throughput_unit == "tokens/s" else None


def _stated_batch(
    layout: Layout, request: RequestFields, global_batch_size: float | None, found: Diagnostics
) -> tuple[float | None, Layout]:
    """Samples per device and forward pass as the request says, None where it does not, and the layout.

    Both batches together say how many micro batches are accumulated.

    Raises:
        LayoutError: If both batches are given and do not divide, or the global one does not.
    """
    batch_size = request.batch_size
    shares = layout.dp * layout.num_microbatches
    if global_batch_size is None:
        return batch_size, layout
    if batch_size is not None:
        if batch_size * shares == global_batch_size:
            return batch_size, layout
        steps = global_batch_size / (batch_size * layout.dp)
        whole = steps >= 1 and steps == int(steps)
        if whole and "num_microbatches" not in request.given_layout:
            found.assume(
                "num_microbatches",
                f"{steps:g} micro batches accumulated (--num-microbatches {steps:g}): {global_batch_size:g} "
                f"samples per step are {batch_size:g} x {layout.dp} replicas x {steps:g}.",
            )
            return batch_size, replace(layout, num_microbatches=int(steps))
        accumulated = f", or num_microbatches={steps:g}" if whole else ""
        raise LayoutError(
            f"batch_size({batch_size:g}) * dp({layout.dp}) * num_microbatches({layout.num_microbatches}) = "
            f"{batch_size * shares:g}, but global_batch_size={global_batch_size:g}. To fix: give only one of "
            f"them{accumulated}."
        )
    if global_batch_size % shares:
        raise LayoutError(
            f"global_batch_size={global_batch_size:g} does not divide by dp({layout.dp}) * "
            f"num_microbatches({layout.num_microbatches}) = {shares}. To fix: use "
            f"{max(global_batch_size // shares, 1) * shares:g}."
        )
    return global_batch_size / shares, layout


def sharded_if_needed(job: Job, said: bool, found: Diagnostics) -> Job:
    """The job as it is, or sharded where that was not said and it does not fit; pipelines shard less."""
    if said or job.layout.data_ranks == 1 or job.workload.family in SPREADS_TABLES:
        return job
    if job.layout.pp > 1:
        stage, words = 1, "optimizer states sharded (zero_stage=1)"
    else:
        stage, words = 3, "full sharding (zero_stage=3, FSDP)"
    usual = job.layout.zero_stage == 1 and job.layout.offload is Offload.NONE
    if job.layout.zero_stage >= stage or (job.layout.zero_stage and not usual) or _fits(job):
        return job
    less = "Sharding the optimizer states alone" if usual else "Plain data parallelism"
    found.assume("zero_stage", f"{less} does not fit: {words} assumed.")
    precision = policy_under(job.precision, job.stack.profile, job.layout.zero_stage, stage)
    if precision is not job.precision:
        held_weights(precision.name, job.stack, stage, found)
    return replace(job, layout=replace(job.layout, zero_stage=stage), precision=precision)


def _batches_of(job: Job) -> tuple[tuple[int, ...], str]:
    """Batches to try, which answers to one prompt fill: from the usual one down, and in words whose it is."""
    name, whole = normalize(job.workload.name), job.workload.answers_per_prompt or 1
    for row in practice_file("batches")["usual"]:
        if job.workload.family in row.get("families", ()) or re.fullmatch(row.get("models", ""), name):
            break
    ranks = job.layout.dp * job.layout.num_microbatches
    fitting = tuple(batch for batch in reversed(powers_of_two(row["most"])) if batch * ranks % whole == 0)
    return fitting or (whole,), f" (as in {row['scripts']})" if "scripts" in row else ""


def _batched(job: Job, batch_size: float) -> Job:
    """The job with so many samples per device, each of one row or more."""
    rows = float(batch_size) * job.workload.rows_per_sample
    return replace(job, layout=replace(job.layout, micro_batch_size=rows))


def _fits(job: Job) -> bool:
    return bool(np.max(total_bytes(memory_of(Jobs.at(job)))) <= job.cluster.device.usable_bytes)


def held_weights(policy: str, stack: Stack, zero_stage: int, found: Diagnostics) -> str | None:
    """How the code of a stack holds the weights of mixed precision at a ZeRO stage, which is told."""
    variant = usual_variant(get_stack_profile(stack.profile), policy, zero_stage)
    if variant is not None:
        sharded = f" with zero_stage={zero_stage}" if zero_stage else ""
        found.assume(
            "default-weights",
            f"{policy} on {stack.profile}{sharded} read as {policy}:{variant}"
            + (f" ({policy}:autocast: fp32 weights)." if "autocast" in known_variants(policy) else "."),
        )
    return variant
