"""A Keras model with the torch backend as a module that can be captured: its weights are arguments of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import torch


class _Meta(str):
    """The name of the meta device, equal to the device: Keras compares them, and else copies each weight."""

    __slots__ = ()
    __hash__ = str.__hash__

    def lower(self) -> _Meta:
        return self

    def __eq__(self, other: object) -> bool:
        return str(other) == "meta"

    def __ne__(self, other: object) -> bool:
        return str(other) != "meta"


_META = _Meta("meta")


class _Stateless(torch.nn.Module):  # type: ignore[misc]
    """Weights of a Keras model on the meta device, and the model run with them in the place of its own.

    Keras copies a model by saving it, so that a copy has other weights: its layers are shared instead, in a
    scope in which nothing that they update is kept.
    """

    def __init__(self, model: Any) -> None:
        super().__init__()
        frozen = {id(v) for layer in model._flatten_layers() if not layer.trainable for v in layer.weights}
        trained = {id(variable) for variable in model.trainable_variables}
        self._names: list[str] = []
        for index, variable in enumerate(model.variables):
            value = variable.value
            empty = torch.empty(tuple(value.shape), dtype=value.dtype, device="meta")
            self._names.append(f"weight_{index}")
            if id(variable) in trained or (id(variable) in frozen and value.is_floating_point()):
                weight = torch.nn.Parameter(empty, requires_grad=id(variable) in trained)
                self.register_parameter(self._names[-1], weight)
            else:
                self.register_buffer(self._names[-1], empty)

        def run(values: list[Any], call: Callable[[], Any]) -> Any:
            state = list(zip(model.variables, values, strict=True))
            with keras.device(_META), keras.StatelessScope(state_mapping=state):
                return call()

        self._run, self._call, self._loss = run, model.__call__, model.compute_loss

    def __deepcopy__(self, memo: dict[int, Any]) -> _Stateless:
        bare = self.__class__.__new__(self.__class__)
        bare.__dict__.update(self.__dict__)
        for kind in ("_parameters", "_buffers"):
            held = self.__dict__[kind].items()
            bare.__dict__[kind] = {name: memo.get(id(value), value) for name, value in held}
        return bare

    def forward(self, *inputs: Any) -> Any:
        """What the model computes in training."""
        values = [getattr(self, name) for name in self._names]
        return self._run(values, lambda: self._call(*inputs, training=True))

    def loss(self, inputs: Any, targets: Any) -> Any:
        """The loss of a batch."""
        values = [getattr(self, name) for name in self._names]

        def whole() -> Any:
            return self._loss(x=inputs, y=targets, y_pred=self._call(inputs, training=True))

        return self._run(values, whole)


def module_of(model: Any, batch: Any) -> tuple[Any, Callable[..., Any] | None, Any]:
    """A model, how a step of it is run, and the batch that this takes.

    Args:
        model: Built and compiled.
        batch: Inputs, targets and weights as `fit` has them.
    """
    named = type(str(model.name), (_Stateless,), {})(model)
    inputs, targets = (*batch, None)[:2] if isinstance(batch, list | tuple) else (batch, None)
    if targets is None:
        return named, None, (inputs,)
    return named, lambda module, given: module.loss(*given), (inputs, targets)
