"""One rule per gap, wherever the question comes from."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from precision_time.corpus.importer import measurement_of
from precision_time.corpus.jobs import job_of
from precision_time.corpus.measurement import Measurement
from precision_time.corpus.schema import Row
from precision_time.cost.job import Jobs
from precision_time.cost.step import price
from precision_time.errors import ConfigError
from precision_time.explain.precision import explain
from precision_time.hardware.catalog import get_cluster, get_device, known_devices
from precision_time.learn.artifact import shipped_predictor
from precision_time.learn.priced import predict_step_times
from precision_time.planning.layouts.api import find_layouts
from precision_time.precision.catalog import get_policy
from precision_time.precision.policy import PrecisionPolicy
from precision_time.precision.support import check_support, natural_precision
from precision_time.predict.api import predict_time
from precision_time.request.request import Request
from precision_time.testing.jobs import own_job_s
from precision_time.workload.resolve import load_workload
from precision_time_papers.predictddl.requests import PredictDDLRequest, resolve

DEVICES = [device.name for device in known_devices()]
NATURAL = {
    "A100-SXM4-80GB": "bf16-mixed",
    "H100-SXM5-80GB": "bf16-mixed",
    "TPUv4": "bf16-mixed",
    "Gaudi2": "bf16-mixed",
    "V100-SXM2-16GB": "fp16-mixed",
    "T4": "fp16-mixed",
    "P100-PCIE-16GB": "fp32",
    "GTX1080Ti": "fp32",
    "K80": "fp32",
}


@pytest.mark.parametrize(("device", "precision"), NATURAL.items())
def test_what_a_device_usually_runs_in(device: str, precision: str) -> None:
    assert natural_precision(get_device(device)) == precision


@pytest.mark.parametrize("name", DEVICES)
def test_every_device_has_a_precision_that_it_runs_without_emulation(name: str) -> None:
    device = get_device(name)
    job = Request(model="resnet50", device=name, batch_size=1).resolve()
    assert job.precision.name == natural_precision(device)
    assert check_support(get_policy(job.precision.name), device) == ()
    assumed = [each.text for each in job.diagnostics if each.code == "default-precision"]
    assert assumed == [f"Precision not given: {job.precision.name} assumed, as usual on {name}."]


@pytest.mark.parametrize("device", ["A100-SXM4-80GB", "V100-SXM2-16GB", "P100-PCIE-16GB"])
def test_predict_layout_and_explain_assume_the_same_precision(device: str) -> None:
    predicted = predict_time("resnet50", device=device).precision
    best = find_layouts("resnet50", device=device, gpus=1, top=1).ranked[0].prediction
    explained = explain("resnet50", device=device, batch_size=8)
    assert predicted == best.precision == explained.precision == natural_precision(get_device(device))


@pytest.mark.parametrize(
    "model, device, gpus, precision",
    [
        ("gpt-neox-20b", "A100-SXM4-40GB", 96, "fp16-mixed"),
        (
            "gpt3-175b",
            "H100-SXM5-80GB",
            1024,
            "bf16-mixed",
        ),  # trained in both, fp16 where bf16 is no usual type
    ],
)
def test_predict_and_layout_assume_a_published_precision(
    model: str, device: str, gpus: int, precision: str
) -> None:
    cluster = {"device": device, "gpus": gpus}
    assert Request(model=model, **cluster).resolve().precision.name == precision
    assert find_layouts(model, **cluster, top=1).precision == precision


@pytest.mark.parametrize("name", DEVICES)
def test_software_is_not_older_than_its_device(name: str) -> None:
    stack = Request(model="resnet50", device=name, batch_size=1).resolve().stack
    assert stack.framework_year >= get_device(name).release_year + 0.5
    named = Request(model="resnet50", device=name, batch_size=1, software=2019.0).resolve().stack
    assert named.framework_year == 2019.0


@pytest.mark.parametrize("model", ["gpt2", "bert-base", "resnet18", "vit_base_patch16_224"])
@pytest.mark.parametrize("device", ["A100-SXM4-80GB", "B200-SXM-180GB"])
def test_a_graph_has_one_stack_and_so_has_its_name(model: str, device: str) -> None:
    """GPT-2 captured was pytorch-llm for predict and pytorch-eager for PredictDDL."""
    graph = load_workload(model).graph
    stacks = {
        predict_time(each, device=device, gpus=8, batch_size=4, zero_stage=0).stack for each in (graph, model)
    }
    cluster = get_cluster(device=device, num_devices=8)
    asked = PredictDDLRequest(model=graph, cluster=cluster, batch_size=4)
    of_graph = Request(model=graph, device=device, gpus=8, batch_size=4).resolve()
    of_paper = resolve(asked).job
    assert stacks == {of_paper.stack.profile}
    assert (of_paper.stack, of_paper.workload.family) == (of_graph.stack, of_graph.workload.family)


@pytest.mark.parametrize(
    ("model", "sizes", "optimizer"), [("llama3-8b", {"seq_len": 4096}, "adamw"), ("resnet50", {}, "sgd")]
)
def test_a_measured_row_without_a_framework_is_a_question_without_one(
    model: str, sizes: dict[str, int], optimizer: str
) -> None:
    cells = {
        **{"model": model, "device": "H100-SXM5-80GB", "devices": "8", "precision": "bf16-mixed"},
        **{"batch_per_device": "1", "step_time_s": "1.0", "optimizer": optimizer},
        **{name: str(value) for name, value in sizes.items()},
    }
    row = measurement_of(Row(number=2, path="mine.csv", cells=cells))
    assert isinstance(row, Measurement)
    job = job_of(row)
    layout = row.layout
    assert layout is not None
    said: dict[str, Any] = {
        **{"device": "H100-SXM5-80GB", "gpus": 8, "precision": "bf16-mixed", "batch_size": 1},
        **{"optimizer": optimizer, "zero_stage": layout.zero_stage, "scope": row.scope, **sizes},
        "software": row.stack.framework_year,  # usual for the stack: whoever asks asks of today
    }
    times = predict_step_times([job], shipped_predictor(), coverage=0.9).step_time_s
    assert job.stack.profile == predict_time(model, **said).stack
    assert own_job_s(model, **said) == pytest.approx(float(times[0]), rel=1e-9)


@pytest.mark.parametrize(
    ("precision", "options", "variant"),
    [
        ("bf16-mixed", {"stack": "megatron"}, "megatron"),
        ("fp16-mixed", {"stack": "deepspeed-megatron"}, "deepspeed"),
        ("bf16-mixed", {"stack": "torchtitan", "zero_stage": 3}, "fsdp-fp32-reduce"),
        ("bf16-mixed", {"zero_stage": 2}, "deepspeed"),
        ("bf16-mixed", {"zero_stage": 3}, "fsdp"),
        ("bf16-mixed", {}, "autocast"),
        ("bf16-mixed:autocast", {"stack": "megatron"}, "autocast"),
        ("autocast-bf16", {"zero_stage": 3}, "autocast"),
    ],
)
def test_code_decides_how_weights_are_held_where_the_precision_does_not_say(
    precision: str, options: dict[str, object], variant: str
) -> None:
    asked = {"model": "gpt2-medium", "gpus": 8, "batch_size": 1, "precision": precision, **options}
    named = Request.of(asked).resolve()
    assert _types(named.precision) == _types(get_policy(named.precision.name, variant=variant))
    said = any(item.code == "default-weights" for item in named.diagnostics)
    assert said == (variant != "autocast")


def _types(policy: PrecisionPolicy) -> PrecisionPolicy:
    return replace(policy, summary="")


def test_weights_are_held_as_full_sharding_does_where_nothing_else_fits() -> None:
    """The stage that is assumed decides too; a search finds the same policy under the same layout."""
    asked: dict[str, Any] = {"model": "llama2-7b", "gpus": 16, "precision": "bf16-mixed"}
    job = Request.of({**asked, "batch_size": 1}).resolve()
    assert job.layout.zero_stage == 3
    assert job.precision == get_policy("bf16-mixed", variant="fsdp")
    asked.pop("model")
    search = find_layouts("llama2-7b", fix=["zero_stage=3", "tp=1", "pp=1"], top=1, **asked)
    assert search.jobs[0].precision == job.precision


@pytest.mark.parametrize(
    ("device", "model", "stack"),
    [
        ("TPUv4", "resnet50", "xla-tpu"),
        ("TPUv4", "llama2-7b", "jax-xla"),
        ("IPU-GC200", "bert-base", "ipu-poplar"),
        ("A100-SXM4-80GB", "resnet50", "pytorch-eager"),
    ],
)
def test_a_vendor_with_a_compiler_of_its_own_has_stacks_of_its_own(
    device: str, model: str, stack: str
) -> None:
    assert Request.of({"model": model, "device": device, "batch_size": 1}).resolve().stack.profile == stack


def _attention_s(**asked: Any) -> float:
    job = Request.of({"model": "gpt2-medium", "batch_size": 4, "seq_len": 4096, **asked}).resolve()
    return float(price(Jobs.at(job)).step_time_s[0])


def test_the_attention_kernel_can_be_said_and_comes_with_the_year() -> None:
    on_h100 = {"device": "H100-SXM5-80GB", "stack": "megatron"}
    said = {name: _attention_s(**on_h100, attention=name) for name in ("math", "flash1", "flash2", "flash3")}
    assert said["math"] > said["flash1"] > said["flash2"] > said["flash3"]
    old, new = _attention_s(**on_h100, software=2022.0), _attention_s(**on_h100, software=2024.5)
    assert old > said["math"] * 0.99
    assert new == pytest.approx(said["flash3"])


def test_flash_attention_needs_ampere() -> None:
    with pytest.raises(ConfigError, match="attention=flash2 does not run on V100.*memory-efficient"):
        _attention_s(device="V100-SXM2-32GB", attention="flash2")
    # Megatron brings FlashAttention and has nothing else to fuse with; PyTorch has.
    math, none = (
        _attention_s(device="V100-SXM2-32GB", stack="megatron", **extra)
        for extra in ({"attention": "math"}, {})
    )
    assert math == none
    assert _attention_s(device="V100-SXM2-32GB", stack="pytorch-eager") < _attention_s(
        device="V100-SXM2-32GB", stack="pytorch-eager", attention="math"
    )
