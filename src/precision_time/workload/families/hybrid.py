"""Hybrids of attention with layers whose work is linear in the tokens, and those layers alone.

Mamba-2 (Nemotron-H, Granite 4), the first Mamba (Jamba), gated delta nets (Qwen3-Next, Kimi Linear) and short
convolutions (LFM2).
"""

from __future__ import annotations

from collections.abc import Callable

from ...records import dataclass
from ..builder import GraphBuilder, Tensor
from ..graph import OpClass, OpGraph
from .decoder import TOKEN_BYTES, DecoderConfig, attention_block, decoder_head
from .layers import ExpertSizes, mlp, moe, norm


@dataclass(frozen=True, kw_only=True, slots=True)
class HybridConfig:
    """Sizes of a hybrid; every layer is one mixer behind one RMS norm (Nemotron-H, arXiv 2504.03624)."""

    hidden: int
    vocab: int
    seq_len: int
    mamba_layers: int = 0
    scan_layers: int = 0
    """Mixers of the first Mamba (arXiv 2312.00752)."""
    delta_layers: int = 0
    """Gated delta nets (arXiv 2412.06464)."""
    conv_layers: int = 0
    """Short convolutions between two gates (LFM2)."""
    attention_layers: int
    mlp_layers: int = 0
    moe_layers: int = 0
    heads: int
    kv_heads: int
    head_dim: int = 128
    ffn: int = 0
    gated: bool = False
    """Feed-forward blocks are activation(gate) * up."""
    activation: str = "relu2"
    positions: str = "none"
    rotary_share: float = 1.0
    qk_norm: bool = False
    attention_gate: bool = False
    """What attention gives is multiplied by a gate of its input."""
    kv_lora_rank: int = 0
    """Latent attention: rank of the compressed keys and values; 0: off."""
    mamba_heads: int = 0
    mamba_head_dim: int = 64
    state: int = 128
    groups: int = 8
    conv_kernel: int = 4
    chunk: int = 128
    """Tokens per block of the chunked scan."""
    scan_inner: int = 0
    """Width of the first Mamba's scan, of `scan_state` states a channel."""
    scan_state: int = 16
    delta_heads: int = 0
    """Value heads of a gated delta net."""
    delta_key_heads: int = 0
    delta_dim: int = 128
    """Width of its heads, keys and values alike."""
    delta_chunk: int = 64
    delta_channel_decay: bool = False
    """Every channel of a key decays for itself, by a projection of low rank (Kimi Delta Attention)."""
    experts: int = 0
    top_k: int = 0
    expert_ffn: int = 0
    shared_ffn: int = 0
    shared_gate: bool = False
    latent: int = 0
    """Width the routed experts work on (LatentMoE); 0: hidden."""
    tied: bool = False
    """The head uses the embedding."""
    mtp_layers: int = 0
    """Further tokens predicted, each by one attention and one expert layer that share their weights."""

    @property
    def as_decoder(self) -> DecoderConfig:
        """The attention layers and the head."""
        return DecoderConfig(
            layers=self.attention_layers,
            hidden=self.hidden,
            heads=self.heads,
            kv_heads=self.kv_heads,
            head_dim=self.head_dim,
            seq_len=self.seq_len,
            vocab=self.vocab,
            norm="rms",
            positions=self.positions,
            rotary_share=self.rotary_share,
            qk_norm=self.qk_norm,
            attention_gate=self.attention_gate,
            kv_lora_rank=self.kv_lora_rank,
            qkv_bias=False,
            out_bias=False,
            mlp_bias=False,
            tied=self.tied,
        )

    @property
    def expert_sizes(self) -> ExpertSizes:
        """The expert layers."""
        return ExpertSizes(
            experts=self.experts,
            top_k=self.top_k,
            ffn=self.expert_ffn,
            shared_ffn=self.shared_ffn,
            shared_gate=self.shared_gate,
            gated=self.gated,
            activation=self.activation,
            latent=self.latent,
        )


def build_hybrid(name: str, config: HybridConfig) -> OpGraph:
    """The graph of one forward pass; layers of one kind stand together, which changes no sum."""
    b = GraphBuilder(name)
    decoder = config.as_decoder
    x = b.embedding(config.seq_len, config.vocab, config.hidden)
    kinds: tuple[tuple[int, Callable[[Tensor], Tensor]], ...] = (
        (config.mamba_layers, lambda t: mamba2(b, t, config)),
        (config.scan_layers, lambda t: mamba(b, t, config)),
        (config.delta_layers, lambda t: delta_net(b, t, config)),
        (config.conv_layers, lambda t: short_conv(b, t, config)),
        (config.attention_layers, lambda t: attention_block(b, t, decoder, windowed=False)),
        (config.mlp_layers, lambda t: _feed_forward(b, t, config)),
        (config.moe_layers, lambda t: moe(b, t, config.expert_sizes)),
    )
    for count, mixer in kinds:
        if count:
            with b.block(count):
                x = b.carry(x)
                x = b.add(x, mixer(norm(b, x, "rms")))
    trunk = decoder_head(b, x, decoder)
    for index in range(config.mtp_layers):
        with b.shared(index > 0):
            trunk = _further_tokens(b, trunk, config, decoder)
    return b.build(input_bytes=TOKEN_BYTES * config.seq_len, seq_len=config.seq_len)


def _feed_forward(b: GraphBuilder, x: Tensor, config: HybridConfig) -> Tensor:
    return mlp(b, x, config.ffn, gated=config.gated, activation=config.activation, bias=False)


def _further_tokens(b: GraphBuilder, x: Tensor, config: HybridConfig, decoder: DecoderConfig) -> Tensor:
    ahead = norm(b, b.gather("embedding", x, rows=x.rows), "rms")
    y = b.linear(b.move("cat", norm(b, x, "rms"), ahead, rows=x.rows), config.hidden, bias=False)
    y = b.add(y, attention_block(b, norm(b, y, "rms"), decoder, windowed=False))
    y = b.add(y, moe(b, norm(b, y, "rms"), config.expert_sizes))
    b.cross_entropy(b.linear(norm(b, y, "rms"), config.vocab, bias=False, tied=True, layer="head"))
    return y


def mamba2(b: GraphBuilder, x: Tensor, config: HybridConfig) -> Tensor:
    """A Mamba-2 mixer with the chunked scan (Dao and Gu 2024, arXiv 2405.21060, section 6)."""
    inner = config.mamba_heads * config.mamba_head_dim
    mixed = inner + 2 * config.groups * config.state
    joined = b.linear(x, inner + mixed + config.mamba_heads, bias=False)
    part = b.reshape(joined, x.rows, mixed)
    conv = b.conv(part, mixed, rows=x.rows, kernel=config.conv_kernel, groups=mixed)
    scanned = _chunked_scan(b, b.elementwise("silu", conv), config, inner)
    gated = b.mul(scanned, b.elementwise("silu", b.reshape(joined, x.rows, inner)))
    normed = b.rms_norm(gated)
    return b.linear(normed, x.width, bias=False)


def _chunked_scan(b: GraphBuilder, x: Tensor, config: HybridConfig, inner: int) -> Tensor:
    """Within a chunk a masked attention, between chunks a short recurrence over the states."""
    length, rows = min(config.chunk, int(x.rows)), x.rows
    chunks = rows / length
    part, dim = b.reshape(x, rows, config.groups * config.state), config.mamba_head_dim
    scores = b.bmm(part, part, m=length, n=length, k=config.state, count=chunks * config.groups)
    decayed = b.elementwise("mul", b.reshape(scores, chunks * config.mamba_heads * length, length))
    values = b.reshape(x, rows, inner)
    local = b.bmm(decayed, values, m=length, n=dim, k=length, count=chunks * config.mamba_heads)
    states = b.bmm(part, values, m=config.state, n=dim, k=length, count=chunks * config.mamba_heads)
    passed = b.node("cumsum", OpClass.REDUCTION, (states,), rows=states.rows, width=states.width)
    far = b.bmm(part, passed, m=length, n=dim, k=config.state, count=chunks * config.mamba_heads)
    both = b.add(b.reshape(local, rows, inner), b.reshape(far, rows, inner))
    weight = 3 * config.mamba_heads
    return b.elementwise("addcmul", both, values, weight=weight, tensors=3)


def mamba(b: GraphBuilder, x: Tensor, config: HybridConfig) -> Tensor:
    """A mixer of the first Mamba; its scan reads and writes once (Gu and Dao 2023, section 3.3)."""
    inner, state = config.scan_inner, config.scan_state
    rank = -(-config.hidden // 16)
    joined = b.linear(x, 2 * inner, bias=False)
    conv = b.conv(
        b.reshape(joined, x.rows, inner), inner, rows=x.rows, kernel=config.conv_kernel, groups=inner
    )
    active = b.elementwise("silu", conv)
    chosen = b.linear(active, rank + 2 * state, bias=False)
    steps = b.elementwise("softplus", b.linear(b.reshape(chosen, x.rows, rank), inner))
    matrices = b.reshape(chosen, x.rows, 2 * state)
    scanned = b.node(
        "cumsum",
        OpClass.REDUCTION,
        (active, steps, matrices),
        rows=x.rows,
        width=inner,
        weight=inner * (state + 1),
        tensors=2,
        saves=(active, steps, matrices),
    )
    gated = b.mul(scanned, b.elementwise("silu", b.reshape(joined, x.rows, inner)))
    return b.linear(gated, x.width, bias=False)


def delta_net(b: GraphBuilder, x: Tensor, config: HybridConfig) -> Tensor:
    """A gated delta net by chunks (Yang et al. 2024, arXiv 2412.06464, section 3.3; 2406.06484)."""
    dim, heads = config.delta_dim, config.delta_heads
    keys, values = config.delta_key_heads * dim, heads * dim
    mixed = 2 * keys + values
    joined = b.linear(x, mixed + heads, bias=False)
    part = b.reshape(joined, x.rows, mixed)
    conv = b.conv(part, mixed, rows=x.rows, kernel=config.conv_kernel, groups=mixed, bias=False)
    active = b.elementwise("silu", conv)
    if config.delta_channel_decay:
        decay = b.linear(b.linear(x, dim, bias=False), keys)
        gate = b.linear(b.linear(x, dim, bias=False), values)
    else:
        decay = b.linear(x, heads, bias=False)
        gate = b.linear(x, values, bias=False)
    decay = b.elementwise("softplus", decay, weight=2 * heads, tensors=2)
    pair = b.reshape(active, 2 * x.rows * config.delta_key_heads, dim)
    pair = b.reshape(b.rms_norm(pair, affine=False), x.rows, 2 * keys)
    out = _chunked_delta(b, pair, b.reshape(active, x.rows, values), decay, config)
    normed = b.rms_norm(b.reshape(out, x.rows * heads, dim))
    gated = b.mul(b.reshape(normed, x.rows, values), b.elementwise("silu", gate))
    return b.linear(gated, x.width, bias=False)


def _chunked_delta(
    b: GraphBuilder, pair: Tensor, value: Tensor, decay: Tensor, config: HybridConfig
) -> Tensor:
    """Keys against keys and their inverse, keys and values through it, then states from chunk to chunk."""
    dim, rows = config.delta_dim, value.rows
    length = min(config.delta_chunk, int(rows))
    count = rows / length * config.delta_heads
    wide = config.delta_heads * dim
    key = b.reshape(pair, rows, pair.width / 2)
    scores = b.bmm(key, key, m=length, n=length, k=dim, count=count)
    inverse = b.bmm(
        b.elementwise("mul", scores, decay), scores, m=length, n=length, k=length / 3, count=count
    )
    through = [b.bmm(inverse, part, m=length, n=dim, k=length, count=count) for part in (key, value)]
    states = b.bmm(through[0], through[1], m=dim, n=dim, k=length, count=count)
    passed = b.node("cumsum", OpClass.REDUCTION, (states,), rows=states.rows, width=states.width)
    fresh = b.bmm(through[0], passed, m=length, n=dim, k=dim, count=count)
    written = b.add(b.reshape(fresh, rows, wide), b.reshape(through[1], rows, wide))
    near = b.bmm(key, key, m=length, n=length, k=dim, count=count)
    local = b.bmm(b.elementwise("mul", near), written, m=length, n=dim, k=length, count=count)
    far = b.bmm(key, passed, m=length, n=dim, k=dim, count=count)
    return b.add(b.reshape(local, rows, wide), b.reshape(far, rows, wide))


def short_conv(b: GraphBuilder, x: Tensor, config: HybridConfig) -> Tensor:
    """Three projections of the tokens: one is convolved between gates of the other two (LFM2)."""
    width = x.width
    joined = b.linear(x, 3 * width, bias=False)
    inner = b.mul(b.reshape(joined, x.rows, width), b.reshape(joined, x.rows, width))
    conv = b.conv(inner, width, rows=x.rows, kernel=config.conv_kernel, groups=width, bias=False)
    return b.linear(b.mul(conv, b.reshape(joined, x.rows, width)), width, bias=False)
