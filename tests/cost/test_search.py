"""Layouts priced and measured together, as one by one."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from precision_time import Request
from precision_time.cost.job import Job, Jobs
from precision_time.cost.memory import memory_of, needed_bytes, total_bytes
from precision_time.cost.search import fitting, groups_under, space_of, step_seconds, under
from precision_time.cost.step import price
from precision_time.parallel.layout import Layout

ASKED = {
    "dense": {"model": "llama3.2-1b", "gpus": 16, "device": "A100-SXM4-40GB", "seq_len": 2048},
    "experts in fp8": {"model": "qwen3-30b-a3b", "gpus": 16, "device": "H100-SXM5-80GB", "precision": "fp8"},
    "preferences": {"model": "llama3.2-1b", "gpus": 8, "device": "A100-SXM4-40GB", "method": "dpo"},
    "images": {"model": "resnet50", "gpus": 8, "device": "V100-SXM2-16GB"},
}


@pytest.fixture(params=ASKED.values(), ids=ASKED)
def job(request: pytest.FixtureRequest) -> Job:
    """Under plain data parallelism."""
    found = Request.of({**request.param, "batch_size": 1, "zero_stage": 0}).resolve()
    return replace(found, layout=Layout(dp=found.cluster.num_devices))


def fitting_layouts(job: Job, **options: bool) -> list[Layout]:
    frames = [*space_of(job, 64, **options).frames()][::11]
    return [layout for part in fitting(job, frames) for layout in part.layouts]


@pytest.mark.parametrize("offload", [False, True])
def test_layouts_cost_together_what_they_cost_alone(job: Job, offload: bool) -> None:
    layouts = fitting_layouts(job, offload=offload)[:60]
    together = step_seconds(job, layouts)
    alone = [float(price(Jobs.at(under(job, layout))).step_time_s[0]) for layout in layouts]
    assert together == pytest.approx(alone, rel=1e-12)
    assert any(len(group) > 1 for _, group in groups_under(job, layouts))


def test_memory_of_rows_is_that_of_each(job: Job) -> None:
    layouts = fitting_layouts(job)[:60]
    for places, group in groups_under(job, layouts):
        needed = np.broadcast_to(total_bytes(memory_of(group)), (len(group),))
        by_arrays = needed_bytes(group)
        for place, each, same in zip(places, needed, by_arrays, strict=True):
            alone = Jobs.at(under(job, layouts[place]))
            assert each == pytest.approx(float(np.max(total_bytes(memory_of(alone)))), rel=1e-12)
            assert same == pytest.approx(float(needed_bytes(alone)[0]), rel=1e-12)


def test_frames_are_pruned_together_as_alone(job: Job) -> None:
    frames = [*space_of(job, 64, by_layer=True).frames()][::23]
    assert fitting(job, frames) == [fitting(job, [frame])[0] for frame in frames]


def test_memory_follows_the_number_of_micro_batches() -> None:
    found = Request.of(
        {**ASKED["dense"], "model": "llama3-8b", "pp": 8, "batch_size": 2, "num_microbatches": 16}
    ).resolve()
    counts = (1, 2, 5, 8, 16)
    needed = needed_bytes(Jobs.at(found, [2.0] * len(counts), counts))
    alone = [
        needed_bytes(Jobs.at(replace(found, layout=replace(found.layout, num_microbatches=count))))[0]
        for count in counts
    ]
    assert needed == pytest.approx(alone, rel=1e-12)
    assert needed[0] < needed[3] == pytest.approx(needed[4])
