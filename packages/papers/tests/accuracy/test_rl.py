"""Published steps of reinforcement learning asked as a user would: as docs/guides/own-model.md says."""

from __future__ import annotations

import statistics
from functools import cache

import pytest

import rl

MOST_ERROR = {"all": 0.25, "not fitted on": 0.20, "stated": 0.18, "nemo-rl": 0.16}
"""Median errors of steps, a little above the figures of the page."""
_REFUSED = 12
"""Steps of a source that does not name its device."""


@cache
def steps() -> tuple[tuple[rl.Asked, bool], ...]:
    return tuple((rl.asked(row), rl.says_all(row)) for row in rl.rows_of())


def group(name: str) -> list[rl.Asked]:
    if name == "all":
        return [row for row, _ in steps()]
    unseen = [(row, said) for row, said in steps() if row.source not in rl.FITTED_ON]
    if name == "not fitted on":
        return [row for row, _ in unseen]
    return [row for row, said in unseen if (said if name == "stated" else row.source == name)]


@pytest.mark.parametrize("name", MOST_ERROR)
def test_errors_of_published_steps_get_no_worse(name: str) -> None:
    found = rl.errors(group(name), "step")
    assert len(found) >= 50
    assert statistics.median(found) <= MOST_ERROR[name]


def test_every_step_with_a_device_can_be_asked() -> None:
    refused = [(row.job, row.refused) for row, _ in steps() if row.refused]
    assert len(refused) == _REFUSED, refused
    assert {words for _, words in refused} == {"device not stated"}


def test_intervals_hold_steps_of_which_all_is_stated() -> None:
    held = [
        row.interval[0] <= row.measured["step"] <= row.interval[1]
        for row in group("stated")
        if row.log_ratio("step") is not None
    ]
    assert statistics.fmean(held) >= 0.88


def test_every_row_names_its_source() -> None:
    for row in rl.rows_of():
        assert row["source"] and row["source_ref"], row
