"""Operators on the processor: every one runs, and computes what its shape says."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from precision_time.errors import ConfigError
from precision_time_integrations.measure.device import MeasuredDevice
from precision_time_integrations.measure.execution import backend_flags
from precision_time_integrations.measure.kernels import float8
from precision_time_integrations.measure.kernels import operators as ops
from precision_time_integrations.measure.kernels import timing as kernels
from precision_time_integrations.measure.kernels.timing import measure_kernel
from precision_time_integrations.measure.plan import PLANS, MeasurePlan, load_plan
from precision_time_integrations.measure.trial import KernelTrial


def test_the_tiny_plan_has_every_operator(tiny: MeasurePlan) -> None:
    assert {trial.op for trial in tiny.ops} == set(ops._BUILDERS)


@pytest.mark.parametrize("name", PLANS)
def test_shipped_plans_ask_for_known_operators(name: str) -> None:
    assert {trial.op for trial in load_plan(name).ops} <= set(ops._BUILDERS)


@pytest.mark.filterwarnings("ignore")
def test_every_operator_of_the_tiny_plan_is_timed(tiny: MeasurePlan, cpu: MeasuredDevice) -> None:
    for trial in tiny.ops:
        result = measure_kernel(trial, cpu, seconds=1e-4)
        timing = result.timing
        assert 0.0 < timing.low_s <= timing.median_s <= timing.high_s < 1.0, trial
        assert result.timed == "loop"


@pytest.mark.parametrize(
    ("op", "shape", "out", "leaves"),
    [
        ("linear", {"M": 4, "N": 8, "K": 16}, (4, 8), 2),
        ("linear", {"B": 3, "M": 4, "N": 8, "K": 16}, (12, 8), 2),
        ("bmm", {"B": 2, "M": 3, "N": 4, "K": 5}, (2, 3, 4), 2),
        ("conv", {"N": 2, "C": 4, "K": 8, "R": 3, "H": 6, "stride": 2, "pad": 1}, (2, 8, 3, 3), 2),
        ("depthwise_conv", {"N": 2, "C": 4, "K": 4, "R": 3, "H": 6, "pad": 1, "groups": 4}, (2, 4, 6, 6), 2),
        ("attention", {"B": 1, "H": 4, "kv_heads": 2, "T": 8, "D": 4, "kernel": "math"}, (1, 4, 8, 4), 3),
        ("embedding", {"B": 4, "V": 11, "H": 8}, (4, 8), 1),
        ("rnn_lstm", {"hidden": 4, "N": 2, "T": 3}, (3, 2, 4), 5),
    ],
)
def test_shapes_mean_what_they_say(op: str, shape: dict[str, int], out: tuple[int, ...], leaves: int) -> None:
    case = ops.build_case(op, "fp32", shape, "cpu")
    assert tuple(case.forward().shape) == out
    assert len(case.leaves) == leaves


def test_attention_kernels_agree() -> None:
    shape = {"B": 1, "H": 2, "T": 8, "D": 4, "causal": True}
    outs = []
    for kernel in ("unfused", "math", "flash"):
        torch.manual_seed(0)
        outs.append(ops.build_case("attention", "fp32", {**shape, "kernel": kernel}, "cpu").forward())
    assert torch.allclose(outs[0], outs[1], atol=1e-6)
    assert torch.allclose(outs[0], outs[2], atol=1e-6)


def test_channels_last_operands_are_stored_so() -> None:
    shape = {"N": 2, "C": 4, "K": 8, "R": 3, "H": 6, "layout": "nhwc"}
    case = ops.build_case("conv", "fp32", shape, "cpu")
    assert all(leaf.is_contiguous(memory_format=torch.channels_last) for leaf in case.leaves)


def test_a_launch_is_timed_per_kernel() -> None:
    case = ops.build_case("launch", "fp32", {"kernels": 7, "chain": "dependent", "mode": "eager"}, "cpu")
    before = case.held[0].item()
    case.forward()
    assert case.parts == 7
    assert case.held[0].item() == pytest.approx(before + 7, rel=1e-5)


def test_operators_that_cannot_be_are_refused(tiny: MeasurePlan, cpu: MeasuredDevice) -> None:
    bmm = next(trial for trial in tiny.ops if trial.op == "bmm")
    with pytest.raises(ConfigError, match="lacks 'N'"):
        measure_kernel(replace(bmm, shape={"B": 1, "M": 1, "K": 1}), cpu, seconds=1e-4)
    with pytest.raises(ConfigError, match="No operator"):
        measure_kernel(replace(bmm, op="bmmm"), cpu, seconds=1e-4)
    cast = KernelTrial(op="cast", dtype="fp32", shape={"elements": 8, "to": "bf16"}, phase="bwd")
    with pytest.raises(ConfigError, match="without gradients"):
        measure_kernel(cast, cpu, seconds=1e-4)


def test_the_precision_of_products_is_given_back() -> None:
    before = torch.get_float32_matmul_precision()
    with pytest.raises(RuntimeError), backend_flags(tf32=before == "highest"):
        assert torch.get_float32_matmul_precision() != before
        raise RuntimeError
    assert torch.get_float32_matmul_precision() == before


def test_fp8_layers_come_close_to_wide_ones() -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.Linear(32, 48))
    x = torch.randn(16, 64, requires_grad=True)
    model(x).square().sum().backward()
    wide = [x.grad.clone(), *(p.grad.clone() for p in model.parameters())]
    x.grad = None
    model.zero_grad()
    assert float8.with_fp8_linears(model) == 2
    model(x).float().square().sum().backward()
    for expected, found in zip(wide, [x.grad, *(p.grad for p in model.parameters())], strict=True):
        assert (found - expected).norm() / expected.norm() < 0.15
        assert not torch.equal(found, expected)


def test_layers_that_fp8_cannot_take_stay_wide() -> None:
    model = torch.nn.ModuleDict({"lm_head": torch.nn.Linear(32, 32), "odd": torch.nn.Linear(32, 30)})
    assert float8.with_fp8_linears(model) == 0


def test_quantizing_keeps_the_largest_element() -> None:
    x = torch.tensor([0.5, -8.0, 3.0])
    q, inverse = float8.quantize(x, float8.E4M3)
    assert torch.allclose(q.float() * inverse, x, rtol=0.07)
    assert q.float().abs().max() == 448.0


def test_a_copy_copies_every_byte() -> None:
    for size in (64, 3 * 2**20 + 5):
        case = ops.build_case("copy", "fp32", {"bytes": size, "way": "h2d"}, "cpu")
        case.forward()
        assert case.held[0].numel() == size
        assert torch.equal(*case.held)


class Replays:
    """Stands for `replayed`, which needs a GPU."""

    def __init__(self, answer: object) -> None:
        self.answer = answer

    def __call__(self, calls: list[object], stream: object) -> object:
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """One entry per wait for a GPU that is not there."""
    done: list[int] = []
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: done.append(1))
    return done


def choose(monkeypatch: pytest.MonkeyPatch, answer: object, *, graph: bool = True) -> tuple[object, int, str]:
    monkeypatch.setattr(kernels, "replayed", Replays(answer))
    case = ops.Case(forward=lambda: None, graph=graph)
    return kernels._run_of(case, [case.forward], "cpu", object())


def test_kernels_are_replayed_where_they_can_be(monkeypatch: pytest.MonkeyPatch, waits: list[int]) -> None:
    def run(count: int) -> float:
        return float(count)

    assert choose(monkeypatch, (run, 20)) == (run, 20, "graph")
    assert choose(monkeypatch, (run, 20), graph=False)[1:] == (1, "loop")
    assert waits == []


def test_what_cannot_be_captured_is_looped(monkeypatch: pytest.MonkeyPatch, waits: list[int]) -> None:
    refusal = RuntimeError("CUDA error: operation not permitted when stream is capturing")
    assert choose(monkeypatch, refusal)[1:] == (1, "loop")
    assert waits == [1]


def test_want_of_memory_is_no_reason_for_a_loop(monkeypatch: pytest.MonkeyPatch, waits: list[int]) -> None:
    with pytest.raises(torch.OutOfMemoryError):
        choose(monkeypatch, torch.OutOfMemoryError("CUDA out of memory"))
    assert waits == []


def test_operands_outgrow_the_cache(tiny: MeasurePlan, cpu: MeasuredDevice) -> None:
    linear = next(trial for trial in tiny.ops if trial.op == "linear" and trial.dtype == "fp32")
    one_case = (4 * 16 + 8 * 16) * 4
    cached = replace(cpu, l2_bytes=one_case * 1.5)
    assert [len(kernels._cases(linear, device)) for device in (cpu, cached)] == [1, 3]
    assert len(kernels._cases(linear, replace(cpu, l2_bytes=1e9))) == 8
