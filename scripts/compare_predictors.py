"""Compare all predictors on the whole corpus and write docs/reference/predictors.md with its pictures.

Priced rows and held-out predictions are kept in the user's cache: a second call computes what is new.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from precision_time.evaluation.comparison.build import compare
from precision_time.evaluation.comparison.page import page
from precision_time.evaluation.comparison.plots import write_pictures

DOCS = Path(__file__).resolve().parents[1] / "docs" / "reference"
PICTURES = (
    "![Errors of all predictors](predictors-errors.svg)",
    "![Error against the cost of an answer](predictors-cost.svg)",
)


def main() -> None:
    """Compare and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=1, help="of folds and fits")
    options = parser.parse_args()
    told = ""

    def tell(text: str) -> None:
        nonlocal told
        # One line per fold, not one per job.
        word = text.split(" | ", maxsplit=1)[0].split(", job ", maxsplit=1)[0]
        if word != told and not word.startswith(("pricing", "embedding")):
            told = word
            print(word, file=sys.stderr, flush=True)

    comparison = compare(seeds=options.seeds, tell=tell)
    write_pictures(comparison, DOCS)
    (DOCS / "predictors.md").write_text(page(comparison, pictures=PICTURES), encoding="utf-8")


if __name__ == "__main__":
    main()
