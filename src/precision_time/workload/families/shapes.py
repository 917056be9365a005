"""Shapes of GPT-style models of which only the parameter count is public."""

from __future__ import annotations

from math import log

PUBLISHED_SHAPES = (
    (768, 12, 12),
    (1024, 24, 16),
    (1536, 24, 16),
    (2048, 24, 16),
    (2560, 32, 32),
    (3072, 30, 32),
    (4096, 36, 32),
    (6144, 40, 48),
    (8192, 48, 64),
    (10240, 60, 80),
    (12288, 96, 96),
    (16384, 96, 128),
    (20480, 105, 128),
    (25600, 128, 160),
)
"""(hidden, layers, heads): Brown et al. 2020 table 2.1 up to 2.7B; Narayanan et al. 2021
(arXiv 2104.04473) table 1 above."""
HEAD_DIM = 128
"""Head size of the published shapes from 2048 up."""


def shape_for(params: float, *, vocab: int, seq_len: int, hidden: int | None = None) -> dict[str, int]:
    """Hidden, layers and heads of a GPT with about `params` parameters.

    The published shape nearest in size gives width and heads, or a stated `hidden` heads of 128;
    the number of layers is fitted: params = 12·layers·hidden^2 + (vocab + seq_len)·hidden.
    """
    if hidden is None:
        hidden, _, heads = min(
            PUBLISHED_SHAPES, key=lambda s: abs(log(12 * s[1] * s[0] ** 2 + vocab * s[0]) - log(params))
        )
    else:
        heads = max(1, hidden // HEAD_DIM)
    layers = max(1, round((params - (vocab + seq_len) * hidden) / (12 * hidden**2)))
    return {"hidden": hidden, "layers": layers, "heads": heads}
