"""What a training trial trains: a module that returns its loss, and the batches that each worker reads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from ...errors import ConfigError, MissingExtraError
from ..trial import ModelSpec, TrainingTrial
from .catalog import built_in_models, digits_sizes, planned_models
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
)

POOL_BYTES = 256 * 2**20
"""Most random samples that a worker holds; a larger synthetic dataset repeats them."""
_MOST_POOL = 65_536
_MOST_TOKENS = 512


class Batches(Protocol):
    """What a training loop reads."""

    def epoch(self, number: int) -> Iterator[Batch]:
        """The batches of an epoch, in memory of the host: `TrainingTrial.steps_per_epoch` of them."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Share:
    """Which samples of an epoch are this worker's: every `world`-th of one shuffle that all workers draw."""

    trial: TrainingTrial
    rank: int

    def rows(self, epoch: int) -> Iterator[Any]:
        """Indices of each batch, shape (batch_per_worker,)."""
        world, size = self.trial.group.num_workers, self.trial.batch_per_worker
        order = torch.randperm(self.trial.num_samples, generator=torch.Generator().manual_seed(epoch))
        mine = order[self.rank :: world]
        for step in range(self.trial.steps_per_epoch):
            yield mine[step * size : (step + 1) * size]


@dataclass(frozen=True, kw_only=True, slots=True)
class InMemory:
    """Samples that were loaded before the first step."""

    share: Share
    pool: Batch
    """Tensors with as many rows as samples, or fewer: then rows repeat."""

    def epoch(self, number: int) -> Iterator[Batch]:
        """See Batches."""
        count = len(self.pool[0])
        for rows in self.share.rows(number):
            yield tuple(tensor[rows % count] for tensor in self.pool)


@dataclass(frozen=True, kw_only=True, slots=True)
class FromFolder:
    """Images that are read and decoded as they are needed, in the worker's own process."""

    share: Share
    images: Any
    """A torchvision ImageFolder."""

    def epoch(self, number: int) -> Iterator[Batch]:
        """See Batches."""
        for rows in self.share.rows(number):
            pairs = [self.images[int(row)] for row in rows]
            yield torch.stack([image for image, _ in pairs]), torch.tensor([label for _, label in pairs])


@dataclass(frozen=True, kw_only=True, slots=True)
class OneBatch:
    """The same batch in every step, for models that bring one."""

    share: Share
    batch: Batch

    def epoch(self, number: int) -> Iterator[Batch]:
        """See Batches."""
        for _ in range(self.share.trial.steps_per_epoch):
            yield self.batch


def synthetic(share: Share, kind: str, sizes: Sizes) -> InMemory:
    """Random samples of the right shape.

    Args:
        share: Of the worker.
        kind: Key of INPUTS.
        sizes: Of the model.
    """
    make, batch = INPUTS[kind], share.trial.batch_per_worker
    sample_bytes = sum(tensor.element_size() * tensor.numel() for tensor in make(1, sizes))
    count = min(share.trial.num_samples, max(POOL_BYTES // sample_bytes, batch), _MOST_POOL)
    return InMemory(share=share, pool=make(max(count, batch), sizes))


def _digits(share: Share) -> InMemory:
    """Scikit-learn's digits."""
    try:
        from sklearn.datasets import load_digits
    except ImportError as error:
        raise MissingExtraError(
            package="scikit-learn", extra="learners", purpose="train on digits"
        ) from error
    data = load_digits()
    images = torch.tensor(data.images, dtype=torch.float32).unsqueeze(1) / 16.0
    return InMemory(share=share, pool=(images, torch.tensor(data.target)))


def _image_folder(share: Share, side: int) -> FromFolder:
    """An ImageFolder, resized to `side` x `side`."""
    try:
        from torchvision import datasets, transforms
    except ImportError as error:
        raise MissingExtraError(
            package="torchvision", extra="capture", purpose="read an ImageFolder"
        ) from error
    steps = transforms.Compose([transforms.Resize((side, side)), transforms.ToTensor()])
    folder = datasets.ImageFolder(share.trial.dataset, steps)
    if len(folder) < share.trial.num_samples:
        raise ConfigError(
            f"{share.trial.dataset} holds {len(folder)} images on this node, the campaign counted "
            f"{share.trial.num_samples}. To fix: let every node see the same folder."
        )
    return FromFolder(share=share, images=folder)


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
    share = Share(trial=trial, rank=rank)
    if trial.model in built_in_models():
        return _built_in(trial, share)
    spec = planned_models().get(trial.model) or _spec(trial.model)
    if spec.library == "timm":
        return _timm(trial, share, spec)
    if trial.dataset != "synthetic":
        raise ConfigError(f"{trial.model} cannot read {trial.dataset}. To fix: use synthetic data.")
    return one_batch_task(build_model(spec, trial.batch_per_worker, "cpu"), share)


def one_batch_task(built: BuiltModel, share: Share) -> TrainingTask:
    """The task of a model that brings one batch."""
    return TrainingTask(module=built.module, batches=OneBatch(share=share, batch=built.batch))


def _built_in(trial: TrainingTrial, share: Share) -> TrainingTask:
    model = built_in_models()[trial.model]
    sizes = {**model.sizes, **trial.sizes}
    if trial.dataset == "synthetic":
        batches: Batches = synthetic(share, model.inputs, sizes)
    elif model.inputs != "images":
        raise ConfigError(
            f"{trial.model} reads {model.inputs}, and {trial.dataset} holds images. To fix: use synthetic "
            "data."
        )
    elif trial.dataset == "digits":
        digits = digits_sizes()
        stages = {"stages": min(sizes["stages"], digits["poolings"])} if "stages" in sizes else {}
        sizes, batches = {**sizes, **digits, **stages}, _digits(share)
    else:
        folder = _image_folder(share, int(sizes["side"]))
        sizes, batches = {**sizes, "channels": 3, "classes": len(folder.images.classes)}, folder
    return TrainingTask(module=MODULES[trial.model](sizes), batches=batches)


def _timm(trial: TrainingTrial, share: Share, spec: ModelSpec) -> TrainingTask:
    """An image model of timm's, on images of its usual side."""
    side, classes = spec.image_size or IMAGE_SIDE, IMAGE_CLASSES
    if trial.dataset == "synthetic":
        sizes: Mapping[str, float] = {"side": side, "channels": 3, "classes": classes}
        batches: Batches = synthetic(share, "images", sizes)
    elif trial.dataset == "digits":
        raise ConfigError(f"{trial.model} cannot read 8 x 8 digits. To fix: use cnn, mlp or synthetic data.")
    else:
        batches = folder = _image_folder(share, side)
        classes = len(folder.images.classes)
    return TrainingTask(module=Classifier(timm_network(spec, num_classes=classes)), batches=batches)


def _spec(name: str) -> ModelSpec:
    """A model that no plan names: Hugging Face's where it has an owner, else timm's."""
    if "/" not in name:
        return ModelSpec(name=name, library="timm")
    from ...workload.capture.huggingface import import_transformers

    config = import_transformers().AutoConfig.from_pretrained(name)
    head = (getattr(config, "architectures", None) or ["AutoModel"])[0]
    longest = getattr(config, "max_position_embeddings", None) or _MOST_TOKENS
    options = {key: value for key, value in config.to_diff_dict().items() if key != "model_type"}
    return ModelSpec(
        name=name,
        library="transformers",
        build={"type": config.model_type, "config": options, "head": head},
        seq_len=min(int(longest), _MOST_TOKENS),
    )
