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
    """Multi-head attention, over itself or over the text; heads of 64 unless their number is given."""

    def __init__(self, width: int, context: int | None = None, *, heads: int | None = None) -> None:
        super().__init__()
        self.heads = heads or width // 64
        self.query = nn.Linear(width, width, bias=False)
        self.key = nn.Linear(context or width, width, bias=False)
        self.value = nn.Linear(context or width, width, bias=False)
        self.out = nn.Linear(width, width)

    def forward(self, x: Tensor, context: Tensor) -> Tensor:
        """(batch, tokens, width)."""

        def split(y: Tensor) -> Tensor:
            return y.unflatten(-1, (self.heads, y.shape[-1] // self.heads)).transpose(1, 2)

        mixed = F.scaled_dot_product_attention(
            split(self.query(x)), split(self.key(context)), split(self.value(context))
        )
        return self.out(mixed.transpose(1, 2).flatten(2))


class TransformerBlock(nn.Module):
    """Self-attention, cross-attention and a gated feed-forward layer."""

    def __init__(self, width: int, context: int, heads: int | None) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(3))
        self.self_attention = Attention(width, heads=heads)
        self.cross_attention = Attention(width, context, heads=heads)
        self.gate = nn.Linear(width, 8 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, h: Tensor, text: Tensor) -> Tensor:
        """Same shape."""
        y = self.norms[0](h)
        h = h + self.self_attention(y, y)
        h = h + self.cross_attention(self.norms[1](h), text)
        value, gate = self.gate(self.norms[2](h)).chunk(2, -1)
        return h + self.down(value * F.gelu(gate))


class SpatialTransformer(nn.Module):
    """Transformer blocks over all positions of a map."""

    def __init__(self, width: int, context: int, *, depth: int = 1, heads: int | None = None) -> None:
        super().__init__()
        self.norm = nn.GroupNorm(32, width)
        self.enter, self.leave = nn.Linear(width, width), nn.Linear(width, width)
        self.blocks = nn.ModuleList(TransformerBlock(width, context, heads) for _ in range(depth))

    def forward(self, x: Tensor, text: Tensor) -> Tensor:
        """Same shape."""
        batch, width, high, wide = x.shape
        h = self.enter(self.norm(x).flatten(2).transpose(1, 2))
        for block in self.blocks:
            h = block(h, text)
        return x + self.leave(h).transpose(1, 2).reshape(batch, width, high, wide)


class LatentUNet(nn.Module):
    """U-Net of Stable Diffusion 2 (Rombach et al. 2022): widths 320, 640, 1280, 1280, text width 1024.

    `depths` are the transformer blocks of each level, `extra` the width of a further conditioning vector.
    """

    def __init__(
        self,
        widths: tuple[int, ...] = (320, 640, 1280, 1280),
        context: int = 1024,
        *,
        depths: tuple[int, ...] = (1, 1, 1, 0),
        heads: int | None = None,
        extra: int = 0,
    ) -> None:
        super().__init__()

        def attention(level: int, width: int) -> nn.Module:
            if not depths[level]:
                return nn.Identity()
            return SpatialTransformer(width, context, depth=depths[level], heads=heads)

        self.extra = (
            nn.Sequential(nn.Linear(extra, 1280), nn.SiLU(), nn.Linear(1280, 1280)) if extra else None
        )
        self.time = nn.Sequential(nn.Linear(320, 1280), nn.SiLU(), nn.Linear(1280, 1280))
        self.enter = nn.Conv2d(4, widths[0], 3, padding=1)
        self.down, self.up = nn.ModuleList(), nn.ModuleList()
        kept, inp = [widths[0]], widths[0]
        last = len(widths) - 1
        for level, width in enumerate(widths):
            for _ in range(2):
                self.down.append(nn.ModuleList((TimedResidual(inp, width), attention(level, width))))
                inp = width
                kept.append(width)
            if level < last:
                self.down.append(nn.Conv2d(width, width, 3, 2, 1))
                kept.append(width)
        self.middle = nn.ModuleList(
            (
                TimedResidual(inp, inp),
                SpatialTransformer(inp, context, depth=max(depths[last], 1), heads=heads),
                TimedResidual(inp, inp),
            )
        )
        for level, width in reversed(list(enumerate(widths))):
            for _ in range(3):
                self.up.append(
                    nn.ModuleList((TimedResidual(inp + kept.pop(), width), attention(level, width)))
                )
                inp = width
            if level:
                self.up.append(nn.Conv2d(width, width, 3, padding=1))
        self.norm = nn.GroupNorm(32, widths[0])
        self.leave = nn.Conv2d(widths[0], 4, 3, padding=1)

    def forward(self, x: Tensor, time: Tensor, text: Tensor, vector: Tensor | None = None) -> Tensor:
        """Predicted noise."""
        steps = torch.exp(torch.arange(160, device=x.device) * -0.0576)
        angles = time[:, None].float() * steps
        embedded = self.time(torch.cat((angles.cos(), angles.sin()), 1))
        if self.extra is not None and vector is not None:
            embedded = embedded + self.extra(vector)
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


class ImageEncoder(nn.Module):
    """Encoder of Stable Diffusion's autoencoder: widths 128, 256, 512, 512, two residual units each."""

    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = [nn.Conv2d(3, 128, 3, padding=1)]
        inp = 128
        for level, width in enumerate((128, 256, 512, 512)):
            for _ in range(2):
                layers.append(PlainResidual(inp, width))
                inp = width
            if level < 3:
                layers.append(nn.Conv2d(width, width, 3, 2, 1))
        self.body = nn.Sequential(*layers)
        self.before, self.after = PlainResidual(512, 512), PlainResidual(512, 512)
        self.norm = nn.GroupNorm(32, 512)
        self.attention = Attention(512, heads=1)
        self.leave = nn.Sequential(nn.GroupNorm(32, 512), nn.SiLU(), nn.Conv2d(512, 8, 3, padding=1))

    def forward(self, images: Tensor) -> Tensor:
        """Latents of four channels."""
        x = self.before(self.body(images))
        h = self.norm(x).flatten(2).transpose(1, 2)
        x = x + self.attention(h, h).transpose(1, 2).reshape(x.shape)
        mean, _ = self.leave(self.after(x)).chunk(2, 1)
        return mean


class PlainResidual(nn.Module):
    """Group norm, SiLU, convolution twice."""

    def __init__(self, inp: int, out: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.GroupNorm(32, inp), nn.GroupNorm(32, out)
        self.conv1, self.conv2 = nn.Conv2d(inp, out, 3, padding=1), nn.Conv2d(out, out, 3, padding=1)
        self.shortcut = nn.Conv2d(inp, out, 1) if inp != out else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        """Residual sum."""
        h = self.conv2(F.silu(self.norm2(self.conv1(F.silu(self.norm1(x))))))
        return self.shortcut(x) + h


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
            heads = (3, x.shape[-1] // 64, 64)
            q, k, v = layer["qkv"](layer["norm1"](x)).unflatten(-1, heads).permute(2, 0, 3, 1, 4)
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


class ImageDiffusion(nn.Module):
    """One training step from images and captions: frozen autoencoder and text tower run in every step."""

    def __init__(self, unet: LatentUNet, text: TextEncoder) -> None:
        super().__init__()
        self.unet = unet
        self.encoder = ImageEncoder().requires_grad_(False)
        self.text = text.requires_grad_(False)

    def forward(self, images: Tensor, time: Tensor, tokens: Tensor) -> Tensor:
        """Squared error of the noise."""
        with torch.no_grad():
            latents, text = self.encoder(images), self.text(tokens)
        noise = torch.randn_like(latents)
        return F.mse_loss(self.unet(latents * 0.9 + noise * 0.1, time, text), noise)


class AdaptedLinear(nn.Module):
    """A frozen linear layer and the low-rank pair that is trained beside it."""

    def __init__(self, base: nn.Linear, rank: int) -> None:
        super().__init__()
        self.base = base
        self.down = nn.Linear(base.in_features, rank, bias=False)
        self.up = nn.Linear(rank, base.out_features, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Sum of both."""
        return self.base(x) + self.up(self.down(x))


def with_adapters(unet: LatentUNet, rank: int = 4) -> LatentUNet:
    """The U-Net frozen, with adapters of diffusers' and MindONE's rank 4 on its attention."""
    unet.requires_grad_(False)
    for module in unet.modules():
        if isinstance(module, Attention):
            for name in ("query", "key", "value", "out"):
                setattr(module, name, AdaptedLinear(getattr(module, name), rank))
    return unet


class LargeLatentDiffusion(nn.Module):
    """SDXL (Podell et al. 2023) on stored latents and text embeddings."""

    def __init__(self) -> None:
        super().__init__()
        self.unet = LatentUNet((320, 640, 1280), 2048, depths=(0, 2, 10), extra=2816)

    def forward(self, latents: Tensor, time: Tensor, text: Tensor, vector: Tensor) -> Tensor:
        """Squared error of the noise."""
        noise = torch.randn_like(latents)
        return F.mse_loss(self.unet(latents * 0.9 + noise * 0.1, time, text, vector), noise)


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


def _captioned(side: int) -> Callable[[int], tuple[Tensor, ...]]:
    return lambda batch: (image(batch, 3, side, side), index(batch), index(batch, 77))


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
    "stable-diffusion-2-base--images": _entry(
        lambda: ImageDiffusion(LatentUNet(), TextEncoder()),
        _captioned(512),
        _params(UNET_PARAMS + 340.4e6 + 34.16e6, "SD 2: U-Net, text tower less one layer, encoder 34.16M"),
        dataset="laion-5b-subset",
        image_size=512,
    ),
    "stable-diffusion-2-1": _entry(
        lambda: ImageDiffusion(LatentUNet(), TextEncoder()),
        _captioned(768),
        _params(UNET_PARAMS + 340.4e6 + 34.16e6, "SD 2.1: U-Net, text tower less one layer, encoder 34.16M"),
        dataset="laion-5b-subset",
        image_size=768,
        aliases=("stable-diffusion-2-1-768",),
    ),
    "stable-diffusion-v1-5": _entry(
        lambda: ImageDiffusion(
            LatentUNet(context=768, heads=8),
            TextEncoder(layers=12, width=768),
        ),
        _captioned(512),
        _params(859.52e6 + 123.06e6 + 34.16e6, "SD 1.5: U-Net 859.52M, CLIP-L text 123.06M, encoder 34.16M"),
        dataset="laion-5b-subset",
        image_size=512,
        aliases=("stable-diffusion-v1-4", "stable-diffusion-1-5", "sd15"),
    ),
    "stable-diffusion-v1-5-lora": _entry(
        lambda: ImageDiffusion(
            with_adapters(LatentUNet(context=768, heads=8)), TextEncoder(layers=12, width=768)
        ),
        _captioned(512),
        dataset="laion-5b-subset",
        image_size=512,
    ),
    "stable-diffusion-2-base-lora": _entry(
        lambda: ImageDiffusion(with_adapters(LatentUNet()), TextEncoder()),
        _captioned(512),
        dataset="laion-5b-subset",
        image_size=512,
    ),
    "stable-diffusion-2-1-lora": _entry(
        lambda: ImageDiffusion(with_adapters(LatentUNet()), TextEncoder()),
        _captioned(768),
        dataset="laion-5b-subset",
        image_size=768,
    ),
    "stable-diffusion-xl-base": _entry(
        LargeLatentDiffusion,
        lambda batch: (real(batch, 4, 128, 128), index(batch), real(batch, 77, 2048), real(batch, 2816)),
        _params(2567.46e6, "stabilityai/stable-diffusion-xl-base-1.0, U-Net 2567.46M"),
        dataset="laion-5b-subset",
        image_size=1024,
        aliases=("sdxl", "stable-diffusion-xl", "stable-diffusion-xl-base-1.0"),
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
