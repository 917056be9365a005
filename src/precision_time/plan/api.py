"""`find_layouts`: the question in people's words, as `predict_time` takes it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..predict.asked import resolve_asked
from ..predict.question import Said, check_counts, resolve_stack
from ..ray_executor import open_executor
from ..workload.workload import Workload
from .problem import Problem
from .result import LayoutSearch
from .search import Progress, search_layouts
from .space import parse_fixed

_TOKENS_PER_STEP = 2**22
"""Of a step when no batch is given: what models of some ten billion parameters were trained with
(Llama 3: 4M tokens at first, arXiv 2407.21783, section 3.4.1; GPT-3: 3.2M, arXiv 2005.14165, table 2.1)."""
_MOST_DEVICES_PER_SAMPLE = 8
"""Of large clusters, which take more tokens (Llama 3 405B: 16M on 16,384 devices, table 4)."""
_SAMPLES_PER_DEVICE = 32
"""The same for models without sequences."""


def find_layouts(
    model: Any,
    *,
    precision: str = "bf16-mixed",
    device: str | None = None,
    gpus: int = 8,
    nodes: int | None = None,
    node_type: str | None = None,
    global_batch_size: int | None = None,
    seq_len: int | None = None,
    image_size: int | None = None,
    framework: str | None = None,
    stack: str | None = None,
    optimizer: str | None = None,
    sizes: Mapping[str, Any] | None = None,
    custom: str | Path | None = None,
    fix: Sequence[str] = (),
    top: int = 10,
    coverage: float = 0.9,
    workers: int | None = 1,
    ray: str | None = None,
    example_inputs: Any = None,
    progress: Progress | None = None,
    stragglers: bool = True,
) -> LayoutSearch:
    """The fastest layouts of a model on a cluster.

    Args:
        model: As for `predict_time`.
        precision: Any usual spelling.
        device: Accelerator name; A100-SXM4-80GB when nothing is said.
        gpus: Devices in all.
        nodes: Hosts the devices are spread over.
        node_type: DGX-A100, p4d.24xlarge ...: sets the links.
        global_batch_size: Samples per optimizer step over all devices; 4M tokens, or 32 samples per
            device, when nothing is said.
        seq_len: Tokens per sample.
        image_size: Side of the images [pixels].
        framework: pytorch, tensorflow, jax ...
        stack: Software profile (`precision-time stacks`).
        optimizer: sgd, adamw, lamb ...
        sizes: Sizes of a parametric model (hidden, layers, heads ...).
        custom: TOML or YAML file with devices and clusters of your own.
        fix: Fields of the layout that are given, as "tp=8" or "zero=1,3".
        top: Layouts to return.
        coverage: Probability that the intervals hold, 0..1.
        workers: Processes that price; None: one per core, at most 8.
        ray: Instead of processes: "local" for a Ray of its own with `workers` CPUs, or a cluster's address.
        example_inputs: Inputs of an `nn.Module`.
        progress: Told of every step: what is done, how much of it, how much there is.
        stragglers: Allow for the slowest of many devices; False for devices that are all alike.

    Returns:
        Ranked layouts, each with its prediction; none where nothing fits, with what misses and what to
        change.

    Raises:
        UnknownNameError: Model, device, precision, stack or field of a layout that nobody knows.
        ConfigError: Counts, batches or a precision that cannot be.
        LayoutError: If no layout holds at all.
        CaptureError: A model that cannot be turned into an operator graph.
    """
    fixed = parse_fixed(fix)
    check_counts(
        gpus=gpus, nodes=nodes, seq_len=seq_len, image_size=image_size, global_batch_size=global_batch_size
    )
    said = Said()
    asked = resolve_asked(
        model,
        said,
        precision=precision,
        device=device,
        gpus=gpus,
        nodes=nodes,
        node_type=node_type,
        custom=custom,
        seq_len=seq_len,
        image_size=image_size,
        sizes=sizes,
        optimizer=optimizer,
        coverage=coverage,
        example_inputs=example_inputs,
    )
    chosen_stack = resolve_stack(stack, framework, asked.workload.family, said)
    batch = _batch(global_batch_size, asked.workload, gpus, said)
    problem = Problem(
        workload=asked.workload,
        cluster=asked.cluster,
        precision=asked.precision,
        stack=chosen_stack,
        global_batch_size=batch,
        stragglers=stragglers,
        assumptions=tuple(said.assumptions),
        warnings=tuple(said.warnings),
    )
    with open_executor(ray, workers) as over:
        return search_layouts(problem, fixed=fixed, top=top, over=over, coverage=coverage, progress=progress)


def _batch(given: int | None, workload: Workload, gpus: int, said: Said) -> int:
    """The samples of a step: as given, else a usual number that the devices divide."""
    if given is not None:
        return int(given)
    tokens = workload.graph.seq_len
    if tokens is None:
        batch, size = _SAMPLES_PER_DEVICE * gpus, f"{_SAMPLES_PER_DEVICE} per device"
    else:
        usual = max(_TOKENS_PER_STEP / tokens, gpus / _MOST_DEVICES_PER_SAMPLE, 1.0)
        # A multiple of the devices, or a divisor of them: so that the replicas share it evenly.
        shares = next(share for share in range(max(int(gpus / usual), 1), 0, -1) if gpus % share == 0)
        batch = gpus // shares if shares > 1 else math.ceil(usual / gpus) * gpus
        size = f"{batch * tokens / 2**20:.3g}M tokens"
    said.assumptions.append(f"Global batch not given: {batch} samples per step ({size}) assumed.")
    return batch
