"""What recipes, commands and scripts of each project say, as fields of a request."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from precision_time.errors import ConfigError
from precision_time.request.files import read_jobs
from precision_time.request.recipes import kind_of
from precision_time_integrations.recipes.files import read_recipe, read_text
from precision_time_integrations.recipes.recipe import Recipe

_CASES: list[dict[str, Any]] = yaml.safe_load((Path(__file__).parent / "cases.yaml").read_text())


@pytest.fixture
def of(tmp_path: Path) -> Any:
    """Reads a text as the file of a name, beside other files."""

    def read(name: str, text: str, **others: str) -> Recipe:
        for other, content in {**others, name: text}.items():
            (tmp_path / other).write_text(content)
        path = str(tmp_path / name)
        return read_recipe(path, kind_of(path))

    return read


@pytest.mark.parametrize("case", _CASES, ids=lambda case: case["name"])
def test_fields(case: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, text in case.get("files", {}).items():
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    source = case.get("command") or case["file"]
    recipe = read_recipe(source, kind_of(source))
    assert case["fields"].items() <= recipe.fields.items()
    for words in case.get("unread", ()):
        assert any(words in text for text in recipe.unread), recipe.unread
    for words in case.get("assumed", ()):
        assert any(words in text for text in recipe.assumed), recipe.assumed
    for name in case.get("open", ()):
        assert name not in recipe.fields


def test_the_usual_keys_of_nemo_are_known(of: Any) -> None:
    text = next(case["files"]["nemo.yaml"] for case in _CASES if case["name"] == "nemo1-interleaved")
    assert not of("nemo.yaml", text).unread


def test_options_stand_in_the_place_of_what_the_recipe_says(of: Any) -> None:
    recipe = of(
        "run.sh",
        "#!/bin/bash\ntorchrun --nnodes 4 --nproc-per-node 8 pretrain_gpt.py --num-layers 32"
        " --hidden-size 4096 --num-attention-heads 32"
        " --micro-batch-size 1 --global-batch-size 256 --seq-length 4096 --train-iters 10"
        " --tensor-model-parallel-size 2 --bf16 --vocab-size 32000\n",
    )
    assert (recipe.fields["gpus"], recipe.fields["nodes"], recipe.fields["seq_len"]) == (32, 4, 4096)
    given = {"device": "8xA100"}
    assert recipe.overridden(given) == {"gpus": (32, 8), "nodes": (4, None)}
    merged = recipe.merged(given)
    assert merged["gpus"] == 8 and "nodes" not in merged
    assert any(
        "Overridden by your options: gpus, 32 in the recipe, is 8" in line for line in recipe.lines(given)
    )
    assert recipe.overridden({"tokens": 1e9})["steps"] == (10, None)


def test_the_report_is_ordered(of: Any) -> None:
    recipe = of("a.yml", "base_model: llama2-7b\nmicro_batch_size: 2\nwandb_project: x\nfoo: 3\n")
    lines = list(recipe.lines({"batch_size": 4}))
    kinds = [
        "is read as axolotl",
        "Assumed:",
        "Not understood: line 4: foo=3",
        "Overridden by",
        "Without effect",
    ]
    places = [next(place for place, line in enumerate(lines) if kind in line) for kind in kinds]
    assert places == sorted(places)
    assert "wandb_project" in lines[-1]


def test_a_recipe_is_one_job_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "a.yml"
    path.write_text("base_model: llama2-7b\nmicro_batch_size: 2\nsequence_len: 4096\n")
    (job,) = read_jobs(path)
    (request,) = job.requests(batch_size=8)
    assert (request.model, request.batch_size, request.seq_len) == ("llama2-7b", 8, 4096)
    assert job.recipe is not None and job.recipe.project.startswith("axolotl")


@pytest.mark.parametrize(
    "text",
    ["model: resnet50\nbatch_size: 8\n", "jobs:\n- model: resnet50\n", "model: llama2-7b\nsteps: 3\n"],
)
def test_job_files_of_our_own_are_no_recipes(tmp_path: Path, text: str) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(text)
    assert kind_of(str(path)) == "" and read_jobs(path)[0].recipe is None


def test_models_are_no_commands() -> None:
    for word in ("resnet50", "meta-llama/Llama-2-7b-hf", "net.py:build", "config.json", "llama3 8b"):
        assert kind_of(word) == ""


def test_a_notebook_is_read_without_its_shell_lines() -> None:
    import json

    cells = [
        {"cell_type": "code", "source": ["%%capture\n", "!pip install unsloth\n"]},
        {"cell_type": "code", "source": ["!pip install \\\n", "  unsloth\n", "import unsloth\n"]},
        {"cell_type": "markdown", "source": ["SFTConfig(max_steps=1)"]},
        {
            "cell_type": "code",
            "source": ["FastLanguageModel.from_pretrained('unsloth/gemma-2b', load_in_4bit=True)\n"],
        },
        {
            "cell_type": "code",
            "source": ["SFTTrainer(args=SFTConfig(max_steps=60, per_device_train_batch_size=2))"],
        },
    ]
    recipe = read_text(json.dumps({"cells": cells}), "python", lambda _: None, name="a.ipynb")
    assert recipe.fields["model"] == "unsloth/gemma-2b"
    assert (recipe.fields["steps"], recipe.fields["batch_size"]) == (60, 2)
    with pytest.raises(ConfigError, match="is no notebook"):
        read_text("{}", "python", lambda _: None, name="a.ipynb")
