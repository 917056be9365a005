"""Shell text as the commands that it runs, as far as its text alone says: nothing is executed.

Variables that the text sets to constants are substituted; what only a run could tell stays in its word,
between two `UNKNOWN` characters. Of the shell's grammar this knows what job scripts use: quotes, comments,
continued lines, assignments, arrays, arithmetic, here-documents, blocks. (bashlex, the parser on PyPI, is
GPL, and its last release was in 2023.)
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from precision_time.errors import ConfigError

from .expand import Expansions, Value, Variables, as_text, closing, expanded, value_of

MOST_CHARACTERS = 1_000_000
"""A job script has a few thousand."""
_LONGEST_LINE = 65_536
_MOST_WORDS = 4096
"""Of a command."""
_OPERATORS = ("&&", "||", ";;", "|&", ";", "|", "&", "(", ")", "\n")
_REDIRECTION = re.compile(r"(?:\d+|&)?(<<<|<<-?|>>|>&|<&|>\||<>|>|<)")
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)(\[[^]]*\])?(\+?)=")
_OPENING = {"if": "if", "case": "if", "for": "loop", "while": "loop", "until": "loop", "select": "loop"}
_CLOSING = frozenset({"fi", "esac", "done", "}"})
_BETWEEN = frozenset({"then", "else", "elif", "do", "!", "time"})
_DECLARING = frozenset({"export", "declare", "local", "readonly", "typeset"})


@dataclass(frozen=True, kw_only=True, slots=True)
class Command:
    """One simple command."""

    words: tuple[str, ...]
    """Expanded; a word with `UNKNOWN` in it holds what only a run could tell."""
    environment: Mapping[str, str]
    """Assignments before it."""
    line: int
    """From 1."""
    inside: str = ""
    """What may run it never or often: if, loop or function; empty outside of blocks."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Script:
    """What a shell text runs."""

    commands: tuple[Command, ...]
    comments: tuple[str, ...]
    """Lines that are comments, from their `#` on."""
    variables: Mapping[str, Value]
    """At its end."""
    defaults: Mapping[str, str]
    """Defaults (`${NAME:-64}`) that were taken though the environment is not known."""
    files: Mapping[str, str]
    """Files that it writes by here-documents, by name."""


@dataclass(slots=True)
class _Token:
    kind: Literal["word", "operator", "redirection", "body"]
    text: str
    line: int
    quoted: bool = False
    """Of the body of a here-document: whether nothing in it is expanded."""


@dataclass(slots=True)
class _Reader:
    variables: Variables
    commands: list[Command] = field(default_factory=list)
    files: dict[str, str] = field(default_factory=dict)
    blocks: list[str] = field(default_factory=list)
    count: Counter[str] = field(default_factory=Counter)
    """Of the blocks, by kind."""

    @property
    def inside(self) -> str:
        return next((kind for kind in ("function", "loop", "if") if self.count[kind]), "")

    def enter(self, *kinds: str) -> None:
        self.blocks += kinds
        self.count.update(kinds)

    def leave(self) -> str:
        last = self.blocks.pop()
        self.count[last] -= 1
        return last


def read_shell(
    text: str,
    *,
    environment: Mapping[str, str] | None = None,
    known: Mapping[str, str] | None = None,
    arguments: Sequence[str] = (),
    expansions: Expansions | None = None,
) -> Script:
    """The commands of a shell text, in its order.

    Args:
        text: A script, or one command line.
        environment: What is set before it starts; None where that is not known.
        known: Variables that are set in either case.
        arguments: `$1` and so on.
        expansions: Of the script that this one is part of.

    Raises:
        ConfigError: If it is binary, longer than a script is (a line, a command, its variables as well), or
            its quotes do not end.
    """
    check_text(text)
    set_before: dict[str, Value] = {**(environment or {}), **(known or {})}
    variables = Variables(
        set_before, environment is not None, tuple(arguments), expansions=expansions or Expansions()
    )
    reader = _Reader(variables)
    words: list[_Token] = []
    for token in [*_tokens(text), _Token("operator", "\n", 0)]:
        if token.kind != "operator":
            words.append(token)
            continue
        if token.text == ")" and reader.count["case"] and reader.blocks[-1] != "(":
            words = []  # a pattern of `case`
            continue
        if token.text == "(" and len(words) == 1:
            words.append(token)  # `name()`
            continue
        if token.text == ")" and len(words) == 2 and words[1].text == "(":
            reader.enter("function")
            words = []
            continue
        _run(reader, words)
        words = []
        if token.text == "(":
            reader.enter("(")
        elif token.text == ")" and reader.blocks and reader.blocks[-1] == "(":
            reader.leave()
    return Script(
        commands=tuple(reader.commands),
        comments=tuple(line.strip() for line in text.splitlines() if line.lstrip().startswith("#")),
        variables=variables.values,
        defaults=variables.defaults,
        files=reader.files,
    )


def check_text(text: str) -> None:
    """Refuse what is no script.

    Raises:
        ConfigError: If it is binary or too long, or a line of it is.
    """
    if len(text) > MOST_CHARACTERS:
        raise ConfigError(
            f"The script has {len(text):,} characters. The rule: at most {MOST_CHARACTERS:,}. To fix: give "
            "the script that starts the training, not an archive or a log."
        )
    if "\0" in text or "\ufffd" in text[:1000]:
        raise ConfigError("The script is binary. The rule: text. To fix: give a shell script.")
    for number, line in enumerate(text.splitlines(), start=1):
        if len(line) > _LONGEST_LINE:
            raise ConfigError(
                f"Line {number} of the script has {len(line):,} characters. The rule: at most "
                f"{_LONGEST_LINE:,}. To fix: break the line, or give the script that starts the training, "
                "without data in it."
            )


def check_words(words: Sequence[Any], line: int = 1) -> None:
    """Refuse a command of more words than any has.

    Raises:
        ConfigError: If it has.
    """
    if len(words) > _MOST_WORDS:
        raise ConfigError(
            f"The command in line {line} has {len(words):,} words. The rule: at most {_MOST_WORDS:,}. To "
            "fix: shorten its lists, or give the command that starts the training."
        )


def _tokens(text: str) -> Iterator[_Token]:
    """Words as they are written, with their quotes, redirections and operators.

    Raises:
        ConfigError: If a quote does not end.
    """
    place, line = 0, 1
    asked: list[_Token] = []
    """Operators of here-documents, then their words, in turn, up to the end of the line."""
    while place < len(text):
        if text[place] in " \t\r":
            place += 1
        elif text.startswith(("\\\n", "\\\r\n"), place):
            place, line = text.index("\n", place) + 1, line + 1
        elif text[place] == "#":
            place = _found(text, "\n", place)
        elif found := _REDIRECTION.match(text, place):
            place = found.end()
            token = _Token("redirection", found[1], line)
            if found[1] in ("<<", "<<-"):
                asked.append(token)
            yield token
        elif operator := next((each for each in _OPERATORS if text.startswith(each, place)), ""):
            place += len(operator)
            if operator == "\n":
                line += 1
                for opening, ending in zip(asked[::2], asked[1::2], strict=False):
                    body, place = _here_document(text, place, ending.text, strip=opening.text == "<<-")
                    line += body.count("\n") + 1
                    yield _Token("body", body, line, quoted=any(mark in ending.text for mark in "'\"\\"))
                asked = []
            yield _Token("operator", operator, line - (operator == "\n"))
        else:
            end = _word_end(text, place, line)
            token = _Token("word", text[place:end], line)
            if len(asked) % 2:
                asked.append(token)
            place, line = end, line + token.text.count("\n")
            yield token


def _found(text: str, character: str, place: int) -> int:
    """Where a character is next; the end of the text where it is not."""
    found = text.find(character, place)
    return len(text) if found < 0 else found


def _here_document(text: str, place: int, ending: str, *, strip: bool) -> tuple[str, int]:
    """The body that begins at `place`, and where the text goes on behind it."""
    word = re.sub(r"['\"\\]", "", ending)
    lines: list[str] = []
    while place < len(text):
        end = _found(text, "\n", place)
        line, place = text[place:end].rstrip("\r"), end + 1
        line = line.lstrip("\t") if strip else line
        if line == word:
            break
        lines.append(line)
    return "\n".join(lines), min(place, len(text))


def _word_end(text: str, place: int, line: int) -> int:
    """Where a word ends.

    Raises:
        ConfigError: If a quote or a bracket in it does not end.
    """
    start, quote = place, ""
    while place < len(text):
        character = text[place]
        if quote == "'":
            quote = "" if character == "'" else quote
        elif character == "\\":
            place += 1
        elif text.startswith(("$(", "${"), place):
            pair = "()" if text[place + 1] == "(" else "{}"
            place = _closed(text, place + 1, pair, start, line) - 1
        elif character == '"':
            quote = "" if quote else '"'
        elif character == "`":
            place = _found(text, "`", place + 1)
        elif quote:
            pass
        elif character == "'":
            quote = "'"
        elif character == "(" and _ASSIGNMENT.fullmatch(text, start, place):
            place = _closed(text, place, "()", start, line) - 1
        elif character in " \t\r\n;|&()<>":
            break
        place += 1
    if quote:
        raise ConfigError(
            f"The quote {quote} in line {line} does not end. The rule: quotes come in pairs. To fix: close "
            "it."
        )
    return min(place, len(text))


def _closed(text: str, place: int, pair: str, start: int, line: int) -> int:
    """Where a bracket in a word, which begins at `start` in `line`, has been closed.

    Raises:
        ConfigError: If it never is.
    """
    end = closing(text, place, pair[0], pair[1])
    if end == len(text) and not text.endswith(pair[1]):
        line += text.count("\n", start, place)
        raise ConfigError(
            f"The bracket {pair[0]} in line {line} does not end. The rule: brackets come in pairs. To fix: "
            "close it."
        )
    return end


def _run(reader: _Reader, tokens: list[_Token]) -> None:
    """What a simple command does to the variables and files; commands of others are kept."""
    words, written, bodies = _parted(tokens)
    if tokens:
        check_words(words, tokens[0].line)
    while words and (word := words[0].text):
        if word in _OPENING:
            reader.enter(*((word, _OPENING[word]) if word == "case" else (_OPENING[word],)))
            if _OPENING[word] == "loop" or word == "case":
                _forget(reader, words)
                return
        elif word == "{":
            reader.enter("{")
        elif word in _CLOSING:
            _close(reader, word)
        elif word == "function":
            reader.enter("function")
            words = words[2:]
            continue
        elif word not in _BETWEEN:
            break
        words = words[1:]
    if not words:
        return
    line, own = words[0].line, {}
    while words and (found := _ASSIGNMENT.match(words[0].text)):
        own[found[1]] = _assigned(reader, words[0].text, found)
        words = words[1:]
    if not words:
        for name, value in own.items():
            reader.variables.assign(name, value, certain=not reader.inside)
        return
    if words[0].text in _DECLARING:
        for token in words[1:]:
            if found := _ASSIGNMENT.match(token.text):
                value = _assigned(reader, token.text, found)
                reader.variables.assign(found[1], value, certain=not reader.inside)
        return
    said = tuple(text for token in words for text in expanded(token.text, reader.variables))
    check_words(said, line)
    if said[:1] == ("unset",):
        for name in said[1:]:
            reader.variables.values.pop(name, None)
    if said[:1] == ("cat",) and written and bodies:
        body = bodies[-1]
        name = value_of(written, reader.variables).removeprefix("./")
        reader.files[name] = body.text if body.quoted else _filled(body.text, reader.variables)
    if said:
        environment = {name: as_text(value) for name, value in own.items()}
        reader.commands.append(Command(words=said, environment=environment, line=line, inside=reader.inside))


def _parted(tokens: Sequence[_Token]) -> tuple[list[_Token], str, list[_Token]]:
    """Words of a command, the file that its output goes to, and its here-documents."""
    words: list[_Token] = []
    written, before = "", ""
    for token in tokens:
        if token.kind == "word" and before in (">", ">>", ">|"):
            written = token.text
        elif token.kind == "word" and not before:
            words.append(token)
        before = token.text if token.kind == "redirection" else ""
    return words, written, [token for token in tokens if token.kind == "body"]


def _assigned(reader: _Reader, text: str, found: re.Match[str]) -> Value:
    """The value that an assignment sets."""
    name, index, more = found[1], found[2], found[3]
    rest = text[found.end() :]
    value: Value
    if rest.startswith("(") and rest.endswith(")"):
        tokens = [token for token in _tokens(rest[1:-1]) if token.kind == "word"]
        value = tuple(word for token in tokens for word in expanded(token.text, reader.variables))
    else:
        value = value_of(rest, reader.variables)
    old = reader.variables.get(name)
    if index:
        return f"\0${name}\0"
    if not more or old is None:
        return value
    if isinstance(old, tuple):
        return (*old, *(value if isinstance(value, tuple) else (value,)))
    return old + as_text(value)


def _forget(reader: _Reader, words: Sequence[_Token]) -> None:
    """The variable that a loop sets has many values."""
    if words[0].text == "for" and len(words) > 1:
        reader.variables.assign(words[1].text, f"\0${words[1].text}\0")


def _close(reader: _Reader, word: str) -> None:
    """Leave the block that a word closes."""
    wanted = {"fi": "if", "done": "loop", "esac": "if", "}": "{"}[word]
    while reader.blocks:
        if reader.leave() == wanted:
            break
    if reader.blocks and (
        (word == "esac" and reader.blocks[-1] == "case") or reader.blocks[-1] == "function"
    ):
        reader.leave()


def _filled(body: str, variables: Variables) -> str:
    """A here-document with its variables."""
    return "\n".join(
        " ".join(expanded('"' + line.replace('"', '\\"') + '"', variables)) for line in body.split("\n")
    )
