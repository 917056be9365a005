"""`precision-time plan`: which devices, how many, at which precision, for how much, and whether in time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer

from ..client.remote import chosen
from ..errors import ConfigError
from ..planning.decision.api import PLANNED_FIELDS, RUN_FIELDS
from .options import (
    NOTHING_FITS,
    JsonOption,
    ModelArgument,
    RayOption,
    by_ending,
    declared,
)
from .output import message, progress_bar, write_result
from .request_options import given_fields, request_options


@request_options(only=PLANNED_FIELDS, several=True, also=lambda: RUN_FIELDS)
@declared("plan")
def plan(
    model: ModelArgument,
    *,
    deadline: str | None = None,
    budget: str | None = None,
    currency: str | None = None,
    carbon_kg: float | None = None,
    confidence: float = 0.9,
    devices: str | None = None,
    precision: str | None = None,
    gpus: str | None = None,
    max_gpus: int | None = None,
    clouds: str | None = None,
    regions: str | None = None,
    market: str | None = None,
    prices: Path | None = None,
    any_network: bool = False,
    layouts: int = 0,
    why: bool = False,
    out: list[Path] | None = None,
    workers: int | None = None,
    ray: RayOption = None,
    json_output: JsonOption = False,
    **fields: Any,
) -> None:
    """Choose devices for a run under a deadline and a budget.

    Types, numbers, precisions, layouts, batches and offers of clouds compete.

    Says the cheapest, the fastest and the greenest that keep the limits, each with its reason and the
    probability of being in time, the Pareto front, and what one node, precision or device more or less would
    do. Every option of the job takes several values, which then compete.

    Exits with 3 where nothing keeps the limits, after the nearest miss and what it would take.
    """
    from ..planning.decision.api import plan as planned
    from ..planning.decision.files import KINDS, write_files
    from ..render.picture import check_picture

    files = by_ending(out, **KINDS)
    if files["plot"] is not None:
        check_picture(files["plot"])
    server = chosen(why=why, out=out, prices=prices, workers=workers, ray=ray)
    of_run = {name: fields.pop(name, None) for name in RUN_FIELDS}
    name, given = given_fields(model, {**fields, "precision": precision})
    arguments = dict(
        deadline=deadline,
        budget=budget,
        currency=currency,
        carbon_kg=carbon_kg,
        confidence=confidence,
        devices=devices or given.pop("device", None),
        gpus=_numbers(gpus or given.pop("gpus", None)),
        max_gpus=max_gpus,
        clouds=clouds,
        regions=regions,
        market=market,
        any_network=any_network,
        layouts=layouts,
        **{name: value for name, value in of_run.items() if value is not None},
        **{name: value for name, value in given.items() if name not in ("device", "gpus")},
    )
    with progress_bar("Timing candidates") as show:
        if server is not None:
            found = server.plan(name, **arguments)
        else:
            found = planned(
                name,
                prices=prices,
                workers=workers,
                ray=ray,
                progress=lambda done, total: show(done, total, "Timing candidates"),
                **arguments,
            )
    write_result(found, json_output=json_output, why=why)
    for path in write_files(found, **files):
        message(f"Wrote {path}")
    if not found.choices:
        raise typer.Exit(NOTHING_FITS)


def _numbers(given: Any) -> list[int] | None:
    """Numbers of devices of a list or of ranges.

    Raises:
        ConfigError: If they are none.
    """
    if given is None:
        return None
    from ..request.schema import RequestFields
    from ..request.sweep import values_of

    if isinstance(given, int):
        return [given]
    values = values_of("gpus", RequestFields.model_fields["gpus"], given)
    try:
        return [int(value) for value in values]
    except (TypeError, ValueError):
        raise ConfigError(
            f"--gpus {given!r} is not a list of numbers. To fix: write it like 8,16,32."
        ) from None
