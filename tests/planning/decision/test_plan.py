"""What a plan takes, refuses and says; its files and its command."""

import csv
import json
import shutil
import subprocess
from datetime import UTC, datetime

import numpy as np
import pytest

from precision_time.cli.main import main
from precision_time.errors import ConfigError, UnknownNameError
from precision_time.planning.decision.api import plan
from precision_time.planning.decision.candidate import Candidate
from precision_time.planning.decision.files import to_html, write_plot
from precision_time.planning.decision.limits import limits_of
from precision_time.planning.decision.timing import layout_fields
from precision_time.render.table import write_columns
from precision_time.render.terminal import text_of_blocks
from precision_time.request.request import Request

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
NOW = datetime(2030, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ({"deadline": "36h"}, {"deadline_s": 129600.0}),
        ({"deadline": "2030-01-02"}, {"deadline_s": 86400.0, "until": "2030-01-02 00:00 UTC"}),
        ({"deadline": "2030-01-01T06:00+02:00"}, {"deadline_s": 14400.0}),
        ({"budget": "$2.5k"}, {"budget_usd": 2500.0}),
        ({"budget": "450 EUR", "currency": "EUR=0.9"}, {"budget_usd": 500.0}),
        ({"budget": 450, "currency": "EUR=0.9"}, {"budget_usd": 500.0}),
        ({"carbon_kg": 2}, {"carbon_g": 2000.0}),
    ],
)
def test_limits_are_read(given, wanted):
    found = limits_of(**given, now=NOW)
    assert {name: getattr(found, name) for name in wanted} == wanted


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"deadline": "2029-12-31"}, "in the past"),
        ({"deadline": "2030-02-30"}, "no date of the calendar"),
        ({"deadline": "soon"}, "not a duration"),
        ({"deadline": "0h"}, "not a duration above 0"),
        ({"budget": 0}, "must be above 0"),
        ({"budget": "-5"}, "must be above 0"),
        ({"budget": "much"}, "no amount"),
        ({"budget": "5 EUR"}, "No rate for EUR"),
        ({"budget": "5 EUR", "currency": "GBP=0.8"}, "name one currency"),
        ({"budget": "5 bananas"}, "Unknown currency"),
        ({"currency": "EUR=0.9"}, "without a budget"),
        ({"carbon_kg": 0}, "must be above 0"),
        ({"confidence": 1.0}, "no probability"),
    ],
)
def test_limits_that_cannot_be_are_refused(given, words):
    with pytest.raises(ConfigError, match=words) as refused:
        limits_of(**given, now=NOW)
    assert "To fix" in str(refused.value)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"epochs": None}, "How long the run is"),
        ({"regions": "us-esat-1"}, "us-east-1"),
        ({"clouds": "amazon"}, "Unknown cloud"),
        ({"market": "futures"}, "on-demand, spot, reserved"),
        ({"devices": "H100x"}, "Unknown device"),
        ({"device": "H100"}, "what a plan chooses"),
        ({"gpus": 0}, "whole number of 1 or more"),
        ({"gpus": [32]}, "above max_gpus"),
        ({"devices": "T4", "regions": "us-west-2"}, "Nobody in the list of prices"),
        ({"epochs": None, "steps": 100, "global_batch_size": [64, 128]}, "not the same training"),
        ({"precision": "fp8-mixed", "devices": "T4"}, "None of the .* can be timed"),
    ],
)
def test_questions_that_cannot_be_are_refused(planned, given, words):
    with pytest.raises((ConfigError, UnknownNameError), match=words):
        planned(**given)


def test_of_a_named_data_set_one_epoch_is_planned_and_said(planned):
    asked = {
        "model": "gpt2",
        "adapter": "lora",
        "dataset": "alpaca",
        "devices": "T4",
        "global_batch_size": None,
    }
    found, said = planned(**asked, epochs=None), planned(**asked, epochs=1)
    assert any("one epoch" in each for each in found.assumptions)
    assert not any("one epoch" in each for each in said.assumptions)
    assert found.length == said.length
    assert [each.candidate.usd for each in found.choices] == [each.candidate.usd for each in said.choices]


def test_hosts_of_an_unknown_network_are_refused_with_what_joins_them():
    with pytest.raises(ConfigError, match=r"rents 32 x RTX4090 \(on-demand\)\. .*any_network=true"):
        plan("resnet50", epochs=1, devices=["RTX4090"], gpus=[32], max_gpus=32)


def test_where_nothing_keeps_the_limits_the_nearest_miss_is_said(planned, found):
    miss = planned(deadline="5m", budget=400).miss
    best, known = miss.candidate, found.judged.outcomes
    assert not best.feasible and "the deadline of 5 min" in miss.by
    # Within 30 hours some hosts are out of reach, so that others are the near ties.
    assert best.sure_s == pytest.approx(known.sure_s[np.isfinite(known.usd)].min(), rel=0.05)
    both = planned(deadline="5m", budget=1).miss
    assert "deadline" in both.by and "budget" in both.by
    assert any("together would do" in line for line in both.remedies)


def test_more_devices_are_offered_where_they_are_enough(planned):
    # A batch that fills 16 devices: of 256 images each waits for its host, and more devices hardly help.
    one_host = {"devices": "H100-SXM5-80GB", "gpus": [8], "max_gpus": 8, "clouds": "aws"}
    one_host |= {"global_batch_size": 4096}
    alone = planned(**one_host).judged.outcomes.time_s.min()
    miss = planned(**one_host, deadline=f"{0.98 * alone / 60:.2f}m", confidence=0.5).miss
    assert any("more devices would do: 16 x H100-SXM5-80GB" in line for line in miss.remedies)


def test_several_values_of_any_field_compete(planned):
    found = planned(
        devices="A100-SXM4-40GB", max_gpus=8, precision="tf32,bf16-mixed", global_batch_size=[128, 256]
    )
    columns = found.columns()
    asked = {*zip(columns["precision"], columns["global_batch_size"], strict=True)}
    assert asked == {("tf32", 128.0), ("tf32", 256.0), ("bf16-mixed", 128.0), ("bf16-mixed", 256.0)}
    assert found.best.request["precision"] == found.best.precision


def test_a_value_that_is_a_list_does_not_compete(planned):
    steps = [
        {"gpus": 8, "batch_size": 32, "step_time_s": 0.3},
        {"gpus": 8, "batch_size": 16, "step_time_s": 0.2},
    ]
    moved = planned(devices="A100-SXM4-40GB", max_gpus=8, anchors=steps)
    plain = planned(devices="A100-SXM4-40GB", max_gpus=8)
    assert moved.counts.asked == plain.counts.asked
    assert moved.best.step_time_s > 1.1 * plain.best.step_time_s  # slower than predicted, as was measured
    assert [*moved.best.request["anchors"]] == steps


def test_what_is_stated_of_the_run_counts(planned, found):
    best = planned(devices="A100-SXM4-40GB", market="spot", start_up="1h", reclaim_rate=1.0).best
    columns = found.columns()
    usual = [
        lost
        for lost, market in zip(columns["terms_s.lost_work"], columns["market"], strict=True)
        if market == "spot"
    ]
    assert best.terms_s["start_up"] == 3600.0 and best.terms_s["lost_work"] > max(usual) > 0.0


def test_own_devices_cost_what_they_draw():
    asked = {"epochs": 2, "global_batch_size": 64, "devices": ["RTX3090"], "max_gpus": 2, "own": True}
    found = plan("resnet50", **asked, kwh_price=0.4)
    best = found.choices[0].candidate
    assert best.cloud == "own"
    assert best.usd == pytest.approx(0.4 * best.energy_kwh)
    assert {candidate.gpus for candidate in found.front} == {1, 2}
    assert any("electricity" in text for text in found.assumptions)
    with pytest.raises(ConfigError, match="To fix: name yours"):
        plan("resnet50", epochs=2, own=True, kwh_price=0.4)


def test_a_request_says_what_competes(planned, offered):
    asked = Request(model="resnet50", device="T4", gpus=8, epochs=1, global_batch_size=256)
    columns = plan(asked, prices=offered).columns()
    assert {*columns["device"]} == {"T4"} and {*columns["gpus"]} == {8}


def test_json_holds_the_choices(found):
    back = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert [Candidate.from_dict(each["candidate"]) for each in back["choices"]] == [
        each.candidate for each in found.choices
    ]
    assert len(back["front"]) == len(found.front) and back["counts"]["feasible"] == found.counts.feasible


def test_the_page_says_choices_limits_and_what_ifs(found):
    page = str(found)
    for words in ("Cheapest: ", "Fastest: ", "Greenest: ", "Pareto front", "What if", "--why", "$400.00"):
        assert words.replace("$400.00", "$400") in page
    assert max(map(len, page.splitlines())) <= 120
    whole = text_of_blocks(found.blocks(why=True))
    assert "Break-even" not in whole and "What moves the answer" in whole and "Assumed: " in whole
    assert all(each.words.partition(":")[0] in whole for each in found.break_evens)
    assert found.best.label in repr(found) and "<table" in found._repr_html_()


def test_files_hold_all_candidates(found, tmp_path):
    write_columns(found.columns(), tmp_path / "plan.csv")
    rows = [*csv.DictReader((tmp_path / "plan.csv").read_text().splitlines())]
    assert len(rows) == found.counts.candidates and rows[0]["feasible"] == "True"
    write_plot(found, tmp_path / "plan.png")
    assert (tmp_path / "plan.png").read_bytes().startswith(b"\x89PNG")


def test_the_html_page_needs_nothing_else(found):
    page = to_html(found)
    assert "http" not in page.replace("http://www.w3.org/2000/svg", "") and "<script" in page
    [data] = page.split('id="data">')[1:]
    drawn = json.loads(data.partition("</script>")[0])
    assert len(drawn["rows"]) == found.counts.candidates
    assert [each["aim"] for each in drawn["choices"]] == [each.aim for each in found.choices]


@pytest.mark.skipif(BROWSER is None, reason="no browser is installed")
def test_a_browser_draws_the_candidates(found, tmp_path):
    page = tmp_path / "plan.html"
    page.write_text(to_html(found), encoding="utf-8")
    shown = subprocess.run(
        [str(BROWSER), "--headless", "--no-sandbox", "--disable-gpu", "--dump-dom", page.as_uri()],
        capture_output=True, text=True, timeout=60, check=True,
    ).stdout  # fmt: skip
    assert shown.count("<circle") > 10 and "shown candidates keep the limits" in shown
    assert f"<td>{found.best.gpus} x {found.best.device}</td>" in shown


def test_options_of_a_layout_are_read_back():
    assert layout_fields("--tp 8 --zero-stage 1 --no-reshard-after-forward --uneven -b 2") == {
        "tp": "8", "zero_stage": "1", "reshard_after_forward": False, "uneven": True, "batch_size": "2",
    }  # fmt: skip


def test_the_command(capsys, tmp_path):
    words = "plan resnet50 --epochs 30 --global-batch-size 256 --devices T4,H100 --max-gpus 8 --clouds aws"

    def asked(*further):
        with pytest.raises(SystemExit) as end:
            main([*words.split(), *further])
        return end.value.code, capsys.readouterr()

    table = tmp_path / "a.csv"
    code, said = asked("--deadline", "10d", "--budget", "900", "--json", "--out", str(table))
    assert code == 0 and json.loads(said.out)["choices"][0]["aim"] == "cheapest" and table.exists()
    code, said = asked("--deadline", "1m")
    assert code == 3 and "The nearest miss" in said.out
    code, said = asked("--deadline", "2020-01-01")
    assert code == 2 and "in the past" in said.err
    code, said = asked("--out", str(tmp_path / "a.gif"))
    assert code == 2 and "--out" in said.err
