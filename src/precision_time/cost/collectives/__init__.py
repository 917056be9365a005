"""Seconds of collective operations: one file per algorithm, the choice between them in `choose`."""

from .choose import (
    all_gather_lines as all_gather_lines,
)
from .choose import (
    all_gather_s as all_gather_s,
)
from .choose import (
    all_reduce_lines as all_reduce_lines,
)
from .choose import (
    all_reduce_s as all_reduce_s,
)
from .choose import (
    all_to_all_lines as all_to_all_lines,
)
from .choose import (
    all_to_all_s as all_to_all_s,
)
from .choose import (
    broadcast_s as broadcast_s,
)
from .choose import (
    point_to_point_s as point_to_point_s,
)
from .choose import (
    reduce_scatter_s as reduce_scatter_s,
)
from .line import Line as Line
from .line import Lines as Lines
from .line import Number as Number
from .line import min_time_s as min_time_s
from .link import LinkParams as LinkParams
from .link import Torus as Torus
from .link import fabric_share as fabric_share
from .link import link_kind as link_kind
from .link import link_params as link_params
from .link import stack_links as stack_links
from .torus import sub_torus as sub_torus
