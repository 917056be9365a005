"""Temporal Fusion Transformer (Lim et al. 2019, arXiv 1912.09363)."""

from __future__ import annotations

from ...records import dataclass
from ..builder import GraphBuilder, Tensor
from ..graph import OpGraph
from .layers import divides


@dataclass(frozen=True, kw_only=True, slots=True)
class TemporalFusionConfig:
    """Sizes of a Temporal Fusion Transformer. Lengths in time steps."""

    hidden: int
    heads: int
    encoder_length: int
    horizon: int
    past_inputs: int
    future_inputs: int
    static_inputs: int
    static_values: int
    """Rows of the static embedding table (time series)."""
    quantiles: int = 3

    def __post_init__(self) -> None:
        divides("heads", self.heads, "hidden", self.hidden)


def build_tft(name: str, config: TemporalFusionConfig) -> OpGraph:
    """The graph of one forward pass over one window with the quantile loss."""
    b = GraphBuilder(name)
    hidden, steps = config.hidden, config.encoder_length + config.horizon
    static = b.embedding(config.static_inputs, config.static_values, hidden)
    contexts = [_gated_residual(b, b.reshape(static, 1, hidden)) for _ in range(4)]
    past = _select(b, config.encoder_length, config.past_inputs, contexts[0], config)
    future = _select(b, config.horizon, config.future_inputs, contexts[0], config)
    history = b.lstm(past, hidden, steps=config.encoder_length)
    ahead = b.lstm(future, hidden, steps=config.horizon)
    inputs = b.move("cat", past, future, rows=steps, width=hidden)
    x = _gate_add_norm(b, b.move("cat", history, ahead, rows=steps, width=hidden), inputs)
    enriched = _gated_residual(b, x, contexts[3])
    x = _gate_add_norm(b, _attend(b, enriched, config), enriched)
    x = _gate_add_norm(b, _gated_residual(b, x), b.reshape(inputs, steps, hidden))
    b.loss("mean", b.linear(b.reshape(x, config.horizon, hidden), config.quantiles))
    elems = steps * (config.past_inputs + config.future_inputs)
    return b.build(input_bytes=4.0 * elems, seq_len=steps)


def _gated_residual(b: GraphBuilder, x: Tensor, context: Tensor | None = None, out: int = 0) -> Tensor:
    """Gated residual network: two linear layers, a gated linear unit, a residual and a norm."""
    width = out or int(x.width)
    inner = b.linear(x, width)
    if context is not None:
        inner = b.elementwise("add", inner, b.linear(context, width, bias=False))
    inner = b.linear(b.elementwise("elu", inner), width)
    skip = x if width == x.width else b.linear(x, width)
    return _gate_add_norm(b, inner, skip)


def _gate_add_norm(b: GraphBuilder, x: Tensor, skip: Tensor) -> Tensor:
    gates = b.linear(b.dropout(x), 2 * x.width)
    return b.norm(b.add(b.elementwise("glu", gates, width=x.width), skip))


def _select(
    b: GraphBuilder, steps: int, inputs: int, context: Tensor, config: TemporalFusionConfig
) -> Tensor:
    """Variable selection: every input embedded, weighed by a softmax over the inputs, and summed."""
    embedded = b.linear(b.input(steps * inputs, 1), config.hidden)
    flat = b.reshape(embedded, steps, inputs * config.hidden)
    weights = b.softmax(_gated_residual(b, flat, context, out=inputs))
    with b.block(inputs):
        processed = _gated_residual(b, b.reshape(embedded, steps, config.hidden))
    every = b.reshape(processed, steps * inputs, config.hidden)
    return b.reduce("sum", b.elementwise("mul", every, weights), rows=steps, width=config.hidden)


def _attend(b: GraphBuilder, x: Tensor, config: TemporalFusionConfig) -> Tensor:
    """Interpretable attention: one value head shared by all heads; queries are the horizon's steps."""
    dim = config.hidden // config.heads
    joined = b.linear(x, (2 * config.heads + 1) * dim, bias=False)
    query, key = b.reshape(joined, x.rows, config.hidden), b.reshape(joined, x.rows, config.hidden)
    value = b.reshape(joined, x.rows, dim)
    scores = b.bmm(query, key, m=x.rows, n=x.rows, k=dim, count=config.heads)
    weights = b.dropout(b.softmax(scores))
    out = b.bmm(weights, value, m=x.rows, n=dim, k=x.rows, count=config.heads)
    mean = b.reduce("mean", out, rows=x.rows, width=dim)
    return b.linear(mean, config.hidden, bias=False)
