"""Denoisers of images and videos whose blocks differ from DiT, FLUX and Wan in parts that are named here.

Blocks of two streams, of one joint stream, with cross-attention, of text alone; what they share (modulation,
feed-forward block, attention) is said once for the model. Sizes are those of the models' configurations.
"""

from __future__ import annotations

from collections.abc import Callable

from ...errors import ConfigError
from ...records import dataclass
from ..builder import GraphBuilder, Tensor
from ..graph import OpGraph
from .layers import ExpertSizes, mlp, moe, rotary

FREQUENCIES = 256
"""Sines and cosines of the time step."""
MODULATIONS = ("own", "low-rank", "shared", "none")


@dataclass(frozen=True, kw_only=True, slots=True)
class DenoiserConfig:
    """Sizes of a denoiser of latents. Lengths in tokens, sides of images in pixels."""

    hidden: int
    heads: int
    kv_heads: int = 0
    """Key and value heads; 0: as many as `heads`."""
    ffn: int
    gated: bool = False
    """The feed-forward block is silu(gate) * up; otherwise it has one GELU."""
    conv_ffn: bool = False
    """The gated feed-forward block has a 3 x 3 depthwise convolution (Sana, arXiv 2410.10629)."""
    temporal_conv: bool = False
    """And behind it a convolution over three frames (SANA-Video, arXiv 2509.24695)."""
    linear_attention: bool = False
    """Self-attention is linear in the tokens (Sana)."""
    seq_len: int
    """Latent tokens per image or video, where no size is given."""
    image_size: int = 0
    """Side of a square image."""
    width: int = 0
    height: int = 0
    frames: int = 0
    frame_tokens: int = 0
    """Tokens of one latent frame where no size is given; 0: no video model."""
    frames_per_latent: int = 4
    """Frames that the autoencoder joins, after the first."""
    pixels_per_token: int = 16
    """Side of a token: of the autoencoder times that of a patch."""
    latent_width: int
    """Channels x patch area of one latent token."""
    text_len: int
    """Tokens of the text (and whatever else is encoded), as the blocks see them."""
    text_width: int
    text_hidden: int = 0
    """Width of the blocks of text alone; 0: `hidden`."""
    text_heads: int = 0
    text_ffn: int = 0
    text_layers: int = 0
    """Blocks of text alone, without modulation."""
    image_layers: int = 0
    """Blocks of the latent tokens alone, before the text joins them."""
    double_layers: int = 0
    """Blocks of two streams with weights of their own that attend together."""
    second_attention: bool = False
    """Blocks of two streams attend a second time, to the image alone."""
    parallel_layers: int = 0
    """Blocks of one joint stream, attention and feed-forward block side by side."""
    joint_layers: int = 0
    """Blocks of one joint stream, attention before the feed-forward block."""
    cross_layers: int = 0
    """Blocks of the image that attend to itself, then to the text."""
    layer_text_len: int = 0
    """Of the text tokens, those that every block projects anew from `text_width` (HiDream)."""
    modulation: str = "own"
    """How a block gets its scales and shifts: a projection of its own, one of low rank for each of its parts,
    a table beside one projection that all share, or none."""
    chunks: int = 6
    """Vectors of `hidden` that a block is modulated by."""
    condition_width: int = 0
    """Width of the vector that is projected; the rank where `modulation` is "low-rank"; 0: `hidden`."""
    approximator: int = 0
    """Width of a network of five layers that computes all scales and shifts outside the blocks (Chroma)."""
    approximator_rows: int = 0
    vector_width: int = 0
    """Width of a pooled text vector; 0: none."""
    experts: int = 0
    top_k: int = 0
    shared_ffn: int = 0
    attention_gate: bool = False
    """What attention gives is multiplied by a gate of its input (Krea 2)."""
    sound_len: int = 0
    """Tokens of a second stream of the blocks with cross-attention, of sound (LTX-2); 0: none."""
    sound_hidden: int = 0
    sound_heads: int = 0
    skips: bool = False
    """Blocks of the second half read those of the first as well (U-ViT)."""
    qk_norm: bool = True
    bias: bool = True
    """Products have biases."""

    def __post_init__(self) -> None:
        if self.modulation not in MODULATIONS:
            raise ConfigError(
                f"modulation={self.modulation!r} is not possible. The rule: it is one of "
                f"{', '.join(MODULATIONS)}. To fix: use one of these."
            )
        if self.hidden % self.heads:
            raise ConfigError(
                f"heads={self.heads} does not divide hidden={self.hidden}. The rule: hidden is a multiple of "
                "heads. To fix: choose another heads or hidden."
            )
        if self.frames and not self.frame_tokens:
            raise ConfigError(
                f"frames={self.frames} does not apply: the model draws single images. The rule: frames are "
                "of video models. To fix: leave out frames."
            )

    @property
    def tokens(self) -> int:
        """Latent tokens of one sample."""
        side = self.pixels_per_token
        frame = latent_area(self.image_size, self.width, self.height, side)
        if self.frames:
            return ((self.frames - 1) // self.frames_per_latent + 1) * (frame or self.frame_tokens)
        return frame or self.seq_len

    @property
    def head_dim(self) -> int:
        """Width of one head."""
        return self.hidden // self.heads


def latent_area(image_size: int, width: int, height: int, side: int) -> int:
    """Latent tokens of one frame; 0 where no size is given.

    Args:
        image_size: Side of a square frame, and of a side that is not given [pixels].
        width: Of a frame [pixels].
        height: Of a frame [pixels].
        side: Of a token [pixels].

    Raises:
        ConfigError: If one side alone is given.
    """
    across, down = width or image_size, height or image_size
    if bool(across) != bool(down):
        given, other = ("width", "height") if across else ("height", "width")
        raise ConfigError(
            f"{given}={across or down} alone is no size. The rule: a frame has width and height. "
            f"To fix: give {other} as well, or image_size."
        )
    return (across // side) * (down // side)


def build_denoiser(name: str, config: DenoiserConfig) -> OpGraph:
    """The graph of one denoising step of one sample with a mean squared error."""
    b = GraphBuilder(name)
    c = config
    image = b.linear(b.input(c.tokens, c.latent_width), c.hidden)
    text = _text(b, c)
    condition = _condition(b, c)
    x = _blocks(b, c.image_layers, image, lambda t: _sequential(b, t, condition, c))
    if c.double_layers:
        with b.block(c.double_layers):
            x, text = _double(b, b.carry(x), b.carry(text, grad=True), condition, c)
    if c.parallel_layers or c.joint_layers:
        x = b.move("cat", text, x, rows=c.text_len + c.tokens, width=c.hidden)
        x = _blocks(b, c.parallel_layers, x, lambda t: _parallel(b, t, condition, c))
        x = _blocks(b, c.joint_layers, x, lambda t: _sequential(b, _with_layer_text(b, t, c), condition, c))
        x = b.reshape(x, c.tokens, c.hidden)
    if c.sound_len:
        sound = b.linear(b.input(c.sound_len, c.latent_width), c.sound_hidden)
        told = b.linear(b.input(c.text_len, c.text_width), c.sound_hidden)
        with b.block(c.cross_layers):
            x = _sequential(b, b.carry(x, grad=True), condition, c, text)
            x, _ = _with_sound(b, x, b.carry(sound, grad=True), told, c)
    else:
        x = _blocks(b, c.cross_layers, x, lambda t: _sequential(b, t, condition, c, text))
    scaled = _modulated(b, x, _scales(b, condition, c, 2), c)
    b.loss("mse_loss", b.linear(scaled, c.latent_width))
    size = c.tokens * c.latent_width + c.text_len * c.text_width
    return b.build(input_bytes=4.0 * size, seq_len=c.tokens, image_size=c.image_size or None)


def _blocks(b: GraphBuilder, count: int, x: Tensor, layer: Callable[[Tensor], Tensor]) -> Tensor:
    """`count` equal blocks."""
    if not count:
        return x
    with b.block(count):
        return layer(b.carry(x, grad=True))


def _text(b: GraphBuilder, config: DenoiserConfig) -> Tensor:
    """The encoded text in the width of the blocks, past the blocks of text alone."""
    narrow = config.text_hidden or config.hidden
    given = b.input(config.text_len, config.text_width)
    text = given if narrow == config.text_width else b.linear(given, narrow)
    heads = config.text_heads or config.heads
    kv_heads = 0 if config.text_heads else config.kv_heads
    ffn = config.text_ffn or config.ffn

    def layer(x: Tensor) -> Tensor:
        x = b.add(x, _attended(b, b.rms_norm(x), config, heads=heads, kv_heads=kv_heads))
        fed = mlp(b, b.rms_norm(x), ffn, gated=config.gated, activation=_activation(config), bias=config.bias)
        return b.add(x, fed)

    text = _blocks(b, config.text_layers, text, layer)
    return text if narrow == config.hidden or config.cross_layers else b.linear(text, config.hidden)


def _activation(config: DenoiserConfig) -> str:
    return "silu" if config.gated else "gelu"


def _condition(b: GraphBuilder, config: DenoiserConfig) -> Tensor:
    """Time step (and pooled text) as one vector, or all that an approximator makes of it."""
    if config.approximator:
        x = b.linear(b.input(config.approximator_rows, FREQUENCIES // 4), config.approximator)
        with b.block(5):
            x = b.carry(x, grad=True)
            inner = b.elementwise("silu", b.linear(b.rms_norm(x), config.approximator))
            x = b.add(x, b.linear(inner, config.approximator))
        return b.linear(x, config.hidden)
    low_rank = config.modulation == "low-rank"
    width = config.hidden if low_rank or not config.condition_width else config.condition_width
    vector = b.linear(b.elementwise("silu", b.linear(b.input(1, FREQUENCIES), width)), width)
    if config.vector_width:
        vector = b.add(vector, b.linear(b.input(1, config.vector_width), width))
    if config.modulation == "shared":
        vector = b.linear(b.elementwise("silu", vector), config.chunks * config.hidden)
    return vector


def _scales(b: GraphBuilder, condition: Tensor, config: DenoiserConfig, chunks: int = 0) -> Tensor | None:
    """What one stream of a block is modulated by; by fewer `chunks` than a whole block, if given."""
    width = (chunks or config.chunks) * config.hidden
    if config.modulation == "own":
        return b.linear(b.elementwise("silu", condition), width, bias=config.bias)
    if config.modulation == "low-rank":
        active = b.elementwise("silu", condition)
        parts = [
            b.linear(b.linear(active, config.condition_width, bias=False), part, bias=False)
            for part in [width] * (chunks > 0) or [3 * config.hidden] * (config.chunks // 3)
        ]
        return b.move("cat", *parts, rows=1, width=width)
    if config.modulation == "shared":
        return b.elementwise("add", b.reshape(condition, 1, width), weight=width)
    return b.reshape(condition, 1, config.hidden) if config.approximator else None


def _modulated(b: GraphBuilder, x: Tensor, scales: Tensor | None, config: DenoiserConfig) -> Tensor:
    """`x` normalized, scaled and shifted."""
    if scales is None:
        return b.rms_norm(x)
    normed = b.norm(x, affine=False)
    return b.add(b.elementwise("mul", normed, b.reshape(scales, 1, config.hidden)), normed)


def _gated(b: GraphBuilder, x: Tensor, y: Tensor, scales: Tensor | None) -> Tensor:
    """`x` plus `y`, which a modulated block scales."""
    return b.add(x, y if scales is None else b.elementwise("mul", y))


def _projections(
    b: GraphBuilder, x: Tensor, config: DenoiserConfig, heads: int, kv_heads: int
) -> tuple[Tensor, Tensor, Tensor]:
    dim = x.width / heads
    widths = (x.width, (kv_heads or heads) * dim, (kv_heads or heads) * dim)
    query, key, value = (b.linear(x, width, bias=config.bias) for width in widths)
    if config.qk_norm:
        query, key = (
            b.reshape(b.rms_norm(b.reshape(t, t.elems / dim, dim)), t.rows, t.width) for t in (query, key)
        )
    return rotary(b, query, query.width), rotary(b, key, key.width), value


def _attended(b: GraphBuilder, x: Tensor, config: DenoiserConfig, *, heads: int, kv_heads: int) -> Tensor:
    """Self-attention with its output projection."""
    query, key, value = _projections(b, x, config, heads, kv_heads)
    dim = x.width / heads
    if config.linear_attention:
        states = b.bmm(b.elementwise("relu", key), value, m=dim, n=dim + 1, k=x.rows, count=heads)
        mixed = b.bmm(b.elementwise("relu", query), states, m=x.rows, n=dim + 1, k=dim, count=heads)
        out = b.elementwise("div", b.reshape(mixed, x.rows, x.width))
    else:
        out = b.attention(query, key, value, heads=heads, head_dim=dim)
    if config.attention_gate:
        out = b.mul(out, b.elementwise("sigmoid", b.linear(x, x.width, bias=config.bias)))
    return b.linear(out, x.width, bias=config.bias)


def _fed(b: GraphBuilder, x: Tensor, config: DenoiserConfig, *, routed: bool = True) -> Tensor:
    """The feed-forward block."""
    if config.experts and routed:
        sizes = ExpertSizes(
            experts=config.experts, top_k=config.top_k, ffn=config.ffn, shared_ffn=config.shared_ffn
        )
        return moe(b, x, sizes)
    if config.conv_ffn:
        wide = 2 * config.ffn
        inner = b.elementwise("silu", b.linear(x, wide))
        inner = b.conv(inner, wide, rows=x.rows, kernel=9, groups=wide)
        half = b.reshape(inner, x.rows, config.ffn)
        out = b.linear(b.mul(b.elementwise("silu", half), half), x.width, bias=False)
        if config.temporal_conv:
            out = b.add(out, b.conv(out, x.width, rows=x.rows, kernel=3, bias=False))
        return out
    return mlp(b, x, config.ffn, gated=config.gated, activation=_activation(config), bias=config.bias)


def _with_layer_text(b: GraphBuilder, x: Tensor, config: DenoiserConfig) -> Tensor:
    """`x` with the text tokens that this block projects anew in their places."""
    if not config.layer_text_len:
        return x
    own = b.linear(b.input(config.layer_text_len, config.text_width), config.hidden, bias=False)
    return b.move("cat", x, own, rows=x.rows, width=x.width)


def _sequential(
    b: GraphBuilder, x: Tensor, condition: Tensor, config: DenoiserConfig, text: Tensor | None = None
) -> Tensor:
    """Self-attention, attention to `text` if there is any, then the feed-forward block."""
    scales = _scales(b, condition, config)
    inner = _modulated(b, x, scales, config)
    x = _gated(b, x, _attended(b, inner, config, heads=config.heads, kv_heads=config.kv_heads), scales)
    if text is not None:
        query = b.linear(b.norm(x), config.hidden, bias=config.bias)
        key, value = (b.linear(text, config.hidden, bias=config.bias) for _ in range(2))
        if config.qk_norm:
            query, key = b.rms_norm(query), b.rms_norm(key)
        out = b.attention(query, key, value, heads=config.heads, head_dim=config.head_dim)
        x = b.add(x, b.linear(out, config.hidden, bias=config.bias))
    return _gated(b, x, _fed(b, _modulated(b, x, scales, config), config), scales)


def _with_sound(
    b: GraphBuilder, image: Tensor, sound: Tensor, text: Tensor, config: DenoiserConfig
) -> tuple[Tensor, Tensor]:
    """The stream of sound: attention to itself and to the text, to the image and back, feed-forward block."""
    heads, width = config.sound_heads, config.sound_hidden

    def attended(x: Tensor, memory: Tensor) -> Tensor:
        query, key, value = (
            b.linear(t, width, bias=config.bias) for t in (b.rms_norm(x, affine=False), memory, memory)
        )
        query, key = b.rms_norm(query), b.rms_norm(key)
        out = b.attention(query, key, value, heads=heads, head_dim=width // heads)
        return b.add(x, b.elementwise("mul", b.linear(out, x.width, bias=config.bias)))

    sound = attended(attended(sound, sound), text)
    both = attended(image, sound), attended(sound, image)
    inner = b.rms_norm(both[1], affine=False)
    fed = mlp(b, inner, 4 * width, gated=False, activation=_activation(config), bias=config.bias)
    return both[0], b.add(both[1], fed)


def _parallel(b: GraphBuilder, x: Tensor, condition: Tensor, config: DenoiserConfig) -> Tensor:
    scales = _scales(b, condition, config, config.chunks // 2)
    inner = _modulated(b, x, scales, config)
    query, key, value = _projections(b, inner, config, config.heads, config.kv_heads)
    out = b.attention(query, key, value, heads=config.heads, head_dim=config.head_dim)
    wide = b.elementwise("gelu", b.linear(inner, config.ffn, bias=config.bias))
    both = b.move("cat", out, wide, rows=x.rows, width=config.hidden + config.ffn)
    return _gated(b, x, b.linear(both, config.hidden, bias=config.bias), scales)


def _double(
    b: GraphBuilder, image: Tensor, text: Tensor, condition: Tensor, config: DenoiserConfig
) -> tuple[Tensor, Tensor]:
    if config.skips:
        # One block in two reads an earlier one: half of a product of twice the width, in every block.
        image, text = (b.linear(x, config.hidden, bias=config.bias) for x in (image, text))
    streams = (image, _with_layer_text(b, text, config))
    scales = [_scales(b, condition, config) for _ in streams]
    inner = [_modulated(b, x, s, config) for x, s in zip(streams, scales, strict=True)]
    parts = [_projections(b, x, config, config.heads, config.kv_heads) for x in inner]
    rows = image.rows + text.rows
    query, key, value = (b.move("cat", *each, rows=rows) for each in zip(*parts, strict=True))
    out = b.attention(query, key, value, heads=config.heads, head_dim=config.head_dim)
    results = []
    for index, (x, s) in enumerate(zip(streams, scales, strict=True)):
        mixed = b.linear(b.reshape(out, x.rows, config.hidden), config.hidden, bias=config.bias)
        y = _gated(b, x, mixed, s)
        if config.second_attention and not index:
            again = _attended(b, inner[0], config, heads=config.heads, kv_heads=config.kv_heads)
            y = _gated(b, y, again, s)
        fed = _fed(b, _modulated(b, y, s, config), config, routed=not index)
        results.append(_gated(b, y, fed, s))
    return results[0], results[1]
