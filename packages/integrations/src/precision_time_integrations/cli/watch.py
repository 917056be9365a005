"""`precision-time watch`: the remaining time of a training, from the log it writes."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from precision_time.cli.options import JsonOption, complete_model
from precision_time.cli.output import message
from precision_time.cli.request_options import given_fields, request_options
from precision_time.errors import ConfigError

if TYPE_CHECKING:
    from ..watch.follow import Follower
    from ..watch.log_watch import LogWatch, State

EXAMPLES = """\b
Examples:
  precision-time watch train.log
  precision-time watch train.log --steps 5000 --once --json
  precision-time watch train.log --model llama3-8b -d H100-SXM5-80GB -g 64 --zero-stage 3 -b 1
  precision-time watch train.log --job job.yaml
  precision-time watch train.log --once --why
  precision-time watch --trainers
  torchrun train.py 2>&1 | tee train.log | precision-time watch -
"""
_POLL_S = 0.5
_NEVER_LOGGED = 1
"""Exit code where the log has no step."""


@request_options(shown=())
def watch(
    log: Annotated[
        str | None,
        typer.Argument(metavar="LOG", help="The log, or - for standard input.", show_default=False),
    ] = None,
    *,
    model: Annotated[
        str | None,
        typer.Option("--model", "-m", metavar="MODEL", help="As for predict.", autocompletion=complete_model),
    ] = None,
    job: Annotated[
        Path | None, typer.Option("--job", metavar="FILE", help="A job file, in the place of --model.")
    ] = None,
    once: Annotated[
        bool, typer.Option("--once", help="Read the log as it is, say where the run stands, and end.")
    ] = False,
    every: Annotated[
        float,
        typer.Option(
            "--interval",
            metavar="SECONDS",
            min=0.1,
            show_default=False,
            help="Between two lines of output. Default: 10.",
        ),
    ] = 10.0,
    here: Annotated[
        bool,
        typer.Option("--here", help="The run is on this machine: look at its devices where it is slow."),
    ] = False,
    why: Annotated[
        bool,
        typer.Option(
            "--why", help="At the end: what could make it slower than predicted, with a check for each."
        ),
    ] = False,
    trainers: Annotated[
        bool,
        typer.Option("--trainers", help="List the adapters that watch a run inside its trainer instead."),
    ] = False,
    json_output: JsonOption = False,
    **fields: Any,
) -> None:
    """Watch a log: when the run in it will end.

    Reads the log of a known trainer (`precision-time import --formats`) as it grows, and shows the remaining
    time with its interval. Where the job is known, from the log or from the options, its prediction is shown
    first, and the run is compared with it. Ends when the log says that training ended, or on Ctrl-C.

    Exits with 1 where the log has no step of a training.
    """
    if trainers:
        _list_trainers(json_output)
        return
    if log is None:
        raise ConfigError("watch takes a LOG. To fix: name one, or - for standard input.")
    from ..watch.follow import Follower
    from ..watch.log_watch import LogWatch

    named, given = given_fields(str(job or model or ""), fields)
    steps = given.get("steps")
    with Follower(log) as follower:
        watched = LogWatch(
            given={**given, **({"model": named} if named else {})},
            total_steps=None if steps is None else _count(steps),
            coverage=float(given.get("coverage", 0.9)),
            here=here,
            say=message,
        )
        live = sys.stdout.isatty() and not (once or json_output)
        with _shown(json_output=json_output, live=live) as show:
            _follow(follower, watched, show, once=once, every_s=min(every, _POLL_S) if live else every)
        state = watched.state()
        if not state.run:
            message(f"{log}: {watched.nothing_known()}.")
            raise typer.Exit(_NEVER_LOGGED)
        if not json_output:
            _conclude(watched)
        if why:
            _diagnose(watched, json_output=json_output)


def _list_trainers(json_output: bool) -> None:
    """What watches a run in its trainer, and the module that each is imported from."""
    from precision_time.cli.catalogs import write_catalog

    from ..online.trainers import trainer_adapters

    found = trainer_adapters().values()
    rows = [
        (item.name, item.trainer, f"{item.module}.{item.attribute}", "yes" if item.installed else "no")
        for item in found
    ]
    entries = [{**asdict(item), "installed": item.installed} for item in found]
    write_catalog("trainers", entries, ("name", "trainer", "adapter", "trainer installed"), rows, json_output)


def _count(steps: Any) -> int:
    """The number of steps as a request reads it."""
    from precision_time.request.request import Request

    found = Request.of({"model": "resnet50", "steps": steps}).steps
    return int(found or 0)


def _follow(
    follower: Follower,
    watched: LogWatch,
    show: Callable[[State], None],
    *,
    once: bool,
    every_s: float,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Read the log until the run ends, and show where it stands."""
    next_s, said_quiet, said_first = clock(), False, False
    try:
        while True:
            lines = follower.read()
            for line in lines or ():
                watched.feed(line)
            if lines is not None and not follower.ended:
                said_quiet = False
                continue  # more may be there already
            if once or follower.ended:
                if rest := follower.rest():
                    watched.feed(rest)
                break
            watched.caught_up(follower.age_s)
            said_first = said_first or _say_prediction(watched)
            if clock() >= next_s:
                next_s = clock() + every_s
                show(watched.state())
            if watched.ended:
                break
            if watched.stopped and not said_quiet:
                said_quiet = True
                message(f"{follower.path} has not grown for {watched.quiet_s:.0f} s.")
            sleep(min(_POLL_S, every_s))
    except KeyboardInterrupt:
        pass  # the usual end of watching
    if not said_first:
        _say_prediction(watched)
    show(watched.state())


def _say_prediction(watched: LogWatch) -> bool:
    """Say what the run should take, once it is known what it is."""
    state = watched.state()
    if state.prediction is not None:
        message(f"Predicted: {state.prediction.in_one_line()}")
        return True
    if state.run and state.missing:
        message(f"No prediction: the log does not say {', '.join(state.missing)}; options can.")
        return True
    return False


@contextmanager
def _shown(*, json_output: bool, live: bool) -> Iterator[Callable[[State], None]]:
    """What shows a state: a line of JSON, a bar on a terminal, or a line of text."""
    if json_output:
        yield lambda state: typer.echo(json.dumps(state.to_dict(), allow_nan=False, default=str))
        return
    if not live:
        yield lambda state: typer.echo(state.text)
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn

    columns = BarColumn(bar_width=20), TextColumn("{task.description}")
    with Progress(*columns, console=Console(), refresh_per_second=2) as bar:
        task = bar.add_task("no step yet", total=None)

        def show(state: State) -> None:
            eta = state.eta
            bar.update(task, total=eta.total_steps, completed=eta.step, description=state.short)

        yield show


def _diagnose(watched: LogWatch, *, json_output: bool) -> None:
    """What could make the run in a log slower than predicted.

    Raises:
        ConfigError: If the log does not say enough of the job, or has no times.
    """
    from precision_time.cli.output import write_result
    from precision_time.explain.doctor import diagnose
    from precision_time.request.request import Request

    state, record = watched.state(), watched.end()
    if state.prediction is None:
        lacks = f": the log does not say {', '.join(state.missing)}" if state.missing else ""
        raise ConfigError(
            f"--why needs a prediction{lacks}. To fix: options that say the job, as for predict."
        )
    if not record.step_time_s:
        raise ConfigError("--why needs the time of a step, and the log has none. To fix: explain --measured.")
    found = diagnose(Request.of(state.prediction.request), measured_s=record.step_time_s)
    if json_output:
        typer.echo(json.dumps({"diagnosis": found.to_dict()}, allow_nan=False))
    else:
        write_result(found)


def _conclude(watched: LogWatch) -> None:
    """Say how the run went, where it was compared with a prediction or has failed."""
    from precision_time.units import format_duration

    state, record = watched.state(), watched.end()
    if state.failed:
        message(f"The log shows an error: {state.failed}")
    if record.step_time_s and state.prediction is not None:
        ratio = record.step_time_s / state.prediction.step_time_s
        message(
            f"Steps took {format_duration(record.step_time_s)}, {ratio:.2f} x the predicted "
            f"{format_duration(state.prediction.step_time_s)}."
        )
