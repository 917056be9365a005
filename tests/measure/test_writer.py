"""CSV files that keep what was measured, whatever ends the run."""

from __future__ import annotations

from pathlib import Path

import pytest

from precision_time.errors import CorpusError
from precision_time.measure.writer import Table, Tables


def test_rows_come_back_as_written(tmp_path: Path) -> None:
    table = Table(tmp_path / "new" / "a.csv", ("x", "y"))
    table.add({"x": 0.1 + 0.2, "y": "two\nlines, and a comma"})
    table.add({"x": 3})
    again = Table(tmp_path / "new" / "a.csv", ("x", "y"))
    assert list(again.rows()) == [{"x": "0.3", "y": "two lines, and a comma"}, {"x": "3", "y": ""}]


def test_a_line_cut_off_by_a_crash_is_dropped(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("x,y\n1,2\n3,", encoding="utf-8")
    table = Table(path, ("x", "y"))
    table.add({"x": 5, "y": 6})
    assert path.read_text(encoding="utf-8") == "x,y\n1,2\n5,6\n"


def test_a_header_cut_off_by_a_crash_is_written_again(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("x,", encoding="utf-8")
    Table(path, ("x", "y"))
    assert path.read_text(encoding="utf-8") == "x,y\n"


def test_files_of_another_kind_are_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("z\n1\n", encoding="utf-8")
    with pytest.raises(CorpusError, match="other columns"):
        Table(path, ("x", "y"))
    assert path.read_text(encoding="utf-8") == "z\n1\n"


def test_a_cell_without_a_column_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="z"):
        Table(tmp_path / "a.csv", ("x",)).add({"z": 1})


def test_failed_points_count_as_done_unless_wanted_again(tmp_path: Path) -> None:
    tables = Tables(tmp_path, "own-x")
    tables.steps.add({"run_id": "m/fp32", "step_time_s": 0.5})
    tables.steps.add({"run_id": "m/fp16", "quality": "unusable: out of memory"})
    tables.failures.add({"point": "m/fp16"})
    assert tables.done() == {"m/fp32", "m/fp16"}
    assert tables.done(failed_too=False) == {"m/fp32"}
