"""What a predictor of the benchmark is, and what is refused of it; needs nothing but Python.

A predictor is one file in `entries/` with

    NAME = "6nd"                                  what it is called
    VERSION = "1"                                 its version, or the commit of its repository
    VARIANTS = {"6nd, MFU 0.4": {"mfu": 0.4}}     how it is asked: every setting that is not of the row
    CANNOT = "links, layouts, ..."                what it has no words for

    def predict(rows, settings):                  an Answer for each row, in their order

and where they apply

    NEEDS = ("intra_bytes_per_s", ...)            columns without which an answer is not of that row
    LEARNS = True; def fit(known, settings)       rows with `measured_s`, none of a publisher that is asked
    CHECKOUT = "simumax"                          runs from build/peers/simumax (peers.toml)
    FITTED_TO = ("vtrain",)                       sources its constants were set by: in sample there
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

PEERS = Path(__file__).resolve().parents[2] / "build" / "peers"
REQUIRED: Mapping[str, type] = {"NAME": str, "VERSION": str, "VARIANTS": dict, "CANNOT": str}
OPTIONAL: Mapping[str, Any] = {"NEEDS": (), "LEARNS": False, "CHECKOUT": "", "FITTED_TO": ()}
SIXTEEN = {"bf16-mixed": "bf16", "bf16": "bf16", "fp16-mixed": "fp16", "fp16": "fp16"}
"""Precisions whose products are in sixteen bits."""
AT_BEST_WITHIN = 0.003
"""A factor on all answers is as if fitted where the best one differs from it by less than this share."""
_LEAST_ROWS = 20
FORBIDDEN = ("load_corpus", "rows_of", "rows-", "results-", "recorded", "measured_step_time_s")
"""Words by which a file would get at times that it is not told."""


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What a predictor says of one row: seconds of a step, or why there are none."""

    seconds: float | None = None
    reason: str = ""
    low_s: float | None = None
    """Of a 90 % interval, if the predictor gives one."""
    high_s: float | None = None


class Told(dict[str, Any]):
    """A row as a predictor is told of it; remembers which columns were read."""

    def __init__(self, row: Mapping[str, Any]) -> None:
        super().__init__(row)
        self.read: set[str] = set()

    def __getitem__(self, name: str) -> Any:
        self.read.add(name)
        return super().__getitem__(name)

    def get(self, name: str, default: Any = None) -> Any:
        """As of a dictionary."""
        self.read.add(name)
        return super().get(name, default)


def lacking(row: Mapping[str, Any], devices: Collection[str], precisions: Collection[str]) -> str:
    """Why a predictor of decoders cannot be asked a row; empty if it can.

    Args:
        row: Of the benchmark.
        devices: What it knows, by name or by the chip of the name.
        precisions: What it knows.
    """
    if not {row["device"], row["device"].split("-")[0]} & set(devices):
        return "has no such device"
    if row["precision"] not in precisions:
        return "has no such precision"
    if not row["layers"] or row["adapter"] or row["kv_lora_rank"]:
        return "has no such model"
    return "" if row["micro_batch_size"] >= 1 else "has no part of a sample"


def asking(
    rows: Sequence[Mapping[str, Any]],
    lacks: Callable[[Mapping[str, Any]], str],
    seconds: Callable[[Mapping[str, Any]], float],
) -> list[Answer]:
    """Answers of a peer, row by row; what it refuses with an exception is a refusal of that row."""
    found = []
    for row in rows:
        reason = lacks(row)
        try:
            found.append(Answer(reason=reason) if reason else Answer(seconds=seconds(row)))
        except Exception as error:  # noqa: BLE001 - each peer has exceptions of its own
            found.append(Answer(reason=f"refused: {type(error).__name__}: {error}"[:160]))
    return found


def wrong_with(entry: ModuleType, columns: Iterable[str]) -> list[str]:
    """What of the contract a predictor breaks, a line each."""
    wrong = [
        f"{name} is missing or no {kind.__name__}"
        for name, kind in REQUIRED.items()
        if not isinstance(getattr(entry, name, None), kind) or not getattr(entry, name)
    ]
    wrong += ["no function predict(rows, settings)"] if not callable(getattr(entry, "predict", None)) else []
    learns = of(entry, "LEARNS")
    wrong += ["LEARNS without fit(known, settings)"] if learns and not hasattr(entry, "fit") else []
    wrong += [
        f"variant {name!r} sets {setting}, which the row says: a predictor may not be told otherwise"
        for name, settings in getattr(entry, "VARIANTS", {}).items()
        for setting in sorted(set(settings) & set(columns))
    ]
    wrong += [f"NEEDS {name}: no such column" for name in set(of(entry, "NEEDS")) - set(columns)]
    text = Path(str(entry.__file__)).read_text(encoding="utf-8")
    return wrong + [f"{word}: reads times that it is not told" for word in FORBIDDEN if word in text]


def of(entry: ModuleType, name: str) -> Any:
    """An optional part of a predictor."""
    return getattr(entry, name, OPTIONAL[name])


def leaked(asked: Iterable[Mapping[str, Any]], known: Iterable[Mapping[str, Any]]) -> set[str]:
    """Publishers, and sources, of rows that are asked and known at once: must be none."""
    columns = ("source", "publisher")
    there = {(column, row[column]) for row in asked for column in columns}
    return {row[column] for row in known for column in columns if (column, row[column]) in there}


def checked(rows: Sequence[Told], answers: Any, needs: Sequence[str] = ()) -> list[Answer]:
    """The answers of a predictor, those that are none replaced by what is wrong with them."""
    if not isinstance(answers, list) or len(answers) != len(rows):
        said = f"{len(answers)} answers" if isinstance(answers, list) else f"a {type(answers).__name__}"
        return [Answer(reason=f"nonsense: {said} to {len(rows)} rows")] * len(rows)
    return [_checked(row, answer, needs) for row, answer in zip(rows, answers, strict=True)]


def _checked(row: Told, answer: Any, needs: Sequence[str]) -> Answer:
    if not isinstance(answer, Answer):
        return Answer(reason=f"nonsense: no Answer but {type(answer).__name__}")
    if answer.seconds is None:
        return answer if answer.reason else Answer(reason="nonsense: neither seconds nor a reason")
    values = [answer.seconds, answer.low_s, answer.high_s]
    numbers = [value for value in values if value is not None]
    if not all(isinstance(value, int | float) and math.isfinite(value) and value > 0 for value in numbers):
        return Answer(reason=f"nonsense: {numbers} seconds")
    if len(numbers) == len(values) and not numbers[1] <= numbers[0] <= numbers[2]:
        return Answer(reason="nonsense: an interval without its middle")
    unread = [name for name in needs if name not in row.read]
    return Answer(reason=f"not of this row: {', '.join(unread)} not read") if unread else answer


def as_if_fitted(measured_s: Sequence[float], predicted_s: Sequence[float]) -> bool:
    """Whether one factor on all answers was chosen by these very rows: none does better.

    Tried are the factors that make the mean error, the median and the mean of the ratios best. What holds by
    chance in a few of a thousand cases is a matter for whoever wrote the predictor to explain.
    """
    ratios = sorted(predicted / measured for measured, predicted in zip(measured_s, predicted_s, strict=True))
    if len(ratios) < _LEAST_ROWS:
        return False
    best = (_least_mean_error(ratios), ratios[len(ratios) // 2], sum(ratios) / len(ratios))
    return any(abs(ratio - 1.0) < AT_BEST_WITHIN for ratio in best)


def _least_mean_error(ratios: Sequence[float]) -> float:
    """Of sorted ratios predicted / measured, that whose inverse as a factor has the least mean error."""
    below, half = 0.0, sum(ratios) / 2.0
    for ratio in reversed(ratios):
        below += ratio
        if below >= half:
            return ratio
    return ratios[0]
