"""What the trees read: one row of numbers per job, the same in training and in serving.

No feature is the name of a source or of a model: a new job must be able to have every one of them.
Stack profiles and architecture families enter as indicator columns; a profile that was never
measured has none set and falls back to what all stacks have in common.

References: the features named by arXiv 2604.16145 (tensor-core utilization, bandwidth saving of
reduced precision, loss-scaling overhead), next to the analytical terms themselves.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain
from operator import attrgetter

import numpy as np
from numpy.typing import NDArray

from ..cache import derived, memo
from ..cost.job import Job, Jobs, TimingScope
from ..cost.roofline import KIND, WIDTHS, peak_flops_per_s
from ..cost.stacks import Stack, kind_names, kind_of_stack, suite_names
from ..cost.step import StepCosts
from ..hardware.device import Cluster
from ..parallel.layout import CpCommType, Layout, Offload, Recompute
from ..precision.lowering import main_product
from ..precision.policy import DType, PrecisionPolicy
from ..records import dataclass
from ..workload.graph import OpGraph

Floats = NDArray[np.float64]

RECOMPUTE = tuple(Recompute)
OFFLOAD = tuple(Offload)
FRAMEWORKS = ("pytorch", "tensorflow", "mxnet", "jax", "paddlepaddle", "mindspore", "oneflow", "hugectr")
COMPILERS = ("none", "inductor", "xla", "cudagraphs", "torchscript", "graph")
VENDORS = ("NVIDIA", "AMD", "Intel", "Google", "CPU")
FAMILIES = (
    "cnn",
    "vit",
    "transformer-decoder",
    "transformer-encoder",
    "transformer-encdec",
    "moe",
    "rnn",
    "detection",
    "segmentation",
    "speech",
    "recsys",
    "gnn",
    "diffusion",
)
INDICATORS = ("stack.", "suite.", "vendor.", "framework.", "compiler.", "family.", "matmul.", "scope.")
"""How columns begin of which at most one of a kind is 1: that the device is of a vendor, and so on."""
_DEGREES = ("num_microbatches", "dp", "tp", "pp", "cp", "ep")
_LOG_DEGREES = ("log_num_micro_batches", "log_dp", "log_tp", "log_pp", "log_cp", "log_ep")
"""Names of features are those that predictors were trained with; of fields, those of `Layout`."""
_LOG_ROUNDS, _LOG_REPLICAS = 0, 1
_LAYOUT_LOGS = [*range(len(_DEGREES)), len(_DEGREES) + 5]
"""Which features of a layout are logarithms, as arrays of all groups are taken of."""
_degrees = attrgetter(*_DEGREES)
_TINY_S = 1e-9


def features_of(jobs: Jobs, costs: StepCosts) -> tuple[tuple[str, ...], Floats]:
    """Feature columns of jobs.

    Args:
        jobs: n jobs, group by group.
        costs: Their analytical costs.

    Returns:
        Names, the same for every group, and values of shape (n, features).
    """
    kinds = zip(*map(_shared_features, jobs.shared), strict=True)
    parts = [_Named(names=each[0].names, values=np.array([one.values for one in each])) for each in kinds]
    of_layout = parts[-2].values
    of_layout[:, _LAYOUT_LOGS] = _log(of_layout[:, _LAYOUT_LOGS])
    batch = _log(jobs.micro_batch_size)
    rounds = _log(jobs.num_microbatches)
    shared = rounds + of_layout[jobs.group, _LOG_REPLICAS]
    priced = {
        **_term_features(costs),
        **_fact_features(costs),
        "log_micro_batch_size": batch,
        "log_global_batch_size": batch + shared,
    }
    fixed = np.concatenate([part.values for part in parts], axis=1)
    features = np.empty((len(jobs), len(priced) + fixed.shape[1]))
    features[:, : len(priced)] = np.concatenate([*priced.values()]).reshape(len(priced), -1).T
    features[:, len(priced) :] = fixed[jobs.group]
    names = (*priced, *chain.from_iterable(part.names for part in parts))
    features[:, names.index(_LOG_DEGREES[_LOG_ROUNDS])] = rounds
    return names, features


@dataclass(frozen=True, kw_only=True, slots=True)
class _Named:
    """Features that all jobs of a group have in common; of several groups a row each."""

    names: tuple[str, ...]
    values: Floats

    @classmethod
    def of(cls, features: Mapping[str, float]) -> _Named:
        """Names and values of a table."""
        return cls(names=tuple(features), values=np.array([*features.values()], dtype=np.float64))


def _shared_features(job: Job) -> tuple[_Named, ...]:
    """Of model, precision, cluster, layout and software."""
    runs, graph = job.runs, job.workload.graph
    matmul = main_product(graph, runs)
    return (
        _workload_features(graph, job.workload.family),
        _policy_features(runs, matmul),
        _cluster_features(job.cluster, matmul),
        _layout_features(job.layout),
        _stack_features(job.stack, job.scope),
    )


def _term_features(costs: StepCosts) -> dict[str, Floats]:
    total, compute = costs.step_time_s, np.maximum(costs.compute_s, _TINY_S)
    facts = costs.facts
    features = {"log_analytical_s": _log(total), "log_compute_s": _log(compute)}
    for name, seconds in costs.terms.items():
        features[f"share.{name}"] = seconds / total
    features["link_over_compute"] = costs.link_s / compute
    features["host_over_kernels"] = facts["host_s"] / np.maximum(facts["kernels_s"], _TINY_S)
    features["log_mean_kernel_s"] = _log(facts["kernels_s"] / np.maximum(facts["launches"], 1.0))
    return features


def _fact_features(costs: StepCosts) -> dict[str, Floats]:
    facts = costs.facts
    features = {
        name.replace("time_share.", "class."): column for name, column in facts.items() if "." in name
    }
    moved = np.maximum(facts["bytes"], 1.0)
    return features | {
        "log_flops": _log(facts["flops"]),
        "log_flops_per_byte": _log(facts["flops"] / moved),
        "log_launches": _log(facts["launches"]),
        "mean_inner": _log(facts["mean_inner"]),
        "mean_outer": _log(facts["mean_outer"]),
        "mean_kernel_area": _log(facts["mean_kernel_area"]),
        "largest_kernel_share": facts["largest_kernel_share"],
        "short_kernel_share": facts["short_kernel_share"],
        "weight_gradient_share": facts["weight_gradient_share"],
        "tensor_core_share": facts["tensor_core_share"],
        "bandwidth_saving": facts["bandwidth_saving"],
        "cast_share": facts["cast_bytes"] / moved,
        "memory_fill": facts["memory_fill"],
    }


@derived
def _workload_features(graph: OpGraph, family: str) -> _Named:
    features = {
        "log_params": float(_log(graph.params)),
        "trainable_share": graph.trainable_params / max(graph.params, 1.0),
        "log_image_size": float(_log(graph.image_size or 1)),
        "log_seq_len": float(_log(graph.seq_len or 1)),
        "unpriced": float(sum(graph.unpriced.values())),
    }
    return _Named.of(features | {f"family.{name}": float(family == name) for name in FAMILIES})


@derived
def _policy_features(policy: PrecisionPolicy, matmul: DType) -> _Named:
    # By width, as shares of rates are: fp16 and bf16 are the same work on units that have both.
    features = {f"matmul.{kind}": float(KIND[matmul] == kind) for kind in WIDTHS}
    return _Named.of(
        features
        | {
            "conv_tf32": float(policy.conv is DType.TF32),
            "activation_bytes": policy.activation.num_bytes,
            "wire_bytes": policy.reduce.num_bytes,
            "autocast": float(policy.autocast),
            "loss_scaling": float(policy.loss_scaling),
            "master_copy": float(policy.master is not None),
        }
    )


@derived
def _cluster_features(cluster: Cluster, matmul: DType) -> _Named:
    device = cluster.device
    peak = peak_flops_per_s(device, matmul)
    features = {
        "log_peak": float(_log(peak)),
        "log_fp32_peak": float(_log(device.peak_flops_per_s.get("fp32", peak))),
        "log_bandwidth": float(_log(device.memory_bandwidth_bytes_per_s)),
        "log_ridge": float(_log(peak / device.memory_bandwidth_bytes_per_s)),
        "units": device.sm_count,
        "l2": device.l2_bytes,
        "boost": device.boost_hz,
        "log_memory": float(_log(device.memory_bytes)),
        "tdp": device.tdp_w,
        "tdp_per_peak": device.tdp_w / peak * 1e12,
        "device_year": float(device.release_year),
        "pcie": device.pcie_bandwidth_bytes_per_s,
        "log_devices": float(_log(cluster.num_devices)),
        "log_nodes": float(_log(cluster.num_nodes)),
        "devices_per_node": cluster.devices_per_node,
        "intra_bandwidth": cluster.intra_node.bandwidth_bytes_per_s if cluster.num_devices > 1 else 0.0,
        "inter_bandwidth": cluster.inter_node.bandwidth_bytes_per_s if cluster.num_nodes > 1 else 0.0,
    }
    return _Named.of(features | {f"vendor.{name}": float(device.vendor == name) for name in VENDORS})


def _layout_features(layout: Layout) -> _Named:
    """Before logarithms are taken."""
    values = {
        "virtual_pp": layout.vpp,
        "zero_stage": layout.zero_stage,
        "sequence_parallel": layout.sequence_parallel,
        "checkpointing": RECOMPUTE.index(layout.recompute),
        "checkpointed_share": layout.recompute_share,
        "log_expert_tp": layout.tensor_degree_of_experts,
        "hybrid_sharding": 0 < layout.dp_shard < layout.data_ranks,
        "keeps_gathered": not layout.reshard_after_forward,
        "gathers_context": layout.cp_comm_type is CpCommType.ALL_GATHER,
        "offload": OFFLOAD.index(layout.offload),
        "single_process": layout.data_parallel_engine == "dataparallel",
        "parameter_server": layout.data_parallel_engine == "parameter-server",
    }
    found = np.array([*_degrees(layout), *values.values()], dtype=np.float64)
    return _Named(names=(*_LOG_DEGREES, *values), values=found)


@memo(512)
def _stack_features(stack: Stack, scope: TimingScope) -> _Named:
    kind = kind_of_stack(stack.profile)
    features = {f"stack.{name}": float(kind == name) for name in kind_names()}
    features |= {f"suite.{name}": float(stack.profile == name) for name in suite_names()}
    features |= {f"framework.{name}": float(stack.framework == name) for name in FRAMEWORKS}
    features |= {f"compiler.{name}": float(stack.compiler == name) for name in COMPILERS}
    features |= {f"scope.{item.value}": float(scope is item) for item in TimingScope}
    return _Named.of(
        features
        | {
            "framework_year": stack.framework_year,
            "channels_last": float(stack.channels_last),
            "fused_optimizer": float(stack.fused_optimizer),
            "fused_attention": float(stack.fused_attention),
            "unpadded": float(stack.unpadded_sequences),
            "real_input": float(stack.real_input),
            "fused_kernels": float(stack.fused_kernels),
            "tuned_attention": float(stack.tuned_attention),
            "overlap_gradients": float(stack.overlap_grad_reduce),
            "overlap_parameters": float(stack.overlap_param_gather),
            "overlap_tensor": float(stack.overlap_tensor),
            "host_per_layer": stack.host_per_layer_s * 1e3,
        }
    )


def _log(value: Floats | float) -> Floats:
    logs: Floats = np.log(np.maximum(value, 1e-12))
    return logs
