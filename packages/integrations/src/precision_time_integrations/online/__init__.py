"""The remaining time of a run that is under way: prior by the prediction, likelihood by its own steps.

>>> from precision_time_integrations.online import RunMonitor
>>> monitor = RunMonitor(total_steps=1000)
"""

from __future__ import annotations

from .eta import Eta
from .monitor import RunMonitor
from .record import RunRecord

__all__ = ["Eta", "RunMonitor", "RunRecord"]
