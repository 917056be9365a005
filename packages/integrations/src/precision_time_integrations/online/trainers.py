"""The adapters that watch a run, by name: those of this package and those of plugins."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from precision_time.cache import data
from precision_time.errors import ConfigError, UnknownNameError, shown
from precision_time.plugins import left_out, loaded


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainerAdapter:
    """What watches the runs of one trainer: a callback, a tracker, or a wrapper of the loop."""

    name: str
    trainer: str
    """As people call it."""
    package: str
    """Importable name of the trainer's package."""
    module: str
    """Where the adapter is; imported when it is used, as it imports the trainer."""
    attribute: str
    """The class or function in it."""

    @property
    def installed(self) -> bool:
        """Whether the trainer is there."""
        try:
            return find_spec(self.package) is not None
        except (ImportError, ValueError):
            return False

    def load(self) -> Any:
        """The class or function.

        Raises:
            ImportError: If the trainer is not installed.
        """
        return getattr(import_module(self.module), self.attribute)


def _built_in(name: str, trainer: str, package: str, attribute: str) -> TrainerAdapter:
    return TrainerAdapter(
        name=name, trainer=trainer, package=package, module=f"{__package__}.{name}", attribute=attribute
    )


_BUILT_IN = {
    item.name: item
    for item in (
        _built_in("pytorch", "a plain PyTorch loop", "torch", "track"),
        _built_in("lightning", "Lightning", "lightning", "EtaCallback"),
        _built_in("transformers", "Hugging Face Trainer", "transformers", "EtaCallback"),
        _built_in("accelerate", "Accelerate", "accelerate", "EtaTracker"),
        _built_in("deepspeed", "DeepSpeed", "deepspeed", "track"),
        _built_in("keras", "Keras", "keras", "EtaCallback"),
        _built_in("ray_train", "Ray Train", "ray", "EtaCallback"),
    )
}


@data
def trainer_adapters() -> Mapping[str, TrainerAdapter]:
    """Every adapter by name.

    A plugin of the group "trainers" is a `TrainerAdapter` or a sequence of them. One that is none, or bears
    the name of another, is left out with a warning.
    """
    found = dict(_BUILT_IN)
    for plugin, given in loaded("trainers").items():
        own: dict[str, TrainerAdapter] = {}
        try:
            for adapter in (given,) if isinstance(given, TrainerAdapter) else tuple(given):
                if not isinstance(adapter, TrainerAdapter):
                    raise ConfigError(f"{shown(adapter)} is no TrainerAdapter")
                if adapter.name in {**found, **own}:
                    raise ConfigError(f"there is an adapter {adapter.name!r}")
                own[adapter.name] = adapter
            found |= own
        except Exception as error:  # noqa: BLE001 - whatever a plugin gives, the others watch
            left_out("trainers", plugin, error)
    return found


def trainer_adapter(name: str) -> TrainerAdapter:
    """The adapter of a name.

    Raises:
        UnknownNameError: If there is none.
    """
    known = trainer_adapters()
    if name not in known:
        raise UnknownNameError(
            kind="trainer", name=name, known=known, hint="All names: precision-time watch --trainers."
        )
    return known[name]
