"""ResNets that give all their stages, and what dense detectors share."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

DEPTHS = {34: (3, 4, 6, 3), 50: (3, 4, 6, 3), 101: (3, 4, 23, 3)}


class FrozenNorm(nn.Module):
    """Batch norm with fixed statistics and weights: one scale and one shift per channel."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.register_buffer("scale", torch.empty(1, channels, 1, 1))
        self.register_buffer("shift", torch.empty(1, channels, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        """Scaled and shifted."""
        return x * self.scale + self.shift


class FusedFrozenNorm(FrozenNorm):
    """The same in one kernel."""

    def forward(self, x: Tensor) -> Tensor:
        """Scaled and shifted."""
        return torch.addcmul(self.shift, x, self.scale)


class EvalNorm(nn.BatchNorm2d):
    """Batch norm that keeps its statistics but trains its weights."""

    def forward(self, x: Tensor) -> Tensor:
        """One normalisation kernel with stored statistics."""
        return F.batch_norm(x, self.running_mean, self.running_var, self.weight, self.bias, False)


class GroupNorm32(nn.GroupNorm):
    """Group norm with 32 groups."""

    def __init__(self, channels: int) -> None:
        super().__init__(32, channels)


class DeformableConv(nn.Module):
    """3x3 deformable convolution: offsets, gathered columns, one product."""

    def __init__(self, width: int, stride: int) -> None:
        super().__init__()
        self.offset = nn.Conv2d(width, 18, 3, stride, 1)
        self.weight = nn.Parameter(torch.empty(width, width * 9))
        self.stride = stride

    def forward(self, x: Tensor) -> Tensor:
        """The columns are gathered with the offsets; here they are unfolded, which moves as much."""
        offset = self.offset(x)
        columns = F.unfold(x, 3, padding=1, stride=self.stride)
        shifted = columns + offset.flatten(2).mean(1, keepdim=True)
        return (self.weight @ shifted).view(x.shape[0], -1, *offset.shape[-2:])


class StageUnit(nn.Module):
    """Residual unit of two or three convolutions, optionally grouped or dilated."""

    def __init__(
        self,
        inp: int,
        width: int,
        out: int,
        stride: int,
        *,
        groups: int,
        basic: bool,
        norm: type[nn.Module],
        dilation: int = 1,
        stride_first: bool = False,
        deformable: bool = False,
    ) -> None:
        super().__init__()

        def conv(
            i: int, o: int, kernel: int, step: int = 1, grouped: int = 1, spread: int = 1
        ) -> list[nn.Module]:
            pad = spread * (kernel // 2)
            return [nn.Conv2d(i, o, kernel, step, pad, spread, grouped, bias=False), norm(o)]

        if basic:
            layers = [*conv(inp, out, 3, stride), nn.ReLU(), *conv(out, out, 3)]
        else:
            early, late = (stride, 1) if stride_first else (1, stride)
            if deformable:
                middle: list[nn.Module] = [DeformableConv(width, late), norm(width)]
            else:
                middle = conv(width, width, 3, late, groups, dilation)
            layers = [*conv(inp, width, 1, early), nn.ReLU(), *middle, nn.ReLU(), *conv(width, out, 1)]
        self.body = nn.Sequential(*layers)
        self.shortcut = (
            nn.Sequential(*conv(inp, out, 1, stride)) if stride != 1 or inp != out else nn.Identity()
        )

    def forward(self, x: Tensor) -> Tensor:
        """Residual sum."""
        return F.relu(self.body(x) + self.shortcut(x))


class PyramidResNet(nn.Module):
    """ResNet or ResNeXt that returns its stages C2 to C5; the first `frozen` of stem and stages fixed."""

    def __init__(
        self,
        depth: int,
        *,
        groups: tuple[int, int] = (1, 64),
        frozen: int = 0,
        stages: int = 4,
        last_stride: int = 2,
        norm: type[nn.Module] | None = None,
        stride_first: bool = False,
        deformable: bool = False,
    ) -> None:
        super().__init__()
        basic = depth == 34
        chosen = norm or (FrozenNorm if frozen else nn.BatchNorm2d)
        self.stem = nn.Sequential(
            nn.Conv2d(3, 64, 7, 2, 3, bias=False), chosen(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1)
        )
        count, base = groups
        inp = 64
        built: list[nn.Module] = []
        self.widths: list[int] = []
        for stage in range(stages):
            out = (64 if basic else 256) * 2**stage
            width = count * base * 2**stage
            units: list[nn.Module] = []
            for unit in range(DEPTHS[depth][stage]):
                stride = 2 if unit == 0 and stage > 0 else 1
                dilated = stage == 3 and last_stride == 1
                units.append(
                    StageUnit(
                        inp,
                        width,
                        out,
                        last_stride if unit == 0 and stage == 3 else stride,
                        groups=count,
                        basic=basic,
                        norm=chosen,
                        dilation=2 if dilated else 1,
                        stride_first=stride_first,
                        deformable=deformable and stage > 0,
                    )
                )
                inp = out
            built.append(nn.Sequential(*units))
            self.widths.append(out)
        self.stages = nn.ModuleList(built)
        for part in [self.stem, *built][:frozen]:
            part.requires_grad_(False)

    @classmethod
    def truncated(cls, depth: int) -> PyramidResNet:
        """Stem and three stages, the third without stride: 38x38 at 300x300, as the SSDs use it."""
        net = cls(depth, stages=3)
        first = net.stages[2][0]
        assert isinstance(first, StageUnit)
        for module in first.modules():
            if isinstance(module, nn.Conv2d) and module.stride == (2, 2):
                module.stride = (1, 1)
        return net

    def forward(self, x: Tensor) -> list[Tensor]:
        """Outputs of all stages."""
        x = self.stem(x)
        outputs = []
        for stage in self.stages:
            x = stage(x)
            outputs.append(x)
        return outputs


class Pyramid(nn.Module):
    """Feature pyramid network over C2 to C5, 256 wide, with a pooled P6."""

    def __init__(self, widths: list[int], *, norm: bool = False) -> None:
        super().__init__()

        def conv(inp: int, kernel: int) -> nn.Module:
            if norm:
                return nn.Sequential(
                    nn.Conv2d(inp, 256, kernel, padding=kernel // 2, bias=False), nn.GroupNorm(32, 256)
                )
            return nn.Conv2d(inp, 256, kernel, padding=kernel // 2)

        self.lateral = nn.ModuleList(conv(width, 1) for width in widths)
        self.smooth = nn.ModuleList(conv(256, 3) for _ in widths)

    def forward(self, maps: list[Tensor]) -> list[Tensor]:
        """P2 to P6."""
        merged = [lateral(x) for lateral, x in zip(self.lateral, maps, strict=True)]
        for level in reversed(range(len(merged) - 1)):
            merged[level] = merged[level] + F.interpolate(merged[level + 1], size=merged[level].shape[-2:])
        out = [smooth(x) for smooth, x in zip(self.smooth, merged, strict=True)]
        return [*out, F.max_pool2d(out[-1], 1, 2)]


def pairwise_iou(left: Tensor, right: Tensor) -> Tensor:
    """Overlap of every box of `left` (batch, n, 4) with every box of `right` (batch, m, 4)."""
    top = torch.max(left[:, :, None, :2], right[:, None, :, :2])
    bottom = torch.min(left[:, :, None, 2:], right[:, None, :, 2:])
    size = (bottom - top).clamp(min=0)
    shared = size[..., 0] * size[..., 1]
    area = (left[..., 2] - left[..., 0]) * (left[..., 3] - left[..., 1])
    other = (right[..., 2] - right[..., 0]) * (right[..., 3] - right[..., 1])
    return shared / (area[:, :, None] + other[:, None] - shared)


def focal_loss(logits: Tensor, target: Tensor) -> Tensor:
    """Sigmoid focal loss, written out as eager code runs it."""
    probability = torch.sigmoid(logits)
    entropy = F.binary_cross_entropy_with_logits(logits, target, reduction="none")
    right = probability * target + (1 - probability) * (1 - target)
    weight = 0.25 * target + 0.75 * (1 - target)
    return (weight * entropy * (1 - right).pow(2)).sum()


def fused_focal_loss(logits: Tensor) -> Tensor:
    """The traffic of a fused focal loss: logits are read, their gradient is written in the same pass."""
    return F.logsigmoid(logits).sum()
