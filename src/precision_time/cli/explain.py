"""`precision-time explain`: what a precision changes in a model, per class of operator."""

from __future__ import annotations

from typing import Any

from ..predict.explain import EXPLAINED_FIELDS
from ..predict.explain import explain as explain_request
from .options import JsonOption, ModelArgument
from .output import progress, write_json, write_page
from .request_options import one_request, request_options

EXAMPLES = """\b
Examples:
  precision-time explain resnet50 --precision fp16-mixed
  precision-time explain llama3-8b --precision fp8-mixed --device H100-SXM5-80GB --batch-size 1 --json
"""


@request_options(only=EXPLAINED_FIELDS)
def explain(model: ModelArgument, *, json_output: JsonOption = False, **fields: Any) -> None:
    """Show what a precision changes, per op class.

    FLOPs, bytes, kernels and casts of one training step, compared with fp32.
    """
    request = one_request(model, fields)
    with progress(f"Lowering {model}"):
        explanation = explain_request(request)
    if json_output:
        write_json(explanation.to_dict())
        return
    from ..predict.page import explanation_blocks

    write_page(explanation_blocks(explanation.to_dict()))
