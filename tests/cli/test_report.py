"""`report` prints the requested tables, and refuses files that it could not write."""

from __future__ import annotations

import json
from pathlib import Path

import pytest


def test_a_table_as_text_json_and_markdown(cli, tmp_path: Path) -> None:
    page = tmp_path / "report.md"
    words = ("papers", "report", "--only", "t1", "--sample", "200", "--out", str(page))
    answer = cli(*words)
    assert answer.code == 0
    assert "T1 Precision spread" in answer.out
    assert "max/min" in answer.out
    assert answer.err == f"Wrote {page}\n"
    assert "| max/min |" in page.read_text(encoding="utf-8")
    said = json.loads(cli(*words, "--json").out)
    assert list(said["sections"]) == ["T1"]
    assert said["card"]["sample"] == 200
    assert said["sections"]["T1"]["figures"]["T1.max_spread"]["value"] > 1.0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--only", "T1,T9"], "--only T9: there is no such table"),
        (["--seeds", "0"], "--seeds 0: at least one seed"),
        (["--folds", "1"], "--folds 1: at least 2 folds are needed"),
        (["--sample", "3"], "--sample 3: folds and trees need at least 200 runs"),
        (["--out", "no-such-folder/a.html"], "--out no-such-folder/a.html: its folder does not exist"),
    ],
)
def test_wrong_options_are_refused(cli, words: list[str], message: str) -> None:
    answer = cli("papers", "report", *words)
    assert (answer.code, answer.out) == (2, "")
    assert message in answer.err
