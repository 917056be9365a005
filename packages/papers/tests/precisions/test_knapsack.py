"""Dynamic programming against every assignment of small instances."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from precision_time_papers.precisions.knapsack import Choices, exhaustive, frontier


@st.composite
def instances(draw: st.DrawFn, *, whole: bool) -> tuple[Choices, float, float]:
    """Groups, types with fixed charges or gains, a budget and a cell; risks are whole cells where asked."""
    groups, types = draw(st.integers(1, 5)), draw(st.integers(2, 3))
    values = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    seconds = values.normal(-1.0, 1.0, (groups, types))
    risk = values.integers(0, 20, (groups, types)).astype(float)
    if not whole:
        risk += values.random((groups, types))
    risk[values.random((groups, types)) < 0.1] = np.inf
    fixed_s = values.choice([0.0, 0.5, -0.5, 2.0], types)
    seconds[:, 0], risk[:, 0], fixed_s[0] = 0.0, 0.0, 0.0
    return Choices(seconds=seconds, risk=risk, fixed_s=fixed_s), float(values.integers(0, 40)), 1.0


def best_of_all(choices: Choices, budget: float) -> float:
    picks = np.array(list(exhaustive(choices, budget)))
    return float(choices.seconds_of(picks).min())


@settings(max_examples=60, deadline=None)
@given(instances(whole=True))
def test_dynamic_programming_finds_the_optimum(case: tuple[Choices, float, float]) -> None:
    choices, budget, cell = case
    found = frontier(choices, budget, cell=cell)
    seconds, risks = choices.seconds_of(found), choices.risk_of(found)
    assert np.isclose(seconds[-1], best_of_all(choices, budget), rtol=0.0, atol=1e-9)
    assert (risks <= budget).all()
    assert (np.diff(seconds) < 0.0).all(), "more risk is faster"


@settings(max_examples=40, deadline=None)
@given(instances(whole=False))
def test_rounded_risks_lose_at_most_a_cell_per_group(case: tuple[Choices, float, float]) -> None:
    choices, budget, cell = case
    found = frontier(choices, budget, cell=cell)
    seconds = choices.seconds_of(found)[-1]
    assert choices.risk_of(found).max() <= budget
    assert seconds >= best_of_all(choices, budget) - 1e-9
    within = budget - cell * len(choices.seconds)
    if within >= 0.0:
        assert seconds <= best_of_all(choices, within) + 1e-9


@settings(max_examples=20, deadline=None)
@given(instances(whole=True))
def test_a_larger_budget_keeps_what_a_smaller_one_offers(case: tuple[Choices, float, float]) -> None:
    choices, budget, cell = case
    small = {tuple(row) for row in frontier(choices, budget, cell=cell).tolist()}
    large = {tuple(row) for row in frontier(choices, budget + 7.0, cell=cell).tolist()}
    assert small <= large
    [none] = frontier(choices, 0.0, cell=cell)[:1].tolist()
    assert choices.risk_of(np.array([none]))[0] == 0.0
