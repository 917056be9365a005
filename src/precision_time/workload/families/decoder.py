"""Decoder-only language models: GPT, Llama, MPT, OPT, NeoX, Falcon, Gemma, Qwen, DeepSeek, experts."""

from __future__ import annotations

from ...records import dataclass
from ..builder import GraphBuilder, Tensor
from ..graph import OpGraph
from .layers import ExpertSizes, divides, mlp, moe, norm, rotary

TOKEN_BYTES = 16.0
"""Two int64 per token: input ids and labels."""


@dataclass(frozen=True, kw_only=True, slots=True)
class DecoderConfig:
    """Sizes of a decoder-only language model. Widths in elements, lengths in tokens."""

    layers: int
    hidden: int
    heads: int
    seq_len: int
    vocab: int
    kv_heads: int = 0
    """0: as many as heads."""
    head_dim: int = 0
    """0: hidden / heads."""
    ffn: int = 0
    """0: 4 x hidden."""
    gated: bool = False
    activation: str = "gelu"
    norm: str = "layer"
    norm_bias: bool = True
    positions: str = "learned"
    """learned, rotary, alibi, none, or relative: a projection of the distances, compared with the queries
    (Dai et al. 2019; Gopher)."""
    max_positions: int = 0
    """Rows of the learned position table; 0: seq_len."""
    rotary_share: float = 1.0
    parallel: bool = False
    """Attention and MLP read the same input and are summed (GPT-J, NeoX, Falcon)."""
    shared_norm: bool = False
    """A parallel block with a single norm."""
    post_norms: bool = False
    """A second norm after each sub-layer (Gemma 2)."""
    qkv_bias: bool = True
    out_bias: bool = True
    mlp_bias: bool = True
    head_bias: bool = False
    fused_qkv: bool = True
    tied: bool = True
    dropout: bool = False
    qk_norm: bool = False
    qk_norm_affine: bool = True
    attention_gate: bool = False
    """What attention gives is multiplied by a gate of its input (Qwen3-Next)."""
    embedding_norm: bool = False
    final_norm: bool = True
    embed_width: int = 0
    """Width of the embedding where it differs from hidden (OPT-350m)."""
    window: int = 0
    """Keys a query sees in sliding-window layers; 0: all."""
    full_attention_every: int = 0
    """One layer in so many sees all keys in spite of `window`; 0: none does."""
    experts: int = 0
    top_k: int = 0
    expert_ffn: int = 0
    shared_ffn: int = 0
    shared_gate: bool = False
    router_bias: bool = False
    expert_bias: bool = False
    dense_layers: int = 0
    """Leading layers with a plain feed-forward block."""
    moe_every: int = 1
    kv_lora_rank: int = 0
    """Latent attention (DeepSeek-V2): rank of the compressed keys and values; 0: off."""
    q_lora_rank: int = 0
    nope_dim: int = 128
    rope_dim: int = 64
    value_dim: int = 128
    mtp_layers: int = 0
    """Extra layers predicting further tokens (DeepSeek-V3)."""

    def __post_init__(self) -> None:
        if not self.head_dim:
            divides("heads", self.heads, "hidden", self.hidden)
        if self.kv_heads:
            divides("kv_heads", self.kv_heads, "heads", self.heads)

    @property
    def size_of_head(self) -> int:
        """Width of one head."""
        return self.head_dim or self.hidden // self.heads

    def layer_groups(self) -> list[tuple[int, bool, bool]]:
        """(how many, has experts, sees a window only) of the layers that are identical."""
        counts: dict[tuple[bool, bool], int] = {}
        for index in range(self.layers):
            routed = self.experts > 0 and index >= self.dense_layers and (index + 1) % self.moe_every == 0
            full = self.full_attention_every > 0 and (index + 1) % self.full_attention_every == 0
            key = routed, self.window > 0 and not full
            counts[key] = counts.get(key, 0) + 1
        return [(count, *key) for key, count in counts.items()]


def build_decoder(name: str, config: DecoderConfig) -> OpGraph:
    """The graph of one forward pass with next-token loss over `seq_len` tokens per sample."""
    b = GraphBuilder(name)
    table = config.embed_width or config.hidden
    x = b.embedding(config.seq_len, config.vocab, table)
    if table != config.hidden:
        x = b.linear(x, config.hidden, bias=False)
    if config.positions == "learned":
        rows = config.max_positions or config.seq_len
        x = b.add(x, b.embedding(config.seq_len, rows, config.hidden))
    if config.embedding_norm:
        x = norm(b, x, config.norm, bias=config.norm_bias)
    x = decoder_layers(b, b.dropout(x, config.dropout), config)
    x = decoder_head(b, x, config)
    _further_tokens(b, x, config)
    return b.build(input_bytes=TOKEN_BYTES * config.seq_len, seq_len=config.seq_len)


def decoder_layers(b: GraphBuilder, x: Tensor, config: DecoderConfig) -> Tensor:
    """All layers; identical ones stand once."""
    for count, routed, windowed in config.layer_groups():
        with b.block(count):
            x = decoder_layer(b, b.carry(x, grad=True), config, routed=routed, windowed=windowed)
    return x


def decoder_head(b: GraphBuilder, x: Tensor, config: DecoderConfig) -> Tensor:
    """Final norm, vocabulary projection and loss; gives back what the last layer put out."""
    trunk, table = x, config.embed_width or config.hidden
    if config.final_norm:
        x = norm(b, x, config.norm, bias=config.norm_bias)
    if table != config.hidden:
        x = b.linear(x, table, bias=False)
    logits = b.linear(x, config.vocab, bias=config.head_bias, tied=config.tied, layer="head")
    b.cross_entropy(logits)
    return trunk


def _further_tokens(b: GraphBuilder, x: Tensor, config: DecoderConfig) -> None:
    """Multi-token prediction modules: two norms, a projection of both halves, one layer, the tied head."""
    for _ in range(config.mtp_layers):
        ahead = norm(b, b.gather("embedding", x, rows=x.rows), config.norm)
        joined = b.linear(b.move("cat", norm(b, x, config.norm), ahead, rows=x.rows), x.width, bias=False)
        x = decoder_layer(b, joined, config, routed=config.experts > 0, windowed=config.window > 0)
        logits = b.linear(norm(b, x, config.norm), config.vocab, bias=False, tied=True, layer="head")
        b.cross_entropy(logits)


def decoder_layer(
    b: GraphBuilder, x: Tensor, config: DecoderConfig, *, routed: bool, windowed: bool
) -> Tensor:
    """One layer: attention and feed-forward with their norms and residuals."""
    normed = norm(b, x, config.norm, bias=config.norm_bias)
    attended = b.dropout(attention_block(b, normed, config, windowed=windowed), config.dropout)
    if config.parallel:
        second = normed if config.shared_norm else norm(b, x, config.norm, bias=config.norm_bias)
        fed = b.dropout(_feed_forward(b, second, config, routed=routed), config.dropout)
        return b.add(b.add(attended, fed), x)
    if config.post_norms:
        attended = norm(b, attended, config.norm, bias=config.norm_bias)
    x = b.add(x, attended)
    fed = _feed_forward(b, norm(b, x, config.norm, bias=config.norm_bias), config, routed=routed)
    fed = b.dropout(fed, config.dropout)
    if config.post_norms:
        fed = norm(b, fed, config.norm, bias=config.norm_bias)
    return b.add(x, fed)


def _feed_forward(b: GraphBuilder, x: Tensor, config: DecoderConfig, *, routed: bool) -> Tensor:
    ffn = config.ffn or 4 * config.hidden
    if not routed:
        return mlp(
            b,
            x,
            ffn,
            gated=config.gated,
            activation=config.activation,
            bias=config.mlp_bias,
        )
    sizes = ExpertSizes(
        experts=config.experts,
        top_k=config.top_k,
        ffn=config.expert_ffn or ffn,
        shared_ffn=config.shared_ffn,
        gated=config.gated,
        activation=config.activation,
        bias=config.expert_bias,
        router_bias=config.router_bias,
        shared_gate=config.shared_gate,
    )
    return moe(b, x, sizes)


def attention_block(b: GraphBuilder, x: Tensor, config: DecoderConfig, *, windowed: bool) -> Tensor:
    """Projections, positions, attention and the output projection."""
    if config.kv_lora_rank:
        return _latent_attention(b, x, config)
    dim, heads = config.size_of_head, config.heads
    kv_width = (config.kv_heads or heads) * dim
    query, key, value = _query_key_value(b, x, config, kv_width)
    if config.qk_norm:
        query, key = (_head_norm(b, t, dim, config) for t in (query, key))
    if config.positions == "rotary":
        query, key = (rotary(b, t, t.width * config.rotary_share) for t in (query, key))
    if config.positions == "relative":
        out = _relative_attention(b, query, key, value, config)
        return b.linear(out, x.width, bias=config.out_bias)
    out = b.attention(
        query,
        key,
        value,
        heads=heads,
        head_dim=dim,
        causal=True,
        window=config.window if windowed else None,
    )
    if config.attention_gate:
        out = b.mul(out, b.elementwise("sigmoid", b.linear(x, heads * dim, bias=False)))
    return b.linear(out, x.width, bias=config.out_bias)


def _relative_attention(
    b: GraphBuilder, query: Tensor, key: Tensor, value: Tensor, config: DecoderConfig
) -> Tensor:
    """Attention written out, with a second product of the queries and the projected distances."""
    rows, dim, heads = query.rows, config.size_of_head, config.heads
    with b.once():
        distances = b.linear(b.input(rows, config.hidden), heads * dim, bias=False)
    sizes = {"m": rows, "n": rows, "k": dim, "count": heads}
    content = b.bmm(b.elementwise("add", query, weight=heads * dim), key, **sizes)
    place = b.bmm(b.elementwise("add", query, weight=heads * dim), distances, **sizes)
    scores = b.add(content, b.move("constant_pad_nd", place))
    weights = b.dropout(b.softmax(b.elementwise("masked_fill", scores)), config.dropout)
    out = b.bmm(weights, value, m=rows, n=dim, k=rows, count=heads)
    return b.reshape(out, rows, heads * dim)


def _query_key_value(
    b: GraphBuilder, x: Tensor, config: DecoderConfig, kv_width: float
) -> tuple[Tensor, Tensor, Tensor]:
    width = config.heads * config.size_of_head
    parts = (float(width), kv_width, kv_width)
    if config.fused_qkv:
        joined = b.linear(x, sum(parts), bias=config.qkv_bias)
        query, key, value = (b.reshape(joined, x.rows, part) for part in parts)
        return query, key, value
    query, key, value = (b.linear(x, part, bias=config.qkv_bias) for part in parts)
    return query, key, value


def _head_norm(b: GraphBuilder, x: Tensor, dim: int, config: DecoderConfig) -> Tensor:
    per_head = b.reshape(x, x.elems / dim, dim)
    normed = b.rms_norm(per_head, affine=config.qk_norm_affine)
    return b.reshape(normed, x.rows, x.width)


def _latent_attention(b: GraphBuilder, x: Tensor, config: DecoderConfig) -> Tensor:
    """Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434, section 2.1)."""
    heads, head_dim = config.heads, config.nope_dim + config.rope_dim
    narrow = b.rms_norm(b.linear(x, config.q_lora_rank, bias=False)) if config.q_lora_rank else x
    query = b.linear(narrow, heads * head_dim, bias=False)
    query = rotary(b, query, heads * config.rope_dim)
    latent = b.linear(x, config.kv_lora_rank + config.rope_dim, bias=False)
    shared_key = rotary(b, b.reshape(latent, x.rows, config.rope_dim), config.rope_dim)
    compressed = b.rms_norm(b.reshape(latent, x.rows, config.kv_lora_rank))
    both = b.linear(compressed, heads * (config.nope_dim + config.value_dim), bias=False)
    key = b.move("cat", b.reshape(both, x.rows, heads * config.nope_dim), shared_key, width=heads * head_dim)
    value = b.reshape(both, x.rows, heads * config.value_dim)
    out = b.attention(
        query, key, value, heads=heads, head_dim=head_dim, value_dim=config.value_dim, causal=True
    )
    return b.linear(out, x.width, bias=False)
