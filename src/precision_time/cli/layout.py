"""`precision-time layout`: the fastest ways to spread a model over the devices."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..client.remote import chosen
from ..planning.layouts.api import SEARCHED_FIELDS, find_layouts
from .options import (
    NOTHING_FITS,
    EmitOption,
    JsonOption,
    MemoryTimelineOption,
    ModelArgument,
    RayOption,
    TraceOption,
)
from .output import message, progress_bar, write_launch_config, write_result
from .request_options import one_request, request_options

if TYPE_CHECKING:
    from ..planning.layouts.result import LayoutSearch

EXAMPLES = """\b
Examples:
  precision-time layout llama3-70b -d H100-SXM5-80GB -g 512 --global-batch-size 1024
  precision-time layout mixtral-8x7b -d H100-SXM5-80GB -g 128 -p fp8-mixed --fix zero_stage=1 --fix tp=4,8
  precision-time layout llama3-8b -d A100-SXM4-80GB -g 64 --timeline step.html --trace step.json --json
  precision-time layout llama3-70b -d H100-SXM5-80GB -g 64 --emit megatron > pretrain.sh
"""


@request_options(only=SEARCHED_FIELDS)
def layout(
    model: ModelArgument,
    *,
    fix: Annotated[
        list[str] | None,
        typer.Option(
            "--fix",
            metavar="NAME=VALUE[,VALUE]",
            help="Field of the layout that is given, such as tp=8 or zero_stage=1,3; may be repeated.",
        ),
    ] = None,
    top: Annotated[int, typer.Option("--top", help="Layouts to show.")] = 10,
    workers: Annotated[
        int | None, typer.Option("--workers", help="Processes that price. Default: one per core, at most 8.")
    ] = None,
    ray: RayOption = None,
    timeline: Annotated[
        Path | None,
        typer.Option("--timeline", dir_okay=False, help="Draw the best step to this .svg or .html file."),
    ] = None,
    trace: TraceOption = None,
    memory_timeline: MemoryTimelineOption = None,
    emit: EmitOption = None,
    pick: Annotated[int, typer.Option("--pick", help="Layout of the ranking that --emit writes.")] = 1,
    json_output: JsonOption = False,
    **fields: Any,
) -> None:
    """Rank the ways to spread a model over devices.

    Every layout that fits in memory competes; the fastest are shown with where their time goes. Exits with
    3 where nothing fits.
    """
    from ..planning.layouts.pictures import check_memory_path, check_picture_path
    from ..planning.layouts.trace import check_trace_path

    if emit is not None:
        from ..launch.emit import known_launcher

        known_launcher(emit)
    if timeline is not None:
        check_picture_path(timeline)
    if memory_timeline is not None:
        check_memory_path(memory_timeline)
    if trace is not None:
        check_trace_path(trace)
    server = chosen(
        emit=emit, timeline=timeline, trace=trace, memory_timeline=memory_timeline, workers=workers, ray=ray
    )
    request = one_request(model, fields)
    with progress_bar("Searching") as update:
        if server is not None:
            search = server.find_layouts(request, fix=tuple(fix or ()), top=top)
        else:
            search = find_layouts(
                request,
                fix=tuple(fix or ()),
                top=top if emit is None else max(top, pick),
                workers=workers,
                ray=ray,
                progress=lambda what, done, total: update(done, total, f"Searching: {what}"),
            )
    if emit is not None and search.ranked:
        write_launch_config(search.launch_config(emit, pick), json_output=json_output)
    else:
        write_result(search, json_output=json_output)
    _write_pictures(search, timeline, trace, memory_timeline)
    if not search.ranked:
        raise typer.Exit(NOTHING_FITS)


def _write_pictures(
    search: LayoutSearch, timeline: Path | None, trace: Path | None, memory_timeline: Path | None
) -> None:
    """The best layout's step as pictures and trace, where they were requested."""
    if timeline is None and trace is None and memory_timeline is None:
        return
    if not search.ranked:
        message("No picture: no layout fits.")
        return
    from ..planning.layouts.memory_timeline import memory_of_step
    from ..planning.layouts.pictures import write_memory, write_picture
    from ..planning.layouts.timeline import step_timeline
    from ..planning.layouts.trace import write_trace

    job = search.jobs[0]
    step = step_timeline(job, search.ranked[0].prediction)
    memory = memory_of_step(job, step)
    if timeline is not None:
        write_picture(step, timeline, memory)
    if trace is not None:
        write_trace(step, trace, memory)
    if memory_timeline is not None:
        write_memory(memory, memory_timeline)
    for path in filter(None, (timeline, trace, memory_timeline)):
        message(f"Wrote {path}")
