"""Speech encoders on raw audio: wav2vec 2.0."""

from __future__ import annotations

from ...records import dataclass
from ..builder import GraphBuilder, Tensor
from ..graph import OpGraph
from .layers import LayerSizes, divides, encoder_layer

SAMPLE_RATE = 16000
KERNELS, STRIDES = (10, 3, 3, 3, 3, 2, 2), (5, 2, 2, 2, 2, 2, 2)
"""The feature extractor of Baevski et al. 2020, section 4.2: 20 ms per frame."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Wav2Vec2Config:
    """Sizes of a wav2vec 2.0 (Baevski et al. 2020)."""

    layers: int
    hidden: int
    heads: int
    ffn: int
    seconds: float
    """Audio per sample [s]."""
    pre_norm: bool = False
    """The large-lv60 variant: norm first, layer norm in every convolution."""
    train_features: bool = False
    """The convolutions are trained (pre-training); fine-tuning freezes them."""
    vocab: int = 32
    classes: int = 0
    """Classes of an utterance; 0: characters per frame by CTC."""
    conv_width: int = 512

    def __post_init__(self) -> None:
        divides("heads", self.heads, "hidden", self.hidden)


def build_wav2vec2(name: str, config: Wav2Vec2Config) -> OpGraph:
    """The graph of one forward pass over one utterance with CTC or utterance classification."""
    b = GraphBuilder(name)
    with b.frozen(not config.train_features):
        x = _features(b, config)
    x = b.dropout(b.linear(b.norm(x), config.hidden))
    place = b.conv(x, config.hidden, rows=x.rows, kernel=128, groups=16)
    x = b.add(x, b.elementwise("gelu", place))
    sizes = LayerSizes(
        hidden=config.hidden, heads=config.heads, ffn=config.ffn, pre_norm=config.pre_norm, dropout=True
    )
    x = b.dropout(x if config.pre_norm else b.norm(x))
    with b.block(config.layers):
        x = encoder_layer(b, b.carry(x), sizes)
    x = b.norm(x) if config.pre_norm else x
    if config.classes:
        pooled = b.reduce("mean", b.linear(x, 256), rows=1, width=256)
        b.cross_entropy(b.linear(pooled, config.classes))
    else:
        b.loss("_ctc_loss", b.softmax(b.linear(b.dropout(x), config.vocab)))
    return b.build(input_bytes=4.0 * SAMPLE_RATE * config.seconds, seq_len=int(x.rows))


def _features(b: GraphBuilder, config: Wav2Vec2Config) -> Tensor:
    x = b.input(int(SAMPLE_RATE * config.seconds), 1)
    for index, (kernel, stride) in enumerate(zip(KERNELS, STRIDES, strict=True)):
        rows = (int(x.rows) - kernel) // stride + 1
        x = b.conv(x, config.conv_width, rows=rows, kernel=kernel, stride=stride, bias=config.pre_norm)
        if config.pre_norm:
            x = b.norm(x)
        elif index == 0:
            x = b.group_norm(x, groups=config.conv_width)
        x = b.elementwise("gelu", x)
    return x
