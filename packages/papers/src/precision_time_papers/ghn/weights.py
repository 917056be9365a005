"""The parameters of the hypernetwork: names, shapes, a seeded start, and the trained ones on disk.

One table of names serves the inference in numpy and the training in torch, so that neither can drift.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from math import sqrt
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from precision_time.array_file import packed, unpacked
from precision_time.cache import data
from precision_time.errors import ConfigError, NotFittedError
from precision_time.io import write_atomically

from .vocabulary import Ints, vocabulary

Floats32 = NDArray[np.float32]

WIDTH = 32
"""Length of a node vector and of an embedding (GHN-2: d = 32)."""
_PART = WIDTH // 4
_INNER = WIDTH // 2
"""Inner width of the two message networks with virtual edges on."""
LARGEST = (32, 32, 5, 5)
"""Output and input channels, height and width of what the decoder makes; larger weights are tiled."""
_DECODER = (64, 128)
"""Channels of the two inner layers of the convolutional decoder."""
DIGITS = 10
SHIPPED = "ghn2-digits.safetensors"
_CARD_KEY = "card"
_SMOOTH = 24
"""Smooth functions of the logarithm of a size that a shape table starts from."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class GhnWeights:
    """All parameters, and which they are."""

    arrays: Mapping[str, Floats32]
    version: str
    """A digest of the arrays: embeddings made with other weights are other embeddings."""
    card: str
    """JSON text that says how they came about; empty for untrained ones."""


def graph_shapes() -> dict[str, tuple[int, ...]]:
    """Names and shapes of what embeds a graph: tables, message networks, recurrent cell, last norm."""
    words = vocabulary()
    shapes: dict[str, tuple[int, ...]] = {
        "op_table": (len(words.primitives), WIDTH),
        "channel_table": (len(words.channels) + 1, _PART),
        "side_table": (len(words.sides) + 1, _PART),
    }
    for name in ("direct", "virtual"):
        shapes |= {
            f"{name}.0.weight": (_INNER, WIDTH),
            f"{name}.0.bias": (_INNER,),
            f"{name}.1.weight": (WIDTH, _INNER),
            f"{name}.1.bias": (WIDTH,),
        }
    return shapes | {
        "gru.weight_ih": (3 * WIDTH, WIDTH),
        "gru.weight_hh": (3 * WIDTH, WIDTH),
        "gru.bias_ih": (3 * WIDTH,),
        "gru.bias_hh": (3 * WIDTH,),
        "norm.weight": (WIDTH,),
        "norm.bias": (WIDTH,),
    }


def decoder_shapes(classes: int = DIGITS) -> dict[str, tuple[int, ...]]:
    """Names and shapes of what turns node vectors into weights of `classes`-way classifiers."""
    out, inner, height, width = LARGEST
    first, second = _DECODER
    return {
        "spread.weight": (first * height * width, WIDTH),
        "spread.bias": (first * height * width,),
        "mix.0.weight": (second, first),
        "mix.0.bias": (second,),
        "mix.1.weight": (out * inner, second),
        "mix.1.bias": (out * inner,),
        "classes.weight": (classes, out),
        "classes.bias": (classes,),
        "vector.0.weight": (2 * WIDTH, WIDTH),
        "vector.0.bias": (2 * WIDTH,),
        "vector.1.weight": (2 * out, 2 * WIDTH),
        "vector.1.bias": (2 * out,),
        "class_bias.weight": (classes, out),
        "class_bias.bias": (classes,),
    }


def initial_weights(seed: int, classes: int = DIGITS) -> GhnWeights:
    """Untrained parameters: the same seed gives the same ones.

    Tables start as random smooth functions of the logarithm of a size, so that widths that training never
    sees lie between their neighbors; matrices start uniform within 1/sqrt(inputs) as torch's do, those
    of the decoder at unit gain.
    """
    rng = np.random.default_rng(seed)
    words = vocabulary()
    arrays: dict[str, Floats32] = {}
    shapes = graph_shapes()
    for name, shape in (shapes | decoder_shapes(classes)).items():
        if name == "channel_table":
            arrays[name] = _smooth_table(rng, words.channels)
        elif name == "side_table":
            arrays[name] = _smooth_table(rng, words.sides)
        elif name == "op_table":
            arrays[name] = rng.standard_normal(shape).astype(np.float32)
        elif name.startswith("norm."):
            arrays[name] = np.full(shape, float(name.endswith("weight")), dtype=np.float32)
        elif name in shapes:
            arrays[name] = _uniform(rng, shape, _inputs_of(name, shape, shapes))
        elif len(shape) == 1:
            arrays[name] = np.zeros(shape, dtype=np.float32)
        else:
            arrays[name] = rng.normal(0.0, sqrt(2.0 / shape[1]), shape).astype(np.float32)
    return GhnWeights(arrays=arrays, version=version_of(arrays), card="")


def _inputs_of(name: str, shape: tuple[int, ...], shapes: Mapping[str, tuple[int, ...]]) -> int:
    if name.startswith("gru."):
        return WIDTH
    return shape[1] if len(shape) > 1 else shapes[name.replace("bias", "weight")][1]


def _uniform(rng: np.random.Generator, shape: tuple[int, ...], inputs: int) -> Floats32:
    bound = 1.0 / sqrt(inputs)
    return rng.uniform(-bound, bound, shape).astype(np.float32)


def _smooth_table(rng: np.random.Generator, sizes: Ints) -> Floats32:
    """Row 0 (no size) at random, the others as waves over log2(size) with periods of 2 to 32 octaves."""
    octaves = np.log2(sizes.astype(np.float64))[:, None]
    frequencies = rng.uniform(1.0 / 32.0, 0.5, (1, _SMOOTH))
    waves = np.sin(2.0 * np.pi * (octaves * frequencies + rng.uniform(0.0, 1.0, (1, _SMOOTH))))
    rows = waves @ rng.standard_normal((_SMOOTH, _PART)) * sqrt(2.0 / _SMOOTH)
    return np.vstack([rng.standard_normal((1, _PART)), rows]).astype(np.float32)


def version_of(arrays: Mapping[str, Floats32]) -> str:
    """A digest of what embeds graphs; the decoder does not enter."""
    digest = hashlib.sha256()
    for name in graph_shapes():
        digest.update(np.ascontiguousarray(arrays[name], dtype="<f4").tobytes())
    return digest.hexdigest()[:12]


def write_safetensors(path: Path, arrays: Mapping[str, NDArray[Any]], metadata: Mapping[str, str]) -> None:
    """Write arrays and texts to a safetensors file atomically; its folder is created."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, packed(arrays, metadata))


def read_safetensors(path: Path) -> tuple[dict[str, NDArray[Any]], dict[str, str]]:
    """Arrays and texts of a safetensors file.

    Raises:
        NotFittedError: If the file is missing, truncated or not of this format.
    """
    remedy = "To fix: train it again with `precision-time papers train-ghn`, or reinstall the package."
    try:
        return unpacked(path.read_bytes())
    except OSError as error:
        raise NotFittedError(f"{path} cannot be read: {error}. {remedy}") from error
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise NotFittedError(f"{path} is damaged or not a safetensors file ({error}). {remedy}") from error


def save_weights(path: Path, weights: GhnWeights) -> None:
    """Write all parameters and their card atomically."""
    write_safetensors(path, weights.arrays, {_CARD_KEY: weights.card})


def load_weights(path: Path) -> GhnWeights:
    """The parameters in a file that `save_weights` wrote.

    Raises:
        NotFittedError: If the file is missing, truncated, or holds other parameters than these.
    """
    arrays, metadata = read_safetensors(path)
    classes = arrays["classes.bias"].shape[0] if arrays.get("classes.bias", np.zeros(())).shape else DIGITS
    wanted = graph_shapes() | decoder_shapes(classes)
    wrong = [name for name, shape in wanted.items() if name not in arrays or arrays[name].shape != shape]
    if wrong:
        raise NotFittedError(
            f"{path} does not hold a hypernetwork of this version: {', '.join(wrong[:3])} missing or of "
            "another shape. To fix: train it again with `precision-time papers train-ghn`."
        )
    held = {name: arrays[name].astype(np.float32) for name in wanted}
    if not all(np.isfinite(array).all() for array in held.values()):
        raise NotFittedError(
            f"{path} holds parameters that are not finite. To fix: train it again with "
            "`precision-time papers train-ghn`."
        )
    return GhnWeights(arrays=held, version=version_of(held), card=metadata.get(_CARD_KEY, ""))


def find_weights(path: Path) -> GhnWeights:
    """The hypernetwork of a file, or of a folder that holds one `.safetensors` file.

    Raises:
        ConfigError: If there is no such file, or a folder does not hold exactly one.
        NotFittedError: If the file holds no hypernetwork of this version.
    """
    if path.is_dir():
        files = sorted(path.glob("*.safetensors"))
        if len(files) != 1:
            raise ConfigError(
                f"The folder {path} holds {len(files)} .safetensors files, where one is needed. To fix: name "
                "the file that `precision-time papers train-ghn --out FILE` wrote."
            )
        path = files[0]
    if not path.is_file():
        raise ConfigError(
            f"There is no hypernetwork {path}. To fix: name the file that `precision-time papers "
            "train-ghn --out "
            "FILE` wrote, or its folder."
        )
    return load_weights(path)


def shipped_path() -> Path:
    """File of the trained hypernetwork of the package."""
    return Path(__file__).parent / "data" / SHIPPED


@data
def shipped_weights() -> GhnWeights:
    """The hypernetwork that ships with the package, trained on scikit-learn's digits."""
    return load_weights(shipped_path())
