"""The exception tree of the package.

::

    PrecisionTimeError
    ├── ConfigError (ValueError)      what the caller asked for cannot be
    │   ├── CatalogError              unknown or malformed device, node type, link, price
    │   ├── UnknownNameError          unknown model, device, precision ...: carries the nearest names
    │   └── LayoutError               degrees, batches and counts that do not fit together
    ├── CaptureError                  a model could not be turned into an operator graph
    ├── CorpusError                   a measurement file or store is not what it claims to be
    ├── NotFittedError                a predictor was asked before it was trained or loaded
    └── MissingExtraError             an optional dependency is needed: says what to install

Every message says what was given, the rule, and the way out.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pydantic import ValidationError


class PrecisionTimeError(Exception):
    """Base of every error this package raises on purpose."""


class ConfigError(PrecisionTimeError, ValueError):
    """What the caller asked for cannot be."""


class CatalogError(ConfigError):
    """A catalogue entry is unknown or malformed."""


class LayoutError(ConfigError):
    """Degrees, batches and counts that do not fit together."""


class CaptureError(PrecisionTimeError):
    """A model could not be turned into an operator graph."""


class CorpusError(PrecisionTimeError):
    """A measurement file or store is not what it claims to be."""


class NotFittedError(PrecisionTimeError):
    """A predictor was asked before it was trained or loaded."""


class MissingExtraError(PrecisionTimeError, ImportError):
    """An optional dependency is needed.

    Args:
        package: What could not be imported.
        extra: The extra of this project that brings it.
        purpose: What it is needed for, as the end of "... is needed to".
    """

    def __init__(self, *, package: str, extra: str, purpose: str) -> None:
        super().__init__(
            f"{package} is not installed, and it is needed to {purpose}. "
            f"To fix: pip install 'precision-time[{extra}]'."
        )


class UnknownNameError(ConfigError):
    """A name that no catalogue holds.

    Args:
        kind: What sort of thing was named ("model", "device", "precision").
        name: What was given.
        known: Every name that would have been accepted.
        hint: Where to see all of them.
    """

    def __init__(self, *, kind: str, name: str, known: Iterable[str], hint: str) -> None:
        self.kind = kind
        self.name = name
        self.nearest = nearest_names(name, known)
        guess = f" Did you mean {' or '.join(repr(n) for n in self.nearest)}?" if self.nearest else ""
        way_out = hint if "To fix" in hint else f"To fix: use a known name. {hint}"
        super().__init__(f"Unknown {kind} {name!r}.{guess} {way_out}")


def nearest_names(name: str, known: Iterable[str], *, limit: int = 3) -> tuple[str, ...]:
    """The known names closest in spelling to `name`, best first, case ignored."""
    by_lower = {candidate.lower(): candidate for candidate in known}
    matches = difflib.get_close_matches(name.lower(), by_lower, n=limit, cutoff=0.55)
    return tuple(by_lower[match] for match in matches)


def format_validation_error(error: ValidationError, *, root: str = "file", separator: str = "; ") -> str:
    """The problems that pydantic found: field, broken rule and what was given.

    Args:
        error: What `model_validate` raised.
        root: How a problem of no single field is named.
        separator: Between problems.
    """
    return separator.join(
        f"{'.'.join(map(str, problem['loc'])) or root}: {problem['msg'].removeprefix('Value error, ')} "
        f"(got {shortened(problem['input'])})"
        for problem in error.errors(include_url=False, include_context=False)
    )


def shortened(value: object, limit: int = 40) -> str:
    """`repr(value)`, cut off after `limit` characters."""
    text = repr(value)
    return text if len(text) <= limit else f"{text[: limit - 3]}..."
