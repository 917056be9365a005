"""Segmentation networks of images and volumes, and the two regression networks of MLPerf HPC."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from . import Entry, Reference
from ._blocks import conv_bn, image, index, on_meta, real


def dice_and_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """Cross entropy plus soft Dice over one-hot labels."""
    probability = torch.softmax(logits, 1)
    truth = F.one_hot(labels, logits.shape[1]).movedim(-1, 1).float()
    axes = tuple(range(2, logits.dim()))
    overlap = (probability * truth).sum(axes)
    total = probability.sum(axes) + truth.sum(axes)
    return F.cross_entropy(logits, labels) + (1 - 2 * overlap / (total + 1e-5)).mean()


class ValidUNet(nn.Module):
    """The original U-Net (Ronneberger et al. 2015): unpadded convolutions, 572 in, 388 out."""

    def __init__(self, classes: int = 2) -> None:
        super().__init__()

        def pair(inp: int, out: int) -> nn.Sequential:
            return nn.Sequential(nn.Conv2d(inp, out, 3), nn.ReLU(), nn.Conv2d(out, out, 3), nn.ReLU())

        widths = (64, 128, 256, 512, 1024)
        self.down = nn.ModuleList(pair(i, o) for i, o in zip((1, *widths), widths, strict=False))
        self.up = nn.ModuleList(nn.ConvTranspose2d(2 * w, w, 2, 2) for w in (512, 256, 128, 64))
        self.merge = nn.ModuleList(pair(2 * w, w) for w in (512, 256, 128, 64))
        self.head = nn.Conv2d(64, classes, 1)

    def forward(self, x: Tensor, labels: Tensor) -> Tensor:
        """Dice plus cross entropy on the inner 388x388."""
        kept: list[Tensor] = []
        for level, block in enumerate(self.down):
            x = block(F.max_pool2d(x, 2) if level else x)
            kept.append(x)
        for up, merge, skip in zip(self.up, self.merge, reversed(kept[:-1]), strict=True):
            x = up(x)
            margin = (skip.shape[-1] - x.shape[-1]) // 2
            crop = skip[..., margin : margin + x.shape[-2], margin : margin + x.shape[-1]]
            x = merge(torch.cat((crop, x), 1))
        return dice_and_entropy(self.head(x), labels)


class TinyUNet(nn.Module):
    """NVIDIA's industrial U-Net on 512x512 grey images: 32, 32, 64, 128, bottleneck of 256."""

    def __init__(self) -> None:
        super().__init__()

        def pair(inp: int, out: int, last: int | None = None) -> list[nn.Module]:
            last = last or out
            return [
                nn.Conv2d(inp, out, 3, padding=1),
                nn.ReLU(),
                nn.Conv2d(out, last, 3, padding=1),
                nn.ReLU(),
            ]

        def lifted(inp: int, out: int, last: int) -> nn.Sequential:
            return nn.Sequential(*pair(inp, out, last), nn.ConvTranspose2d(last, out // 2, 2, 2), nn.ReLU())

        self.down = nn.ModuleList(
            nn.Sequential(*pair(i, o)) for i, o in ((1, 32), (32, 32), (32, 64), (64, 128))
        )
        self.up = nn.ModuleList(
            (lifted(128, 256, 256), lifted(256, 128, 64), lifted(128, 64, 32), lifted(64, 32, 16))
        )
        self.head = nn.Sequential(*pair(48, 32), nn.Conv2d(32, 1, 1))

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """Binary cross entropy and Dice."""
        kept: list[Tensor] = []
        for block in self.down:
            kept.append(block(F.max_pool2d(kept[-1], 2) if kept else x))
        x = F.max_pool2d(kept[-1], 2)
        for up in self.up:
            x = torch.cat((up(x), kept.pop()), 1)
        logits = self.head(x)
        probability = torch.sigmoid(logits)
        dice = 1 - 2 * (probability * mask).sum() / (probability.sum() + mask.sum() + 1e-5)
        return F.binary_cross_entropy_with_logits(logits, mask) + dice


class NormedUNet(nn.Module):
    """U-Net of nnU-Net and of MLPerf: strided or pooled levels, instance norm, leaky ReLU."""

    def __init__(
        self,
        inp: int,
        widths: tuple[int, ...],
        classes: int,
        *,
        dims: int,
        pooled: bool = False,
        supervised: int = 0,
        norm: str = "instance",
        first: int | None = None,
        slope: float = 0.01,
    ) -> None:
        super().__init__()
        conv: Any = nn.Conv3d if dims == 3 else nn.Conv2d
        transposed: Any = nn.ConvTranspose3d if dims == 3 else nn.ConvTranspose2d
        norms = {"instance": nn.InstanceNorm3d if dims == 3 else nn.InstanceNorm2d}

        def unit(i: int, o: int, stride: int = 1) -> nn.Sequential:
            layer = norms[norm](o, affine=True) if norm in norms else nn.GroupNorm(min(16, o), o)
            act: nn.Module = nn.LeakyReLU(slope) if slope else nn.ReLU()
            return nn.Sequential(conv(i, o, 3, stride, 1, bias=False), layer, act)

        start = widths[0] if first is None else first
        self.pooled, self.dims, self.supervised = pooled, dims, supervised
        self.input = nn.Sequential(unit(inp, start), unit(start, widths[0]))
        self.down = nn.ModuleList(
            nn.Sequential(
                unit(i, i if pooled and first else o, 1 if pooled else 2),
                unit(i if pooled and first else o, o),
            )
            for i, o in zip(widths, widths[1:], strict=False)
        )
        self.up = nn.ModuleList(
            transposed(i, o, 2, 2) for o, i in reversed(list(zip(widths, widths[1:], strict=False)))
        )
        self.merge = nn.ModuleList(nn.Sequential(unit(2 * w, w), unit(w, w)) for w in reversed(widths[:-1]))
        self.heads = nn.ModuleList(conv(w, classes, 1) for w in widths[: supervised + 1])

    def forward(self, x: Tensor, labels: Tensor) -> Tensor:
        """Dice plus cross entropy, also on upsampled coarser outputs where supervised deeply."""
        kept = [self.input(x)]
        for block in self.down:
            source = kept[-1]
            if self.pooled:
                source = F.max_pool3d(source, 2) if self.dims == 3 else F.max_pool2d(source, 2)
            kept.append(block(source))
        x = kept.pop()
        outputs = []
        for up, merge, skip in zip(self.up, self.merge, reversed(kept), strict=True):
            x = merge(torch.cat((up(x), skip), 1))
            outputs.append(x)
        loss = labels.new_zeros((), dtype=torch.float32)
        for level, head in enumerate(self.heads):
            logits = head(outputs[-1 - level])
            if level:
                logits = F.interpolate(logits, size=labels.shape[1:])
            loss = loss + dice_and_entropy(logits, labels) * 0.5**level
        return loss


class VNetStage(nn.Module):
    """Three 3-D convolutions with a shortcut."""

    def __init__(self, width: int) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for _ in range(3):
            layers += [nn.Conv3d(width, width, 3, padding=1), nn.BatchNorm3d(width), nn.ReLU()]
        self.body = nn.Sequential(*layers)

    def forward(self, x: Tensor) -> Tensor:
        """Residual sum."""
        return self.body(x) + x


class VNet(nn.Module):
    """V-Net (Milletari et al. 2016) as NVIDIA sizes it: 16 to 128 wide on 32x32x32 patches."""

    def __init__(self, classes: int = 3) -> None:
        super().__init__()

        def strided(kind: Any, inp: int, out: int) -> nn.Sequential:
            return nn.Sequential(kind(inp, out, 2, 2), nn.BatchNorm3d(out), nn.ReLU())

        self.input = nn.Sequential(nn.Conv3d(1, 16, 3, padding=1), nn.BatchNorm3d(16), nn.ReLU())
        self.downs = nn.ModuleList(strided(nn.Conv3d, w, 2 * w) for w in (16, 32, 64))
        self.left = nn.ModuleList(VNetStage(w) for w in (32, 64, 128))
        self.ups = nn.ModuleList(
            strided(nn.ConvTranspose3d, i, o) for i, o in ((128, 64), (128, 32), (64, 16))
        )
        self.right = nn.ModuleList(VNetStage(w) for w in (128, 64))
        self.head = nn.Conv3d(16, classes, 3, padding=1)

    def forward(self, x: Tensor, labels: Tensor) -> Tensor:
        """Dice loss with cross entropy."""
        kept = [self.input(x) + x]
        for down, stage in zip(self.downs, self.left, strict=True):
            kept.append(stage(down(kept[-1])))
        x = kept.pop()
        for up, stage in zip(self.ups, self.right, strict=False):
            x = stage(torch.cat((up(x), kept.pop()), 1))
        return dice_and_entropy(self.head(self.ups[2](x)), labels)


class UNet3Plus(nn.Module):
    """UNet 3+ (Huang et al. 2020): every decoder level sees all levels, 64 wide each."""

    def __init__(self, classes: int = 1) -> None:
        super().__init__()
        widths = (64, 128, 256, 512, 1024)

        def unit(i: int, o: int) -> nn.Sequential:
            return nn.Sequential(nn.Conv2d(i, o, 3, padding=1), nn.BatchNorm2d(o), nn.ReLU())

        self.encoder = nn.ModuleList(
            nn.Sequential(unit(i, o), unit(o, o)) for i, o in zip((3, *widths), widths, strict=False)
        )
        self.adapt = nn.ModuleList(
            nn.ModuleList(
                unit(widths[source] if source <= level or source == 4 else 320, 64) for source in range(5)
            )
            for level in range(4)
        )
        self.fuse = nn.ModuleList(unit(320, 320) for _ in range(4))
        self.head = nn.Conv2d(320, classes, 3, padding=1)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """Binary cross entropy and Dice."""
        encoded: list[Tensor] = []
        for level, block in enumerate(self.encoder):
            x = block(F.max_pool2d(x, 2) if level else x)
            encoded.append(x)
        decoded = [*encoded]
        for level in (3, 2, 1, 0):
            parts = []
            for source, adapt in enumerate(self.adapt[level]):
                part = encoded[source] if source <= level else decoded[source]
                if source < level:
                    part = F.max_pool2d(part, 2 ** (level - source))
                elif source > level:
                    part = F.interpolate(part, scale_factor=float(2 ** (source - level)), mode="bilinear")
                parts.append(adapt(part))
            decoded[level] = self.fuse[level](torch.cat(parts, 1))
        logits = self.head(decoded[0])
        probability = torch.sigmoid(logits)
        dice = 1 - 2 * (probability * mask).sum() / (probability.sum() + mask.sum())
        return F.binary_cross_entropy_with_logits(logits, mask) + dice


class XceptionUnit(nn.Module):
    """Three separable convolutions with a shortcut."""

    def __init__(self, inp: int, out: int, stride: int = 1, dilation: int = 1) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for layer in range(3):
            width = inp if layer == 0 else out
            step = stride if layer == 2 else 1
            layers += [
                nn.ReLU(),
                nn.Conv2d(width, width, 3, step, dilation, dilation, groups=width, bias=False),
                nn.Conv2d(width, out, 1, bias=False),
                nn.BatchNorm2d(out),
            ]
        self.body = nn.Sequential(*layers)
        self.shortcut = conv_bn(inp, out, 1, stride) if inp != out or stride != 1 else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        """Residual sum."""
        return self.body(x) + self.shortcut(x)


class DeepCAM(nn.Module):
    """DeepLabv3+ with an Xception encoder on 16 channels of 768x1152, three classes (MLPerf HPC)."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(conv_bn(16, 32, 3, 2, act=nn.ReLU()), conv_bn(32, 64, 3, act=nn.ReLU()))
        self.entry = nn.ModuleList(
            (XceptionUnit(64, 128, 2), XceptionUnit(128, 256, 2), XceptionUnit(256, 728, 2))
        )
        self.middle = nn.Sequential(*(XceptionUnit(728, 728) for _ in range(16)))
        self.exit = nn.Sequential(
            XceptionUnit(728, 1024),
            nn.Conv2d(1024, 1024, 3, padding=2, dilation=2, groups=1024, bias=False),
            conv_bn(1024, 1536, 1, act=nn.ReLU()),
            nn.Conv2d(1536, 1536, 3, padding=2, dilation=2, groups=1536, bias=False),
            conv_bn(1536, 1536, 1, act=nn.ReLU()),
            nn.Conv2d(1536, 1536, 3, padding=2, dilation=2, groups=1536, bias=False),
            conv_bn(1536, 2048, 1, act=nn.ReLU()),
        )
        self.branches = nn.ModuleList(
            [conv_bn(2048, 256, 1, act=nn.ReLU())]
            + [
                nn.Sequential(
                    nn.Conv2d(2048, 256, 3, padding=rate, dilation=rate, bias=False),
                    nn.BatchNorm2d(256),
                    nn.ReLU(),
                )
                for rate in (6, 12, 18)
            ]
        )
        self.pool = conv_bn(2048, 256, 1, act=nn.ReLU())
        self.project = conv_bn(1280, 256, 1, act=nn.ReLU())
        self.low = conv_bn(128, 48, 1, act=nn.ReLU())
        self.ups = nn.ModuleList(nn.ConvTranspose2d(256, 256, 3, 2, 1, 1, bias=False) for _ in range(4))
        self.mix = nn.Sequential(conv_bn(304, 256, act=nn.ReLU()), conv_bn(256, 256, act=nn.ReLU()))
        self.head = nn.Conv2d(256, 3, 1)

    def forward(self, x: Tensor, labels: Tensor) -> Tensor:
        """Weighted cross entropy per pixel."""
        x = self.stem(x)
        low = x = self.entry[0](x)
        x = self.exit(self.middle(self.entry[2](self.entry[1](x))))
        pooled = F.interpolate(self.pool(F.adaptive_avg_pool2d(x, 1)), size=x.shape[-2:], mode="bilinear")
        x = self.project(torch.cat((*(branch(x) for branch in self.branches), pooled), 1))
        x = F.relu(self.ups[1](F.relu(self.ups[0](x))))
        x = self.mix(torch.cat((x, self.low(low)), 1))
        x = F.relu(self.ups[3](F.relu(self.ups[2](x))))
        return F.cross_entropy(self.head(x), labels)


class CosmoFlow(nn.Module):
    """Five 3-D convolutions with pooling and three linear layers on 128x128x128x4 (MLPerf HPC)."""

    def __init__(self) -> None:
        super().__init__()
        widths = (4, 32, 64, 128, 256, 512)
        self.convs = nn.Sequential(
            *(
                nn.Sequential(nn.Conv3d(i, o, 3, padding=1), nn.LeakyReLU(0.3), nn.MaxPool3d(2))
                for i, o in zip(widths, widths[1:], strict=False)
            )
        )
        self.head = nn.Sequential(
            nn.Linear(512 * 64, 128),
            nn.LeakyReLU(0.3),
            nn.Dropout(0.5),
            nn.Linear(128, 64),
            nn.LeakyReLU(0.3),
            nn.Dropout(0.5),
            nn.Linear(64, 4),
            nn.Tanh(),
        )

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        """Squared error of four parameters."""
        return F.mse_loss(self.head(self.convs(x).flatten(1)), target)


def _entry(factory: Callable[[], nn.Module], inputs: Any, *references: Reference, **changes: Any) -> Entry:
    settings: dict[str, Any] = {
        "build": on_meta(factory),
        "inputs": inputs,
        "family": "segmentation",
        "task": "segmentation",
        "optimizer": "adam",
        "sample_unit": "image",
        "throughput_unit": "images/s",
        "references": references,
    }
    return Entry(**(settings | changes))


def _labelled(channels: int, *size: int) -> Callable[[int], tuple[Tensor, Tensor]]:
    return lambda batch: (image(batch, channels, *size), index(batch, *size))


def _masked(channels: int, side: int) -> Callable[[int], tuple[Tensor, Tensor]]:
    return lambda batch: (image(batch, channels, side, side), real(batch, 1, side, side))


def _params(value: float, source: str, tolerance: float = 0.01) -> Reference:
    return Reference(quantity="params", value=value, source=source, tolerance=tolerance)


def _flops(value: float, source: str, tolerance: float = 0.01) -> Reference:
    return Reference(quantity="forward_flops", value=value, source=source, tolerance=tolerance)


VOLUME = {"sample_unit": "volume"}
HPC = {"optimizer": "sgd", "throughput_unit": "samples/s"}

ENTRIES: dict[str, Entry] = {
    "unet-medical": _entry(
        ValidUNet,
        lambda batch: (image(batch, 1, 572, 572), index(batch, 388, 388)),
        _params(31.03e6, "U-Net of Ronneberger et al. 2015, 31.0M"),
        dataset="isbi-em",
        dataset_samples=30,
        image_size=572,
    ),
    "unet-industrial": _entry(
        TinyUNet,
        _masked(1, 512),
        _params(1_850_305, "NVIDIA DeepLearningExamples U-Net industrial: 1,850,305", 1e-6),
        optimizer="rmsprop",
        dataset="dagm2007",
        dataset_samples=1_046,
        image_size=512,
    ),
    "nnunet-2d": _entry(
        lambda: NormedUNet(4, (32, 64, 128, 256, 320, 320), 4, dims=2, supervised=2),
        _labelled(4, 192, 160),
        dataset="msd-task01-brain-tumour",
        dataset_samples=484,
        image_size=192,
    ),
    "nnunet-3d": _entry(
        lambda: NormedUNet(4, (32, 64, 128, 256, 320, 320), 4, dims=3, supervised=2),
        _labelled(4, 128, 128, 128),
        _params(31.2e6, "nnU-Net 3D full resolution plan for brain tumours, 31.2M", 0.03),
        **VOLUME,
        dataset="msd-task01-brain-tumour",
        dataset_samples=484,
        image_size=128,
    ),
    "unet3d": _entry(
        lambda: NormedUNet(1, (32, 64, 128, 256, 320, 320), 3, dims=3, slope=0.0),
        _labelled(1, 128, 128, 128),
        optimizer="momentum-sgd",
        sample_unit="volume",
        throughput_unit="samples/s",
        dataset="kits19",
        dataset_samples=168,
        image_size=128,
    ),
    "unet3d-medical": _entry(
        lambda: NormedUNet(
            4, (32, 64, 128, 256, 320), 4, dims=3, pooled=True, norm="group", first=16, slope=0.0
        ),
        _labelled(4, 128, 128, 128),
        **VOLUME,
        dataset="brats2019",
        dataset_samples=335,
        image_size=128,
    ),
    "vnet": _entry(
        VNet,
        _labelled(1, 32, 32, 32),
        **VOLUME,
        dataset="msd-task04-hippocampus",
        dataset_samples=260,
        image_size=32,
    ),
    "unet3plus": _entry(
        UNet3Plus,
        _masked(3, 320),
        _params(26.97e6, "Huang et al. 2020, table 1: 26.97M", 0.02),
        dataset="lits2017",
        dataset_samples=None,
        image_size=320,
    ),
    "deepcam": _entry(
        DeepCAM,
        _labelled(16, 768, 1152),
        **(HPC | {"optimizer": "lamb"}),
        dataset="cam5",
        dataset_samples=121_266,
        image_size=768,
    ),
    "cosmoflow": _entry(
        CosmoFlow,
        lambda batch: (image(batch, 4, 128, 128, 128), real(batch, 4)),
        **HPC,
        **VOLUME,
        task="hpc-regression",
        dataset="cosmoflow-n-body",
        dataset_samples=524_288,
        image_size=128,
    ),
}
