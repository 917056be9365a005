"""The floors of the branches that tests take: what falls below is told, and no floor is ever lowered."""

from __future__ import annotations

from typing import Any

import branches
import surface

FILES = {
    "src/precision_time/units.py": (4, 10),
    "src/precision_time/cost/step.py": (5, 10),
    "packages/server/src/precision_time_server/app.py": (6, 8),
    "packages/server/src/precision_time_server/__init__.py": (0, 0),
}


def report(**changes: tuple[int, int]) -> dict[str, Any]:
    """As coverage writes it: branches taken, and branches."""
    counted = {**FILES, **changes}
    return {
        "files": {
            path: {"summary": {"covered_branches": taken, "num_branches": there}}
            for path, (taken, there) in counted.items()
        }
    }


def test_files_count_by_their_branches() -> None:
    assert branches.shares(report()) == {"core": 45.0, "server": 75.0}


def test_a_branch_that_no_test_takes_any_more_is_told() -> None:
    """Planted: one branch of the core less, a distribution without a floor, one that is gone."""
    floors = {"core": 45.0, "server": 75.0}
    assert branches.wrong(branches.shares(report()), floors) == []
    less = branches.shares(report(**{"src/precision_time/cost/step.py": (4, 10)}))
    assert branches.wrong(less, floors) == ["[branches] core: 40.0 % are taken, below the floor of 45"]
    assert branches.wrong({"core": 45.0, "new": 1.0}, floors) == [
        "[branches] new = 1.0 has no floor", "[branches] server is gone",
    ]  # fmt: skip
    assert branches.wrong({"core": 46.5, "server": 75.5}, floors) == [
        "[branches] core: 46.5 % are taken, the floor is 45: raise it"
    ]


def test_a_floor_is_raised_and_never_lowered() -> None:
    text = "# Floors.\n[lines]\ncore = 10\n\n[branches]\ncore = 40.5\nserver = 80\n"
    assert branches.raised(text, branches.shares(report())) == text.replace("40.5", "45")


def test_every_distribution_has_a_floor() -> None:
    names = {branches.distribution_of(str(path.relative_to(surface.ROOT))) for path in surface.source_files()}
    assert names == surface.budgets()["branches"].keys()
