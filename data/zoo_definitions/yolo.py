"""YOLOv5, YOLOv8, YOLO11 and YOLOX: one parametric definition each, at the sizes their makers publish.

Targets come in as maps of the predictions' shape, as a static graph has them; their assignment by anchors or
by cost, a small part of the step, is left out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from . import Entry, Reference
from ._blocks import conv_bn, image, on_meta, real

_CLASSES = 80


def _conv(inp: int, out: int, kernel: int = 1, stride: int = 1) -> nn.Sequential:
    return conv_bn(inp, out, kernel, stride, act=nn.SiLU())


class Bottleneck(nn.Module):
    """Two convolutions with a shortcut where asked for."""

    def __init__(self, width: int, kernels: tuple[int, int], *, shortcut: bool) -> None:
        super().__init__()
        self.body = nn.Sequential(_conv(width, width, kernels[0]), _conv(width, width, kernels[1]))
        self.shortcut = shortcut

    def forward(self, x: Tensor) -> Tensor:
        """Same shape."""
        return x + self.body(x) if self.shortcut else self.body(x)


class C3(nn.Module):
    """Cross-stage block of YOLOv5 and YOLOX: half the width through the bottlenecks, half beside them."""

    def __init__(self, inp: int, out: int, depth: int, *, shortcut: bool = True) -> None:
        super().__init__()
        mid = out // 2
        self.through, self.beside = _conv(inp, mid), _conv(inp, mid)
        self.body = nn.Sequential(*(Bottleneck(mid, (1, 3), shortcut=shortcut) for _ in range(depth)))
        self.leave = _conv(2 * mid, out)

    def forward(self, x: Tensor) -> Tensor:
        """Output of the stage."""
        return self.leave(torch.cat((self.body(self.through(x)), self.beside(x)), 1))


class C2f(nn.Module):
    """Cross-stage block of YOLOv8: the output of every bottleneck is kept."""

    def __init__(self, inp: int, out: int, depth: int, *, shortcut: bool = True) -> None:
        super().__init__()
        mid = out // 2
        self.enter = _conv(inp, 2 * mid)
        self.body = nn.ModuleList(Bottleneck(mid, (3, 3), shortcut=shortcut) for _ in range(depth))
        self.leave = _conv((2 + depth) * mid, out)

    def forward(self, x: Tensor) -> Tensor:
        """Output of the stage."""
        kept = list(self.enter(x).chunk(2, 1))
        for block in self.body:
            kept.append(block(kept[-1]))
        return self.leave(torch.cat(kept, 1))


class PooledPyramid(nn.Module):
    """Spatial pyramid pooling: three poolings side by side or one after another."""

    def __init__(self, inp: int, out: int) -> None:
        super().__init__()
        self.enter, self.leave = _conv(inp, inp // 2), _conv(2 * inp, out)

    def forward(self, x: Tensor) -> Tensor:
        """Same size."""
        maps = [self.enter(x)]
        for _ in range(3):
            maps.append(F.max_pool2d(maps[-1], 5, 1, 2))
        return self.leave(torch.cat(maps, 1))


class Trunk(nn.Module):
    """Backbone and path aggregation of all three families: maps from stride 8 to the last."""

    def __init__(
        self, block: type[nn.Module], widths: Sequence[int], depths: Sequence[int], stem: int
    ) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, widths[0], stem, 2, (stem - 1) // 2, bias=False),
            nn.BatchNorm2d(widths[0]),
            nn.SiLU(),
        )
        stages: list[nn.Module] = []
        for inp, out, depth in zip(widths, widths[1:], depths, strict=False):
            last = out is widths[-1] and len(stages) == len(widths) - 2
            parts: list[nn.Module] = [_conv(inp, out, 3, 2), block(out, out, depth)]
            stages.append(nn.Sequential(*parts, *([PooledPyramid(out, out)] if last else [])))
        self.stages = nn.ModuleList(stages)
        used, depth = list(widths[2:]), depths[0]
        reduces = block is C3
        self.reduce, self.merge_up = nn.ModuleList(), nn.ModuleList()
        inp = used[-1]
        for width in reversed(used[:-1]):
            self.reduce.append(_conv(inp, width) if reduces else nn.Identity())
            self.merge_up.append(block((width if reduces else inp) + width, width, depth, shortcut=False))
            inp = width
        self.shrink, self.merge_down = nn.ModuleList(), nn.ModuleList()
        for low, high in zip(used, used[1:], strict=False):
            self.shrink.append(_conv(low, low, 3, 2))
            side = low if reduces else high
            self.merge_down.append(block(low + side, high, depth, shortcut=False))
        self.widths = used

    def forward(self, x: Tensor) -> list[Tensor]:
        """One map per scale, the finest first."""
        x, maps = self.stem(x), []
        for stage in self.stages:
            x = stage(x)
            maps.append(x)
        laterals = maps[1:]
        beside: list[Tensor] = []
        for reduce, merge, lateral in zip(self.reduce, self.merge_up, reversed(laterals[:-1]), strict=True):
            x = reduce(x)
            beside.append(x)
            x = merge(torch.cat((F.interpolate(x, scale_factor=2.0), lateral), 1))
        out = [x]
        for shrink, merge, side in zip(self.shrink, self.merge_down, reversed(beside), strict=True):
            x = merge(torch.cat((shrink(x), side), 1))
            out.append(x)
        return out


class YOLOv5(nn.Module):
    """One 1x1 convolution per scale for three anchors of box, objectness and classes (Jocher 2020)."""

    def __init__(self, depth: float, width: float, *, scales: int = 3) -> None:
        super().__init__()
        full = (64, 128, 256, 512, 1024) if scales == 3 else (64, 128, 256, 512, 768, 1024)
        blocks = (3, 6, 9, 3) if scales == 3 else (3, 6, 9, 3, 3)
        widths = [math.ceil(size * width / 8) * 8 for size in full]
        self.trunk = Trunk(C3, widths, [max(round(count * depth), 1) for count in blocks], 6)
        self.heads = nn.ModuleList(nn.Conv2d(size, 3 * (5 + _CLASSES), 1) for size in self.trunk.widths)

    def forward(self, images: Tensor, *targets: Tensor) -> Tensor:
        """Sum of the losses of all scales."""
        losses = []
        for head, feature, target in zip(self.heads, self.trunk(images), targets, strict=True):
            raw = head(feature).unflatten(1, (3, 5 + _CLASSES)).permute(0, 1, 3, 4, 2)
            box = torch.sigmoid(raw[..., :4])
            losses.append(((box - target[..., :4]).abs() * target[..., 4:5]).mean())
            losses.append(F.binary_cross_entropy_with_logits(raw[..., 4:], target[..., 4:]))
        return torch.stack(losses).sum()


class YOLOv8(nn.Module):
    """Separate branches for box distributions and classes, without anchors (Jocher 2023)."""

    def __init__(self, depth: float, width: float, most: int) -> None:
        super().__init__()
        widths = [math.ceil(min(size, most) * width / 8) * 8 for size in (64, 128, 256, 512, 1024)]
        self.trunk = Trunk(C2f, widths, [max(round(count * depth), 1) for count in (3, 6, 6, 3)], 3)
        boxes = max(16, self.trunk.widths[0] // 4, 64)
        classes = max(self.trunk.widths[0], min(_CLASSES, 100))
        self.boxes, self.classes = nn.ModuleList(), nn.ModuleList()
        for size in self.trunk.widths:
            for branches, mid, out in ((self.boxes, boxes, 64), (self.classes, classes, _CLASSES)):
                branches.append(
                    nn.Sequential(_conv(size, mid, 3), _conv(mid, mid, 3), nn.Conv2d(mid, out, 1))
                )

    def forward(self, images: Tensor, *targets: Tensor) -> Tensor:
        """Class and distribution losses of all scales; targets are maps of classes and four sides."""
        losses = []
        for box, kind, feature, target in zip(
            self.boxes, self.classes, self.trunk(images), targets, strict=True
        ):
            losses.append(F.binary_cross_entropy_with_logits(kind(feature), target[:, 4:]))
            sides = box(feature).unflatten(1, (4, 16)).log_softmax(2)
            losses.append((sides.mean(2) * target[:, :4]).mean())
        return torch.stack(losses).sum()


class YOLOX(nn.Module):
    """Trunk of YOLOv5 with decoupled heads (Ge et al. 2021); the stem gathers 2x2 pixels."""

    def __init__(self, depth: float, width: float) -> None:
        super().__init__()
        widths = [int(size * width) for size in (64, 128, 256, 512, 1024)]
        self.trunk = Trunk(C3, widths, [max(round(count * depth), 1) for count in (3, 9, 9, 3)], 6)
        mid = int(256 * width)
        self.stems = nn.ModuleList(_conv(size, mid) for size in self.trunk.widths)
        self.branches = nn.ModuleList(
            nn.Sequential(_conv(mid, mid, 3), _conv(mid, mid, 3)) for _ in range(2 * len(self.trunk.widths))
        )
        self.classes = nn.ModuleList(nn.Conv2d(mid, _CLASSES, 1) for _ in self.trunk.widths)
        self.boxes = nn.ModuleList(nn.Conv2d(mid, 5, 1) for _ in self.trunk.widths)

    def forward(self, images: Tensor, *targets: Tensor) -> Tensor:
        """Class, objectness and box losses of all scales."""
        losses = []
        for level, (feature, target) in enumerate(zip(self.trunk(images), targets, strict=True)):
            x = self.stems[level](feature)
            kind = self.classes[level](self.branches[2 * level](x))
            box = self.boxes[level](self.branches[2 * level + 1](x))
            losses.append(F.binary_cross_entropy_with_logits(kind, target[:, 5:]))
            losses.append(F.binary_cross_entropy_with_logits(box[:, 4:], target[:, 4:5]))
            losses.append((box[:, :4] - target[:, :4]).abs().mean())
        return torch.stack(losses).sum()


class Narrowing(nn.Module):
    """Two 3x3 convolutions through half the width, with a shortcut."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.body = nn.Sequential(_conv(width, width // 2, 3), _conv(width // 2, width, 3))

    def forward(self, x: Tensor) -> Tensor:
        """Same shape."""
        return x + self.body(x)


class C3k(nn.Module):
    """Cross-stage block of two 3x3 bottlenecks inside the blocks of YOLO11."""

    def __init__(self, width: int) -> None:
        super().__init__()
        mid = width // 2
        self.through, self.beside = _conv(width, mid), _conv(width, mid)
        self.body = nn.Sequential(*(Bottleneck(mid, (3, 3), shortcut=True) for _ in range(2)))
        self.leave = _conv(2 * mid, width)

    def forward(self, x: Tensor) -> Tensor:
        """Same shape."""
        return self.leave(torch.cat((self.body(self.through(x)), self.beside(x)), 1))


class C3k2(nn.Module):
    """Cross-stage block of YOLO11: the output of every inner block is kept."""

    def __init__(self, inp: int, out: int, depth: int, *, deep: bool, share: float = 0.5) -> None:
        super().__init__()
        mid = int(out * share)
        self.enter = _conv(inp, 2 * mid)
        self.body = nn.ModuleList(C3k(mid) if deep else Narrowing(mid) for _ in range(depth))
        self.leave = _conv((2 + depth) * mid, out)

    def forward(self, x: Tensor) -> Tensor:
        """Output of the stage."""
        kept = list(self.enter(x).chunk(2, 1))
        for block in self.body:
            kept.append(block(kept[-1]))
        return self.leave(torch.cat(kept, 1))


class PositionAttention(nn.Module):
    """Attention over all positions with keys of half the head size, and a feed-forward block."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.heads = width // 64
        self.qkv = conv_bn(width, 2 * width, 1)
        self.place = conv_bn(width, width, 3, groups=width)
        self.out = conv_bn(width, width, 1)
        self.feed = nn.Sequential(_conv(width, 2 * width), conv_bn(2 * width, width, 1))

    def forward(self, x: Tensor) -> Tensor:
        """Same shape."""
        parts = self.qkv(x).flatten(2).unflatten(1, (self.heads, -1))
        query, key, value = parts.split((32, 32, 64), 2)
        weights = (query.transpose(-2, -1) @ key * 32**-0.5).softmax(-1)
        mixed = (value @ weights.transpose(-2, -1)).reshape(x.shape)
        x = x + self.out(mixed + self.place(value.reshape(x.shape)))
        return x + self.feed(x)


class C2PSA(nn.Module):
    """Half the width through attention blocks, half beside them."""

    def __init__(self, width: int, depth: int) -> None:
        super().__init__()
        self.enter, self.leave = _conv(width, width), _conv(width, width)
        self.body = nn.Sequential(*(PositionAttention(width // 2) for _ in range(depth)))

    def forward(self, x: Tensor) -> Tensor:
        """Same shape."""
        beside, through = self.enter(x).chunk(2, 1)
        return self.leave(torch.cat((beside, self.body(through)), 1))


def _alone(width: int) -> nn.Sequential:
    return conv_bn(width, width, 3, groups=width, act=nn.SiLU())


class YOLO11(nn.Module):
    """YOLOv8 with smaller blocks, attention on the last map and depthwise class branches (Jocher 2024)."""

    def __init__(self, depth: float, width: float, most: int, *, deep: bool) -> None:
        super().__init__()
        one, two, three, four, five = (
            math.ceil(min(size, most) * width / 8) * 8 for size in (64, 128, 256, 512, 1024)
        )
        blocks = max(round(2 * depth), 1)
        self.stem = nn.Sequential(
            _conv(3, one, 3, 2), _conv(one, two, 3, 2), C3k2(two, three, blocks, deep=deep, share=0.25)
        )
        self.stages = nn.ModuleList(
            (
                nn.Sequential(_conv(three, three, 3, 2), C3k2(three, four, blocks, deep=deep, share=0.25)),
                nn.Sequential(_conv(four, four, 3, 2), C3k2(four, four, blocks, deep=True)),
                nn.Sequential(
                    _conv(four, five, 3, 2),
                    C3k2(five, five, blocks, deep=True),
                    PooledPyramid(five, five),
                    C2PSA(five, blocks),
                ),
            )
        )
        self.up = nn.ModuleList(
            (C3k2(five + four, four, blocks, deep=deep), C3k2(four + four, three, blocks, deep=deep))
        )
        self.shrink = nn.ModuleList((_conv(three, three, 3, 2), _conv(four, four, 3, 2)))
        self.down = nn.ModuleList(
            (C3k2(three + four, four, blocks, deep=deep), C3k2(four + five, five, blocks, deep=True))
        )
        boxes, classes = max(16, three // 4, 64), max(three, min(_CLASSES, 100))
        self.boxes, self.classes = nn.ModuleList(), nn.ModuleList()
        for size in (three, four, five):
            self.boxes.append(
                nn.Sequential(_conv(size, boxes, 3), _conv(boxes, boxes, 3), nn.Conv2d(boxes, 64, 1))
            )
            self.classes.append(
                nn.Sequential(
                    _alone(size),
                    _conv(size, classes),
                    _alone(classes),
                    _conv(classes, classes),
                    nn.Conv2d(classes, _CLASSES, 1),
                )
            )

    def forward(self, images: Tensor, *targets: Tensor) -> Tensor:
        """Class and distribution losses of all scales; targets are maps of classes and four sides."""
        fine = self.stages[0](self.stem(images))
        middle = self.stages[1](fine)
        coarse = self.stages[2](middle)
        joined = self.up[0](torch.cat((F.interpolate(coarse, scale_factor=2.0), middle), 1))
        first = self.up[1](torch.cat((F.interpolate(joined, scale_factor=2.0), fine), 1))
        second = self.down[0](torch.cat((self.shrink[0](first), joined), 1))
        third = self.down[1](torch.cat((self.shrink[1](second), coarse), 1))
        losses = []
        for box, kind, feature, target in zip(
            self.boxes, self.classes, (first, second, third), targets, strict=True
        ):
            losses.append(F.binary_cross_entropy_with_logits(kind(feature), target[:, 4:]))
            sides = box(feature).unflatten(1, (4, 16)).log_softmax(2)
            losses.append((sides.mean(2) * target[:, :4]).mean())
        return torch.stack(losses).sum()


def _maps(side: int, channels: int, strides: Sequence[int]) -> Callable[[int], tuple[Tensor, ...]]:
    return lambda batch: (
        image(batch, 3, side, side),
        *(real(batch, channels, side // stride, side // stride) for stride in strides),
    )


def _anchors(side: int, strides: Sequence[int]) -> Callable[[int], tuple[Tensor, ...]]:
    return lambda batch: (
        image(batch, 3, side, side),
        *(real(batch, 3, side // stride, side // stride, 5 + _CLASSES) for stride in strides),
    )


def _entry(factory: Callable[[], nn.Module], inputs: object, side: int, params: float, source: str) -> Entry:
    return Entry(
        build=on_meta(factory),
        inputs=inputs,  # type: ignore[arg-type]
        family="detection",
        task="detection",
        optimizer="momentum-sgd",
        sample_unit="image",
        throughput_unit="images/s",
        dataset="coco2017",
        dataset_samples=118_287,
        image_size=side,
        references=(Reference(quantity="params", value=params, source=source, tolerance=0.02),),
    )


_V5 = {"n": (0.33, 0.25), "s": (0.33, 0.50), "m": (0.67, 0.75), "l": (1.0, 1.0), "x": (1.33, 1.25)}
_V5_PARAMS = {"n": 1.87e6, "s": 7.2e6, "m": 21.2e6, "l": 46.5e6, "x": 86.7e6}
_V5_LARGE = {"n": 3.2e6, "s": 12.6e6, "m": 35.7e6, "l": 76.8e6, "x": 140.7e6}
_V8 = {
    "n": (0.33, 0.25, 1024, 3.2e6),
    "s": (0.33, 0.50, 1024, 11.2e6),
    "m": (0.67, 0.75, 768, 25.9e6),
    "l": (1.0, 1.0, 512, 43.7e6),
    "x": (1.0, 1.25, 512, 68.2e6),
}
_11 = {
    "n": (0.50, 0.25, 1024, False, 2.6e6),
    "s": (0.50, 0.50, 1024, False, 9.4e6),
    "m": (0.50, 1.00, 512, True, 20.1e6),
    "l": (1.00, 1.00, 512, True, 25.3e6),
    "x": (1.00, 1.50, 512, True, 56.9e6),
}
_X = {"tiny": (0.33, 0.375, 416, 5.06e6), "s": (0.33, 0.5, 640, 9.0e6), "m": (0.67, 0.75, 640, 25.3e6)}
_X["l"] = (1.0, 1.0, 640, 54.2e6)

ENTRIES: dict[str, Entry] = {
    **{
        f"yolov5{name}": _entry(
            lambda d=depth, w=width: YOLOv5(d, w),
            _anchors(640, (8, 16, 32)),
            640,
            _V5_PARAMS[name],
            "ultralytics/yolov5 README, v6.1",
        )
        for name, (depth, width) in _V5.items()
    },
    **{
        f"yolov5{name}6": _entry(
            lambda d=depth, w=width: YOLOv5(d, w, scales=4),
            _anchors(1280, (8, 16, 32, 64)),
            1280,
            _V5_LARGE[name],
            "ultralytics/yolov5 README, v6.1",
        )
        for name, (depth, width) in _V5.items()
    },
    **{
        f"yolov8{name}": _entry(
            lambda d=depth, w=width, m=most: YOLOv8(d, w, m),
            _maps(640, 4 + _CLASSES, (8, 16, 32)),
            640,
            params,
            "ultralytics YOLOv8 documentation",
        )
        for name, (depth, width, most, params) in _V8.items()
    },
    **{
        f"yolo11{name}": _entry(
            lambda d=depth, w=width, m=most, c=deep: YOLO11(d, w, m, deep=c),
            _maps(640, 4 + _CLASSES, (8, 16, 32)),
            640,
            params,
            "ultralytics YOLO11 documentation",
        )
        for name, (depth, width, most, deep, params) in _11.items()
    },
    **{
        f"yolox-{name}": _entry(
            lambda d=depth, w=width: YOLOX(d, w),
            _maps(side, 5 + _CLASSES, (8, 16, 32)),
            side,
            params,
            "Megvii-BaseDetection/YOLOX README",
        )
        for name, (depth, width, side, params) in _X.items()
    },
}
