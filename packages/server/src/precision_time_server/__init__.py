"""The HTTP service: predictions where pipelines and people ask for them."""

from __future__ import annotations

from precision_time.plugins import check_member

__version__ = "0.2.0"
check_member("precision-time-server", __version__)
