"""`record`: one forward pass on meta tensors becomes an `OpGraph`; no weights, no GPU.

A dispatch mode sees every aten operator; a function mode keeps what a GPU runs as one fused kernel
(scaled dot-product attention, dropout, recurrent layers) from being taken apart before.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

import torch
from torch.nn import functional
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from ..errors import CaptureError
from ..workload.graph import OpGraph
from .constants import Constants
from .fold import fold_repeats
from .fused import FUSED, attention_call, dropout_call
from .tape import Call, Tape, plain_name
from .values import ValueTable

CAPTURE_BATCH = 101
"""A prime: what is a multiple of it grows with the batch."""

_ALIASES = frozenset(
    {"_unsafe_view", "detach", "alias", "lift_fresh", "_reshape_alias", "unsafe_split", "as_strided"}
    | {"squeeze", "unsqueeze", "t", "transpose", "view_as_real", "view_as_complex", "view"}
)
_FACTORIES = frozenset(
    {"empty_like", "zeros_like", "ones_like", "full_like", "new_empty", "new_zeros", "new_ones", "new_full"}
    | {"new_empty_strided", "empty_strided", "rand_like", "randn_like", "randint_like"}
)


def record(
    module: Callable[..., Any],
    example_inputs: Sequence[Any] = (),
    example_kwargs: Mapping[str, Any] | None = None,
    *,
    name: str,
    batch: int = CAPTURE_BATCH,
    fold: bool = True,
    call: Callable[..., Any] | None = None,
) -> OpGraph:
    """Runs one forward pass and writes down its operators.

    Args:
        module: A module (its tensors are replaced by meta tensors, the original is left alone) or any
            callable of tensors.
        example_inputs: Positional arguments for a batch of `batch` samples; tensors of any device,
            only their shapes and dtypes are used.
        example_kwargs: Keyword arguments, likewise.
        name: Name of the graph.
        batch: The batch size of the example: a prime, so that it shows in every size it enters.
        fold: Write identical consecutive blocks once.
        call: What to run in the place of the module's `forward`: called with the copy of the module on meta
            tensors and the inputs.

    Returns:
        The graph of a batch of one sample, the batch being a symbol.

    Raises:
        CaptureError: If the forward pass cannot run without data: names the operator and the remedy.
    """
    inputs, kwargs = _to_meta(tuple(example_inputs)), _to_meta(dict(example_kwargs or {}))
    model = _meta_copy(module) if isinstance(module, torch.nn.Module) else module
    tape = Tape(table=ValueTable(batch))
    paths = _register_module(tape, model)
    input_bytes = _register_inputs(tape, name, (inputs, kwargs))
    recorder = _Recorder(tape)
    try:
        with ExitStack() as stack:
            stack.enter_context(torch.device("meta"))
            stack.enter_context(_module_paths(recorder, paths))
            stack.enter_context(_FusedOps(recorder))
            stack.enter_context(recorder)
            if call is None:
                model(*inputs, **kwargs)
            else:
                call(model, *inputs, **kwargs)
    except CaptureError:
        raise
    except Exception as error:
        raise CaptureError(
            f"Model {name!r} cannot run on meta tensors: {type(error).__name__} "
            f"{str(error).splitlines()[0] if str(error) else ''} after operator {recorder.last_op!r} in "
            f"module {recorder.layer!r}. A forward pass may not read tensor values (.item(), nonzero, data-"
            "dependent loops). To fix: pass a module that does without the data-dependent part."
        ) from error
    graph = OpGraph(
        name=name,
        nodes=tuple(tape.nodes),
        unpriced=dict(tape.unpriced),
        input_bytes_per_sample=input_bytes,
        **_param_totals(model),
    )
    return fold_repeats(graph) if fold else graph


def _to_meta(tree: Any) -> Any:
    def convert(leaf: Any) -> Any:
        return torch.empty_like(leaf, device="meta") if isinstance(leaf, torch.Tensor) else leaf

    return torch.utils._pytree.tree_map(convert, tree)


def _meta_copy(module: torch.nn.Module) -> torch.nn.Module:
    """The module with every tensor on the meta device; no weight is read or copied."""
    memo: dict[int, Any] = {}
    for tensor in itertools.chain(module.parameters(), module.buffers()):
        if isinstance(tensor, torch.nn.Parameter):
            meta = torch.nn.Parameter(torch.empty_like(tensor, device="meta"), tensor.requires_grad)
        else:
            meta = torch.empty_like(tensor, device="meta")
        memo[id(tensor)] = meta
    for sub in module.modules():
        for tensor in tree_leaves([v for k, v in vars(sub).items() if k not in ("_parameters", "_buffers")]):
            if isinstance(tensor, torch.Tensor) and id(tensor) not in memo:
                memo[id(tensor)] = torch.empty_like(tensor, device="meta")
    return copy.deepcopy(module, memo)


def _register_module(tape: Tape, model: Any) -> dict[int, str]:
    if not isinstance(model, torch.nn.Module):
        return {}
    for path, parameter in model.named_parameters():
        tape.add_param(path, parameter)
    for buffer in model.buffers():
        tape.add_buffer(buffer)
    return {id(sub): path for path, sub in model.named_modules()}


def _register_inputs(tape: Tape, name: str, tree: Any) -> float:
    """Bytes per sample of the inputs that grow with the batch."""
    tensors = [leaf for leaf in tree_leaves(tree) if isinstance(leaf, torch.Tensor)]
    for tensor in tensors:
        tape.add_input(tensor)
    growing = [t for t in tensors if tape.table.scales(t)]
    if not growing:
        raise CaptureError(
            f"Model {name!r}: no input tensor has a size that is a multiple of the capture batch "
            f"{tape.table.batch}, shapes are {[tuple(t.shape) for t in tensors]}. To fix: build the example "
            f"inputs for {tape.table.batch} samples."
        )
    return float(sum(t.numel() * t.element_size() for t in growing)) / tape.table.batch


def _param_totals(model: Any) -> dict[str, Any]:
    parameters = list(model.parameters()) if isinstance(model, torch.nn.Module) else []
    trainable = [p for p in parameters if p.requires_grad]
    return {
        "params": float(sum(p.numel() for p in parameters)),
        "trainable_params": float(sum(p.numel() for p in trainable)),
        "param_tensors": len(trainable),
    }


@contextmanager
def _module_paths(recorder: _Recorder, paths: Mapping[int, str]) -> Iterator[None]:
    """Keeps the recorder informed of which module is running."""
    stack: list[str] = []

    def enter(module: torch.nn.Module, _inputs: Any) -> None:
        stack.append(paths.get(id(module), stack[-1] if stack else ""))
        recorder.layer = stack[-1]

    def leave(_module: torch.nn.Module, _inputs: Any, _output: Any) -> None:
        stack.pop()
        recorder.layer = stack[-1] if stack else ""

    before = torch.nn.modules.module.register_module_forward_pre_hook(enter)
    after = torch.nn.modules.module.register_module_forward_hook(leave)
    try:
        yield
    finally:
        before.remove()
        after.remove()


class _Recorder(TorchDispatchMode):
    """Sees every aten operator below autograd."""

    def __init__(self, tape: Tape) -> None:
        super().__init__()
        self.tape = tape
        self.constants = Constants()
        self.layer = ""
        self.last_op = ""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        args, kwargs = self.constants.adopt((args, kwargs or {}))
        op = plain_name(func._schema.name)
        self.last_op = op
        real = self.constants.compute(func, args, kwargs)
        if op == "_local_scalar_dense" and real is not None:
            return real
        out = self._run(func, args, kwargs, real)
        if real is not None:
            self.constants.link(out, real)
        reads = _tensors((args, kwargs))
        results = _tensors(out)
        if op in _ALIASES and reads:
            for tensor in results:
                if not self.tape.table.known(tensor):
                    self.tape.table.put(tensor, self.tape.table.of(reads[0]))
            return out
        if op in _FACTORIES or not reads:
            for tensor in results:
                self.tape.add_constant(tensor)
            return out
        written = _written(func, args, kwargs)
        owned = {ValueTable.key(t) for t in reads}
        fresh = [t for t in results if ValueTable.key(t) not in owned]
        if fresh or written:
            values = [
                kwargs.get(a.name, args[i] if i < len(args) else a.default_value)
                for i, a in enumerate(func._schema.arguments)
            ]
            self.tape.record(
                Call(
                    op=op,
                    args=values,
                    reads=_overwritten_are_not_read(op, reads, written),
                    fresh=fresh,
                    written=written,
                    grad_enabled=torch.is_grad_enabled(),
                    layer=self.layer,
                )
            )
        return out

    def _run(self, func: Any, args: Any, kwargs: Any, real: Any) -> Any:
        """The operator on meta tensors; sizes that depend on constant values come from these."""
        shapes = _SHAPES.get(func._schema.name)
        if shapes is not None:
            return shapes(args)
        try:
            return func(*args, **kwargs)
        except (RuntimeError, NotImplementedError):
            if real is None:
                raise
            return _to_meta(real)


def _grouped_mm_shape(args: Any) -> Any:
    """Its meta kernel refuses float32, which mixed precision never shows it."""
    return args[0].new_empty(args[0].shape[0], args[1].shape[-1])


def _batch_norm_shape(args: Any) -> Any:
    """Its meta kernel is a slow decomposition."""
    data = args[0]
    channels = data.shape[1]
    return torch.empty_like(data), data.new_empty(channels), data.new_empty(channels)


_SHAPES: dict[str, Callable[[Any], Any]] = {
    "aten::_grouped_mm": _grouped_mm_shape,
    "aten::native_batch_norm": _batch_norm_shape,
}


def _tensors(tree: Any) -> list[Any]:
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, torch.Tensor)]


def _written(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
    written = []
    for index, argument in enumerate(func._schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            value = args[index] if index < len(args) else kwargs.get(argument.name)
            written.extend(_tensors(value))
    return written


def _overwritten_are_not_read(op: str, reads: list[Any], written: list[Any]) -> list[Any]:
    """`copy_`, `fill_` and the like only write their target."""
    if op in ("copy", "fill", "zero_stage", "bernoulli", "uniform", "normal") and written:
        return [t for t in reads if t is not written[0]]
    return reads


class _FusedOps(TorchFunctionMode):
    """Keeps operators whole that a GPU runs as one kernel."""

    def __init__(self, recorder: _Recorder) -> None:
        super().__init__()
        self.recorder = recorder

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        handler = FUSED.get(name)
        if handler is not None:
            out = handler(self._add, *args, **kwargs)
            if out is not NotImplemented:
                return out
        if func is functional.multi_head_attention_forward:
            return self._multi_head(func, args, kwargs)
        return func(*args, **kwargs)

    def _multi_head(self, func: Any, args: Any, kwargs: Any) -> Any:
        """The functions it calls are resolved inside torch, where this mode is off."""

        def attend(*a: Any, **k: Any) -> Any:
            return attention_call(self._add, *a, **k)

        def drop(data: Any, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:
            return dropout_call(self._add, data, p, training, inplace)

        with (
            mock.patch.object(functional, "scaled_dot_product_attention", attend),
            mock.patch.object(functional, "dropout", drop),
        ):
            return func(*args, **kwargs)

    def _add(self, make_call: Callable[[Tape, bool, str], Call | None]) -> None:
        tape = self.recorder.tape
        call = make_call(tape, torch.is_grad_enabled(), self.recorder.layer)
        if call is not None:
            tape.record(call)
