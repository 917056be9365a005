"""Every collective algorithm of the package satisfies the suite."""

import pytest

from precision_time.testing.collectives import CollectiveSuite, registered_algorithms

CASES = list(registered_algorithms())


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
class TestCollectives(CollectiveSuite):
    pass


def test_all_are_found() -> None:
    kinds = ["ring", "tree", "nvls", "pairwise", "torus"]
    assert {case.name.split("_")[0] for case in CASES} == set(kinds)
    assert len(CASES) == 11
