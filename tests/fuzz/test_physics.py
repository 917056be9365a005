"""Physics over random jobs: a few of what `python tests/fuzz/physics.py` asks of thousands."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))

from physics import Found, check, random_jobs

AT_MOST = {
    "larger image": 0.05, "longer sequence": 0.05, "more layers": 0.05, "slower network": 0.01,
    "larger batch": 0.005, "fp32 where TF32 is allowed": 0.3, "mixed instead of pure 16 bits": 0.05,
}  # fmt: skip
"""How far the learned answer breaks rules here and there: trees of a job know nothing of the same job with
other samples, and a batch may be held up by fewer devices on which the update is not shared
(docs/reference/limits.md counts them)."""


@pytest.fixture(scope="module")
def found() -> Found:
    rng = np.random.default_rng(15)
    return check(random_jobs(rng, 40), rng)


def test_the_cost_model_keeps_to_physics(found: Found) -> None:
    assert len(found.checks) > 12
    assert not found.formulas


def test_the_learned_answer_keeps_to_physics(found: Found) -> None:
    broken = [item for item in found.learned if not item.measured]
    assert not [item for item in broken if item.share > AT_MOST.get(item.rule, 0.0)]
