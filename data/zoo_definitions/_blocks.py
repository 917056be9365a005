"""Layers that several definitions share, and the small helpers to build on the meta device."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F


def on_meta(factory: Callable[[], nn.Module]) -> Callable[[], nn.Module]:
    """A builder that creates the module without memory, in training mode."""

    def build() -> nn.Module:
        with torch.device("meta"):
            return factory().train()

    return build


def image(batch: int, channels: int, *size: int) -> Tensor:
    """A batch of images or volumes (batch, channels, *size)."""
    return torch.empty(batch, channels, *size, device="meta")


def real(*shape: int) -> Tensor:
    """A float tensor without memory."""
    return torch.empty(*shape, device="meta")


def index(*shape: int) -> Tensor:
    """An integer tensor without memory: class labels, token ids, neighbour lists."""
    return torch.empty(*shape, dtype=torch.long, device="meta")


def image_and_label(channels: int, *size: int) -> Callable[[int], tuple[Tensor, Tensor]]:
    """Inputs of a classifier: images and one label each."""
    return lambda batch: (image(batch, channels, *size), index(batch))


class Classifier(nn.Module):
    """A backbone that gives logits, and the cross entropy of its training."""

    def __init__(self, backbone: nn.Module, *, smoothing: float = 0.0) -> None:
        super().__init__()
        self.backbone = backbone
        self.smoothing = smoothing

    def forward(self, images: Tensor, labels: Tensor) -> Tensor:
        """Mean loss over the batch."""
        return F.cross_entropy(self.backbone(images), labels, label_smoothing=self.smoothing)


def conv_bn(
    inp: int,
    out: int,
    kernel: int = 3,
    stride: int = 1,
    *,
    groups: int = 1,
    act: nn.Module | None = None,
    eps: float = 1e-5,
) -> nn.Sequential:
    """Convolution without bias, batch norm, activation."""
    layers: list[nn.Module] = [
        nn.Conv2d(inp, out, kernel, stride, kernel // 2, groups=groups, bias=False),
        nn.BatchNorm2d(out, eps=eps),
    ]
    if act is not None:
        layers.append(act)
    return nn.Sequential(*layers)


def mlp(sizes: Sequence[int], *, last_activation: bool = True, dropout: float = 0.0) -> nn.Sequential:
    """Linear layers with ReLU between them."""
    layers: list[nn.Module] = []
    for position, (inp, out) in enumerate(zip(sizes, sizes[1:], strict=False)):
        layers.append(nn.Linear(inp, out))
        if last_activation or position < len(sizes) - 2:
            layers.append(nn.ReLU())
            if dropout:
                layers.append(nn.Dropout(dropout))
    return nn.Sequential(*layers)


class SqueezeExcite(nn.Module):
    """Channel gate of Hu et al. 2018."""

    def __init__(self, channels: int, squeezed: int, act: nn.Module | None = None) -> None:
        super().__init__()
        self.reduce = nn.Conv2d(channels, squeezed, 1)
        self.expand = nn.Conv2d(squeezed, channels, 1)
        self.act = act or nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        """Scales each channel by its gate."""
        gate = self.expand(self.act(self.reduce(F.adaptive_avg_pool2d(x, 1))))
        return x * torch.sigmoid(gate)
