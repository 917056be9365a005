"""The remaining time of a plain PyTorch loop."""

from __future__ import annotations

import csv
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from precision_time import predict_time
from precision_time_integrations.online.live_run import LiveRun
from precision_time_integrations.online.monitor import RunMonitor
from precision_time_integrations.online.pytorch import track

from .conftest import Clock

nn = torch.nn
STEP_S = 100.0
"""Far above a thousand times what an estimate costs, so that every one is computed."""
ON = {"device": "A100-SXM4-80GB"}


class Stream(torch.utils.data.IterableDataset):  # type: ignore[misc]
    """Samples of which nobody knows how many there are."""

    def __iter__(self) -> Iterator[Any]:
        return iter(torch.zeros(40, 4))


class Slow(list[Any]):
    """Batches that are waited for."""

    def __init__(self, clock: Clock, batches: list[Any]) -> None:
        super().__init__(batches)
        self.clock = clock

    def __iter__(self) -> Iterator[Any]:
        for batch in super().__iter__():
            self.clock.now_s += 75.0
            yield batch


def run_through(steps: track[Any], clock: Clock, *, seconds: float = STEP_S) -> list[Any]:
    """Train on nothing; the remaining time in each step."""
    said = []
    for _ in steps:
        said.append(steps.eta)
        clock.now_s += seconds
    return said


def loader(batches: int = 10) -> list[Any]:
    return [torch.zeros(4, 8) for _ in range(batches)]


def quiet(clock: Clock, **options: Any) -> dict[str, Any]:
    return {"bar": False, "clock": clock, "say": lambda _: None, "pauses": {}, **options}


def test_steady_loop_is_told_exactly_and_measured() -> None:
    clock = Clock()
    steps = track(loader(), epochs=3, **quiet(clock))
    etas = run_through(steps, clock)
    assert [eta.total_steps for eta in etas] == [30] * 30
    assert etas[20].remaining_s == pytest.approx(10 * STEP_S)
    assert steps.record is not None
    assert (steps.record.steps, steps.record.step_time_s) == (30, pytest.approx(STEP_S))
    assert steps.epoch == 2 and steps.done == 30


def test_prediction_is_said_before_the_first_step() -> None:
    clock, said = Clock(), list[str]()
    model = nn.Linear(8, 8)
    steps = track(loader(), model=model, epochs=5, **quiet(clock, say=said.append), **ON)
    first = run_through(steps, clock, seconds=1e-4)[0]
    assert steps.run.described.request is not None
    expected_s = predict_time(steps.run.described.request).step_time_s
    assert first.basis == "prediction" and first.remaining_s == pytest.approx(50 * expected_s)
    assert len(said) == 1 and "50 steps" in said[0] and "1 x A100-SXM4-80GB, fp32, batch 4" in said[0]


def test_no_prediction_where_it_is_switched_off_or_the_model_cannot_be_read() -> None:
    class Broken(nn.Module):
        def forward(self, inputs: Any) -> Any:
            raise RuntimeError("not on meta tensors")

    clock, said = Clock(), list[str]()
    off = track(loader(), model=nn.Linear(8, 8), predict=False, **quiet(clock, say=said.append), **ON)
    assert run_through(off, clock)[0].remaining_s is None and said == []
    unread = track(loader(), model=Broken(), **quiet(clock, say=said.append), **ON)
    assert run_through(unread, clock)[5].remaining_s == pytest.approx(5 * STEP_S)
    assert len(said) == 1 and "not on meta tensors" in said[0]


def test_length_of_a_stream_is_known_after_its_first_epoch() -> None:
    clock = Clock()
    stream = torch.utils.data.DataLoader(Stream(), batch_size=4)
    etas = run_through(track(stream, epochs=3, **quiet(clock)), clock)
    assert [eta.total_steps for eta in etas] == [None] * 10 + [30] * 20
    assert etas[5].step_time_s == pytest.approx(STEP_S) and etas[5].remaining_s is None
    assert etas[15].remaining_s == pytest.approx(15 * STEP_S)
    stated = run_through(track(stream, epochs=9, total_steps=20, **quiet(clock)), clock)
    assert {eta.total_steps for eta in stated} == {20}


def test_loop_without_steps_ends_quietly(tmp_path: Path) -> None:
    clock, said = Clock(), list[str]()
    own = tmp_path / "runs.csv"
    steps = track([], share_with_corpus=True, store=own, **quiet(clock, say=said.append))
    assert run_through(steps, clock) == []
    assert not steps.run.failure and not own.exists() and said == []


def test_accumulated_batches_are_one_step() -> None:
    clock = Clock()
    steps = track(loader(10), epochs=2, grad_accum=4, **quiet(clock))
    etas = run_through(steps, clock)
    assert etas[0].total_steps == 6 and steps.done == 6  # 4 + 4 + 2 batches in each epoch
    assert steps.record is not None and steps.record.steps == 6


def test_resumed_loop_counts_what_was_done() -> None:
    clock = Clock()
    steps = track(loader(), epochs=2, done=180, **quiet(clock))
    etas = run_through(steps, clock)
    assert (etas[0].step, etas[0].total_steps) == (180, 200)
    assert etas[10].remaining_s == pytest.approx(10 * STEP_S)
    assert steps.record is not None and steps.record.steps == 20


def test_evaluation_is_no_step() -> None:
    clock = Clock()
    steps = track(loader(), epochs=4, **quiet(clock, pauses={"evaluation": 10}))
    for _ in steps:
        clock.now_s += STEP_S
        if steps.step % 10 == 0:
            with steps.pause("evaluation"):
                clock.now_s += 1500.0
        if steps.step == 25:
            assert steps.eta.pause_s == pytest.approx(3000.0)
            assert steps.eta.step_time_s == pytest.approx(STEP_S)
    assert steps.record is not None and steps.record.pauses_s == {"evaluation": pytest.approx(6000.0)}
    assert steps.record.step_time_s == pytest.approx(STEP_S)


def test_change_of_precision_is_predicted_from_the_steps_so_far() -> None:
    clock, said = Clock(), list[str]()
    wide = nn.Linear(4096, 4096)
    batches = [torch.zeros(64, 4096)] * 40
    steps = track(batches, model=wide, precision="fp32", **quiet(clock, say=said.append), **ON)
    before_s = None
    for _ in steps:
        if steps.done == 20:
            before_s = steps.eta.step_time_s
            steps.changed(precision="bf16-mixed")
            assert steps.prediction is not None and steps.prediction.precision == "bf16-mixed"
            assert steps.eta.step_time_s != pytest.approx(before_s, rel=0.01)
        assert steps.prediction is not None
        clock.now_s += steps.prediction.step_time_s
    assert before_s is not None and len(said) == 2 and "bf16-mixed" in said[1]
    assert not steps.run.failure


def test_interrupted_loop_keeps_what_it_measured() -> None:
    clock = Clock()
    steps = track(loader(100), **quiet(clock))
    batches = iter(steps)
    with pytest.raises(KeyboardInterrupt):
        for _ in batches:
            clock.now_s += STEP_S
            if steps.step == 30:
                raise KeyboardInterrupt
    batches.close()  # type: ignore[attr-defined]
    assert steps.record is not None
    assert (steps.record.steps, steps.record.step_time_s) == (29, pytest.approx(STEP_S))


def test_loop_that_is_left_and_one_that_runs_twice() -> None:
    clock = Clock()
    steps = track(loader(), **quiet(clock))
    for _ in steps:
        clock.now_s += STEP_S
        if steps.step == 5:
            break
    run_through(track(loader(), **quiet(clock)), clock)
    again = track(loader(), **quiet(clock))
    assert len(run_through(again, clock)) == 10
    assert again.record is not None and again.record.steps == 10


def test_clock_that_goes_back_does_not_end_the_watching() -> None:
    clock = Clock()
    steps = track(loader(50), **quiet(clock))
    for _ in steps:
        clock.now_s += -5000.0 if steps.step == 25 else STEP_S
    assert not steps.run.failure and steps.record is not None
    assert steps.record.step_time_s == pytest.approx(STEP_S)


@pytest.mark.parametrize("method", ["begin", "step", "eta", "waited", "end"])
def test_monitor_that_raises_ends_with_one_warning_and_the_loop_goes_on(
    method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise ZeroDivisionError("broken on purpose")

    monkeypatch.setattr(RunMonitor, method, broken)
    clock, trained = Clock(), 0
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        steps = track(Slow(clock, loader()), **quiet(clock))
        for _ in steps:
            steps.run.shown()
            clock.now_s += STEP_S
            trained += 1
    assert trained == 10
    assert [str(each.message) for each in said].count(steps.run.failure) == len(said) == 1
    assert "broken on purpose" in steps.run.failure and "goes on" in steps.run.failure


def test_sampler_is_told_the_epoch() -> None:
    class Sampler:
        told: list[int] = []

        def set_epoch(self, epoch: int) -> None:
            self.told.append(epoch)

    class Loader(list[Any]):
        sampler = Sampler()

    run_through(track(Loader(loader(2)), epochs=3, **quiet(Clock())), Clock())
    assert Sampler.told == [0, 1, 2]


def test_only_the_first_rank_predicts_and_speaks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "1")
    clock, said = Clock(), list[str]()
    steps = track(loader(), model=nn.Linear(8, 8), **quiet(clock, say=said.append), **ON)
    assert run_through(steps, clock)[9].remaining_s == pytest.approx(STEP_S)  # it measures
    assert said == [] and steps.prediction is None


def test_run_is_added_to_the_own_measurements_where_wanted(tmp_path: Path) -> None:
    clock, own = Clock(), tmp_path / "runs.csv"
    options = quiet(clock, share_with_corpus=True, store=own, precision="fp32")
    run_through(track(loader(30), model=nn.Linear(8, 8), **options, **ON), clock)
    with own.open() as file:
        (row,) = csv.DictReader(file)
    assert float(row["step_time_s"]) == pytest.approx(STEP_S)
    assert row["model"].startswith("Linear-") and own.with_suffix(".models.json").exists()
    assert (row["device"], row["batch_size"]) == (ON["device"], "4")


def test_slow_input_is_seen() -> None:
    clock = Clock()
    steps = track(Slow(clock, loader()), **quiet(clock))
    run_through(steps, clock, seconds=25.0)
    assert steps.record is not None and steps.record.waited_s == pytest.approx(75.0 * 9 / 10)


def test_answers_before_a_run_are_empty() -> None:
    assert LiveRun().eta().remaining_s is None
    steps = track(loader())
    assert steps.record is None and steps.prediction is None and steps.eta.step == 0
