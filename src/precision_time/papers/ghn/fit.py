"""The whole training in one call: images, held-out networks, hypernetwork, scores, the file with its card."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import torch

from .images import ImageSet, load_images
from .scoring import SplitScore, held_out, score_splits
from .torch_ghn import to_parameters
from .training import Progress, Trained, TrainSettings, train
from .weights import GhnWeights, initial_weights, save_weights

HELD_OUT_NETWORKS = 100


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Fitted:
    """A trained hypernetwork with how well it does."""

    weights: GhnWeights
    trained: Trained
    images: ImageSet
    scores: tuple[SplitScore, ...]


def fit_ghn(
    data: str,
    settings: TrainSettings,
    *,
    out: Path | None = None,
    held_out_networks: int = HELD_OUT_NETWORKS,
    command: str = "",
    checkpoint: Path | None = None,
    tell: Callable[[Progress], None] = lambda _: None,
) -> Fitted:
    """Train, score on held-out networks and images, and write the hypernetwork.

    Args:
        data: `digits`, or a folder of images.
        settings: Seed and budget.
        out: File to write; none if not given.
        held_out_networks: Networks of the test split; the others have half as many.
        command: What was typed, for the card.
        checkpoint: File to resume from and to keep the state in.
        tell: Told of every step.

    Raises:
        ConfigError: If the data are missing or too few.
        MissingExtraError: If scikit-learn or Pillow is needed and not installed.
        NotFittedError: If the checkpoint is damaged.
    """
    torch.set_num_threads(1)  # networks this small run slower on more
    images = load_images(data, settings.seed)
    splits = held_out(settings.seed, held_out_networks, images.shape)
    hashes = [network.graph.content_hash for networks in splits.values() for network in networks]
    trained = train(settings, images, splits["validation"], without=hashes, checkpoint=checkpoint, tell=tell)
    untrained = initial_weights(settings.seed, images.shape.classes)
    scores = score_splits(
        to_parameters(trained.weights), to_parameters(untrained), splits, images, settings.seed
    )
    weights = replace(trained.weights, card=card_of(trained, images, scores, command))
    if out is not None:
        save_weights(out, weights)
    return Fitted(weights=weights, trained=trained, images=images, scores=tuple(scores))


def card_of(result: Trained, images: ImageSet, scores: Sequence[SplitScore], command: str) -> str:
    """How a hypernetwork came about, as JSON text."""
    return json.dumps(
        {
            "command": command,
            "images": images.name,
            "image_shape": asdict(images.shape),
            "settings": asdict(result.settings),
            "steps": result.steps,
            "minutes": round(result.minutes, 1),
            "validation_accuracy": round(result.validation, 4),
            "networks_skipped": result.skipped,
            "chance": round(images.chance, 4),
            "scores": [asdict(score) for score in scores],
        }
    )
