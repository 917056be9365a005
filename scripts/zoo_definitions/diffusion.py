"""Diffusion and adversarial image models.

Stable Diffusion trains its U-Net on stored latents. MLPerf runs the frozen OpenCLIP-H text encoder in
each step; MosaicML stores its output as well (`stable-diffusion-2-base`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from . import Entry, Reference
from ._blocks import image, index, on_meta, real


class TimedResidual(nn.Module):
    """Group norm, SiLU, convolution twice; the time embedding is added between."""

    def __init__(self, inp: int, out: int, time: int = 1280) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.GroupNorm(32, inp), nn.GroupNorm(32, out)
        self.conv1, self.conv2 = nn.Conv2d(inp, out, 3, padding=1), nn.Conv2d(out, out, 3, padding=1)
        self.time = nn.Linear(time, out)
        self.shortcut = nn.Conv2d(inp, out, 1) if inp != out else nn.Identity()

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        """Residual sum."""
        h = self.conv1(F.silu(self.norm1(x)))
        h = h + self.time(F.silu(time))[:, :, None, None]
        return self.shortcut(x) + self.conv2(F.silu(self.norm2(h)))


class Attention(nn.Module):
    """Multi-head attention with heads of 64, over itself or over the text."""

    def __init__(self, width: int, context: int | None = None) -> None:
        super().__init__()
        self.heads = width // 64
        self.query = nn.Linear(width, width, bias=False)
        self.key = nn.Linear(context or width, width, bias=False)
        self.value = nn.Linear(context or width, width, bias=False)
        self.out = nn.Linear(width, width)

    def forward(self, x: Tensor, context: Tensor) -> Tensor:
        """(batch, tokens, width)."""

        def split(y: Tensor) -> Tensor:
            return y.unflatten(-1, (self.heads, 64)).transpose(1, 2)

        mixed = F.scaled_dot_product_attention(
            split(self.query(x)), split(self.key(context)), split(self.value(context))
        )
        return self.out(mixed.transpose(1, 2).flatten(2))


class SpatialTransformer(nn.Module):
    """Self-attention, cross-attention and a gated feed-forward layer over all positions."""

    def __init__(self, width: int, context: int) -> None:
        super().__init__()
        self.norm = nn.GroupNorm(32, width)
        self.enter, self.leave = nn.Linear(width, width), nn.Linear(width, width)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(3))
        self.self_attention = Attention(width)
        self.cross_attention = Attention(width, context)
        self.gate = nn.Linear(width, 8 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x: Tensor, text: Tensor) -> Tensor:
        """Same shape."""
        batch, width, high, wide = x.shape
        h = self.enter(self.norm(x).flatten(2).transpose(1, 2))
        y = self.norms[0](h)
        h = h + self.self_attention(y, y)
        h = h + self.cross_attention(self.norms[1](h), text)
        value, gate = self.gate(self.norms[2](h)).chunk(2, -1)
        h = h + self.down(value * F.gelu(gate))
        return x + self.leave(h).transpose(1, 2).reshape(batch, width, high, wide)


class LatentUNet(nn.Module):
    """U-Net of Stable Diffusion 2 (Rombach et al. 2022): widths 320, 640, 1280, 1280, text width 1024."""

    def __init__(self, widths: tuple[int, ...] = (320, 640, 1280, 1280), context: int = 1024) -> None:
        super().__init__()
        self.time = nn.Sequential(nn.Linear(320, 1280), nn.SiLU(), nn.Linear(1280, 1280))
        self.enter = nn.Conv2d(4, widths[0], 3, padding=1)
        self.down, self.up = nn.ModuleList(), nn.ModuleList()
        kept, inp = [widths[0]], widths[0]
        last = len(widths) - 1
        for level, width in enumerate(widths):
            for _ in range(2):
                attention = SpatialTransformer(width, context) if level < last else nn.Identity()
                self.down.append(nn.ModuleList((TimedResidual(inp, width), attention)))
                inp = width
                kept.append(width)
            if level < last:
                self.down.append(nn.Conv2d(width, width, 3, 2, 1))
                kept.append(width)
        self.middle = nn.ModuleList(
            (TimedResidual(inp, inp), SpatialTransformer(inp, context), TimedResidual(inp, inp))
        )
        for level, width in reversed(list(enumerate(widths))):
            for _ in range(3):
                attention = SpatialTransformer(width, context) if level < last else nn.Identity()
                self.up.append(nn.ModuleList((TimedResidual(inp + kept.pop(), width), attention)))
                inp = width
            if level:
                self.up.append(nn.Conv2d(width, width, 3, padding=1))
        self.norm = nn.GroupNorm(32, widths[0])
        self.leave = nn.Conv2d(widths[0], 4, 3, padding=1)

    def forward(self, x: Tensor, time: Tensor, text: Tensor) -> Tensor:
        """Predicted noise."""
        steps = torch.exp(torch.arange(160, device=x.device) * -0.0576)
        angles = time[:, None].float() * steps
        embedded = self.time(torch.cat((angles.cos(), angles.sin()), 1))
        x = self.enter(x)
        kept = [x]
        for part in self.down:
            x = self._step(part, x, embedded, text)
            kept.append(x)
        x = self.middle[2](self.middle[1](self.middle[0](x, embedded), text), embedded)
        for part in self.up:
            if isinstance(part, nn.Conv2d):
                x = part(F.interpolate(x, scale_factor=2.0))
            else:
                x = self._step(part, torch.cat((x, kept.pop()), 1), embedded, text)
        return self.leave(F.silu(self.norm(x)))

    def _step(self, part: Any, x: Tensor, embedded: Tensor, text: Tensor) -> Tensor:
        if isinstance(part, nn.Conv2d):
            return part(x)
        residual, attention = part
        x = residual(x, embedded)
        return attention(x, text) if isinstance(attention, SpatialTransformer) else x


class TextEncoder(nn.Module):
    """OpenCLIP ViT-H text tower up to its penultimate layer: 23 layers of 1024, 77 tokens."""

    def __init__(self, layers: int = 23, width: int = 1024) -> None:
        super().__init__()
        self.embed = nn.Embedding(49_408, width)
        self.position = nn.Parameter(torch.empty(77, width))
        self.layers = nn.ModuleList(
            nn.ModuleDict(
                {
                    "norm1": nn.LayerNorm(width),
                    "qkv": nn.Linear(width, 3 * width),
                    "out": nn.Linear(width, width),
                    "norm2": nn.LayerNorm(width),
                    "up": nn.Linear(width, 4 * width),
                    "down": nn.Linear(4 * width, width),
                }
            )
            for _ in range(layers)
        )
        self.norm = nn.LayerNorm(width)

    def forward(self, tokens: Tensor) -> Tensor:
        """(batch, 77, width)."""
        x = self.embed(tokens) + self.position
        for layer in self.layers:
            q, k, v = layer["qkv"](layer["norm1"](x)).unflatten(-1, (3, 16, 64)).permute(2, 0, 3, 1, 4)
            mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + layer["out"](mixed.transpose(1, 2).flatten(2))
            x = x + layer["down"](F.gelu(layer["up"](layer["norm2"](x))))
        return self.norm(x)


class LatentDiffusion(nn.Module):
    """One training step: noise on stored latents, predicted by the U-Net."""

    def __init__(self, *, encode_text: bool) -> None:
        super().__init__()
        self.unet = LatentUNet()
        self.text = TextEncoder().requires_grad_(False) if encode_text else None

    def forward(self, latents: Tensor, time: Tensor, text: Tensor) -> Tensor:
        """Squared error of the noise."""
        if self.text is not None:
            with torch.no_grad():
                text = self.text(text)
        noise = torch.randn_like(latents)
        noisy = latents * 0.9 + noise * 0.1
        return F.mse_loss(self.unet(noisy, time, text), noise)


class DCGenerator(nn.Module):
    """DCGAN generator (Radford et al. 2015) to 64x64, 64 filters."""

    def __init__(self) -> None:
        super().__init__()
        widths = (512, 256, 128, 64)
        layers: list[nn.Module] = [nn.ConvTranspose2d(100, 512, 4, 1, 0, bias=False)]
        for inp, out in zip(widths, widths[1:], strict=False):
            layers += [nn.BatchNorm2d(inp), nn.ReLU(), nn.ConvTranspose2d(inp, out, 4, 2, 1, bias=False)]
        layers += [nn.BatchNorm2d(64), nn.ReLU(), nn.ConvTranspose2d(64, 3, 4, 2, 1, bias=False), nn.Tanh()]
        self.net = nn.Sequential(*layers)

    def forward(self, x: Tensor) -> Tensor:
        """Image."""
        return self.net(x)


class DCGAN(nn.Module):
    """Discriminator step on real and fake, generator step."""

    def __init__(self) -> None:
        super().__init__()
        self.generator = DCGenerator()
        layers: list[nn.Module] = [nn.Conv2d(3, 64, 4, 2, 1, bias=False), nn.LeakyReLU(0.2)]
        for inp, out in ((64, 128), (128, 256), (256, 512)):
            layers += [nn.Conv2d(inp, out, 4, 2, 1, bias=False), nn.BatchNorm2d(out), nn.LeakyReLU(0.2)]
        self.discriminator = nn.Sequential(*layers, nn.Conv2d(512, 1, 4, 1, 0, bias=False), nn.Sigmoid())

    def forward(self, images: Tensor, noise: Tensor) -> Tensor:
        """Sum of the three losses."""
        fake = self.generator(noise)
        truth = self.discriminator(images)
        lie = self.discriminator(fake.detach())
        loss = F.binary_cross_entropy(truth, torch.ones_like(truth))
        loss = loss + F.binary_cross_entropy(lie, torch.zeros_like(lie))
        judged = self.discriminator(fake)
        return loss + F.binary_cross_entropy(judged, torch.ones_like(judged))


def _reflect(inp: int, out: int, kernel: int) -> list[nn.Module]:
    return [nn.ReflectionPad2d(kernel // 2), nn.Conv2d(inp, out, kernel), nn.InstanceNorm2d(out)]


class CycleUnit(nn.Module):
    """Residual unit with reflection padding and instance norm."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.body = nn.Sequential(*_reflect(width, width, 3), nn.ReLU(), *_reflect(width, width, 3))

    def forward(self, x: Tensor) -> Tensor:
        """Residual sum."""
        return x + self.body(x)


def cycle_generator() -> nn.Sequential:
    """Nine residual units of 256 between two down- and two upsamplings (Zhu et al. 2017)."""
    layers: list[nn.Module] = [*_reflect(3, 64, 7), nn.ReLU()]
    for inp in (64, 128):
        layers += [nn.Conv2d(inp, 2 * inp, 3, 2, 1), nn.InstanceNorm2d(2 * inp), nn.ReLU()]
    layers += [CycleUnit(256) for _ in range(9)]
    for inp in (256, 128):
        layers += [
            nn.Upsample(scale_factor=2),
            nn.Conv2d(inp, inp // 2, 3, 1, 1),
            nn.InstanceNorm2d(inp // 2),
            nn.ReLU(),
        ]
    return nn.Sequential(*layers, nn.ReflectionPad2d(3), nn.Conv2d(64, 3, 7), nn.Tanh())


def patch_discriminator() -> nn.Sequential:
    """70x70 patch discriminator."""
    layers: list[nn.Module] = [nn.Conv2d(3, 64, 4, 2, 1), nn.LeakyReLU(0.2)]
    for inp, out in ((64, 128), (128, 256), (256, 512)):
        layers += [nn.Conv2d(inp, out, 4, 2, 1), nn.InstanceNorm2d(out), nn.LeakyReLU(0.2)]
    return nn.Sequential(*layers, nn.ZeroPad2d((1, 0, 1, 0)), nn.Conv2d(512, 1, 4, padding=1))


class CycleGAN(nn.Module):
    """Both generators and discriminators on one pair of 256x256 images."""

    def __init__(self) -> None:
        super().__init__()
        self.forth, self.back = cycle_generator(), cycle_generator()
        self.judge_a, self.judge_b = patch_discriminator(), patch_discriminator()

    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        """Identity, adversarial and cycle losses, then both discriminators' losses."""
        loss = F.l1_loss(self.back(a), a) + F.l1_loss(self.forth(b), b)
        fake_b, fake_a = self.forth(a), self.back(b)
        loss = loss + (self.judge_b(fake_b) - 1).pow(2).mean() + (self.judge_a(fake_a) - 1).pow(2).mean()
        loss = loss + F.l1_loss(self.back(fake_b), a) + F.l1_loss(self.forth(fake_a), b)
        for judge, truth, fake in ((self.judge_a, a, fake_a), (self.judge_b, b, fake_b)):
            loss = loss + (judge(truth) - 1).pow(2).mean() + judge(fake.detach()).pow(2).mean()
        return loss


def _entry(factory: Callable[[], nn.Module], inputs: Any, *references: Reference, **changes: Any) -> Entry:
    settings: dict[str, Any] = {
        "build": on_meta(factory),
        "inputs": inputs,
        "family": "diffusion",
        "task": "diffusion",
        "optimizer": "adamw",
        "sample_unit": "image",
        "throughput_unit": "images/s",
        "references": references,
    }
    return Entry(**(settings | changes))


def _params(value: float, source: str, tolerance: float = 0.01) -> Reference:
    return Reference(quantity="params", value=value, source=source, tolerance=tolerance)


def _latents(side: int, *, encoded: bool) -> Callable[[int], tuple[Tensor, ...]]:
    def inputs(batch: int) -> tuple[Tensor, ...]:
        text = real(batch, 77, 1024) if encoded else index(batch, 77)
        return real(batch, 4, side, side), index(batch), text

    return inputs


UNET_PARAMS = 865.91e6

ENTRIES: dict[str, Entry] = {
    "stable-diffusion-v2": _entry(
        lambda: LatentDiffusion(encode_text=True),
        _latents(64, encoded=False),
        _params(
            UNET_PARAMS + 340.4e6, "SD 2 U-Net 865.91M; OpenCLIP-H text tower 354.0M less one layer", 0.01
        ),
        dataset="laion-400m-filtered",
        dataset_samples=6_513_144,
        image_size=512,
    ),
    "stable-diffusion-2-base": _entry(
        lambda: LatentDiffusion(encode_text=False),
        _latents(64, encoded=True),
        _params(UNET_PARAMS, "stabilityai/stable-diffusion-2-base, U-Net 865.91M", 0.001),
        dataset="laion-5b-subset",
        image_size=512,
    ),
    "stable-diffusion-2-base--256": _entry(
        lambda: LatentDiffusion(encode_text=False),
        _latents(32, encoded=True),
        dataset="laion-5b-subset",
        image_size=256,
    ),
    "dcgan": _entry(
        DCGAN,
        lambda batch: (image(batch, 3, 64, 64), real(batch, 100, 1, 1)),
        _params(
            3_576_704 + 2_765_568, "DCGAN with 64 filters: generator 3,576,704, discriminator 2,765,568", 1e-4
        ),
        family="cnn",
        task="gan",
        optimizer="adam",
        dataset="lsun",
        image_size=64,
    ),
    "cyclegan": _entry(
        CycleGAN,
        lambda batch: (image(batch, 3, 256, 256), image(batch, 3, 256, 256)),
        family="cnn",
        task="gan",
        optimizer="adam",
        sample_unit="pair",
        throughput_unit="steps/s",
        dataset="monet2photo",
        dataset_samples=6_287,
        image_size=256,
    ),
}
