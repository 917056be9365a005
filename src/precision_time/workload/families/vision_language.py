"""Vision-language decoders: LLaVA, Idefics2, Llama 3.2 Vision, Qwen-VL; usually adapters are trained."""

from __future__ import annotations

from ...records import dataclass
from ..builder import GraphBuilder, Tensor
from ..graph import OpGraph
from .decoder import TOKEN_BYTES, DecoderConfig, decoder_head, decoder_layers
from .layers import LayerSizes, encoder_layer, mlp
from .vision import Tower, vision_tower


@dataclass(frozen=True, kw_only=True, slots=True)
class VisionLanguageConfig(DecoderConfig):
    """A language model (the inherited fields) that reads the tokens of an image."""

    patches: int
    patch_elems: int
    vision_layers: int
    vision_hidden: int
    vision_heads: int
    vision_ffn: int
    vision_gated: bool = False
    vision_rotary: bool = False
    vision_window: int = 0
    """Patches that a query of the tower sees in most layers (Qwen2.5-VL); 0: all."""
    vision_full_layers: int = 0
    merged_patches: int = 1
    """Neighboring patches that become one token of the language model (Qwen-VL)."""
    class_tokens: int = 1
    tiles: int = 1
    """Crops of one image that go through the tower."""
    image_tokens: int
    """Tokens an image takes in the language model; 0: it is read by cross-attention layers."""
    connector_mlp: bool = False
    """Image tokens pass a two-layer projection (LLaVA) instead of one layer."""
    connectors: int = 1
    """Projections of that kind: the image tokens, and what early layers add to them (Qwen3-VL)."""
    resampler_layers: int = 0
    """Layers that draw the image tokens out of the patches (Idefics2)."""
    cross_layers: int = 0
    """Layers of cross-attention to the image (Llama 3.2 Vision)."""

    @property
    def length(self) -> int:
        """Tokens in the language model; a stated length that the image alone fills is text alone."""
        return self.seq_len if self.seq_len > self.image_tokens else self.seq_len + self.image_tokens


def build_vision_language(name: str, config: VisionLanguageConfig) -> OpGraph:
    """The graph of one forward pass over one image and its text."""
    b = GraphBuilder(name)
    with b.frozen():
        image = vision_tower(b, _tower(config))
    text = b.embedding(config.length - config.image_tokens, config.vocab, config.hidden)
    if config.resampler_layers:
        image = _resample(b, image, config)
    else:
        tower, image = image, _projected(b, image, config)
        for _ in range(config.connectors - 1):
            image = b.elementwise("add", image, _projected(b, tower, config))
    x = text
    if config.image_tokens:
        x = b.move("cat", text, image, rows=config.length, width=config.hidden)
    x = decoder_layers(b, x, config)
    if config.cross_layers:
        x = _cross_attention(b, x, image, config)
    decoder_head(b, x, config)
    pixels = 4.0 * config.patches * config.patch_elems * config.tiles
    return b.build(input_bytes=pixels + TOKEN_BYTES * config.length, seq_len=config.length)


def _projected(b: GraphBuilder, image: Tensor, config: VisionLanguageConfig) -> Tensor:
    """Patches as tokens of the language model."""
    joined = config.merged_patches
    image = b.reshape(image, image.rows / joined, image.width * joined)
    image = b.linear(image, image.width if joined > 1 else config.hidden)
    return b.linear(b.elementwise("gelu", image), config.hidden) if config.connector_mlp else image


def _tower(config: VisionLanguageConfig) -> Tower:
    return Tower(
        patches=config.patches * config.tiles,
        patch_elems=config.patch_elems,
        layers=config.vision_layers,
        hidden=config.vision_hidden,
        heads=config.vision_heads,
        ffn=config.vision_ffn,
        class_tokens=config.class_tokens,
        gated=config.vision_gated,
        rotary=config.vision_rotary,
        window=config.vision_window,
        full_layers=config.vision_full_layers,
    )


def _resample(b: GraphBuilder, image: Tensor, config: VisionLanguageConfig) -> Tensor:
    """Learned queries read the patches (a perceiver)."""
    wide = mlp(b, b.linear(image, config.hidden), config.ffn, gated=True, activation="silu", bias=False)
    queries = b.move("expand", wide, rows=config.image_tokens, width=config.hidden)
    sizes = LayerSizes(hidden=config.hidden, heads=config.heads, ffn=config.ffn, activation="silu")
    with b.block(config.resampler_layers):
        queries = encoder_layer(b, b.carry(queries), sizes, wide)
    return queries


def _cross_attention(b: GraphBuilder, x: Tensor, image: Tensor, config: VisionLanguageConfig) -> Tensor:
    dim = config.size_of_head
    kv_width = (config.kv_heads or config.heads) * dim
    with b.block(config.cross_layers):
        x = b.carry(x, grad=True)
        query = b.linear(b.rms_norm(x), config.heads * dim, bias=False)
        key, value = b.linear(image, kv_width, bias=False), b.linear(image, kv_width, bias=False)
        out = b.attention(query, key, value, heads=config.heads, head_dim=dim)
        x = b.add(x, b.linear(out, config.hidden, bias=False))
        x = b.add(x, mlp(b, b.rms_norm(x), config.ffn, gated=True, activation="silu", bias=False))
    return x
