"""`precision-time plan`: which devices, how many, at which precision, for how much, and whether in time."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

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
    complete_device,
    complete_precision,
    output_file,
)
from .output import message, progress_bar, write_result
from .request_options import given_fields, request_options

EXAMPLES = """\b
Examples:
  precision-time plan resnet50 --epochs 90 --deadline 24h --budget 500
  precision-time plan llama2-7b --tokens 10B --deadline 7d --devices A100,H100 --max-gpus 128
  precision-time plan llama2-7b --tokens 10B --devices H100 --precisions bf16-mixed,fp8-mixed --gpus 32,64
  precision-time plan bert-large --task squad-finetune --samples 87599 --epochs 3 --budget 20 --market spot
  precision-time plan resnet50 --epochs 90 --clouds aws,gcp --out plan.html --out plan.csv
"""


@request_options(only=PLANNED_FIELDS, several=True, also=lambda: RUN_FIELDS)
def plan(
    model: ModelArgument,
    *,
    deadline: Annotated[
        str | None,
        typer.Option(
            "--deadline",
            metavar="DURATION|DATE",
            help="The run must be done within this time (24h, 3d), or until this date (2030-06-01, UTC).",
        ),
    ] = None,
    budget: Annotated[
        str | None,
        typer.Option("--budget", metavar="AMOUNT", help="Most money: 500, 2.5k, 450 EUR (--currency)."),
    ] = None,
    currency: Annotated[
        str | None,
        typer.Option(
            "--currency", metavar="CODE=RATE", help="Of the budget, with what one USD costs: EUR=0.92."
        ),
    ] = None,
    carbon_kg: Annotated[
        float | None, typer.Option("--carbon-kg", help="Most kilograms of CO2 equivalents.")
    ] = None,
    confidence: Annotated[
        float, typer.Option("--confidence", help="Probability with which the deadline is to be met.")
    ] = 0.9,
    devices: Annotated[
        str | None,
        typer.Option(
            "--devices",
            "--device",
            "-d",
            metavar="NAME[,NAME...]",
            help="Types that compete. Default: those that clouds commonly rent.",
            autocompletion=complete_device,
        ),
    ] = None,
    precision: Annotated[
        str | None,
        typer.Option(
            "--precisions",
            "--precision",
            "-p",
            metavar="P[,P...]",
            help="Precisions that compete. Default: the usual one of each device.",
            autocompletion=complete_precision,
        ),
    ] = None,
    gpus: Annotated[
        str | None,
        typer.Option(
            "--gpus",
            "-g",
            metavar="N[,N...]|LOW..HIGH[:STEP]",
            help="Numbers of devices that compete. Default: powers of two of whole hosts.",
        ),
    ] = None,
    max_gpus: Annotated[
        int | None,
        typer.Option("--max-gpus", min=1, help="The most devices. Default: 64.", show_default=False),
    ] = None,
    clouds: Annotated[
        str | None,
        typer.Option("--clouds", metavar="NAME,...", help="Who may rent them. Default: all known."),
    ] = None,
    regions: Annotated[
        str | None,
        typer.Option("--regions", metavar="NAME,...", help="Where they may stand. Default: everywhere."),
    ] = None,
    market: Annotated[
        str | None,
        typer.Option(
            "--market",
            "--markets",
            metavar="MARKET[,...]",
            help="on-demand, spot or reserved. Default: on-demand.",
        ),
    ] = None,
    prices: Annotated[
        Path | None,
        typer.Option(
            "--prices", help="Your prices in the place of those that ship (`precision-time list prices`)."
        ),
    ] = None,
    any_network: Annotated[
        bool,
        typer.Option(
            "--any-network", help="Join hosts too whose network is not known; a slow one is assumed."
        ),
    ] = False,
    layouts: Annotated[
        int,
        typer.Option(
            "--layouts",
            min=0,
            metavar="N",
            help="Search all layouts of up to N combinations that may become the cheapest.",
        ),
    ] = 0,
    why: Annotated[
        bool,
        typer.Option("--why", help="Also a plot, break-even points, what moves the answer, all assumptions."),
    ] = False,
    out: Annotated[
        list[Path] | None,
        output_file(
            "--out",
            "-o",
            text="Write all candidates (.csv, .jsonl), the front as a picture (.png, .svg; matplotlib), one "
            "interactive page without anything from outside (.html); may be repeated.",
        ),
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option("--workers", min=1, metavar="N", help="Processes for large spaces. Default: the cores."),
    ] = None,
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
    from ..request.schema import request_fields
    from ..request.sweep import values_of

    if isinstance(given, int):
        return [given]
    values = values_of("gpus", dict(request_fields())["gpus"], given)
    try:
        return [int(value) for value in values]
    except (TypeError, ValueError):
        raise ConfigError(
            f"--gpus {given!r} is not a list of numbers. To fix: write it like 8,16,32."
        ) from None
