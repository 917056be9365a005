"""From a request to the job that is priced, and the facts of its data set."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from math import ceil
from pathlib import Path
from typing import Any

from ...cost.job import Job
from ...cost.stacks import get_stack, usual_profile
from ...errors import CaptureError
from ...hardware.device import Cluster
from ...hardware.inventory import ClusterResources
from ...parallel.layout import Layout
from ...precision.catalog import get_policy, parse_precision
from ...precision.support import check_support
from ...workload.graph import OpGraph
from ...workload.hf_config import is_config_source
from ...workload.resolve import load_workload
from ...workload.workload import Workload
from .contract import Request
from .datasets import (
    OTHER,
    DatasetFacts,
    dataset_facts,
    dataset_types,
    known_dataset,
    type_of,
    type_of_workload,
)

_SMALL_SIDE = 64
"""Data sets of smaller images are trained at their own size: ImageNet's 224 pixels are not assumed."""
_CAPTURED_SUFFIXES = (".json", ".onnx", ".pt2")


@dataclass(frozen=True, kw_only=True, slots=True)
class Resolved:
    """A request with every name looked up."""

    request: Request
    job: Job
    wanted: str
    """Data-set type; `OTHER` for a data set of none."""
    facts: DatasetFacts | None
    """Of the data set; None where only its type is known."""
    samples: int | None
    notes: tuple[str, ...]

    @property
    def dataset_name(self) -> str:
        """Type, or the data set where it is of none."""
        return self.wanted if self.wanted != OTHER else self.facts.name if self.facts else OTHER

    @property
    def steps_per_epoch(self) -> int | None:
        """Optimizer steps; None where the samples are not known."""
        layout = self.job.layout
        batch = layout.micro_batch_size * layout.num_micro_batches * layout.dp
        return None if self.samples is None else max(ceil(self.samples / batch), 1)


def resolve(request: Request, clusters: dict[int, Cluster]) -> Resolved:
    """The job of a request.

    Args:
        request: What is asked.
        clusters: Clusters made so far, by identity of what describes them: a batch shares a few.

    Raises:
        UnknownNameError: Model, data set or precision that nobody knows.
        ConfigError: A precision that the device cannot compute in, or a cluster of nothing.
        CaptureError: A model that cannot be turned into a graph, or has no operators.
    """
    notes: list[str] = []
    facts, wanted = _dataset(request)
    workload = _workload(request, facts, notes)
    if not workload.graph.nodes:
        raise CaptureError(
            f"The graph of {workload.name!r} has no operators: there is nothing to predict. To fix: capture "
            "a model whose forward pass computes something."
        )
    if request.dataset is None:
        wanted = type_of_workload(workload)
        facts = known_dataset(workload.dataset) if workload.dataset else None
        if wanted != OTHER:
            title = dataset_types()[wanted].title
            notes.append(
                f"data set not given: {workload.dataset or title} taken, as usual for {workload.name}"
            )
    key = id(request.cluster)
    if key not in clusters:
        given = request.cluster
        clusters[key] = _collected(given) if isinstance(given, ClusterResources) else given
    if isinstance(request.cluster, ClusterResources):
        notes.extend(request.cluster.notes)
    job = _job(request, workload, clusters[key], notes)
    known = workload.dataset_samples
    return Resolved(
        request=request,
        job=job,
        wanted=wanted,
        facts=facts,
        samples=facts.samples if facts is not None else known,
        notes=tuple(dict.fromkeys(notes)),
    )


def _collected(given: ClusterResources) -> Cluster:
    """One object per cluster, so that what is worked out for it is kept; custom files may change."""
    return given.cluster() if given.custom else _kept(given)


@lru_cache(maxsize=256)
def _kept(given: ClusterResources) -> Cluster:
    return given.cluster()


def _dataset(request: Request) -> tuple[DatasetFacts | None, str]:
    """Facts and type of the data set that a request names."""
    given = request.dataset
    if given is None:
        return None, OTHER
    name = given if isinstance(given, str) else given.name
    facts = known_dataset(name) if isinstance(given, str) else given
    side = request.image_size or (facts.side if facts is not None else None)
    wanted = type_of(name, "", side)
    if wanted == OTHER and facts is None:
        wanted = type_of("", request.task, side)
        if wanted == OTHER:
            facts = dataset_facts(name)  # says what is missing
    return facts, wanted


def _workload(request: Request, facts: DatasetFacts | None, notes: list[str]) -> Workload:
    model = request.model
    if isinstance(model, OpGraph):
        return _around(model, request)
    image_size = request.image_size
    is_small = facts is not None and facts.side is not None and facts.side <= _SMALL_SIDE
    name = None if request.dataset is None else facts.name if facts is not None else str(request.dataset)
    if image_size is None and is_small and facts is not None and not request.sizes:
        image_size = facts.side
        notes.append(f"image size not given: {image_size} pixels of {facts.name} taken")
    if _is_captured(model):
        from ...workload.capture.sources import capture_model

        graph = capture_model(
            model, example_inputs=request.example_inputs, seq_len=request.seq_len, image_size=image_size
        )
        return _around(graph, request)
    return load_workload(
        model,
        seq_len=request.seq_len,
        image_size=image_size,
        sizes=dict(request.sizes) or None,
        task=request.task,
        dataset=name,
        strict=True,
    )


def _is_captured(model: Any) -> bool:
    """Whether torch has to run the model to know it."""
    if isinstance(model, str | Path):
        words = str(model)
        return ":" in words or (words.endswith(_CAPTURED_SUFFIXES) and not is_config_source(words))
    return not (isinstance(model, Mapping) or is_config_source(model))


def _around(graph: OpGraph, request: Request) -> Workload:
    """A workload around a graph of the caller's own."""
    name = (
        request.dataset
        if isinstance(request.dataset, str)
        else request.dataset.name
        if request.dataset
        else ""
    )
    return Workload(
        name=graph.name,
        graph=graph,
        family="other",
        task=request.task,
        optimizer="adamw" if graph.seq_len is not None else "momentum-sgd",
        dataset=name,
        assumptions=("The optimizer was not given: assumed by the kind of input.",),
    )


def _job(request: Request, workload: Workload, cluster: Cluster, notes: list[str]) -> Job:
    choice = parse_precision(request.precision)
    if choice.assumption:
        notes.append(choice.assumption)
    policy = get_policy(choice.name, variant=choice.variant)
    notes.extend(check_support(policy, cluster.device))
    notes.extend((*workload.assumptions, *cluster.assumptions))
    return Job(
        workload=workload,
        cluster=cluster,
        precision=policy,
        layout=Layout(
            dp=cluster.num_devices,
            micro_batch_size=float(request.batch_size),
            num_micro_batches=int(request.num_micro_batches),
        ),
        stack=get_stack(request.stack) if request.stack else usual_profile(workload.family).stack(),
    )
