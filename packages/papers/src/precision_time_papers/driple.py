r"""A Driple-like graph network over the static operator graph: it knows no precision.

Formula: $H^{l+1} = H^l + \mathrm{relu}(\hat A H^l W^l)$ with $\hat A = D^{-1/2} (A + I) D^{-1/2}$ over
super-nodes, mean and maximum over them, joined with batch and cluster figures, then two dense layers to
$\log t$; smooth L1 loss, Adam.
Source: Yang et al., Driple, SIGMETRICS 2022 (read as code, papers.md 2.1): super-nodes with tensor sizes,
members and operator kinds, a graph convolution repeated, a readout and a dense head. Ours differs:
neighbors in execution order make up a super-node in the place of fluid communities, 24 of them in the
place of 100; three layers without a recurrent unit; FLOPs and weights besides tensor sizes; step time as the
label in the place of utilization; one network with the cluster among its inputs in the place of one for each
cluster.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from precision_time.errors import ConfigError, required_module
from precision_time.workload.graph import OpClass, OpGraph

from .contract import FeatureTable, Floats, Ints, JobViews, column, require_rows

SUPER_NODES = 24
WIDTH, LAYERS = 48, 3
EPOCHS, QUICK_EPOCHS, BATCH, LEARNING_RATE, WEIGHT_DECAY = 100, 30, 512, 3e-3, 1e-6
MOST_ROWS = 12_000
"""Rows of one fit, drawn at random where there are more: repeats teach little."""
_BEYOND = float(np.log(10.0))
_CLASSES = tuple(OpClass)
_CLUSTER = (
    *("log_fp32_peak", "log_bandwidth", "log_memory", "device_year", "log_devices", "log_nodes"),
    *("log_micro_batch_size", "log_num_micro_batches", "log_tp", "log_pp", "log_cp", "zero_stage"),
)
_LINKS = ("intra_bandwidth", "inter_bandwidth", "pcie")


@dataclass(frozen=True, kw_only=True, slots=True)
class StaticGraphs:
    """All architectures as tensors: g graphs of SUPER_NODES nodes, padded."""

    nodes: NDArray[np.float32]
    """Features, shape (g, SUPER_NODES, f)."""
    adjacency: NDArray[np.float32]
    """Normalized, shape (g, SUPER_NODES, SUPER_NODES)."""
    present: NDArray[np.float32]
    """1 for nodes that exist, shape (g, SUPER_NODES)."""
    totals: NDArray[np.float32]
    """Logarithms of the graph's tensor elements, weights and FLOPs per sample, shape (g, 3)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class FittedDriple:
    """The network and the scaling of its inputs."""

    graphs: StaticGraphs
    network: Any
    means: Floats
    scales: Floats
    center: float
    reach: tuple[float, float]
    """Centered log seconds that an answer lies within: those fitted, and a factor of ten beyond."""

    def predict(self, jobs: JobViews) -> Floats:
        """Step times [s], shape (n,)."""
        import torch

        x = (_cluster_inputs(jobs) - self.means) / self.scales
        with torch.no_grad():
            log_s = _forward(self.network, self.graphs, jobs.architecture, x.astype(np.float32))
        bounded = np.clip(log_s.numpy().astype(np.float64), *self.reach)
        seconds: Floats = np.exp(bounded + self.center)
        return seconds


@dataclass(frozen=True, kw_only=True, slots=True)
class DripleLike:
    """See the module."""

    epochs: int = EPOCHS
    seed: int = 0

    title: ClassVar[str] = "Driple-like graph network"
    citation: ClassVar[str] = "Yang et al., SIGMETRICS 2022"

    def fit(self, table: FeatureTable, rows: Ints) -> FittedDriple:
        """Train on the rows.

        Raises:
            ConfigError: If there are no rows.
            MissingExtraError: If torch is not installed.
        """
        require_rows(rows, self.title)
        torch, graphs = _torch(), static_graphs(table.graphs)
        draw = np.random.default_rng(self.seed)
        if len(rows) > MOST_ROWS:
            rows = np.sort(draw.choice(rows, size=MOST_ROWS, replace=False))
        jobs = table.jobs.take(rows)
        x, y = _cluster_inputs(jobs), np.log(table.measured_s[rows])
        means, scales, center = x.mean(axis=0), np.maximum(x.std(axis=0), 1e-6), float(y.mean())
        inputs = ((x - means) / scales).astype(np.float32)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.seed)
            network = _network(graphs.nodes.shape[2], inputs.shape[1])
        targets = torch.from_numpy((y - center).astype(np.float32))
        optimizer = torch.optim.Adam(network.parameters(), lr=LEARNING_RATE, weight_decay=WEIGHT_DECAY)
        steps = self.epochs * -(-len(rows) // BATCH)
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, LEARNING_RATE, total_steps=steps)
        for _ in range(self.epochs):
            for batch in np.array_split(draw.permutation(len(rows)), -(-len(rows) // BATCH)):
                optimizer.zero_grad()
                answer = _forward(network, graphs, jobs.architecture[batch], inputs[batch])
                torch.nn.functional.smooth_l1_loss(
                    answer, targets[torch.from_numpy(batch)], beta=0.1
                ).backward()
                optimizer.step()
                schedule.step()
        return FittedDriple(
            graphs=graphs,
            network=network,
            means=means,
            scales=scales,
            center=center,
            reach=(float(y.min()) - center - _BEYOND, float(y.max()) - center + _BEYOND),
        )


def static_graphs(graphs: Sequence[OpGraph]) -> StaticGraphs:
    """Architectures as padded tensors.

    Args:
        graphs: Operator graphs, in the order of their numbers.

    Raises:
        ConfigError: If one has no operators.
    """
    for graph in graphs:
        if not graph.nodes:
            raise ConfigError(f"The graph {graph.name!r} has no operators. To fix: capture the model again.")
    parts = [_super_nodes(graph) for graph in graphs]
    nodes = np.stack([part[0] for part in parts])
    return StaticGraphs(
        nodes=nodes.astype(np.float32),
        adjacency=np.stack([part[1] for part in parts]).astype(np.float32),
        present=(nodes[:, :, 0] > 0.0).astype(np.float32),
        totals=np.stack([part[2] for part in parts]).astype(np.float32),
    )


def _super_nodes(graph: OpGraph) -> tuple[Floats, Floats, Floats]:
    """Features (SUPER_NODES, 4 + classes), normalized adjacency, and totals of one graph."""
    count = len(graph.nodes)
    home = np.arange(count) * min(SUPER_NODES, count) // count
    repeats = np.array([node.repeat for node in graph.nodes], dtype=np.float64)
    amounts = np.array([[node.out_elems, node.weight_elems, 0.0] for node in graph.nodes])
    amounts *= repeats[:, None]
    amounts[:, 2] = [node.flops for node in graph.nodes]
    kinds = np.zeros((count, len(_CLASSES)))
    kinds[np.arange(count), [_CLASSES.index(node.op_class) for node in graph.nodes]] = repeats
    summed = np.zeros((SUPER_NODES, 4 + len(_CLASSES)))
    np.add.at(summed, home, np.concatenate([repeats[:, None], amounts, kinds], axis=1))
    members = np.maximum(summed[:, :1], 1.0)
    features = np.concatenate([np.log1p(summed[:, :4]) / 10.0, summed[:, 4:] / members], axis=1)
    linked = np.eye(SUPER_NODES) * (summed[:, :1] > 0.0)
    for index, node in enumerate(graph.nodes):
        for source in node.inputs:
            if source >= 0:
                linked[home[index], home[source]] = linked[home[source], home[index]] = 1.0
    root = 1.0 / np.sqrt(np.maximum(linked.sum(axis=1), 1.0))
    return features, linked * root[:, None] * root[None, :], np.log1p(amounts.sum(axis=0)) / 10.0


def _cluster_inputs(jobs: JobViews) -> Floats:
    """Figures of batch, layout and cluster, shape (n, columns); none depends on the precision."""
    blind = jobs.fp32
    links = [np.log1p(column(blind, name)) for name in _LINKS]
    return np.stack([*(column(blind, name) for name in _CLUSTER), *links], axis=1)


def _network(node_features: int, cluster_features: int) -> Any:
    torch = _torch()
    head = 2 * WIDTH + 3 + cluster_features
    return torch.nn.ModuleDict(
        {
            "entry": torch.nn.Linear(node_features, WIDTH),
            "layers": torch.nn.ModuleList([torch.nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS)]),
            "head": torch.nn.Sequential(
                torch.nn.Linear(head, 2 * WIDTH),
                torch.nn.ReLU(),
                torch.nn.Linear(2 * WIDTH, 2 * WIDTH),
                torch.nn.ReLU(),
                torch.nn.Linear(2 * WIDTH, 1),
            ),
        }
    )


def _forward(network: Any, graphs: StaticGraphs, architecture: Ints, x: NDArray[np.float32]) -> Any:
    """Centered log seconds, shape (n,); each architecture of the rows is embedded once."""
    torch = _torch()
    kinds, which = np.unique(architecture, return_inverse=True)
    hidden = torch.relu(network["entry"](torch.from_numpy(graphs.nodes[kinds])))
    adjacency = torch.from_numpy(graphs.adjacency[kinds])
    present = torch.from_numpy(graphs.present[kinds])[:, :, None]
    for layer in network["layers"]:
        hidden = hidden + torch.relu(adjacency @ layer(hidden))
    hidden = hidden * present
    pooled = torch.cat([hidden.sum(dim=1) / present.sum(dim=1), hidden.amax(dim=1)], dim=1)
    pooled = torch.cat([pooled, torch.from_numpy(graphs.totals[kinds])], dim=1)
    rows = torch.cat([pooled[torch.from_numpy(which.reshape(-1))], torch.from_numpy(x)], dim=1)
    return network["head"](rows)[:, 0]


def _torch() -> Any:
    return required_module(
        "torch",
        package="torch",
        extra="precision-time-papers[torch]",
        purpose="train the Driple-like network",
    )
