"""Real data that need no network: what Python and scikit-learn ship, split into training and validation."""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from precision_time.cache import data
from precision_time.errors import required_module

Array = NDArray[Any]
_SPLIT_SEED = 0
_NEIGHBORS = 8
_PATCH = 8


@dataclass(frozen=True, kw_only=True)
class Samples:
    """Arrays of a dataset; every array's first dimension counts samples (bytes, for text)."""

    description: str
    """What it is, and the hash of its content."""
    training: tuple[Array, ...]
    validation: tuple[Array, ...]
    graph: tuple[Array, Array] | None = None
    """Edges between all samples, training first: from, to."""


def _described(text: str, content: bytes) -> str:
    return f"{text}, sha256 {hashlib.sha256(content).hexdigest()[:12]}"


def _split(description: str, x: Array, y: Array, share: float = 0.2) -> Samples:
    """Samples in a fixed random order, the last `share` of them for validation."""
    order = np.random.default_rng(_SPLIT_SEED).permutation(len(x))
    x, y = x[order], y[order]
    held = len(x) - int(len(x) * share)
    text = _described(description, x.tobytes() + y.tobytes())
    return Samples(description=text, training=(x[:held], y[:held]), validation=(x[held:], y[held:]))


def _datasets() -> Any:
    return required_module(
        "sklearn.datasets",
        package="scikit-learn",
        extra="precision-time-papers",
        purpose="train on its data sets",
    )


def digits() -> Samples:
    """1797 handwritten digits of 8 x 8 pixels, in 0..1."""
    data = _datasets().load_digits()
    images = (data.images / 16.0).astype(np.float32)
    return _split("digits of scikit-learn", images, data.target.astype(np.int64))


def digits_graph() -> Samples:
    """The digits as nodes, each joined with the eight most like it and itself."""
    split = digits()
    x = np.concatenate([split.training[0], split.validation[0]]).reshape(-1, 64)
    squares = np.square(x).sum(axis=1)
    distance = squares[:, None] + squares - 2.0 * x @ x.T
    near = np.argsort(distance, axis=1, kind="stable")[:, : _NEIGHBORS + 1]
    edges = np.repeat(np.arange(len(x)), _NEIGHBORS + 1), near.reshape(-1)
    return Samples(
        description=f"{split.description}, joined with their {_NEIGHBORS} nearest",
        training=split.training,
        validation=split.validation,
        graph=edges,
    )


def diabetes() -> Samples:
    """442 patients, ten figures each, and the progress of the disease; standardized."""
    data = _datasets().load_diabetes(scaled=False)
    x, y = data.data.astype(np.float32), data.target.astype(np.float32)
    return _split("diabetes of scikit-learn", (x - x.mean(0)) / x.std(0), (y - y.mean()) / y.std())


def photos() -> Samples:
    """Gray patches of 8 x 8 pixels of scikit-learn's two photos in -1..1; their right fifth is validation."""
    images = _datasets().load_sample_images().images
    parts: tuple[list[Array], list[Array]] = ([], [])
    for image in images:
        gray = image.mean(axis=2, dtype=np.float32) / 127.5 - 1.0
        border = int(gray.shape[1] * 0.8) // _PATCH * _PATCH
        for part, pixels in zip(parts, (gray[:, :border], gray[:, border:]), strict=True):
            rows, columns = pixels.shape[0] // _PATCH, pixels.shape[1] // _PATCH
            cut = pixels[: rows * _PATCH, : columns * _PATCH].reshape(rows, _PATCH, columns, _PATCH)
            part.append(cut.transpose(0, 2, 1, 3).reshape(-1, _PATCH * _PATCH))
    training, validation = (np.concatenate(part) for part in parts)
    text = _described("8 x 8 patches of scikit-learn's photos", training.tobytes() + validation.tobytes())
    return Samples(description=text, training=(training,), validation=(validation,))


def manual() -> Samples:
    """Bytes of the English manual that Python's help() shows; its last tenth is validation."""
    path = Path(str(import_module("pydoc_data.topics").__file__))
    topics: Mapping[str, str] = import_module("pydoc_data.topics").topics
    content = "\n\n".join(topics[name] for name in sorted(topics)).encode("ascii", "replace")
    data = np.frombuffer(content, np.uint8).astype(np.int64)
    held = int(len(data) * 0.9)
    text = _described(f"pydoc_data/{path.name} of Python {platform.python_version()}", content)
    return Samples(description=text, training=(data[:held],), validation=(data[held:],))


SOURCES: Mapping[str, Callable[[], Samples]] = {
    "digits": digits,
    "digits-graph": digits_graph,
    "diabetes": diabetes,
    "photos": photos,
    "manual": manual,
}


@data
def load_samples(name: str) -> Samples:
    """The samples of a name in `SOURCES`."""
    return SOURCES[name]()
