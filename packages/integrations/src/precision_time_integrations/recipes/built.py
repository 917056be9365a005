"""Configurations that a Python function builds, as values by dotted key: read by its syntax tree, never run.

`Trainer.Config(training=TrainingConfig(steps=10))` says `training.steps`; the class that a key is given is
its own word, so that `activation_checkpoint=FullAC.Config()` says `activation_checkpoint`, and the elements
of a list have their numbers. A function may begin with what another one of the file returns, and change it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from precision_time.errors import ConfigError

from .documents import Stated
from .sources import Values, name_of, parsed_source

Tree = dict[str, Stated]
"""Values by dotted key; the empty key is the word of the whole."""
_DEEPEST, _MOST_RUNS = 8, 100
"""Functions in one another, and in all."""
_MOST_VALUES = 5_000
_RUN = "known only when it runs"
_CALL = "a call"


@dataclass(slots=True)
class Built:
    """What a function builds."""

    given: Tree
    unread: list[str] = field(default_factory=list)
    """What else it does with it."""


def built_functions(name: str, text: str, result: str) -> dict[str, int]:
    """Functions of a file that say that they return a class, and their lines.

    Args:
        name: Of the file, for errors.
        text: Its content.
        result: End of the name of the class, such as "Trainer.Config".

    Raises:
        ConfigError: If it is too long, or no Python.
    """
    return {
        each.name: each.lineno
        for each in _functions(parsed_source(name, text)).values()
        if _gives(each, result)
    }


def read_built(name: str, text: str, function: str) -> Built:
    """What a function of a file builds; with no name, what the file itself assigns to a variable.

    Raises:
        ConfigError: As `built_functions`, or if functions call one another without end.
    """
    tree = parsed_source(name, text)
    reader = _Reader(text, _functions(tree), Built({}))
    env: dict[str, Tree] = {}
    top = [each for each in tree.body if isinstance(each, ast.Assign | ast.AnnAssign)]
    found = reader.run(top, env, 0)
    reader.outside, reader.constants = env, reader.values.names
    if function:
        found = reader.called(function, 0)
    else:
        found = next((each for each in reversed([*env.values()]) if len(each) > 1), found)
    reader.built.given = found
    return reader.built


def _functions(tree: ast.Module) -> dict[str, ast.FunctionDef]:
    return {each.name: each for each in tree.body if isinstance(each, ast.FunctionDef)}


def _gives(function: ast.FunctionDef, result: str) -> bool:
    return function.returns is not None and name_of(function.returns).endswith(result)


@dataclass(slots=True)
class _Reader:
    text: str
    functions: Mapping[str, ast.FunctionDef]
    built: Built
    values: Values = field(init=False)
    outside: Mapping[str, Tree] = field(default_factory=dict)
    """What the file itself assigns."""
    constants: Mapping[str, Stated] = field(default_factory=dict)
    """Those of one value among them."""
    runs: int = 0

    def __post_init__(self) -> None:
        self.values = Values(self.text)

    def called(self, function: str, depth: int) -> Tree:
        """What a function of the file returns: it sees its own names and those of the file."""
        before, self.values.names = self.values.names, dict(self.constants)
        found = self.run(self.functions[function].body, dict(self.outside), depth)
        self.values.names = before
        return found

    def run(self, body: Iterable[ast.stmt], env: dict[str, Tree], depth: int) -> Tree:
        """What statements return, one after the other; empty for nothing."""
        self.runs += 1
        if depth > _DEEPEST or self.runs > _MOST_RUNS:
            raise ConfigError(
                f"Functions call one another more than {_DEEPEST} deep, or {_MOST_RUNS} times. To fix: name "
                "one that does not."
            )
        for each in body:
            if isinstance(each, ast.Return) and each.value is not None:
                return self.tree(each.value, env, depth)
            if isinstance(each, ast.Assign | ast.AnnAssign) and each.value is not None:
                for target in each.targets if isinstance(each, ast.Assign) else [each.target]:
                    self.assign(target, self.tree(each.value, env, depth), env)
            elif not isinstance(each, ast.FunctionDef | ast.Import | ast.ImportFrom | ast.Assert | ast.Pass):
                self.leave(each, env)
        return {}

    def assign(self, target: ast.expr, value: Tree, env: dict[str, Tree]) -> None:
        """`name = value`, or `name.key = value` in place of what was there."""
        first, _, key = name_of(target).partition(".")
        if first and not key:
            env[first] = value
            self.values.names[first] = value.get("", Stated(None))
        elif first in env:
            kept = {
                each: stated
                for each, stated in env[first].items()
                if each != key and not each.startswith(f"{key}.")
            }
            env[first] = {**kept, **_below(key, value)}

    def leave(self, statement: ast.stmt, env: dict[str, Tree]) -> None:
        """What is not followed: keys that it assigns are unknown, and what it calls with them is told."""
        for node in ast.walk(statement):
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                written = self.values.written(node)
                self.assign(node, {"": Stated(written, node.lineno, _RUN)}, env)
            elif isinstance(node, ast.Call):
                name = name_of(node.func)
                touched = {name.partition(".")[0] if "." in name else "", *map(name_of, node.args)}
                if any(len(env.get(each.partition(".")[0], ())) > 1 for each in touched if each):
                    self.built.unread.append(
                        f"line {node.lineno}: {self.values.written(node)}: what it changes is not read"
                    )

    def tree(self, node: ast.expr, env: dict[str, Tree], depth: int) -> Tree:
        """The values of an expression."""
        if isinstance(node, ast.Call):
            return self.call(node, env, depth)
        if isinstance(node, ast.Name) and len(env.get(node.id, ())) > 1:
            return env[node.id]
        if isinstance(node, ast.Attribute):
            first, _, key = name_of(node).partition(".")
            inner = {
                each: stated
                for each, stated in env.get(first, {}).items()
                if each == key or each.startswith(f"{key}.")
            }
            if key and inner:
                return {each.removeprefix(key).removeprefix("."): stated for each, stated in inner.items()}
        if isinstance(node, ast.List | ast.Tuple):
            return self.several(node, env, depth)
        stated = self.values.value(node)
        return {"": stated}

    def several(self, node: ast.List | ast.Tuple, env: dict[str, Tree], depth: int) -> Tree:
        """A list as one word, and its elements by number where they have keys of their own."""
        parts = [self.tree(part, env, depth) for part in node.elts]
        words = [part.get("", Stated(None)) for part in parts]
        unknown = next((word.unknown for word in words if word.unknown), "")
        found: Tree = {"": Stated([word.value for word in words], node.lineno, unknown)}
        for place, part in enumerate(parts):
            if len(part) > 1:
                found |= _below(str(place), part)
        return _bounded(found)

    def call(self, node: ast.Call, env: dict[str, Tree], depth: int) -> Tree:
        """What a call makes: of a function of the file what that returns, of others its arguments by name."""
        name = name_of(node.func)
        if name in self.functions and not node.args and not node.keywords:
            return self.called(name, depth + 1)
        last = name.rpartition(".")[2]
        found: Tree = {"": Stated(name, node.lineno, "" if last[:1].isupper() else _CALL)}
        for place, part in enumerate(node.args):
            found |= _below(str(place), self.tree(part, env, depth))
        for keyword in node.keywords:
            if keyword.arg is None:
                self.built.unread.append(
                    f"line {node.lineno}: **{self.values.written(keyword.value)}: {_RUN}"
                )
            else:
                found |= _below(keyword.arg, self.tree(keyword.value, env, depth))
        return _bounded(found)


def _bounded(tree: Tree) -> Tree:
    if len(tree) > _MOST_VALUES:
        raise ConfigError(
            f"The configuration stands for more than {_MOST_VALUES:,} values. To fix: name a smaller one."
        )
    return tree


def _below(key: str, tree: Tree) -> Tree:
    """A tree under a key.

    >>> _below("a", {"": Stated(1), "b": Stated(2)}) == {"a": Stated(1), "a.b": Stated(2)}
    True
    """
    return {f"{key}.{each}" if each else key: replace(stated) for each, stated in tree.items()}
