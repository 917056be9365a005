"""Classes of declared fields: values are checked against what the annotations say.

msgspec checks types and bounds; here stand the sentences about what breaks a rule: the field as the user
wrote it, the value, the rule, the remedy.
"""

from __future__ import annotations

import dataclasses
import inspect
import math
import types
from collections.abc import Callable, Collection, Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import (
    Annotated,
    Any,
    ClassVar,
    Self,
    Union,
    cast,
    dataclass_transform,
    get_args,
    get_origin,
    get_type_hints,
)

import msgspec
from msgspec import Meta

from ..errors import ConfigError, nearest_names
from ..fields import SWITCH, AsText, ListText, Option, Read, choices_of, plain_type
from ..records import dataclass

REQUIRED: Any = ...
"""The default of a field that must be given."""
_SHOWN = 60


@dataclass(frozen=True, kw_only=True)
class Field:
    """One declared field."""

    name: str
    annotation: Any
    """Its type as it was declared, without the marks around it."""
    marks: tuple[Any, ...]
    """All marks: `Option`, `Read`, bounds."""
    default: Any
    """What holds where nothing is given; REQUIRED where something must be."""
    checked: Any
    """What msgspec converts to; None where the reader checks."""
    readers: tuple[Read, ...]

    @classmethod
    def of(cls, name: str, declared: Any, default: Any = REQUIRED, option: Option | None = None) -> Field:
        """A field from its annotation, shown as an option that does not stand in it."""
        annotation, *outer = _marked(declared)
        parts = get_args(annotation) if get_origin(annotation) in (Union, types.UnionType) else (annotation,)
        parts = tuple(part for part in parts if part is not types.NoneType)
        inner = [mark for part in parts if get_origin(part) is Annotated for mark in part.__metadata__]
        marks = (*outer, *inner, *([] if option is None else [option]))
        readers = tuple(mark for mark in marks if isinstance(mark, Read))
        kind = parts[0] if len(parts) == 1 else Union[parts]  # noqa: UP007 - of a tuple
        if kind is bool and not readers:
            readers = (SWITCH,)
        bounds = [mark for mark in outer if isinstance(mark, Meta)]
        for bound in bounds:
            kind = Annotated[kind, bound]
        if any(reader.checks for reader in readers):
            kind = None
        return cls(
            name=name, annotation=annotation, marks=marks, default=default, checked=kind, readers=readers
        )

    @property
    def option(self) -> Option | None:
        """How it is shown; None for one that only Python can give."""
        return next((mark for mark in self.marks if isinstance(mark, Option)), None)

    @property
    def text(self) -> AsText | None:
        """How a tuple is typed; None for a field of another kind."""
        return next((mark for mark in self.marks if isinstance(mark, AsText)), None)

    def value(self, held: Any) -> Any:
        """What a job has for what a request holds."""
        return held if self.text is None else self.text.read(held)

    def held(self, value: Any) -> Any:
        """What a request holds for what a job has."""
        return value if self.text is None else self.text.write(value)

    def read(self, given: Any, *, spelled: str = "", as_text: bool = False) -> Any:
        """A value as the field holds it.

        Raises:
            ConfigError: If it breaks the field's rule.
        """
        value = given
        try:
            for reader in self.readers:
                value = reader.function(value, self.name) if reader.named else reader.function(value)
            return value if self.checked is None else msgspec.convert(value, self.checked, strict=False)
        except ConfigError:
            raise
        except (ValueError, msgspec.ValidationError) as error:
            rule, remedy = self._rule(value, error)
            raise broken(spelled or self.name, given, rule, remedy, as_text=as_text) from None

    def _rule(self, value: Any, error: Exception) -> tuple[str, str]:
        """The rule that a value breaks and the remedy, in which `{}` stands for the field."""
        kind = plain_type(self.annotation)
        if not isinstance(error, msgspec.ValidationError):
            return str(error), "{}=1 or more" if kind in (int, float) else "correct {}"
        several = isinstance(value, str) and (".." in value or "," in value) and kind in (int, float)
        if several or (isinstance(value, list | tuple) and kind not in (list, dict)):
            return "one value", "give one; sweeps take several"
        if kind in (int, float):
            return _rule_of_number(value, kind, [mark for mark in self.marks if isinstance(mark, Meta)])
        if kind is bool:
            return "true or false", "{}=true or {}=false"
        if choices := choices_of(self.annotation):
            *others, last = choices
            return f"one of {', '.join(others)} or {last}" if others else f"{last}", "use one of them"
        if kind is dict:
            return "a mapping of names to values", "write {} as name: value"
        if kind is list:
            return "a list", "write {} as a list"
        return ("text", "write {} as text") if kind is str else (f"a {kind.__name__}", "correct {}")


def _rule_of_number(value: Any, kind: type, bounds: Sequence[Meta]) -> tuple[str, str]:
    try:
        number: float = msgspec.convert(value, kind, strict=False)  # an int may be too large for a float
    except msgspec.ValidationError:
        number = math.nan
    if isinstance(number, float) and not math.isfinite(number):
        return ("a whole number" if kind is int else "a finite number"), "{}=1 or more"
    for bound in bounds:
        if bound.ge is not None and number < bound.ge:
            return least_rule(bound.ge, whole=kind is int)
        if bound.gt is not None and number <= bound.gt:
            return above_rule(bound.gt)
        if bound.lt is not None and number >= bound.lt:
            return below_rule(bound.lt)
    return most_rule(next((bound.le for bound in bounds if bound.le is not None), math.inf))


def broken(name: str, given: Any, rule: str, remedy: str, *, as_text: bool = False) -> ConfigError:
    """The error of a value that breaks its rule; `{}` in the remedy stands for the field.

    Args:
        name: The field as the user wrote it.
        given: Its value.
        rule: What it must be.
        remedy: What to do.
        as_text: Whether every value is text, as on the command line: shown without quotes.
    """
    shown = str(given) if as_text else repr(given)
    shown = shown if len(shown) <= _SHOWN else f"{shown[:_SHOWN]}..."
    return ConfigError(f"{name}={shown} is invalid: it must be {rule}. To fix: {remedy.replace('{}', name)}.")


def missing_field(name: str) -> ConfigError:
    """The error of a field that must be given, as the user writes it."""
    return ConfigError(f"{name} is missing. To fix: give {name}.")


def unknown_field(name: str, known: Collection[str], spelled: Callable[[str], str]) -> ConfigError:
    """The error of a field that there is not, with those that there are."""
    near = nearest_names(name, known)
    guess = f" Did you mean {' or '.join(spelled(each) for each in near)}?" if near else ""
    listed = ", ".join(map(spelled, sorted(known)))
    return ConfigError(f"Unknown field {name!r}.{guess} To fix: use a known one: {listed}.")


def least_rule(least: float, *, whole: bool) -> tuple[str, str]:
    """Rule and remedy of a number of at least so much."""
    if 0 < least < 1:
        return f"a number above 0, {least:g} or more", "{}=1 or more"
    return f"{'a whole number' if whole else 'a number'} of at least {least:g}", f"{{}}={least:g} or more"


def above_rule(bound: float) -> tuple[str, str]:
    """Rule and remedy of a number above so much."""
    return f"a number above {bound:g}", "{}=1 or more"


def below_rule(bound: float) -> tuple[str, str]:
    """Rule and remedy of a number below so much."""
    return f"below {bound:,g}", "check the number"


def most_rule(most: float) -> tuple[str, str]:
    """Rule and remedy of a number of at most so much."""
    return f"at most {most:,}", "check the number"


def _marked(declared: Any) -> tuple[Any, ...]:
    """A type and the marks around it."""
    return get_args(declared) if get_origin(declared) is Annotated else (declared,)


def declared_fields(kind: Any) -> dict[str, Field]:
    """The fields of a dataclass, as a request holds them: None where the default is told in words."""
    hints, found = get_type_hints(kind, include_extras=True), {}
    for each in dataclasses.fields(kind):
        declared, *marks = _marked(hints[each.name])
        if any(isinstance(mark, AsText) for mark in marks):
            declared = ListText
        default = each.default
        if any(isinstance(mark, Option) and mark.default for mark in marks):
            declared, default = declared | None, None
        marked = Annotated[(declared, *marks)] if marks else declared
        found[each.name] = Field.of(each.name, marked, default)
    return found


@dataclass_transform(kw_only_default=True, frozen_default=True)
class Fields:
    """Values of the fields that a class declares: checked, unchangeable, and it is known which were given.

    In the place of a class variable that is a dataclass stand those of its fields that are options. A value
    that is None is not given; a field that is not given reads as its default.
    """

    model_fields: ClassVar[dict[str, Field]] = {}
    """By name, in the order of the class, those of its bases first."""
    aliases: ClassVar[Mapping[str, str]] = {}
    """Other names of fields."""
    moved: ClassVar[Mapping[str, str]] = {}
    """Names that fields had in the release before."""
    words: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    """How fields are shown as options, by name: the values of an `Option`."""
    __slots__ = ("__dict__", "__weakref__", "old_names")
    old_names: Mapping[str, str]
    """Those of `moved` that were given, as the user wrote them, each with the name of today."""

    def __init_subclass__(cls) -> None:
        own: dict[str, Field] = {}
        for name, annotation in inspect.get_annotations(cls, eval_str=True).items():
            default, origin = cls.__dict__.get(name, REQUIRED), cast(Any, get_origin(annotation))
            if origin is ClassVar and dataclasses.is_dataclass(default):
                options = {n: each for n, each in declared_fields(default).items() if each.option}
                own |= options
                for option, each in options.items():
                    setattr(cls, option, each.default)
            elif origin is not ClassVar and name != "old_names":
                words = cls.words.get(name)
                shown = Option(**{**words, "flags": tuple(words.get("flags", ()))}) if words else None
                own[name] = Field.of(name, annotation, default, shown)
        cls.model_fields = {**cls.model_fields, **own}
        for name, field in own.items():
            if isinstance(field.default, dict | list):
                delattr(cls, name)  # `__getattr__` gives everyone one of his own

    def __init__(self, /, **given: Any) -> None:
        self._take(given)

    @classmethod
    def of(cls, given: Mapping[str, Any], *, prefix: str = "") -> Self:
        """The values that are given by name.

        Args:
            given: Field to value; None stands for not given.
            prefix: What stands before a field where the user wrote it: `--` for options.

        Raises:
            ConfigError: If a field is unknown or a value breaks its rule; names both as the user did.
        """
        new = cls.__new__(cls)
        new._take(given, prefix)
        return new

    def changed(self, **values: Any) -> Self:
        """The same with other values, which are taken as they are."""
        new = type(self).__new__(type(self))
        new.old_names = self.old_names
        new.__dict__.update(self.__dict__, **values)
        return new

    @classmethod
    def own_name(cls, name: str) -> str:
        """The field that a name stands for."""
        return cls.aliases.get(name) or cls.moved.get(name, name)

    @property
    def model_fields_set(self) -> frozenset[str]:
        """The fields that were given."""
        return frozenset(self.__dict__)

    def given(self) -> dict[str, Any]:
        """The fields that were given, as a job file holds them."""
        return {name: _plain(value) for name, value in self.__dict__.items()}

    @classmethod
    def _spread(cls, given: Mapping[str, Any]) -> Mapping[str, Any]:
        """What is given, with fields that were written together beside the others."""
        return given

    @classmethod
    def _prepared(cls, given: dict[str, Any]) -> dict[str, Any]:
        """What is given, in the form in which the fields take it."""
        return given

    def _check_agreement(self) -> None:
        """Raise a ConfigError where values contradict each other."""

    def _take(self, given: Mapping[str, Any], prefix: str = "") -> None:
        if not isinstance(given, Mapping):
            raise ConfigError(f"{given!r:.60} is no mapping. To fix: write it as names and values.")
        given = self._spread(given)
        written = {self.own_name(name): name for name in given}

        def as_written(name: str) -> str:
            return f"{prefix}{name.replace('_', '-')}" if prefix else name

        def spelled(name: str) -> str:
            return as_written(str(written.get(name, name)))

        stated: dict[str, Any] = {}
        for name, value in given.items():
            own = self.own_name(name)
            if value is not None and own in stated and stated[own] != value:
                raise ConfigError(
                    f"{as_written(name)}={value!r:.60} names the same as {own}={stated[own]!r:.60}. To fix: "
                    "give only one of them."
                )
            if value is not None:
                stated[own] = value
        old = {name: self.moved[name] for name in given if name in self.moved}
        self.old_names = {as_written(name): as_written(own) for name, own in old.items()}

        self._fill(self._prepared(stated), spelled=spelled, as_text=bool(prefix))
        self._check_agreement()

    def _fill(
        self,
        stated: Mapping[str, Any],
        *,
        spelled: Callable[[str], str],
        as_text: bool,
    ) -> None:
        """Check and keep values, in the order of the fields."""
        for name in stated:
            if name not in self.model_fields:
                raise unknown_field(str(name), self.model_fields, spelled)
        for name, field in self.model_fields.items():
            value = stated.get(name)
            if value is None:
                if field.default is REQUIRED:
                    raise missing_field(spelled(name))
            else:
                self.__dict__[name] = field.read(value, spelled=spelled(name), as_text=as_text)

    def __getattr__(self, name: str) -> Any:
        field = type(self).model_fields.get(name)
        if field is None or field.default is REQUIRED:
            raise AttributeError(f"{type(self).__name__!r} has no {name!r}")
        return field.default.copy()

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "old_names":
            object.__setattr__(self, name, value)
            return
        raise AttributeError(f"{type(self).__name__} does not change: {name!r} cannot be set")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"{type(self).__name__} does not change: {name!r} cannot be deleted")

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self.__dict__ == other.__dict__

    def __hash__(self) -> int:
        return hash((type(self), frozenset(self.__dict__.items())))

    def __repr__(self) -> str:
        """The class and the fields that were given."""
        shown = ", ".join(f"{name}={value!r}" for name, value in self.given().items())
        return f"{type(self).__name__}({shown})"


def _plain(value: Any) -> Any:
    """Choices as their word, paths as text."""
    if isinstance(value, Enum):
        return value.value
    return str(value) if isinstance(value, Path) else value
