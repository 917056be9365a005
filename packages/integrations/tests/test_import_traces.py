"""Traces of profilers and results of Ray and DeepSpeed: step times, and what a step is made of.

The trace of the CPU is recorded here with torch.profiler; traces of GPUs and the export of Nsight Systems are
made by hand in the published formats, with times that are known. The results of Ray Tune and DeepSpeed in
`data` were recorded from real runs on a CPU.
"""

from __future__ import annotations

import gzip
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from precision_time.errors import CorpusError
from precision_time.predict.api import predict_time
from precision_time_integrations.importers import kineto
from precision_time_integrations.importers.bounded import JsonStream
from precision_time_integrations.importers.comparison import compared_terms
from precision_time_integrations.importers.registry import importer_of
from precision_time_integrations.importers.spans import GROUPS, Spans, kind_of_kernel, merged, step_windows

DATA = Path(__file__).parent / "data"


def read(path: Path, name: str) -> Any:
    """The one run in a path, which the registry must recognize as this format."""
    found = importer_of(path)
    assert found is not None and found.name == name
    runs = found.read(path)
    return runs[0] if len(runs) == 1 else runs


def event(name: str, category: str, start_us: float, lasts_us: float, **more: Any) -> dict[str, Any]:
    return {
        "ph": "X",
        "cat": category,
        "name": name,
        "pid": 1,
        "tid": 1,
        "ts": start_us,
        "dur": lasts_us,
        **more,
    }


def gpu_trace(steps: int = 8, *, first: int = 3) -> dict[str, Any]:
    """Steps of 10 ms on a GPU: 5 ms of products, all-reduce of 3 ms of which 1 is hidden, 1 ms of the
    optimizer, 0.5 ms of copies, 1 ms of waiting for the loader, and 0.5 ms of nothing."""
    events: list[dict[str, Any]] = [{"ph": "M", "name": "process_name", "pid": 1, "args": {"name": "python"}}]
    nccl = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
    for number in range(steps):
        at = 1.7e15 + 10_000.0 * number
        events += [
            event(f"ProfilerStep#{first + number}", "user_annotation", at, 9_990.0),
            event(f"ProfilerStep#{first + number}", "gpu_user_annotation", at + 1000, 9_000.0),
            event(
                "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", "user_annotation", at, 1_000.0
            ),
            event("aten::mm", "cpu_op", at + 1_000, 50.0),
            event("Memcpy HtoD (Pinned -> Device)", "gpu_memcpy", at + 1_000, 500.0),
            event(
                "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64", "kernel", at + 1_500, 2_000.0
            ),
            event(
                "ampere_bf16_s16816gemm_bf16_128x64_ldg8_f2f_stages_64x4_tn", "kernel", at + 3_500, 3_000.0
            ),
            event(nccl, "kernel", at + 5_500, 3_000.0),
            event("Optimizer.step#AdamW.step", "user_annotation", at + 2_000, 100.0),
            event("Optimizer.step#AdamW.step", "gpu_user_annotation", at + 8_500, 1_000.0),
            event("void at::native::vectorized_elementwise_kernel<4, foo>", "kernel", at + 8_500, 1_000.0),
        ]
    return {
        "schemaVersion": 1,
        "deviceProperties": [{"id": 0, "name": "NVIDIA H100 80GB HBM3", "totalGlobalMem": 85_000_000_000}],
        "distributedInfo": {"backend": "nccl", "rank": 3, "world_size": 16},
        "traceEvents": events,
        "traceName": "/home/someone/trace.json",
    }


TERMS_MS = {
    "kernels_s": 5.0,
    "exposed_s": 2.0,
    "update_s": 1.0,
    "copies_s": 0.5,
    "input_s": 1.0,
    "host_s": 0.5,
}


@pytest.mark.parametrize("packed", [False, True])
def test_trace_of_a_gpu(tmp_path: Path, packed: bool) -> None:
    path = tmp_path / ("rank3.pt.trace.json.gz" if packed else "rank3.json")
    text = json.dumps(gpu_trace())
    path.write_bytes(gzip.compress(text.encode()) if packed else text.encode())
    run = read(path, "pytorch-profiler")
    assert run.fields == {"device": "H100-SXM5-80GB", "gpus": 16, "optimizer": "adamw"}
    assert [step.step for step in run.steps] == list(range(3, 11))
    assert run.steady().step_time_s == pytest.approx(0.010)
    assert {name: 1e3 * seconds for name, seconds in run.terms_s.items()} == pytest.approx(TERMS_MS, abs=0.01)
    assert run.missing == ("model", "batch_size")
    assert "/home" not in repr(run)


def test_trace_beside_its_prediction(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_text(json.dumps(gpu_trace()))
    run = read(path, "pytorch-profiler")
    answer = predict_time(model="resnet50", batch_size=64, precision="bf16-mixed", **run.fields)
    terms = compared_terms(run, answer.terms)
    assert sum(term.predicted_s or 0.0 for term in terms) == pytest.approx(answer.step_time_s)
    assert sum(term.measured_s or 0.0 for term in terms) == pytest.approx(0.010, rel=1e-3)
    exposed = next(term for term in terms if term.group == "exposed")
    assert exposed.measured_s == pytest.approx(0.002, rel=1e-3)
    assert exposed.predicted_s is not None and exposed.predicted_s > 0.0


def test_trace_without_profiler_steps_is_cut_at_the_optimizer(tmp_path: Path) -> None:
    trace = gpu_trace()
    trace["traceEvents"] = [item for item in trace["traceEvents"] if "ProfilerStep" not in item["name"]]
    path = tmp_path / "trace.json"
    path.write_text(json.dumps(trace["traceEvents"]))  # a bare list is a trace too
    run = read(path, "pytorch-profiler")
    assert len(run.steps) == 7 and run.steady().step_time_s == pytest.approx(0.010)
    trace["traceEvents"] = [item for item in trace["traceEvents"] if "Optimizer" not in item["name"]]
    path.write_text(json.dumps(trace))
    with pytest.raises(CorpusError, match="To fix: profile with a schedule"):
        kineto._read(path)


def test_trace_that_is_cut_is_refused(tmp_path: Path) -> None:
    text = json.dumps(gpu_trace())
    path = tmp_path / "trace.json"
    for share in (0.99, 0.5):
        path.write_text(text[: int(share * len(text))])
        with pytest.raises(CorpusError, match="cut in the middle"):
            kineto._read(path)
    packed = tmp_path / "trace.json.gz"
    packed.write_bytes(gzip.compress(text.encode())[:-40])
    with pytest.raises(CorpusError, match="damaged gzip|cut in the middle"):
        kineto._read(packed)


def test_trace_recorded_here_has_the_times_of_its_loop(tmp_path: Path) -> None:
    import torch

    path = tmp_path / "cpu.json"
    model = torch.nn.Linear(64, 64)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    starts = []
    schedule = torch.profiler.schedule(wait=1, warmup=1, active=8, repeat=1)
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU],
        schedule=schedule,
        on_trace_ready=lambda profiler: profiler.export_chrome_trace(str(path)),
    ) as profiler:
        for number in range(10):
            starts.append(time.perf_counter())
            optimizer.zero_grad()
            model(torch.randn(8, 64)).sum().backward()
            optimizer.step()
            time.sleep(0.05 if number == 2 else 0.01)
            profiler.step()
    run = read(path, "pytorch-profiler")
    assert [step.step for step in run.steps] == list(range(2, 10))
    # Step n begins before the loop reads the clock for it, and after it did so for step n - 1.
    begins = np.cumsum([0.0, *(step.step_time_s for step in run.steps)])[:8]
    clock = np.array(starts)
    assert np.max(clock[1:9] - begins) <= np.min(clock[2:10] - begins) + 1e-4, "one clock fits all of them"
    assert run.steady().left_out["first after a start"] == 1
    assert run.fields == {"optimizer": "sgd"}
    assert run.terms_s["host_s"] > 0.009, "sleeping is no computation"
    assert min(run.terms_s["kernels_s"], run.terms_s["update_s"]) > 0.0


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_stream_reads_json_whatever_its_pieces(size: int) -> None:
    hard = {"text": 'a"b]},{\\', "numbers": [1, -2.5e-3, 12345678], "empty": [{}, [], ""], "none": None}
    given = {"a": hard, "traceEvents": [hard, 17, "x", [], hard], "z": 12345}
    text = json.dumps(given, indent=size % 3)
    stream = JsonStream(Path("unused"))
    stream._pieces = iter([text[at : at + size] for at in range(0, len(text), size)])
    listed = [(None, item) for item in given["traceEvents"]]  # type: ignore[attr-defined]
    assert list(stream.entries("traceEvents")) == [("a", hard), *listed, ("z", 12345)]


@given(st.lists(st.tuples(st.sampled_from(GROUPS[:-1]), st.integers(0, 60), st.integers(1, 20)), max_size=30))
def test_every_instant_of_a_step_is_counted_once(given_spans: list[tuple[str, int, int]]) -> None:
    spans = Spans()
    for group, start, length in given_spans:
        spans.add(group, float(start), float(start + length))
    shares = spans.shares([(10.0, 30.0), (40.0, 55.0)])
    expected = dict.fromkeys(GROUPS, 0)
    for instant in [*range(10, 30), *range(40, 55)]:
        running = {group for group, start, length in given_spans if start <= instant < start + length}
        expected[next((group for group in GROUPS if group in running), "host")] += 1
    assert shares == pytest.approx(expected)


def test_intervals_that_lie_inside_others_are_merged() -> None:
    assert merged(np.array([0.0, 1.0, 5.0]), np.array([4.0, 2.0, 6.0])).tolist() == [[0.0, 4.0], [5.0, 6.0]]


def test_last_step_counts_where_ranges_cover_the_loop() -> None:
    whole = [(n, float(n), n + 0.99) for n in range(4)]
    launches = [(n, float(n), n + 0.1) for n in range(4)]
    assert [step for step, _, _ in step_windows(whole)] == [0, 1, 2, 3]
    assert [step for step, _, _ in step_windows(launches)] == [0, 1, 2]


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("ncclKernel_AllReduce_RING_LL_Sum_float(ncclWorkElem)", "communication"),
        ("void cutlass::Kernel<cutlass_80_tensorop_s1688gemm_64x64_32x6_tn_align4>", "matrix products"),
        ("nvjet_tst_192x192_64x4_2x1_v_bz_coopB_TNN", "matrix products"),
        ("Cijk_Alik_Bljk_SB_Bias_AS_SAV_UserArgs_MT64x16x32_MI16x16x1_", "matrix products"),
        ("sm80_xmma_fprop_implicit_gemm_indexed_tf32f32_tf32f32_f32_nhwckrsc", "convolutions"),
        ("flash_fwd_kernel<Flash_fwd_kernel_traits<128, 128, 64, 4>>", "attention"),
        ("void at::native::(anonymous namespace)::multi_tensor_apply_kernel<...>", "optimizer"),
        ("void cudnn::bn_fw_tr_1C11_singleread<float, 512, true, 1, 2, 0>", "norms"),
        ("void at::native::vectorized_elementwise_kernel<4, at::native::AddFunctor>", "other kernels"),
    ],
)
def test_kinds_of_kernels(name: str, kind: str) -> None:
    assert kind_of_kernel(name)[1] == kind


def test_monitor_of_deepspeed() -> None:
    run = read(DATA / "deepspeed", "deepspeed-monitor")
    assert [step.step for step in run.steps] == list(range(1, 13))
    # Micro batches of 8, two of them a step: samples between reports.
    assert run.fields == {"global_batch_size": 16}
    assert run.steps[0].step_time_s == pytest.approx((1.0869503 + 3.9658546 + 11.2140179) * 1e-3)


def test_flops_profile_of_deepspeed() -> None:
    run = read(DATA / "deepspeed" / "flops.txt", "deepspeed-flops")
    assert run.fields == {"gpus": 1, "batch_size": 8}
    assert [(step.step, step.step_time_s) for step in run.steps] == [(4, pytest.approx(9.3e-3))]
