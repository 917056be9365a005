"""What a campaign file may say: pydantic models, and the points that they stand for.

A file is YAML: a name, what holds for every point, and `sweeps`. A sweep multiplies its lists. See
docs/devdocs/009-ray.md for an example of every key.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from ...errors import ConfigError, validation_problems
from ...io import read_yaml
from .catalog import optimizer_of
from .plan import Campaign, Point, Setting, check_points, repeated

DIGITS_SAMPLES = 1797
"""Of scikit-learn's digits."""
_SYNTHETIC_SAMPLES = 2048
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


class _Sheet(BaseModel):
    model_config = ConfigDict(extra="forbid")


class SizedModel(_Sheet):
    """A model with sizes of its own."""

    name: str
    sizes: dict[str, Positive] = {}


class DataSet(_Sheet):
    """What is trained on."""

    name: Literal["synthetic", "digits", "imagefolder"] = "synthetic"
    samples: Count | None = None
    """Of synthetic data: how many there are in an epoch of the whole."""
    path: Path | None = None
    """Of an ImageFolder: its folder, one folder of images per class; every node must see it."""


class Sweep(_Sheet):
    """Points: every combination of the lists."""

    models: Annotated[list[str | SizedModel], *_ONE_OR_MORE]
    data: DataSet = DataSet()
    fractions: Annotated[list[Fraction], *_ONE_OR_MORE] = [1.0]
    workers: Annotated[list[Count], *_ONE_OR_MORE] = [1]
    cpus_per_worker: Annotated[list[Positive], *_ONE_OR_MORE] = [1.0]
    gpus_per_worker: Annotated[list[NotNegative], *_ONE_OR_MORE] = [0.0]
    nodes: Annotated[list[Count], *_ONE_OR_MORE] = [1]
    batch_sizes: Annotated[list[Count], *_ONE_OR_MORE] = [32]
    precisions: Annotated[list[Precision], *_ONE_OR_MORE] = ["fp32"]
    optimizer: Literal["sgd", "sgd_with_momentum", "adam", "adamw"] | None = None
    epochs: Count | None = None
    seconds: Positive | None = None


class CampaignFile(_Sheet):
    """A whole file."""

    version: Literal[1] = 1
    name: Annotated[str, Field(min_length=1, max_length=80)] = "campaign"
    sweeps: Annotated[list[Sweep], Field(min_length=1)]
    repeats: Count = 1
    epochs: Count = 1
    seconds: Positive | None = None
    warmup_steps: Annotated[int, Field(ge=0)] = 2
    time_limit: Positive = 120.0
    """Seconds of a point, building and warming up included."""
    oversubscribe: bool = False


def load_campaign(path: str | Path) -> Campaign:
    """The campaign of a YAML file.

    Raises:
        ConfigError: If the file cannot be read, breaks a rule, or asks for a point that cannot be.
        UnknownNameError: If nobody knows a model.
    """
    try:
        content = read_yaml(Path(path).read_text(encoding="utf-8"))
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
        ConfigError: If it breaks a rule or asks for a point that cannot be.
        UnknownNameError: If nobody knows a model.
    """
    try:
        file = CampaignFile.model_validate(content)
    except ValidationError as error:
        raise ConfigError(
            f"{source} breaks its rules: {validation_problems(error)}. To fix: correct these fields."
        ) from error
    points = [point for sweep in file.sweeps for point in _points(file, sweep)]
    check_points(points)
    return Campaign(
        name=file.name, points=tuple(repeated(points, file.repeats)), oversubscribe=file.oversubscribe
    )


def _points(file: CampaignFile, sweep: Sweep) -> Iterator[Point]:
    dataset, samples = _dataset(sweep.data)
    settings = [
        Setting(num_workers=workers, cpus_per_worker=cpus, gpus_per_worker=gpus, num_nodes=nodes)
        for workers, cpus, gpus, nodes in product(
            sweep.workers, sweep.cpus_per_worker, sweep.gpus_per_worker, sweep.nodes
        )
    ]
    axes = product(sweep.models, sweep.precisions, settings, sweep.batch_sizes, sweep.fractions)
    for model, precision, setting, batch_size, fraction in axes:
        name, sizes = _model(model)
        if setting.num_nodes > setting.num_workers:
            raise ConfigError(
                f"The point of {name} with {setting.num_workers} workers is to be spread over "
                f"{setting.num_nodes} nodes. To fix: at most as many nodes as workers."
            )
        yield Point(
            model=name,
            sizes=sizes,
            dataset=dataset,
            dataset_samples=samples,
            fraction=fraction,
            setting=setting,
            batch_per_worker=batch_size,
            precision=precision,
            optimizer=sweep.optimizer or optimizer_of(name),
            epochs=sweep.epochs or file.epochs,
            seconds=sweep.seconds or file.seconds,
            warmup_steps=file.warmup_steps,
            time_limit_s=file.time_limit,
        )


def _model(model: str | SizedModel) -> tuple[str, Mapping[str, float]]:
    return (model, {}) if isinstance(model, str) else (model.name, model.sizes)


def _dataset(data: DataSet) -> tuple[str, int]:
    """Name of a data set in the rows, and its samples."""
    if data.name == "synthetic":
        return data.name, data.samples or _SYNTHETIC_SAMPLES
    if data.samples is not None:
        raise ConfigError(
            f"data.samples is for synthetic data; {data.name} has its own. To fix: use fractions."
        )
    if data.name == "digits":
        return data.name, DIGITS_SAMPLES
    if data.path is None or not data.path.is_dir():
        raise ConfigError(
            f"The ImageFolder {data.path} is no folder. To fix: data: {{name: imagefolder, path: FOLDER}}, "
            f"with one "
            "folder of images per class."
        )
    count = sum(path.suffix.lower() in _IMAGES for path in data.path.glob("*/**/*"))
    if not count:
        raise ConfigError(f"{data.path} holds no images in folders of classes. To fix: name another folder.")
    return str(data.path.resolve()), count
