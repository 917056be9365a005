"""The first StyleGAN (Karras et al. 2019) at its full resolution, one update of both networks per step.

Poolings of the same size stand for the blurs. The gradient penalty of the real images (R1, in every step)
costs what one more forward and backward pass of the discriminator does: the gradient with respect to the
images, and the two products of each convolution in that gradient's own backward pass. The generator's phase
counts the gradients of the discriminator's parameters, which the original skips: about 7 % of the products.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from . import Entry, Reference
from ._blocks import image, mlp, on_meta, real

_LATENT = 512
_WIDEST = 512
_BASE = 8192
_FUSED_FROM = 128
"""From this side on a convolution and its change of scale are one kernel."""


def _width(side: int) -> int:
    return min(2 * _BASE // side, _WIDEST)


class Epilogue(nn.Module):
    """Noise, bias, activation, instance normalization, and the style's scale and shift."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.strength = nn.Parameter(torch.empty(channels, 1, 1))
        self.bias = nn.Parameter(torch.empty(channels, 1, 1))
        self.style = nn.Linear(_LATENT, 2 * channels)

    def forward(self, x: Tensor, w: Tensor) -> Tensor:
        """The map, styled."""
        x = F.leaky_relu(x + torch.randn_like(x[:, :1]) * self.strength + self.bias, 0.2)
        scale, shift = self.style(w)[:, :, None, None].chunk(2, 1)
        return torch.addcmul(shift, F.instance_norm(x), scale + 1)


class Generator(nn.Module):
    """Mapping of eight layers, a learned constant, two styled convolutions per resolution."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.mapping = mlp((_LATENT,) * 9)
        self.constant = nn.Parameter(torch.empty(1, _WIDEST, 4, 4))
        self.first, self.conv, self.second = (
            Epilogue(_WIDEST),
            nn.Conv2d(_WIDEST, _WIDEST, 3, padding=1, bias=False),
            Epilogue(_WIDEST),
        )
        self.blocks = nn.ModuleList()
        side = 8
        while side <= size:
            inp, out = _width(side // 2), _width(side)
            up: nn.Module = (
                nn.ConvTranspose2d(inp, out, 4, 2, 1, bias=False)
                if side >= _FUSED_FROM
                else nn.Sequential(nn.Upsample(scale_factor=2), nn.Conv2d(inp, out, 3, padding=1, bias=False))
            )
            conv = nn.Conv2d(out, out, 3, padding=1, bias=False)
            self.blocks.append(nn.ModuleList((up, Epilogue(out), conv, Epilogue(out))))
            side *= 2
        self.image = nn.Conv2d(_width(size), 3, 1)

    def forward(self, z: Tensor) -> Tensor:
        """Images of the full size."""
        w = self.mapping(z)
        x = self.first(self.constant.expand(z.shape[0], -1, -1, -1), w)
        x = self.second(self.conv(x), w)
        for up, early, conv, late in self.blocks:
            x = early(F.avg_pool2d(up(x), 3, 1, 1), w)
            x = late(conv(x), w)
        return self.image(x)


class Discriminator(nn.Module):
    """Two convolutions per resolution, the second on a blurred map and half as large; spread of the batch."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.enter = nn.Conv2d(3, _width(size), 1)
        self.blocks = nn.ModuleList()
        side = size
        while side > 4:
            inp, out = _width(side), _width(side // 2)
            shrink: nn.Module = (
                nn.Conv2d(inp, out, 4, 2, 1)
                if side >= _FUSED_FROM
                else nn.Sequential(nn.Conv2d(inp, out, 3, padding=1), nn.AvgPool2d(2))
            )
            self.blocks.append(nn.ModuleList((nn.Conv2d(inp, inp, 3, padding=1), shrink)))
            side //= 2
        self.conv = nn.Conv2d(_WIDEST + 1, _WIDEST, 3, padding=1)
        self.down, self.out = nn.Linear(16 * _WIDEST, _WIDEST), nn.Linear(_WIDEST, 1)

    def forward(self, x: Tensor) -> Tensor:
        """One logit per image."""
        x = F.leaky_relu(self.enter(x), 0.2)
        for conv, shrink in self.blocks:
            x = F.avg_pool2d(F.leaky_relu(conv(x), 0.2), 3, 1, 1)
            x = F.leaky_relu(shrink(x), 0.2)
        spread = (x - x.mean(1, keepdim=True)).square().mean(1, keepdim=True)
        x = F.leaky_relu(self.conv(torch.cat((x, spread), 1)), 0.2)
        return self.out(F.leaky_relu(self.down(x.flatten(1)), 0.2))


class StyleGAN(nn.Module):
    """Generator phase, then discriminator phase on new fakes and on real images with the penalty."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.generator, self.discriminator = Generator(size), Discriminator(size)

    def forward(self, images: Tensor, z: Tensor, again: Tensor) -> Tensor:
        """Sum of the losses."""
        loss = F.softplus(-self.discriminator(self.generator(z))).mean()
        with torch.no_grad():
            fake = self.generator(again)
        loss = loss + F.softplus(self.discriminator(fake)).mean()
        loss = loss + F.softplus(-self.discriminator(images)).mean()
        return loss + self.discriminator(images).square().mean()


def _entry(size: int, *references: Reference) -> Entry:
    inputs: Callable[[int], tuple[Tensor, ...]] = lambda batch: (  # noqa: E731
        image(batch, 3, size, size),
        real(batch, _LATENT),
        real(batch, _LATENT),
    )
    return Entry(
        build=on_meta(lambda: StyleGAN(size)),
        inputs=inputs,
        family="cnn",
        task="gan",
        optimizer="adam",
        sample_unit="image",
        throughput_unit="images/s",
        dataset="ffhq",
        dataset_samples=70_000,
        image_size=size,
        references=references,
    )


ENTRIES: dict[str, Entry] = {
    "stylegan": _entry(
        1024,
        Reference(
            quantity="params",
            value=26.2e6 + 23.1e6,
            source="Karras et al. 2019, section 2: generator 26.2M; progressive GAN's discriminator 23.1M",
            tolerance=0.02,
        ),
    ),
    "stylegan-512": _entry(512),
    "stylegan-256": _entry(256),
}
