"""Logs with a JSON object per line."""

from __future__ import annotations

import json
from typing import Any

from .contract import LoggedStep, finite
from .lines import LineFormat, LineReader


class JsonLines(LineReader):
    """A JSON object per line: OpenMMLab's `*.log.json`, detectron2's metrics.json, DLLogger's."""

    _times = ("time", "step_time", "train_step_time", "iter_time", "train_step_timing in s")

    def __init__(self, form: LineFormat) -> None:
        super().__init__(form)
        self._each: dict[int, int] = {}
        self._last = (0, 0)
        self._before = 0

    def _report(self, line: str) -> LoggedStep | None:
        try:
            tree = json.loads(line[line.index("{") :])
        except (ValueError, RecursionError):
            return None
        if not isinstance(tree, dict):
            return None
        if "DLLL" in line or {"type", "step", "data"} <= tree.keys():
            return self._of_dllogger(tree)
        if tree.get("mode", "train") != "train" or "eval" in str(tree.get("mode", "")):
            return None
        time_s = next((finite(tree[name]) for name in self._times if name in tree), None)
        if isinstance(tree.get("iteration"), int):  # detectron2
            return LoggedStep(step=tree["iteration"] + 1, step_time_s=time_s) if time_s else None
        step = tree.get("step", tree.get("iter"))
        if not isinstance(step, int) or isinstance(step, bool) or time_s is None:
            return None
        if "step" not in tree and isinstance(tree.get("epoch"), int):
            step = self._of_epoch(tree["epoch"], step)
        return LoggedStep(step=step, step_time_s=time_s)

    def _of_epoch(self, epoch: int, step: int) -> int:
        """Steps done, where a log counts them in each epoch; those of an epoch are as many as it reported."""
        if epoch != self._last[0]:
            self._before += self._last[1] if self._last[0] and epoch > self._last[0] else 0
        self._last = epoch, step
        return self._before + step

    def _of_dllogger(self, tree: dict[str, Any]) -> LoggedStep | None:
        place, data = tree.get("step"), tree.get("data")
        if tree.get("type") != "LOG" or not isinstance(data, dict):
            return None
        numbers = [part for part in (place if isinstance(place, list) else [place]) if isinstance(part, int)]
        if not numbers:
            return None
        if len(numbers) > 2:  # epoch, training step, validation step
            return None
        step = self._of_epoch(numbers[0] + 1, numbers[1]) if len(numbers) > 1 else numbers[0]
        time_s = next((finite(data[name]) for name in self._times if name in data), None)
        return (
            LoggedStep(step=step, at_s=finite(tree.get("timestamp")), step_time_s=time_s)
            if step > 0
            else None
        )
