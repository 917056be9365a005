"""The page of all commands: their help as tables, the options of a job once."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

import typer

from precision_time.cli.main import _listed as listed_words_of
from precision_time.cli.main import _section as section_of
from precision_time.cli.main import _tree, app, loaded_command
from precision_time.plugins import Command

ALWAYS = {
    "--json": "Pure JSON on stdout.",
    "-h, --help": "Show this message and exit.",
    "--help": "Show this message and exit.",
}
"""Options that the head of the page describes, by their words: of every command, left out of its table."""
FIRST = "predict"
"""The command whose options of the job are said with their meaning; the others name theirs."""


def every_command(*, every_option: bool = False, leaving: bool = False) -> Iterator[tuple[str, Any]]:
    """Every command that is no group: what one types after the program's name, and the command.

    Args:
        every_option: Whether every field of a job is an option of it, rather than those that the help shows.
        leaving: Whether also those that go with the next release.
    """

    def asked(tree: dict[str, Any]) -> dict[str, Any]:
        return tree if leaving else listed_words_of(tree)

    def below(words: str, found: Command | dict[str, Any]) -> Iterator[tuple[str, Any]]:
        if isinstance(found, Command):
            yield words, loaded_command(words, found, every_option=every_option)
        else:
            for name, inner in asked(found).items():
                yield from below(f"{words} {name}", inner)

    for name, found in asked(_tree()).items():
        yield from below(name, found)


def command_paths() -> list[str]:
    """Every command as one types it, without the program's name; a group stands before its commands."""

    def below(tree: dict[str, Any], before: str) -> Iterator[str]:
        for word, found in listed_words_of(tree).items():
            yield f"{before}{word}"
            if isinstance(found, dict):
                yield from below(found, f"{before}{word} ")

    return list(below(_tree(), ""))


def command_page() -> str:
    """Every command: what it does, its options in a table, its examples; a group names its commands."""
    parts = [_page("precision-time", typer.main.get_command(app), {}), "\n".join(_sections())]
    commands = dict(every_command())
    job: dict[str, str] = {}
    for path in command_paths():
        title = f"precision-time {path}"
        if path not in commands:
            below = [
                f"[`{each}`](#precision-time-{each.replace(' ', '-')})"
                for each in commands
                if each.startswith(f"{path} ")
            ]
            parts.append(f"## `{title}`\n\n{', '.join(below)}.")
            continue
        parts.append(_page(title, commands[path], job))
        if path == FIRST:
            job = {flags: text for _, flags, text in _options(commands[path], title)}
    return "\n\n".join(parts) + "\n"


def _sections() -> Iterator[str]:
    """The first words of commands by what they are for, as a table."""
    words: dict[str, list[str]] = {}
    for word, found in listed_words_of(_tree()).items():
        words.setdefault(section_of(found), []).append(f"[`{word}`](#precision-time-{word})")
    yield "| to | commands |"
    yield "|---|---|"
    for section, links in words.items():
        yield f"| {section} | {', '.join(links)} |"


def _page(title: str, command: Any, job: dict[str, str]) -> str:
    """One command.

    Args:
        title: What one types.
        command: As the parser has it.
        job: Options that are described elsewhere, with their meaning: they are named alone.
    """
    rows, named = [], []
    for section, flags, text in _options(command, title):
        if ALWAYS.get(flags) == text:
            continue
        if job.get(flags) == text and (section or flags.startswith("--set")):
            named.append(re.findall(r"--[\w-]+", flags)[-1 if flags.startswith("--set") else 0])
        else:
            rows.append((flags, text))
    parts = [f"## `{title}`", *_paragraphs(command.help)]
    if named:
        listed = ", ".join(f"`{flag}`" for flag in named)
        parts.append(f"The job, as for [`{FIRST}`](#precision-time-{FIRST}): {listed}.")
    if rows:
        parts.append("\n".join(_table(rows)))
    if examples := re.findall(r"^ {2,}(\S.*)$", command.epilog or "", re.MULTILINE):
        parts.append("\n".join(["```text", *examples, "```"]))
    return "\n\n".join(parts)


def _options(command: Any, title: str) -> Iterator[tuple[str, str, str]]:
    """Arguments and options as the help has them: section of a request (or nothing), flags, meaning."""
    context = command.make_context(title, [], resilient_parsing=True)
    for item in command.get_params(context):
        record = item.get_help_record(context)
        if record is not None:
            yield getattr(item, "rich_help_panel", None) or "", *record


def _paragraphs(text: str) -> list[str]:
    """The paragraphs of a help, each in one line."""
    return [" ".join(part.split()) for part in text.strip().split("\n\n")]


def _table(rows: Sequence[tuple[str, str]]) -> Iterator[str]:
    yield "| option | meaning |"
    yield "|---|---|"
    for flags, text in rows:
        said = re.sub(r"\[((?:default|env var|required|x[<>])[^][`]*)\]", r"(\1)", _cell(text))  # not a link
        yield f"| `{_cell(flags)}` | {said} |"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
