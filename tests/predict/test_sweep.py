"""Sweeps of any size: every row is what the request alone says, however it is cut up or interrupted."""

from __future__ import annotations

import csv
import json
import multiprocessing
import os
import signal
import stat
import sys
from pathlib import Path

import numpy as np
import pytest

from precision_time import predict_many, sweep, sweep_tables
from precision_time.cli.main import main
from precision_time.errors import ConfigError, MissingExtraError, OutputError, UnknownNameError
from precision_time.io import table_cell
from precision_time.predict.prediction import Prediction
from precision_time.predict.sweep import _csv, write_sweep
from precision_time.request import grid as grids
from precision_time.request.grid import Grid, grid_of, grid_of_file

WORDS = ("model", "device", "gpus", "nodes", "precision", "stack", "throughput_unit", "fits")
FIGURES = (
    *("step_time_s", "throughput", "mfu", "epoch_time_s", "total_time_s", "device_hours"),
    *("memory_bytes_per_device", "batch_size", "global_batch_size"),
)
MIXED = [
    {"model": "resnet50", "device": "V100-SXM2-16GB", "precision": ["fp32", "fp8-mixed"], "gpus": [1, 24]},
    {
        "model": "llama3-8b",
        "device": "H100",
        "gpus": 16,
        "tp": [1, 3, 8],
        "pp": [1, 2],
        "zero_stage": [0, 1, 3],
    },
    {"model": "mixtral-8x7b", "device": "H200-SXM-141GB", "gpus": 64, "ep": 8, "num_microbatches": [1, 4]},
    {"model": "bert-large", "device": ["L40S", "MI300X"], "seq_len": 512, "mean_seq_len": [None, 200]},
    {"model": "gpt2", "device": "A100-SXM4-40GB", "gpus": [1, 8], "input_rate": 100.0, "coverage": 0.5},
    {"model": "llama3-8b", "device": "H100", "gpus": 32, "method": "dpo", "anchors": None},
    {"model": "gpt2", "predictor": "nowhere"},
    {"model": "dlrm", "device": "A100", "precision": "fp32", "gpus": 8, "steps": 7, "stragglers": False},
]
BATCHES = {"batch_size": [1, 3, 64, 250, 4096], "global_batch_size": [64, 100, 1024]}
GRID = {"model": "resnet50", "device": ["A100", "V100"], "gpus": "1..16", "batch_size": "2..16:2"}


def test_every_row_is_what_the_request_alone_says() -> None:
    """Of all kinds: that fit, that do not, sharded or laid out by default, refused."""
    asked = [{**fields, name: values} for fields in MIXED for name, values in BATCHES.items()]
    [table] = sweep_tables(asked)
    requests = [each.at(row) for block in grids.grid_of_requests(asked).blocks()
                for each in block for row in range(len(each))]  # fmt: skip
    answers = predict_many(requests).answers
    assert len(answers) == len(table["job"])
    kinds = set()
    for row, (alone, fields) in enumerate(zip(answers, requests, strict=True)):
        found = {name: values[row] for name, values in table.items()}
        if not isinstance(alone, Prediction):
            kinds.add("refused")
            assert found["error"] == alone.reason
            assert np.isnan(found["step_time_s"])
            continue
        kinds.add((alone.fits, *(item.code for item in alone.diagnostics if "default-" in item.code)))
        assert found["error"] is None
        assert [found[name] for name in WORDS] == [getattr(alone, name) for name in WORDS]
        said = {name: getattr(alone, name) for name in FIGURES}
        said |= {"interval_low_s": alone.interval.low_s, "interval_high_s": alone.interval.high_s}
        for name, value in said.items():
            expected = np.nan if value is None else value
            assert found[name] == pytest.approx(expected, rel=1e-12, nan_ok=True), (name, fields)
        warned = [item.code for item in alone.diagnostics if item.severity.value == "warning"]
        assert found["warnings"].split() == [*dict.fromkeys(warned)], fields
    assert "refused" in kinds
    codes = {code for kind in kinds for code in kind[1:]}
    assert {"default-sharding", "default-layout", "default-accumulation"} - codes == {"default-accumulation"}
    assert {kind[0] for kind in kinds if kind != "refused"} == {True, False}


def test_no_row_does_more_than_the_device_can() -> None:
    """On chips whose stacks are quicker than others where nothing was measured; alone as in a sweep."""
    rng = np.random.default_rng(29)
    devices = ["IPU-GC200", "IPU-Bow", "Gaudi", "Gaudi2", "RTX2070", "GTX1080Ti", "V100-PCIE-16GB", "TPUv3"]
    chosen = {str(name) for name in rng.choice(devices[4:], 2, replace=False)} | {*devices[:4]}
    asked = [
        {
            "model": model,
            "device": sorted(chosen),
            "precision": ["fp32", "fp16-mixed"],
            "batch_size": [8, 64, int(rng.integers(200, 600))],
        }
        for model in ("vgg16", "gpt2", "bert-base")
    ]
    rows = 0
    for table in sweep_tables(asked):
        mfu = table["mfu"].astype(float)
        assert (mfu[~np.isnan(mfu)] <= 1.0).all()
        rows += len(mfu)
    assert rows == 3 * 6 * 2 * 3
    [table] = sweep_tables([{"model": "gpt2", "device": "IPU-Bow", "precision": "fp32", "batch_size": 512}])
    assert table["error"][0] is None and 0.5 < table["mfu"][0] <= 1.0
    [alone] = predict_many(
        [{"model": "gpt2", "device": "IPU-Bow", "precision": "fp32", "batch_size": 512}]
    ).answers
    assert isinstance(alone, Prediction)
    assert alone.step_time_s == pytest.approx(table["step_time_s"][0], rel=1e-12)
    assert sum(alone.terms.values()) == pytest.approx(alone.step_time_s)


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> Grid:
    """A grid of 80 rows in blocks of about 16."""
    monkeypatch.setattr(grids, "BLOCK_ROWS", 16)
    return grid_of(GRID)


@pytest.mark.parametrize(
    "asked",
    [
        {"batch_size": [64, None]},
        {"batch_size": [None, 64], "gpus": [1, 8]},
        {"global_batch_size": [None, 512], "gpus": 8},
        {"micro_batch_size": [8, None]},
        {"batch_size": [None]},
        {"precision": [None, "tf32"]},
        {"zero_stage": [None, 1]},
    ],
    ids=str,
)
def test_a_value_that_is_left_open_beside_others_is_a_row(asked: dict[str, object], tmp_path: Path) -> None:
    swept = sweep("resnet50", **asked, out=tmp_path / "out.jsonl", workers=1)
    rows = [json.loads(line) for line in swept.path.read_text().splitlines()]
    alone = sweep("resnet50", **asked)
    assert [row["error"] for row in rows] == [None] * len(alone)
    found = sorted((row["gpus"], row["batch_size"], row["step_time_s"]) for row in rows)
    wanted = sorted((each.gpus, each.batch_size, each.step_time_s) for each in alone)
    assert np.allclose(found, wanted, rtol=1e-9, atol=0.0)


def test_neither_chunks_nor_processes_change_a_bit(small_blocks: Grid, tmp_path: Path) -> None:
    written = []
    for blocks, workers in ((1, 1), (3, 1), (100, 1), (1, 2)):
        out = tmp_path / f"{blocks}-{workers}.csv"
        write_sweep(small_blocks, out, workers=workers, blocks_per_chunk=blocks)
        written.append(out.read_bytes())
    assert len({*written}) == 1
    assert written[0].count(b"\n") == 1 + small_blocks.rows == 81


def _killed_after(chunks: int, grid: Grid, out: Path) -> None:
    left = iter(range(chunks))

    def progress(done: int, total: int) -> None:
        if next(left, None) is None:
            os.kill(os.getpid(), signal.SIGKILL)

    write_sweep(grid, out, workers=1, progress=progress)


def test_a_killed_sweep_goes_on_and_ends_as_if_nothing_had_been(small_blocks: Grid, tmp_path: Path) -> None:
    whole, out = tmp_path / "whole.jsonl", tmp_path / "out.jsonl"
    write_sweep(small_blocks, whole, workers=1)
    child = multiprocessing.get_context("fork").Process(target=_killed_after, args=(3, small_blocks, out))
    child.start()
    child.join()
    assert child.exitcode == -signal.SIGKILL
    part, log = tmp_path / "out.jsonl.part", tmp_path / "out.jsonl.part.log"
    with part.open("ab") as rows, log.open("ab") as lines:  # a chunk that was cut off, and its line
        rows.write(b'{"job": 9')
        lines.write(b'{"size": 1')
    with pytest.raises(ConfigError, match="another grid"):
        write_sweep(grid_of({**GRID, "batch_size": 4}), out, workers=1)
    done = write_sweep(small_blocks, out, workers=1)
    assert 0 < done.kept < done.counts.rows == 80
    assert out.read_bytes() == whole.read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out.jsonl", "whole.jsonl"]


def test_rows_that_were_damaged_are_answered_again(small_blocks: Grid, tmp_path: Path) -> None:
    out = tmp_path / "out.csv"
    _write_some(small_blocks, out)
    whole = (tmp_path / "out.csv.part").read_bytes()
    (tmp_path / "out.csv.part").write_bytes(whole.replace(b"A100-SXM", b"B100-SXM", 1))
    assert write_sweep(small_blocks, out, workers=1).kept == 0
    assert b"B100" not in out.read_bytes()


def _write_some(grid: Grid, out: Path) -> None:
    class StopError(Exception):
        pass

    def progress(done: int, total: int) -> None:
        if done > 40:
            raise StopError

    with pytest.raises(StopError):
        write_sweep(grid, out, workers=1, progress=progress)


def test_parquet_csv_and_json_lines_hold_the_same(tmp_path: Path) -> None:
    from pyarrow import parquet

    paths = [tmp_path / f"out.{kind}" for kind in ("csv", "jsonl", "parquet")]
    for path in paths:
        sweep("resnet50", gpus=[1, 8], batch_size="1..8", tp=[1, 2], out=path, workers=1)
    rows = [json.loads(line) for line in paths[1].read_text().splitlines()]
    assert parquet.read_table(paths[2]).to_pylist() == rows
    for row, cells in zip(rows, csv.DictReader(paths[0].read_text().splitlines()), strict=True):
        assert {name: "" if value is None else table_cell(str(value)) for name, value in row.items()} == cells


def test_every_cell_of_a_csv_reads_back_to_the_bit(tmp_path: Path) -> None:
    numbers = [0.1 + 0.2, 1e-300, -1.7976931348623157e308, np.nan, np.inf, 3.0, 5e-324, 2.0**70]
    texts = ["plain", 'a "quoted", cell', "two\nlines", None, "plain", "=1+1", " ", "e;"]
    for some in (slice(None), slice(0, 4), slice(5, 8)):  # with and without what is infinite, and nothing
        column, words = np.array(numbers[some]), np.array(texts[some], dtype=object)
        table = {"text": words, "number": column, "flag": np.array([True] * len(words), dtype=object)}
        (tmp_path / "t.csv").write_bytes(_csv(table, {"text": str, "number": float, "flag": bool}))
        with (tmp_path / "t.csv").open(newline="", encoding="utf-8") as file:
            rows = [*csv.reader(file)]
        assert [row[0] for row in rows] == ["" if each is None else table_cell(each) for each in words]
        read = np.array([float(row[1] or "nan") for row in rows])
        assert read.tobytes() == column.tobytes()
        assert {row[2] for row in rows} == {"True"}


def test_without_pyarrow_only_parquet_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingExtraError, match=r"precision-time\[frames\]"):
        sweep("resnet50", out=tmp_path / "out.parquet")
    assert sweep("resnet50", out=tmp_path / "out.csv", workers=1).counts.rows == 1


def test_what_breaks_a_rule_is_said_before_work_begins(tmp_path: Path) -> None:
    for text, error in (
        ("model: resnet50\nbatch_size: [8, -1]\n", ConfigError),
        ("model: resnet50\ndevice: [A100, A1000000]\n", UnknownNameError),
        ("model: resnet50\nzero: [0, 9]\n", ConfigError),
        ("model: os:abort\n", ConfigError),
    ):
        (tmp_path / "grid.yaml").write_text(text)
        with pytest.raises(error):
            grid_of_file(tmp_path / "grid.yaml")


def test_the_command_says_what_became_of_a_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table, out = tmp_path / "jobs.csv", tmp_path / "answers.csv"
    table.write_text("model,gpus,batch_size,tp\nresnet50,8,32,\nresnet50,x,32,\nresnet50,8,-1,\ngpt2,8,8,3\n")
    with pytest.raises(SystemExit, match="0"):
        main(["sweep", str(table), "--out", str(out), "--workers", "1", "--json"])
    said = json.loads(capsys.readouterr().out)
    assert (said["rows"], said["refused"]) == (4, 3)
    errors = [row["error"] for row in csv.DictReader(out.read_text().splitlines())]
    assert [error.partition(" ")[0] for error in errors] == ["", "gpus='x'", "batch_size='-1'", "Invalid"]
    with pytest.raises(SystemExit, match="2"):
        main(["sweep", str(table), "--out", str(tmp_path / "answers.xlsx")])


def test_cells_that_a_spreadsheet_would_run_are_text(tmp_path: Path) -> None:
    table, out = tmp_path / "jobs.csv", tmp_path / "out.csv"
    formula = "=cmd|'/C calc'!A0"
    table.write_text(f'model,device\n{formula},T4\nresnet50,"@SUM(1)"\nresnet50,T4\n')
    write_sweep(grid_of_file(table), out, workers=1)
    rows = [*csv.DictReader(out.read_text().splitlines())]
    assert rows[0]["model"] == f"'{formula}"
    assert rows[1]["device"] == "'@SUM(1)"
    assert not any(cell.startswith(("=", "+", "@")) for row in rows for cell in row.values())
    assert float(rows[2]["step_time_s"]) > 0.0


@pytest.mark.parametrize("kind", ["fifo", "link", "null"])
def test_what_is_no_regular_file_is_not_replaced(tmp_path: Path, kind: str) -> None:
    fifo = tmp_path / "out.csv"
    if kind == "null":
        fifo.symlink_to("/dev/null")
    else:
        pipe = tmp_path / "pipe" if kind == "link" else fifo
        os.mkfifo(pipe)
        if kind == "link":
            fifo.symlink_to(pipe)
    before = os.lstat(fifo).st_ino, os.stat(fifo).st_mode
    told: list[int] = []
    with pytest.raises(OutputError, match=r"not a regular file.*To fix"):
        write_sweep(grid_of(GRID), fifo, workers=1, progress=lambda done, total: told.append(done))
    assert (os.lstat(fifo).st_ino, os.stat(fifo).st_mode) == before
    assert not told and not list(tmp_path.glob("*.part*"))


def test_a_pipe_that_appears_while_rows_are_answered_stays(tmp_path: Path) -> None:
    out = tmp_path / "out.csv"

    def progress(done: int, total: int) -> None:
        if done == total:
            os.mkfifo(out)

    with pytest.raises(OutputError, match="not a regular file"):
        write_sweep(grid_of({"model": "resnet50"}), out, workers=1, progress=progress)
    assert stat.S_ISFIFO(out.stat().st_mode)
    out.unlink()
    assert write_sweep(grid_of({"model": "resnet50"}), out, workers=1).kept == 1


def test_a_file_that_is_written_again_keeps_its_mode(tmp_path: Path) -> None:
    out = tmp_path / "out.csv"
    out.touch(0o640)
    out.chmod(0o640)
    write_sweep(grid_of({"model": "resnet50"}), out, workers=1)
    assert stat.S_IMODE(out.stat().st_mode) == 0o640
