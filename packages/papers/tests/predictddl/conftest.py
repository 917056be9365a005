"""A small trained predictor and a registry that holds it, made once."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

os.environ.setdefault("OMP_WAIT_POLICY", "passive")

from precision_time.corpus.measurement import Measurement
from precision_time.hardware.inventory import ClusterResources, NodeResources
from precision_time_integrations.inventory.mapping import resources
from precision_time_papers.predictddl.columns import (
    ANNOTATED,
    CLUSTER_COLUMNS,
    EMBEDDING,
    PRECISION_FEATURES,
    SIZE_COLUMNS,
    VARIANTS,
    inputs_of,
)
from precision_time_papers.predictddl.embeddings import (
    annotated_names,
    blind_names,
    ghn_version,
    probe_embeddings,
)
from precision_time_papers.predictddl.fitting import Examples, FitSettings, choose
from precision_time_papers.predictddl.registry import Registry, TrainedType
from precision_time_papers.predictddl.regressors import Floats

SMALL = FitSettings(
    ranks=(4,),
    targets=("log",),
    linear_ridges=(1.0,),
    ridges=(1.0,),
    svr_costs=(10.0,),
    svr_widths=(0.3,),
    layers=((8,),),
    folds=2,
    most_rows=60,
)
ALL_NAMES = (*blind_names(), *annotated_names(), *SIZE_COLUMNS, *CLUSTER_COLUMNS, *PRECISION_FEATURES)


def examples(names: tuple[str, ...], *, rows: int = 120, groups: int = 12, seed: int = 0) -> Examples:
    """Rows whose logarithm of time is a known function of the inputs; one embedding per architecture."""
    draw = np.random.default_rng(seed)
    x = draw.normal(size=(rows, len(names)))
    group = np.arange(rows) % groups
    is_embedding = np.array([name.startswith((EMBEDDING, ANNOTATED)) for name in names])
    x[:, is_embedding] = draw.normal(size=(groups, int(is_embedding.sum())))[group]
    others = x[:, ~is_embedding]
    log_s = 0.4 * others[:, 0] - 0.3 * others[:, 1] + 0.2 * others[:, 0] * others[:, 2] - 3.0
    analytical: Floats | None = np.exp(log_s - 0.5) if set(PRECISION_FEATURES) <= set(names) else None
    return Examples(
        x=x, names=names, seconds=np.exp(log_s), analytical_s=analytical, groups=group, weights=np.ones(rows)
    )


@pytest.fixture(scope="session")
def trained() -> TrainedType:
    """Every variant, on made-up rows: for tests of the plumbing."""
    variants = {variant: choose(examples(inputs_of(variant, ALL_NAMES)), SMALL) for variant in VARIANTS}
    card = {"ghn_version": ghn_version(), "rows": 120, "architectures": 12, "created": "2024-01-01"}
    return TrainedType(dataset_type="cifar", variants=variants, probe=probe_embeddings(), card=card)


@pytest.fixture
def registry(tmp_path: Path, trained: TrainedType) -> Registry:
    """A registry with version 1 for CIFAR."""
    made = Registry(own=tmp_path / "registry")
    made.save(trained)
    return made


@pytest.fixture(scope="session")
def cluster() -> ClusterResources:
    """Two nodes of four V100."""
    nodes = [NodeResources(name=f"n{i}", reported_device="V100-SXM2-16GB", num_devices=4) for i in (1, 2)]
    return resources(nodes, source="a test")


def own_measurement(*, model: str) -> Measurement:
    """A run of a model; only its name matters."""
    return Measurement(
        source="own",
        source_ref="",
        model=model,
        device="V100-SXM2-16GB",
        num_devices=1,
        num_nodes=1,
        precision="fp32",
    )
