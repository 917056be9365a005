"""`precision-time performance-models` and `performance-predict`: models of your own measured points."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from ..io import write_atomically
from .options import JsonOption
from .output import message, progress, write_json, write_rows

MODELS_EXAMPLES = """\b
Examples:
  precision-time performance-models study.yaml
  precision-time performance-models study.yaml --csv points.csv --out resnet.ptm --plots plots
  precision-time performance-models study.yaml --json
"""

PREDICT_EXAMPLES = """\b
Examples:
  precision-time performance-predict resnet.ptm --set num_workers=8 --set batch_per_worker=64
  precision-time performance-predict resnet.ptm --csv rows.csv --json
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
            "--csv", exists=True, dir_okay=False, help="Measured points; default: `data` of the file."
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
    from ..papers.ray_models.report import SCORE_COLUMNS, remarks, score_rows, to_dict
    from ..papers.ray_models.schema import prepared, read_study
    from ..papers.ray_models.study import run_study
    from ..papers.ray_models.tuning import require_sklearn

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
        typer.Argument(metavar="MODEL", exists=True, dir_okay=False, help="From performance-models --out."),
    ],
    *,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="COLUMN=VALUE", help="A value of the row to predict; may be repeated."),
    ] = None,
    csv: Annotated[
        Path | None,
        typer.Option("--csv", exists=True, dir_okay=False, help="Rows to predict, one prediction each."),
    ] = None,
    json_output: JsonOption = False,
) -> None:
    """Predict with a model of `performance-models`.

    Values outside the measured range are extrapolated, and the answer says so.
    """
    from ..errors import ConfigError
    from ..papers.ray_models.model import COVERAGE, PerformanceModel
    from ..papers.ray_models.points import read_csv

    if (csv is None) == (not set_):
        raise ConfigError("Give either --set COLUMN=VALUE or --csv FILE. To fix: use one of them.")
    fitted = PerformanceModel.load(model)
    rows: list[dict[str, Any]] = [_row(set_ or [])] if csv is None else [*read_csv(csv)[0]]
    if not rows:
        raise ConfigError(f"{csv} has no rows. To fix: write one row per prediction.")
    times = fitted.predict(rows)
    notes = fitted.remarks(rows)
    unit = "s" if fitted.target.endswith("_s") else ""
    ends = fitted.interval(times)
    bounds = None if ends is None else [*zip(*(end.tolist() for end in ends), strict=True)]
    if json_output:
        answers = [{**row, fitted.target: float(value)} for row, value in zip(rows, times, strict=True)]
        if bounds is not None:
            answers = [
                {**answer, "interval": {"low": low, "high": high, "coverage": COVERAGE}}
                for answer, (low, high) in zip(answers, bounds, strict=True)
            ]
        write_json({"target": fitted.target, "unit": unit, "predictions": answers, "remarks": list(notes)})
        return
    names = [*rows[0]]
    said = [f"{value:.4g} {unit}".strip() for value in times]
    between = [""] * len(rows) if bounds is None else [f"{a:.4g} - {b:.4g} {unit}".strip() for a, b in bounds]
    cells = [
        (*(str(row[name]) for name in names), *told)
        for row, told in zip(rows, zip(said, between, strict=True), strict=True)
    ]
    write_rows("", (*names, f">{fitted.target}", f">{COVERAGE:.0%} interval"), cells)
    if bounds is None:
        message("No interval: too few points were held out. To fix: measure more.")
    for line in notes:
        message(line)


def _data(study: Path, stated: str | None, csv: Path | None) -> Path:
    from ..errors import ConfigError

    if csv is not None:
        return csv
    if stated is None:
        raise ConfigError(f"{study} names no points. To fix: add `data: points.csv`, or give --csv FILE.")
    return study.parent / stated


def _check_folders(out: Path | None, plots: Path | None) -> None:
    """Refuse what could not be written before anything is fitted."""
    from ..errors import ConfigError

    if out is not None and not out.absolute().parent.is_dir():
        raise ConfigError(f"--out {out}: its folder does not exist. To fix: create it, or name another.")
    if plots is not None:
        from ..plotting import require_matplotlib

        require_matplotlib()


def _save_plots(result: Any, folder: Path) -> None:
    from ..papers.ray_models.report import plots

    folder.mkdir(parents=True, exist_ok=True)
    for name, svg in plots(result).items():
        path = folder / f"{name}.svg"
        write_atomically(path, svg)
        message(f"Wrote {path}")


def _row(pairs: list[str]) -> dict[str, str]:
    from ..errors import ConfigError

    row: dict[str, str] = {}
    for pair in pairs:
        name, sign, value = pair.partition("=")
        if not sign or not name:
            raise ConfigError(
                f"--set {pair} is not of the form COLUMN=VALUE. To fix: write, say, --set num_workers=4."
            )
        row[name] = value
    return row
