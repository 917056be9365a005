"""CSV files that keep what was measured, whatever ends the run."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from precision_time.errors import CorpusError
from precision_time_integrations.measure.store import CsvStore, CsvTable


def test_rows_come_back_as_written(tmp_path: Path) -> None:
    table = CsvTable(tmp_path / "new" / "a.csv", ("x", "y"))
    table.add({"x": 0.1 + 0.2, "y": "two\nlines, and a comma"})
    table.add({"x": 3})
    again = CsvTable(tmp_path / "new" / "a.csv", ("x", "y"))
    assert list(again.rows()) == [{"x": "0.3", "y": "two lines, and a comma"}, {"x": "3", "y": ""}]


@pytest.mark.parametrize("torn", ["3", "3,", '3,"4', "\u00e4".encode()[:1].decode("latin-1")])
def test_a_line_cut_off_by_a_crash_is_set_aside(tmp_path: Path, torn: str) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(b"x,y\n1,2\n" + torn.encode("latin-1"))
    table = CsvTable(path, ("x", "y"))
    table.add({"x": 5, "y": 6})
    assert path.read_text(encoding="utf-8") == "x,y\n1,2\n5,6\n"
    assert (tmp_path / "a.csv.torn").read_bytes() == torn.encode("latin-1") + b"\n"


def test_a_last_cell_that_was_cut_off_is_told_from_a_whole_one(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    for last, kept in (("3,full-st", False), ("3,forward", True), ("3,full-step", True)):
        path.write_text(f"x,y\n1,full-step\n{last}", encoding="utf-8")
        assert (len(list(CsvTable(path, ("x", "y")).rows())) == 2) is kept


def test_lines_that_were_set_aside_before_stay(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    for torn in ("3", "4"):
        path.write_text(f"x,y\n1,2\n{torn}", encoding="utf-8")
        CsvTable(path, ("x", "y"))
    assert (tmp_path / "a.csv.torn").read_text(encoding="utf-8") == "3\n4\n"


@pytest.mark.parametrize("last", ["3,4", '"3, and","4"', "3,4\r\n"])
def test_a_whole_last_row_without_its_line_end_is_kept(tmp_path: Path, last: str) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(f"x,y\n1,2\n{last}".encode())
    table = CsvTable(path, ("x", "y"))
    table.add({"x": 5, "y": 6})
    assert [row["y"] for row in table.rows()] == ["2", "4", "6"]
    assert path.read_bytes().startswith(f"x,y\n1,2\n{last}".encode())
    assert not (tmp_path / "a.csv.torn").exists()


@pytest.mark.parametrize("torn", ["x", "x,", "x,yy"])
def test_a_header_cut_off_by_a_crash_is_written_again(tmp_path: Path, torn: str) -> None:
    path = tmp_path / "a.csv"
    path.write_text(torn, encoding="utf-8")
    CsvTable(path, ("x", "yyy"))
    assert path.read_text(encoding="utf-8") == "x,yyy\n"


def test_a_header_without_its_line_end_is_completed(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("x,y", encoding="utf-8")
    CsvTable(path, ("x", "y")).add({"x": 1})
    assert path.read_text(encoding="utf-8") == "x,y\n1,\n"


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"z\n1\n", "other columns"),
        (b"z\n1", "other columns"),
        (b"one line of notes", "other columns"),
        (b"y,x\n1,2\n3,", "other columns"),
        (b"\xff\xfe\x00binary", "not a CSV file in UTF-8"),
    ],
)
def test_files_of_another_kind_are_left_alone(tmp_path: Path, content: bytes, says: str) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(content)
    with pytest.raises(CorpusError, match=rf"a\.csv.*{says}.*To fix"):
        CsvTable(path, ("x", "y"))
    assert path.read_bytes() == content
    assert [each.name for each in tmp_path.iterdir()] == ["a.csv"]


def test_a_file_that_cannot_be_opened_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.csv").mkdir()
    with pytest.raises(CorpusError, match=r"a\.csv.*To fix"):
        CsvTable(tmp_path / "a.csv", ("x",))
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(CorpusError, match=r"b\.csv.*To fix"):
        CsvTable(tmp_path / "file" / "b.csv", ("x",))


def test_a_full_disk_loses_no_result_and_no_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.csv"
    table = CsvTable(path, ("x", "y"))
    table.add({"x": 1, "y": 2})

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(CorpusError, match=r"a\.csv cannot be written: No space.*measured: 0\.25,slow"):
            table.add({"x": 0.25, "y": "slow"})
    table.add({"x": 5, "y": 6})
    assert path.read_text(encoding="utf-8") == "x,y\n1,2\n5,6\n"


def test_a_cell_without_a_column_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="z"):
        CsvTable(tmp_path / "a.csv", ("x",)).add({"z": 1})


def test_failed_results_count_as_done_unless_wanted_again(tmp_path: Path) -> None:
    tables = CsvStore(tmp_path, "own-x")
    tables.steps.add({"run_id": "m/fp32", "step_time_s": 0.5})
    tables.steps.add({"run_id": "m/fp16", "quality": "unusable: out of memory"})
    tables.failures.add({"point": "m/fp16"})
    assert tables.settled() == {"m/fp32", "m/fp16"}
    assert tables.settled(retry_failed=True) == {"m/fp32"}
