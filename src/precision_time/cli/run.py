"""The whole run of `precision-time predict`: from the start of the job to its end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import typer

from ..client.remote import chosen
from ..errors import ConfigError
from ..planning.run.schema import RunOptions
from ..request.sweep import PHASES, RUN
from .options import NOTHING_FITS, PREFIX, by_ending
from .output import message, progress, write_json, write_result
from .request_options import request_and_others


def predict_whole_run(
    model: str | None,
    fields: Mapping[str, Any],
    stated: Mapping[str, Any],
    *,
    out: Sequence[Path] | None,
    json_output: bool,
    brief: bool,
    step_alone: Mapping[str, Any],
) -> None:
    """Predict how long a whole training takes, and write it.

    Raises:
        ConfigError: If one of those was given, or a value breaks its rule.
    """
    from ..planning.run.api import run_of

    given = [name for name, value in step_alone.items() if value not in (None, False)]
    if model is None or given:
        option = f"--{given[0].replace('_', '-')}" if given else "--jobs"
        raise ConfigError(
            f"{option} is of a step, and a whole run is asked for. To fix: leave it out, or the fields of a "
            "run and --whole-run."
        )
    from ..planning.run.picture import KINDS, write_picture

    if (plot := by_ending(out, plot=KINDS)["plot"]) is not None:
        from ..render.picture import check_picture

        check_picture(plot, kinds=KINDS)
    request, in_file = request_and_others(model, fields, (PHASES, RUN))
    options = RunOptions.of({**RunOptions.of(in_file.get(RUN) or {}).given(), **stated}, prefix=PREFIX)
    with progress(f"Predicting {model}"):
        answer = run_of if (server := chosen()) is None else server.run_of
        found = answer(request, options, in_file.get(PHASES))
    if brief:
        write_json(found.headline.to_dict())
    elif json_output:
        write_json({**found.to_dict(), **found.headline.apart()})
    else:
        write_result(found, json_output=False)
    if plot is not None:
        write_picture(found, plot)
        message(f"Wrote {plot}")
    if not found.fits:
        raise typer.Exit(NOTHING_FITS)
