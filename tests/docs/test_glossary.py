"""Every word that an answer prints is in docs/glossary.md."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from precision_time import find_layouts
from precision_time.cli.glossary import entries_of, glossary_text
from precision_time.corpus.jobs import UnsupportedRow, job_of
from precision_time.corpus.measurement import Measurement
from precision_time.corpus.store import load_corpus
from precision_time.cost.job import Job, Jobs
from precision_time.cost.memory import memory_of
from precision_time.cost.terms import METHOD_TERMS
from precision_time.planning.run.duration import TERMS as RUN_TERMS

GLOSSARY = Path(__file__).resolve().parents[2] / "docs" / "glossary.md"
ENTRIES = entries_of(glossary_text())
PRINTED = (
    *("step time", "interval", "coverage", "throughput", "MFU", "memory per device", "does not fit", "epoch"),
    *("run", "precision", "batch", "stack", "nearest measurements", "similarity", "assumed", "extrapolation"),
    *("speed-up", "scaling"),
    *("learned correction", "ZeRO", "FSDP", "HSDP", "micro batch", "kept", "prefetch", "2x4", "other"),
)
"""Headers and words of answers that are no term."""


def words(name: str) -> str:
    """A term's name as it is printed."""
    return name.removesuffix("_s").replace("_", " ")


@pytest.fixture(scope="module")
def jobs() -> list[Any]:
    """Priced jobs: every kind of layout of the corpus, and one that waits for its input."""
    rows = [row for row in load_corpus() if row.usable]
    by_kind = {(row.precision, row.task, row.num_nodes > 1, row.layout.pp > 1): row for row in rows}
    return [job for job in map(_priced, by_kind.values()) if job is not None]


def _priced(row: Measurement) -> Job | None:
    try:
        return job_of(row)
    except UnsupportedRow:
        return None


def test_every_term_of_the_memory_has_an_entry(jobs: list[Any]) -> None:
    names = {name for job in jobs for name in memory_of(Jobs.at(job))}
    [best, *_] = find_layouts("llama3-8b", device="H100-SXM5-80GB", gpus=8, top=1, fix=["tp=2"]).ranked
    names |= set(best.prediction.memory_terms)
    assert {words(name) for name in names} - set(ENTRIES) == set()


def test_every_part_of_a_training_method_has_an_entry() -> None:
    names = {term.name for term in METHOD_TERMS} | {"other_models", "generation"}
    assert {words(name) for name in names} - set(ENTRIES) == set()


def test_every_term_of_a_whole_run_has_an_entry() -> None:
    printed = {"goodput", "interruption", "phase", "critical batch size"}
    assert {words(name) for name in RUN_TERMS} | printed <= set(ENTRIES)


def test_every_printed_word_has_an_entry() -> None:
    assert set(PRINTED) - set(ENTRIES) == set()


def test_entries_say_something_and_stand_once() -> None:
    headings = re.findall(r"^### (.+)$", GLOSSARY.read_text(encoding="utf-8"), re.MULTILINE)
    assert len(headings) == len(set(headings)) == len(ENTRIES)
    assert all(len(text) > 20 for text in ENTRIES.values())


def test_the_page_is_the_glossary_of_the_package() -> None:
    assert GLOSSARY.read_text(encoding="utf-8") == glossary_text(), "To fix: make docs"
