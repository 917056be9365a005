"""What a point trains: a module that returns its loss, and the batches it reads."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from ...errors import ConfigError
from ..models import build_model
from ..points import ModelSpec
from .batches import Batches, OneBatch, Share, digits, image_folder, synthetic
from .catalog import built_in_models, planned_models
from .models import MODULES, Batch, Classifier
from .plan import Point

_CLASSES = 1000
_IMAGE_SIDE = 224
_DIGITS = {"side": 8, "channels": 1, "classes": 10}
_DIGITS_STAGES = 3
"""Poolings that 8 x 8 pixels can take."""
_MOST_TOKENS = 512


@dataclass(frozen=True, kw_only=True, slots=True)
class Task:
    """A model to train and what it reads."""

    module: Any
    """In training mode, on the host; called with a batch it returns the loss."""
    batches: Batches


class _Losing(nn.Module):  # type: ignore[misc]
    """A model of `precision-time measure` as a module that returns its loss; its batch is its own."""

    def __init__(self, built: Any) -> None:
        super().__init__()
        self.module = built.module
        self._loss = built.loss
        self._names = tuple(built.kwargs)
        self._count = len(built.args)

    def forward(self, *batch: Any) -> Any:
        """The loss of one batch."""
        named = dict(zip(self._names, batch[self._count :], strict=True))
        return self._loss(self.module(*batch[: self._count], **named))


def build_task(point: Point, rank: int) -> Task:
    """The model and the data of a point, for one worker.

    Raises:
        ConfigError: If the model cannot read the data set.
        MissingExtraError: If a library is not installed.
    """
    share = Share(point=point, rank=rank)
    if point.model in built_in_models():
        return _built_in(point, share)
    spec = planned_models().get(point.model) or _spec(point.model)
    if spec.library == "timm":
        return _timm(point, share, spec)
    if point.dataset != "synthetic":
        raise ConfigError(f"{point.model} cannot read {point.dataset}. To fix: use synthetic data.")
    return one_batch_task(build_model(spec, point.batch_per_worker, "cpu"), share)


def one_batch_task(built: Any, share: Share) -> Task:
    """A task of a `measure.models.BuiltModel`."""
    batch: Batch = (*built.args, *built.kwargs.values())
    return Task(module=_Losing(built), batches=OneBatch(share=share, batch=batch))


def _built_in(point: Point, share: Share) -> Task:
    model = built_in_models()[point.model]
    sizes = {**model.sizes, **point.sizes}
    if point.dataset == "synthetic":
        batches: Batches = synthetic(share, model.inputs, sizes)
    elif model.inputs != "images":
        raise ConfigError(
            f"{point.model} reads {model.inputs}, and {point.dataset} holds images. To fix: use synthetic "
            f"data."
        )
    elif point.dataset == "digits":
        stages = min(sizes.get("stages", 0), _DIGITS_STAGES)
        sizes, batches = {**sizes, **_DIGITS, **({"stages": stages} if stages else {})}, digits(share)
    else:
        folder = image_folder(share, int(sizes["side"]))
        sizes, batches = {**sizes, "channels": 3, "classes": len(folder.images.classes)}, folder
    return Task(module=MODULES[point.model](sizes), batches=batches)


def _timm(point: Point, share: Share, spec: ModelSpec) -> Task:
    """An image model of timm, on images of its usual side."""
    from ...workload.capture.timm_models import import_timm

    timm = import_timm()
    side = spec.image_size or _IMAGE_SIDE
    sizes: Mapping[str, float] = {"side": side, "channels": 3, "classes": _CLASSES}
    if point.dataset == "synthetic":
        batches: Batches = synthetic(share, "images", sizes)
    elif point.dataset == "digits":
        raise ConfigError(f"{point.model} cannot read 8 x 8 digits. To fix: use cnn, mlp or synthetic data.")
    else:
        folder = image_folder(share, side)
        sizes, batches = {**sizes, "classes": len(folder.images.classes)}, folder
    name = spec.build.get("architecture", spec.name)
    network = timm.create_model(name, num_classes=int(sizes["classes"]), **spec.build.get("options", {}))
    return Task(module=Classifier(network), batches=batches)


def _spec(name: str) -> ModelSpec:
    """A model that no plan names: Hugging Face's where it has an owner, else timm's."""
    if "/" not in name:
        return ModelSpec(name=name, library="timm")
    from ...workload.capture.huggingface import import_transformers

    config = import_transformers().AutoConfig.from_pretrained(name)
    head = (getattr(config, "architectures", None) or ["AutoModel"])[0]
    longest = getattr(config, "max_position_embeddings", None) or _MOST_TOKENS
    return ModelSpec(
        name=name,
        library="transformers",
        build={"type": config.model_type, "config": _plain(config), "head": head},
        seq_len=min(int(longest), _MOST_TOKENS),
    )


def _plain(config: Any) -> dict[str, Any]:
    """A configuration's own fields, as `AutoConfig.for_model` takes them."""
    return {key: value for key, value in config.to_diff_dict().items() if key != "model_type"}


_OPTIMIZERS: Mapping[str, Callable[[Any], Any]] = {
    "sgd": lambda parameters: torch.optim.SGD(parameters, lr=1e-5),
    "sgd_with_momentum": lambda parameters: torch.optim.SGD(parameters, lr=1e-5, momentum=0.9),
    "adam": lambda parameters: torch.optim.Adam(parameters, lr=1e-5),
    "adamw": lambda parameters: torch.optim.AdamW(parameters, lr=1e-5),
}


def build_optimizer(name: str, module: Any) -> Any:
    """The optimizer of a point over the parameters of its module."""
    return _OPTIMIZERS[name]([p for p in module.parameters() if p.requires_grad])
