"""fp32 tensors rounded to the values of a narrower format, kept in fp32."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from .recipe import NumberFormat, Recipe, number_format

_EXPONENT_BITS = 0x7F800000
_FP32_MANTISSA = 23
_POOL = 2**20


def _binade(x: Any, form: NumberFormat) -> Any:
    """The power of two at or below |x|, not below the smallest normal value of a format."""
    exponent = x.contiguous().view(torch.int32).bitwise_and(_EXPONENT_BITS).view(torch.float32)
    return exponent.clamp_(min=2.0**form.least_exponent)


def nearest(x: Any, form: NumberFormat, *, saturate: bool) -> Any:
    """The nearest value of `form`, ties to even.

    Args:
        x: fp32.
        form: The format.
        saturate: What is too large becomes the largest value, as scaled recipes do, rather than infinite.
    """
    if (
        form.torch and form.mantissa_bits > 3
    ):  # for fp8, torch's cast takes five times as long as the sum below
        rounded = x.to(getattr(torch, form.torch)).to(torch.float32)
        return rounded.clamp_(-form.largest, form.largest) if saturate else rounded
    # x + c has its last bit at the format's last bit where c is 1.5 x 2^23 units of that bit, so that
    # the processor's own rounding of the sum is the rounding wanted.
    shift = _binade(x, form).mul_(1.5 * 2.0 ** (_FP32_MANTISSA - form.mantissa_bits))
    return _limited(x.add(shift).sub_(shift), form, saturate)


def stochastic(x: Any, form: NumberFormat, chance: Callable[[Any], Any], *, saturate: bool) -> Any:
    """One of the two neighbors in `form`, each with the probability that makes the mean x."""
    unit = _binade(x, form).mul_(2.0**-form.mantissa_bits)
    return _limited((x / unit).add_(chance(x)).floor_().mul_(unit), form, saturate)


def _limited(x: Any, form: NumberFormat, saturate: bool) -> Any:
    if saturate:
        return x.clamp_(-form.largest, form.largest)
    return torch.where(x.abs() > form.largest, x.sign() * float("inf"), x)


def _largest(x: Any) -> Any:
    low, high = torch.aminmax(x)
    return torch.maximum(-low, high)


def _largest_of_rows(x: Any) -> Any:
    low, high = torch.aminmax(x, dim=-1, keepdim=True)
    return torch.maximum(-low, high)


class Chance:
    """Uniform random numbers in 0..1 from a pool, read from a random place each time: ten times as fast."""

    def __init__(self, generator: Any) -> None:
        self._generator = generator
        self._pool = torch.rand(_POOL, generator=generator, device=generator.device)
        self._starts = torch.Generator().manual_seed(generator.initial_seed())

    def __call__(self, x: Any) -> Any:
        """As many as `x` has values, in its shape."""
        count = x.numel()
        if count > _POOL // 2:
            return torch.rand(x.shape, generator=self._generator, device=x.device)
        start = int(torch.randint(_POOL - count, (1,), generator=self._starts))
        return self._pool[start : start + count].view(x.shape)


class Rounder:
    """Rounds the tensors of one place in a model, with the scales that a recipe gives them.

    Args:
        form: Format of the values.
        recipe: Its scaling.
        block: Rows and columns that share a scale, where scaling is by blocks; rows 0 for one row.
        random: Random numbers of stochastic rounding; None rounds to nearest.
        axis: The dimension along which columns run.
    """

    def __init__(
        self, form: str, recipe: Recipe, *, block: tuple[int, int], random: Any = None, axis: int = -1
    ) -> None:
        self.form = number_format(form)
        self.scaling = recipe.scaling
        self.scale_format = recipe.scale_format
        self.block = block
        self.random = random
        self.axis = axis
        self.learning = True
        """Whether the history of maxima goes on: not while a model is evaluated."""
        self._length, self._uses = recipe.history, 0
        self._history: Any = None

    def __call__(self, x: Any) -> Any:
        """`x` as it is after being scaled, rounded and scaled back."""
        if self.scaling == "none":
            return self._rounded(x, saturate=False)
        if self.scaling == "block":
            return self._by_blocks(x)
        scale = self._scale(x)
        return self._rounded(x * scale, saturate=True).div_(scale)

    def _rounded(self, x: Any, *, saturate: bool) -> Any:
        if self.random is not None:
            return stochastic(x, self.form, self.random, saturate=saturate)
        return nearest(x, self.form, saturate=saturate)

    def _scale(self, x: Any) -> Any:
        """The factor that puts the maximum, of now or of the past, at the largest value."""
        known = now = _largest(x)
        if self.scaling == "delayed":
            if self._history is None:
                self._history = torch.zeros(self._length, device=x.device)
            known = self._history.amax() if self._uses else now
            if self.learning:
                self._history[self._uses % self._length] = now
                self._uses += 1
        scale = self.form.largest / known
        return torch.where(torch.isfinite(scale), scale, torch.ones_like(scale))  # a tensor of zeros

    def _by_blocks(self, x: Any) -> Any:
        if self.axis not in (-1, x.dim() - 1):
            return self._tiles(x.movedim(self.axis, -1)).movedim(-1, self.axis)
        return self._tiles(x)

    def _tiles(self, x: Any) -> Any:
        """Blocks of a matrix of all leading dimensions by the last, each scaled by its own maximum."""
        rows, columns = max(self.block[0], 1), self.block[1]
        matrix = x.reshape(-1, x.shape[-1])
        height, width = matrix.shape
        columns, rows = min(columns, width), min(rows, height)
        padding = (0, -width % columns, 0, -height % rows)
        padded = torch.nn.functional.pad(matrix, padding) if any(padding) else matrix
        if rows == 1:
            tiles = padded.reshape(-1, columns)
            scale = self._block_scale(_largest_of_rows(tiles))
            rounded = self._rounded(tiles / scale, saturate=True).mul_(scale)
            return rounded.reshape(padded.shape)[:height, :width].reshape(x.shape)
        tiles = padded.reshape(padded.shape[0] // rows, rows, padded.shape[1] // columns, columns)
        scale = self._block_scale(tiles.abs().amax(dim=(1, 3), keepdim=True))
        rounded = self._rounded(tiles / scale, saturate=True).mul_(scale)
        return rounded.reshape(padded.shape)[:height, :width].reshape(x.shape)

    def _block_scale(self, maxima: Any) -> Any:
        """What a block is divided by."""
        largest = self.form.largest
        if self.scale_format == "e8m0":  # OCP microscaling formats 1.0, section 6.3
            exponent = torch.log2(maxima).floor_() - torch.floor(torch.log2(torch.tensor(largest)))
            scale = torch.exp2(exponent.clamp_(-127.0, 127.0))
        elif (
            self.scale_format == "e4m3"
        ):  # arXiv 2509.25149, appendix B: a scale of the tensor, then of blocks
            form = number_format("e4m3")
            whole = maxima.amax() / (largest * form.largest)
            scale = nearest(maxima / (largest * whole), form, saturate=True) * whole
        else:
            scale = maxima / largest
        return torch.where((scale > 0.0) & torch.isfinite(scale), scale, torch.ones_like(scale))
