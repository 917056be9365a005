"""The rows of a space, timed: in one sweep, or, of large models, with what can be saved.

Of a model of billions of parameters a layout is sought for every row, which takes a tenth of a second. Rows
that differ in the network between hosts alone share the layout that is found on the first network. Rows whose
products alone, at the peak of all matrix units, take longer than the deadline or cost more than the budget
are left out: no row of theirs can keep the limits, so that the choices stay (tests/planning/decision).
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ...arrays import Ints
from ...cost.utilization import model_flops_utilization
from ...diagnostics import Diagnostics
from ...errors import PrecisionTimeError
from ...predict.sweep import Table, sweep_tables
from ...records import dataclass
from ...request.batch import says_no_layout, tokens_per_sample
from ...request.dataset_rows import rows_of_dataset
from ...request.grid import grid_of_requests
from ...request.request import Request
from ...request.resolve import job_without_batch
from ...workload.workload import Workload
from .limits import Limits
from .space import UNPRICED, Space, Spot, combinations

_MANY_ROWS, _LARGE_PARAMS = 2048, 1e9
"""From which processes are worth their start."""
_LARGE_BLOCK = 8
"""Requests of a large model that a process takes at a time."""
_FLAGS = {"-b": "batch_size"}
STATED = "stated"
"""Column: the row has a layout that its request does not choose by itself."""
Progress = Callable[[int, int], None]
"""Told the rows that are timed, and all rows."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Timing:
    """Times the spaces of one request."""

    request: Request
    workload: Workload
    workers: int | None
    ray: str | None
    progress: Progress | None

    @property
    def is_large(self) -> bool:
        """Whether layouts are sought for every row."""
        alone = self.request.method is None and says_no_layout(self.request) and not self.request.batch_size
        return alone and self.workload.graph.params >= _LARGE_PARAMS

    def __call__(self, space: Space) -> tuple[Table, Ints]:
        """All rows, and the number of the spot of each, in order."""
        fields = [spot.fields for spot in space.spots]
        shapes = [_shape(spot) if self.is_large else number for number, spot in enumerate(space.spots)]
        first = {shape: number for number, shape in [*enumerate(shapes)][::-1]}
        alike = sorted(first.values())
        table, spots = self._swept([fields[number] for number in alike], alike)
        table[STATED] = np.zeros(len(spots), dtype=bool)
        follow: list[Mapping[str, Any]] = []
        owners: list[int] = []
        for number, shape in enumerate(shapes):
            if first[shape] != number:
                rows = np.flatnonzero(spots == first[shape]).tolist()
                follow += [fields_of_row(fields[number], table, row) for row in rows]
                owners += [number] * len(rows)
        if not owners:
            return table, spots
        more, _ = self._swept(follow, owners)
        more[STATED] = np.ones(len(owners), dtype=bool)
        number_of = np.concatenate([spots, np.array(owners)])
        order = np.argsort(number_of, kind="stable")
        return {name: values[order] for name, values in _joined([table, more]).items()}, number_of[order]

    def row(self, fields: Mapping[str, Any]) -> Table:
        """One request, whose layout is stated."""
        table, _ = replace(self, progress=None)._swept([fields], [0])
        return table | {STATED: np.ones(1, dtype=bool)}

    def _swept(self, fields: Sequence[Mapping[str, Any]], numbers: Sequence[int]) -> tuple[Table, Ints]:
        grid = grid_of_requests(fields)
        large = self.is_large and len(fields) > _LARGE_BLOCK
        if large:
            grid = replace(grid, block_requests=_LARGE_BLOCK)
        several = large or grid.rows >= _MANY_ROWS or self.ray is not None
        tables: list[Table] = []
        workers = self.workers if several else 1
        for table in sweep_tables(grid, ray=self.ray, workers=workers, with_terms=True):
            tables.append(table)
            if self.progress is not None:
                self.progress(sum(len(each["job"]) for each in tables), grid.rows)
        return _joined(tables), np.repeat(np.array(numbers), [combinations(each) for each in fields])


def _joined(tables: Sequence[Table]) -> Table:
    """The rows of all; a column that one lacks is of a field that none of its requests states."""
    return {
        name: np.concatenate([t[name] if name in t else np.full(len(t["job"]), None) for t in tables])
        for name in dict.fromkeys(name for table in tables for name in table)
    }


def _shape(spot: Spot) -> tuple[Any, ...]:
    return spot.device, spot.devices, spot.instances, spot.gpus, spot.fields.get("global_batch_size") is None


def fields_of_row(
    fields: Mapping[str, Any], table: Table, row: int, *, stated: bool = True
) -> dict[str, Any]:
    """The request of a row: fields of which several values compete as the row has them."""
    found = {}
    for name, value in fields.items():
        said = table[name][row] if name in table else None
        competing = value if isinstance(value, list) else []
        found[name] = next((each for each in competing if _same(each, said)), said) if competing else value
    layout = str(table["layout"][row] or "")
    if stated and layout and table["error"][row] is None:
        found |= {**layout_fields(layout), "batch_size": float(table["batch_size"][row])}
    return {name: value for name, value in found.items() if value is not None}


def _same(asked: Any, said: Any) -> bool:
    try:
        return bool(asked == said) or float(asked) == float(said)
    except (TypeError, ValueError):
        return False


def layout_fields(words: str) -> dict[str, Any]:
    """Options of a layout as fields of a request: the way back from `option_words`.

    >>> layout_fields("--tp 8 --zero-stage 1 --no-reshard-after-forward -b 2")
    {'tp': '8', 'zero_stage': '1', 'reshard_after_forward': False, 'batch_size': '2'}
    """
    found: dict[str, Any] = {}
    name = ""
    for word in shlex.split(words):
        if not word.startswith("-"):
            found[name] = word
            continue
        name = _FLAGS.get(word, word.removeprefix("--").replace("-", "_"))
        found[name.removeprefix("no_")] = not name.startswith("no_")
        name = name.removeprefix("no_")
    return found


def within_reach(space: Space, timing: Timing, limits: Limits) -> tuple[Space, int]:
    """The space without spots that break a limit even at their peak, and how many those are."""
    if not timing.is_large or (limits.deadline_s is None and limits.budget_usd is None):
        return space, 0
    kept = []
    for spot in space.spots:
        least_s = least_seconds(spot, timing)
        late = limits.deadline_s is not None and least_s > limits.deadline_s
        dear = limits.budget_usd is not None and _least_usd(spot, space, least_s) > limits.budget_usd
        if not (late or dear):
            kept.append(spot)
    return replace(space, spots=tuple(kept)), len(space.spots) - len(kept)


def least_seconds(spot: Spot, timing: Timing) -> float:
    """Seconds of the run's products at the peak of all devices: no step is predicted to be faster."""
    samples = run_samples(timing.request, timing.workload)
    if samples is None:
        return 0.0
    return min(_sample_seconds(spot, timing)) * samples / spot.gpus


def _sample_seconds(spot: Spot, timing: Timing) -> Iterator[float]:
    """Seconds of one sample at the peak of one device, at each precision that competes; 0: not known."""
    asked = spot.fields.get("precision")
    for precision in asked if isinstance(asked, list) else [asked]:
        plain = {
            name: value[0] if isinstance(value, list) else value
            for name, value in spot.fields.items()
            if name not in ("nodes", "node_type", "inter_node", "global_batch_size", "global_batch_tokens")
        }
        try:
            request = Request.of({**plain, "precision": precision, "gpus": 1})
            job = job_without_batch(request, Diagnostics(), workload=timing.workload)
        except PrecisionTimeError:
            yield math.inf  # such rows are refused
            continue
        share = model_flops_utilization(job, 1.0)
        yield 0.0 if share is None else share / job.layout.global_batch_size


def run_samples(request: Request, workload: Workload) -> float | None:
    """Samples of the run where they do not depend on the candidate; None where they do, or are not known."""
    if workload.rows_per_sample != 1 or workload.samples_per_row != 1.0:
        return None
    if rows_of_dataset(request, workload) is not None or workload.answers_per_prompt is not None:
        return None
    tokens, of_epoch = tokens_per_sample(workload), request.samples or workload.dataset_samples
    if request.tokens is not None and tokens:
        return request.tokens / tokens
    if request.epochs is not None and of_epoch:
        return request.epochs * of_epoch
    if request.steps is not None and request.global_batch_size is not None:
        return request.steps * request.global_batch_size
    return None


def _least_usd(spot: Spot, space: Space, seconds: float) -> float:
    prices = [
        price
        for offer in spot.offers
        if offer != UNPRICED
        for market in space.markets
        if (price := space.offers[offer].price(market)) is not None
    ]
    return min(prices) * spot.instances * seconds / 3600.0 if prices else math.inf
