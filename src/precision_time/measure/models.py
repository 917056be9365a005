"""Models with a batch of random inputs on the device, from the library that has them."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F

from ..errors import CaptureError, ConfigError
from ..workload.capture.huggingface import import_transformers
from ..workload.capture.sources import split_inputs
from ..workload.capture.timm_models import import_timm
from .points import ModelSpec
from .torch_models import BUILDERS

_CLASSES = 1000
_IMAGE = 224


@dataclass(frozen=True, kw_only=True, slots=True)
class BuiltModel:
    """A module in training mode and one batch for it."""

    module: Any
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)
    loss: Callable[[Any], Any]
    """From what the module returns to a scalar."""
    batch_size: int


def build_model(spec: ModelSpec, batch_size: int, kind: str) -> BuiltModel:
    """The model that `spec` describes, with random weights and inputs.

    Args:
        spec: From the plan.
        batch_size: Samples; the user's own functions decide themselves.
        kind: cuda or cpu.

    Raises:
        ConfigError: If its library is none of the known ones.
        CaptureError: If a user's own function does not give what it should.
        MissingExtraError: If the library is not installed.
    """
    builder = _LIBRARIES.get(spec.library)
    if builder is None:
        raise ConfigError(
            f"The library {spec.library!r} of {spec.name} is not known. "
            f"To fix: use one of {', '.join(_LIBRARIES)}."
        )
    return builder(spec, batch_size, kind)


def _timm(spec: ModelSpec, batch_size: int, kind: str) -> BuiltModel:
    side = spec.image_size or _IMAGE
    timm = import_timm()
    with torch.device(kind):
        module = timm.create_model(spec.build.get("architecture", spec.name), **spec.build.get("options", {}))
    images = torch.randn(batch_size, 3, side, side, device=kind)
    labels = torch.randint(_CLASSES, (batch_size,), device=kind)
    return BuiltModel(
        module=module.train(),
        args=(images,),
        loss=lambda logits: F.cross_entropy(logits, labels),
        batch_size=batch_size,
    )


def _transformers(spec: ModelSpec, batch_size: int, kind: str) -> BuiltModel:
    transformers = import_transformers()
    config = transformers.AutoConfig.for_model(spec.build["type"], **spec.build.get("config", {}))
    config.use_cache = False
    config._attn_implementation = "sdpa"
    with torch.device(kind):
        module = getattr(transformers, spec.build["head"])(config)
    tokens = torch.randint(config.vocab_size, (batch_size, spec.seq_len or 1), device=kind)
    inputs = {"input_ids": tokens, "labels": tokens.clone()}
    if spec.build.get("pairs"):
        inputs["next_sentence_label"] = torch.randint(2, (batch_size,), device=kind)
    return BuiltModel(
        module=module.train(), kwargs=inputs, loss=lambda output: output.loss, batch_size=batch_size
    )


def _torch(spec: ModelSpec, batch_size: int, kind: str) -> BuiltModel:
    build, inputs = BUILDERS[spec.build["architecture"]]
    with torch.device(kind):
        module = build(spec.build)
    args = inputs(spec.build, batch_size, kind)
    return BuiltModel(module=module.train(), args=args, loss=lambda loss: loss, batch_size=batch_size)


def _own(spec: ModelSpec, batch_size: int, kind: str) -> BuiltModel:
    """What package.module:function returns: a module and one batch of inputs."""
    del batch_size
    return built_from(_called(spec.name), spec.name, kind)


def built_from(made: Any, name: str, kind: str = "cpu") -> BuiltModel:
    """What a user's function returned, as a model with its batch.

    Args:
        made: (module, inputs).
        name: What errors call the function.
        kind: cuda or cpu.

    Raises:
        CaptureError: If it is something else.
    """
    if not (isinstance(made, tuple) and len(made) >= 2 and isinstance(made[0], torch.nn.Module)):
        raise CaptureError(
            f"{name} returned a {type(made).__name__}. The rule: (module, inputs), one batch. "
            "To fix: return both."
        )
    args, kwargs = split_inputs(made[1] if len(made) == 2 else made[1:])
    args = tuple(_moved(value, kind) for value in args)
    kwargs = {word: _moved(value, kind) for word, value in kwargs.items()}
    tensors = [v for v in (*args, *kwargs.values()) if isinstance(v, torch.Tensor) and v.dim() > 0]
    if not tensors:
        raise CaptureError(f"{name} gave no tensor as input. To fix: return tensors, batch first.")
    return BuiltModel(
        module=made[0].to(kind).train(),
        args=args,
        kwargs=kwargs,
        loss=_loss_of,
        batch_size=int(tensors[0].shape[0]),
    )


def _called(source: str) -> Any:
    """What "module:function" returns; modules of the working directory count."""
    name, _, attribute = source.partition(":")
    if "" not in sys.path and os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        return getattr(importlib.import_module(name), attribute)()
    except (ImportError, AttributeError, TypeError) as error:
        raise CaptureError(
            f"{source!r} cannot be called: {type(error).__name__}: {error}. The form is "
            "package.module:function, without arguments. To fix: check that it can be imported from here."
        ) from error


def _moved(value: Any, kind: str) -> Any:
    return value.to(kind) if isinstance(value, torch.Tensor) else value


def _loss_of(output: Any) -> Any:
    """A scalar to differentiate: the model's own loss where it gives one."""
    own = getattr(output, "loss", None)
    if own is not None:
        return own
    first = output if isinstance(output, torch.Tensor) else next(iter(_tensors(output)))
    return first if first.dim() == 0 else first.float().square().mean()


def _tensors(output: Any) -> list[Any]:
    values = output.values() if hasattr(output, "values") else output
    return [value for value in values if isinstance(value, torch.Tensor)]


_LIBRARIES: dict[str, Callable[[ModelSpec, int, str], BuiltModel]] = {
    "timm": _timm,
    "transformers": _transformers,
    "torch": _torch,
    "own": _own,
}
