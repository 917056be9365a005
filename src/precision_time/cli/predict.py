"""`precision-time predict`: the time of a training job, of one at several precisions, or of many jobs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args

import typer

from ..client.remote import Server, chosen
from ..errors import ConfigError
from ..request.files import is_request_file, read_jobs
from ..request.recipes import recipe_of
from ..request.schema import MOVED, RequestFields
from ..request.sweep import PHASES, RUN
from .options import (
    NOTHING_FITS,
    EmitOption,
    JsonOption,
    MemoryTimelineOption,
    ModelArgument,
    TraceOption,
    by_ending,
    declared,
)
from .output import message, progress, progress_bar, write_json, write_launch_config, write_page, write_result
from .request_options import report_of, request_options, requests_of, requests_of_jobs, say_recipe

if TYPE_CHECKING:
    from ..predict.prediction import Skipped
    from ..predict.predictions import Predictions
    from ..predict.table import Row
    from ..request.request import Request
    from ..request.validation import Field

_BROKEN_ROWS = 2
"""Exit code where rows of a file could not be answered."""


def _run_fields() -> Mapping[str, Field]:
    from ..planning.run.schema import RunOptions

    return RunOptions.model_fields


@request_options(several=True, also=_run_fields)
@declared("predict")
def predict(
    model: Annotated[str | None, *get_args(ModelArgument)[1:]] = None,
    *,
    of_recipe: str | None = None,
    jobs: Path | None = None,
    sort: str | None = None,
    baseline: str | None = None,
    out: list[Path] | None = None,
    memory_timeline: MemoryTimelineOption = None,
    trace: TraceOption = None,
    brief: bool = False,
    why: bool = False,
    emit: EmitOption = None,
    whole_run: bool = False,
    json_output: JsonOption = False,
    **fields: Any,
) -> None:
    """Predict the time of a step, an epoch, a run.

    Options take several values, and a job is predicted for each combination: 8,16,64; 16..256 doubles;
    8..64:8 goes in steps of 8.

    A whole run (--whole-run, a field of a run, or a job file that has some) is the sum of start-up,
    compilation, steps, evaluation, checkpoints, and what failures cost, with an interval by simulation.

    Exits with 3 where no job fits in memory, with 2 where a line of --jobs has no answer.
    """
    if (model is None) == (jobs is None):
        raise ConfigError("predict takes a MODEL or --jobs FILE. To fix: precision-time predict resnet50.")
    of_step = {*RequestFields.model_fields, *MOVED}
    stated = {name: value for name, value in fields.items() if name not in of_step and value is not None}
    fields = {name: value for name, value in fields.items() if name in of_step}
    _begin(model, of_recipe, fields, aside=json_output or emit is not None)
    if whole_run or stated or _holds_a_run(model):
        from .run import predict_whole_run

        predict_whole_run(
            model,
            fields,
            stated,
            out=out,
            json_output=json_output,
            brief=brief and json_output,
            step_alone={
                **{"sort": sort, "baseline": baseline},
                **{"memory_timeline": memory_timeline, "trace": trace},
                **{"brief": brief and not json_output, "why": why, "emit": emit},
            },
        )
        return
    from ..fields import pairs_of
    from ..predict.table import blocks_of, columns_of, rows_of, sorted_rows, write_plot
    from ..render.table import write_columns

    files = by_ending(out, table=(".csv", ".jsonl"), plot=(".svg", ".png"))
    _check_files(files["plot"], memory_timeline, trace)
    server = chosen(memory_timeline=memory_timeline, trace=trace, emit=emit)
    asked = requests_of(str(model), fields) if jobs is None else requests_of_jobs(jobs, fields)
    _say_mixed(asked, (jobs, out, emit, trace, memory_timeline), json_output=json_output, why=why)
    found = _answers(asked, model, jobs, server)
    rows = rows_of(found, baseline=pairs_of(baseline) if baseline else None)
    if sort is not None:
        rows = sorted_rows(rows, sort)
    if (table := files["table"]) is not None:
        write_columns(columns_of(rows), table)
        message(f"Wrote {table}")
    if (plot := files["plot"]) is not None:
        write_plot(found, plot)
        message(f"Wrote {plot}")
    _write_step(found, memory_timeline, trace)
    if emit is not None:
        _write_launch_config(found, emit, json_output=json_output)
    elif json_output:
        write_json((_headlines(found) if brief else _whole(found)) | _reported(model, fields))
    elif brief:
        _write_lines(rows)
    elif found.is_page and sort is None and baseline is None:
        _write_page(found, server, why=why)
    else:
        write_page(blocks_of(rows, varied=found.varied))
    if jobs is not None and found.skipped:
        raise typer.Exit(_BROKEN_ROWS)
    if not any(answer.fits for answer in found.predictions):
        raise typer.Exit(NOTHING_FITS)


def _begin(model: str | None, of_recipe: str | None, fields: dict[str, Any], *, aside: bool) -> None:
    """Say how a recipe of another project was understood, with the model that it does not name.

    Raises:
        ConfigError: If a model is given beside what is none.
    """
    if of_recipe is not None:
        if model is None or recipe_of(model) is None:
            raise ConfigError(
                "--model names the model of a recipe of another project. To fix: give a model as MODEL."
            )
        fields["model"] = of_recipe
    say_recipe(model, fields, aside=aside)


def _answers(
    asked: Sequence[Request | Skipped], model: str | None, jobs: Path | None, server: Server | None
) -> Predictions:
    """The answers, by a service where one is asked, told on the way."""
    from ..predict.compare import answer_all

    if jobs is None or server is not None:
        with progress(f"Predicting {model or jobs}"):
            return answer_all(asked, strict=jobs is None, each=None if server is None else server.answers_to)
    with progress_bar(f"different jobs of {jobs.name}", lines=True) as show:
        return answer_all(asked, strict=False, progress=lambda done, total: show(done, total, ""))


def _say_mixed(
    asked: Sequence[Request | Skipped], elsewhere: tuple[object, ...], *, json_output: bool, why: bool
) -> None:
    """The answer to one request for devices of several kinds, and the end; nothing for others."""
    device = getattr(asked[0], "device", None) if len(asked) == 1 else None
    if "+" not in str(device):
        return
    from ..mixed.step import kinds_in, predict_mixed
    from ..request.request import Request

    [request] = asked
    if isinstance(request, Request) and kinds_in(device):
        if any(elsewhere):
            raise ConfigError(
                f"{device} is answered on the terminal or as --json alone. To fix: leave out --jobs, --out, "
                "--emit, --trace and --memory-timeline."
            )
        found = predict_mixed(request)
        write_result(found, json_output=json_output, why=why)
        raise typer.Exit(0 if found.fits else NOTHING_FITS)


def _reported(model: str | None, fields: Mapping[str, Any]) -> dict[str, Any]:
    """How a recipe was understood, beside the answer in JSON."""
    report = report_of(model, fields)
    return {} if report is None else {"recipe": report[0].to_dict(report[1])}


def _headlines(found: Predictions) -> dict[str, Any]:
    """What decides of each answer, as JSON."""
    from ..predict.headline import VERSION, Headline

    return {
        "schema": f"brief/{VERSION}",
        "predictions": [Headline.of(each).to_dict() for each in found.predictions],
        "skipped": found.to_dict()["skipped"],
    }


def _whole(found: Predictions) -> dict[str, Any]:
    """All of each answer as JSON, figures of a job that does not fit also apart."""
    from ..predict.headline import Headline

    said = found.to_dict()
    both = zip(said["predictions"], found.predictions, strict=True)
    return {**said, "predictions": [{**each, **Headline.of(answer).apart()} for each, answer in both]}


def _holds_a_run(model: str | None) -> bool:
    """Whether a model is a job file that says something of a whole run."""
    if model is None or not is_request_file(model):
        return False
    return any({PHASES, RUN} & job.fields.keys() for job in read_jobs(model))


def _check_files(plot: Path | None, memory_timeline: Path | None, trace: Path | None) -> None:
    """Refuse pictures that would not be drawn, before anything is computed."""
    if plot is not None:
        from ..render.picture import check_picture

        check_picture(plot)
    if memory_timeline is not None:
        from ..timeline.pictures import check_memory_path

        check_memory_path(memory_timeline)
    if trace is not None:
        from ..timeline.trace import check_trace_path

        check_trace_path(trace)


def _write_step(found: Predictions, memory_timeline: Path | None, trace: Path | None) -> None:
    """The step of the one job, where it is asked for: its memory, and its trace."""
    if memory_timeline is None and trace is None:
        return
    from ..timeline.api import step_of_answer
    from ..timeline.pictures import write_memory
    from ..timeline.trace import write_trace

    if len(found.predictions) != 1:
        option = "--trace" if memory_timeline is None else "--memory-timeline"
        raise ConfigError(
            f"{option} shows one job, not {len(found.predictions)}. To fix: one value for each option."
        )
    step, memory = step_of_answer(found.predictions[0])
    if memory_timeline is not None:
        write_memory(memory, memory_timeline)
    if trace is not None:
        write_trace(step, trace, memory)
    for path in filter(None, (memory_timeline, trace)):
        message(f"Wrote {path}")


def _write_launch_config(found: Predictions, launcher: str, *, json_output: bool) -> None:
    """What a launcher is started with for the one answer."""
    from ..launch.api import launch_config

    if len(found.predictions) != 1:
        raise ConfigError(
            f"--emit writes one layout, got {len(found.predictions)}. To fix: one value per option."
        )
    write_launch_config(launch_config(found.predictions[0], launcher=launcher), json_output=json_output)


def _write_page(found: Predictions, server: Server | None, *, why: bool) -> None:
    """The page of one job, perhaps at several precisions; assumptions are weighed for it."""
    from ..predict.changes import what_matters
    from ..predict.page import blocks_of, leading
    from ..predict.table import skipped_words
    from ..request.request import Request
    from .glossary import entries_of, glossary_text

    best = leading(found.predictions)
    request = Request.of(best.request) if best.request else None
    if server is None or request is None:
        matters = what_matters(best, request=request)
    else:
        matters = server.what_matters(best, request)
    definitions = entries_of(glossary_text()) if why else None
    write_page(blocks_of(found.predictions, matters=matters, why=why, definitions=definitions))
    for left in found.skipped:
        message(f"Left out {skipped_words(left.request, found.varied)}: {left.reason}")


def _write_lines(rows: Sequence[Row]) -> None:
    """One line for each answer, or why there is none."""
    from ..predict.prediction import Skipped

    for row in rows:
        answer = row.answer
        typer.echo(f"left out: {answer.reason}" if isinstance(answer, Skipped) else answer.in_one_line())
