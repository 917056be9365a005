"""timm models on the meta device, whatever name they had when they were published."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from dataclasses import replace
from types import ModuleType
from typing import Any

import torch

from ..errors import CaptureError, UnknownNameError, import_failure
from ..io import packaged_toml
from ..records import dataclass
from ..workload.graph import OpGraph
from .recorder import record

_KEEP: list[Any] = []
_NAMES = "data/timm_names.toml"


@dataclass(frozen=True, kw_only=True, slots=True)
class TimmName:
    """What a published name stands for in the installed timm."""

    architecture: str
    image_size: int
    channels: int


def import_timm() -> ModuleType:
    """timm, on torch builds for which torchvision's compiled operators do not load as well.

    Raises:
        MissingExtraError: If timm is not installed.
    """
    try:
        import_torchvision()
        return importlib.import_module("timm")
    except ImportError as error:
        raise import_failure(
            error, name="timm", package="timm", extra="capture", purpose="build timm models"
        ) from error


def import_torchvision() -> ModuleType:
    """torchvision; where its library does not load, the operators it needs at import are declared."""
    try:
        return importlib.import_module("torchvision")
    except RuntimeError as error:
        if "torchvision::nms" not in str(error):
            raise
    for name in [n for n in sys.modules if n == "torchvision" or n.startswith("torchvision.")]:
        del sys.modules[name]
    library = torch.library.Library("torchvision", "DEF")
    for operator in ("nms", "qnms"):
        library.define(f"{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    _KEEP.append(library)
    return importlib.import_module("torchvision")


def resolve_timm_name(name: str) -> TimmName:
    """The architecture behind `name` (tags and old names included) and its own training image size.

    Raises:
        UnknownNameError: If the installed timm knows no such model.
    """
    timm = import_timm()
    registry = importlib.import_module("timm.models._registry")
    tagged = (
        packaged_toml(__package__, _NAMES)["renamed"].get(name)
        or registry._deprecated_models.get(name)
        or name
    )
    architecture = tagged.split(".")[0]
    base, _ = _variant(architecture)
    if not timm.is_model(base):
        raise UnknownNameError(
            kind="timm model", name=name, known=timm.list_models(), hint="All names: timm.list_models()."
        )
    config = _config(timm, tagged) or _config(timm, base)
    channels, height = (config.input_size[0], config.input_size[1]) if config else (3, 224)
    return TimmName(architecture=architecture, image_size=int(height), channels=int(channels))


def _config(timm: ModuleType, name: str) -> Any:
    try:
        return timm.get_pretrained_cfg(name)
    except RuntimeError:  # a tag of another release
        return None


def _variant(architecture: str) -> tuple[str, dict[str, Any]]:
    """The architecture that timm registers, and the options that make it this one."""
    base, options = packaged_toml(__package__, _NAMES)["variants"].get(architecture, (architecture, {}))
    return base, options


def build_timm(name: str, image_size: int | None = None) -> torch.nn.Module:
    """The model on the meta device in training mode, made for `image_size` where it must know it.

    Raises:
        CaptureError: If timm cannot build it.
    """
    timm = import_timm()
    resolved = resolve_timm_name(name)
    base, options = _variant(resolved.architecture)
    attempts: list[dict[str, Any]] = [{}]
    if image_size is not None and image_size != resolved.image_size:
        attempts = [{"img_size": image_size}, {"input_size": (3, image_size, image_size)}, {}]
    failure: Exception | None = None
    for attempt in attempts:
        with torch.device("meta"):
            try:
                model: torch.nn.Module = timm.create_model(base, **options, **attempt)
                return model.train()
            except (TypeError, AssertionError, ValueError, RuntimeError) as error:
                failure = error
    raise CaptureError(
        f"timm cannot build {name!r} at image size {image_size}: {failure}. To fix: another image size, or "
        "pass the module itself."
    )


def timm_capturer(name: str, *, image_size: int | None = None) -> Callable[[int], OpGraph]:
    """What captures a timm model at a batch size; the model is built once for all of them.

    Args:
        name: Published name.
        image_size: Side length [pixels]; by default the one the model is trained at.

    Raises:
        UnknownNameError: If timm knows no such model.
        CaptureError: If timm cannot build it; the capturer raises it if the forward pass does not run.
    """
    resolved = resolve_timm_name(name)
    size = image_size or resolved.image_size
    model = build_timm(name, size)

    def capture(batch: int) -> OpGraph:
        inputs = (torch.empty(batch, resolved.channels, size, size, device="meta"),)
        graph = record(model, inputs, name=resolved.architecture, batch=batch)
        return replace(graph, image_size=size)

    return capture
