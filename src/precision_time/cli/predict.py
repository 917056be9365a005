"""`precision-time predict`: the time of a training job, at one precision or several side by side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .options import JsonOption, ModelArgument
from .output import message, page_width, progress, write_json, write_renderable
from .request_options import request_options, requests_of

if TYPE_CHECKING:
    from ..predict.prediction import Prediction

EXAMPLES = """\b
Examples:
  precision-time predict resnet50 --device A100-SXM4-80GB --gpus 8 -p fp16-mixed --batch-size 256
  precision-time predict bert-large -d V100-SXM2-32GB -g 8 -p all --seq-len 512 --batch-size 8
  precision-time predict llama3-8b -d H100-SXM5-80GB -g 64 --nodes 8 -p bf16-mixed,fp8-mixed --zero 3
  precision-time predict llama3-70b -d H100-SXM5-80GB -g 64 -p bf16-mixed --tp 8 --pp 4 --grad-accum 16
  precision-time predict job.yaml --gpus 16 --json
"""


@request_options(precisions=True)
def predict(
    model: ModelArgument,
    *,
    brief: Annotated[bool, typer.Option("--brief", help="One line for each answer.")] = False,
    why: Annotated[
        bool,
        typer.Option("--why", help="Everything that was assumed, all evidence, and what the words mean."),
    ] = False,
    json_output: JsonOption = False,
    **fields: Any,
) -> None:
    """Predict the time of a step, an epoch, a run."""
    from ..predict.compare import compare_requests

    requests = requests_of(model, fields)
    with progress(f"Predicting {model}"):
        comparison = compare_requests(requests)
    if json_output:
        write_json(comparison.to_dict())
        return
    _write_page(comparison.predictions, brief=brief, why=why)
    for left in comparison.skipped:
        message(f"Left out {left.request['precision']}: {left.reason}")


def _write_page(predictions: Sequence[Prediction], *, brief: bool, why: bool) -> None:
    """The answers as lines or as a page; assumptions are weighed for the page only."""
    from ..predict.page import in_one_line, leading, render

    if brief:
        typer.echo("\n".join(map(in_one_line, predictions)))
        return
    from ..predict.what_matters import what_matters
    from ..request.request import Request
    from .glossary import entries_of, glossary_text

    best = leading(predictions)
    request = Request.of(best.request) if best.request else None
    page = render(
        predictions,
        width=page_width(),
        matters=what_matters(best, request=request),
        why=why,
        definitions=entries_of(glossary_text()) if why else None,
    )
    write_renderable(page)
