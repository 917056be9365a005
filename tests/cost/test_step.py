"""The analytical step: terms add up, and nothing that is better makes it longer."""

import math
from dataclasses import replace
from typing import get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from precision_time.corpus.jobs import job_of as job_of_row
from precision_time.corpus.store import load_corpus
from precision_time.cost.constants import constants
from precision_time.cost.input import SYNTHETIC, feed_of
from precision_time.cost.job import Job, Jobs, TimingScope, group_key
from precision_time.cost.memory import memory_of, total_bytes
from precision_time.cost.stacks import get_stack_profile
from precision_time.cost.step import price
from precision_time.cost.terms import EXPOSED_TERMS as ALL_EXPOSED
from precision_time.cost.terms import HOST_STALL, KERNEL_TERMS, TERMS
from precision_time.errors import LayoutError
from precision_time.hardware.catalog import get_cluster
from precision_time.parallel.layout import Layout, Recompute
from precision_time.precision.catalog import get_policy
from precision_time.request.schema import RequestFields
from precision_time.workload.resolve import load_workload

COMPUTE_TERMS = (*KERNEL_TERMS, HOST_STALL)
EAGER = get_stack_profile("pytorch-eager").stack()

MODELS = ("resnet50", "mobilenetv2_100", "bert-base-uncased", "gpt2")
POLICIES = ("fp32", "tf32", "fp16-mixed", "bf16-mixed", "bf16")
OPTIMIZER_TERMS = ("optimizer_s", "unscale_s", "host_sync_s")
EXPOSED_TERMS = tuple(name for name in ALL_EXPOSED if name != "straggler_s")


def job_of(
    model="resnet50",
    policy="fp16-mixed",
    gpus=1,
    nodes=None,
    batch=32,
    *,
    device="A100-SXM4-80GB",
    scope=TimingScope.FULL_STEP,
    stack=None,
    optimizer=None,
    **layout,
):
    degrees = layout.get("tp", 1) * layout.get("pp", 1)
    return Job(
        workload=load_workload(model, optimizer=optimizer),
        cluster=get_cluster(device=device, num_devices=gpus, num_nodes=nodes),
        precision=get_policy(policy),
        layout=Layout(dp=gpus // degrees, micro_batch_size=float(batch), **layout),
        stack=stack or EAGER,
        scope=scope,
    )


def priced(job):
    return price(Jobs.at(job))


def terms_of(job):
    return {name: float(values[0]) for name, values in priced(job).terms.items()}


def step_s(job):
    return float(priced(job).step_time_s[0])


def exposed_s(job):
    return sum(terms_of(job)[name] for name in EXPOSED_TERMS)


jobs = st.fixed_dictionaries(
    {
        "model": st.sampled_from(MODELS),
        "policy": st.sampled_from(POLICIES),
        "gpus": st.sampled_from([1, 2, 8, 16, 64]),
        "batch": st.sampled_from([1, 8, 64]),
        "num_microbatches": st.sampled_from([1, 4]),
        "zero_stage": st.sampled_from([0, 1, 3]),
        "recompute": st.sampled_from(list(Recompute)),
    }
)
"""Arguments of `job_of`: a job itself would be too long to print."""


@given(jobs)
def test_terms_add_up_to_the_step(asked):
    job = job_of(**asked)
    costs = priced(job)
    terms = terms_of(job)
    assert set(terms) == {term.name for term in TERMS}
    assert min(terms.values()) >= 0.0
    assert math.fsum(terms.values()) == pytest.approx(float(costs.step_time_s[0]), rel=1e-9)
    rest = float(costs.step_time_s[0] - costs.compute_s[0])
    assert rest == pytest.approx(sum(terms[name] for name in ALL_EXPOSED), abs=1e-12)


@given(jobs)
def test_one_device_has_no_communication_and_several_have(asked):
    job = job_of(**asked)
    costs = priced(job)
    if job.cluster.num_devices == 1:
        assert float(costs.link_s[0]) == 0.0
        assert exposed_s(job) == 0.0
    else:
        assert float(costs.link_s[0]) > 0.0


@given(jobs)
def test_exposed_seconds_of_an_axis_are_at_most_its_link_seconds(asked):
    costs = priced(job_of(**asked))
    assert list(costs.link_seconds) == ["data", "tensor", "context", "expert", "pipeline"]
    for axis, link_s in costs.link_seconds.items():
        assert (costs.terms[f"{axis}_exposed_s"] <= link_s * (1 + 1e-9)).all()
    np.testing.assert_allclose(costs.link_s, sum(costs.link_seconds.values()), rtol=1e-12)


def test_only_the_axes_in_use_send():
    sent = priced(job_of("gpt2", gpus=8, tp=2, pp=2, num_microbatches=4)).link_seconds
    assert {axis for axis, seconds in sent.items() if seconds[0] > 0.0} == {"data", "tensor", "pipeline"}


def test_terms_stand_in_the_order_of_the_registry():
    names = [term.name for term in TERMS]
    found = list(terms_of(job_of()))
    assert found == [name for name in names if name in found]
    assert len(set(names)) == len(names)


def test_muon_multiplies_the_matrices_of_the_layers():
    """Four matrices in each of the 12 layers of GPT-2: the products alone bound the update from below."""
    hidden, layers = 768.0, 12
    once = {(hidden, 3 * hidden), (hidden, hidden), (hidden, 4 * hidden), (4 * hidden, hidden)}
    flops = layers * sum(5 * 2 * (2 * max(s) * min(s) ** 2 + min(s) ** 3) for s in once)
    muon, adamw = (terms_of(job_of("gpt2", optimizer=name))["optimizer_s"] for name in ("muon", "adamw"))
    assert muon > adamw
    assert muon >= flops / 312e12
    sharded, whole = (
        terms_of(job_of("gpt2", gpus=8, optimizer="muon", zero_stage=stage))["optimizer_s"]
        for stage in (1, 0)
    )
    assert sharded < whole


@given(jobs)
def test_recomputation_is_there_only_under_checkpointing(asked):
    job = job_of(**asked)
    found = terms_of(job)["recompute_s"]
    if job.layout.recompute is Recompute.NONE:
        assert found == 0.0
    elif job.layout.recompute is Recompute.FULL:
        assert found > 0.0


def test_a_tiny_batch_is_bound_by_the_host_a_large_one_is_not():
    assert terms_of(job_of("mobilenetv2_100", batch=1))["host_stall_s"] > 0.0
    large = job_of("mobilenetv2_100", batch=512)
    assert terms_of(large)["host_stall_s"] < 0.01 * step_s(large)


def test_pytorch_updates_tensor_by_tensor_on_metal():
    job = job_of("mobilenetv2_100", "fp32", device="Apple-M3-Max-40c", optimizer="adam")
    tensors, launch_s = job.workload.graph.param_tensors, job.cluster.device.launch_overhead_s
    passes = constants("optimizers")["adam"]["foreach"]["kernels"]
    assert terms_of(job)["optimizer_s"] >= passes * tensors * launch_s
    tensorflow = replace(job, stack=get_stack_profile("tf-graph").stack())
    assert terms_of(tensorflow)["optimizer_s"] < passes * tensors * launch_s


def test_a_slow_feed_bounds_the_step_whatever_the_device_and_the_precision():
    fed = replace(EAGER, real_input=True, loader="pil", loader_cores=1.0)
    slow = [
        job_of("resnet50", policy, batch=64, device=device, stack=fed)
        for policy, device in (("fp32", "A100-SXM4-80GB"), ("bf16-mixed", "H100-SXM5-80GB"))
    ]
    for job in slow:
        # The feed and what the smooth maximum adds for a device half as slow.
        assert 64 * 9e-3 <= step_s(job) < 1.04 * 64 * 9e-3
        assert terms_of(job)["data_stall_s"] > 0.5 * step_s(job)


@given(st.sampled_from(["pil", "tf.data", "dali"]), st.integers(1, 256), st.sampled_from([8, 64, 256]))
def test_more_cores_never_lengthen_a_step_and_a_larger_batch_never_shortens_it(loader, cores, batch):
    def seconds(cores, batch):
        stack = replace(EAGER, real_input=True, loader=loader, loader_cores=float(cores))
        return step_s(job_of("resnet50", batch=batch, stack=stack))

    here = seconds(cores, batch)
    assert seconds(cores + 1, batch) <= here <= seconds(cores, 2 * batch)
    assert here >= step_s(job_of("resnet50", batch=batch))


def test_a_pod_has_the_cores_of_all_its_hosts():
    fed = replace(EAGER, real_input=True, loader="tf.data")
    small, large = (
        feed_of(load_workload("resnet50"), get_cluster(device="TPUv3", num_devices=n), fed).cores
        for n in (64, 512)
    )
    assert large == 8 * small


@pytest.mark.parametrize(
    ("device", "number", "cores"),
    [("TPUv5e", 8, 112), ("TPUv6e", 4, 90), ("TPUv5p", 4, 104), ("MI300X", 8, 112), ("MI300X", 16, 224)],
)
def test_hosts_of_tpus_and_of_instinct_have_the_cores_of_their_makers(device, number, cores):
    fed = replace(EAGER, real_input=True, loader="tf.data")
    cluster = get_cluster(device=device, num_devices=number)
    assert feed_of(load_workload("resnet50"), cluster, fed).cores == cores


def test_machines_of_one_device_have_the_cores_that_clouds_let():
    fed = replace(EAGER, real_input=True, loader="pil")
    for node, device, cores in (
        ("g6.xlarge", "L4", 2),
        ("a2-highgpu-1g", "A100-SXM4-40GB", 6),
        ("NC4as_T4_v3", "T4", 4),
    ):
        cluster = get_cluster(device=device, num_devices=1, node_type=node)
        assert feed_of(load_workload("resnet50"), cluster, fed).cores == cores


def test_workers_of_each_process_bound_the_cores_unless_those_are_given():
    stack = replace(get_stack_profile("mindspore").stack(), loader="tf.data")

    def cores(devices: int, **given: float) -> float:
        cluster = get_cluster(device="Ascend910B", num_devices=devices)
        return feed_of(load_workload("resnet50"), cluster, replace(stack, **given)).cores

    each = constants("input")["workers"]["mindspore"]
    assert [cores(n) for n in (1, 2, 8)] == [each, 2 * each, 8 * each]
    assert cores(8, loader_cores=100.0) == 100.0


def test_every_kind_of_sample_has_every_loader():
    offered = set(get_args(get_args(RequestFields.model_fields["loader"].annotation)[0]))
    for kind in constants("input")["kind"].values():
        assert {SYNTHETIC, *kind["core_ms"]} == offered


def test_tokens_need_no_decoder():
    fed = replace(EAGER, real_input=True, loader="pil", loader_cores=1.0)
    assert terms_of(job_of("gpt2", batch=8, stack=fed))["data_stall_s"] == 0.0


def test_accumulation_repeats_compute_but_not_the_update():
    once, four = terms_of(job_of()), terms_of(job_of(num_microbatches=4))
    for name in COMPUTE_TERMS:
        assert four[name] == pytest.approx(4 * once[name])
    for name in OPTIMIZER_TERMS:
        assert four[name] == once[name]


def test_a_scope_without_the_optimizer_drops_it_and_only_it():
    full = terms_of(job_of(optimizer="adamw"))
    bare = terms_of(job_of(optimizer="adamw", scope=TimingScope.NO_OPTIMIZER))
    assert full["optimizer_s"] > 0.0
    assert all(bare[name] == 0.0 for name in OPTIMIZER_TERMS)
    assert {name: bare[name] for name in COMPUTE_TERMS} == {name: full[name] for name in COMPUTE_TERMS}


def test_adam_moves_more_than_sgd_and_a_fused_form_less():
    fused = replace(EAGER, fused_optimizer=True)
    sgd, adam = (terms_of(job_of("gpt2", optimizer=name))["optimizer_s"] for name in ("sgd", "adamw"))
    assert adam > sgd > 0.0
    assert terms_of(job_of("gpt2", optimizer="adamw", stack=fused))["optimizer_s"] < adam


def test_loss_scaling_is_of_fp16_only():
    assert terms_of(job_of(policy="fp16-mixed"))["unscale_s"] > 0.0
    assert terms_of(job_of(policy="bf16-mixed"))["unscale_s"] == 0.0


def test_old_frameworks_update_tensor_by_tensor():
    old = replace(EAGER, framework_year=2020.0)
    new = replace(EAGER, framework_year=2023.0)
    job = job_of("mobilenetv2_100", policy="fp32", batch=1)
    slow, fast = (terms_of(replace(job, stack=stack))["optimizer_s"] for stack in (old, new))
    assert slow > 3 * fast


def test_trainers_that_look_at_every_tensor_pay_for_it():
    watchful = replace(EAGER, host_per_tensor_s=1e-3)
    tensors = load_workload("resnet50").graph.param_tensors
    assert terms_of(job_of(stack=watchful))["trainer_s"] == pytest.approx(1e-3 * tensors)
    assert terms_of(job_of())["trainer_s"] == 0.0


def test_sharding_moves_more_and_keeps_less():
    plain, sharded = job_of("gpt2", gpus=8), job_of("gpt2", gpus=8, zero_stage=3)
    assert float(priced(sharded).link_s[0]) > float(priced(plain).link_s[0]) > 0.0
    held = [float(np.max(total_bytes(memory_of(Jobs.at(job))))) for job in (plain, sharded)]
    assert held[1] < held[0]


def test_more_nodes_expose_more_than_one():
    assert exposed_s(job_of("gpt2", gpus=16, nodes=2, batch=1)) > exposed_s(job_of("gpt2", gpus=8, batch=1))


def test_tensor_parallelism_has_terms_of_its_own():
    terms = terms_of(job_of("gpt2", gpus=8, batch=8, tp=4))
    assert terms["tensor_exposed_s"] > 0.0
    terms = terms_of(job_of("gpt2", gpus=8, batch=8, pp=4, num_microbatches=8))
    assert terms["pipeline_bubble_s"] > 0.0


better = st.floats(1.0, 10.0)


@settings(max_examples=60)
@given(jobs, st.sampled_from(["peak", "bandwidth", "intra", "inter", "latency"]), better)
def test_better_hardware_never_makes_a_step_longer(asked, what, factor):
    job = job_of(**asked)
    cluster, device = job.cluster, job.cluster.device
    if what == "peak":
        peaks = {word: value * factor for word, value in device.peak_flops_per_s.items()}
        cluster = replace(cluster, device=replace(device, peak_flops_per_s=peaks))
    elif what == "bandwidth":
        wider = device.memory_bandwidth_bytes_per_s * factor
        cluster = replace(cluster, device=replace(device, memory_bandwidth_bytes_per_s=wider))
    elif what == "latency":
        sooner = device.launch_overhead_s / factor
        cluster = replace(cluster, device=replace(device, launch_overhead_s=sooner))
    else:
        link = getattr(cluster, f"{what}_node")
        wide = replace(link, bandwidth_bytes_per_s=link.bandwidth_bytes_per_s * factor)
        cluster = replace(cluster, **{f"{what}_node": wide})
    assert step_s(replace(job, cluster=cluster)) <= step_s(job) * (1 + 1e-9)


@given(jobs, st.lists(st.integers(1, 256), min_size=2, max_size=5))
def test_a_group_is_priced_like_its_jobs_one_by_one(asked, batches):
    job = job_of(**asked)
    members = [replace(job, layout=replace(job.layout, micro_batch_size=float(b))) for b in batches]
    assert len({group_key(member) for member in members}) == 1
    together = price(Jobs.alike(members))
    for index, member in enumerate(members):
        alone = priced(member)
        for name, values in alone.terms.items():
            assert float(together.terms[name][index]) == pytest.approx(float(values[0]), rel=1e-12), name
        for name, values in alone.facts.items():
            assert float(together.facts[name][index]) == pytest.approx(float(values[0]), rel=1e-9), name
        assert float(together.link_s[index]) == pytest.approx(float(alone.link_s[0]), rel=1e-12)


def test_other_jobs_do_not_share_a_group():
    job = job_of()
    others = [
        replace(job, scope=TimingScope.NO_OPTIMIZER),
        replace(job, precision=get_policy("fp32")),
        replace(job, stack=replace(job.stack, compiler="inductor")),
        replace(job, layout=replace(job.layout, num_microbatches=2)),
    ]
    assert len({group_key(item) for item in (job, *others)}) == len(others) + 1


def test_a_layout_must_fill_the_cluster():
    with pytest.raises(LayoutError, match=r"dp\(8\).*= 8, but the cluster has 1 devices.*To fix"):
        replace(job_of(gpus=8), cluster=get_cluster(device="A100-SXM4-80GB", num_devices=1))


def test_the_fullest_stage_sets_the_pace_wherever_it_stands_between_the_ends():
    second, third, even = (
        terms_of(job_of("gpt2", gpus=4, pp=4, num_microbatches=8, stage_layers=layers))
        for layers in ((1, 9, 1, 1), (1, 1, 9, 1), (3, 3, 3, 3))
    )
    assert second["gemm_s"] == third["gemm_s"]
    assert second["attention_s"] != even["attention_s"]


def test_a_job_costs_the_same_alone_and_in_a_group():
    """Stages of equal length: which of them is the slowest must not hang on the last bit of a sum."""
    rows = [row for row in load_corpus() if row.usable and row.source == "vtrain" and row.layout.pp > 1][:250]
    jobs = [job_of_row(row) for row in rows]
    groups = {}
    for job in jobs:
        groups.setdefault(group_key(job), []).append(job)
    assert any(len(group) > 3 for group in groups.values())
    for group in groups.values():
        together = price(Jobs.alike(group))
        for index, job in enumerate(group):
            alone = price(Jobs.at(job))
            for name, seconds in alone.terms.items():
                np.testing.assert_allclose(seconds[0], together.terms[name][index], rtol=1e-9, atol=1e-12)
