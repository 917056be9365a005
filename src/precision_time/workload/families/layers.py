"""Parts that several transformer families share: rotary positions, norms, MLPs, experts."""

from __future__ import annotations

from collections.abc import Callable

from ...errors import ConfigError
from ...records import dataclass
from ..builder import GraphBuilder, Tensor
from ..graph import OpClass


def rotary(b: GraphBuilder, x: Tensor, width: float) -> Tensor:
    """Rotary positions on `width` of the columns of `x`: rotate half, two products, a sum."""
    part = b.reshape(x, x.rows, width)
    half = b.elementwise("neg", b.reshape(x, x.rows, width / 2))
    turned = b.move("cat", b.reshape(x, x.rows, width / 2), half)
    cos = b.node("mul", OpClass.ELEMENTWISE, (part,), rows=x.rows, width=width)
    sin = b.node("mul", OpClass.ELEMENTWISE, (turned,), rows=x.rows, width=width)
    out = b.add(cos, sin)
    return out if width == x.width else b.move("cat", out, b.reshape(x, x.rows, x.width - width))


def norm(b: GraphBuilder, x: Tensor, kind: str, *, bias: bool = True) -> Tensor:
    """Layer ("layer") or root-mean-square ("rms") normalization; "none" passes `x` through."""
    if kind == "none":
        return x
    return b.rms_norm(x) if kind == "rms" else b.norm(x, bias=bias)


def activate(b: GraphBuilder, x: Tensor, kind: str) -> Tensor:
    """The activation function; `relu2` is relu squared."""
    if kind == "relu2":
        return b.elementwise("pow", b.elementwise("relu", x))
    return b.elementwise(kind, x)


def mlp(
    b: GraphBuilder,
    x: Tensor,
    ffn: float,
    *,
    gated: bool,
    activation: str,
    bias: bool,
    dropout: bool = False,
) -> Tensor:
    """A feed-forward block; gated ones are act(W_gate x) * (W_up x)."""
    if gated:
        gate = activate(b, b.linear(x, ffn, bias=bias), activation)
        inner = b.mul(gate, b.linear(x, ffn, bias=bias))
    else:
        inner = activate(b, b.linear(x, ffn, bias=bias), activation)
    return b.linear(b.dropout(inner, dropout), x.width, bias=bias)


@dataclass(frozen=True, kw_only=True, slots=True)
class ExpertSizes:
    """A mixture-of-experts feed-forward block."""

    experts: int
    top_k: int
    ffn: float
    """Inner width of one routed expert."""
    shared_ffn: float = 0.0
    """Inner width of the experts every token takes, together."""
    gated: bool = True
    activation: str = "silu"
    bias: bool = False
    router_bias: bool = False
    shared_gate: bool = False
    """The shared expert is scaled by a learned gate (Qwen2-MoE)."""
    latent: float = 0.0
    """Routed experts work on a projection of this width (0: on the full width)."""


def moe(b: GraphBuilder, x: Tensor, sizes: ExpertSizes) -> Tensor:
    """Router, top-k, dispatch, grouped products, combine; balanced routing assumed."""
    scores = b.softmax(b.linear(x, sizes.experts, bias=sizes.router_bias))
    b.reduce("topk", scores, rows=x.rows, width=sizes.top_k)
    narrow = b.linear(x, sizes.latent, bias=False) if sizes.latent else x
    routed = b.dispatch("index", narrow, rows=x.rows * sizes.top_k)
    up = b.experts(routed, sizes.ffn, sizes.experts, bias=sizes.bias)
    if sizes.gated:
        gate = activate(b, b.experts(routed, sizes.ffn, sizes.experts, bias=sizes.bias), sizes.activation)
        inner = b.mul(gate, up)
    else:
        inner = activate(b, up, sizes.activation)
    down = b.experts(inner, narrow.width, sizes.experts, bias=sizes.bias)
    weighed = b.elementwise("mul", down)
    out = b.dispatch("index_add", weighed, rows=x.rows)
    if sizes.latent:
        out = b.linear(out, x.width, bias=False)
    if sizes.shared_ffn:
        shared = mlp(b, x, sizes.shared_ffn, gated=sizes.gated, activation=sizes.activation, bias=False)
        if sizes.shared_gate:
            shared = b.mul(shared, b.elementwise("sigmoid", b.linear(x, 1, bias=False)))
        out = b.add(out, shared)
    return out


@dataclass(frozen=True, kw_only=True, slots=True)
class LayerSizes:
    """One encoder layer: self-attention, optional attention to another stream, feed-forward."""

    hidden: int
    heads: int
    ffn: int
    activation: str = "gelu"
    pre_norm: bool = True
    dropout: bool = False
    causal: bool = False
    gated: bool = False
    bias: bool = True
    """Products and norms have biases."""
    fused_qkv: bool = False
    rotary: bool = False
    window: int = 0
    """Tokens on both sides that a query sees, itself included; 0: all."""
    distances: int = 0
    """Rows of the table of distances that queries and keys are compared with as well (DeBERTa); 0: none."""
    distance_projections: bool = False
    """Distances have projections of their own; otherwise they pass those of keys and queries."""


def encoder_layer(b: GraphBuilder, x: Tensor, sizes: LayerSizes, memory: Tensor | None = None) -> Tensor:
    """A transformer layer; with `memory` its tokens also attend to another stream."""
    x = _sublayer(b, x, sizes, lambda t: self_attention(b, t, t, sizes))
    if memory is not None:
        x = _sublayer(b, x, sizes, lambda t: self_attention(b, t, memory, sizes))
    return _sublayer(b, x, sizes, lambda t: _feed_forward(b, t, sizes))


def _feed_forward(b: GraphBuilder, x: Tensor, sizes: LayerSizes) -> Tensor:
    return mlp(b, x, sizes.ffn, gated=sizes.gated, activation=sizes.activation, bias=sizes.bias)


def self_attention(b: GraphBuilder, x: Tensor, memory: Tensor, sizes: LayerSizes) -> Tensor:
    """Attention of `x` to `memory` with an output projection."""
    query, key, value = _projected(b, x, memory, sizes)
    if sizes.rotary:
        query, key = (rotary(b, part, part.width) for part in (query, key))
    if sizes.distances:
        out = _disentangled(b, query, key, value, sizes)
    else:
        out = b.attention(
            query,
            key,
            value,
            heads=sizes.heads,
            head_dim=sizes.hidden / sizes.heads,
            causal=sizes.causal,
            window=sizes.window or None,
        )
    return b.linear(out, x.width, bias=sizes.bias)


def _projected(
    b: GraphBuilder, x: Tensor, memory: Tensor, sizes: LayerSizes
) -> tuple[Tensor, Tensor, Tensor]:
    if sizes.fused_qkv:
        joined = b.linear(x, 3 * sizes.hidden, bias=sizes.bias)
        query, key, value = (b.reshape(joined, x.rows, sizes.hidden) for _ in range(3))
        return query, key, value
    query = b.linear(x, sizes.hidden, bias=sizes.bias)
    key, value = (b.linear(memory, sizes.hidden, bias=sizes.bias) for _ in range(2))
    return query, key, value


def _disentangled(b: GraphBuilder, query: Tensor, key: Tensor, value: Tensor, sizes: LayerSizes) -> Tensor:
    """Content with content, content with distance and distance with content (He et al. 2021, equation 4)."""
    rows, dim, span = query.rows, sizes.hidden / sizes.heads, sizes.distances
    distances = b.input(span, sizes.hidden)
    with b.once(), b.shared(not sizes.distance_projections):
        distant_key, distant_query = (b.linear(distances, sizes.hidden) for _ in range(2))
    scores = b.bmm(query, key, m=rows, n=rows, k=dim, count=sizes.heads)
    for content, distant in ((query, distant_key), (key, distant_query)):
        compared = b.bmm(content, distant, m=rows, n=span, k=dim, count=sizes.heads)
        placed = b.move("gather", compared, rows=rows * sizes.heads, width=rows)
        scores = b.add(scores, placed)
    weights = b.dropout(b.softmax(scores), sizes.dropout)
    out = b.bmm(weights, value, m=rows, n=dim, k=rows, count=sizes.heads)
    return b.reshape(out, rows, sizes.hidden)


def _sublayer(b: GraphBuilder, x: Tensor, sizes: LayerSizes, inner: Callable[[Tensor], Tensor]) -> Tensor:
    if sizes.pre_norm:
        return b.add(x, b.dropout(inner(b.norm(x, bias=sizes.bias)), sizes.dropout))
    return b.norm(b.add(x, b.dropout(inner(x), sizes.dropout)))


def divides(name: str, part: int, whole_name: str, whole: int) -> None:
    """Refuse sizes that do not fit into each other.

    Raises:
        ConfigError: If `part` does not divide `whole`.
    """
    if whole % part:
        raise ConfigError(
            f"{name}={part} does not divide {whole_name}={whole}. The rule: {whole_name} is a multiple of "
            f"{name}. To fix: choose another {name} or {whole_name}."
        )
