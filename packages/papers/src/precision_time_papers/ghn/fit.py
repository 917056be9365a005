"""The whole training in one call: images, held-out networks, hypernetwork, scores, the file with its card."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from .images import ImageSet, load_images
from .sampled import SampledNetwork, draw_sampled
from .sampler import ImageShape, build, space_names
from .torch_ghn import Parameters, accuracies, accuracy, to_parameters
from .training import Trained, TrainingProgress, TrainSettings, train
from .weights import GhnWeights, initial_weights, save_weights

SPLIT_SEED = 20_000
"""Held-out networks are drawn with seeds from here, far from those of training."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SplitScore:
    """Accuracies over the networks of one split, on images that training never saw."""

    split: str
    networks: int
    predicted: float
    """Mean accuracy with weights predicted by the trained hypernetwork."""
    predicted_spread: float
    """Standard deviation over networks."""
    best: float
    """The best network with predicted weights."""
    above_chance: float
    """Share of networks above twice chance."""
    untrained: float
    """Mean accuracy with torch's usual initial weights."""
    random_ghn: float
    """Mean accuracy with weights from a hypernetwork that was not trained."""


def untrained_accuracies(
    networks: Sequence[SampledNetwork],
    shape: ImageShape,
    part: tuple[NDArray[np.float32], NDArray[np.int64]],
    seed: int,
) -> NDArray[np.float64]:
    """Accuracy of each network with the initial weights that torch gives it."""
    images, labels = torch.from_numpy(part[0]), torch.from_numpy(part[1])
    scores = []
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        for network in networks:
            scores.append(accuracy(build(network.plan, shape)(images), labels))
    return np.array(scores)


def held_out(seed: int, count: int, shape: ImageShape) -> dict[str, list[SampledNetwork]]:
    """Networks for choosing the best (`validation`), and for the report (`test`, one per other space)."""
    train, *others = space_names()
    splits = {"validation": draw_sampled(SPLIT_SEED + seed, train, count // 2, shape)}
    taken = [network.graph.content_hash for network in splits["validation"]]
    splits["test"] = draw_sampled(SPLIT_SEED + seed + 1, train, count, shape, without=taken)
    for name in others:
        splits[name] = draw_sampled(SPLIT_SEED + seed, name, count // 2, shape)
    return splits


def score_splits(
    trained: Parameters,
    random: Parameters,
    splits: dict[str, list[SampledNetwork]],
    images: ImageSet,
    seed: int,
) -> list[SplitScore]:
    """The report: every split but the one that chose the best hypernetwork, on test images."""
    scores = []
    for name, networks in splits.items():
        if name == "validation":
            continue
        found = accuracies(trained, networks, images.test)
        scores.append(
            SplitScore(
                split=name,
                networks=len(networks),
                predicted=float(found.mean()),
                predicted_spread=float(found.std()),
                best=float(found.max()),
                above_chance=float((found > 2.0 * images.chance).mean()),
                untrained=float(untrained_accuracies(networks, images.shape, images.test, seed).mean()),
                random_ghn=float(accuracies(random, networks, images.test).mean()),
            )
        )
    return scores


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
    side: int | None = None,
    out: Path | None = None,
    held_out_networks: int = HELD_OUT_NETWORKS,
    command: str = "",
    checkpoint: Path | None = None,
    progress: Callable[[TrainingProgress], None] = lambda _: None,
) -> Fitted:
    """Train, score on held-out networks and images, and write the hypernetwork.

    Args:
        data: `digits`, or a folder of images.
        settings: Seed and budget.
        side: Of the images [pixels]; see `load_images`.
        out: File to write; none if not given.
        held_out_networks: Networks of the test split; the others have half as many.
        command: What was typed, for the card.
        checkpoint: File to resume from and to keep the state in.
        progress: Called with the state after every step.

    Raises:
        ConfigError: If the data are missing or too few.
        MissingExtraError: If scikit-learn or Pillow is needed and not installed.
        NotFittedError: If the checkpoint is damaged.
    """
    torch.set_num_threads(1)  # networks this small run slower on more
    images = load_images(data, settings.seed, side)
    splits = held_out(settings.seed, held_out_networks, images.shape)
    hashes = [network.graph.content_hash for networks in splits.values() for network in networks]
    trained = train(
        settings, images, splits["validation"], without=hashes, checkpoint=checkpoint, progress=progress
    )
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
            "steps": result.state.done,
            "minutes": round(result.state.elapsed_s / 60.0, 1),
            "validation_accuracy": round(result.state.best_score, 4),
            "networks_skipped": result.state.skipped,
            "chance": round(images.chance, 4),
            "scores": [asdict(score) for score in scores],
        }
    )
