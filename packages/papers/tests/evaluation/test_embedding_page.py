"""The sections on PredictDDL's embedding: verdicts follow from the figures that were kept."""

from __future__ import annotations

import json

from papers_tables.embedding import (
    FOUR,
    RESULT,
    SUMS,
    WINNER,
    adds,
    embedding_sections,
)


def _errors(mean: float, median: float, spread: float) -> dict[str, float]:
    return {"mean": mean, "median": median, "mean_spread": spread, "median_spread": spread}


def test_lower_counts_only_beyond_both_spreads() -> None:
    reference = _errors(20.0, 15.0, 1.0)
    assert adds(_errors(17.9, 12.9, 1.0), reference) == {"mean": True, "median": True}
    assert adds(_errors(18.1, 12.9, 1.0), reference) == {"mean": False, "median": True}
    assert adds(_errors(25.0, 12.9, 1.2), reference) == {"mean": False, "median": False}


def test_the_sections_say_what_was_measured() -> None:
    study = json.loads(RESULT.read_text(encoding="utf-8"))
    first = embedding_sections()[0]
    assert len(first.tables) == len(study["unseen"])
    for key, found in study["unseen"].items():
        for reference in (SUMS, FOUR):
            for which, clear in adds(found["ways"][WINNER], found["ways"][reference]).items():
                pair = f"{found['ways'][WINNER][which]:.1f} against {found['ways'][reference][which]:.1f} %"
                said = first.headline.split(f"{key}: against {reference}")[1].split(";")[0]
                assert f"{which} {pair}" in said
                assert (f"{pair} (lower, beyond the spreads)" in said) == clear
