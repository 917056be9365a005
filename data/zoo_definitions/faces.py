"""Face recognition: an embedding network and a margin softmax over all identities.

Single-device size: the classifier keeps all its rows here; InsightFace shards them over the devices
(model parallel) and partial FC samples a tenth of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn
from torch.nn import functional as F

from . import Entry, Reference
from ._blocks import image, index, on_meta


class MarginHead(nn.Module):
    """Cosine logits against normalised class centres (ArcFace, Deng et al. 2019)."""

    def __init__(self, width: int, identities: int) -> None:
        super().__init__()
        self.centres = nn.Linear(width, identities, bias=False)

    def forward(self, features: Tensor, labels: Tensor) -> Tensor:
        """Cross entropy with an additive angular margin."""
        cosine = F.linear(F.normalize(features), F.normalize(self.centres.weight))
        target = cosine.gather(1, labels.unsqueeze(1))
        shifted = target * 0.8776 - (1 - target * target).clamp(min=0).sqrt() * 0.4794
        return F.cross_entropy(cosine.scatter(1, labels.unsqueeze(1), shifted) * 64.0, labels)


class PreactUnit(nn.Module):
    """Improved residual unit: norm, convolution, norm, PReLU, convolution, norm."""

    def __init__(self, inp: int, out: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.BatchNorm2d(inp),
            nn.Conv2d(inp, out, 3, 1, 1, bias=False),
            nn.BatchNorm2d(out),
            nn.PReLU(out),
            nn.Conv2d(out, out, 3, stride, 1, bias=False),
            nn.BatchNorm2d(out),
        )
        needs = stride != 1 or inp != out
        self.shortcut = (
            nn.Sequential(nn.Conv2d(inp, out, 1, stride, bias=False), nn.BatchNorm2d(out))
            if needs
            else nn.Identity()
        )

    def forward(self, x: Tensor) -> Tensor:
        """Residual sum."""
        return self.body(x) + self.shortcut(x)


class FaceResNet(nn.Module):
    """ResNet-100 of InsightFace on 112x112 crops, embedding of 512."""

    def __init__(self, blocks: tuple[int, ...] = (3, 13, 30, 3)) -> None:
        super().__init__()
        layers: list[nn.Module] = [nn.Conv2d(3, 64, 3, 1, 1, bias=False), nn.BatchNorm2d(64), nn.PReLU(64)]
        inp = 64
        for stage, count in enumerate(blocks):
            out = 64 * 2**stage
            for unit in range(count):
                layers.append(PreactUnit(inp, out, 2 if unit == 0 else 1))
                inp = out
        self.features = nn.Sequential(*layers, nn.BatchNorm2d(512), nn.Dropout(0.4))
        self.embed = nn.Linear(512 * 49, 512)
        self.norm = nn.BatchNorm1d(512)

    def forward(self, x: Tensor) -> Tensor:
        """Embedding."""
        return self.norm(self.embed(self.features(x).flatten(1)))


class NarrowUnit(nn.Module):
    """Expand, depthwise, project with PReLU, as in MobileFaceNet."""

    def __init__(self, inp: int, out: int, stride: int, mid: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(inp, mid, 1, bias=False),
            nn.BatchNorm2d(mid),
            nn.PReLU(mid),
            nn.Conv2d(mid, mid, 3, stride, 1, groups=mid, bias=False),
            nn.BatchNorm2d(mid),
            nn.PReLU(mid),
            nn.Conv2d(mid, out, 1, bias=False),
            nn.BatchNorm2d(out),
        )
        self.residual = stride == 1 and inp == out

    def forward(self, x: Tensor) -> Tensor:
        """Block output."""
        return self.body(x) + x if self.residual else self.body(x)


class MobileFaceNet(nn.Module):
    """MobileFaceNet y1 (Chen et al. 2018): embedding of 128."""

    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = [
            nn.Conv2d(3, 64, 3, 2, 1, bias=False),
            nn.BatchNorm2d(64),
            nn.PReLU(64),
            nn.Conv2d(64, 64, 3, 1, 1, groups=64, bias=False),
            nn.BatchNorm2d(64),
            nn.PReLU(64),
        ]
        inp = 64
        for out, mid, repeat, stride in (
            (64, 128, 1, 2),
            (64, 128, 4, 1),
            (128, 256, 1, 2),
            (128, 256, 6, 1),
            (128, 512, 1, 2),
            (128, 256, 2, 1),
        ):
            for unit in range(repeat):
                layers.append(NarrowUnit(inp, out, stride if unit == 0 else 1, mid))
                inp = out
        layers += [nn.Conv2d(128, 512, 1, bias=False), nn.BatchNorm2d(512), nn.PReLU(512)]
        layers += [nn.Conv2d(512, 512, 7, groups=512, bias=False), nn.BatchNorm2d(512), nn.Flatten()]
        self.features = nn.Sequential(*layers, nn.Linear(512, 128), nn.BatchNorm1d(128))

    def forward(self, x: Tensor) -> Tensor:
        """Embedding."""
        return self.features(x)


class FaceTrainer(nn.Module):
    """Embedding network and margin head."""

    def __init__(self, net: nn.Module, width: int, identities: int) -> None:
        super().__init__()
        self.net = net
        self.head = MarginHead(width, identities)

    def forward(self, images: Tensor, labels: Tensor) -> Tensor:
        """Loss."""
        return self.head(self.net(images), labels)


def _entry(factory: Callable[[], nn.Module], *references: Reference, **changes: Any) -> Entry:
    settings: dict[str, Any] = {
        "build": on_meta(factory),
        "inputs": lambda batch: (image(batch, 3, 112, 112), index(batch)),
        "family": "cnn",
        "task": "face-recognition",
        "optimizer": "momentum-sgd",
        "sample_unit": "image",
        "throughput_unit": "images/s",
        "dataset": "faces-emore",
        "dataset_samples": 5_822_653,
        "image_size": 112,
        "references": references,
    }
    return Entry(**(settings | changes))


EMORE = 85_742
GLINT360K = 360_232

ENTRIES: dict[str, Entry] = {
    "insightface-r100": _entry(
        lambda: FaceTrainer(FaceResNet(), 512, EMORE),
        Reference(
            quantity="params",
            value=65.16e6 + 512 * EMORE,
            source="InsightFace IResNet-100, 65.16M, plus 85,742 centres of 512",
        ),
    ),
    "insightface-r100--glint360k": _entry(
        lambda: FaceTrainer(FaceResNet(), 512, GLINT360K // 10),
        dataset="glint360k",
        dataset_samples=17_091_657,
    ),
    "insightface-mobilefacenet-y1": _entry(lambda: FaceTrainer(MobileFaceNet(), 128, EMORE)),
}
