"""What pydantic finds wrong in a body: the field as it was written, the value, the rule, the remedy."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from pydantic import ValidationError

from precision_time.errors import ConfigError
from precision_time.request.validation import (
    above_rule,
    below_rule,
    broken,
    least_rule,
    missing_field,
    most_rule,
    unknown_field,
)


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
        return unknown_field(name, known, spelled)
    if kind == "missing":
        return missing_field(spelled(name))
    rule, remedy = _rule(kind, context, str(fault["msg"]))
    return broken(spelled(name), fault["input"], rule, remedy, as_text=as_text)


def _rule(kind: str, context: dict[str, Any], text: str) -> tuple[str, str]:
    """The rule and the remedy; `{}` in the remedy stands for the field."""
    if kind == "greater_than_equal":
        return least_rule(context["ge"], whole=not isinstance(context["ge"], float))
    if kind == "greater_than":
        return above_rule(context["gt"])
    if kind == "less_than_equal":
        return most_rule(context["le"])
    if kind == "less_than":
        return below_rule(context["lt"])
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
