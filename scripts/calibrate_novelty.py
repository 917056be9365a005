"""Find how fast the correction fades with each kind of novelty (`learn/data/novelty.toml`) and print it.

Least error over the six protocols that train also uses, of what the stages say out of fold (the cache of
`make accuracy`, or a quarter of an hour): the mean of both ways of counting, rows alike and sources alike.
`--halves` fits the rates on half of the sources and scores them on the other, to see what they are worth.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize

from precision_time.arrays import Bools, Floats, Indices
from precision_time.corpus.protocols import source_name
from precision_time.corpus.store import load_corpus
from precision_time.executor import process_map
from precision_time.io import cache_folder
from precision_time.learn.novelty import KINDS, faded, local_weight, shrinkage
from precision_time.learn.training import HELD_OUT
from precision_time_papers.evaluation.cross_validation import Runs
from precision_time_papers.evaluation.pricing import priced_corpus

START = (0.4, 0.6, 0.3, 0.4, 0.02, 0.02, 1.0, 0.05, 0.6, 1.0)
MOST_ERROR = 2.0
"""An error counts as three times the measured time at most."""
LEAST_WEIGHT = 1e-3


@dataclass(frozen=True, kw_only=True, slots=True)
class Tested:
    """Out-of-fold log factors on the formulas for the rows of one protocol, shape (n,) each."""

    smooth: Floats
    local: Floats
    truth: Floats
    novelty: Floats
    source: Indices

    def errors(self, rates: Floats) -> Floats:
        """|predicted / measured - 1| with these rates of fading."""
        held, local = (faded(self.novelty, part) for part in np.split(rates, [len(KINDS)]))
        log = held * (self.smooth + local * (self.local - self.smooth)) - self.truth
        return np.minimum(np.abs(np.expm1(log)), MOST_ERROR)


def tested(runs: Runs, protocol: str) -> Tested:
    """What the stages said of one protocol, the fading of the shipped rates taken off again."""
    table, held = runs.table, runs.ours(protocol, 0)
    rows = np.flatnonzero(~np.isnan(held.step_time_s))
    formulas = table.jobs.analytical_s[rows]
    novelty = held.novelty[rows]
    share, weight = shrinkage(novelty), np.maximum(local_weight(novelty), LEAST_WEIGHT)
    smooth = np.log(held.no_detail_s[rows] / formulas) / share
    full = np.log(held.step_time_s[rows] / formulas) / share
    names = np.array([source_name(item) for item in table.measurements])[rows]
    return Tested(
        smooth=smooth,
        local=smooth + (full - smooth) / weight,
        truth=np.log(table.measured_s[rows] / formulas),
        novelty=novelty,
        source=np.unique(names, return_inverse=True)[1].astype(np.intp),
    )


def loss(rates: Floats, protocols: Sequence[Tested], chosen: Sequence[Bools]) -> float:
    """Mean error of all protocols [%], rows alike and sources alike in equal parts."""
    found = []
    for item, rows in zip(protocols, chosen, strict=True):
        errors, source = item.errors(rates)[rows], item.source[rows]
        count = np.bincount(source)
        each = np.bincount(source, errors)[count > 0] / count[count > 0]
        found += [errors.mean(), each.mean()]
    return 100.0 * float(np.mean(found))


def fitted(protocols: Sequence[Tested], chosen: Sequence[Bools]) -> Floats:
    """The rates with the least loss."""
    found = minimize(
        lambda logs: loss(np.exp(logs), protocols, chosen),
        np.log(START),
        method="Nelder-Mead",
        options={"maxiter": 500, "xatol": 0.05, "fatol": 0.01},
    )
    rates: Floats = np.exp(found.x)
    return rates


def main() -> None:
    """Print the rates."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument(
        "--halves", action="store_true", help="score rates on sources they were not fitted to"
    )
    arguments = parser.parse_args()
    with process_map(2) as map_fn:
        priced = priced_corpus(load_corpus(), folder=cache_folder(), progress=lambda _: None)
        runs = Runs(
            priced=priced,
            map_fn=map_fn,
            folder=cache_folder(),
            progress=lambda message: print(message, file=sys.stderr),
        )
        protocols = [tested(runs, name) for name in HELD_OUT]
    everything = [np.ones(len(item.truth), dtype=bool) for item in protocols]
    rates = fitted(protocols, everything)
    for index, kind in enumerate(KINDS):
        print(f"{kind}: fade = {rates[index]:.2f}, local_fade = {rates[len(KINDS) + index]:.2f}")
    start = loss(np.array(START), protocols, everything)
    print(f"error {loss(rates, protocols, everything):.2f} % (starting values {start:.2f} %)")
    if arguments.halves:
        for half in (0, 1):
            inside = [item.source % 2 == half for item in protocols]
            outside = [~rows for rows in inside]
            other = fitted(protocols, inside)
            print(
                f"half {half}: {loss(other, protocols, outside):.2f} % on the other sources, "
                f"{loss(rates, protocols, outside):.2f} % with the rates of all"
            )


if __name__ == "__main__":
    main()
