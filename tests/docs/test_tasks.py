"""What new users try works as the page says: every line of `tools/tasks*.toml` is run."""

from __future__ import annotations

import importlib
import importlib.util
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TASKS = [
    task
    for name in ("tasks.toml", "tasks_again.toml")
    for task in tomllib.loads((ROOT / "tools" / name).read_text(encoding="utf-8"))["task"]
]
MOST_FRICTION, MOST_DETOURS = 2, 32
OPEN: frozenset[int] = frozenset()
"""Tasks that are hard still."""
RUN_ELSEWHERE = {
    21: pytest.mark.nightly(
        covered_by="tests/capture/test_capture_sources.py::test_exported_program_equals_the_module"
    ),
    51: pytest.mark.nightly(covered_by="tests/docs/test_docs.py::test_generated_blocks_are_up_to_date"),
}
"""Ten seconds; by day the guide to measuring measures steps."""


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    "number",
    [
        pytest.param(number, marks=RUN_ELSEWHERE.get(number, ()))
        for number in (task["number"] for task in TASKS if not task.get("slow"))
    ],
)
def test_a_task_does_what_the_page_says(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    tasks = importlib.import_module("tasks")
    (task,) = (each for each in tasks.tasks() if each.number == number)
    with tasks.sandbox() as folder:
        monkeypatch.syspath_prepend(str(folder))
        sys.modules.pop("mynet", None)
        assert len(tasks.outcomes(task)) == len(task.run) + bool(task.python)


def test_few_tasks_need_a_detour_and_none_more() -> None:
    now = {task["number"]: task["now"] for task in TASKS}
    assert {number for number, friction in now.items() if friction > MOST_FRICTION} == OPEN
    assert sum(friction == MOST_FRICTION for friction in now.values()) <= MOST_DETOURS
    assert len(now) == len(TASKS), "a number stands twice"


def test_every_defect_names_tests_that_exist() -> None:
    table = tomllib.loads((ROOT / "tools" / "tasks.toml").read_text(encoding="utf-8"))
    assert [each["number"] for each in table["defect"]] == list(range(1, 21))
    named = [name for each in table["defect"] for name in each["tests"].split(", ")]
    assert [name for name in named if not (ROOT / name).is_file()] == []
