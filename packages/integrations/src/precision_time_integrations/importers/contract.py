"""What every importer gives: runs of a file as logged steps, and the steady step time of each.

An importer answers two questions: is this file (or folder) mine, by its name and its first bytes, and which
runs are in it. What the file does not say (the device, most often) is named in `ImportedRun.missing`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from precision_time.errors import ConfigError, CorpusError, shown

from .steady import SteadySteps, steady_steps

HEAD_BYTES = 64 * 1024
"""Of a file, that `Importer.matches` is shown."""
MOST_STEPS = 200_000
"""Lines of one run that are kept; of a longer log every second, every fourth ... [lines]."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LoggedStep:
    """One report of a training's progress: a line of a log, a row of a table, a point of a curve."""

    step: int
    """Optimizer steps done, of the whole training."""
    at_s: float | None = None
    """When it was written: seconds on any clock of the run, such as since 1970 or since the start."""
    step_time_s: float | None = None
    """Mean elapsed time of an optimizer step over `steps` steps, as logged [s]."""
    steps: int | None = None
    """Steps that `step_time_s` is the mean of; None for those since the report before."""
    samples_per_s: float | None = None
    """Over all devices."""
    tokens_per_s: float | None = None
    """Over all devices."""
    global_batch_size: float | None = None
    """Samples of an optimizer step, where the report says it."""
    total_steps: int | None = None
    """Of the whole training."""
    after_pause: bool = False
    """Whether something other than training ran since the report before: an evaluation, a checkpoint."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ImportedRun:
    """One training that a file reports on."""

    name: str
    """Unique within its file."""
    origin: str
    """The file, and in it the line or the place."""
    importer: str
    """Name of the importer."""
    fields: Mapping[str, Any] = field(default_factory=dict)
    """What the file says of the job, as fields of a request; `sizes` is a mapping."""
    steps: Sequence[LoggedStep] = ()
    """In the order of the file."""
    notes: tuple[str, ...] = ()
    """What could not be read, and what was assumed."""
    tokens_per_sample: float | None = None
    """To turn tokens into samples, where `seq_len` is no field."""
    clock_resolution_s: float = 0.0
    """Of `LoggedStep.at_s`, where times are rounded."""
    reports_epochs: bool = False
    """Whether what the steps count is epochs: their time is that of as many steps as an epoch has."""
    terms_s: Mapping[str, float] = field(default_factory=dict)
    """Of a trace: seconds of a steady step by group of terms (cost/data/terms.toml), such as `kernels_s`."""

    @property
    def missing(self) -> tuple[str, ...]:
        """Fields that a measurement needs and that the file does not say: to be given."""
        return missing_fields(self.fields)

    def with_fields(self, given: Mapping[str, Any]) -> ImportedRun:
        """This run with further fields of a request; what is given goes before what the file says."""
        return replace(self, fields={**self.fields, **given}) if given else self

    def steady(self) -> SteadySteps | None:
        """The steps of steady training and their time; None where the file has no time of any step."""
        return steady_steps(self)

    def measured(self, given: Mapping[str, Any] | None = None) -> MeasuredRun | None:
        """The run as a row that `calibrate`, `evaluate` and `--calibration` read; None without any time.

        Args:
            given: Further fields of the request.
        """
        run = self.with_fields(given or {})
        steady = run.steady()
        return None if steady is None else MeasuredRun(run=run, steady=steady)


@dataclass(frozen=True, kw_only=True, slots=True)
class MeasuredRun:
    """A run with its steady step time."""

    run: ImportedRun
    steady: SteadySteps

    @property
    def missing(self) -> tuple[str, ...]:
        """Fields that are to be given before it is a measurement."""
        return missing_fields(self.request_fields())

    @property
    def complete(self) -> bool:
        """Whether all fields are there that a measurement needs."""
        return not self.missing

    def request_fields(self) -> dict[str, Any]:
        """The job of the steady steps, as fields of a request."""
        fields = {name: value for name, value in self.run.fields.items() if value not in (None, "", {})}
        if self.steady.global_batch_size:
            fields["global_batch_size"] = self.steady.global_batch_size
            fields.pop("num_microbatches", None)
        return fields

    def to_row(self) -> dict[str, str]:
        """Column to cell, as `corpus/own.py` reads them."""
        return {
            **{name: _cell(value) for name, value in self.request_fields().items()},
            "step_time_s": f"{self.steady.step_time_s:.9g}",
            "run_id": self.run.name,
            "source": self.run.importer,
            "source_ref": self.run.origin,
            "notes": self.steady.text,
        }


@dataclass(frozen=True, kw_only=True, slots=True)
class Importer:
    """Reads one kind of file, or of folder."""

    name: str
    """As `--format` takes it."""
    description: str
    """One line: which tool writes such files, and under what name."""
    matches: Callable[[Path, bytes], bool]
    """Whether a path is such a file, by its name and its first bytes (at most `HEAD_BYTES`); never raises."""
    read: Callable[[Path], list[ImportedRun]]
    """Every run in it. Raises `CorpusError` for a file that is none of its kind or is damaged."""
    folders: bool = False
    """Whether it reads folders too: `matches` is shown each with no bytes, and a match is not walked."""


NEEDED = ("model", "device", "gpus")
"""Fields of a request without which no measurement is of use."""
BATCHES = ("batch_size", "global_batch_size", "global_batch_tokens")
"""Fields of which one must be known."""


def missing_fields(fields: Mapping[str, Any]) -> tuple[str, ...]:
    """The fields that are to be given before a run is a measurement.

    >>> missing_fields({"model": "resnet50", "gpus": 8})
    ('device', 'batch_size')
    """
    needed = [name for name in NEEDED if fields.get(name) in (None, "")]
    if all(fields.get(name) in (None, "") for name in BATCHES):
        needed.append("batch_size")
    return tuple(needed)


def _cell(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return value if isinstance(value, str) else json.dumps(value)


def finite(value: Any) -> float | None:
    """A number of a file, where it is one above 0."""
    if isinstance(value, bool):
        return None
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return number if math.isfinite(number) and number > 0.0 else None


def given_fields(words: Sequence[str]) -> dict[str, Any]:
    """Fields out of words such as `gpus=8` (`--set`).

    Raises:
        ConfigError: If one is no such word or names no field of a request.
    """
    from precision_time.corpus.own import STEP_FIELDS

    found: dict[str, Any] = {}
    for word in words:
        name, equals, value = word.partition("=")
        name = name.strip().replace("-", "_")
        if not equals or name not in STEP_FIELDS:
            raise ConfigError(
                f"--set {shown(word)} is no field of a request with its value. To fix: write it like "
                "--set device=H100-SXM5-80GB --set gpus=8; `precision-time predict --help` lists the fields."
            )
        found[name] = value.strip()
    return found


def unreadable(path: Path, what: str, remedy: str) -> CorpusError:
    """The error for a file that is not what it should be."""
    return CorpusError(f"{path} {what}. To fix: {remedy}.")
