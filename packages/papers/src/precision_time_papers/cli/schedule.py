"""`precision-time schedule`: a queue of jobs on one cluster."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from precision_time.cli.options import (
    NOTHING_FITS,
    JsonOption,
    PredictorOption,
    by_ending,
    complete_words,
    output_file,
)
from precision_time.cli.output import message, progress, write_result

EXAMPLES = """\b
Examples:
  precision-time schedule queue.yaml --inventory queue-cluster.yaml
  precision-time schedule queue.yaml --inventory lab.yaml --objective deadlines --quantile 0.9
  precision-time schedule queue.yaml --inventory lab.yaml --out gantt.png --out plan.html --json
"""
_OBJECTIVES = ("makespan", "deadlines", "fairness", "mean-completion")


def schedule(
    jobs: Annotated[
        Path,
        typer.Argument(
            metavar="JOBS",
            help="Job file with a list `jobs`: of each the fields of a request, and if need be name, submit, "
            "deadline, weight, tenant; device, gpus and precision may be lists.",
            show_default=False,
        ),
    ],
    *,
    cluster: Annotated[
        Path,
        typer.Option(
            "--inventory",
            "-c",
            metavar="FILE",
            help="Inventory of the cluster (YAML): `nodes`, each with `device`, `devices` and `count`.",
            show_default=False,
        ),
    ],
    objective: Annotated[
        str,
        typer.Option(
            "--objective",
            metavar="|".join(_OBJECTIVES),
            help="What is to be small: the end of the last job, the weighted lateness, the worst ratio of a "
            "job's time to that on a fair share of the cluster, or the mean completion time.",
            autocompletion=complete_words(*_OBJECTIVES),
        ),
    ] = "makespan",
    quantile: Annotated[
        float,
        typer.Option("--quantile", help="Plan with durations that are exceeded with probability 1 - this."),
    ] = 0.8,
    start: Annotated[
        str | None,
        typer.Option(
            "--start",
            metavar="DATE",
            help="When the plan starts, such as '2030-05-24 18:00'. Default: now, where jobs name dates.",
        ),
    ] = None,
    time_limit: Annotated[
        float, typer.Option("--time-limit", metavar="SECONDS", help="Of the search for the best plan.")
    ] = 10.0,
    whole_nodes: Annotated[
        bool, typer.Option("--whole-nodes", help="A job shares its hosts with no other.")
    ] = False,
    out: Annotated[
        list[Path] | None,
        output_file(
            "--out",
            "-o",
            text="Draw the plan as a Gantt chart (.png, .svg), or write chart, table and reasons as one page "
            "(.html); matplotlib; may be repeated.",
        ),
    ] = None,
    predictor: PredictorOption = None,
    json_output: JsonOption = False,
) -> None:
    """Plan a queue of jobs on one cluster.

    Start times, devices and precisions: every allowed choice is predicted, and a solver (OR-Tools, the extra
    `schedule`) finds the best plan, or says how far from it the one found may be. Exits with 3 where
    --objective deadlines leaves a job late.
    """
    from precision_time.learn.artifact import chosen_predictor
    from precision_time.render.picture import require_matplotlib

    from ..queue.api import schedule as planned

    files = by_ending(out, write_gantt=(".png", ".svg"), write_page=(".html",))
    if out:
        require_matplotlib()
    with progress("Planning") as update:
        plan = planned(
            jobs,
            cluster,
            objective=objective,
            quantile=quantile,
            start=start,
            time_limit_s=time_limit,
            whole_nodes=whole_nodes,
            predictor=None if predictor is None else chosen_predictor(predictor),
            progress=update,
        )
    write_result(plan, json_output=json_output)
    for name, path in files.items():
        if path is not None:
            from ..queue import gantt

            getattr(gantt, name)(plan, path)
            message(f"Wrote {path}")
    if objective == "deadlines" and plan.late:
        raise typer.Exit(NOTHING_FITS)
