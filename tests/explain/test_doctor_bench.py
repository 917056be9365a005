"""The doctor on public threads whose cause was found: the figures are what it says now, both halves."""

import importlib.util
import json
import sys
from pathlib import Path

import pytest

from precision_time.io import packaged_toml

FOLDER = Path(__file__).parents[2] / "benchmarks" / "doctor"
ROWS = packaged_toml("precision_time.explain", "data/causes.toml")["cause"]


@pytest.fixture(scope="module")
def bench():
    spec = importlib.util.spec_from_file_location("doctor_bench", FOLDER / "run.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # its dataclasses look themselves up
    spec.loader.exec_module(module)
    return module


def test_the_figures_are_those_that_are_kept(bench):
    kept = json.loads((FOLDER / "results.json").read_text(encoding="utf-8"))
    assert bench.figures(list(bench.cases())) == kept


def test_the_guide_has_the_figures():
    kept = json.loads((FOLDER / "results.json").read_text(encoding="utf-8"))
    part = {name: (each["first"], each["first_three"]) for name, each in kept.items()}
    guide = " ".join((FOLDER.parents[1] / "docs" / "guides" / "running.md").read_text("utf-8").split())
    for text, name in (
        ("the right one is first in {} and among the first three in {}.", "all"),
        ("in which the weights were counted it is {} and {},", "open"),
        ("that decided nothing {} and {}.", "held_back"),
    ):
        assert text.format(*part[name]) in guide


def test_the_weights_are_counted_in_the_open_half(bench):
    assert {row["name"]: row["weight"] for row in ROWS} == bench.weights()


def test_every_thread_has_an_address_a_source_and_a_known_cause(bench):
    threads = bench.threads()
    assert len({row["url"] for row in threads}) == len(threads)
    for row in threads:
        assert row["url"].startswith("https://")
        assert row["from"]
        assert ": " in row["confirmed"]  # who: what
        assert set(row["cause"]) <= {cause["name"] for cause in ROWS}
        assert not row["job"].keys() & {"intra_node", "inter_node", "network", "anchors"}
    halves = [bench.held_back(row["url"]) for row in threads]
    assert 0.3 <= sum(halves) / len(halves) <= 0.7
