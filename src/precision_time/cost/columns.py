"""Configurations as columns: what pricing reads, one job or a hundred thousand through the same code."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..hardware.device import Link
from ..parallel.layout import Checkpointing
from .job import Job, Stack, TimingScope
from .roofline import DeviceRates, rates_of

Floats = NDArray[np.float64]

CHECKPOINTING = tuple(Checkpointing)


@dataclass(frozen=True, kw_only=True, slots=True)
class LinkColumns:
    """One level of the network, shape (C, 1) each."""

    bandwidth_bytes_per_s: Floats
    latency_s: Floats
    in_network_reduction: Floats


@dataclass(frozen=True, kw_only=True, slots=True)
class StackRates:
    """What a software stack does to kernels; from `cost/data/kernels.toml`."""

    fusion: float
    """Share of the traffic of memory-bound kernels that remains after fusion."""
    host: float
    """Host time per kernel launch relative to eager PyTorch."""


@dataclass(frozen=True, kw_only=True, slots=True)
class JobColumns:
    """C configurations of one graph under one policy; all columns have shape (C, 1)."""

    rates: DeviceRates
    intra: LinkColumns
    inter: LinkColumns
    num_devices: Floats
    num_nodes: Floats
    micro_batch_size: Floats
    num_micro_batches: Floats
    dp: Floats
    tp: Floats
    pp: Floats
    cp: Floats
    ep: Floats
    virtual_pp: Floats
    zero_stage: Floats
    checkpointing: Floats
    """Index into CHECKPOINTING."""
    bucket_bytes: Floats
    single_process: Floats
    """1 where one process drives all devices (DataParallel)."""
    parameter_server: Floats
    launch_overhead_s: Floats
    fusion: Floats
    host: Floats
    fused_optimizer: Floats
    unpadded: Floats
    with_optimizer: Floats
    """0 where the timing leaves the optimizer out."""

    def __len__(self) -> int:
        return len(self.num_devices)


def columns_of(jobs: Sequence[Job]) -> JobColumns:
    """Columns of jobs that share graph and policy."""
    layouts = [job.layout for job in jobs]
    clusters = [job.cluster for job in jobs]
    stacks = [stack_rates(job.stack) for job in jobs]
    return JobColumns(
        rates=rates_of([cluster.device for cluster in clusters]),
        intra=link_columns([cluster.intra_node for cluster in clusters]),
        inter=link_columns([cluster.inter_node for cluster in clusters]),
        num_devices=column([cluster.num_devices for cluster in clusters]),
        num_nodes=column([cluster.num_nodes for cluster in clusters]),
        micro_batch_size=column([layout.micro_batch_size for layout in layouts]),
        num_micro_batches=column([layout.num_micro_batches for layout in layouts]),
        dp=column([layout.dp for layout in layouts]),
        tp=column([layout.tp for layout in layouts]),
        pp=column([layout.pp for layout in layouts]),
        cp=column([layout.cp for layout in layouts]),
        ep=column([layout.ep for layout in layouts]),
        virtual_pp=column([layout.virtual_pp for layout in layouts]),
        zero_stage=column([layout.zero_stage for layout in layouts]),
        checkpointing=column([CHECKPOINTING.index(layout.checkpointing) for layout in layouts]),
        bucket_bytes=column([layout.bucket_bytes for layout in layouts]),
        single_process=column([layout.data_parallel_engine == "dataparallel" for layout in layouts]),
        parameter_server=column(
            [layout.data_parallel_engine == "parameter-server" for layout in layouts]
        ),
        launch_overhead_s=column([cluster.device.launch_overhead_s for cluster in clusters]),
        fusion=column([rates.fusion for rates in stacks]),
        host=column([rates.host for rates in stacks]),
        fused_optimizer=column([job.stack.fused_optimizer for job in jobs]),
        unpadded=column([job.stack.unpadded_sequences for job in jobs]),
        with_optimizer=column([job.scope is not TimingScope.NO_OPTIMIZER for job in jobs]),
    )


def column(values: Sequence[Any]) -> Floats:
    """Shape (C, 1) from C numbers or flags."""
    return np.asarray(values, dtype=np.float64).reshape(-1, 1)


def link_columns(links: Sequence[Link]) -> LinkColumns:
    """Columns of C links."""
    return LinkColumns(
        bandwidth_bytes_per_s=column([link.bandwidth_bytes_per_s for link in links]),
        latency_s=column([link.latency_s for link in links]),
        in_network_reduction=column([link.in_network_reduction for link in links]),
    )


def stack_rates(stack: Stack) -> StackRates:
    """Fusion and host share of the stack's compiler.

    >>> stack_rates(Stack(compiler="none"))
    StackRates(fusion=1.0, host=1.0)
    """
    table = _compilers()
    entry = table.get(stack.compiler, table["none"])
    return StackRates(fusion=entry["fusion"], host=entry["host"])


@lru_cache(maxsize=1)
def _compilers() -> dict[str, dict[str, float]]:
    text = resources.files(__package__).joinpath("data/kernels.toml").read_text(encoding="utf-8")
    table: dict[str, dict[str, float]] = tomllib.loads(text)["compilers"]
    return table
