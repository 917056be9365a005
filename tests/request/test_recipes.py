"""Recipes of other projects: recognized here, read by a plug-in."""

from __future__ import annotations

from pathlib import Path

import pytest

from precision_time import plugins
from precision_time.errors import ConfigError
from precision_time.io import packaged_toml
from precision_time.plugins import Plugin
from precision_time.request import recipes
from precision_time.request.files import read_jobs, read_requests
from precision_time.request.recipes import kind_of, project_of, recipe_of
from precision_time_integrations.recipes.recipe import Recipe, Said


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """No plug-in is installed."""
    monkeypatch.setattr(recipes, "plugins", lambda _: {})


def fake(source: str, kind: str) -> Recipe:
    fields = {"model": "resnet50", "batch_size": 8, "gpus": 16, "nodes": 2, "steps": 10}
    read = (Said(key="b", value="8", fields={"batch_size": 8}, line=2),)
    return Recipe(source=source, project=f"{kind} 1", fields=fields, read=read, unread=("line 3: c=1: what",))


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> None:
    """A plug-in that reads everything as the same."""
    plugin = Plugin(name="recipe", value=f"{__name__}:fake")
    monkeypatch.setattr(Plugin, "load", lambda _: fake)
    monkeypatch.setattr(recipes, "plugins", lambda _: {"recipe": plugin})


@pytest.mark.parametrize("name", [*packaged_toml("precision_time.request", "data/recipes.toml")])
def test_every_sign_is_recognized(name: str) -> None:
    for keys in packaged_toml("precision_time.request", "data/recipes.toml")[name]["signs"]:
        assert project_of(dict.fromkeys(keys, 1)), keys
    first = packaged_toml("precision_time.request", "data/recipes.toml")[name]["signs"][0]
    nested: dict[str, object] = {}
    for key in first:
        inner = nested
        *folders, last = key.split(".")
        for folder in folders:
            inner = inner.setdefault(folder, {})  # type: ignore[assignment]
        inner[last] = 1
    assert project_of(nested) == name


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize(
    ("file", "text", "words"),
    [
        ("a.yml", "base_model: x\nmicro_batch_size: 2\n", "is a axolotl recipe"),
        ("a.toml", "[model]\nflavor = '8B'\n", "is a torchtitan recipe"),
        ("a.json", '{"per_device_train_batch_size": 2}', "is a Hugging Face Trainer recipe"),
        ("a.sh", "torchrun train.py\n", "is a shell script"),
        ("a.py", "import trl\n", "is a Python script"),
        ("job", "#!/bin/bash\ntorchrun train.py\n", "is a shell script"),
    ],
)
def test_without_a_reader_the_format_and_the_command_are_named(
    tmp_path: Path, file: str, text: str, words: str
) -> None:
    path = tmp_path / file
    path.write_text(text)
    with pytest.raises(ConfigError, match=f"{words}.*To fix: pip install precision-time-integrations"):
        read_jobs(path)


@pytest.mark.usefixtures("alone")
def test_a_command_is_named_too() -> None:
    with pytest.raises(ConfigError, match="is a command.*pip install"):
        recipe_of("torchrun --nproc-per-node 8 train.py")
    assert kind_of("srun resnet50 x") == "command" and kind_of("a word and more") == ""


@pytest.mark.usefixtures("read")
def test_options_win_and_what_they_replace_is_told(tmp_path: Path) -> None:
    path = tmp_path / "a.yml"
    path.write_text("base_model: x\nmicro_batch_size: 2\n")
    assert read_requests(path)[0].gpus == 16
    (job,) = read_jobs(path)
    (request,) = job.requests(device="8xA100", epochs=2)
    assert (request.gpus, request.nodes, request.steps, request.epochs) == (8, None, None, 2)
    assert job.recipe is not None
    report = "\n".join(job.recipe.lines({"device": "8xA100", "epochs": 2}))
    for words in ("line 2: b=8 (batch_size=8)", "Not understood: line 3: c=1", "gpus, 16 in the recipe, is 8",
                  "steps, 10 in the recipe, is left out"):  # fmt: skip
        assert words in report
    found = job.recipe.to_dict({"batch_size": 4})
    assert found["overridden"] == [{"field": "batch_size", "recipe": 8, "given": 4}]


def test_names_of_plugins_alone_are_looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plugins.Plugin, "load", lambda _: pytest.fail("a plug-in was loaded"))
    assert recipe_of("resnet50") is None and recipe_of("llama3 8b") is None
