"""Profiles of Nsight Systems: the SQLite export, and the table of NVTX ranges of `nsys stats`.

A step is an NVTX range that comes once a step (`step 12`, `iteration_12`, `ProfilerStep#12`, or one name over
and over), from one start to the next. The schema is NVIDIA's: Nsight Systems, SQLite Export Schema Reference.
"""

from __future__ import annotations

import re
import sqlite3
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from precision_time.errors import printable

from .bounded import columns_of, csv_rows, database, tables_of
from .contract import MOST_STEPS, ImportedRun, Importer, LoggedStep, finite, unreadable
from .parameters import device_called
from .spans import COPIES, INPUT, Spans, mean_terms, shares_by_kind, steady_windows, step_windows

_NANO = 1e-9
_KERNELS, _MEMCPY, _MEMSET = (f"CUPTI_ACTIVITY_KIND_{kind}" for kind in ("KERNEL", "MEMCPY", "MEMSET"))
_NVTX, _STRINGS, _GPUS = "NVTX_EVENTS", "StringIds", "TARGET_INFO_GPU"
_PUSH_POP, _START_END = 59, 60
"""ENUM_NSYS_EVENT_TYPE: ranges of a thread, ranges of a process."""
_NUMBER = re.compile(r"[#\s_:=\[(]*(\d+)\D*$")
_STEP_WORDS = re.compile(
    r"profilerstep|(^|[^a-z])(train(ing)?|step|iter(ation)?|batch)s?([^a-z]|$)", re.IGNORECASE
)
_INNER_WORDS = re.compile(
    r"forward|backward|optimi[sz]er|loss|data|load|fetch|copy|comm|reduce|zero_grad|clip|eval|val|test",
    re.IGNORECASE,
)
_LOADER = re.compile(r"data ?load|next_data|fetch|load_batch|dataloader", re.IGNORECASE)
_MOST_RANGES = 4_000_000
_PROCESS_BITS = 24
"""Lower bits of a serialized identifier that number the threads of a process."""
_MOST_SPANS = 20_000_000
_FIX = 'mark every step with torch.cuda.nvtx.range_push(f"step {number}") and range_pop()'


def _read_database(path: Path) -> list[ImportedRun]:
    with database(path) as connection:
        ranges = _ranges(connection)
        windows, name, thread = _windows(path, ranges)
        spans, device_id = _spans(connection, windows, thread >> _PROCESS_BITS)
        for text, start_s, end_s, of_thread in ranges:
            if _LOADER.search(text) and of_thread == thread:
                spans.add(INPUT, start_s, end_s)
        gpus, busy = _gpus(connection)
    notes = [f"a step is from one NVTX range {printable(name, longest=60)!r} to the next"]
    fields: dict[str, Any] = {}
    called = gpus.get(device_id) or next(iter(gpus.values()), "")
    if device := device_called(called):
        fields |= {"device": device, "gpus": max(1, busy)}
        notes.append(f"{max(1, busy)} GPUs ran kernels on the machine that was profiled")
    elif called:
        notes.append(f"device {printable(called, longest=60)!r} is in no catalog")
    if spans.kinds:
        notes.append(f"busy time of GPU {device_id} by kind: {shares_by_kind(spans.kinds)}")
    else:
        notes.append("no kernel was recorded: profile with --trace=cuda,nvtx for the terms of a step")
    steps = tuple(LoggedStep(step=number, step_time_s=end - start, steps=1) for number, start, end in windows)
    run = ImportedRun(name=path.stem, origin=path.name, importer="nsight-systems", fields=fields, steps=steps)
    terms_s = mean_terms(spans, steady_windows(windows, run)) if spans.kinds else {}
    return [replace(run, notes=tuple(notes), terms_s=terms_s)]


def _ranges(connection: sqlite3.Connection) -> list[tuple[str, float, float, int]]:
    """NVTX ranges: text, start and end [s], thread; in the order of their starts."""
    columns = columns_of(connection, _NVTX)
    if not {"start", "end", "text"} <= columns:
        return []
    text, joined = "n.text", ""
    if "textId" in columns and columns_of(connection, _STRINGS):
        text, joined = "COALESCE(n.text, s.value)", f"LEFT JOIN {_STRINGS} AS s ON s.id = n.textId"
    kind = f"AND n.eventType IN ({_PUSH_POP}, {_START_END})" if "eventType" in columns else ""
    thread = "COALESCE(n.globalTid, 0)" if "globalTid" in columns else "0"
    found = connection.execute(
        f"SELECT {text}, n.start, n.end, {thread} FROM {_NVTX} AS n {joined} "  # noqa: S608 - names of this module alone
        f"WHERE n.end > n.start {kind} ORDER BY n.start LIMIT {_MOST_RANGES}"
    )
    return [
        (str(name), start * _NANO, end * _NANO, thread)
        for name, start, end, thread in found
        if name and _whole(start, end, thread)
    ]


def _whole(*values: Any) -> bool:
    """Whether cells are integers, as SQLite does not promise of any column."""
    return all(isinstance(value, int) for value in values)


def _windows(
    path: Path, ranges: Sequence[tuple[str, float, float, int]]
) -> tuple[list[tuple[int, float, float]], str, int]:
    """Step, start and end of every step of one thread [s], the name of their range, and the thread.

    Raises:
        CorpusError: If no range comes once a step.
    """
    by_name: dict[tuple[str, int], list[tuple[int | None, float, float]]] = defaultdict(list)
    for text, start_s, end_s, thread in ranges:
        number = _NUMBER.search(text)
        name = _NUMBER.sub("", text).strip()
        by_name[name, thread].append((int(number[1][:15]) if number else None, start_s, end_s))
    likely = {
        (name, thread): found
        for (name, thread), found in by_name.items()
        if len(found) > 1 and _STEP_WORDS.search(name) and not _INNER_WORDS.search(name)
    }
    if not likely:
        seen = ", ".join(repr(printable(name, longest=40)) for name, _ in list(by_name)[:5]) or "none"
        raise unreadable(path, f"has no NVTX range of a training step (ranges: {seen})", _FIX)
    chosen = max(
        likely, key=lambda key: (key[0] == "ProfilerStep", sum(end - start for _, start, end in likely[key]))
    )
    found = likely[chosen][:MOST_STEPS]
    numbered = len({number for number, _, _ in found} - {None}) == len(found)
    ordered = [
        (number if numbered and number is not None else index + 1, start_s, end_s)
        for index, (number, start_s, end_s) in enumerate(found)
    ]
    return step_windows(ordered), *chosen


def _spans(
    connection: sqlite3.Connection, windows: Sequence[tuple[int, float, float]], process: int
) -> tuple[Spans, int]:
    """What the GPU did during the steps, on which the process of the steps ran the most kernels."""
    spans = Spans(most=_MOST_SPANS)
    columns = columns_of(connection, _KERNELS)
    if not {"start", "end", "deviceId"} <= columns:
        return spans, 0
    own = f"AND globalPid >> {_PROCESS_BITS} = {process}" if "globalPid" in columns and process else ""
    begin, end = (round(at / _NANO) for at in (windows[0][1], windows[-1][2]))
    row = connection.execute(
        f"SELECT deviceId FROM {_KERNELS} WHERE start < ? AND end > ? {own} GROUP BY deviceId "  # noqa: S608
        "ORDER BY COUNT(*) DESC, deviceId LIMIT 1",
        (end, begin),
    ).fetchone()
    if row is None:
        return spans, 0
    device_id = int(row[0])
    within = (end, begin, device_id, _MOST_SPANS)
    names = connection.execute(
        f"SELECT COALESCE(s.value, ''), k.start, k.end FROM {_KERNELS} AS k "  # noqa: S608
        f"LEFT JOIN {_STRINGS} AS s ON s.id = k.demangledName "
        f"WHERE k.start < ? AND k.end > ? AND k.deviceId = ? {own} LIMIT ?",
        within,
    )
    for name, start, stop in names:
        if _whole(start, stop):
            spans.add_kernel(str(name), start * _NANO, stop * _NANO)
    for table in (_MEMCPY, _MEMSET):
        if {"start", "end", "deviceId"} <= columns_of(connection, table):
            copies = connection.execute(
                f"SELECT start, end FROM {table} "  # noqa: S608
                f"WHERE start < ? AND end > ? AND deviceId = ? {own} LIMIT ?",
                within,
            )
            for start, stop in copies:
                if _whole(start, stop):
                    spans.add(COPIES, start * _NANO, stop * _NANO, "copies")
    return spans, device_id


def _gpus(connection: sqlite3.Connection) -> tuple[dict[int, str], int]:
    """Names of the GPUs by CUDA device, and how many of them ran kernels."""
    columns = columns_of(connection, _GPUS)
    number = "cuDevice" if "cuDevice" in columns else "id"
    names: dict[int, str] = {}
    if {"name", number} <= columns:
        for key, name in connection.execute(f"SELECT {number}, name FROM {_GPUS} LIMIT 1024"):  # noqa: S608
            if isinstance(key, int) and name:
                names[key] = str(name)
    busy = 0
    if "deviceId" in columns_of(connection, _KERNELS):
        busy = int(connection.execute(f"SELECT COUNT(DISTINCT deviceId) FROM {_KERNELS}").fetchone()[0])  # noqa: S608
    return names, busy


_STATS = ("Range", "Instances")
_UNITS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0}


def _read_stats(path: Path) -> list[ImportedRun]:
    """The table of `nsys stats --report nvtx_sum --format csv`: a median for each name."""
    rows = []
    for row in csv_rows(path):
        header = {name.split(" (")[0]: name for name in row}
        column = header.get("Med") or header.get("Avg") or header.get("Average", "")
        unit = re.search(r"\((ns|us|ms|s)\)", column)
        name, time = row.get("Range", "").lstrip(":").strip(), finite(row.get(column, "").replace(",", ""))
        count = finite(row.get("Instances", "").replace(",", ""))
        if name and time and count and unit:
            rows.append((name, time * _UNITS[unit[1]], int(count), column.split(" (")[0]))
    groups: dict[str, list[tuple[int | None, float, int, str]]] = defaultdict(list)
    for name, time_s, count, column in rows:
        number = _NUMBER.search(name)
        plain = _NUMBER.sub("", name).strip()
        if _STEP_WORDS.search(plain) and not _INNER_WORDS.search(plain):
            groups[plain].append((int(number[1][:15]) if number else None, time_s, count, column))
    groups = {name: found for name, found in groups.items() if sum(count for _, _, count, _ in found) > 1}
    if not groups:
        raise unreadable(path, "has no NVTX range of a training step", _FIX)
    name = max(groups, key=lambda key: sum(time_s * count for _, time_s, count, _ in groups[key]))
    found = sorted(groups[name], key=lambda item: item[0] or 0)
    steps = tuple(
        LoggedStep(
            step=number if number is not None and len(found) > 1 else count, step_time_s=time_s, steps=count
        )
        for number, time_s, count, _ in found
    )
    note = f"{found[0][3]} of NVTX ranges {printable(name, longest=60)!r}: gaps between them are left out"
    return [
        ImportedRun(name=path.stem, origin=path.name, importer="nsight-systems", steps=steps, notes=(note,))
    ]


def _is_stats(path: Path, head: bytes) -> bool:
    columns = [cell.strip(b'"\r ') for cell in head.split(b"\n", 1)[0].split(b",")]
    return all(name.encode() in columns for name in _STATS)


IMPORTERS = (
    Importer(
        name="nsight-systems",
        description="Nsight Systems: `nsys export --type sqlite` of a report, with NVTX ranges of the steps",
        matches=lambda path, head: (
            _STRINGS in (found := tables_of(path, head))
            and bool({_KERNELS, _NVTX, _GPUS, "ANALYSIS_DETAILS"} & found)
        ),
        read=_read_database,
    ),
    Importer(
        name="nsight-systems-csv",
        description="Nsight Systems: `nsys stats --report nvtx_sum --format csv` of a report",
        matches=_is_stats,
        read=_read_stats,
    ),
)
