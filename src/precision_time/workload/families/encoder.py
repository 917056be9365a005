"""Encoder-only transformers: BERT, RoBERTa, ALBERT, ELECTRA, DeBERTa, ModernBERT, ESM, and their heads."""

from __future__ import annotations

from dataclasses import replace
from math import ceil

from ...errors import ConfigError
from ...records import dataclass
from ..builder import GraphBuilder, Tensor
from ..graph import OpGraph
from .layers import LayerSizes, activate, divides, encoder_layer

ENCODER_HEADS = ("pretrain", "mlm", "qa", "classify", "tag", "electra", "none")


@dataclass(frozen=True, kw_only=True, slots=True)
class EncoderConfig:
    """Sizes of an encoder with post-layer normalization (Devlin et al. 2018). Lengths in tokens."""

    layers: int
    hidden: int
    heads: int
    seq_len: int
    vocab: int
    ffn: int = 0
    """0: 4 x hidden."""
    embed_width: int = 0
    """Width of the embedding where it differs from hidden (ALBERT); 0: hidden."""
    max_positions: int = 512
    """Rows of the position table; 0: no table (DeBERTa)."""
    positions: str = "learned"
    """learned (a table), rotary (ESM-2, ModernBERT)."""
    distances: int = 0
    """Rows of the table of distances that attention compares with (DeBERTa); 0: none."""
    distance_projections: bool = False
    gated: bool = False
    bias: bool = True
    fused_qkv: bool = False
    embedding_norm: bool = True
    window: int = 0
    """Tokens that a query sees in sliding-window layers; 0: all."""
    full_attention_every: int = 0
    """One layer in so many sees all tokens in spite of `window` (ModernBERT); 0: none does."""
    token_types: int = 2
    """Rows of the segment table; 0: no segments (DistilBERT)."""
    shared_layers: bool = False
    """Every layer uses the same weights (ALBERT)."""
    activation: str = "gelu"
    dropout: bool = True
    pre_norm: bool = False
    """Normalise before each sub-layer (ESM) instead of after."""
    pooler: bool = True
    pre_classifier: bool = False
    """A classification head of its own: a dense layer before the classifier (RoBERTa, DistilBERT)."""
    head: str = "pretrain"
    """One of ENCODER_HEADS."""
    predictions: int = 0
    """Masked positions that reach the vocabulary; 0: 15 % of the sequence for pretrain and electra,
    all positions for mlm."""
    classes: int = 2
    generator_hidden: int = 0
    """ELECTRA: width of the generator."""
    generator_heads: int = 0

    def __post_init__(self) -> None:
        divides("heads", self.heads, "hidden", self.hidden)
        if self.head not in ENCODER_HEADS:
            raise ConfigError(
                f"head={self.head!r} is not a head of an encoder. "
                f"The rule: one of {', '.join(ENCODER_HEADS)}. To fix: choose one of those."
            )

    @property
    def width_of_embedding(self) -> int:
        """Width of the embedding tables."""
        return self.embed_width or self.hidden

    @property
    def layer(self) -> LayerSizes:
        """Sizes of one layer."""
        return LayerSizes(
            hidden=self.hidden,
            heads=self.heads,
            ffn=self.ffn or 4 * self.hidden,
            activation=self.activation,
            pre_norm=self.pre_norm,
            dropout=self.dropout,
            gated=self.gated,
            bias=self.bias,
            fused_qkv=self.fused_qkv,
            rotary=self.positions == "rotary",
            distances=self.distances,
            distance_projections=self.distance_projections,
        )

    @property
    def layer_groups(self) -> list[tuple[int, LayerSizes, bool]]:
        """(how many, sizes, weights counted before) of the layers that are identical."""
        first = 1 if self.shared_layers else self.layers
        full = first
        if self.window:
            full = -(-first // self.full_attention_every) if self.full_attention_every else 0
        near = replace(self.layer, window=self.window)
        groups = [(full, self.layer, False), (first - full, near, False)]
        groups.append((self.layers - first, self.layer, True))
        return [group for group in groups if group[0]]

    @property
    def masked(self) -> int:
        """Positions that reach the vocabulary."""
        if self.predictions:
            return self.predictions
        return self.seq_len if self.head == "mlm" else ceil(0.15 * self.seq_len)


def build_encoder(name: str, config: EncoderConfig) -> OpGraph:
    """The graph of one forward pass with the loss of the chosen head."""
    b = GraphBuilder(name)
    if config.head == "electra":
        _electra(b, config)
    else:
        _heads(b, encoder_trunk(b, config), config)
    return b.build(input_bytes=8.0 * 4 * config.seq_len, seq_len=config.seq_len)


def encoder_trunk(b: GraphBuilder, config: EncoderConfig, *, shared_tables: bool = False) -> Tensor:
    """Embeddings and all layers; `shared_tables` were counted by another trunk."""
    width = config.width_of_embedding
    with b.shared(shared_tables):
        x = b.embedding(config.seq_len, config.vocab, width)
        if config.token_types:
            x = b.add(x, b.embedding(config.seq_len, config.token_types, width))
        if config.max_positions and config.positions == "learned":
            x = b.add(x, b.embedding(config.seq_len, config.max_positions, width))
        x = b.norm(x, bias=config.bias) if config.embedding_norm else x
        x = b.dropout(x, config.dropout)
        if config.distances:
            with b.once():
                b.norm(b.embedding(config.distances, config.distances, config.hidden))
    if width != config.hidden:
        x = b.linear(x, config.hidden)
    for repeat, layer, reuse in config.layer_groups:
        with b.block(repeat), b.shared(reuse):
            x = encoder_layer(b, b.carry(x), layer)
    return b.norm(x, bias=config.bias) if config.pre_norm else x


def _heads(b: GraphBuilder, x: Tensor, config: EncoderConfig) -> None:
    if config.head in ("pretrain", "mlm"):
        _masked_tokens(b, x, config)
    if config.head == "pretrain" and config.pooler:
        b.cross_entropy(b.linear(_pooled(b, x), 2))
    if config.head == "qa":
        b.cross_entropy(b.reshape(b.linear(b.dropout(x, not config.pooler), 2), 2, config.seq_len))
    if config.head == "tag":
        b.cross_entropy(b.linear(b.dropout(x, config.dropout), config.classes))
    if config.head == "classify":
        if config.pre_classifier:
            first = b.reshape(x, 1, config.hidden)
            pooled = b.elementwise("tanh", b.linear(b.dropout(first, config.dropout), config.hidden))
        else:
            pooled = _pooled(b, x)
        b.cross_entropy(b.linear(b.dropout(pooled, config.dropout), config.classes))


def _pooled(b: GraphBuilder, x: Tensor) -> Tensor:
    return b.elementwise("tanh", b.linear(b.reshape(x, 1, x.width), x.width))


def _masked_tokens(b: GraphBuilder, x: Tensor, config: EncoderConfig) -> None:
    if config.masked < config.seq_len:
        x = b.gather("index", x, rows=config.masked)
    width = config.width_of_embedding
    x = b.norm(activate(b, b.linear(x, width, bias=config.bias), config.activation), bias=config.bias)
    b.cross_entropy(b.linear(x, config.vocab, tied=True, layer="head"))


def _electra(b: GraphBuilder, config: EncoderConfig) -> None:
    """A small generator fills masked tokens, a discriminator judges every token (Clark et al. 2020)."""
    generator = replace(
        config,
        hidden=config.generator_hidden,
        heads=config.generator_heads,
        ffn=4 * config.generator_hidden,
        embed_width=config.width_of_embedding,
    )
    _masked_tokens(b, encoder_trunk(b, generator), generator)
    x = encoder_trunk(b, config, shared_tables=True)
    scores = b.linear(activate(b, b.linear(x, config.hidden), "gelu"), 1)
    b.loss("binary_cross_entropy_with_logits", scores)
