"""`precision-time papers performance learn` and `performance-predict`: models of your own measured points."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from precision_time.cli.options import JsonOption
from precision_time.cli.output import message, progress, write_json, write_rows
from precision_time.io import write_atomically
from precision_time.units import duration_s, format_duration

if TYPE_CHECKING:
    from ..ray_models.forecast import Offer
    from ..ray_models.model import Answer, PerformanceModel

MODELS_EXAMPLES = """\b
Examples:
  precision-time papers performance learn study.yaml
  precision-time papers performance learn study.yaml --measurements points.csv --out resnet.ptm --plots plots
  precision-time papers performance learn study.yaml --json
"""

PREDICT_EXAMPLES = """\b
Examples:
  precision-time papers performance predict resnet.ptm --set num_workers=8 --set batch_per_worker=64
  precision-time papers performance predict resnet.ptm --jobs rows.csv --json --strict
  precision-time papers performance predict resnet.ptm --set epochs=9 --ray-workers 1..16 --deadline 2h
"""


def performance_models(
    study: Annotated[
        Path,
        typer.Argument(
            metavar="FILE.yaml", exists=True, dir_okay=False, help="What to fit (docs/reference/ray.md)."
        ),
    ],
    *,
    csv: Annotated[
        Path | None,
        typer.Option(
            "--measurements",
            exists=True,
            dir_okay=False,
            help="Measured points; default: `data` of the file.",
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", dir_okay=False, help="Write the fitted model to this file.")
    ] = None,
    plots: Annotated[
        Path | None,
        typer.Option("--plots", file_okay=False, help="Write plots as SVG to this folder (extra plots)."),
    ] = None,
    json_output: JsonOption = False,
) -> None:
    """Learn training times from measured points.

    Tunes every technique on inner splits of the points it is fitted on, takes the one with the lowest error
    there, and scores it on test points: between the measured values, beyond them, or at random.
    """
    from ..ray_models.report import SCORE_COLUMNS, remarks, score_rows, to_dict
    from ..ray_models.schema import prepared, read_study
    from ..ray_models.study import run_study
    from ..ray_models.tuning import require_sklearn

    require_sklearn()
    content = read_study(study)
    _check_folders(out, plots)
    points, plan = prepared(content, _data(study, content.data, csv))
    with progress("Performance models") as show:
        result = run_study(points, plan, progress=show)
    if out is not None:
        result.model.save(out)
    if plots is not None:
        _save_plots(result, plots)
    if json_output:
        write_json(to_dict(result))
    else:
        write_rows(f"{points.target}, {len(points)} points", SCORE_COLUMNS, score_rows(result))
        for line in remarks(result):
            typer.echo(line)
    if out is not None:
        message(f"Wrote {out}")


def performance_predict(
    model: Annotated[
        Path,
        typer.Argument(metavar="MODEL", exists=True, dir_okay=False, help="From `papers performance learn`."),
    ],
    *,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="COLUMN=VALUE", help="A value of the row to predict; may be repeated."),
    ] = None,
    csv: Annotated[
        Path | None,
        typer.Option("--jobs", exists=True, dir_okay=False, help="Rows to predict, one prediction each."),
    ] = None,
    workers: Annotated[
        str | None,
        typer.Option("--ray-workers", metavar="1..16", help="Ask for each number of workers."),
    ] = None,
    cpus: Annotated[
        str | None,
        typer.Option("--cpus-per-worker", metavar="1,2,4", help="Ask for each of these CPUs per worker."),
    ] = None,
    price_per_hour: Annotated[
        float | None, typer.Option("--price-per-hour", min=0.0, help="Of one worker: adds the cost.")
    ] = None,
    deadline: Annotated[
        str | None,
        typer.Option("--deadline", metavar="TIME", help="Such as 2h: name the cheapest done by then."),
    ] = None,
    strict: Annotated[
        bool,
        typer.Option("--strict", help="Refuse what is flagged."),
    ] = False,
    json_output: JsonOption = False,
) -> None:
    """Predict with a model of `papers performance learn`.

    Every answer has an interval, from points that were held out of the fit. What the model cannot have
    learned is flagged, with the reason: too few points, a step that no column explains, far beyond the
    measured range, a large error on points held out. Values outside the measured range are extrapolated, and
    the answer says so.
    """
    from precision_time.errors import ConfigError

    from ..ray_models.forecast import cheapest, column_of, counts_of, offers_of
    from ..ray_models.model import PerformanceModel
    from ..ray_models.points import read_csv

    grids = {"workers": workers, "cpus": cpus}
    asks_grid = any(grids.values())
    deadline_s = None if deadline is None else duration_s("--deadline", deadline)
    if csv is None and not set_ and not asks_grid:
        raise ConfigError("Give either --set COLUMN=VALUE or --jobs FILE. To fix: use one of them.")
    if csv is not None and (set_ or asks_grid):
        raise ConfigError(
            "--jobs has whole rows: no --set, --ray-workers or --cpus-per-worker. To fix: leave them out."
        )
    fitted = PerformanceModel.load(model)
    rows: list[dict[str, Any]] = [_row(set_ or [])] if csv is None else [*read_csv(csv)[0]]
    if not rows:
        raise ConfigError(f"{csv} has no rows. To fix: write one row per prediction.")
    offers = None
    if asks_grid or price_per_hour is not None or deadline_s is not None:
        grid = {column_of(fitted, role): counts_of(text) for role, text in grids.items() if text}
        priced = [offers_of(fitted, row, grid, price_per_hour=price_per_hour) for row in rows]
        offers = [offer for some in priced for offer in some]
        rows, answers = [dict(offer.row) for offer in offers], [offer.answer for offer in offers]
    else:
        answers = [*fitted.answers(rows)]
    if strict:
        _refuse_flagged(answers)
    best = None if offers is None else cheapest(offers, deadline_s)
    notes = [*fitted.remarks(rows), *_flag_lines(answers), *_choice_lines(fitted, offers, best, deadline_s)]
    if json_output:
        write_json(_told(fitted, rows, answers, offers, best, notes))
        return
    _write_answers(fitted, rows, answers, offers, best)
    for line in notes:
        message(line)


def _told(
    fitted: PerformanceModel,
    rows: Sequence[Mapping[str, Any]],
    answers: Sequence[Answer],
    offers: Sequence[Offer] | None,
    best: Offer | None,
    notes: Sequence[str],
) -> dict[str, Any]:
    """The JSON of the predictions."""
    from ..ray_models.trust import COVERAGE

    predictions = []
    for place, (row, answer) in enumerate(zip(rows, answers, strict=True)):
        told = {**row, fitted.target: answer.time, "flags": [flag.model_dump() for flag in answer.flags]}
        if answer.low is not None:
            told["interval"] = {"low": answer.low, "high": answer.high, "coverage": COVERAGE}
        if offers is not None:
            told |= {"worker_hours": offers[place].worker_hours, "cost": offers[place].cost}
        predictions.append(told)
    told = {
        "target": fitted.target,
        "unit": _unit(fitted),
        "predictions": predictions,
        "remarks": list(notes),
    }
    return told if offers is None else {**told, "cheapest": None if best is None else dict(best.row)}


def _write_answers(
    fitted: PerformanceModel,
    rows: Sequence[Mapping[str, Any]],
    answers: Sequence[Answer],
    offers: Sequence[Offer] | None,
    best: Offer | None,
) -> None:
    from ..ray_models.trust import COVERAGE

    unit, names = _unit(fitted), [*rows[0]]
    heads = [*names, f">{fitted.target}", f">{COVERAGE:.0%} interval"]
    priced = offers is not None and offers[0].cost is not None
    heads += [">worker hours", *([">cost"] if priced else [])] if offers is not None else []
    cells = []
    for place, (row, answer) in enumerate(zip(rows, answers, strict=True)):
        between = "-" if answer.low is None else f"{answer.low:.4g} - {answer.high:.4g} {unit}".strip()
        told = [_cell(row[name]) for name in names] + [f"{answer.time:.4g} {unit}".strip(), between]
        if offers is not None:
            told.append(f"{offers[place].worker_hours:.3g}")
            told += [f"{offers[place].cost:.4g}"] if priced else []
        marks = [*dict.fromkeys(flag.kind for flag in answer.flags)]
        if offers is not None and offers[place] is best:
            marks.append("cheapest")
        cells.append((*told, ", ".join(marks)))
    marked = any(cell[-1] for cell in cells)
    write_rows(
        "", (*heads, *(["flags"] if marked else [])), [cell if marked else cell[:-1] for cell in cells]
    )
    if any(answer.low is None for answer in answers):
        message("No interval (-): too few points were held out. To fix: measure more.")


def _cell(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _unit(fitted: PerformanceModel) -> str:
    return "s" if fitted.target.endswith("_s") else ""


def _flag_lines(answers: Sequence[Answer]) -> Iterator[str]:
    """Each reason once, and how many answers it is about."""
    counts = Counter(flag for answer in answers for flag in answer.flags)
    for flag, count in counts.items():
        about = "" if len(answers) == 1 else f" ({count} of {len(answers)} answers)"
        yield f"Flagged, {flag.kind}{about}: {flag}"


def _choice_lines(
    fitted: PerformanceModel, offers: Sequence[Offer] | None, best: Offer | None, deadline_s: float | None
) -> Iterator[str]:
    if offers is None or (len(offers) == 1 and deadline_s is None):
        return
    within = "" if deadline_s is None else f" within {format_duration(deadline_s)}"
    if best is None:
        yield (
            f"No configuration that is not flagged is done{within}. To fix: ask for more workers, or measure "
            "points nearer to them."
        )
        return
    workers = fitted.roles["workers"]
    cost = "" if best.cost is None else f", cost {best.cost:.4g}"
    told = f"Cheapest{within}: {workers} = {best.workers:g}, {format_duration(best.answer.time)}{cost}."
    high = best.answer.high
    if deadline_s is not None and high is not None and high > deadline_s:
        told += f" The interval ends at {format_duration(high)}, after the deadline."
    yield told


def _refuse_flagged(answers: Sequence[Answer]) -> None:
    """Refuse answers that are flagged.

    Raises:
        ConfigError: If one is; names the first reason.
    """
    from precision_time.errors import ConfigError

    flagged = [(number, answer) for number, answer in enumerate(answers, start=1) if answer.flags]
    if flagged:
        number, answer = flagged[0]
        more = f" ({len(flagged)} of {len(answers)} answers are flagged)" if len(answers) > 1 else ""
        raise ConfigError(f"Row {number} is refused by --strict{more}: {answer.flags[0]}")


def _data(study: Path, stated: str | None, csv: Path | None) -> Path:
    from precision_time.errors import ConfigError

    if csv is not None:
        return csv
    if stated is None:
        raise ConfigError(
            f"{study} names no points. To fix: add `data: points.csv`, or give --measurements FILE."
        )
    return study.parent / stated


def _check_folders(out: Path | None, plots: Path | None) -> None:
    """Refuse what could not be written before anything is fitted."""
    from precision_time.errors import ConfigError

    if out is not None and not out.absolute().parent.is_dir():
        raise ConfigError(f"--out {out}: its folder does not exist. To fix: create it, or name another.")
    if plots is not None:
        from precision_time.render.picture import require_matplotlib

        require_matplotlib()


def _save_plots(result: Any, folder: Path) -> None:
    from ..ray_models.report import plots

    folder.mkdir(parents=True, exist_ok=True)
    for name, svg in plots(result).items():
        path = folder / f"{name}.svg"
        write_atomically(path, svg)
        message(f"Wrote {path}")


def _row(pairs: list[str]) -> dict[str, str]:
    from precision_time.errors import ConfigError

    row: dict[str, str] = {}
    for pair in pairs:
        name, sign, value = pair.partition("=")
        if not sign or not name:
            raise ConfigError(
                f"--set {pair} is not of the form COLUMN=VALUE. To fix: write, say, --set num_workers=4."
            )
        row[name] = value
    return row
