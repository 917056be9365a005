"""A log that is followed: its steps, the clock they are timed by, and what happens to the file meanwhile."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from precision_time.cli.main import main
from precision_time.errors import CorpusError
from precision_time_integrations.cli import watch as command
from precision_time_integrations.watch.follow import Follower
from precision_time_integrations.watch.log_watch import LogWatch, State

from .importers.logs import LOGS, MEGATRON_OLD, TORCHTITAN


class Clock:
    """A clock that goes on when it is told to, and calls what happens meanwhile."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def run(*words: str) -> int:
    """The command line in this process; its exit code."""
    with pytest.raises(SystemExit) as stop:
        main(words)
    return int(stop.value.code or 0)


def titan(step: int, at_s: float) -> str:
    minutes, seconds = divmod(at_s, 60.0)
    whole = f"{seconds:06.3f}".replace(".", ",")
    return f"[titan] 2025-05-28 21:{int(minutes):02d}:{whole} - INFO - step: {step:2}  loss: 1.0  tps: 8,000"


def test_the_remaining_time_of_a_log_with_times() -> None:
    watch = LogWatch(total_steps=400)
    for step in range(1, 101):
        assert watch.feed(titan(step, 5.0 + 2.0 * step))
    state = watch.state()
    assert state.format == "torchtitan"
    assert (state.eta.step, state.eta.total_steps) == (100, 400)
    assert state.eta.remaining_s == pytest.approx(600.0, rel=0.02)
    assert state.eta.interval is not None
    assert state.eta.interval.low_s <= 600.0 <= state.eta.interval.high_s
    assert not state.ended


@pytest.mark.parametrize(("length", "total"), [({"epochs": 90}, 450_450), ({}, None)])
def test_epochs_that_the_caller_states_end_the_run(length: dict[str, int], total: int | None) -> None:
    watch = LogWatch(given={"model": "resnet50", "device": "V100", "batch_size": 256, **length})
    for step in range(10, 60, 10):
        assert watch.feed(f"Epoch: [0][{step:5}/5005]\tTime  0.370 ( 0.400)\tLoss 6.9e+00")
    state = watch.state()
    assert (state.eta.step, state.eta.total_steps) == (50, total)
    if total is not None:
        assert state.eta.remaining_s == pytest.approx(0.37 * total, rel=0.1)


def test_a_log_without_times_is_timed_by_its_steps_and_then_by_the_clock() -> None:
    clock = Clock()
    watch = LogWatch(total_steps=300, clock=clock)
    for step in range(0, 101, 10):
        watch.feed(f"iter {step}: loss 2.4, time 500.00ms, mfu 16.59%")
    assert watch.state().eta.remaining_s == pytest.approx(0.5 * 199, rel=0.1)
    watch.caught_up()
    for step in range(110, 251, 10):  # the steps say 0.5 s, and 2 s pass: something else takes the time
        clock.now += 20.0
        watch.feed(f"iter {step}: loss 2.4, time 500.00ms, mfu 16.59%")
    left_s = watch.state().eta.remaining_s
    assert left_s is not None
    assert left_s > 2.0 * 0.5 * 49


def test_a_rounded_clock_gives_no_wrong_step_time() -> None:
    watch = LogWatch()
    for done in range(1, 1201):
        seconds = int(done * 0.13)
        watch.feed(f" 10%|#  | {done}/5000 [{seconds // 60:02d}:{seconds % 60:02d}<01:00, 7.69it/s]")
    state = watch.state()
    assert state.eta.step_time_s == pytest.approx(0.13, rel=0.05)
    assert state.eta.remaining_s == pytest.approx(0.13 * 3800, rel=0.1)


def test_a_clock_that_goes_back_does_not_end_the_watch() -> None:
    watch = LogWatch(total_steps=400)
    for step in range(1, 50):
        watch.feed(titan(step, 1000.0 + 2.0 * step if step < 25 else 2.0 * step))
    eta = watch.state().eta
    assert eta.step == 49
    assert eta.step_time_s == pytest.approx(2.0, rel=0.2)
    assert eta.elapsed_s >= 0.0


def test_a_run_that_goes_back_to_a_checkpoint_and_another_run() -> None:
    watch = LogWatch(total_steps=400)
    for step in [*range(1, 30), *range(20, 60)]:
        watch.feed(titan(step, 2.0 * step + (30.0 if step < 20 else 90.0)))
    assert (watch.state().run, watch.state().eta.step) == (1, 59)
    watch.feed(titan(1, 500.0))
    assert (watch.state().run, watch.state().eta.step) == (2, 1)


def test_the_prediction_of_what_the_log_says_and_why_it_is_slower() -> None:
    said: list[str] = []
    watch = LogWatch(given={"device": "A100-SXM4-80GB"}, say=said.append)
    for line in MEGATRON_OLD.splitlines()[:-4]:
        watch.feed(line)
    line = MEGATRON_OLD.splitlines()[-1]
    for step in range(185, 225):
        watch.feed(line.replace("185/", f"{step}/"))
    state = watch.state()
    assert state.missing == ()
    assert state.prediction is not None
    assert (state.prediction.gpus, state.prediction.global_batch_size) == (8, 1024)
    assert len(said) == 1
    assert "x the predicted" in said[0]
    assert "host is busy" not in said[0]  # the log may be of another machine
    assert state.warnings == tuple(said)


def test_the_end_and_a_failure_are_seen() -> None:
    watch = LogWatch()
    for line in TORCHTITAN.splitlines():
        watch.feed(line)
    assert not watch.ended
    watch.feed("Traceback (most recent call last):")
    assert watch.state().failed.startswith("Traceback")
    watch.feed(titan(6, 1200.0))
    assert watch.state().failed == ""
    watch.feed("[rank0]:[titan] 2025-05-28 21:30:42,765 - root - INFO - Training completed")
    assert watch.state().ended


@pytest.mark.parametrize("name", sorted(LOGS))
def test_every_format_can_be_watched(name: str) -> None:
    form, log = LOGS[name]
    watch = LogWatch(total_steps=log.last + 1000)
    for line in log.text.replace("\r", "\n").split("\n"):
        watch.feed(line)
    state = watch.state()
    assert (state.format, state.eta.step) == (form, log.last)
    assert json.dumps(state.to_dict(), allow_nan=False)


def read_all(follower: Follower) -> list[str]:
    lines = []
    while (more := follower.read()) is not None:
        lines += more
    return lines


def test_a_file_that_is_cut_replaced_and_half_written(tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    log.write_text("one\ntw")
    with Follower(log) as follower:
        assert read_all(follower) == ["one"]
        with log.open("a") as file:
            file.write("o\nthree\r")
        assert read_all(follower) == ["two", "three"]
        log.write_text("new\n")  # shorter: it was cut
        assert read_all(follower) == []
        assert read_all(follower) == ["new"]
        log.rename(tmp_path / "train.log.1")
        assert read_all(follower) == []
        log.write_text("other file, and longer than the one before it\n")
        assert read_all(follower) == []
        assert read_all(follower) == ["other file, and longer than the one before it"]
        assert follower.restarted == 2


def test_a_named_pipe_is_followed(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with Follower(pipe) as follower:
        assert read_all(follower) == []
        writer = os.open(pipe, os.O_WRONLY)
        os.write(writer, b"a\nb")
        assert read_all(follower) == ["a"]
        os.write(writer, b"\n")
        assert read_all(follower) == ["b"]
        os.close(writer)
        assert read_all(follower) == []


def test_what_cannot_be_followed(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match="To fix"):
        Follower(tmp_path / "nope")
    with pytest.raises(CorpusError, match="is a folder"):
        Follower(tmp_path)


def test_the_command_follows_until_the_run_ends_and_says_when_it_waits(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "train.log"
    log.write_text("")
    clock = Clock()
    steps = iter(range(1, 41))
    shown: list[State] = []

    def sleep(seconds: float) -> None:
        step = next(steps)
        clock.now += 200.0 if step == 20 else max(seconds, 1.0)
        if step == 20:
            return
        with log.open("a") as file:
            file.write(titan(step, 5.0 + step) + "\n")

    with Follower(log, clock=clock) as follower:
        watched = LogWatch(total_steps=40, clock=clock)
        command._follow(follower, watched, shown.append, once=False, every_s=5.0, clock=clock, sleep=sleep)
    assert shown[-1].ended
    assert shown[-1].eta.step == 40
    assert capsys.readouterr().err.count("has not grown") == 1
    middle = next(state for state in shown if state.eta.step > 25)
    assert middle.eta.remaining_s == pytest.approx(40 - middle.eta.step, abs=4.0)


def test_ctrl_c_ends_with_where_the_run_stands(tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    log.write_text("".join(titan(step, 5.0 + step) + "\n" for step in range(1, 11)))
    shown: list[State] = []

    def interrupted(seconds: float) -> None:
        del seconds
        raise KeyboardInterrupt

    with Follower(log) as follower:
        watched = LogWatch(total_steps=40)
        command._follow(follower, watched, shown.append, once=False, every_s=60.0, sleep=interrupted)
    assert [state.eta.step for state in shown] == [10, 10]


def test_the_command_once_as_text_and_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "train.log"
    log.write_text(TORCHTITAN)
    assert run("watch", str(log), "--once") == 0
    assert "step 5 of 10 (50.0%), 5 min" in capsys.readouterr().out
    assert run("watch", str(log), "--once", "--json", "--steps", "1k") == 0
    state = json.loads(capsys.readouterr().out)
    assert (state["step"], state["total_steps"]) == (5, 1000)
    assert state["remaining_s"] == pytest.approx(995 * 61.2, rel=0.05)
    assert state["missing"] == ["gpus"]
    log.write_text("nothing of a training\n")
    assert run("watch", str(log), "--once") == 1
    assert "precision-time import --formats" in capsys.readouterr().err


def test_devices_that_are_typed_go_before_those_of_the_log() -> None:
    watch = LogWatch(given={"model": "llama3-8b", "device": "8xH100", "batch_size": 1})
    fields = {"gpus": 16, "nodes": 2, "device": "A100", "precision": "bf16-mixed"}
    found = watch._predicted(fields)
    assert found is not None
    assert (found.device, found.gpus, found.nodes) == ("H100-SXM5-80GB", 8, 1)


def test_why_a_run_in_a_log_is_slow(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "train.log"
    log.write_text(TORCHTITAN)
    job = ["--model", "llama3-8b", "-d", "H100-SXM5-80GB", "-g", "1", "-b", "2", "--precision", "bf16"]
    assert run("watch", str(log), "--once", "--why", *job) == 0
    page = capsys.readouterr().out
    assert "What could explain it" in page
    assert "something that is not listed here" in page
    assert run("watch", str(log), "--once", "--why", "--json", *job) == 0
    diagnosis = json.loads(capsys.readouterr().out.splitlines()[-1])["diagnosis"]
    assert diagnosis["measured_s"] == pytest.approx(61.2, rel=0.05)
    assert diagnosis["verdict"] == "slower"
    assert 0.0 < diagnosis["causes"][0]["probability"] < 0.9
    assert run("watch", str(log), "--once", "--why") == 2
    assert "the log does not say gpus" in capsys.readouterr().err


def test_import_as_a_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log, out = tmp_path / "train.log", tmp_path / "measured.csv"
    log.write_text(MEGATRON_OLD)
    words = ["import", str(log), "--set", "device=A100-SXM4-80GB", "--compare", "--out", str(out)]
    assert run(*words, "--json") == 0
    [found] = json.loads(capsys.readouterr().out)["runs"]
    assert found["steady"]["step_time_s"] == pytest.approx(127.8045)
    assert found["predicted"]["gpus"] == 8
    assert out.read_text().count("\n") == 2
    assert run(*words) == 0
    assert "3 of 4" in capsys.readouterr().out
    assert run("import", "--formats") == 0
    assert "trainer_state.json" in capsys.readouterr().out
