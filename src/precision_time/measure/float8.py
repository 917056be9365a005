"""Linear layers with fp8 products, scaled per tensor by what the tensor holds now (tensorwise, current).

The formats of Micikevicius et al. 2022 (FP8 formats for deep learning): e4m3 forwards, e5m2 for gradients.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch

E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2
ALIGNMENT = 16
"""Sizes of an fp8 product are multiples of this."""
_LARGEST = {E4M3: 448.0, E5M2: 57344.0}
_SMALLEST_AMAX = 1e-12
_WIDE = frozenset({"lm_head", "head", "cls", "classifier", "pooler", "fc", "score"})
"""Parts of names of output layers, which recipes leave in 16 bits."""


def quantize(tensor: Any, dtype: Any) -> tuple[Any, Any]:
    """`tensor` in fp8 and the factor that undoes its scaling (fp32 scalar)."""
    amax = tensor.abs().amax().float().clamp(min=_SMALLEST_AMAX)
    scale = _LARGEST[dtype] / amax
    limit = _LARGEST[dtype]
    return (tensor * scale.to(tensor.dtype)).clamp(-limit, limit).to(dtype), scale.reciprocal()


def fp8_product(a: Any, b: Any, scale_a: Any, scale_b: Any) -> Any:
    """A (m x k, rows contiguous) times b (k x n, columns contiguous), in bf16."""
    return torch._scaled_mm(a, b, scale_a=scale_a, scale_b=scale_b, out_dtype=torch.bfloat16)


def columns_contiguous(matrix: Any) -> Any:
    """The same matrix, stored by columns."""
    return matrix.t().contiguous().t()


class _Fp8Linear(torch.autograd.Function):  # type: ignore[misc]
    """y = x w^T with all three products of training in fp8."""

    @staticmethod
    def forward(ctx: Any, x: Any, weight: Any) -> Any:
        """X (m x k), weight (n x k)."""
        x8, x_scale = quantize(x, E4M3)
        w8, w_scale = quantize(weight, E4M3)
        ctx.save_for_backward(x8, x_scale, w8, w_scale)
        ctx.held = weight.dtype
        return fp8_product(x8, w8.t(), x_scale, w_scale)

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        """Gradients of x and weight."""
        x8, x_scale, w8, w_scale = ctx.saved_tensors
        g8, g_scale = quantize(gradient.contiguous(), E5M2)
        of_x = fp8_product(g8, columns_contiguous(w8), g_scale, w_scale)
        of_weight = fp8_product(g8.t().contiguous(), columns_contiguous(x8), g_scale, x_scale)
        return of_x, of_weight.to(ctx.held)


def _forward(module: Any, x: Any) -> Any:
    rows = x.reshape(-1, x.shape[-1]).to(torch.bfloat16)
    out = _Fp8Linear.apply(rows, module.weight)
    out = out.reshape(*x.shape[:-1], out.shape[-1])
    return out if module.bias is None else out + module.bias.to(out.dtype)


def with_fp8_linears(model: Any) -> int:
    """Let the linear layers of `model` multiply in fp8, in place. Returns how many do."""
    changed = 0
    for name, module in model.named_modules():
        wide = bool(_WIDE.intersection(name.split(".")))
        if type(module) is not torch.nn.Linear or wide:
            continue
        if module.in_features % ALIGNMENT or module.out_features % ALIGNMENT:
            continue
        module.forward = partial(_forward, module)
        changed += 1
    return changed
