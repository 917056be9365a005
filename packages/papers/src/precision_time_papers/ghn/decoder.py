"""From node vectors to the weights of a network: the hypernetwork's decoder, in torch.

As in GHN-2: a convolutional decoder makes matrices and kernels of one largest shape, which are cropped and
tiled to what a layer needs; a perceptron makes the parameters of norms and biases; the classifying layer has
a head of its own. Then weights are normalized by their fan-in, norms pass 2 sigmoid(p/2), biases tanh(p/5).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil, prod, sqrt
from typing import Any

import torch
import torch.nn.functional as F

from .sampled import SampledNetwork, Target
from .weights import LARGEST

Parameters = Mapping[str, Any]
_WITH_RELU, _WITHOUT_RELU = 2.0, 1.0
"""Variance over fan-in (He et al. 2015), and for layers that no ReLU follows."""


@dataclass(frozen=True, slots=True)
class _Order:
    """A target of one of several networks, and the row of its node in the batch of vectors."""

    network: int
    row: int
    target: Target


def predict_weights(
    parameters: Parameters, vectors: Any, networks: Sequence[SampledNetwork], rows: Sequence[Sequence[int]]
) -> list[dict[str, Any]]:
    """Weights of several networks at once.

    Args:
        parameters: Parameters of the decoder by name.
        vectors: Node vectors of all networks, shape (N, 32).
        networks: Networks to fill.
        rows: For each network the row of each of its nodes in `vectors`.

    Returns:
        For each network its parameters by path, normalized and in the shapes it needs.
    """
    groups: dict[tuple[str, int, int], list[_Order]] = defaultdict(list)
    for number, network in enumerate(networks):
        for target in network.targets:
            key = _group(target)
            groups[key].append(_Order(number, rows[number][target.node], target))
    filled: list[dict[str, Any]] = [{} for _ in networks]
    for (role, height, width), orders in groups.items():
        chosen = vectors[[order.row for order in orders]]
        made = _decode(parameters, chosen, role, height, width)
        for order, tensor in zip(orders, made.unbind(0), strict=True):
            shape = _declared(networks[order.network], order.target)
            filled[order.network][order.target.parameter] = _fitted(tensor, order.target).reshape(shape)
    return filled


def _declared(network: SampledNetwork, target: Target) -> tuple[int, ...]:
    return tuple(network.module.get_parameter(target.parameter).shape)


def _group(target: Target) -> tuple[str, int, int]:
    """What is decoded together: one role, one window."""
    if target.role in ("weight", "table", "head"):
        height, width = target.shape[2:] if len(target.shape) == 4 else (1, 1)
        role = "head" if target.role == "head" else "matrix"
        return role, min(height, LARGEST[2]), min(width, LARGEST[3])
    return ("head_bias" if target.role == "head_bias" else "vector"), 0, 0


def _decode(parameters: Parameters, vectors: Any, role: str, height: int, width: int) -> Any:
    """(n, 32) to matrices (n, 32, 32, height, width), heads (n, classes, 32) or vectors (n, 2, 32)."""
    if role in ("matrix", "head"):
        made = _matrices(parameters, vectors, height, width)
        if role == "matrix":
            return made
        columns = F.relu(made[:, :, :, 0, 0]).transpose(1, 2)
        return _linear(parameters, "classes", columns).transpose(1, 2)
    hidden = F.relu(_linear(parameters, "vector.0", vectors))
    pair = _linear(parameters, "vector.1", hidden).view(len(vectors), 2, LARGEST[0])
    return pair if role == "vector" else _linear(parameters, "class_bias", F.relu(pair[:, 1]))


def _matrices(parameters: Parameters, vectors: Any, height: int, width: int) -> Any:
    """The convolutional decoder; only the middle of the largest window is computed."""
    top, left = (LARGEST[2] - height) // 2, (LARGEST[3] - width) // 2
    window = (slice(None), slice(top, top + height), slice(left, left + width))
    spread = parameters["spread.weight"].view(-1, LARGEST[2], LARGEST[3], vectors.shape[1])[window]
    offset = parameters["spread.bias"].view(-1, LARGEST[2], LARGEST[3])[window]
    x = F.relu(torch.einsum("ni,chwi->nhwc", vectors, spread) + offset.permute(1, 2, 0))
    x = F.relu(_linear(parameters, "mix.0", x))
    x = _linear(parameters, "mix.1", x)
    return x.view(len(vectors), height, width, LARGEST[0], LARGEST[1]).permute(0, 3, 4, 1, 2)


def _linear(parameters: Parameters, name: str, x: Any) -> Any:
    return F.linear(x, parameters[f"{name}.weight"], parameters[f"{name}.bias"])


def _fitted(made: Any, target: Target) -> Any:
    """What was decoded in the shape of a parameter, normalized."""
    if target.role in ("weight", "head", "table"):
        return _fitted_matrix(made, target)
    if target.role == "norm":
        return 2.0 * torch.sigmoid(0.5 * tiled(made[0], target.shape))
    return torch.tanh(0.2 * tiled(made if target.role == "head_bias" else made[1], target.shape))


def _fitted_matrix(made: Any, target: Target) -> Any:
    if len(target.shape) == 4:
        matrix = tiled(made, target.shape)
    else:
        plane = made if target.role == "head" else made[:, :, 0, 0]
        if target.columns:
            last = target.first_column + target.shape[1]
            matrix = tiled(plane, (target.shape[0], target.columns))[:, target.first_column : last]
        else:
            matrix = tiled(plane, target.shape)
    if target.role == "table":
        return matrix
    fan_in = target.columns or prod(target.shape[1:])
    depthwise = len(target.shape) == 4 and target.shape[1] == 1
    return matrix * sqrt((_WITHOUT_RELU if depthwise else _WITH_RELU) / fan_in)


def tiled(made: Any, shape: Sequence[int]) -> Any:
    """`made` cropped, or repeated and then cropped, to `shape`; both have as many dimensions."""
    cropped = made[tuple(slice(0, size) for size in shape)]
    times = [ceil(size / have) for size, have in zip(shape, cropped.shape, strict=True)]
    if max(times) > 1:
        cropped = cropped.repeat(*times)[tuple(slice(0, size) for size in shape)]
    return cropped
