"""Python sources as values by key and line, by their syntax tree; nothing is imported or run.

A call of `SFTConfig(max_steps=60)` is `SFTConfig.max_steps`, its first argument `SFTConfig.0`; an assignment
to `recipe.trainer.max_steps` is that key. Which of them count is said by `projects/data`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from precision_time.errors import ConfigError

from .documents import MOST_BYTES, Stated

_MOST_NODES = 200_000
_RUN = "known only when it runs"
_CHANGED = "is assigned more than once"
_OPERATORS: Mapping[type[ast.operator], Any] = {
    ast.Add: lambda a, b: a + b,
    ast.Sub: lambda a, b: a - b,
    ast.Mult: lambda a, b: a * b,
    ast.FloorDiv: lambda a, b: a // b,
    ast.Div: lambda a, b: a / b,
}
_MOST = 10**15
_HAS_BF16 = re.compile(r"(\w+\.)*(is_bf16_supported|is_bfloat16_supported)")
"""Whether the device has bfloat16: taken as true, and refused by the precision on one that has not."""


@dataclass(frozen=True, slots=True)
class SourceCall:
    """A call of a source."""

    name: str
    """As it is written, its last two parts: `FastLanguageModel.from_pretrained`."""
    line: int
    values: Mapping[str, Stated]
    """By name; positional ones by their number from 0."""


@dataclass(frozen=True, slots=True)
class Source:
    """What a Python file says."""

    imports: frozenset[str]
    """First part of the modules that it imports, and the names taken from them (`trl.SFTTrainer`)."""
    calls: Sequence[SourceCall]
    settings: Mapping[str, Stated]
    """Assignments to attributes, by what is written before `=`."""
    defaults: frozenset[str] = field(default_factory=frozenset)
    """Options of its own parser whose defaults were taken."""


def read_source(name: str, text: str) -> Source:
    """What a Python file calls and assigns.

    Args:
        name: Of the file, for errors.
        text: Its content.

    Raises:
        ConfigError: If it is too long, or no Python.
    """
    tree = parsed_source(name, text)
    reader = _Reader(text)
    reader.read(tree)
    return Source(
        frozenset(reader.imports), tuple(reader.calls), reader.settings, frozenset(reader.defaults_taken)
    )


def parsed_source(name: str, text: str) -> ast.Module:
    """The syntax tree of a Python file.

    Raises:
        ConfigError: As `read_source`.
    """
    if len(text) > MOST_BYTES:
        raise ConfigError(
            f"{name} is longer than {MOST_BYTES:,} characters: it is no training script. To fix: name one."
        )
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ConfigError(
            f"{name} is not valid Python: {error}. To fix: correct it, or name its command."
        ) from None


class Values:
    """The values of expressions of constants, and of names that were given such."""

    def __init__(self, text: str) -> None:
        self.lines = text.splitlines()
        self.names: dict[str, Stated] = {}
        self.options: dict[str, Stated] = {}
        """Defaults of `add_argument`, by the attribute that holds them."""
        self.defaults_taken: set[str] = set()

    def value(self, node: ast.expr) -> Stated:
        """The value of an expression of constants; of others what is written, as unknown."""
        line = node.lineno
        if isinstance(node, ast.Constant):
            return Stated(node.value, line)
        if isinstance(node, ast.Name):
            known = self.names.get(node.id)
            return Stated(node.id, line, _RUN) if known is None else Stated(known.value, line, known.unknown)
        if isinstance(node, ast.List | ast.Tuple | ast.Set):
            parts = [self.value(part) for part in node.elts]
            unknown = next((part.unknown for part in parts if part.unknown), "")
            return Stated([part.value for part in parts], line, unknown)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            inner = self.value(node.operand)
            number = isinstance(inner.value, int | float) and not isinstance(inner.value, bool)
            return Stated(-inner.value, line) if number else Stated(self.written(node), line, _RUN)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            inner = self.value(node.operand)
            return (
                Stated(not inner.value, line)
                if isinstance(inner.value, bool)
                else Stated(self.written(node), line, _RUN)
            )
        if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
            return self._arithmetic(node)
        if isinstance(node, ast.Attribute):
            return self._attribute(node)
        if isinstance(node, ast.Call) and _HAS_BF16.fullmatch(name_of(node.func)):
            return Stated(True, line)
        if isinstance(node, ast.Call):
            return Stated(self.written(node), line, "a call")
        return Stated(self.written(node), line, _RUN)

    def _attribute(self, node: ast.Attribute) -> Stated:
        name = name_of(node)
        holder, _, last = name.rpartition(".")
        if holder == "torch" and re.fullmatch(r"b?float\d+|half", last):
            return Stated(last, node.lineno)
        if (
            re.fullmatch(r"(.*\.)?(args?|opts?|opt|cfg|config|hparams|parsed)", holder)
            and last in self.options
        ):
            found = self.options[last]
            self.defaults_taken.add(last)
            return Stated(found.value, node.lineno, found.unknown)
        return Stated(name or self.written(node), node.lineno, _RUN)

    def _arithmetic(self, node: ast.BinOp) -> Stated:
        left, right = self.value(node.left), self.value(node.right)
        numbers = all(
            isinstance(side.value, int | float) and not isinstance(side.value, bool) and not side.unknown
            for side in (left, right)
        )
        if numbers:
            try:
                result = _OPERATORS[type(node.op)](left.value, right.value)
            except ArithmeticError:
                return Stated(self.written(node), node.lineno, _RUN)
            if abs(result) < _MOST:
                return Stated(result, node.lineno)
        return Stated(self.written(node), node.lineno, _RUN)

    def written(self, node: ast.expr) -> str:
        """The line of an expression, from its beginning on, shortened."""
        return (
            self.lines[node.lineno - 1][node.col_offset :].strip()[:60]
            if node.lineno <= len(self.lines)
            else ""
        )


class _Reader(Values):
    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.imports: set[str] = set()
        self.calls: list[SourceCall] = []
        self.settings: dict[str, Stated] = {}

    def read(self, tree: ast.AST) -> None:
        nodes = list(_in_order(tree))
        for node in nodes:
            if isinstance(node, ast.Import):
                self.imports |= {part.name.split(".")[0] for part in node.names}
            elif isinstance(node, ast.ImportFrom):
                module = (node.module or "").split(".")[0]
                self.imports |= {module, *(f"{module}.{part.name}" for part in node.names)}
            elif isinstance(node, ast.Call) and name_of(node.func).endswith(".add_argument"):
                self._option(node)
        for node in nodes:
            if isinstance(node, ast.Assign | ast.AnnAssign):
                self._assignment(node)
            elif isinstance(node, ast.Call):
                self._call(node)

    def _option(self, node: ast.Call) -> None:
        flags = [
            part.value for part in node.args if isinstance(part, ast.Constant) and isinstance(part.value, str)
        ]
        keywords = {part.arg: part.value for part in node.keywords}
        default = keywords.get("default")
        longest = max(flags, key=len, default="").lstrip("-").replace("-", "_")
        named = keywords.get("dest")
        if isinstance(named, ast.Constant) and isinstance(named.value, str):
            longest = named.value
        if longest and default is not None:
            self.options[longest] = self.value(default)

    def _assignment(self, node: ast.Assign | ast.AnnAssign) -> None:
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        if node.value is None:
            return
        for target in targets:
            if isinstance(target, ast.Name):
                value = self.value(node.value)
                before = self.names.get(target.id)
                if before is not None and before.value != value.value:
                    value = Stated(None, node.lineno, f"{target.id} {_CHANGED}")
                self.names[target.id] = value
            elif isinstance(target, ast.Attribute) and (name := name_of(target)):
                self.settings[name] = self.value(node.value)

    def _call(self, node: ast.Call) -> None:
        name = ".".join(name_of(node.func).split(".")[-2:])
        if not name:
            return
        values = {str(place): self.value(part) for place, part in enumerate(node.args)}
        for part in node.keywords:
            if part.arg:
                values[part.arg] = self.value(part.value)
            elif isinstance(part.value, ast.Dict):  # **{"key": value}
                for key, inner in zip(part.value.keys, part.value.values, strict=True):
                    if isinstance(key, ast.Constant):
                        values[str(key.value)] = self.value(inner)
            else:
                values["**"] = Stated(self.written(part.value), part.value.lineno, _RUN)
        self.calls.append(SourceCall(name, node.lineno, values))


def name_of(node: ast.expr) -> str:
    """`a.b.c`, or no text for what is no name."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        return ""
    return ".".join([node.id, *reversed(parts)])


def _in_order(tree: ast.AST) -> Iterator[ast.AST]:
    """Every node in the order of the source."""
    stack, count = [tree], 0
    while stack:
        node = stack.pop()
        yield node
        count += 1
        if count > _MOST_NODES:
            raise ConfigError(
                f"The script has more than {_MOST_NODES:,} parts. To fix: name its command instead."
            )
        stack += reversed(list(ast.iter_child_nodes(node)))
