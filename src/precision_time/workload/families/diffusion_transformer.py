"""Diffusion transformers: DiT, Stable Diffusion 3 and FLUX.1 (two-stream, joint blocks), Wan 2.1 (video)."""

from __future__ import annotations

from ...errors import ConfigError
from ...records import dataclass
from ..builder import GraphBuilder, Tensor
from ..graph import OpGraph
from .denoiser import latent_area
from .layers import activate, divides, rotary

PIXELS_PER_TOKEN = 16
"""Side of a token: the autoencoder takes 8 x 8 pixels, a token 2 x 2 latents."""


@dataclass(frozen=True, kw_only=True, slots=True)
class DiffusionTransformerConfig:
    """Sizes of a diffusion transformer on latents. Lengths in tokens."""

    hidden: int
    heads: int
    ffn: int
    seq_len: int
    """Latent tokens per image or video, where no image size is given."""
    image_size: int = 0
    """Side of a square image [pixels]; 16 x 16 of them make a token."""
    width: int = 0
    """Of an image or a frame [pixels]."""
    height: int = 0
    frames: int = 0
    """Frames of a video; 0: as many as `seq_len` holds."""
    frame_tokens: int = 0
    """Tokens of one latent frame where no image size is given; 0: no video model."""
    frames_per_latent: int = 4
    """Frames that the autoencoder joins, after the first (Wan 2.1, arXiv 2503.20314, section 4.1)."""
    text_len: int = 0
    text_width: int = 0
    latent_width: int
    """Channels x patch area of one latent token."""
    double_layers: int = 0
    """Two-stream blocks: image and text have weights of their own and attend together (FLUX)."""
    text_ends: bool = False
    """The last two-stream block reads the text and does not write it (Stable Diffusion 3)."""
    single_layers: int = 0
    """Joint blocks with attention and MLP in parallel (FLUX)."""
    cross_layers: int = 0
    """Blocks with self-attention, cross-attention to the text and an MLP (Wan)."""
    plain_layers: int = 0
    """Blocks with self-attention and an MLP, both modulated (DiT)."""
    vector_width: int = 0
    """Width of the pooled text vector (FLUX: CLIP)."""
    classes: int = 0
    """Classes that an image is drawn of, one more for none (DiT)."""
    predicted_width: int = 0
    """Width of the prediction per token where it is not that of the latent (DiT: and its variance)."""
    qk_norm: bool = True
    """Query and key heads are normalized (FLUX, Stable Diffusion 3.5)."""
    rotary: bool = True
    """Positions turn query and key; otherwise they are added to the latent tokens."""

    def __post_init__(self) -> None:
        divides("heads", self.heads, "hidden", self.hidden)
        if self.frames and not self.frame_tokens:
            raise ConfigError(
                f"frames={self.frames} does not apply: the model draws single images. The rule: frames are "
                "of video models. To fix: leave out frames."
            )

    @property
    def tokens(self) -> int:
        """Latent tokens of one sample."""
        image = latent_area(self.image_size, self.width, self.height, PIXELS_PER_TOKEN)
        if self.frames:
            return ((self.frames - 1) // self.frames_per_latent + 1) * (image or self.frame_tokens)
        return image or self.seq_len


def build_diffusion_transformer(name: str, config: DiffusionTransformerConfig) -> OpGraph:
    """The graph of one denoising step of one sample with a mean squared error."""
    b = GraphBuilder(name)
    image = b.linear(b.input(config.tokens, config.latent_width), config.hidden)
    condition = None if config.text_len else _condition(b, config)
    if condition is not None:
        image = _plain_blocks(b, image, condition, config)
        return _finished(b, image, condition, config)
    text = b.linear(b.input(config.text_len, config.text_width), config.hidden)
    if config.cross_layers:
        text = b.linear(b.elementwise("gelu", text), config.hidden)
    condition = _condition(b, config)
    ending = int(config.text_ends)
    if config.double_layers:
        with b.block(config.double_layers - ending):
            image, text = _double(b, b.carry(image), b.carry(text), condition, config)
    if ending:
        with b.block(1):
            image, _ = _double(b, b.carry(image), b.carry(text), condition, config, last=True)
    if config.single_layers:
        rows = config.tokens + config.text_len
        x = b.move("cat", text, image, rows=rows, width=config.hidden)
        with b.block(config.single_layers):
            x = _single(b, b.carry(x), condition, config)
        image = b.reshape(x, config.tokens, config.hidden)
    if config.cross_layers:
        wide = b.linear(b.elementwise("silu", condition), 6 * config.hidden)
        with b.block(config.cross_layers):
            image = _cross(b, b.carry(image), text, wide, config)
    return _finished(b, image, condition, config)


def _finished(
    b: GraphBuilder, image: Tensor, condition: Tensor, config: DiffusionTransformerConfig
) -> OpGraph:
    """The last modulation, the prediction and its loss."""
    scaled = _modulate(b, b.norm(image, affine=False), condition, config, chunks=2)
    b.loss("mse_loss", b.linear(scaled, config.predicted_width or config.latent_width))
    size = config.tokens * config.latent_width + config.text_len * config.text_width
    return b.build(input_bytes=4.0 * size, seq_len=config.tokens, image_size=config.image_size or None)


def _condition(b: GraphBuilder, config: DiffusionTransformerConfig) -> Tensor:
    """Time step (and pooled text) as one vector."""
    time = b.elementwise("silu", b.linear(b.input(1, 256), config.hidden))
    vector = b.linear(time, config.hidden)
    if config.vector_width:
        pooled = b.elementwise("silu", b.linear(b.input(1, config.vector_width), config.hidden))
        vector = b.add(vector, b.linear(pooled, config.hidden))
    if config.classes:
        vector = b.add(vector, b.embedding(1, config.classes + 1, config.hidden))
    return vector


def _modulate(
    b: GraphBuilder, x: Tensor, condition: Tensor, config: DiffusionTransformerConfig, *, chunks: int
) -> Tensor:
    """Scale and shift of `x` by the condition, through a separate projection where chunks > 0."""
    if chunks:
        condition = b.linear(b.elementwise("silu", condition), chunks * config.hidden)
    return b.add(b.elementwise("mul", x, b.reshape(condition, 1, config.hidden)), x)


def _joined(b: GraphBuilder, x: Tensor, config: DiffusionTransformerConfig) -> tuple[Tensor, Tensor, Tensor]:
    joined = b.linear(x, 3 * config.hidden)
    dim = config.hidden // config.heads
    parts = [b.reshape(joined, x.rows, config.hidden) for _ in range(3)]
    if not config.qk_norm:
        return parts[0], parts[1], parts[2]
    normed = [b.reshape(b.rms_norm(b.reshape(p, p.elems / dim, dim)), p.rows, p.width) for p in parts[:2]]
    return normed[0], normed[1], parts[2]


def _turned(b: GraphBuilder, x: Tensor, config: DiffusionTransformerConfig) -> Tensor:
    return rotary(b, x, config.hidden) if config.rotary else x


def _plain_blocks(
    b: GraphBuilder, image: Tensor, condition: Tensor, config: DiffusionTransformerConfig
) -> Tensor:
    """DiT blocks with adaLN-Zero (Peebles and Xie 2023, section 3.2)."""
    dim = config.hidden // config.heads
    with b.block(config.plain_layers):
        x = b.carry(image)
        normed = _modulate(b, b.norm(x, affine=False), condition, config, chunks=6)
        query, key, value = _joined(b, normed, config)
        query, key = _turned(b, query, config), _turned(b, key, config)
        out = b.attention(query, key, value, heads=config.heads, head_dim=dim)
        x = b.add(x, b.elementwise("mul", b.linear(out, config.hidden)))
        inner = _modulate(b, b.norm(x, affine=False), condition, config, chunks=0)
        fed = b.linear(activate(b, b.linear(inner, config.ffn), "gelu"), config.hidden)
        return b.add(x, b.elementwise("mul", fed))


def _double(
    b: GraphBuilder,
    image: Tensor,
    text: Tensor,
    condition: Tensor,
    config: DiffusionTransformerConfig,
    *,
    last: bool = False,
) -> tuple[Tensor, Tensor]:
    streams = (image, text)
    dim = config.hidden // config.heads
    chunks = (6, 2 if last else 6)
    heads = [
        _joined(b, _modulate(b, b.norm(x, affine=False), condition, config, chunks=parts), config)
        for x, parts in zip(streams, chunks, strict=True)
    ]
    rows = image.rows + text.rows
    query, key, value = (
        b.move("cat", *parts, rows=rows, width=config.hidden) for parts in zip(*heads, strict=True)
    )
    query, key = _turned(b, query, config), _turned(b, key, config)
    out = b.attention(query, key, value, heads=config.heads, head_dim=dim)
    results = []
    for x in streams[:1] if last else streams:
        mixed = b.linear(b.reshape(out, x.rows, config.hidden), config.hidden)
        y = b.add(x, b.elementwise("mul", mixed))
        inner = _modulate(b, b.norm(y, affine=False), condition, config, chunks=0)
        fed = b.linear(activate(b, b.linear(inner, config.ffn), "gelu"), config.hidden)
        results.append(b.add(y, b.elementwise("mul", fed)))
    return results[0], results[-1]


def _single(b: GraphBuilder, x: Tensor, condition: Tensor, config: DiffusionTransformerConfig) -> Tensor:
    normed = _modulate(b, b.norm(x, affine=False), condition, config, chunks=3)
    query, key, value = _joined(b, normed, config)
    query, key = rotary(b, query, config.hidden), rotary(b, key, config.hidden)
    out = b.attention(query, key, value, heads=config.heads, head_dim=config.hidden // config.heads)
    inner = activate(b, b.linear(normed, config.ffn), "gelu")
    both = b.move("cat", out, inner, rows=x.rows, width=config.hidden + config.ffn)
    return b.add(x, b.elementwise("mul", b.linear(both, config.hidden)))


def _cross(
    b: GraphBuilder, x: Tensor, text: Tensor, condition: Tensor, config: DiffusionTransformerConfig
) -> Tensor:
    heads, dim = config.heads, config.hidden // config.heads
    normed = _modulate(b, b.norm(x, affine=False), condition, config, chunks=0)
    query, key = (rotary(b, b.rms_norm(b.linear(normed, config.hidden)), config.hidden) for _ in range(2))
    out = b.attention(query, key, b.linear(normed, config.hidden), heads=heads, head_dim=dim)
    x = b.add(x, b.elementwise("mul", b.linear(out, config.hidden), weight=6 * config.hidden))
    query = b.rms_norm(b.linear(b.norm(x), config.hidden))
    key, value = b.rms_norm(b.linear(text, config.hidden)), b.linear(text, config.hidden)
    out = b.attention(query, key, value, heads=heads, head_dim=dim)
    x = b.add(x, b.linear(out, config.hidden))
    inner = _modulate(b, b.norm(x, affine=False), condition, config, chunks=0)
    fed = b.linear(activate(b, b.linear(inner, config.ffn), "gelu"), config.hidden)
    return b.add(x, b.elementwise("mul", fed))
