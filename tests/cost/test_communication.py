from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from precision_time.cache import clear
from precision_time.cost.axes import PassTimes, StepContext, group_of
from precision_time.cost.collectives import Line, LinkParams, all_reduce_lines, collective_s
from precision_time.cost.communication import communication
from precision_time.cost.data_axis import ParameterPart
from precision_time.cost.overlap import gradient_schedule
from precision_time.cost.stacks import Stack
from precision_time.cost.traffic import TransformerTraffic, traffic_of
from precision_time.hardware.device import Cluster, Device, Link
from precision_time.parallel.layout import CpCommType, Layout, Recompute
from precision_time.precision.policy import DType, PrecisionPolicy
from precision_time.workload.graph import Node, OpClass, OpGraph

all_reduce_s = partial(collective_s, all_reduce_lines)

DEVICE = Device(
    name="test", vendor="none", arch="none", memory_bytes=80e9, memory_bandwidth_bytes_per_s=2e12,
    peak_flops_per_s={"fp32": 2e13}, sm_count=100.0, l2_bytes=4e7, boost_hz=1.4e9, tdp_w=400.0,
    link_bandwidth_bytes_per_s=300e9, pcie_bandwidth_bytes_per_s=32e9, launch_overhead_s=5e-6,
    release_year=2020,
)  # fmt: skip
BF16 = PrecisionPolicy(
    name="bf16", matmul=DType.BF16, conv=DType.BF16, activation=DType.BF16, param=DType.BF16, grad=DType.BF16,
    reduce=DType.BF16, master=DType.FP32, optimizer_state=DType.FP32, autocast=False, loss_scaling=False,
)  # fmt: skip
LAYERS, PARAMS, KERNELS = 32, 1.6e9, 64
SCHEDULE = gradient_schedule(
    np.full(KERNELS, PARAMS / KERNELS),
    np.ones(KERNELS),
    np.zeros(KERNELS, dtype=np.int64),
    bytes_per_elem=2.0,
)
TRAFFIC = TransformerTraffic(
    num_layers=LAYERS, boundary_elems=8e6, kv_elems=4e6, routed_elems=16e6, moe_layers=LAYERS,
    output_elems=1e6, input_bytes=1e4,
)  # fmt: skip
LINK_TERMS = [f"{axis}_link_s" for axis in ("data", "tensor", "pipeline", "context", "expert")]


def cluster_of(num_devices, network_bytes_per_s=25e9, fabric_bytes_per_s=300e9):
    return Cluster(
        device=DEVICE,
        num_devices=num_devices,
        num_nodes=max(num_devices // 8, 1),
        intra_node=Link(name="nvlink3+nvswitch", bandwidth_bytes_per_s=fabric_bytes_per_s, latency_s=0.6e-6),
        inter_node=Link(name="ib-200g x8", bandwidth_bytes_per_s=network_bytes_per_s, latency_s=2.7e-6),
    )


def times_of(step_s=0.3):
    return PassTimes(
        forward_s=np.array([step_s / 3]),
        backward_s=np.array([step_s * 2 / 3]),
        backward_kernel_s=np.full((1, KERNELS), step_s * 2 / 3 / KERNELS),
    )


def part_of(layout, share=1.0):
    held = share / (layout.tp * layout.pp)
    return ParameterPart(
        params=PARAMS * held, gathered_bytes=PARAMS * held * 2.0, schedule=SCHEDULE, share=held
    )


def axes_of(layout, cluster=None, *, times=None, policy=BF16, parts=None, **options):
    context = StepContext(
        rounds=layout.num_microbatches,
        layout=layout,
        cluster=cluster or cluster_of(layout.world_size),
        policy=policy,
        times=times or times_of(),
        traffic=TRAFFIC,
        **{"micro_batch_size": layout.micro_batch_size, "stage_layers": LAYERS / layout.pp, **options},
    )
    return communication(context, parts or (part_of(layout),))


def terms_of(layout, cluster=None, **options):
    found = axes_of(layout, cluster, **options)
    seconds = {f"{axis}_link_s": overlap.link_s for axis, overlap in found.items()}
    seconds |= {f"{axis}_exposed_s": overlap.exposed_s for axis, overlap in found.items()}
    seconds["contention_s"] = sum(np.asarray(overlap.slowdown_s) for overlap in found.values())
    return {name: float(np.asarray(value).ravel()[0]) for name, value in seconds.items()}


def test_one_device_communicates_nothing():
    assert not any(terms_of(Layout(), cluster_of(1)).values())


LAYOUTS = [
    Layout(dp=64),
    Layout(dp=64, zero_stage=1),
    Layout(dp=64, zero_stage=2, num_microbatches=4),
    Layout(dp=64, zero_stage=3),
    Layout(dp=8, tp=8, sequence_parallel=True),
    Layout(dp=8, tp=2, pp=4, num_microbatches=8, recompute=Recompute.FULL),
    Layout(dp=16, cp=4),
    Layout(dp=64, ep=8),
    Layout(dp=64, data_parallel_engine="parameter-server"),
]


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
@settings(max_examples=15, deadline=None)
@given(factor=st.floats(1.0, 20.0), network=st.booleans())
def test_a_faster_link_never_makes_any_term_longer(layout, factor, network):
    better = {"network_bytes_per_s": 25e9 * factor} if network else {"fabric_bytes_per_s": 300e9 * factor}
    before, after = terms_of(layout, cluster_of(64)), terms_of(layout, cluster_of(64, **better))
    for name in before:
        if name != "contention_s":  # what is hidden may grow as what is exposed shrinks
            assert after[name] <= before[name] * (1 + 1e-9)


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_exposed_lies_between_what_cannot_hide_and_the_link(layout):
    terms = terms_of(layout)
    computed = 0.3 * layout.num_microbatches * 2
    for name in LINK_TERMS:
        link, exposed = terms[name], terms[name.replace("link", "exposed")]
        assert max(0.0, link - computed) - 1e-12 <= exposed <= link * (1 + 1e-9)


def volume_bytes(layout, axis, monkeypatch_links):
    """Bytes per device that an axis sends, read off its slope over links of 1 byte per second."""
    cluster = monkeypatch_links(cluster_of(layout.world_size))
    return terms_of(layout, cluster)[f"{axis}_link_s"]


@pytest.fixture
def unit_links(monkeypatch):
    """Lines without start-up over links that carry 1e6 bytes per second exactly."""
    plain = LinkParams(
        bandwidth_bytes_per_s=1e6, latency_s=0.0, efficiency=1.0, protocol_efficiency=(1.0, 1.0, 1.0)
    )
    monkeypatch.setattr("precision_time.cost.axes.link_params", lambda *_: plain)
    monkeypatch.setattr(Line, "seconds", lambda self, size: self.s_per_byte * size)
    monkeypatch.setattr("precision_time.cost.collectives.line._stacked", lambda _: None)
    clear()
    yield lambda cluster: replace(cluster, num_nodes=1)
    clear()


def test_volumes_are_those_of_the_papers(unit_links):
    n, held = 8, PARAMS * 2.0
    share = (n - 1) / n
    sent = {
        stage: volume_bytes(Layout(dp=n, zero_stage=stage), "data", unit_links) * 1e6
        for stage in (0, 1, 2, 3)
    }
    assert sent[0] == pytest.approx(2 * share * held)
    assert sent[1] == pytest.approx(2 * share * held)
    assert sent[2] == pytest.approx(2 * share * held)
    assert sent[3] == pytest.approx(3 * share * held)


@pytest.mark.parametrize(("zero_stage", "rounds"), [(1, 1), (2, 5), (3, 5)])
def test_gradients_are_scattered_once_a_step_or_in_every_micro_batch(unit_links, zero_stage, rounds):
    """DeepSpeed and Megatron: stage 1 reduces after the last micro batch, stages 2 and 3 after each."""

    def sent(count):
        return volume_bytes(Layout(dp=64, zero_stage=zero_stage, num_microbatches=count), "data", unit_links)

    weights = gradients = 63 / 64 * PARAMS * 2.0 / 1e6
    gathered = 2 * rounds if zero_stage == 3 else 1
    assert float(sent(5)) == pytest.approx(gathered * weights + rounds * gradients, rel=1e-9)
    assert float(sent(1)) == pytest.approx((2 if zero_stage == 3 else 1) * weights + gradients, rel=1e-9)


def test_tensor_parallelism_sends_four_boundaries_per_layer_and_six_when_recomputing(unit_links):
    boundary = TRAFFIC.boundary_elems * 2.0
    ring = 2 * 7 / 8 * boundary * LAYERS
    plain = volume_bytes(Layout(tp=8), "tensor", unit_links) * 1e6
    assert plain == pytest.approx(4 * ring)
    again = volume_bytes(Layout(tp=8, recompute=Recompute.FULL), "tensor", unit_links) * 1e6
    assert again == pytest.approx(6 * ring)
    sequence = volume_bytes(Layout(tp=8, sequence_parallel=True), "tensor", unit_links) * 1e6
    assert sequence == pytest.approx(plain)


def test_context_expert_and_pipeline_volumes(unit_links):
    kv, routed, boundary = (2.0 * e for e in (TRAFFIC.kv_elems, TRAFFIC.routed_elems, TRAFFIC.boundary_elems))
    ring = volume_bytes(Layout(cp=8), "context", unit_links) * 1e6
    assert ring == pytest.approx(3 * 7 / 8 * kv * LAYERS)
    experts = volume_bytes(Layout(dp=8, ep=8), "expert", unit_links) * 1e6
    assert experts == pytest.approx(4 * 7 / 8 * routed * LAYERS)
    stages = volume_bytes(Layout(pp=8, num_microbatches=16), "pipeline", unit_links) * 1e6
    assert stages == pytest.approx(2 * 16 * boundary)


def test_experts_hide_behind_another_micro_batch_and_send_once_per_node():
    plain = Layout(dp=64, ep=64, num_microbatches=8)
    seconds = {
        name: terms_of(replace(plain, **changes), times=times_of(3.0))
        for name, changes in {
            "plain": {},
            "overlap": {"expert_overlap": True},
            "alone": {"expert_overlap": True, "num_microbatches": 1},
            "nodes": {"expert_nodes": 4},
            "one node": {"expert_nodes": 1},
        }.items()
    }
    exposed = {name: found["expert_exposed_s"] for name, found in seconds.items()}
    assert exposed["plain"] == seconds["plain"]["expert_link_s"] == seconds["overlap"]["expert_link_s"]
    # The last of eight micro batches has no other to hide behind, nor has the first layer.
    assert exposed["plain"] / 8 < exposed["overlap"] < exposed["plain"] / 8 * 1.3
    assert exposed["alone"] == seconds["alone"]["expert_link_s"]
    assert seconds["overlap"]["contention_s"] > 0.0
    # Two experts per token on eight nodes: 8 (1 - (7/8)^2) = 1.875 of them.
    assert exposed["nodes"] == pytest.approx(exposed["plain"] * 1.875 / 2, rel=0.02)
    assert exposed["one node"] < exposed["nodes"]
    inside = Layout(dp=8, ep=8)
    assert terms_of(replace(inside, expert_nodes=4)) == terms_of(inside)


def test_micro_batches_pay_again_only_where_they_must():
    one, four = Layout(dp=64), Layout(dp=64, num_microbatches=4)
    assert terms_of(four)["data_link_s"] == terms_of(one)["data_link_s"]
    for layout in (Layout(tp=8, dp=8), Layout(dp=64, zero_stage=3), Layout(dp=64, ep=8)):
        axis = "tensor" if layout.tp > 1 else "expert" if layout.ep > 1 else "data"
        once = terms_of(layout)[f"{axis}_link_s"]
        assert terms_of(replace(layout, num_microbatches=4))[f"{axis}_link_s"] == pytest.approx(4 * once)


def test_a_longer_backward_pass_hides_more():
    slow_network = cluster_of(64, network_bytes_per_s=2e9)
    exposed = [
        terms_of(Layout(dp=64), slow_network, times=times_of(s))["data_exposed_s"] for s in (0.01, 0.1, 1.0)
    ]
    assert exposed[0] > exposed[1] > exposed[2] > 0.0


def test_data_parallel_module_is_slower_than_ddp_and_hides_nothing():
    module = terms_of(Layout(dp=8, data_parallel_engine="dataparallel"))
    ddp = terms_of(Layout(dp=8))
    assert module["data_exposed_s"] == module["data_link_s"] > ddp["data_exposed_s"]


def test_data_parallel_module_moves_all_through_its_first_device(unit_links):
    n, samples = 8, 4.0
    layout = Layout(dp=n, data_parallel_engine="dataparallel", micro_batch_size=samples)
    inputs, outputs = TRAFFIC.input_bytes * samples * n, TRAFFIC.output_elems * 2.0 * samples * n
    expected = 2 * PARAMS * 2.0 + (n - 1) / n * (inputs + 2 * outputs)
    assert volume_bytes(layout, "data", unit_links) * 1e6 == pytest.approx(expected)


def test_experts_average_over_their_own_ranks(unit_links):
    layout = Layout(dp=8, ep=4)
    dense, experts = part_of(layout, 0.25), part_of(layout, 0.75 / 4)
    sent = terms_of(layout, unit_links(cluster_of(8)), parts=(dense, experts))["data_link_s"] * 1e6
    held = PARAMS * 2.0
    assert sent == pytest.approx(2 * 7 / 8 * 0.25 * held + 2 * 1 / 2 * 0.75 / 4 * held)


def test_hybrid_sharding_gathers_among_neighbors_and_reduces_shards_between_them(unit_links):
    held = PARAMS * 2.0
    sent = volume_bytes(Layout(dp=64, zero_stage=3, dp_shard=8), "data", unit_links) * 1e6
    assert sent == pytest.approx(3 * 7 / 8 * held + 2 * 7 / 8 * held / 8)


def test_kept_parameters_are_gathered_once_and_prefetch_hides():
    layout, slow = Layout(dp=64, zero_stage=3), cluster_of(64, network_bytes_per_s=5e9)
    kept = replace(layout, reshard_after_forward=False)
    assert terms_of(kept, slow)["data_link_s"] == pytest.approx(terms_of(layout, slow)["data_link_s"] * 2 / 3)
    alone = terms_of(replace(layout, prefetch=0), slow)
    assert alone["data_exposed_s"] > terms_of(layout, slow)["data_exposed_s"]


def test_what_the_software_does_not_overlap_is_exposed():
    layout = Layout(dp=64)
    plain, after = (terms_of(layout, stack=Stack(overlap_grad_reduce=overlap)) for overlap in (True, False))
    assert after["data_exposed_s"] == after["data_link_s"] > plain["data_exposed_s"]
    tensor = Layout(dp=8, tp=8)
    cut, whole = (terms_of(tensor, stack=Stack(overlap_tensor=hidden)) for hidden in (True, False))
    assert cut["tensor_exposed_s"] < whole["tensor_exposed_s"] == whole["tensor_link_s"]


def test_interleaved_chunks_hide_more_of_the_gradient_exchange():
    slow = cluster_of(64, network_bytes_per_s=2e9)
    shown = [
        terms_of(Layout(dp=8, pp=8, vpp=v, num_microbatches=8), slow)["data_exposed_s"] for v in (1, 2, 4)
    ]
    assert shown[0] > shown[1] > shown[2] > 0.0
    assert shown[1] >= shown[0] / 2 * (1 - 1e-9)


def test_every_way_to_share_a_context_sends_keys_and_values(unit_links):
    kv, boundary = 2.0 * TRAFFIC.kv_elems, 2.0 * TRAFFIC.boundary_elems
    gathered = volume_bytes(Layout(cp=8, cp_comm_type=CpCommType.ALL_GATHER), "context", unit_links)
    assert gathered * 1e6 == pytest.approx(3 * 7 / 8 * kv * LAYERS)
    swapped = volume_bytes(Layout(cp=8, cp_comm_type=CpCommType.ULYSSES), "context", unit_links)
    assert swapped * 1e6 == pytest.approx(2 * 7 / 8 * (2 * boundary + kv) / 8 * LAYERS)


@pytest.mark.parametrize(
    ("size", "stride", "nodes"), [(8, 1, 1), (8, 8, 8), (16, 4, 8), (64, 1, 8), (2, 4, 1), (2, 8, 2)]
)
def test_groups_are_spread_as_tensor_ranks_innermost_say(size, stride, nodes):
    assert float(group_of(size, stride, cluster_of(64)).nodes) == nodes


def test_outer_axes_cross_nodes_and_share_nothing_with_inner_ones():
    inner, outer = group_of(8, 1, cluster_of(64)), group_of(8, 8, cluster_of(64))
    fast, slow = (all_reduce_s(1e9, g.size, g.nodes, g.intra, g.inter) for g in (inner, outer))
    assert slow > 5 * fast


def test_many_micro_batches_at_once():
    sizes = np.array([1.0, 2.0, 4.0])
    layout = Layout(dp=8, tp=8)
    together = axes_of(layout, micro_batch_size=sizes)["tensor"].link_s
    for size, seconds in zip(sizes, together, strict=True):
        alone = terms_of(replace(layout, micro_batch_size=float(size)))
        assert seconds == pytest.approx(alone["tensor_link_s"])


def test_traffic_is_read_off_the_repeated_block():
    def product(out, *, inputs=(), repeat=4, op="linear", param=0.0, op_class=OpClass.GEMM, k=8.0):
        return Node(
            op=op, op_class=op_class, inputs=inputs, m=16.0, n=16.0, k=k, count=2.0, out_elems=out,
            param_elems=param, repeat=repeat, segment=1 if repeat > 1 else 0,
        )  # fmt: skip

    nodes = (
        product(128.0, repeat=1, op_class=OpClass.EMBEDDING, op="embedding"),
        product(256.0, inputs=(0,)),
        product(64.0, inputs=(0,)),
        product(64.0, inputs=(0,)),
        product(256.0, inputs=(1, 2, 3), op="scaled_dot_product_attention", op_class=OpClass.ATTENTION),
        product(900.0, inputs=(4,), op="_grouped_mm"),
        product(128.0, inputs=(5,), op="add", op_class=OpClass.ELEMENTWISE),
        product(5000.0, inputs=(6,), repeat=1),
    )
    graph = OpGraph(
        name="t", nodes=nodes, params=1.0, trainable_params=1.0, param_tensors=1, input_bytes_per_sample=7.0
    )
    found = traffic_of(graph)
    assert found == TransformerTraffic(
        num_layers=4.0, boundary_elems=128.0, kv_elems=128.0, routed_elems=16.0 * 8.0 * 2.0, moe_layers=4.0,
        output_elems=5000.0, input_bytes=7.0,
    )  # fmt: skip
