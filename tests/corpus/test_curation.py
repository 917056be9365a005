"""What is known of our own sources, and which of their rows are left out, never touches a user's file."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from precision_time.corpus.importer import measurement_of, read_measurements
from precision_time.corpus.measurement import Measurement, Rejected
from precision_time.corpus.own import read_own_steps, read_priced_steps, unresolved_steps
from precision_time.corpus.rules import load_rules
from precision_time.corpus.schema import Row
from precision_time.io import packaged_toml
from precision_time.learn.artifact import shipped_predictor
from precision_time.learn.calibration.fit import calibrate_file

RULES, CURATION = (
    packaged_toml("precision_time.corpus", f"data/{name}.toml") for name in ("rules", "curation")
)
TABLES = [name for name, rules in RULES.items() if isinstance(rules, list)]
OF_A_SOURCE = {"source", "source_ref", "run_id"}
DECODER = {
    "device": "A100-SXM4-80GB",
    "devices": 8,
    "precision": "bf16-mixed",
    "batch_per_device": 1,
    "seq_len": 2048,
    "global_batch": 8,
    "parallelism": '{"zero":3}',
    "step_time_s": 0.9,
}


@pytest.mark.parametrize("table", TABLES)
def test_rules_for_everybody_ask_for_no_source(table: str) -> None:
    """But for rows that `precision-time measure` writes, which are anybody's."""
    for rule in RULES[table]:
        when = rule.get("when", {})
        assert not OF_A_SOURCE & when.keys() or when["source"] == "^own-", rule


def test_rules_of_our_own_come_first_and_for_our_own_rows_alone() -> None:
    for table in {*TABLES, *CURATION} - {"rounds"}:
        for_all, ours = load_rules(table), load_rules(table, curated=True)
        assert ours[len(ours) - len(for_all) :] == for_all
        assert len(ours) == len(for_all) + len(CURATION.get(table, ()))


@pytest.mark.parametrize(
    "texts",
    [
        {"model": "internlm-7b"},
        {"model": "internlm2-20b"},
        {"model": "internlm-7b", "source": "colossalai-readme"},
        {"model": "llama-7b", "source": "colossalai-readme"},
        {"model": "llama-7b", "source": "ms-swift", "notes": "padding unknown", "seq_len": ""},
        {"model": "llama-7b", "source": "fugaku-llm", "run_id": "lorafa"},
        {"model": "llama-7b", "source": "mlperf-v4.0", "quality": ""},
    ],
)
def test_rows_of_a_user_are_read(write_csv: Callable[..., Path], texts: dict[str, object]) -> None:
    path = write_csv({**DECODER, **texts})
    [step] = read_own_steps(path)
    assert step.job is not None, step.reason
    assert step.measured_s == DECODER["step_time_s"]
    assert step.job.layout.zero_stage == 3
    [priced], rejected = read_priced_steps(path)
    assert priced.measured_s == step.measured_s and not rejected
    assert len(calibrate_file(path, shipped_predictor()).points.places) == 1


def test_the_same_row_of_our_own_corpus_is_left_out(write_csv: Callable[..., Path]) -> None:
    path = write_csv({**DECODER, "model": "internlm-7b"})
    [ours] = read_measurements(path, curated=True)
    [theirs] = read_measurements(path)
    assert isinstance(ours, Measurement) and isinstance(theirs, Measurement)
    assert not ours.usable and "tests of unseen models" in ours.quality_reason
    assert theirs.usable and not theirs.quality_reason


def test_raw_rows_of_ours_in_a_users_file_are_read_as_they_stand(
    raw_rows: list[Row], imported: list[Measurement | Rejected]
) -> None:
    """Of each source: nothing that the curation says or sets is in what is read."""
    said = {
        text
        for rules in CURATION.values()
        if isinstance(rules, list)
        for rule in rules
        for text in (rule.get("why"), rule.get("doubt"), rule.get("reason"), rule.get("quality"))
        if text
    }
    said -= {rule["why"] for table in TABLES for rule in RULES[table] if "why" in rule}
    seen = 0
    for row, ours in zip(raw_rows, imported, strict=True):
        theirs = measurement_of(row)
        if isinstance(ours, Measurement) and isinstance(theirs, Measurement):
            seen += bool(said & {*ours.assumptions})
            assert not said & {*theirs.assumptions, *theirs.quality_reason.split("; ")}
            same = measurement_of(replace(row, cells={**row.cells, "source": "mine"}))
            assert isinstance(same, Measurement)
            if not row.text("source").startswith("own-"):
                assert replace(same, source="", configuration_key="") == replace(
                    theirs, source="", configuration_key=""
                )
    assert seen


def test_unresolved_rows_are_a_users(write_csv: Callable[..., Path]) -> None:
    assert not any(step.row.curated for step in unresolved_steps(write_csv({**DECODER, "model": "llama-7b"})))
