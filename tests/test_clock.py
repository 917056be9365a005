"""`tools/clock.py` checks the time of `make test` only where it tells something."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

import clock

ROOT = Path(__file__).resolve().parents[1]


def test_the_minutes_are_said_once() -> None:
    said = {
        number
        for name in ("README.md", "CONTRIBUTING.md")
        for number in re.findall(
            r"make test\b.*less than (\d+) min", (ROOT / name).read_text(encoding="utf-8")
        )
    }
    assert said == {str(clock.minutes_said())}
    assert "less than" in (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("minutes", "others_s", "ci", "late"),
    [
        (0.99, 0.0, True, False),
        (1.0, 0.0, True, True),
        (2.0, 0.0, False, False),
        (2.0, None, True, False),
        (2.0, 60.0, True, True),
        (2.0, 1000.0, True, False),
    ],
)
def test_late_is_what_an_idle_machine_says(
    minutes: float, others_s: float | None, ci: bool, late: bool
) -> None:
    words, found = clock.verdict(minutes * clock.minutes_said() * 60, others_s, 2, ci=ci)
    assert found == late
    assert late or minutes < 1 or "not checked" in words


def test_the_code_of_the_command_is_kept(capfd, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "true")
    assert clock.main([sys.executable, "-c", "import sys; sys.exit(7)"]) == 7
    assert re.search(r": 0 min \d s, less than \d+ minutes are promised", capfd.readouterr().out)
