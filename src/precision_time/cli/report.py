"""`precision-time report`: how good the predictions are, on runs held out."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .options import JsonOption, RayOption, complete_words
from .output import message, progress, write_json, write_rows

if TYPE_CHECKING:
    from ..evaluation.tables import Report, Section

EXAMPLES = """\b
Examples:
  precision-time report --quick
  precision-time report --only T1,T5 --seeds 5
  precision-time report --markdown accuracy.md --html accuracy.html
  precision-time report --only T5 --sample 4000 --folds 2 --against tests/accuracy/baseline.json
"""


def report(
    *,
    only: Annotated[
        list[str] | None,
        typer.Option(
            "--only",
            metavar="TABLES",
            help="Some of T1 to T6, such as T1,T5; may be repeated.",
            autocompletion=complete_words("T1", "T2", "T3", "T4", "T5", "T6"),
        ),
    ] = None,
    seeds: Annotated[
        int, typer.Option("--seeds", help="Seeds of folds and trees; more than one gives a spread.")
    ] = 1,
    quick: Annotated[
        bool,
        typer.Option("--quick", help="A sample, two folds, fewer trees: a trial run of a minute or two."),
    ] = False,
    sample: Annotated[int | None, typer.Option("--sample", metavar="N", help="Draw about N runs.")] = None,
    folds: Annotated[
        int | None, typer.Option("--folds", metavar="N", help="Folds; 5, or 2 when quick.")
    ] = None,
    markdown: Annotated[
        Path | None,
        typer.Option("--markdown", dir_okay=False, help="Write the tables to this Markdown file."),
    ] = None,
    html: Annotated[
        Path | None,
        typer.Option("--html", dir_okay=False, help="Write one page with tables and plots (extra plots)."),
    ] = None,
    write_baseline: Annotated[
        Path | None,
        typer.Option("--write-baseline", dir_okay=False, help="Keep our figures for a later --against."),
    ] = None,
    against: Annotated[
        Path | None,
        typer.Option(
            "--against",
            exists=True,
            dir_okay=False,
            help="Fail if a figure is worse than in this baseline by more than noise.",
        ),
    ] = None,
    ray: RayOption = None,
    json_output: JsonOption = False,
) -> None:
    """Score the predictor on runs it has not seen.

    T1 precision spread, T2 cross-precision errors and the blind floor, T3 other predictors, T4 ablations,
    T5 generalization with targets, T6 feature importance. Everything at full size takes some
    20 minutes on two cores; what was computed is kept in the user's cache.
    """
    from ..evaluation.report import build_report
    from ..ray_executor import open_executor

    _check(markdown, html, write_baseline)
    tables = [name for words in only or [] for name in words.split(",")]
    with open_executor(ray) as map_fn, progress("Report") as show:
        result = build_report(
            only=tables, seeds=seeds, quick=quick, sample=sample, folds=folds, progress=show, map_fn=map_fn
        )
    if json_output:
        write_json(result.to_dict())
    else:
        _write(result)
    _save(result, markdown, html)
    _guard(result, write_baseline, against)


def _guard(result: Report, write: Path | None, against: Path | None) -> None:
    from ..evaluation.regressions import regressions
    from ..evaluation.regressions import write_baseline as write_figures

    if against is not None:
        worse = regressions(result, against)
        for line in worse:
            message(f"Worse than {against}: {line}")
        if worse:
            raise typer.Exit(1)
        message(f"Nothing is worse than {against} by more than noise.")
    if write is not None:
        write_figures(result, write)
        message(f"Wrote {write}")


def _write(result: Report) -> None:
    from ..evaluation.tables import introduction

    typer.echo(introduction(result))
    for section in result.sections:
        write_section(section, f"{section.key} {section.title}")


def write_section(section: Section, title: str) -> None:
    """Write one section of a report to stdout, its tables below its headline."""
    from ..evaluation.tables import text_of

    typer.echo(f"\n{title}\n{section.headline}")
    for table in section.tables:
        typer.echo()
        rows = [tuple(text_of(cell) for cell in row) for row in table.rows]
        write_rows(table.title, table.columns, rows)
        if table.note:
            typer.echo(table.note.strip())


def _check(markdown: Path | None, html: Path | None, baseline: Path | None) -> None:
    """Check that the results can be written before minutes are spent on them."""
    from ..errors import ConfigError

    for option, path in (
        ("--markdown", markdown),
        ("--html", html),
        ("--write-baseline", baseline),
    ):
        if path is not None and not path.absolute().parent.is_dir():
            raise ConfigError(
                f"{option} {path}: its folder does not exist. To fix: create it, or name another."
            )
    if html is not None:
        from ..plotting import require_matplotlib

        require_matplotlib()


def _save(result: Report, markdown: Path | None, html: Path | None) -> None:
    if markdown is not None:
        from ..evaluation.tables import markdown as as_markdown

        markdown.write_text(as_markdown(result), encoding="utf-8")
        message(f"Wrote {markdown}")
    if html is not None:
        from ..evaluation.tables import html as as_html

        html.write_text(as_html(result), encoding="utf-8")
        message(f"Wrote {html}")
