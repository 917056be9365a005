"""Configurations that Python functions build: read by nested calls, bounded, what is not followed is told."""

from __future__ import annotations

from pathlib import Path

import pytest

from precision_time.errors import ConfigError
from precision_time.request.recipes import kind_of
from precision_time_integrations.recipes.built import read_built
from precision_time_integrations.recipes.files import read_recipe
from precision_time_integrations.recipes.recipe import Recipe

_REGISTRY = """
import os
from torchtitan.config import CompileConfig, ParallelismConfig, TrainingConfig
from torchtitan.trainer import Trainer

LENGTH = 4 * 1024

def llama3_8b() -> Trainer.Config:
    spec = model_registry("8B")
    return Trainer.Config(
        model_spec=spec,
        optimizer=default_adamw(lr=1e-4),
        training=TrainingConfig(
            num_tokens_per_microbatch_per_dp_rank=2 * LENGTH, max_context_length=LENGTH, steps=100
        ),
        parallelism=ParallelismConfig(tensor_parallel_degree=2, num_pp_microbatches=4),
        activation_checkpoint=FullAC.Config(),
        compile=CompileConfig(enable=True),
    )

def llama3_8b_fp8() -> Trainer.Config:
    config = llama3_8b()
    config.model_spec = model_registry("8B", converters=[Float8LinearConverter.Config(fqns=["layers"])])
    config.activation_checkpoint = None
    config.training.steps = 50
    return config

def llama3_8b_lora() -> Trainer.Config:
    config = llama3_8b()
    config.model_spec = model_registry(
        "8B", converters=[LoRAConverter.Config(rank=16, alpha=32.0, target_modules=["wq", "wv"])]
    )
    return config

def llama3_8b_changed() -> Trainer.Config:
    config = llama3_8b()
    if os.environ.get("LONG"):
        config.training.max_context_length = 32768
    config.training.steps = int(os.environ["STEPS"])
    enable_something(config)
    return config
"""
_COMMAND = "torchrun --nproc_per_node=8 -m torchtitan.train --module llama3 --config"


@pytest.fixture
def of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):  # type: ignore[no-untyped-def]
    """What a command of torchtitan says that names a configuration of the registry above."""
    folder = tmp_path / "torchtitan/models/llama3"
    folder.mkdir(parents=True)
    (folder / "config_registry.py").write_text(_REGISTRY)
    monkeypatch.chdir(tmp_path)

    def read(words: str) -> Recipe:
        return read_recipe(f"{_COMMAND} {words}", "command")

    return read


def test_a_command_leads_to_the_function_that_it_names(of) -> None:  # type: ignore[no-untyped-def]
    recipe = of("llama3_8b --training.steps 7")
    wanted = {
        "model": "llama3-8b", "batch_size": 2, "seq_len": 4096, "tp": 2, "recompute": "full", "gpus": 8,
        "compiler": "inductor", "steps": 7, "precision": "bf16-mixed",
    }  # fmt: skip
    assert wanted.items() <= recipe.fields.items()
    assert recipe.unread == ()
    (length,) = [each for each in recipe.read if "seq_len" in each.fields]
    assert (length.file, length.line) == ("torchtitan/models/llama3/config_registry.py", 14)


def test_a_function_changes_what_another_one_builds(of) -> None:  # type: ignore[no-untyped-def]
    fields = of("llama3_8b_fp8").fields
    assert (fields["precision"], fields["recompute"], fields["steps"]) == ("fp8-mixed", "none", 50)
    assert fields["tp"] == 2
    lora = of("llama3_8b_lora").fields
    assert (lora["adapter"], lora["lora_rank"], lora["lora_targets"]) == ("lora", 16, "wq,wv")


def test_what_is_not_followed_is_told_and_not_defaulted(of) -> None:  # type: ignore[no-untyped-def]
    recipe = of("llama3_8b_changed")
    assert not {"seq_len", "steps"} & recipe.fields.keys()
    told = " ".join(recipe.unread)
    for words in (
        "line 38: training.max_context_length=config.training.max_context_length = 32768: known only when",
        "line 39: training.steps=int: a call",
        "line 40: enable_something(config): what it changes is not read",
        "training.num_tokens_per_microbatch_per_dp_rank=8192: tokens of a batch without the longest context",
    ):
        assert words in told, recipe.unread


def test_a_file_of_several_is_refused_with_their_names(tmp_path: Path) -> None:
    path = tmp_path / "config_registry.py"
    path.write_text(_REGISTRY)
    with pytest.raises(ConfigError, match=r"has 4 configurations: llama3_8b \(line 8\), llama3_8b_fp8"):
        read_recipe(str(path), kind_of(str(path)))
    path.write_text(_REGISTRY[: _REGISTRY.index("def llama3_8b_fp8")])
    assert read_recipe(str(path), kind_of(str(path))).fields["model"] == "llama3-8b"
    path.write_text(
        "from torchtitan.trainer import Trainer\nconfig = Trainer.Config(training=TrainingConfig(steps=3))\n"
        "Trainer(config).train()\n"
    )
    assert read_recipe(str(path), kind_of(str(path))).fields["steps"] == 3
    path.write_text("import torchtitan\nprint(torchtitan.__version__)\n")
    with pytest.raises(ConfigError, match="builds no Trainer.Config"):
        read_recipe(str(path), kind_of(str(path)))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("def f() -> Trainer.Config:\n    return f()\n", "call one another"),
        (
            "def a(): return C(x=b(), y=b(), z=b())\ndef b(): return C(x=c(), y=c(), z=c())\n"
            "def c(): return C(x=d(), y=d(), z=d())\ndef d(): return C(x=e(), y=e(), z=e())\n"
            "def e(): return 1\ndef f(): return C(a=a(), b=a())\n",
            "call one another",
        ),
        (
            "def f():\n    a = C(x=1)\n" + "    a = C(x=a, y=a)\n" * 40 + "    return a\n",
            "stands for more than",
        ),
        (
            "def f():\n    a = C(x=1)\n" + "    a = [a, a, a]\n" * 40 + "    return a\n",
            "stands for more than",
        ),
    ],
    ids=["endless", "many", "doubled", "lists"],
)
def test_what_stands_for_too_much_is_refused(text: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        read_built("a.py", text, "f")
