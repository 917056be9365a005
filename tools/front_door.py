"""Ask every measured run of the corpus like a user would, and compare with the prediction of the row.

Each usable row is turned into the words of a command line, which the command's own parser reads, and into a
line of a job file, which `read_requests` reads. Both must give the step time that evaluation and training
have of the row, to 1e-9. Exits with 1 where one does not.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from rich.progress import track

from precision_time.cli.options import PREFIX, flags_of
from precision_time.cli.request_options import requests_in_words, sizes_of
from precision_time.corpus.jobs import UnsupportedRow, job_of, request_of
from precision_time.corpus.measurement import Measurement
from precision_time.corpus.store import load_corpus
from precision_time.cost.job import Job
from precision_time.errors import PrecisionTimeError
from precision_time.learn.artifact import shipped_predictor
from precision_time.learn.priced import predict_step_times
from precision_time.predict.api import predict
from precision_time.request.files import read_requests
from precision_time.request.request import Request
from precision_time.request.schema import request_fields

TOLERANCE = 1e-9
_AT_ONCE = 512
_SHOWN = 20


def request_arguments(request: Request) -> list[str]:
    """The words that ask a request on the command line: the way back from `requests_of`."""
    words = [str(request.model)]
    for name, value in request.given().items():
        info = dict(request_fields())[name]
        option = info.option
        if option is None or name == "model":
            continue
        flag = flags_of(name, option)[-1] if name == "sizes" else f"{PREFIX}{name.replace('_', '-')}"
        if name == "sizes":
            words += [word for key, size in value.items() for word in (flag, f"{key}={_size_text(size)}")]
        elif name == "anchors":
            words += [word for anchor in value for word in (option.flags[0], json.dumps(anchor))]
        elif name == "inputs":
            words += [word for text in value for word in (option.flags[0], text)]
        elif isinstance(value, bool):
            words.append(flag if value else f"{PREFIX}no-{flag.removeprefix(PREFIX)}")
        else:
            whole = isinstance(value, float) and value.is_integer()
            words += [flag, str(int(value) if whole else value)]
    return words


def _size_text(size: Any) -> str:
    """A size as `_sizes` reads it: text in quotes only where it would be read as something else."""
    if not isinstance(size, str):
        return json.dumps(size)
    plain = size.strip() and sizes_of([f"name={size}"]) == {"name": size}
    return size if plain else json.dumps(size)


def parsed(words: Sequence[str]) -> Request:
    """The request of `precision-time predict WORDS`, as the command gets it."""
    (request,) = requests_in_words(words)
    return request


def from_file(requests: Iterable[Request]) -> list[Request]:
    """The requests after a way through a file of JSON lines."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "jobs.jsonl"
        path.write_text("".join(f"{json.dumps(request.given())}\n" for request in requests), encoding="utf-8")
        return read_requests(path)


class Door:
    """Step times of requests; those of equal words are predicted once."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[Request, float | str]] = {}

    def step_time_s(self, words: Sequence[str]) -> tuple[Request, float | str]:
        """The request of a command line and its step time [s], or why it is refused."""
        key = json.dumps(words)
        if key not in self._known:
            request = parsed(words)
            self._known[key] = request, answer_s(request)
        return self._known[key]


def answer_s(request: Request) -> float | str:
    """The predicted step time [s], or why the request is refused."""
    try:
        return predict(request).step_time_s
    except PrecisionTimeError as error:
        return str(error)


def batches(rows: Iterable[Measurement]) -> Iterator[list[tuple[Measurement, Request, Job]]]:
    """Rows that can be priced, some hundred at a time."""
    found: list[tuple[Measurement, Request, Job]] = []
    for row in rows:
        try:
            found.append((row, request_of(row), job_of(row)))
        except UnsupportedRow:
            continue
        if len(found) == _AT_ONCE:
            yield found
            found = []
    if found:
        yield found


def main() -> None:
    """Compare, print the largest difference and every row that differs."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--every", type=int, default=1, help="take every n-th row (default: all)")
    options = parser.parse_args()
    rows = [row for row in load_corpus() if row.usable][:: options.every]
    predictor, door = shipped_predictor(), Door()
    largest, compared, wrong = 0.0, 0, []
    for batch in batches(track(rows, description="asking")):
        expected_s = predict_step_times([job for _, _, job in batch], predictor, coverage=0.9).step_time_s
        filed = from_file(request for _, request, _ in batch)
        for (row, request, _), of_row_s, of_file in zip(batch, expected_s.tolist(), filed, strict=True):
            words = request_arguments(request)
            of_words, words_s = door.step_time_s(words)
            file_s = words_s if of_file == of_words else answer_s(of_file)
            compared += 1
            for way, seconds in (("words", words_s), ("file", file_s)):
                off = abs(seconds / of_row_s - 1.0) if isinstance(seconds, float) else float("inf")
                largest = max(largest, off)
                if off > TOLERANCE:
                    wrong.append(f"{row.source} {row.source_ref} by {way}: {of_row_s!r} s, got {seconds!r}")
                    wrong.append(f"  precision-time predict {' '.join(words)}")
    print(f"{compared} of {len(rows)} usable rows asked by words and by file.")
    print(f"Largest relative difference of the step time: {largest:.2g}.")
    print("\n".join(wrong[: 2 * _SHOWN]))
    if len(wrong) > 2 * _SHOWN:
        print(f"... {len(wrong) // 2} differ.")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
