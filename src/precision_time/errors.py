"""The exception tree of the package.

::

    PrecisionTimeError
    ├── ConfigError (ValueError)      what the caller asked for cannot be
    │   ├── CatalogError              unknown or malformed device, node type, link, price
    │   ├── UnknownNameError          unknown model, device, precision ...: carries the nearest names
    │   ├── LayoutError               degrees, batches and counts that do not fit together
    │   └── OutputError (OSError)     a file could not be written
    ├── CaptureError                  a model could not be turned into an operator graph
    ├── CorpusError                   a measurement file or store is not what it claims to be
    ├── NotFittedError                a predictor was asked before it was trained or loaded
    ├── MissingExtraError             an optional dependency is needed: says what to install
    ├── BrokenPackageError            an optional dependency is there and fails to import
    └── ServerError                   a service that is asked over HTTP does not answer

Every message says what was given, the rule, and how to fix it. Messages quote what users and files say, so
they are kept short and free of control characters: `shown` for a value, `printable` for a whole text.
"""

from __future__ import annotations

import difflib
import importlib
import re
import reprlib
from collections.abc import Iterable
from typing import Any

_LONGEST_MESSAGE = 4000
_LONGEST_TAIL = 1000
"""Of a message that is cut: its end says how to fix the error [characters]."""
_LONGEST_NAME = 200
"""Characters of a name that are compared with known ones: longer ones are no slip of the keyboard."""

_MOST_PROBLEMS = 10
"""Broken rules of one file that a message names."""
_VALUES = reprlib.Repr()
_VALUES.maxlevel, _VALUES.maxstring, _VALUES.maxother, _VALUES.maxlong = 2, 80, 80, 40


def shown(value: Any) -> str:
    """`repr` of a value for a message: of bounded length whatever it holds, without control characters.

    >>> shown([[1, 2], "a" * 1000])[:24]
    "[[1, 2], 'aaaaaaaaaaaaaa"
    """
    try:
        return printable(_VALUES.repr(value), longest=400)
    except Exception:  # noqa: BLE001 - `repr` of a caller's own object may raise anything
        return f"<{type(value).__name__}>"


def printable(text: str, *, longest: int = _LONGEST_MESSAGE) -> str:
    """A text with control characters escaped, and its middle left out where it is too long."""
    if len(text) > longest:
        tail = min(_LONGEST_TAIL, longest // 4)
        cut = f" ... ({len(text) - longest:,} characters left out) ... "
        text = text[: longest - tail] + cut + text[-tail:]
    if text.isprintable():
        return text
    return "".join(
        character if character.isprintable() or character in "\n\t" else ascii(character)[1:-1]
        for character in text
    )


def validation_problems(error: Any) -> str:
    """Every field that broke a rule, what the rule is and what was given, of pydantic's `ValidationError`."""
    found = error.errors(include_url=False, include_context=False)
    listed = [
        f"{'.'.join(printable(str(part), longest=80) for part in problem['loc']) or 'file'}: "
        f"{problem['msg']} (got {shown(problem['input'])})"
        for problem in found[:_MOST_PROBLEMS]
    ]
    more = [f"and {len(found) - _MOST_PROBLEMS} more"] if len(found) > _MOST_PROBLEMS else []
    return "; ".join([*listed, *more])


class PrecisionTimeError(Exception):
    """Base of every error this package raises on purpose.

    Args:
        message: What was given, the rule, how to fix it; made printable and bounded.
    """

    def __init__(self, message: str = "") -> None:
        super().__init__(printable(message))


def _restored(kind: type[Exception], args: tuple[Any, ...], state: dict[str, Any]) -> Exception:
    error = kind.__new__(kind, *args)
    error.args = args
    error.__dict__.update(state)
    return error


def restored(kind: type[PrecisionTimeError], message: str) -> PrecisionTimeError:
    """An error of which only class and text are known, such as one that a service answers."""
    state = {"kind": "", "name": "", "nearest": ()} if issubclass(kind, UnknownNameError) else {}
    found = _restored(kind, (printable(message),), state)
    assert isinstance(found, PrecisionTimeError)
    return found


def in_one_line(error: BaseException) -> str:
    """What an error says; of one that this package does not raise on purpose, that nobody foresaw it."""
    said = " ".join(printable(str(error)).split())
    if isinstance(error, PrecisionTimeError):
        return said
    said = printable(said, longest=500)
    return f"Unexpected error {type(error).__name__}: {said}. To fix: please report it."


ERROR_SCHEMA = "error/1"
"""Of the object that stdout has in the place of an answer where --json was given."""
_FIELD = re.compile(r"(?:--)?([A-Za-z][\w-]*)(?:=| is missing|: | is of )")
_REMEDY = "To fix: "


def problem_of(error: BaseException, said: str = "") -> dict[str, Any]:
    """An error as a program reads it: `type`, `detail`, `fix`, `field`; None for what it does not say.

    The field is the one that the message begins with, as messages of refused values do, or the kind of thing
    whose name is unknown.

    >>> problem_of(ConfigError("gpus=0 is invalid: at least 1. To fix: gpus=1."))["field"]
    'gpus'
    """
    said = said or in_one_line(error)
    detail, _, fix = said.partition(_REMEDY)
    named = _FIELD.match(said)
    field = getattr(error, "kind", None) or (named[1].replace("-", "_") if named else None)
    return {
        "type": type(error).__name__,
        "detail": detail.strip(),
        "fix": fix.strip() or None,
        "field": field,
        "nearest": list(getattr(error, "nearest", ())),
    }


class ConfigError(PrecisionTimeError, ValueError):
    """What the caller asked for is not possible."""


class CatalogError(ConfigError):
    """A catalog entry is unknown or malformed."""


class LayoutError(ConfigError):
    """Degrees, batches and counts that do not fit together."""


class OutputError(ConfigError, OSError):
    """A file could not be written."""


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
        extra: The extra of this distribution that brings it, or what else to install, such as
            "precision-time-papers[torch]".
        purpose: What it is needed for, as the end of "... is needed to".
    """

    def __init__(self, *, package: str, extra: str, purpose: str) -> None:
        super().__init__(
            f"{package} is not installed, and it is needed to {purpose}. To fix: {install_words(extra)}."
        )

    def __reduce__(self) -> tuple[Any, ...]:
        """For other processes: the constructor takes no message."""
        return _restored, (type(self), self.args, self.__dict__)


class BrokenPackageError(PrecisionTimeError, ImportError):
    """An optional dependency is installed, and importing it fails."""


class ServerError(PrecisionTimeError):
    """A service cannot be reached, does not answer in time, or answers what is no answer of ours.

    Args:
        message: What was given, the rule, how to fix it.
        status: Of the answer (HTTP); None where there is none.
    """

    status: int | None = None

    def __init__(self, message: str = "", *, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


def install_words(extra: str) -> str:
    """The command that installs an extra, as `MissingExtraError` has it.

    >>> install_words("train")
    "pip install 'precision-time[train]'"
    """
    return f"pip install '{extra if extra.startswith('precision-time') else f'precision-time[{extra}]'}'"


def required_module(name: str, *, package: str, extra: str, purpose: str, remedy: str = "") -> Any:
    """A module of an optional dependency.

    Args:
        name: As it is imported, such as `sklearn.svm`.
        package: What is to be installed.
        extra: The extra that brings it, as `MissingExtraError` has it.
        purpose: What it is needed for, as the end of "... is needed to".
        remedy: What usually helps where it is installed and cannot be imported.

    Raises:
        MissingExtraError: If it is not installed.
        BrokenPackageError: If it is installed and cannot be imported.
    """
    try:
        return importlib.import_module(name)
    except Exception as error:  # noqa: BLE001 - a package may fail by anything: OSError of a library, RuntimeError
        raise import_failure(
            error, name=name, package=package, extra=extra, purpose=purpose, remedy=remedy
        ) from error


def import_failure(
    error: Exception, *, name: str, package: str, extra: str, purpose: str, remedy: str = ""
) -> MissingExtraError | BrokenPackageError:
    """What to raise where the import of an optional dependency failed; arguments as of `required_module`.

    It is missing where the module that was not found is its own: any other one is missing to the package.
    """
    root = name.partition(".")[0]
    lacking = error.name if isinstance(error, ModuleNotFoundError) else None
    if lacking and (lacking == root or lacking.startswith(f"{root}.")):
        return MissingExtraError(package=package, extra=extra, purpose=purpose)
    if not remedy:
        remedy = f"install {lacking}" if lacking else f"install {package} again, with what it needs"
    return BrokenPackageError(
        f"{package} is installed and cannot be imported, and it is needed to {purpose}: "
        f"{type(error).__name__}: {error}. To fix: {remedy}; `python -c 'import {name}'` shows it at length."
    )


class UnknownNameError(ConfigError):
    """A name that no catalog holds.

    Args:
        kind: What sort of thing was named ("model", "device", "precision").
        name: What was given.
        known: Every name that would have been accepted.
        hint: Where to see all of them.
        nearest: What to offer; by default the known names closest in spelling.
    """

    def __init__(
        self, *, kind: str, name: str, known: Iterable[str], hint: str, nearest: tuple[str, ...] | None = None
    ) -> None:
        self.kind = kind
        self.name = name
        self.nearest = nearest_names(str(name), known) if nearest is None else nearest
        guess = f" Did you mean {' or '.join(repr(n) for n in self.nearest)}?" if self.nearest else ""
        fix = hint if "To fix" in hint else f"To fix: use a known name. {hint}"
        super().__init__(f"Unknown {kind} {shown(name)}.{guess} {fix}")

    def with_hint(self, hint: str) -> UnknownNameError:
        """This error, saying one thing more."""
        self.args = (f"{self.args[0]} {hint}",)
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        """For other processes: the constructor takes no message."""
        return _restored, (type(self), self.args, self.__dict__)


def nearest_names(name: str, known: Iterable[str]) -> tuple[str, ...]:
    """The three known names closest in spelling to `name`, best first, case ignored."""
    by_lower = {candidate.lower(): candidate for candidate in known}
    matches = difflib.get_close_matches(name[:_LONGEST_NAME].lower(), by_lower, n=3, cutoff=0.55)
    return tuple(by_lower[match] for match in matches)
