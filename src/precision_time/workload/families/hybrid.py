"""Hybrids of Mamba-2, attention and expert layers: Nemotron-H, Nemotron 3; Mamba-2 alone."""

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
    mamba_layers: int
    attention_layers: int
    mlp_layers: int = 0
    moe_layers: int = 0
    heads: int
    kv_heads: int
    head_dim: int = 128
    ffn: int = 0
    mamba_heads: int
    mamba_head_dim: int = 64
    state: int = 128
    groups: int = 8
    conv_kernel: int = 4
    chunk: int = 128
    """Tokens per block of the chunked scan."""
    experts: int = 0
    top_k: int = 0
    expert_ffn: int = 0
    shared_ffn: int = 0
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
            positions="none",
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
            gated=False,
            activation="relu2",
            latent=self.latent,
        )


def build_hybrid(name: str, config: HybridConfig) -> OpGraph:
    """The graph of one forward pass; layers of one kind stand together, which changes no sum."""
    b = GraphBuilder(name)
    decoder = config.as_decoder
    x = b.embedding(config.seq_len, config.vocab, config.hidden)
    kinds: tuple[tuple[int, Callable[[Tensor], Tensor]], ...] = (
        (config.mamba_layers, lambda t: mamba2(b, t, config)),
        (config.attention_layers, lambda t: attention_block(b, t, decoder, windowed=False)),
        (config.mlp_layers, lambda t: mlp(b, t, config.ffn, gated=False, activation="relu2", bias=False)),
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
