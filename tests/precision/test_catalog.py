"""Precision names: every spelling people use, the policies behind them, TF32 by version."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from precision_time.errors import ConfigError, UnknownNameError
from precision_time.precision.catalog import (
    get_policy,
    known_policies,
    known_precisions,
    known_variants,
    parse_precision,
    tf32_defaults,
)
from precision_time.precision.policy import DType

CANONICAL = (
    "fp64",
    "fp32",
    "tf32",
    "fp16",
    "bf16",
    "fp16-mixed",
    "bf16-mixed",
    "fp8-mixed",
    "nvfp4-mixed",
    "int8-mixed",
)
LOW = {DType.FP16, DType.BF16, DType.FP8, DType.FP4, DType.INT8}

# Lightning, Accelerate, Trainer, MosaicML, Megatron-Bridge, apex, torch and the issue's own words.
SPELLINGS = {
    "transformer-engine": "fp8-mixed",
    "transformer-engine-float16": "fp8-mixed",
    "16-true": "fp16",
    "16-mixed": "fp16-mixed",
    "bf16-true": "bf16",
    "32-true": "fp32",
    "64-true": "fp64",
    "16": "fp16-mixed",
    "32": "fp32",
    "64": "fp64",
    "no": "fp32",
    "fp8": "fp8-mixed",
    "bf16_mixed": "bf16-mixed",
    "amp_bf16": "bf16-mixed",
    "amp_fp16": "fp16-mixed",
    "amp_fp8": "fp8-mixed",
    "float16": "fp16",
    "bfloat16": "bf16",
    "mixed_fp16_fp32": "fp16-mixed",
    "mixed_bf16_fp32": "bf16-mixed",
    "mixed_float16": "fp16-mixed",
    "mixed_bfloat16": "bf16-mixed",
    "amp": "fp16-mixed",
    "AMP": "fp16-mixed",
    "half": "fp16",
    "float32": "fp32",
    "single": "fp32",
    "double": "fp64",
    "high": "tf32",
    "O0": "fp32",
    "O1": "fp16-mixed",
    "O2": "fp16-mixed",
    "O3": "fp16",
    "te-fp8": "fp8-mixed",
    "mxfp8": "fp8-mixed",
    "torch.bfloat16": "bf16",
    "torch.float16": "fp16",
    "mixed": "fp16-mixed",
    "nvfp4": "nvfp4-mixed",
    "int8": "int8-mixed",
}
AMBIGUOUS = ("amp", "16", "bf16", "mixed", "fp16", "half", "fp8")


def test_canonical_names() -> None:
    assert known_precisions() == CANONICAL
    assert tuple(policy.name for policy in known_policies()) == CANONICAL


@pytest.mark.parametrize("name", CANONICAL)
def test_canonical_name_means_itself_in_any_case(name: str) -> None:
    for spelling in (name, name.upper(), name.replace("-", "_"), f" {name} "):
        assert parse_precision(spelling).name == name


@pytest.mark.parametrize(("spelling", "name"), SPELLINGS.items())
def test_spelling_means_policy(spelling: str, name: str) -> None:
    assert parse_precision(spelling).name == name


@pytest.mark.parametrize("spelling", AMBIGUOUS)
def test_ambiguous_spelling_explains_both_readings(spelling: str) -> None:
    assumption = parse_precision(spelling).assumption
    assert assumption is not None
    others = [name for name in (*CANONICAL, "16-true", "mxfp8") if name in assumption and name != spelling]
    assert others


@pytest.mark.parametrize("spelling", ["fp32", "tf32", "16-mixed", "bf16-true", "mixed_fp16_fp32", "O2"])
def test_clear_spelling_needs_no_assumption(spelling: str) -> None:
    assert parse_precision(spelling).assumption is None


@pytest.mark.parametrize("spelling", ["fp17", "", "precise", "bf17-mixed", "fp16-mixed:nonsense"])
def test_unknown_spelling_is_an_error_with_a_remedy(spelling: str) -> None:
    with pytest.raises(UnknownNameError, match=r"precision-time list precisions|Variants of"):
        get_policy(spelling)


@given(st.text(max_size=20))
def test_any_text_is_a_policy_or_a_clear_error(text: str) -> None:
    try:
        assert parse_precision(text).name in CANONICAL
    except UnknownNameError as error:
        assert repr(text.partition(":")[2] or text) in str(error) or repr(text) in str(error)


def test_a_full_stop_in_a_name_does_not_hide_a_number() -> None:
    assert parse_precision("torch.float32").name == "fp32"


def _all_policies():  # type: ignore[no-untyped-def]
    for name in CANONICAL:
        yield name, None, get_policy(name)
        for variant in known_variants(name):
            yield name, variant, get_policy(name, variant=variant)


def test_policies_are_consistent() -> None:
    for name, variant, policy in _all_policies():
        where = f"{name}:{variant}"
        assert policy.loss_scaling is (name == "fp16-mixed"), where
        if policy.autocast:
            assert policy.activation in LOW, where
            assert policy.param is DType.FP32 or policy.master is DType.FP32, where
        if "mixed" in name and variant is None:
            assert policy.optimizer_state is DType.FP32, where


def test_ddp_under_autocast_sends_fp32_and_the_others_do_not() -> None:
    assert get_policy("fp16-mixed").reduce is DType.FP32
    assert get_policy("bf16-mixed").reduce is DType.FP32
    assert get_policy("fp16-mixed", variant="compress-hook").reduce is DType.FP16
    assert get_policy("fp16-mixed", variant="apex-o2").reduce is DType.FP16
    assert get_policy("bf16-mixed:deepspeed").reduce is DType.BF16
    assert get_policy("bf16-mixed", variant="fsdp").reduce is DType.BF16
    assert get_policy("bf16-mixed", variant="megatron").reduce is DType.FP32


def test_o2_keeps_master_weights_and_o3_does_not() -> None:
    assert get_policy("O2").master is DType.FP32
    assert get_policy("O3").master is None
    assert get_policy("O1").param is DType.FP32


def test_variant_by_argument_wins_over_the_spelling() -> None:
    assert get_policy("mxfp8").fp8_recipe == "mxfp8"
    assert get_policy("mxfp8", variant="current").fp8_recipe == "current"


@pytest.mark.parametrize(
    ("framework", "version", "expected"),
    [
        ("pytorch", "1.6", (False, False)),
        ("pytorch", "1.7.1", (True, True)),
        ("pytorch", "1.11.0", (True, True)),
        ("pytorch", "1.12.0", (False, True)),
        ("pytorch", "1.9.0+cu111", (True, True)),
        ("pytorch", "2.6.0", (False, True)),
        ("pytorch", "0.4.1", (False, False)),
        ("pytorch", 2021.0, (True, True)),
        ("PyTorch", 2024.0, (False, True)),
        ("pytorch", "ngc-23.05", (True, True)),
        ("pytorch", "20.10-py3", (True, True)),
        ("tensorflow", "1.15.2", (False, False)),
        ("tensorflow", "2.4.0", (True, True)),
        ("jax", 2024.0, (True, True)),
    ],
)
def test_tf32_by_version(framework: str, version: float | str, expected: tuple[bool, bool]) -> None:
    assert tf32_defaults(framework, version) == expected


def test_version_without_a_number_is_an_error() -> None:
    with pytest.raises(ConfigError, match="neither a year nor a framework version"):
        tf32_defaults("pytorch", "nightly")


@pytest.mark.parametrize(
    ("word", "said"), [("int4", "adapter=qlora"), ("NF4", "adapter=qlora"), ("8bit-adam", "adamw8bit")]
)
def test_what_is_no_precision_says_where_to_ask_for_it(word, said):
    with pytest.raises(ConfigError, match=f"{word} is no precision of a training step. To fix: .*{said}"):
        parse_precision(word)
