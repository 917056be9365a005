"""Stack profiles: complete, priced, and answered whether or not the predictor was trained with them.

A stack is an input of the predictor: adding one must change no answer of the others, and its own answers must
be those of a stack without measurements until `packages/papers/studies/accuracy.py --ship` has seen some.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ..cost.constants import constants
from ..cost.memory import framework_memory
from ..cost.stacks import get_stack_profile, kind_of_stack
from ..hardware.catalog import get_device, known_device_names
from ..learn.artifact import shipped_predictor
from ..learn.features import COMPILERS
from ..learn.priced import predict_step_times
from ..learn.table import job_table
from ..precision.catalog import known_precisions, known_variants
from ..request.practice import is_told_apart, runs_on
from ..request.request import Request
from .checks import CNN, DECODER, answer

_FIRST_YEAR = 2016
_LEAST_WORDS = 3
_UNMEASURED = "a-stack-that-was-never-measured"


def device_of_stack(name: str) -> str:
    """A device that a stack exists for: an A100 where it does, or where nobody has said for which it does."""
    known = ("A100-SXM4-80GB", *known_device_names())
    return next(each for each in known if runs_on(name, get_device(each)) or not is_told_apart(name))


def dangling_profiles() -> set[str]:
    """Profiles that `[framework]`, `[family]` or the memory of frameworks name and that do not exist."""
    stacks = constants("stacks")
    named = {*stacks["framework"].values(), *stacks["family"].values()}
    named |= {name for table in constants("memory")["framework"].values() for name in table.get("stacks", ())}
    return named - set(stacks["stack"])


class StackSuite:
    """Properties of one stack profile; `name` is its name."""

    def test_is_complete(self, name: str) -> None:
        """A sentence, a framework, a year, a compiler whose costs are known; a code base is of a stack."""
        profile = get_stack_profile(name)
        assert len(profile.summary.split()) >= _LEAST_WORDS and profile.summary.endswith(".")
        assert profile.framework_year > _FIRST_YEAR
        kind = get_stack_profile(profile.kind) if profile.kind else None
        assert kind is None or (not kind.kind and kind.summary != profile.summary), "It has no summary."
        assert profile.framework in constants("stacks")["framework"], "A request cannot name its framework."
        assert profile.compiler in COMPILERS and profile.compiler in constants("kernels")["compilers"]
        assert framework_memory(profile.stack()).loss_bytes > 0.0
        variants = {variant for policy in known_precisions() for variant in known_variants(policy)}
        assert set(profile.variants) <= variants

    def test_prices_a_cnn_and_a_decoder(self, name: str) -> None:
        """By its name on 8 devices; the answer says which stack was taken."""
        for model in (CNN, DECODER):
            assert answer(model, device=device_of_stack(name), gpus=8, stack=name).stack.startswith(name)

    def test_answers_with_the_predictor_as_trained(self, name: str) -> None:
        """Trained columns are read by name; a stack that training never saw is like any other unseen one."""
        predictor = shipped_predictor()
        device = device_of_stack(name)
        job = Request.of({"model": CNN, "device": device, "gpus": 8, "stack": name}).resolve()
        columns = job_table([job]).select(predictor.names)
        trained = f"stack.{kind_of_stack(name)}" in predictor.names
        indicators = [i for i, column in enumerate(columns.names) if column.startswith("stack.")]
        assert columns.features[0, indicators].sum() == float(trained)
        if not trained:
            unseen = replace(job, stack=replace(job.stack, profile=_UNMEASURED))
            times = predict_step_times([job, unseen], predictor, coverage=0.9)
            np.testing.assert_array_equal(times.step_time_s[0], times.step_time_s[1])
