"""One-stage detectors: YOLOv3, the SSDs, RetinaNet, EfficientDet.

Matching of boxes to anchors belongs to the step where the reference code does it on the device; where
the data loader does it, targets come in matched.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from . import Entry, Reference
from ._blocks import conv_bn, image, index, on_meta, real
from ._pyramid import (
    EvalNorm,
    FrozenNorm,
    FusedFrozenNorm,
    PyramidResNet,
    focal_loss,
    fused_focal_loss,
    pairwise_iou,
)


def _dark(inp: int, out: int, kernel: int = 3, stride: int = 1) -> nn.Sequential:
    return conv_bn(inp, out, kernel, stride, act=nn.LeakyReLU(0.1))


class DarkUnit(nn.Module):
    """1x1 and 3x3 convolution with a shortcut."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.body = nn.Sequential(_dark(width, width // 2, 1), _dark(width // 2, width))

    def forward(self, x: Tensor) -> Tensor:
        """Residual sum."""
        return x + self.body(x)


def _five(inp: int, width: int) -> nn.Sequential:
    kernels = (1, 3, 1, 3, 1)
    widths = [inp, width, 2 * width, width, 2 * width, width]
    return nn.Sequential(*(_dark(widths[i], widths[i + 1], k) for i, k in enumerate(kernels)))


class YOLOv3(nn.Module):
    """Darknet-53 with three prediction scales (Redmon and Farhadi 2018), loss with GIoU."""

    def __init__(self, classes: int = 20) -> None:
        super().__init__()
        self.fields = 5 + classes
        stages: list[nn.Module] = []
        inp = 32
        for width, repeat in ((64, 1), (128, 2), (256, 8), (512, 8), (1024, 4)):
            stages.append(nn.Sequential(_dark(inp, width, 3, 2), *(DarkUnit(width) for _ in range(repeat))))
            inp = width
        self.stem = _dark(3, 32)
        self.stages = nn.ModuleList(stages)
        self.fives = nn.ModuleList((_five(1024, 512), _five(768, 256), _five(384, 128)))
        self.ups = nn.ModuleList((_dark(512, 256, 1), _dark(256, 128, 1)))
        self.heads = nn.ModuleList(
            nn.Sequential(_dark(width, 2 * width), nn.Conv2d(2 * width, 3 * self.fields, 1))
            for width in (512, 256, 128)
        )

    def loss(self, raw: Tensor, label: Tensor, boxes: Tensor) -> Tensor:
        """GIoU, confidence and class terms of one scale; 150 box slots per image decide what is ignored."""
        batch, _, side, _ = raw.shape
        p = raw.view(batch, 3, self.fields, side, side).permute(0, 3, 4, 1, 2)
        centre = torch.sigmoid(p[..., :2]) * 32
        box = torch.cat((centre, torch.exp(p[..., 2:4]) * 32), -1)
        decoded = torch.cat((box, torch.sigmoid(p[..., 4:])), -1)
        corner = torch.cat(
            (decoded[..., :2] - decoded[..., 2:4] / 2, decoded[..., :2] + decoded[..., 2:4] / 2), -1
        )
        truth = torch.cat((label[..., :2] - label[..., 2:4] / 2, label[..., :2] + label[..., 2:4] / 2), -1)
        overlap = (
            torch.min(corner[..., 2:], truth[..., 2:]) - torch.max(corner[..., :2], truth[..., :2])
        ).clamp(0)
        hull = torch.max(corner[..., 2:], truth[..., 2:]) - torch.min(corner[..., :2], truth[..., :2])
        shared = overlap[..., 0] * overlap[..., 1]
        union = decoded[..., 2] * decoded[..., 3] + label[..., 2] * label[..., 3] - shared
        enclosing = hull[..., 0] * hull[..., 1]
        giou = shared / union - (enclosing - union) / enclosing
        ious = pairwise_iou(corner.flatten(1, 3), boxes)
        ignored = (ious.max(-1)[0].view_as(giou) < 0.5).float()
        mask = label[..., 4]
        object_term = F.binary_cross_entropy_with_logits(p[..., 4], mask, reduction="none")
        object_term = object_term * torch.pow(torch.abs(mask - torch.sigmoid(p[..., 4])), 2)
        class_term = F.binary_cross_entropy_with_logits(p[..., 5:], label[..., 6:], reduction="none")
        total = mask * (1 - giou) + (mask + (1 - mask) * ignored) * object_term
        return total.sum() + (mask.unsqueeze(-1) * class_term).sum()

    def forward(self, images: Tensor, *targets: Tensor) -> Tensor:
        """Sum of the three scales' losses; targets are three label grids and three box lists."""
        x, maps = self.stem(images), []
        for stage in self.stages:
            x = stage(x)
            maps.append(x)
        features: list[Tensor] = []
        x = self.fives[0](maps[4])
        features.append(x)
        for up, five, lateral in zip(self.ups, list(self.fives)[1:], (maps[3], maps[2]), strict=True):
            x = five(torch.cat((F.interpolate(up(x), scale_factor=2.0), lateral), 1))
            features.append(x)
        losses = [
            self.loss(head(feature), label, boxes)
            for head, feature, label, boxes in zip(
                self.heads, features, targets[:3], targets[3:], strict=True
            )
        ]
        return losses[0] + losses[1] + losses[2]


def _yolo_inputs(batch: int) -> tuple[Tensor, ...]:
    sides = (14, 28, 56)
    labels = [real(batch, side, side, 3, 26) for side in sides]
    return (image(batch, 3, 448, 448), *labels, *(real(batch, 150, 4) for _ in sides))


class SSD(nn.Module):
    """Single shot detector (Liu et al. 2016) on a truncated ResNet: 8732 boxes at 300x300."""

    def __init__(
        self, depth: int, extra: tuple[tuple[int, int, int, int], ...], *, classes: int = 81
    ) -> None:
        super().__init__()
        self.backbone = PyramidResNet.truncated(depth)
        width = self.backbone.widths[-1]
        layers: list[nn.Module] = []
        norm = depth == 50
        for out, mid, stride, pad in extra:
            first = (
                [nn.Conv2d(width, mid, 1, bias=not norm), nn.BatchNorm2d(mid)]
                if norm
                else [nn.Conv2d(width, mid, 1)]
            )
            second: list[nn.Module] = [nn.Conv2d(mid, out, 3, stride, pad, bias=not norm)]
            if norm:
                second.append(nn.BatchNorm2d(out))
            layers.append(nn.Sequential(*first, nn.ReLU(), *second, nn.ReLU()))
            width = out
        self.extra = nn.ModuleList(layers)
        widths = [self.backbone.widths[-1], *(out for out, *_ in extra)]
        boxes = (4, 6, 6, 6, 4, 4)
        self.classes = classes
        self.locate = nn.ModuleList(
            nn.Conv2d(w, b * 4, 3, padding=1) for w, b in zip(widths, boxes, strict=True)
        )
        self.classify = nn.ModuleList(
            nn.Conv2d(w, b * classes, 3, padding=1) for w, b in zip(widths, boxes, strict=True)
        )

    def forward(self, images: Tensor, boxes: Tensor, labels: Tensor) -> Tensor:
        """Smooth L1 of the boxes and cross entropy with hard negative mining."""
        maps = [self.backbone(images)[-1]]
        for layer in self.extra:
            maps.append(layer(maps[-1]))
        where = torch.cat(
            [head(x).flatten(1).view(x.shape[0], 4, -1) for head, x in zip(self.locate, maps, strict=True)], 2
        )
        what = torch.cat(
            [
                head(x).flatten(1).view(x.shape[0], self.classes, -1)
                for head, x in zip(self.classify, maps, strict=True)
            ],
            2,
        )
        positive = (labels > 0).float()
        located = (F.smooth_l1_loss(where, boxes, reduction="none").sum(1) * positive).sum(1)
        confidence = F.cross_entropy(what, labels, reduction="none")
        _, order = (confidence * (1 - positive)).sort(1, descending=True)
        _, rank = order.sort(1)
        negative = (rank < 3 * positive.sum(1, keepdim=True)).float()
        return (located + (confidence * (positive + negative)).sum(1)).mean()


def _ssd_inputs(batch: int) -> tuple[Tensor, ...]:
    return image(batch, 3, 300, 300), real(batch, 4, 8732), index(batch, 8732)


class DenseHead(nn.Module):
    """Four 3x3 convolutions and a prediction, shared by all levels."""

    def __init__(
        self, out: int, *, width: int = 256, depth: int = 4, norms: int = 0, separable: bool = False
    ) -> None:
        super().__init__()

        def conv(inp: int, outp: int) -> nn.Module:
            if not separable:
                return nn.Conv2d(inp, outp, 3, padding=1)
            spatial = nn.Conv2d(inp, inp, 3, padding=1, groups=inp, bias=False)
            return nn.Sequential(spatial, nn.Conv2d(inp, outp, 1))

        self.convs = nn.ModuleList(conv(width, width) for _ in range(depth))
        self.norms = nn.ModuleList(
            nn.ModuleList(nn.BatchNorm2d(width) for _ in range(depth)) for _ in range(norms)
        )
        self.predict = conv(width, out)
        self.separable = separable

    def forward(self, maps: list[Tensor], fields: int) -> Tensor:
        """(batch, anchors, fields) over all levels."""
        outs = []
        for level, source in enumerate(maps):
            x = source
            for layer, conv in enumerate(self.convs):
                x = conv(x)
                if self.norms:
                    x = self.norms[level][layer](x)
                x = F.silu(x) if self.separable else F.relu(x)
            x = self.predict(x)
            outs.append(x.permute(0, 2, 3, 1).reshape(x.shape[0], -1, fields))
        return torch.cat(outs, 1)


class RetinaNet(nn.Module):
    """Feature pyramid P3 to P7, nine anchors per cell, focal loss (Lin et al. 2017)."""

    def __init__(self, backbone: PyramidResNet, classes: int, *, anchors: int = 9, top: int = 2048) -> None:
        super().__init__()
        self.backbone = backbone
        self.lateral = nn.ModuleList(nn.Conv2d(w, 256, 1) for w in backbone.widths[1:])
        self.smooth = nn.ModuleList(nn.Conv2d(256, 256, 3, padding=1) for _ in range(3))
        self.p6 = nn.Conv2d(top, 256, 3, 2, 1)
        self.p7 = nn.Conv2d(256, 256, 3, 2, 1)
        self.classify = DenseHead(anchors * classes)
        self.locate = DenseHead(anchors * 4)
        self.classes = classes

    def predict(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Class scores and box offsets of every anchor."""
        sources = self.backbone(images)[1:]
        merged = [lateral(x) for lateral, x in zip(self.lateral, sources, strict=True)]
        for level in (1, 0):
            merged[level] = merged[level] + F.interpolate(merged[level + 1], size=merged[level].shape[-2:])
        maps = [smooth(x) for smooth, x in zip(self.smooth, merged, strict=True)]
        p6 = self.p6(sources[-1] if self.p6.in_channels > 256 else maps[-1])
        maps += [p6, self.p7(F.relu(p6))]
        return self.classify(maps, self.classes), self.locate(maps, 4)

    def forward(self, images: Tensor, boxes: Tensor, labels: Tensor) -> Tensor:
        """Focal and box loss; `boxes` are up to 20 ground-truth boxes per image."""
        scores, deltas = self.predict(images)
        anchors = deltas.detach()
        quality, matched = pairwise_iou(anchors, boxes).max(2)
        target_boxes = boxes.gather(1, matched.unsqueeze(-1).expand(-1, -1, 4))
        target_labels = labels.gather(1, matched)
        one_hot = torch.zeros_like(scores).scatter(2, target_labels.unsqueeze(-1), 1.0)
        foreground = (quality > 0.5).float()
        located = F.l1_loss(deltas, target_boxes - anchors, reduction="none").sum(-1)
        return focal_loss(scores, one_hot) + (located * foreground).sum()


class FusedRetinaNet(RetinaNet):
    """The same as MLPerf submissions run it: anchors matched by the loader, the focal loss one kernel."""

    def forward(self, images: Tensor, boxes: Tensor) -> Tensor:
        """Focal and box loss; `boxes` are the targets of every anchor."""
        scores, deltas = self.predict(images)
        return fused_focal_loss(scores) + F.l1_loss(deltas, boxes)


def retina_inputs(height: int, width: int) -> Callable[[int], tuple[Tensor, ...]]:
    """Images padded to height x width and 20 boxes each."""
    return lambda batch: (image(batch, 3, height, width), real(batch, 20, 4), index(batch, 20))


class BiFusion(nn.Module):
    """One BiFPN layer: five levels, top-down and bottom-up, fast weights."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weights = nn.ParameterList(
            [nn.Parameter(torch.empty(2)) for _ in range(5)]
            + [nn.Parameter(torch.empty(3)) for _ in range(3)]
        )
        self.convs = nn.ModuleList(
            nn.Sequential(
                nn.Conv2d(width, width, 3, padding=1, groups=width, bias=False),
                nn.Conv2d(width, width, 1),
                nn.BatchNorm2d(width),
            )
            for _ in range(8)
        )

    def mix(self, node: int, *parts: Tensor) -> Tensor:
        """Weighted sum, activation, separable convolution."""
        weight = F.relu(self.weights[node])
        weight = weight / (weight.sum() + 1e-4)
        total = torch.stack([part * weight[i] for i, part in enumerate(parts)], -1).sum(-1)
        return self.convs[node](F.silu(total))

    def forward(self, maps: list[Tensor]) -> list[Tensor]:
        """Five fused maps."""
        p3, p4, p5, p6, p7 = maps

        def up(x: Tensor) -> Tensor:
            return F.interpolate(x, scale_factor=2.0)

        def down(x: Tensor) -> Tensor:
            return F.max_pool2d(x, 3, 2, 1)

        t6 = self.mix(0, p6, up(p7))
        t5 = self.mix(1, p5, up(t6))
        t4 = self.mix(2, p4, up(t5))
        o3 = self.mix(3, p3, up(t4))
        o4 = self.mix(5, p4, t4, down(o3))
        o5 = self.mix(6, p5, t5, down(o4))
        o6 = self.mix(7, p6, t6, down(o5))
        o7 = self.mix(4, p7, down(o6))
        return [o3, o4, o5, o6, o7]


class EfficientDet(nn.Module):
    """EfficientDet-D0 (Tan et al. 2020): EfficientNet-B0, three BiFPN layers of 64, 512x512."""

    def __init__(self, classes: int = 90) -> None:
        super().__init__()
        from precision_time.capture.timm_models import import_timm

        self.backbone = import_timm().create_model(
            "efficientnet_b0", features_only=True, out_indices=(2, 3, 4)
        )
        width = 64
        self.inputs = nn.ModuleList(
            nn.Sequential(nn.Conv2d(w, width, 1), nn.BatchNorm2d(width))
            for w in (40, 112, 320, 320, 112, 320)
        )
        self.fusions = nn.ModuleList(BiFusion(width) for _ in range(3))
        self.classify = DenseHead(9 * classes, width=width, depth=3, norms=5, separable=True)
        self.locate = DenseHead(36, width=width, depth=3, norms=5, separable=True)
        self.classes = classes

    def forward(self, images: Tensor, boxes: Tensor, labels: Tensor) -> Tensor:
        """Focal and Huber loss on anchors matched by the loader."""
        c3, c4, c5 = self.backbone(images)
        p6 = F.max_pool2d(self.inputs[3](c5), 3, 2, 1)
        maps = [self.inputs[0](c3), self.inputs[1](c4), self.inputs[2](c5), p6, F.max_pool2d(p6, 3, 2, 1)]
        for fusion in self.fusions:
            maps = fusion(maps)
        scores = self.classify(maps, self.classes)
        deltas = self.locate(maps, 4)
        one_hot = torch.zeros_like(scores).scatter(2, labels.unsqueeze(-1), 1.0)
        return focal_loss(scores, one_hot) + F.huber_loss(deltas, boxes)


SSD_EXTRA_34 = ((512, 256, 2, 1), (512, 256, 2, 1), (256, 128, 2, 1), (256, 128, 1, 0), (256, 128, 1, 0))
SSD_EXTRA_50 = ((512, 256, 2, 1), (512, 256, 2, 1), (256, 128, 2, 1), (256, 128, 1, 0), (256, 128, 1, 0))
COCO: dict[str, Any] = {"dataset": "coco2017", "dataset_samples": 117_266}


def entry(factory: Callable[[], nn.Module], inputs: Any, *references: Reference, **changes: Any) -> Entry:
    """A detector's entry: images, momentum SGD, COCO."""
    settings: dict[str, Any] = {
        "build": on_meta(factory),
        "inputs": inputs,
        "family": "detection",
        "task": "detection",
        "optimizer": "momentum-sgd",
        "sample_unit": "image",
        "throughput_unit": "images/s",
        "references": references,
    }
    return Entry(**(settings | COCO | changes))


def _reference(quantity: str, value: float, source: str, tolerance: float = 0.01) -> Reference:
    return Reference(quantity=quantity, value=value, source=source, tolerance=tolerance)


def _retina(
    depth: int,
    groups: tuple[int, int] = (1, 64),
    *references: Reference,
    norm: type[nn.Module] = EvalNorm,
    size: tuple[int, int] = (800, 1216),
    stride_first: bool = False,
) -> Entry:
    def build() -> nn.Module:
        return RetinaNet(
            PyramidResNet(depth, groups=groups, frozen=2, norm=norm, stride_first=stride_first), 80
        )

    return entry(build, retina_inputs(*size), *references, image_size=800)


CAFFE: dict[str, Any] = {"norm": FrozenNorm, "stride_first": True}
DETECTRON2: dict[str, Any] = CAFFE | {"size": (736, 1120)}
"""Trained at a height drawn from 640 to 800."""


ENTRIES: dict[str, Entry] = {
    "yolov3-darknet53": entry(
        YOLOv3,
        _yolo_inputs,
        _reference("params", 61.6e6, "YOLOv3 with 20 classes, 61.6M (61.9M with 80)", 0.005),
        dataset="pascal-voc",
        dataset_samples=16_551,
        image_size=448,
    ),
    "ssd300-resnet50": entry(lambda: SSD(50, SSD_EXTRA_50), _ssd_inputs, image_size=300),
    "ssd300-resnet34": entry(lambda: SSD(34, SSD_EXTRA_34), _ssd_inputs, image_size=300),
    "ssd320-resnet50-fpn": entry(
        lambda: RetinaNet(PyramidResNet(50), 90, anchors=6, top=256), retina_inputs(320, 320), image_size=320
    ),
    "ssd-resnext50-retinanet": entry(
        lambda: FusedRetinaNet(
            PyramidResNet(50, groups=(32, 4), frozen=2, norm=FusedFrozenNorm), 264, top=256
        ),
        lambda batch: (image(batch, 3, 800, 800), real(batch, 120_087, 4)),
        optimizer="adam",
        dataset="openimages-mlperf",
        dataset_samples=1_170_301,
        image_size=800,
    ),
    "efficientdet_d0": entry(
        EfficientDet,
        lambda batch: (image(batch, 3, 512, 512), real(batch, 49_104, 4), index(batch, 49_104)),
        _reference("params", 3.9e6, "Tan et al. 2020, table 2: 3.9M", 0.02),
        _reference("forward_flops", 2 * 2.5e9, "Tan et al. 2020, table 2: 2.5B multiply-adds", 0.05),
        image_size=512,
    ),
    "retinanet-r50": _retina(50, **DETECTRON2),
    "retinanet-r101": _retina(101, **DETECTRON2),
    "retinanet-r50-fpn": _retina(
        50,
        (1, 64),
        _reference("params", 37.74e6, "MMDetection RetinaNet R-50-FPN, 37.74M", 0.01),
        _reference(
            "forward_flops",
            2 * 239.32e9 * (800 * 1216) / (1280 * 800),
            "MMDetection: 239.32 GMAC at 1280x800",
            0.06,
        ),
    ),
    "retinanet-r101-fpn": _retina(101),
    "retinanet-r50-fpn-caffe": _retina(50, **CAFFE),
    "retinanet-r101-fpn-caffe": _retina(101, **CAFFE),
    "retinanet-x101-32x4d-fpn": _retina(101, (32, 4)),
    "retinanet-x101-64x4d-fpn": _retina(101, (64, 4)),
    "retinanet-x101-32x8d-fpn": _retina(101, (32, 8)),
}
