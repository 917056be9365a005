"""Other names of fields answer at every door: of the release before with one remark, others with none."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import precision_time
from precision_time.cli.request_options import requests_in_words
from precision_time.errors import ConfigError, LayoutError
from precision_time.planning.layouts.api import find_layouts
from precision_time.request.files import read_requests
from precision_time.request.request import Request
from precision_time.request.schema import ALIASES, MOVED, RequestFields

JOB = {"model": "mixtral-8x7b", "device": "H100-SXM5-80GB", "gpus": 64, "tp": 2, "batch_size": 1}
OLD: dict[str, tuple[Any, dict[str, Any]]] = {
    "grad_accum": (2, {}),
    "num_micro_batches": (2, {}),
    "virtual_pp": (2, {"pp": 4, "num_microbatches": 8}),
    "expert_tp": (1, {"ep": 4}),
    "expert_capacity": (1.25, {"ep": 4}),
    "context_method": ("all-gather", {"cp": 2}),
    "shard_size": (8, {"zero_stage": 3}),
    "checkpointing": ("full", {}),
}
"""A value of each, and what it needs besides."""
CODE = "renamed-field"


def asked(name: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The same job by the old name and by the new."""
    value, beside = OLD[name]
    return {**JOB, **beside, name: value}, {**JOB, **beside, MOVED[name]: value}


def remarks(request: Request) -> list[str]:
    return [item.text for item in request.resolve().diagnostics if item.code == CODE]


def said(old: str, new: str) -> list[str]:
    return [f"{old} is called {new} now; the old name goes with the next release."]


def test_every_moved_name_is_asked_here_and_leads_to_a_field() -> None:
    assert OLD.keys() == MOVED.keys()
    fields = RequestFields.model_fields
    assert {*MOVED.values(), *ALIASES.values()} <= fields.keys()
    assert not (MOVED.keys() | ALIASES.keys()) & fields.keys()


@pytest.mark.parametrize("name", MOVED)
def test_as_a_keyword_and_under_layout(name: str) -> None:
    old, new = asked(name)
    value = old.pop(name)
    for request in (Request.of({**old, name: value}), Request.of({**old, "layout": {name: value}})):
        assert request == Request.of(new)
        assert request.resolve().layout == Request.of(new).resolve().layout
        assert remarks(request) == said(name, MOVED[name])
    assert remarks(Request.of(new)) == []


@pytest.mark.parametrize("name", MOVED)
def test_as_an_option(cli: Callable[..., Any], name: str) -> None:
    def words(fields: dict[str, Any]) -> list[str]:
        options = ((f"--{field.replace('_', '-')}", str(value)) for field, value in fields.items())
        return [word for pair in options for word in pair]

    old, new = ({**fields} for fields in asked(name))
    model = old.pop("model"), new.pop("model")
    before, now = (
        cli("predict", model[0], *words(old), "--json"),
        cli("predict", model[1], *words(new), "--json"),
    )
    assert (before.code, now.code) == (0, 0)
    first, second = json.loads(before.out), json.loads(now.out)
    assert [each["step_time_s"] for each in first["predictions"]] == [
        each["step_time_s"] for each in second["predictions"]
    ]
    spelled = [f"--{each.replace('_', '-')}" for each in (name, MOVED[name])]
    assert said(*spelled)[0] in before.out and " is called " not in now.out


@pytest.mark.parametrize("name", MOVED)
def test_in_a_job_file_and_a_table(tmp_path: Path, name: str) -> None:
    old, new = asked(name)
    job, table = tmp_path / "job.json", tmp_path / "jobs.csv"
    job.write_text(json.dumps(old), encoding="utf-8")
    with table.open("w", newline="", encoding="utf-8") as lines:
        writer = csv.DictWriter(lines, old)
        writer.writeheader()
        writer.writerow(old)
    for path in (job, table):
        [request] = read_requests(path)
        assert request == Request.of(new)
        assert remarks(request) == said(name, MOVED[name])


@pytest.mark.parametrize("name", MOVED)
def test_in_a_sweep(name: str) -> None:
    old, new = asked(name)
    [before], [now] = precision_time.predict_many([old]), precision_time.predict_many([new])
    assert before.step_time_s == now.step_time_s


@pytest.mark.parametrize(
    ("word", "fields"),
    [
        ("full:16", {"recompute": "full", "recompute_layers": 16}),
        ("full:0.5", {"recompute": "full", "recompute_layers": 0.5}),
        ("full:1.0", {"recompute": "full"}),
        (
            "selective:core_attn+layernorm",
            {"recompute": "selective", "recompute_modules": "core_attn,layernorm"},
        ),
        ("selective", {"recompute": "selective"}),
    ],
)
def test_what_checkpointing_said_behind_a_colon(word: str, fields: dict[str, Any]) -> None:
    old = Request.of({**JOB, "checkpointing": word})
    assert old.resolve().layout == Request.of({**JOB, **fields}).resolve().layout
    assert remarks(old) == said("checkpointing", "recompute")


@pytest.mark.parametrize(("first", "second"), [("grad_accum", "num_microbatches"), ("batch", "batch_size")])
def test_two_names_of_one_field_with_two_values_are_refused(first: str, second: str) -> None:
    given = {"model": "gpt2", first: 2, second: 4}
    with pytest.raises(ConfigError, match=f"{second}=4 names the same as .*=2. To fix: give only one"):
        Request.of(given)
    assert Request.of({**given, second: 2}) == Request.of({"model": "gpt2", second: 2})


def test_another_value_by_another_name_takes_the_place() -> None:
    request = Request(model="gpt2", num_microbatches=2)
    assert request.with_(gradient_accumulation_steps=4).num_microbatches == 4
    assert request.with_(grad_accum=4).num_microbatches == 4


THEIRS: dict[str, Any] = {
    "num_gpus": 64, "world_size": 64, "sequence_length": 512, "max_seq_len": 512, "max_seq_length": 512,
    "context_length": 512, "num_devices": 64, "devices": 64, "num_nodes": 8,
    "micro_batch_size": 2, "batch_per_device": 2,
    "batch": 2, "global_batch": 64, "dataset_samples": 1000, "timing_scope": "with-input",
    "system": "DGX-H100", "zero": 1, "gradient_accumulation_steps": 2, "num_samples": 1000, "num_epochs": 2,
    "max_steps": 10, "train_tokens": 1_000_000, "year": 2024.5, "model_config": {"layers": 4},
}  # fmt: skip
"""A value of each other name that stays."""


@pytest.mark.parametrize("name", ALIASES)
def test_words_of_other_frameworks_answer_at_every_door_without_a_remark(name: str, tmp_path: Path) -> None:
    value = THEIRS[name]
    ours, theirs = ({"model": "gpt2", each: value} for each in (ALIASES[name], name))
    wanted = Request.of(ours)
    job, table = tmp_path / "job.json", tmp_path / "jobs.csv"
    job.write_text(json.dumps(theirs), encoding="utf-8")
    text = "layers=4" if isinstance(value, dict) else str(value)
    found = [Request.of(theirs), *read_requests(job)]
    for flag in (["--" + name.replace("_", "-")], ["--set", f"{name}="]):
        words = [*flag, text] if len(flag) == 1 else [flag[0], flag[1] + text]
        found += requests_in_words(["gpt2", *words])
    if not isinstance(value, dict):
        table.write_text(f"model,{name}\ngpt2,{text}\n", encoding="utf-8")
        found += read_requests(table)
    assert found == [wanted] * len(found)
    assert not any(request.old_names for request in found)


def test_the_batch_of_the_founding_call_is_that_of_a_device() -> None:
    plain, theirs = (
        precision_time.predict_time(model="resnet50", precision="mixed_fp16_fp32", gpus=8, **{name: 256})
        for name in ("batch_size", "micro_batch_size")
    )
    assert theirs.to_dict() == plain.to_dict()
    assert (plain.batch_size, plain.global_batch_size) == (256, 2048)
    assert not any(item.code == CODE for item in theirs.diagnostics)


COPIES = {"model": "llama3-8b", "device": "H100-SXM5-80GB", "gpus": 16, "batch_size": 1, "seq_len": 4096}


@pytest.mark.parametrize(
    ("copies", "given", "same"),
    [
        (1, {}, {"zero_stage": 3}),
        (2, {}, {"dp_shard": 8}),
        (2, {"cp": 2}, {"dp_shard": 8}),
        (2, {"cp": 2, "dp_shard": 8}, {}),
        (4, {"tp": 2, "zero_stage": 1}, {"dp_shard": 2}),
        (16, {}, {"zero_stage": 0}),
        (0, {"dp_shard": 4}, {}),
    ],
)
def test_dp_replicate_counts_copies_at_every_door(
    copies: int, given: dict[str, Any], same: dict[str, Any], tmp_path: Path
) -> None:
    wanted = Request.of({**COPIES, **given, **same}).resolve().layout
    theirs = {**COPIES, **given, "dp_replicate": copies}
    job, table = tmp_path / "job.json", tmp_path / "jobs.csv"
    job.write_text(json.dumps({**COPIES, **given, "layout": {"dp_replicate": copies}}), encoding="utf-8")
    table.write_text(
        "\n".join(",".join(map(str, line)) for line in (theirs, theirs.values())), encoding="utf-8"
    )
    words = [
        f"--set={name}={value}" for name, value in theirs.items() if name not in ("model", "dp_replicate")
    ]
    found = [
        Request.of(theirs),
        *read_requests(job),
        *read_requests(table),
        *requests_in_words([COPIES["model"], *words, "--dp-replicate", str(copies)]),
    ]
    assert [request.resolve().layout for request in found] == [wanted] * 4


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"dp_replicate": 3}, r"dp_replicate\(3\) does not divide dp\(16\). To fix: dp_replicate="),
        ({"dp_replicate": 2, "zero_stage": 0}, "leaves a copy to 8 ranks, .* To fix: zero_stage=3"),
        ({"dp_replicate": 2, "cp": 2, "dp_shard": 4}, "To fix: dp_shard=8, which counts context ranks"),
    ],
)
def test_copies_that_contradict_the_layout_are_refused(given: dict[str, Any], says: str) -> None:
    with pytest.raises(LayoutError, match=says):
        Request.of({**COPIES, **given}).resolve()


def test_a_search_of_layouts_with_so_many_copies() -> None:
    found = find_layouts(
        **{**COPIES, "batch_size": None}, global_batch_size=64, fix=("dp_replicate=2",), top=5
    )
    assert found.ranked
    for each in found.ranked:
        layout = each.layout
        assert layout.zero_stage == 3 and layout.data_ranks == 2 * layout.shard_ranks
