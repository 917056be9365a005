"""What measured steps of a user's own are worth, by what they have in common with the job that is asked.

Rows of one source are anchors of its other rows, every row predicted out of fold under each protocol of
HELD_OUT. Errors are means over sources, then over protocols. What a difference carries is what the process
has learned (learn/calibration/process.py); the share of it that other families of sources bear out is fitted
beside it: 1 says that it is right, less that it carries too much.

Then a step of one node is carried to several nodes of the same source, model, device, precision, software,
layout and micro batch.

    python packages/papers/studies/anchors.py

The out-of-fold predictions are those of `accuracy.py`, taken from the cache where it has run.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from calibration_study import Users, intervals_of, users_of
from precision_time.corpus.store import load_corpus
from precision_time.executor import process_map
from precision_time.io import cache_folder
from precision_time.learn.artifact import shipped_predictor
from precision_time.learn.calibration.places import KINDS, position_columns
from precision_time.learn.calibration.process import Conditioned, Process
from precision_time.learn.training import HELD_OUT
from precision_time.render.table import markdown_lines
from precision_time_papers.evaluation.cross_validation import Runs
from precision_time_papers.evaluation.pricing import priced_corpus
from precision_time_papers.evaluation.report import FOLDS

Floats = NDArray[np.float64]
Ints = NDArray[np.intp]
Bools = NDArray[np.bool_]
Chooser = Callable[[Users, Ints, int], Bools]
"""Of users, rows of a source and an asked one: which of the rows may be its anchors."""

POINTS = (1, 3)
_OF_A_SOURCE, _TRIED = 6, 60
"""Jobs asked of each source and difference; jobs tried for that many with enough anchors."""
_OF_A_CLUSTER = 40
"""Jobs on several nodes asked of each source."""
_GRID = np.linspace(0.0, 1.5, 31)
_FAR = 1.0
"""Of |log(answer / measured)|: what is farther off counts as this, so that a few odd rows do not decide."""
_TAIL = 1.6448536269514722
_SHAPE = ("log_seq_len", "log_image_size")
_LAYOUT = ("log_micro_batch_size", "log_tp", "log_pp", "log_cp", "log_ep", "zero_stage", "checkpointing")


@dataclass(frozen=True, kw_only=True)
class Replay:
    """Jobs asked under one protocol, each with as many anchors of one difference."""

    known: Users
    asked: Ints
    """Shape (n,)."""
    factors: Floats
    """Logarithms of what the anchors multiply the answers by, shape (n,)."""
    widths: Floats
    """Of the intervals relative to those without anchors, as logarithms, shape (n,)."""

    @classmethod
    def of(cls, known: Users, asked: Sequence[int], given: Sequence[Ints], process: Process) -> Replay:
        """The jobs answered, each with its anchors."""
        factors, widths = np.empty((2, len(asked)))
        for row, (one, points) in enumerate(zip(asked, given, strict=True)):
            seen = Conditioned.on(process, known.places.take(points), known.log_ratios[points])
            moved = seen.at(known.places.take([one]))
            factors[row], widths[row] = moved.log_factor[0], moved.sd[0] / moved.sd_before[0]
        return cls(known=known, asked=np.array(asked), factors=factors, widths=widths)

    def off(self, share: Floats | float) -> Floats:
        """log(answer / measured) where a share of the factors is believed, shape (n,)."""
        return share * self.factors - self.known.log_ratios[self.asked]

    def mean(self, values: Floats, rows: Bools | None = None) -> float:
        """Mean over the sources of some rows; NaN of none."""
        chosen = np.ones(len(self.asked), dtype=bool) if rows is None else rows
        if not chosen.any():
            return float("nan")
        _, numbers = np.unique(self.known.source[self.asked][chosen], return_inverse=True)
        return float(np.mean(np.bincount(numbers, values[chosen]) / np.bincount(numbers)))

    def error(self, share: Floats | float) -> float:
        """Mean over sources of |answer / measured - 1| [%]."""
        return 100.0 * self.mean(np.abs(np.expm1(self.off(share))))

    def inside(self, share: Floats | float, widths: Floats | float) -> Floats:
        """1 where the measurement is within the 90 % interval, else 0."""
        half = _TAIL * self.known.places.width[self.asked] * widths
        return (np.abs(self.off(share)) <= half).astype(np.float64)


def differences() -> Mapping[str, Chooser]:
    """Which rows differ from an asked one in what the name says, and share the rest."""
    model, device, precision = (KINDS.index(name) for name in ("model", "device", "precision"))
    batch = position_columns().index("log_micro_batch_size")

    def cell(known: Users, rows: Ints, one: int) -> Bools:
        return np.asarray(known.cell[rows] == known.cell[one])

    def other_batch(known: Users, rows: Ints, one: int) -> Bools:
        batches, devices = known.places.positions[:, batch], known.devices
        other = (batches[rows] != batches[one]) & (devices[rows] == devices[one])
        found: Bools = cell(known, rows, one) & other
        return found

    def fewer_devices(known: Users, rows: Ints, one: int) -> Bools:
        found: Bools = cell(known, rows, one) & (known.devices[rows] < known.devices[one])
        return found

    def other(*kinds: int) -> Chooser:
        wanted = [kind not in kinds for kind in (model, device, precision)]

        def chosen(known: Users, rows: Ints, one: int) -> Bools:
            told = known.places.kinds
            same = [told[rows, kind] == told[one, kind] for kind in (model, device, precision)]
            found: Bools = (np.stack(same, axis=1) == np.array(wanted)).all(axis=1)
            return found

        return chosen

    return {
        "more devices": fewer_devices,
        "other batch": other_batch,
        "other precision": other(precision),
        "other model": other(model),
        "other device": other(device),
        "other model and precision": other(model, precision),
        "other device and precision": other(device, precision),
        "other model and device": other(model, device),
        "all three other": other(model, device, precision),
    }


def replay(known: Users, chooser: Chooser, points: int, process: Process) -> Replay:
    """Jobs of every source, with anchors drawn from its other rows."""
    draw = np.random.default_rng(points)
    asked: list[int] = []
    given: list[Ints] = []
    for name in np.unique(known.source):
        rows, left = np.flatnonzero(known.source == name), _OF_A_SOURCE
        for one in draw.permutation(rows)[:_TRIED].tolist():
            offered = rows[chooser(known, rows, one)]
            if left and len(offered) >= points:
                asked.append(one)
                given.append(draw.choice(offered, points, replace=False))
                left -= 1
    return Replay.of(known, asked, given, process)


def half_of_families(known: Mapping[str, Users]) -> list[str]:
    """Half of the families of sources, with about as many jobs to ask as the other half."""
    names, counts = np.unique(
        np.concatenate([users.publisher for users in known.values()]), return_counts=True
    )
    sizes: list[int] = [0, 0]
    found: list[str] = []
    for index in np.argsort(-counts, kind="stable").tolist():
        half = int(sizes[1] < sizes[0])
        sizes[half] += int(min(counts[index], _TRIED))
        if half:
            found.append(str(names[index]))
    return found


def fitted_share(replayed: Sequence[Replay], rows: Sequence[Bools]) -> float:
    """The share of what is carried with which the errors of some rows are least."""
    losses = [
        [item.mean(np.minimum(np.abs(item.off(share)), _FAR), some) for share in _GRID]
        for item, some in zip(replayed, rows, strict=True)
    ]
    return float(_GRID[np.nanmean(losses, axis=0).argmin()])


def by_difference(known: Mapping[str, Users], process: Process) -> Iterator[tuple[str, ...]]:
    """A row for each difference and number of anchors."""
    families = half_of_families(known)
    for name, chooser in differences().items():
        for points in POINTS:
            replayed = [replay(users, chooser, points, process) for users in known.values()]
            second = [np.isin(item.known.publisher[item.asked], families) for item in replayed]
            share, first_half, second_half = (
                fitted_share(replayed, rows)
                for rows in ([half | True for half in second], [~half for half in second], second)
            )
            shares = [np.where(half, first_half, second_half) for half in second]
            before = [item.error(0.0) for item in replayed]
            after = [item.error(1.0) for item in replayed]
            crossed = [item.error(each) for item, each in zip(replayed, shares, strict=True)]
            worst = max(zip(np.subtract(after, before).tolist(), known, strict=True))
            inside = [item.mean(item.inside(1.0, item.widths)) for item in replayed]
            yield (
                name, str(points), str(sum(len(item.asked) for item in replayed)), f"{np.mean(before):.1f}",
                f"{np.mean(after):.1f}", f"{worst[0]:+.1f} {worst[1]}", f"{share:.2f}",
                f"{np.mean(crossed):.1f}",
                f"{100.0 * np.mean(inside):.0f}",
                f"{np.median(np.concatenate([item.widths for item in replayed])):.2f}",
            )  # fmt: skip


def projected(known: Users, points: int, process: Process) -> Replay:
    """Jobs on several nodes, with steps of one node in the same layout as anchors."""
    columns = position_columns()
    alike = known.places.positions[:, [columns.index(name) for name in _LAYOUT]]
    one_node: dict[tuple[float, ...], list[int]] = defaultdict(list)
    keys = [(float(cell), *row) for cell, row in zip(known.cell.tolist(), alike.tolist(), strict=True)]
    for row in np.flatnonzero(known.nodes == 1).tolist():
        one_node[keys[row]].append(row)
    draw = np.random.default_rng(0)
    left: dict[str, int] = defaultdict(lambda: _OF_A_CLUSTER)
    asked: list[int] = []
    given: list[Ints] = []
    for row in draw.permutation(np.flatnonzero(known.nodes > 1)).tolist():
        source, offered = str(known.source[row]), one_node[keys[row]]
        if left[source] and len(offered) >= points:
            asked.append(row)
            given.append(draw.choice(offered, points, replace=False))
            left[source] -= 1
    return Replay.of(known, asked, given, process)


def by_protocol(known: Mapping[str, Users], process: Process) -> Iterator[tuple[str, ...]]:
    """A row for each protocol and number of steps measured on one node."""
    for name, users in known.items():
        for points in POINTS:
            item = projected(users, points, process)
            if not len(item.asked):
                continue
            sources = users.source[item.asked]
            medians = [100.0 * float(np.median(np.abs(np.expm1(item.off(share))))) for share in (0.0, 1.0)]
            inside = item.inside(1.0, item.widths)
            yield (
                name, str(points), str(len(item.asked)), str(len(np.unique(sources))),
                *(f"{median:.1f}" for median in medians),
                *(f"{item.error(share):.1f}" for share in (0.0, 1.0)),
                f"{100.0 * inside.mean():.0f}", f"{100.0 * item.mean(inside):.0f}",
                f"{np.median(item.widths):.2f}",
            )  # fmt: skip


def report(known: Mapping[str, Users], process: Process) -> Iterator[str]:
    """Both tables, as lines of Markdown.

    Args:
        known: The corpus out of fold, by protocol.
        process: The prior that ships.
    """
    columns = (
        "the anchors differ in", ">anchors", ">asked", ">without, MAPE %", ">with",
        ">most worse in a protocol", ">share fitted", ">with that of the other half", ">covered, %", ">width",
    )  # fmt: skip
    yield from markdown_lines(columns, [*by_difference(known, process)])
    yield ""
    headings = (
        "one node to several, held out by", ">anchors", ">asked", ">sources", ">without, median %", ">with",
        ">without, MAPE over sources %", ">with", ">covered, %", ">covered, over sources %", ">width",
    )  # fmt: skip
    yield from markdown_lines(headings, [*by_protocol(known, process)])


def main() -> None:
    """Print the report."""

    def progress(text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    folder = cache_folder()
    priced = priced_corpus([row for row in load_corpus() if row.usable], progress=progress, folder=folder)
    with process_map() as map_fn:
        runs = Runs(priced=priced, folds=FOLDS, progress=progress, map_fn=map_fn, folder=folder)
        intervals = intervals_of(runs)
        known = {name: users_of(priced.table, runs.ours(name, 0), intervals) for name in HELD_OUT}
    for line in report(known, shipped_predictor().process):
        print(line)


if __name__ == "__main__":
    main()
