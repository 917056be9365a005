from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from precision_time.cost.memory import fits, memory_terms, total_bytes
from precision_time.parallel.layout import Checkpointing, Layout
from precision_time.precision.policy import DType, PrecisionPolicy
from precision_time.units import GIBI

FP32 = PrecisionPolicy(
    name="fp32", matmul=DType.FP32, conv=DType.FP32, activation=DType.FP32, param=DType.FP32, grad=DType.FP32,
    reduce=DType.FP32, master=None, optimizer_state=DType.FP32, autocast=False, loss_scaling=False,
)  # fmt: skip
MASTER = replace(
    FP32, name="bf16", matmul=DType.BF16, conv=DType.BF16, activation=DType.BF16, param=DType.BF16,
    grad=DType.BF16, reduce=DType.BF16, master=DType.FP32,
)  # fmt: skip
AMP = replace(FP32, name="bf16-mixed", matmul=DType.BF16, activation=DType.BF16, autocast=True)
MODEL = {
    "params": 7.5e9,
    "trainable_params": 7.5e9,
    "saved_elems": 4e9,
    "optimizer": "adam",
    "num_layers": 32.0,
    "boundary_elems": 1e7,
    "attention_saved_elems": 1e9,
}
STATES = ("parameters", "gradients", "master_weights", "optimizer_states")


def states_bytes(layout, policy=MASTER):
    terms = memory_terms(layout, policy, **MODEL)
    return sum(float(terms[name]) for name in STATES)


@pytest.mark.parametrize(("stage", "published_gb"), [(0, 120.0), (1, 31.4), (2, 16.6), (3, 1.9)], ids=str)
def test_model_states_are_those_of_the_zero_paper(stage, published_gb):
    # Rajbhandari et al., figure 1: 7.5 billion parameters on 64 devices, mixed precision Adam.
    layout = Layout(dp=64, zero_stage=stage)
    assert states_bytes(layout) / 1e9 == pytest.approx(published_gb, rel=0.02)


def test_sixteen_bytes_per_parameter_at_fp32_adam():
    assert states_bytes(Layout(), FP32) == 16 * MODEL["params"]


def test_activations_grow_with_the_batch_and_shrink_with_the_type():
    one = memory_terms(Layout(micro_batch_size=1), FP32, **MODEL)["activations"]
    four = memory_terms(Layout(micro_batch_size=4), FP32, **MODEL)["activations"]
    assert float(four) == 4 * float(one) == 4 * 4 * MODEL["saved_elems"]
    assert float(memory_terms(Layout(), MASTER, **MODEL)["activations"]) == float(one) / 2


def test_checkpointing_keeps_less():
    kept = [
        float(memory_terms(Layout(checkpointing=mode), FP32, **MODEL)["activations"])
        for mode in (Checkpointing.NONE, Checkpointing.SELECTIVE, Checkpointing.FULL)
    ]
    assert kept[0] > kept[1] > kept[2]
    assert kept[2] == pytest.approx(4 * (32 * MODEL["boundary_elems"] + MODEL["saved_elems"] / 32))


def test_autocast_keeps_narrow_weights_beside_the_wide_ones():
    terms = memory_terms(Layout(), AMP, **MODEL)
    assert terms["cast_weights"] == terms["parameters"] / 2
    assert memory_terms(Layout(), FP32, **MODEL)["cast_weights"] == 0.0


def test_data_parallel_buckets_hold_the_gradients_twice():
    assert memory_terms(Layout(dp=8), FP32, **MODEL)["gradient_buckets"] == 4 * MODEL["params"]
    assert memory_terms(Layout(), FP32, **MODEL)["gradient_buckets"] == 0.0
    assert memory_terms(Layout(dp=8, data_parallel_engine="none"), FP32, **MODEL)["gradient_buckets"] == 0.0


def test_sequence_parallelism_splits_all_activations_tensor_parallelism_only_most():
    plain, tensor, sequence = (
        float(memory_terms(layout, FP32, **MODEL)["activations"])
        for layout in (Layout(), Layout(tp=8), Layout(tp=8, sequence_parallel=True))
    )
    # Korthikanti et al., eq. 2: (10 + 24 / t) / 34 of a layer.
    assert tensor == pytest.approx(plain * (10 + 24 / 8) / 34)
    assert sequence == pytest.approx(plain / 8)


def test_a_pipeline_keeps_one_micro_batch_per_stage_alive():
    full = Layout(pp=4, num_micro_batches=8)
    short = Layout(pp=4, num_micro_batches=2)
    whole = float(memory_terms(Layout(), FP32, **MODEL)["activations"])
    assert float(memory_terms(full, FP32, **MODEL)["activations"]) == pytest.approx(whole)
    assert float(memory_terms(short, FP32, **MODEL)["activations"]) == pytest.approx(whole / 2)


@given(dp=st.integers(1, 64), tp=st.sampled_from([1, 2, 8]), stage=st.integers(0, 2))
def test_more_sharding_never_needs_more_for_states(dp, tp, stage):
    less, more = (states_bytes(Layout(dp=dp, tp=tp, zero_stage=z)) for z in (stage, stage + 1))
    assert more <= less
    assert states_bytes(Layout(dp=dp, tp=2 * tp, zero_stage=stage)) == pytest.approx(less / 2)


def test_fit_is_the_sum_against_the_device():
    terms = memory_terms(Layout(), MASTER, **MODEL)
    needed = float(total_bytes(terms))
    assert needed == pytest.approx(sum(float(value) for value in terms.values()))
    assert fits(terms, needed)
    assert not fits(terms, needed - GIBI)


def test_many_batches_at_once():
    terms = memory_terms(Layout(), FP32, micro_batch_size=np.array([1.0, 2.0, 4.0]), **MODEL)
    assert total_bytes(terms).shape == (3,)
    assert list(fits(terms, float(total_bytes(terms)[1]))) == [True, True, False]
