"""Find how fast the correction shrinks with the distance to known software (`learn/data/novelty.toml`).

Prints the error of several rates over the protocols that train uses, and over folds that hold out
whole families of sources (`corpus/data/publishers.toml`): rows alike / sources alike [%]. The rate is
chosen by both: the sources of one family are no check on each other. From the cache of `make accuracy`,
or a quarter of an hour.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass

import numpy as np

from precision_time.arrays import Floats, Indices
from precision_time.corpus.protocols import source_name
from precision_time.corpus.store import load_corpus
from precision_time.executor import process_map
from precision_time.io import cache_folder
from precision_time.learn.novelty import shrinkage
from precision_time.learn.training import HELD_OUT
from precision_time_papers.evaluation.cross_validation import Runs
from precision_time_papers.evaluation.pricing import priced_corpus

RATES = (0.0, 0.3, 0.6, 0.9, 1.2, 1.5, 1.8, 2.2, 3.0)
FAMILIES = "publisher"


@dataclass(frozen=True, kw_only=True, slots=True)
class Tested:
    """Out-of-fold log factors on the formulas for the rows of one protocol, shape (n,) each."""

    correction: Floats
    """With nothing taken off."""
    truth: Floats
    novelty: Floats
    source: Indices

    def errors(self, fade: float) -> tuple[float, float]:
        """MAPE [%] with a rate, rows alike and sources alike."""
        log = shrinkage(self.novelty, fade) * self.correction - self.truth
        errors = 100.0 * np.abs(np.expm1(log))
        each = np.bincount(self.source, errors) / np.bincount(self.source)
        return float(errors.mean()), float(each.mean())


def tested(runs: Runs, protocol: str) -> Tested:
    """What was said of one protocol, the shipped rate taken off again."""
    table, held = runs.table, runs.ours(protocol, 0)
    rows = np.flatnonzero(~np.isnan(held.step_time_s))
    formulas = table.jobs.analytical_s[rows]
    names = np.array([source_name(item) for item in table.measurements])[rows]
    return Tested(
        correction=np.log(held.step_time_s[rows] / formulas) / shrinkage(held.novelty[rows]),
        truth=np.log(table.measured_s[rows] / formulas),
        novelty=held.novelty[rows],
        source=np.unique(names, return_inverse=True)[1].reshape(-1).astype(np.intp),
    )


def main() -> None:
    """Print the table."""
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter).parse_args()
    with process_map(2) as map_fn:
        usable = [row for row in load_corpus() if row.usable]
        runs = Runs(
            priced=priced_corpus(usable, folder=cache_folder(), progress=lambda _: None),
            map_fn=map_fn,
            folder=cache_folder(),
            progress=lambda message: print(message, file=sys.stderr),
        )
        protocols = {name: tested(runs, name) for name in (*HELD_OUT, FAMILIES)}
    print("| rate | " + " | ".join(protocols) + " | own six | all |")
    print("|---:|" + "---:|" * (len(protocols) + 2))
    for fade in RATES:
        found = {name: each.errors(fade) for name, each in protocols.items()}
        own = float(np.mean([found[name] for name in HELD_OUT]))
        both = (own + float(np.mean(found[FAMILIES]))) / 2.0
        cells = [f"{rows:.1f} / {sources:.1f}" for rows, sources in found.values()]
        print(f"| {fade:g} | " + " | ".join(cells) + f" | {own:.1f} | {both:.1f} |")


if __name__ == "__main__":
    main()
