"""Compare all predictors on the whole corpus and write docs/reference/predictors.md with its plots.

Priced rows and out-of-fold predictions are kept in the user's cache: a second call computes what is new.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from precision_time_papers.evaluation.comparison import compare, comparison_page
from precision_time_papers.evaluation.plots import comparison_plots
from repository import write_page

DOCS = Path(__file__).resolve().parents[3] / "docs" / "reference"
PICTURES = (
    "![Errors of all predictors](predictors-errors.svg)",
    "![Error against the cost of an answer](predictors-cost.svg)",
)


def main() -> None:
    """Compare and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=1, help="of folds and fits")
    options = parser.parse_args()
    shown = ""

    def progress(text: str) -> None:
        nonlocal shown
        # One line per fold, not one per job.
        line = text.split(" | ", maxsplit=1)[0].split(", job ", maxsplit=1)[0]
        if line != shown and not line.startswith(("pricing", "embedding")):
            shown = line
            print(line, file=sys.stderr, flush=True)

    comparison = compare(seeds=options.seeds, progress=progress)
    for name, svg in comparison_plots(comparison).items():
        # matplotlib leaves spaces at line ends, which no tracked text should have.
        lines = [line.rstrip() for line in svg.splitlines()]
        (DOCS / f"{name}.svg").write_text("\n".join(lines) + "\n", encoding="utf-8")
    write_page(DOCS / "predictors.md", comparison_page(comparison, pictures=PICTURES))


if __name__ == "__main__":
    main()
