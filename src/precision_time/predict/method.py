"""Seconds of what a training method does beside the update, as terms outside of the learned correction."""

from __future__ import annotations

from dataclasses import replace

from ..cost.job import Job, Jobs, TimingScope
from ..cost.step import price
from ..parallel.layout import Offload, Recompute
from ..precision.catalog import get_policy
from ..precision.policy import DType
from ..workload.graph import OpGraph
from ..workload.method import Generation

_SERVED_IN = {DType.BF16: "bf16", DType.FP16: "fp16"}
_COMPILED = "cudagraphs"


def method_seconds(job: Job, correction: float) -> dict[str, float]:
    """Seconds by term; empty for plain training.

    Forward passes and updates of other models are priced as the policy is, with the same correction;
    generation is priced by roofline alone: its memory traffic bounds it.

    Args:
        job: The update of the policy.
        correction: Predicted over analytical seconds of that update.
    """
    method = job.workload.method
    if method is None:
        return {}
    found: dict[str, float] = {}
    if method.generation is not None:
        found |= _generation_seconds(job, method.generation)
    for term, graph in (*method.forward, *method.trained):
        found[term] = found.get(term, 0.0) + _step_s(_with_graph(job, graph)) * correction
    return found


def _with_graph(job: Job, graph: OpGraph) -> Job:
    """The job of another model; without a backward pass nothing is recomputed."""
    workload = replace(job.workload, graph=graph, method=None, largest=None)
    if graph.trainable_params:
        return replace(job, workload=workload)
    return replace(job, workload=workload, layout=replace(job.layout, recompute=Recompute.NONE))


def _step_s(job: Job) -> float:
    return float(price(Jobs.at(job)).step_time_s[0])


def _generation_seconds(job: Job, generation: Generation) -> dict[str, float]:
    """Prompts once each, then token by token; every rank writes all its answers of the step at once.

    Weights are whole on each tensor-parallel group and held in 16 bits, kernels replayed from graphs.
    """
    layout, policy = job.layout, job.precision
    answers = layout.micro_batch_size * layout.num_microbatches
    whole = replace(
        layout, zero_stage=0, num_microbatches=1, data_parallel_engine="none", micro_batch_size=answers,
        recompute=Recompute.NONE, offload=Offload.NONE,
    )  # fmt: skip
    served = replace(
        job,
        layout=whole,
        precision=get_policy(_SERVED_IN.get(policy.activation, policy.name)),
        stack=replace(
            job.stack, compiler=_COMPILED, fused_attention=True, host_per_layer_s=0.0, host_per_tensor_s=0.0
        ),
        scope=TimingScope.NO_OPTIMIZER,
        stragglers=False,
    )
    prompts = replace(whole, micro_batch_size=max(answers / generation.answers_per_prompt, 1.0))
    return {
        "prefill_s": _step_s(_with_graph(replace(served, layout=prompts), generation.prompt)),
        "decode_s": _step_s(_with_graph(served, generation.token)) * generation.tokens,
    }
