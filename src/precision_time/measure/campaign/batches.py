"""A worker's share of a data set, batch by batch, as a training loop walks over it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from ...errors import ConfigError, MissingExtraError
from .models import INPUTS, Batch, Sizes
from .plan import Point

POOL_BYTES = 256 * 2**20
"""Most random samples that a worker holds; a larger synthetic data set goes round in them."""
_MOST_POOL = 65_536


class Batches(Protocol):
    """What a training loop reads."""

    def epoch(self, number: int) -> Iterator[Batch]:
        """The batches of an epoch, in memory of the host: `Point.steps_per_epoch` of them."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Share:
    """Which samples of an epoch are this worker's: every `world`-th of one shuffle that all workers draw."""

    point: Point
    rank: int

    def rows(self, epoch: int) -> Iterator[Any]:
        """Indices of each batch, shape (batch_per_worker,)."""
        world, size = self.point.setting.num_workers, self.point.batch_per_worker
        order = torch.randperm(self.point.num_samples, generator=torch.Generator().manual_seed(epoch))
        mine = order[self.rank :: world]
        for step in range(self.point.steps_per_epoch):
            yield mine[step * size : (step + 1) * size]


@dataclass(frozen=True, kw_only=True, slots=True)
class InMemory:
    """Samples that were loaded before the first step."""

    share: Share
    pool: Batch
    """Tensors with as many rows as samples, or fewer: then they go round."""

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
    """The same batch again and again, for models that bring one."""

    share: Share
    batch: Batch

    def epoch(self, number: int) -> Iterator[Batch]:
        """See Batches."""
        for _ in range(self.share.point.steps_per_epoch):
            yield self.batch


def synthetic(share: Share, kind: str, sizes: Sizes) -> InMemory:
    """Random samples of the right shape.

    Args:
        share: Of the worker.
        kind: Key of INPUTS.
        sizes: Of the model.
    """
    make = INPUTS[kind]
    sample_bytes = sum(tensor.element_size() * tensor.numel() for tensor in make(1, sizes))
    count = min(
        share.point.num_samples, max(POOL_BYTES // sample_bytes, share.point.batch_per_worker), _MOST_POOL
    )
    return InMemory(share=share, pool=make(max(count, share.point.batch_per_worker), sizes))


def digits(share: Share) -> InMemory:
    """Scikit-learn's digits: 1,797 images of 8 x 8 in ten classes.

    Raises:
        MissingExtraError: If scikit-learn is not installed.
    """
    try:
        from sklearn.datasets import load_digits
    except ImportError as error:
        raise MissingExtraError(
            package="scikit-learn", extra="learners", purpose="train on digits"
        ) from error
    data = load_digits()
    images = torch.tensor(data.images, dtype=torch.float32).unsqueeze(1) / 16.0
    return InMemory(share=share, pool=(images, torch.tensor(data.target)))


def image_folder(share: Share, side: int) -> FromFolder:
    """An ImageFolder, resized to `side` x `side`.

    Raises:
        MissingExtraError: If torchvision is not installed.
        ConfigError: If it holds fewer images than the campaign counted.
    """
    try:
        from torchvision import datasets, transforms
    except ImportError as error:
        raise MissingExtraError(
            package="torchvision", extra="capture", purpose="read an ImageFolder"
        ) from error
    steps = transforms.Compose([transforms.Resize((side, side)), transforms.ToTensor()])
    folder = datasets.ImageFolder(share.point.dataset, steps)
    if len(folder) < share.point.num_samples:
        raise ConfigError(
            f"{share.point.dataset} holds {len(folder)} images on this node, the campaign counted "
            f"{share.point.num_samples}. To fix: let every node see the same folder."
        )
    return FromFolder(share=share, images=folder)
