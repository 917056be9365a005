"""One small training in a precision, and what is measured of it."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from .models import BUILDERS, Task
from .plan import ModelPlan, RiskPlan, Training
from .products import Flushes, Products
from .recipe import Recipe, get_recipe, number_format
from .rounding import Chance, nearest, stochastic

_WARM_UP_SHARE = 0.05


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainingResult:
    """What a training came to."""

    first_loss: float
    """Validation loss before the first step."""
    loss: float
    """Mean validation loss of the last evaluations."""
    training_loss: float
    """Mean loss of the last twentieth of the batches."""
    underflow_share: float
    """Of nonzero gradients, those that a rounding turned to zero."""
    overflow_steps: int
    """Steps with a gradient that is not finite."""
    steps: int
    """Done: a training ends where its weights are not finite."""
    parameters: int
    cpu_s: float
    data: str

    @property
    def diverged(self) -> bool:
        """The loss is not finite, or no better than before training."""
        return not (math.isfinite(self.loss) and self.loss < self.first_loss)


def train(training: Training, plan: RiskPlan, *, device: str = "cpu", native: bool = False) -> TrainingResult:
    """Train once; the same seed gives the same parameters and batches at every precision.

    Args:
        training: Model, recipe, group of layers, seed.
        plan: Holds the model.
        device: Of torch.
        native: Multiply in the device's own types instead of emulating them.
    """
    start_s = time.process_time()
    model, recipe = plan.model[training.model], get_recipe(training.recipe)
    task = BUILDERS[model.kind](model.sizes, training.seed, device)
    random = Chance(torch.Generator(device).manual_seed(training.seed))
    flushes = Flushes(plan.count_every)
    rounds = partial(model.rounds, training.group)
    products = Products(recipe, rounds, random, native=native, flushes=flushes)
    loop = Loop(model, plan, recipe, task, products, random)
    tenth = model.steps / 10 / plan.evaluations
    evaluations = {model.steps - round(tenth * number) for number in range(plan.evaluations)}
    first, losses = loop.evaluate(), []
    for step in range(model.steps):
        flushes.start_step(step)
        loop.step(step)
        if step + 1 in evaluations:
            losses.append(loop.evaluate())
        if flushes.counting and not math.isfinite(loop.losses[-1]) and not recipe.loss_scaling:
            break  # weights that are not finite stay so
    finished = step + 1 == model.steps
    tail = loop.losses[-max(model.steps // 20, 1) :]
    return TrainingResult(
        first_loss=first,
        loss=sum(losses) / len(losses) if finished else math.nan,
        training_loss=float(torch.stack(tail).mean()),
        underflow_share=flushes.share,
        overflow_steps=loop.overflows,
        steps=step + 1,
        parameters=sum(tensor.numel() for tensor in task.parameters.values()),
        cpu_s=time.process_time() - start_s,
        data=task.data,
    )


class Loop:
    """The steps of a training; `products` are `Products`, or what chooses among several of them."""

    def __init__(
        self, model: ModelPlan, plan: RiskPlan, recipe: Recipe, task: Task, products: Any, random: Any
    ) -> None:
        self.model, self.recipe, self.task, self.products = model, recipe, task, products
        self.parameters = list(task.parameters.values())
        self.optimizer = _optimizer(model, self.parameters)
        self.scale, self.since, self.interval = plan.loss_scale, 0, plan.loss_scale_interval
        self.random = random
        self.losses: list[Any] = []
        self.overflows = 0
        self._round_weights()

    def step(self, number: int) -> None:
        """Forward, backward, update."""
        for group in self.optimizer.param_groups:
            group["lr"] = self.model.learning_rate * _schedule(number, self.model.steps)
        loss = self.task.loss(self.task.parameters, self.products, next(self.task.training))
        self.losses.append(loss.detach())
        factor = self.scale if self.recipe.loss_scaling else 1.0
        self.optimizer.zero_grad()
        (loss * factor if factor != 1.0 else loss).backward()
        gradients = [tensor.grad for tensor in self.parameters]
        if factor != 1.0:
            torch._foreach_div_(gradients, factor)
        norm = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(gradients)))
        finite = bool(torch.isfinite(norm))
        self.overflows += not finite
        if self.recipe.loss_scaling:
            self._adapt(finite)
            if not finite:
                return
        if self.model.clip:
            torch._foreach_mul_(gradients, (self.model.clip / norm).clamp(max=1.0))
        self.optimizer.step()
        self._round_weights()

    def evaluate(self) -> float:
        """The mean validation loss in the same precision."""
        self.products.evaluating(True)
        with torch.no_grad():
            losses = [
                self.task.loss(self.task.parameters, self.products, batch) for batch in self.task.validation
            ]
        self.products.evaluating(False)
        sizes = [len(batch[0]) for batch in self.task.validation]
        return sum(float(loss) * size for loss, size in zip(losses, sizes, strict=True)) / sum(sizes)

    def _adapt(self, finite: bool) -> None:
        """The dynamic loss scale, as torch.amp.GradScaler has it."""
        self.since = self.since + 1 if finite else 0
        if not finite:
            self.scale *= 0.5
        elif self.since == self.interval:
            self.scale, self.since = self.scale * 2.0, 0

    def _round_weights(self) -> None:
        """What is kept in a narrow type, after an update."""
        if self.recipe.weights:
            form = number_format(self.recipe.weights)
            for tensor in self.parameters:
                value = (
                    stochastic(tensor.data, form, self.random, saturate=False)
                    if self.recipe.stochastic_weights
                    else nearest(tensor.data, form, saturate=False)
                )
                tensor.data.copy_(value)
        if self.recipe.states:
            form = number_format(self.recipe.states)
            for value in _moments(self.optimizer):
                value.copy_(nearest(value, form, saturate=False))


def _moments(optimizer: Any) -> Iterator[Any]:
    for state in optimizer.state.values():
        yield from (value for name, value in state.items() if name != "step" and torch.is_tensor(value))


def _schedule(step: int, steps: int) -> float:
    """The share of the learning rate."""
    warm_up = max(round(steps * _WARM_UP_SHARE), 1)
    if step < warm_up:
        return (step + 1) / warm_up
    return 0.5 * (1.0 + math.cos(math.pi * (step - warm_up) / (steps - warm_up)))


def _optimizer(model: ModelPlan, parameters: list[Any]) -> Any:
    options: dict[str, Any] = {"lr": model.learning_rate, "weight_decay": model.weight_decay, "foreach": True}
    if model.optimizer == "sgd":
        return torch.optim.SGD(parameters, momentum=model.momentum, **options)
    return torch.optim.AdamW(parameters, betas=(0.9, 0.95), **options)
