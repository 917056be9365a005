"""The command line's root: registers the commands and turns errors into one line and exit code 2."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from typing import Annotated, Any

import typer

from .. import __version__
from ..errors import PrecisionTimeError
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

app = typer.Typer(
    name="precision-time",
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
    """Run the command line; errors that this package raises on purpose exit with code 2.

    Args:
        arguments: Words after the program name; `sys.argv` if None.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in words
    words = [word for word in words if word != "--debug"]
    try:
        app(args=words, prog_name="precision-time")
    except PrecisionTimeError as error:
        if debug:
            raise
        message(f"Error: {' '.join(str(error).split())}")
        raise SystemExit(2) from None
    except BrokenPipeError:
        # The reader of a pipe (`| head`) has gone: nothing is wrong, and nothing more can be written.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(0) from None
