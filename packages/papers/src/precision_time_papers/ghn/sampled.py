"""A drawn network, its architecture graph, and which node stands for which of its parameters.

The graph is captured from the module by the same recorder that reads users' models, so that what the
hypernetwork is trained on is what it is asked about later.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import torch
from torch import nn

from precision_time.capture.recorder import CAPTURE_BATCH, record
from precision_time.workload.graph import OpGraph

from .architecture import ArchitectureGraph, architecture_of
from .sampler import ImageShape, NetworkPlan, build, draw_many

_HEAD = "head"


@dataclass(frozen=True, kw_only=True, slots=True)
class Target:
    """One parameter of a network, to be filled from the vector of one node."""

    parameter: str
    """Its path in the network (`body.0.weight`)."""
    node: int
    role: str
    """weight, norm, bias, table or head: what the decoder makes."""
    shape: tuple[int, ...]
    first_column: int = 0
    """Where it starts in a matrix that it shares with another parameter (recurrent layers)."""
    columns: int = 0
    """Columns of that matrix; 0 where it shares none."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class SampledNetwork:
    """A network without weights, ready to be given some."""

    plan: NetworkPlan
    module: nn.Module
    """On the meta device."""
    graph: ArchitectureGraph
    targets: tuple[Target, ...]
    parameters: int
    """Parameter elements."""


def sampled(plan: NetworkPlan, image: ImageShape) -> SampledNetwork:
    """Build the network of a plan, capture its graph, and match parameters to nodes."""
    with torch.device("meta"):
        module = build(plan, image)
        example = torch.empty(CAPTURE_BATCH, image.channels, image.side, image.side)
    operators = record(module, (example,), name=plan.kind, fold=False)
    graph = architecture_of(operators)
    return SampledNetwork(
        plan=plan,
        module=module,
        graph=graph,
        targets=tuple(_targets(module, operators, graph)),
        parameters=sum(parameter.numel() for parameter in module.parameters()),
    )


def _targets(module: nn.Module, operators: OpGraph, graph: ArchitectureGraph) -> Iterator[Target]:
    """Every parameter once, in the order of the nodes."""
    modules = dict(module.named_modules())
    names = graph.primitive_names
    for node, operator in enumerate(graph.operators.tolist()):
        if operator < 0:
            continue
        path = operators.nodes[operator].layer
        for name, parameter in modules[path].named_parameters(recurse=False):
            if _stands_for(names[node], name):
                yield _target(path, name, tuple(parameter.shape), node, modules[path])


def _stands_for(primitive: str, parameter: str) -> bool:
    """Whether a node of that primitive is the place of a parameter of that name in its layer."""
    if primitive == "bias":
        return parameter == "bias"
    if primitive in ("bn", "ln", "group_norm", "rms_norm", "rnn"):
        return True
    return parameter in ("weight", "table")


def _target(path: str, name: str, shape: tuple[int, ...], node: int, layer: Any) -> Target:
    full = f"{path}.{name}"
    if name.startswith("weight_"):
        inputs, hidden = layer.weight_ih.shape[1], layer.hidden
        first = inputs if name == "weight_hh" else 0
        return Target(
            parameter=full, node=node, role="weight", shape=shape, first_column=first, columns=inputs + hidden
        )
    if name == "table":
        return Target(parameter=full, node=node, role="table", shape=(prod(shape[:-1]), shape[-1]))
    if "bias" in name:
        return Target(parameter=full, node=node, role="head_bias" if path == _HEAD else "bias", shape=shape)
    if len(shape) == 1:
        return Target(parameter=full, node=node, role="norm", shape=shape)
    if path == _HEAD:
        return Target(parameter=full, node=node, role="head", shape=shape)
    return Target(parameter=full, node=node, role="weight", shape=shape)


def draw_sampled(
    seed: int, name: str, count: int, image: ImageShape, *, without: Sequence[str] = ()
) -> list[SampledNetwork]:
    """Networks of a space with their graphs, no graph twice and none of those in `without`."""
    taken = set(without)
    kept: list[SampledNetwork] = []
    for plan in draw_many(seed, name, 4 * count):
        network = sampled(plan, image)
        if network.graph.content_hash not in taken:
            taken.add(network.graph.content_hash)
            kept.append(network)
        if len(kept) == count:
            break
    return kept
