"""Accuracy is recomputed here: the page from the shipped held-out predictions, and a fit of its own."""

import re
from pathlib import Path

import numpy as np
import pytest

from precision_time.corpus.measurement import Measurement
from precision_time.corpus.store import corpus_fingerprint, corpus_store, load_corpus
from precision_time.learn.artifact import shipped_predictor
from precision_time.learn.training import train

PAGE = Path(__file__).resolve().parents[4] / "docs" / "reference" / "accuracy.md"
LIMIT_BY_CONFIGURATION_PERCENT = 8.2
"""What ships must not exceed: 7.98 as trained, 7.15 on rows older than the last collection, whose own
err by 21 % (target: 5)."""
SAMPLE_ROWS = 1200
MOST_OF_A_MODEL = 1000
SAMPLE_LIMIT_PERCENT = 20.0
"""A thirtieth of the corpus and a fifth of the trees: far above what ships, below the 25 to 30 % of an
uncorrected model and more of a broken one."""


def page_tables() -> list[list[list[str]]]:
    """Tables of docs/reference/accuracy.md: rows of cells, the header first."""
    blocks = re.findall(r"(?:^\|.*\n)+", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    return [
        [
            [cell.strip() for cell in line.strip("|").split("|")]
            for line in block.splitlines()
            if "---" not in line
        ]
        for block in blocks
    ]


def printed_by_precision() -> dict[str, float]:
    """MAPE of unseen configurations by precision as docs/reference/accuracy.md prints it."""
    table = next(t for t in page_tables() if t[0][:2] == ["precision", "rows"] and "configuration" in t[0])
    column = table[0].index("configuration")
    return {row[0]: float(row[column]) for row in table[1:]}


def printed_in_all() -> float:
    """MAPE of unseen configurations over one seed as docs/reference/accuracy.md prints it."""
    table = next(t for t in page_tables() if t[0][0] == "device")
    return next(float(row[2]) for row in table if row[0] == "all")


@pytest.fixture(scope="module")
def held_out() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Measured and held-out predicted seconds of every run behind the shipped predictor, and precisions."""
    evidence = shipped_predictor().measurements
    runs = {run.row_id: run for run in corpus_store().measurements()}
    chosen = [runs[int(row_id)] for row_id in evidence.measurement_ids]
    measured = np.array([run.step_time_s for run in chosen])
    return measured, evidence.predicted_s, np.array([run.precision for run in chosen])


def test_page_is_of_the_shipped_predictor(held_out) -> None:
    measured, predicted, precisions = held_out
    errors = np.abs(predicted / measured - 1.0) * 100.0
    printed = printed_by_precision()
    # How far answers lie below medians: on the page by intervals of other folds, in the predictor by its own.
    assert printed_in_all() == pytest.approx(errors.mean(), abs=0.1)
    for name in ("fp32", "tf32", "fp16-mixed", "bf16-mixed"):
        assert printed[name] == pytest.approx(errors[precisions == name].mean(), abs=0.15)


def test_held_out_configurations_stay_within_the_limit(held_out) -> None:
    measured, predicted, _ = held_out
    assert np.abs(predicted / measured - 1.0).mean() * 100.0 <= LIMIT_BY_CONFIGURATION_PERCENT


def test_shipped_predictor_was_fitted_on_the_shipped_corpus() -> None:
    card = shipped_predictor().model_card
    priced = {int(row_id) for row_id in shipped_predictor().measurements.measurement_ids}
    rows = [run for run in load_corpus() if run.row_id in priced]
    assert card["rows"] == len(rows)
    assert card["corpus"] == corpus_fingerprint(rows)


def sample_of_whole_models(count: int) -> list[Measurement]:
    """About `count` runs, all of each model drawn: few operator graphs have to be priced."""
    of_model: dict[str, list[Measurement]] = {}
    for run in load_corpus():
        if run.usable:
            of_model.setdefault(run.model, []).append(run)
    chosen: list[Measurement] = []
    for model in np.random.default_rng(0).permutation(sorted(of_model)).tolist():
        if len(chosen) < count:
            chosen += of_model[model][:MOST_OF_A_MODEL]
    return chosen


def test_a_fit_of_a_sample_predicts_what_it_has_not_seen() -> None:
    result = train(measurements=sample_of_whole_models(SAMPLE_ROWS), quick=True)
    measured_s, uncorrected_s = result.table.measured_s, result.table.jobs.analytical_s
    assert len(measured_s) > 0.9 * SAMPLE_ROWS
    found = result.held_out["configuration"]
    error = float(np.abs(found.step_time_s / measured_s - 1.0).mean() * 100.0)
    assert error <= SAMPLE_LIMIT_PERCENT
    assert error < 0.8 * np.abs(uncorrected_s / measured_s - 1.0).mean() * 100.0
