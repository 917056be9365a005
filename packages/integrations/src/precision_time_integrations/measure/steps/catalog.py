"""Which models a campaign can train, as far as this is known without torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec

from precision_time.cache import data
from precision_time.errors import ConfigError, MissingExtraError, UnknownNameError
from precision_time.io import packaged_toml

from ..plan import load_plan
from ..trial import ModelSpec

_MODELS = ("precision_time_integrations.measure", "data/models.toml")
TORCHVISION = "torchvision/"
"""Before the name of a classifier of torchvision.models."""
TORCHVISION_SIZES: Mapping[str, int] = {"side": 224, "classes": 1000}
"""Pixels and classes that a campaign may set, and what they are otherwise."""
GPU_PRECISIONS = frozenset({"tf32", "fp16-mixed"})
"""Those that a CPU has no units for, or that need loss scaling for them."""


@dataclass(frozen=True, kw_only=True, slots=True)
class BuiltIn:
    """A model that comes with the package (data/models.toml)."""

    inputs: str
    """images, tokens or pairs (of a user and an item)."""
    optimizer: str
    sizes: Mapping[str, float]
    zoo: str = ""
    """Model of the catalog with the same operators; empty where it has none."""
    zoo_sizes: Mapping[str, str] = field(default_factory=dict)
    """Our size -> the catalog's, for sizes that may differ from those of the catalog's model."""


@data
def built_in_models() -> Mapping[str, BuiltIn]:
    """The built-in models by name."""
    return {
        name: BuiltIn(**entry)
        for name, entry in packaged_toml("precision_time_integrations.measure", "data/models.toml")[
            "model"
        ].items()
    }


@data
def digits_sizes() -> Mapping[str, int]:
    """Of scikit-learn's digits: samples, side, channels, classes, and poolings that their side can take."""
    sizes: Mapping[str, int] = packaged_toml("precision_time_integrations.measure", "data/models.toml")[
        "dataset"
    ]["digits"]
    return sizes


@data
def planned_models() -> Mapping[str, ModelSpec]:
    """Models of the zoo that `precision-time measure` knows how to build."""
    return {**load_plan("cpu").specs, **load_plan("cuda").specs}


def is_user_defined(name: str) -> bool:
    """Whether a model is given as module:function."""
    return ":" in name


def check_model(name: str, sizes: Mapping[str, float]) -> None:
    """Refuse an unknown model before anything is started.

    Args:
        name: Built-in, of the zoo, timm's, a Hugging Face repository (owner/name), or module:function.
        sizes: Sizes that the campaign overrides.

    Raises:
        UnknownNameError: If the model or one of its sizes does not exist.
        ConfigError: If sizes are given to a model that takes none.
        MissingExtraError: If the library that may have it is not installed.
    """
    built_in = built_in_models().get(name)
    if built_in is not None:
        for size in sizes:
            if size not in built_in.sizes:
                hint = f"{', '.join(built_in.sizes)}."
                raise UnknownNameError(kind=f"size of {name}", name=size, known=built_in.sizes, hint=hint)
        return
    if sizes and not is_user_defined(name) and not name.startswith(TORCHVISION):
        raise ConfigError(
            f"The model {name} takes no sizes, {dict(sizes)} were given. To fix: leave them out."
        )
    if is_user_defined(name) or name in planned_models():
        return
    library = "timm" if "/" not in name else "torchvision" if name.startswith(TORCHVISION) else "transformers"
    if find_spec(library) is None:
        raise MissingExtraError(
            package=library, extra="capture", purpose=f"train {name!r}, which is not built in"
        )
    if library == "timm":
        _check_timm(name)
    if library == "torchvision":
        _check_torchvision(name, sizes)


def _check_torchvision(name: str, sizes: Mapping[str, float]) -> None:
    from precision_time.capture.timm_models import import_torchvision

    models = import_torchvision().models
    known = [TORCHVISION + each for each in models.list_models(module=models)]
    if name not in known:
        raise UnknownNameError(
            kind="model", name=name, known=known, hint="Classifiers of torchvision.models."
        )
    for size in sizes:
        if size not in TORCHVISION_SIZES:
            hint = f"{', '.join(TORCHVISION_SIZES)}."
            raise UnknownNameError(kind=f"size of {name}", name=size, known=TORCHVISION_SIZES, hint=hint)


def _check_timm(name: str) -> None:
    from precision_time.capture.timm_models import import_timm

    timm = import_timm()
    if not timm.is_model(name):
        raise UnknownNameError(
            kind="model",
            name=name,
            known=[*built_in_models(), *planned_models(), *timm.list_models()],
            hint=f"Built in: {', '.join(built_in_models())}. Also timm's, owner/name of Hugging Face, and "
            "module:function.",
        )


def optimizer_of(name: str) -> str:
    """The optimizer that a model is trained with when the campaign does not say."""
    if name in built_in_models():
        return built_in_models()[name].optimizer
    spec = planned_models().get(name)
    if spec is not None:
        return spec.optimizer
    if name.startswith(TORCHVISION):
        return "sgd_with_momentum"
    return "adamw" if is_user_defined(name) or "/" in name else "sgd_with_momentum"
