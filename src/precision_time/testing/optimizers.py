"""Optimizers of `cost/data/optimizers.toml`: states, traffic and spellings, and the way in through a request.

Time and memory read different fields of one entry: with the states and without the traffic the memory would
be right and the time wrong.
"""

from __future__ import annotations

import numpy as np

from ..cost.constants import constants
from ..cost.optimizer import (
    OptimizerForm,
    canonical_optimizer,
    known_optimizers,
    optimizer_work,
    states_per_param,
)
from ..precision.catalog import get_policy
from .checks import CNN, DECODER, answer

_DEVICE = "A100-SXM4-80GB"
_PARAMS, _TENSORS = 1e9, 300.0
_FP32_BYTES = 4.0


class OptimizerSuite:
    """Properties of one optimizer; `name` is its canonical name."""

    def test_is_listed_with_its_source(self, name: str) -> None:
        """The implementation that the figures were counted from."""
        assert name in known_optimizers()
        assert constants("optimizers")[name]["source"].strip()

    def test_every_spelling_means_it(self, name: str) -> None:
        """The name in any case, and every alias of it; an alias must not be another optimizer's name."""
        aliases = [word for word, meant in constants("optimizers")["aliases"].items() if meant == name]
        assert not set(aliases) & set(known_optimizers())
        for word in (name, name.upper(), *aliases):
            assert canonical_optimizer(word) == name

    def test_moves_what_an_update_must_touch(self, name: str) -> None:
        """Parameter read and written and gradient read in both forms; a fused form moves no more."""
        policy = get_policy("fp32")
        fused, foreach, loop = (
            optimizer_work(name, policy, params=_PARAMS, tensors=_TENSORS, form=form)
            for form in OptimizerForm
        )
        least = 3.0 * _FP32_BYTES * _PARAMS
        assert least <= fused.update_bytes <= foreach.update_bytes == loop.update_bytes
        assert 1.0 <= fused.update_kernels <= foreach.update_kernels <= loop.update_kernels

    def test_sharding_divides_the_update(self, name: str) -> None:
        """ZeRO 1 to 3: each device updates its part."""
        whole, part = (
            optimizer_work(name, get_policy("fp32"), params=_PARAMS / ranks, tensors=_TENSORS)
            for ranks in (1, 8)
        )
        np.testing.assert_allclose(part.update_bytes, whole.update_bytes / 8)
        assert np.isfinite(states_per_param(name)) and states_per_param(name) >= 0.0

    def test_a_request_prices_it(self, name: str) -> None:
        """By its name in any case: time for the update, and memory for states where it keeps any."""
        for model in (CNN, DECODER):
            prediction = answer(model, device=_DEVICE, optimizer=name.upper())
            assert prediction.terms["optimizer_s"] > 0.0
            states = prediction.memory_terms["optimizer_states"]
            assert (states > 0.0) is (states_per_param(name, outside_share=1.0) > 0.0)
