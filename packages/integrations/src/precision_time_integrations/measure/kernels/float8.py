"""Linear layers with fp8 GEMMs, scaled per tensor by what the tensor holds now (tensorwise, current).

The formats of Micikevicius et al. 2022 (FP8 formats for deep learning): e4m3 forwards, e5m2 for gradients.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch

E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2
ALIGNMENT = 16
"""Sizes of an fp8 GEMM are multiples of this."""
_SMALLEST_AMAX = 1e-12
_HIGH_PRECISION = frozenset({"lm_head", "head", "cls", "classifier", "pooler", "fc", "score"})
"""Parts of names of output layers, which recipes leave in 16 bits."""


def quantize(tensor: Any, dtype: Any) -> tuple[Any, Any]:
    """`tensor` in fp8 and the factor that undoes its scaling (fp32 scalar)."""
    amax = tensor.abs().amax().float().clamp(min=_SMALLEST_AMAX)
    limit = torch.finfo(dtype).max
    scale = limit / amax
    return (tensor * scale.to(tensor.dtype)).clamp(-limit, limit).to(dtype), scale.reciprocal()


def fp8_matmul(a: Any, b: Any, scale_a: Any, scale_b: Any) -> Any:
    """A (m x k, rows contiguous) times b (k x n, columns contiguous), in bf16."""
    return torch._scaled_mm(a, b, scale_a=scale_a, scale_b=scale_b, out_dtype=torch.bfloat16)


def columns_contiguous(matrix: Any) -> Any:
    """The same matrix, stored by columns."""
    return matrix.t().contiguous().t()


class Fp8Linear(torch.autograd.Function):  # type: ignore[misc]
    """y = x w^T with all three GEMMs of training in fp8."""

    @staticmethod
    def forward(ctx: Any, x: Any, weight: Any) -> Any:
        """X (m x k), weight (n x k)."""
        x8, x_scale = quantize(x, E4M3)
        w8, w_scale = quantize(weight, E4M3)
        ctx.save_for_backward(x8, x_scale, w8, w_scale)
        ctx.params_dtype = weight.dtype
        return fp8_matmul(x8, w8.t(), x_scale, w_scale)

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        """Gradients of x and weight."""
        x8, x_scale, w8, w_scale = ctx.saved_tensors
        g8, g_scale = quantize(gradient.contiguous(), E5M2)
        of_x = fp8_matmul(g8, columns_contiguous(w8), g_scale, w_scale)
        of_weight = fp8_matmul(g8.t().contiguous(), columns_contiguous(x8), g_scale, x_scale)
        return of_x, of_weight.to(ctx.params_dtype)


def _forward(module: Any, x: Any) -> Any:
    rows = x.reshape(-1, x.shape[-1]).to(torch.bfloat16)
    out = Fp8Linear.apply(rows, module.weight)
    out = out.reshape(*x.shape[:-1], out.shape[-1])
    return out if module.bias is None else out + module.bias.to(out.dtype)


def with_fp8_linears(model: Any) -> int:
    """Let the linear layers of `model` multiply in fp8, in place. Returns how many do."""
    changed = 0
    for name, module in model.named_modules():
        keeps = bool(_HIGH_PRECISION.intersection(name.split(".")))
        if type(module) is not torch.nn.Linear or keeps:
            continue
        if module.in_features % ALIGNMENT or module.out_features % ALIGNMENT:
            continue
        module.forward = partial(_forward, module)
        changed += 1
    return changed
