"""Words of a shell as what they stand for: quotes, variables, arrays, defaults and arithmetic."""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from precision_time.errors import ConfigError, printable

UNKNOWN = "\0"
"""Stands before and after what a text alone cannot tell, as it is written: `$(hostname)`."""
_LONGEST = 32_768
"""Characters of a value that is known: `A=$A$A` doubles each time."""
_MOST_EXPANDED = 1_000_000
"""Characters of all values that a script and the shells in it take: a script has a few thousand."""
_DEEPEST = 50
"""Defaults in defaults: `${A:-${B:-1}}` are two."""
_MOST_WORDS = 20_000
_LONGEST_TOLD = 200
_MOST_DIGITS = 10**18
_NAME = re.compile(r"[A-Za-z_]\w*|[0-9@*#?$!-]")
_BRACED = re.compile(r"(#?)([A-Za-z_]\w*|[0-9@*]+)(?:\[([^]]*)\])?(?:(:?[-=+?]|[%#/:^,].*)(.*))?", re.DOTALL)
_OPERATIONS: Mapping[type, Callable[[int, int], int]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}  # fmt: skip

Value = str | tuple[str, ...]
"""Of a variable: text, or the items of an array."""


@dataclass(slots=True)
class Expansions:
    """What reading a script has cost so far, so that a short text cannot take hours."""

    characters: int = 0

    def add(self, characters: int) -> None:
        """Count what is taken.

        Raises:
            ConfigError: If it is more than any script needs.
        """
        self.characters += characters
        if self.characters > _MOST_EXPANDED:
            raise ConfigError(
                f"The variables and shells in the script come to more than {_MOST_EXPANDED:,} characters. "
                "The rule: at most as many. To fix: give the script that starts the training, without what "
                "makes long lists."
            )


@dataclass(slots=True)
class Variables:
    """What is known of a shell's variables."""

    values: dict[str, Value]
    known: bool
    """Whether a name that is not set is known to be unset: the environment is."""
    arguments: tuple[str, ...] = ()
    defaults: dict[str, str] = field(default_factory=dict)
    """Defaults (`${NAME:-64}`) that were taken though the environment is not known."""
    expansions: Expansions = field(default_factory=Expansions)
    depth: int = 0
    """Of the default that is expanded."""

    def get(self, name: str) -> Value | None:
        """The value; None where it has none that is known."""
        value: Value | None = None
        if name in ("@", "*"):
            value = self.arguments
        elif name.isdigit():
            place = int(name) if len(name) < 4 else 0
            value = self.arguments[place - 1] if 0 < place <= len(self.arguments) else None
        else:
            value = self.values.get(name)
        if value is not None:
            self.expansions.add(len(value) + (0 if isinstance(value, str) else sum(map(len, value))))
        return value

    def assign(self, name: str, value: Value, *, certain: bool = True) -> None:
        """Set a variable; in a block that may not run, it stays known only where both values agree."""
        if not certain and self.values.get(name) != value:
            value = unknown(f"${name}")
        self.values[name] = value


def unknown(text: str) -> str:
    """A part of a word that is not known."""
    return f"{UNKNOWN}{text.replace(UNKNOWN, '')}{UNKNOWN}"


def is_known(word: str) -> bool:
    """Whether all of a word is."""
    return UNKNOWN not in word


def as_written(word: str) -> str:
    """A word as the script has it."""
    return word.replace(UNKNOWN, "")


def told(word: str) -> str:
    """A word in a message: of bounded length, without control characters."""
    return printable(as_written(word), longest=_LONGEST_TOLD)


def as_text(value: Value) -> str:
    """The items of an array with spaces between them, as `"$*"` has them."""
    return value if isinstance(value, str) else " ".join(value)


class _Fields:
    """Words that grow out of one, since what expands without quotes is split at spaces."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.characters = 0
        self._open: list[str] | None = None

    def add(self, text: str) -> None:
        self.characters += len(text)
        if self._open is None:
            self._open = []
        self._open.append(text)

    def split(self, text: str) -> None:
        """Text of an expansion without quotes; parts that are not known hold no spaces to split at."""
        parts = re.findall(r"\s+|(?:\0[^\0]*\0|[^\s\0])+", text)
        for part in parts:
            if part.isspace():
                self.end()
            else:
                self.add(part)

    def items(self, values: tuple[str, ...]) -> None:
        for place, value in enumerate(values):
            if place:
                self.end()
            self.add(value)

    def end(self) -> None:
        if self._open is not None:
            self.done.append("".join(self._open))
        self._open = None


def expanded(word: str, variables: Variables) -> list[str]:
    """The words that one stands for; what is longer than any word or list is known to a run only.

    Args:
        word: As it is written, with its quotes.
        variables: What is known; `${NAME:=value}` sets one.
    """
    fields = _Fields()
    place, quoted = 0, False
    while place < len(word):
        character = word[place]
        if character == "'" and not quoted:
            end = _found(word, "'", place + 1)
            fields.add(word[place + 1 : end])
            place = end + 1
        elif character == '"':
            quoted = not quoted
            fields.add("")
            place += 1
        elif character == "\\" and place + 1 < len(word):
            after = word[place + 1]
            if after == "\n":
                pass
            elif quoted and after not in '$`"\\':
                fields.add("\\" + after)
            else:
                fields.add(after)
            place += 2
        elif character == "`":
            end = _found(word, "`", place + 1)
            fields.add(unknown(word[place : end + 1]))
            place = end + 1
        elif character == "$":
            place = _dollar(word, place, variables, fields, quoted=quoted)
        else:
            fields.add(character)
            place += 1
    fields.end()
    if fields.characters > max(_LONGEST, len(word)) or len(fields.done) > _MOST_WORDS:
        return [unknown(word)]
    return fields.done


def _found(text: str, mark: str, place: int) -> int:
    """Where a mark is next; the end of the text where it is not."""
    found = text.find(mark, place)
    return len(text) if found < 0 else found


def value_of(word: str, variables: Variables) -> str:
    """What an assignment of the word sets: it is not split."""
    return " ".join(expanded(word, variables)) if not _splits(word) else as_text(_unsplit(word, variables))


def _splits(word: str) -> bool:
    return "$" in word and '"' not in word and "'" not in word and "\\" not in word


def _unsplit(word: str, variables: Variables) -> str:
    return " ".join(expanded(f'"{word}"', variables))


def _dollar(word: str, place: int, variables: Variables, fields: _Fields, *, quoted: bool) -> int:
    """Expand what stands at a `$`; returns where the rest begins."""
    if word.startswith("$((", place):
        end = closing(word, place + 1, "(", ")")
        fields.add(_arithmetic(word[place + 3 : end - 2], variables) or unknown(word[place:end]))
        return end
    if word.startswith("$(", place):
        end = closing(word, place + 1, "(", ")")
        fields.add(unknown(word[place:end]))
        return end
    if word.startswith("${", place):
        end = closing(word, place + 1, "{", "}")
        _put(_braced(word[place + 2 : end - 1], word[place:end], variables), fields, quoted=quoted)
        return end
    if word.startswith("$'", place) and not quoted:
        end = _found(word, "'", place + 2)
        fields.add(word[place + 2 : end])
        return end + 1
    found = _NAME.match(word, place + 1)
    if found is None:
        fields.add("$")
        return place + 1
    _put(_variable(found[0], word[place : found.end()], variables), fields, quoted=quoted)
    return found.end()


def _put(value: Value, fields: _Fields, *, quoted: bool) -> None:
    if isinstance(value, tuple):
        fields.items(value)
    elif quoted:
        fields.add(value)
    else:
        fields.split(value)


def _variable(name: str, text: str, variables: Variables) -> Value:
    value = variables.get(name)
    if value is None:
        return unknown(text)
    # An array without an index is its first item.
    return (value[0] if value else "") if isinstance(value, tuple) and name not in ("@", "*") else value


def _braced(inner: str, text: str, variables: Variables) -> Value:
    """The value of `${...}`."""
    found = _BRACED.fullmatch(inner)
    if found is None:
        return unknown(text)
    count, name, index, operation, word = found.groups()
    value = variables.get(name)
    if isinstance(value, tuple) and index in ("@", "*") and not operation:
        return str(len(value)) if count else value if index == "@" else as_text(value)
    if isinstance(value, tuple) and index is not None and not operation and not count:
        return value[int(index)] if index.isdigit() and int(index) < len(value) else unknown(text)
    if index is not None or count:
        return unknown(text)
    if operation is None:
        return _variable(name, text, variables)
    return _with_default(name, operation, word, text, variables)


def _with_default(name: str, operation: str, word: str, text: str, variables: Variables) -> Value:
    """`${NAME:-word}` and its kind; other operations are not known."""
    if operation.lstrip(":") not in ("-", "=", "?"):
        return unknown(text)
    value = variables.get(name)
    if value is not None and (as_text(value) or not operation.startswith(":")):
        return value
    if operation.endswith("?") or variables.depth >= _DEEPEST:
        return unknown(text)
    variables.depth += 1
    default = " ".join(expanded(word, variables))
    variables.depth -= 1
    if not variables.known and is_known(default):
        variables.defaults[name] = default
    if operation.endswith("="):
        variables.assign(name, default)
    return default


def closing(text: str, place: int, opening: str, closing_one: str) -> int:
    """Where the bracket that opens at `place` has been closed; the end of the text where it is not."""
    depth, quote = 0, ""
    while place < len(text):
        character = text[place]
        if character == "\\":
            place += 1
        elif quote:
            quote = "" if character == quote else quote
        elif character in "'\"":
            quote = character
        elif character == "#" and opening == "(" and text[place - 1] in " \t\n":
            comment_end = text.find("\n", place)
            place = len(text) if comment_end < 0 else comment_end
        elif character == opening:
            depth += 1
        elif character == closing_one:
            depth -= 1
            if depth == 0:
                return place + 1
        place += 1
    return len(text)


def _arithmetic(text: str, variables: Variables) -> str | None:
    """The value of `$((...))`: whole numbers, known variables, + - * / %; None for anything else."""
    plain = re.sub(r"\$\{?([A-Za-z_]\w*)\}?", r"\1", text).replace("/", "//").strip()
    try:
        return str(_whole(ast.parse(plain, mode="eval").body, variables)) if len(plain) < 500 else None
    except (SyntaxError, ValueError, ZeroDivisionError, RecursionError, MemoryError):
        return None


def _whole(node: ast.expr, variables: Variables) -> int:
    """The value of a sum of whole numbers; ValueError where it holds anything else."""
    if isinstance(node, ast.Constant) and type(node.value) is int:
        found = node.value
    elif isinstance(node, ast.Name):
        found = int(as_text(variables.get(node.id) or ""))
    elif isinstance(node, ast.BinOp) and type(node.op) in _OPERATIONS:
        left, right = _whole(node.left, variables), _whole(node.right, variables)
        if isinstance(node.op, ast.FloorDiv | ast.Mod) and (left < 0 or right < 0):
            raise ValueError("the shell rounds towards zero")
        found = _OPERATIONS[type(node.op)](left, right)
    else:
        raise ValueError("not a sum of whole numbers")
    if abs(found) > _MOST_DIGITS:
        raise ValueError("too large")
    return found
