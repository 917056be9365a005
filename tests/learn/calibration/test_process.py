from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from precision_time.cost.terms import TERMS
from precision_time.learn.artifact import shipped_predictor
from precision_time.learn.calibration.fitting import Block, fit_process
from precision_time.learn.calibration.places import (
    DIFFERENCES,
    KINDS,
    PARAMETER_OF,
    PARAMETERS,
    Places,
    position_columns,
)
from precision_time.learn.calibration.process import PROCESSES, Conditioned, Moved, Process

RATES = [[0.5 * (process == "residual" or kind in KINDS) for kind in DIFFERENCES] for process in PROCESSES]
PROCESS = Process(sd=np.full(len(PROCESSES), 0.2), rates=np.array(RATES), power=0.5, noise_sd=0.05)
KIND = dict(zip(KINDS, "mdps", strict=True))


def place(width: float = 0.25, batch: float = 3.0, links: float = 0.0, **kinds: str) -> Places:
    """One job: half of it products, `links` of it messages, the rest other kernels."""
    columns = position_columns()
    positions = np.zeros((1, len(columns)))
    positions[0, columns.index("log_micro_batch_size")] = batch
    shares = np.zeros((1, len(PARAMETERS)))
    shares[0, [PARAMETERS.index(name) for name in ("products", "memory", "links")]] = 0.5, 0.5 - links, links
    return Places(
        kinds=np.array([[*{**KIND, **kinds}.values()]]),
        positions=positions,
        shares=shares,
        width=np.array([width]),
    )


def moved(points: list[Places], log_ratios: list[float], asked: Places, process: Process = PROCESS) -> Moved:
    return Conditioned.on(process, Places.together(points), np.array(log_ratios)).at(asked)


def log_factor(*args: Any) -> float:
    return float(moved(*args).log_factor[0])


def test_no_point_changes_nothing() -> None:
    asked = place()
    nothing = Conditioned.on(PROCESS, asked.take([]), np.zeros(0)).at(asked)
    assert nothing.log_factor[0] == 0.0 and not nothing.parameters.any() and nothing.residual[0] == 0.0
    assert nothing.sd[0] == pytest.approx(nothing.sd_before[0], rel=1e-12)


def test_a_point_moves_its_own_job_most_and_never_all_the_way() -> None:
    point = place()
    own = log_factor([point], [0.4], point)
    batch = log_factor([point], [0.4], place(batch=4.0))
    precision = log_factor([point], [0.4], place(precision="q"))
    elsewhere = log_factor([point], [0.4], place(precision="q", device="e", model="n"))
    assert 0.0 < elsewhere < precision < batch < own < 0.4


@pytest.mark.parametrize("log_ratio", [-0.5, 0.3])
def test_a_repeated_point_is_converged_to(log_ratio: float) -> None:
    errors = [
        abs(log_factor([place()] * count, [log_ratio] * count, place()) - log_ratio) for count in (1, 4, 40)
    ]
    assert errors == sorted(errors, reverse=True)
    assert errors[-1] < 0.003


@given(st.lists(st.tuples(st.floats(0.0, 8.0), st.floats(-0.3, 0.3)), min_size=2, max_size=8))
def test_more_points_never_widen(points: list[tuple[float, float]]) -> None:
    places, ratios = [place(batch=batch) for batch, _ in points], [ratio for _, ratio in points]
    asked = place(batch=5.0)
    # Without odd ones: a point that contradicts the others is believed less, and says less.
    widths = [
        float(moved(places[:count], [ratios[0]] * count, asked).sd[0]) for count in range(1, len(points) + 1)
    ]
    before = float(moved(places[:1], ratios[:1], asked).sd_before[0])
    assert all(later <= earlier + 1e-9 for earlier, later in zip([before, *widths], widths, strict=False))


@given(st.lists(st.floats(-1.5, 1.5), min_size=1, max_size=10))
def test_the_points_are_not_overshot(ratios: list[float]) -> None:
    points = [place(model=f"m{index}") for index in range(len(ratios))]
    found = log_factor(points, ratios, place(model="m0"))
    assert min(0.0, *ratios) - 0.05 <= found <= max(0.0, *ratios) + 0.05


def test_an_odd_point_does_not_speak_for_the_others() -> None:
    points = [place(model=f"m{index}") for index in range(9)]
    assert abs(log_factor(points, [0.0] * 8 + [3.0], place(model="new"))) < 0.1


def test_slow_links_are_told_from_slow_devices() -> None:
    points = [place(links=0.1 * index, model=f"m{index}") for index in range(5)]
    ratios = [float(np.log(1.0 + 0.1 * index * (np.exp(0.5) - 1.0))) for index in range(5)]
    process = replace(PROCESS, sd=np.where(np.array(PROCESSES) == "links", 0.8, 0.1))
    alone = moved(points, ratios, place(model="m1"), process)
    waits = moved(points, ratios, place(links=0.4, model="m1"), process)
    assert abs(alone.log_factor[0]) < 0.03
    assert waits.log_factor[0] == pytest.approx(ratios[4], abs=0.06)
    assert waits.parameters[0, PARAMETERS.index("links")] == pytest.approx(0.5, abs=0.25)


def test_the_factor_is_that_of_the_parts() -> None:
    point = place(links=0.3)
    found = moved([point], [0.7], point)
    whole = float((point.shares * np.exp(found.parameters)).sum() * np.exp(found.residual[0]))
    assert np.exp(found.log_factor[0]) == pytest.approx(whole, rel=1e-12)


def test_every_term_has_a_parameter() -> None:
    assert PARAMETER_OF.keys() == {term.name for term in TERMS}
    assert {*PARAMETER_OF.values()} == {*PARAMETERS}


def test_the_prior_is_found_again() -> None:
    draw = np.random.default_rng(0)
    places = Places.together([place(device=device, batch=batch) for device in "xyz" for batch in (1.0, 4.0)])
    blocks = []
    for _ in range(80):
        own = {device: 0.3 * draw.standard_normal() for device in "xyz"}
        ratios = [own[device] + 0.1 * draw.standard_normal() for device in "xyz" for _ in range(2)]
        blocks.append(Block(places=places, log_ratios=np.array(ratios)))
    found = fit_process(blocks)
    likeness = found.likeness(places, places)
    shares = np.einsum("ip,jp->pij", places.shares, places.shares)
    covariance = (likeness[:-1] * shares).sum(axis=0) + likeness[-1]
    assert np.sqrt(covariance[0, 0] + found.noise_sd**2) == pytest.approx(np.sqrt(0.1), rel=0.2)
    assert covariance[0, 1] > 0.6 * covariance[0, 0]
    assert covariance[0, 2] < 0.35 * covariance[0, 0]


def test_the_shipped_process_is_of_many_points() -> None:
    process = shipped_predictor().process
    assert process.card["points"] > 2000
    assert (process.sd > 0.0).all() and (process.sd < 1.0).all() and (process.rates >= 0.0).all()
    assert Process.from_dict(process.to_dict()).to_dict() == process.to_dict()
