"""Precision policies and their variants: each must parse, lower, and be priced or refused on every device.

A policy says the type of eight parts of a step. One that is half there (a recipe without its passes, an alias
without its variant) would be priced as its parent without a word.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ..errors import ConfigError
from ..hardware.catalog import get_device, known_devices
from ..io import packaged_toml
from ..precision import __name__ as _PRECISION
from ..precision.catalog import get_policy, known_precisions, known_variants, parse_precision
from ..precision.lowering import lower
from ..precision.policy import NARROW, DType
from ..precision.quantization import recipe_of
from ..precision.support import check_support, supported_precisions
from ..workload.resolve import load_workload
from .checks import CNN, DECODER, answer

_NEWEST = ("A100-SXM4-80GB", "H100-SXM5-80GB", "B200-SXM-180GB", "MI355X")
"""Devices to price on: of these, the first that has the types in hardware."""


def known_spellings() -> Iterator[str]:
    """Every policy, as `name` and as `name:variant`."""
    for name in known_precisions():
        yield name
        yield from (f"{name}:{variant}" for variant in known_variants(name))


def aliases() -> dict[str, tuple[str, str | None]]:
    """Every alias in `precision/data/aliases.toml`, and the policy and variant that it is listed for."""
    data = packaged_toml(_PRECISION, "data/aliases.toml")
    found = {word: (name, None) for name, words in data["alias"].items() for word in words}
    named = {**data["variant"], **data["ambiguous"]}
    return found | {word: (entry["policy"], entry.get("variant")) for word, entry in named.items()}


class PrecisionSuite:
    """Properties of one policy; `spelling` is `name` or `name:variant`."""

    def test_says_what_it_is(self, spelling: str) -> None:
        """Lists and messages print the name and the summary."""
        policy = get_policy(spelling)
        assert policy.name == spelling.partition(":")[0] and policy.summary.endswith(".")

    def test_every_spelling_parses(self, spelling: str) -> None:
        """Case and separators do not matter; an alias means the policy and variant that it is listed for."""
        name, _, variant = spelling.partition(":")
        for text in (spelling, spelling.upper(), f" {name.replace('-', '_')} "):
            assert parse_precision(text.lower() if variant else text).name == name
        for word, (policy, of_variant) in aliases().items():
            if (policy, of_variant or "") == (name, variant):
                found = parse_precision(word)
                assert (found.name, found.variant or "") == (name, variant), word

    def test_its_types_fit_together(self, spelling: str) -> None:
        """Products are no wider than what they read; mixed precision keeps something in fp32."""
        policy = get_policy(spelling)
        assert policy.activation.num_bytes >= policy.matmul.num_bytes
        assert (policy.fp8_recipe is not None) is (policy.matmul in NARROW)
        assert policy.master is None or policy.param.num_bytes < policy.master.num_bytes
        if policy.autocast or "mixed" in policy.name:
            assert DType.FP32 in (policy.param, policy.master)
        if policy.matmul in NARROW:
            recipe_of(policy)

    def test_lowers_a_cnn_and_a_decoder(self, spelling: str) -> None:
        """The same products in both directions as in fp32, of the policy's type, and finite traffic."""
        policy = get_policy(spelling)
        for model in (CNN, DECODER):
            graph = load_workload(model).graph
            step, wide = lower(graph, policy), lower(graph, get_policy("fp32"))
            for name in ("flops", "bytes_per_sample", "bytes_fixed", "launches", "repeat"):
                values = getattr(step, name)
                assert np.isfinite(values).all() and (values >= 0.0).all(), name
            products = (policy.matmul, policy.conv)
            assert any(list(DType).index(dtype) in step.dtype for dtype in products)
            own = ~step.is_cast
            assert (step.flops * step.repeat)[own].sum() >= (wide.flops * wide.repeat).sum() * (1 - 1e-9)

    def test_every_device_runs_it_or_refuses_it_clearly(self, spelling: str) -> None:
        """An error names the device and what it can run instead."""
        policy = get_policy(spelling)
        for device in known_devices():
            try:
                warnings = check_support(policy, device)
            except ConfigError as error:
                text = str(error)
                assert device.name in text and "To fix" in text and supported_precisions(device)[0] in text
            else:
                assert all(device.name in text for text in warnings)

    def test_is_priced_where_the_hardware_has_it(self, spelling: str) -> None:
        """Terms of time and memory are not negative and add up; 8 devices exchange gradients."""
        policy = get_policy(spelling)
        devices = [name for name in _NEWEST if policy.name in supported_precisions(get_device(name))]
        device = next((name for name in devices if not check_support(policy, get_device(name))), *devices[:1])
        for model in (CNN, DECODER):
            prediction = answer(model, device=device, gpus=8, precision=spelling)
            assert prediction.precision.startswith(policy.name)
