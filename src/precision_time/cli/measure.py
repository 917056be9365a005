"""`precision-time measure`: time kernels and whole training steps on this machine's device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from .options import JsonOption, words_of
from .output import message, progress_bar, write_json, write_rows

if TYPE_CHECKING:
    from ..measure.plan import MeasurePlan
    from ..measure.report import TrialReport
    from ..measure.trial import LocalTrial

EXAMPLES = """\b
Examples:
  precision-time measure --list
  precision-time measure --what all --out measured --budget 540
  precision-time measure --what steps --models resnet50,gpt2 --precisions fp32,bf16-mixed
  precision-time measure --what steps --models my_package.models:small --out measured
"""

_SHOWN_FAILURES = 10
_INTERRUPTED = 130
"""Exit code of a shell command that was ended by Ctrl-C."""


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
        typer.Option("--seconds-per-point", min=0.001, help="Timed seconds per trial. Default: the plan's."),
    ] = None,
    budget: Annotated[
        float | None,
        typer.Option(
            "--budget", min=1.0, help="Seconds for the whole run; no trial is started that passes it."
        ),
    ] = None,
    on: Annotated[str, typer.Option("--on", help="auto (a GPU where there is one), cuda or cpu.")] = "auto",
    device: Annotated[
        str | None, typer.Option("--device", "-d", help="Name for the rows instead of the driver's.")
    ] = None,
    retry_failed: Annotated[
        bool, typer.Option("--retry-failed", help="Measure trials again that failed before.")
    ] = False,
    graphs: Annotated[
        bool, typer.Option("--graphs/--no-graphs", help="Operators: replay CUDA graphs, kernels alone.")
    ] = True,
    list_trials: Annotated[
        bool, typer.Option("--list", help="Only show what would be measured; needs no torch with --plan.")
    ] = False,
    json_output: JsonOption = False,
) -> None:
    """Time kernels and training steps on this device.

    Every result is stored at once: an interrupted run goes on where it stopped.
    """
    from ..measure.device import find_device
    from ..measure.plan import load_plan, select

    found = None if list_trials and plan else find_device(kind=on, name=device)
    chosen = load_plan(plan or (found.kind if found else "cuda"))
    filters = {"precisions": words_of(precisions), "models": words_of(models), "ops": words_of(ops)}
    trials = select(chosen, what=what, **filters)
    if list_trials or found is None:
        _list(chosen, trials, json_output)
        return
    from ..measure.launchers.local import measurer, run_trials

    message(f"{found.name}: {found.software}")
    try:
        with progress_bar(lines=True) as update:
            report = run_trials(
                trials,
                found,
                out=out,
                measure=measurer(chosen, found, seconds=seconds_per_point, graphs=graphs),
                budget_s=budget,
                retry_failed=retry_failed,
                progress=lambda now: update(now.done, now.total, now.trial),
            )
    except KeyboardInterrupt:
        interrupted(out)
    if json_output:
        write_json(report.to_dict())
        return
    answer = report.to_dict()
    counts = {
        "steps measured": answer["measured_steps"],
        "operators measured": answer["measured_ops"],
        "already stored": report.skipped,
        "failed": len(report.failed),
        "no hardware or library for": sum(report.refused.values()),
        "left for want of time": report.left,
        "seconds": f"{report.seconds:.0f}",
    }
    show_report(f"{answer['source']} on {answer['device']}", counts, report)
    message(f"Wrote {', '.join(answer['files'].values())}")


def interrupted(where: Path) -> NoReturn:
    """End a command that was interrupted by Ctrl-C, in one line."""
    message(f"Interrupted; what was measured is in {where}. The same command goes on from there.")
    raise typer.Exit(_INTERRUPTED) from None


def _list(plan: MeasurePlan, trials: Sequence[LocalTrial], json_output: bool) -> None:
    from ..measure.trial import KernelTrial

    if json_output:
        write_json({"plan": plan.name, "points": [trial.key for trial in trials]})
        return
    rows = [
        ("op" if isinstance(trial, KernelTrial) else "step", str(trial.rank), trial.precision, str(trial))
        for trial in trials
    ]
    write_rows(f"{len(trials)} trials of the plan {plan.name}", ("what", ">rank", "precision", "trial"), rows)


def show_report(title: str, counts: Mapping[str, object], report: TrialReport) -> None:
    """Write what became of the trials of a run, and why the first of them failed."""
    rows = [(what, str(count)) for what, count in counts.items()]
    write_rows(title, ("trials", ">count"), rows)
    if report.failed:
        typer.echo()
        rows = list(report.failed.items())[:_SHOWN_FAILURES]
        write_rows(f"Failed: {len(report.failed)}", ("trial", "reason"), rows)
