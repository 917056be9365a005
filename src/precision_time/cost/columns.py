"""Configurations as columns: what pricing reads, one job or a hundred thousand through the same code."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..hardware.device import Link
from ..parallel.layout import Checkpointing
from .collectives.link import LinkParams, link_params, stack_links
from .job import Job, TimingScope
from .roofline import DeviceRates, compiler_rates, rates_of

Floats = NDArray[np.float64]

CHECKPOINTING = tuple(Checkpointing)


@dataclass(frozen=True, kw_only=True, slots=True)
class JobColumns:
    """C configurations of one graph under one policy; columns have shape (C, 1) unless said otherwise."""

    rates: DeviceRates
    intra: LinkParams
    """Links within a node, arrays of shape (C,)."""
    inter: LinkParams
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
    sequence_parallel: Floats
    launch_overhead_s: Floats
    memory_bytes: Floats
    pcie_bandwidth_bytes_per_s: Floats
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
    compilers = [compiler_rates(job.stack.compiler) for job in jobs]
    return JobColumns(
        rates=rates_of([cluster.device for cluster in clusters]),
        intra=_links([c.intra_node for c in clusters], [c.devices_per_node for c in clusters]),
        inter=_links([c.inter_node for c in clusters], [c.num_nodes for c in clusters]),
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
        parameter_server=column([layout.data_parallel_engine == "parameter-server" for layout in layouts]),
        sequence_parallel=column([layout.sequence_parallel for layout in layouts]),
        launch_overhead_s=column([cluster.device.launch_overhead_s for cluster in clusters]),
        memory_bytes=column([cluster.device.memory_bytes for cluster in clusters]),
        pcie_bandwidth_bytes_per_s=column(
            [cluster.device.pcie_bandwidth_bytes_per_s for cluster in clusters]
        ),
        fusion=column([rates.fusion for rates in compilers]),
        host=column([rates.host for rates in compilers]),
        fused_optimizer=column([job.stack.fused_optimizer for job in jobs]),
        unpadded=column([job.stack.unpadded_sequences for job in jobs]),
        with_optimizer=column([job.scope is not TimingScope.NO_OPTIMIZER for job in jobs]),
    )


def column(values: Sequence[Any]) -> Floats:
    """Shape (C, 1) from C numbers or flags."""
    return np.asarray(values, dtype=np.float64).reshape(-1, 1)


def _links(links: Sequence[Link], devices: Sequence[float]) -> LinkParams:
    """Calibrated parameters of C links as arrays of shape (C,); equal links are looked up once."""
    known: dict[tuple[int, float], LinkParams] = {}
    for link, count in zip(links, devices, strict=True):
        if (id(link), count) not in known:
            known[id(link), count] = link_params(link, count)
    return stack_links([known[id(link), count] for link, count in zip(links, devices, strict=True)])
