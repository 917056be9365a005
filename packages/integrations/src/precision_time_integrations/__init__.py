"""Where people already work: logs and trackers, tuners, schedulers, clouds."""

from __future__ import annotations

from precision_time.plugins import check_member

__version__ = "0.2.0"
check_member("precision-time-integrations", __version__)
