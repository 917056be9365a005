"""What launchers are started with: known to them, complete, and read back as the layout that was meant."""

from __future__ import annotations

import inspect
import json
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from precision_time import Request, find_layouts, launch_config, layout_of_config, predict_time
from precision_time.diagnostics import Diagnostics
from precision_time.errors import ConfigError, LayoutError, UnknownNameError
from precision_time.launch import LAUNCHERS
from precision_time.launch.emit import LaunchConfig, launch_config_of
from precision_time.launch.facts import PLAIN, facts_of
from precision_time.launch.table import launcher_of
from precision_time.parallel.shape import model_shape
from precision_time.request.layout import layout_of

_SCHEMAS = json.loads((Path(__file__).parent / "schemas.json").read_text())
_GPUS = 64
_H100 = {"device": "H100-SXM5-80GB", "gpus": _GPUS, "batch_size": 1}
_TYPES: dict[str, tuple[type, ...]] = {"flag": (bool,), "bool": (bool,), "int": (int,), "float": (int, float)}
_JOBS: tuple[dict[str, Any], ...] = (
    {
        "model": "llama3-8b",
        "zero_stage": 3,
        "dp_shard": 8,
        "recompute": "selective",
        "num_microbatches": 2,
    },
    {"model": "llama3-8b", "zero_stage": 3, "offload": "parameters", "reshard_after_forward": False},
    {"model": "llama3-8b", "zero_stage": 2, "offload": "optimizer", "num_microbatches": 4},
    {"model": "llama3-8b", "zero_stage": 0, "recompute": "full"},
    {"model": "llama3-8b", "zero_stage": 3, "cp": 4, "seq_len": 32768, "precision": "fp8-mixed"},
    {
        "model": "llama3-70b",
        "zero_stage": 1,
        "tp": 8,
        "pp": 2,
        "num_microbatches": 8,
        "recompute": "full",
        "recompute_layers": 20,
    },
    {"model": "llama3-70b", "zero_stage": 1, "tp": 4, "pp": 4, "vpp": 5, "num_microbatches": 8},
    {
        "model": "llama3-70b",
        "zero_stage": 1,
        "tp": 8,
        "pp": 8,
        "stage_layers": "9,10,11,10x4,10",
        "num_microbatches": 8,
    },
    {"model": "mixtral-8x7b", "zero_stage": 1, "tp": 4, "ep": 8, "etp": 1, "stack": "megatron"},
)


def config_of(fields: dict[str, Any], launcher: str) -> LaunchConfig:
    return launch_config(Request.of({**_H100, **fields}), launcher=launcher)


def runnable(launcher: str) -> list[LaunchConfig]:
    """What a launcher is started with for all jobs that it can run."""
    found = []
    for fields in _JOBS:
        try:
            found.append(config_of(fields, launcher))
        except LayoutError as error:
            assert "To fix" in str(error)
    assert len(found) >= 2
    return found


@pytest.mark.parametrize("launcher", sorted(_SCHEMAS))
def test_every_setting_is_one_of_the_launcher(launcher: str) -> None:
    options = _SCHEMAS[launcher]["options"]
    assert {setting.key for setting in launcher_of(launcher).settings} == options.keys()
    for config in runnable(launcher):
        for key, value in config.settings.items():
            known = options[key]
            assert known["choices"] is None or str(value) in map(str, (*known["choices"], "null")), key
            assert value == "null" or isinstance(value, _TYPES.get(known["type"], (object,))), (key, value)


def test_torchrun_parses_what_it_is_started_with() -> None:
    from torch.distributed import run

    config = config_of(_JOBS[6], "torchrun")
    words = shlex.split(config.text.replace("\\\n", " "), comments=True)
    parsed = run.get_args_parser().parse_args(words[words.index("torchrun") + 1 :])
    assert (parsed.nnodes, parsed.nproc_per_node, parsed.training_script) == ("8", "8", "train.py")
    # What torchrun cannot say, the script is told: nothing of the layout is lost.
    for said in (
        "tensor-parallel degree 4",
        "4 pipeline stages",
        "5 model chunks",
        "ZeRO stage 1",
        "8 micro batches",
    ):
        assert any(said in note for note in config.notes)


def test_fully_shard_takes_its_arguments() -> None:
    import torch
    from torch.distributed import fsdp

    settings_of = config_of(_JOBS[1], "fsdp").settings
    names = {key.split(".")[1] for key in settings_of if key.startswith("fully_shard.")}
    assert names <= inspect.signature(fsdp.fully_shard).parameters.keys()
    for policy, kind in (("mp_policy", fsdp.MixedPrecisionPolicy), ("offload_policy", fsdp.CPUOffloadPolicy)):
        prefix = f"fully_shard.{policy}."
        values = {
            key.removeprefix(prefix): value for key, value in settings_of.items() if key.startswith(prefix)
        }
        assert kind(**{name: getattr(torch, str(value), value) for name, value in values.items()})
    assert settings_of["init_device_mesh.dp_shard"] * settings_of["init_device_mesh.dp_replicate"] == _GPUS


def same_or_noted(fields: dict[str, Any], launcher: str) -> int:
    """Check that a file says its layout, but for what its notes name; the number of facts that it says."""
    job = Request.of({**_H100, **fields}).resolve()
    try:
        config = launch_config_of(job, launcher)
    except LayoutError:
        return 0
    layers = model_shape(job.workload.graph).num_layers or 0
    read = layout_of_config(launcher, config.text, num_layers=layers, gpus=_GPUS)
    layout = layout_of(Request.of({"model": "gpt2", **read}), job.workload, _GPUS, Diagnostics())
    again = facts_of(replace(job, layout=replace(layout, micro_batch_size=job.layout.micro_batch_size)))
    table, meant = launcher_of(launcher), facts_of(job)
    meant = table.with_choices(meant)
    noted = {name for limit in table.limits if limit.about(meant) for name in (limit.fact, *limit.covers)}
    others = {"micro_batch", "precision"}
    said = PLAIN.keys() - noted - others - ({"sequence_parallel"} if "tp" in noted else set())
    wrong = {name: (meant[name], again[name]) for name in said if meant[name] != again[name]}
    assert not wrong, (launcher, fields, config.text)
    return len(said)


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_a_file_is_read_back_as_its_layout(launcher: str) -> None:
    assert sum(same_or_noted(fields, launcher) > 0 for fields in _JOBS) >= 2


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    tp=st.sampled_from((1, 2, 8)),
    pp=st.sampled_from((1, 2, 4)),
    cp=st.sampled_from((1, 2)),
    vpp=st.sampled_from((1, 2, 4)),
    zero=st.sampled_from((0, 1, 2, 3)),
    offload=st.sampled_from(("none", "optimizer", "parameters")),
    reshard=st.booleans(),
    dp_shard=st.sampled_from((0, 4)),
    num_microbatches=st.sampled_from((1, 4, 8)),
    recompute=st.sampled_from(("none", "selective", "full", "full:8", "full:0.5")),
    sequence_parallel=st.booleans(),
    launcher=st.sampled_from(LAUNCHERS),
)
def test_any_layout_is_said_read_back_or_refused(launcher: str, reshard: bool, **fields: Any) -> None:
    again = {} if reshard else {"reshard_after_forward": False}
    try:
        Request.of({"model": "llama3-8b", **_H100, **fields, **again}).resolve()
    except (LayoutError, ConfigError):
        return
    same_or_noted({"model": "llama3-8b", **fields, **again}, launcher)


def test_megatron_has_the_sizes_of_the_model_and_the_global_batch() -> None:
    config = config_of({**_JOBS[6], "precision": "fp8-mixed"}, "megatron")
    assert config.settings["--global-batch-size"] == 8 * 64 // (4 * 4)
    sizes = {"--num-layers": 80, "--hidden-size": 8192, "--ffn-hidden-size": 28672, "--num-query-groups": 8}
    assert sizes.items() <= config.settings.items()
    assert (config.settings["--fp8-format"], config.settings["--fp8-recipe"]) == ("hybrid", "delayed")
    unknown = config_of({"model": "resnet50", "zero_stage": 0, "batch_size": 32}, "megatron")
    assert any("--num-layers" in note for note in unknown.notes)


def test_what_a_launcher_cannot_run_is_refused_with_all_reasons() -> None:
    with pytest.raises(LayoutError, match="zero_stage=1") as caught:
        config_of({"model": "llama3-70b", "zero_stage": 3, "tp": 2, "dp_shard": 8}, "deepspeed")
    assert "MiCS" in str(caught.value)
    with pytest.raises(UnknownNameError, match="megatron"):
        config_of(_JOBS[0], "megatronn")


def test_a_search_writes_the_layout_that_was_picked() -> None:
    search = find_layouts(
        "llama3-8b", device="H100-SXM5-80GB", gpus=8, global_batch_size=32, fix=["pp=2", "tp=2"], top=4
    )
    for place, each in enumerate(search.ranked, start=1):
        if each.layout.schedule == "zero-bubble" or each.layout.zero_stage == 3:
            with pytest.raises(LayoutError, match="fix schedule=1f1b|fix zero_stage=1"):
                search.launch_config("megatron", place)
        else:
            config = search.launch_config("megatron", place)
            assert config.settings["--micro-batch-size"] == each.layout.micro_batch_size
            assert "Predicted: " in config.text
    with pytest.raises(ConfigError, match="pick=9"):
        search.launch_config("torchrun", 9)


def test_a_prediction_writes_its_own_layout() -> None:
    answer = predict_time("llama3-8b", **_H100, zero_stage=3, num_microbatches=2)
    config = launch_config(answer, launcher="accelerate")
    assert config.settings["parallelism_config.parallelism_config_dp_shard_size"] == _GPUS
    assert config.to_dict()["file"] == "accelerate.yaml"


@pytest.mark.parametrize(
    "text",
    [
        '{"zero_optimization": {"stage": 9}}',
        '{"zero_optimization": {"stage": "auto"}, "train_micro_batch_size_per_gpu": 1}',
        '{"gradient_accumulation_steps": "auto", "train_batch_size": "auto"}',
        '{"gradient_accumulation_steps": -1}',
    ],
)
def test_file_with_values_that_no_layout_has_is_refused_in_words(text: str) -> None:
    with pytest.raises(ConfigError, match="To fix"):
        layout_of_config("deepspeed", text, gpus=8)
