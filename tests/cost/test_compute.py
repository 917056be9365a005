"""Compute terms of a step: which kernels they count, and what layout, compiler and host do to them."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from precision_time.cost.compute import compute_costs, longer_of
from precision_time.cost.constants import constants
from precision_time.cost.job import Job, Jobs
from precision_time.cost.roofline import compiler_rates, load_kernel_model
from precision_time.cost.stacks import get_stack_profile
from precision_time.cost.terms import HOST_STALL, KERNEL_TERMS
from precision_time.hardware.catalog import get_cluster
from precision_time.parallel.layout import Layout, Recompute
from precision_time.precision.catalog import get_policy
from precision_time.precision.lowering import OP_CLASSES, lower
from precision_time.workload.graph import OpClass
from precision_time.workload.resolve import load_workload

COMPUTE_TERMS = (*KERNEL_TERMS, HOST_STALL)
EAGER = get_stack_profile("pytorch-eager").stack()

ONE = get_cluster(device="A100-SXM4-80GB", num_devices=1)
MODELS = ("resnet50", "mobilenetv2_100", "bert-base-uncased", "gpt2")


def group_of(model="resnet50", policy="fp16-mixed", batches=(64.0,), layout=None, stack=None, cluster=ONE):
    layout = layout or Layout()
    if layout.world_size != cluster.num_devices:
        cluster = get_cluster(device="A100-SXM4-80GB", num_devices=layout.world_size)
    job = Job(
        workload=load_workload(model),
        cluster=cluster,
        precision=get_policy(policy),
        layout=layout,
        stack=stack or EAGER,
    )
    return Jobs.at(job, batches)


def costs_of(group):
    step = lower(group.workload.graph, group.precision)
    return step, compute_costs(step, group, load_kernel_model())


def total(costs, *without):
    return sum(values for name, values in costs.terms.items() if name not in without)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("policy", ["fp32", "fp16-mixed", "bf16"])
def test_every_kernel_is_counted_once(model, policy):
    _, costs = costs_of(group_of(model, policy, batches=(1.0, 8.0, 64.0)))
    assert set(costs.terms) == set(COMPUTE_TERMS)
    assert total(costs, "host_stall_s") == pytest.approx(costs.kernels_s.sum(axis=1), rel=1e-12)
    assert costs.forward_s + costs.backward_s == pytest.approx(costs.kernels_s.sum(axis=1), rel=1e-12)


def test_the_backward_pass_is_about_twice_the_forward_pass():
    for model in MODELS:
        _, costs = costs_of(group_of(model, batches=(32.0,)))
        assert 1.2 < costs.backward_s[0] / costs.forward_s[0] < 3.0


def test_a_term_holds_the_kernels_of_its_classes():
    _, cnn = costs_of(group_of("resnet50"))
    _, transformer = costs_of(group_of("gpt2", batches=(8.0,)))
    assert cnn.terms["attention_s"][0] == cnn.terms["rnn_s"][0] == transformer.terms["conv_s"][0] == 0.0
    assert cnn.terms["conv_s"][0] > 100 * cnn.terms["gemm_s"][0]
    assert transformer.terms["gemm_s"][0] > transformer.terms["attention_s"][0] > 0.0
    assert transformer.terms["embedding_s"][0] > 0.0


def test_casts_are_those_of_autocast():
    for policy, expected in (("fp32", False), ("bf16", False), ("fp16-mixed", True), ("bf16-mixed", True)):
        _, costs = costs_of(group_of(policy=policy))
        assert bool(costs.terms["casts_s"][0] > 0.0) is expected, policy


@given(st.sampled_from(MODELS), st.integers(1, 64))
def test_checkpointing_recomputes_the_forward_pass(model, batch):
    plain, selective, full = (
        costs_of(group_of(model, batches=(float(batch),), layout=Layout(recompute=mode)))[1]
        for mode in (Recompute.NONE, Recompute.SELECTIVE, Recompute.FULL)
    )
    assert plain.terms["recompute_s"][0] == 0.0
    # Full checkpointing repeats the layers, not an embedding or a vocabulary's loss.
    again = (full.step.phase == 0) & full.shares.in_layers
    assert full.terms["recompute_s"] == pytest.approx(full.kernels_s[:, again].sum(axis=1))
    assert 0.4 * full.forward_s[0] < full.terms["recompute_s"][0] <= full.forward_s[0] * (1 + 1e-12)
    assert selective.terms["recompute_s"] <= plain.terms["attention_s"] + 1e-12
    assert (selective.terms["recompute_s"][0] > 0.0) is (plain.terms["attention_s"][0] > 0.0)


def test_the_host_stalls_where_launches_are_many_and_small():
    _, small = costs_of(group_of("mobilenetv2_100", batches=(1.0,)))
    _, large = costs_of(group_of("mobilenetv2_100", batches=(512.0,)))
    assert small.terms["host_stall_s"][0] > 0.5 * total(small)[0]
    assert large.terms["host_stall_s"][0] < 0.01 * total(large)[0]
    # Whatever stalls, the step lasts as long as the longer of host and kernels, and a little more.
    for costs in (small, large):
        longer = np.maximum(costs.facts["host_s"], costs.busy_s)
        assert longer <= total(costs) <= 1.05 * longer


@given(st.floats(0.0, 1e3), st.floats(0.0, 1e3), st.floats(0.0, 10.0))
def test_the_longer_of_two_is_at_least_each_and_never_falls(one, other, more):
    found = longer_of(np.array(one), other)
    assert max(one, other) * (1 - 1e-12) <= found <= max(one, other) * 2 ** (1 / 3) * (1 + 1e-12)
    assert longer_of(np.array(one + more), other) >= found * (1 - 1e-12)
    assert found == pytest.approx(longer_of(np.array(other), one), rel=1e-12)


def test_one_process_starts_the_kernels_of_all_devices():
    seconds = [
        costs_of(group_of("resnet18", cluster=get_cluster(device="V100-SXM2-16GB", num_devices=n),
                          layout=Layout(dp=n, data_parallel_engine=engine)))[1].facts["host_s"][0]
        for n, engine in ((1, "dataparallel"), (4, "dataparallel"), (4, "ddp"))
    ]  # fmt: skip
    assert seconds[2] == seconds[0]
    # One process with four threads: each more device adds seven tenths of the first.
    assert seconds[1] == pytest.approx(3.1 * seconds[0])


def test_host_time_is_launches_times_overhead():
    group = group_of("resnet50", policy="fp32")
    _, costs = costs_of(group)
    per_launch = ONE.device.launch_overhead_s * compiler_rates("none").host
    assert costs.facts["host_s"][0] == pytest.approx(costs.facts["launches"][0] * per_launch)


def flops_of(costs, phase=0):
    """FLOPs per sample of the products on one device of the slowest stage."""
    step = costs.step
    share = costs.kernels_s[0] > 0
    return float((step.flops * step.repeat * share)[step.phase == phase].sum())


@pytest.mark.parametrize("degree", ["tp", "cp"])
def test_tensor_and_context_ranks_share_the_kernels(degree):
    _, whole = costs_of(group_of("gpt2"))
    _, half = costs_of(group_of("gpt2", layout=Layout(**{degree: 2})))
    # Small products and repeated norms keep the halves from being exact.
    assert (
        0.45 * total(whole, "host_stall_s")
        < total(half, "host_stall_s")
        < 0.75 * total(whole, "host_stall_s")
    )


def test_sequence_parallel_ranks_share_norms_too():
    _, whole = costs_of(group_of("gpt2"))
    _, plain = costs_of(group_of("gpt2", layout=Layout(tp=4)))
    _, split = costs_of(group_of("gpt2", layout=Layout(tp=4, sequence_parallel=True)))
    assert plain.terms["norm_s"][0] > 0.8 * whole.terms["norm_s"][0]
    assert split.terms["norm_s"][0] < 0.4 * whole.terms["norm_s"][0]


def test_stages_share_the_layers_and_the_ends_carry_their_own():
    _, whole = costs_of(group_of("gpt2"))
    _, staged = costs_of(group_of("gpt2", layout=Layout(pp=4)))
    passes = staged.stage_forward_s + staged.stage_backward_s
    first, middle, last = passes[0]
    assert last > first > middle > 0.0
    everything = whole.forward_s[0] + whole.backward_s[0]
    # The host adds a little that does not add up over stages.
    assert float(passes[0] @ staged.shares.stages) == pytest.approx(everything, rel=1e-3)
    assert staged.shares.layers.tolist() == [3.0, 3.0, 3.0]
    # The step is that of the slowest stage.
    assert total(staged)[0] == pytest.approx(last)


def test_experts_take_the_tokens_of_all_their_ranks():
    mixtral = partial(group_of, "mixtral-8x7b", policy="bf16", batches=(1.0,))
    _, alone = costs_of(mixtral())
    _, shared = costs_of(mixtral(layout=Layout(dp=8, ep=8)))
    expert = alone.step.expert & (alone.step.phase == 0)
    assert shared.step.count[expert] == pytest.approx(alone.step.count[expert] / 8)
    assert shared.step.m[expert] == pytest.approx(alone.step.m[expert] * 8)
    assert shared.step.flops == pytest.approx(alone.step.flops)
    assert shared.step.bytes_fixed[expert] == pytest.approx(alone.step.bytes_fixed[expert] / 8)
    _, padded = costs_of(mixtral(layout=Layout(dp=8, ep=8, expert_capacity_factor=1.5)))
    assert padded.step.flops[expert] == pytest.approx(1.5 * alone.step.flops[expert])


def test_rows_are_sorted_to_their_experts_by_many_kernels():
    step, costs = costs_of(group_of("mixtral-8x7b", "bf16", batches=(1.0,)))
    sorts = costs.step.op_class == OP_CLASSES.index(OpClass.DISPATCH)
    layers, passes = 32, 2
    each = sum(constants("kernels")["dispatch"]["launches"])
    assert sorts.any()
    assert (costs.step.launches * costs.step.repeat)[sorts].sum() == passes * layers * each
    dense = costs.step.launches[~sorts] == step.launches[~sorts]
    assert dense.all()


def test_attention_without_a_fused_kernel_moves_its_scores():
    gpt2 = partial(group_of, "gpt2", policy="bf16", batches=(8.0,))
    _, fused = costs_of(gpt2())
    _, plain = costs_of(gpt2(stack=replace(EAGER, fused_attention=False)))
    assert plain.terms["attention_s"][0] > 2.0 * fused.terms["attention_s"][0]
    assert plain.terms["gemm_s"] == pytest.approx(fused.terms["gemm_s"])


def test_micro_batches_repeat_the_pass():
    _, once = costs_of(group_of())
    _, four = costs_of(group_of(layout=Layout(num_microbatches=4)))
    for name, values in once.terms.items():
        assert four.terms[name] == pytest.approx(4 * values)
    assert four.forward_s == pytest.approx(once.forward_s)


def test_a_compiler_fuses_memory_bound_kernels_only():
    _, eager = costs_of(group_of())
    _, fused = costs_of(group_of(stack=replace(EAGER, compiler="inductor")))
    share = compiler_rates("inductor").fusion
    assert fused.terms["conv_s"] == pytest.approx(eager.terms["conv_s"])
    assert fused.terms["norm_s"] == pytest.approx(share * eager.terms["norm_s"])


def test_a_compiler_casts_activations_where_they_are_made():
    stack = replace(EAGER, compiler="inductor")
    _, few = costs_of(group_of(batches=(8.0,), stack=stack))
    _, many = costs_of(group_of(batches=(64.0,), stack=stack))
    _, eager = costs_of(group_of(batches=(8.0,)))
    # Only weights are cast in kernels of their own, as many at every batch.
    assert many.terms["casts_s"] == pytest.approx(few.terms["casts_s"])
    assert 0.0 < few.terms["casts_s"][0] < eager.terms["casts_s"][0]


def test_unpadded_sequences_are_fewer_tokens():
    _, padded = costs_of(group_of("bert-base-uncased", batches=(32.0,)))
    _, real = costs_of(
        group_of(
            "bert-base-uncased",
            batches=(32.0,),
            stack=replace(EAGER, unpadded_sequences=True),
        )
    )
    share = real.facts["flops"][0] / padded.facts["flops"][0]
    assert share == pytest.approx(constants("memory")["unpadded_share"])
    assert total(real)[0] < total(padded)[0]


def test_facts_are_shares_and_work():
    step, costs = costs_of(group_of("resnet50", batches=(32.0, 64.0)))
    times = [values for name, values in costs.facts.items() if name.startswith("time_share.")]
    assert np.sum(times, axis=0) == pytest.approx(1.0)
    # Forward 4.1 GMACs (He et al. 2016, v1.5); the first convolution needs no input gradient.
    assert costs.facts["flops"][0] / 32 == pytest.approx(3 * 8.2e9, rel=0.05)
    assert costs.facts["flops"][1] == pytest.approx(2 * costs.facts["flops"][0])
    assert costs.facts["tensor_core_share"][0] == pytest.approx(1.0, abs=0.02)
    assert 0.2 < costs.facts["weight_gradient_share"][0] < 0.4
    assert costs.facts["launches"][0] == (step.launches * step.repeat).sum()
    for name in ("largest_kernel_share", "short_kernel_share"):
        assert ((costs.facts[name] > 0.0) & (costs.facts[name] < 1.0)).all()


@pytest.mark.parametrize("device", ["A100-SXM4-80GB", "RTX3080", "RTX4090", "A10", "L4", "RTX5090"])
@pytest.mark.parametrize("model", ["vgg16", "resnet50", "gpt2"])
def test_no_kernel_is_slower_where_tf32_is_allowed(model, device):
    """Libraries choose: on an RTX 3080 TF32 is no faster than fp32, which has Winograd's convolutions."""
    cluster = get_cluster(device=device, num_devices=1)
    tf32, fp32 = (
        costs_of(group_of(model, policy, batches=(4.0, 64.0), cluster=cluster))[1].kernels_s
        for policy in ("tf32", "fp32")
    )
    assert (tf32 <= fp32 * (1.0 + 1e-12)).all()
