"""Networks to train a hypernetwork on, drawn at random: a small DeepNets.

After DeepNets-1M (Knyazev et al. 2021): cells, widths and depths, plain, residual, grouped, separable and
dilated convolutions, squeeze-excite, attention, gates, pooling, sums and concatenations of branches; and
networks of tokens (transformers over patches or pixels), of rows (recurrent) and plain perceptrons as well.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from torch import nn

from precision_time.cache import data
from precision_time.errors import ConfigError
from precision_time.io import packaged_toml

from . import blocks

CELL_KINDS = (
    "conv", "residual", "bottleneck", "separable", "squeeze", "dilated", "pool", "branches", "concat",
    "attention", "gated",
)  # fmt: skip
_HEADS = (1, 2, 4)
_SMALLEST_MAP = 4


@dataclass(frozen=True, kw_only=True, slots=True)
class NetworkSpace:
    """What networks are drawn from."""

    kinds: Mapping[str, float]
    """Chances of cnn, transformer, mlp and rnn."""
    widths: tuple[int, ...]
    cells: tuple[int, int]
    """Fewest and most cells or layers."""
    norms: Mapping[str, float]
    token_norms: Mapping[str, float]
    branches: tuple[int, int]
    """Fewest and most operations that meet in a cell of branches."""
    cell_kinds: tuple[str, ...] = CELL_KINDS


@dataclass(frozen=True, kw_only=True, slots=True)
class CellPlan:
    """One cell of a convolutional network."""

    kind: str
    kernel: int
    branches: tuple[str, ...] = ()
    halve: bool = False
    """Halve the side and double the width before the cell."""
    heads: int = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class NetworkPlan:
    """A network in a few words: equal plans give equal networks."""

    kind: str
    width: int
    norm: str
    cells: tuple[CellPlan, ...]
    head: str
    """mean, flat, last."""
    stem: str = ""
    gated: bool = False
    ratio: int = 2
    residual: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class ImageShape:
    """What the networks take and answer."""

    channels: int
    side: int
    classes: int


@data
def space(name: str) -> NetworkSpace:
    """A space by name: train, wide, deep, dense or norm-free.

    Raises:
        ConfigError: If there is none of that name.
    """
    table = _spaces()
    if name not in table:
        raise ConfigError(f"Unknown space {name!r}. To fix: one of {', '.join(table)}.")
    entry = dict(table[name])
    base = dict(table[entry.pop("base")]) if "base" in entry else {}
    merged: dict[str, Any] = {
        key: tuple(value) if isinstance(value, list) else value for key, value in (base | entry).items()
    }
    return NetworkSpace(**merged)


def space_names() -> tuple[str, ...]:
    """All spaces, the one for training first."""
    return tuple(_spaces())


def _spaces() -> Mapping[str, Mapping[str, Any]]:
    return packaged_toml(__package__, "data/spaces.toml")


def draw(rng: np.random.Generator, chosen: NetworkSpace) -> NetworkPlan:
    """One network at random."""
    kind = _weighted(rng, chosen.kinds)
    count = int(rng.integers(chosen.cells[0], chosen.cells[1] + 1))
    width = int(rng.choice(chosen.widths))
    if kind == "cnn":
        return _draw_cnn(rng, chosen, width, count)
    token_norm = _weighted(rng, chosen.token_norms)
    layers = tuple(CellPlan(kind="layer", kernel=1, heads=int(rng.choice(_HEADS))) for _ in range(count))
    plan = NetworkPlan(kind=kind, width=width, norm=token_norm, cells=layers, head="mean")
    if kind == "transformer":
        return replace(
            plan,
            stem="patches" if rng.random() < 0.7 else "pixels",
            gated=bool(rng.random() < 0.3),
            ratio=int(rng.choice([1, 2, 3])),
        )
    if kind == "rnn":
        return replace(
            plan,
            cells=layers[:3],
            stem="lstm" if rng.random() < 0.5 else "gru",
            head="last" if rng.random() < 0.5 else "mean",
        )
    return replace(plan, head="flat", residual=bool(rng.random() < 0.5))


def _draw_cnn(rng: np.random.Generator, chosen: NetworkSpace, width: int, count: int) -> NetworkPlan:
    simple = [kind for kind in CELL_KINDS if kind not in ("branches", "concat", "attention")]
    cells = []
    halvings = 0
    for position in range(count):
        halve = bool(position and halvings < 1 and rng.random() < 2.0 / count)
        halvings += halve
        kind = str(rng.choice(chosen.cell_kinds))
        several = int(rng.integers(chosen.branches[0], chosen.branches[1] + 1))
        cells.append(
            CellPlan(
                kind=kind,
                kernel=int(rng.choice([3, 3, 5])),
                branches=tuple(str(rng.choice(simple)) for _ in range(several)),
                halve=halve,
                heads=int(rng.choice(_HEADS)),
            )
        )
    return NetworkPlan(
        kind="cnn",
        width=width,
        norm=_weighted(rng, chosen.norms),
        cells=tuple(cells),
        head="flat" if rng.random() < 0.4 else "mean",
    )


def _weighted(rng: np.random.Generator, chances: Mapping[str, float]) -> str:
    shares = np.array(list(chances.values()), dtype=np.float64)
    return str(rng.choice(list(chances), p=shares / shares.sum()))


def build(plan: NetworkPlan, image: ImageShape) -> nn.Module:
    """The network of a plan, with torch's usual initial weights.

    Its last layer is called `head`.
    """
    builders: Mapping[str, Callable[[NetworkPlan, ImageShape], tuple[list[nn.Module], int]]] = {
        "cnn": _cnn,
        "transformer": _transformer,
        "rnn": _rnn,
        "mlp": _perceptron,
    }
    body, width = builders[plan.kind](plan, image)
    network = nn.Sequential()
    network.add_module("body", nn.Sequential(*body))
    network.add_module("head", nn.Linear(width, image.classes))
    return network


def _cnn(plan: NetworkPlan, image: ImageShape) -> tuple[list[nn.Module], int]:
    side, width = image.side, plan.width
    body = [*blocks.conv(image.channels, width, 3, plan.norm), nn.ReLU()]
    for cell in plan.cells:
        if cell.halve and side >= 2 * _SMALLEST_MAP:
            body += [*blocks.conv(width, 2 * width, 3, plan.norm, stride=2), nn.ReLU()]
            side, width = (side + 1) // 2, 2 * width
        body.append(_cell(cell.kind, cell, width, plan.norm))
    if plan.head == "flat":
        return [*body, nn.AdaptiveAvgPool2d(_SMALLEST_MAP), nn.Flatten()], width * _SMALLEST_MAP**2
    return [*body, blocks.MeanOver(2, 3)], width


def _cell(kind: str, cell: CellPlan, width: int, norm: str) -> nn.Module:
    """A cell that keeps the shape of its map."""
    kernel, conv = cell.kernel, blocks.conv
    inner = max(width // 2, 8)
    if kind == "conv":
        return nn.Sequential(*conv(width, width, kernel, norm), nn.ReLU())
    if kind == "residual":
        layers = [*conv(width, width, kernel, norm), nn.ReLU(), *conv(width, width, 3, norm)]
        return blocks.Residual(nn.Sequential(*layers))
    if kind == "bottleneck":
        grouped = conv(inner, inner, 3, norm, groups=4)
        layers = [*conv(width, inner, 1, norm), nn.ReLU(), *grouped, nn.ReLU(), *conv(inner, width, 1, norm)]
        return blocks.Residual(nn.Sequential(*layers))
    if kind in ("separable", "squeeze", "dilated"):
        dilation = 2 if kind == "dilated" else 1
        middle: list[nn.Module] = conv(
            2 * width, 2 * width, kernel, norm, groups=2 * width, dilation=dilation
        )
        extra = [blocks.SqueezeExcite(2 * width)] if kind == "squeeze" else []
        layers = [*conv(width, 2 * width, 1, norm), nn.ReLU(), *middle, nn.ReLU(), *extra]
        layers += conv(2 * width, width, 1, norm)
        return blocks.Residual(nn.Sequential(*layers), activate=False)
    if kind == "pool":
        pool = nn.MaxPool2d(3, 1, 1) if kernel == 3 else nn.AvgPool2d(3, 1, 1)
        return nn.Sequential(pool, *conv(width, width, 1, norm), nn.ReLU())
    if kind == "attention":
        return blocks.MapAttention(width, cell.heads)
    if kind == "gated":
        return blocks.Residual(blocks.GatedConv(width, norm), activate=False)
    branches = [_cell(one, cell, width, norm) for one in cell.branches]
    together = blocks.Branches(branches, concat=kind == "concat")
    if kind == "branches":
        return together
    return nn.Sequential(together, *conv(width * len(branches), width, 1, norm), nn.ReLU())


def _transformer(plan: NetworkPlan, image: ImageShape) -> tuple[list[nn.Module], int]:
    width = plan.width
    patch = max(image.side // 4, 1)
    if plan.stem == "patches":
        stem: nn.Module = blocks.Patches(image.channels, width, patch)
        tokens = (image.side // patch) ** 2
    else:
        stem, tokens = blocks.PixelTokens(width), image.side**2
    layers = [
        blocks.transformer_layer(width, cell.heads, plan.ratio, plan.norm, gated=plan.gated)
        for cell in plan.cells
    ]
    last = blocks.token_norm(plan.norm, width)
    return [stem, blocks.Positions(tokens, width), *layers, last, blocks.MeanOver(1)], width


def _rnn(plan: NetworkPlan, image: ImageShape) -> tuple[list[nn.Module], int]:
    body: list[nn.Module] = [blocks.Rows()]
    width = image.channels * image.side
    for _ in plan.cells:
        body.append(blocks.Recurrent(width, 2 * plan.width, lstm=plan.stem == "lstm"))
        width = 2 * plan.width
    return [*body, blocks.LastToken() if plan.head == "last" else blocks.MeanOver(1)], width


def _perceptron(plan: NetworkPlan, image: ImageShape) -> tuple[list[nn.Module], int]:
    width = 2 * plan.width
    body: list[nn.Module] = [nn.Flatten(), nn.Linear(image.channels * image.side**2, width), nn.ReLU()]
    for _ in plan.cells[1:]:
        layer = nn.Sequential(blocks.token_norm(plan.norm, width), nn.Linear(width, width), nn.ReLU())
        body.append(blocks.Residual(layer, activate=False) if plan.residual else layer)
    return body, width


def draw_many(seed: int, name: str, count: int) -> Sequence[NetworkPlan]:
    """Networks of a space: the same seed, space and count give the same ones."""
    rng = np.random.default_rng([seed, *name.encode()])
    return [draw(rng, space(name)) for _ in range(count)]
