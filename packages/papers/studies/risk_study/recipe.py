"""What a recipe of `data/recipes.toml` says, without torch."""

from __future__ import annotations

from dataclasses import dataclass

from precision_time.cache import data
from precision_time.errors import UnknownNameError
from precision_time.io import packaged_toml

REFERENCE = "fp32"
"""The recipe that every loss is compared with: nothing is rounded."""


@dataclass(frozen=True, kw_only=True, slots=True)
class NumberFormat:
    """A floating-point format: value = sign x 1.mantissa x 2^exponent."""

    name: str
    mantissa_bits: int
    least_exponent: int
    """Of the smallest normal value; below it spacing stays."""
    largest: float
    torch: str
    """Its type in torch; empty where torch casts to none."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Recipe:
    """How tensors are rounded; the fields are explained in the data file."""

    name: str
    operand: str | None = None
    gradient: str | None = None
    output: str | None = None
    scaling: str = "none"
    history: int = 0
    activation_block: int = 0
    weight_block: tuple[int, int] = (0, 0)
    scale_format: str = "fp32"
    stochastic_gradient: bool = False
    weights: str | None = None
    states: str | None = None
    stochastic_weights: bool = False
    loss_scaling: bool = False
    native: str = ""
    source: str = ""

    @property
    def precision(self) -> str:
        """The policy that the recipe belongs to."""
        return self.name.partition("/")[0]

    @property
    def variant(self) -> str:
        """The recipe within its policy."""
        return self.name.partition("/")[2]


@data
def known_recipes() -> dict[str, Recipe]:
    """Recipes by name, and fp32."""
    found = {REFERENCE: Recipe(name=REFERENCE, source="nothing is rounded")}
    for name, fields in packaged_toml(__package__, "data/recipes.toml")["recipe"].items():
        block = {"weight_block": tuple(fields["weight_block"])} if "weight_block" in fields else {}
        found[name] = Recipe(name=name, **{**fields, **block})
    return found


def get_recipe(name: str) -> Recipe:
    """The recipe of a name such as fp8-mixed/current.

    Raises:
        UnknownNameError: If there is none.
    """
    known = known_recipes()
    if name not in known:
        hint = f"Recipes: {', '.join(known)}."
        raise UnknownNameError(kind="recipe", name=name, known=known, hint=hint)
    return known[name]


@data
def number_format(name: str) -> NumberFormat:
    """The format of a name such as e4m3."""
    return NumberFormat(name=name, **packaged_toml(__package__, "data/recipes.toml")["format"][name])
