"""Fit the founding paper's hierarchy on the shipped corpus, for `predict --predictor hierarchical`.

Held out as the predictor that ships is: its intervals and the errors on its card are of runs that the stages
had not seen. Takes some 15 minutes of one core; run it after the predictor that ships was trained.

    python packages/papers/studies/train_hierarchy.py
"""

from __future__ import annotations

import sys
from pathlib import Path

from precision_time.corpus.store import load_corpus
from precision_time.executor import process_map
from precision_time.learn.measured import measured_table
from precision_time.learn.training import train
from precision_time_papers.hierarchical import STAGES
from precision_time_papers.hierarchy_answers import HierarchyFit, TrainedHierarchy

SHIPPED = Path(__file__).resolve().parents[1] / "src" / "precision_time_papers" / "data" / "hierarchy"


def main() -> None:
    """Price, hold out, fit, write."""

    def progress(text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    progress("pricing the corpus")
    with process_map() as map_fn:
        table = measured_table([row for row in load_corpus() if row.usable], over=map_fn)
        fit = HierarchyFit(groups=table.groups(), stages=STAGES)
        trained = train(table=table, progress=progress, map_fn=map_fn, fit=fit)
    TrainedHierarchy.of(trained).save(SHIPPED, ships=True)


if __name__ == "__main__":
    main()
