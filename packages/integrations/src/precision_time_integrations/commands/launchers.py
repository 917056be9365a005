"""Who starts a training script, on how many nodes and devices, and with which arguments.

`data/launchers.toml` has the options of each launcher by what they say; options are compared with dashes for
underscores, as their parsers do.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any

from precision_time.io import packaged_toml

from .expand import is_known, told

Files = Callable[[str], str | None]
"""Text of a file that a command names; None where it cannot be read."""
_PYTHON = re.compile(r"python[\d.]*|pypy[\d.]*")
_SLOTS = re.compile(r"(\S+?)(?:\s+slots\s*=\s*(\d+)|:(\d+))?\s*(?:#.*)?")
_DEVICES_OF_PROCESSES = ("gpu", "auto", "cuda")
_MOST_WRAPPED = 8
"""A launcher in a launcher in a container in a shell: deeper nesting is no command of anybody."""


@dataclass(slots=True)
class Launch:
    """What is known of a command line once its programs have been taken off one by one."""

    words: list[str]
    """What is left."""
    launchers: list[str] = field(default_factory=list)
    """From the outside in."""
    nodes: int | None = None
    per_node: int | None = None
    """Processes of a node, one device each."""
    processes: int | None = None
    """Processes in all."""
    all_devices: bool = False
    """Whether a process is started for each device of a node (`--nproc-per-node gpu`)."""
    script: str = ""
    module: bool = False
    """Whether the script is a module."""
    environment: dict[str, str] = field(default_factory=dict)
    configs: list[tuple[str, str]] = field(default_factory=list)
    """Launcher and name of the configuration files of launchers."""
    options: dict[str, str] = field(default_factory=dict)
    """Of `accelerate launch`, which says precision and strategy too."""
    shell: str = ""
    """The text behind `bash -c`."""
    shell_file: str = ""
    """The script behind `bash`; its arguments are what is left."""
    unread: list[str] = field(default_factory=list)


def table_of(name: str) -> Mapping[str, Any]:
    """One table of `data/launchers.toml`."""
    found: Mapping[str, Any] = packaged_toml(__package__, "data/launchers.toml")[name]
    return found


def programs() -> Mapping[str, Mapping[str, Any]]:
    """Programs of projects that start trainings, by name (`data/programs.toml`)."""
    return packaged_toml(__package__, "data/programs.toml")


def unwrapped(words: Sequence[str], files: Files) -> Launch:
    """What a command line starts.

    Args:
        words: Expanded.
        files: Reads the host files that it names.
    """
    found = Launch(words=list(words))
    for _ in range(_MOST_WRAPPED):
        before = list(found.words)
        _take_environment(found)
        if not found.words:
            break
        program = PurePosixPath(found.words[0]).name
        if program in table_of("shells")["names"]:
            _shell(found)
        elif program == "eval":
            found.shell, found.words = " ".join(found.words[1:]), []
        elif (name := _launcher_of(program)) is not None:
            _launcher(found, name, files, found.words[1:])
        elif program in programs():
            _own_program(found, program)
        elif _PYTHON.fullmatch(program):
            _python(found, files)
        elif (wrapped := _wrapped(program, found.words)) is not None:
            found.words = wrapped
        elif found.launchers and found.words[0].endswith(".py"):
            found.script, found.words = found.words[0], found.words[1:]
        if found.script or found.shell or found.shell_file or found.words == before:
            break
    return found


def _own_program(found: Launch, program: str) -> None:
    """A project's own program: the word behind it says whether it trains."""
    table = programs()[program]
    verbs, rest = table.get("verbs", ()), found.words[1:]
    if verbs and not any(word in verbs for word in rest[:1]):
        found.words = []  # it converts, downloads, evaluates
        return
    found.launchers.append(program)
    found.script, found.words = program, rest


def count_own(found: Launch) -> None:
    """Processes of a project's own program, by its options and the variables that it is started with."""
    table = programs().get(found.script, {})
    if not table or found.per_node is not None:
        return
    options, _ = _options(
        [word for word in found.words if word.startswith("-") or word.isdigit()], {"bare": ()}
    )
    stated = _stated(table, "per_node", options) or found.environment.get(table.get("variable", ""))
    visible = found.environment.get("CUDA_VISIBLE_DEVICES", "")
    if table.get("first_word") and found.words and found.words[0].isdigit():
        stated, found.words = found.words[0], found.words[1:]
    if stated and stated.isdigit():
        found.per_node = int(stated)
    elif table.get("devices") and re.fullmatch(r"\d+(,\d+)*", visible):
        found.per_node = visible.count(",") + 1
    elif table.get("devices"):
        found.all_devices = True
    elif "variable" in table:
        found.per_node = 1


def _take_environment(found: Launch) -> None:
    """Assignments before a program."""
    while found.words and (match := re.fullmatch(r"([A-Za-z_]\w*)=(.*)", found.words[0], re.DOTALL)):
        found.environment[match[1]] = match[2]
        found.words = found.words[1:]


def _launcher_of(program: str) -> str | None:
    tables = packaged_toml(__package__, "data/launchers.toml")
    return next((name for name, table in tables.items() if program in table.get("programs", ())), None)


def _starts_something(word: str) -> bool:
    name = PurePosixPath(word).name
    return (
        _launcher_of(name) is not None
        or _PYTHON.fullmatch(name) is not None
        or name in table_of("shells")["names"]
    )


def _wrapped(program: str, words: Sequence[str]) -> list[str] | None:
    """The command that a container, an environment manager or the like runs; None where there is none."""
    table = table_of("prefix")
    rest = list(words[1:])
    if program in table["with_command"]:
        wanted = table["with_command"][program]
        while wanted and rest and rest[0] not in wanted:
            rest = rest[1:]
        rest = rest[1:] if wanted else rest
    elif program not in table["plain"]:
        return None
    valued = table["with_value"] if program in table["with_command"] else ()
    for place, word in enumerate(rest):
        if _starts_something(word) and (place == 0 or rest[place - 1] not in valued):
            return rest[place:]
        if program == "env" and re.match(r"[A-Za-z_]\w*=", word):
            return rest[place:]
    return None


def _shell(found: Launch) -> None:
    """`bash -c TEXT` and `bash SCRIPT ARGUMENTS`."""
    rest = found.words[1:]
    while rest and rest[0].startswith("-"):
        if not rest[0].startswith("--") and rest[0].endswith("c"):
            # The word behind the text is `$0`.
            found.shell, found.words = (rest[1] if len(rest) > 1 else ""), rest[3:]
            return
        rest = rest[2:] if rest[0] in ("-o", "--rcfile", "--init-file") else rest[1:]
    if rest:
        found.shell_file, found.words = rest[0], rest[1:]


def _python(found: Launch, files: Files) -> None:
    """`python script.py`, `python -m module`, or a launcher that is a module."""
    rest, bare = found.words[1:], table_of("python")["bare"]
    while rest and rest[0].startswith("-") and rest[0] != "-":
        if rest[0] == "-m":
            module = rest[1] if len(rest) > 1 else ""
            tables = packaged_toml(__package__, "data/launchers.toml")
            name = next((key for key, table in tables.items() if module in table.get("modules", ())), None)
            if name is not None:
                _launcher(found, name, files, rest[2:])
                return
            found.launchers.append("python")
            found.script, found.module, found.words = module, True, rest[2:]
            return
        if rest[0] == "-c":
            found.launchers.append("python")
            found.script, found.words = "-c", rest[2:]  # no training
            return
        rest = rest[1:] if rest[0] in bare else rest[2:]
    if rest:
        found.launchers.append("python")
        found.script, found.words = rest[0], rest[1:]


def _launcher(found: Launch, name: str, files: Files, rest: Sequence[str]) -> None:
    """Take off a launcher and its options."""
    table = table_of(name)
    words = list(rest)
    if "command" in table and not (words and words[0].startswith("-")):
        if words[:1] != [table["command"]] and found.words[0].endswith(name):
            return  # `accelerate config` starts nothing
        words = words[1:] if words[:1] == [table["command"]] else words
    options, words = _options(words, table)
    found.launchers.append(name)
    found.words = words
    if name == "accelerate":
        found.options |= options
    _counts(found, name, table, options, files)
    if options.keys() & {"-m", "--module"} and name != "srun" and words:
        found.script, found.module, found.words = words[0], True, words[1:]
    elif words and name in ("torchrun", "accelerate", "deepspeed") and "--no-python" not in options:
        found.script, found.words = words[0], words[1:]


def _options(words: list[str], table: Mapping[str, Any]) -> tuple[dict[str, str], list[str]]:
    """Options by name, dashes for underscores, and the words behind them."""
    bare = {_dashed(name) for name in table["bare"]}
    two = table.get("two_values", ())
    found: dict[str, str] = {}
    while words and words[0].startswith("-") and words[0] not in ("-", "--"):
        name, equals, value = words[0].partition("=")
        name = _dashed(name)
        if equals:
            found[name], words = value, words[1:]
        elif name in bare:
            found[name], words = "", words[1:]
        elif words[0] in two:
            words = words[3:]
        elif _short_with_value(name, table):
            found[name[:2]], words = name[2:], words[1:]
        else:
            found[name], words = (words[1] if len(words) > 1 else ""), words[2:]
    return found, words[1:] if words[:1] == ["--"] else words


def _short_with_value(name: str, table: Mapping[str, Any]) -> bool:
    """`-N2`: the number stands right behind the letter."""
    return "nodes" in table and re.fullmatch(r"-[A-Za-z]\d+", name) is not None


def _dashed(name: str) -> str:
    return name.replace("_", "-")


def _stated(table: Mapping[str, Any], key: str, options: Mapping[str, str]) -> str | None:
    return next((options[name] for name in table.get(key, ()) if name in options), None)


def _counts(
    found: Launch, name: str, table: Mapping[str, Any], options: Mapping[str, str], files: Files
) -> None:
    """Nodes and processes that the options of a launcher say."""

    def count(key: str) -> int | None:
        text = _stated(table, key, options)
        if text is None:
            return None
        number = re.sub(r"^(?:ppr:)?(\d+)(?::node.*)?$", r"\1", text)
        if number.isdigit() and is_known(text):
            return int(number)
        if name == "srun" and (of_type := re.fullmatch(r"(?:gpu:)?(?:[\w.-]+:)?(\d+)", text)):
            return int(of_type[1])
        if key == "per_node" and text in _DEVICES_OF_PROCESSES:
            found.all_devices = True
        elif not (key == "per_node" and name == "mpirun"):
            option = next(each for each in table[key] if each in options)
            found.unread.append(f"{option} {told(text)}: a number of its own only when it runs")
        return None

    nodes = count("nodes")
    found.nodes = nodes if nodes is not None else found.nodes
    if name == "srun":
        found.processes, found.per_node = count("tasks"), count("tasks_per_node")
        return
    per_node, processes = count("per_node"), count("processes")
    if name in ("torchrun", "deepspeed", "accelerate"):
        # A task of `srun` starts such a launcher once for each node.
        found.per_node, found.processes = per_node, processes
    else:
        found.per_node = per_node if per_node is not None else found.per_node
        found.processes = processes if processes is not None else found.processes
    if name == "torchrun" and per_node is None and not found.all_devices:
        found.per_node = None if _stated(table, "per_node", options) else 1
    _hosts(found, table, options, files)
    if name == "deepspeed" and per_node is None and found.per_node is None:
        found.all_devices = True
    if config := _stated(table, "config", options):
        found.configs.append((name, config))


def _hosts(found: Launch, table: Mapping[str, Any], options: Mapping[str, str], files: Files) -> None:
    """Hosts with their slots, out of the command line or of a file."""
    listed = _stated(table, "hosts", options)
    path = _stated(table, "hosts_file", options)
    include = _stated(table, "include", options)
    lines: list[str] = listed.split(",") if listed else []
    if path is not None:
        text = files(path)
        if text is None:
            found.unread.append(f"the host file {told(path)} is not there to be read")
        lines = [
            line for line in (text or "").splitlines() if line.strip() and not line.lstrip().startswith("#")
        ]
    matches = [match for line in lines if (match := _SLOTS.fullmatch(line.strip()))]
    slots = [int(match[2] or match[3] or 0) for match in matches]
    if include is not None:
        # `host@host:0,1`: the devices of a host by number.
        parts = [part.partition(":") for part in include.split("@") if part]
        matches = [match for part in parts if (match := _SLOTS.fullmatch(part[0]))]
        slots = [len(part[2].split(",")) if part[2] else (slots[0] if slots else 0) for part in parts]
    if not matches:
        return
    found.nodes = found.nodes or len(matches)
    if len(set(slots)) == 1 and slots[0] and found.per_node is None:
        found.per_node = slots[0]
    elif len(set(slots)) > 1 and found.processes is None:
        found.processes = sum(slots)
