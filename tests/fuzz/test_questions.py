"""One question through every door: a few of what `python tests/fuzz/questions.py` asks two thousand of."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from questions import Found, checked

COUNT = 10 if os.environ.get("PRECISION_TIME_NIGHTLY") else 4
FALLS = "devices x time never falls"


@pytest.fixture(scope="module")
def found() -> Found:
    return checked(COUNT, seed=3)


def test_all_doors_give_one_answer(found: Found) -> None:
    assert {"run", "sweep", "plan", "first line says the length"} <= found.checks.keys()
    assert not [each for each in found.broken if each[0] != FALLS]


def test_more_devices_gain_at_most_their_number(found: Found) -> None:
    """But for trees that saw runs on so many devices: 7 of 2,445 pairs fall, by up to 5.4 %."""
    assert found.checks[FALLS] >= COUNT // 4
    assert len([each for each in found.broken if each[0] == FALLS]) <= max(1, 0.1 * found.checks[FALLS])
