"""Operators as they occur in training: what each shape means, and how each is called."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from precision_time.errors import ConfigError

from ..execution import Call
from . import float8

Shape = Mapping[str, Any]
DTYPES = {
    "fp32": torch.float32,
    "tf32": torch.float32,
    "fp16": torch.float16,
    "bf16": torch.bfloat16,
    "fp8": torch.bfloat16,
}
"""Type in which the operands of a trial are held before fp8 casts."""
_LEARNING_RATE = 1e-6
_DROPOUT = 0.1
_PATTERN_BYTES = 2**20
"""Random bytes that larger copies repeat: drawing gigabytes on the host takes longer than the copies."""
_SDPA = {
    "flash": SDPBackend.FLASH_ATTENTION,
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
    "cudnn": SDPBackend.CUDNN_ATTENTION,
    "math": SDPBackend.MATH,
}
_ELEMENTWISE: dict[str, Callable[..., Any]] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "silu": F.silu,
    "tanh": torch.tanh,
    "add": torch.add,
    "mul": torch.mul,
    "dropout": lambda x: F.dropout(x, _DROPOUT),
    "softmax": lambda x: F.softmax(x, dim=-1),
}
_BINARY = frozenset({"add", "mul"})


@dataclass(frozen=True, kw_only=True, slots=True)
class Case:
    """One operator with its operands."""

    forward: Call
    leaves: tuple[Any, ...] = ()
    """Tensors whose gradients the backward pass computes."""
    held: tuple[Any, ...] = ()
    """Further operands."""
    graph: bool = True
    """Whether a CUDA graph may replay it: not where the host's work is what is measured."""
    parts: int = 1
    """Equal parts of one call: the figure is for one of them."""

    @property
    def bytes(self) -> float:
        """What the operands take in memory."""
        return float(sum(t.numel() * t.element_size() for t in (*self.leaves, *self.held)))


@dataclass(frozen=True, kw_only=True, slots=True)
class Maker:
    """Makes operands of one type on one device."""

    dtype: Any
    kind: str
    """cuda or cpu."""
    fp8: bool = False

    def real(self, *shape: int, grad: bool = True) -> Any:
        """Normal random numbers: zeros would run faster than data does."""
        return torch.randn(*shape, device=self.kind, dtype=self.dtype, requires_grad=grad)

    def index(self, high: int, *shape: int) -> Any:
        """Random whole numbers below `high`."""
        return torch.randint(high, shape, device=self.kind)


def build_case(op: str, dtype: str, shape: Shape, kind: str) -> Case:
    """Operands of an operator on a device.

    Raises:
        ConfigError: If there is no such operator, or its shape lacks a size.
    """
    builder = _BUILDERS.get(op)
    if builder is None:
        raise ConfigError(f"No operator {op!r} can be measured. To fix: use one of {', '.join(_BUILDERS)}.")
    make = Maker(dtype=DTYPES[dtype], kind=kind, fp8=dtype == "fp8")
    try:
        case = builder(shape, make)
    except KeyError as error:
        raise ConfigError(f"The shape {dict(shape)} of {op} lacks {error}. To fix: state it.") from error
    if not shape.get("compiled"):
        return case
    return Case(forward=torch.compile(case.forward), leaves=case.leaves, held=case.held, graph=case.graph)


def call_of(case: Case, phase: str) -> Call:
    """What one call of the phase does.

    Raises:
        ConfigError: If the operator has no such phase.
    """
    if phase != "bwd":
        return case.forward
    if not case.leaves:
        raise ConfigError("An operator without gradients has no phase bwd. To fix: measure fwd or step.")
    out = case.forward()
    gradient = torch.randn_like(out)

    def backward() -> None:
        torch.autograd.grad(out, case.leaves, gradient, retain_graph=True)

    return backward


def _linear(shape: Shape, make: Maker) -> Case:
    rows, n, k = int(shape.get("B", 1)) * shape["M"], shape["N"], shape["K"]
    if make.fp8:
        a, scale_a = float8.quantize(make.real(rows, k, grad=False), float8.E4M3)
        b, scale_b = float8.quantize(make.real(n, k, grad=False), float8.E4M3)
        return Case(forward=lambda: float8.fp8_matmul(a, b.t(), scale_a, scale_b), held=(a, b))
    x, weight = make.real(rows, k), make.real(n, k)
    return Case(forward=lambda: F.linear(x, weight), leaves=(x, weight))


def _bmm(shape: Shape, make: Maker) -> Case:
    a = make.real(shape["B"], shape["M"], shape["K"])
    b = make.real(shape["B"], shape["K"], shape["N"])
    return Case(forward=lambda: torch.bmm(a, b), leaves=(a, b))


def _image(shape: Shape, make: Maker, *sizes: int) -> Any:
    """An operand of four dimensions in the memory format of the shape."""
    layout = torch.channels_last if shape.get("layout") == "nhwc" else torch.contiguous_format
    return make.real(*sizes, grad=False).to(memory_format=layout).requires_grad_()


def _conv(shape: Shape, make: Maker) -> Case:
    channels, groups = shape["C"], shape.get("groups", 1)
    x = _image(shape, make, shape["N"], channels, shape["H"], shape["H"])
    weight = _image(shape, make, shape["K"], channels // groups, shape["R"], shape["R"])
    stride, padding = shape.get("stride", 1), shape.get("pad", 0)
    return Case(
        forward=lambda: F.conv2d(x, weight, stride=stride, padding=padding, groups=groups),
        leaves=(x, weight),
    )


def _attention(shape: Shape, make: Maker) -> Case:
    """B sequences of T tokens, H heads of size D; kernel flash, efficient, cudnn, math or unfused."""
    batch, heads, tokens, size = shape["B"], shape["H"], shape["T"], shape["D"]
    shared = shape.get("kv_heads", heads)
    causal, kernel = bool(shape.get("causal")), shape["kernel"]
    q = make.real(batch, heads, tokens, size)
    k, v = make.real(batch, shared, tokens, size), make.real(batch, shared, tokens, size)
    if kernel == "unfused":
        mask = torch.ones(tokens, tokens, dtype=torch.bool, device=make.kind).triu(1)

        def unfused() -> Any:
            scores = q @ k.transpose(2, 3) / math.sqrt(size)
            scores = scores.masked_fill(mask, -math.inf) if causal else scores
            return F.softmax(scores, dim=-1) @ v

        return Case(forward=unfused, leaves=(q, k, v), held=(mask,))

    def fused() -> Any:
        with sdpa_kernel(_SDPA[kernel]):
            return F.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=shared != heads)

    return Case(forward=fused, leaves=(q, k, v))


def _norm(shape: Shape, make: Maker) -> Case:
    """Over the last dimension of B x H; kind layer or rms."""
    size = shape["H"]
    x, weight = make.real(shape["B"], size), make.real(size)
    if shape["kind"] == "rms":
        return Case(forward=lambda: F.rms_norm(x, (size,), weight), leaves=(x, weight))
    bias = make.real(size)
    return Case(forward=lambda: F.layer_norm(x, (size,), weight, bias), leaves=(x, weight, bias))


def _batch_norm(shape: Shape, make: Maker) -> Case:
    x = _image(shape, make, shape["N"], shape["C"], shape["H"], shape["H"])
    fp32 = Maker(dtype=torch.float32, kind=make.kind)
    weight, bias = fp32.real(shape["C"]), fp32.real(shape["C"])
    mean, variance = fp32.real(shape["C"], grad=False), fp32.real(shape["C"], grad=False).abs()
    return Case(
        forward=lambda: F.batch_norm(x, mean, variance, weight, bias, training=True),
        leaves=(x, weight, bias),
    )


def _elementwise(op: str) -> Callable[[Shape, Maker], Case]:
    function = _ELEMENTWISE[op]

    def build(shape: Shape, make: Maker) -> Case:
        operands = tuple(make.real(shape["B"], shape["H"]) for _ in range(2 if op in _BINARY else 1))
        return Case(forward=lambda: function(*operands), leaves=operands)

    return build


def _fused_chain(shape: Shape, make: Maker) -> Case:
    """Bias, GELU, dropout and residual sum: four kernels, or what a compiler makes of them."""
    rows, width = shape["B"], shape["H"]
    x, bias, rest = make.real(rows, width), make.real(width), make.real(rows, width)
    return Case(forward=lambda: rest + F.dropout(F.gelu(x + bias), _DROPOUT), leaves=(x, bias, rest))


def _cross_entropy(shape: Shape, make: Maker) -> Case:
    logits, labels = make.real(shape["B"], shape["V"]), make.index(shape["V"], shape["B"])
    return Case(forward=lambda: F.cross_entropy(logits, labels), leaves=(logits,), held=(labels,))


def _embedding(shape: Shape, make: Maker) -> Case:
    table, tokens = make.real(shape["V"], shape["H"]), make.index(shape["V"], shape["B"])
    return Case(forward=lambda: F.embedding(tokens, table), leaves=(table,), held=(tokens,))


def _rnn(op: str) -> Callable[[Shape, Maker], Case]:
    def build(shape: Shape, make: Maker) -> Case:
        hidden = shape["hidden"]
        cell = {"rnn_lstm": torch.nn.LSTM, "rnn_gru": torch.nn.GRU}[op]
        layer = cell(hidden, hidden, shape.get("layers", 1)).to(device=make.kind, dtype=make.dtype)
        x = make.real(shape["T"], shape["N"], hidden)
        return Case(forward=lambda: layer(x)[0], leaves=(x, *layer.parameters()))

    return build


def _optimizer(shape: Shape, make: Maker) -> Case:
    """One step over `param_tensors` equal tensors; impl fused, foreach or for-loop."""
    tensors = _equal_tensors(shape, make)
    choice = {"fused": {"fused": True}, "foreach": {"foreach": True}, "for-loop": {"foreach": False}}
    options: dict[str, Any] = {"lr": _LEARNING_RATE, **choice[shape["impl"]]}
    optimizer: Any
    if shape["optimizer"] == "sgd":
        optimizer = torch.optim.SGD(tensors, momentum=0.9, **options)
    else:
        optimizer = torch.optim.AdamW(tensors, **options)
    return Case(forward=optimizer.step, held=tuple(tensors), graph=False)


def _equal_tensors(shape: Shape, make: Maker) -> list[Any]:
    """Tensors with gradients that hold `params` elements between them."""
    count = shape["param_tensors"]
    tensors = [make.real(int(shape["params"] // count)) for _ in range(count)]
    for tensor in tensors:
        tensor.grad = torch.randn_like(tensor)
    return tensors


def _grad_scaler(shape: Shape, make: Maker) -> Case:
    """Part unscale: the kernels over all gradients; whole: with the host's look at the result."""
    tensors = _equal_tensors(shape, make)
    if shape["part"] == "unscale":
        found = torch.zeros((), device=make.kind)
        inverse = torch.ones((), device=make.kind)
        gradients = [tensor.grad for tensor in tensors]

        def unscale() -> None:
            torch._amp_foreach_non_finite_check_and_unscale_(gradients, found, inverse)

        return Case(forward=unscale, held=tuple(gradients))
    optimizer: Any = torch.optim.SGD(tensors, lr=_LEARNING_RATE)
    optimizer.step = lambda: None  # the optimizer is measured by other trials
    scaler = torch.amp.GradScaler(make.kind, init_scale=1.0)
    scaler.scale(torch.ones((), device=make.kind))

    def whole() -> None:
        scaler.unscale_(optimizer)
        scaler.step(optimizer)
        scaler.update()

    return Case(forward=whole, held=tuple(tensors), graph=False)


def _cast(shape: Shape, make: Maker) -> Case:
    """From the trial's type to another; to fp8 with the search for the largest element."""
    x = make.real(shape["elements"], grad=False)
    if shape["to"] == "fp8":
        return Case(forward=lambda: float8.quantize(x, float8.E4M3), held=(x,))
    target = DTYPES[shape["to"]]
    return Case(forward=lambda: x.to(target), held=(x,))


def _copy(shape: Shape, make: Maker) -> Case:
    """Bytes within the device (d2d), or from pinned host memory (h2d)."""
    size, way = shape["bytes"], shape["way"]
    target = torch.empty(size, dtype=torch.uint8, device=make.kind)
    pattern = torch.randint(256, (min(size, _PATTERN_BYTES),), dtype=torch.uint8)
    source = pattern.to(make.kind if way == "d2d" else "cpu").repeat(math.ceil(size / len(pattern)))[:size]
    source = source.pin_memory() if way == "h2d" and make.kind == "cuda" else source
    return Case(forward=lambda: target.copy_(source, non_blocking=True), held=(target, source), graph=False)


def _launch(shape: Shape, make: Maker) -> Case:
    """Empty kernels: started by the host one by one (eager) or replayed; on one tensor or on many."""
    count = shape["kernels"]
    own = count if shape["chain"] == "independent" else 1
    tensors = [make.real(1, grad=False) for _ in range(own)]

    def launch() -> None:
        for index in range(count):
            tensors[index % own].add_(1.0)

    return Case(forward=launch, held=tuple(tensors), graph=shape["mode"] == "graph", parts=count)


def _sync(shape: Shape, make: Maker) -> Case:
    """A kernel and the host's wait for its result."""
    del shape
    x = make.real(1, grad=False)
    return Case(forward=lambda: x.add_(1.0).item(), held=(x,), graph=False)


def _host(shape: Shape, make: Maker) -> Case:
    """What eager PyTorch spends on a layer whose kernels take no time: module, dispatcher, autograd."""
    width = shape["width"]
    layers: dict[str, Callable[[], Any]] = {
        "linear": lambda: torch.nn.Linear(width, width),
        "layer_norm": lambda: torch.nn.LayerNorm(width),
        "gelu": torch.nn.GELU,
        "conv": lambda: torch.nn.Conv2d(width, width, 3, padding=1),
        "batch_norm": lambda: torch.nn.BatchNorm2d(width),
    }
    layer = layers[shape["call"]]().to(device=make.kind, dtype=make.dtype)
    images = shape["call"] in ("conv", "batch_norm")
    x = make.real(2, width, 4, 4) if images else make.real(2, width)
    return Case(forward=lambda: layer(x), leaves=(x, *layer.parameters()), graph=False)


_BUILDERS: dict[str, Callable[[Shape, Maker], Case]] = {
    "linear": _linear,
    "bmm": _bmm,
    "conv": _conv,
    "attention": _attention,
    "norm": _norm,
    "batch_norm": _batch_norm,
    "fused_chain": _fused_chain,
    "cross_entropy": _cross_entropy,
    "embedding": _embedding,
    "optimizer": _optimizer,
    "grad_scaler": _grad_scaler,
    "cast": _cast,
    "copy": _copy,
    "launch": _launch,
    "sync": _sync,
    "host": _host,
    **{op: _conv for op in ("grouped_conv", "depthwise_conv")},
    **{op: _elementwise(op) for op in _ELEMENTWISE},
    **{op: _rnn(op) for op in ("rnn_lstm", "rnn_gru")},
}
"""Operator that can be measured -> its operands."""
