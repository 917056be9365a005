"""Frozen classes are those of the standard library, in all that can be seen of them."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
from dataclasses import FrozenInstanceError, asdict, field, fields, replace
from typing import Any, ClassVar

import numpy as np
import pytest

from precision_time.cache import Deriving
from precision_time.records import dataclass


def classes(make: Any) -> dict[str, type[Any]]:
    """The same classes by one decorator or the other."""

    @make(frozen=True, kw_only=True, slots=True)
    class Plain:
        """Fields."""

        one: int
        two: str = "b"
        many: list[int] = field(default_factory=list)
        hidden: int = field(default=3, repr=False, compare=False)
        KIND: ClassVar[str] = "k"

        def __post_init__(self) -> None:
            if self.one < 0:
                raise ValueError("one")

    @make(frozen=True, slots=True)
    class Positional:
        """By position, and one that is not given."""

        one: int
        two: int = 2
        made: dict[str, int] = field(init=False, default_factory=dict)

    @make(frozen=True, kw_only=True)
    class Above(Plain):
        """Further fields, no slots."""

        three: float = 0.5

    @make(frozen=True, kw_only=True, slots=True, eq=False)
    class Identity:
        """Equal to itself alone."""

        one: Any

    @make(frozen=True, kw_only=True, slots=True, repr=False)
    class Own(Deriving):
        """Methods of its own stay."""

        one: int

        def __repr__(self) -> str:
            return "own"

        def __eq__(self, other: object) -> bool:
            return True

        def __hash__(self) -> int:
            return 7

    @make(frozen=True, kw_only=True, slots=True)
    class Empty:
        """No field."""

    return {each.__name__: each for each in (Plain, Positional, Above, Identity, Own, Empty)}


OURS, THEIRS = classes(dataclass), classes(dataclasses.dataclass)
GIVEN: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
    ("Plain", (), {"one": 1}), ("Plain", (), {"one": 1, "two": "x", "many": [1], "hidden": 9}),
    ("Positional", (1,), {}), ("Positional", (1, 3), {}), ("Above", (), {"one": 1, "three": 2.5}),
    ("Identity", (), {"one": np.arange(3)}), ("Own", (), {"one": 1}), ("Empty", (), {}),
]  # fmt: skip
WRONG: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
    ("Plain", (), {}), ("Plain", (1,), {}), ("Plain", (), {"one": 1, "tow": 2}), ("Plain", (), {"one": -1}),
    ("Positional", (1, 2, 3), {}), ("Positional", (1,), {"made": {}}), ("Empty", (1,), {}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "args", "named"), GIVEN)
def test_instances_are_alike(name: str, args: tuple[Any, ...], named: dict[str, Any]) -> None:
    ours, theirs = OURS[name](*args, **named), THEIRS[name](*args, **named)
    assert repr(ours) == repr(theirs) or name == "Identity"
    assert [each.name for each in fields(ours)] == [each.name for each in fields(theirs)]
    assert str(asdict(ours)) == str(asdict(theirs))
    again, other = OURS[name](*args, **named), THEIRS[name](*args, **named)
    assert (ours == again) is (theirs == other) and ours != theirs or name == "Own"
    assert ours.__eq__(1) is NotImplemented or name in ("Own", "Identity")
    assert copy.copy(ours).__reduce_ex__(4)[1:] is not None and type(copy.deepcopy(ours)) is OURS[name]
    assert hasattr(ours, "__dict__") is hasattr(theirs, "__dict__")
    for each in (ours, theirs)[
        : 1 if name == "Empty" else 2
    ]:  # the standard library's has another error there
        with pytest.raises(FrozenInstanceError):
            each.one = 2
        with pytest.raises(FrozenInstanceError):
            del each.one


@pytest.mark.parametrize(("name", "args", "named"), WRONG)
def test_wrong_arguments_have_the_same_error(name: str, args: tuple[Any, ...], named: dict[str, Any]) -> None:
    said = []
    for made in (OURS, THEIRS):
        with pytest.raises((TypeError, ValueError)) as error:
            made[name](*args, **named)
        said.append(str(error.value))
    assert said[0] == said[1]


def test_equal_values_have_one_hash_and_signatures_agree() -> None:
    for name, theirs in THEIRS.items():
        assert inspect.signature(OURS[name]).parameters.keys() == inspect.signature(theirs).parameters.keys()
    one, two = (OURS["Positional"](1, 2) for _ in range(2))
    with pytest.raises(TypeError):
        hash(one)  # a dictionary among its fields, as with the standard library's
    assert one == two and replace(one, two=3) != two
    with pytest.raises(ValueError, match="init=False"):
        replace(one, made={})
    assert hash(OURS["Own"](one=1)) == 7 and hash(OURS["Empty"]()) == hash(THEIRS["Empty"]())


def test_a_frozen_class_of_the_standard_library_may_follow_and_the_reverse() -> None:
    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Standard(OURS["Plain"]):  # type: ignore[misc,name-defined]
        """Of a user."""

        last: int = 1

    @dataclass(frozen=True, kw_only=True)
    class Ours(Standard):
        """Ours again."""

        end: int = 2

    assert Ours(one=1).end == 2 and Standard(one=1).two == "b"
    with pytest.raises(TypeError, match="non-frozen"):

        @dataclasses.dataclass
        class Loose(OURS["Plain"]):  # type: ignore[misc,name-defined]
            """Not frozen."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Kept(Deriving):
    """At module level, to be pickled."""

    one: int
    two: tuple[int, ...] = ()


def test_what_is_pickled_comes_back_without_what_was_derived() -> None:
    kept = Kept(one=1, two=(2,))
    object.__setattr__(kept, "_derived", {"x": 1})
    again = pickle.loads(pickle.dumps(kept))
    assert again == kept and hash(again) == hash(kept) and not hasattr(again, "_derived")
