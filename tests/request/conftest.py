"""Ways into a request: the real parser of the command line, and real files."""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
import yaml

from precision_time.cli.request_options import requests_in_words
from precision_time.corpus.jobs import UnsupportedRow, job_of
from precision_time.corpus.measurement import Measurement
from precision_time.corpus.store import load_corpus
from precision_time.request.files import read_requests
from precision_time.request.request import Request

Jobs = Sequence[Mapping[str, Any]]


@pytest.fixture(scope="session")
def parsed() -> Callable[[Sequence[str]], Request]:
    """`parsed(["resnet50", "--gpus", "8"])`: the request that `precision-time predict` would answer."""

    def parse(words: Sequence[str]) -> Request:
        (request,) = requests_in_words(words)
        return request

    return parse


def as_csv(jobs: Jobs) -> str:
    """A table with a column per field of any job."""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(dict.fromkeys(name for job in jobs for name in job)))
    writer.writeheader()
    for job in jobs:
        writer.writerow(
            {k: json.dumps(v) if isinstance(v, dict | list | bool) else v for k, v in job.items()}
        )
    return text.getvalue()


def _toml_value(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(k)} = {_toml_value(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml_value, value)) + "]"
    return json.dumps(value)


def as_toml(jobs: Jobs) -> str:
    """One `[[jobs]]` table per job."""
    return "".join(
        "[[jobs]]\n" + "".join(f"{name} = {_toml_value(value)}\n" for name, value in job.items())
        for job in jobs
    )


WRITERS: dict[str, Callable[[Jobs], str]] = {
    ".yaml": lambda jobs: yaml.safe_dump([dict(job) for job in jobs], allow_unicode=True),
    ".toml": as_toml,
    ".json": lambda jobs: json.dumps({"jobs": list(jobs)}),
    ".jsonl": lambda jobs: "".join(f"{json.dumps(job)}\n" for job in jobs),
    ".csv": as_csv,
}


@pytest.fixture(scope="session")
def filed(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Jobs, str], list[Request]]:
    """`filed(jobs, ".yaml")`: the requests of a file with these jobs."""
    folder = tmp_path_factory.mktemp("jobs")

    def write_and_read(jobs: Jobs, suffix: str) -> list[Request]:
        path = folder / f"jobs{suffix}"
        path.write_text(WRITERS[suffix](jobs), encoding="utf-8")
        return read_requests(path)

    return write_and_read


@pytest.fixture(scope="session")
def corpus() -> list[Measurement]:
    """Usable rows of the shipped corpus."""
    return [row for row in load_corpus() if row.usable]


@pytest.fixture(scope="session")
def sample(corpus: list[Measurement]) -> list[Measurement]:
    """Rows that can be priced, one of every source; by night three, some 150."""
    each = 3 if os.environ.get("PRECISION_TIME_NIGHTLY") else 1
    by_source: dict[str, list[Measurement]] = {}
    for row in corpus:
        by_source.setdefault(row.source, []).append(row)
    spread = (row for rows in by_source.values() for row in rows[:: max(len(rows) // each, 1)][:each])
    return [row for row in spread if _is_priced(row)]


def _is_priced(row: Measurement) -> bool:
    try:
        job_of(row)
    except UnsupportedRow:
        return False
    return True
