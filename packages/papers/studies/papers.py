"""Write docs/papers.md: the tables of the founding papers, on their own protocols, beside ours.

Priced rows and out-of-fold predictions are kept in the user's cache: a second call computes what is new.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from papers_tables.page import PAPERS, papers_page
from precision_time.executor import process_map
from repository import write_page

PAGE = Path(__file__).resolve().parents[3] / "docs" / "papers.md"


def main() -> None:
    """Compute and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help=f"of {', '.join(PAPERS)}; prints instead of writing")
    parser.add_argument("--seeds", type=int, default=1, help="of folds and fits")
    options = parser.parse_args()

    def progress(text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    only = tuple(name for name in options.only.split(",") if name)
    with process_map() as executor:
        page = papers_page(executor=executor, only=only, seeds=options.seeds, progress=progress)
    if only:
        print(page)
    else:
        write_page(PAGE, page.rstrip() + "\n")


if __name__ == "__main__":
    main()
