"""What a training trial trains: a module that returns its loss, and the batches that each worker reads."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import repeat
from typing import Any

import torch

from precision_time.errors import ConfigError, import_failure

from ..trial import ModelSpec, TrainingTrial
from .catalog import TORCHVISION, TORCHVISION_SIZES, built_in_models, digits_sizes, planned_models
from .images import GENERATED, generated_images, read_batches
from .models import (
    IMAGE_CLASSES,
    IMAGE_SIDE,
    INPUTS,
    MODULES,
    Batch,
    BuiltModel,
    Classifier,
    Sizes,
    build_model,
    timm_network,
    torchvision_network,
)

POOL_BYTES = 256 * 2**20
"""Most random samples that a worker holds; a larger synthetic dataset repeats them."""
_MOST_POOL = 65_536
_MOST_TOKENS = 512


Batches = Callable[[int], Iterator[Batch]]
"""Number of an epoch -> its batches, in memory of the host: `TrainingTrial.steps_per_epoch` of them."""


def sample_rows(trial: TrainingTrial, rank: int, epoch: int) -> Iterator[Any]:
    """Indices of each batch of a worker, shape (batch_per_worker,).

    They are every `num_workers`-th of one shuffle that all workers draw.
    """
    size = trial.batch_per_worker
    order = torch.randperm(trial.num_samples, generator=torch.Generator().manual_seed(epoch))
    mine = order[rank :: trial.group.num_workers]
    for step in range(trial.steps_per_epoch):
        yield mine[step * size : (step + 1) * size]


def in_memory(trial: TrainingTrial, rank: int, pool: Batch) -> Batches:
    """Samples that were loaded before the first step; fewer rows than samples repeat."""
    count = len(pool[0])
    return lambda epoch: (
        tuple(tensor[rows % count] for tensor in pool) for rows in sample_rows(trial, rank, epoch)
    )


def from_folder(trial: TrainingTrial, rank: int, images: Any) -> Batches:
    """Images of a torchvision ImageFolder, read and decoded as they are needed."""

    def batch(rows: Any) -> Batch:
        pairs = [images[int(row)] for row in rows]
        return torch.stack([image for image, _ in pairs]), torch.tensor([label for _, label in pairs])

    return lambda epoch: map(batch, sample_rows(trial, rank, epoch))


def from_generated(trial: TrainingTrial, rank: int, *, side: int, classes: int) -> Batches:
    """Generated images, written to disk where they are not there, and read in every step."""
    images = generated_images(side=side, classes=classes, samples=trial.num_samples)
    return lambda epoch: read_batches(images, sample_rows(trial, rank, epoch))


def synthetic_pool(trial: TrainingTrial, kind: str, sizes: Sizes) -> Batch:
    """Random samples of the right shape.

    Args:
        trial: Says how many samples there are.
        kind: Key of INPUTS.
        sizes: Of the model.
    """
    make, batch = INPUTS[kind], trial.batch_per_worker
    sample_bytes = sum(tensor.element_size() * tensor.numel() for tensor in make(1, sizes))
    count = min(trial.num_samples, max(POOL_BYTES // sample_bytes, batch), _MOST_POOL)
    return make(max(count, batch), sizes)


def _digits() -> Batch:
    """Scikit-learn's digits."""
    try:
        from sklearn.datasets import load_digits
    except ImportError as error:
        raise import_failure(
            error,
            name="sklearn",
            package="scikit-learn",
            extra="precision-time-papers",
            purpose="train on digits",
        ) from error
    data = load_digits()
    return torch.tensor(data.images, dtype=torch.float32).unsqueeze(1) / 16.0, torch.tensor(data.target)


def _image_folder(trial: TrainingTrial, side: int) -> Any:
    """An ImageFolder, resized to `side` x `side`."""
    try:
        from torchvision import datasets, transforms
    except ImportError as error:
        raise import_failure(
            error, name="torchvision", package="torchvision", extra="capture", purpose="read an ImageFolder"
        ) from error
    steps = transforms.Compose([transforms.Resize((side, side)), transforms.ToTensor()])
    images = datasets.ImageFolder(trial.dataset, steps)
    if len(images) < trial.num_samples:
        raise ConfigError(
            f"{trial.dataset} holds {len(images)} images on this node, the campaign counted "
            f"{trial.num_samples}. To fix: let every node see the same folder."
        )
    return images


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainingTask:
    """A model to train and what it reads."""

    module: Any
    """In training mode, on the host; called with a batch it returns the loss."""
    batches: Batches


def build_task(trial: TrainingTrial, rank: int) -> TrainingTask:
    """The model and the data of a trial, for one worker.

    Raises:
        ConfigError: If the model cannot read the dataset, or it holds fewer images than were counted.
        MissingExtraError: If a library is not installed.
    """
    if trial.model in built_in_models():
        return _built_in(trial, rank)
    if trial.model.startswith(TORCHVISION):
        return _torchvision(trial, rank)
    spec = planned_models().get(trial.model) or _spec(trial.model)
    if spec.library == "timm":
        return _timm(trial, rank, spec)
    if trial.dataset != "synthetic":
        raise ConfigError(f"{trial.model} cannot read {trial.dataset}. To fix: use synthetic data.")
    return one_batch_task(trial, build_model(spec, trial.batch_per_worker, "cpu"))


def one_batch_task(trial: TrainingTrial, built: BuiltModel) -> TrainingTask:
    """The task of a model that brings one batch, which is read in every step."""
    return TrainingTask(module=built.module, batches=lambda _: repeat(built.batch, trial.steps_per_epoch))


def _built_in(trial: TrainingTrial, rank: int) -> TrainingTask:
    model = built_in_models()[trial.model]
    sizes = {**model.sizes, **trial.sizes}
    if trial.dataset == "synthetic":
        batches = in_memory(trial, rank, synthetic_pool(trial, model.inputs, sizes))
    elif model.inputs != "images":
        raise ConfigError(
            f"{trial.model} reads {model.inputs}, and {trial.dataset} holds images. To fix: use synthetic "
            "data."
        )
    elif trial.dataset == GENERATED:
        sizes = {**sizes, "channels": 3}
        batches = from_generated(trial, rank, side=int(sizes["side"]), classes=int(sizes["classes"]))
    elif trial.dataset == "digits":
        digits = digits_sizes()
        stages = {"stages": min(sizes["stages"], digits["poolings"])} if "stages" in sizes else {}
        sizes, batches = {**sizes, **digits, **stages}, in_memory(trial, rank, _digits())
    else:
        images = _image_folder(trial, int(sizes["side"]))
        sizes = {**sizes, "channels": 3, "classes": len(images.classes)}
        batches = from_folder(trial, rank, images)
    return TrainingTask(module=MODULES[trial.model](sizes), batches=batches)


def _timm(trial: TrainingTrial, rank: int, spec: ModelSpec) -> TrainingTask:
    """An image model of timm's, on images of its usual side."""
    side, classes = spec.image_size or IMAGE_SIDE, IMAGE_CLASSES
    if trial.dataset == "synthetic":
        sizes = {"side": side, "channels": 3, "classes": classes}
        batches = in_memory(trial, rank, synthetic_pool(trial, "images", sizes))
    elif trial.dataset == GENERATED:
        batches = from_generated(trial, rank, side=side, classes=classes)
    elif trial.dataset == "digits":
        raise ConfigError(f"{trial.model} cannot read 8 x 8 digits. To fix: use cnn, mlp or synthetic data.")
    else:
        images = _image_folder(trial, side)
        classes, batches = len(images.classes), from_folder(trial, rank, images)
    return TrainingTask(module=Classifier(timm_network(spec, num_classes=classes)), batches=batches)


def _torchvision(trial: TrainingTrial, rank: int) -> TrainingTask:
    """A classifier of torchvision's; of synthetic data the same batch of random images in every step."""
    sizes = {**TORCHVISION_SIZES, "channels": 3, **trial.sizes}
    module = Classifier(torchvision_network(trial.model, int(sizes["classes"])))
    if trial.dataset == GENERATED:
        batches = from_generated(trial, rank, side=int(sizes["side"]), classes=int(sizes["classes"]))
        return TrainingTask(module=module, batches=batches)
    if trial.dataset != "synthetic":
        raise ConfigError(
            f"{trial.model} cannot read {trial.dataset}. To fix: use synthetic or generated-images."
        )
    built = BuiltModel(
        module=module,
        batch=INPUTS["images"](trial.batch_per_worker, sizes),
        batch_size=trial.batch_per_worker,
    )
    return one_batch_task(trial, built)


def _spec(name: str) -> ModelSpec:
    """A model that no plan names: Hugging Face's where it has an owner, else timm's."""
    if "/" not in name:
        return ModelSpec(name=name, library="timm")
    from precision_time.capture.huggingface import config_of

    config = config_of(name)
    head = (getattr(config, "architectures", None) or ["AutoModel"])[0]
    longest = getattr(config, "max_position_embeddings", None) or _MOST_TOKENS
    options = {key: value for key, value in config.to_diff_dict().items() if key != "model_type"}
    return ModelSpec(
        name=name,
        library="transformers",
        build={"type": config.model_type, "config": options, "head": head},
        seq_len=min(int(longest), _MOST_TOKENS),
    )
