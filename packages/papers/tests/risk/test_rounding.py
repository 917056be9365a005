"""Emulated rounding: the values of torch's own types, within range, unbiased where it is random."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from risk_study.recipe import Recipe, known_recipes, number_format
from risk_study.rounding import Chance, Rounder, nearest, stochastic


def wide_values(largest: float) -> Any:
    """Values of all magnitudes up to `largest`, ties and zeros among them."""
    random = torch.Generator().manual_seed(0)
    free = torch.randn(20_000, generator=random) * torch.exp2(torch.randn(20_000, generator=random) * 8.0)
    ties = torch.arange(-512.0, 512.0) / 64.0
    values = torch.cat([free, ties, ties * 2.0**-10, ties * 2.0**10, torch.zeros(2)])
    return values[values.abs() <= largest]


@pytest.mark.parametrize("name", ["bf16", "fp16", "e5m2", "e4m3"])
def test_nearest_is_torchs_cast_in_every_value(name: str) -> None:
    form = number_format(name)
    x = wide_values(form.largest)
    for saturate in (False, True):
        expected = x.to(getattr(torch, form.torch)).float()
        ours = nearest(x, form, saturate=saturate)
        assert torch.equal(ours, expected)  # + 0.0 equals - 0.0, every other value bit by bit


@pytest.mark.parametrize("name", ["fp16", "e5m2", "e4m3", "e2m1"])
def test_what_is_too_large_saturates_or_becomes_infinite(name: str) -> None:
    form = number_format(name)
    x = torch.tensor([1.0, -1.0]) * form.largest * 2.0
    assert nearest(x, form, saturate=True).tolist() == [form.largest, -form.largest]
    assert nearest(x, form, saturate=False).tolist() == [float("inf"), -float("inf")]


def test_fp4_has_its_eight_magnitudes() -> None:
    x = torch.linspace(-7.0, 7.0, 28_001)
    rounded = nearest(x, number_format("e2m1"), saturate=True)
    table = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0])  # OCP microscaling formats 1.0, table 5
    assert torch.equal(rounded.abs().unique(), table)
    nearest_of_table = (x.abs()[:, None].clamp(max=6.0) - table).abs()
    assert torch.allclose(
        (x.abs().clamp(max=6.0) - rounded.abs()).abs(), nearest_of_table.amin(dim=1), atol=1e-6
    )


@pytest.mark.parametrize("name", ["bf16", "e4m3", "e2m1"])
def test_stochastic_rounding_takes_a_neighbor_and_has_the_right_mean(name: str) -> None:
    form = number_format(name)
    chance = Chance(torch.Generator().manual_seed(1))
    for value in (1.3, -0.7, 3.1):
        x = torch.full((100_000,), value)
        rounded = stochastic(x, form, chance, saturate=True)
        values = rounded.unique()
        assert len(values) == 2
        assert values[0] < value < values[1]
        step = float(values[1] - values[0])
        assert abs(float(rounded.double().mean()) - value) < 5.0 * step * 0.5 / 100_000**0.5


SCALED = [recipe for recipe in known_recipes().values() if recipe.scaling != "none"]


@pytest.mark.parametrize("recipe", SCALED, ids=lambda recipe: recipe.name)
@pytest.mark.parametrize("magnitude", [1e-12, 1.0, 1e9])
def test_scaling_keeps_values_in_range_at_any_magnitude(recipe: Recipe, magnitude: float) -> None:
    x = torch.randn(40, 200, generator=torch.Generator().manual_seed(2)) * magnitude
    rounder = Rounder(recipe.operand or "", recipe, block=(1, recipe.activation_block))
    rounded = rounder(x)
    assert bool(torch.isfinite(rounded).all())
    bits = number_format(recipe.operand or "").mantissa_bits
    error = ((rounded - x).norm() / x.norm()).item()
    assert error < 2.0 ** -(bits + 1), "as a value's relative error is at most"
    assert not torch.equal(rounded, x)


def test_blocks_keep_what_an_outlier_costs_a_whole_tensor() -> None:
    x = torch.full((4, 256), 1e-3)
    x[0, 0] = 1e4
    recipes = known_recipes()
    whole = Rounder("e4m3", recipes["fp8-mixed/current"], block=(0, 0))(x)
    blocks = Rounder("e4m3", recipes["fp8-mixed/blockwise"], block=(1, 128))(x)
    assert int((whole == 0).sum()) == 4 * 256 - 1
    assert int((blocks == 0).sum()) == 127


def test_delayed_scaling_saturates_what_history_has_not_seen() -> None:
    rounder = Rounder("e4m3", known_recipes()["fp8-mixed/delayed"], block=(0, 0))
    assert rounder(torch.tensor([1.0])).item() == 1.0
    assert rounder(torch.tensor([8.0])).item() == 1.0
    assert rounder(torch.tensor([8.0])).item() == 8.0
    rounder.learning = False
    rounder(torch.tensor([64.0]))
    rounder.learning = True
    assert rounder(torch.tensor([64.0])).item() == 8.0, "an evaluation leaves the history alone"


def test_block_scales_follow_the_inner_dimension_of_convolutions() -> None:
    recipe = known_recipes()["fp8-mixed/mxfp8"]
    x = torch.randn(2, 48, 5, 3, generator=torch.Generator().manual_seed(3))
    along_channels = Rounder("e4m3", recipe, block=(1, 32), axis=1)(x)
    moved = Rounder("e4m3", recipe, block=(1, 32))(x.movedim(1, -1).contiguous()).movedim(-1, 1)
    assert torch.equal(along_channels, moved)
