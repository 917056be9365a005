"""Build the shipped corpus from a folder of raw measurement CSVs.

Usage: python data/build_corpus.py ../shared/measurements [--output src/.../corpus.sqlite]

After the folder come the files of data/collected, rows gathered later in the same schema. The same files give
the same rows in the same order. Also writes docs/reference/corpus.md.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from corpus_summary import corpus_summary
from precision_time.corpus.importer import read_measurements
from precision_time.corpus.measurement import Measurement, Rejected
from precision_time.corpus.store import MeasurementStore
from precision_time.io import put_in_place

ROOT = Path(__file__).resolve().parents[1]
sys.path.append(str(ROOT / "tools"))

from pages import write_page  # noqa: E402

CORPUS = ROOT / "src" / "precision_time" / "corpus" / "data" / "corpus.sqlite"
COLLECTED = Path(__file__).parent / "collected"
"""Rows gathered since the folder was handed over: facts of public threads, pages and scripts."""
DOCUMENT = ROOT / "docs" / "reference" / "corpus.md"


def main() -> None:
    """Read every measurement CSV of the folder and write the store and its summary."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("folder", type=Path, help="folder of raw CSVs, such as ../shared/measurements")
    parser.add_argument("--output", type=Path, default=CORPUS)
    parser.add_argument("--document", type=Path, default=DOCUMENT)
    arguments = parser.parse_args()
    measurements: list[Measurement] = []
    rejected: list[Rejected] = []
    for path in (*sorted(arguments.folder.glob("*.csv")), *sorted(COLLECTED.glob("*.csv"))):
        if not _holds_measurements(path):
            continue
        for row in read_measurements(path, curated=True):
            if isinstance(row, Measurement):
                measurements.append(row)
            else:
                rejected.append(row)
    measurements = with_repeats(measurements)
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    write_store(arguments.output, measurements, rejected=rejected)
    write_page(arguments.document, corpus_summary(measurements, rejected))


def with_repeats(measurements: Iterable[Measurement]) -> list[Measurement]:
    """The same measurements with repeat count and spread of each configuration filled in.

    A row that already stands for more repeats than its configuration has rows keeps its own figures.
    """
    rows = list(measurements)
    groups: dict[str, list[float]] = {}
    for row in rows:
        if row.usable:
            groups.setdefault(row.configuration_key, []).append(row.step_time_s)
    return [_with_repeats(row, groups.get(row.configuration_key, [])) for row in rows]


def _with_repeats(row: Measurement, times: list[float]) -> Measurement:
    if len(times) <= row.repeat_count or not row.usable:
        return row
    spread = (max(times) - min(times)) / statistics.median(times)
    return replace(row, repeat_count=len(times), spread=spread)


def write_store(
    path: str | Path, measurements: Iterable[Measurement], *, rejected: Iterable[Rejected] = ()
) -> None:
    """Write a new store at `path`, replacing what was there only when the new file is complete."""
    target = Path(path)
    part = target.with_suffix(f".{os.getpid()}.part")
    try:
        with MeasurementStore(part) as store:
            store.add(measurements, rejected=rejected)
            store._connection.execute("VACUUM")  # noqa: SLF001
        put_in_place(part, target)
    finally:
        part.unlink(missing_ok=True)


def _holds_measurements(path: Path) -> bool:
    """Catalogues (prices, collectives, device facts) lie in the same folder."""
    with path.open(encoding="utf-8-sig") as file:
        header = file.readline().strip().split(",")
    return {"model", "device", "devices", "precision", "step_time_s"} <= set(header)


if __name__ == "__main__":
    main()
