"""Images with text (CLIP) and clips of frames (TSN, TSM)."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from . import Entry, Reference
from ._blocks import image, index, on_meta, real


class Layer(nn.Module):
    """Transformer layer with heads of 64, norms first."""

    def __init__(self, width: int, *, causal: bool) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.causal = causal

    def forward(self, x: Tensor) -> Tensor:
        """Same shape."""
        heads = (3, x.shape[-1] // 64, 64)
        q, k, v = self.qkv(self.norm1(x)).unflatten(-1, heads).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        y = self.up(self.norm2(x))
        return x + self.down(y * torch.sigmoid(1.702 * y))


class CLIP(nn.Module):
    """ViT-B/32 and a text transformer of 12 layers of 512 (Radford et al. 2021), contrastive loss."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, 768, 32, 32, bias=False)
        self.first = nn.Parameter(torch.empty(1, 1, 768))
        self.places = nn.Parameter(torch.empty(50, 768))
        self.before, self.after = nn.LayerNorm(768), nn.LayerNorm(768)
        self.vision = nn.ModuleList(Layer(768, causal=False) for _ in range(12))
        self.to_image = nn.Linear(768, 512, bias=False)
        self.words = nn.Embedding(49_408, 512)
        self.positions = nn.Parameter(torch.empty(77, 512))
        self.text = nn.ModuleList(Layer(512, causal=True) for _ in range(12))
        self.last = nn.LayerNorm(512)
        self.to_text = nn.Linear(512, 512, bias=False)
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
        from precision_time.workload.capture.timm_models import import_torchvision

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


ENTRIES: dict[str, Entry] = {
    "clip-vit-base-patch32": Entry(
        build=on_meta(CLIP),
        inputs=lambda batch: (image(batch, 3, 224, 224), index(batch, 77)),
        family="vit",
        task="contrastive-pretrain",
        optimizer="adamw",
        sample_unit="pair",
        throughput_unit="samples/s",
        dataset="coco2017",
        image_size=224,
        references=(
            Reference(quantity="params", value=151.28e6, source="openai/clip-vit-base-patch32: 151.28M"),
        ),
        aliases=("clip-vit-b-32", "clip"),
    ),
    "tsn-r50": _video(3, shift=False),
    "tsm-r50": _video(8, shift=True),
}
