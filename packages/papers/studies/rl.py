"""Published steps of reinforcement learning asked as a user would: errors by source and stage.

    python packages/papers/studies/rl.py            # the table of docs/guides/own-model.md
    python packages/papers/studies/rl.py --fit      # constants of cost/data/engines.toml without each source,
                                                    # and the table with every source left out

Rows are in rl_steps.csv: what a source states of its job, and its seconds. What it leaves out is left out
here too.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import math
import statistics
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from precision_time import predict_time
from precision_time.cost.constants import constants
from precision_time.errors import PrecisionTimeError
from precision_time.records import dataclass

STEPS = Path(__file__).with_name("rl_steps.csv")
FITTED_ON = ("verl-logs-gpg", "verl-docs")
"""Constants of engines.toml were chosen from these: the stages of one, the weight transfers of the other."""
_COUNTS = (
    *("gpus", "tp", "pp", "cp", "ep", "dp_shard", "generate_gpus", "generate_tp", "off_policy"),
    *("prompts", "group_size", "seq_len", "generate_tokens", "answer_tokens", "updates", "batch_size"),
)
_WORDS = (
    *("model", "method", "device", "precision", "stack", "engine", "reference"),
    *("uneven", "offload", "recompute"),
)
_OF_STAGE: Mapping[str, tuple[str, ...]] = {
    "generation": ("prefill_s", "decode_s", "tail_s"),
    "logprobs": ("logprobs_s",),
    "sync": ("sync_s",),
}
_NOT_TRAINING = frozenset(
    {"reference_s", "reward_model_s", "reward_s", *(name for names in _OF_STAGE.values() for name in names)}
)
"""Of PPO the critic counts as training, though a quarter of its time is that of its values."""
STAGES = ("generation", "logprobs", "train", "sync", "step")
_Path = tuple[str, ...]
_GRIDS: Mapping[str, Mapping[_Path, tuple[float, ...]]] = {
    "generation": {
        ("engine", "vllm", "sequence_s"): (2e-5, 4e-5, 6e-5, 8e-5, 1e-4, 1.2e-4),
        ("sync", "state_bytes_per_s"): (1e9, 2e9, 4e9, 8e9),
    },
    "sync": {("sync", "tensor_s"): (3e-4, 6e-4, 1e-3)},
}
"""Constants that a stage decides, and the values that are tried together."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Asked:
    """One published step and what is predicted of it."""

    source: str
    job: str
    measured: Mapping[str, float]
    """Seconds by stage."""
    predicted: Mapping[str, float]
    refused: str = ""
    interval: tuple[float, float] = (math.nan, math.nan)

    def log_ratio(self, stage: str) -> float | None:
        """Logarithm of predicted over measured seconds; None where one of them is missing."""
        both = self.predicted.get(stage, 0.0), self.measured.get(stage, 0.0)
        return math.log(both[0] / both[1]) if min(both) > 0.0 else None


def rows_of(path: Path = STEPS) -> list[dict[str, str]]:
    """The published steps, as text by column."""
    with path.open(encoding="utf-8", newline="") as lines:
        return list(csv.DictReader(lines))


def request_of(row: Mapping[str, str]) -> dict[str, Any]:
    """The fields that a user would type of a row."""
    said: dict[str, Any] = {name: row[name] for name in _WORDS if row[name]}
    return said | {name: int(row[name]) for name in _COUNTS if row[name]}


def asked(row: Mapping[str, str]) -> Asked:
    """A row and what is predicted of it; refusals in words."""
    job = f"{row['model']}, {row['gpus']} x {row['device'] or 'device not stated'}, {row['algorithm']}"
    measured = {stage: float(row[f"{stage}_s"]) for stage in STAGES if row[f"{stage}_s"]}
    given = request_of(row)
    if "device" not in given:
        return Asked(
            source=row["source"], job=job, measured=measured, predicted={}, refused="device not stated"
        )
    try:
        found = predict_time(**given)
    except PrecisionTimeError as error:
        return Asked(source=row["source"], job=job, measured=measured, predicted={}, refused=str(error))
    terms = found.terms
    predicted = {stage: sum(terms.get(name, 0.0) for name in names) for stage, names in _OF_STAGE.items()}
    predicted["train"] = sum(seconds for name, seconds in terms.items() if name not in _NOT_TRAINING)
    predicted["step"] = found.step_time_s
    for name in row["generation_holds"].split():  # what a source counts as generation as well
        predicted["generation"] += terms.get(name, 0.0)
    if "off_policy" in given:
        predicted.pop("generation")  # what training hides of it is not in the step
    interval = (found.interval.low_s, found.interval.high_s)
    return Asked(source=row["source"], job=job, measured=measured, predicted=predicted, interval=interval)


def errors(rows: list[Asked], stage: str) -> list[float]:
    """Relative errors of a stage."""
    found = (row.log_ratio(stage) for row in rows)
    return [abs(math.expm1(ratio)) for ratio in found if ratio is not None]


def bias(rows: list[Asked], stage: str) -> float:
    """Median of predicted over measured, less 1."""
    found = [ratio for row in rows if (ratio := row.log_ratio(stage)) is not None]
    return math.expm1(statistics.median(found)) if found else math.nan


def sources(rows: list[Asked]) -> dict[str, list[Asked]]:
    """Rows by source, in the order of the file."""
    found: dict[str, list[Asked]] = {}
    for row in rows:
        found.setdefault(row.source, []).append(row)
    return found


def table(rows: list[Asked]) -> str:
    """Median errors by source and stage, as Markdown."""
    lines = ["| source | steps | asked | " + " | ".join(STAGES) + " | bias | in interval |"]
    lines.append("|---|---|---|" + "---|" * (len(STAGES) + 2))
    groups = {**sources(rows), "all": rows}
    groups["not fitted on"] = [row for row in rows if row.source not in FITTED_ON]
    for name, group in groups.items():
        cells = []
        for stage in STAGES:
            found = errors(group, stage)
            cells.append(f"{statistics.median(found):.0%} ({len(found)})" if found else "")
        steps = [row for row in group if row.log_ratio("step") is not None]
        inside = [row.interval[0] <= row.measured["step"] <= row.interval[1] for row in steps]
        share = f"{sum(inside) / len(inside):.0%}" if inside else ""
        shift = bias(group, "step")
        of = "" if math.isnan(shift) else f"{shift:+.0%}"
        could = sum(not row.refused for row in group)
        lines.append(f"| {name} | {len(group)} | {could} | {' | '.join(cells)} | {of} | {share} |")
    return "\n".join(lines)


@contextmanager
def with_constants(values: Mapping[_Path, float]) -> Iterator[None]:
    """Constants of engines.toml with other values."""
    held: list[tuple[Any, str, float]] = []
    for path, value in values.items():
        table: Any = constants("engines")
        for name in path[:-1]:
            table = table[name]
        held.append((table, path[-1], table[path[-1]]))
        table[path[-1]] = value
    try:
        yield
    finally:
        for table, name, before in held:
            table[name] = before


def says_all(row: Mapping[str, str]) -> bool:
    """Whether a row states what users know of their job: device, batch and lengths, or a transfer alone."""
    return bool(row["device"] and (row["sync_s"] or (row["prompts"] and row["answer_tokens"])))


def macro_error(rows: list[Asked], stage: str, of: Collection[str]) -> float:
    """Mean over sources of the median absolute logarithm of their error; of steps where no stage is told."""
    found = []
    for name, group in sources(rows).items():
        if name not in of:
            continue
        for each in (stage, "step"):
            ratios = [abs(ratio) for row in group if (ratio := row.log_ratio(each)) is not None]
            if ratios:
                found.append(statistics.median(ratios))
                break
    return statistics.fmean(found) if found else math.nan


def best(
    tried: Mapping[tuple[float, ...], list[Asked]], stage: str, of: Collection[str]
) -> tuple[float, ...]:
    """The constants with the least error of a stage on some sources."""
    return min(tried, key=lambda values: macro_error(tried[values], stage, of))


def fit(rows: list[dict[str, str]]) -> None:
    """The best constants on `FITTED_ON` and without each source, and errors with every source left out."""
    stated = [row for row in rows if says_all(row)]
    names = tuple(dict.fromkeys(row["source"] for row in stated))
    alone: dict[str, dict[_Path, float]] = {name: {} for name in names}
    for stage, grid in _GRIDS.items():
        tried: dict[tuple[float, ...], list[Asked]] = {}
        for constant in itertools.product(*grid.values()):
            with with_constants(dict(zip(grid, constant, strict=True))):
                tried[constant] = [asked(row) for row in stated]
        print(stage, [".".join(path) for path in grid], "fitted:", best(tried, stage, FITTED_ON))
        for name in names:
            others = best(tried, stage, [other for other in names if other != name])
            alone[name] |= dict(zip(grid, others, strict=True))
            print(f"  {name}: without it {others}")

    left_out: list[Asked] = []
    for name in dict.fromkeys(row["source"] for row in rows):
        with with_constants(alone.get(name, {})):
            left_out += [asked(row) for row in rows if row["source"] == name]
    print(table(left_out))


def main() -> None:
    """Print errors, or fit."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--fit", action="store_true")
    parser.add_argument("--rows", action="store_true", help="print every row as well")
    options = parser.parse_args()
    rows = rows_of()
    if options.fit:
        fit(rows)
        return
    found = [asked(row) for row in rows]
    for row in found if options.rows else ():
        cells = [
            f"{stage} {row.predicted.get(stage, math.nan):.3g}/{seconds:.3g}"
            for stage, seconds in row.measured.items()
        ]
        print(row.source, row.job, "; ".join(cells), row.refused[:160])
    print(table(found))


if __name__ == "__main__":
    main()
