"""`precision-time calibrate`: the predictor conditioned on the user's own measured steps."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from .options import JsonOption, PredictorOption, declared
from .output import message, progress, write_json, write_rows

if TYPE_CHECKING:
    from ..learn.calibration.fit import Calibrated


_FIGURES = ("mape_percent", "median_ape_percent", "p90_ape_percent", "bias_percent")


@declared("calibrate")
def calibrate(
    data: Path,
    *,
    out: Path | None = None,
    device: str | None = None,
    predictor: PredictorOption = None,
    force: bool = False,
    json_output: JsonOption = False,
) -> None:
    """Calibrate the predictor to your own cluster.

    A few measured points move the parts of the step (products, other kernels, host, update, links, waits) and
    what they leave over; how far, and to which other jobs, is what the corpus says of such errors. Errors
    before and after are of configurations that their calibration has not seen.
    """
    from ..hardware.custom import copy_hardware
    from ..learn.artifact import chosen_predictor
    from ..learn.calibration.fit import calibrate_file

    with progress("Calibrating"):
        result = calibrate_file(data, chosen_predictor(predictor), device=device, origin=data.name)
    written = out if result.helps or force else None
    if written is not None:
        result.calibration.save(written)
        copy_hardware(data, written)
    if json_output:
        write_json(_to_dict(result, written))
    else:
        _write(result)
    for reason, count in result.points.rejected.items():
        message(f"Left out {count} rows: {reason}")
    if not result.helps:
        message("These points do not help: held out, they are predicted no better than without them.")
    if written is not None:
        message(f"Wrote {written}")
    elif out is not None:
        message(f"{out} was not written. To fix: measure more, or other steps; or --force.")
        raise typer.Exit(1)
    else:
        message("Nothing was written. To keep it: --out FILE.")


def _factors(result: Calibrated) -> list[tuple[str, float]]:
    """Factor on each part of the step and on what is left, the median over the points."""
    import numpy as np

    from ..learn.calibration.process import PROCESSES

    moved = result.calibration.conditioned.at(result.points.places)
    logs = np.concatenate([moved.parameters, moved.residual[:, None]], axis=1)
    return list(zip(PROCESSES, np.exp(np.median(logs, axis=0)).tolist(), strict=True))


def _to_dict(result: Calibrated, out: Path | None) -> dict[str, object]:
    return {
        **result.calibration.card,
        "before": None if result.before is None else result.before.to_dict(),
        "after": None if result.after is None else result.after.to_dict(),
        "factors": dict(_factors(result)),
        "helps": result.helps,
        "output": None if out is None else str(out),
    }


def _write(result: Calibrated) -> None:
    points = result.points
    rows = [
        (name, *(f"{getattr(summary, figure):.1f}" for figure in _FIGURES))
        for name, summary in (("before", result.before), ("after", result.after))
        if summary is not None
    ]
    title = f"{points.rows} points, {len(points.places)} configurations; {result.left_out}"
    write_rows(title, ("", ">MAPE %", ">median %", ">p90 %", ">bias %"), rows)
    typer.echo()
    factors = [(name, f"{factor:.3f}") for name, factor in _factors(result)]
    write_rows("Factors on the parts of the step, median of the points", ("part", ">factor"), factors)
