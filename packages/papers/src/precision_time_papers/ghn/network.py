"""Node vectors by one round of the gated graph network, in numpy.

    m_v = sum over direct u of MLP(h_u) + sum over all u within reach of MLP_virtual(h_u) / s_uv
    h_v = GRU(m_v, h_v)

first along the edges in topological order, then against them in reverse, each node reading what its
neighbors have just become (GHN-2, equation 4). Pairs with a direct edge (s = 1) enter both sums, as in
the published code; the paper's text has s > 1 in the second.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from .architecture import ArchitectureGraph, levels_of, path_lengths
from .weights import Floats32, GhnWeights

_EPSILON = 1e-5


def node_vectors(graph: ArchitectureGraph, weights: GhnWeights) -> Floats32:
    """The vector of every node after both sweeps and the layer norm.

    Returns:
        Shape (N, 32), nodes in the order of `graph`.
    """
    arrays = weights.arrays
    levels = levels_of(graph)
    order = np.argsort(levels, kind="stable")
    bounds = np.searchsorted(levels[order], np.arange(levels.max() + 2))
    lengths = path_lengths(graph)[np.ix_(order, order)]
    state = initial_vectors(graph, weights)[order]
    state = _sweep(state, lengths, bounds, arrays, forward=True)
    state = _sweep(state, np.ascontiguousarray(lengths.T), bounds, arrays, forward=False)
    out = np.empty_like(state)
    out[order] = _layer_norm(state, arrays["norm.weight"], arrays["norm.bias"])
    return out


def initial_vectors(graph: ArchitectureGraph, weights: GhnWeights) -> Floats32:
    """What a node is by itself: its primitive, plus widths and window sides side by side; shape (N, 32)."""
    arrays = weights.arrays
    c_out, c_in, k_h, k_w = graph.shapes.T
    channels, sides = arrays["channel_table"], arrays["side_table"]
    shape = np.concatenate([channels[c_out], channels[c_in], sides[k_h], sides[k_w]], axis=1)
    vectors: Floats32 = arrays["op_table"][graph.primitives] + shape
    return vectors


def _sweep(
    state: Floats32,
    lengths: NDArray[np.uint8],
    bounds: NDArray[np.int64],
    arrays: Mapping[str, Floats32],
    *,
    forward: bool,
) -> Floats32:
    """One pass over the levels; nodes stand in the order of their levels.

    Args:
        state: Vectors, shape (N, 32).
        lengths: Path length from column to row, 0 for none: rows read columns; shape (N, N).
        bounds: First node of each level, and N at the end.
        arrays: Parameters.
        forward: From the first level to the last, or back.
    """
    count = len(state)
    near = (lengths == 1).astype(np.float32)
    reach = np.zeros_like(near)
    np.divide(1.0, lengths, out=reach, where=lengths > 0)
    hidden_gates = state @ arrays["gru.weight_hh"].T + arrays["gru.bias_hh"]
    direct, virtual = np.zeros_like(state), np.zeros_like(state)
    state = state.copy()
    steps = range(len(bounds) - 1)
    for level in steps if forward else reversed(steps):
        low, high = bounds[level], bounds[level + 1]
        done = slice(0, low) if forward else slice(high, count)
        message = near[low:high, done] @ direct[done] + reach[low:high, done] @ virtual[done]
        gates = message @ arrays["gru.weight_ih"].T + arrays["gru.bias_ih"]
        state[low:high] = _gru(gates, hidden_gates[low:high], state[low:high])
        direct[low:high] = _message(state[low:high], arrays, "direct")
        virtual[low:high] = _message(state[low:high], arrays, "virtual")
    return state


def _message(state: Floats32, arrays: Mapping[str, Floats32], name: str) -> Floats32:
    """Two layers with ReLU after both, 32 to 16 to 32."""
    inner = np.maximum(state @ arrays[f"{name}.0.weight"].T + arrays[f"{name}.0.bias"], 0.0)
    out: Floats32 = np.maximum(inner @ arrays[f"{name}.1.weight"].T + arrays[f"{name}.1.bias"], 0.0)
    return out


def _gru(gates: Floats32, hidden_gates: Floats32, state: Floats32) -> Floats32:
    """The gated recurrent unit (Cho et al. 2014), gates in torch's order: reset, update, new."""
    width = state.shape[1]
    reset = _sigmoid(gates[:, :width] + hidden_gates[:, :width])
    update = _sigmoid(gates[:, width : 2 * width] + hidden_gates[:, width : 2 * width])
    new = np.tanh(gates[:, 2 * width :] + reset * hidden_gates[:, 2 * width :])
    out: Floats32 = new + update * (state - new)
    return out


def _sigmoid(values: Floats32) -> Floats32:
    out: Floats32 = np.float32(0.5) * (np.tanh(np.float32(0.5) * values) + np.float32(1.0))
    return out


def _layer_norm(state: Floats32, weight: Floats32, bias: Floats32) -> Floats32:
    centered = state - state.mean(axis=1, keepdims=True)
    spread = np.sqrt(np.square(centered).mean(axis=1, keepdims=True) + _EPSILON)
    out: Floats32 = centered / spread * weight + bias
    return out
