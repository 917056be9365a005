"""Models of a user's own to measure: what is asked of them, their operators, and a step of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_leaves, tree_map

from precision_time.capture.inputs import Input, parse_inputs, with_limits
from precision_time.capture.own import load_own
from precision_time.capture.remembered import capture_remembered
from precision_time.capture.sources import split_inputs
from precision_time.capture.step import OwnStep, first_that_runs, loss_in
from precision_time.errors import CaptureError
from precision_time.workload.graph import OpGraph

from .trial import ModelSpec

_ASKED = ("inputs", "seq_len", "image_size", "sizes", "forward", "loss")


def own_spec(source: str, *, optimizer: str = "", **asked: Any) -> tuple[ModelSpec, OpGraph]:
    """A user's own model as `measure` builds it, and its operators as `predict` sees them.

    Args:
        source: file.py:function or package.module:function.
        optimizer: Name; as `predict` assumes where it is empty.
        asked: Arguments of `capture_model`.

    Raises:
        CaptureError: If it cannot be captured.
    """
    graph = capture_remembered(source, **asked)
    text = graph.seq_len is not None
    spec = ModelSpec(
        name=graph.name,
        library="own",
        build={"source": source, **{name: asked[name] for name in _ASKED if asked.get(name)}},
        optimizer=optimizer or ("adamw" if text else "sgd_with_momentum"),
        unit="tokens/s" if text else "samples/s",
        seq_len=graph.seq_len,
    )
    return spec, graph


class OwnLoss(nn.Module):  # type: ignore[misc]
    """A user's own module that is called with a batch and returns a scalar to differentiate."""

    def __init__(self, step: OwnStep, *, num_args: int, names: Sequence[str]) -> None:
        """Wrap the module of a step.

        Args:
            step: What runs of it.
            num_args: How many tensors of a batch are positional arguments.
            names: Of the arguments that the other tensors are.
        """
        super().__init__()
        self.network = step.module
        self._step, self._num_args, self._names = step, num_args, tuple(names)

    def forward(self, *batch: Any) -> Any:
        """The loss of one batch; of a module without one, a mean square over what it returns."""
        named = dict(zip(self._names, batch[self._num_args :], strict=True))
        output = self._step.run(self.network, *batch[: self._num_args], **named)
        loss = loss_in(output)
        if loss is not None:
            return loss
        tensors = [leaf for leaf in tree_leaves(_values(output)) if isinstance(leaf, torch.Tensor)]
        return next(leaf for leaf in tensors if leaf.requires_grad).float().square().mean()


def built_own(spec: ModelSpec, batch_size: int, kind: str) -> tuple[OwnLoss, tuple[Any, ...], int]:
    """The module of a spec in training mode, a batch of random inputs, and how many samples it has.

    Args:
        spec: From `own_spec`, or with the source for its name.
        batch_size: Samples; 0 for as many as its function gives.
        kind: cuda or cpu.

    Raises:
        CaptureError: If it takes none of the inputs that were tried.
    """
    build: Mapping[str, Any] = spec.build
    with torch.device(kind):
        module, given, name = load_own(build.get("source", spec.name), build.get("sizes"))
    step = OwnStep.of(module.to(kind), forward=build.get("forward"), loss=build.get("loss"), name=name)
    inputs = parse_inputs(build.get("inputs", ()))
    example = getattr(module, "example_input_array", None) if given is None and not inputs else given
    if example is not None and not inputs:
        args, kwargs, size = _repeated(split_inputs(example), batch_size, name, kind)
    else:
        if inputs:
            found: tuple[Input, ...] = step.arranged(inputs).inputs
        else:
            stated = {label: build.get(label) for label in ("seq_len", "image_size")}
            found = first_that_runs(module, step, **stated)[0].inputs
        size = batch_size or 1
        limited = with_limits(module, found)
        args, kwargs = step.tensors(limited, lambda item: item.random(size, kind))
    wrapped = OwnLoss(step, num_args=len(args), names=tuple(kwargs))
    return wrapped.to(kind).train(), (*args, *kwargs.values()), size


def _repeated(
    given: tuple[tuple[Any, ...], dict[str, Any]], batch_size: int, name: str, kind: str
) -> tuple[tuple[Any, ...], dict[str, Any], int]:
    """Example inputs with as many samples as asked, the given ones over and over."""
    tensors = [leaf for leaf in tree_leaves(given) if isinstance(leaf, torch.Tensor) and leaf.dim() > 0]
    if not tensors:
        raise CaptureError(f"{name} gave no tensor as input. To fix: return tensors, batch first.")
    own = int(tensors[0].shape[0])
    size = batch_size or own

    def resize(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor):
            return leaf
        if leaf.dim() > 0 and leaf.shape[0] == own and size != own:
            leaf = leaf[torch.arange(size, device=leaf.device) % own]
        return leaf.to(kind)

    args, kwargs = tree_map(resize, given)
    return tuple(args), kwargs, size


def _values(output: Any) -> Any:
    """What an object of named results holds."""
    if isinstance(output, torch.Tensor):
        return output
    return dict(output) if isinstance(output, Mapping) else getattr(output, "__dict__", output)
