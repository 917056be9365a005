"""How well networks do with weights predicted, drawn untrained, or predicted by an untrained GHN."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.func import functional_call

from .images import ImageSet
from .sampled import SampledNetwork, draw_sampled
from .sampler import ImageShape, build, space_names
from .torch_ghn import Parameters, fill

SPLIT_SEED = 20_000
"""Held-out networks are drawn with seeds from here, far from those of training."""
_AT_ONCE = 8


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


def accuracies(
    parameters: Parameters,
    networks: Sequence[SampledNetwork],
    part: tuple[NDArray[np.float32], NDArray[np.int64]],
) -> NDArray[np.float64]:
    """Accuracy of each network with predicted weights; batch norms use the statistics of these images."""
    images, labels = torch.from_numpy(part[0]), torch.from_numpy(part[1])
    scores = []
    with torch.no_grad():
        for first in range(0, len(networks), _AT_ONCE):
            some = networks[first : first + _AT_ONCE]
            for network, weights in zip(some, fill(parameters, some), strict=True):
                scores.append(_accuracy(functional_call(network.module, weights, (images,)), labels))
    return np.array(scores)


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
            scores.append(_accuracy(build(network.plan, shape)(images), labels))
    return np.array(scores)


def _accuracy(answers: Any, labels: Any) -> float:
    return float((answers.argmax(1) == labels).double().mean())


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
