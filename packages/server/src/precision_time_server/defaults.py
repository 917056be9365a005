"""Defaults beneath the fields of a job: what says the same in other words gives way to what the job says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from precision_time.request.schema import ALIASES, GLOBAL_BATCHES, RUN_LENGTHS

_PLACE = ("node_type", "intra_node", "inter_node", "network")
_REPLACES: Mapping[str, tuple[str, ...]] = {
    "batch_size": GLOBAL_BATCHES,
    "global_batch_size": ("batch_size", "global_batch_tokens"),
    "global_batch_tokens": ("batch_size", "global_batch_size"),
    "gpus": ("nodes",),
    "device": _PLACE,
    "node_type": ("device", "intra_node", "inter_node", "network"),
    "network": ("inter_node",),
    "inter_node": ("network",),
    **{name: tuple(other for other in RUN_LENGTHS if other != name) for name in RUN_LENGTHS},
}
"""Defaults that a field takes the place of where it says something else."""


def joined(defaults: Mapping[str, Any], fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a job with the defaults of its cluster beneath them.

    Args:
        defaults: By their own names.
        fields: By their own names; None stands for not given.
    """
    layout = fields.get("layout")
    given = {name: value for name, value in fields.items() if value is not None and name != "layout"}
    if isinstance(layout, Mapping):
        given = {**{ALIASES.get(name, name): value for name, value in layout.items()}, **given}
    replaced = {
        other
        for name, value in given.items()
        if defaults.get(name) != value
        for other in _REPLACES.get(name, ())
    }
    return {**{name: value for name, value in defaults.items() if name not in replaced}, **given}
