"""The command line's root: registers the commands and turns errors into one line and exit code 2."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Iterator, Sequence
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from .. import __version__
from ..errors import PrecisionTimeError, printable, unexpected
from . import (
    architectures,
    calibrate,
    campaign,
    compare_predictors,
    devices,
    env,
    evaluate,
    explain,
    layout,
    measure,
    models,
    performance,
    precisions,
    predict,
    predictddl,
    report,
    stacks,
    train,
)
from .output import message


class _Stopped(BaseException):
    """What ended a command from outside, by a name that typer does not turn into exit code 1."""

    def __init__(self, *, interrupted: bool) -> None:
        self.interrupted = interrupted


class _Commands(TyperGroup):
    """The root group: interrupts and closed pipes reach `main`."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except (KeyboardInterrupt, BrokenPipeError) as stop:
            raise _Stopped(interrupted=isinstance(stop, KeyboardInterrupt)) from stop


app = typer.Typer(
    name="precision-time",
    cls=_Commands,
    help="How long a training step or run takes, at every precision, before a GPU is rented.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
for command in (
    predict,
    layout,
    explain,
    evaluate,
    report,
    measure,
    train,
    models,
    devices,
    precisions,
    stacks,
    env,
):
    app.command(epilog=command.EXAMPLES)(getattr(command, command.__name__.rpartition(".")[2]))
app.command(epilog=architectures.EXAMPLES)(architectures.architectures)
app.command("train-ghn", epilog=architectures.TRAIN_EXAMPLES)(architectures.train_ghn)
app.command("compare-predictors", epilog=compare_predictors.EXAMPLES)(compare_predictors.compare_predictors)
app.add_typer(predictddl.app)
app.add_typer(campaign.app)
app.command("performance-models", epilog=performance.MODELS_EXAMPLES)(performance.performance_models)
app.command("performance-predict", epilog=performance.PREDICT_EXAMPLES)(performance.performance_predict)
app.command(epilog=calibrate.EXAMPLES)(calibrate.calibrate)


def command_paths() -> list[str]:
    """Every command as one types it, without the program's name; a group stands before its commands."""

    def below(group: Any, before: str) -> Iterator[str]:
        for name, command in group.commands.items():
            yield f"{before}{name}"
            if hasattr(command, "commands"):
                yield from below(command, f"{before}{name} ")

    return [*below(typer.main.get_command(app), "")]


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def root(
    *,
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version.")
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", help="Show the traceback of an error. May stand anywhere.")
    ] = False,
) -> None:
    """How long a training step or run takes, at every precision, before a GPU is rented."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line; no error ends in a traceback unless --debug asks for it.

    Exit codes: 2 for what the caller can mend (input, files, folders), 130 when interrupted, 70 for an error
    that nobody foresaw.

    Args:
        arguments: Words after the program name; `sys.argv` if None.
    """
    sys.stdout = sys.stdout or io.StringIO()  # None where the shell closed it
    sys.stderr = sys.stderr or io.StringIO()
    words = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in words
    words = [word for word in words if word != "--debug"]
    try:
        try:
            app(args=words, prog_name="precision-time")
        finally:
            _flush()
    except (Exception, KeyboardInterrupt, _Stopped) as error:
        code, line = _last_words(error)
        if debug and code:
            raise
        with contextlib.suppress(OSError, ValueError):
            if line:
                message(" ".join(line.split()))
        _silence()
        raise SystemExit(code) from None


def _last_words(error: BaseException) -> tuple[int, str]:
    """Exit code and line of an error."""
    if isinstance(error, PrecisionTimeError):
        return 2, f"Error: {error}"
    if isinstance(error, KeyboardInterrupt) or (isinstance(error, _Stopped) and error.interrupted):
        return 130, "Interrupted."
    if isinstance(error, BrokenPipeError | _Stopped):
        return 0, ""  # the reader of a pipe (`| head`) has gone: nothing is wrong
    if isinstance(error, OSError) and error.errno is not None:
        said = printable(str(error), longest=500)
        return 2, f"Error: {said}. To fix: check file, folder, permissions and free space."
    return 70, f"{unexpected(error)} --debug shows the traceback."


def _flush() -> None:
    """Write what is buffered while an error can still be reported."""
    if not sys.stdout.closed:
        sys.stdout.flush()


def _silence() -> None:
    """Let nothing buffered be written on the way out: it would fail again."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        sys.stdout.flush()
        return
    with contextlib.suppress(OSError, ValueError, AttributeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
