"""What `--emit` writes, and the recipes that are read: each is the way back from the other."""

from __future__ import annotations

from pathlib import Path

import pytest

from precision_time.launch import LAUNCHERS
from precision_time.launch.api import launch_config
from precision_time.request.recipes import kind_of
from precision_time.request.request import Request
from precision_time_integrations.recipes.files import read_recipe

_DEVICES = {"device": "H100-SXM5-80GB", "gpus": 16, "nodes": 2}
_STATED = {**_DEVICES, "precision": "bf16-mixed", "seq_len": 4096, "batch_size": 2}
_LAYOUTS = {
    "torchrun": {"zero_stage": 0},
    "deepspeed": {"zero_stage": 3, "num_microbatches": 4, "offload": "optimizer"},
    "accelerate": {"zero_stage": 3, "recompute": "full"},
    "fsdp": {"zero_stage": 3},
    "megatron": {"tp": 4, "pp": 2, "num_microbatches": 8, "zero_stage": 1, "recompute": "full"},
    "torchtitan": {"tp": 2, "zero_stage": 3, "recompute": "selective"},
    "nemo": {"tp": 8, "zero_stage": 1, "num_microbatches": 4},
}


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_what_is_emitted_is_read_back(launcher: str, tmp_path: Path) -> None:
    asked = Request.of({"model": "llama3-8b", **_STATED, **_LAYOUTS[launcher]})
    config = launch_config(asked, launcher=launcher)
    path = tmp_path / config.file
    path.write_text(config.text)
    kind = kind_of(str(path))
    assert kind, config.text
    recipe = read_recipe(str(path), kind)
    given = {"model": "llama3-8b", **_DEVICES}
    # What the script that torchrun starts is told, its command does not say.
    stated = {**_STATED, **(_LAYOUTS[launcher] if launcher == "torchrun" else {})}
    left = {name: value for name, value in stated.items() if name not in recipe.fields}
    back = Request.of(recipe.merged({**left, **given}))
    assert back.resolve().layout == asked.resolve().layout, (recipe.fields, config.text)
    assert (back.precision, back.batch_size) == (asked.precision, asked.batch_size)
