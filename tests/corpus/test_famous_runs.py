"""The published trainings that ship: facts that agree with each other and with what is typed for them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from precision_time.cli.request_options import requests_in_words
from precision_time.errors import CorpusError, LayoutError
from precision_time.request.request import Request
from published_runs import FamousRun, famous_runs

KEPT_BACK = re.compile(
    r"pythia|internlm|nemotron-?4|bloomberg|mt-nlg|megatron-turing|\bllama-?1\b(?!\.)|korthikanti|ffcv|deit|guanaco|"
    r"mosaic.*diffusion|diffusion.*mosaic|\bglue\b|xnli|deepspeed.*bert|\bt5-v1|yalm|llama-?3\.2|hyperclova|kempner",
    re.IGNORECASE,
)
"""Families that are kept for scoring."""
SECONDS = {
    "s": 1,
    "minutes": 60,
    "hours": 3600,
    "day": 86400,
    "days": 86400,
    "s a step": 1,
    "ms a step": 1e-3,
}
RUNS = famous_runs()


def batch_of(words: str) -> float:
    return request_of(words).resolve().layout.global_batch_size


def request_of(words: str) -> Request:
    (request,) = requests_in_words(words.split())
    return request


def per_phase(values: tuple[float, ...], phases: int) -> tuple[float, ...]:
    return values * phases if len(values) == 1 else values


def test_every_run_has_a_name_of_its_own_and_none_is_of_a_family_kept_back() -> None:
    assert len(RUNS) > 190
    assert len({run.name for run in RUNS}) == len(RUNS)
    told = (" ".join((run.name, run.model, run.source, run.reported)) for run in RUNS)
    assert [text for text in told if KEPT_BACK.search(text)] == []


@pytest.mark.parametrize("run", RUNS, ids=lambda run: run.name)
def test_figures_of_a_run_agree(run: FamousRun) -> None:
    if run.reported == "GPU-hours":
        assert run.seconds == pytest.approx(run.value * 3600 / run.devices, rel=1e-3)
    if run.reported in SECONDS:
        assert run.seconds == pytest.approx(run.value * SECONDS[run.reported], rel=1e-3)
    samples = per_phase(run.global_batch, len(run.steps))
    if run.samples and run.steps:
        assert sum(n * batch for n, batch in zip(run.steps, samples, strict=True)) == pytest.approx(
            run.samples, rel=0.02
        )
    if run.tokens:
        assert run.length_unit == "tokens"
        lengths = per_phase(run.length, len(run.steps))
        seen = sum(n * batch * length for n, batch, length in zip(run.steps, samples, lengths, strict=True))
        assert seen == pytest.approx(run.tokens, rel=0.02)
    assert run.scope == "run" or run.steps in ((1.0,), ())


@pytest.mark.parametrize("run", [run for run in RUNS if run.steps], ids=lambda run: run.name)
@pytest.mark.parametrize("column", ["plain", "typed"])
def test_what_is_typed_says_the_devices_precision_and_length_of_the_run(run: FamousRun, column: str) -> None:
    lines = getattr(run, column)
    lengths = per_phase(run.length, len(lines)) or (None,) * len(lines)
    for words, length in zip(lines, lengths, strict=True):
        request = request_of(words)
        assert request.gpus == run.devices
        assert request.precision == run.precision
        assert request.seq_len in ({length} if run.length_unit == "tokens" else {None})


LAYOUT = re.compile(r"--(tp|pp|zero-stage|stack|vpp|recompute|node-type|stage-layers)\b")


@pytest.mark.parametrize("run", RUNS, ids=lambda run: run.name)
def test_a_user_says_no_layout_and_the_batch_of_the_run_unless_it_is_refused(run: FamousRun) -> None:
    assert not [words for words in run.plain if LAYOUT.search(words)]
    if not run.steps or not run.global_batch:
        return
    for words, wanted in zip(run.plain, per_phase(run.global_batch, len(run.plain)), strict=True):
        if batch_of(words) == pytest.approx(wanted):
            continue
        true = re.sub(r"--global-batch-size \d+", f"--global-batch-size {wanted:g}", words)
        with pytest.raises(LayoutError, match="does not divide"):
            batch_of(true)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (("Llama-2 7B,llm-large", "Llama-2 7B,"), "line 2: kind='' is empty"),
        ((",B,run,1296000,", ",D,run,1296000,"), "line 2: trust='D' is not known"),
        ((",B,run,1296000,", ",B,run,-5,"), "line 2: seconds='-5' is negative"),
        ((",B,run,1296000,476837.16,", ",B,run,1296000,1 | 2,"), "line 2: steps='1 | 2' is not of 1 phases"),
        ((",B,run,1296000,476837.16,", ",B,run,1296000,,"), "line 2: steps='' is empty"),
        (("476837.16,llama2-7b", "476837.16,a | llama2-7b"), "line 2: plain="),
        (("Llama-2 7B,llm-large,", "Llama-2 7B,"), "line 2: the row does not have 24 cells"),
        (("name,kind,", "kind,name,"), "line 1: the columns are kind, name"),
    ],
)
def test_a_broken_cell_is_named_with_its_line(tmp_path: Path, changed: tuple[str, str], message: str) -> None:
    shipped = Path(__file__).parents[2] / "data/famous_runs.csv"
    lines = shipped.read_text(encoding="utf-8").splitlines(keepends=True)[:2]
    text = "".join(lines).replace(*changed, 1)
    assert text != "".join(lines)
    path = tmp_path / "runs.csv"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(CorpusError, match=re.escape(message)):
        famous_runs(path)
