"""Every test is in one part; what waits for the night is covered by day; what is slow is listed."""

from __future__ import annotations

import ast
import os
import re
import shutil
import signal
import subprocess
import sys
import tomllib
from functools import cache
from pathlib import Path

import pytest

import unit
from unit import MOST_S, slow_tests

ROOT = Path(__file__).resolve().parents[1]
TESTS = sorted(
    path for folder in (ROOT / "tests", *ROOT.glob("packages/*/tests")) for path in folder.rglob("test_*.py")
)
SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["pytest"][
    "ini_options"
]


def test_every_test_is_in_one_part() -> None:
    inside = [ROOT / path for paths in unit.paths_of_parts().values() for path in paths]
    others = (
        path for folder in (ROOT / "src", *ROOT.glob("packages/*/src")) for path in folder.rglob("*.py")
    )
    files = [*TESTS, *others]
    parts = {path: sum(path == each or each in path.parents for each in inside) for path in files}
    assert {str(path.relative_to(ROOT)): count for path, count in parts.items() if count != 1} == {}


def test_every_path_of_a_part_exists() -> None:
    parts = tomllib.loads(unit.PARTS.read_text(encoding="utf-8"))
    assert [glob for part in parts.values() for glob in part["paths"] if not list(ROOT.glob(glob))] == []


@cache
def functions_of(path: Path) -> dict[str, ast.FunctionDef | ast.AsyncFunctionDef]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {
        node.name: node
        for node in ast.walk(tree)
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
    }


def function_named(test: str) -> ast.FunctionDef | ast.AsyncFunctionDef | None:
    """The function of `tests/...py::name`, or of one of its cases."""
    name, _, function = test.partition("[")[0].partition("::")
    return functions_of(ROOT / name).get(function) if (ROOT / name).is_file() else None


def is_nightly(node: ast.AST) -> bool:
    return isinstance(node, ast.Attribute) and ast.unparse(node) == "pytest.mark.nightly"


def waits(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return any(is_nightly(getattr(each, "func", each)) for each in function.decorator_list)


def uncovered(tree: ast.AST) -> list[str]:
    """Marks `nightly` that name no test by day that covers the same."""
    calls = {id(node.func): node for node in ast.walk(tree) if isinstance(node, ast.Call)}
    wrong = []
    for mark in filter(is_nightly, ast.walk(tree)):
        call = calls.get(id(mark))
        named = {word.arg: ast.literal_eval(word.value) for word in call.keywords} if call else {}
        function = function_named(str(named.get("covered_by", "")))
        if function is None or waits(function):
            wrong.append(f"line {mark.lineno}: {named.get('covered_by', 'no covered_by')}")
    return wrong


NIGHTLY = [path for path in TESTS if "mark.nightly" in path.read_text(encoding="utf-8")]


@pytest.mark.parametrize("path", NIGHTLY, ids=lambda path: path.stem)
def test_what_waits_for_the_night_names_what_covers_it_by_day(path: Path) -> None:
    assert uncovered(ast.parse(path.read_text(encoding="utf-8"))) == []


@pytest.mark.parametrize(
    "mark",
    [
        "pytest.mark.nightly",
        "pytest.mark.nightly()",
        'pytest.mark.nightly(covered_by="tests/test_parts.py::no_such_test")',
        'pytest.mark.nightly(covered_by="tests/no_such_file.py::test_it")',
        'pytest.mark.nightly(covered_by="packages/papers/tests/evaluation/test_comparison.py::test_everything_at_once")',
    ],
)
def test_a_mark_that_names_nothing_is_found(mark: str) -> None:
    assert len(uncovered(ast.parse(f"@{mark}\ndef test_it(): ..."))) == 1


def test_every_slow_test_exists_and_is_slow() -> None:
    listed = tomllib.loads((ROOT / "tests" / "slow.toml").read_text(encoding="utf-8"))
    assert [test for test in listed if function_named(test) is None] == []
    assert [test for test, took_s in listed.items() if took_s <= MOST_S] == []


def test_slow_tests_are_told_beyond_the_noise() -> None:
    took_s = {"quick": 11.9, "new": 12.1, "known": 8.0, "worse": 33.0, "same": 7.0}
    found = slow_tests(took_s, {"known": 8.0, "worse": 8.0, "same": 8.0})
    assert found == [
        "too slow: new: 12.1 CPU-seconds, 3 x 1.0 are allowed",
        "too slow: worse: 33.0 CPU-seconds, 8 x 1.0 are allowed",
    ]  # fmt: skip


def test_a_slow_machine_is_no_slow_test() -> None:
    listed = {"a": 4.0, "b": 5.0, "c": 6.0}
    assert slow_tests({name: 5 * most for name, most in listed.items()}, listed) == []
    assert len(slow_tests({"a": 8.0, "b": 10.0, "c": 100.0}, listed)) == 1


ALLOWED, MISSING, UNKNOWN = "no browser is installed", "node is not installed", "no such reason"


@pytest.mark.parametrize(
    ("skipped", "told"), [([ALLOWED], []), ([ALLOWED, MISSING, UNKNOWN], [MISSING, UNKNOWN])]
)
def test_a_skip_on_ci_fails_the_run_unless_it_is_allowed_there(
    tmp_path: Path, skipped: list[str], told: list[str]
) -> None:
    (tmp_path / "tests").mkdir()
    for name in ("conftest.py", "tests/skips.toml"):
        shutil.copy(ROOT / name, tmp_path / name)
    tests = [f"def test_{number}(): pytest.skip({why!r})" for number, why in enumerate(skipped)]
    planted = tmp_path / "test_planted.py"
    planted.write_text("\n".join(["import pytest", "def test_it(): pass", *tests]))
    environment = {**os.environ, "CI": "true", "PYTHONPATH": str(ROOT / "tools")}
    environment.pop("PRECISION_TIME_SLOW_TESTS", None)
    done = subprocess.run(
        [*unit.PYTEST, "--rootdir", tmp_path, planted],
        cwd=tmp_path, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, re.findall(r"not for CI: .*::test_\d: (.*)", done.stdout)) == (
        int(bool(told)),
        told,
    )


PRINTS = "import sys; print('...'); print(sys.argv[1]); sys.exit(int(sys.argv[2]))"


def command(last: str, code: int) -> list[str]:
    return [sys.executable, "-c", PRINTS, last, str(code)]


def test_a_total_of_all_parts(capfd) -> None:
    good = command("12 passed, 3 skipped, 4 deselected in 1.00s", 0)
    bad = command("2 failed, 5 passed, 1 error in 1.00s", 1)
    assert unit.run_parts({"one": good, "two": good}, 2) == 0
    assert capfd.readouterr().out.endswith("\n24 passed, 0 failed, 6 skipped\n")
    assert unit.run_parts({"one": good, "two": bad}, 1) == 1
    printed = capfd.readouterr().out
    assert "\n17 passed, 3 failed, 3 skipped\ntwo ended with 1\n" in printed


@pytest.mark.parametrize(
    ("again", "code"), [("1 passed in 3s", 0), ("too slow: b: 20.0 CPU-seconds, 3 x", 1)]
)
def test_a_slow_test_is_one_that_is_slow_twice(monkeypatch, capfd, again: str, code: int) -> None:
    monkeypatch.setattr(unit, "PYTEST", (sys.executable, "-c", f"print({again!r})"))
    slow = command("too slow: a::b[c]: 12.1 CPU-seconds, 3 x 1.0 are allowed\n1 passed in 13s", 0)
    assert unit.run_parts({"one": slow}, 1) == code
    assert capfd.readouterr().out.endswith(f"skipped\n{again}\n" if code else "skipped\n")


@pytest.mark.parametrize(
    ("last", "code"), [("Killed", 137), ("no tests ran in 0.1s", 5), ("3 passed in 1s", 1)]
)
def test_a_part_that_ends_without_its_failures_is_a_failure(capfd, last: str, code: int) -> None:
    assert unit.run_parts({"one": command(last, code)}, 1) == 1
    assert re.search(rf"\n[03] passed, 1 failed, 0 skipped\none ended with {code}\n", capfd.readouterr().out)


def test_a_part_that_is_not_there_is_refused(capsys) -> None:
    with pytest.raises(SystemExit):
        unit.main(["no-such-part"])
    assert "no such part: no-such-part" in capsys.readouterr().err


HELD = """
import os, subprocess, sys
held = os.open(sys.argv[1], os.O_WRONLY)
with subprocess.Popen(["sleep", "300"], pass_fds=[held]):
    os.write(held, b".")
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_run_that_is_ended_leaves_nothing_running(tmp_path: Path, number: signal.Signals) -> None:
    """The pipe ends when the part and what it started have ended."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    run = f"import sys, unit; unit.PYTEST = {[sys.executable, '-c', HELD, str(pipe)]}; unit.main(['server'])"
    with subprocess.Popen(
        [sys.executable, "-c", run], env={**os.environ, "PYTHONPATH": "tools"}, cwd=ROOT
    ) as process:
        with pipe.open("rb", buffering=0) as held:
            assert held.read(1) == b"."
            process.send_signal(number)
            assert held.read() == b""
        assert process.wait() == 128 + number


def test_targets_of_the_makefile_run_first_and_beside_the_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[str, list[str]] = {}
    monkeypatch.setattr(unit, "run_parts", lambda commands, _: seen.update(commands) or 0)
    assert unit.main(["server", "--beside", "lint", "types"]) == 0
    assert list(seen) == ["lint", "types", "server"]
    assert seen["types"] == ["make", "--no-print-directory", "types"]
    recipe = re.search(r"^test:.*\n\t(.*)$", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    assert recipe is not None
    _, _, targets = recipe[1].partition("--beside ")
    made = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    assert {*targets.split()} == {"lint", "types", "wheel"} <= {*made}
