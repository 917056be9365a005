"""`launch_config`: what a launcher is started with for a job."""

from __future__ import annotations

from typing import Any

from ..cost.job import Job
from ..predict.prediction import Prediction
from ..request.request import Request
from ..request.signature import as_request, takes_request_fields
from ..workload.resolve import decoder_sizes
from .emit import LaunchConfig, launch_config_of


@takes_request_fields()
def launch_config(model: Any, *, launcher: str, **options: Any) -> LaunchConfig:
    """The flags or the configuration file that run a job with its layout.

    Args:
        model: As `predict_time` takes it, a `Request`, or a `Prediction`, whose request is asked again.
        launcher: torchrun, deepspeed, megatron, nemo, torchtitan, accelerate or fsdp.
        options: Fields of `Request`, all optional.

    Returns:
        The text of the file, its settings, and what to set elsewhere.

    Raises:
        UnknownNameError: No such launcher, model, device, precision or stack.
        LayoutError: If the launcher cannot run the layout; the message has every reason.
        ConfigError: Counts, batches or a precision that do not fit together.
    """
    if isinstance(model, Prediction):
        return config_of_job(Request.of(model.request).resolve(), Request.of(model.request), launcher, model)
    request = as_request(model, options)
    return config_of_job(request.resolve(), request, launcher)


def config_of_job(
    job: Job, request: Request, launcher: str, answer: Prediction | None = None
) -> LaunchConfig:
    """`launch_config` of a job whose layout is known.

    Args:
        job: With its layout.
        request: For the sizes of its model.
        launcher: As in `launch_config`.
        answer: What was predicted of it, for a remark.
    """
    sizes = None
    if isinstance(request.model, str):
        sizes = decoder_sizes(request.model, request.sizes, request.seq_len)
    said = () if answer is None else (f"Predicted: {answer.in_one_line()}",)
    return launch_config_of(job, launcher, sizes=sizes, said=said)
