"""`precision-time explain`: what a precision changes in a model, per class of operator."""

from __future__ import annotations

from typing import Annotated

import typer

from .options import (
    BatchSizeOption,
    CustomOption,
    DeviceOption,
    ImageSizeOption,
    JsonOption,
    ModelArgument,
    SeqLenOption,
    SizesOption,
    complete_precision,
    parse_sizes,
)
from .output import progress, write_json, write_renderable

EXAMPLES = """\b
Examples:
  precision-time explain resnet50 --precision fp16-mixed
  precision-time explain llama3-8b --precision fp8-mixed --device H100-SXM5-80GB --batch-size 1 --json
"""


def explain(
    model: ModelArgument,
    *,
    precision: Annotated[
        str,
        typer.Option("--precision", "-p", help="Set against fp32.", autocompletion=complete_precision),
    ] = "fp16-mixed",
    device: DeviceOption = None,
    batch_size: BatchSizeOption = None,
    seq_len: SeqLenOption = None,
    image_size: ImageSizeOption = None,
    size: SizesOption = None,
    custom: CustomOption = None,
    json_output: JsonOption = False,
) -> None:
    """Show what a precision changes, per op class.

    FLOPs, bytes, kernels and casts of one training step, set against fp32.
    """
    from ..predict.explain import explain as explain_model

    with progress(f"Lowering {model}"):
        explanation = explain_model(
            model,
            precision=precision,
            device=device,
            batch_size=batch_size,
            seq_len=seq_len,
            image_size=image_size,
            sizes=parse_sizes(size),
            custom=custom,
        )
    if json_output:
        write_json(explanation.to_dict())
        return
    from ..predict.render import render_explanation

    write_renderable(render_explanation(explanation.to_dict()))
