"""What a live trainer is, as a `Request`: read from its model, first batch, optimizer, device and processes.

Shared by all adapters. Nothing is guessed in silence: what could not be read is listed beside the request.
"""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from precision_time.corpus.rules import load_table
from precision_time.cost.optimizer import canonical_optimizer
from precision_time.errors import PrecisionTimeError, UnknownNameError, in_one_line, shown
from precision_time.request.request import Request
from precision_time_integrations.inventory.mapping import map_device

DESCRIBE_LIMIT_S = 5.0
"""A model that cannot be captured in this time is not: the run waits for it."""
_MOMENTUM = "momentum-sgd"


class Described(NamedTuple):
    """A live trainer in words of a request."""

    request: Request | None
    """None where too little could be read for a prediction; `reasons` says what."""
    reasons: tuple[str, ...]
    """What could not be read, and what was taken instead, in words."""


@dataclass(slots=True)
class Found:
    """Fields of a request, and what could not be read, as they are found."""

    fields: dict[str, Any] = field(default_factory=dict)
    reasons: list[str] = field(default_factory=list)

    def update(self, **fields: Any) -> None:
        """Add what is known: None stands for what is not."""
        self.fields.update({name: value for name, value in fields.items() if value is not None})

    def ask(self, read: Callable[[Found], None], what: str) -> None:
        """Read one part; whatever it raises is listed, because a library may have changed its attributes."""
        try:
            read(self)
        except Exception as error:  # noqa: BLE001 - attributes of other libraries may raise anything
            self.reasons.append(f"{what} could not be read: {type(error).__name__}: {error}")


class Processes(NamedTuple):
    """Processes of a distributed run."""

    size: int
    rank: int
    nodes: int | None
    """None where the launcher does not say how many processes a host has."""


def request_of(
    model: Any,
    *,
    batch: Any = None,
    forward: Callable[..., Any] | None = None,
    loss: Callable[..., Any] | None = None,
    precision: str | None = None,
    optimizer: Any = None,
    device: Any = None,
    devices: int | None = None,
    nodes: int | None = None,
    limit_s: float = DESCRIBE_LIMIT_S,
    **fields: Any,
) -> Described:
    """A live trainer as a request.

    Args:
        model: A `torch.nn.Module`, wrapped or not; or what `predict_time` takes: a known name, a
            configuration, an operator graph.
        batch: The first batch: only the shapes and types of its tensors are used, never their values.
        forward: What one step runs, as a function of the module and the batch, such as
            `lambda module, batch: module.training_step(batch, 0)`; the loss where it returns one.
        loss: Function of what the module returns and of the parts of the batch that it does not take.
        precision: In the words of the trainer; by default the type of the parameters.
        optimizer: A `torch.optim.Optimizer`, wrapped or not, or its name.
        device: A `torch.device`, or a name of the catalog; by default where the parameters are.
        devices: Devices in all; by default the processes of `torch.distributed` or of the launcher.
        nodes: Hosts; by default as the launcher says.
        limit_s: Time after which a capture of the model is given up [s].
        fields: Other fields of `Request`, layout options among them; None stands for not known.

    Returns:
        The request, and what could not be read. Never raises for what a trainer may be.
    """
    found = Found()
    world, devices = processes(), fields.pop("gpus", None) or devices  # in the words of a request
    found.update(
        gpus=devices or world.size,
        nodes=nodes or (world.nodes if devices in (None, world.size) else None),
        precision=precision,
        framework=fields.pop("framework", None if "stack" in fields else "pytorch"),
        **fields,
    )
    with _same_random_numbers():
        found.ask(lambda to: _read_device(to, model, device), "The device")
        found.ask(lambda to: _read_optimizer(to, optimizer), "The optimizer")
        found.ask(lambda to: _read_model(to, model, batch, forward, loss, limit_s), "The model")
    if found.fields.get("model") is None or found.fields.get("device") is None:
        return Described(None, tuple(found.reasons))
    try:
        return Described(Request.of(found.fields), tuple(found.reasons))
    except PrecisionTimeError as error:
        return Described(None, (*found.reasons, in_one_line(error)))


@contextmanager
def _same_random_numbers() -> Iterator[None]:
    """What is drawn inside is not missing outside: a run that is described draws the same numbers."""
    torch, numpy = sys.modules.get("torch"), sys.modules.get("numpy")
    drawn = random.getstate(), numpy and numpy.random.get_state(), torch and torch.get_rng_state()
    try:
        yield
    finally:
        random.setstate(drawn[0])
        if numpy is not None:
            numpy.random.set_state(drawn[1])
        if torch is not None:
            torch.set_rng_state(drawn[2])


def processes() -> Processes:
    """Of this run, as `torch.distributed` or the environment of the launcher says; one where neither does."""
    torch = sys.modules.get("torch")
    size, rank = _number("WORLD_SIZE", 1), _number("RANK", 0)
    if torch is not None and torch.distributed.is_available() and torch.distributed.is_initialized():
        size, rank = torch.distributed.get_world_size(), torch.distributed.get_rank()
    local = _number("LOCAL_WORLD_SIZE", size if size == 1 else 0)
    return Processes(size=size, rank=rank, nodes=-(-size // local) if local else None)


def _number(variable: str, otherwise: int) -> int:
    text = os.environ.get(variable, "")
    return int(text) if text.isdecimal() and int(text) > 0 else otherwise


def _read_device(found: Found, model: Any, device: Any) -> None:
    """Name of the device in the catalog; a processor that it does not have is described."""
    if isinstance(device, str) and device.partition(":")[0] not in ("cuda", "cpu", "mps", "xla", "meta"):
        found.update(device=device)
        return
    torch = sys.modules.get("torch")
    if device is None and torch is not None and isinstance(model, torch.nn.Module):
        first = next(model.parameters(), None)
        device = None if first is None else first.device
    if torch is None or device is None:
        found.reasons.append("The device is not known: the model has no parameters and none was named.")
        return
    device = torch.device(device)
    if device.type == "cpu":
        from .processor import described_processor

        name, custom = described_processor()
        found.update(device=name, custom=custom)
    elif device.type == "cuda":
        properties = torch.cuda.get_device_properties(device)
        name, note = map_device(properties.name, float(properties.total_memory))
        found.reasons += [note] if note else []
        found.update(device=name or None)
    else:
        found.reasons.append(f"A {device.type} device is in no catalog under that name: name it as device=.")


def _read_optimizer(found: Found, optimizer: Any) -> None:
    if optimizer is None:
        return
    if isinstance(optimizer, str):
        name, fused = optimizer, None
    else:
        while getattr(optimizer, "optimizer", None) not in (None, optimizer):  # Accelerate, Lightning
            optimizer = optimizer.optimizer
        name, fused = _optimizer_name(optimizer), optimizer.defaults.get("fused")
    try:
        found.update(optimizer=canonical_optimizer(name))
    except UnknownNameError:
        found.reasons.append(f"The optimizer {shown(name)} is not priced: the model's usual one is taken.")
        return
    if not isinstance(optimizer, str) and found.fields.get("device") and "custom" not in found.fields:
        found.update(fused_optimizer=bool(fused) or type(optimizer).__name__.startswith("Fused"))


def _optimizer_name(optimizer: Any) -> str:
    """Of a `torch.optim.Optimizer`: its class, and for SGD by its momentum."""
    name = type(optimizer).__name__
    if name != "SGD":
        return name
    if optimizer.defaults.get("nesterov"):
        return "nesterov"
    return _MOMENTUM if optimizer.defaults.get("momentum") else "sgd"


def _read_model(
    found: Found,
    model: Any,
    batch: Any,
    forward: Callable[..., Any] | None,
    loss: Callable[..., Any] | None,
    limit_s: float,
) -> None:
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(model, torch.nn.Module):
        found.update(model=model)
        return
    from .live_model import read_module

    found.update(software=_year(str(torch.__version__)))
    read_module(found, model, batch, forward=forward, loss=loss, limit_s=limit_s)


def _year(version: str) -> float | None:
    """When a version of PyTorch came out, as a decimal year; None for one that the tables do not have."""
    short = ".".join(version.split(".")[:2])
    stated = load_table("years")["pytorch"].get(short)
    return None if stated is None else float(stated)
