"""Write docs/reference/planning-accuracy.md: choices by predictions against what was measured.

    python planning_accuracy.py          # from the predictions that are kept: about a minute
    python planning_accuracy.py --fit    # fits every fold again: some twenty minutes of one core

Priced rows and fitted folds are kept in the user's cache: a second --fit is quick.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from planning_tables import page, stored
from precision_time.io import cache_folder
from repository import write_page

PAGE = Path(__file__).resolve().parents[3] / "docs" / "reference" / "planning-accuracy.md"
KEPT = PAGE.with_suffix(".npz")


def main() -> None:
    """Compute and write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--fit", action="store_true", help="fit the out-of-fold predictions again, and keep them"
    )
    options = parser.parse_args()
    shown = ""

    def progress(text: str) -> None:
        nonlocal shown
        line = text.split(", ", maxsplit=1)[0]
        if line != shown:
            shown = line
            print(line, file=sys.stderr, flush=True)

    if options.fit:
        stored.write(KEPT, *stored.predicted(folder=cache_folder(), progress=progress))
    rows, predicted_s = stored.read(KEPT)
    found = page.of_rows(rows, predicted_s)
    made = page.sections(found, progress=progress)
    # matplotlib leaves spaces at line ends, which no tracked text should have.
    lines = [line.rstrip() for line in page.picture(made).splitlines()]
    PAGE.with_suffix(".svg").write_text("\n".join(lines) + "\n", encoding="utf-8")
    write_page(PAGE, page.page(rows, found, made).rstrip() + "\n")


if __name__ == "__main__":
    main()
