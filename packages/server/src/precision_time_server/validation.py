"""What pydantic finds wrong in a body: the field as it was written, the value, the rule, the remedy."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from pydantic import ValidationError

from precision_time.errors import ConfigError, nearest_names

_SHOWN = 60


def config_error(
    error: ValidationError,
    *,
    fields: Iterable[str],
    spelled: Callable[[str], str] = lambda name: name,
    as_text: bool = False,
) -> ConfigError:
    """The first fault of a validation as one sentence.

    Args:
        error: What pydantic found.
        fields: Names that would have been accepted.
        spelled: A field's name as the user writes it: option, key or column.
        as_text: Whether every value is text, as on the command line: shown without quotes.
    """
    fault = error.errors(include_url=False)[0]
    # A union names its members after the field; the field itself is the last name that is one.
    known = set(fields)
    path = [str(part) for part in fault["loc"]]
    name = next((part for part in reversed(path) if part in known), path[-1] if path else "")
    kind, context = fault["type"], fault.get("ctx", {})
    found = context.get("error")
    if isinstance(found, ConfigError):
        # The rule of a field with parts names the part itself.
        return found
    if kind == "extra_forbidden":
        return ConfigError(_unknown(name, known, spelled))
    if kind == "missing":
        return ConfigError(f"{spelled(name)} is missing. To fix: give {spelled(name)}.")
    rule, remedy = _rule(kind, context, str(fault["msg"]))
    remedy = remedy.replace("{}", spelled(name))
    shown = str(fault["input"]) if as_text else repr(fault["input"])
    shown = shown if len(shown) <= _SHOWN else f"{shown[:_SHOWN]}..."
    return ConfigError(f"{spelled(name)}={shown} is invalid: it must be {rule}. To fix: {remedy}.")


def _unknown(name: str, known: set[str], spelled: Callable[[str], str]) -> str:
    near = nearest_names(name, known)
    guess = f" Did you mean {' or '.join(spelled(each) for each in near)}?" if near else ""
    return (
        f"Unknown field {name!r}.{guess} To fix: use a known one: {', '.join(map(spelled, sorted(known)))}."
    )


def _rule(kind: str, context: dict[str, Any], text: str) -> tuple[str, str]:
    """The rule and the remedy; `{}` in the remedy stands for the field."""
    if kind == "greater_than_equal":
        least = context["ge"]
        if 0 < least < 1:
            return f"a number above 0, {least:g} or more", "{}=1 or more"
        kind_of_number = "a number" if isinstance(least, float) else "a whole number"
        return f"{kind_of_number} of at least {least:g}", f"{{}}={least:g} or more"
    if kind == "greater_than":
        return f"a number above {context['gt']:g}", "{}=1 or more"
    if kind == "less_than_equal":
        return f"at most {context['le']:,}", "check the number"
    if kind == "less_than":
        return f"below {context['lt']:,g}", "check the number"
    if kind.startswith("int"):
        return "a whole number", "{}=1 or more"
    if kind in ("float_parsing", "float_type", "finite_number"):
        return "a finite number", "{}=1 or more"
    if kind.startswith("bool"):
        return "true or false", "{}=true or {}=false"
    if kind in ("enum", "literal_error"):
        choices = context["expected"].replace("'", "")
        return f"one of {choices}", "use one of them"
    if kind == "value_error":
        return str(context["error"]).removeprefix("it must be "), "{}=1 or more"
    if kind.startswith(("dict", "mapping", "model")):
        return "a mapping of names to values", "write {} as name: value"
    if kind.startswith("string"):
        return "text", "write {} as text"
    return text[:1].lower() + text[1:], "correct {}"
