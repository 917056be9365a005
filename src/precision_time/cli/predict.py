"""`precision-time predict`: the time of a training job, at one precision or several side by side."""

from __future__ import annotations

from typing import Any

from .options import JsonOption, ModelArgument
from .output import message, page_width, progress, write_json, write_renderable
from .request_options import request_options, requests_of

EXAMPLES = """\b
Examples:
  precision-time predict resnet50 --device A100-SXM4-80GB --gpus 8 -p fp16-mixed --batch-size 256
  precision-time predict bert-large -d V100-SXM2-32GB -g 8 -p all --seq-len 512 --batch-size 8
  precision-time predict llama3-8b -d H100-SXM5-80GB -g 64 --nodes 8 -p bf16-mixed,fp8-mixed --zero 3
  precision-time predict llama3-70b -d H100-SXM5-80GB -g 64 -p bf16-mixed --tp 8 --pp 4 --grad-accum 16
  precision-time predict job.yaml --gpus 16 --json
"""


@request_options(precisions=True)
def predict(model: ModelArgument, *, json_output: JsonOption = False, **fields: Any) -> None:
    """Predict the time of a step, an epoch, a run."""
    from ..predict.compare import compare_requests

    requests = requests_of(model, fields)
    with progress(f"Predicting {model}"):
        comparison = compare_requests(requests)
    if json_output:
        write_json(comparison.to_dict())
        return
    from ..predict.prediction import render

    write_renderable(render(comparison.predictions, width=page_width()))
    for left in comparison.skipped:
        message(f"Left out {left.request['precision']}: {left.reason}")
