"""Seconds of what a training method does beside the update, as terms outside of the learned correction."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from ..arrays import Floats
from ..cost.constants import constants
from ..cost.generation import logprobs_factor, reward_s, unevenness, writing_times
from ..cost.job import Job, Jobs
from ..cost.step import price
from ..parallel.layout import Recompute
from ..workload.graph import OpGraph
from ..workload.method import Generation, Method
from ..workload.tuning import without_training

_SCORES = frozenset({"logprobs_s", "reference_s"})
"""Terms of log-probabilities."""


def seconds_beside(jobs: Jobs, update_s: Floats, analytical_s: Floats) -> dict[str, Floats]:
    """Seconds by term of what methods do beside the updates of n jobs; of plain training nothing."""
    if all(job.workload.method is None for job in jobs.shared):
        return {}
    found: dict[str, Floats] = {}
    for row, times in enumerate(zip(update_s.tolist(), analytical_s.tolist(), strict=True)):
        for name, seconds in method_seconds(jobs.row(row), *times).items():
            found.setdefault(name, np.zeros(len(jobs)))[row] = seconds
    return found


def method_seconds(job: Job, update_s: float, analytical_s: float) -> dict[str, float]:
    """Seconds by term; empty for plain training.

    Forward passes and updates of other models are priced as the policy is, with the same correction;
    generation is priced by the cost model alone.
    """
    method = job.workload.method
    if method is None:
        return {}
    found: dict[str, float] = {}
    generation = method.generation
    correction = update_s / analytical_s
    cut = 0.0 if generation is None else _cut_s(job, generation, analytical_s) / analytical_s
    if generation is not None:
        scored = without_training(job.workload.graph)
        found["logprobs_s"] = _step_s(_with_graph(job, scored)) * correction * _scoring(job, "logprobs_s")
    for term, graph in (*method.forward, *method.trained):
        again = 1.0 + (cut if graph.trainable_params else 0.0)
        seconds = _step_s(_with_graph(job, graph)) * correction * again * _scoring(job, term)
        found[term] = found.get(term, 0.0) + seconds
    if generation is None:
        return found
    if generation.updates > 1:
        found["updates_s"] = cut * update_s
    waited_s = unevenness(job, generation) * (update_s + math.fsum(found.values()))
    if waited_s > 0.0:
        found["uneven_s"] = waited_s
    if "reward_model_s" not in found:
        found["reward_s"] = reward_s(job)
    return _with_writing(job, generation, found, update_s)


def written_spread(method: Method | None) -> float:
    """What published steps with generation differ by: standard deviation of the logarithm."""
    if method is None or method.generation is None:
        return 0.0
    table = constants("engines")["error"]
    return float(table["spread" if method.generation.lengths_said else "spread_of_lengths"])


def _with_writing(
    job: Job, generation: Generation, beside: dict[str, float], update_s: float
) -> dict[str, float]:
    """The terms with those of generation, of which only what training does not hide is waited for."""
    times = writing_times(job, generation)
    written = {"prefill_s": times.prefill_s, "decode_s": times.decode_s, "tail_s": times.tail_s}
    if generation.staleness:
        # Where answers may be older than one update, the next ones begin while the longest are written.
        written["tail_s"] *= generation.staleness == 1
        total_s = math.fsum(written.values())
        exposed_s = max(total_s - update_s - math.fsum(beside.values()), 0.0)
        written = {name: seconds * exposed_s / total_s for name, seconds in written.items()}
    return {**written, **beside, "sync_s": times.sync_s}


def _scoring(job: Job, term: str) -> float:
    """Over a forward pass: what log-probabilities of generated answers take."""
    generating = job.workload.answers_per_prompt is not None
    return logprobs_factor() if generating and term in _SCORES else 1.0


def _with_graph(job: Job, graph: OpGraph) -> Job:
    """The job of another model; without a backward pass nothing is recomputed."""
    workload = replace(job.workload, graph=graph, method=None, largest=None)
    layout = job.layout if graph.trainable_params else replace(job.layout, recompute=Recompute.NONE)
    return replace(job, workload=workload, layout=layout, cluster=job.training_cluster)


def _step_s(job: Job) -> float:
    return float(price(Jobs.at(job)).step_time_s[0])


def _cut_s(job: Job, generation: Generation, analytical_s: float) -> float:
    """What it adds that a generated batch is several updates: more optimizer steps, exchanges and bubbles."""
    layout, updates = job.layout, generation.updates
    if updates == 1:
        return 0.0
    rounds = layout.num_microbatches / updates
    sizes = [layout.micro_batch_size * min(rounds, 1.0)]
    each = price(Jobs.at(_with_graph(job, job.workload.graph), sizes, [max(rounds, 1.0)]))
    return max(float(each.step_time_s[0]) * updates - analytical_s, 0.0)
