"""Encoder-decoder transformers: the WMT transformer, BART, T5 and mT5, switch experts, Whisper."""

from __future__ import annotations

from collections.abc import Callable

from ...records import dataclass
from ..builder import GraphBuilder, Tensor
from ..graph import OpGraph
from .layers import ExpertSizes, divides, mlp, moe, norm

MEL_BANDS, MEL_FRAMES = 80, 3000


@dataclass(frozen=True, kw_only=True, slots=True)
class EncDecConfig:
    """Sizes of an encoder-decoder transformer. Lengths in tokens."""

    encoder_layers: int
    decoder_layers: int
    hidden: int
    heads: int
    seq_len: int
    """Source length (Whisper: positions after the convolutions)."""
    target_len: int
    vocab: int
    head_dim: int = 0
    ffn: int = 0
    gated: bool = False
    activation: str = "relu"
    norm: str = "layer"
    pre_norm: bool = True
    bias: bool = True
    key_bias: bool = True
    norm_bias: bool = True
    positions: str = "sinusoidal"
    """learned (a table each), relative (a bias added to the scores) or sinusoidal."""
    max_positions: int = 0
    embedding_norm: bool = False
    final_norm: bool = True
    tied: bool = True
    """The head uses the embedding; source and target always share theirs."""
    dropout: bool = True
    experts: int = 0
    top_k: int = 1
    moe_every: int = 2
    audio: bool = False
    """The source are mel frames through two convolutions (Whisper)."""
    mel_bands: int = MEL_BANDS

    def __post_init__(self) -> None:
        if not self.head_dim:
            divides("heads", self.heads, "hidden", self.hidden)

    @property
    def size_of_head(self) -> int:
        """Width of one head."""
        return self.head_dim or self.hidden // self.heads


def build_encdec(name: str, config: EncDecConfig) -> OpGraph:
    """The graph of one forward pass with next-token loss on the target."""
    b = GraphBuilder(name)
    source = _audio_source(b, config) if config.audio else _tokens(b, config, config.seq_len, reuse=False)
    memory = _stack(b, source, config, config.encoder_layers, None)
    target = _tokens(b, config, config.target_len, reuse=not config.audio)
    x = _stack(b, target, config, config.decoder_layers, memory)
    b.cross_entropy(b.linear(x, config.vocab, bias=False, tied=config.tied, layer="head"))
    tokens = 8.0 * (2 * config.target_len + 2 * config.seq_len)
    audio = 4.0 * config.mel_bands * MEL_FRAMES + 16.0 * config.target_len
    return b.build(input_bytes=audio if config.audio else tokens, seq_len=config.seq_len)


def _tokens(b: GraphBuilder, config: EncDecConfig, length: int, *, reuse: bool) -> Tensor:
    with b.shared(reuse):
        x = b.embedding(length, config.vocab, config.hidden)
    if config.positions == "learned":
        x = b.add(x, b.embedding(length, config.max_positions or length, config.hidden))
    elif config.positions == "sinusoidal":
        x = b.add(b.elementwise("mul", x), b.input(length, config.hidden))
    if config.embedding_norm:
        x = norm(b, x, config.norm, bias=config.norm_bias)
    return b.dropout(x, config.dropout)


def _audio_source(b: GraphBuilder, config: EncDecConfig) -> Tensor:
    mels = b.input(MEL_FRAMES, config.mel_bands)
    x = b.elementwise("gelu", b.conv(mels, config.hidden, rows=MEL_FRAMES, kernel=3))
    x = b.elementwise("gelu", b.conv(x, config.hidden, rows=config.seq_len, kernel=3, stride=2))
    with b.frozen():
        positions = b.embedding(config.seq_len, config.seq_len, config.hidden)
    return b.add(x, positions)


def _stack(b: GraphBuilder, x: Tensor, config: EncDecConfig, layers: int, memory: Tensor | None) -> Tensor:
    groups = [(layers, False)]
    if config.experts:
        routed = layers // config.moe_every
        groups = [(layers - routed, False), (routed, True)]
    if config.positions == "relative":
        x = _first_bias(b, x, config)
    for count, routed_layer in groups:
        if count == 0:
            continue
        with b.block(count):
            x = _layer(b, b.carry(x), config, memory, routed=routed_layer)
    if config.final_norm:
        x = b.dropout(norm(b, x, config.norm, bias=config.norm_bias), config.dropout and not config.audio)
    return x


def _first_bias(b: GraphBuilder, x: Tensor, config: EncDecConfig) -> Tensor:
    """The table of relative-position biases: 32 buckets x heads, spread over query x key once."""
    b.embedding(x.rows * x.rows, 32, config.heads)
    return x


def _layer(
    b: GraphBuilder, x: Tensor, config: EncDecConfig, memory: Tensor | None, *, routed: bool
) -> Tensor:
    x = _residual(b, x, config, lambda t: _attend(b, t, t, config, causal=memory is not None))
    if memory is not None:
        x = _residual(b, x, config, lambda t: _attend(b, t, memory, config, causal=False))
    return _residual(b, x, config, lambda t: _feed_forward(b, t, config, routed=routed))


def _residual(b: GraphBuilder, x: Tensor, config: EncDecConfig, inner: Callable[[Tensor], Tensor]) -> Tensor:
    if config.pre_norm:
        normed = norm(b, x, config.norm, bias=config.norm_bias)
        return b.add(x, b.dropout(inner(normed), config.dropout))
    return norm(b, b.add(x, b.dropout(inner(x), config.dropout)), config.norm, bias=config.norm_bias)


def _feed_forward(b: GraphBuilder, x: Tensor, config: EncDecConfig, *, routed: bool) -> Tensor:
    ffn = config.ffn or 4 * config.hidden
    if routed:
        sizes = ExpertSizes(
            experts=config.experts,
            top_k=config.top_k,
            ffn=ffn,
            gated=config.gated,
            activation=config.activation,
        )
        return moe(b, x, sizes)
    return mlp(
        b,
        x,
        ffn,
        gated=config.gated,
        activation=config.activation,
        bias=config.bias,
        dropout=config.dropout and config.positions == "relative",
    )


def _attend(b: GraphBuilder, x: Tensor, memory: Tensor, config: EncDecConfig, *, causal: bool) -> Tensor:
    inner = config.heads * config.size_of_head
    query = b.linear(x, inner, bias=config.bias)
    key = b.linear(memory, inner, bias=config.bias and config.key_bias)
    value = b.linear(memory, inner, bias=config.bias)
    if config.positions == "relative" and memory is x:
        out = _biased_attention(b, query, key, value, config)
    else:
        out = b.attention(query, key, value, heads=config.heads, head_dim=config.size_of_head, causal=causal)
    return b.linear(out, x.width, bias=config.bias)


def _biased_attention(
    b: GraphBuilder, query: Tensor, key: Tensor, value: Tensor, config: EncDecConfig
) -> Tensor:
    """Attention written out: the position bias is added to the scores, so no fused kernel is used."""
    heads, dim = config.heads, config.size_of_head
    scores = b.bmm(query, key, m=query.rows, n=key.rows, k=dim, count=heads)
    biased = b.add(scores, b.input(query.rows * heads, key.rows))
    weights = b.dropout(b.softmax(biased), config.dropout)
    out = b.bmm(weights, value, m=query.rows, n=dim, k=key.rows, count=heads)
    return b.reshape(out, query.rows, heads * dim)
