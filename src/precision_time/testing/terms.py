"""Terms of the step time: registered, computed, learned from and explained.

A term is one entry of `cost/terms.py` and the line that computes it. What comes after reads the registry; the
suite checks that the sums, the predictor's columns and the glossary have it, too.
"""

from __future__ import annotations

import re
from collections.abc import Collection

from ..cache import data
from ..cost.job import Jobs
from ..cost.step import StepCosts, price
from ..cost.terms import EXPOSED_TERMS, TERMS, StepTerm, TermGroup
from ..learn.artifact import shipped_predictor
from ..request.request import Request
from .checks import DECODER, answer

_COLOR = re.compile(r"#[0-9a-f]{6}")
_QUESTION = {"device": "A100-SXM4-80GB", "gpus": 8, "precision": "fp16-mixed"}


class TermSuite:
    """Properties of one term; `term` is an entry of `TERMS`."""

    glossary: Collection[str] = ()
    """Entries of the glossary; override."""

    def test_is_complete(self, term: StepTerm) -> None:
        """A name in seconds, a title of its own, a color; kernels of a class belong to one term."""
        assert term.name.endswith("_s") and term.title.strip()
        assert [each.name for each in TERMS].count(term.name) == 1
        assert [each.title for each in TERMS].count(term.title) == 1
        assert _COLOR.fullmatch(term.color)
        assert not term.op_classes or term.group is TermGroup.KERNELS
        assert not {op for other in TERMS if other is not term for op in other.op_classes} & set(
            term.op_classes
        )

    def test_is_computed(self, term: StepTerm) -> None:
        """The cost model gives it, zero or not, in the order of the registry and in the sum of its group."""
        if term.group is TermGroup.INPUT:
            assert term.name in answer(DECODER, input_rate=1.0, **_QUESTION).terms
        costs = _costs()
        assert term.name in costs.terms, f"{term.name} is registered, and nothing computes it."
        assert list(costs.terms) == [each.name for each in TERMS if each.name in costs.terms]
        assert (term.name in EXPOSED_TERMS) is (term.group is TermGroup.EXPOSED)

    def test_is_a_feature_of_the_predictor(self, term: StepTerm) -> None:
        """Its share of the step is a column: a new term takes a new predictor."""
        names = shipped_predictor().names
        assert f"share.{term.name}" in names, "To fix: `packages/papers/studies/accuracy.py --ship`."

    def test_is_explained(self, term: StepTerm) -> None:
        """Answers print its name: the glossary has an entry of that name."""
        assert term.name.removesuffix("_s").replace("_", " ") in self.glossary


@data
def _costs() -> StepCosts:
    return price(Jobs.at(Request.of({"model": DECODER, **_QUESTION}).resolve()))
