"""Seconds of collective operations: one file per algorithm, the choice between them in `choose`."""

from .all_to_all import send
from .choose import (
    LinesOf,
    all_gather_lines,
    all_reduce_lines,
    all_to_all_lines,
    broadcast_lines,
    collective_s,
    early_all_reduce_lines,
)
from .line import Line, Lines, min_time_s
from .link import LinkParams, Torus, fabric_share, link_kind, link_params
from .torus import sub_torus

__all__ = ["LinesOf", "all_gather_lines", "all_reduce_lines", "all_to_all_lines", "broadcast_lines"]
__all__ += ["early_all_reduce_lines", "Line", "Lines", "collective_s", "min_time_s", "send"]
__all__ += ["LinkParams", "Torus", "fabric_share", "link_kind", "link_params", "sub_torus"]
