"""Images to train on: scikit-learn's digits (need no download), CIFAR-10, or a folder with one per class."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from precision_time.errors import ConfigError, required_module

from .sampler import ImageShape
from .weights import Floats32

DIGITS_SOURCE = "digits"
_SIDE = 32
_CIFAR_FILES = tuple(f"data_batch_{number}.bin" for number in range(1, 6))
_CIFAR_TEST = "test_batch.bin"
_CIFAR_RECORD = 1 + 3 * _SIDE * _SIDE
_TEST_SHARE, _VALIDATION_SHARE = 0.25, 0.15
_FEWEST = 10
_LEAST_SIDE, _MOST_SIDE = 8, 256
_SUFFIXES = frozenset({".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp"})


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class ImageSet:
    """Standardized images (n, channels, side, side) and their classes, in three parts."""

    name: str
    shape: ImageShape
    train: tuple[Floats32, NDArray[np.int64]]
    validation: tuple[Floats32, NDArray[np.int64]]
    """Chooses the best hypernetwork; never trained on."""
    test: tuple[Floats32, NDArray[np.int64]]
    """Looked at once, for the report."""

    @property
    def chance(self) -> float:
        """Accuracy of always answering the commonest class of the test part."""
        counts = np.bincount(self.test[1])
        return float(counts.max() / counts.sum())


def load_images(source: str, seed: int = 0, side: int | None = None) -> ImageSet:
    """Images by name or folder.

    Args:
        source: `digits`, a folder with CIFAR-10's binary files, or a folder with one folder of images per
            class (below `train` and `val` or `test`, where it has these).
        seed: Draws the parts where the source has none.
        side: Height and width [pixels] that images of a folder are resized to (32 if not given) and digits
            are enlarged to, then in three equal channels; without it digits are 1 x 8 x 8.

    Raises:
        ConfigError: If there is no such folder, it holds too few images, only one class, or images whose side
            cannot be had.
        MissingExtraError: If scikit-learn (digits) or Pillow (image files) is not installed.
    """
    if side is not None and not _LEAST_SIDE <= side <= _MOST_SIDE:
        raise ConfigError(
            f"Images of {side} pixels cannot be trained on: a side is {_LEAST_SIDE} to {_MOST_SIDE} pixels. "
            "To fix: give one in between."
        )
    if source == DIGITS_SOURCE:
        return _digits(seed, side)
    folder = Path(source)
    if not folder.is_dir():
        raise ConfigError(
            f"There is no folder {source!r} with images. To fix: give an existing one, or `digits`."
        )
    if (folder / _CIFAR_TEST).is_file():
        if side not in (None, _SIDE):
            raise ConfigError(
                f"CIFAR-10's images have {_SIDE} pixels, not {side}. To fix: leave the side out, or give a "
                "folder with one folder of image files per class."
            )
        return _cifar(folder, seed)
    return _folders(folder, seed, side or _SIDE)


def _digits(seed: int, side: int | None) -> ImageSet:
    """1,797 handwritten digits of 8 x 8: UCI Optical Recognition of Handwritten Digits."""
    data = required_module(
        "sklearn.datasets",
        package="scikit-learn",
        extra="precision-time-papers",
        purpose="train on its digits",
    ).load_digits()
    pixels = data.images[:, None, :, :].astype(np.float32)
    labels = data.target.astype(np.int64)
    if side is None:
        return _in_parts(DIGITS_SOURCE, pixels, labels, seed)
    nearest = np.arange(side) * pixels.shape[2] // side
    enlarged = np.repeat(pixels[:, :, nearest][:, :, :, nearest], 3, axis=1)
    return _in_parts(f"{DIGITS_SOURCE}-{side}", enlarged, labels, seed)


def _cifar(folder: Path, seed: int) -> ImageSet:
    """CIFAR-10's binary version: a byte with the class, then 3 x 32 x 32 bytes."""
    parts = [_cifar_file(folder / name) for name in _CIFAR_FILES if (folder / name).is_file()]
    if not parts:
        raise ConfigError(
            f"{folder} holds no {_CIFAR_FILES[0]}. To fix: unpack cifar-10-binary.tar.gz there."
        )
    pixels, labels = np.concatenate([part[0] for part in parts]), np.concatenate([part[1] for part in parts])
    return _in_parts("cifar10", pixels, labels, seed, test=_cifar_file(folder / _CIFAR_TEST))


def _cifar_file(path: Path) -> tuple[Floats32, NDArray[np.int64]]:
    raw = np.fromfile(path, dtype=np.uint8)
    if not len(raw) or len(raw) % _CIFAR_RECORD:
        raise ConfigError(f"{path} is truncated: {len(raw)} bytes, not a multiple of {_CIFAR_RECORD}. "
                          "To fix: unpack it again.")  # fmt: skip
    records = raw.reshape(-1, _CIFAR_RECORD)
    pixels = records[:, 1:].reshape(-1, 3, _SIDE, _SIDE).astype(np.float32)
    return pixels, records[:, 0].astype(np.int64)


def _folders(folder: Path, seed: int, side: int) -> ImageSet:
    test_folder = next((folder / name for name in ("val", "test") if (folder / name).is_dir()), None)
    train_folder = folder / "train" if (folder / "train").is_dir() else folder
    classes = sorted(path.name for path in train_folder.iterdir() if path.is_dir())
    if train_folder == folder:
        test_folder = None
    pixels, labels = _read_classes(train_folder, classes, side)
    test = None
    if test_folder is not None and all((test_folder / name).is_dir() for name in classes):
        test = _read_classes(test_folder, classes, side)
    return _in_parts(folder.name, pixels, labels, seed, test=test)


def _read_classes(folder: Path, classes: Sequence[str], side: int) -> tuple[Floats32, NDArray[np.int64]]:
    images, labels = [], []
    for label, name in enumerate(classes):
        for path in sorted((folder / name).rglob("*")):
            if path.suffix.lower() in _SUFFIXES:
                images.append(_read_image(path, side))
                labels.append(label)
    if not images:
        raise ConfigError(
            f"{folder} holds no images. The rule: one folder per class with .png or .jpg files. "
            "To fix: point at the folder above the classes."
        )
    return np.stack(images), np.array(labels, dtype=np.int64)


def _read_image(path: Path, side: int) -> Floats32:
    image = required_module("PIL.Image", package="Pillow", extra="capture", purpose="read image files")
    try:
        with image.open(path) as opened:
            small = opened.convert("RGB").resize((side, side))
    except OSError as error:  # UnidentifiedImageError is one
        raise ConfigError(f"{path} is not a readable image ({error}). To fix: remove it.") from error
    return np.asarray(small, dtype=np.float32).transpose(2, 0, 1)


def _in_parts(
    name: str,
    pixels: Floats32,
    labels: NDArray[np.int64],
    seed: int,
    test: tuple[Floats32, NDArray[np.int64]] | None = None,
) -> ImageSet:
    """Standardize by the training part and split what is not split yet."""
    classes = int(labels.max()) + 1
    if classes < 2 or len(labels) < _FEWEST * classes:
        raise ConfigError(
            f"{name} has {len(labels)} images of {classes} classes. The rule: two classes and "
            f"{_FEWEST} images of each at least. To fix: add images."
        )
    order = np.random.default_rng(seed).permutation(len(labels))
    cuts = [0, 0, int(_VALIDATION_SHARE * len(labels))]
    if test is None:
        cuts[1] = int(_TEST_SHARE * len(labels))
        cuts[2] += cuts[1]
    kept = order[cuts[2] :]
    mean = pixels[kept].mean(axis=(0, 2, 3), keepdims=True)
    spread = pixels[kept].std(axis=(0, 2, 3), keepdims=True) + 1e-6

    def part(values: Any, wanted: Any) -> tuple[Floats32, NDArray[np.int64]]:
        return ((values - mean) / spread).astype(np.float32), wanted

    first = order[: cuts[1]]
    middle = order[cuts[1] : cuts[2]]
    return ImageSet(
        name=name,
        shape=ImageShape(channels=pixels.shape[1], side=pixels.shape[2], classes=classes),
        train=part(pixels[kept], labels[kept]),
        validation=part(pixels[middle], labels[middle]),
        test=part(*test) if test is not None else part(pixels[first], labels[first]),
    )
