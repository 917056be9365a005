"""The layers of small models, each rounding what a recipe rounds: inputs, outputs and gradients.

An emulation: operands are rounded to the values of the narrow type, multiplied and summed in fp32. Hopper's
fp8 units keep fewer bits of sums (DeepSeek-V3, arXiv 2412.19437, section 3.3.2). Gradients pass the rounding
of forward unchanged. Both products of backward read the same rounded copies, where recipes of blocks round
once more along the other dimension on a device.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F

from precision_time.errors import ConfigError
from precision_time_integrations.measure.kernels.float8 import ALIGNMENT, Fp8Linear

from .recipe import Recipe, number_format
from .rounding import Rounder

Round = Callable[[Any], Any] | None


class _Cast(torch.autograd.Function):  # type: ignore[misc]
    """Rounds a tensor in forward and its gradient in backward, each by its own rule."""

    @staticmethod
    def forward(ctx: Any, x: Any, ahead: Round, back: Round) -> Any:
        ctx.back = back
        return x.view_as(x) if ahead is None else ahead(x)

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        return gradient if ctx.back is None else ctx.back(gradient), None, None


def cast(x: Any, ahead: Round, back: Round) -> Any:
    """`x` rounded by `ahead`; its gradient by `back`. None leaves as it is."""
    return _Cast.apply(x, ahead, back)


class Flushes:
    """Counts gradients that a rounding turns to zero, in every `every`-th step."""

    def __init__(self, every: int) -> None:
        self.every = every
        self.counting = False
        self.flushed = 0
        self.nonzero = 0

    def start_step(self, step: int) -> None:
        """Say which step begins."""
        self.counting = step % self.every == 0

    def watch(self, rounding: Callable[[Any], Any], gradient: Any) -> Any:
        """`rounding` of a gradient, counted."""
        rounded = rounding(gradient)
        if self.counting:
            nonzero = gradient != 0
            self.nonzero += int(nonzero.sum())
            self.flushed += int((nonzero & (rounded == 0)).sum())
        return rounded

    @property
    def share(self) -> float:
        """Of the nonzero gradients that entered a rounding."""
        return self.flushed / self.nonzero if self.nonzero else 0.0


class Products:
    """The operators of a model whose layers are named; some of them round.

    Args:
        recipe: How.
        rounds: Whether the layer of a name does.
        random: Random numbers of stochastic rounding.
        native: Multiply in the types of the device instead of emulating them.
        flushes: Counts underflow.
    """

    def __init__(
        self,
        recipe: Recipe,
        rounds: Callable[[str], bool],
        random: Any,
        *,
        native: bool = False,
        flushes: Flushes | None = None,
    ) -> None:
        if native and not recipe.native and recipe.operand:
            raise ConfigError(
                f"{recipe.name} cannot run natively: torch has no operators for it. To fix: leave --native "
                "out, which emulates it."
            )
        self.recipe = recipe
        self.flushes = flushes or Flushes(1)
        self._rounds, self._random = rounds, random
        self._native = recipe.native if native else ""
        self._rounders: dict[tuple[str, str], Rounder] = {}

    def evaluating(self, value: bool) -> None:
        """Freeze scales while a model is evaluated."""
        for rounder in self._rounders.values():
            rounder.learning = not value

    def linear(self, name: str, x: Any, weight: Any, bias: Any = None) -> Any:
        """X w^T + b."""
        if self._native and self._rounds(name):
            return self._native_linear(x, weight, bias)
        return self._product(name, partial(F.linear, bias=bias), x, weight)

    def matmul(self, name: str, a: Any, b: Any) -> Any:
        """A product of two activations."""
        if self._native and self._rounds(name):
            dtype = self._native_type()
            return torch.matmul(a.to(dtype), b.to(dtype)).float()
        return self._product(name, torch.matmul, a, b, weight=False)

    def conv(self, name: str, x: Any, weight: Any, *, stride: int = 1) -> Any:
        """A convolution that keeps the size, but for its stride; channels are the inner dimension."""
        padding = weight.shape[-1] // 2
        if self._native and self._rounds(name):
            dtype = self._native_type()
            return F.conv2d(x.to(dtype), weight.to(dtype), stride=stride, padding=padding).float()
        return self._product(name, partial(F.conv2d, stride=stride, padding=padding), x, weight, axis=1)

    def aggregate(self, name: str, graph: Any, x: Any) -> Any:
        """A sparse matrix, whose values stay in fp32, times activations."""
        return self._stored(name, torch.sparse.mm(graph, self._stored(f"{name}.input", x, of=name)))

    def embedding(self, name: str, index: Any, table: Any) -> Any:
        """Rows of a table, both the rows and their gradients rounded to the operands' formats."""
        return self._stored(name, F.embedding(index, table))

    def norm(self, name: str, normalize: Callable[[Any], Any], x: Any) -> Any:
        """A norm that reads and writes narrow values and computes in fp32, as do its gradients."""
        return self._stored(name, normalize(self._stored(f"{name}.input", x, of=name)))

    def _product(
        self,
        name: str,
        multiply: Callable[[Any, Any], Any],
        a: Any,
        b: Any,
        *,
        weight: bool = True,
        axis: int = -1,
    ) -> Any:
        """Operands rounded, multiplied, and the output and its gradient rounded."""
        if not self.recipe.operand or not self._rounds(name):
            return multiply(a, b)
        row, block = (1, self.recipe.activation_block), self.recipe.weight_block
        back = self._output(name, gradient=True)
        of_a = self._rounder(name, "a", self.recipe.operand, block=row, axis=axis)
        of_b = self._rounder(
            name, "b", self.recipe.operand, block=block if weight else row, axis=axis if weight else -2
        )
        out = multiply(cast(a, of_a, back), cast(b, of_b, back))
        gradient = self._rounder(
            name, "gradient", self.recipe.gradient, block=row, random=self._gradient_random(), axis=axis
        )
        return cast(out, self._output(name), partial(self.flushes.watch, gradient) if gradient else None)

    def _stored(self, name: str, x: Any, of: str = "") -> Any:
        """A tensor kept in the operands' format, its gradient in the gradients'."""
        if not self.recipe.operand or self._native or not self._rounds(of or name):
            return x
        row = (1, self.recipe.activation_block)
        ahead = self._rounder(name, "stored", self.recipe.operand, block=row)
        back = self._rounder(
            name, "gradient", self.recipe.gradient, block=row, random=self._gradient_random()
        )
        return cast(x, ahead, partial(self.flushes.watch, back) if back else None)

    def _gradient_random(self) -> Any:
        return self._random if self.recipe.stochastic_gradient else None

    def _output(self, name: str, *, gradient: bool = False) -> Round:
        """The rounding of what a product gives: never scaled."""
        if self.recipe.output is None:
            return None
        rounder = self._rounder(name, "output", self.recipe.output, block=(0, 0), scaled=False)
        return partial(self.flushes.watch, rounder) if gradient and rounder else rounder

    def _rounder(
        self,
        name: str,
        place: str,
        form: str | None,
        *,
        block: tuple[int, int],
        random: Any = None,
        axis: int = -1,
        scaled: bool = True,
    ) -> Rounder | None:
        if form is None:
            return None
        key = (name, place)
        if key not in self._rounders:
            recipe = self.recipe if scaled else Recipe(name="unscaled")
            self._rounders[key] = Rounder(form, recipe, block=block, random=random, axis=axis)
        return self._rounders[key]

    def _native_type(self) -> Any:
        """The 16-bit type in which products run that have no narrower operator."""
        return getattr(torch, number_format(self.recipe.output or "bf16").torch)

    def _native_linear(self, x: Any, weight: Any, bias: Any) -> Any:
        dtype = self._native_type()
        fits = weight.shape[0] % ALIGNMENT == 0 and weight.shape[1] % ALIGNMENT == 0
        if self._native == "float8" and fits and x.numel() // x.shape[-1] % ALIGNMENT == 0:
            rows = x.reshape(-1, x.shape[-1]).to(dtype)
            out = Fp8Linear.apply(rows, weight).reshape(*x.shape[:-1], weight.shape[0])
        else:
            out = F.linear(x.to(dtype), weight.to(dtype))
        return out.float() if bias is None else out.float() + bias
