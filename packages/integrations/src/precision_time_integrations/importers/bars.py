"""Logs with a progress bar: those of tqdm, Hugging Face's Trainer, Lightning and Keras."""

from __future__ import annotations

import re
from typing import Any

from .contract import LoggedStep, finite
from .heads import found_in
from .lines import Found, LineFormat, LineReader, count, seconds_of

_BAR = re.compile(
    r"(?<!\d)\d{1,3}%\|[^|]*\|\s*(?P<done>[\d,]+)/(?P<total>[\d,]+)\s*"
    r"\[(?P<elapsed>[\d:.]+)<(?P<left>[\d:?]+)(?:,\s*(?P<rate>[\d.]+)(?P<unit>it/s|s/it|steps?/s|batch(?:es)?/s))?"
)
"""The figures of a bar; what it is of stands before them."""
_OPEN_BAR = re.compile(r"(?P<done>\d+)it \[(?P<elapsed>[\d:.]+),\s*(?P<rate>[\d.]+)(?P<unit>it/s|s/it)")
"""A bar of a loader without a length."""
_OTHER_BARS = re.compile(
    r"(?i)\b(val\w*|eval\w*|test\w*|sanity|predict\w*|download\w*|load\w*|map|filter|token\w*|generat\w*|fetch\w*"
    r"|resolv\w*|shards?|saving|writing|preproc\w*|group\w*|running|convert\w*|extract\w*|caching|scanning"
    r"|class\s+images)\b"
)
_DIGITS = re.compile(r"\d+")
_NO_TOTAL = 10**15
_EPOCH = re.compile(r"(?i)(?:epochs?:?\s*\[?|^\s*)(\d+)(?:\s*/\s*(\d+))?")


class Bar(LineReader):
    """A tqdm bar: `123/5000 [01:02<41:00, 1.98it/s]`. Bars of evaluation and of data are told apart."""

    def __init__(self, form: LineFormat) -> None:
        super().__init__(form)
        self._kind = ""
        self._total = 0
        self._done = 0
        self._before = 0
        """Steps of bars that ended."""
        self._before_s = 0.0
        self._elapsed_s = 0.0
        self._number = ""
        """Of the epoch, as the bar says it."""
        self.epochs: int | None = None

    def _report(self, line: str) -> LoggedStep | None:
        bars = list((_BAR if "%|" in line else _OPEN_BAR).finditer(line))
        if not bars:
            return None
        begin = bars[-2].end() if len(bars) > 1 else 0  # the last bar of a line is the newest
        return self._of_bar(line[begin : bars[-1].start()], bars[-1].groupdict())

    def is_other(self, words: str, total: int) -> bool:
        """Whether a bar is none of training."""
        del total
        return bool(_OTHER_BARS.search(words))

    def _of_bar(self, words: str, bar: dict[str, Any]) -> LoggedStep | None:
        done, total, elapsed_s = count(bar["done"]) or 0, count(bar.get("total")), seconds_of(bar["elapsed"])
        if elapsed_s is None or self.is_other(words, total or 0) or done > (total or done):
            return None
        total = total or _NO_TOTAL
        kind = " ".join(_DIGITS.sub("#", words[:400]).split(":", maxsplit=1)[0].split())[:16]
        epoch = _EPOCH.search(words)
        number = epoch[1] if epoch else ""
        restarted = done < self._done or elapsed_s < self._elapsed_s or number != self._number
        if (kind, total) != (self._kind, self._total):
            inside = 0 < self._done < self._total  # of a bar that goes on: evaluation
            shorter = self._total > 0 and total < self._total and elapsed_s <= self._elapsed_s
            if inside or shorter:
                return None
            self._next_bar(same=kind == self._kind and kind != "" and total == self._total)
            self._kind, self._total = kind, total
        elif restarted:
            self._next_bar(same=self._done >= self._total or self._total == _NO_TOTAL)
        self._number = number
        if done == self._done:
            return None
        first = self._done == 0 and self._before > 0
        self._done, self._elapsed_s = done, elapsed_s
        rate = finite(bar["rate"])
        seconds = None if rate is None else rate if bar["unit"] == "s/it" else 1.0 / rate
        return LoggedStep(
            step=self._before + done,
            at_s=self._before_s + elapsed_s,
            step_time_s=seconds,
            after_pause=first,
            total_steps=self._whole(words, total),
        )

    def _next_bar(self, *, same: bool) -> None:
        """A bar begins: of the next epoch of the same training, or of another one."""
        if same:
            whole = self._done if self._total == _NO_TOTAL else self._total
            self._before, self._before_s = self._before + whole, self._before_s + self._elapsed_s
        else:
            self._before, self._before_s = 0, 0.0
        self._done, self._elapsed_s = 0, 0.0

    def _whole(self, words: str, total: int) -> int | None:
        """Steps of the whole training."""
        if total == _NO_TOTAL:
            return None
        found = _EPOCH.search(words)
        if found is not None and found[2]:
            epochs = int(found[2]) + (1 if int(found[1]) == 0 else 0)
            self.epochs = max(self.epochs or 0, epochs)
        if self.epochs:
            return self.epochs * total
        if self._before:
            return None  # a bar per epoch, of which there may be more
        return None if re.search(r"(?i)epoch", words) else total


class HfTrainer(Bar):
    """What Hugging Face's Trainer prints: its bar, its dictionaries, and what it says at the start."""

    _finished = re.compile(r"\{'train_runtime'.*\}")

    seen = False
    """Whether a line is Trainer's own, and not any bar's."""

    @property
    def certain(self) -> bool:
        """Whether a line was Trainer's own."""
        return self.seen or "Total optimization steps" in self.settings

    def is_other(self, words: str, total: int) -> bool:
        """By what Trainer says of its steps, where it does."""
        steps = count(self.settings.get("Total optimization steps"))
        return super().is_other(words, total) or (steps is not None and total != steps)

    def _report(self, line: str) -> LoggedStep | None:
        if self._finished.search(line):
            self.seen = True
            return None
        return super()._report(line)

    def _head(self, line: str) -> None:
        if "'learning_rate':" in line and "'epoch':" in line:
            self.seen = True
        for pattern in self.form.patterns("head") if " = " in line else ():
            if found := pattern.search(line):
                self.remember(found["name"], found["value"])

    def found(self) -> Found:
        """The settings as fields of a request; the devices by the batches."""
        found = found_in(self.form.described, self.settings)
        fields = found.fields
        each = fields.get("batch_size", 0) * fields.get("num_microbatches", 1)
        if each and "global_batch_size" in fields and fields["global_batch_size"] % each == 0:
            fields["gpus"] = fields["global_batch_size"] // each
        return found


class Lightning(LineReader):
    """`Epoch 0:  22%|##2 | 4/18 [00:17<01:02, 0.22it/s, v_num=0]`, or the bar that rich draws.

    Rich: `Epoch 2/2  ━━━━━━━ 40/40 0:00:01 • 0:00:00 37.56it/s v_num: 0.000`.
    """

    _epoch = re.compile(r"Epoch (\d+)(?:/(-?\d+))?:?[\s:]")
    _rich = re.compile(
        r"(?P<done>\d+)/(?P<total>\d+|--) (?P<elapsed>\d+:\d\d:\d\d) • \S+ (?P<rate>[\d.]+)(?P<unit>it/s)"
    )

    _epoch_now, _before_s, _elapsed_s = 0, 0.0, 0.0

    def _report(self, line: str) -> LoggedStep | None:
        epoch, tqdm = self._epoch.search(line), "v_num=" in line
        bar = (_BAR.search(line) or _OPEN_BAR.search(line)) if tqdm else self._rich.search(line)
        if epoch is None or bar is None or _OTHER_BARS.search(line[: epoch.start()]):
            return None
        found = bar.groupdict()
        done, total, elapsed_s = (
            count(found["done"]) or 0,
            count(found.get("total")),
            seconds_of(found["elapsed"]),
        )
        if elapsed_s is None or done == 0 or (total is not None and done > total):
            return None
        now, last = int(epoch[1]), int(epoch[2]) if epoch[2] else None
        begun = now != self._epoch_now or elapsed_s < self._elapsed_s
        if begun:
            self._before_s += self._elapsed_s
        self._epoch_now, self._elapsed_s = now, elapsed_s
        rate = finite(found["rate"])
        return LoggedStep(
            step=now * (total or 0) + done,
            at_s=self._before_s + elapsed_s,
            step_time_s=None if rate is None else rate if found["unit"] == "s/it" else 1.0 / rate,
            after_pause=begun and now > 0,
            total_steps=(last + 1) * total if last is not None and last >= 0 and total else None,
        )


class Keras(LineReader):
    """`Epoch 1/12` and `469/469 [====] - 5s 87us/step - loss: 0.34`."""

    _units = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6}
    _done, _coarse = 0, False

    def _report(self, line: str) -> LoggedStep | None:
        [pattern] = self.form.patterns("report")
        found = pattern.search(line.replace("\b", ""))
        if found is None:
            return None
        done, each, time = int(found["step"]), int(found["each"]), float(found["time"])
        if done < 2 or each < 2 or done == self._done:  # a first step says nothing; predict() has one bar
            return None
        self._coarse = self._coarse or time < 10.0
        before, self._done = (self._done if done > self._done else 0), done
        epochs = count(self.settings.get("epochs"))
        return LoggedStep(
            step=(int(self.settings.get("epoch", 1)) - 1) * each + done,
            step_time_s=time * self._units[found["unit"]] or None,
            steps=done - before,
            total_steps=epochs * each if epochs else None,
        )

    def _head(self, line: str) -> None:
        [pattern] = self.form.patterns("head")
        if found := pattern.match(line):
            self.settings, self._done = found.groupdict(), 0

    def found(self) -> Found:
        """Nothing of the job: how coarse its times are."""
        coarse = "Keras rounds the time of a step to whole units: it is known to 1 in 2 to 10 only"
        return Found(notes=[coarse] if self._coarse else [])
