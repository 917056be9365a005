"""Small problems whose layouts can all be priced in a second."""

from __future__ import annotations

import pytest

from precision_time.cost.stacks import usual_profile
from precision_time.hardware.catalog import get_cluster
from precision_time.planning.layouts.result import LayoutSearch
from precision_time.planning.layouts.search import search_layouts
from precision_time.precision.catalog import get_policy
from precision_time.request.problem import Problem
from precision_time.workload.resolve import load_workload


def problem_of(model: str, device: str, gpus: int, batch: int, **options: object) -> Problem:
    workload = load_workload(model, seq_len=2048 if "resnet" not in model else None)
    return Problem(
        workload=workload,
        cluster=get_cluster(device=device, num_devices=gpus),
        precision=get_policy("bf16-mixed"),
        stack=usual_profile(workload.family).stack(),
        global_batch_size=batch,
        **options,  # type: ignore[arg-type]
    )


@pytest.fixture(scope="session")
def small() -> Problem:
    """A billion parameters on two nodes."""
    return problem_of("llama3.2-1b", "A100-SXM4-40GB", 16, 64)


@pytest.fixture(scope="session")
def experts() -> Problem:
    """A model of experts on one node."""
    return problem_of("qwen3-30b-a3b", "H100-SXM5-80GB", 16, 64)


@pytest.fixture(scope="session")
def found(small: Problem) -> LayoutSearch:
    """The best layouts of the small problem."""
    return search_layouts(small, top=8)
