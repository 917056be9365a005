"""What was assumed for an answer, and what weakens it: remarks with a code, a severity and a text."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import field
from enum import StrEnum

from .records import dataclass

LAYOUT_CHOSEN = "default-layout"
"""Code of the remark that a layout was chosen, and which."""
SHARDED = "default-sharding"
"""Code of the remark that a ZeRO stage was assumed, and which."""
SAMPLES = "samples"
"""Code of the remark that says what a sample is: up to its first semicolon on the first line of a page."""
LEFT_OPEN = "left-open"
"""Code of the remark on what a request leaves open."""
UNMEASURED_DEVICE = "unmeasured-device"
"""Code of the remark that no measured run is on such a device."""
TF32_BY_DEFAULT = "tf32"
"""Code of the remark that convolutions stated in fp32 run in TF32 unless PyTorch is told otherwise."""
OWN_PREDICTOR = "predictor"
"""Code of the remark that a predictor of the user's own answered."""


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


@dataclass(slots=True)
class Diagnostics:
    """Collects remarks while a request is resolved."""

    items: list[Diagnostic] = field(default_factory=list)

    def assume(self, code: str, *texts: str) -> None:
        """Add what was filled in."""
        self.items.extend(Diagnostic(code, Severity.ASSUMPTION, text) for text in texts)

    def warn(self, code: str, *texts: str) -> None:
        """Add what a user should act on."""
        self.items.extend(Diagnostic(code, Severity.WARNING, text) for text in texts)


def texts_of(items: Iterable[Diagnostic], severity: Severity) -> tuple[str, ...]:
    """The texts of one severity, in their order."""
    return tuple(item.text for item in items if item.severity is severity)
