"""One training step of a user's own module: which of its methods runs, on what, and what its loss is."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from ..errors import CaptureError, ConfigError, shown
from ..workload.graph import OpClass, OpGraph
from .inputs import BATCH, Guess, Input, guesses
from .own import load_function
from .recorder import CAPTURE_BATCH, record

_LOSS = "loss"
_OVER_TOKENS = (OpClass.ATTENTION, OpClass.RNN)
_LOGITS = 3
"""Dimensions of the answer of a language model: batch, tokens, words."""
_SHOWN_KEYS = 4

Inputs = tuple[tuple[Any, ...], dict[str, Any]]


@dataclass(slots=True)
class OwnStep:
    """A module, what is run of it, and what the last run returned."""

    module: nn.Module
    name: str
    forward: str | Callable[..., Any] | None = None
    loss: Callable[..., Any] | None = None
    for_loss: int = 0
    """How many of the last positional arguments are the loss function's."""
    returned: str = field(default="", init=False)
    """What the last run returned, where that is no loss."""
    over_words: bool = field(default=False, init=False)
    """Whether a cross entropy over the words was taken for the loss."""

    @classmethod
    def of(
        cls,
        module: nn.Module,
        *,
        name: str,
        forward: str | Callable[..., Any] | None = None,
        loss: str | Callable[..., Any] | None = None,
    ) -> OwnStep:
        """What a user asks of a module.

        Raises:
            ConfigError: If the module has no such method.
            CaptureError: If the loss function cannot be imported.
        """
        if isinstance(forward, str) and not callable(getattr(module, forward, None)):
            methods = [item for item in vars(type(module)) if not item.startswith("_")]
            raise ConfigError(
                f"{name} has no method {forward!r} for forward. It has: {', '.join(methods) or 'none'}. "
                "To fix: name one of them."
            )
        if isinstance(loss, str) and ":" not in loss:
            raise ConfigError(
                f"loss={loss!r} is not module:function. To fix: write it like my_package.losses:mine."
            )
        function = load_function(loss) if isinstance(loss, str) else loss
        return cls(module=module, name=name, forward=forward, loss=function)

    @property
    def usual(self) -> bool:
        """Whether `forward` runs as it is."""
        return self.forward is None and self.loss is None

    @property
    def method(self) -> Callable[..., Any]:
        """What the inputs are handed to."""
        if isinstance(self.forward, str):
            method: Callable[..., Any] = getattr(self.module, self.forward)
            return method
        if callable(self.forward):
            return _without_first(self.forward)
        usual: Callable[..., Any] = self.module.forward
        return usual

    def run(self, module: Any, *args: Any, **kwargs: Any) -> Any:
        """The loss where there is one, else what the module returns; `module` stands for this step's own."""
        split = len(args) - self.for_loss
        called, rest = args[:split], args[split:]
        if isinstance(self.forward, str):
            output = getattr(module, self.forward)(*called, **kwargs)
        elif callable(self.forward):
            output = self.forward(module, *called, **kwargs)
        else:
            output = module(*called, **kwargs)
        self.returned, self.over_words = "", False
        if self.loss is not None:
            return self.loss(output, *rest)
        found = loss_in(output)
        if found is not None:
            return found
        words = _word_loss(output, called, self.module)
        if words is not None:
            self.over_words = True
            return words
        self.returned = described(output, called)
        return output

    def arranged(self, tensors: Sequence[Input]) -> Guess:
        """Inputs as the user named them, in the order in which the step takes them.

        What the forward pass does not take goes to the loss function.

        Raises:
            ConfigError: If a name is of neither.
        """
        parameters = inspect.signature(self.method).parameters
        names = list(parameters)
        taken = [item for item in tensors if not item.name or item.name in names]
        rest = [item for item in tensors if item not in taken]
        needed = [name for name, item in parameters.items() if item.default is item.empty]
        if rest and (self.loss is None or len(taken) < len(needed)):
            raise ConfigError(
                f"forward of {self.name} has no argument {rest[0].name!r}: it takes {', '.join(names)}. "
                "To fix: use one of these, or give the loss function that takes it (loss)."
            )
        placed = [item for item in taken if not item.name]
        named = sorted((item for item in taken if item.name), key=lambda item: names.index(item.name))
        guess = Guess(inputs=(*placed, *named, *rest), assumed=False)
        if not rest:
            return _with_target(self, guess)
        self.for_loss = len(rest)
        return guess

    def captured(self, guess: Guess, *, told: int | None = None, side: int | None = None) -> OpGraph:
        """The graph of a step on some inputs.

        Args:
            guess: Inputs.
            told: Tokens per sample that the caller states.
            side: Side of images that the caller states.

        Raises:
            ConfigError: If a length is stated and the inputs do not have it.
        """
        for label, value in (("seq_len", told), ("image_size", side)):
            sizes = {size for item in guess.inputs for size in item.shape}
            if value is not None and value not in sizes:
                raise ConfigError(
                    f"{label}={value} does not apply to {self.name}, which takes "
                    f"{', '.join(map(str, guess.inputs))}. To fix: leave out {label}, or state the input."
                )
        args, kwargs = self.tensors(guess.inputs, lambda item: item.meta(CAPTURE_BATCH))
        graph = self.recorded(args, kwargs, batch=CAPTURE_BATCH)
        if guess.seq_len is not None or guess.image_size is not None:
            return self.finished(replace(graph, seq_len=guess.seq_len, image_size=guess.image_size), ())
        return self.finished(graph, [*args, *kwargs.values()])

    def tensors(self, inputs: Sequence[Input], make: Callable[[Input], Any]) -> Inputs:
        """Positional arguments with those of the loss function at the end, and those that need a name."""
        made = [(item, make(item)) for item in inputs]
        split = len(made) - self.for_loss
        only_named = {
            name
            for name, item in inspect.signature(self.method).parameters.items()
            if item.default is not item.empty or item.kind is item.KEYWORD_ONLY
        }
        kwargs = {item.name: tensor for item, tensor in made[:split] if item.name in only_named}
        args = [tensor for item, tensor in made[:split] if item.name not in kwargs]
        return (*args, *(tensor for _, tensor in made[split:])), kwargs

    def recorded(self, args: Any, kwargs: Any, *, batch: int) -> OpGraph:
        """The graph of one run."""
        return record(self.module, args, kwargs, name=self.name, batch=batch, call=self.run)

    def finished(self, graph: OpGraph, tensors: Sequence[Any]) -> OpGraph:
        """The graph with its tokens per sample, and what is to be said of its loss and its mode."""
        ids = next((t for t in tensors if isinstance(t, torch.Tensor)), None)
        if ids is not None and graph.seq_len is None and _is_text(ids, graph):
            graph = replace(graph, seq_len=int(ids.shape[1]))
        notes, warnings = [graph.notes], [graph.warnings]
        if self.over_words:
            notes.append(f"{self.name} returns logits: cross entropy over its tokens taken for the loss.")
        elif self.returned:
            notes.append(
                f"{self.name} returns {self.returned} and no loss, so none is priced. To price it: loss, a "
                "function of what it returns (--loss module:function)."
            )
        if not self.module.training:
            warnings.append(evaluation_warning(self.name, "call train() on it"))
        return replace(
            graph, notes="\n".join(filter(None, notes)), warnings="\n".join(filter(None, warnings))
        )


def evaluation_warning(name: str, remedy: str) -> str:
    """What to say of a model that is as for inference."""
    return (
        f"{name} is in evaluation mode: dropout and the statistics of batch normalization are missing from "
        f"the step. To fix: {remedy}."
    )


def guessed(module: nn.Module, step: OwnStep, *, seq_len: int | None, image_size: int | None) -> OpGraph:
    """The graph of a module with the first inputs that it takes.

    Raises:
        CaptureError: If it takes none of those that were tried.
    """
    _, graph = first_that_runs(module, step, seq_len=seq_len, image_size=image_size)
    return graph


def first_that_runs(
    module: nn.Module, step: OwnStep, *, seq_len: int | None, image_size: int | None
) -> tuple[Guess, OpGraph]:
    """The first inputs that a module takes, and its graph with them.

    Raises:
        CaptureError: If it takes none of those that were tried.
    """
    tried: list[str] = []
    first: Exception | None = None
    for guess in guesses(module, step.method, seq_len=seq_len, image_size=image_size):
        completed = _with_target(step, guess)
        try:
            graph = step.captured(completed, told=seq_len, side=image_size)
        except CaptureError as error:
            first = first or error
            tried.append(", ".join(map(str, guess.inputs)))
            continue
        said = ", ".join(map(str, completed.inputs))
        if guess.assumed or len(completed.inputs) > 1:
            note = f"Inputs of {step.name} not given: {said} taken, by its layers (--input to say otherwise)."
            graph = replace(graph, notes="\n".join(filter(None, (note, graph.notes))))
        return completed, graph
    reason = f" Tried without success: {'; '.join(tried[:3])} ({first})" if first is not None else ""
    raise CaptureError(
        f"{step.name} does not say what it takes. To fix: one --input for each argument, such as "
        "ids:int64[B,512] or x:float32[B,3,224,224] with B for the batch; in Python example_inputs (one "
        f"batch of any size); or a function that returns (module, inputs).{reason}"
    )


def _with_target(step: OwnStep, guess: Guess) -> Guess:
    """The inputs, and a target where the loss function takes one."""
    step.for_loss = 0
    if step.loss is None:
        return guess
    try:
        parameters = [*inspect.signature(step.loss).parameters.values()]
    except (TypeError, ValueError):
        return guess
    needed = [
        item for item in parameters if item.default is item.empty and item.kind is item.POSITIONAL_OR_KEYWORD
    ]
    if len(needed) < 2:  # noqa: PLR2004 - what the module returns, and a target
        return guess
    first = guess.inputs[0]
    tokens = not first.dtype.is_floating_point
    shape = first.shape if tokens else (BATCH,)
    target = Input(name="target", dtype=torch.int64, shape=shape, high=first.high)
    step.for_loss = 1
    return replace(guess, inputs=(*guess.inputs, target))


def loss_in(output: Any) -> Any:
    """The loss in what a module returned: a scalar, one that is called loss, or the only scalar."""
    if isinstance(output, torch.Tensor):
        return output if output.dim() == 0 else None
    named = output.get(_LOSS) if isinstance(output, Mapping) else getattr(output, _LOSS, None)
    if isinstance(named, torch.Tensor) and named.dim() == 0:
        return named
    items = output if isinstance(output, tuple | list) else ()
    scalars = [item for item in items if isinstance(item, torch.Tensor) and item.dim() == 0]
    return scalars[0] if len(scalars) == 1 else None


def _word_loss(output: Any, args: Sequence[Any], module: nn.Module) -> Any:
    """Cross entropy of logits over the words of the module, for each token that it was given."""
    logits = output[0] if isinstance(output, tuple | list) and output else output
    if isinstance(logits, Mapping):
        logits = logits.get("logits")
    ids = args[0] if args else None
    words = {layer.num_embeddings for layer in module.modules() if isinstance(layer, nn.Embedding)}
    fits = (
        isinstance(logits, torch.Tensor)
        and isinstance(ids, torch.Tensor)
        and logits.dim() == _LOGITS
        and logits.is_floating_point()
        and not ids.is_floating_point()
        and logits.shape[:2] == ids.shape
        and logits.shape[2] in words
    )
    return functional.cross_entropy(logits.flatten(0, 1), args[0].flatten()) if fits else None


def described(output: Any, args: Sequence[Any]) -> str:
    """What a module returned, in words."""
    if isinstance(output, torch.Tensor):
        batch = next((t.shape[0] for t in args if isinstance(t, torch.Tensor) and t.dim()), None)
        sizes = [BATCH if size == batch else str(size) for size in output.shape]
        return f"a tensor [{','.join(sizes)}]"
    if isinstance(output, Mapping):
        return f"a dict of {', '.join(map(str, [*output][:_SHOWN_KEYS]))}"
    if isinstance(output, tuple | list):
        return f"{len(output)} values"
    return f"a {type(output).__name__}"


def _is_text(ids: Any, graph: OpGraph) -> bool:
    """Whether the first input are token ids that attention or a recurrent layer reads."""
    whole = not ids.is_floating_point() and ids.dim() == 2  # noqa: PLR2004 - (batch, tokens)
    return whole and any(node.op_class in _OVER_TOKENS for node in graph.nodes)


def _without_first(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of module and inputs, with the signature of its inputs."""
    parameters = [*inspect.signature(function).parameters.values()][1:]

    def of_inputs(*args: Any, **kwargs: Any) -> Any:
        raise CaptureError(f"{shown(function)} needs its module.")

    of_inputs.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return of_inputs
