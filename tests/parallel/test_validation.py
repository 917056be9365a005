"""Layouts that cannot be: the equation is filled in, and the remedy leads out."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from precision_time.errors import LayoutError
from precision_time.parallel.axis_rules import stage_layers_in_words
from precision_time.parallel.degrees import divisors, nearest_degrees, nearest_divisor, nearest_multiple
from precision_time.parallel.layout import CpCommType, Layout, Offload, PipelineSchedule, Recompute
from precision_time.parallel.shape import ModelShape
from precision_time.parallel.validation import check_model_layout, layout_warnings

LLAMA_70B = ModelShape(num_layers=80, heads=64, kv_heads=8, num_experts=0, seq_len=8192)
LLAMA_405B = ModelShape(num_layers=126, heads=128, kv_heads=8, num_experts=0, seq_len=8192)
MIXTRAL = ModelShape(num_layers=32, heads=32, kv_heads=8, num_experts=8, seq_len=4096)
RESNET = ModelShape()
INTERLEAVED = PipelineSchedule.INTERLEAVED


def check(shape: ModelShape, **fields: Any) -> None:
    """Check a layout whose data ranks fill 1024 devices, unless it says otherwise."""
    layout = Layout(**fields)
    if "dp" not in fields:
        layout = replace(layout, dp=1024 // layout.world_size)
    check_model_layout(layout, shape, num_devices=1024)


PUBLISHED = [
    (LLAMA_70B, {"tp": 8, "pp": 4, "vpp": 5, "schedule": INTERLEAVED, "num_microbatches": 16}),
    # Llama 3 paper, table 4: 126 layers on 16 stages, one fewer on the first and the last; then with context.
    (LLAMA_405B, {"tp": 8, "pp": 16, "stage_layers": (7, *[8] * 14, 7), "num_microbatches": 16}),
    (LLAMA_405B, {"pp": 16, "stage_layers": (7, *[8] * 14, 7), "vpp": 8, "schedule": INTERLEAVED,
                  "num_microbatches": 16}),
    (LLAMA_405B, {"tp": 8, "pp": 16, "cp": 8, "stage_layers": (7, *[8] * 14, 7), "sequence_parallel": True}),
    (MIXTRAL, {"tp": 4, "pp": 4, "ep": 8, "etp": 1}),
    (MIXTRAL, {"ep": 8, "zero_stage": 3, "dp_shard": 8, "offload": Offload.PARAMETERS}),
    (RESNET, {"zero_stage": 1, "offload": Offload.OPTIMIZER}),
    (LLAMA_70B, {"cp": 8, "tp": 8, "cp_comm_type": CpCommType.ULYSSES}),
    (LLAMA_70B, {"zero_stage": 3, "reshard_after_forward": False}),
]  # fmt: skip


@pytest.mark.parametrize(("shape", "fields"), PUBLISHED)
def test_layouts_that_people_run_pass(shape: ModelShape, fields: dict[str, Any]) -> None:
    check(shape, **fields)


REFUSED = [
    (LLAMA_70B, {"tp": 3, "dp": 341}, r"dp\(341\) \* tp\(3\) \* pp\(1\) \* cp\(1\) = 1023, but there are "
     r"1024 devices\. To fix: tp=4, pp=1, cp=1 with dp the rest"),
    (LLAMA_405B, {"pp": 16},
     r"layers\(126\) % pp\(16\) = 14\. To fix: an uneven split, stage_layers=7,8x14,7"),
    (LLAMA_70B, {"pp": 4, "vpp": 3, "schedule": INTERLEAVED, "num_microbatches": 4},
     r"layers\(80\) % \(pp\(4\) \* vpp\(3\)\) = 8\. To fix: vpp=4"),
    (MIXTRAL, {"pp": 64}, r"layers\(32\) < pp\(64\) \* vpp\(1\) = 64\. To fix: pp=32\."),
    (LLAMA_70B, {"pp": 4, "stage_layers": (20, 20, 40)}, r"names 3 stages, but pp=4"),
    (LLAMA_70B, {"pp": 4, "stage_layers": (20,) * 3 + (21,)},
     r"adds up to 81; .* 80\. To fix: stage_layers=20x4"),
    (LLAMA_70B, {"pp": 2, "stage_layers": (80, 0)}, r"every stage a layer"),
    (LLAMA_70B, {"pp": 4, "stage_layers": (26, 2, 26, 26), "vpp": 4, "num_microbatches": 4,
                 "schedule": INTERLEAVED},
     r"gives stage 1 2 layers for vpp=4 .*To fix: vpp=2 or"),
    (LLAMA_70B, {"pp": 4, "vpp": 2},
     r"vpp\(2\) is for the interleaved.*schedule=interleaved, or"),
    (LLAMA_70B, {"vpp": 2, "schedule": INTERLEAVED}, r"pp=1\. To fix: pp=2 or more"),
    (LLAMA_70B, {"pp": 4, "schedule": INTERLEAVED}, r"vpp=1\. To fix: vpp=2, or schedule=1f1b"),
    (LLAMA_70B, {"pp": 4, "vpp": 2, "schedule": INTERLEAVED, "num_microbatches": 10},
     r"num_microbatches\(10\) % pp\(4\) = 2\. To fix: 12 micro batches"),
    (replace(LLAMA_70B, heads=12, kv_heads=12), {"tp": 8}, r"heads\(12\) % tp\(8\) = 4\. To fix: tp=4\."),
    (replace(LLAMA_70B, heads=96, kv_heads=6), {"tp": 4},
     r"kv_heads\(6\) % tp\(4\) = 2 nor .* To fix: tp=2\."),
    (replace(LLAMA_70B, seq_len=8200), {"cp": 8},
     r"seq_len\(8200\) % \(2 \* cp\(8\)\) = 8\. To fix: seq_len=8192"),
    (LLAMA_70B, {"cp": 16, "tp": 8, "cp_comm_type": CpCommType.ULYSSES},
     r"heads\(64\) % \(cp\(16\) \* tp\(8\)\) = 64\. To fix: cp=8, or cp_comm_type=ring"),
    (replace(LLAMA_70B, seq_len=8190), {"tp": 8, "sequence_parallel": True},
     r"\(seq_len\(8190\) / cp\(1\)\) % tp\(8\) = 6\. To fix: seq_len=8192"),
    (RESNET, {"cp": 2}, r"cp\(2\) cuts sequences, but the model takes none\. To fix: cp=1"),
    (LLAMA_70B, {"ep": 8}, r"ep=8 is about experts, but the model has none\. To fix"),
    (LLAMA_70B, {"expert_capacity_factor": 1.25}, r"expert_capacity_factor=1\.25 is about experts"),
    (MIXTRAL, {"expert_capacity_factor": -1.0}, r"expert_capacity_factor=-1 must not be below 0"),
    (MIXTRAL, {"expert_nodes": -1}, r"expert_nodes=-1 must not be below 0\. To fix: expert_nodes=4"),
    (LLAMA_70B, {"expert_overlap": True}, r"expert_overlap=1 is about experts"),
    (MIXTRAL, {"ep": 16}, r"experts\(8\) % ep\(16\) = 8\. To fix: ep=8\."),
    (MIXTRAL, {"tp": 4, "pp": 4, "cp": 16, "dp": 4, "ep": 8, "etp": 3},
     r"tp\(4\) \* cp\(16\) \* dp\(4\) = 256 does not divide by ep\(8\) \* etp\(3\) = 24\. "
     r"To fix: ep=8, etp=4\."),
    (LLAMA_70B, {"zero_stage": 3, "dp_shard": 6},
     r"= 1024 does not divide by dp_shard\(6\)\. .*dp_shard=8"),
    (LLAMA_70B, {"dp_shard": 8}, r"dp_shard\(8\) shards nothing at zero_stage=0\. To fix: zero_stage=3"),
    (LLAMA_70B, {"zero_stage": 2, "reshard_after_forward": False}, r"got zero_stage=2\. To fix"),
    (LLAMA_70B, {"zero_stage": 3, "prefetch": -1}, r"prefetch=-1 is below 0\. To fix: prefetch=1"),
    (LLAMA_70B, {"offload": Offload.OPTIMIZER}, r"zero_stage\(0\) must be at least 1\. To fix: zero_stage=1"),
    (LLAMA_70B, {"zero_stage": 2, "offload": Offload.PARAMETERS}, r"zero_stage\(2\) must be at least 3"),
]  # fmt: skip


@pytest.mark.parametrize(("shape", "fields", "said"), REFUSED)
def test_what_cannot_be_is_refused_with_its_equation(
    shape: ModelShape, fields: dict[str, Any], said: str
) -> None:
    with pytest.raises(LayoutError, match=said):
        check(shape, **fields)


degree = st.integers(1, 24)


@given(
    st.sampled_from([8, 48, 60, 64, 96, 1024]),
    st.sampled_from([LLAMA_70B, LLAMA_405B, MIXTRAL]),
    degree,
    degree,
    degree,
)
def test_the_remedy_leads_out(num_devices: int, shape: ModelShape, tp: int, pp: int, cp: int) -> None:
    """Following what the refusals say, one after the other, ends at a layout that can be."""
    wanted = {"tp": tp, "pp": pp, "cp": cp}
    stage_layers: tuple[int, ...] = ()
    for _ in range(6):
        dp = max(num_devices // (wanted["tp"] * wanted["pp"] * wanted["cp"]), 1)
        layout = Layout(dp=dp, **wanted, stage_layers=stage_layers)
        try:
            check_model_layout(layout, shape, num_devices=num_devices)
        except LayoutError as refusal:
            _, _, remedy = str(refusal).partition("To fix: ")
            offered = {name: int(value) for name, value in re.findall(r"\b(tp|pp|cp)=(\d+)", remedy)}
            assert offered, refusal
            assert offered.items() - wanted.items(), refusal
            wanted |= offered
        else:
            return
    pytest.fail(f"no way out of {wanted} on {num_devices}")


@given(st.integers(1, 10**6), st.integers(1, 10**4))
def test_nearest_divisors_divide(number: int, wanted: int) -> None:
    found = nearest_divisor(number, wanted)
    assert number % found == 0
    assert all(
        max(found, wanted) * min(other, wanted) <= max(other, wanted) * min(found, wanted) * (1 + 1e-9)
        for other in divisors(number)
    )
    multiple = nearest_multiple(wanted, number)
    assert multiple % wanted == 0
    assert abs(multiple - number) <= wanted


@given(st.integers(1, 4096), degree, degree)
def test_nearest_degrees_divide_and_stay_where_they_can(number: int, tp: int, pp: int) -> None:
    found = nearest_degrees(number, {"tp": tp, "pp": pp})
    assert number % (found["tp"] * found["pp"]) == 0
    if number % (tp * pp) == 0:
        assert found == {"tp": tp, "pp": pp}


def test_stages_in_words() -> None:
    assert stage_layers_in_words((7, 8, 8, 8, 7)) == "7,8x3,7"
    assert stage_layers_in_words((4,)) == "4"


def test_unusual_layouts_are_warned_of() -> None:
    assert layout_warnings(Layout(dp=8, tp=8, pp=4, num_microbatches=8), LLAMA_70B) == ()
    (sharded,) = layout_warnings(Layout(pp=2, num_microbatches=2, zero_stage=3), LLAMA_70B)
    assert "ZeRO 3 under a pipeline" in sharded and "zero_stage=1" in sharded
    (few,) = layout_warnings(Layout(pp=4, recompute=Recompute.FULL), LLAMA_70B)
    assert "idle for about 75% of the step" in few  # 3 of 3 + 1 slots
    (repeated,) = layout_warnings(Layout(tp=32), LLAMA_70B)
    assert "8 key-value heads: each is held 4 times" in repeated
