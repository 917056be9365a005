"""Held-out predictions of every predictor under every question: computed once, kept, shared by the tables."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import blake2b
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ...corpus.store import corpus_fingerprint
from ...io import package_hash
from ...learn.holding_out import Fold
from ...papers.contract import Estimator
from ..report.priced import prune, read_arrays, write_arrays
from .held_out import HeldOut, from_samples, from_table
from .protocols import QUESTIONS
from .registry import Entry, job_estimators, table_estimators
from .wide import Wide

Bools = NDArray[np.bool_]

JOBS, ALL = "jobs", "all"
"""Populations: rows of jobs that those who sample can be fitted to, and all rows asked."""


@dataclass(kw_only=True)
class ComparedRuns:
    """Held-out predictions of the predictors compared."""

    wide: Wide
    entries: tuple[Entry, ...]
    quick: bool
    folds: int
    tell: Callable[[str], None] = lambda _: None
    folder: Path | None = None
    """Where predictions are kept between calls; None keeps them for this object only."""
    _kept: dict[tuple[str, str, int], HeldOut] = field(default_factory=dict)
    _asked: dict[tuple[str, int, str], Bools] = field(default_factory=dict)

    def split(self, question: str, seed: int) -> tuple[Fold, ...]:
        """Folds of a question."""
        return QUESTIONS[question].split(self.wide.table.measurements, seed, self.folds)

    def held_out(self, name: str, question: str, seed: int) -> HeldOut:
        """Predictions of one predictor; from the cache where they are there."""
        key = (name, question, seed)
        if key not in self._kept:
            self._kept[key] = self._read_or_predict(name, question, seed)
        return self._kept[key]

    def asked(self, question: str, seed: int, population: str) -> Bools:
        """Rows that a population is scored on, shape (n,): the same for every predictor.

        Of the jobs, rows that each of those who sample has answered for and none of them has run.
        """
        key = (question, seed, population)
        if key not in self._asked:
            self._asked[key] = self._rows_asked(question, seed, population)
        return self._asked[key]

    def _rows_asked(self, question: str, seed: int, population: str) -> Bools:
        mask = np.zeros(len(self.wide), dtype=bool)
        for fold in self.split(question, seed):
            mask[fold.outside] = True
        if population == ALL:
            return mask
        for name in self.samplers:
            held = self.held_out(name, question, seed)
            mask &= ~np.isnan(held.step_time_s) & ~held.sampled
        return mask if self.samplers else np.zeros(len(self.wide), dtype=bool)

    def names(self, population: str) -> tuple[str, ...]:
        """Predictors that answer for a population, in the order of the table."""
        samplers = set(self.samplers)
        return tuple(entry.name for entry in self.entries if population == JOBS or entry.name not in samplers)

    @cached_property
    def samplers(self) -> tuple[str, ...]:
        """Predictors that run the asked job."""
        return tuple(job_estimators([entry.name for entry in self.entries]))

    @cached_property
    def _of_tables(self) -> Mapping[str, Callable[[int], Estimator]]:
        return table_estimators(self.wide, quick=self.quick, names=[entry.name for entry in self.entries])

    def _read_or_predict(self, name: str, question: str, seed: int) -> HeldOut:
        path = None
        if self.folder is not None:
            path = self.folder / f"compared-{self._key}" / f"{name}-{question}-{seed}-{self.folds}.npz"
            found = read_arrays(path)
            if found is not None:
                return HeldOut.from_arrays(found)
        held = self._predict(name, question, seed)
        if path is not None:
            write_arrays(path, held.to_arrays())
            prune(path.parents[1], "compared-*")
        return held

    def _predict(self, name: str, question: str, seed: int) -> HeldOut:
        folds = self.split(question, seed)

        def tell(text: str) -> None:
            self.tell(f"{name}, {question}: {text}")

        if name in self.samplers:
            return from_samples(
                self.wide,
                folds,
                job_estimators([name])[name],
                samples_from_asked=QUESTIONS[question].samples_from_asked,
                seed=seed,
                tell=tell,
            )
        return from_table(self.wide, folds, self._of_tables[name](seed), tell=tell)

    @cached_property
    def _key(self) -> str:
        names = self.wide.table.jobs.names
        seen = f"{corpus_fingerprint(self.wide.table.measurements)} {package_hash()} {self.quick}"
        return blake2b(f"{seen} {json.dumps(names)}".encode(), digest_size=8).hexdigest()
