"""The Driple-like network: it learns what a graph tells, and no column tells it the precision."""

from collections import Counter

import numpy as np
import pytest

from precision_time.errors import ConfigError
from precision_time.learn.measured import MeasuredTable
from precision_time.learn.table import JobTable
from precision_time.workload.graph import Node, OpClass, OpGraph
from precision_time.workload.resolve import load_workload
from precision_time_papers.contract import FeatureTable, JobViews
from precision_time_papers.driple import (
    _CLUSTER,
    _LINKS,
    SUPER_NODES,
    DripleLike,
    static_graphs,
)

NAMES = (*_CLUSTER, *_LINKS)
N = 240


def graph_of(layers: int) -> OpGraph:
    nodes = tuple(
        Node(op="linear", op_class=OpClass.GEMM, inputs=(index - 1,), m=1, n=64, k=64, count=1, out_elems=64)
        for index in range(layers)
    )
    return OpGraph(name=f"mlp-{layers}", nodes=nodes, params=1.0, trainable_params=1.0, param_tensors=1)


def table_of(graphs: int, own: float) -> FeatureTable:
    """Jobs on one device whose time grows with the depth of their graph; `own` fills the native view."""
    which = np.arange(N) % graphs
    blind = np.zeros((N, len(NAMES)))
    blind[:, NAMES.index("log_micro_batch_size")] = np.log(1.0 + np.arange(N) % 5)
    native, fp32 = (
        JobTable(
            features=features,
            names=NAMES,
            analytical_s=np.ones(N),
            compute_s=np.ones(N),
            exposed_s=np.zeros(N),
            least_s=np.zeros(N),
        )
        for features in (np.full_like(blind, own), blind)
    )
    measured = MeasuredTable(
        jobs=native,
        measurements=(),
        measured_s=(which + 1.0) * (1.0 + np.arange(N) % 5),
        sync_s=np.full(N, np.nan),
        rejected=Counter(),
    )
    return FeatureTable(
        measured=measured,
        jobs=JobViews.of(native, fp32, ids={"architecture": which}),
        graphs=tuple(graph_of(2**depth) for depth in range(graphs)),
    )


def test_graphs_become_at_most_so_many_super_nodes() -> None:
    graphs = static_graphs([graph_of(1), graph_of(5), load_workload("resnet50").graph])
    assert graphs.nodes.shape[:2] == (3, SUPER_NODES)
    assert graphs.present.sum(axis=1).tolist() == [1.0, 5.0, float(SUPER_NODES)]
    # A chain of five: every node is joined to itself and to its neighbours, and to nothing else.
    linked = graphs.adjacency[1] > 0.0
    assert int(linked.sum()) == 5 + 2 * 4
    assert np.allclose(graphs.adjacency, graphs.adjacency.transpose(0, 2, 1))
    flops = np.expm1(graphs.totals[:, 2].astype(np.float64) * 10.0)
    assert flops[1] == pytest.approx(5 * flops[0], rel=1e-3)


def test_a_graph_without_operators_is_refused() -> None:
    with pytest.raises(ConfigError, match="has no operators"):
        static_graphs([graph_of(0)])


def test_it_learns_from_the_graph_and_not_from_the_precision() -> None:
    rows = np.arange(N)
    answers = []
    for own in (0.0, 123.0):
        table = table_of(4, own)
        fitted = DripleLike(epochs=150, seed=0).fit(table, rows)
        answers.append(fitted.predict(table.jobs))
    assert np.abs(answers[0] / table.measured_s - 1.0).mean() < 0.21
    assert np.array_equal(answers[0], answers[1])
