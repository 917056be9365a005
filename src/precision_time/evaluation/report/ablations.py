"""What the predictor is without one of its parts: each ablation is another table to fit on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ...learn.table import JobTable
from .priced import PricedCorpus
from .terms import KERNEL_TERMS, column_of, link_s, terms_of, with_terms, without

Floats = NDArray[np.float64]

POLICY_FEATURES = (
    "matmul.",
    "conv_tf32",
    "activation_bytes",
    "wire_bytes",
    "autocast",
    "loss_scaling",
    "master_copy",
)
"""Features that say what the precision is."""
DTYPE_FEATURES = (
    *POLICY_FEATURES,
    "tensor_core_share",
    "bandwidth_saving",
    "cast_share",
    "log_peak",
    "log_ridge",
    "tdp_per_peak",
)
"""Features that depend on it by more than the analytical seconds."""
SHAPE_FEATURES = (
    "mean_inner",
    "mean_outer",
    "mean_kernel_area",
    "largest_kernel_share",
    "short_kernel_share",
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Ablation:
    """One part of the predictor that can be left out."""

    title: str
    explains: str
    """What exactly is left out."""
    jobs: Callable[[PricedCorpus], JobTable]
    trusting: bool = False
    """Whether the stages hold in full far from measured runs: fp32 formulas are no place to fall back to."""


def starts_with(names: tuple[str, ...]) -> Callable[[str], bool]:
    """Whether a feature's name begins with one of `names`."""
    return lambda name: name.startswith(names)


def without_dtype_features(priced: PricedCorpus) -> JobTable:
    """Formulas know the precision, trees do not."""
    return without(priced.table.jobs, starts_with(DTYPE_FEATURES))


def without_dtype_lowering(priced: PricedCorpus) -> JobTable:
    """Formulas price every job as fp32, trees are told its precision."""
    own, blind = priced.table.jobs, priced.fp32
    features = blind.features.copy()
    told = starts_with(POLICY_FEATURES)
    for index, name in enumerate(own.names):
        if told(name):
            features[:, index] = own.features[:, index]
    return JobTable(
        features=features,
        names=blind.names,
        analytical_s=blind.analytical_s,
        compute_s=blind.compute_s,
        exposed_s=blind.exposed_s,
    )


def blind(priced: PricedCorpus) -> JobTable:
    """Neither formulas nor trees know the precision."""
    return priced.fp32


def without_casts(priced: PricedCorpus) -> JobTable:
    """Casts cost nothing."""
    return _without_terms(priced.table.jobs, ("casts_s",), ("cast_share",))


def without_scaler(priced: PricedCorpus) -> JobTable:
    """Loss scaling costs nothing and is not told."""
    return _without_terms(priced.table.jobs, ("unscale_s", "host_sync_s"), ("loss_scaling",))


def without_wire_dtype(priced: PricedCorpus) -> JobTable:
    """All gradients travel as fp32."""
    return without(priced.fp32_wire, starts_with(("wire_bytes",)))


def without_shapes(priced: PricedCorpus) -> JobTable:
    """Products of any shape run at the rate of their class."""
    jobs = priced.table.jobs
    terms = terms_of(jobs)
    kernels_s = sum((terms[name] for name in KERNEL_TERMS if name in terms), np.zeros(len(priced)))
    host_s = column_of(jobs, "host_over_kernels") * kernels_s
    scaled = {
        name: seconds * priced.shape_ratio if name in KERNEL_TERMS else seconds
        for name, seconds in terms.items()
    }
    # Where kernels get shorter the host shows again.
    scaled["host_stall_s"] = terms["host_stall_s"] + np.maximum(
        np.maximum(host_s - kernels_s * priced.shape_ratio, 0.0) - np.maximum(host_s - kernels_s, 0.0), 0.0
    )
    return without(with_terms(jobs, scaled), starts_with(SHAPE_FEATURES))


def without_overlap_simulation(priced: PricedCorpus) -> JobTable:
    """Communication hides behind nothing: every second on the wire is exposed."""
    jobs = priced.table.jobs
    terms = terms_of(jobs)
    none = np.zeros(len(priced))
    hidden = {name: none for name in terms if name.endswith("_exposed_s") or name == "contention_s"}
    return with_terms(jobs, {**terms, **hidden, "data_exposed_s": link_s(jobs)})


def _without_terms(jobs: JobTable, terms: tuple[str, ...], features: tuple[str, ...]) -> JobTable:
    dropped = (*features, *(f"share.{name}" for name in terms))
    zeroed: dict[str, Floats] = {name: np.zeros(len(jobs.analytical_s)) for name in terms}
    return without(with_terms(jobs, {**terms_of(jobs), **zeroed}), starts_with(dropped))


ABLATIONS: Mapping[str, Ablation] = {
    "dtype-features": Ablation(
        title="minus dtype features",
        explains="trees are not told the precision; the formulas still price it",
        jobs=without_dtype_features,
    ),
    "dtype-lowering": Ablation(
        title="minus dtype lowering",
        explains="formulas price every job as fp32; trees are still told the precision",
        jobs=without_dtype_lowering,
        trusting=True,
    ),
    "precision": Ablation(
        title="minus both (precision-blind)",
        explains="neither formulas nor trees know the precision",
        jobs=blind,
        trusting=True,
    ),
    "casts": Ablation(
        title="minus cast terms", explains="casts take no time; their shares are dropped", jobs=without_casts
    ),
    "scaler": Ablation(
        title="minus scaler",
        explains="unscaling and its host synchronisation take no time; loss scaling is not told",
        jobs=without_scaler,
    ),
    "wire": Ablation(
        title="minus wire dtype",
        explains="all gradients are priced as fp32 on the wire",
        jobs=without_wire_dtype,
    ),
    "shapes": Ablation(
        title="minus alignment and shape share",
        explains="no tiles, waves or inner lengths in the formulas, no shapes among the features",
        jobs=without_shapes,
    ),
    "overlap-simulation": Ablation(
        title="minus overlap simulation",
        explains="formulas expose every second on the wire; stage 3 still learns",
        jobs=without_overlap_simulation,
    ),
}
"""Name to ablation; the overlap stage itself is left out at prediction (`staged.py`)."""
