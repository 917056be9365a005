"""Out-of-fold predictions that the page of choices keeps: fitting them again takes many minutes."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from precision_time.corpus.measurement import Measurement
from precision_time.corpus.store import corpus_fingerprint, load_corpus
from precision_time.errors import ConfigError
from precision_time.io import write_atomically
from precision_time_papers.contract import Floats
from precision_time_papers.evaluation.cross_validation import Runs
from precision_time_papers.evaluation.pricing import Progress, priced_corpus, silent

FITTED = tuple(
    (f"{predictor}-{protocol}", predictor, protocol)
    for predictor in ("ours", "blind")
    for protocol in ("model", "family")
)
"""Name, predictor and protocol of what is fitted; one seed, five folds."""
FORMULAS = "formulas"
_FINE = 1e4
"""Log seconds are kept in steps of a ten-thousandth."""


def predicted(
    *, folder: Path | None, progress: Progress = silent
) -> tuple[str, list[int], Mapping[str, Floats]]:
    """Fit all folds, or read the cache: fingerprint and ids of the rows, and step times by name.

    Args:
        folder: Where priced rows and predictions are kept between calls; None keeps none.
        progress: Called with a line on what is being done.
    """
    rows = [item for item in load_corpus() if item.usable]
    runs = Runs(
        priced=priced_corpus(rows, progress=progress, folder=folder), progress=progress, folder=folder
    )
    found = {FORMULAS: runs.table.jobs.analytical_s}
    for name, predictor, protocol in FITTED:
        found[name] = runs.predict(predictor, protocol, 0).step_time_s
    measured = runs.table.measurements
    return corpus_fingerprint(measured), [item.row_id for item in measured], found


def write(path: Path, fingerprint: str, ids: Sequence[int], found: Mapping[str, Floats]) -> None:
    """Keep predictions, their logarithms as integers."""
    content = io.BytesIO()
    steps = {name: np.rint(np.log(values) * _FINE).astype(np.int32) for name, values in found.items()}
    np.savez_compressed(
        content, allow_pickle=False, corpus=np.array(fingerprint), rows=np.array(ids, dtype=np.int32), **steps
    )
    write_atomically(path, content.getvalue())


def read(path: Path) -> tuple[tuple[Measurement, ...], Mapping[str, Floats]]:
    """The rows and their predicted step times.

    Raises:
        ConfigError: If there are none, or they are of another corpus.
    """
    way_out = "To fix: run `python packages/papers/studies/planning_accuracy.py --fit`."
    if not path.exists():
        raise ConfigError(f"{path.name}: no predictions are kept there. {way_out}")
    with np.load(path, allow_pickle=False) as file:
        arrays = dict(file)
    by_id = {item.row_id: item for item in load_corpus()}
    rows = tuple(by_id[row] for row in arrays.pop("rows").tolist() if row in by_id)
    kept, is_now = str(arrays.pop("corpus")), corpus_fingerprint(rows)
    if kept != is_now:
        raise ConfigError(f"{path.name} is of corpus {kept}, this one is {is_now}. {way_out}")
    return rows, {name: np.exp(steps / _FINE) for name, steps in arrays.items()}
