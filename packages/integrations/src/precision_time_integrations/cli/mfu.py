"""`precision-time mfu`: how much of the peak a measured step uses, and what is usual."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from precision_time.cli.options import JsonOption, complete_model
from precision_time.cli.output import message, write_json, write_result
from precision_time.cli.request_options import given_fields, request_options
from precision_time.errors import ConfigError
from precision_time.predict.api import predict
from precision_time.request.request import Request
from precision_time.units import duration_s

EXAMPLES = """\b
Examples:
  precision-time mfu llama3-8b -d H100 -g 8 -b 1 --measured 1.35s
  precision-time mfu --model resnet50 -d A100 -p fp16-mixed -b 256 --measured 104ms
  precision-time mfu train.log -d H100 -g 64
"""


@request_options(shown=("device", "gpus", "nodes", "precision", "batch_size", "global_batch_size", "seq_len"))
def mfu(
    log: Annotated[
        Path | None,
        typer.Argument(
            metavar="[LOG|MODEL]", help="Log of a known trainer, or the model of --measured, as for predict."
        ),
    ] = None,
    *,
    model: Annotated[
        str | None,
        typer.Option("--model", "-m", metavar="MODEL", help="As for predict.", autocompletion=complete_model),
    ] = None,
    measured: Annotated[
        str | None,
        typer.Option("--measured", metavar="DURATION", help="What a step takes: 1.35s, 104ms."),
    ] = None,
    json_output: JsonOption = False,
    **fields: Any,
) -> None:
    """Say how much of the peak a measured step uses.

    The peak is the dense one of the fastest type that products run in on that device. Counted are the FLOPs
    of the model alone (MFU) and with those that recomputation adds (HFU); measured runs of the corpus like it
    say what is usual.
    """
    from ..utilization import utilization_of

    if log is not None and measured is not None and model is None and not log.exists():
        log, model = None, str(log)
    if (log is None) == (measured is None):
        raise ConfigError("mfu takes a LOG or --measured. To fix: --measured 1.35s, or name a log.")
    named, given = given_fields(model or "", fields)
    given |= {"model": named} if named else {}
    if log is not None:
        request, seconds, predicted_s = _logged(log, given)
    else:
        if not named:
            raise ConfigError("--model is missing. To fix: --model MODEL, as for predict.")
        request, seconds = Request.of(given), duration_s("--measured", str(measured))
        predicted_s = predict(request).step_time_s
    found = utilization_of(request, seconds, predicted_s)
    if json_output:
        write_json({**found.to_dict(), "percentile": found.percentile})
    else:
        write_result(found)


def _logged(log: Path, given: dict[str, Any]) -> tuple[Request, float, float]:
    """The job in a log, what a step of it took and was predicted to take.

    Raises:
        ConfigError: If the log has no times, or does not say enough of the job.
    """
    from ..watch.follow import Follower
    from ..watch.log_watch import LogWatch

    with Follower(str(log)) as follower:
        watched = LogWatch(given=given, say=message)
        for line in follower.read() or ():
            watched.feed(line)
        if rest := follower.rest():
            watched.feed(rest)
        state, record = watched.state(), watched.end()
    if not state.run:
        raise ConfigError(f"{log}: {watched.nothing_known()}.")
    if state.prediction is None:
        raise ConfigError(f"{log} does not say {', '.join(state.missing)}. To fix: give it as an option.")
    if not record.step_time_s:
        raise ConfigError(f"{log} has no times in it. To fix: --measured, with what a step takes.")
    return Request.of(state.prediction.request), record.step_time_s, state.prediction.step_time_s
