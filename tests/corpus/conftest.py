"""Real rows of the raw tables, one per rule."""

from __future__ import annotations

import csv
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from precision_time.corpus.importer import measurement_of
from precision_time.corpus.measurement import Measurement, Rejected
from precision_time.corpus.schema import Row, read_rows

ROWS = Path(__file__).parent / "data" / "rows.csv"


@pytest.fixture(scope="session")
def raw_rows() -> list[Row]:
    return list(read_rows(ROWS))


@pytest.fixture(scope="session")
def imported(raw_rows: list[Row]) -> list[Measurement | Rejected]:
    return [measurement_of(replace(row, curated=True)) for row in raw_rows]


@pytest.fixture(scope="session")
def measurements(imported: list[Measurement | Rejected]) -> list[Measurement]:
    return [row for row in imported if isinstance(row, Measurement)]


@pytest.fixture(scope="session")
def find(measurements: list[Measurement]) -> Callable[..., Measurement]:
    """The one row with these values, such as find(source="vtrain")."""

    def found(**values: object) -> Measurement:
        fitting = [
            row for row in measurements if all(getattr(row, name) == value for name, value in values.items())
        ]
        assert len(fitting) == 1, f"{values}: {len(fitting)} rows"
        return fitting[0]

    return found


@pytest.fixture
def write_csv(tmp_path: Path) -> Callable[..., Path]:
    """A measurement file with one row per mapping; columns are those of the first."""

    def write(*rows: dict[str, object], name: str = "runs.csv") -> Path:
        path = tmp_path / name
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)
        return path

    return write


@pytest.fixture
def minimal() -> dict[str, object]:
    """The least that makes a usable row."""
    return {
        "model": "resnet50",
        "device": "A100-SXM4-80GB",
        "devices": 8,
        "precision": "fp16-mixed",
        "batch_per_device": 256,
        "step_time_s": 0.1,
    }
