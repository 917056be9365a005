"""`precision-time layout`: the fastest ways to spread a model over the devices."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .options import (
    CustomOption,
    DeviceOption,
    ImageSizeOption,
    JsonOption,
    ModelArgument,
    RayOption,
    SeqLenOption,
    SizesOption,
    StragglersOption,
    complete_precision,
    parse_sizes,
)
from .output import message, page_width, progress_bar, write_json, write_renderable

if TYPE_CHECKING:
    from ..plan.result import LayoutSearch

EXAMPLES = """\b
Examples:
  precision-time layout llama3-70b -d H100-SXM5-80GB -g 512 --global-batch-size 1024
  precision-time layout mixtral-8x7b -d H100-SXM5-80GB -g 128 -p fp8-mixed --fix zero=1 --fix tp=4,8
  precision-time layout llama3-8b -d A100-SXM4-80GB -g 64 --timeline step.html --trace step.json --json
"""


def layout(
    model: ModelArgument,
    *,
    device: DeviceOption = None,
    gpus: Annotated[int, typer.Option("--gpus", "-g", help="Devices in all.")] = 8,
    nodes: Annotated[int | None, typer.Option("--nodes", help="Hosts the devices are spread over.")] = None,
    node_type: Annotated[
        str | None, typer.Option("--node-type", help="DGX-A100, p4d.24xlarge ...: sets the links.")
    ] = None,
    precision: Annotated[
        str,
        typer.Option("--precision", "-p", help="One precision.", autocompletion=complete_precision),
    ] = "bf16-mixed",
    global_batch_size: Annotated[
        int | None,
        typer.Option("--global-batch-size", help="Samples per optimizer step over all devices."),
    ] = None,
    seq_len: SeqLenOption = None,
    image_size: ImageSizeOption = None,
    framework: Annotated[str | None, typer.Option("--framework", help="pytorch, tensorflow, jax ...")] = None,
    stack: Annotated[
        str | None, typer.Option("--stack", help="Software profile (`precision-time stacks`).")
    ] = None,
    optimizer: Annotated[str | None, typer.Option("--optimizer", help="sgd, adamw, lamb ...")] = None,
    size: SizesOption = None,
    custom: CustomOption = None,
    fix: Annotated[
        list[str] | None,
        typer.Option(
            "--fix",
            metavar="NAME=VALUE[,VALUE]",
            help="Field of the layout that is given, such as tp=8 or zero=1,3; may be repeated.",
        ),
    ] = None,
    stragglers: StragglersOption = True,
    top: Annotated[int, typer.Option("--top", help="Layouts to show.")] = 10,
    coverage: Annotated[float, typer.Option("--coverage", help="Probability that the interval holds.")] = 0.9,
    workers: Annotated[
        int | None, typer.Option("--workers", help="Processes that price. Default: one per core, at most 8.")
    ] = None,
    ray: RayOption = None,
    timeline: Annotated[
        Path | None,
        typer.Option("--timeline", dir_okay=False, help="Draw the best step to this .svg or .html file."),
    ] = None,
    trace: Annotated[
        Path | None,
        typer.Option(
            "--trace", dir_okay=False, help="Write the best step as a Chrome/Perfetto trace (.json)."
        ),
    ] = None,
    json_output: JsonOption = False,
) -> None:
    """Rank the ways to spread a model over devices.

    Every layout that fits in memory competes; the fastest are shown with where their time goes.
    """
    from ..plan.api import find_layouts
    from ..plan.picture import check_picture_path

    if timeline is not None:
        check_picture_path(timeline)
    with progress_bar("Searching") as update:
        search = find_layouts(
            model,
            precision=precision,
            device=device,
            gpus=gpus,
            nodes=nodes,
            node_type=node_type,
            global_batch_size=global_batch_size,
            seq_len=seq_len,
            image_size=image_size,
            framework=framework,
            stack=stack,
            optimizer=optimizer,
            sizes=parse_sizes(size),
            custom=custom,
            fix=tuple(fix or ()),
            top=top,
            coverage=coverage,
            workers=workers,
            ray=ray,
            stragglers=stragglers,
            progress=lambda what, done, total: update(done, total, f"Searching: {what}"),
        )
    if json_output:
        write_json(search.to_dict())
    else:
        from ..plan.render import render

        write_renderable(render(search, width=page_width()))
    _write_pictures(search, timeline, trace)


def _write_pictures(search: LayoutSearch, timeline: Path | None, trace: Path | None) -> None:
    """The best layout's step as picture and trace, where they were asked for."""
    if timeline is None and trace is None:
        return
    if not search.ranked:
        message("No picture: no layout fits.")
        return
    from ..plan.picture import write_picture
    from ..plan.timeline import step_timeline
    from ..plan.trace import write_trace

    step = step_timeline(search.jobs[0], search.ranked[0].prediction)
    if timeline is not None:
        write_picture(step, timeline)
        message(f"Wrote {timeline}")
    if trace is not None:
        write_trace(step, trace)
        message(f"Wrote {trace}")
