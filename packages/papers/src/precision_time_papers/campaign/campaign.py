"""Campaigns: what their files may contain (pydantic models), and the trials that they ask for.

A file is YAML: a name, what holds for every trial, and `sweeps`. A sweep multiplies its lists. See
docs/devdocs/papers.md for an example of every key.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from precision_time.errors import ConfigError, validation_problems
from precision_time.io import read_input, read_yaml
from precision_time.units import GIGA
from precision_time_integrations.measure.steps.catalog import (
    GPU_PRECISIONS,
    check_model,
    digits_sizes,
    optimizer_of,
)
from precision_time_integrations.measure.trial import TrainingTrial, WorkerGroup

_SYNTHETIC_SAMPLES = 2048
_MADE = ("synthetic", "generated-images")
"""Datasets of as many samples as a campaign asks for."""
_MOST_TRIALS = 100_000
_IMAGES = frozenset({".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp"})

Count = Annotated[int, Field(ge=1, le=2**31)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Fraction = Annotated[float, Field(gt=0, le=1)]
Precision = Literal["fp32", "tf32", "bf16-mixed", "fp16-mixed"]


def _listed(value: Any) -> Any:
    """One value stands for a list of one."""
    return value if isinstance(value, list) else [value]


_ONE_OR_MORE = BeforeValidator(_listed), Field(min_length=1)


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid")


class SizedModel(_Model):
    """A model with sizes that the campaign sets."""

    name: str
    sizes: dict[str, Positive] = {}


class Dataset(_Model):
    """What is trained on."""

    name: Literal["synthetic", "generated-images", "digits", "imagefolder"] = "synthetic"
    """generated-images: written to disk once, and read, decoded and augmented in the steps that are timed."""
    samples: Count | None = None
    """Of synthetic data and generated images: how many there are in an epoch of the whole."""
    path: Path | None = None
    """Of an ImageFolder: its folder, one folder of images per class; every node must see it."""


class Sweep(_Model):
    """Trials: every combination of the lists."""

    models: Annotated[list[str | SizedModel], *_ONE_OR_MORE]
    data: Dataset = Dataset()
    fractions: Annotated[list[Fraction], *_ONE_OR_MORE] = [1.0]
    workers: Annotated[list[Count], *_ONE_OR_MORE] = [1]
    cpus_per_worker: Annotated[list[Positive], *_ONE_OR_MORE] = [1.0]
    gpus_per_worker: Annotated[list[NotNegative], *_ONE_OR_MORE] = [0.0]
    nodes: Annotated[list[Count], *_ONE_OR_MORE] = [1]
    cpu_limit: Literal["cgroup"] | None = None
    """cgroup: the CPUs of a worker are enforced by a control group on its node."""
    batch_sizes: Annotated[list[Count], *_ONE_OR_MORE] = [32]
    precisions: Annotated[list[Precision], *_ONE_OR_MORE] = ["fp32"]
    optimizer: Literal["sgd", "sgd_with_momentum", "adam", "adamw"] | None = None
    epochs: Count | None = None
    seconds: Positive | None = None


class CampaignFile(_Model):
    """A whole file."""

    version: Literal[1] = 1
    name: Annotated[str, Field(min_length=1, max_length=80)] = "campaign"
    sweeps: Annotated[list[Sweep], Field(min_length=1)]
    repeats: Count = 1
    epochs: Count = 1
    seconds: Positive | None = None
    warmup_steps: Annotated[int, Field(ge=0)] = 2
    time_limit: Positive = 120.0
    """Seconds of a trial, building and warming up included."""
    oversubscribe: bool = False
    machine: Annotated[str, Field(max_length=80)] = ""
    """What the campaign calls the type of its machines."""
    link_gbit_per_s: Positive | None = None
    """Of the network of a node, as the user knows it."""
    worker_cores: list[Annotated[int, Field(ge=0)]] = []
    """Cores of each node that the workers run on; none: all."""
    environment: dict[str, str] = {}
    """Variables of the workers' processes, such as ONEDNN_MAX_CPU_ISA."""
    evaluate: Annotated[float, Field(ge=0, le=1)] = 0.0
    """Held-out samples that a job evaluates after each epoch, over those of the epoch."""
    checkpoint: bool = False
    """Whether a job writes a checkpoint after each epoch."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Campaign:
    """What a campaign file or the options of the command ask for."""

    name: str
    trials: tuple[TrainingTrial, ...]
    """In the order of the file, round after round: every trial once before any is repeated."""
    oversubscribe: bool = False
    """A local Ray may offer more CPUs than this machine has; such trials are labeled."""


def check_trials(trials: Sequence[TrainingTrial]) -> None:
    """Refuse what cannot be measured on any cluster; the error names the trial.

    Raises:
        ConfigError: If there are none, or a trial holds less than a batch, or asks a CPU for a precision of
            GPUs.
        UnknownNameError: If its model is unknown.
    """
    if not trials:
        raise ConfigError("The campaign has no trials. To fix: give at least one value on every axis.")
    models = ((trial.model, tuple(sorted(trial.sizes.items()))) for trial in trials)
    for model, sizes in dict.fromkeys(models):
        check_model(model, dict(sizes))
    for trial in trials:
        if not trial.steps_per_epoch:
            share = trial.num_samples / trial.group.num_workers
            raise ConfigError(
                f"The trial {trial} has {share:g} samples per worker, less than its batch of "
                f"{trial.batch_per_worker}. To fix: more samples, a larger fraction or a smaller batch."
            )
        if ":" in trial.model and (trial.evaluation_share or trial.checkpoint):
            raise ConfigError(
                f"The trial {trial} evaluates or writes checkpoints, and {trial.model} is a loop of its own. "
                "To fix: let the loop do both, and leave evaluate and checkpoint out."
            )
        if trial.precision in GPU_PRECISIONS and not trial.group.gpus_per_worker:
            raise ConfigError(
                f"The trial {trial} asks for {trial.precision} on workers without a GPU. To fix: set "
                "gpus_per_worker, or leave this precision out."
            )


def load_campaign(path: str | Path) -> Campaign:
    """The campaign of a YAML file.

    Raises:
        ConfigError: If the file cannot be read, breaks a rule, or asks for a trial that is invalid.
        UnknownNameError: If a model is unknown.
    """
    try:
        content = read_yaml(read_input(path), once=True)
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(
            f"The campaign {path} cannot be read: {' '.join(str(error).split())}. To fix: name a YAML file."
        ) from error
    return campaign_of(content, source=str(path))


def campaign_of(content: Any, *, source: str = "the campaign") -> Campaign:
    """The campaign of a document, as YAML gives it.

    Args:
        content: Mapping with the fields of `CampaignFile`.
        source: What errors call it.

    Raises:
        ConfigError: If it breaks a rule or asks for a trial that is invalid.
        UnknownNameError: If a model is unknown.
    """
    try:
        file = CampaignFile.model_validate(content)
    except ValidationError as error:
        raise ConfigError(
            f"{source} breaks its rules: {validation_problems(error)}. To fix: correct these fields."
        ) from error
    count = file.repeats * sum(_count(sweep) for sweep in file.sweeps)
    if count > _MOST_TRIALS:
        raise ConfigError(
            f"{source} asks for {count} trials; the most are {_MOST_TRIALS}. To fix: fewer values or repeats."
        )
    trials = {trial.key: trial for sweep in file.sweeps for trial in _trials(file, sweep)}
    check_trials(list(trials.values()))
    rounds = [replace(trial, repeat=repeat) for repeat in range(file.repeats) for trial in trials.values()]
    return Campaign(name=file.name, trials=tuple(rounds), oversubscribe=file.oversubscribe)


def _count(sweep: Sweep) -> int:
    """Combinations of the lists of a sweep."""
    lists = (getattr(sweep, name) for name in Sweep.model_fields)
    return math.prod(len(values) for values in lists if isinstance(values, list))


def _trials(file: CampaignFile, sweep: Sweep) -> Iterator[TrainingTrial]:
    dataset, samples = _dataset(sweep.data)
    groups = [
        WorkerGroup(
            num_workers=workers,
            cpus_per_worker=cpus,
            gpus_per_worker=gpus,
            num_nodes=nodes,
            cpu_limit=sweep.cpu_limit or "",
            cores=tuple(file.worker_cores),
            environment=tuple(sorted(file.environment.items())),
        )
        for workers, cpus, gpus, nodes in product(
            sweep.workers, sweep.cpus_per_worker, sweep.gpus_per_worker, sweep.nodes
        )
    ]
    axes = product(sweep.models, sweep.precisions, groups, sweep.batch_sizes, sweep.fractions)
    for model, precision, group, batch_size, fraction in axes:
        name, sizes = (model, {}) if isinstance(model, str) else (model.name, model.sizes)
        if group.num_nodes > group.num_workers:
            raise ConfigError(
                f"The trial of {name} with {group.num_workers} workers asks for {group.num_nodes} nodes. "
                "To fix: at most as many nodes as workers."
            )
        yield TrainingTrial(
            model=name,
            sizes=sizes,
            dataset=dataset,
            dataset_samples=samples,
            fraction=fraction,
            group=group,
            batch_per_worker=batch_size,
            precision=precision,
            optimizer=sweep.optimizer or optimizer_of(name),
            epochs=sweep.epochs or file.epochs,
            seconds=sweep.seconds or file.seconds,
            warmup_steps=file.warmup_steps,
            time_limit_s=file.time_limit,
            machine=file.machine,
            link_bytes_per_s=None if file.link_gbit_per_s is None else file.link_gbit_per_s * GIGA / 8,
            evaluation_share=file.evaluate,
            checkpoint=file.checkpoint,
        )


def _dataset(data: Dataset) -> tuple[str, int]:
    """Name of a dataset in the rows, and its samples."""
    if data.name in _MADE:
        return data.name, data.samples or _SYNTHETIC_SAMPLES
    if data.samples is not None:
        raise ConfigError(
            f"data.samples is for {' and '.join(_MADE)}; {data.name} has its own. To fix: use fractions."
        )
    if data.name == "digits":
        return data.name, digits_sizes()["samples"]
    if data.path is None or not data.path.is_dir():
        raise ConfigError(
            f"The ImageFolder {data.path} is not a folder. To fix: data: {{name: imagefolder, path: FOLDER}} "
            "with one folder of images per class."
        )
    count = sum(path.suffix.lower() in _IMAGES for path in data.path.glob("*/**/*"))
    if not count:
        raise ConfigError(f"{data.path} holds no images in folders of classes. To fix: name another folder.")
    return str(data.path.resolve()), count
