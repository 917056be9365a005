"""Counts what the rows of the shipped corpus say of practice: `python data/practice.py`.

Writes src/precision_time/request/data/practice/counted.toml again and prints how often the true stack of a
row is among the alternatives of its bare question. Publishers vote, not rows: in every class of questions
(family, method, kind of device, scale) a family of sources (corpus/data/publishers.toml) has one vote, which
its rows share. With `--check` nothing is written and a difference is an error.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

from precision_time.corpus.jobs import UnsupportedRow, row_workload
from precision_time.corpus.measurement import Measurement
from precision_time.corpus.protocols import publisher
from precision_time.corpus.store import load_corpus
from precision_time.cost.stacks import kind_of_stack
from precision_time.errors import PrecisionTimeError
from precision_time.hardware.catalog import get_device
from precision_time.hardware.device import Device
from precision_time.request import practice as data
from precision_time.request import question
from precision_time.request.votes import STACK, Votes, counted_votes, recipe_votes
from precision_time.workload.workload import Workload
from published_runs import famous_runs

COUNTED = Path(__file__).parents[1] / "src/precision_time/request/data/practice/counted.toml"
PUBLISHED = COUNTED.with_name("published.toml")
_HEAD = """# What the rows of the shipped corpus say of practice. Written by data/practice.py; do not edit.
#
# votes: of publishers, each with one in every class that its rows are in; publishers: how many share it.
# year: mean of the software of the rows.
"""
_PUBLISHED_HEAD = """# Published trainings of large language models (data/famous_runs.csv). Written by
# data/practice.py; do not edit. tokens: of an optimizer step, the largest of the training.

# A job is like a run of which neither size nor number of devices is further off; assumed.
[alike]
most_times = 4.0

[run]"""
_LEAST_VOTES = 0.02
_OF_RL = "rl-trainer"
_VOTES = ("votes", "publishers")
_AGES = (0.5, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0)
"""Years after the device to which the age of software is rounded."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """A measured row as a question and what its publisher did."""

    publisher: str
    family: str
    method: str
    device: Device
    kind: str
    scale: str
    room: str
    measured: Measurement


@cache
def _workload(model: str, task: str) -> Workload | None:
    stated: dict[str, Any] = {
        "model": model,
        "seq_len": None,
        "sizes": {},
        "task": task,
        "dataset": "",
        "optimizer": "",
    }
    try:
        return row_workload(stated)
    except UnsupportedRow:
        return None


def rows_of(measured: Iterable[Measurement]) -> list[Row]:
    """The rows whose model and device are known, as questions."""
    found = []
    for item in measured:
        workload = _workload(item.model, item.task)
        try:
            device = get_device(item.device)
        except PrecisionTimeError:
            continue
        if workload is None or item.layout is None:
            continue
        adapter = workload.adapter
        method = question.method_in_words(item.task)
        if adapter:
            method = "qlora" if adapter.startswith("q") else "lora"
        if item.task.startswith(_OF_RL):  # adapters or not: nobody takes such a trainer for anything else
            method = "rl"
        found.append(
            Row(
                publisher=publisher(item),
                family=question.family_of(workload.family),
                method=method,
                device=device,
                kind=question.kind_of_device(device),
                scale=question.scale_of(item.num_devices, item.num_nodes),
                room=question.room_of(workload, device),
                measured=item,
            )
        )
    return found


def _age(row: Row) -> dict[str, Any]:
    after = row.measured.stack.framework_year - row.device.release_year
    return {"years_after_device": min(_AGES, key=lambda age: abs(age - after))}


def _input(row: Row) -> dict[str, Any]:
    stack = row.measured.stack
    return {"real_input": True, "loader": stack.loader} if stack.loader else {"real_input": False}


POINTS: Mapping[str, tuple[tuple[str, ...], Callable[[Row], Mapping[str, Any] | None]]] = {
    "software": (("kind",), _age),
    "precision": (("family", "kind"), lambda row: {"precision": row.measured.precision}),
    "sharding": (
        ("method", "scale", "room"),
        lambda row: (
            {"zero_stage": row.measured.layout.zero_stage}
            if row.measured.layout is not None and row.measured.layout.data_ranks > 1
            else None
        ),
    ),
    "recompute": (
        ("family", "method", "room"),
        lambda row: {"recompute": row.measured.layout.recompute.value} if row.measured.layout else None,
    ),
    "compiler": (("family",), lambda row: {"compiler": row.measured.stack.compiler}),
    "memory_format": (("family",), lambda row: {"channels_last": row.measured.stack.channels_last}),
    "input": (("family",), _input),
}
"""By point: the classes in which it is counted for each stack, and what a row says of it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Shares:
    """Of one point: by class and by what is said, the share that each publisher's rows give it."""

    columns: tuple[str, ...]
    by_class: Mapping[tuple[Any, ...], Mapping[str, Mapping[str, float]]]
    years: Mapping[tuple[Any, ...], Mapping[str, Mapping[str, tuple[float, int]]]]
    """Sum of the years of the software, and of how many rows."""


def shares_of(
    rows: Sequence[Row],
    columns: Sequence[str],
    key: Callable[[Row], tuple[Any, ...]],
    says: Callable[[Row], str | None],
) -> Shares:
    """What the publishers of some rows say of one point."""
    counts: dict[tuple[Any, ...], dict[str, dict[str, list[float]]]] = defaultdict(
        lambda: defaultdict(lambda: defaultdict(lambda: [0, 0.0]))
    )
    totals: dict[tuple[Any, ...], dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for row in rows:
        if (said := says(row)) is not None:
            cell = key(row)
            count = counts[cell][said][row.publisher]
            count[0] += 1
            count[1] += row.measured.stack.framework_year
            totals[cell][row.publisher] += 1
    return Shares(
        columns=tuple(columns),
        by_class={
            cell: {
                said: {name: count[0] / totals[cell][name] for name, count in publishers.items()}
                for said, publishers in found.items()
            }
            for cell, found in counts.items()
        },
        years={
            cell: {
                said: {name: (count[1], int(count[0])) for name, count in publishers.items()}
                for said, publishers in found.items()
            }
            for cell, found in counts.items()
        },
    )


def _stack(row: Row) -> str:
    return row.measured.stack.profile


def _cell(row: Row) -> tuple[str, ...]:
    return row.family, row.method, row.kind, row.scale


def _of_stack(names: Sequence[str], row: Row) -> tuple[str, ...]:
    return _stack(row), *(getattr(row, name) for name in names)


def _as_text(says: Callable[[Row], Mapping[str, Any] | None], row: Row) -> str | None:
    fields = says(row)
    return None if fields is None else json.dumps(fields, sort_keys=True)


def counted(rows: Sequence[Row]) -> dict[str, Shares]:
    """What rows say of practice, by point: once, whoever's votes are left out afterwards."""
    found = {STACK: shares_of(rows, ("family", "method", "kind", "scale"), _cell, _stack)}
    for point, (names, says) in POINTS.items():
        found[point] = shares_of(rows, ("stack", *names), partial(_of_stack, names), partial(_as_text, says))
    return found


def tables_of(found: Mapping[str, Shares], *, without: str = "") -> dict[str, Any]:
    """The tables of counted.toml.

    Args:
        found: What is counted.
        without: A publisher without a vote.
    """
    tables: dict[str, Any] = {}
    for point, shares in found.items():
        rows = []
        for key, said in shares.by_class.items():
            for words, publishers in said.items():
                others = {name: share for name, share in publishers.items() if name != without}
                if (votes := _sum(others)) < _LEAST_VOTES:
                    continue
                if point == STACK:
                    years, counts = zip(*(shares.years[key][words][name] for name in others), strict=True)
                    what = [words, round(sum(years) / sum(counts), 1)]
                else:
                    what = [json.loads(words)]
                rows.append([*key, *what, votes, len(others)])
        tables[point] = {
            "columns": [*shares.columns, *((STACK, "year") if point == STACK else ("fields",)), *_VOTES],
            "rows": sorted(rows, key=None if point == STACK else repr),
        }
    return tables


def published_text() -> str:
    """published.toml: trainings of large models as their sources state them, the largest batch of each."""
    found: dict[tuple[str, int], list[Any]] = {}
    for run in famous_runs():
        if run.kind not in ("llm-large", "llm-moe") or run.length_unit != "tokens" or not run.global_batch:
            continue
        workload = _workload(run.model, "")
        if workload is None:
            continue
        tokens = max(run.global_batch) * max(run.length)
        key = (run.model, run.devices)
        if key not in found or found[key][5] < tokens:
            found[key] = [
                *(run.model, round(workload.graph.params), workload.family == "moe", run.devices),
                *(run.precision, tokens, run.source),
            ]
    rows = sorted(found.values(), key=repr)
    columns = ["model", "params", "experts", "devices", "precision", "tokens", "source"]
    lines = [*(f"  {_value(row)}," for row in rows)]
    return "\n".join([_PUBLISHED_HEAD, f"columns = {_value(columns)}", "rows = [", *lines, "]", ""])


def _sum(shares: Mapping[str, float]) -> float:
    return round(sum(shares.values()), 3)


def text_of(tables: Mapping[str, Any]) -> str:
    """The tables as TOML."""
    parts = [_HEAD]
    for point, table in tables.items():
        parts.append(f"[{point}]\ncolumns = {_value(table['columns'])}\nrows = [")
        parts += [f"  {_value(row)}," for row in table["rows"]]
        parts.append("]\n")
    return "\n".join(parts)


def _value(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_value, value))}]"
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{name} = {_value(item)}" for name, item in value.items()) + " }"
    return json.dumps(value)


def votes_of(tables: Mapping[str, Any]) -> Votes:
    """Counted votes as `practice` takes them, with those of the recipes."""
    stacks, settings = [], defaultdict(list)
    for point, vote in [*counted_votes(tables), *recipe_votes()]:
        if point == STACK:
            stacks.append(vote)
        else:
            settings[point, vote.stack].append(vote)
    return Votes(stacks=tuple(stacks), settings={key: tuple(votes) for key, votes in settings.items()})


def question_of(row: Row, *, year: float | None = None) -> question.Question:
    """The bare question of a row."""
    return question.Question(
        family=row.family,
        method=row.method,
        device=row.device,
        kind=row.kind,
        scale=row.scale,
        room=row.room,
        num_devices=row.measured.num_devices,
        year=year,
        given=frozenset({"precision", "batch_size", "seq_len"}),
    )


def coverage(
    rows: Sequence[Row], votes: Votes, *, known_year: bool = False
) -> list[tuple[Row, float, float]]:
    """Of each row the weight of its true stack, and of the stacks of its kind, among the alternatives."""
    remembered: dict[Any, Mapping[str, float]] = {}
    found = []
    for row in rows:
        year = round(row.measured.stack.framework_year) if known_year else None
        key = (row.family, row.method, row.device.name, row.scale, row.room, year)
        if key not in remembered:
            given = data.stack_alternatives(question_of(row, year=year), votes.stacks)
            remembered[key] = {str(each.fields[STACK]): each.weight for each in given}
        weights, true = remembered[key], row.measured.stack.profile
        kind = sum(weight for name, weight in weights.items() if kind_of_stack(name) == kind_of_stack(true))
        found.append((row, weights.get(true, 0.0), kind))
    return found


def held_out(rows: Sequence[Row], *, known_year: bool = False) -> list[tuple[Row, float, float]]:
    """The same with the votes of everybody but the row's publisher."""
    found, every = [], counted(rows)
    for name in sorted({row.publisher for row in rows}):
        own = [row for row in rows if row.publisher == name]
        found += coverage(own, votes_of(tables_of(every, without=name)), known_year=known_year)
    return found


def summary(
    found: Sequence[tuple[Row, float, float]], of: Callable[[Row], str]
) -> dict[str, tuple[float, ...]]:
    """By group: share of rows whose stack, or one of its kind, is an alternative; their mean weight; rows.

    Publishers count alike in every group.
    """
    cells: dict[str, dict[str, list[tuple[float, float]]]] = defaultdict(lambda: defaultdict(list))
    for row, exact, kind in found:
        cells[of(row)][row.publisher].append((exact, kind))
    result = {}
    for group, publishers in sorted(cells.items()):
        means = []
        for pairs in publishers.values():
            count = len(pairs)
            means.append(
                (
                    sum(exact > 0.0 for exact, _ in pairs) / count,
                    sum(kind > 0.0 for _, kind in pairs) / count,
                    sum(exact for exact, _ in pairs) / count,
                    sum(kind for _, kind in pairs) / count,
                )
            )
        result[group] = (
            *(sum(each) / len(means) for each in zip(*means, strict=True)),
            sum(map(len, publishers.values())),
        )
    return result


def _print(title: str, found: Sequence[tuple[Row, float, float]]) -> None:
    print(f"\n{title}: true stack among the alternatives, or one of its kind; mean weight of each; rows")
    groups: tuple[Callable[[Row], str], ...] = (
        lambda row: "all",
        lambda row: row.family,
        lambda row: row.kind,
    )
    for of in groups:
        for group, (exact, kind, weight, kind_weight, count) in summary(found, of).items():
            print(f"  {group:16s} {exact:5.1%} {kind:6.1%} {weight:7.2f} {kind_weight:5.2f} {count:7.0f}")


def main() -> None:
    """Count, write and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; fail where the file differs")
    parser.add_argument("--held-out", action="store_true", help="also without the votes of a row's publisher")
    options = parser.parse_args()
    rows = rows_of(item for item in load_corpus() if item.usable)
    tables = tables_of(counted(rows))
    text = text_of(tables)
    if options.check:
        for path, wanted in ((COUNTED, text), (PUBLISHED, published_text())):
            if path.read_text(encoding="utf-8") != wanted:
                raise SystemExit(f"{path.name} is not up to date. To fix: python data/practice.py")
    else:
        COUNTED.write_text(text, encoding="utf-8")
        PUBLISHED.write_text(published_text(), encoding="utf-8")
    _print("With all votes", coverage(rows, votes_of(tables)))
    if options.held_out:
        _print("Without the votes of its publisher", held_out(rows))
        _print("The same, year known", held_out(rows, known_year=True))


if __name__ == "__main__":
    main()
