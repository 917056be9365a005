"""Networks of DAWNBench entries and of convnet-benchmarks that no library holds."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn
from torch.nn import functional as F

from . import Entry, Reference
from ._blocks import Classifier, conv_bn, image_and_label, on_meta
from .cifar import ResidualUnit


class ResNet9(nn.Module):
    """Eight convolutions and a linear layer, two of the stages with a residual (davidcpage/cifar10-fast)."""

    def __init__(self) -> None:
        super().__init__()
        act = nn.ReLU()
        self.start = nn.Sequential(conv_bn(3, 64, act=act), conv_bn(64, 128, act=act), nn.MaxPool2d(2))
        self.first = nn.Sequential(conv_bn(128, 128, act=act), conv_bn(128, 128, act=act))
        self.middle = nn.Sequential(
            conv_bn(128, 256, act=act), nn.MaxPool2d(2), conv_bn(256, 512, act=act), nn.MaxPool2d(2)
        )
        self.second = nn.Sequential(conv_bn(512, 512, act=act), conv_bn(512, 512, act=act))
        self.head = nn.Linear(512, 10, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Logits."""
        x = self.start(x)
        x = self.middle(x + self.first(x))
        x = x + self.second(x)
        return self.head(F.max_pool2d(x, 4).flatten(1)) * 0.125


class ResNet164(nn.Module):
    """Three stages of 16, 32 and 64 (He et al. 2016, arXiv 1603.05027): 18 bottlenecks or 27 pairs each."""

    def __init__(self, *, bottleneck: bool) -> None:
        super().__init__()
        self.stem = conv_bn(3, 16, act=nn.ReLU())
        units: list[nn.Module] = []
        inp = 16
        for width in (16, 32, 64):
            for unit in range(18 if bottleneck else 27):
                stride = 2 if unit == 0 and width > 16 else 1
                units.append(ResidualUnit(inp, width, stride, bottleneck=bottleneck))
                inp = width * (4 if bottleneck else 1)
        self.units = nn.Sequential(*units)
        self.head = nn.Linear(inp, 10)

    def forward(self, x: Tensor) -> Tensor:
        """Logits."""
        return self.head(F.avg_pool2d(self.units(self.stem(x)), 8).flatten(1))


def overfeat() -> nn.Module:
    """The fast network of Sermanet et al. 2013 (arXiv 1312.6229, table 1)."""
    layers: list[nn.Module] = [nn.Conv2d(3, 96, 11, 4), nn.ReLU(), nn.MaxPool2d(2)]
    layers += [nn.Conv2d(96, 256, 5), nn.ReLU(), nn.MaxPool2d(2)]
    for inp, out in ((256, 512), (512, 1024), (1024, 1024)):
        layers += [nn.Conv2d(inp, out, 3, padding=1), nn.ReLU()]
    layers += [nn.MaxPool2d(2), nn.Flatten(), nn.Linear(1024 * 36, 3072), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(3072, 4096), nn.ReLU(), nn.Linear(4096, 1000))


def _entry(factory: Any, side: int, *references: Reference, **changes: Any) -> Entry:
    settings: dict[str, Any] = {
        "build": on_meta(lambda: Classifier(factory())),
        "inputs": image_and_label(3, side, side),
        "family": "cnn",
        "task": "image-classification-train",
        "optimizer": "momentum-sgd",
        "sample_unit": "image",
        "throughput_unit": "images/s",
        "dataset": "cifar10",
        "dataset_samples": 50_000,
        "image_size": side,
        "references": references,
    }
    return Entry(**(settings | changes))


def _params(value: float, source: str, tolerance: float = 0.01) -> Reference:
    return Reference(quantity="params", value=value, source=source, tolerance=tolerance)


ENTRIES: dict[str, Entry] = {
    "resnet9-cifar": _entry(ResNet9, 32, _params(6.57e6, "davidcpage/cifar10-fast: 6.57 M parameters")),
    "resnet164-cifar-bottleneck": _entry(
        lambda: ResNet164(bottleneck=True), 32, _params(1.7e6, "He et al. 2016, table 4: 1.7 M", 0.02)
    ),
    "resnet164-cifar-basic": _entry(lambda: ResNet164(bottleneck=False), 32),
    "overfeat-fast": _entry(
        overfeat,
        231,
        _params(145e6, "Sermanet et al. 2013, table 4: 145 M"),
        dataset="imagenet",
        dataset_samples=1_281_167,
        aliases=("overfeat",),
    ),
}
