"""What was assumed for an answer, and what weakens it: remarks with a code, a severity and a text."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import field
from enum import StrEnum

from .records import dataclass

SAMPLES, LEFT_OPEN, UNMEASURED_DEVICE = "samples", "left-open", "unmeasured-device"
OWN_PREDICTOR, TF32_BY_DEFAULT, EXTRAPOLATION = "predictor", "tf32", "extrapolation"
"""Codes of remarks that a page places itself; its first line has `samples` up to the first semicolon."""
UNMEASURED_PRECISION = "unmeasured-precision"
UNMEASURED = {
    UNMEASURED_DEVICE: "by its data sheet alone, no measured run on such a device",
    UNMEASURED_PRECISION: "by the peak of its units alone, no measured run of such a model in this precision",
}
"""Codes of answers that no measured run of their kind bears out, and what goes before a superlative then."""
_NOT_GIVEN = ("device", "precision", "stack", "dataset", "recompute", "layout")
_CODES = {name: f"default-{name}" for name in _NOT_GIVEN} | {"zero_stage": "default-sharding"}
_CODES |= {"batch_size": "default-batch", "num_microbatches": "default-accumulation", "seq_len": SAMPLES}
_CODES |= {"epochs": "default-length", "mean_seq_len": "lengths", "rank_order": "placement"}
FIELDS = {c: n for n, c in _CODES.items()} | {"default-weights": "precision", "stack-name": "stack"}
"""The field that an assumption is about, or `layout` for all of it, where its code says something else."""


class Severity(StrEnum):
    """What a reader should do about a diagnostic."""

    ASSUMPTION = "assumption"  # filled in because the request does not say: state it if it is wrong
    WARNING = "warning"  # act on it: the job fails, runs poorly, or the answer is weaker than usual


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One remark about a request or its answer."""

    code: str
    """Stable name of the kind of remark, such as `default-batch` or `extrapolation`."""
    severity: Severity
    text: str


def unmeasured(codes: Iterable[str]) -> tuple[str, ...]:
    """What no measured run bears out of an answer with these codes, as its superlatives have it."""
    told = set(codes)
    return tuple(text for code, text in UNMEASURED.items() if code in told)


@dataclass(slots=True)
class Diagnostics:
    """Collects remarks while a request is resolved."""

    items: list[Diagnostic] = field(default_factory=list)

    def assume(self, name: str, *texts: str) -> None:
        """Add with what a field was filled in, and why; of what is no field by a code."""
        self.items.extend(Diagnostic(_CODES.get(name, name), Severity.ASSUMPTION, text) for text in texts)

    def warn(self, code: str, *texts: str) -> None:
        """Add what a user should act on."""
        self.items.extend(Diagnostic(code, Severity.WARNING, text) for text in texts)


def texts_of(items: Iterable[Diagnostic], severity: Severity) -> tuple[str, ...]:
    """The texts of one severity, in their order."""
    return tuple(item.text for item in items if item.severity is severity)
