"""`precision-time list grids`: what it lists, and what it refuses."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from .conftest import Answer


def test_json_has_figure_year_source_and_pue(cli: Callable[..., Answer]) -> None:
    (found,) = json.loads(cli("list", "grids", "aws:us-east-1", "--json").out)["grids"]
    assert found["g_per_kwh"] == 390.26 and found["year"] == 2021 and "electricityMap" in found["source"]
    assert found["pue"]["value"] == 1.14 and found["pue"]["cloud"] == "aws"


def test_regions_stand_cleanest_first(cli: Callable[..., Answer]) -> None:
    found = json.loads(cli("list", "grids", "--cloud", "GCP", "--json").out)["grids"]
    figures = [each["g_per_kwh"] for each in found]
    assert figures == sorted(figures) and {each["cloud"] for each in found} == {"gcp"}
    assert "us-central1" in cli("list", "grids", "--cloud", "gcp").out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["atlantis"], "Unknown place"),
        (["--cloud", "asw"], "aws"),
        (["us-central1"], "several places"),
    ],
)
def test_what_is_not_known_exits_2(cli: Callable[..., Answer], words: list[str], said: str) -> None:
    answer = cli("list", "grids", *words)
    assert answer.code == 2 and said in answer.err
