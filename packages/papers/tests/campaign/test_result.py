"""Finished trials: nothing is lost on the way to a CSV and back, and what cannot be read is refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from precision_time.errors import CorpusError
from precision_time_papers.campaign.result import COLUMNS, TrialResult, read_results_csv, write_results

Make = Callable[..., TrialResult]
TIMES = st.floats(1e-9, 1e6)


@given(
    repeat=st.integers(0, 99),
    fraction=st.floats(1e-6, 1.0),
    step_s=st.none() | TIMES,
    epochs=st.lists(TIMES, max_size=4),
    hosts=st.lists(st.text("abc-.1", min_size=1, max_size=8), max_size=3),
    sizes=st.dictionaries(st.sampled_from(["hidden", "layers"]), st.floats(1, 1e6)),
)
def test_a_csv_gives_back_what_was_written(tmp_path_factory: Any, **drawn: Any) -> None:
    trial = TrialResult(
        campaign="x", key="k, with a comma", repeat=drawn["repeat"], model="cnn", dataset="synthetic",
        dataset_fraction=drawn["fraction"], num_samples=3, num_workers=2, cpus_per_worker=0.5,
        gpus_per_worker=0.0, batch_per_worker=8, precision="fp32", optimizer="adam", sizes=drawn["sizes"],
        step_time_s=drawn["step_s"], epoch_times_s=tuple(drawn["epochs"]), hosts=tuple(drawn["hosts"]),
    )  # fmt: skip
    path = tmp_path_factory.mktemp("csv") / "trials.csv"
    with path.open("w", encoding="utf-8") as file:
        assert write_results([trial], file) == 1
    assert read_results_csv(path) == [trial]
    assert TrialResult.from_dict(trial.to_dict()) == trial


def test_the_header_is_the_fields_in_order(result_of: Make) -> None:
    file = StringIO()
    write_results([result_of()], file)
    assert file.getvalue().splitlines()[0].split(",") == list(COLUMNS)
    assert COLUMNS[:3] == ("campaign", "key", "repeat")


@pytest.mark.parametrize(
    ("column", "text"),
    [("num_workers", "two"), ("num_workers", "1.5"), ("step_time_s", "inf"), ("hosts", "[")],
)
def test_cells_that_cannot_be_read_are_named(result_of: Make, column: str, text: str) -> None:
    with pytest.raises(CorpusError, match=rf"cannot be read: {column}: .*To fix"):
        TrialResult.from_dict({**result_of().to_dict(), column: text})


def test_other_files_are_refused(tmp_path: Path) -> None:
    other = tmp_path / "other.csv"
    other.write_text("a,b\n1,2\n", encoding="utf-8")
    with pytest.raises(CorpusError, match="other.csv is no table of trials"):
        read_results_csv(other)
    with pytest.raises(CorpusError, match="cannot be read"):
        read_results_csv(tmp_path / "none.csv")


def test_valid_means_measured_and_not_labelled(result_of: Make) -> None:
    trial = result_of()
    assert trial.valid
    assert not replace(trial, status="failed").valid
    assert not replace(trial, label="oversubscribed").valid
