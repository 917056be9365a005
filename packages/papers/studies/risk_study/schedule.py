"""One small training whose layers change their precision on the way, and its loss after every few steps."""

from __future__ import annotations

import math
import time
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from importlib.resources import files
from typing import Any

import torch
from pydantic import BaseModel, ConfigDict

from .models import BUILDERS
from .plan import ModelPlan, RiskPlan
from .products import Products
from .recipe import get_recipe
from .rounding import Chance
from .training import Loop

LAST_SHARE = 0.1
"""Of a training: the mean of the evaluations in it is its loss, as in the campaign of risks."""


class ScheduleStudy(BaseModel):
    """The file `data/schedule.toml`, where the fields are explained."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    seeds: int
    evaluations: int
    reference: str
    narrow: str
    constant: tuple[str, ...]
    search: Mapping[str, Any]
    small: Mapping[str, Any]
    layers: Mapping[str, tuple[str, ...]]
    model: ModelPlan


def load_study() -> ScheduleStudy:
    """The study as it is shipped."""
    text = files(__package__).joinpath("data/schedule.toml").read_text(encoding="utf-8")
    return ScheduleStudy.model_validate(tomllib.loads(text))


@dataclass(frozen=True, kw_only=True, slots=True)
class Phase:
    """One part of a training."""

    end: float
    """Share of the steps at which it ends, above 0 to 1."""
    recipe: str
    """Of layers that no pattern names."""
    layers: Mapping[str, str]
    """Pattern of names of layers to their recipe; the first that fits."""

    def recipe_of(self, layer: str) -> str:
        """Of a layer."""
        fits = (recipe for pattern, recipe in self.layers.items() if fnmatchcase(layer, pattern))
        return next(fits, self.recipe)


class ScheduledProducts:
    """`Products` of several recipes, of which the phase and the name of a layer choose one."""

    def __init__(self, phases: Sequence[Phase], steps: int, random: Any) -> None:
        self.phase = phases[0]
        self._phases, self._steps, self._random = phases, steps, random
        self._products: dict[str, Products] = {}

    def start_step(self, step: int) -> None:
        """Say which step begins, from 0 on."""
        self.phase = next(phase for phase in self._phases if step < round(phase.end * self._steps))

    def evaluating(self, value: bool) -> None:
        """Freeze scales while a model is evaluated."""
        for products in self._products.values():
            products.evaluating(value)

    def __getattr__(self, operator: str) -> Any:
        """An operator of `Products`, whose first argument is the name of the layer."""
        if operator.startswith("_"):
            raise AttributeError(operator)

        def call(layer: str, *operands: Any, **options: Any) -> Any:
            return getattr(self._of(self.phase.recipe_of(layer)), operator)(layer, *operands, **options)

        return call

    def _of(self, recipe: str) -> Products:
        if recipe not in self._products:
            self._products[recipe] = Products(get_recipe(recipe), lambda _: True, self._random)
        return self._products[recipe]


@dataclass(frozen=True, kw_only=True, slots=True)
class Curve:
    """What a training came to."""

    steps: tuple[int, ...]
    """Optimizer steps done at each evaluation."""
    losses: tuple[float, ...]
    """Validation loss there, in the precision of the step."""
    cpu_s: float
    parameters: int
    data: str

    @property
    def loss(self) -> float:
        """Mean of the evaluations of the last tenth of the steps."""
        return loss_at_end(self.steps, self.losses)


def loss_at_end(steps: Sequence[int], losses: Sequence[float]) -> float:
    """Mean of the evaluations of the last tenth of a training.

    >>> loss_at_end([50, 95, 100], [3.0, 2.0, 1.0])
    1.5
    """
    last = [loss for step, loss in zip(steps, losses, strict=True) if step > (1.0 - LAST_SHARE) * steps[-1]]
    return math.fsum(last) / len(last)


def train_schedule(model: ModelPlan, phases: Sequence[Phase], *, seed: int, evaluations: int) -> Curve:
    """Train on the CPU; the same seed gives the same parameters and batches under every schedule.

    Args:
        model: What is trained.
        phases: In order; the last ends with the training.
        seed: Of parameters, batches and stochastic rounding.
        evaluations: Of the validation loss, spread evenly.
    """
    start_s = time.process_time()
    task = BUILDERS[model.kind](model.sizes, seed, "cpu")
    random = Chance(torch.Generator("cpu").manual_seed(seed))
    products = ScheduledProducts(phases, model.steps, random)
    options = RiskPlan(model={"scheduled": model}, part=())
    loop = Loop(model, options, get_recipe(phases[0].recipe), task, products, random)
    every = max(model.steps // evaluations, 1)
    steps, losses = [], []
    for step in range(model.steps):
        products.start_step(step)
        loop.step(step)
        if (step + 1) % every == 0:
            steps.append(step + 1)
            losses.append(loop.evaluate())
    return Curve(
        steps=tuple(steps),
        losses=tuple(losses),
        cpu_s=time.process_time() - start_s,
        parameters=sum(tensor.numel() for tensor in task.parameters.values()),
        data=task.data,
    )
