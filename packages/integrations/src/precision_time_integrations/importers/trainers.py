"""Logs of trainers with a bar or a line per interval: HF, Lightning, Keras, fairseq, OpenMMLab ..."""

from __future__ import annotations

import re
from typing import Any

from .contract import LoggedStep, finite
from .json_lines import JsonLines
from .lines import Found, LineFormat, LineReader, count, number_after, seconds_of, time_of

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

    # Source: tqdm/std.py (format_meter): the rate is an exponential mean, elapsed time is in whole seconds.
    sign: tuple[str, ...] = ("it/s", "s/it", "step/s", "steps/s", "batch/s", "batches/s")
    clock_resolution_s = 1.0

    def __init__(self) -> None:
        super().__init__()
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

    # Source: transformers/trainer.py ("***** Running training *****", speed_metrics), trainer_callback.py.
    sign: tuple[str, ...] = (*Bar.sign, "'train_runtime'", "'learning_rate'")
    begins: tuple[str, ...] = ("***** Running training *****",)
    ends: tuple[str, ...] = ("'train_runtime'", "Training completed. Do not forget to share your model")
    _said = re.compile(
        r"(Instantaneous batch size per device|Total train batch size \([^)]*\)|Gradient Accumulation steps"
        r"|Total optimization steps) = ([\d,]+)"
    )
    _names = {
        "Instantaneous batch size per device": "batch_size",
        "Gradient Accumulation steps": "num_microbatches",
    }
    _total_batch = "Total train batch size (w. parallel, distributed & accumulation)"
    _finished = re.compile(r"\{'train_runtime'.*\}")

    def __init__(self) -> None:
        super().__init__()
        self.seen = False
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
        if " = " in line and (found := self._said.search(line)):
            self.remember(found[1], found[2])

    def _found(self) -> Found:
        found = Found()
        for name, field in self._names.items():
            if number := count(self.settings.get(name)):
                found.fields[field] = number
        if number := count(self.settings.get(self._total_batch)):
            found.fields["global_batch_size"] = number
            each = found.fields.get("batch_size", 0) * found.fields.get("num_microbatches", 1)
            if each and number % each == 0:
                found.fields["gpus"] = number // each
        return found


class Lightning(LineReader):
    """`Epoch 0:  22%|##2 | 4/18 [00:17<01:02, 0.22it/s, v_num=0]`, or the bar that rich draws.

    Rich: `Epoch 2/2  ━━━━━━━ 40/40 0:00:01 • 0:00:00 37.56it/s v_num: 0.000`.
    """

    # Source: tqdm_progress.py and rich_progress.py of lightning/pytorch/callbacks/progress: a bar per epoch;
    # its second number, where there is one, is the last epoch.
    sign: tuple[str, ...] = ("Epoch ",)
    ends: tuple[str, ...] = ("`Trainer.fit` stopped",)
    clock_resolution_s = 1.0
    _epoch = re.compile(r"Epoch (\d+)(?:/(-?\d+))?:?[\s:]")
    _rich = re.compile(
        r"(?P<done>\d+)/(?P<total>\d+|--) (?P<elapsed>\d+:\d\d:\d\d) • \S+ (?P<rate>[\d.]+)(?P<unit>it/s)"
    )

    def __init__(self) -> None:
        super().__init__()
        self._epoch_now, self._before_s, self._elapsed_s = 0, 0.0, 0.0

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

    # Source: keras/src/utils/progbar.py: the mean since the first step of the epoch, in whole units.
    sign: tuple[str, ...] = ("/step", "Epoch ")
    _epoch = re.compile(r"^Epoch (\d+)/(\d+)\s*$")
    _step = re.compile(r"(\d+)/(\d+)\s.*?(?:(?<!\S)([\d:]+)s? )?(\d+(?:\.\d+)?)(s|ms|us|µs)/step")
    _units = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6}

    def __init__(self) -> None:
        super().__init__()
        self._epoch_now, self._done = 1, 0
        self._epochs: int | None = None
        self.coarse = False

    def _report(self, line: str) -> LoggedStep | None:
        found = self._step.search(line.replace("\b", ""))
        if found is None:
            return None
        done, total = int(found[1]), int(found[2])
        if (
            done < 2 or total < 2 or done == self._done
        ):  # a first step says nothing, and predict() has one bar
            return None
        self.coarse = self.coarse or (float(found[4]) < 10.0)
        before, self._done = (self._done if done > self._done else 0), done
        return LoggedStep(
            step=(self._epoch_now - 1) * total + done,
            step_time_s=float(found[4]) * self._units[found[5]] or None,
            steps=done - before,
            total_steps=self._epochs * total if self._epochs else None,
        )

    def _head(self, line: str) -> None:
        if found := self._epoch.match(line.strip()):
            self._epoch_now, self._epochs, self._done = int(found[1]), int(found[2]), 0

    def _found(self) -> Found:
        found = Found()
        if self.coarse:
            found.notes.append(
                "Keras rounds the time of a step to whole units: it is known to 1 in 2 to 10 only"
            )
        return found


class Fairseq(LineReader):
    """`epoch 001:  2800 / 160368 loss=9.2, ..., ups=0.04, ..., num_updates=2800, ..., wall=1236`, or JSON."""

    # Source: fairseq/logging/progress_bar.py; wall is the elapsed time since the start, in whole seconds.
    sign: tuple[str, ...] = ("num_updates",)
    ends: tuple[str, ...] = ("done training in",)
    clock_resolution_s = 1.0
    _devices = re.compile(r"training on (\d+) (?:GPUs|devices)")
    _most = re.compile(r"max_update['\"]?[=:] ?(\d+)")
    _sentences = re.compile(r"(?:max sentences|batch size) per (?:GPU|device) = (\d+)")
    _reported = False
    _world = re.compile(r"distributed_world_size['\"]?[=:] ?(\d+)")

    def _report(self, line: str) -> LoggedStep | None:
        if "valid" in line.split("num_updates", maxsplit=1)[0]:
            return None
        text = line.replace('"', "").replace("'", "")
        updates = number_after(text, "num_updates")
        if updates is None:
            return None
        rate, alone = number_after(text, "ups"), not self._reported
        self._reported = True
        return LoggedStep(
            step=int(updates),
            at_s=number_after(text, "wall"),
            step_time_s=1.0 / rate if rate and alone else None,  # rounded; wall says more of the others
            total_steps=count(self.settings.get("max_update")),
        )

    def _head(self, line: str) -> None:
        for name, pattern in (("gpus", self._devices), ("max_update", self._most), ("world", self._world),
                              ("sentences", self._sentences)):  # fmt: skip
            if found := pattern.search(line):
                self.remember(name, found[1])
        if "fp16=True" in line or "'fp16': True" in line:
            self.remember("fp16", "True")

    def _found(self) -> Found:
        found = Found()
        if gpus := count(self.settings.get("gpus")) or count(self.settings.get("world")):
            found.fields["gpus"] = gpus
        if batch := count(self.settings.get("sentences")):
            found.fields["batch_size"] = batch
        if "fp16" in self.settings:
            found.fields["precision"] = "fp16-mixed"
        return found


class OpenMmlab(LineReader):
    """`Epoch [1][50/7330] lr: 0.02, ..., time: 1.090, data_time: 0.015`, or `Epoch(train) [1][50/7330]`."""

    # Source: mmcv/runner/hooks/logger/text.py, mmengine/runner/log_processor.py: a mean over the interval.
    sign: tuple[str, ...] = (" time: ",)
    _epoch = re.compile(r"Epoch(?:\(train\))?\s+\[(\d+)\]\[\s*(\d+)/(\d+)\]")
    _iter = re.compile(r"Iter(?:\(train\))? \[\s*(\d+)/(\d+)\]")
    _most = re.compile(r"max_epochs[=:]\s*(\d+)")
    _samples = re.compile(r"(?:samples_per_gpu|batch_size)\s*[=:]\s*(\d+)")
    _gpu = re.compile(r"GPU 0(?:,\d+)*: ([\w .-]+)")

    def _report(self, line: str) -> LoggedStep | None:
        time_s = number_after(line, " time:") or number_after(line, "time:")
        if found := self._epoch.search(line):
            epoch, each = int(found[1]), int(found[3])
            most = count(self.settings.get("max_epochs"))
            return LoggedStep(
                step=(epoch - 1) * each + int(found[2]),
                step_time_s=time_s,
                at_s=time_of(line),
                total_steps=most * each if most else None,
            )
        if found := self._iter.search(line):
            return LoggedStep(
                step=int(found[1]), step_time_s=time_s, at_s=time_of(line), total_steps=count(found[2])
            )
        return None

    def _head(self, line: str) -> None:
        for name, pattern in (("max_epochs", self._most), ("batch_size", self._samples), ("gpu", self._gpu)):
            if (found := pattern.search(line)) and name not in self.settings:
                self.remember(name, found[1])

    def _found(self) -> Found:
        from .settings import known_device

        found = Found()
        if batch := count(self.settings.get("batch_size")):
            found.fields["batch_size"] = batch
        if device := known_device(self.settings.get("gpu", "")):
            found.fields["device"] = device
        return found


class Detectron2(LineReader):
    """`[11/01 11:27:04 d2.utils.events]: eta: 8:05:12  iter: 1259  total_loss: 1.0  time: 0.3322  ...`."""

    # Source: detectron2/utils/events.py (CommonMetricPrinter): time is the mean since the start, iterations
    # count from 0; newer versions have last_time too. The time of the line says more.
    sign: tuple[str, ...] = ("data_time:",)
    ends: tuple[str, ...] = ("Total training time:",)
    clock_resolution_s = 1.0
    _step = re.compile(r"\biter: (\d+)\s")
    _batch = re.compile(r"IMS_PER_BATCH: (\d+)")
    _most = re.compile(r"MAX_ITER: (\d+)")

    def _report(self, line: str) -> LoggedStep | None:
        found = self._step.search(line)
        if found is None or "total_loss" not in line:
            return None
        return LoggedStep(
            step=int(found[1]) + 1,
            at_s=time_of(line),
            step_time_s=number_after(line, "last_time:") or number_after(line, " time:"),
            total_steps=count(self.settings.get("MAX_ITER")),
        )

    def _head(self, line: str) -> None:
        for name, pattern in (("IMS_PER_BATCH", self._batch), ("MAX_ITER", self._most)):
            if found := pattern.search(line):
                self.remember(name, found[1])

    def _found(self) -> Found:
        batch = count(self.settings.get("IMS_PER_BATCH"))
        return Found(fields={"global_batch_size": batch} if batch else {})


_SHAPES: tuple[tuple[str, str, type[LineReader]], ...] = (
    ("fairseq", "fairseq: epoch 001: 2800 / 160368 ... num_updates=2800", Fairseq),
    ("openmmlab", "mmdetection and others: Epoch [1][50/7330] ... time: 1.09", OpenMmlab),
    ("detectron2", "detectron2: eta: 8:05:12  iter: 1259 ... data_time: 0.03", Detectron2),
    ("json-lines", "a JSON object per line: OpenMMLab, detectron2, DLLogger", JsonLines),
    ("keras", "Keras: 469/469 [====] - 5s 87us/step", Keras),
    ("lightning", "Lightning: Epoch 0: 22%|##2 | 4/18 [00:17<01:02, 0.22it/s, v_num=0]", Lightning),
    ("hf-log", "Hugging Face Trainer: its bar and its {'loss': ...} lines", HfTrainer),
    ("tqdm", "any tqdm bar: 123/5000 [01:02<41:00, 1.98it/s]", Bar),
)
FORMATS = tuple(
    LineFormat(name=name, description=text, reader=reader, generic=reader in (HfTrainer, Bar))
    for name, text, reader in _SHAPES
)
