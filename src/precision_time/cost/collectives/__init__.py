"""Seconds of collective operations: one file per algorithm, the choice between them in `choose`."""

from .choose import (
    all_gather_lines,
    all_gather_s,
    all_reduce_lines,
    all_reduce_s,
    all_to_all_lines,
    all_to_all_s,
    broadcast_s,
    point_to_point_s,
    reduce_scatter_s,
)
from .line import Line, Lines, Number, min_time_s
from .link import LinkParams, Torus, fabric_share, link_kind, link_params, stack_links
from .torus import sub_torus

__all__ = ["all_gather_lines", "all_reduce_lines", "all_to_all_lines", "sub_torus"]
__all__ += ["all_gather_s", "all_reduce_s", "all_to_all_s", "broadcast_s", "point_to_point_s"]
__all__ += ["reduce_scatter_s"]
__all__ += ["Line", "Lines", "Number", "min_time_s"]
__all__ += ["LinkParams", "Torus", "fabric_share", "link_kind", "link_params", "stack_links"]
