"""Parts that several transformer families share: rotary positions, norms, MLPs, experts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ...errors import ConfigError
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
    routed = b.gather("index", narrow, rows=x.rows * sizes.top_k)
    up = b.experts(routed, sizes.ffn, sizes.experts, bias=sizes.bias)
    if sizes.gated:
        gate = activate(b, b.experts(routed, sizes.ffn, sizes.experts, bias=sizes.bias), sizes.activation)
        inner = b.mul(gate, up)
    else:
        inner = activate(b, up, sizes.activation)
    down = b.experts(inner, narrow.width, sizes.experts, bias=sizes.bias)
    weighed = b.elementwise("mul", down)
    out = b.gather("index_add", weighed, rows=x.rows)
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


def encoder_layer(b: GraphBuilder, x: Tensor, sizes: LayerSizes, memory: Tensor | None = None) -> Tensor:
    """A transformer layer; with `memory` its tokens also attend to another stream."""
    x = _sublayer(b, x, sizes, lambda t: self_attention(b, t, t, sizes))
    if memory is not None:
        x = _sublayer(b, x, sizes, lambda t: self_attention(b, t, memory, sizes))
    return _sublayer(
        b, x, sizes, lambda t: mlp(b, t, sizes.ffn, gated=False, activation=sizes.activation, bias=True)
    )


def self_attention(b: GraphBuilder, x: Tensor, memory: Tensor, sizes: LayerSizes) -> Tensor:
    """Attention of `x` to `memory` with separate projections and an output projection."""
    query = b.linear(x, sizes.hidden)
    key, value = b.linear(memory, sizes.hidden), b.linear(memory, sizes.hidden)
    out = b.attention(
        query, key, value, heads=sizes.heads, head_dim=sizes.hidden / sizes.heads, causal=sizes.causal
    )
    return b.linear(out, x.width)


def _sublayer(b: GraphBuilder, x: Tensor, sizes: LayerSizes, inner: Callable[[Tensor], Tensor]) -> Tensor:
    if sizes.pre_norm:
        return b.add(x, b.dropout(inner(b.norm(x)), sizes.dropout))
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
