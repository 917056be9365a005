"""`precision-time papers report` and `papers compare`: errors on unseen runs, ours and the papers'."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from precision_time.cli.options import JsonOption, RayOption, by_ending, complete_words, output_file, words_of
from precision_time.cli.output import message, progress, write_json, write_rows
from precision_time.io import write_atomically

if TYPE_CHECKING:
    from ..evaluation.tables import Report

REPORT_EXAMPLES = """\b
Examples:
  precision-time papers report --quick
  precision-time papers report --only T1,T5 --seeds 5
  precision-time papers report --out accuracy.md --out accuracy.html
  precision-time papers report --only T5 --sample 4000 --folds 2 --against baseline.json
"""
COMPARISON_EXAMPLES = """\b
Examples:
  precision-time papers compare --quick
  precision-time papers compare --only ours,predictddl,ernest-pooled --seeds 3
  precision-time papers compare --out predictors.md
  precision-time papers compare --quick --json
"""

_SeedsOption = Annotated[
    int, typer.Option("--seeds", help="Seeds of folds and fits; more than one gives a spread.")
]


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
    seeds: _SeedsOption = 1,
    quick: Annotated[
        bool,
        typer.Option("--quick", help="A sample, two folds, fewer trees: a trial run of a minute or two."),
    ] = False,
    sample: Annotated[int | None, typer.Option("--sample", metavar="N", help="Draw about N runs.")] = None,
    folds: Annotated[
        int | None, typer.Option("--folds", metavar="N", help="Folds; 5, or 2 when quick.")
    ] = None,
    out: Annotated[
        list[Path] | None,
        output_file(
            "--out",
            "-o",
            text="Write the tables (.md), or one page with tables and plots (.html, extra plots); may be "
            "repeated.",
        ),
    ] = None,
    write_baseline: Annotated[
        Path | None, output_file("--write-baseline", text="Keep our figures for a later --against.")
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
    from precision_time.executor import open_executor

    from ..evaluation import tables
    from ..evaluation.regressions import read_baseline, regressions
    from ..evaluation.regressions import write_baseline as write_figures
    from ..evaluation.report import build_report

    baseline = None if against is None else read_baseline(against)  # before the minutes that follow
    files = by_ending(out, markdown=(".md",), html=(".html",))
    if files["html"] is not None:
        from precision_time.render.picture import require_matplotlib

        require_matplotlib()
    with open_executor(ray) as map_fn, progress("Report") as show:
        result = build_report(
            only=words_of(",".join(only or [])),
            seeds=seeds,
            quick=quick,
            sample=sample,
            folds=folds,
            progress=show,
            map_fn=map_fn,
        )
    if json_output:
        write_json(result.to_dict())
    else:
        _write_report(result, with_keys=True)
    for kind, path in files.items():
        if path is not None:
            _save(path, getattr(tables, kind)(result))
    if baseline is not None:
        worse = regressions(result, baseline)
        for line in worse:
            message(f"Worse than {against}: {line}")
        if worse:
            raise typer.Exit(1)
        message(f"Nothing is worse than {against} by more than noise.")
    if write_baseline is not None:
        write_figures(result, write_baseline)
        message(f"Wrote {write_baseline}")


def complete_predictor(prefix: str) -> list[str]:
    """Names of predictors that start with the last word of `prefix`; words before a comma are kept."""
    from ..registry import PREDICTORS

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
    seeds: _SeedsOption = 1,
    quick: Annotated[
        bool, typer.Option("--quick", help="A sample, two folds, fewer trees: a trial run of a minute.")
    ] = False,
    out: Annotated[
        list[Path] | None, output_file("--out", "-o", text="Write the tables to this Markdown file (.md).")
    ] = None,
    json_output: JsonOption = False,
) -> None:
    """Compare ours with the predictors of the papers.

    PredictDDL, Ernest, CherryPick, Optimus, Paleo, Daydream and Driple.

    On unseen configurations, unseen architectures and unseen cluster sizes: errors, ranking, seconds to fit
    and to answer, sample runs needed. All at full size takes about a quarter of an hour on two cores; what
    was computed is kept in the user's cache.
    """
    from ..evaluation.comparison import compare, comparison_page, left_out

    page = by_ending(out, page=(".md",))["page"]
    with progress("Comparison") as show:
        result = compare(only=words_of(",".join(only or [])), seeds=seeds, quick=quick, progress=show)
    if json_output:
        write_json(result.to_dict())
    else:
        _write_report(result.report, left_out(result))
    if page is not None:
        _save(page, comparison_page(result))


def _write_report(report: Report, remark: str = "", *, with_keys: bool = False) -> None:
    """Every section of a report to stdout, its tables below its headline."""
    from precision_time.render.table import text_of

    from ..evaluation.tables import introduction

    typer.echo(introduction(report))
    if remark:
        typer.echo(f"\n{remark}")
    for section in report.sections:
        title = f"{section.key} {section.title}" if with_keys else section.title
        typer.echo(f"\n{title}\n{section.headline}")
        for table in section.tables:
            typer.echo()
            write_rows(table.title, table.columns, [tuple(map(text_of, row)) for row in table.rows])
            if table.note:
                typer.echo(table.note.strip())


def _save(path: Path, text: str) -> None:
    write_atomically(path, text)
    message(f"Wrote {path}")
