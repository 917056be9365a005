"""`precision-time measure`: time kernels and whole training steps on the device at hand."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .options import JsonOption
from .output import counted_progress, message, write_json, write_rows

if TYPE_CHECKING:
    from ..measure.device import MeasuredDevice
    from ..measure.points import Plan, Point
    from ..measure.run import MeasureReport

EXAMPLES = """\b
Examples:
  precision-time measure --list
  precision-time measure --what all --out measured --budget 540
  precision-time measure --what steps --models resnet50,gpt2 --precisions fp32,bf16-mixed
  precision-time measure --what steps --models my_package.models:small --out measured
"""

_SHOWN_FAILURES = 10


def measure(
    *,
    what: Annotated[str, typer.Option("--what", help="ops, steps or all.")] = "all",
    out: Annotated[
        Path, typer.Option("--out", file_okay=False, help="Folder for the CSV files; what they hold is kept.")
    ] = Path("measured"),
    precisions: Annotated[
        str | None, typer.Option("--precisions", metavar="NAME,...", help="Only these precisions.")
    ] = None,
    models: Annotated[
        str | None,
        typer.Option(
            "--models", metavar="NAME,...", help="Steps: only these models; timm's, or module:function."
        ),
    ] = None,
    ops: Annotated[
        str | None, typer.Option("--ops", metavar="NAME,...", help="Operators: only these.")
    ] = None,
    plan: Annotated[
        str | None, typer.Option("--plan", help="cuda, cpu or a TOML file. Default: as the device is.")
    ] = None,
    seconds_per_point: Annotated[
        float | None,
        typer.Option("--seconds-per-point", min=0.001, help="Timed seconds per point. Default: the plan's."),
    ] = None,
    budget: Annotated[
        float | None,
        typer.Option(
            "--budget", min=1.0, help="Seconds for the whole run; no point is started that passes it."
        ),
    ] = None,
    on: Annotated[str, typer.Option("--on", help="auto (a GPU where there is one), cuda or cpu.")] = "auto",
    device: Annotated[
        str | None, typer.Option("--device", "-d", help="Name for the rows instead of the driver's.")
    ] = None,
    retry_failed: Annotated[
        bool, typer.Option("--retry-failed", help="Measure points again that failed before.")
    ] = False,
    graphs: Annotated[
        bool, typer.Option("--graphs/--no-graphs", help="Operators: replay CUDA graphs, kernels alone.")
    ] = True,
    list_points: Annotated[
        bool, typer.Option("--list", help="Only show what would be measured; needs no torch with --plan.")
    ] = False,
    json_output: JsonOption = False,
) -> None:
    """Time kernels and training steps on this device.

    Every finished point is stored at once: an interrupted run goes on where it stopped.
    """
    from ..measure.points import load_plan, select

    found = None if list_points and plan else _device(on, device)
    chosen = load_plan(plan or (found.kind if found else "cuda"))
    filters = {"precisions": _words(precisions), "models": _words(models), "ops": _words(ops)}
    points = select(chosen, what=what, **filters)
    if list_points or found is None:
        _list(chosen, points, json_output)
        return
    from ..measure.run import measurer, run_points

    message(f"{found.name}: {found.software}")
    with counted_progress() as tell:
        report = run_points(
            points,
            found,
            out=out,
            measure=measurer(chosen, found, seconds=seconds_per_point, graphs=graphs),
            budget_s=budget,
            retry_failed=retry_failed,
            tell=tell,
        )
    if json_output:
        write_json(report.to_dict())
    else:
        _show(report)


def _device(kind: str, name: str | None) -> MeasuredDevice:
    from ..measure.device import find_device

    return find_device(kind=kind, name=name)


def _words(text: str | None) -> Sequence[str]:
    return [word for part in (text or "").split(",") if (word := part.strip())]


def _list(plan: Plan, points: Sequence[Point], json_output: bool) -> None:
    from ..measure.points import OpPoint

    if json_output:
        write_json({"plan": plan.name, "points": [point.key for point in points]})
        return
    rows = [
        ("op" if isinstance(point, OpPoint) else "step", str(point.rank), point.precision, str(point))
        for point in points
    ]
    write_rows(f"{len(points)} points of the plan {plan.name}", ("what", ">rank", "precision", "point"), rows)


def _show(report: MeasureReport) -> None:
    answer = report.to_dict()
    counts = [
        ("steps measured", str(answer["measured_steps"])),
        ("operators measured", str(answer["measured_ops"])),
        ("already there", str(report.skipped)),
        ("failed", str(len(report.failed))),
        ("no hardware or library for", str(sum(report.refused.values()))),
        ("left for want of time", str(report.left)),
        ("seconds", f"{report.seconds:.0f}"),
    ]
    write_rows(f"{report.source} on {report.device}", ("points", ">count"), counts)
    if report.failed:
        typer.echo()
        rows = list(report.failed.items())[:_SHOWN_FAILURES]
        write_rows(f"Failed: {len(report.failed)}", ("point", "reason"), rows)
    message(f"Wrote {', '.join(report.files.values())}")
