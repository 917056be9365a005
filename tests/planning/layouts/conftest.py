"""Small problems whose layouts can all be priced in a second."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest

from precision_time.cost.job import Job
from precision_time.cost.memory import memory_of, total_bytes
from precision_time.cost.search import group_under
from precision_time.cost.stacks import usual_profile
from precision_time.hardware.catalog import get_cluster
from precision_time.parallel.layout import Layout
from precision_time.planning.layouts.result import LayoutSearch
from precision_time.planning.layouts.search import search_layouts
from precision_time.precision.catalog import get_policy
from precision_time.workload.resolve import load_workload


class Question(NamedTuple):
    """What a layout is sought for."""

    job: Job
    batch: int


def question_of(model: str, device: str, gpus: int, batch: int) -> Question:
    workload = load_workload(model, seq_len=2048 if "resnet" not in model else None)
    job = Job(
        workload=workload,
        cluster=get_cluster(device=device, num_devices=gpus),
        precision=get_policy("bf16-mixed"),
        layout=Layout(dp=gpus),
        stack=usual_profile(workload.family).stack(),
    )
    return Question(job, batch)


def needed(job: Job, layout: Layout) -> float:
    """Bytes on the fullest device, as an answer adds them up."""
    return float(np.max(total_bytes(memory_of(group_under(job, layout)))))


@pytest.fixture(scope="session")
def small() -> Question:
    """A billion parameters on two nodes."""
    return question_of("llama3.2-1b", "A100-SXM4-40GB", 16, 64)


@pytest.fixture(scope="session")
def experts() -> Question:
    """A model of experts on one node."""
    return question_of("qwen3-30b-a3b", "H100-SXM5-80GB", 16, 64)


@pytest.fixture(scope="session")
def found(small: Question) -> LayoutSearch:
    """The best layouts of the small problem."""
    return search_layouts(*small, top=8)
