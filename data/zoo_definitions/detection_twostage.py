"""Two-stage detectors of detectron2, MMDetection, maskrcnn-benchmark and NVIDIA, in one definition.

Per image: 20 ground-truth boxes, 2000 proposals per level before suppression, 1000 after (2000 in
MMDetection), 512 sampled regions of which 128 are positive. Regions spread over the pyramid levels as
40, 30, 20 and 10 %. Region pooling is written as a sampling of the feature map at one point per bin.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from . import Entry, Reference
from ._blocks import image, index, real
from ._pyramid import EvalNorm, FrozenNorm, GroupNorm32, Pyramid, PyramidResNet, StageUnit, pairwise_iou
from .detection_onestage import entry

REGIONS = 512
POSITIVE = 128
LEVEL_SHARES = (0.4, 0.3, 0.2, 0.1)


@dataclass(frozen=True, kw_only=True, slots=True)
class Recipe:
    """What differs between the detectors."""

    depth: int = 50
    groups: tuple[int, int] = (1, 64)
    neck: str = "fpn"
    """fpn, c4 (fifth stage per region) or dc5 (dilated fifth stage)."""
    mask: bool = False
    keypoints: bool = False
    semantic: bool = False
    cascade: bool = False
    propose: bool = True
    """False: proposals come with the data (Fast R-CNN)."""
    detect: bool = True
    """False: the proposal network alone."""
    proposals: int = 1000
    classes: int = 80
    norm: type[nn.Module] = FrozenNorm
    head_norm: bool = False
    frozen: int = 2
    stride_first: bool = True
    deformable: bool = False
    timm_backbone: str = ""
    size: tuple[int, int] = (800, 1216)


class TimmStages(nn.Module):
    """A backbone of timm that returns four stages."""

    def __init__(self, name: str) -> None:
        super().__init__()
        from precision_time.capture.timm_models import import_timm

        self.net = import_timm().create_model(name, features_only=True, out_indices=(1, 2, 3, 4))
        self.widths = list(self.net.feature_info.channels())

    def forward(self, x: Tensor) -> list[Tensor]:
        """Outputs of all stages."""
        return list(self.net(x))


class ProposalNet(nn.Module):
    """One 3x3 convolution, scores and offsets per anchor on every level; matching, loss, selection."""

    def __init__(self, width: int, anchors: int, keep: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(width, width, 3, padding=1)
        self.score = nn.Conv2d(width, anchors, 1)
        self.delta = nn.Conv2d(width, anchors * 4, 1)
        self.keep = keep

    def forward(self, maps: Sequence[Tensor], boxes: Tensor) -> tuple[Tensor, Tensor]:
        """Loss and the kept proposals (batch, keep, 4)."""
        scores, deltas, picked, picked_scores = [], [], [], []
        for x in maps:
            hidden = F.relu(self.conv(x))
            score = self.score(hidden).permute(0, 2, 3, 1).flatten(1)
            delta = self.delta(hidden).permute(0, 2, 3, 1).reshape(x.shape[0], -1, 4)
            scores.append(score)
            deltas.append(delta)
            with torch.no_grad():
                best, where = score.topk(min(2000, score.shape[1]), 1)
                chosen = delta.gather(1, where.unsqueeze(-1).expand(-1, -1, 4))
                centre = chosen[..., :2] * 16 + 16
                size = torch.exp(chosen[..., 2:].clamp(max=4)) * 16
                picked.append(torch.cat((centre - size / 2, centre + size / 2), -1).clamp(0, 1333))
                picked_scores.append(best)
        score, delta = torch.cat(scores, 1), torch.cat(deltas, 1)
        with torch.no_grad():
            quality, match = pairwise_iou(delta, boxes).max(2)
            target = boxes.gather(1, match.unsqueeze(-1).expand(-1, -1, 4))
            sample = quality.topk(256, 1)[1]
            order = torch.cat(picked_scores, 1).sort(1, descending=True)[1]
            kept = torch.cat(picked, 1).gather(1, order[:, : self.keep].unsqueeze(-1).expand(-1, -1, 4))
        sampled = sample.unsqueeze(-1).expand(-1, -1, 4)
        labels = (quality.gather(1, sample) > 0.7).float()
        loss = F.binary_cross_entropy_with_logits(score.gather(1, sample), labels, reduction="sum")
        return loss + F.l1_loss(delta.gather(1, sampled), target.gather(1, sampled), reduction="sum"), kept


def pool_regions(maps: Sequence[Tensor], boxes: Tensor, side: int) -> Tensor:
    """(batch x regions, channels, side, side): one sample per bin from the level of each region."""
    shares = LEVEL_SHARES if len(maps) > 1 else (1.0,)
    counts = [round(boxes.shape[1] * share) for share in shares]
    counts[0] += boxes.shape[1] - sum(counts)
    steps = torch.linspace(0, 1, side, device=boxes.device)
    pooled = []
    for x, part in zip(maps, boxes.split(counts, 1), strict=False):
        low, size = part[..., :2], part[..., 2:] - part[..., :2]
        across = (low[..., :1] + size[..., :1] * steps)[:, :, None, :].expand(-1, -1, side, side)
        down = (low[..., 1:] + size[..., 1:] * steps)[:, :, :, None].expand(-1, -1, side, side)
        grid = torch.stack((across, down), -1).flatten(1, 2)
        sampled = F.grid_sample(x, grid, align_corners=False)
        pooled.append(sampled.unflatten(2, (part.shape[1], side)).transpose(1, 2))
    return torch.cat(pooled, 1).flatten(0, 1)


class BoxHead(nn.Module):
    """Two linear layers of 1024, or four convolutions and one; classes and box offsets."""

    def __init__(self, width: int, classes: int, *, deep: bool, agnostic: bool, norm: bool) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for _ in range(4 if deep else 0):
            layers += [nn.Conv2d(width, 256, 3, padding=1, bias=not norm), GroupNorm32(256), nn.ReLU()]
            width = 256
        self.convs = nn.Sequential(*layers)
        hidden = [nn.Linear(width * 49, 1024), nn.ReLU()]
        self.hidden = nn.Sequential(*(hidden if deep else [*hidden, nn.Linear(1024, 1024), nn.ReLU()]))
        self.predict = Predict(1024, classes, agnostic=agnostic)

    def forward(self, regions: Tensor) -> tuple[Tensor, Tensor]:
        """Class scores and offsets."""
        return self.predict(self.hidden(self.convs(regions).flatten(1)))


class Predict(nn.Module):
    """Class scores and box offsets from a vector."""

    def __init__(self, width: int, classes: int, *, agnostic: bool) -> None:
        super().__init__()
        self.classify = nn.Linear(width, classes + 1)
        self.locate = nn.Linear(width, 4 if agnostic else 4 * classes)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Both predictions."""
        return self.classify(x), self.locate(x)


class FifthStage(nn.Module):
    """The fifth ResNet stage on each region, as the C4 detectors use it."""

    def __init__(self, classes: int, *, norm: type[nn.Module], stride_first: bool) -> None:
        super().__init__()

        def unit(inp: int, stride: int) -> StageUnit:
            return StageUnit(
                inp, 512, 2048, stride, groups=1, basic=False, norm=norm, stride_first=stride_first
            )

        self.stage = nn.Sequential(unit(1024, 2), unit(2048, 1), unit(2048, 1))
        self.predict = Predict(2048, classes, agnostic=False)

    def forward(self, regions: Tensor) -> tuple[Tensor, Tensor]:
        """Class scores and offsets."""
        return self.predict(self.stage(regions).mean((2, 3)))


class MaskHead(nn.Module):
    """Four convolutions, a two-fold upsampling and one mask per class."""

    def __init__(self, width: int, classes: int, *, depth: int, norm: bool) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for _ in range(depth):
            layers.append(nn.Conv2d(width, 256, 3, padding=1, bias=not norm))
            layers += [GroupNorm32(256), nn.ReLU()] if norm else [nn.ReLU()]
            width = 256
        self.convs = nn.Sequential(*layers)
        self.up = nn.ConvTranspose2d(width, 256, 2, 2)
        self.predict = nn.Conv2d(256, classes, 1)

    def forward(self, regions: Tensor, labels: Tensor) -> Tensor:
        """Binary cross entropy of the masks of the right classes."""
        masks = self.predict(F.relu(self.up(self.convs(regions))))
        side = masks.shape[-1]
        chosen = masks.gather(1, labels.view(-1, 1, 1, 1).expand(-1, 1, side, side)).squeeze(1)
        return F.binary_cross_entropy_with_logits(chosen, torch.zeros_like(chosen))


class KeypointHead(nn.Module):
    """Eight convolutions of 512, a transposed convolution and a two-fold interpolation."""

    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for layer in range(8):
            layers += [nn.Conv2d(256 if layer == 0 else 512, 512, 3, padding=1), nn.ReLU()]
        self.convs = nn.Sequential(*layers)
        self.up = nn.ConvTranspose2d(512, 17, 4, 2, 1)

    def forward(self, regions: Tensor, labels: Tensor) -> Tensor:
        """Cross entropy over the 56x56 positions of 17 points."""
        heat = F.interpolate(self.up(self.convs(regions)), scale_factor=2.0, mode="bilinear")
        return F.cross_entropy(heat.flatten(2).flatten(0, 1), labels.view(-1, 1).expand(-1, 17).flatten())


class SemanticHead(nn.Module):
    """Semantic branch of Panoptic FPN: all levels brought to a quarter of the image, summed."""

    def __init__(self, classes: int = 54) -> None:
        super().__init__()
        branches: list[nn.Module] = []
        for level in range(4):
            layers: list[nn.Module] = []
            for step in range(max(1, level)):
                layers += [
                    nn.Conv2d(256 if step == 0 else 128, 128, 3, padding=1, bias=False),
                    GroupNorm32(128),
                    nn.ReLU(),
                ]
                if level > 0:
                    layers.append(nn.Upsample(scale_factor=2, mode="bilinear"))
            branches.append(nn.Sequential(*layers))
        self.branches = nn.ModuleList(branches)
        self.predict = nn.Conv2d(128, classes, 1)

    def forward(self, maps: Sequence[Tensor]) -> Tensor:
        """Cross entropy at full resolution."""
        parts = [branch(x) for branch, x in zip(self.branches, maps, strict=False)]
        total = parts[0] + parts[1] + parts[2] + parts[3]
        logits = F.interpolate(self.predict(total), scale_factor=4.0, mode="bilinear")
        return F.cross_entropy(logits, torch.zeros_like(logits[:, 0], dtype=torch.long))


class TwoStage(nn.Module):
    """The whole detector of a recipe."""

    def __init__(self, recipe: Recipe) -> None:
        super().__init__()
        r = self.recipe = recipe
        if r.timm_backbone:
            self.backbone: Any = TimmStages(r.timm_backbone)
        else:
            self.backbone = PyramidResNet(
                r.depth,
                groups=r.groups,
                frozen=r.frozen,
                stages=3 if r.neck == "c4" else 4,
                last_stride=1 if r.neck == "dc5" else 2,
                norm=r.norm,
                stride_first=r.stride_first,
                deformable=r.deformable,
            )
        width = 256 if r.neck == "fpn" else self.backbone.widths[-1]
        self.neck = Pyramid(self.backbone.widths, norm=r.head_norm) if r.neck == "fpn" else None
        anchors = 3 if r.neck == "fpn" else 15
        self.rpn = ProposalNet(width, anchors, r.proposals) if r.propose else None
        self.side = 14 if r.neck == "c4" else 7
        heads: list[nn.Module] = []
        for _ in range((3 if r.cascade else 1) if r.detect else 0):
            if r.neck == "c4":
                heads.append(FifthStage(r.classes, norm=r.norm, stride_first=r.stride_first))
            else:
                heads.append(
                    BoxHead(width, r.classes, deep=r.head_norm, agnostic=r.cascade, norm=r.head_norm)
                )
        self.heads = nn.ModuleList(heads)
        c4 = r.neck == "c4"
        mask_heads = (3 if r.cascade and r.proposals > 1000 else 1) if r.mask else 0
        self.masks = nn.ModuleList(
            MaskHead(2048 if c4 else width, r.classes, depth=0 if c4 else 4, norm=r.head_norm)
            for _ in range(mask_heads)
        )
        self.keypoint = KeypointHead() if r.keypoints else None
        self.semantic = SemanticHead() if r.semantic else None

    def region_loss(self, head: nn.Module, maps: Sequence[Tensor], boxes: Tensor, labels: Tensor) -> Tensor:
        """Classification and regression of 512 regions per image."""
        scores, deltas = head(pool_regions(maps, boxes, self.side))
        flat = labels.flatten()
        if deltas.shape[1] > 4:
            deltas = (
                deltas.view(flat.shape[0], -1, 4).gather(1, flat.view(-1, 1, 1).expand(-1, 1, 4)).squeeze(1)
            )
        target = boxes.flatten(0, 1)
        return F.cross_entropy(scores, flat) + F.smooth_l1_loss(deltas, target)

    def forward(self, images: Tensor, boxes: Tensor, labels: Tensor, given: Tensor) -> Tensor:
        """Sum of all losses; `given` are proposals of the dataset, used by Fast R-CNN only."""
        stages = self.backbone(images)
        maps = self.neck(stages) if self.neck is not None else [stages[-1]]
        loss = images.new_zeros(())
        proposals = given
        if self.rpn is not None:
            loss, proposals = self.rpn(maps, boxes)
        if not self.heads:
            return loss
        with torch.no_grad():
            quality, match = pairwise_iou(proposals, boxes).max(2)
            chosen = quality.topk(REGIONS, 1)[1]
            regions = proposals.gather(1, chosen.unsqueeze(-1).expand(-1, -1, 4))
            classes = labels.gather(1, match.gather(1, chosen))
        for head in self.heads:
            loss = loss + self.region_loss(head, maps, regions, classes)
        positive, names = regions[:, :POSITIVE], classes[:, :POSITIVE].flatten()
        for mask in self.masks:
            loss = loss + self.mask_loss(mask, maps, positive, names)
        if self.keypoint is not None:
            loss = loss + self.keypoint(pool_regions(maps, positive, 14), names)
        if self.semantic is not None:
            loss = loss + self.semantic(maps)
        return loss

    def mask_loss(self, mask: nn.Module, maps: Sequence[Tensor], boxes: Tensor, names: Tensor) -> Tensor:
        """Masks of the positive regions; the C4 detectors run them through the fifth stage again."""
        pooled = pool_regions(maps, boxes, 14)
        if isinstance(self.heads[0], FifthStage):
            pooled = self.heads[0].stage(pooled)
        return mask(pooled, names)


def _entry(recipe: Recipe, *references: Reference, **changes: Any) -> Entry:
    def inputs(batch: int) -> tuple[Tensor, ...]:
        shape = image(batch, 3, *recipe.size)
        return shape, real(batch, 20, 4), index(batch, 20), real(batch, 2000, 4)

    return entry(lambda: TwoStage(recipe), inputs, *references, image_size=recipe.size[0], **changes)


def _params(value: float, source: str, tolerance: float = 0.01) -> Reference:
    return Reference(quantity="params", value=value, source=source, tolerance=tolerance)


D2: dict[str, Any] = {"size": (736, 1120)}
"""detectron2 draws the height from 640 to 800."""
MM: dict[str, Any] = {"norm": EvalNorm, "stride_first": False, "proposals": 2000}
MM_CAFFE: dict[str, Any] = {"proposals": 2000}
X32X8: dict[str, Any] = {"depth": 101, "groups": (32, 8), "stride_first": False}
X32X4: dict[str, Any] = {"depth": 101, "groups": (32, 4)}
X64X4: dict[str, Any] = {"depth": 101, "groups": (64, 4)}
FAST: dict[str, Any] = {"propose": False}
RPN_ONLY: dict[str, Any] = {"detect": False}
CASCADE: dict[str, Any] = {"cascade": True}
MASK: dict[str, Any] = {"mask": True}
POSE: dict[str, Any] = {"keypoints": True, "classes": 1}
R101: dict[str, Any] = {"depth": 101}
GN: dict[str, Any] = {"norm": GroupNorm32, "head_norm": True}

RECIPES: dict[str, dict[str, Any]] = {
    "mask-rcnn-r50-fpn": MASK,
    "mask-rcnn-r-50-fpn": MASK,
    "mask-rcnn-baseline-r50-fpn": MASK | D2,
    "mask-rcnn-r101-fpn": MASK | R101,
    "mask-rcnn-r-101-fpn": MASK | R101,
    "mask-rcnn-x101-fpn": MASK | X32X8 | D2,
    "mask-rcnn-x101-32x8d-fpn": MASK | X32X8,
    "mask-rcnn-x-101-32x8d-fpn": MASK | X32X8,
    "mask-rcnn-r50-c4": MASK | {"neck": "c4"},
    "mask-rcnn-r-50-c4": MASK | {"neck": "c4"},
    "mask-rcnn-r101-c4": MASK | R101 | {"neck": "c4"} | D2,
    "mask-rcnn-r50-c4,-voc": {"neck": "c4", "classes": 20} | D2,
    "mask-rcnn-r50-dc5": MASK | {"neck": "dc5"} | D2,
    "mask-rcnn-r101-dc5": MASK | R101 | {"neck": "dc5"} | D2,
    "mask-rcnn-r50-fpn,-cityscapes": MASK | {"classes": 8, "size": (928, 1856)},
    "mask-rcnn-gn": MASK | GN | D2,
    "mask-rcnn-gn-(from-scratch)": MASK | GN | {"frozen": 0} | D2,
    "mask-rcnn-syncbn": MASK | GN | {"norm": nn.BatchNorm2d} | D2,
    "mask-rcnn-deformable-conv": MASK | {"deformable": True} | D2,
    "mask-rcnn-cascade-r-cnn": MASK | CASCADE | D2,
    "mask-rcnn-regnetx_4gf_dds_fpn": MASK | {"timm_backbone": "regnetx_040"} | D2,
    "mask-rcnn-regnety_4gf_dds_fpn": MASK | {"timm_backbone": "regnety_040"} | D2,
    "mask-rcnn-r50-fpn-caffe": MASK | MM_CAFFE,
    "mask-rcnn-r101-fpn-caffe": MASK | R101 | MM_CAFFE,
    "mask-rcnn-x101-32x4d-fpn": MASK | X32X4 | MM,
    "mask-rcnn-x101-64x4d-fpn": MASK | X64X4 | MM,
    "cascade-mask-rcnn-r50-fpn": MASK | CASCADE | MM,
    "cascade-mask-rcnn-r50-fpn-caffe": MASK | CASCADE | MM_CAFFE,
    "cascade-rcnn-r50-fpn": CASCADE | MM,
    "cascade-rcnn-r101-fpn": CASCADE | R101 | MM,
    "cascade-rcnn-r50-fpn-caffe": CASCADE | MM_CAFFE,
    "cascade-rcnn-r101-fpn-caffe": CASCADE | R101 | MM_CAFFE,
    "cascade-rcnn-x101-32x4d-fpn": CASCADE | X32X4 | MM,
    "cascade-rcnn-x101-64x4d-fpn": CASCADE | X64X4 | MM,
    "faster-rcnn-r50-fpn": {},
    "faster-rcnn-r-50-fpn": {},
    "faster-rcnn-r101-fpn": R101,
    "faster-rcnn-r-101-fpn": R101,
    "faster-rcnn-r50-c4": {"neck": "c4"},
    "faster-rcnn-r-50-c4": {"neck": "c4"},
    "faster-rcnn-r101-c4": R101 | {"neck": "c4"} | D2,
    "faster-rcnn-r50-dc5": {"neck": "dc5"} | D2,
    "faster-rcnn-r101-dc5": R101 | {"neck": "dc5"} | D2,
    "faster-rcnn-x101-fpn": X32X8 | D2,
    "faster-rcnn-x101-32x8d-fpn": X32X8,
    "faster-rcnn-x-101-32x8d-fpn": X32X8,
    "faster-rcnn-r50-fpn-caffe": MM_CAFFE,
    "faster-rcnn-r101-fpn-caffe": R101 | MM_CAFFE,
    "faster-rcnn-x101-32x4d-fpn": X32X4 | MM,
    "faster-rcnn-x101-64x4d-fpn": X64X4 | MM,
    "fast-rcnn-r50-fpn": FAST | MM,
    "fast-rcnn-r101-fpn": FAST | R101 | MM,
    "fast-rcnn-r50-fpn-caffe": FAST | MM_CAFFE,
    "fast-rcnn-r101-fpn-caffe": FAST | R101 | MM_CAFFE,
    "fast-mask-rcnn-r50-fpn": FAST | MASK | MM,
    "fast-mask-rcnn-r101-fpn": FAST | MASK | R101 | MM,
    "fast-mask-rcnn-r50-fpn-caffe": FAST | MASK | MM_CAFFE,
    "fast-mask-rcnn-r101-fpn-caffe": FAST | MASK | R101 | MM_CAFFE,
    "fast-rcnn-r50-c4-precomputed-rpn": FAST | {"neck": "c4"},
    "fast-rcnn-x101-32x8d-fpn-precomputed-rpn": FAST | X32X8,
    "fast-rcnn-x101-64x4d-fpn-precomputed-rpn": FAST | X64X4,
    "mask-rcnn-r50-c4-precomputed-rpn": FAST | MASK | {"neck": "c4"},
    "mask-rcnn-x101-32x8d-fpn-precomputed-rpn": FAST | MASK | X32X8,
    "mask-rcnn-x101-64x4d-fpn-precomputed-rpn": FAST | MASK | X64X4,
    "keypoint-rcnn-r50-fpn-precomputed-rpn": FAST | POSE,
    "keypoint-rcnn-r101-fpn-precomputed-rpn": FAST | POSE | R101,
    "keypoint-rcnn-x101-32x8d-fpn-precomputed-rpn": FAST | POSE | X32X8,
    "keypoint-rcnn-x101-64x4d-fpn-precomputed-rpn": FAST | POSE | X64X4,
    "rpn-fast-rcnn-fast-r-cnn-r50-fpn": FAST | D2,
    "rpn-fast-rcnn-rpn-r50-c4": RPN_ONLY | {"neck": "c4"} | D2,
    "rpn-fast-rcnn-rpn-r50-fpn": RPN_ONLY | D2,
    "rpn-r50-fpn": RPN_ONLY | MM,
    "rpn-r101-fpn": RPN_ONLY | R101 | MM,
    "rpn-r50-fpn-caffe": RPN_ONLY | MM_CAFFE,
    "rpn-r101-fpn-caffe": RPN_ONLY | R101 | MM_CAFFE,
    "rpn-x101-32x4d-fpn": RPN_ONLY | X32X4 | MM,
    "rpn-x101-64x4d-fpn": RPN_ONLY | X64X4 | MM,
    "rpn-r50-c4": RPN_ONLY | {"neck": "c4"},
    "rpn-x101-32x8d-fpn": RPN_ONLY | X32X8,
    "keypoint-rcnn-x101-32x8d-fpn": POSE | X32X8,
    "keypoint-rcnn-x101-64x4d-fpn": POSE | X64X4,
    "keypoint-rcnn-r50-fpn": POSE | D2,
    "keypoint-rcnn-r101-fpn": POSE | R101 | D2,
    "keypoint-rcnn-x101-fpn": POSE | X32X8 | D2,
    "keypoint-rcnn-r-50-fpn": POSE,
    "panoptic-fpn-r50-fpn": MASK | {"semantic": True} | D2,
    "panoptic-fpn-r101-fpn": MASK | R101 | {"semantic": True} | D2,
}
REFERENCES: dict[str, tuple[Reference, ...]] = {
    "cascade-rcnn-r50-fpn": (_params(69.17e6, "MMDetection Cascade R-CNN R-50-FPN, 69.17M"),),
    "cascade-mask-rcnn-r50-fpn": (_params(77.1e6, "MMDetection Cascade Mask R-CNN R-50-FPN, 77.1M"),),
    "mask-rcnn-r50-fpn": (_params(44.4e6, "torchvision maskrcnn_resnet50_fpn, 44.4M", 0.01),),
    "faster-rcnn-r50-fpn": (_params(41.8e6, "torchvision fasterrcnn_resnet50_fpn, 41.8M", 0.01),),
}

ENTRIES: dict[str, Entry] = {
    name: _entry(Recipe(**changes), *REFERENCES.get(name, ())) for name, changes in RECIPES.items()
}
