"""DETR on a trunk of torchvision, and torchvision's segmentation and video models.

DETR's matching of queries to boxes is done on the host and left out: targets come matched.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from . import Entry, Reference
from ._blocks import image, index, on_meta, real

_DOCUMENTED = "torchvision model documentation"
_QUERIES, _CLASSES = 100, 92


def _torchvision() -> Any:
    from precision_time.capture.timm_models import import_torchvision

    return import_torchvision()


class Attention(nn.Module):
    """Eight heads; positions are added to queries and keys."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))

    def forward(self, x: Tensor, places: Tensor, memory: Tensor, there: Tensor) -> Tensor:
        """Shape of `x`."""

        def split(y: Tensor) -> Tensor:
            return y.unflatten(-1, (8, y.shape[-1] // 8)).transpose(1, 2)

        mixed = F.scaled_dot_product_attention(
            split(self.query(x + places)), split(self.key(memory + there)), split(self.value(memory))
        )
        return self.out(mixed.transpose(1, 2).flatten(2))


class Layer(nn.Module):
    """Self-attention, attention to the image where it is a decoder layer, feed-forward; norms after."""

    def __init__(self, width: int, *, decoder: bool) -> None:
        super().__init__()
        self.own = Attention(width)
        self.other = Attention(width) if decoder else None
        self.up, self.down = nn.Linear(width, 2048), nn.Linear(2048, width)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(3 if decoder else 2))

    def forward(self, x: Tensor, places: Tensor, memory: Tensor, there: Tensor) -> Tensor:
        """Same shape."""
        x = self.norms[0](x + F.dropout(self.own(x, places, x, places), 0.1))
        if self.other is not None:
            x = self.norms[1](x + F.dropout(self.other(x, places, memory, there), 0.1))
        inner = F.dropout(F.relu(self.up(x)), 0.1)
        return self.norms[-1](x + F.dropout(self.down(inner), 0.1))


class Detr(nn.Module):
    """Carion et al. 2020: ResNet with frozen norms, six encoder and decoder layers of 256, 100 queries."""

    def __init__(self, depth: int) -> None:
        super().__init__()
        vision = _torchvision()
        trunk = getattr(vision.models, f"resnet{depth}")(
            weights=None, norm_layer=vision.ops.FrozenBatchNorm2d
        )
        self.trunk = nn.Sequential(*list(trunk.children())[:-2])
        for part in self.trunk[:5]:  # stem and first stage are not trained
            part.requires_grad_(False)
        self.enter = nn.Conv2d(2048, 256, 1)
        self.encoder = nn.ModuleList(Layer(256, decoder=False) for _ in range(6))
        self.decoder = nn.ModuleList(Layer(256, decoder=True) for _ in range(6))
        self.norm = nn.LayerNorm(256)
        self.queries = nn.Embedding(_QUERIES, 256)
        self.kinds = nn.Linear(256, _CLASSES)
        self.boxes = nn.Sequential(
            nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 4)
        )

    def forward(self, images: Tensor, places: Tensor, kinds: Tensor, boxes: Tensor) -> Tensor:
        """Losses of every decoder layer."""
        memory = self.enter(self.trunk(images)).flatten(2).transpose(1, 2)
        for layer in self.encoder:
            memory = layer(memory, places, memory, places)
        asked = self.queries.weight.expand(images.shape[0], -1, -1)
        x, losses = torch.zeros_like(asked), []
        for layer in self.decoder:
            x = layer(x, asked, memory, places)
            y = self.norm(x)
            losses.append(F.cross_entropy(self.kinds(y).flatten(0, 1), kinds.flatten()))
            losses.append(F.l1_loss(self.boxes(y).sigmoid(), boxes))
        return torch.stack(losses).sum()


class Segmenter(nn.Module):
    """A segmentation model of torchvision with its reference loss."""

    def __init__(self, name: str, *, auxiliary: bool) -> None:
        super().__init__()
        extra = {"aux_loss": True} if auxiliary else {}
        models = _torchvision().models.segmentation
        self.model = getattr(models, name)(weights=None, weights_backbone=None, **extra)

    def forward(self, images: Tensor, labels: Tensor) -> Tensor:
        """Cross entropy of every pixel, and half of that of the auxiliary head."""
        found = self.model(images)
        loss = F.cross_entropy(found["out"], labels)
        return loss + 0.5 * F.cross_entropy(found["aux"], labels) if "aux" in found else loss


class VideoClassifier(nn.Module):
    """A video model of torchvision with cross entropy."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.model = getattr(_torchvision().models.video, name)(weights=None)

    def forward(self, clips: Tensor, labels: Tensor) -> Tensor:
        """Mean loss over the batch."""
        return F.cross_entropy(self.model(clips), labels)


def _entry(build: Callable[[], nn.Module], inputs: Any, params: float, source: str, **settings: Any) -> Entry:
    tolerance = settings.pop("tolerance", 0.001)
    references = (Reference(quantity="params", value=params, source=source, tolerance=tolerance),)
    return Entry(
        build=on_meta(build), inputs=inputs, source_library="torchvision", references=references, **settings
    )


def _detr(depth: int, params: float) -> Entry:
    side, wide = 800, 1066
    tokens = -(-side // 32) * -(-wide // 32)
    return _entry(
        lambda: Detr(depth),
        lambda batch: (
            image(batch, 3, side, wide),
            real(batch, tokens, 256),
            index(batch, _QUERIES),
            real(batch, _QUERIES, 4),
        ),
        params,
        "Carion et al. 2020 table 1",
        tolerance=0.01,
        family="detection",
        task="detection",
        optimizer="adamw",
        sample_unit="image",
        throughput_unit="images/s",
        dataset="coco2017",
        dataset_samples=118_287,
        image_size=side,
        aliases=(f"detr-resnet-{depth}",),
    )


def _segmenter(name: str, params: float, *aliases: str, auxiliary: bool = True) -> Entry:
    return _entry(
        lambda: Segmenter(name, auxiliary=auxiliary),
        lambda batch: (image(batch, 3, 480, 480), index(batch, 480, 480)),
        params,
        _DOCUMENTED,
        family="segmentation",
        task="segmentation",
        optimizer="momentum-sgd",
        sample_unit="image",
        throughput_unit="images/s",
        dataset="coco2017",
        image_size=480,
        aliases=aliases,
    )


def _video(name: str, frames: int, side: int, params: float, family: str, *aliases: str) -> Entry:
    return _entry(
        lambda: VideoClassifier(name),
        lambda batch: (image(batch, 3, frames, side, side), index(batch)),
        params,
        _DOCUMENTED,
        family=family,
        task="video-classification",
        optimizer="momentum-sgd" if family == "cnn" else "adamw",
        sample_unit="clip",
        throughput_unit="clips/s",
        dataset="kinetics400",
        aliases=aliases,
    )


ENTRIES: dict[str, Entry] = {
    "detr-r50": _detr(50, 41.5e6),
    "detr-r101": _detr(101, 60.4e6),
    "fcn_resnet50": _segmenter("fcn_resnet50", 35_322_218),
    "fcn_resnet101": _segmenter("fcn_resnet101", 54_314_346),
    "deeplabv3_resnet50": _segmenter("deeplabv3_resnet50", 42_004_074),
    "deeplabv3_resnet101": _segmenter("deeplabv3_resnet101", 60_996_202),
    "deeplabv3_mobilenet_v3_large": _segmenter("deeplabv3_mobilenet_v3_large", 11_029_328),
    "lraspp_mobilenet_v3_large": _segmenter("lraspp_mobilenet_v3_large", 3_221_538, auxiliary=False),
    "r3d_18": _video("r3d_18", 16, 112, 33_371_472, "cnn"),
    "mc3_18": _video("mc3_18", 16, 112, 11_695_440, "cnn"),
    "r2plus1d_18": _video("r2plus1d_18", 16, 112, 31_505_325, "cnn"),
    "mvit_v1_b": _video("mvit_v1_b", 16, 224, 36_610_672, "vit"),
    "mvit_v2_s": _video("mvit_v2_s", 16, 224, 34_537_744, "vit"),
    "swin3d_t": _video("swin3d_t", 32, 224, 28_158_070, "vit"),
    "swin3d_s": _video("swin3d_s", 32, 224, 49_816_678, "vit"),
    "swin3d_b": _video("swin3d_b", 32, 224, 88_048_984, "vit"),
}
