"""The inputs of PredictDDL's regressors, one row per job: embedding, cluster, batch, precision.

`predictddl` reads `ghn.*` and `cluster.*`, as the paper does: neither knows a precision.
`predictddl-size` reads `size.*` besides: how large the network is, which a mean over nodes does not know.
`predictddl-precision` reads `ghnp.*` besides, the embedding in blocks by the types that operators are lowered
to, and PRECISION_FEATURES, columns of `learn/features.py`. Two more are baselines of the comparison:
`three-sums` reads `sum.*` in the place of the embedding (FLOPs, parameters and bytes of the step, priced as
fp32), `embedding-and-sums` reads both.

What spans decades enters as a logarithm: the regressors standardize their inputs, and no standardized
polynomial of raw peak rates has their reciprocal in it, of which a time is made.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from precision_time.cache import derived
from precision_time.cost.job import Job
from precision_time.hardware.device import Cluster
from precision_time.learn.table import JobTable
from precision_time.workload.graph import OpGraph

from ..contract import bytes_per_device, column, flops_per_device
from .regressors import Floats

BLIND, SIZE, PRECISION = "predictddl", "predictddl-size", "predictddl-precision"
VARIANTS = (BLIND, SIZE, PRECISION)
"""What is trained and served."""
SUMS, EMBEDDING_AND_SUMS = "three-sums", "embedding-and-sums"
EMBEDDING, ANNOTATED, CLUSTER, SUM, SIZES = "ghn.", "ghnp.", "cluster.", "sum.", "size."
SUM_COLUMNS = ("sum.log_flops", "sum.log_params", "sum.log_bytes")
SIZE_COLUMNS = ("size.log_flops", "size.log_params", "size.log_activations", "size.log_operators")
"""Forward FLOPs and activation elements of a step on each device, parameter elements, and operators."""
CLUSTER_COLUMNS = (
    "cluster.log_nodes",
    "cluster.log_devices_per_node",
    "cluster.log_memory_bytes",
    "cluster.log_fp32_flops_per_s",
    "cluster.log_memory_bandwidth_bytes_per_s",
    "cluster.log_intra_node_bytes_per_s",
    "cluster.log_inter_node_bytes_per_s",
    "cluster.log_batch_per_device",
    "cluster.log_global_batch_size",
    "cluster.log_cores",
)
PRECISION_FEATURES = (
    "log_analytical_s",
    "log_compute_s",
    "log_flops",
    "log_flops_per_byte",
    "log_launches",
    "log_peak",
    "tensor_core_share",
    "bandwidth_saving",
    "cast_share",
    "loss_scaling",
    "autocast",
    "master_copy",
    "activation_bytes",
    "wire_bytes",
)
"""Seconds of the lowered kernels, FLOPs and the peak at the dtype, the share on tensor cores, bytes saved,
casts, loss scaling, master weights, and the dtypes of activations and of the gradients on the wire."""


def cluster_columns(jobs: Sequence[Job]) -> tuple[tuple[str, ...], Floats]:
    """What PredictDDL's resource collector reports of each job, and its batch.

    Args:
        jobs: n jobs.

    Returns:
        CLUSTER_COLUMNS and values, shape (n, 10). Rates are per second and device; a link that a job does
        not use counts as 1 B/s, so that its logarithm is 0. Of a processor the memory is the
        host's RAM; the cores of a GPU are its multiprocessors.
    """
    raw = np.array([_raw(job) for job in jobs], dtype=np.float64).reshape(len(jobs), len(CLUSTER_COLUMNS))
    return CLUSTER_COLUMNS, np.log(raw)


def batch_per_device(job: Job) -> float:
    """Samples of a step on each device."""
    layout = job.layout
    return layout.micro_batch_size * layout.num_microbatches * layout.dp / job.cluster.num_devices


def cluster_facts(cluster: Cluster) -> dict[str, float]:
    """What of a cluster alone goes into CLUSTER_COLUMNS, by their names without `log_`."""
    device = cluster.device
    fp32 = device.peak_flops_per_s.get("fp32") or max(device.peak_flops_per_s.values())
    return {
        "nodes": cluster.num_nodes,
        "devices_per_node": cluster.devices_per_node,
        "memory_bytes": device.memory_bytes,
        "fp32_flops_per_s": fp32,
        "memory_bandwidth_bytes_per_s": device.memory_bandwidth_bytes_per_s,
        "intra_node_bytes_per_s": (
            cluster.intra_node.bandwidth_bytes_per_s if cluster.devices_per_node > 1 else 1.0
        ),
        "inter_node_bytes_per_s": cluster.inter_node.bandwidth_bytes_per_s if cluster.num_nodes > 1 else 1.0,
        "cores": device.sm_count,
    }


def _raw(job: Job) -> tuple[float, ...]:
    per_device = batch_per_device(job)
    facts = cluster_facts(job.cluster) | {
        "batch_per_device": per_device,
        "global_batch_size": per_device * job.cluster.num_devices,
    }
    return tuple(facts[name.removeprefix(f"{CLUSTER}log_")] for name in CLUSTER_COLUMNS)


def size_columns(graphs: Sequence[OpGraph], batch_per_device: Floats) -> Floats:
    """SIZE_COLUMNS of jobs as logarithms, shape (n, 4).

    Of a step and not of a sample: where one batch was trained at, its column says nothing, and runs of
    another image size come with another batch.

    Args:
        graphs: Of n jobs.
        batch_per_device: Samples of a step on each device, shape (n,).
    """
    sizes = np.array([_size_of_graph(graph) for graph in graphs]).reshape(-1, len(SIZE_COLUMNS))
    per_sample = np.array([1.0, 0.0, 1.0, 0.0])
    columns: Floats = sizes + per_sample * np.log(batch_per_device)[:, None]
    return columns


@derived
def _size_of_graph(graph: OpGraph) -> tuple[float, ...]:
    """Of one sample; what a network has none of counts as one."""
    sums = (
        graph.forward_flops,
        graph.params,
        graph.saved_elems,
        sum(node.repeat for node in graph.nodes),
    )
    return tuple(math.log(max(value, 1.0)) for value in sums)


def precision_columns(table: JobTable) -> tuple[tuple[str, ...], Floats]:
    """The precision features of priced jobs: PRECISION_FEATURES and shape (n, 14)."""
    places = [table.names.index(name) for name in PRECISION_FEATURES]
    return PRECISION_FEATURES, table.features[:, places]


def sum_columns(fp32: JobTable) -> tuple[tuple[str, ...], Floats]:
    """FLOPs and bytes of the step on each device, and parameters, as logarithms: SUM_COLUMNS, shape (n, 3).

    Args:
        fp32: The jobs priced as if all ran in fp32, so that no sum knows a precision.
    """
    sums = (flops_per_device(fp32), np.exp(column(fp32, "log_params")), bytes_per_device(fp32))
    return SUM_COLUMNS, np.log(np.maximum(np.stack(sums, axis=1), 1.0))


_LEADS: Mapping[str, tuple[str, ...]] = {
    BLIND: (EMBEDDING, CLUSTER),
    SIZE: (EMBEDDING, SIZES, CLUSTER),
    PRECISION: (EMBEDDING, ANNOTATED, CLUSTER),
    SUMS: (SUM, CLUSTER),
    EMBEDDING_AND_SUMS: (EMBEDDING, SUM, CLUSTER),
}


def inputs_of(variant: str, names: Sequence[str]) -> tuple[str, ...]:
    """Which of a table's columns a variant reads, in their order."""
    own = PRECISION_FEATURES if variant == PRECISION else ()
    return tuple(name for name in names if name.startswith(_LEADS[variant]) or name in own)


def picked(names: Sequence[str], values: Floats, wanted: Sequence[str]) -> Floats:
    """Columns by name, shape (n, len(wanted)).

    Raises:
        KeyError: If one is missing.
    """
    places = {name: place for place, name in enumerate(names)}
    return values[:, [places[name] for name in wanted]]
