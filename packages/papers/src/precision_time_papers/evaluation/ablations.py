"""What the predictor is without one of its parts: each ablation is another view of the jobs to fit to."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from precision_time.cost.compute import longer_of
from precision_time.cost.terms import EXPOSED_TERMS, KERNEL_TERMS
from precision_time.io import packaged_toml
from precision_time.learn.table import JobTable

from ..contract import Floats, column
from .pricing import PricedCorpus

Terms = dict[str, Floats]

_SHARE = "share."
_TINY_S = 1e-9

_FEATURES = packaged_toml(__package__, "data/feature_groups.toml")
POLICY_FEATURES: tuple[str, ...] = tuple(_FEATURES["groups"]["precision policy"])
"""Beginnings of features that say what the precision is."""
DTYPE_FEATURES: tuple[str, ...] = (*POLICY_FEATURES, *_FEATURES["left_out"]["dtype"])
"""Of features that depend on it by more than the analytical seconds."""
SHAPE_FEATURES: tuple[str, ...] = tuple(_FEATURES["left_out"]["shape"])


@dataclass(frozen=True, kw_only=True, slots=True)
class Ablation:
    """One part of the predictor that can be left out."""

    title: str
    explains: str
    """What exactly is left out."""
    jobs: Callable[[PricedCorpus], JobTable]
    """The view; where formulas or features change, without the batch rule."""
    no_shrinkage: bool = False
    """Whether corrections hold in full far from measured runs: fp32 formulas are nothing to fall back to."""


def terms_of(jobs: JobTable) -> Terms:
    """Analytical seconds by term, shape (n,) each."""
    return {
        name.removeprefix(_SHARE): jobs.features[:, index] * jobs.analytical_s
        for index, name in enumerate(jobs.names)
        if name.startswith(_SHARE)
    }


def with_terms(jobs: JobTable, terms: Mapping[str, Floats]) -> JobTable:
    """The table with other analytical terms: with its seconds, shares and ratios.

    Args:
        jobs: A priced table.
        terms: Seconds of every term that it has.
    """
    exposed_s = sum(
        (s for name, s in terms.items() if name in EXPOSED_TERMS), np.zeros(len(jobs.analytical_s))
    )
    compute_s = sum((s for name, s in terms.items() if name not in EXPOSED_TERMS), np.zeros_like(exposed_s))
    compute_s = np.maximum(compute_s, _TINY_S)
    total_s = compute_s + exposed_s
    columns = {f"{_SHARE}{name}": seconds / total_s for name, seconds in terms.items()}
    columns["log_analytical_s"] = np.log(total_s)
    columns["log_compute_s"] = np.log(compute_s)
    if "link_over_compute" in jobs.names:
        columns["link_over_compute"] = link_s(jobs) / compute_s
    features = jobs.features.copy()
    for name, values in columns.items():
        if name in jobs.names:
            features[:, jobs.names.index(name)] = values
    return replace(
        jobs.alone(), features=features, analytical_s=total_s, compute_s=compute_s, exposed_s=exposed_s
    )


def link_s(jobs: JobTable) -> Floats:
    """Seconds on the wire, hidden or not."""
    seconds: Floats = column(jobs, "link_over_compute") * np.maximum(jobs.compute_s, _TINY_S)
    return seconds


def without(jobs: JobTable, dropped: tuple[str, ...]) -> JobTable:
    """The table without the features whose names begin so; the analytical seconds stay."""
    kept = [index for index, name in enumerate(jobs.names) if not name.startswith(dropped)]
    names = tuple(jobs.names[index] for index in kept)
    return replace(jobs.alone(), features=jobs.features[:, kept], names=names)


def without_dtype_lowering(priced: PricedCorpus) -> JobTable:
    """Formulas price every job as fp32, trees know its precision."""
    own, blind = priced.table.jobs, priced.fp32
    kept = np.array([name.startswith(POLICY_FEATURES) for name in own.names])
    return replace(blind.alone(), features=np.where(kept, own.features, blind.features))


def without_shapes(priced: PricedCorpus) -> JobTable:
    """GEMMs of any shape run at the rate of their class."""
    jobs = priced.table.jobs
    terms = terms_of(jobs)
    kernels_s = sum((terms[name] for name in KERNEL_TERMS if name in terms), np.zeros(len(priced)))
    host_s = column(jobs, "host_over_kernels") * kernels_s
    scaled = {
        name: seconds * priced.shape_ratio if name in KERNEL_TERMS else seconds
        for name, seconds in terms.items()
    }
    # Where kernels get shorter the host shows again.
    shorter_s = kernels_s * priced.shape_ratio
    shows_s = (longer_of(shorter_s, host_s) - shorter_s) - (longer_of(kernels_s, host_s) - kernels_s)
    scaled["host_stall_s"] = terms["host_stall_s"] + np.maximum(shows_s, 0.0)
    return without(with_terms(jobs, scaled), SHAPE_FEATURES)


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
    return without(with_terms(jobs, {**terms_of(jobs), **zeroed}), dropped)


ABLATIONS: Mapping[str, Ablation] = {
    "dtype-features": Ablation(
        title="minus dtype features",
        explains="trees have no precision features; the formulas still price it",
        jobs=lambda priced: without(priced.table.jobs, DTYPE_FEATURES),
    ),
    "dtype-lowering": Ablation(
        title="minus dtype lowering",
        explains="formulas price every job as fp32; trees still have precision features",
        jobs=without_dtype_lowering,
        no_shrinkage=True,
    ),
    "precision": Ablation(
        title="minus both (precision-blind)",
        explains="neither formulas nor trees know the precision",
        jobs=lambda priced: priced.fp32,
        no_shrinkage=True,
    ),
    "casts": Ablation(
        title="minus cast terms",
        explains="casts take no time; their shares are dropped",
        jobs=lambda priced: _without_terms(priced.table.jobs, ("casts_s",), ("cast_share",)),
    ),
    "scaler": Ablation(
        title="minus scaler",
        explains="unscaling and its host synchronization take no time where fp16 has features of its own",
        jobs=lambda priced: _without_terms(
            priced.table.jobs, ("unscale_s", "host_sync_s"), ("loss_scaling",)
        ),
    ),
    "wire": Ablation(
        title="minus wire dtype",
        explains="all gradients are priced as fp32 on the wire",
        jobs=lambda priced: without(priced.fp32_wire, ("wire_bytes",)),
    ),
    "shapes": Ablation(
        title="minus alignment and shape share",
        explains="no tiles, waves or inner lengths in the formulas, no shapes among the features",
        jobs=without_shapes,
    ),
    "overlap-simulation": Ablation(
        title="minus overlap simulation",
        explains="formulas expose every second on the wire; trees still learn",
        jobs=without_overlap_simulation,
    ),
    "shrinkage": Ablation(
        title="minus shrinkage",
        explains="the correction holds in full far from known software",
        jobs=lambda priced: priced.table.jobs,
        no_shrinkage=True,
    ),
    "halves": Ablation(
        title="minus batch rule",
        explains="a step may take less than with half of the batch",
        jobs=lambda priced: priced.table.jobs.alone(),
    ),
}
"""Name to ablation."""
