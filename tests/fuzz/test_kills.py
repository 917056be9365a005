"""Writers are killed and their disks are full, a few times each; `tests/fuzz/limits.py` does it often."""

from __future__ import annotations

from pathlib import Path

import pytest

from fuzz_kills import WRITERS, Writer, fill_once, kill_once

QUICK = [writer for writer in WRITERS if writer.name not in ("registry", "predictors")]


@pytest.mark.parametrize("writer", QUICK, ids=lambda writer: writer.name)
def test_what_was_acknowledged_survives_a_kill(writer: Writer, tmp_path: Path) -> None:
    for number in range(3):
        folder = tmp_path / str(number)
        folder.mkdir()
        kill_once(writer, folder, after_s=0.003 * number)


@pytest.mark.parametrize("writer", QUICK, ids=lambda writer: writer.name)
def test_a_full_disk_is_said_and_loses_nothing(writer: Writer, tmp_path: Path) -> None:
    for most_bytes in (300, 70_000):
        folder = tmp_path / str(most_bytes)
        folder.mkdir()
        fill_once(writer, folder, most_bytes)
