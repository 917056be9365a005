"""Training the hypernetwork: predict the weights of drawn networks, and learn from how badly they classify.

GHN-2's recipe (Knyazev et al. 2021) with a budget of minutes: Adam at 1e-3, times 0.1 at two thirds and at
five sixths of the steps, gradients clipped at 5, a meta-batch of networks per step. The best hypernetwork by
validation is kept. A checkpoint holds everything that the next step needs.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch.func import functional_call

from precision_time.errors import ConfigError, NotFittedError

from .images import ImageSet
from .sampled import SampledNetwork, sampled
from .sampler import draw_many
from .torch_ghn import accuracies, fill, to_parameters, to_weights
from .weights import GhnWeights, initial_weights, read_safetensors, version_of, write_safetensors

_STATE = "state"
_MOMENTS = ("exp_avg", "exp_avg_sq")


@dataclass(kw_only=True, slots=True)
class TrainingState:
    """How far a training is."""

    seed: int
    images: str
    steps: int | None
    """Steps planned."""
    done: int = 0
    """Steps done."""
    best_score: float = 0.0
    history: list[tuple[int, float]] = field(default_factory=list)
    """(step, mean validation accuracy)."""
    skipped: int = 0
    """Networks that taught nothing in a step because their loss was not finite or too large."""
    elapsed_s: float = 0.0
    """Seconds of training; while it runs, those before the process that runs now."""


def write_checkpoint(
    path: Path, parameters: Mapping[str, Any], adam: Any, best: GhnWeights, state: TrainingState
) -> None:
    """Write the state atomically.

    Args:
        path: The file.
        parameters: Tensors as they are now.
        adam: Optimizer that holds moments of all of them.
        best: The best parameters so far.
        state: How far the training is.
    """
    arrays: dict[str, Any] = {}
    for name, tensor in parameters.items():
        arrays[f"now.{name}"] = tensor.detach().numpy()
        arrays[f"best.{name}"] = best.arrays[name]
        for moment in _MOMENTS:
            arrays[f"{moment}.{name}"] = adam.state[tensor][moment].numpy()
    write_safetensors(path, arrays, {_STATE: json.dumps(asdict(state))})


def read_checkpoint(path: Path, parameters: Mapping[str, Any], adam: Any) -> tuple[GhnWeights, TrainingState]:
    """Put a written state into parameters and optimizer.

    Returns:
        The best parameters so far, and how far the training is.

    Raises:
        NotFittedError: If the file is damaged or of another hypernetwork.
    """
    arrays, metadata = read_safetensors(path)
    try:
        content = json.loads(metadata[_STATE])
        history = [(int(step), float(score)) for step, score in content.pop("history")]
        state = TrainingState(history=history, **content)
        best = {name: arrays[f"best.{name}"].astype(np.float32) for name in parameters}
        with torch.no_grad():
            for name, tensor in parameters.items():
                tensor.copy_(torch.from_numpy(arrays[f"now.{name}"].copy()))
                adam.state[tensor] = {
                    "step": torch.tensor(float(state.done)),
                    **{m: torch.from_numpy(arrays[f"{m}.{name}"].copy()) for m in _MOMENTS},
                }
    except (KeyError, ValueError, TypeError, RuntimeError) as error:
        raise NotFittedError(
            f"{path} holds no state of such a training ({error}). To fix: name another file, or remove it."
        ) from error
    return GhnWeights(arrays=best, version=version_of(best), card=""), state


_DROPS = (2.0 / 3.0, 5.0 / 6.0)
_DROP = 0.1
_MEASURED_STEPS = 20
_LARGEST_LOSS = 20.0
"""Networks above teach nothing in a step: one that blows up would decide the clipped gradient alone."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainSettings:
    """What decides the outcome: the same settings and number of steps give the same hypernetwork."""

    seed: int = 0
    steps: int | None = None
    """Steps in all; planned from `minutes` and the speed of the first ones if not given."""
    minutes: float = 20.0
    meta_batch: int = 8
    """Networks per step."""
    image_batch: int = 64
    """Images per network and step."""
    networks: int = 1000
    """Different networks to train on."""
    learning_rate: float = 1e-3
    weight_decay: float = 1e-5
    clip: float = 5.0
    smoothing: float = 1e-4
    """Weight of the squared differences between neighboring rows of the shape tables, so that widths that no
    drawn network has follow those that some have."""
    validate_every: int = 100

    def __post_init__(self) -> None:
        if self.minutes <= 0 or (self.steps is not None and self.steps < 1):
            raise ConfigError(
                f"A training of {self.minutes} minutes or {self.steps} steps is invalid: both must be "
                "above 0. To fix: raise them."
            )


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainingProgress:
    """The state of a training."""

    step: int
    steps: int
    loss: float
    accuracy: float
    """Mean accuracy of the last meta-batches on training images."""
    validation: float
    """Best mean accuracy so far, held-out networks on held-out images."""
    elapsed_s: float


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Trained:
    """The best hypernetwork of a training, and how it went."""

    weights: GhnWeights
    settings: TrainSettings
    state: TrainingState


def train(
    settings: TrainSettings,
    images: ImageSet,
    validation: Sequence[SampledNetwork],
    *,
    without: Sequence[str] = (),
    checkpoint: Path | None = None,
    progress: Callable[[TrainingProgress], None] = lambda _: None,
) -> Trained:
    """Train a hypernetwork.

    Args:
        settings: Seed, budget and sizes.
        images: Images in three parts.
        validation: Held-out networks that choose the best hypernetwork.
        without: Content hashes of graphs that must not be trained on (all held-out ones).
        checkpoint: File to resume from where it exists, and to write at each validation.
        progress: Called with the state after every step.

    Raises:
        NotFittedError: If the checkpoint is damaged.
        ConfigError: If the checkpoint is of another seed or dataset.
    """
    run = _Run(settings, images, validation, frozenset(without), checkpoint)
    run.resume()
    while not run.finished:
        run.step()
        progress(run.progress())
        if run.state.done % settings.validate_every == 0 or run.finished:
            run.validate()
            run.save()
    return run.result()


class _Run:
    """One training while it runs."""

    def __init__(
        self,
        settings: TrainSettings,
        images: ImageSet,
        validation: Sequence[SampledNetwork],
        without: frozenset[str],
        checkpoint: Path | None,
    ) -> None:
        self.settings, self.images, self.validation = settings, images, validation
        self._without, self._checkpoint = without, checkpoint
        self._start = initial_weights(settings.seed, images.shape.classes)
        self.parameters = to_parameters(self._start)
        self._adam = torch.optim.Adam(
            self.parameters.values(), lr=settings.learning_rate, weight_decay=settings.weight_decay
        )
        self._plans = draw_many(settings.seed, "train", settings.networks)
        self._built: dict[int, SampledNetwork | None] = {}
        self.state = TrainingState(seed=settings.seed, images=images.name, steps=settings.steps)
        self._best = self._start
        self._loss = self._accuracy = float("nan")
        self._began = time.perf_counter()

    @property
    def elapsed_s(self) -> float:
        """Seconds of training, those before a resumption included."""
        return self.state.elapsed_s + time.perf_counter() - self._began

    @property
    def finished(self) -> bool:
        """Whether the planned steps are done."""
        return self.state.steps is not None and self.state.done >= self.state.steps

    def step(self) -> None:
        """One meta-batch: predict, classify, learn."""
        rng = np.random.default_rng([self.settings.seed, 7, self.state.done])
        networks = self._networks(rng)
        count = len(self.images.train[0])
        chosen = rng.choice(count, min(self.settings.image_batch, count), replace=False)
        pixels = torch.from_numpy(self.images.train[0][chosen])
        labels = torch.from_numpy(self.images.train[1][chosen])
        self._schedule()
        losses, hits = [], []
        for network, weights in zip(networks, fill(self.parameters, networks), strict=True):
            answers = functional_call(network.module, weights, (pixels,))
            loss = F.cross_entropy(answers, labels)
            self.state.skipped += not bool(loss <= _LARGEST_LOSS)
            if torch.isfinite(loss):
                losses.append(loss.clamp(max=_LARGEST_LOSS))  # no gradient beyond
            hits.append(float((answers.argmax(1) == labels).double().mean()))
        if losses:
            self._learn(torch.stack(losses).mean())
        self._accuracy = _blend(self._accuracy, float(np.mean(hits)))
        self.state.done += 1
        self._plan_steps()

    def _networks(self, rng: np.random.Generator) -> list[SampledNetwork]:
        found: list[SampledNetwork] = []
        while len(found) < self.settings.meta_batch:
            index = int(rng.integers(len(self._plans)))
            if index not in self._built:
                network = sampled(self._plans[index], self.images.shape)
                held_out = network.graph.content_hash in self._without
                self._built[index] = None if held_out else network
            built = self._built[index]
            if built is not None:
                found.append(built)
        return found

    def _schedule(self) -> None:
        planned = self.state.steps or float("inf")
        drops = sum(self.state.done >= share * planned for share in _DROPS)
        for group in self._adam.param_groups:
            group["lr"] = self.settings.learning_rate * _DROP**drops

    def _learn(self, loss: Any) -> None:
        penalty = sum(
            (self.parameters[name][2:] - self.parameters[name][1:-1]).square().sum()
            for name in ("channel_table", "side_table")
        )
        self._adam.zero_grad()
        (loss + self.settings.smoothing * penalty).backward()
        norm = torch.nn.utils.clip_grad_norm_(self.parameters.values(), self.settings.clip)
        if torch.isfinite(norm):
            self._adam.step()
        self._loss = _blend(self._loss, float(loss.detach()))

    def _plan_steps(self) -> None:
        """Steps that the minutes allow, from the speed so far; fixed from then on."""
        if self.state.steps is None and self.state.done == 3 * _MEASURED_STEPS:
            self.state.steps = max(
                self.state.done + 1, int(self.state.done * 60.0 * self.settings.minutes / self.elapsed_s)
            )

    def validate(self) -> None:
        """Keep the hypernetwork if no earlier one was better."""
        score = float(accuracies(self.parameters, self.validation, self.images.validation).mean())
        self.state.history.append((self.state.done, score))
        if score >= self.state.best_score:
            self._best, self.state.best_score = to_weights(self.parameters), score

    def progress(self) -> TrainingProgress:
        """The state now."""
        return TrainingProgress(
            step=self.state.done,
            steps=self.state.steps or 0,
            loss=self._loss,
            accuracy=self._accuracy,
            validation=self.state.best_score,
            elapsed_s=self.elapsed_s,
        )

    def result(self) -> Trained:
        """The best hypernetwork."""
        state = replace(self.state, elapsed_s=self.elapsed_s)
        return Trained(weights=self._best, settings=self.settings, state=state)

    def save(self) -> None:
        """Write the checkpoint, if one is wanted."""
        if self._checkpoint is not None:
            state = replace(self.state, elapsed_s=self.elapsed_s)
            write_checkpoint(self._checkpoint, self.parameters, self._adam, self._best, state)

    def resume(self) -> None:
        """Go on where the checkpoint ends, if there is one."""
        if self._checkpoint is None or not self._checkpoint.is_file():
            return
        self._best, state = read_checkpoint(self._checkpoint, self.parameters, self._adam)
        if (state.seed, state.images) != (self.settings.seed, self.images.name):
            raise ConfigError(
                f"{self._checkpoint} is of seed {state.seed} on {state.images!r}, this training of "
                f"seed {self.settings.seed} on {self.images.name!r}. To fix: name another file, or remove it."
            )
        state.steps = self.settings.steps or state.steps
        self.state = state


def _blend(old: float, new: float) -> float:
    return new if old != old else 0.95 * old + 0.05 * new  # noqa: PLR0124 - NaN is not equal to itself
