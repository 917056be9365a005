"""`precision-time compare-predictors`: predictors of the literature and ours, on the same unseen rows."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .options import JsonOption
from .output import message, progress, write_json
from .report import write_section

if TYPE_CHECKING:
    from ..evaluation.comparison import PredictorComparison

EXAMPLES = """\b
Examples:
  precision-time compare-predictors --quick
  precision-time compare-predictors --only ours,predictddl,ernest-pooled --seeds 3
  precision-time compare-predictors --markdown predictors.md
  precision-time compare-predictors --quick --json
"""


def complete_predictor(prefix: str) -> list[str]:
    """Names of predictors that start with the last word of `prefix`; words before a comma are kept."""
    from ..papers.registry import PREDICTORS

    before, comma, last = prefix.rpartition(",")
    return [f"{before}{comma}{name}" for name in PREDICTORS if name.startswith(last)]


def compare_predictors(
    *,
    only: Annotated[
        list[str] | None,
        typer.Option(
            "--only",
            metavar="NAMES",
            help="Some predictors, such as ours,predictddl; may be repeated. Those that run the queried job "
            "are always compared: they decide which rows are scored.",
            autocompletion=complete_predictor,
        ),
    ] = None,
    seeds: Annotated[
        int, typer.Option("--seeds", help="Seeds of folds and fits; more than one gives a spread.")
    ] = 1,
    quick: Annotated[
        bool, typer.Option("--quick", help="A sample, two folds, fewer trees: a trial run of a minute.")
    ] = False,
    markdown: Annotated[
        Path | None,
        typer.Option("--markdown", dir_okay=False, help="Write the tables to this Markdown file."),
    ] = None,
    json_output: JsonOption = False,
) -> None:
    """Compare ours with the predictors of the papers.

    PredictDDL, Ernest, CherryPick, Optimus, Paleo, Daydream and Driple.

    On unseen configurations, unseen architectures and unseen cluster sizes: errors, ranking, seconds to fit
    and to answer, sample runs needed. All at full size takes about a quarter of an hour on two cores; what
    was computed is kept in the user's cache.
    """
    from ..evaluation.comparison import compare

    _check(markdown)
    names = [name for words in only or [] for name in words.split(",")]
    with progress("Comparison") as show:
        result = compare(only=names, seeds=seeds, quick=quick, progress=show)
    if json_output:
        write_json(result.to_dict())
    else:
        _write(result)
    if markdown is not None:
        from ..evaluation.comparison import comparison_page

        markdown.write_text(comparison_page(result), encoding="utf-8")
        message(f"Wrote {markdown}")


def _write(result: PredictorComparison) -> None:
    from ..evaluation.comparison import left_out
    from ..evaluation.tables import introduction

    typer.echo(introduction(result.report))
    missing = left_out(result)
    if missing:
        typer.echo(f"\n{missing}")
    for section in result.report.sections:
        write_section(section, section.title)


def _check(markdown: Path | None) -> None:
    """Check that the page can be written before anything is computed."""
    from ..errors import ConfigError

    if markdown is not None and not markdown.absolute().parent.is_dir():
        raise ConfigError(
            f"--markdown {markdown}: its folder does not exist. To fix: create it, or name another."
        )
