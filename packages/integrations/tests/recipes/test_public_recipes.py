"""Public recipes of many projects (`sources.csv`, `collect.py`): all read, or refused with the reason."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import pytest

from precision_time.errors import ConfigError
from precision_time.request.recipes import kind_of
from precision_time.request.request import Request
from precision_time.workload.resolve import adapter_in_name, is_known_model
from precision_time_integrations.recipes.documents import read_document
from precision_time_integrations.recipes.files import read_recipe
from precision_time_integrations.recipes.recipe import Recipe

_HERE = Path(__file__).parent
_PUBLIC = _HERE / "public"
_ROWS = list(csv.DictReader((_HERE / "sources.csv").read_text().splitlines()))
_DOCUMENTS = [row["file"] for row in _ROWS if not row["file"].endswith((".sh", ".py"))]
REFUSED = {
    "nemo/custom_recipe.py": "makes 2 recipes",
    "nemo/default_executor.py": "names a file alone",
    "unsloth/Llama3_8B-ORPO.py": "makes 2 trainers \\(lines",
    "unsloth/LFM2.5_1.2B-Translation.py": "makes 2 trainers \\(lines",
}
"""Files that cannot be read, and why."""
_NO_MODEL = (
    "accelerate/",
    "deepspeed/",
    "megatron/train.sh",
    "nanotron/config_mamba",
    "torchtune/7B_full_ppo",
)
"""Files that name no model: configurations of launchers, kinds of models that are not modeled."""


def read(file: str) -> Recipe:
    path = str(_PUBLIC / file)
    return read_recipe(path, kind_of(path))


def test_there_are_as_many_as_were_asked_for() -> None:
    assert len(_ROWS) >= 60
    assert len({row["file"].partition("/")[0] for row in _ROWS}) >= 12
    assert {str(path.relative_to(_PUBLIC)) for path in _PUBLIC.rglob("*.*")} == {row["file"] for row in _ROWS}
    assert all(row["repository"] and row["commit"] and row["licence"] for row in _ROWS)


def test_values_alone_were_copied() -> None:
    for path in _PUBLIC.rglob("*.*"):
        lines = path.read_text().splitlines()
        comments = [line for line in lines if re.match(r"\s*#(?!!/bin/bash)", line)]
        assert not comments, path


@pytest.mark.parametrize("file", [row["file"] for row in _ROWS])
def test_a_public_recipe_is_read_or_refused_with_the_reason(file: str) -> None:
    if file in REFUSED:
        with pytest.raises(ConfigError, match=REFUSED[file]):
            read(file)
        return
    recipe = read(file)
    if file.startswith(_NO_MODEL):
        with pytest.raises(ConfigError, match=r"names no model.*To fix: give --model"):
            recipe.merged({})
        recipe.merged({"model": "llama3-8b"})
        return
    fields = recipe.merged({})
    assert Request.of(fields).model == fields["model"]
    known = is_known_model(fields["model"]) or adapter_in_name(fields["model"]) or fields.get("sizes")
    assert known or any("no model of that name is known" in text for text in recipe.unread)


@pytest.mark.parametrize("file", _DOCUMENTS)
def test_no_key_is_dropped_in_silence(file: str) -> None:
    recipe = read(file)
    told = {said.key for said in recipe.read}
    unread = "\n".join(recipe.unread)
    for key, value in read_document(file, (_PUBLIC / file).read_text()).items():
        off = value.word.lower() in ("", "null", "none", "auto", "false", "0", "0.0")
        idle = key in recipe.idle or f"{key.partition('.')[0]}.*" in recipe.idle
        assert key in told or idle or off or f"{key}=" in unread, key


@pytest.mark.parametrize("file", _DOCUMENTS)
def test_lines_are_those_of_the_file(file: str) -> None:
    lines = (_PUBLIC / file).read_text().splitlines()
    for said in read(file).read:
        if said.line and not said.file:
            assert said.key.rpartition(".")[2] in lines[said.line - 1]
