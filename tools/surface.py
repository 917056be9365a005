"""What there is to read, to know and to keep: lines, imports, caches, commands, options, guides.

`tests/surface.toml` holds a budget for each; `tests/test_architecture.py` compares. A rise needs an edit
there, with the reason in that commit; what fell must be lowered there, too:

    python tools/surface.py              the figures beside their budgets
    python tools/surface.py --tighten    lower every budget that is higher than its figure
    python tools/surface.py --core-api   write docs/devdocs/core-api.toml: what members import of the core
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "precision_time"
MEMBERS = ("server", "integrations", "papers")
SOURCES = {
    "precision_time": ROOT / "src",
    **{f"precision_time_{name}": ROOT / "packages" / name / "src" for name in MEMBERS},
}
"""By the name of each package, the folder that holds it."""
PROJECTS = {
    "precision_time": ROOT / "pyproject.toml",
    **{f"precision_time_{name}": ROOT / "packages" / name / "pyproject.toml" for name in MEMBERS},
}
CORE_API = ROOT / "docs" / "devdocs" / "core-api.toml"
DOCS = ROOT / "docs"
BUDGETS = ROOT / "tests" / "surface.toml"
SLACK = {"lines": 50, "reading": 50}
"""By how much a budget may stay above its figure: a commit that deletes a line need not edit the table."""
CACHES = {
    "memo": "memo", "data": "data", "derived": "derived", "cached_property": "derived",
    "cache": "other_caches", "lru_cache": "other_caches",
}  # fmt: skip
"""Kinds of what keeps results, by the name of its decorator: those of `precision_time.cache`, and others."""
STATE = frozenset({"dict", "list", "set", "OrderedDict", "defaultdict", "WeakKeyDictionary"})
READ_FIRST = ("README.md", "docs/quickstart.md", "docs/guides/predict.md")
"""What a newcomer reads."""
ANSWER = (
    "cli/predict.py", "request/request.py", "request/resolve.py", "workload/graph.py",
    "precision/lowering.py", "cost/step.py", "learn/table.py", "learn/predictor.py",
    "predict/columns.py", "predict/answer.py", "predict/api.py",
)  # fmt: skip
"""What one reads to follow an answer, in the order of the data."""


class Skip(NamedTuple):
    """A place of the tests that leaves something out where something is missing."""

    path: str
    line: int
    reason: str


def source_files(package: str = "") -> list[Path]:
    """All Python files of a package, or of all four."""
    folders = [folder / name for name, folder in SOURCES.items() if package in ("", name)]
    return [path for folder in folders for path in sorted(folder.rglob("*.py"))]


def place_of(path: Path) -> tuple[str, ...]:
    """The parts of the path of a source file, its package first."""
    return next(path.relative_to(each).parts for each in SOURCES.values() if path.is_relative_to(each))


def shown(path: Path) -> str:
    """A source file for a message."""
    return "/".join(place_of(path))


@cache
def tree_of(path: Path) -> ast.Module:
    """The syntax tree of a file."""
    return ast.parse(path.read_text(encoding="utf-8"))


def module_of(path: Path) -> str:
    """The name that a source file is imported by."""
    parts = place_of(path.with_suffix(""))
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports(path: Path, *, run: bool = False) -> Iterator[str]:
    """What a file takes of the four packages, also inside functions: dotted names.

    Args:
        path: A source file.
        run: Leave out what only type checkers read.
    """
    package = place_of(path)[:-1]
    unrun = _read_by_type_checkers(tree_of(path)) if run else set()
    for node in ast.walk(tree_of(path)):
        if node in unrun:
            continue
        if isinstance(node, ast.ImportFrom):
            base = ".".join(package[: len(package) - node.level + 1]) if node.level else ""
            module = ".".join(part for part in (base, node.module) if part)
            if module.partition(".")[0] in SOURCES:
                yield from (f"{module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.split(".")[0] in SOURCES)


def _read_by_type_checkers(tree: ast.Module) -> set[ast.AST]:
    """Nodes below `if TYPE_CHECKING`, which nothing runs."""
    return {
        inner
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        for statement in node.body
        for inner in ast.walk(statement)
    }


def loops() -> list[list[str]]:
    """Groups of files that import each other in a circle, counting imports inside functions."""
    modules = {module_of(path): path for path in source_files()}
    graph = {
        name: {taken if taken in modules else taken.rpartition(".")[0] for taken in imports(path, run=True)}
        & modules.keys() - {name}
        for name, path in modules.items()
    }
    return sorted(group for group in _circles(graph) if len(group) > 1)


def _circles(graph: Mapping[str, set[str]]) -> Iterator[list[str]]:
    """Strongly connected parts of a graph: two walks, the second against the arrows (Kosaraju)."""
    order: list[str] = []
    seen: set[str] = set()
    for start in sorted(graph):
        order += _reached(graph, start, seen)
    backwards: dict[str, set[str]] = {name: set() for name in graph}
    for name, others in graph.items():
        for other in others:
            backwards[other].add(name)
    seen = set()
    for start in reversed(order):
        if start not in seen:
            yield sorted(_reached(backwards, start, seen))


def _reached(graph: Mapping[str, set[str]], start: str, seen: set[str]) -> list[str]:
    """What can be reached from a start and was not seen before, the farthest first."""
    finished: list[str] = []
    stack = [(start, False)]
    while stack:
        name, done = stack.pop()
        if done:
            finished.append(name)
        elif name not in seen:
            seen.add(name)
            stack.append((name, True))
            stack += [(other, False) for other in sorted(graph[name]) if other not in seen]
    return finished


def caches(package: str = "precision_time") -> dict[str, list[str]]:
    """Functions and properties of a package whose results are kept, by kind (`CACHES`).

    What functools has for it is "other", however it is applied. Dictionaries are among `module_state`.
    """
    found: dict[str, list[str]] = {kind: [] for kind in dict.fromkeys(CACHES.values())}
    for path in source_files(package):
        for node in ast.walk(tree_of(path)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                for decorator in node.decorator_list:
                    name = re.split(r"[.(]", ast.unparse(decorator).removeprefix("functools."))[0]
                    if name in CACHES:
                        found[CACHES[name]].append(f"{shown(path)}:{node.name}")
            elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
                name = re.split(r"[.(]", ast.unparse(node.value.func).removeprefix("functools."))[0]
                if name in CACHES:
                    found[CACHES[name]].append(f"{shown(path)}:{node.lineno}")
    return found


def module_state() -> list[str]:
    """Empty containers at module level, which are filled while the program runs."""
    found = []
    for path in source_files():
        for node in tree_of(path).body:
            value = node.value if isinstance(node, ast.Assign | ast.AnnAssign) else None
            empty = isinstance(value, ast.Dict) and not value.keys
            empty = empty or (isinstance(value, ast.List) and not value.elts)
            called = isinstance(value, ast.Call) and not value.args and ast.unparse(value.func) in STATE
            if empty or called:
                found.append(f"{shown(path)}:{node.lineno}")
    return found


def class_names_used_twice() -> dict[str, int]:
    """Names of classes that stand in more than one file."""
    names = Counter(
        node.name for path in source_files() for node in tree_of(path).body if isinstance(node, ast.ClassDef)
    )
    return {name: count for name, count in sorted(names.items()) if count > 1}


def skips(root: Path = ROOT) -> list[Skip]:
    """Places of the tests and examples that skip, with what is missing there."""
    found = []
    for folder in ("tests", "src", "examples", "packages"):
        for path in sorted((root / folder).rglob("*.py")):
            for node in ast.walk(tree_of(path)) if "skip" in path.read_text(encoding="utf-8") else ():
                if isinstance(node, ast.Call):
                    name = ast.unparse(node.func).removeprefix("pytest.")
                    if name in {"importorskip", "skip", "mark.skip", "mark.skipif"}:
                        named = {word.arg: word.value for word in node.keywords}
                        said = named.get("reason", ast.Constant(""))
                        if node.args and name != "mark.skipif":
                            said = node.args[0]
                        reason = str(said.value) if isinstance(said, ast.Constant) else ast.unparse(said)
                        found.append(Skip(str(path.relative_to(root)), node.lineno, reason))
    return found


def lines_of(paths: list[Path]) -> int:
    """Lines of files."""
    return sum(path.read_text(encoding="utf-8").count("\n") for path in paths)


def _by_room() -> dict[str, list[Path]]:
    """Python files of the core by folder, those beside the folders as `root`; of the members by member.

    `benchmark` is the open benchmark of predictors, the one part outside that others build on.
    """
    rooms: dict[str, list[Path]] = {}
    for path in source_files():
        package, *parts = place_of(path)
        room = parts[0] if len(parts) > 1 else "root"
        own = package.removeprefix("precision_time_")
        rooms.setdefault(room if package == "precision_time" else own, []).append(path)
    return {**rooms, "benchmark": sorted((ROOT / "benchmarks" / "predictors").rglob("*.py"))}


def core_api() -> dict[str, list[str]]:
    """What the members import of the core, names by module; also what only type checkers read."""
    modules = {module_of(path) for path in source_files("precision_time")}
    taken: dict[str, set[str]] = {}
    for path in source_files():
        if place_of(path)[0] != "precision_time":
            for name in imports(path):
                module, _, attribute = name.rpartition(".")
                if name in modules:
                    taken.setdefault(name, set())
                elif module in modules:
                    taken.setdefault(module, set()).add(attribute)
    return {module: sorted(taken[module]) for module in sorted(taken)}


def write_core_api() -> None:
    """Write what the members import of the core as the list that they may."""
    lines = [
        "# What the other distributions may import of the core, by module: tests/test_architecture.py fails",
        "# on a name that is missing here and on one that nobody takes.",
        "# `python tools/surface.py --core-api` writes this.",
    ]
    for module, names in core_api().items():
        line = ""
        lines.append(f'"{module}" = [')
        for name in names:
            if len(line) + len(name) > 100:
                lines.append(f"    {line.rstrip()}")
                line = ""
            line += f'"{name}", '
        lines += [f"    {line.rstrip()}"] if line else []
        lines.append("]")
    CORE_API.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _commands() -> Iterator[tuple[str, Any]]:
    """Every command that does something: its words and the click command."""
    import click
    import typer

    from precision_time.cli.main import app

    def below(command: Any, words: str) -> Iterator[tuple[str, Any]]:
        context = click.Context(command)
        if hasattr(command, "list_commands"):
            names = command.list_commands(context)
            for name in names:
                yield from below(command.get_command(context, name), f"{words} {name}".strip())
            if not names or getattr(command, "invoke_without_command", False):
                yield words, command
        else:
            yield words, command

    yield from ((words, command) for words, command in below(typer.main.get_command(app), "") if words)


def surface() -> dict[str, int]:
    """What a user meets: names, options, pages."""
    import precision_time

    commands = list(_commands())
    projects = [tomllib.loads(path.read_text(encoding="utf-8"))["project"] for path in PROJECTS.values()]
    visible = [
        option
        for _, command in commands
        for option in command.params
        if option.param_type_name == "option" and not getattr(option, "hidden", False)
    ]
    return {
        "first_words": len({words.split()[0] for words, _ in commands}),
        "commands": len(commands),
        "options": len(visible),
        "extras": sum(len(each.get("optional-dependencies", ())) for each in projects),
        "guides": len(list((DOCS / "guides").glob("*.md"))),
        "developer_pages": len(list((DOCS / "devdocs").glob("*.md"))),
        "public_names": len(precision_time.__all__),
        "newcomer_words": sum(len((ROOT / name).read_text(encoding="utf-8").split()) for name in READ_FIRST),
    }


def structure() -> dict[str, int]:
    """How the package hangs together."""
    circles = loops()
    return {
        "loops": len(circles),
        "files_in_loops": sum(map(len, circles)),
        **{kind: len(places) for kind, places in caches().items()},
        "caches_of_members": sum(
            len(places) for name in MEMBERS for places in caches(f"precision_time_{name}").values()
        ),
        "module_state": len(module_state()),
        "class_names_used_twice": len(class_names_used_twice()),
    }


def figures() -> dict[str, dict[str, int]]:
    """All figures by the tables of `tests/surface.toml`."""
    rooms = _by_room()
    return {
        "lines": {room: lines_of(paths) for room, paths in sorted(rooms.items())},
        "files": {room: len(paths) for room, paths in sorted(rooms.items())},
        "structure": structure(),
        "surface": surface(),
        "reading": {"answer": lines_of([SOURCE / name for name in ANSWER])},
    }


def budgets() -> dict[str, dict[str, int]]:
    """The budgets of `tests/surface.toml`."""
    return tomllib.loads(BUDGETS.read_text(encoding="utf-8"))


def exceeded(found: Mapping[str, Mapping[str, int]], allowed: Mapping[str, Mapping[str, int]]) -> list[str]:
    """What is above its budget, has none, or has a budget that should be lowered; nothing if all is well."""
    wrong = []
    for table, values in found.items():
        for name, value in values.items():
            budget = allowed.get(table, {}).get(name)
            if budget is None:
                wrong.append(f"[{table}] {name} = {value} has no budget")
            elif value > budget:
                wrong.append(f"[{table}] {name}: {value} are above the budget of {budget}")
            elif value < budget - SLACK.get(table, 0):
                wrong.append(f"[{table}] {name}: {value} are below the budget of {budget}: lower it")
        wrong += [f"[{table}] {name} is gone" for name in allowed.get(table, {}).keys() - values.keys()]
    return wrong


def tighten(found: Mapping[str, Mapping[str, int]]) -> None:
    """Lower the budgets that are higher than their figures; those that are exceeded stay."""
    text, table = [], ""
    for line in BUDGETS.read_text(encoding="utf-8").splitlines():
        header = re.fullmatch(r"\[(\w+)\]", line)
        entry = re.fullmatch(r"(\w+) = (\d+)(.*)", line)
        table = header[1] if header else table
        if entry:
            if table not in found:  # floors, which tools/branches.py raises
                text.append(line)
                continue
            value = found[table].get(entry[1])
            if value is None:
                continue
            text.append(f"{entry[1]} = {min(value, int(entry[2]))}{entry[3]}")
        else:
            text.append(line)
    BUDGETS.write_text("\n".join(text) + "\n", encoding="utf-8")


def main() -> None:
    """Print the figures beside their budgets; with `--tighten`, lower these."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument(
        "--tighten", action="store_true", help="lower every budget that is higher than its figure"
    )
    parser.add_argument("--core-api", action="store_true", help="write what members import of the core")
    asked = parser.parse_args()
    if asked.core_api:
        write_core_api()
    found = figures()
    if asked.tighten:
        tighten(found)
    allowed = budgets()
    for table, values in found.items():
        for name, value in values.items():
            print(f"{table:10} {name:26} {value:>7,} {allowed.get(table, {}).get(name, '-'):>7}")
    sys.exit("\n".join(exceeded(found, allowed)) or None)


if __name__ == "__main__":
    main()
