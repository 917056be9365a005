import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from precision_time.cost.constants import constants
from precision_time.cost.optimizer import (
    MatrixWeights,
    OptimizerForm,
    canonical_optimizer,
    optimizer_terms,
    optimizer_work,
    product_flops,
    states_per_param,
)
from precision_time.errors import UnknownNameError
from precision_time.precision.policy import DType, PrecisionPolicy


def policy(**changed):
    plain = {
        name: DType.FP32
        for name in ("matmul", "conv", "activation", "param", "grad", "reduce", "optimizer_state")
    }
    return PrecisionPolicy(
        **{"name": "test", "master": None, "autocast": False, "loss_scaling": False, **plain, **changed}
    )


STREAMING = constants("optimizers")["streaming_share"]
FP32 = policy()
AMP_FP16 = policy(matmul=DType.FP16, conv=DType.FP16, activation=DType.FP16, autocast=True, loss_scaling=True)
MASTER_BF16 = policy(param=DType.BF16, grad=DType.BF16, reduce=DType.BF16, master=DType.FP32)
PURE_BF16 = policy(param=DType.BF16, grad=DType.BF16, optimizer_state=DType.BF16)
MODEL = {"params": 1e9, "tensors": 300.0}


def bytes_per_param(name, precision, form=OptimizerForm.FUSED):
    return float(optimizer_work(name, precision, form=form, **MODEL).update_bytes) / MODEL["params"]


@pytest.mark.parametrize(
    ("precision", "expected"),
    [
        (FP32, 28.0),  # p 4+4, g 4, m 4+4, v 4+4
        (AMP_FP16, 28.0),
        (MASTER_BF16, 28.0),  # master 4+4, g 2, states 16, model copy 2
        (PURE_BF16, 14.0),
    ],
    ids=["fp32", "amp", "master", "pure"],
)
def test_fused_adam_moves_what_its_equations_touch(precision, expected):
    assert bytes_per_param("adam", precision) == expected


@pytest.mark.parametrize(
    ("name", "expected"), [("sgd", 12.0), ("momentum-sgd", 20.0), ("nesterov", 20.0), ("rmsprop", 20.0)]
)
def test_fused_sgd_family(name, expected):
    assert bytes_per_param(name, FP32) == expected


@pytest.mark.parametrize(
    ("name", "states"), [("sgd", 0), ("momentum-sgd", 1), ("adamw", 2), ("lamb", 2), ("muon", 1)]
)
def test_states(name, states):
    assert states_per_param(name) == states


def test_loss_scaling_reads_and_writes_the_gradients_and_waits_once():
    work = optimizer_work("adam", AMP_FP16, **MODEL)
    assert work.unscale_bytes == 8.0 * MODEL["params"]
    assert work.host_syncs == 1.0
    plain = optimizer_work("adam", FP32, **MODEL)
    assert (float(plain.unscale_bytes), plain.unscale_kernels, plain.host_syncs) == (0.0, 0.0, 0.0)


def test_terms_are_traffic_or_launches_whichever_is_longer():
    work = optimizer_work("adam", AMP_FP16, form=OptimizerForm.FUSED, **MODEL)
    terms = optimizer_terms(work, memory_bytes_per_s=1e12 / STREAMING, launch_s=5e-6)
    assert float(terms["optimizer"]) == pytest.approx(28e-3)
    assert float(terms["unscale"]) == pytest.approx(8e-3)
    assert 1e-6 < float(terms["host_sync"]) < 1e-3
    tiny = optimizer_work("adam", FP32, params=1e5, tensors=200.0, form=OptimizerForm.FOR_LOOP)
    launched = optimizer_terms(tiny, memory_bytes_per_s=1e12, launch_s=5e-6)
    assert float(launched["optimizer"]) == pytest.approx(200 * 7 * 5e-6)


@given(bandwidth=st.floats(1e10, 1e13), faster=st.floats(1.0, 10.0))
def test_more_bandwidth_is_never_slower(bandwidth, faster):
    work = optimizer_work("lamb", AMP_FP16, **MODEL)
    slow, fast = (
        optimizer_terms(work, memory_bytes_per_s=rate, launch_s=5e-6)
        for rate in (bandwidth, bandwidth * faster)
    )
    assert all(fast[name] <= slow[name] for name in slow)


def weights(rows, columns, count=1.0):
    return MatrixWeights(rows=np.array([rows]), columns=np.array([columns]), count=np.array([count]))


def test_newton_schulz_is_five_iterations_of_three_products():
    """Jordan et al. 2024: each costs 2 (2 n m^2 + m^3) FLOPs, so with n = m at most 6 n m^2."""
    assert product_flops("muon", weights(768.0, 3072.0, 4.0)) == 4 * 5 * 2 * (2 * 3072 * 768**2 + 768**3)
    assert product_flops("adamw", weights(768.0, 3072.0)) == 0.0


def test_muon_costs_half_a_percent_of_the_largest_llama_as_published():
    """Jordan et al. 2024, section "Runtime analysis": T m / B with m = 16384 and 16 million tokens."""
    hidden, tokens = 16384.0, 16e6
    share = product_flops("muon", weights(hidden, hidden)) / (6.0 * hidden**2 * tokens)
    assert share == pytest.approx(0.005, rel=0.03)


def test_muon_updates_embeddings_and_vectors_by_adamw():
    matrices = weights(4096.0, 4096.0, 10.0)
    assert matrices.params < MODEL["params"]
    none = optimizer_work("muon", FP32, **MODEL)
    adamw = optimizer_work("adamw", FP32, **MODEL)
    assert none.update_bytes == adamw.update_bytes
    assert none.product_flops == 0.0
    some = optimizer_work("muon", FP32, matrices=matrices, **MODEL)
    assert some.update_bytes > adamw.update_bytes
    assert some.product_dtype is DType.BF16
    part = optimizer_work("muon", FP32, matrices=matrices.scaled(0.25), **MODEL)
    assert part.product_flops == some.product_flops / 4
    assert states_per_param("muon", outside_share=0.25) == pytest.approx(1.25)
    assert states_per_param("adamw", outside_share=0.25) == 2


def test_products_bound_an_update_of_large_matrices():
    matrices = weights(8192.0, 28672.0, 4.0)
    work = optimizer_work("muon", FP32, params=matrices.params, tensors=4.0, matrices=matrices)
    rates = {"memory_bytes_per_s": 3e12, "launch_s": 5e-6}
    bound = optimizer_terms(work, flops_per_s=1e14, **rates)["optimizer"]
    assert float(bound) == pytest.approx(work.product_flops / 1e14)
    assert float(optimizer_terms(work, **rates)["optimizer"]) < float(bound)


def test_arrays_broadcast():
    work = optimizer_work("sgd", FP32, params=np.array([[1e6, 1e9], [5e5, 5e8]]), tensors=100.0)
    assert np.shape(work.update_bytes) == (2, 2)


def test_spellings_and_unknown_names():
    assert canonical_optimizer("SGD_with_momentum") == "momentum-sgd"
    assert canonical_optimizer("LAMB") == canonical_optimizer("jitlamb") == "lamb"
    assert canonical_optimizer("adamw_torch_fused") == "adamw"
    with pytest.raises(UnknownNameError, match="adamw") as caught:
        canonical_optimizer("adamvv")
    assert caught.value.nearest
