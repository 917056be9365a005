"""Images with text (CLIP) and clips of frames (TSN, TSM)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from . import Entry, Reference
from ._blocks import image, index, on_meta, real


class Layer(nn.Module):
    """Transformer layer with heads of 64 unless their number is given, norms first."""

    def __init__(
        self, width: int, *, causal: bool, heads: int = 0, inner: int = 0, quick: bool = True
    ) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, inner or 4 * width), nn.Linear(inner or 4 * width, width)
        self.causal, self.quick, self.heads = causal, quick, heads or width // 64

    def forward(self, x: Tensor) -> Tensor:
        """Same shape."""
        heads = (3, self.heads, x.shape[-1] // self.heads)
        q, k, v = self.qkv(self.norm1(x)).unflatten(-1, heads).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        y = self.up(self.norm2(x))
        return x + self.down(y * torch.sigmoid(1.702 * y) if self.quick else F.gelu(y))


@dataclass(frozen=True, kw_only=True, slots=True)
class ClipSizes:
    """Sizes of both towers of a CLIP."""

    side: int = 224
    patch: int
    vision: tuple[int, int]
    """Width and layers."""
    vision_heads: int = 0
    vision_inner: int = 0
    text: tuple[int, int]
    joint: int
    """Width of the space in which both are compared."""
    quick: bool = True
    """The approximate gelu of OpenAI's models."""


class CLIP(nn.Module):
    """An image and a text transformer compared (Radford et al. 2021), contrastive loss."""

    def __init__(self, sizes: ClipSizes) -> None:
        super().__init__()
        (width, layers), (narrow, depth) = sizes.vision, sizes.text
        self.patches = nn.Conv2d(3, width, sizes.patch, sizes.patch, bias=False)
        self.first = nn.Parameter(torch.empty(1, 1, width))
        self.places = nn.Parameter(torch.empty((sizes.side // sizes.patch) ** 2 + 1, width))
        self.before, self.after = nn.LayerNorm(width), nn.LayerNorm(width)
        self.vision = nn.ModuleList(
            Layer(
                width,
                causal=False,
                heads=sizes.vision_heads,
                inner=sizes.vision_inner,
                quick=sizes.quick,
            )
            for _ in range(layers)
        )
        self.to_image = nn.Linear(width, sizes.joint, bias=False)
        self.words = nn.Embedding(49_408, narrow)
        self.positions = nn.Parameter(torch.empty(77, narrow))
        self.text = nn.ModuleList(Layer(narrow, causal=True, quick=sizes.quick) for _ in range(depth))
        self.last = nn.LayerNorm(narrow)
        self.to_text = nn.Linear(narrow, sizes.joint, bias=False)
        self.scale = nn.Parameter(torch.empty([]))

    def forward(self, images: Tensor, tokens: Tensor) -> Tensor:
        """Pairs belong together, all others apart."""
        x = self.patches(images).flatten(2).transpose(1, 2)
        x = torch.cat((self.first.expand(x.shape[0], -1, -1), x), 1) + self.places
        x = self.before(x)
        for layer in self.vision:
            x = layer(x)
        seen = F.normalize(self.to_image(self.after(x[:, 0])), dim=-1)
        y = self.words(tokens) + self.positions
        for layer in self.text:
            y = layer(y)
        read = F.normalize(self.to_text(self.last(y)[:, -1]), dim=-1)
        # Similarities of a batch are a small product; its size is left out, since it grows with the square.
        return (seen * read * self.scale.exp()).sum(-1).neg().mean()


class Frames(nn.Module):
    """ResNet-50 on every frame, scores averaged (TSN); with channels shifted between frames (TSM)."""

    def __init__(self, frames: int, *, shift: bool) -> None:
        super().__init__()
        from precision_time.capture.timm_models import import_torchvision

        import_torchvision()
        import torchvision

        self.frames = frames
        self.trunk = torchvision.models.resnet50(weights=None, num_classes=400)
        if shift:
            for stage in (self.trunk.layer1, self.trunk.layer2, self.trunk.layer3, self.trunk.layer4):
                for block in stage:
                    block.conv1 = nn.Sequential(Shift(frames), block.conv1)

    def forward(self, clips: Tensor, labels: Tensor) -> Tensor:
        """Cross entropy of the mean score."""
        scores = self.trunk(clips.flatten(0, 1)).unflatten(0, (-1, self.frames))
        return F.cross_entropy(scores.mean(1), labels)


class Shift(nn.Module):
    """An eighth of the channels from the frame before, an eighth from the one after (Lin et al. 2019)."""

    def __init__(self, frames: int) -> None:
        super().__init__()
        self.frames = frames

    def forward(self, x: Tensor) -> Tensor:
        """Same shape."""
        clips = x.unflatten(0, (-1, self.frames))
        eighth = x.shape[1] // 8
        back = F.pad(clips[:, 1:, :eighth], (0, 0, 0, 0, 0, 0, 0, 1))
        forth = F.pad(clips[:, :-1, eighth : 2 * eighth], (0, 0, 0, 0, 0, 0, 1, 0))
        return torch.cat((back, forth, clips[:, :, 2 * eighth :]), 2).flatten(0, 1)


def _video(frames: int, *, shift: bool) -> Entry:
    return Entry(
        build=on_meta(lambda: Frames(frames, shift=shift)),
        inputs=lambda batch: (real(batch, frames, 3, 224, 224), index(batch)),
        family="cnn",
        task="video-classification",
        optimizer="momentum-sgd",
        sample_unit="clip",
        throughput_unit="clips/s",
        dataset="kinetics400",
        references=(
            Reference(
                quantity="forward_flops", value=frames * 2 * 4.09e9, source="ResNet-50: 4.09 GMAC a frame"
            ),
        ),
    )


def _clip(sizes: ClipSizes, params: float, source: str, *aliases: str, dataset: str = "") -> Entry:
    return Entry(
        build=on_meta(lambda: CLIP(sizes)),
        inputs=lambda batch: (image(batch, 3, sizes.side, sizes.side), index(batch, 77)),
        family="vit",
        task="contrastive-pretrain",
        optimizer="adamw",
        sample_unit="pair",
        throughput_unit="samples/s",
        dataset=dataset,
        image_size=sizes.side,
        references=(Reference(quantity="params", value=params, source=source),),
        aliases=aliases,
    )


_OPEN = "mlfoundations/open_clip model configuration and laion checkpoint"

ENTRIES: dict[str, Entry] = {
    "clip-vit-base-patch32": _clip(
        ClipSizes(patch=32, vision=(768, 12), text=(512, 12), joint=512),
        151.28e6,
        "openai/clip-vit-base-patch32: 151.28M",
        "clip-vit-b-32",
        "clip",
        dataset="coco2017",
    ),
    "clip-vit-base-patch16": _clip(
        ClipSizes(patch=16, vision=(768, 12), text=(512, 12), joint=512),
        149.62e6,
        "openai/clip-vit-base-patch16: 149.62M",
        "clip-vit-b-16",
    ),
    "clip-vit-large-patch14": _clip(
        ClipSizes(patch=14, vision=(1024, 24), text=(768, 12), joint=768),
        427.62e6,
        "openai/clip-vit-large-patch14: 427.62M",
        "clip-vit-l-14",
    ),
    "clip-vit-large-patch14-336": _clip(
        ClipSizes(side=336, patch=14, vision=(1024, 24), text=(768, 12), joint=768),
        427.94e6,
        "openai/clip-vit-large-patch14-336: 427.94M",
        "clip-vit-l-14-336",
    ),
    "clip-vit-h-14": _clip(
        ClipSizes(patch=14, vision=(1280, 32), vision_heads=16, text=(1024, 24), joint=1024, quick=False),
        986.11e6,
        _OPEN + " ViT-H-14: 986.11M",
        "openclip-vit-h-14",
    ),
    "clip-vit-g-14": _clip(
        ClipSizes(
            patch=14,
            vision=(1408, 40),
            vision_heads=16,
            vision_inner=6144,
            text=(1024, 24),
            joint=1024,
            quick=False,
        ),
        1366.68e6,
        _OPEN + " ViT-g-14: 1366.68M",
        "openclip-vit-g-14",
    ),
    "clip-vit-bigg-14": _clip(
        ClipSizes(
            patch=14,
            vision=(1664, 48),
            vision_heads=16,
            vision_inner=8192,
            text=(1280, 32),
            joint=1280,
            quick=False,
        ),
        2539.57e6,
        _OPEN + " ViT-bigG-14: 2539.57M",
        "openclip-vit-bigg-14",
    ),
    "tsn-r50": _video(3, shift=False),
    "tsm-r50": _video(8, shift=True),
}
