"""Whatever breaks beside a training (its error stream, a clock, a handler), the training goes on."""

from __future__ import annotations

import io
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from precision_time_integrations.online import live_run
from precision_time_integrations.online.adapter import Adapter
from precision_time_integrations.online.live_run import LiveRun, Options
from precision_time_integrations.online.pytorch import track


class Raising(io.TextIOBase):
    """A stream whose every write fails in its own way."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def write(self, _text: str) -> int:
        raise self.error

    def flush(self) -> None:
        raise self.error


def closed() -> Any:
    stream = io.StringIO()
    stream.close()
    return stream


def full() -> Any:
    if not Path("/dev/full").exists():
        pytest.skip("the system has no /dev/full")
    return open("/dev/full", "w", encoding="utf-8", buffering=1)


def broken_pipe() -> Any:
    reading, writing = os.pipe()
    os.close(reading)
    return os.fdopen(writing, "w", encoding="utf-8", buffering=1)


STREAMS: dict[str, Callable[[], Any]] = {
    "full": full,
    "closed": closed,
    "absent": lambda: None,
    "broken pipe": broken_pipe,
    "value": lambda: Raising(ValueError("I/O operation on closed file")),
    "any": lambda: Raising(RuntimeError("of a notebook")),
}


@pytest.fixture(params=list(STREAMS))
def broken_stderr(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    stream = STREAMS[request.param]()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr(warnings, "showwarning", lambda text, *_, **__: sys.stderr.write(str(text)))
    yield stream
    monkeypatch.undo()
    if stream is not None:
        with suppress(OSError, ValueError, RuntimeError):
            stream.close()


class Ticking:
    """A second more at each call; from one call on it fails, or says nothing sensible."""

    def __init__(self, fails_at: int, found: Any = None) -> None:
        self.calls, self.fails_at, self.found = 0, fails_at, found

    def __call__(self) -> float:
        self.calls += 1
        if self.calls < self.fails_at:
            return float(self.calls)
        if self.found is None:
            raise OSError("no clock")
        return self.found  # type: ignore[no-any-return]


@pytest.mark.usefixtures("broken_stderr")
@pytest.mark.parametrize("action", ["error", "always"])
@pytest.mark.parametrize("total", [5, None])
def test_a_loop_goes_on_whatever_the_error_stream_does(action: Any, total: int | None) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter(action)
        steps = track(iter(range(5)), total_steps=total, clock=Ticking(1000))
        assert list(steps) == [0, 1, 2, 3, 4]
    assert steps.done == 5
    assert steps.record is not None  # watched to its end: only the bar was lost
    assert steps.record.steps == 5


@pytest.mark.usefixtures("broken_stderr")
def test_what_is_said_on_a_broken_stream_is_not_said() -> None:
    live_run.said_on_stderr("text")
    for action in ("error", "always"):
        with warnings.catch_warnings():
            warnings.simplefilter(action)
            live_run.warned(f"text {action}")


def test_without_an_error_stream_nothing_is_said_on_the_other(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stderr", None)
    live_run.said_on_stderr("text")
    assert capsys.readouterr().out == ""


def test_a_bar_that_breaks_is_left_with_one_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    from tqdm.auto import tqdm

    closed_in: list[int] = []

    def refused(self: Any, _count: Any) -> None:
        closed_in.append(self.n)
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(tqdm, "update", refused)
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    with pytest.warns(RuntimeWarning, match="progress bar is not shown any more: OSError") as said:
        assert list(track([0] * 9, clock=Ticking(1000))) == [0] * 9
    assert len(said) == len(closed_in) == 1


@pytest.mark.parametrize("found", [None, "late", float("nan")])
@pytest.mark.parametrize("fails_at", range(1, 12))
def test_a_loop_goes_on_whatever_its_clock_does(fails_at: int, found: Any) -> None:
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        clock = Ticking(fails_at, found)
        assert list(track(range(4), epochs=2, bar=False, clock=clock)) == [*range(4), *range(4)]
    assert len(said) <= 1
    if found is None and fails_at < 5:
        assert "OSError: no clock" in str(said[0].message)
        assert clock.calls == fails_at  # it is not asked again


def test_a_loader_that_does_not_tell_its_length_is_one_without() -> None:
    class Odd(list[int]):
        def __len__(self) -> int:
            raise RuntimeError("not yet")

    assert list(track(Odd([1, 2]), bar=False, clock=Ticking(1000))) == [1, 2]


def test_a_failure_without_words_turns_a_silent_rank_off() -> None:
    run, adapter = LiveRun(Options(), speaks=False), Adapter()
    adapter.run = run
    for each in (run, adapter):
        each.turn_off(AssertionError())
        assert each.failure == "AssertionError"


def _lightning() -> None:
    from precision_time_integrations.online.lightning import EtaCallback

    for fails_at in range(1, 8):
        callback = EtaCallback(clock=Ticking(fails_at), predict=False)
        trainer = SimpleNamespace(
            is_global_zero=True, precision="32-true", global_step=0, progress_bar_callback=None,
            estimated_stepping_batches=4, num_val_batches=[], val_check_batch=1, enable_validation=False,
            log_every_n_steps=1, loggers=[], fit_loop=None,
        )  # fmt: skip
        module = SimpleNamespace(automatic_optimization=True)
        callback.on_train_start(trainer, module)
        for batch in range(4):
            callback.on_train_batch_start(trainer, module, None, batch)
            trainer.global_step += 1
            callback.on_train_batch_end(trainer, module, None, None, batch)
            callback.on_validation_start(trainer, module)
            callback.on_validation_end(trainer, module)
        callback.on_train_end(trainer, module)


def _transformers() -> None:
    from precision_time_integrations.online.transformers import EtaCallback

    for fails_at in range(1, 8):
        callback = EtaCallback(clock=Ticking(fails_at), predict=False)
        strategy = SimpleNamespace(value="no")
        args = SimpleNamespace(eval_strategy=strategy, save_strategy=strategy)
        state = SimpleNamespace(
            is_world_process_zero=True, max_steps=4, global_step=0, num_train_epochs=1, eval_steps=0,
            save_steps=0, log_history=[],
        )  # fmt: skip
        control = SimpleNamespace(should_evaluate=True, should_save=True)
        callback.on_train_begin(args, state, control)
        for _ in range(4):
            callback.on_step_begin(args, state, control)
            state.global_step += 1
            callback.on_step_end(args, state, control)
            callback.on_evaluate(args, state, control)
            callback.on_log(args, state, control, logs={"loss": 1.0})
        callback.on_train_end(args, state, control)


def _accelerate() -> None:
    from precision_time_integrations.online.accelerate import EtaTracker

    for fails_at in range(1, 8):
        tracker = EtaTracker(clock=Ticking(fails_at), total_steps=4)
        for step in range(1, 5):
            tracker.log({}, step=step)
        tracker.finish()


def _keras() -> None:
    from precision_time_integrations.online.keras import EtaCallback

    for fails_at in range(1, 8):
        callback = EtaCallback(clock=Ticking(fails_at), predict=False)
        callback.set_params({"steps": 4, "epochs": 1})
        callback.set_model(SimpleNamespace(optimizer=None))
        callback.on_train_begin()
        callback.on_epoch_begin(0)
        for batch in range(4):
            callback.on_train_batch_begin(batch)
            callback.on_train_batch_end(batch, {})
        callback.on_epoch_end(0, {})
        callback.on_train_end()


class _Engine:
    """What of an engine is followed."""

    global_rank, global_steps, monitor = 0, 0, None

    def __init__(self) -> None:
        self.module, self.hooks = SimpleNamespace(training=True), list[Any]()

    def register_forward_pre_hook(self, hook: Any, *, with_kwargs: bool) -> Any:
        self.hooks.append(hook)
        return SimpleNamespace(remove=self.hooks.clear)

    def steps_per_print(self) -> int:
        return 1

    def step(self) -> None:
        self.global_steps += 1

    def save_checkpoint(self) -> None:
        """Nothing."""


def _deepspeed() -> None:
    from precision_time_integrations.online.deepspeed import track as follow

    for fails_at in range(1, 12):
        engine: Any = _Engine()
        with follow(engine, clock=Ticking(fails_at), predict=False, line_every_s=0.0, say=list) as run:
            seen = []
            for batch in run.batches(range(4)):
                seen.append(batch)
                for hook in engine.hooks:
                    hook(engine, (), {})
                engine.step()
                engine.save_checkpoint()
        assert seen == [0, 1, 2, 3]
        assert engine.global_steps == 4
    engine = _Engine()
    engine.module = None  # not what is expected of one
    with follow(engine, predict=False):
        for hook in engine.hooks:
            hook(engine, (), {})


def _ray() -> None:
    from precision_time_integrations.online.ray_train import EtaCallback

    for fails_at in range(1, 8):
        callback = EtaCallback(clock=Ticking(fails_at), total_steps=4)
        for _ in range(4):
            callback.after_report(SimpleNamespace(scaling_config=None), [{}], None)
        callback.after_exception(None, {})


@pytest.mark.parametrize("trains", [_accelerate, _deepspeed, _keras, _lightning, _ray, _transformers])
def test_adapters_go_on_whatever_their_clock_does(trains: Callable[[], None]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trains()


def test_inputs_of_a_model_without_a_signature_are_taken_as_they_are() -> None:
    from precision_time_integrations.online.first_forward import on_first_forward

    hooks: list[Any] = []
    model = SimpleNamespace(
        register_forward_pre_hook=lambda hook, with_kwargs: (
            hooks.append(hook) or SimpleNamespace(remove=hooks.clear)
        )
    )
    seen: list[Any] = []
    on_first_forward(model, seen.append)
    hooks[0](SimpleNamespace(training=True, forward=dict), (), {"x": 1})
    assert seen == [{"x": 1}]
