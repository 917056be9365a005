"""Autocast lists against the header of the installed torch, and by the names a recorder sees."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from precision_time.io import packaged_toml
from precision_time.precision.autocast import autocast_class

HEADER = packaged_toml("precision_time.precision", "data/autocast.toml")["header"]
MACROS = {
    "AT_FORALL_LOWER_PRECISION_FP": "lower",
    "AT_FORALL_FP32": "fp32",
    "AT_FORALL_FP32_SET_OPT_DTYPE": "fp32_output_dtype",
    "AT_FORALL_PROMOTE": "promote",
}


@pytest.mark.parametrize(
    ("op", "expected"),
    [
        *[(op, "lower") for op in ("convolution", "addmm", "mm", "bmm", "baddbmm", "linear", "lstm", "gru")],
        *[(op, "lower") for op in ("scaled_dot_product_attention", "_scaled_dot_product_flash_attention")],
        *[(op, "lower") for op in ("_scaled_dot_product_efficient_attention", "prelu", "einsum")],
        *[(op, "fp32") for op in ("native_layer_norm", "rms_norm", "native_group_norm", "_softmax")],
        *[(op, "fp32") for op in ("_log_softmax", "nll_loss_forward", "mse_loss", "pow", "exp", "log")],
        *[(op, "fp32") for op in ("sum", "prod", "norm", "softplus", "upsample_bilinear2d", "cumsum")],
        *[(op, "promote") for op in ("cat", "stack", "addcmul", "index_put", "grid_sampler_2d")],
        *[(op, "same") for op in ("relu", "gelu", "add", "mul", "native_batch_norm", "embedding")],
        *[(op, "same") for op in ("max_pool2d", "mean", "native_dropout", "no_such_operator")],
    ],
)
def test_class_of_operator(op: str, expected: str) -> None:
    assert autocast_class(op) == expected


def test_namespace_and_overload_do_not_matter() -> None:
    assert autocast_class("aten::addmm.default") == "lower"
    assert autocast_class("pow.Tensor_Scalar") == "fp32"


def test_no_operator_is_in_two_lists() -> None:
    names = [name for ops in HEADER.values() for name in ops]
    assert len(names) == len(set(names))


def test_lists_equal_those_of_the_installed_torch() -> None:
    import torch

    header = Path(torch.__file__).parent / "include" / "ATen" / "autocast_mode.h"
    if not torch.__version__.startswith("2.13"):
        pytest.skip("the lists are those of torch 2.13")
    text = header.read_text(encoding="utf-8")
    for macro, name in MACROS.items():
        body = re.search(rf"#define {macro}\(_\)((?:.*\\\n)+.*\n)", text)
        assert body is not None, macro
        assert set(re.findall(r"_\((\w+)", body.group(1))) == set(HEADER[name]), macro
