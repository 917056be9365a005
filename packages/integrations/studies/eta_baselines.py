"""What the progress bars of tqdm, Keras, Lightning and the HF Trainer say of the remaining time of a run.

    python eta_baselines.py

prints the error of each at 1, 5, 20 and 50 % of the steps of the recorded series. The libraries' own classes
run with a clock that shows the recorded times. They see what the series holds: one update per event, be it a
step or a log line. A bar that counts one epoch (Keras, Lightning) gives no time for the run: the epochs that
follow are added at its rate. After a restart in the middle of a series, every bar starts again.
"""

from __future__ import annotations

import contextlib
import io
import os
import statistics
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any
from unittest import mock

from eta_series import Series, read_series
from precision_time.capture.timm_models import import_torchvision

SHARES = (0.01, 0.05, 0.2, 0.5)
_RICH_EVERY_S = 5.0
"""rich forgets what is older than 30 s; between log lines further apart, steps are taken as even."""


class Clock:
    """Shows the recorded time."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        """Seconds since the start of the series."""
        return self.now_s


@dataclass(frozen=True)
class Update:
    """One event as a progress bar sees it."""

    index: int
    step: int
    at_s: float
    restarted: bool
    """The run went back to an earlier step: its bars are new ones, from here."""
    new_epoch: bool
    epoch_start_s: float
    epoch_first_step: int


def updates(series: Series) -> Iterator[Update]:
    """The events after the start, each with its epoch; without known epochs the run is one."""
    per_epoch = series.steps_per_epoch or series.total_steps
    epoch, epoch_start_s = -1, 0.0
    for i, (step, at_s) in enumerate(series.events[1:], 1):
        before, before_s = series.events[i - 1]
        now = max(step - 1, 0) // per_epoch
        restarted = step <= before
        new_epoch = restarted or now != epoch
        if new_epoch:
            boundary = max(now * per_epoch, series.first_step)
            known = epoch >= 0 and not restarted and before <= boundary
            epoch_start_s = _reached_s(series, i, boundary) if known else at_s if restarted else before_s
        epoch = now
        yield Update(i, step, at_s, restarted, new_epoch, epoch_start_s, now * per_epoch)


def _reached_s(series: Series, index: int, step: int) -> float:
    """When training went on from `step`, reached just before event `index`: after announced pauses."""
    (a_step, a_s), (b_step, b_s) = series.events[index - 1], series.events[index]
    inside = sorted((start, end) for start, end, _ in series.pauses if a_s <= start and end <= b_s)
    step_s = (b_s - a_s - sum(end - start for start, end in inside)) / (b_step - a_step)
    at_s = a_s + (step - a_step) * step_s
    for start, end in inside:
        if start <= at_s + step_s:
            at_s += end - start
    return min(at_s, b_s)


Estimates = Iterator[tuple[int, float | None]]
"""(index of the event, seconds left or None where the bar shows none)."""


def _of_bar(bar: Any) -> float | None:
    """Seconds left in tqdm's own text; None where it is a question mark."""
    said = bar.format_meter(**{**bar.format_dict, "bar_format": "{remaining} {remaining_s}"}).split()
    return None if said[0] == "?" else float(said[1])


def tqdm_left(series: Series, clock: Clock) -> Estimates:
    """Tqdm around the loop, with its defaults: smoothing 0.3, shown at most every 0.1 s."""
    from tqdm import tqdm

    def bar_from(step: int) -> tqdm[Any]:
        return tqdm(total=series.total_steps, initial=step, file=io.StringIO())

    with mock.patch("tqdm.std.time", clock), mock.patch.object(tqdm, "monitor_interval", 0):
        bar = bar_from(series.first_step)
        for update in updates(series):
            clock.now_s = update.at_s
            if update.restarted:
                bar.close()
                bar = bar_from(update.step)
            bar.update(update.step - bar.n)
            yield update.index, _of_bar(bar)
        bar.close()


def hf_left(series: Series, clock: Clock) -> Estimates:
    """`ProgressCallback` of the HF Trainer: tqdm over `max_steps`, which a resumed run starts from 0."""
    from tqdm import tqdm
    from transformers.trainer_callback import ProgressCallback, TrainerState

    state = TrainerState(max_steps=series.total_steps)
    with mock.patch("tqdm.std.time", clock), mock.patch.object(tqdm, "monitor_interval", 0):
        callback: Any = ProgressCallback()
        callback.on_train_begin(None, state, None)
        for update in updates(series):
            clock.now_s = update.at_s
            if update.restarted:
                callback.on_train_end(None, state, None)
                callback.on_train_begin(None, state, None)
            state.global_step = update.step
            callback.on_step_end(None, state, None)
            yield update.index, _of_bar(callback.training_bar)
        callback.on_train_end(None, state, None)


def keras_left(series: Series, clock: Clock) -> Estimates:
    """Keras' `Progbar` of the epoch, at its seconds per step; the epochs that follow at the same."""
    os.environ.setdefault("KERAS_BACKEND", "torch")
    from keras.src.utils import progbar
    from keras.utils import Progbar

    with mock.patch.object(progbar, "time", SimpleNamespace(time=clock)):
        for update in updates(series):
            if update.new_epoch:
                clock.now_s = update.epoch_start_s
                bar = Progbar(target=series.steps_per_epoch or series.total_steps)
            clock.now_s = update.at_s
            done = update.step - update.epoch_first_step
            bar.update(done, finalize=False)
            yield (
                update.index,
                bar._estimate_step_duration(done, update.at_s) * (series.total_steps - update.step),
            )


def _trainer(series: Series) -> Any:
    """What Lightning's bars ask of their trainer."""
    return SimpleNamespace(
        num_training_batches=series.steps_per_epoch or series.total_steps,
        max_epochs=1,
        max_steps=-1,
        current_epoch=0,
        global_rank=0,
        loggers=[],
        progress_bar_metrics={},
    )


def lightning_left(series: Series, clock: Clock) -> Estimates:
    """Lightning's `TQDMProgressBar`: the mean of the epoch so far; the epochs that follow at the same."""
    import_torchvision()
    from lightning.pytorch.callbacks import TQDMProgressBar
    from tqdm import tqdm

    trainer: Any = _trainer(series)
    with mock.patch("tqdm.std.time", clock), mock.patch.object(tqdm, "monitor_interval", 0):
        bars: Any = TQDMProgressBar()
        bars._trainer = trainer
        bars.on_train_start(trainer, None)
        for update in updates(series):
            if update.new_epoch:
                clock.now_s = update.epoch_start_s
                bars.on_train_epoch_start(trainer, None)
            clock.now_s = update.at_s
            bars.on_train_batch_end(trainer, None, None, None, update.step - update.epoch_first_step - 1)
            bar = bars.train_progress_bar
            left_of_epoch, elapsed_s = _of_bar(bar), bar.format_dict["elapsed"]
            later = series.total_steps - update.epoch_first_step - bar.total
            known = left_of_epoch is not None and elapsed_s > 0
            yield update.index, left_of_epoch + later * elapsed_s / bar.n if known else None
        bars.on_train_end(trainer, None)


def lightning_rich_left(series: Series, clock: Clock) -> Estimates:
    """Lightning's `RichProgressBar`: rich's speed of the last 30 s; the epochs that follow at the same."""
    import_torchvision()
    from lightning.pytorch.callbacks.progress.rich_progress import CustomProgress

    progress: Any = CustomProgress(get_time=clock, auto_refresh=False, disable=True)
    per_epoch = series.steps_per_epoch or series.total_steps
    task_id = progress.add_task("Epoch", total=per_epoch)
    task = progress.tasks[0]
    before_s, before = 0.0, 0
    for update in updates(series):
        if update.new_epoch:
            clock.now_s = before_s = update.epoch_start_s
            before = 0
            progress.reset(task_id, total=per_epoch)
        done = update.step - update.epoch_first_step
        parts = min(done - before, int((update.at_s - before_s) / _RICH_EVERY_S) + 1)
        for part in range(1, parts + 1):
            clock.now_s = before_s + (update.at_s - before_s) * part / parts
            progress.update(task_id, completed=before + (done - before) * part // parts)
        before_s, before = update.at_s, done
        speed = task.finished_speed or task.speed
        yield update.index, (series.total_steps - update.step) / speed if speed else None


def mean_left(series: Series, clock: Clock) -> Estimates:
    """Seconds since the start over steps since the start."""
    start_s, start = 0.0, series.first_step
    for update in updates(series):
        if update.restarted:
            start_s, start = update.at_s, update.step
        done = update.step - start
        left = series.total_steps - update.step
        yield update.index, (update.at_s - start_s) / done * left if done else None


def median_left(series: Series, clock: Clock) -> Estimates:
    """The median seconds per step of the last 100 events."""
    last: list[float] = []
    for update in updates(series):
        step, at_s = series.events[update.index - 1]
        if not update.restarted:
            last = [*last[-99:], (update.at_s - at_s) / (update.step - step)]
        left = series.total_steps - update.step
        yield update.index, statistics.median(last) * left if last else None


BASELINES: dict[str, Callable[[Series, Clock], Estimates]] = {
    "tqdm": tqdm_left,
    "HF Trainer": hf_left,
    "Keras": keras_left,
    "Lightning (tqdm)": lightning_left,
    "Lightning (rich)": lightning_rich_left,
    "elapsed / step": mean_left,
    "median of last 100": median_left,
}


def remaining_at(name: str, series: Series, indices: Iterable[int]) -> list[float | None]:
    """Seconds left that a baseline gives after each of these events, as ordered; None: it gives none."""
    wanted = list(indices)
    last, said = max(wanted), {}
    silent = io.StringIO()
    with contextlib.redirect_stdout(silent), contextlib.redirect_stderr(silent):
        for index, left_s in BASELINES[name](series, Clock()):
            if index in wanted:
                said[index] = left_s
            if index >= last:
                break
    return [said[index] for index in wanted]


def baseline(name: str, series: Series, upto_index: int) -> float | None:
    """Seconds left that a baseline gives after event `upto_index`, which is not the start."""
    return remaining_at(name, series, [upto_index])[0]


def errors(name: str, all_series: Sequence[Series]) -> list[list[float | None]]:
    """|error| / true remaining time, by series and then by share; None where the baseline gives no time."""
    rows = []
    for series in all_series:
        indices = [series.index_at(share) for share in SHARES]
        rows.append(
            [
                None if left_s is None else abs(left_s / series.remaining_s(i) - 1)
                for i, left_s in zip(indices, remaining_at(name, series, indices), strict=True)
            ]
        )
    return rows


def main() -> None:
    """Print the table."""
    all_series = read_series()
    print(f"{len(all_series)} series; |error| of the remaining time / the true one: median, mean, (given)")
    print(f"{'':20}" + "".join(f"{share:>24.0%}" for share in SHARES))
    for name in BASELINES:
        cells = []
        for column in zip(*errors(name, all_series), strict=True):
            given = [error for error in column if error is not None]
            cells.append(f"{statistics.median(given):9.1%} {statistics.fmean(given):8.1%} ({len(given):2})")
        print(f"{name:20}" + "".join(f"{cell:>24}" for cell in cells))


if __name__ == "__main__":
    main()
