"""The open benchmark of predictors: what it refuses, and that what it publishes is what it measured."""

from __future__ import annotations

import json
import math
import pickle
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from precision_time.corpus.jobs import job_of
from precision_time.corpus.store import load_corpus
from precision_time.learn.table import job_table
from precision_time.request.request import Request
from predictors import facts, fetch, fitting, page, run, worker
from predictors.contract import Answer, Told, as_if_fitted, checked, wrong_with

ENTRIES = sorted(run.ENTRIES.glob("*.py"))
HONEST = """
from predictors.contract import Answer
NAME, VERSION, CANNOT, VARIANTS = "planted", "1", "much", {"planted": {}}
def predict(rows, settings):
    return [Answer(seconds=1.0) for row in rows]
"""


@pytest.fixture(scope="module")
def rows() -> list[facts.Row]:
    """Of the edition."""
    return facts.rows_of()


def planted(folder: Path, text: str) -> Path:
    """A predictor in a file."""
    path = folder / "planted.py"
    path.write_text(text, encoding="utf-8")
    return path


def asked(path: Path, rows: Sequence[facts.Row], limit_s: float = 30.0) -> dict[str, tuple[Any, str]]:
    """Seconds and reason of each row, of a predictor in a process of its own."""
    known = path.with_suffix(".json")
    known.write_text("[]", encoding="utf-8")
    lines = run.answered(path, rows, known, limit_s)
    return {line["row"]: (line["predicted_s"], line["reason"]) for line in lines}


def of_sources(rows: Sequence[facts.Row], count: int) -> tuple[list[facts.Row], str]:
    """The rows of a few sources, and the second of these, where things go wrong."""
    names = list(dict.fromkeys(row["source"] for row in rows))[:count]
    return [row for row in rows if row["source"] in names], names[1]


@pytest.mark.parametrize("path", ENTRIES, ids=lambda path: path.stem)
def test_every_predictor_keeps_the_contract(path: Path) -> None:
    assert wrong_with(worker.load(path), facts.COLUMNS) == []


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (('"much"', '""'), "CANNOT"),
        (("def predict", "def predicted"), "no function predict"),
        (('{"planted": {}}', '{"planted": {"intra_bytes_per_s": 9e11}}'), "sets intra_bytes_per_s"),
        (("[Answer(seconds", "load_corpus() and [Answer(seconds"), "load_corpus"),
        (("predict(rows", "predict(rows"), ""),
    ],
)
def test_what_breaks_the_contract_is_told(tmp_path: Path, change: tuple[str, str], said: str) -> None:
    entry = worker.load(planted(tmp_path, HONEST.replace(*change)))
    found = wrong_with(entry, facts.COLUMNS)
    assert any(said in line for line in found) if said else found == []


def test_a_planted_leak_stops_the_predictor_before_it_is_fitted(
    tmp_path: Path, rows: list[facts.Row]
) -> None:
    learns = HONEST + "LEARNS, FITTED = True, []\ndef fit(known, settings):\n    FITTED.extend(known)\n"
    entry = worker.load(planted(tmp_path, learns))
    own, other = rows[0], next(row for row in rows if row["publisher"] != rows[0]["publisher"])
    task = {"rows": [facts.told(own)], "variant": "planted"}
    worker.answer(entry, task, [own, other])
    assert [row["row"] for row in entry.FITTED] == [other["row"]]  # The harness leaves out the publisher.
    renamed = {**own, "publisher": other["publisher"]}
    with pytest.raises(ValueError, match=f"leak: {own['source']}"):
        worker.answer(entry, task, [renamed])
    assert len(entry.FITTED) == 1


def test_no_publisher_is_in_two_folds(rows: list[facts.Row]) -> None:
    folds = [{row["publisher"] for row in part} for part in run.parts(rows, learns=True)]
    assert len(folds) == run.FOLDS
    assert sum(map(len, folds)) == len(set().union(*folds)) == len({row["publisher"] for row in rows})


def test_nobody_is_told_a_time(rows: list[facts.Row]) -> None:
    assert set(facts.told(rows[0])) == set(facts.COLUMNS) - {"measured_s"}


def test_ours_is_told_the_links_and_the_layout_that_the_others_are_told(rows: list[facts.Row]) -> None:
    """A request that says more or other than the columns would flatter ours."""
    for row in rows[::11]:
        request = Request.of(json.loads(row["request"]))
        found = facts.numbers_of(request.resolve(named_only=True), request)
        for name in facts.NUMBERS:
            value = None if found[name] is None else float(found[name])
            same = value is row[name] or math.isclose(value or 0.0, row[name] or 0.0, rel_tol=1e-5)
            assert same, f"{row['source']} {row['row']}: {name} is {row[name]}, the request says {value}"


def test_an_answer_without_the_links_of_the_row_is_refused(rows: list[facts.Row]) -> None:
    read, unread = Told(facts.told(rows[0])), Told(facts.told(rows[0]))
    assert read["intra_bytes_per_s"] is not None
    answers = [Answer(seconds=1.0), Answer(seconds=1.0)]
    first, second = checked([read, unread], answers, ("intra_bytes_per_s",))
    assert first.seconds == 1.0
    assert second.seconds is None
    assert "intra_bytes_per_s" in second.reason


def test_a_recorded_answer_holds_for_its_facts_and_settings_only(
    rows: list[facts.Row], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = run.ENTRIES / "simumax.py"
    entry = worker.load(path)
    answered = {line["row"] for line in run.recorded(entry, path, rows) if line["predicted_s"]}
    row = next(row for row in rows if row["row"] in answered)
    faster = {**row, "inter_bytes_per_s": 2.0 * row["inter_bytes_per_s"]}
    refused = next(iter(run.recorded(entry, path, [faster])))
    assert refused["predicted_s"] is None
    assert "not recorded of these facts" in refused["reason"]
    others = {name: {**given, "zero": "as it likes"} for name, given in entry.VARIANTS.items()}
    monkeypatch.setattr(entry, "VARIANTS", others)
    assert all("other settings" in line["reason"] for line in run.recorded(entry, path, [row]))


def test_a_utilization_fitted_to_the_scored_rows_is_noticed(rows: list[facts.Row]) -> None:
    entry = worker.load(run.ENTRIES / "six_nd.py")
    some = [row for row in rows if row["question"] == "dense"]
    measured_s = [row["measured_s"] for row in some]
    at_peak_s = [entry._at_peak_s(row) for row in some]
    ratios = sorted(peak / seconds for peak, seconds in zip(at_peak_s, measured_s, strict=True))
    assert as_if_fitted(measured_s, [peak / ratios[len(ratios) // 2] for peak in at_peak_s])
    assert as_if_fitted(measured_s, [peak / (sum(ratios) / len(ratios)) for peak in at_peak_s])
    for mfu in (0.3, 0.4, 0.5):
        assert not as_if_fitted(measured_s, [peak / mfu for peak in at_peak_s])


@pytest.mark.parametrize(
    ("does", "said"),
    [
        ("import time; time.sleep(600)", "hang"),
        ("import os; os._exit(3)", "crash"),
        ("raise KeyError('links')", "crash: KeyError"),
        ("return [Answer(seconds=-1.0)] * len(rows)", "nonsense"),
        ("return [Answer(seconds=float('inf'))] * len(rows)", "nonsense"),
        ("return [Answer(seconds=float('nan'))] * len(rows)", "nonsense"),
        ("return [Answer(seconds=2.0, low_s=3.0, high_s=4.0)] * len(rows)", "nonsense"),
        ("return [Answer(seconds=1.0)] * (len(rows) + 1)", "nonsense"),
        ("return [1.0] * len(rows)", "nonsense"),
        ("return [Answer()] * len(rows)", "nonsense"),
        ("return None", "nonsense"),
    ],
)
def test_who_fails_loses_the_rows_that_it_failed_on(
    tmp_path: Path, rows: list[facts.Row], does: str, said: str
) -> None:
    some, wrong = of_sources(rows, 3)
    fails = f"    if rows[0]['source'] == {wrong!r}:\n        {does}\n    return"
    path = planted(tmp_path, HONEST.replace("    return", fails))
    found = asked(path, some, limit_s=10.0 if said == "hang" else 30.0)
    for row in some:
        seconds, reason = found[row["row"]]
        if row["source"] == wrong:
            assert seconds is None
            assert said in reason
        else:
            assert seconds == 1.0


def test_a_crash_of_one_predictor_leaves_another_alone(tmp_path: Path, rows: list[facts.Row]) -> None:
    some, _ = of_sources(rows, 2)
    broken = asked(
        planted(tmp_path, HONEST.replace("    return", "    import os; os._exit(3)\n    return")), some
    )
    assert {seconds for seconds, _ in broken.values()} == {None}
    assert {seconds for seconds, _ in asked(planted(tmp_path, HONEST), some).values()} == {1.0}


def line(name: str, row: str, predicted_s: float, source: str = "a") -> facts.Row:
    """Of results: measured is one second."""
    return {
        "predictor": name, "row": row, "source": source, "question": "dense", "precision": "fp32",
        "predicted_s": predicted_s, "measured_s": 1.0, "low_s": None, "high_s": None,
        "seconds_per_answer": 0.001, "in_sample": "0",
    }  # fmt: skip


def test_the_first_line_says_where_others_win() -> None:
    names = [str(number) for number in range(8)]
    ours = [line("ours", name, 1.2) for name in names]
    worse = [line("peer", name, 1.4) for name in names]
    better = [line("peer", name, 1.1) for name in names[:6]]
    assert "no question" in page.first_line(page.Results([*ours, *worse]))
    said = page.first_line(page.Results([*ours, *better]))
    assert "peer" in said
    assert "10.0 % against 20.0 %" in said
    seen = [{**each, "in_sample": "1"} for each in better]  # Its constants were set by these rows.
    assert "no question" in page.first_line(page.Results([*ours, *seen]))


def test_errors_are_averaged_within_sources_first() -> None:
    lines = [line("peer", str(number), 1.1) for number in range(9)] + [line("peer", "x", 1.5, "b")]
    assert page.over_sources(lines) == pytest.approx(30.0)


def test_what_is_published_is_of_the_rows_of_the_edition(rows: list[facts.Row]) -> None:
    measured = {row["row"]: row["measured_s"] for row in rows}
    lines = page.read_results(run.RESULTS)
    by_name: dict[str, set[str]] = {}
    for each in lines:
        by_name.setdefault(each["predictor"], set()).add(each["row"])
        assert each["measured_s"] == pytest.approx(measured[each["row"]], rel=1e-4)
        assert each["predicted_s"] or each["reason"]
    variants = {name for path in ENTRIES for name in worker.load(path).VARIANTS}
    assert set(by_name) == variants
    assert all(found == set(measured) for found in by_name.values())
    assert not {row["source"] for row in rows} & set(facts.OUTSIDE)


def test_the_page_is_that_of_the_results() -> None:
    said: Mapping[str, Any] = json.loads(run.RESULTS.with_suffix(".json").read_text(encoding="utf-8"))
    text = page.page(page.read_results(run.RESULTS), said, run.FOLDS)
    assert page.PAGE.read_text(encoding="utf-8").startswith(text.rstrip())


def test_peers_are_pinned_alike_everywhere() -> None:
    for path in ENTRIES:
        entry: ModuleType = worker.load(path)
        if peer := getattr(entry, "CHECKOUT", ""):
            assert fetch.listed()[peer]["commit"] == entry.VERSION
            kept = json.loads((run.RECORDED / f"{path.stem}.json").read_text(encoding="utf-8"))
            assert kept["commit"] == entry.VERSION


def test_ours_prices_a_row_as_the_run_that_it_is(rows: list[facts.Row]) -> None:
    """What a row says in words is all that our formulas know of the run, and they lose none of it."""

    def key(row: facts.Row) -> tuple[Any, ...]:
        names = ("source_ref", "measured_s", "model", "precision", "devices", "micro_batch_size")
        return tuple(row[name] for name in names)

    by_key = {key(row): row for row in rows}
    some = {"torchtune", "nemo", "u39kun-dl-benchmark"}
    runs = [each for each in load_corpus() if each.source in some and facts.beyond_doubt(each)]
    found = [(key(facts.facts_of(each)[0]), job_of(each)) for each in runs]
    asked = [(by_key[each]["request"], job) for each, job in found if each in by_key]
    # An edition keeps the years that were assumed when it was drawn, which may be read otherwise since.
    asked = [
        (text, job)
        for text, job in asked
        if json.loads(text).get("software") == pytest.approx(job.stack.framework_year)
    ]
    assert len(asked) > 20
    answers = [seconds for seconds, _, _ in fitting.ask([request for request, _ in asked], trees=False)]
    assert answers == pytest.approx(job_table([job for _, job in asked]).analytical_s.tolist(), rel=1e-9)


def test_ours_learns_in_processes_that_can_find_what_they_run() -> None:
    entry = worker.load(run.ENTRIES / "ours.py")
    for function in (entry.fitting.learn, entry.fitting.ask):
        assert pickle.loads(pickle.dumps(function)) is function
