"""Transformer-XL: relative attention over a memory, adaptive embedding and adaptive softmax."""

from __future__ import annotations

from math import log

from ...records import dataclass
from ..builder import GraphBuilder, Tensor
from ..graph import OpGraph

WIKITEXT103_CUTOFFS = (20000, 40000, 200000)
"""Vocabulary clusters of the published WikiText-103 recipe (Dai et al. 2019)."""
EULER = 0.5772156649


@dataclass(frozen=True, kw_only=True, slots=True)
class TransformerXLConfig:
    """Sizes of a Transformer-XL (Dai et al. 2019, arXiv 1901.02860). Lengths in tokens."""

    layers: int
    hidden: int
    heads: int
    head_dim: int
    ffn: int
    seq_len: int
    """Target length: tokens predicted per step and stream."""
    mem_len: int
    vocab: int = 267735
    div_val: int = 1
    """Every further vocabulary cluster is embedded this many times narrower."""
    cutoffs: tuple[int, ...] = WIKITEXT103_CUTOFFS

    @property
    def clusters(self) -> list[tuple[float, float]]:
        """(words, width) of the vocabulary clusters."""
        edges = (0, *(c for c in self.cutoffs if c < self.vocab), self.vocab)
        return [(edges[i + 1] - edges[i], self.hidden // self.div_val**i) for i in range(len(edges) - 1)]

    @property
    def cluster_shares(self) -> list[float]:
        """Share of the running words in each cluster, by Zipf's law: harmonic numbers of the edges."""
        edges = [log(c) + EULER for c in (*(c for c in self.cutoffs if c < self.vocab), self.vocab)]
        return [(high - low) / edges[-1] for low, high in zip([0.0, *edges], edges, strict=False)]


def build_transformer_xl(name: str, config: TransformerXLConfig) -> OpGraph:
    """The graph of one forward pass over one segment of `seq_len` tokens with its memory."""
    b = GraphBuilder(name)
    x = _adaptive_embedding(b, config)
    positions = b.dropout(b.input(config.seq_len + config.mem_len, config.hidden))
    x = b.dropout(x)
    with b.block(config.layers):
        x = _layer(b, b.carry(x), positions, config)
    _adaptive_softmax(b, b.dropout(x), config)
    return b.build(input_bytes=16.0 * config.seq_len, seq_len=config.seq_len)


def _adaptive_embedding(b: GraphBuilder, config: TransformerXLConfig) -> Tensor:
    parts = []
    for (words, width), share in zip(config.clusters, config.cluster_shares, strict=False):
        tokens = config.seq_len * (share if config.div_val > 1 else words / config.vocab)
        part = b.embedding(tokens, words, width)
        if config.div_val > 1:
            part = b.linear(part, config.hidden, bias=False)
        parts.append(part)
    return b.elementwise("mul", b.move("index_put", *parts, rows=config.seq_len, width=config.hidden))


def _layer(b: GraphBuilder, x: Tensor, positions: Tensor, config: TransformerXLConfig) -> Tensor:
    inner, span = config.heads * config.head_dim, config.seq_len + config.mem_len
    both = b.move("cat", x, b.input(config.mem_len, config.hidden), rows=span)
    joined = b.linear(both, 3 * inner, bias=False)
    relative = b.linear(positions, inner, bias=False)
    query = b.reshape(joined, config.seq_len, inner)
    key, value = b.reshape(joined, span, inner), b.reshape(joined, span, inner)
    sizes = {"m": config.seq_len, "n": span, "k": config.head_dim, "count": config.heads}
    content = b.bmm(b.elementwise("add", query, weight=inner), key, **sizes)
    place = b.bmm(b.elementwise("add", query, weight=inner), relative, **sizes)
    shifted = b.move("constant_pad_nd", place)
    scores = b.elementwise("masked_fill", b.add(content, shifted))
    weights = b.dropout(b.softmax(scores))
    out = b.bmm(weights, value, m=config.seq_len, n=config.head_dim, k=span, count=config.heads)
    out = b.linear(b.reshape(out, config.seq_len, inner), config.hidden, bias=False)
    x = b.norm(b.add(x, b.dropout(out)))
    up = b.dropout(b.elementwise("relu", b.linear(x, config.ffn)))
    return b.norm(b.add(x, b.dropout(b.linear(up, config.hidden))))


def _adaptive_softmax(b: GraphBuilder, x: Tensor, config: TransformerXLConfig) -> None:
    """Head over the frequent words and one entry per tail cluster; tails only for their own tokens."""
    (frequent, width), *tails = config.clusters
    divided = config.div_val > 1
    top = b.linear(x, width, bias=False) if divided else x
    b.cross_entropy(b.linear(top, frequent + len(tails), tied=True))
    for (words, narrow), share in zip(tails, config.cluster_shares[1:], strict=False):
        rows = b.gather("index", x, rows=config.seq_len * share)
        low = b.linear(rows, narrow, bias=False, tied=True) if divided else rows
        b.cross_entropy(b.linear(low, words, tied=True))
