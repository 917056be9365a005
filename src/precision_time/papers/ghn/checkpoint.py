"""The state of a training on disk: everything that the next step needs, as safetensors."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ...errors import NotFittedError
from .weights import GhnWeights, read_safetensors, version_of, write_safetensors

_STATE = "state"
_MOMENTS = ("exp_avg", "exp_avg_sq")


@dataclass(frozen=True, kw_only=True, slots=True)
class Standing:
    """How far a training is."""

    seed: int
    images: str
    done: int
    """Steps done."""
    steps: int | None
    """Steps planned."""
    best_score: float
    history: tuple[tuple[int, float], ...]
    """(step, mean validation accuracy)."""
    skipped: int
    elapsed_s: float


def write_checkpoint(
    path: Path, parameters: Mapping[str, Any], adam: Any, best: GhnWeights, standing: Standing
) -> None:
    """Write the state whole or not at all.

    Args:
        path: The file.
        parameters: Tensors as they are now.
        adam: Optimizer that holds moments of all of them.
        best: The best parameters so far.
        standing: How far the training is.
    """
    arrays: dict[str, Any] = {}
    for name, tensor in parameters.items():
        arrays[f"now.{name}"] = tensor.detach().numpy()
        arrays[f"best.{name}"] = best.arrays[name]
        for moment in _MOMENTS:
            arrays[f"{moment}.{name}"] = adam.state[tensor][moment].numpy()
    write_safetensors(path, arrays, {_STATE: json.dumps(asdict(standing))})


def read_checkpoint(path: Path, parameters: Mapping[str, Any], adam: Any) -> tuple[GhnWeights, Standing]:
    """Put a written state into parameters and optimizer.

    Returns:
        The best parameters so far, and how far the training is.

    Raises:
        NotFittedError: If the file is damaged or of another hypernetwork.
    """
    arrays, metadata = read_safetensors(path)
    try:
        state = json.loads(metadata[_STATE])
        history = tuple((int(step), float(score)) for step, score in state.pop("history"))
        standing = Standing(history=history, **state)
        best = {name: arrays[f"best.{name}"].astype(np.float32) for name in parameters}
        with torch.no_grad():
            for name, tensor in parameters.items():
                tensor.copy_(torch.from_numpy(arrays[f"now.{name}"].copy()))
                adam.state[tensor] = {
                    "step": torch.tensor(float(standing.done)),
                    **{m: torch.from_numpy(arrays[f"{m}.{name}"].copy()) for m in _MOMENTS},
                }
    except (KeyError, ValueError, TypeError, RuntimeError) as error:
        raise NotFittedError(
            f"{path} holds no state of such a training ({error}). To fix: name another file, or remove it."
        ) from error
    return GhnWeights(arrays=best, version=version_of(best), card=""), standing
