"""Generated images on disk: written once, then read, decoded and augmented in every step that is timed.

They stand for data sets of small images (CIFAR-10's 32 x 32, Tiny-ImageNet's 64 x 64) whose files are not
here. Nothing of a data set is in them: a few random waves of color with some noise, so that a JPEG has about
the bytes of a photo of its size, which flat color or pure noise has not.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader

from precision_time.errors import import_failure
from precision_time.io import cache_folder

from .models import Batch

GENERATED = "generated-images"
"""Of a trial's dataset."""
PADDING = 4
"""Pixels on each side before a random crop, as usual for CIFAR-10 (arXiv 1512.03385, section 4.2)."""
_QUALITY = 90
_WAVES, _NOISE = 4, 12.0
_MEAN, _SPREAD = 0.5, 0.25


def _pillow() -> Any:
    try:
        from PIL import Image
    except ImportError as error:
        raise import_failure(
            error, name="PIL", package="pillow", extra="precision-time-papers", purpose="read images"
        ) from error
    return Image


def generated_folder(*, side: int, classes: int, samples: int, within: Path | None = None) -> Path:
    """A folder of JPEGs, written if it is not there: `00012-7.jpg` is image 12, of class 7.

    Args:
        side: Pixels of an edge.
        classes: Labels are drawn from 0 to this, without it.
        samples: How many.
        within: Folder of all such folders; the user's cache when None.

    Raises:
        MissingExtraError: If Pillow is not installed.
    """
    image = _pillow()
    root = (cache_folder() if within is None else within) / GENERATED
    folder = root / f"{side}x{side}-{classes}-classes-{samples}"
    if folder.is_dir():
        return folder
    root.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(0)
    # Workers of one machine start together: whoever is first renames, the others find it there.
    with tempfile.TemporaryDirectory(dir=root) as unfinished:
        made = Path(unfinished) / "images"
        made.mkdir()
        for number, label in enumerate(random.integers(classes, size=samples).tolist()):
            path = made / f"{number:05d}-{label}.jpg"
            image.fromarray(_pixels(random, side)).save(path, quality=_QUALITY)
        try:
            os.replace(made, folder)
        except OSError:
            if not folder.is_dir():
                raise
    return folder


def _pixels(random: Any, side: int) -> Any:
    """A random image, shape (side, side, 3)."""
    places = np.linspace(0.0, 2.0 * np.pi, side)
    frequency = random.uniform(0.3, 4.0, (2, _WAVES, 3))
    phase = random.uniform(0.0, 2.0 * np.pi, (2, _WAVES, 3))
    rows, columns = (np.sin(frequency[axis, None] * places[:, None, None] + phase[axis]) for axis in (0, 1))
    waves = np.einsum("iwc,jwc->ijc", rows, columns) / np.sqrt(_WAVES)
    return np.clip(128.0 + 70.0 * waves + random.normal(0.0, _NOISE, waves.shape), 0, 255).astype(np.uint8)


@dataclass(frozen=True, kw_only=True)
class ImagesOnDisk:
    """Images of a folder, each read, decoded and augmented when it is asked for."""

    paths: tuple[Path, ...]

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> tuple[Any, int]:
        """Image `index` at a random shift and mirrored or not, shape (3, side, side), and its label."""
        path = self.paths[index]
        with _pillow().open(path) as opened:
            pixels = torch.from_numpy(np.array(opened.convert("RGB"))).permute(2, 0, 1)
        side = pixels.shape[-1]
        padded = torch.nn.functional.pad(pixels, (PADDING,) * 4)
        top, left, mirrored = (int(torch.randint(most, ())) for most in (2 * PADDING + 1, 2 * PADDING + 1, 2))
        crop = padded[:, top : top + side, left : left + side]
        crop = crop.flip(-1) if mirrored else crop
        return (crop.float() / 255.0 - _MEAN) / _SPREAD, int(path.stem.rpartition("-")[2])


def generated_images(*, side: int, classes: int, samples: int) -> ImagesOnDisk:
    """The images of `generated_folder`."""
    folder = generated_folder(side=side, classes=classes, samples=samples)
    return ImagesOnDisk(paths=tuple(sorted(folder.iterdir())))


def read_batches(images: ImagesOnDisk, rows: Iterable[Any]) -> Iterator[Batch]:
    """A batch of each list of indices, by a DataLoader in the worker's own process.

    Processes that read ahead would take the cores that a trial gives its worker.
    """
    return map(tuple, DataLoader(images, batch_sampler=[some.tolist() for some in rows]))
