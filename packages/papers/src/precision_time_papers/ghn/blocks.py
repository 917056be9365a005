"""Building blocks of sampled networks: images (batch, channels, side, side) in, class scores out.

Shapes below: B batch, C channels, S side of the map, T tokens, W width of a token.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

_GROUPS = 4
_SQUEEZE = 4
PIXEL_LEVELS = 17
"""Tokens that the value of a pixel is rounded to: digits have 17 shades."""
_WIDEST_VALUE = 2.0
"""Standardized pixels beyond so many deviations are the outermost tokens."""


def norm(kind: str, width: int) -> nn.Module:
    """A normalization of feature maps: bn, group, or none."""
    if kind == "bn":
        return nn.BatchNorm2d(width, track_running_stats=False)
    return nn.GroupNorm(_GROUPS, width) if kind == "group" else nn.Identity()


def conv(wide: int, narrow: int, kernel: int, kind: str, **options: Any) -> list[nn.Module]:
    """Convolution and norm; the convolution has a bias where there is no norm."""
    padding = options.get("dilation", 1) * (kernel // 2)
    layer = nn.Conv2d(wide, narrow, kernel, padding=padding, bias=kind == "none", **options)
    return [layer, norm(kind, narrow)]


class Residual(nn.Module):  # type: ignore[misc]
    """x + inner(x), and a ReLU unless `activate` is False."""

    def __init__(self, inner: nn.Module, *, activate: bool = True) -> None:
        super().__init__()
        self.inner, self.activate = inner, activate

    def forward(self, x: Any) -> Any:
        """(B, C, S, S) or (B, T, W), shape unchanged."""
        y = x + self.inner(x)
        return F.relu(y) if self.activate else y


class SqueezeExcite(nn.Module):  # type: ignore[misc]
    """Channels weighed by what their means say (Hu et al. 2018)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.down = nn.Conv2d(width, max(width // _SQUEEZE, 4), 1)
        self.up = nn.Conv2d(max(width // _SQUEEZE, 4), width, 1)

    def forward(self, x: Any) -> Any:
        """(B, C, S, S), shape unchanged."""
        squeezed = x.mean((2, 3), keepdim=True)
        return x * torch.sigmoid(self.up(F.relu(self.down(squeezed))))


class Branches(nn.Module):  # type: ignore[misc]
    """Several operations on one map, added up or laid side by side."""

    def __init__(self, branches: Sequence[nn.Module], *, concat: bool) -> None:
        super().__init__()
        self.branches, self.concat = nn.ModuleList(branches), concat

    def forward(self, x: Any) -> Any:
        """(B, C, S, S) to (B, C, S, S), or (B, n C, S, S) side by side."""
        results = [branch(x) for branch in self.branches]
        if self.concat:
            return torch.cat(results, 1)
        total = results[0]
        for result in results[1:]:
            total = total + result
        return total


class GatedConv(nn.Module):  # type: ignore[misc]
    """A convolution multiplied by the sigmoid of another (Dauphin et al. 2017)."""

    def __init__(self, width: int, kind: str) -> None:
        super().__init__()
        self.value = nn.Sequential(*conv(width, width, 3, kind))
        self.gate = nn.Conv2d(width, width, 1)

    def forward(self, x: Any) -> Any:
        """(B, C, S, S), shape unchanged."""
        return self.value(x) * torch.sigmoid(self.gate(x))


def token_norm(kind: str, width: int) -> nn.Module:
    """A normalization of tokens: ln, rms, or none."""
    makers: dict[str, Callable[[int], nn.Module]] = {"ln": nn.LayerNorm, "rms": nn.RMSNorm}
    return makers[kind](width) if kind in makers else nn.Identity()


class Attention(nn.Module):  # type: ignore[misc]
    """Self-attention with one fused projection."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: Any) -> Any:
        """(B, T, W), shape unchanged."""
        batch, tokens, width = x.shape
        qkv = self.qkv(x).view(batch, tokens, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(qkv[0], qkv[1], qkv[2])
        return self.out(y.transpose(1, 2).reshape(batch, tokens, width))


class GatedMlp(nn.Module):  # type: ignore[misc]
    """A gated linear unit (Shazeer 2020)."""

    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.gate, self.up, self.down = (
            nn.Linear(width, inner), nn.Linear(width, inner), nn.Linear(inner, width),
        )  # fmt: skip

    def forward(self, x: Any) -> Any:
        """(B, T, W), shape unchanged."""
        return self.down(F.silu(self.gate(x)) * self.up(x))


def transformer_layer(width: int, heads: int, ratio: int, kind: str, *, gated: bool) -> nn.Module:
    """Pre-norm attention and feed-forward, each with a residual."""
    inner = width * ratio
    feed = GatedMlp(width, inner) if gated else _mlp(width, inner)
    return nn.Sequential(
        Residual(nn.Sequential(token_norm(kind, width), Attention(width, heads)), activate=False),
        Residual(nn.Sequential(token_norm(kind, width), feed), activate=False),
    )


def _mlp(width: int, inner: int) -> nn.Module:
    return nn.Sequential(nn.Linear(width, inner), nn.GELU(), nn.Linear(inner, width))


class MapAttention(nn.Module):  # type: ignore[misc]
    """A transformer layer over the places of a feature map."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.layer = transformer_layer(width, heads, 2, "ln", gated=False)

    def forward(self, x: Any) -> Any:
        """(B, C, S, S), shape unchanged."""
        batch, width, height, side = x.shape
        tokens = self.layer(x.flatten(2).transpose(1, 2))
        return tokens.transpose(1, 2).reshape(batch, width, height, side)


class Positions(nn.Module):  # type: ignore[misc]
    """A learned table added to the tokens."""

    def __init__(self, tokens: int, width: int) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.zeros(1, tokens, width))

    def forward(self, x: Any) -> Any:
        """(B, T, W), shape unchanged."""
        return x + self.table


class Patches(nn.Module):  # type: ignore[misc]
    """Patches of the image as tokens."""

    def __init__(self, channels: int, width: int, side: int) -> None:
        super().__init__()
        self.cut = nn.Conv2d(channels, width, side, stride=side)

    def forward(self, x: Any) -> Any:
        """(B, C, S, S) to (B, T, W)."""
        return self.cut(x).flatten(2).transpose(1, 2)


class PixelTokens(nn.Module):  # type: ignore[misc]
    """The shade of each pixel as a word: a table of embeddings."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.words = nn.Embedding(PIXEL_LEVELS, width)

    def forward(self, x: Any) -> Any:
        """(B, C, S, S) to (B, S S, W); channels are averaged first."""
        grey = x.mean(1).flatten(1)
        shade = (grey + _WIDEST_VALUE) * ((PIXEL_LEVELS - 1) / (2 * _WIDEST_VALUE))
        return self.words(shade.round().clamp(0, PIXEL_LEVELS - 1).long())


class Rows(nn.Module):  # type: ignore[misc]
    """The rows of the image as a sequence."""

    def forward(self, x: Any) -> Any:
        """(B, C, S, S) to (B, S, C S)."""
        return x.permute(0, 2, 1, 3).flatten(2)


class Recurrent(nn.Module):  # type: ignore[misc]
    """One GRU or LSTM layer; its parameters are plain attributes, so that predicted ones take their place."""

    def __init__(self, width: int, hidden: int, *, lstm: bool) -> None:
        super().__init__()
        gates = 4 if lstm else 3
        self.hidden, self.lstm = hidden, lstm
        bound = hidden**-0.5
        self.weight_ih = nn.Parameter(torch.empty(gates * hidden, width).uniform_(-bound, bound))
        self.weight_hh = nn.Parameter(torch.empty(gates * hidden, hidden).uniform_(-bound, bound))
        self.bias_ih = nn.Parameter(torch.zeros(gates * hidden))
        self.bias_hh = nn.Parameter(torch.zeros(gates * hidden))

    def forward(self, x: Any) -> Any:
        """(B, T, W) to (B, T, hidden)."""
        start = x.new_zeros(1, x.shape[0], self.hidden)
        parameters = [self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh]
        if self.lstm:
            return torch.lstm(x, (start, start), parameters, True, 1, 0.0, self.training, False, True)[0]
        return torch.gru(x, start, parameters, True, 1, 0.0, self.training, False, True)[0]


class MeanOver(nn.Module):  # type: ignore[misc]
    """The mean over tokens, or over the places of a map."""

    def __init__(self, *dims: int) -> None:
        super().__init__()
        self.dims = dims

    def forward(self, x: Any) -> Any:
        """(B, T, W) or (B, C, S, S) to (B, W) or (B, C)."""
        return x.mean(self.dims)


class LastToken(nn.Module):  # type: ignore[misc]
    """The last token of a sequence."""

    def forward(self, x: Any) -> Any:
        """(B, T, W) to (B, W)."""
        return x[:, -1]
