"""The hypernetwork in torch, for training: the same parameters and arithmetic as `network.py`.

Several graphs go through the sweeps at once as one disconnected graph, level by level. No library of graph
layers is used: they pass messages along all edges at once, and here each level reads what the one before has
just become.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch.func import functional_call

from .architecture import ArchitectureGraph, levels_of, path_lengths
from .decoder import predict_weights
from .sampled import SampledNetwork
from .weights import WIDTH, Floats32, GhnWeights, version_of

Parameters = Mapping[str, Any]
_AT_ONCE = 8
"""Networks whose weights are predicted at once in scoring."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class GraphBatch:
    """Several graphs as one, nodes in the order of their levels; N nodes in all."""

    primitives: Any
    shapes: Any
    near: Any
    """1 where row v is directly fed by column u, shape (N, N)."""
    reach: Any
    """1 over the path length from u to v, 0 without a path, shape (N, N)."""
    bounds: tuple[int, ...]
    """First node of each level, and N at the end."""
    rows: tuple[tuple[int, ...], ...]
    """For each graph the row of each of its nodes."""


def batch_of(graphs: Sequence[ArchitectureGraph]) -> GraphBatch:
    """Graphs side by side, without edges between them."""
    levels = np.concatenate([levels_of(graph) for graph in graphs])
    order = np.argsort(levels, kind="stable")
    lengths = np.zeros((len(levels), len(levels)), dtype=np.float32)
    starts = np.cumsum([0, *(len(graph) for graph in graphs)])
    for graph, start in zip(graphs, starts, strict=False):
        block = slice(start, start + len(graph))
        lengths[block, block] = path_lengths(graph)
    lengths = lengths[np.ix_(order, order)]
    reach = np.divide(1.0, lengths, out=np.zeros_like(lengths), where=lengths > 0)
    place = np.argsort(order, kind="stable")
    return GraphBatch(
        primitives=torch.from_numpy(np.concatenate([graph.primitives for graph in graphs])[order]),
        shapes=torch.from_numpy(np.concatenate([graph.shapes for graph in graphs])[order]),
        near=torch.from_numpy((lengths == 1).astype(np.float32)),
        reach=torch.from_numpy(reach),
        bounds=tuple(np.searchsorted(levels[order], np.arange(levels.max() + 2)).tolist()),
        rows=tuple(
            tuple(place[start : start + len(graph)].tolist())
            for graph, start in zip(graphs, starts, strict=False)
        ),
    )


def to_parameters(weights: GhnWeights) -> dict[str, Any]:
    """Parameters as tensors that require gradients."""
    return {
        name: torch.from_numpy(array.copy()).requires_grad_(True) for name, array in weights.arrays.items()
    }


def to_weights(parameters: Parameters, card: str = "") -> GhnWeights:
    """Parameters as arrays."""
    arrays: dict[str, Floats32] = {
        name: tensor.detach().cpu().numpy().astype(np.float32).copy() for name, tensor in parameters.items()
    }
    return GhnWeights(arrays=arrays, version=version_of(arrays), card=card)


def node_vectors(parameters: Parameters, batch: GraphBatch) -> Any:
    """Vectors of all nodes, shape (N, 32), in the order of the batch."""
    c_out, c_in, k_h, k_w = batch.shapes.unbind(1)
    channels, sides = parameters["channel_table"], parameters["side_table"]
    shape = torch.cat([channels[c_out], channels[c_in], sides[k_h], sides[k_w]], 1)
    state = parameters["op_table"][batch.primitives] + shape
    state = _sweep(parameters, state, batch.near, batch.reach, batch.bounds, forward=True)
    state = _sweep(parameters, state, batch.near.T, batch.reach.T, batch.bounds, forward=False)
    return F.layer_norm(state, (WIDTH,), parameters["norm.weight"], parameters["norm.bias"])


def _sweep(
    parameters: Parameters, state: Any, near: Any, reach: Any, bounds: Sequence[int], *, forward: bool
) -> Any:
    levels = range(len(bounds) - 1)
    done: list[Any] = []
    sent = state.new_zeros((0, 2 * WIDTH))
    weights = torch.cat([near, reach], 1)
    count = len(state)
    for level in levels if forward else reversed(levels):
        low, high = bounds[level], bounds[level + 1]
        first, last = (0, low) if forward else (high, count)
        message = weights[low:high, first:last] @ sent[:, :WIDTH]
        message = message + weights[low:high, count + first : count + last] @ sent[:, WIDTH:]
        fresh = _gru(parameters, message, state[low:high])
        sent_now = torch.cat(
            [_message(parameters, fresh, "direct"), _message(parameters, fresh, "virtual")], 1
        )
        sent = torch.cat([sent, sent_now] if forward else [sent_now, sent])
        done.append(fresh)
    return torch.cat(done if forward else done[::-1])


def _message(parameters: Parameters, state: Any, name: str) -> Any:
    inner = F.relu(F.linear(state, parameters[f"{name}.0.weight"], parameters[f"{name}.0.bias"]))
    return F.relu(F.linear(inner, parameters[f"{name}.1.weight"], parameters[f"{name}.1.bias"]))


def _gru(parameters: Parameters, message: Any, state: Any) -> Any:
    return torch.gru_cell(
        message,
        state,
        parameters["gru.weight_ih"],
        parameters["gru.weight_hh"],
        parameters["gru.bias_ih"],
        parameters["gru.bias_hh"],
    )


def fill(parameters: Parameters, networks: Sequence[SampledNetwork]) -> list[dict[str, Any]]:
    """Weights of several networks, out of their graphs alone."""
    batch = batch_of([network.graph for network in networks])
    return predict_weights(parameters, node_vectors(parameters, batch), networks, batch.rows)


def accuracies(
    parameters: Parameters,
    networks: Sequence[SampledNetwork],
    part: tuple[NDArray[np.float32], NDArray[np.int64]],
) -> NDArray[np.float64]:
    """Accuracy of each network with predicted weights; batch norms use the statistics of these images."""
    images, labels = torch.from_numpy(part[0]), torch.from_numpy(part[1])
    scores = []
    with torch.no_grad():
        for first in range(0, len(networks), _AT_ONCE):
            some = networks[first : first + _AT_ONCE]
            for network, weights in zip(some, fill(parameters, some), strict=True):
                scores.append(accuracy(functional_call(network.module, weights, (images,)), labels))
    return np.array(scores)


def accuracy(answers: Any, labels: Any) -> float:
    """Share of images whose largest output, shape (n, classes), is their label's."""
    return float((answers.argmax(1) == labels).double().mean())
