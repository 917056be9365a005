"""Logs with a line per interval, read as the `log` part of `projects/data` describes them.

Patterns are regular expressions whose groups say what they hold (`{N}` stands for a number): `step` done or
`index` of it from 0, `total` or `last` index, `epoch` with `each` step of one (`first_epoch`: 1 if not said),
`s` or `ms` of a step (`si`: K, M, G), `rate` of steps, `samples_per_s`, `batch`, `wall` seconds since the
start. `report`: the first that is found counts, and without one the line reports nothing; `more`: all that
are found; `head`: settings, as groups or as `name` and `value`; `not`: no report after all; `pause`: the next
report holds something else.

A format says of its settings: `fields`, our names to theirs; `says`, rows of setting, printed value, field
and our value; `device`, `model`, `sizes` with `kinds`; a `launcher` whose program printed its arguments
(`heads.py`).
"""

from __future__ import annotations

from .contract import LoggedStep, finite
from .heads import found_in
from .lines import Found, LineReader, count, number, time_of

_SI = {"": 1.0, "K": 1e3, "M": 1e6, "G": 1e9}


class DescribedLog(LineReader):
    """Reads a log as its description says."""

    paused = reported = False

    def _report(self, line: str) -> LoggedStep | None:
        said = self._said(line)
        return None if said is None else self._step(line, said)

    def _said(self, line: str) -> dict[str, str] | None:
        """What a line that reports progress holds, by the names of groups."""
        found = next(filter(None, (pattern.search(line) for pattern in self.form.patterns("report"))), None)
        if found is None or any(pattern.search(line) for pattern in self.form.patterns("not")):
            return None
        said = {name: text for name, text in found.groupdict().items() if text is not None}
        for pattern in self.form.patterns("more"):
            if more := pattern.search(line):
                said = more.groupdict() | said
        return said

    def _step(self, line: str, said: dict[str, str]) -> LoggedStep | None:
        described = self.form.described
        done = number(said["step"]) if "step" in said else (number(said["index"]) or 0) + 1
        each = count(said.get("each"))
        total = count(said.get("total")) or count(self.settings.get(described.get("total", "")))
        if "last" in said:
            total = int(said["last"]) + 1
        if each:
            epochs = count(self.settings.get(described.get("total_epochs", "")))
            before = int(said["epoch"]) - described.get("first_epoch", 1)
            done, total = before * each + (done or 0), epochs * each if epochs else None
        time_s = finite(said.get("s")) or (finite(said.get("ms")) or 0.0) * _SI[said.get("si", "")] / 1e3
        if rate := finite(said.get("rate")):
            time_s = 1.0 / rate
        if described.get("rounded") and self.reported:
            time_s = 0.0
        paused, self.paused, self.reported = self.paused, False, True
        return LoggedStep(
            step=int(done or 0),
            at_s=finite(said.get("wall")) or (time_of(line) if described.get("clock") else None),
            step_time_s=time_s or None,
            steps=1 if described.get("each_step") else None,
            samples_per_s=finite(said.get("samples_per_s")),
            global_batch_size=number(said.get("batch")),
            total_steps=total,
            after_pause=paused,
        )

    def _head(self, line: str) -> None:
        if any(pattern.search(line) for pattern in self.form.patterns("pause")):
            self.paused = True
        for pattern in self.form.patterns("head"):
            for found in pattern.finditer(line):
                said = {name: text for name, text in found.groupdict().items() if text is not None}
                if "value" in said:
                    said = {said["name"].replace("-", "_").replace(" ", "_"): said["value"]}
                for name, text in said.items():
                    if not (self.form.described.get("keep_first") and name in self.settings):
                        self.remember(name, text)

    def found(self) -> Found:
        """The settings as fields of a request."""
        return found_in(self.form.described, self.settings)
