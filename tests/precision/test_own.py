"""Policies of the user's own: files, lists of operators, types of layers."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import yaml

from precision_time import compare_precisions, predict_time
from precision_time.cost.job import Jobs, group_key
from precision_time.cost.memory.terms import memory_of
from precision_time.cost.roofline import kernel_seconds, load_kernel_model, rates_of
from precision_time.errors import ConfigError
from precision_time.hardware.catalog import get_device
from precision_time.precision.catalog import get_policy
from precision_time.precision.lowering import DTYPES, lower, operator_types
from precision_time.precision.own import as_yaml, fields_of, policy_of, stated_policy
from precision_time.precision.policy import DType, PrecisionPolicy
from precision_time.precision.rules import matches
from precision_time.precision.support import as_bf16
from precision_time.request.files import read_requests
from precision_time.request.request import Request
from precision_time.request.sweep import combinations_of
from precision_time.testing.precisions import known_spellings
from precision_time.workload.graph import OpClass
from precision_time.workload.resolve import load_workload

ALL = [item.value for item in OpClass]
A100 = get_device("A100-SXM4-80GB")


def own(**stated: object) -> PrecisionPolicy:
    return policy_of(stated_policy(stated))


@pytest.mark.parametrize("spelling", list(known_spellings()))
def test_a_named_policy_written_out_and_read_again_is_that_policy(spelling: str, tmp_path: Path) -> None:
    policy = get_policy(spelling)
    file = tmp_path / "policy.yaml"
    file.write_text(as_yaml(policy, name=spelling))
    again = policy_of(stated_policy(file))
    assert fields_of(again) == {**fields_of(policy), "name": spelling.replace(":", "-")}
    device = "B200-SXM-180GB"
    asked = {"model": "gpt2", "device": device, "gpus": 2, "batch_size": 4, "zero_stage": 0, "seq_len": 64}
    jobs = [Request.of({**asked, "precision": each}).resolve() for each in (spelling, str(file))]
    assert jobs[0].runs == jobs[1].runs and group_key(jobs[0])[5] == group_key(jobs[1])[5]


@pytest.mark.parametrize("spelling", ["bf16-mixed:autocast", "fp8-mixed:mxfp8", "fp16-mixed:apex-o2"])
def test_the_file_of_a_named_policy_gives_its_answer_to_the_bit(spelling: str, tmp_path: Path) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text(as_yaml(get_policy(spelling)))
    asked = {"model": "bert-base", "device": "B200-SXM-180GB", "gpus": 8, "batch_size": 16, "zero_stage": 0}
    one, other = (predict_time(**asked, precision=each) for each in (spelling, file))
    for name in ("step_time_s", "terms", "interval", "memory_terms", "nearest_measurements"):
        assert getattr(one, name) == getattr(other, name), name


@pytest.mark.parametrize("model", ["resnet50", "gpt2", "bert-base"])
def test_a_policy_with_everything_denied_computes_as_fp32(model: str) -> None:
    graph = load_workload(model).graph
    denied = own(base="bf16-mixed", ops={"deny": ALL})
    ours, wide = lower(graph, denied), lower(graph, get_policy("fp32"))
    for name in ("dtype", "flops", "bytes_per_sample", "bytes_fixed", "launches", "op_class", "repeat"):
        np.testing.assert_array_equal(getattr(ours, name), getattr(wide, name), err_msg=name)
    by_layer = own(base="bf16-mixed", layers={"*": "fp32"})
    np.testing.assert_array_equal(lower(graph, by_layer).bytes_per_sample, wide.bytes_per_sample)
    jobs = [
        Request.of({"model": model, "device": "A100", "batch_size": 8, "precision": each}).resolve()
        for each in ({"base": "bf16-mixed", "ops": {"deny": ALL}}, "fp32")
    ]
    kept = [memory_of(Jobs.at(job))["activations"] for job in jobs]
    assert kept[0] == pytest.approx(kept[1], rel=0.05)


def test_torch_lists_stated_once_more_change_nothing() -> None:
    for model in ("resnet50", "bert-base"):
        graph = load_workload(model).graph
        again = own(base="fp16-mixed", ops={"lower": ["gemm", "conv"], "fp32": ["log_softmax"]})
        ours, named = lower(graph, again), lower(graph, get_policy("fp16-mixed"))
        for name in ("dtype", "bytes_per_sample", "bytes_fixed", "launches"):
            np.testing.assert_array_equal(getattr(ours, name), getattr(named, name), err_msg=name)


@pytest.mark.parametrize("model", ["gpt2", "resnet50"])
def test_allowing_more_layers_never_lengthens_the_products(model: str) -> None:
    graph = load_workload(model).graph
    seconds = []
    for layers in (
        {"*": "fp32"},
        {"*": "fp32", "blocks.0-1": "bf16"},
        {"*": "fp32", "blocks.0-9": "bf16"},
        {},
    ):
        step = lower(graph, own(base="bf16-mixed", layers=layers))
        times = kernel_seconds(step, np.array([[8.0]]), rates_of(A100), load_kernel_model())[0]
        seconds.append(float(times[step.flops > 0.0].sum()))
    assert seconds == sorted(seconds, reverse=True) and seconds[-1] < seconds[0] * 0.7


def test_layers_split_a_block_and_nothing_is_lost() -> None:
    graph = load_workload("gpt2").graph
    policy = own(
        base="bf16-mixed", layers={"*.attention.*": "fp32", "head": "tf32", "blocks.2-3.gemm": "fp16"}
    )
    types = operator_types(graph, policy)
    assert types["blocks.2-3.gemm.linear"] == "fp16" and types["blocks.4-11.gemm.linear"] == "bf16"
    assert types["blocks.0-1.attention.scaled_dot_product_attention"] == "fp32"
    assert types["head.gemm.linear"] == "tf32"
    step, plain = lower(graph, policy), lower(graph, get_policy("bf16-mixed"))
    assert (step.flops * step.repeat).sum() == pytest.approx((plain.flops * plain.repeat).sum(), rel=1e-12)


def test_of_patterns_the_last_that_matches_holds() -> None:
    graph = load_workload("gpt2").graph
    name = "blocks.0-1.attention.scaled_dot_product_attention"
    rules = {"blocks.0-1": "fp16", "*.attention.*": "fp32"}
    assert operator_types(graph, own(base="bf16-mixed", layers=rules))[name] == "fp32"
    turned = dict(reversed(rules.items()))
    assert operator_types(graph, own(base="bf16-mixed", layers=turned))[name] == "fp16"


def test_fp8_of_some_layers_is_the_recipe_of_those_alone() -> None:
    graph = load_workload("gpt2").graph
    some = lower(graph, own(base="bf16-mixed:megatron", layers={"blocks.0-5": "fp8"}, fp8_recipe="mxfp8"))
    narrow = DTYPES.index(DType.FP8)
    flops = (some.flops * some.repeat)[(some.dtype == narrow) & (some.phase == 0)].sum()
    every = lower(graph, get_policy("mxfp8"))
    assert flops == pytest.approx(
        (every.flops * every.repeat)[(every.dtype == narrow) & (every.phase == 0)].sum() / 2
    )


def test_two_files_of_one_name_share_nothing(tmp_path: Path) -> None:
    answers = []
    for number, base in enumerate(("fp32", "bf16-mixed")):
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / "mine.yaml").write_text(f"base: {base}\nops: {{fp32: [layer_norm]}}\n")
        (folder / "job.yaml").write_text("model: gpt2\ndevice: A100\nbatch_size: 2\nprecision: mine.yaml\n")
        [request] = read_requests(folder / "job.yaml")
        assert request.precision == {"name": "mine", "base": base, "ops": {"fp32": ["layer_norm"]}}
        again = Request.of(json.loads(json.dumps(request.to_dict())))
        answers.append(predict_time(again))
        assert answers[-1].step_time_s == predict_time(request).step_time_s
        assert answers[-1].precision == "mine"
    assert answers[1].step_time_s < 0.7 * answers[0].step_time_s
    found = compare_precisions(
        "gpt2",
        ["bf16-mixed", *(str(tmp_path / each / "mine.yaml") for each in "01")],
        device="A100",
        batch_size=2,
    )
    assert [each.precision for each in found.predictions] == ["bf16-mixed", "mine", "mine"]
    assert len(combinations_of({"model": "gpt2", "precision": ["fp32", {"base": "tf32"}]})) == 2


@pytest.mark.parametrize(
    ("stated", "message"),
    [
        ({"base": "bf17"}, "bf16"),
        ({"bass": "bf16"}, "Did you mean base"),
        ({"base": "bf16-mixed", "ops": {"lowr": []}}, "lower"),
        ({"base": "bf16-mixed", "ops": {"fp32": ["gemm"], "lower": ["gemm"]}}, "two lists|in the lists"),
        ({"base": "fp32", "ops": {"lower": ["gemm"]}}, "16 bits to lower to"),
        ({"base": "bf16-mixed", "layers": {"a": "fp8", "b": "int8"}}, "one recipe"),
        ({"base": "fp8-mixed", "fp8_recipe": "delaid"}, "delayed"),
        ({"compute": "fp32", "activation": "bf16"}, "narrower"),
        ({"base": "bf16-mixed", "layers": {"x": "fp7"}}, "fp7"),
        ({"base": "bf16-mixed", "ops": {"fp32": ["gelou"]}}, "Did you mean gelu"),
        ({"base": "bf16-mixed", "layers": {"decoder.*": "fp32"}}, "matches no operator of gpt2"),
        ({"base": "bf16-mixed", "layers": {"blocks.12-20": "fp32"}}, "blocks.N.gemm.linear"),
        ({"base": "bf16-mixed", "layers": {"*": "fp8"}}, "cannot compute in fp8"),
    ],
)
def test_what_no_policy_can_say_is_refused_with_the_way_out(stated: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        Request.of({"model": "gpt2", "device": "A100", "precision": stated}).resolve()
    assert "To fix" in str(caught.value) or "Did you mean" in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "a: &a [x, x]\n"
        + "".join(
            f"b{i}: &b{i} [*{'a' if i == 0 else f'b{i - 1}'}, *{'a' if i == 0 else f'b{i - 1}'}]\n"
            for i in range(40)
        ),
        "[" * 1200,
        "- 1\n- 2\n",
        "base: !!python/object/apply:os.system [ls]\n",
        "layers: {'" + "*a" * 300 + "': fp32}\n",
        "base: bf16-mixed\n" + "#" * 2**20,
        "\x00\x01",
    ],
)
def test_hostile_files_end_in_a_clear_error(text: str, tmp_path: Path) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text(text)
    with pytest.raises(ConfigError, match="To fix"):
        stated_policy(file)


def test_a_pattern_of_many_stars_ends(tmp_path: Path) -> None:
    assert not matches("*a" * 20 + "b", "blocks.0.gemm." + "a" * 60)


def test_static_scaling_waits_for_nobody() -> None:
    asked = {"model": "resnet50", "device": "V100-SXM2-16GB", "batch_size": 64}
    static, dynamic, none = (
        predict_time(**asked, precision={"base": "fp16-mixed", "loss_scaling": kind})
        for kind in ("static", "dynamic", "none")
    )
    assert "host_sync_s" in str(dynamic.terms) and "host_sync_s" not in str(static.terms)
    assert none.analytical_step_time_s < static.analytical_step_time_s < dynamic.analytical_step_time_s


def test_rules_do_not_part_fp16_from_bf16_in_what_is_learned() -> None:
    learned = [
        as_bf16(own(base=f"{low}-mixed:autocast", layers={"head": low}), A100) for low in ("fp16", "bf16")
    ]
    assert learned[0] == replace(learned[1], name=learned[0].name, summary=learned[0].summary)
    assert yaml.safe_load(as_yaml(learned[0]))["layers"] == {"head": "bf16"}
