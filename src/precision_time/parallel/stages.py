"""Which layers a pipeline stage holds."""

from __future__ import annotations

from .layout import Layout


def layers_of_stages(num_layers: int, layout: Layout) -> tuple[int, ...]:
    """Layers of each stage, first to last; they add up to `num_layers`.

    Stated ones as they are. Otherwise as even as possible: where the layers do not divide, stages in the
    middle take one more, since the first also embeds and the last also computes the loss.

    >>> layers_of_stages(32, Layout(pp=4)), layers_of_stages(10, Layout(pp=4))
    ((8, 8, 8, 8), (2, 3, 3, 2))
    """
    if layout.stage_layers:
        return layout.stage_layers
    least, left = divmod(num_layers, layout.pp)
    by_need = sorted(range(layout.pp), key=lambda stage: (stage == layout.pp - 1) * 2 + (stage == 0))
    more = set(by_need[:left])
    return tuple(least + (stage in more) for stage in range(layout.pp))
