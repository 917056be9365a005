"""Files that are not what they claim to be."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from precision_time.corpus.importer import read_measurements
from precision_time.corpus.measurement import Measurement, Rejected
from precision_time.corpus.schema import COLUMNS
from precision_time.errors import CorpusError

HEADER = "model,device,devices,precision,batch_per_device,step_time_s\n"
ROW = "resnet50,T4,1,fp32,64,0.5\n"


def read(tmp_path: Path, content: str | bytes) -> list[Measurement | Rejected]:
    path = tmp_path / "runs.csv"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return list(read_measurements(path))


@pytest.mark.parametrize(
    ("content", "needed"),
    [
        ("", ["empty"]),
        (b"\x89PNG\r\n\x1a\n\xff\xfe", ["UTF-8"]),
        ((HEADER + ROW).encode("utf-16"), ["UTF-8"]),
        (HEADER.replace(",", ";") + ROW.replace(",", ";"), ["line 1", "comma"]),
        (HEADER.replace(",", "\t") + ROW.replace(",", "\t"), ["line 1", "comma"]),
        ("model,devices,precision,step_time_s\nresnet50,1,fp32,1\n", ["line 1", "'device'", "missing"]),
        ("model,device,devices,precision\nresnet50,T4,1,fp32\n", ["step_time_s or throughput"]),
        ("modell,device,devices,precision,step_time_s\nx,T4,1,fp32,1\n", ["'model'", "'modell'"]),
        (HEADER.replace("step_time_s", "device") + ROW, ["'device'", "twice"]),
        (HEADER + ROW + "resnet50,T4,1,fp3", ["line 3", "4 cells", "6"]),
        (HEADER + ROW + 'resnet50,"T4,1,fp32,64,0.5\n', ["quote"]),
        (HEADER + ROW.replace("0.5", "fast"), ["line 2", "step_time_s", "'fast'", "not a number"]),
        (HEADER + ROW.replace("0.5", "-0.5"), ["line 2", "step_time_s", "'-0.5'", "negative"]),
        (HEADER + ROW.replace("0.5", "nan"), ["step_time_s", "finite"]),
        (HEADER + ROW.replace("0.5", "inf"), ["step_time_s", "finite"]),
        (HEADER + ROW.replace("0.5", "0"), ["step_time_s", "above 0"]),
        (HEADER + ROW.replace(",1,", ",1.5,"), ["devices", "'1.5'", "whole"]),
        (HEADER + ROW.replace(",1,", ",0,"), ["devices", "above 0"]),
        (HEADER + ROW.replace("fp32", "fp33"), ["line 2", "precision", "'fp33'", "tf32"]),
        (
            HEADER.replace("step", "parallelism,step") + ROW.replace("0.5", "{dp:8},0.5"),
            ["parallelism", "JSON"],
        ),
        (
            HEADER.replace("step", "parallelism,step") + ROW.replace("0.5", "[8],0.5"),
            ["parallelism", "object"],
        ),
        (HEADER.replace("step", "quality,step") + ROW.replace("0.5", "odd: x,0.5"), ["quality", "suspect"]),
        (
            HEADER.replace("step", "timing_scope,step") + ROW.replace("0.5", "all,0.5"),
            ["timing_scope", "with-eval"],
        ),
    ],
)
def test_broken_files_are_refused_with_the_place_and_the_rule(tmp_path, content, needed):
    with pytest.raises(CorpusError) as caught:
        read(tmp_path, content)
    for part in needed:
        assert part in str(caught.value)
    assert "To fix" in str(caught.value)


def test_missing_file(tmp_path):
    with pytest.raises(CorpusError, match=r"cannot be read.*To fix"):
        list(read_measurements(tmp_path / "none.csv"))


def test_byte_order_mark_blank_lines_and_further_columns_are_fine(tmp_path):
    content = "\ufeff" + HEADER.replace("\n", ",mine\n") + ROW.replace("\n", ",1\n") + "\n"
    (row,) = read(tmp_path, content)
    assert row.usable and row.measured_step_time_s == 0.5


def test_rows_that_name_no_configuration_are_rejected_one_by_one(tmp_path):
    rows = read(tmp_path, HEADER + ROW.replace("T4", "") + ROW + ROW.replace(",1,", ",,"))
    assert [getattr(row, "reason", "") for row in rows] == [
        "device not stated",
        "",
        "number of devices not stated",
    ]
    assert rows[0].row_number == 2


CELLS = st.one_of(
    st.text(max_size=12),
    st.sampled_from(
        ["", "0", "-1", "8", "1e3", "nan", "fp32", "fp8-mixed", "T4", "tokens/s", '{"dp":3,"pp":7}']
    ),
    st.floats().map(str),
    st.integers().map(str),
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(cells=st.dictionaries(st.sampled_from(COLUMNS), CELLS))
def test_any_row_is_read_or_refused(tmp_path, cells):
    """Whatever stands in the cells: a row, a rejection, or a CorpusError, never another exception."""
    sane = {"model": "resnet50", "device": "T4", "devices": "4", "precision": "fp32", "step_time_s": "0.5"}
    row = {name: cells.get(name) or sane.get(name, "") for name in COLUMNS}
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS)
    writer.writeheader()
    writer.writerow(row)
    try:
        (found,) = read(tmp_path, text.getvalue().encode("utf-8", "surrogatepass"))
    except CorpusError as error:
        assert "To fix" in str(error)
        return
    if isinstance(found, Measurement) and found.layout is not None:
        assert found.layout.world_size == found.num_devices


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(end=st.integers(min_value=0, max_value=20_000))
def test_a_file_cut_anywhere_is_read_or_refused(tmp_path, end):
    content = (Path(__file__).parent / "data" / "rows.csv").read_bytes()[:end]
    try:
        rows = read(tmp_path, content)
    except CorpusError:
        return
    assert all(isinstance(row, Measurement | Rejected) for row in rows)


def test_a_time_in_another_unit_is_not_only_renamed(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match="'step_time_ms' here.*add the column, in seconds"):
        read(tmp_path, f"{HEADER.replace('step_time_s', 'step_time_ms')}\n".encode())


def test_columns_may_be_named_as_the_options(tmp_path: Path) -> None:
    options = HEADER.replace("devices", "gpus").replace("batch_per_device", "batch_size")
    assert read(tmp_path, options + ROW) == read(tmp_path, HEADER + ROW)
    with pytest.raises(CorpusError, match="'devices' occurs twice"):
        read(tmp_path, "model,device,devices,gpus,precision,step_time_s\nresnet50,T4,1,1,fp32,1\n")
