"""T6: how much worse predictions of unseen runs get when a group of features is permuted among them.

The analytical seconds stay: what is measured is what the learned stages draw from each group.

Reference: Breiman, Random Forests, Machine Learning 45, 2001; groups because features of one kind carry
the same information.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from ..learn.metrics import mape
from ..learn.stages import StagedCorrection
from ..learn.table import JobTable
from ..papers.contract import Floats, Ints
from .ablations import POLICY_FEATURES, SHAPE_FEATURES
from .cross_validation import Runs
from .metrics import over_seeds
from .tables import CellValue, ReportTable, Section

GROUPS: Mapping[str, tuple[str, ...]] = {
    "precision policy": POLICY_FEATURES,
    "tensor-core share, bandwidth saving, casts": ("tensor_core_share", "bandwidth_saving", "cast_share"),
    "shares of the analytical terms": ("share.", "log_analytical_s", "log_compute_s"),
    "shares of the operator classes": ("class.",),
    "shapes of kernels": (*SHAPE_FEATURES, "log_mean_kernel_s", "weight_gradient_share"),
    "host and launches": ("host_over_kernels", "log_launches", "host_per_layer"),
    "work and traffic": ("log_flops", "log_flops_per_byte", "memory_fill", "link_over_compute"),
    "model": ("log_params", "trainable_share", "log_image_size", "log_seq_len", "unpriced", "family."),
    "batch": ("log_micro_batch_size", "log_global_batch_size", "log_num_micro_batches"),
    "device": (
        *("log_peak", "log_fp32_peak", "log_bandwidth", "log_ridge", "units", "l2"),
        *("boost", "log_memory", "tdp", "device_year", "pcie", "vendor."),
    ),
    "cluster": ("log_devices", "log_nodes", "devices_per_node", "intra_bandwidth", "inter_bandwidth"),
    "layout": (
        *("log_dp", "log_tp", "log_pp", "log_cp", "log_ep", "log_expert_tp"),
        *("virtual_pp", "zero_stage", "sequence_parallel", "checkpoint", "hybrid_sharding", "keeps_gathered"),
        *("gathers_context", "offload", "single_process", "parameter_server"),
    ),
    "software": (
        *("stack.", "framework", "compiler.", "channels_last", "fused_", "tuned_attention"),
        *("unpadded", "overlap_", "real_input"),
    ),
    "scope of the timing": ("scope.",),
}
"""Group to the beginnings of its features' names; a feature belongs to the first group that fits."""
_REST = "others"
_REPEATS = 3
_MOST_ROWS = 4000
_PROTOCOLS = ("configuration", "model")


def grouped_features(names: Sequence[str]) -> dict[str, list[int]]:
    """Columns of each group; features of none are in `others`."""
    groups: dict[str, list[int]] = {}
    for index, name in enumerate(names):
        group = next((g for g, starts in GROUPS.items() if name.startswith(starts)), _REST)
        groups.setdefault(group, []).append(index)
    return groups


def importance_section(runs: Runs, seeds: Sequence[int]) -> Section:
    """T6 on the first fold of two protocols."""
    gains = {protocol: [_gains(runs, protocol, seed) for seed in seeds] for protocol in _PROTOCOLS}
    names = list(gains[_PROTOCOLS[0]][0])
    figures = {
        f"T6.{protocol}.{name}": over_seeds([gain[name] for gain in found])
        for protocol, found in gains.items()
        for name in names
    }
    order = sorted(names, key=lambda name: -figures[f"T6.{_PROTOCOLS[0]}.{name}"].value)
    sizes = {name: len(columns) for name, columns in grouped_features(runs.table.jobs.names).items()}
    rows: list[tuple[CellValue, ...]] = [
        (name, sizes[name], *(f"{figures[f'T6.{protocol}.{name}'].value:+.2f}" for protocol in _PROTOCOLS))
        for name in order
    ]
    return Section(
        key="T6",
        title="Feature importance",
        headline=f"Unseen configurations: the learned stages draw most from {order[0]} and {order[1]}.",
        tables=(
            ReportTable(
                title="Points of MAPE lost when a group of features is permuted",
                columns=("features", ">columns", *(f">unseen {protocol}s" for protocol in _PROTOCOLS)),
                rows=tuple(rows),
                note="First fold of each protocol; the analytical seconds are not permuted.",
            ),
        ),
        figures=figures,
    )


def _gains(runs: Runs, protocol: str, seed: int) -> dict[str, float]:
    fitted, rows = runs.fitted(protocol, seed)
    correction = fitted.correction
    draw = np.random.default_rng(seed)
    if len(rows) > _MOST_ROWS:
        rows = np.sort(draw.choice(rows, size=_MOST_ROWS, replace=False))
    jobs, measured_s = runs.table.jobs.take(rows), runs.table.measured_s[rows]
    base = _error(correction, jobs, measured_s)
    gains = {}
    for name, columns in grouped_features(jobs.names).items():
        runs.progress(f"importance, {protocol}: {name}")
        each = [
            _error(correction, _permuted(jobs, columns, draw.permutation(len(rows))), measured_s) - base
            for _ in range(_REPEATS)
        ]
        gains[name] = float(np.mean(each))
    return gains


def _permuted(jobs: JobTable, columns: Sequence[int], order: Ints) -> JobTable:
    features = jobs.features.copy()
    features[:, columns] = jobs.features[order][:, columns]
    return replace(jobs, features=features)


def _error(correction: StagedCorrection, jobs: JobTable, measured_s: Floats) -> float:
    return mape(measured_s, correction.correct(jobs).step_time_s) or 0.0
