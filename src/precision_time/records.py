"""`dataclass`: that of the standard library, made in a quarter of the time.

The standard one compiles six methods of every frozen class, 0.4 ms for each of the 160 classes that one
answer needs: a sixth of a cold start. Here a frozen class has one compiled method, `__init__`, and shares the
others; that one waits for the first object, since a third of the classes never have any. Fields, slots,
`replace`, `asdict` and what type checkers know are the standard library's.
"""

from __future__ import annotations

import dataclasses
from operator import attrgetter
from types import MemberDescriptorType
from typing import TYPE_CHECKING, Any

_OPTIONS = {"init": False, "repr": False, "eq": False}
_MISSING = dataclasses.MISSING

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass  # noqa: PLC0414 - what other modules take from here
else:

    def dataclass(cls=None, /, *, frozen=False, repr=True, eq=True, **options):  # noqa: A002
        """Make a class of fields; the options of `dataclasses.dataclass` but order, unsafe_hash and init."""

        def made(cls):
            if not frozen:
                return dataclasses.dataclass(cls, repr=repr, eq=eq, **options)
            bases = [vars(base)["__dataclass_params__"] for base in cls.__mro__[1:] if _is_ours(base)]
            for each in bases:  # to the standard library none of them is frozen, as their classes are not
                each.frozen = False
            try:
                found = dataclasses.dataclass(**_OPTIONS, **options)(cls)
            finally:
                for each in bases:
                    each.frozen = True
            found.__dataclass_params__.frozen = True
            _complete(found, text=repr, alike=eq)
            return found

        return made if cls is None else made(cls)


def _is_ours(base: type[Any]) -> bool:
    return "__dataclass_params__" in vars(base)


def _complete(cls: type[Any], *, text: bool, alike: bool) -> None:
    """Add what a frozen class has beside its fields; methods of its own stay."""
    own = dict(vars(cls))
    methods: dict[str, Any] = {"__setattr__": _refuse_to_set, "__delattr__": _refuse_to_delete}
    if "__init__" not in own:
        methods["__init__"] = _Init(cls)
    if "__slots__" in own:
        methods |= {"__getstate__": _state, "__setstate__": _set_state}
    if text and "__repr__" not in own:
        methods["__repr__"] = _text
    if alike:
        compared = [each.name for each in dataclasses.fields(cls) if each.compare]
        values: Any = attrgetter(*compared) if len(compared) > 1 else _tuple_of(compared)

        def is_equal(self: Any, other: object) -> Any:
            return values(self) == values(other) if other.__class__ is self.__class__ else NotImplemented

        def hashed(self: Any) -> int:
            return hash(values(self))

        if "__eq__" not in own:
            methods["__eq__"] = is_equal
        if own.get("__hash__") is None:
            methods["__hash__"] = hashed
    for name, method in methods.items():
        setattr(cls, name, method)


class _Init:
    """`__init__` of a class, compiled and put in this one's place by whoever asks for it first."""

    def __init__(self, cls: type[Any]) -> None:
        self.cls = cls

    def __get__(self, made: Any, cls: type[Any] | None = None) -> Any:
        init = _init_of(self.cls)
        setattr(self.cls, "__init__", init)  # noqa: B010 - mypy allows no other way
        return init.__get__(made, cls)


def _init_of(cls: type[Any]) -> Any:
    """`__init__`, which sets fields past `__setattr__`: of slots by their own descriptors."""
    named: dict[str, Any] = {"_set": object.__setattr__, "_missing": _MISSING}
    given: dict[bool, list[str]] = {False: [], True: ["*"]}
    lines = []
    kinds = {}
    for each in dataclasses.fields(cls):
        name, value = each.name, each.name
        if each.default_factory is not _MISSING:
            named[f"_make_{name}"] = each.default_factory
            value = f"_make_{name}() if {name} is _missing else {name}" if each.init else f"_make_{name}()"
        elif not each.init:
            if each.default is _MISSING:
                continue
            value = f"_default_{name}"
        named[f"_default_{name}"] = each.default  # of a factory: missing
        if each.init:
            has_default = each.default is not _MISSING or each.default_factory is not _MISSING
            given[bool(each.kw_only)].append(f"{name}=_default_{name}" if has_default else name)
            kinds[name] = each.type
        slot = getattr(cls, name, None)
        if isinstance(slot, MemberDescriptorType):
            named[f"_set_{name}"] = slot.__set__
            lines.append(f"_set_{name}(self, {value})")
        else:
            lines.append(f"_set(self, {name!r}, {value})")
    if hasattr(cls, "__post_init__"):
        lines.append("self.__post_init__()")
    parameters = ", ".join(["self", *given[False], *(given[True] if len(given[True]) > 1 else ())])
    exec(f"def __init__({parameters}):\n " + "\n ".join(lines or ["pass"]), named)  # noqa: S102
    init = named["__init__"]
    init.__qualname__ = f"{cls.__qualname__}.__init__"
    init.__annotations__ = {**kinds, "return": None}
    return init


def _tuple_of(names: list[str]) -> Any:
    return lambda own: tuple(getattr(own, name) for name in names)


def _refuse_to_set(self: Any, name: str, value: Any) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")


def _refuse_to_delete(self: Any, name: str) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")


def _state(self: Any) -> list[Any]:
    return [getattr(self, each.name) for each in dataclasses.fields(self)]


def _set_state(self: Any, state: list[Any]) -> None:
    for each, value in zip(dataclasses.fields(self), state, strict=True):
        object.__setattr__(self, each.name, value)


def _text(self: Any) -> str:
    shown = (f"{each.name}={getattr(self, each.name)!r}" for each in dataclasses.fields(self) if each.repr)
    return f"{self.__class__.__qualname__}({', '.join(shown)})"
