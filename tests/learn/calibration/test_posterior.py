from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from precision_time.learn.calibration.effects import KINDS, Place, effect_names, kind_of, waiting
from precision_time.learn.calibration.posterior import factors, fit_effects
from precision_time.learn.calibration.prior import Prior, SourceResiduals, fit_prior, shipped_prior

PRIOR = Prior(sd={kind: 0.2 for kind in KINDS}, noise_sd=0.1)


def place(model: str = "m", device: str = "d", share: float = 0.0, length: float = 0.0) -> Place:
    return Place(device=device, stack="s", model=model, precision="p", exposed_share=share, length=length)


def log_factor(points: list[Place], residuals: list[float], asked: Place) -> float:
    posterior = fit_effects(points, np.array(residuals), PRIOR)
    return float(factors([asked], posterior, PRIOR)[0][0])


def test_one_point_moves_its_own_job_most_and_never_all_the_way() -> None:
    own = log_factor([place("a")], [0.4], place("a"))
    other = log_factor([place("a")], [0.4], place("b"))
    elsewhere = log_factor([place("a")], [0.4], place("b", device="e"))
    assert 0.0 < elsewhere < other < own < 0.4


def test_many_points_that_agree_are_believed() -> None:
    points = [place(f"m{index}") for index in range(40)]
    assert log_factor(points, [0.4] * 40, place("new")) == pytest.approx(0.4, abs=0.05)


def test_an_odd_point_does_not_speak_for_the_cluster() -> None:
    points = [place(f"m{index}") for index in range(9)]
    assert abs(log_factor(points, [0.0] * 8 + [3.0], place("new"))) < 0.06


def test_slow_links_are_told_from_slow_devices() -> None:
    points = [place(f"m{index % 4}", share=0.1 * (index % 5)) for index in range(40)]
    waits, _ = waiting(np.array([item.exposed_share for item in points]), 0.5)
    prior = Prior(sd={**PRIOR.sd, "communication": 0.8}, noise_sd=0.05)
    posterior = fit_effects(points, waits, prior)
    assert posterior.mean[posterior.names.index("communication")] == pytest.approx(0.5, abs=0.1)
    assert abs(factors([place("m1")], posterior, prior)[0][0]) < 0.05


def test_scatter_widens_and_agreement_narrows() -> None:
    points = [place(f"m{index}") for index in range(20)]
    draw = np.random.default_rng(0).standard_normal(20)

    def width(scatter: float) -> float:
        posterior = fit_effects(points, scatter * draw, PRIOR)
        _, after, before = factors([place("new")], posterior, PRIOR)
        return float(after[0] / before[0])

    assert width(0.01) < width(0.3) < width(1.0)
    assert width(0.01) < 0.9 and width(1.0) > 1.0


def test_what_was_measured_is_surer_than_what_was_not() -> None:
    posterior = fit_effects([place("a")] * 5, np.full(5, 0.1), PRIOR)
    _, after, before = factors([place("a"), place("b"), place("b", device="e")], posterior, PRIOR)
    assert after[0] < after[1] < after[2] < before[2]


@given(st.lists(st.floats(-2.0, 2.0), min_size=1, max_size=12))
def test_a_calibration_never_overshoots_its_points(residuals: list[float]) -> None:
    points = [place(f"m{index}") for index in range(len(residuals))]
    moved = log_factor(points, residuals, place("m0"))
    assert min(0.0, *residuals) - 1e-6 <= moved <= max(0.0, *residuals) + 1e-6


def test_names_and_kinds() -> None:
    names = effect_names([place("a"), place("b")])
    assert names[0] == "cluster" and names[-1] == "communication"
    assert {kind_of(name) for name in names} == set(KINDS)


def test_the_prior_is_found_again() -> None:
    pytest.importorskip("scipy")
    draw = np.random.default_rng(0)
    sources = []
    for number in range(60):
        shift = 0.4 * draw.standard_normal()
        places = tuple(place(f"m{index % 3}") for index in range(12))
        residuals = shift + 0.1 * draw.standard_normal(12)
        sources.append(SourceResiduals(source=str(number), places=places, residuals=residuals))
    found = fit_prior(sources)
    together = np.sqrt(sum(found.sd[kind] ** 2 for kind in ("cluster", "device", "stack", "precision")))
    assert found.noise_sd == pytest.approx(0.1, rel=0.1)
    assert together == pytest.approx(0.65 * 0.4, rel=0.25)
    assert found.sd["model"] < 0.1


def test_the_shipped_prior_is_of_many_sources() -> None:
    prior = shipped_prior()
    assert prior.card["sources"] >= 40
    assert all(0.0 < prior.sd[kind] < 1.0 for kind in KINDS)
