"""`--set FIELD=VALUE`, and fields of a job that are typed as options although the help does not show them."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from command_page import every_command
from precision_time.cli.main import load_command
from precision_time.cli.request_options import SHOWN, requests_in_words
from precision_time.cli.settings import as_settings, settings_of
from precision_time.fields import plain_type
from precision_time.planning.run.schema import RunOptions
from precision_time.request.schema import RequestFields

FIELDS = {name: info for name, info in RequestFields.model_fields.items() if info.option and name != "model"}


@pytest.mark.parametrize(
    ("words", "settings"),
    [
        ("--lora-rank 8", ["--set", "lora_rank=8"]),
        ("--lora-rank=8", ["--set", "lora_rank=8"]),
        ("--packing", ["--set", "packing=true"]),
        ("--no-packing", ["--set", "packing=false"]),
        ("--anchor a=1 --anchors b=2", ["--set", "anchors=a=1", "--set", "anchors=b=2"]),
        ("--out --lora-rank", ["--out", "--lora-rank"]),
        ("-- --lora-rank 8", ["--", "--lora-rank", "8"]),
        ("--json --lora-rank 8", ["--json", "--set", "lora_rank=8"]),
        ("--no-such 8", ["--no-such", "8"]),
        ("-b 16 -g8 -", ["--set", "batch_size=16", "--set", "gpus=8", "-"]),
        ("--packing=yes", ["--packing=yes"]),
    ],
)
def test_words_become_settings(words: str, settings: list[str]) -> None:
    found = as_settings(words.split(), FIELDS, {"--out": True, "--json": False})
    assert found == settings


@pytest.mark.parametrize("name", sorted(FIELDS.keys() - SHOWN))
def test_a_field_said_by_set_is_the_field_typed_as_an_option(name: str) -> None:
    info = FIELDS[name]
    value = "true" if plain_type(info.annotation) is bool else "1"
    flag = info.option.flags[0] if info.option and info.option.flags else f"--{name.replace('_', '-')}"
    typed = as_settings([flag] if value == "true" else [f"{flag}={value}"], FIELDS, {})
    assert typed[0] == "--set"
    assert settings_of([typed[1]], lambda: FIELDS, {}) == settings_of([f"{name}={value}"], lambda: FIELDS, {})


def test_both_ways_ask_the_same_request() -> None:
    words = "bert-large -d A100 --adapter lora"
    [by_option] = requests_in_words(f"{words} --lora-rank 4 --coverage 0.8 --no-packing".split())
    [by_set] = requests_in_words(f"{words} --set lora-rank=4 --set coverage=0.8 --set packing=no".split())
    assert by_option == by_set
    assert by_set.lora_rank == 4


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--set lora_rnk=8", "Did you mean lora_rank"),
        ("--set lora_rank", "is not FIELD=VALUE"),
        ("--tp 2 --set tp=4", "is given by its option and by --set"),
        ("--lora-rank", "has no value"),
        ("--set lora_rank=many", "lora-rank"),
    ],
)
def test_wrong_settings_say_the_remedy(cli: Callable[..., Any], words: str, said: str) -> None:
    answer = cli("predict", "bert-large", *words.split())
    assert (answer.code, answer.out) == (2, "")
    assert said in answer.err and "To fix" in answer.err


def test_fields_of_a_run_are_taken_where_a_run_is_asked(cli: Callable[..., Any]) -> None:
    words = ("estimate", "docs/examples/skypilot-task.yaml", "--json")
    typed, said = cli(*words, "--mtbf", "100h"), cli(*words, "--set", "mtbf=100h")
    assert json.loads(typed.out) == json.loads(said.out)
    assert "mtbf" in RunOptions.model_fields


def test_the_help_shows_the_usual_fields_alone() -> None:
    for path, command in every_command():
        if (fields := getattr(command.callback, "fields", None)) is not None:
            shown = {item.name for item in command.params} & FIELDS.keys()
            own = {item.name for item in command.params if item.name not in fields()}
            assert shown <= SHOWN | own, path
    assert {item.name for item in load_command("predict").params} >= SHOWN
