"""Memory over a step: its peak is the prediction's, term by term, and what passes comes and goes."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import precision_time
from precision_time.cost.job import Job, Jobs
from precision_time.cost.stacks import get_stack_profile, usual_variant
from precision_time.errors import ConfigError
from precision_time.hardware.catalog import get_cluster
from precision_time.learn.artifact import shipped_predictor
from precision_time.parallel.layout import Layout, PipelineSchedule, Recompute
from precision_time.precision.catalog import get_policy
from precision_time.predict.answer import answer
from precision_time.timeline.memory import MemoryTimeline, memory_of_step
from precision_time.timeline.pictures import memory_page, memory_svg, write_memory
from precision_time.timeline.step import step_timeline
from precision_time.workload.resolve import load_workload

MODELS = {"llama3.2-1b": 2048, "deepseek-v2-lite": 2048, "resnet50": None, "bert-large-uncased": 512}


def memory_of(layout: Layout, model: str = "llama3.2-1b", stack: str = "megatron") -> MemoryTimeline:
    profile = get_stack_profile(stack)
    policy = get_policy("bf16-mixed", variant=usual_variant(profile, "bf16-mixed", layout.zero_stage))
    job = Job(
        workload=load_workload(model, seq_len=MODELS[model]),
        cluster=get_cluster(device="A100-SXM4-80GB", num_devices=layout.world_size),
        precision=policy,
        layout=layout,
        stack=profile.stack(),
    )
    return memory_of_step(job, step_timeline(job, answer(Jobs.of([job]), shipped_predictor())[0]))


@st.composite
def layouts(draw: st.DrawFn, model: str) -> Layout:
    pp = draw(st.sampled_from([1, 2, 4])) if MODELS[model] and model != "deepseek-v2-lite" else 1
    schedule = draw(st.sampled_from(list(PipelineSchedule))) if pp > 1 else PipelineSchedule.ONE_F_ONE_B
    return Layout(
        dp=draw(st.sampled_from([1, 2, 8])),
        tp=draw(st.sampled_from([1, 2])) if MODELS[model] else 1,
        pp=pp,
        schedule=schedule,
        vpp=2 if schedule is PipelineSchedule.INTERLEAVED else 1,
        zero_stage=draw(st.sampled_from([0, 1, 3])) if pp == 1 else draw(st.sampled_from([0, 1])),
        micro_batch_size=draw(st.sampled_from([1, 4])),
        num_microbatches=pp * draw(st.integers(1, 5)),
        recompute=draw(st.sampled_from(list(Recompute))),
    )


@settings(max_examples=25)
@given(data=st.data())
def test_the_peak_is_the_predicted_one_term_by_term(data: st.DataObject) -> None:
    model = data.draw(st.sampled_from(list(MODELS)))
    stack = data.draw(st.sampled_from(["megatron", "pytorch-eager", "deepspeed-megatron", "torchtitan"]))
    memory = memory_of(data.draw(layouts(model)), model, stack)
    predicted = memory.prediction.memory_terms
    assert memory.peak_bytes == pytest.approx(sum(predicted.values()), rel=1e-9)
    assert max(memory.stage_peaks) == pytest.approx(memory.peak_bytes, rel=1e-9)
    peak = memory.to_dict()["peak_terms_bytes"]
    passing = {"activations", "logits", "temporary", "gathered", "cast_weights"}
    for name in predicted.keys() - passing:
        assert peak.get(name, 0.0) == pytest.approx(predicted[name], rel=1e-9)
    assert sum(peak.get(name, 0.0) for name in passing) == pytest.approx(
        sum(predicted.get(name, 0.0) for name in passing), rel=1e-9, abs=1.0
    )
    times = memory.times_s
    assert times[0] == 0.0 and times[-1] == pytest.approx(memory.prediction.step_time_s)
    assert np.all(np.diff(times) >= 0.0)
    assert all(np.all(held >= -1e-6 * memory.peak_bytes) for held in memory.held.values())
    assert memory.held["activations"][-1] == pytest.approx(0.0, abs=1e-6 * memory.peak_bytes)


@pytest.mark.parametrize(("schedule", "most"), [("1f1b", 4), ("gpipe", 8)])
def test_activations_rise_by_micro_batches_in_flight(schedule: str, most: int) -> None:
    layout = Layout(pp=4, num_microbatches=8, schedule=PipelineSchedule(schedule), micro_batch_size=4)
    memory = memory_of(layout, "bert-large-uncased")
    held = memory.held["activations"]
    held = held[held > 0.0]
    layers = 24 // 4
    # The first forward pass: a part of a micro batch with each layer.
    assert held[:layers] / held.max() == pytest.approx(np.arange(1, layers + 1) / (layers * most))


def test_units_that_zero_3_gathers_are_gone_in_the_optimizer_step() -> None:
    memory = memory_of(Layout(dp=8, zero_stage=3), stack="torchtitan")
    gathered = memory.held["gathered"]
    assert gathered[0] > 0.0 and gathered[-1] == 0.0
    assert np.flatnonzero(memory.held["logits"]).size == 2  # the loss, and the head's backward pass


def test_copies_of_the_optimizer_step_can_be_the_peak() -> None:
    memory = memory_of(Layout(recompute=Recompute.FULL), "deepseek-v2-lite", "pytorch-eager")
    assert memory.peak_interval == len(memory.times_s) - 2
    assert memory.held["temporary"][-1] == pytest.approx(4 * 15.7e9, rel=0.01)


def test_files(tmp_path: Path) -> None:
    memory = memory_of(Layout(pp=2, num_microbatches=4))
    for name in ("memory.svg", "memory.html", "memory.json"):
        write_memory(memory, tmp_path / name)
    document = json.loads((tmp_path / "memory.json").read_text(encoding="utf-8"))
    assert document["peak_bytes"] == pytest.approx(memory.prediction.memory_bytes_per_device)
    assert len(document["times_s"]) == 1 + len(document["held_bytes"]["activations"])
    assert sum(document["peak_terms_bytes"].values()) == pytest.approx(document["peak_bytes"])
    root = ET.fromstring(memory_svg(memory))
    areas = root.findall("{http://www.w3.org/2000/svg}polygon")
    assert len(areas) == len(memory.held)
    page = memory_page(memory)
    assert page.count("<svg") == 1 and "Peak of each pipeline stage" in page
    with pytest.raises(ConfigError, match=r"memory\.png"):
        write_memory(memory, tmp_path / "memory.png")


def test_one_call() -> None:
    memory = precision_time.memory_timeline(
        "llama3-8b", device="H100-SXM5-80GB", gpus=8, zero_stage=3, batch_size=1
    )
    answer = precision_time.predict_time(
        "llama3-8b", device="H100-SXM5-80GB", gpus=8, zero_stage=3, batch_size=1
    )
    assert memory.peak_bytes == pytest.approx(answer.memory_bytes_per_device)
