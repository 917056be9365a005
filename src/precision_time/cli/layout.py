"""`precision-time layout`: the fastest ways to spread a model over the devices."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

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
    declared,
)
from .output import message, progress_bar, write_launch_config, write_result
from .request_options import one_request, request_options

if TYPE_CHECKING:
    from ..planning.layouts.result import LayoutSearch


@request_options(only=SEARCHED_FIELDS)
@declared("layout")
def layout(
    model: ModelArgument,
    *,
    fix: list[str] | None = None,
    top: int = 10,
    workers: int | None = None,
    ray: RayOption = None,
    timeline: Path | None = None,
    trace: TraceOption = None,
    memory_timeline: MemoryTimelineOption = None,
    emit: EmitOption = None,
    pick: int = 1,
    json_output: JsonOption = False,
    **fields: Any,
) -> None:
    """Rank the ways to spread a model over devices.

    Every layout that fits in memory competes; the fastest are shown with where their time goes. Exits with
    3 where nothing fits.
    """
    from ..timeline.pictures import check_memory_path, check_picture_path
    from ..timeline.trace import check_trace_path

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
    from ..timeline.memory import memory_of_step
    from ..timeline.pictures import write_memory, write_picture
    from ..timeline.step import step_timeline
    from ..timeline.trace import write_trace

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
