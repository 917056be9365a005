"""A campaign of small trainings, read from TOML: models, their groups of layers, recipes and seeds."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from importlib.resources import files
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from precision_time.errors import ConfigError, UnknownNameError
from precision_time.forks import cached_property
from precision_time.io import read_input

from .recipe import REFERENCE, get_recipe

ALL = "all"
BUT = "all-but-"
"""Prefix of every layer but those of a group."""
EACH, BUT_EACH = "each", "all-but-each"
SHIPPED = ("full", "quick")
_Count = Annotated[int, Field(ge=1)]


class ModelPlan(BaseModel):
    """One model and how it is trained."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    kind: Literal["decoder", "encoder", "convnet", "mlp", "regression", "diffusion", "gnn"]
    optimizer: Literal["adamw", "sgd"]
    learning_rate: Annotated[float, Field(gt=0.0)]
    """At its highest: it rises over the first twentieth of the steps and falls to zero as a cosine."""
    weight_decay: Annotated[float, Field(ge=0.0)] = 0.0
    momentum: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.9
    """Of SGD."""
    clip: Annotated[float, Field(ge=0.0)] = 0.0
    """Largest norm of the gradients; 0: any."""
    steps: Annotated[int, Field(ge=20)]
    sizes: Mapping[str, _Count]
    groups: Mapping[str, tuple[str, ...]]
    """Patterns of names of layers."""
    sum_of: tuple[str, ...] = ()
    """Groups that together are all layers, none twice."""

    def rounds(self, group: str, layer: str) -> bool:
        """Whether a layer belongs to a group, all, or all but a group."""
        if group == ALL:
            return True
        inside = any(fnmatchcase(layer, pattern) for pattern in self.groups[group.removeprefix(BUT)])
        return inside is not group.startswith(BUT)

    def check_group(self, group: str, model: str) -> None:
        """Refuse a group that the model does not have."""
        if group != ALL and group.removeprefix(BUT) not in self.groups:
            hint = f"Groups of {model}: {ALL}, {', '.join(self.groups)}, or all-but- and one of them."
            raise UnknownNameError(kind="group of layers", name=group, known=self.groups, hint=hint)


class Part(BaseModel):
    """Trainings of some models with some recipes in some groups of layers."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    models: tuple[str, ...]
    recipes: tuple[str, ...]
    groups: tuple[str, ...] = (ALL,)
    """Names; `each`: every group of the model; `all-but-each`: all but one group of `sum_of` in turn."""
    seeds: _Count


class Training(BaseModel):
    """One training."""

    model_config = ConfigDict(frozen=True)

    model: str
    recipe: str
    group: str
    seed: int

    @property
    def key(self) -> tuple[str, str, str, str]:
        """What a row of the results is found by."""
        return self.model, self.recipe, self.group, str(self.seed)


class RiskPlan(BaseModel):
    """Everything that a campaign trains."""

    model_config = ConfigDict(extra="forbid", frozen=True, ignored_types=(cached_property,))

    evaluations: _Count = 4
    """Spread evenly over the last tenth of a training; their mean is its loss."""
    count_every: _Count = 10
    """Steps between counts of gradients that become zero."""
    loss_scale: Annotated[float, Field(gt=0.0)] = 65536.0
    loss_scale_interval: _Count = 100
    """Steps without overflow after which the loss scale doubles; GradScaler's 2000 are more than most run."""
    model: Mapping[str, ModelPlan]
    part: tuple[Part, ...]

    @cached_property
    def trainings(self) -> tuple[Training, ...]:
        """All, each once: every seed of fp32, then one seed of everything else before the next seed."""
        found = dict.fromkeys(self._unsorted())
        return tuple(sorted(found, key=lambda item: (item.recipe != REFERENCE, item.seed)))

    def _unsorted(self) -> Iterator[Training]:
        for part in self.part:
            for recipe in part.recipes:
                get_recipe(recipe)
            for name in part.models:
                if name not in self.model:
                    hint = f"Models of the plan: {', '.join(self.model)}."
                    raise UnknownNameError(kind="model", name=name, known=self.model, hint=hint)
                model = self.model[name]
                wanted = {EACH: [*model.groups], BUT_EACH: [f"{BUT}{group}" for group in model.sum_of]}
                for group in (one for item in part.groups for one in wanted.get(item, [item])):
                    model.check_group(group, name)
                    for recipe in (REFERENCE, *part.recipes):
                        asked = ALL if recipe == REFERENCE else group
                        for seed in range(part.seeds):
                            yield Training(model=name, recipe=recipe, group=asked, seed=seed)


def load_risk_plan(name: str) -> RiskPlan:
    """The plan of a file, or a shipped one (full, quick).

    Raises:
        ConfigError: If it cannot be read or holds anything else.
    """
    try:
        if name in SHIPPED:
            text = files(__package__).joinpath(f"data/{name}.toml").read_text(encoding="utf-8")
        else:
            text = read_input(name)
        plan = RiskPlan.model_validate(tomllib.loads(text))
        _ = plan.trainings
    except OSError as error:
        raise ConfigError(
            f"The plan {name} cannot be read: {error.strerror}. To fix: name a TOML file, or one of "
            f"{', '.join(SHIPPED)}."
        ) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"The plan {name} is not TOML: {error}. To fix: correct it.") from error
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise ConfigError(
            f"The plan {name}: {where or 'the file'}: {first['msg']}. To fix: take the shipped plan "
            "(measure/risk/data/full.toml) as a pattern."
        ) from error
    return plan
