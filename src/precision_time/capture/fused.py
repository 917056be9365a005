"""Operators a GPU runs as one kernel, which torch would take apart on the meta device.

Each handler makes the outputs (storage only, no operator recorded) and hands the recorder one call.
A handler returns `NotImplemented` where it leaves the call to torch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

from . import products
from .tape import Call, Tape

Add = Callable[[Callable[[Tape, bool, str], Call]], None]

_GATES = {"lstm": 4, "gru": 3, "rnn_tanh": 1, "rnn_relu": 1}
_LAYER_FUNCTION_ARGS = 9  # arguments of torch.lstm(input, hx, params, ..., batch_first)


def _empty(like: Any, *shape: int) -> Any:
    """A new tensor in the memory layout of `like` where the shape allows it, as fused kernels do."""
    with _disable_current_modes():
        if tuple(shape) == tuple(like.shape):
            return torch.empty_like(like, requires_grad=like.requires_grad)
        return torch.empty(shape, dtype=like.dtype, device=like.device, requires_grad=like.requires_grad)


def attention_call(
    add: Add,
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Any:
    """F.scaled_dot_product_attention as one node, dropout inside the kernel."""
    out = _empty(query, *query.shape[:-1], value.shape[-1])

    def call(tape: Tape, grad: bool, layer: str) -> Call:
        return Call(
            op="scaled_dot_product_attention",
            args=(query, key, value),
            reads=[t for t in (query, key, value, attn_mask) if isinstance(t, torch.Tensor)],
            fresh=[out],
            grad_enabled=grad,
            product=products.attention(tape.table, query, key, value, causal=bool(is_causal)),
            layer=layer,
        )

    add(call)
    return out


def dropout_call(add: Add, data: Any, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:
    """F.dropout as CUDA's one fused kernel."""
    if not training or p == 0.0:
        return data
    out = data if inplace else _empty(data, *data.shape)

    def call(_tape: Tape, grad: bool, layer: str) -> Call:
        return Call(
            op="native_dropout",
            args=(data,),
            reads=[data],
            fresh=[] if inplace else [out],
            written=[data] if inplace else [],
            grad_enabled=grad,
            layer=layer,
        )

    add(call)
    return out


def _recurrent(kind: str) -> Callable[..., Any]:
    def handler(add: Add, *args: Any, **kwargs: Any) -> Any:
        if kwargs or len(args) != _LAYER_FUNCTION_ARGS:
            return NotImplemented
        if isinstance(args[1], torch.Tensor) and isinstance(args[2], torch.Tensor | tuple):
            return _packed(add, kind, *args)
        return _layers(add, kind, *args)

    return handler


def _packed(
    add: Add, kind: str, data: Any, sizes: Any, hx: Any, params: Any, bias: bool, layers: int, p: float,
    train: bool, both: bool,
) -> Any:  # fmt: skip
    """A packed sequence [steps x batch, features]: `sizes` holds one entry per step."""
    steps = int(sizes.shape[0])
    flat, *state = _layers(
        add, kind, data.view(steps, -1, data.shape[-1]), hx, params, bias, layers, p, train, both, False
    )
    return flat.reshape(-1, flat.shape[-1]), *state


def _layers(
    add: Add, kind: str, data: Any, hx: Any, params: Sequence[Any], bias: bool, layers: int, p: float,
    train: bool, both: bool, batch_first: bool,
) -> Any:  # fmt: skip
    """One node per layer and direction; outputs as torch.lstm, torch.gru and torch.rnn_tanh give them."""
    directions = 2 if both else 1
    states = list(hx) if isinstance(hx, (list, tuple)) else [hx]
    hidden = states[0].shape[-1]
    per_cell = len(params) // (layers * directions)
    cells = [params[i : i + per_cell] for i in range(0, len(params), per_cell)]
    for layer in range(layers):
        width = params[layer * directions * per_cell + 1].shape[1]
        outputs = []
        for direction in range(directions):
            out = _empty(data, *data.shape[:-1], width)
            outputs.append(out)
            _add_cell(add, kind, data, cells[layer * directions + direction], out, hidden, batch_first)
        data = outputs[0] if directions == 1 else torch.cat(outputs, -1)
        if layer < layers - 1:
            data = dropout_call(add, data, p, train)
    final = [_state_of(data, state) for state in states]
    return (data, *final)


def _state_of(data: Any, state: Any) -> Any:
    """The last hidden state: a view of the output as far as producers go."""
    need = state.numel()
    flat = data.reshape(-1)
    if flat.numel() >= need:
        return flat[:need].view(state.shape)
    return _empty(data, *state.shape)


def _add_cell(
    add: Add, kind: str, data: Any, weights: Sequence[Any], out: Any, hidden: int, batch_first: bool
) -> None:
    steps = int(data.shape[1 if batch_first else 0])

    def call(tape: Tape, grad: bool, layer: str) -> Call:
        gates = _GATES[kind]
        positions = tape.table.elems(data) / data.shape[-1]
        reserve = positions * hidden * (gates + (kind == "lstm"))
        kept = tape.table.keep(data) + reserve if grad else 0.0
        return Call(
            op=kind,
            args=(data,),
            reads=[data, *weights],
            fresh=[out],
            grad_enabled=grad,
            product=products.recurrent(
                inputs=int(data.shape[-1]),
                hidden=hidden,
                gates=gates,
                steps=steps,
                op=kind,
                sequences=positions / steps,
            ),
            saved_elems=kept,
            layer=layer,
        )

    add(call)


FUSED: dict[str, Callable[..., Any]] = {
    "scaled_dot_product_attention": attention_call,
    "dropout": dropout_call,
    **{kind: _recurrent(kind) for kind in _GATES},
}
