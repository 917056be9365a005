"""A plain PyTorch loop that says when it ends: `for batch in track(loader, model=model, epochs=3): ...`."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Generic, TypeVar

from .adapter import Adapter
from .describe import Described, processes, request_of
from .eta import Eta
from .live_run import harmless, warn_of_failure

_Batch = TypeVar("_Batch")


class track(Adapter, Generic[_Batch]):  # noqa: N801 - used like a function, as tqdm is
    """The batches of a loader, epoch after epoch, and when the loop over them will end.

    Every pass through the body of the loop is a step; with `grad_accum` every so many are.
    """

    def __init__(
        self,
        loader: Iterable[_Batch],
        *,
        model: Any = None,
        optimizer: Any = None,
        loss: Callable[..., Any] | None = None,
        forward: Callable[..., Any] | None = None,
        epochs: int = 1,
        total_steps: int | None = None,
        done: int = 0,
        grad_accum: int = 1,
        pauses: Mapping[str, int | Mapping[str, Any]] | None = None,
        bar: bool = True,
        **options: Any,
    ) -> None:
        """A loop that has not begun.

        Args:
            loader: A `DataLoader`, or anything that can be iterated over once per epoch.
            model: The module that is trained; None for no prediction before the first step.
            optimizer: What updates it.
            loss: Function of what the model returns and of the rest of a batch, such as
                `torch.nn.functional.cross_entropy`.
            forward: What one step runs, as a function of the module and the batch, where it is not the
                module called with the first parts of the batch.
            epochs: Passes over the loader, without those of earlier runs.
            total_steps: Of the run, where the loader does not know its length or the loop ends before.
            done: Steps of earlier runs that this one resumes.
            grad_accum: Batches per optimizer step.
            pauses: Pauses to come, such as `{"evaluation": 500}` for every 500 steps.
            bar: Show a progress bar, where tqdm is installed.
            options: Of `Adapter`; among the fields what cannot be read off the model: precision
                ("bf16-mixed" under autocast), recompute, zero_stage ...
        """
        super().__init__(**options)
        self.epoch = 0
        """The present one, from 0."""
        self.done = done
        """Optimizer steps done, the one under way not among them."""
        self._loader, self._epochs, self._accum = loader, max(epochs, 1), max(grad_accum, 1)
        self._total, self._pauses = total_steps, pauses
        self._stated = total_steps is not None
        self._asked = {"forward": forward, "loss": loss, "optimizer": optimizer, **self._fields}
        self._model, self._bar, self._first = model, bar, None
        self._length = _length(loader)
        self._live = self._new_run(speaks=processes().rank == 0)

    def __iter__(self) -> Iterator[_Batch]:
        """The batches of all epochs."""
        bar = _NO_BAR
        run, now, accum, length = self._live, self._live.now, self._accum, self._length
        begun = False
        try:
            for epoch in range(self._epochs):
                self.epoch = epoch
                self._tell_sampler(epoch)
                count, since_s = 0, now()
                for batch in self._loader:
                    count += 1
                    if begun:
                        run.waited_s += now() - since_s
                    else:
                        self._begin(batch)
                        begun = True
                        if self._bar and run.speaks:
                            bar = _progress_bar(self._total, self.done)
                    yield batch
                    if count % accum and count != length:
                        since_s = now()
                        continue
                    self.done += 1
                    eta = run.step(self.done)
                    since_s = run.ended_s
                    if eta is not None:
                        bar.show(self.done, eta)
                        since_s = now()
                self._learn_length(count, self._epochs - epoch - 1)
        finally:
            run.end()
            bar.close(self.done)

    def changed(self, batch: Any = None, *, total_steps: int | None = None, **fields: Any) -> None:
        """From the next step on something is different.

        Args:
            batch: One of the new shape.
            total_steps: Of the whole run.
            fields: In the words of `predict_time`, such as `precision="fp32"`.
        """
        self._asked |= fields
        if total_steps is not None:
            self._total, self._stated = total_steps, True
        self._first = self._first if batch is None else batch
        describe = self._describe if self._model is not None else None
        self._live.changed(describe, total_steps=total_steps)

    @property
    def step(self) -> int:
        """Number of the optimizer step under way, from 1."""
        return self.done + 1

    @property
    def eta(self) -> Eta:
        """The remaining time as it is known now."""
        return self._live.eta()

    def _tell_sampler(self, epoch: int) -> None:
        """Else a distributed sampler has the same order in every epoch."""
        sampler: Any = getattr(self._loader, "sampler", None)
        if self._epochs > 1 and hasattr(sampler, "set_epoch"):
            sampler.set_epoch(epoch)

    def _learn_length(self, batches: int, epochs: int) -> None:
        """After an epoch of a stream: the others are taken to be as long."""
        if self._length is None and not self._stated and batches:
            self._total = self.done + self._steps_of(batches) * epochs
            self._live.changed(total_steps=self._total)

    def _steps_of(self, batches: int) -> int:
        return -(-batches // self._accum)

    def _begin(self, batch: Any) -> None:
        self._first = batch
        if self._total is None and self._length is not None:
            self._total = self.done + self._steps_of(self._length) * self._epochs
        self._live.begin(
            self._describe if self._model is not None else None,
            total_steps=self._total,
            done=self.done,
            pauses=self._pauses,
        )

    def _describe(self) -> Described:
        fields = {"num_microbatches": self._accum, "steps": self._total or None, **self._asked}
        return request_of(self._model, batch=self._first, **fields)


def _length(loader: Any) -> int | None:
    """Batches of an epoch; None for an `IterableDataset` and other streams."""
    try:
        return len(loader)
    except Exception:  # noqa: BLE001 - a loop without us does not ask
        return None


class _NoBar:
    """In the place of a progress bar where there is none."""

    def show(self, done: int, eta: Eta) -> None:
        """Nothing."""

    def close(self, done: int) -> None:
        """Nothing."""


class _TqdmBar(_NoBar):
    """A bar of tqdm, with our remaining time in the place of its own."""

    def __init__(self, tqdm: Any, total: int | None, done: int) -> None:
        form = "{percentage:3.0f}%|{bar}| {n_fmt}/{total_fmt} [{elapsed}{postfix}]"
        self.failure = ""
        """Why it is not shown any more; empty while it is."""
        self._bar = tqdm(
            total=total, initial=done, unit="step", dynamic_ncols=True, bar_format=form if total else None
        )

    def turn_off(self, error: Exception) -> None:
        """Show nothing any more, with one warning: the error stream is full, closed, read by nobody ..."""
        self._bar.disable = True
        self.failure = warn_of_failure(error, of=_BAR_OFF)

    @harmless
    def show(self, done: int, eta: Eta) -> None:
        """Steps done, and the remaining time."""
        self._bar.total = eta.total_steps
        self._bar.set_postfix_str(eta.text, refresh=False)
        self._bar.update(done - self._bar.n)

    @harmless
    def close(self, done: int) -> None:
        """Leave the bar as it is."""
        self._bar.set_postfix_str("", refresh=False)
        self._bar.update(done - self._bar.n)
        self._bar.close()


_NO_BAR = _NoBar()
_BAR_OFF = "The progress bar is not shown"


def _progress_bar(total: int | None, done: int) -> _NoBar:
    try:
        tqdm = importlib.import_module("tqdm.auto").tqdm
        return _TqdmBar(tqdm, total, done)
    except ImportError:
        return _NO_BAR
    except Exception as error:  # noqa: BLE001 - of the error stream; whatever it is, the run goes on
        warn_of_failure(error, of=_BAR_OFF)
        return _NO_BAR
