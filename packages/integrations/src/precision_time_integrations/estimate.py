"""What a job file of another program asks for, and how long and for what money it runs.

SkyPilot tasks, Slurm scripts and Kubernetes manifests are read by one module each; all of them end
here, with the fields of a request that they found.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from precision_time.barrier import data_only
from precision_time.errors import ConfigError, PrecisionTimeError
from precision_time.hardware.words import with_cluster_words
from precision_time.planning.run.api import run_of
from precision_time.planning.run.prediction import RunPrediction
from precision_time.planning.run.schema import RunOptions
from precision_time.precision.catalog import is_policy_file
from precision_time.predict.api import predict
from precision_time.predict.prediction import Prediction
from precision_time.request.request import Request
from precision_time.request.schema import GLOBAL_BATCHES, RUN_LENGTHS
from precision_time.workload.resolve import check_named_in_data

LENGTHS = "|".join(RUN_LENGTHS)
"""What is missing where nothing says how long a job trains: any one of them."""
_NO_MODEL = (
    "The job does not say which model it trains. To fix: add a line `#PRECISION_TIME model=... "
    "batch_size=... steps=...` to the script, or set PRECISION_TIME_JOB to the same, or give --model."
)
_NO_LENGTH = (
    "The job does not say how long it trains. To fix: give one of steps, epochs or tokens, as --steps, or on "
    "the line `#PRECISION_TIME steps=...`."
)
NO_FILE = (
    "To fix: name a precision that `precision-time list precisions` lists, or give --precision yourself."
)
_FILES = frozenset({"calibration", "custom", "forward", "grid_hours", "inputs", "loss", "predictor", "trust"})
"""Fields that name files or code: they are typed by the user, not taken from a file of somebody else."""
_MODELS = ("model", "reference", "teacher")


@dataclass(frozen=True, kw_only=True, slots=True)
class JobEstimate:
    """One job of a file: what was read, and the answer or why there is none."""

    source: str
    """What was read, such as "SkyPilot task" or "batch/v1 Job"."""
    name: str = ""
    """Of the job, as the file has it."""
    fields: Mapping[str, Any] = field(default_factory=dict)
    """Fields of the request that the file states, or that were given beside it."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Fields of `RunOptions`: cloud, region, spot ..."""
    request: Request | None = None
    """None where the fields make none."""
    run: RunPrediction | None = None
    """Of the whole run; None where the file does not say how long it is, or `reason` says why."""
    step: Prediction | None = None
    """Of one step; None where `reason` says why."""
    reason: str = ""
    """Why a part of the answer is missing, and what to give; empty where nothing is."""
    missing: tuple[str, ...] = ()
    """Fields to give, such as "model" or "steps"; any one of those joined by "|"."""
    unread: tuple[str, ...] = ()
    """What the file says and nobody here understands, each as the file has it."""
    notes: tuple[str, ...] = ()
    """What was taken for granted in reading."""
    report: tuple[str, ...] = ()
    """Of a recipe: what was read, assumed, not understood and overridden, `unread` among it."""

    def duration_s(self, quantile: float = 0.5) -> float | None:
        """Seconds within which the whole run ends with that probability; None without a run.

        Args:
            quantile: Probability, above 0 and below 1.

        Raises:
            ConfigError: If it is no such number.
        """
        if not 0.0 < quantile < 1.0:
            raise ConfigError(
                f"quantile={quantile!r} must lie between 0 and 1. To fix: give one such as 0.95, the "
                "probability that the run ends in time."
            )
        if self.run is None:
            return None
        shares = np.linspace(0.0, 1.0, len(self.run.quantiles_s))
        return float(np.interp(quantile, shares, self.run.quantiles_s))

    @property
    def fits(self) -> bool | None:
        """Whether the job fits in memory; None where nothing is known of it."""
        return None if self.step is None else self.step.fits

    @property
    def cost_usd(self) -> float | None:
        """Of the whole run; None where it or a price is not known."""
        return None if self.run is None else self.run.cost_usd

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready dictionary; durations in seconds, money in USD."""
        return {
            "source": self.source,
            "name": self.name,
            "fields": dict(self.fields),
            "options": dict(self.options),
            "step_time_s": None if self.step is None else self.step.step_time_s,
            "fits": self.fits,
            "duration_s": {f"p{100 * share:g}": self.duration_s(share) for share in (0.1, 0.5, 0.9, 0.95)},
            "expected_s": None if self.run is None else self.run.total_s,
            "device_hours": None if self.run is None else self.run.device_hours,
            "cost_usd": self.cost_usd,
            "reason": self.reason,
            "missing": list(self.missing),
            "unread": list(self.unread),
            "notes": list(self.notes),
            "report": list(self.report),
            "request": None if self.request is None else self.request.to_dict(),
            "run": None if self.run is None else self.run.to_dict(),
            "step": None if self.step is None or self.run is not None else self.step.to_dict(),
        }


def estimate_job(
    *,
    source: str,
    fields: Mapping[str, Any],
    name: str = "",
    options: Mapping[str, Any] | None = None,
    unread: tuple[str, ...] = (),
    notes: tuple[str, ...] = (),
    report: tuple[str, ...] = (),
    reason: str = "",
    given: Mapping[str, Any] | None = None,
) -> JobEstimate:
    """The answer to what a file states; what cannot be answered is a reason, not an error.

    Args:
        source: What was read.
        fields: Fields of `Request` that were found.
        name: Of the job.
        options: Fields of `RunOptions` that were found.
        unread: What was not understood.
        notes: What was taken for granted in reading.
        report: Of a recipe, how it is understood.
        reason: Why the file cannot be answered at all, where its reader knows already.
        given: Fields of `Request` and `RunOptions` that the user typed, in the place of those in the file.
            Only they may name files and code; a file names models of the catalogs.
    """
    typed = with_cluster_words({key: value for key, value in (given or {}).items() if value is not None})
    on_run = RunOptions.model_fields.keys()
    hosts = {"device", "gpus", "nodes", "node_type"} if {"gpus", "node_type"} & typed.keys() else set()
    if "device" not in typed and "node_type" not in typed:
        hosts -= {"device", "node_type"}
    replaced = typed.keys() | hosts
    of_file = {key: value for key, value in fields.items() if value is not None and key not in replaced}
    options = {key: value for key, value in (options or {}).items() if value is not None}
    refused = [f"{key}={of_file.pop(key)}" for key in [*of_file] if _names_file(key, of_file[key])]
    refused += [f"{key}={options.pop(key)}" for key in [*options] if key in _FILES]
    stated = _without_other_lengths(of_file, typed) | {
        key: value for key, value in typed.items() if key not in on_run
    }
    about = options | {key: value for key, value in typed.items() if key in on_run}
    unread = (*unread, *(f"{words} (names a file or code: give it on the command line)" for words in refused))

    def found(**answer: Any) -> JobEstimate:
        return JobEstimate(
            source=source,
            name=name,
            fields=stated,
            options=about,
            unread=unread,
            notes=notes,
            report=report,
            **answer,
        )

    if not reason and "precision" in fields and not {"precision"} & stated.keys():
        reason = f"The precision of the job is in a file. {NO_FILE}"  # at another one the answer is another
    if reason:
        return found(reason=reason)
    if not stated.get("model"):
        long = any(stated.get(length) for length in RUN_LENGTHS)
        return found(reason=_NO_MODEL, missing=("model",) if long else ("model", LENGTHS))
    request = None
    try:
        for key in _MODELS:
            check_named_in_data(of_file.get(key))
        with nullcontext() if typed.keys() & {*_FILES, *_MODELS, "precision"} else data_only():
            request = Request.of(stated)
            return found(request=request, **_answer(request, RunOptions.of(about)))
    except PrecisionTimeError as error:
        return found(request=request, reason=str(error))


def _names_file(key: str, value: Any) -> bool:
    return key in _FILES or (key == "precision" and is_policy_file(value))


def _without_other_lengths(of_file: Mapping[str, Any], typed: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a file without those that say in other words what was typed."""
    replaced = {
        name
        for names in (RUN_LENGTHS, GLOBAL_BATCHES)
        if any(name in typed for name in names)
        for name in names
    }
    return {name: value for name, value in of_file.items() if name not in replaced}


def _answer(request: Request, options: RunOptions) -> dict[str, Any]:
    if all(getattr(request, length) is None for length in RUN_LENGTHS):
        return {"step": predict(request), "reason": _NO_LENGTH, "missing": (LENGTHS,)}
    run = run_of(request, options)
    return {"run": run, "step": run.phases[0].prediction}
