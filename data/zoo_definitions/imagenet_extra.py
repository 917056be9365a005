"""ImageNet classifiers that timm lacks: torchvision's own, NVIDIA's EfficientNets and GPUNets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from . import Entry, Reference
from ._blocks import Classifier, SqueezeExcite, conv_bn, image_and_label, on_meta


class FusedOrInverted(nn.Module):
    """Inverted residual of GPUNet; fused: one dense convolution instead of expand and depthwise."""

    def __init__(
        self,
        inp: int,
        out: int,
        kernel: int,
        stride: int,
        ratio: int,
        act: type[nn.Module],
        *,
        gate: bool,
        fused: bool,
    ) -> None:
        super().__init__()
        mid = inp * ratio
        if fused:
            layers: list[nn.Module] = [conv_bn(inp, mid, kernel, stride, act=act())]
        else:
            layers = [conv_bn(inp, mid, 1, act=act())] if ratio > 1 else []
            layers.append(conv_bn(mid, mid, kernel, stride, groups=mid, act=act()))
        if gate:
            layers.append(SqueezeExcite(mid, max(1, inp // 4), act()))
        layers.append(conv_bn(mid, out, 1))
        self.body = nn.Sequential(*layers)
        self.residual = stride == 1 and inp == out

    def forward(self, x: Tensor) -> Tensor:
        """Block output."""
        return self.body(x) + x if self.residual else self.body(x)


Stage = tuple[str, int, int, int, int, int, str, bool]
"""kind, blocks, width, kernel, first stride, expansion, activation, gate."""

GPUNETS: dict[str, tuple[int, int, int, tuple[Stage, ...]]] = {
    "gpunet_0": (
        320,
        32,
        1280,
        (
            ("conv", 2, 32, 3, 1, 1, "relu", False),
            ("fused", 2, 32, 3, 2, 5, "relu", False),
            ("fused", 3, 64, 3, 2, 5, "relu", False),
            ("irb", 3, 256, 3, 2, 5, "swish", False),
            ("irb", 2, 704, 3, 2, 5, "relu", True),
        ),
    ),
    "gpunet_1": (
        288,
        24,
        1280,
        (
            ("conv", 1, 24, 3, 1, 1, "relu", False),
            ("fused", 2, 64, 3, 2, 4, "swish", False),
            ("fused", 2, 96, 3, 2, 4, "swish", False),
            ("irb", 1, 160, 3, 2, 2, "swish", True),
            ("irb", 4, 288, 3, 1, 5, "relu", False),
            ("irb", 4, 448, 3, 2, 4, "relu", True),
        ),
    ),
    "gpunet_2": (
        384,
        32,
        1280,
        (
            ("conv", 3, 32, 3, 1, 1, "relu", False),
            ("fused", 1, 32, 5, 2, 6, "swish", True),
            ("fused", 3, 112, 3, 2, 3, "swish", False),
            ("irb", 6, 144, 3, 2, 6, "swish", False),
            ("irb", 4, 160, 5, 1, 3, "relu", False),
            ("irb", 8, 224, 3, 2, 3, "swish", True),
            ("irb", 7, 832, 5, 1, 2, "relu", False),
        ),
    ),
    "gpunet_d1": (
        456,
        33,
        1984,
        (
            ("irb", 1, 33, 3, 1, 1, "swish", False),
            ("irb", 1, 44, 3, 2, 3, "swish", False),
            ("irb", 1, 44, 5, 1, 4, "swish", False),
            ("irb", 1, 44, 3, 1, 3, "swish", False),
            ("irb", 2, 67, 5, 2, 4, "swish", False),
            ("irb", 1, 67, 3, 1, 6, "swish", False),
            ("irb", 1, 67, 5, 1, 3, "swish", False),
            ("irb", 1, 134, 7, 2, 6, "swish", False),
            ("irb", 1, 134, 5, 1, 6, "swish", False),
            ("irb", 1, 134, 3, 1, 3, "swish", False),
            ("irb", 1, 134, 5, 1, 4, "swish", False),
            ("irb", 1, 190, 3, 1, 6, "swish", False),
            ("irb", 1, 190, 5, 1, 6, "swish", False),
            ("irb", 1, 190, 7, 1, 6, "swish", False),
            ("irb", 1, 190, 3, 1, 4, "swish", False),
            ("irb", 2, 268, 3, 2, 6, "swish", False),
            ("irb", 1, 268, 5, 1, 6, "swish", False),
            ("irb", 3, 268, 3, 1, 3, "swish", False),
        ),
    ),
}
"""image size, stem width, last width, stages (NVIDIA DeepLearningExamples, GPUNet batch-1 GV100 files)."""


class GPUNet(nn.Module):
    """GPUNet (Wang et al. 2022) from its stage table."""

    def __init__(self, stem: int, last: int, stages: tuple[Stage, ...], *, distilled: bool) -> None:
        super().__init__()
        layers: list[nn.Module] = [conv_bn(3, stem, 3, 2, act=nn.ReLU())]
        inp = stem
        for kind, count, out, kernel, stride, ratio, act_name, gate in stages:
            act: type[nn.Module] = nn.ReLU if act_name == "relu" else nn.SiLU
            for block in range(count):
                step = stride if block == 0 else 1
                if kind == "conv":
                    layers.append(conv_bn(inp, out, kernel, step, act=act()))
                else:
                    fused = kind == "fused"
                    layers.append(FusedOrInverted(inp, out, kernel, step, ratio, act, gate=gate, fused=fused))
                inp = out
        layers.append(conv_bn(inp, last, 1, act=nn.ReLU()))
        self.features = nn.Sequential(*layers)
        self.head = nn.Linear(last, 1000)
        self.distilled_head = nn.Linear(last, 1000) if distilled else None

    def forward(self, x: Tensor) -> Tensor:
        """Logits, with a second head where the network is distilled."""
        features = F.dropout(F.adaptive_avg_pool2d(self.features(x), 1).flatten(1), 0.2)
        if self.distilled_head is None:
            return self.head(features)
        return (self.head(features) + self.distilled_head(features)) / 2


EFFICIENT_STAGES = (
    (1, 16, 1, 3, 1),
    (6, 24, 2, 3, 2),
    (6, 40, 2, 5, 2),
    (6, 80, 3, 3, 2),
    (6, 112, 3, 5, 1),
    (6, 192, 4, 5, 2),
    (6, 320, 1, 3, 1),
)


class WideGateBlock(nn.Module):
    """EfficientNet block whose gate is a quarter of the expanded width instead of the input width."""

    def __init__(
        self, inp: int, out: int, kernel: int, stride: int, ratio: int, *, wide: bool, quantised: bool
    ) -> None:
        super().__init__()
        mid = inp * ratio
        layers: list[nn.Module] = [conv_bn(inp, mid, 1, act=nn.SiLU())] if ratio > 1 else []
        layers.append(conv_bn(mid, mid, kernel, stride, groups=mid, act=nn.SiLU()))
        layers.append(SqueezeExcite(mid, (mid if wide else inp) // 4, nn.SiLU()))
        layers.append(conv_bn(mid, out, 1))
        self.layers = nn.ModuleList(layers)
        self.residual = stride == 1 and inp == out
        self.quantised = quantised

    def forward(self, x: Tensor) -> Tensor:
        """Block output; fake quantisation rounds the input of each layer."""
        y = x
        for layer in self.layers:
            if self.quantised:
                y = torch.clamp(torch.round(y * 127.0), -128.0, 127.0) / 127.0
            y = layer(y)
        return y + x if self.residual else y


class EfficientNet(nn.Module):
    """EfficientNet B0 or B4 with a chosen gate width."""

    def __init__(self, width: float, depth: float, *, wide: bool, quantised: bool = False) -> None:
        super().__init__()

        def scaled(channels: int) -> int:
            return max(8, int(channels * width + 4) // 8 * 8)

        layers: list[nn.Module] = [conv_bn(3, scaled(32), 3, 2, act=nn.SiLU())]
        inp = scaled(32)
        for ratio, channels, repeat, kernel, stride in EFFICIENT_STAGES:
            out = scaled(channels)
            for block in range(-int(-repeat * depth // 1)):
                step = stride if block == 0 else 1
                layers.append(WideGateBlock(inp, out, kernel, step, ratio, wide=wide, quantised=quantised))
                inp = out
        layers.append(conv_bn(inp, scaled(1280), 1, act=nn.SiLU()))
        self.features = nn.Sequential(*layers)
        self.head = nn.Linear(scaled(1280), 1000)

    def forward(self, x: Tensor) -> Tensor:
        """Logits."""
        return self.head(F.dropout(F.adaptive_avg_pool2d(self.features(x), 1).flatten(1), 0.2))


def _entry(factory: Callable[[], nn.Module], size: int, *references: Reference, **changes: Any) -> Entry:
    settings: dict[str, Any] = {
        "build": on_meta(lambda: Classifier(factory())),
        "inputs": image_and_label(3, size, size),
        "family": "cnn",
        "task": "imagenet-train",
        "optimizer": "momentum-sgd",
        "sample_unit": "image",
        "throughput_unit": "images/s",
        "dataset": "imagenet",
        "dataset_samples": 1_281_167,
        "image_size": size,
        "references": references,
    }
    return Entry(**(settings | changes))


def _reference(quantity: str, value: float, source: str, tolerance: float = 0.01) -> Reference:
    return Reference(quantity=quantity, value=value, source=source, tolerance=tolerance)


def _torchvision(
    name: str, params: float, gmacs: float, *, options: dict[str, Any] | None = None, **changes: Any
) -> Entry:
    def build() -> nn.Module:
        from precision_time.capture.timm_models import import_torchvision

        import_torchvision()
        import torchvision

        return torchvision.models.get_model(name, weights=None, **(options or {}))

    references = (
        _reference("params", params, f"torchvision {name}: num_params of its weights", 1e-4),
        _reference("forward_flops", 2e9 * gmacs, f"torchvision {name}: _ops of its weights [GMAC]", 0.015),
    )
    return _entry(build, 224, *references, source_library="torchvision", **changes)


NVIDIA_EFFICIENT: dict[str, Any] = {"optimizer": "rmsprop"}

ENTRIES: dict[str, Entry] = {
    "alexnet": _torchvision("alexnet", 61_100_840, 0.714),
    "googlenet": _torchvision(
        "googlenet",
        6_624_904,
        1.498,
        options={"aux_logits": False, "init_weights": False},
        aliases=("inception_v1",),
    ),
    "squeezenet1_0": _torchvision("squeezenet1_0", 1_248_424, 0.819),
    "squeezenet1_1": _torchvision("squeezenet1_1", 1_235_496, 0.349),
    "mnasnet0_5": _torchvision("mnasnet0_5", 2_218_512, 0.104),
    "mnasnet0_75": _torchvision("mnasnet0_75", 3_170_208, 0.215),
    "mnasnet1_0": _torchvision("mnasnet1_0", 4_383_312, 0.314),
    "mnasnet1_3": _torchvision("mnasnet1_3", 6_282_256, 0.526),
    "mobilenet_v2": _torchvision("mobilenet_v2", 3_504_872, 0.301),
    "mobilenet_v3_large": _torchvision("mobilenet_v3_large", 5_483_032, 0.217, aliases=("mobilenetv3",)),
    "mobilenet_v3_small": _torchvision("mobilenet_v3_small", 2_542_856, 0.057),
    "shufflenet_v2_x0_5": _torchvision("shufflenet_v2_x0_5", 1_366_792, 0.04),
    "shufflenet_v2_x1_0": _torchvision("shufflenet_v2_x1_0", 2_278_604, 0.145, aliases=("shufflenet_v2",)),
    "shufflenet_v2_x1_5": _torchvision("shufflenet_v2_x1_5", 3_503_624, 0.296),
    "shufflenet_v2_x2_0": _torchvision("shufflenet_v2_x2_0", 7_393_996, 0.583),
    "efficientnet_widese_b0": _entry(lambda: EfficientNet(1.0, 1.0, wide=True), 224, **NVIDIA_EFFICIENT),
    "efficientnet_widese_b4": _entry(lambda: EfficientNet(1.4, 1.8, wide=True), 380, **NVIDIA_EFFICIENT),
    "efficientnet_quant_b0": _entry(
        lambda: EfficientNet(1.0, 1.0, wide=False, quantised=True),
        224,
        _reference("params", 5.29e6, "EfficientNet-B0, 5.29M; fake quantisation adds none"),
        **NVIDIA_EFFICIENT,
    ),
    "efficientnet_quant_b4": _entry(
        lambda: EfficientNet(1.4, 1.8, wide=False, quantised=True),
        380,
        _reference("params", 19.34e6, "EfficientNet-B4, 19.34M; fake quantisation adds none"),
        **NVIDIA_EFFICIENT,
    ),
    **{
        name: _entry(
            lambda name=name, stem=stem, last=last, stages=stages: GPUNet(
                stem, last, stages, distilled=name == "gpunet_d1"
            ),
            size,
            _reference("params", params, f"Wang et al. 2022, table 1: {name}", 0.01),
            optimizer="rmsprop",
        )
        for (name, (size, stem, last, stages)), params in zip(
            GPUNETS.items(), (11.9e6, 12.7e6, 25.8e6, 10.6e6), strict=True
        )
    },
}
