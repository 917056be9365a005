"""Rules that hold for every tracked file."""

from __future__ import annotations

import ast
import re
import subprocess
import tempfile
from functools import cache
from pathlib import Path

import pytest

from surface import tree_of

ROOT = Path(__file__).resolve().parents[1]
MAX_FILE_LINES = 700
MAX_FUNCTION_LINES = 120
"""As long as one idea: smaller budgets only cut ideas into slices."""
TEXT_SUFFIXES = {".py", ".md", ".toml", ".txt", ".csv", ".json", ".yaml", ".yml", ".cfg", ".sh", ""}
# Written in parts, so that this file does not find itself.
REGISTRY = re.compile(
    "(?i)index" + "-url|files[.]python" + "hosted|dev" + "pi|arti" + "factory|nexus" + "[./]"
)


RECIPES = ROOT / "packages" / "integrations" / "tests" / "recipes" / "public"
"""Values of other projects' recipes: their paths are of nobody's machine."""


def folders_of_this_machine() -> re.Pattern[str]:
    """Absolute paths below the checkout, the folder that holds it, the user's and the temporary folder."""
    folders = {ROOT, ROOT.parent, Path.home(), Path(tempfile.gettempdir())} - {Path("/")}
    names = "|".join(re.escape(str(folder)) for folder in sorted(folders))
    return re.compile(rf"(?<![\w.:/-])(?:{names})[/\\]\w")


def tracked_files() -> list[Path]:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True)
    return [path for name in listed.stdout.splitlines() if (path := ROOT / name).is_file()]


def python_files() -> list[Path]:
    return [path for path in tracked_files() if path.suffix == ".py"]


@cache
def text_of(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def test_files_stay_readable() -> None:
    """Definitions of published architectures are read one at a time: their files may hold a whole family."""
    lengths = {
        str(path.relative_to(ROOT)): len(text_of(path).splitlines())
        for path in python_files()
        if path.parent.name != "zoo_definitions"
    }
    assert {name: lines for name, lines in lengths.items() if lines >= MAX_FILE_LINES} == {}


def lines_of_code(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines of a function below its docstring."""
    documented = ast.get_docstring(node) is not None and len(node.body) > 1
    first = node.body[1] if documented else node.body[0]
    return (node.end_lineno or node.lineno) - first.lineno + 1


def test_functions_stay_readable() -> None:
    long: dict[str, int] = {}
    for path in python_files():
        for node in ast.walk(tree_of(path)):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                lines = lines_of_code(node)
                if lines >= MAX_FUNCTION_LINES:
                    long[f"{path.relative_to(ROOT)}:{node.name}"] = lines
    assert long == {}


def test_no_exception_is_swallowed_unnamed() -> None:
    bare = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in python_files()
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.ExceptHandler) and node.type is None
    ]
    assert bare == []


@pytest.mark.parametrize(
    ("pattern", "what"),
    [(folders_of_this_machine(), "a path of this machine"), (REGISTRY, "a package registry")],
    ids=["path", "registry"],
)
def test_tracked_text_names_no_machine(pattern: re.Pattern[str], what: str) -> None:
    found = [
        f"{path.relative_to(ROOT)}: {match.group(0)}"
        for path in tracked_files()
        if path.suffix in TEXT_SUFFIXES
        and RECIPES not in path.parents
        and (match := pattern.search(text_of(path)))
    ]
    assert found == [], f"names {what}"


def test_constraints_cover_the_core_dependencies() -> None:
    import tomllib

    project = tomllib.loads(text_of(ROOT / "pyproject.toml"))["project"]
    pinned = {
        line.split("==")[0].lower() for line in text_of(ROOT / "constraints.txt").splitlines() if "==" in line
    }
    needed = {re.split(r"[><=\[ ]", name)[0].lower() for name in project["dependencies"]}
    assert needed <= pinned


def test_core_dependencies_stay_few() -> None:
    import tomllib

    project = tomllib.loads(text_of(ROOT / "pyproject.toml"))["project"]
    names = {re.split(r"[><=\[ ]", name)[0].lower() for name in project["dependencies"]}
    assert names == {"msgspec", "numpy", "pydantic", "pyyaml", "rich", "threadpoolctl", "typer"}
