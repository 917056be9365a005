"""`--set FIELD=VALUE`: any field of a job, and fields that are typed as options although none is shown."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from ..errors import ConfigError, nearest_names
from ..fields import plain_type
from ..request.schema import MOVED, RequestFields
from ..request.validation import Field
from .options import PREFIX, flags_of


def as_settings(
    words: Sequence[str],
    fields: Mapping[str, Field],
    takes_value: Mapping[str, bool],
    *,
    renamed: Callable[[str], str | None] = lambda _: None,
    leading: bool = False,
) -> list[str]:
    """The words of a command line, with fields that are no options said by --set, by the names of today.

    >>> from precision_time.request.schema import RequestFields
    >>> as_settings(["bert-large", "--lora-rank", "8"], RequestFields.model_fields, {})
    ['bert-large', '--set', 'lora_rank=8']

    Args:
        words: As typed.
        fields: What the command takes, by name.
        takes_value: The options of the command, and whether a word belongs to each.
        renamed: What an option of an earlier release is called now; None for others.
        leading: Whether words of another program follow: from its first on they are left alone.

    Raises:
        ConfigError: If a field has no value.
    """
    found, rest = [], iter(words)
    for typed in rest:
        word = typed
        flag, equals, text = word.partition("=")
        if not word.startswith(PREFIX) and len(word) > len("-b") and word not in takes_value:
            flag, equals, text = word[:2], word[:1], word[2:]  # -b256
        if flag not in takes_value and (today := renamed(flag)) is not None:
            flag, _, behind = today.partition(" ")
            if behind:  # with a value, or the beginning of one
                value = "" if not behind.endswith("=") else text if equals else next(rest, "")
                found += [flag, f"{behind}{value}"]
                continue
            word = f"{flag}{equals}{text}"
        if word == "--" or (leading and flag not in takes_value):
            found += [word, *rest]
        elif flag in takes_value or not word.startswith("-"):
            found.append(word)
            if takes_value.get(word):  # the word behind is its value, whatever it looks like
                found += [value for value in (next(rest, None),) if value is not None]
        elif (named := _field_of_flag(flag, fields)) is None or (named[1] and equals):
            found.append(word)
        else:
            name, switched = named
            said = switched or (text if equals else next(rest, None))
            if said is None:
                raise ConfigError(f"{flag} has no value. To fix: --set {name}=VALUE.")
            found += ["--set", f"{name}={said}"]
    return found


def _field_of_flag(flag: str, fields: Mapping[str, Field]) -> tuple[str, str] | None:
    """The field that an option stands for, and the value of one that takes none."""
    plain = flag.removeprefix(PREFIX)
    for name in (plain, plain.removeprefix("no-")):
        info = fields.get(name.replace("-", "_"))
        if info is not None and info.option and plain_type(info.annotation) is bool:
            return info.name, "true" if name == plain else "false"
    for name, info in fields.items():
        if info.option is not None and flag in flags_of(name, info.option):
            return name, ""
    other = plain.replace("-", "_")  # of an earlier release, or as measurement tables and trainers have it
    return (other, "") if other not in fields and RequestFields.own_name(other) in fields else None


def settings_of(
    pairs: Iterable[str], taken: Callable[[], Mapping[str, Field]], given: Mapping[str, Any]
) -> dict[str, Any]:
    """The fields that --set names.

    Raises:
        ConfigError: If one is no such pair, names no field of the command, or one that an option says too.
    """
    found: dict[str, Any] = {}
    for pair in pairs:
        fields = taken()
        written, equals, text = pair.partition("=")
        name = written.strip().replace("-", "_")
        own = name if name in fields else RequestFields.own_name(name)
        name = name if name in MOVED and own in fields else own  # the request says what it is called now
        if not equals or not text.strip():
            raise ConfigError(f"--set {pair!r} is not FIELD=VALUE. To fix: write it like --set lora_rank=8.")
        if own not in fields:
            near = nearest_names(name, list(fields))
            hint = f"Did you mean {' or '.join(near)}? " if near else ""
            raise ConfigError(
                f"--set {pair!r}: {written.strip()} is no field that this command takes by --set. {hint}"
                "To fix: `precision-time list fields` lists them; what is an option is given as that."
            )
        if given.get(own) not in (None, []):
            raise ConfigError(f"{own} is given by its option and by --set. To fix: leave out one of them.")
        if plain_type(fields[own].annotation) in (dict, list):
            found.setdefault(name, []).append(text)
        else:
            found[name] = text
    return found
