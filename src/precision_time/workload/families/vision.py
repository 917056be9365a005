"""Vision transformers with free patch grids: AST, the towers of vision-language models, CLIP pairs."""

from __future__ import annotations

from dataclasses import replace

from ...records import dataclass
from ..builder import GraphBuilder, Tensor
from ..graph import OpGraph
from .encoder import EncoderConfig, encoder_trunk
from .layers import LayerSizes, divides, encoder_layer

HEAD = 64
"""Width of a head where their number is not given (Dosovitskiy et al. 2021, table 1)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Tower:
    """A vision transformer that turns patches into tokens."""

    patches: int
    patch_elems: int
    """Input elements of one patch: channels x area."""
    layers: int
    hidden: int
    heads: int
    ffn: int
    class_tokens: int = 1
    fused_qkv: bool = False
    gated: bool = False
    rotary: bool = False
    """Positions turn queries and keys; otherwise there is a table of them."""
    window: int = 0
    """Patches that a query sees in most layers; 0: all."""
    full_layers: int = 0
    """Layers that see all patches in spite of `window`."""

    @property
    def layer_groups(self) -> list[tuple[int, LayerSizes]]:
        """(how many, sizes) of the layers that are identical."""
        whole = LayerSizes(
            hidden=self.hidden,
            heads=self.heads,
            ffn=self.ffn,
            fused_qkv=self.fused_qkv,
            gated=self.gated,
            activation="silu" if self.gated else "gelu",
            rotary=self.rotary,
        )
        full = self.full_layers if self.window else self.layers
        groups = [(full, whole), (self.layers - full, replace(whole, window=self.window))]
        return [group for group in groups if group[0]]


def vision_tower(b: GraphBuilder, tower: Tower) -> Tensor:
    """Patch projection, position table, layers with pre-normalization and the final norm."""
    patches = b.input(tower.patches, tower.patch_elems)
    x = b.conv(patches, tower.hidden, rows=tower.patches, kernel=1)
    tokens = tower.patches + tower.class_tokens
    if tower.class_tokens:
        x = b.move("cat", x, rows=tokens, width=tower.hidden)
    if not tower.rotary:
        x = b.elementwise("add", x, weight=(tokens + tower.class_tokens) * tower.hidden, tensors=2)
    for count, sizes in tower.layer_groups:
        with b.block(count):
            x = encoder_layer(b, b.carry(x), sizes)
    return b.norm(x)


@dataclass(frozen=True, kw_only=True, slots=True)
class PatchClassifierConfig(Tower):
    """A vision transformer over a grid of patches with a classifier (ViT, AST)."""

    classes: int
    input_elems: int = 0
    """Elements of one sample before overlapping patches are cut; 0: patches x patch_elems."""

    def __post_init__(self) -> None:
        divides("heads", self.heads, "hidden", self.hidden)


def build_patch_classifier(name: str, config: PatchClassifierConfig) -> OpGraph:
    """The graph of one forward pass with cross entropy over the classes."""
    b = GraphBuilder(name)
    x = vision_tower(b, config)
    b.cross_entropy(b.linear(b.norm(b.reshape(x, 1, config.hidden)), config.classes))
    elems = config.input_elems or config.patches * config.patch_elems
    return b.build(input_bytes=4.0 * elems, seq_len=config.patches + config.class_tokens)


@dataclass(frozen=True, kw_only=True, slots=True)
class VitConfig:
    """A vision transformer over the square patches of an image (Dosovitskiy et al. 2021). Sides in pixels."""

    layers: int
    hidden: int
    heads: int = 0
    """0: heads of 64."""
    ffn: int = 0
    """0: 4 x hidden."""
    image_size: int
    patch: int
    channels: int = 3
    classes: int

    def __post_init__(self) -> None:
        divides("patch", self.patch, "image_size", self.image_size)
        divides("heads", self.heads or max(1, self.hidden // HEAD), "hidden", self.hidden)


def build_vit(name: str, config: VitConfig) -> OpGraph:
    """The graph of one forward pass with cross entropy over the classes, read off the class token."""
    b = GraphBuilder(name)
    tower = Tower(
        patches=(config.image_size // config.patch) ** 2,
        patch_elems=config.channels * config.patch**2,
        layers=config.layers,
        hidden=config.hidden,
        heads=config.heads or max(1, config.hidden // HEAD),
        ffn=config.ffn or 4 * config.hidden,
        fused_qkv=True,
    )
    x = vision_tower(b, tower)
    b.cross_entropy(b.linear(b.reshape(x, 1, config.hidden), config.classes))
    pixels = 4.0 * config.channels * config.image_size**2
    return b.build(input_bytes=pixels, image_size=config.image_size)


@dataclass(frozen=True, kw_only=True, slots=True)
class ImageTextConfig:
    """An image tower and a text tower: compared (CLIP) or fused by cross-attention (BridgeTower)."""

    patches: int
    patch_elems: int
    vision_layers: int
    vision_hidden: int
    vision_heads: int
    text_layers: int
    text_hidden: int
    text_heads: int
    vocab: int
    seq_len: int
    cross_layers: int = 0
    projection: int = 512

    def __post_init__(self) -> None:
        divides("vision_heads", self.vision_heads, "vision_hidden", self.vision_hidden)
        divides("text_heads", self.text_heads, "text_hidden", self.text_hidden)


def build_image_text(name: str, config: ImageTextConfig) -> OpGraph:
    """The graph of one forward pass over one image and one sentence."""
    b = GraphBuilder(name)
    image = vision_tower(
        b,
        Tower(
            patches=config.patches,
            patch_elems=config.patch_elems,
            layers=config.vision_layers,
            hidden=config.vision_hidden,
            heads=config.vision_heads,
            ffn=4 * config.vision_hidden,
        ),
    )
    text = encoder_trunk(
        b,
        EncoderConfig(
            layers=config.text_layers,
            hidden=config.text_hidden,
            heads=config.text_heads,
            seq_len=config.seq_len,
            vocab=config.vocab,
            max_positions=max(514, config.seq_len),
            token_types=1,
        ),
    )
    if config.cross_layers:
        image, text = _cross_modal(b, image, text, config)
    pair = [b.linear(b.reshape(t, 1, t.width), config.projection, bias=False) for t in (image, text)]
    b.loss("mse_loss", b.mul(*pair))
    pixels = 4.0 * config.patches * config.patch_elems
    return b.build(input_bytes=pixels + 8.0 * 2 * config.seq_len, seq_len=config.seq_len)


def _cross_modal(
    b: GraphBuilder, image: Tensor, text: Tensor, config: ImageTextConfig
) -> tuple[Tensor, Tensor]:
    """Layers in which each stream attends to itself and to the other (Xu et al. 2022)."""
    sizes = LayerSizes(
        hidden=config.text_hidden,
        heads=config.text_heads,
        ffn=4 * config.text_hidden,
        pre_norm=False,
        dropout=True,
    )
    image, text = b.linear(image, config.text_hidden), b.linear(text, config.text_hidden)
    with b.block(config.cross_layers):
        image, text = b.norm(b.carry(image)), b.norm(b.carry(text))
        image, text = encoder_layer(b, image, sizes, text), encoder_layer(b, text, sizes, image)
    return image, text
