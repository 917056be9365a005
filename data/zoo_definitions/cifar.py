"""Convolutional networks on 32x32 images."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from . import Entry, Reference
from ._blocks import Classifier, SqueezeExcite, conv_bn, image_and_label, on_meta


class ResidualUnit(nn.Module):
    """Two 3x3 convolutions or a 1-3-1 bottleneck with a shortcut (He et al. 2015)."""

    def __init__(
        self, inp: int, width: int, stride: int, *, bottleneck: bool, projection: bool = True
    ) -> None:
        super().__init__()
        out = width * 4 if bottleneck else width
        if bottleneck:
            self.body = nn.Sequential(
                conv_bn(inp, width, 1, act=nn.ReLU()),
                conv_bn(width, width, 3, stride, act=nn.ReLU()),
                conv_bn(width, out, 1),
            )
        else:
            self.body = nn.Sequential(conv_bn(inp, width, 3, stride, act=nn.ReLU()), conv_bn(width, width, 3))
        needs = stride != 1 or inp != out
        self.shortcut = conv_bn(inp, out, 1, stride) if needs and projection else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        """Sum of both branches."""
        return F.relu(self.body(x) + self.shortcut(x))


class CifarResNet(nn.Module):
    """The ImageNet layout with a 3x3 stem and without the first pooling."""

    def __init__(self, blocks: tuple[int, ...], *, bottleneck: bool, classes: int = 10) -> None:
        super().__init__()
        self.stem = conv_bn(3, 64, 3, act=nn.ReLU())
        units: list[nn.Module] = []
        inp = 64
        for stage, count in enumerate(blocks):
            width = 64 * 2**stage
            for unit in range(count):
                stride = 2 if unit == 0 and stage > 0 else 1
                units.append(ResidualUnit(inp, width, stride, bottleneck=bottleneck))
                inp = width * (4 if bottleneck else 1)
        self.units = nn.Sequential(*units)
        self.head = nn.Linear(inp, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Logits."""
        return self.head(F.avg_pool2d(self.units(self.stem(x)), 4).flatten(1))


class ThinResNet(nn.Module):
    """Three stages of two-convolution units, the CIFAR layout of He et al. 2015."""

    def __init__(self, units_per_stage: int, widths: tuple[int, int, int], stem: int = 16) -> None:
        super().__init__()
        self.stem = conv_bn(3, stem, 3, act=nn.ReLU())
        units: list[nn.Module] = []
        inp = stem
        for stage, width in enumerate(widths):
            for unit in range(units_per_stage):
                stride = 2 if unit == 0 and stage > 0 else 1
                units.append(ResidualUnit(inp, width, stride, bottleneck=False))
                inp = width
        self.units = nn.Sequential(*units)
        self.head = nn.Linear(inp, 10)

    def forward(self, x: Tensor) -> Tensor:
        """Logits."""
        return self.head(self.units(self.stem(x)).mean((2, 3)))


class ShakeBranch(nn.Module):
    """ReLU, convolution, norm twice: one of the two branches of a shake-shake unit."""

    def __init__(self, inp: int, out: int, stride: int) -> None:
        super().__init__()
        self.first = conv_bn(inp, out, 3, stride)
        self.second = conv_bn(out, out, 3)

    def forward(self, x: Tensor) -> Tensor:
        """Branch output."""
        return self.second(F.relu(self.first(F.relu(x))))


class ShakeUnit(nn.Module):
    """Two branches mixed by one random number per image (Gastaldi 2017)."""

    def __init__(self, inp: int, out: int, stride: int) -> None:
        super().__init__()
        self.left = ShakeBranch(inp, out, stride)
        self.right = ShakeBranch(inp, out, stride)
        self.shortcut = conv_bn(inp, out, 1, stride) if inp != out else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        """Shortcut plus the mixture."""
        alpha = torch.rand(x.shape[0], 1, 1, 1, device=x.device)
        return self.shortcut(x) + alpha * self.left(x) + (1 - alpha) * self.right(x)


class ShakeShake(nn.Module):
    """Shake-shake 26 2x`base`d: three stages of four units."""

    def __init__(self, base: int) -> None:
        super().__init__()
        self.stem = conv_bn(3, 16, 3)
        units: list[nn.Module] = []
        inp = 16
        for stage in range(3):
            width = base * 2**stage
            for unit in range(4):
                units.append(ShakeUnit(inp, width, 2 if unit == 0 and stage > 0 else 1))
                inp = width
        self.units = nn.Sequential(*units)
        self.head = nn.Linear(inp, 10)

    def forward(self, x: Tensor) -> Tensor:
        """Logits."""
        return self.head(F.relu(self.units(self.stem(x))).mean((2, 3)))


class ShuffleUnit(nn.Module):
    """Unit of ShuffleNet v2 (Ma et al. 2018): half of the channels pass, or both are strided."""

    def __init__(self, inp: int, out: int, stride: int) -> None:
        super().__init__()
        self.stride = stride
        half = out // 2
        branch_in = inp if stride == 2 else inp // 2
        self.main = nn.Sequential(
            conv_bn(branch_in, half if stride == 1 else inp, 1, act=nn.ReLU()),
            conv_bn(
                half if stride == 1 else inp,
                half if stride == 1 else inp,
                3,
                stride,
                groups=half if stride == 1 else inp,
            ),
            conv_bn(half if stride == 1 else inp, half, 1, act=nn.ReLU()),
        )
        self.skip = (
            nn.Sequential(conv_bn(inp, inp, 3, 2, groups=inp), conv_bn(inp, half, 1, act=nn.ReLU()))
            if stride == 2
            else None
        )

    def forward(self, x: Tensor) -> Tensor:
        """Concatenation of both halves, channels shuffled."""
        if self.skip is not None:
            both = torch.cat((self.skip(x), self.main(x)), 1)
        else:
            kept, used = x.chunk(2, 1)
            both = torch.cat((kept, self.main(used)), 1)
        n, c, h, w = both.shape
        return both.view(n, 2, c // 2, h, w).transpose(1, 2).reshape(n, c, h, w)


class CifarShuffleNet(nn.Module):
    """ShuffleNet v2 1x with a stride-1 stem for 32x32 images."""

    def __init__(self, classes: int = 100) -> None:
        super().__init__()
        self.stem = conv_bn(3, 24, 3, act=nn.ReLU())
        units: list[nn.Module] = []
        inp = 24
        for width, repeat in ((116, 3), (232, 7), (464, 3)):
            units.append(ShuffleUnit(inp, width, 2))
            units += [ShuffleUnit(width, width, 1) for _ in range(repeat)]
            inp = width
        self.units = nn.Sequential(*units)
        self.last = conv_bn(464, 1024, 1, act=nn.ReLU())
        self.head = nn.Linear(1024, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Logits."""
        return self.head(self.last(self.units(self.stem(x))).mean((2, 3)))


class InvertedResidual(nn.Module):
    """Expand, depthwise, project (Sandler et al. 2018), with an optional channel gate."""

    def __init__(self, inp: int, out: int, kernel: int, stride: int, ratio: int, *, gate: bool) -> None:
        super().__init__()
        mid = inp * ratio
        act = nn.SiLU if gate else nn.ReLU
        layers: list[nn.Module] = [conv_bn(inp, mid, 1, act=act())] if ratio > 1 or not gate else []
        layers.append(conv_bn(mid, mid, kernel, stride, groups=mid, act=act()))
        if gate:
            layers.append(SqueezeExcite(mid, max(1, inp // 4), nn.SiLU()))
        layers.append(conv_bn(mid, out, 1))
        self.body = nn.Sequential(*layers)
        self.residual = stride == 1 and inp == out
        needs = stride == 1 and inp != out and not gate
        self.shortcut = conv_bn(inp, out, 1) if needs else None

    def forward(self, x: Tensor) -> Tensor:
        """Block output."""
        out = self.body(x)
        if self.shortcut is not None:
            return out + self.shortcut(x)
        return out + x if self.residual else out


class CifarMobile(nn.Module):
    """MobileNet v2 and EfficientNet-B0 stages with the strides of the 32x32 versions."""

    def __init__(self, stages: tuple[tuple[int, ...], ...], stem: int, last: int, *, gate: bool) -> None:
        super().__init__()
        act = nn.SiLU() if gate else nn.ReLU()
        self.stem = conv_bn(3, stem, 3, act=act)
        units: list[nn.Module] = []
        inp = stem
        for ratio, out, repeat, kernel, stride in stages:
            for unit in range(repeat):
                units.append(InvertedResidual(inp, out, kernel, stride if unit == 0 else 1, ratio, gate=gate))
                inp = out
        if not gate:
            units.append(conv_bn(inp, last, 1, act=act))
        self.units = nn.Sequential(*units)
        self.head = nn.Linear(last, 10)

    def forward(self, x: Tensor) -> Tensor:
        """Logits."""
        return self.head(F.adaptive_avg_pool2d(self.units(self.stem(x)), 1).flatten(1))


MOBILENET_V2 = (
    (1, 16, 1, 3, 1),
    (6, 24, 2, 3, 1),
    (6, 32, 3, 3, 2),
    (6, 64, 4, 3, 2),
    (6, 96, 3, 3, 1),
    (6, 160, 3, 3, 2),
    (6, 320, 1, 3, 1),
)
EFFICIENTNET_B0 = (
    (1, 16, 1, 3, 1),
    (6, 24, 2, 3, 2),
    (6, 40, 2, 5, 2),
    (6, 80, 3, 3, 2),
    (6, 112, 3, 5, 1),
    (6, 192, 4, 5, 2),
    (6, 320, 1, 3, 1),
)


class CifarVGG(nn.Module):
    """VGG-19 convolutions with batch norm and one linear layer."""

    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        inp = 3
        for width, repeat in ((64, 2), (128, 2), (256, 4), (512, 4), (512, 4)):
            for _ in range(repeat):
                layers += [nn.Conv2d(inp, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU()]
                inp = width
            layers.append(nn.MaxPool2d(2))
        self.features = nn.Sequential(*layers)
        self.head = nn.Linear(512, 10)

    def forward(self, x: Tensor) -> Tensor:
        """Logits."""
        return self.head(self.features(x).flatten(1))


class SmallCNN(nn.Module):
    """`depth` stages of two 3x3 convolutions and a pooling, then a hidden linear layer."""

    def __init__(self, depth: int, filters: int, hidden: int = 128) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        inp = 3
        for stage in range(depth):
            width = filters * 2**stage
            layers += [nn.Conv2d(inp, width, 3, padding=1), nn.ReLU()]
            layers += [nn.Conv2d(width, width, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
            inp = width
        self.features = nn.Sequential(*layers)
        side = 32 // 2**depth
        self.classifier = nn.Sequential(
            nn.Linear(inp * side * side, hidden), nn.ReLU(), nn.Linear(hidden, 10)
        )

    def forward(self, x: Tensor) -> Tensor:
        """Logits."""
        return self.classifier(self.features(x).flatten(1))


KUANGLIU = "kuangliu/pytorch-cifar, parameters of the PyTorch module"


def _entry(factory: Callable[[], nn.Module], *references: Reference, **changes: Any) -> Entry:
    settings: dict[str, Any] = {
        "build": on_meta(lambda: Classifier(factory())),
        "inputs": image_and_label(3, 32, 32),
        "family": "cnn",
        "task": "image-classification-train",
        "optimizer": "momentum-sgd",
        "sample_unit": "image",
        "throughput_unit": "images/s",
        "dataset": "cifar10",
        "dataset_samples": 50_000,
        "image_size": 32,
        "references": references,
    }
    return Entry(**(settings | changes))


def _params(value: float, source: str = KUANGLIU, tolerance: float = 0.001) -> Reference:
    return Reference(quantity="params", value=value, source=source, tolerance=tolerance)


def _flops(value: float, source: str, tolerance: float = 0.01) -> Reference:
    return Reference(quantity="forward_flops", value=value, source=source, tolerance=tolerance)


SWEEP_PARAMS = {
    (2, 16): 280218,
    (2, 32): 591274,
    (2, 64): 1310154,
    (2, 128): 3134986,
    (3, 16): 204570,
    (3, 32): 550570,
    (3, 64): 1671114,
    (3, 128): 5626378,
    (4, 16): 360474,
    (4, 32): 1304746,
    (4, 64): 4948938,
    (4, 128): 19259914,
    (5, 16): 1212954,
    (5, 32): 4779178,
    (5, 64): 18975690,
    (5, 128): 75624970,
}
"""(depth, base filters): parameters, as the sweep states them."""

ENTRIES: dict[str, Entry] = {
    "resnet18-cifar": _entry(
        lambda: CifarResNet((2, 2, 2, 2), bottleneck=False),
        _params(11_173_962),
        _flops(2 * 0.56e9, "0.56 GMAC, commonly published count of the 32x32 ResNet-18"),
    ),
    "resnet50-cifar": _entry(
        lambda: CifarResNet((3, 4, 6, 3), bottleneck=True),
        _params(23_520_842),
        _flops(2 * 1.30e9, "1.30 GMAC, commonly published count of the 32x32 ResNet-50"),
    ),
    "shufflenet_v2-cifar": _entry(
        CifarShuffleNet,
        _params(1.3e6, "weiaicunzai/pytorch-cifar100 README, 1.3M", 0.05),
        optimizer="adadelta",
        dataset="cifar100",
    ),
    "mobilenetv2-cifar": _entry(lambda: CifarMobile(MOBILENET_V2, 32, 1280, gate=False), _params(2_296_922)),
    "efficientnet-b0-cifar": _entry(
        lambda: CifarMobile(EFFICIENTNET_B0, 32, 320, gate=True), _params(3_599_686)
    ),
    "vgg-cifar": _entry(CifarVGG, _params(20_040_522)),
    "resnet15-cifar(t2t)": _entry(lambda: ThinResNet(2, (32, 64, 128))),
    "resnet32-cifar(t2t)": _entry(lambda: ThinResNet(5, (32, 64, 128))),
    "shakeshake-small(t2t)": _entry(lambda: ShakeShake(32)),
    "shakeshake-big(t2t)": _entry(
        lambda: ShakeShake(96),
        _params(26.2e6, "Gastaldi 2017, 26 2x96d: 26.2M", 0.01),
    ),
    **{
        f"small-cnn-cifar-d{depth}-f{filters}": _entry(
            lambda depth=depth, filters=filters: SmallCNN(depth, filters),
            _params(float(count), "a100-cnn-sweep, the sweep's own parameter count"),
            optimizer="adam",
            aliases=("small-cnn-cifar",) if (depth, filters) == (3, 32) else (),
        )
        for (depth, filters), count in SWEEP_PARAMS.items()
    },
}
