"""StyleGAN2 with adaptive augmentation (Karras et al. 2020), one update of both networks per step.

The upsampling filters and biases with activation of the original are kernels of their own; poolings of the
same size stand for the filters, since both read and write each element once. Of the regularisation, which
runs every fourth and sixteenth step, nothing is added: the gradients of the discriminator's parameters that
the capture counts in the generator's phase, where the original skips them, cost about as much.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from . import Entry, Reference
from ._blocks import image, on_meta, real

_LATENT = 512
_WIDEST = 512


def _act(x: Tensor) -> Tensor:
    return F.leaky_relu(x, 0.2)


class ModulatedConv(nn.Module):
    """Convolution whose input channels are scaled by a style and whose output is normalised by it."""

    def __init__(
        self, inp: int, out: int, kernel: int = 3, *, up: bool = False, demodulate: bool = True
    ) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(out, inp, kernel, kernel))
        self.bias = nn.Parameter(torch.empty(out))
        self.affine = nn.Linear(_LATENT, inp)
        self.up, self.demodulate = up, demodulate
        self.noise = nn.Parameter(torch.empty([])) if demodulate else None

    def forward(self, x: Tensor, style: Tensor) -> Tensor:
        """The map, twice as large where it goes up."""
        scale = self.affine(style)
        x = x * scale[:, :, None, None]
        if self.up:
            x = F.conv_transpose2d(x, self.weight.transpose(0, 1), stride=2)
            x = F.avg_pool2d(x, 4, 1, 1)
        else:
            x = F.conv2d(x, self.weight, padding=self.weight.shape[-1] // 2)
        if not self.demodulate or self.noise is None:
            return x + self.bias[None, :, None, None]
        spread = (self.weight[None] * scale[:, None, :, None, None]).square().sum((2, 3, 4))
        norm = (spread + 1e-8).rsqrt()
        noise = torch.randn_like(x[:, :1]) * self.noise
        return _act(torch.addcmul(noise, x, norm[:, :, None, None]) + self.bias[None, :, None, None])


class Generator(nn.Module):
    """Mapping of `depth` layers, two convolutions per resolution, images summed over resolutions."""

    def __init__(self, size: int, base: int, depth: int) -> None:
        super().__init__()
        self.mapping = nn.ModuleList(nn.Linear(_LATENT, _LATENT) for _ in range(depth))
        self.const = nn.Parameter(torch.empty(_WIDEST, 4, 4))
        self.first = ModulatedConv(_WIDEST, _WIDEST)
        self.first_image = ModulatedConv(_WIDEST, 3, 1, demodulate=False)
        self.blocks = nn.ModuleList()
        inp, side = _WIDEST, 8
        while side <= size:
            out = min(base // side, _WIDEST)
            self.blocks.append(
                nn.ModuleList(
                    (
                        ModulatedConv(inp, out, up=True),
                        ModulatedConv(out, out),
                        ModulatedConv(out, 3, 1, demodulate=False),
                    )
                )
            )
            inp, side = out, 2 * side

    def forward(self, z: Tensor) -> Tensor:
        """Images."""
        w = z * (z.square().mean(1, keepdim=True) + 1e-8).rsqrt()
        for layer in self.mapping:
            w = _act(layer(w))
        x = self.const.expand(z.shape[0], -1, -1, -1)
        x = self.first(x, w)
        picture = self.first_image(x, w)
        for up, conv, to_image in self.blocks:
            x = conv(up(x, w), w)
            picture = F.avg_pool2d(F.interpolate(picture, scale_factor=2.0), 3, 1, 1)
            picture = picture + to_image(x, w)
        return picture


class Discriminator(nn.Module):
    """Residual blocks with blurred downsampling, statistics over four samples, two linear layers."""

    def __init__(self, size: int, base: int) -> None:
        super().__init__()
        inp, side = min(base // size, _WIDEST), size
        self.enter = nn.Conv2d(3, inp, 1)
        self.blocks = nn.ModuleList()
        while side > 4:
            out = min(base // (side // 2), _WIDEST)
            self.blocks.append(
                nn.ModuleList(
                    (
                        nn.Conv2d(inp, inp, 3, padding=1),
                        nn.Conv2d(inp, out, 3, 2),
                        nn.Conv2d(inp, out, 1, bias=False),
                    )
                )
            )
            inp, side = out, side // 2
        self.conv = nn.Conv2d(inp + 1, inp, 3, padding=1)
        self.down, self.out = nn.Linear(16 * inp, inp), nn.Linear(inp, 1)

    def forward(self, x: Tensor) -> Tensor:
        """One logit per image."""
        x = _act(self.enter(x))
        for conv, shrink, shortcut in self.blocks:
            beside = shortcut(F.avg_pool2d(x, 4, 2, 1))
            x = _act(shrink(F.avg_pool2d(_act(conv(x)), 4, 1, 2)))
            x = x + beside
        spread = (x - x.mean(1, keepdim=True)).square().mean(1, keepdim=True)
        x = _act(self.conv(torch.cat((x, spread), 1)))
        return self.out(_act(self.down(x.flatten(1))))


class StyleGAN2(nn.Module):
    """Generator phase, then discriminator phase on new fakes and on real images, all of them augmented."""

    def __init__(self, size: int, base: int, depth: int) -> None:
        super().__init__()
        self.generator, self.discriminator = Generator(size, base, depth), Discriminator(size, base)

    def judged(self, images: Tensor) -> Tensor:
        """Logits of augmented images: warped at twice their size, colours turned."""
        grid = torch.empty(images.shape[0], 2 * images.shape[2], 2 * images.shape[3], 2, device=images.device)
        large = F.avg_pool2d(F.interpolate(images, scale_factor=2.0), 3, 1, 1)
        warped = F.avg_pool2d(F.grid_sample(large, grid, align_corners=False), 2)
        return self.discriminator(warped * 0.9 + 0.1)

    def forward(self, images: Tensor, z: Tensor, again: Tensor) -> Tensor:
        """Sum of the losses."""
        loss = F.softplus(-self.judged(self.generator(z))).mean()
        with torch.no_grad():
            fake = self.generator(again)
        loss = loss + F.softplus(self.judged(fake)).mean()
        return loss + F.softplus(-self.judged(images)).mean()


def _entry(size: int, base: int, depth: int, *references: Reference, aliases: tuple[str, ...] = ()) -> Entry:
    inputs: Callable[[int], tuple[Tensor, ...]] = lambda batch: (  # noqa: E731
        image(batch, 3, size, size),
        real(batch, _LATENT),
        real(batch, _LATENT),
    )
    return Entry(
        build=on_meta(lambda: StyleGAN2(size, base, depth)),
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
        aliases=aliases,
    )


_FULL = Reference(
    quantity="params",
    value=30.37e6 + 29.01e6,
    source="NVlabs stylegan2-ada: generator 30.37M with 8 mapping layers, discriminator 29.01M at 1024",
)

ENTRIES: dict[str, Entry] = {
    "stylegan2": _entry(1024, 32768, 8, _FULL, aliases=("stylegan2-ada",)),
    **{
        f"stylegan2-{size}-c{base}-m{depth}": _entry(size, base, depth)
        for size, base in ((128, 16384), (256, 16384), (512, 32768), (1024, 32768))
        for depth in ((2,) if size == 128 else (2, 8))
        if (size, depth) != (1024, 8)
    },
}
