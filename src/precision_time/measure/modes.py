"""What each precision means for a training script in PyTorch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Mode:
    """How a model is run under one precision. Types are words of `ops.DTYPES`."""

    held: str = "fp32"
    """Type of parameters, and with it of gradients and the optimizer's state."""
    autocast: str = ""
    """Type of autocast; empty without it."""
    tf32: bool = False
    scaled_loss: bool = False
    """GradScaler."""
    fp8: bool = False
    """Linear layers multiply in fp8."""
    detail: str
    """`precision_detail` of the row."""


MODES: Mapping[str, Mode] = {
    "fp32": Mode(detail="allow_tf32 off for matmul and cudnn"),
    "tf32": Mode(tf32=True, detail="allow_tf32 on for matmul and cudnn"),
    "fp16": Mode(held="fp16", detail="model.half()"),
    "bf16": Mode(held="bf16", detail="model.bfloat16()"),
    "fp16-mixed": Mode(autocast="fp16", scaled_loss=True, detail="torch.autocast(float16) with GradScaler"),
    "bf16-mixed": Mode(autocast="bf16", detail="torch.autocast(bfloat16)"),
    "fp8-mixed": Mode(
        autocast="bf16", fp8=True, detail="float8 tensorwise current scaling, rest torch.autocast(bfloat16)"
    ),
}
"""Precision -> how to run it."""
