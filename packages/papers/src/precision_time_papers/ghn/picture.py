"""A map of all known architectures, colored by family; needs matplotlib (extra `plots`)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from precision_time.errors import ConfigError
from precision_time.io import packaged_toml
from precision_time.render.picture import require_matplotlib, save

from .known import KnownEmbeddings
from .weights import Floats32

_FORMATS = (".png", ".svg")
_COLORS, _MOST_COLORS = "tab20", 20
_RESOLUTION = 110


def plane(table: KnownEmbeddings) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The two directions in which standardized embeddings differ most.

    Returns:
        Positions of all graphs, shape (G, 2), and the share of the variance of each axis, shape (2,). Signs
        are fixed, so that the map does not flip from one machine to the next.
    """
    values = table.standardized(table.vectors).astype(np.float64)
    left, sizes, right = np.linalg.svd(values - values.mean(axis=0), full_matrices=False)
    signs = np.sign(right[np.arange(2), np.abs(right[:2]).argmax(axis=1)])
    return left[:, :2] * sizes[:2] * signs, sizes[:2] ** 2 / np.square(sizes).sum()


def relative_rows(table: KnownEmbeddings) -> dict[str, list[int]]:
    """Rows of each group of relatives that the table holds; groups of one are left out."""
    rows = {
        group: sorted(
            {
                table.row_of[name]
                for name in table.names
                if any(fnmatch(name, pattern) for pattern in patterns)
            }
        )
        for group, patterns in relatives()["relatives"].items()
    }
    return {group: found for group, found in rows.items() if len(found) > 1}


def relatives() -> Mapping[str, Any]:
    """Groups of related architectures by patterns of their names, and names of classifiers."""
    return packaged_toml(__package__, "data/relatives.toml")


def write_map(path: Path, table: KnownEmbeddings, *, marked: tuple[str, Floats32] | None = None) -> None:
    """Draw the map to a .png or .svg file.

    Args:
        path: The file.
        table: Known architectures.
        marked: Name and embedding of a model to show as a star.

    Raises:
        ConfigError: If the name of the file ends otherwise, or its folder does not exist.
        MissingExtraError: If matplotlib is not installed.
    """
    check_map(path)
    positions, shares = plane(table)

    def draw(figure: Any) -> None:
        axes = figure.subplots()
        _draw_families(axes, table, positions)
        _name_relatives(axes, table, positions)
        if marked is not None:
            _mark(axes, table, positions, marked)
        axes.set_xlabel(f"first direction ({100 * shares[0]:.0f} % of the variance)")
        axes.set_ylabel(f"second direction ({100 * shares[1]:.0f} %)")
        axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False, title="family (graphs)")
        figure.tight_layout()

    path.parent.mkdir(parents=True, exist_ok=True)
    save(draw, path, width=9.0, height=6.2, layout=None, font_size=8.0, dpi=_RESOLUTION)


def check_map(path: Path) -> None:
    """Refuse a file that could not be written before anything is computed.

    Raises:
        ConfigError: If its name ends otherwise than .png or .svg, or its folder does not exist.
        MissingExtraError: If matplotlib is not installed.
    """
    if path.suffix not in _FORMATS:
        raise ConfigError(f"A map cannot be written to {path}. To fix: end its name in .png or .svg.")
    if not path.absolute().parent.is_dir():
        raise ConfigError(f"{path}: its folder does not exist. To fix: create it, or name another.")
    require_matplotlib()


def _draw_families(axes: Any, table: KnownEmbeddings, positions: NDArray[np.float64]) -> None:
    from matplotlib import colormaps

    families = np.array([table.family_of[table.members[row][0]] for row in range(len(positions))])
    colors = colormaps[_COLORS](np.arange(_MOST_COLORS))
    for number, (family, count) in enumerate(Counter(families.tolist()).most_common()):
        members = positions[families == family]
        axes.scatter(
            members[:, 0], members[:, 1], s=9, alpha=0.75, linewidths=0.0,
            color=colors[number % len(colors)], label=f"{family} ({count})",
        )  # fmt: skip


def _name_relatives(axes: Any, table: KnownEmbeddings, positions: NDArray[np.float64]) -> None:
    for group, rows in relative_rows(table).items():
        place = np.median(positions[rows], axis=0)
        box = {"boxstyle": "round,pad=0.15", "fc": "white", "ec": "none", "alpha": 0.6}
        axes.annotate(group, place, ha="center", va="center", fontsize=7, fontweight="bold", bbox=box)


def _mark(
    axes: Any, table: KnownEmbeddings, positions: NDArray[np.float64], marked: tuple[str, Floats32]
) -> None:
    """A star where the plane of the known ones has the model: least squares, as the plane is linear."""
    name, vector = marked
    values = table.standardized(table.vectors).astype(np.float64)
    center = values.mean(axis=0)
    to_plane = np.linalg.lstsq(values - center, positions, rcond=None)[0]
    place = (table.standardized(vector).astype(np.float64) - center) @ to_plane
    axes.scatter(*place, marker="*", s=160, color="black", zorder=3)
    axes.annotate(name, place, xytext=(6, 6), textcoords="offset points", fontweight="bold")
