"""Graph networks, point clouds, molecules, and the temporal fusion transformer.

Sampled or batched graphs have an average number of nodes and edges per sample here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from . import Entry, Reference
from ._blocks import index, mlp, on_meta, real


class RelationAttention(nn.Module):
    """One graph attention of 4 x 128 per relation; a relation sees its own slice of the nodes."""

    def __init__(self, inp: int, out: int, heads: int, relations: int) -> None:
        super().__init__()
        self.source = nn.ModuleList(nn.Linear(inp, out, bias=False) for _ in range(relations))
        self.target = nn.ModuleList(nn.Linear(inp, out, bias=False) for _ in range(relations))
        self.left = nn.Parameter(torch.empty(relations, heads, out // heads))
        self.right = nn.Parameter(torch.empty(relations, heads, out // heads))
        self.heads = heads

    def forward(self, x: Tensor, targets: int, edges: Tensor) -> Tensor:
        """(batch, targets, out): `edges` (batch, edges, 2) index source and target of each edge."""
        relations = len(self.source)
        outputs = []
        for relation in range(relations):
            sources = self.source[relation](x[:, relation::relations]).unflatten(-1, (self.heads, -1))
            aims = self.target[relation](x[:, :targets][:, relation::relations]).unflatten(
                -1, (self.heads, -1)
            )
            source, target = edges[:, relation::relations].unbind(-1)
            spread = source.unsqueeze(-1).expand(-1, -1, self.heads)
            aimed = target.unsqueeze(-1).expand(-1, -1, self.heads)
            left, right = (sources * self.left[relation]).sum(-1), (aims * self.right[relation]).sum(-1)
            weight = F.leaky_relu(left.gather(1, spread) + right.gather(1, aimed), 0.2).exp()
            norm = torch.zeros_like(right).scatter_add(1, aimed, weight)
            weight = (weight / norm.gather(1, aimed)).unsqueeze(-1)
            wide = spread.unsqueeze(-1).expand(-1, -1, -1, sources.shape[-1])
            message = sources.gather(1, wide) * weight
            outputs.append(
                torch.zeros_like(aims).scatter_add(1, aimed.unsqueeze(-1).expand_as(message), message)
            )
        return F.dropout(F.leaky_relu(torch.cat(outputs, 1).flatten(2)), 0.2)


class RGAT(nn.Module):
    """Relational graph attention of MLPerf on IGBH: 3 layers, 512 wide, 4 heads, 2983 classes.

    The sampler draws 15, 10 and 5 neighbours over 11 relations. Nodes per target paper (704 within
    three hops, 209 within two, 33 within one) are an estimate.
    """

    NODES = (704, 209, 33, 11)
    RELATIONS = 11

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            RelationAttention(1024 if n == 0 else 512, 512, 4, self.RELATIONS) for n in range(3)
        )
        self.head = nn.Linear(512, 2983)

    def forward(self, features: Tensor, edges: Tensor, labels: Tensor) -> Tensor:
        """Cross entropy of the target papers."""
        x = features
        for layer, nodes, targets in zip(self.layers, self.NODES, self.NODES[1:], strict=False):
            x = layer(x[:, :nodes], targets, edges[:, :nodes])
        return F.cross_entropy(self.head(x[:, 0]), labels)


class EquivariantConv(nn.Module):
    """Tensor-field convolution with all degrees fused: radial weights per edge times the basis."""

    FREQUENCIES = 44

    def __init__(self, inp: int, out: int, edge: int = 5) -> None:
        super().__init__()
        self.inp, self.out = inp, out
        self.radial = nn.Sequential(
            nn.Linear(edge, 32),
            nn.LayerNorm(32),
            nn.ReLU(),
            nn.Linear(32, 32),
            nn.LayerNorm(32),
            nn.ReLU(),
            nn.Linear(32, self.FREQUENCIES * inp * out, bias=False),
        )

    def forward(self, x: Tensor, edge: Tensor, basis: Tensor) -> Tensor:
        """(edges, out, 16) from gathered source features (edges, inp, 16)."""
        weights = self.radial(edge).view(-1, self.out, self.inp * self.FREQUENCIES)
        rotated = torch.bmm(x, basis).view(x.shape[0], self.inp * self.FREQUENCIES, 16)
        return torch.bmm(weights, rotated)


class EquivariantAttention(nn.Module):
    """Keys and values on edges, queries on nodes, 8 heads, then a linear mix and a norm per degree."""

    def __init__(self, inp: int) -> None:
        super().__init__()
        self.kv = EquivariantConv(inp, 32)
        self.query = nn.Parameter(torch.empty(4, 16, inp))
        self.mix = nn.Parameter(torch.empty(4, 32, 16 + inp))
        self.norm = nn.GroupNorm(4, 128)
        self.inp = inp

    def forward(self, x: Tensor, edge: Tensor, basis: Tensor, source: Tensor, target: Tensor) -> Tensor:
        """(nodes, 32, 16)."""
        keys, values = self.kv(x.index_select(0, source), edge, basis).chunk(2, 1)
        degrees = x.split((1, 3, 5, 7), 2)
        query = torch.cat([self.query[d] @ part for d, part in enumerate(degrees)], 2)
        heads = query.reshape(x.shape[0], 8, -1).index_select(0, target)
        score = (keys.reshape(heads.shape) * heads).sum(-1).exp()
        total = torch.zeros_like(query[:, :8, 0]).index_add(0, target, score)
        weight = score / total.index_select(0, target)
        message = (weight.unsqueeze(-1) * values.reshape(heads.shape)).view_as(values)
        summed = torch.zeros_like(query).index_add(0, target, message)
        both = torch.cat((summed, x), 1)
        mixed = [self.mix[d] @ part for d, part in enumerate(both.split((1, 3, 5, 7), 2))]
        norms = torch.cat([part.norm(dim=2) for part in mixed], 1)
        scale = F.relu(self.norm(norms)).chunk(4, 1)
        return torch.cat(
            [
                s.unsqueeze(2) * p / (p.norm(dim=2, keepdim=True) + 1e-6)
                for s, p in zip(scale, mixed, strict=True)
            ],
            2,
        )


class SE3Transformer(nn.Module):
    """SE(3)-Transformer (Fuchs et al. 2020) on QM9: 18 atoms and 37 directed bonds per molecule."""

    def __init__(self, layers: int = 7) -> None:
        super().__init__()
        self.enter = nn.Linear(6, 32)
        self.layers = nn.ModuleList(EquivariantAttention(32) for _ in range(layers))
        self.final = EquivariantConv(32, 32)
        self.head = nn.Sequential(nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 1))

    def forward(
        self, atoms: Tensor, edge: Tensor, basis: Tensor, source: Tensor, target: Tensor, y: Tensor
    ) -> Tensor:
        """L1 error of one property; bases come precomputed."""
        count = atoms.shape[0]
        x = F.pad(self.enter(atoms).unsqueeze(2), (0, 15))
        for layer in self.layers:
            x = layer(x, edge, basis, source, target)
        out = self.final(x.index_select(0, source), edge, basis)
        x = torch.zeros_like(x).index_add(0, target, out)
        pooled = x[:, :, :4].reshape(count, 128).view(y.shape[0], -1, 128).mean(1)
        return F.l1_loss(self.head(pooled).squeeze(1), y)


class GatedResidual(nn.Module):
    """Gated residual network of the temporal fusion transformer."""

    def __init__(self, inp: int, hidden: int, out: int | None = None, context: int | None = None) -> None:
        super().__init__()
        out = out or hidden
        self.enter = nn.Linear(inp, hidden)
        self.context = nn.Linear(context, hidden, bias=False) if context else None
        self.middle = nn.Linear(hidden, hidden)
        self.gate = nn.Linear(hidden, 2 * out)
        self.skip = nn.Linear(inp, out) if inp != out else nn.Identity()
        self.norm = nn.LayerNorm(out)

    def forward(self, x: Tensor, context: Tensor | None = None) -> Tensor:
        """(..., out)."""
        h = self.enter(x)
        if self.context is not None and context is not None:
            h = h + self.context(context)
        h = F.dropout(self.middle(F.elu(h)), 0.1)
        return self.norm(F.glu(self.gate(h)) + self.skip(x))


class VariableSelection(nn.Module):
    """Softmax weights over the variables from their joint embedding."""

    def __init__(self, variables: int, hidden: int, context: int | None) -> None:
        super().__init__()
        self.joint = GatedResidual(variables * hidden, hidden, variables, context)
        self.single = nn.ModuleList(GatedResidual(hidden, hidden) for _ in range(variables))

    def forward(self, x: Tensor, context: Tensor | None = None) -> Tensor:
        """(..., hidden) from (..., variables, hidden)."""
        weights = torch.softmax(self.joint(x.flatten(-2), context), -1)
        values = torch.stack([net(x[..., i, :]) for i, net in enumerate(self.single)], -1)
        return (values * weights.unsqueeze(-2)).sum(-1)


class TFT(nn.Module):
    """Temporal fusion transformer (Lim et al. 2019): 168 steps seen, 24 predicted, three quantiles."""

    def __init__(self, hidden: int = 128, heads: int = 4, series: int = 369, known: int = 3) -> None:
        super().__init__()
        self.hidden, self.heads = hidden, heads
        self.identity = nn.Embedding(series, hidden)
        self.embed = nn.Parameter(torch.empty(known + 1, hidden))
        self.bias = nn.Parameter(torch.empty(known + 1, hidden))
        self.static = VariableSelection(1, hidden, None)
        self.contexts = nn.ModuleList(GatedResidual(hidden, hidden) for _ in range(4))
        self.past = VariableSelection(known + 1, hidden, hidden)
        self.future = VariableSelection(known, hidden, hidden)
        self.encoder = nn.LSTM(hidden, hidden, batch_first=True)
        self.decoder = nn.LSTM(hidden, hidden, batch_first=True)
        self.gates = nn.ModuleList(nn.Linear(hidden, 2 * hidden) for _ in range(3))
        self.norms = nn.ModuleList(nn.LayerNorm(hidden) for _ in range(3))
        self.enrich = GatedResidual(hidden, hidden, context=hidden)
        self.qkv = nn.Linear(hidden, (2 * heads + 1) * (hidden // heads), bias=False)
        self.out = nn.Linear(hidden // heads, hidden, bias=False)
        self.feed = GatedResidual(hidden, hidden)
        self.head = nn.Linear(hidden, 3)

    def forward(self, series: Tensor, past: Tensor, future: Tensor, target: Tensor) -> Tensor:
        """Quantile loss."""
        static = self.static(self.identity(series).unsqueeze(1))
        select, enrich, hidden, cell = (net(static) for net in self.contexts)
        seen = self.past(past.unsqueeze(-1) * self.embed + self.bias, select.unsqueeze(1))
        ahead = self.future(future.unsqueeze(-1) * self.embed[1:] + self.bias[1:], select.unsqueeze(1))
        encoded, state = self.encoder(seen, (hidden.unsqueeze(0), cell.unsqueeze(0)))
        decoded, _ = self.decoder(ahead, state)
        local = torch.cat((encoded, decoded), 1)
        x = self.norms[0](F.glu(self.gates[0](F.dropout(local, 0.1))) + torch.cat((seen, ahead), 1))
        rich = self.enrich(x, enrich.unsqueeze(1))
        width = self.hidden // self.heads
        q, k, v = self.qkv(rich).split((self.hidden, self.hidden, width), -1)
        q = q.unflatten(-1, (self.heads, width)).transpose(1, 2)
        k = k.unflatten(-1, (self.heads, width)).permute(0, 2, 3, 1)
        weights = F.dropout(torch.softmax(torch.matmul(q, k) * width**-0.5, -1), 0.1)
        mixed = torch.matmul(weights, v.unsqueeze(1)).mean(1)
        attended = self.norms[1](F.glu(self.gates[1](F.dropout(self.out(mixed), 0.1))) + rich)[:, -24:]
        final = self.norms[2](F.glu(self.gates[2](self.feed(attended))) + x[:, -24:])
        error = target.unsqueeze(-1) - self.head(final)
        return torch.max(0.1 * error, -0.9 * error).mean()


class AtomCoupling(nn.Module):
    """Affine coupling of MoFlow's atom flow: a relational graph layer and a perceptron."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(40)
        self.own, self.bonds = nn.Linear(10, 256), nn.Linear(10, 4 * 256)
        self.graph_norm = nn.BatchNorm1d(40)
        self.first, self.norm1 = nn.Linear(256, 512), nn.BatchNorm1d(40)
        self.second, self.norm2 = nn.Linear(512, 64), nn.BatchNorm1d(40)
        self.last = nn.Linear(64, 20)

    def forward(self, x: Tensor, adjacency: Tensor) -> tuple[Tensor, Tensor]:
        """New atoms and log scale."""
        x = self.norm(x)
        messages = self.bonds(x).unflatten(-1, (4, 256)).transpose(1, 2)
        h = torch.tanh(self.graph_norm(self.own(x) + torch.matmul(adjacency, messages).sum(1)))
        h = torch.tanh(self.norm1(self.first(h)))
        h = torch.tanh(self.norm2(self.second(h)))
        log_scale, shift = self.last(h).chunk(2, -1)
        scale = torch.sigmoid(log_scale + 2)
        return (x + shift) * scale, torch.log(scale).sum((1, 2))


class BondCoupling(nn.Module):
    """Affine coupling of MoFlow's bond flow on 2x2 positions of 1600 channels."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(1600)
        self.mix = nn.Conv2d(1600, 1600, 1, bias=False)
        self.net = nn.Sequential(
            nn.Conv2d(800, 512, 3, padding=1, bias=False),
            nn.BatchNorm2d(512),
            nn.ReLU(),
            nn.Conv2d(512, 512, 1, bias=False),
            nn.BatchNorm2d(512),
            nn.ReLU(),
            nn.Conv2d(512, 1600, 3, padding=1),
        )

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """New bonds and log scale."""
        kept, changed = self.mix(self.norm(x)).chunk(2, 1)
        log_scale, shift = self.net(kept).chunk(2, 1)
        scale = torch.sigmoid(log_scale)
        return torch.cat((kept, (changed + shift) * scale), 1), torch.log(scale).sum((1, 2, 3))


class MoFlow(nn.Module):
    """MoFlow (Zang and Wang 2020) on ZINC-250k: 38 atom flows and 10 bond flows, 40 atoms."""

    def __init__(self) -> None:
        super().__init__()
        self.atoms = nn.ModuleList(AtomCoupling() for _ in range(38))
        self.bonds = nn.ModuleList(BondCoupling() for _ in range(10))

    def forward(self, atoms: Tensor, adjacency: Tensor) -> Tensor:
        """Negative log likelihood of atoms given bonds and of bonds."""
        normal = adjacency / (adjacency.sum(-1, keepdim=True) + 1)
        x = atoms + 0.9 * torch.rand_like(atoms)
        volume = atoms.new_zeros(())
        for flow in self.atoms:
            x, part = flow(x, normal)
            volume = volume + part
        y = (adjacency + 0.9 * torch.rand_like(adjacency)).view(-1, 4, 2, 20, 2, 20)
        y = y.permute(0, 1, 3, 5, 2, 4).reshape(-1, 1600, 2, 2)
        bond_volume = atoms.new_zeros(())
        for flow in self.bonds:
            y, part = flow(y)
            bond_volume = bond_volume + part
        return (0.5 * x.pow(2).sum() - volume.sum()) / 400 + (0.5 * y.pow(2).sum() - bond_volume.sum()) / 6400


class PointNet(nn.Module):
    """PointNet classifier (Qi et al. 2017) with input and feature transforms, 2500 points."""

    def __init__(self, classes: int = 16) -> None:
        super().__init__()
        self.input_net, self.input_head = self._transform(3)
        self.feature_net, self.feature_head = self._transform(64)
        self.first = self._shared((3, 64))
        self.rest = self._shared((64, 128, 1024), last=False)
        self.head = nn.Sequential(
            nn.Linear(1024, 512),
            nn.BatchNorm1d(512),
            nn.ReLU(),
            nn.Linear(512, 256),
            nn.Dropout(0.3),
            nn.BatchNorm1d(256),
            nn.ReLU(),
            nn.Linear(256, classes),
        )

    @staticmethod
    def _shared(widths: tuple[int, ...], *, last: bool = True) -> nn.Sequential:
        layers: list[nn.Module] = []
        for position, (inp, out) in enumerate(zip(widths, widths[1:], strict=False)):
            layers += [nn.Conv1d(inp, out, 1), nn.BatchNorm1d(out)]
            if last or position < len(widths) - 2:
                layers.append(nn.ReLU())
        return nn.Sequential(*layers)

    def _transform(self, size: int) -> tuple[nn.Sequential, nn.Sequential]:
        head = nn.Sequential(
            nn.Linear(1024, 512),
            nn.BatchNorm1d(512),
            nn.ReLU(),
            nn.Linear(512, 256),
            nn.BatchNorm1d(256),
            nn.ReLU(),
            nn.Linear(256, size * size),
        )
        return self._shared((size, 64, 128, 1024)), head

    def forward(self, points: Tensor, labels: Tensor) -> Tensor:
        """Negative log likelihood."""
        turn = self.input_head(self.input_net(points).amax(2)).view(-1, 3, 3)
        x = self.first(torch.bmm(turn, points))
        turn = self.feature_head(self.feature_net(x).amax(2)).view(-1, 64, 64)
        x = self.rest(torch.bmm(turn, x)).amax(2)
        return F.cross_entropy(self.head(x), labels)


class EdgeUpdate(nn.Module):
    """Interaction block of DimeNet++: messages on edges gathered over triplets."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.radial = nn.Sequential(nn.Linear(6, 8, bias=False), nn.Linear(8, hidden, bias=False))
        self.angular = nn.Sequential(nn.Linear(42, 8, bias=False), nn.Linear(8, 64, bias=False))
        self.own, self.other = nn.Linear(hidden, hidden), nn.Linear(hidden, hidden)
        self.down, self.up = nn.Linear(hidden, 64, bias=False), nn.Linear(64, hidden, bias=False)
        self.skip = nn.Linear(hidden, hidden)
        self.residuals = nn.ModuleList(mlp((hidden, hidden, hidden), last_activation=False) for _ in range(3))

    def forward(self, x: Tensor, radial: Tensor, angular: Tensor, ends: tuple[Tensor, Tensor]) -> Tensor:
        """(edges, hidden)."""
        message = self.down(F.silu(self.other(x)) * self.radial(radial))
        pairs = F.silu(message).index_select(0, ends[0]) * self.angular(angular)
        summed = torch.zeros_like(message).index_add(0, ends[1], pairs)
        h = F.silu(self.own(x)) + F.silu(self.up(summed))
        h = h + self.residuals[0](h)
        h = F.silu(self.skip(h)) + x
        for residual in list(self.residuals)[1:]:
            h = h + residual(h)
        return h


class DimeNetPP(nn.Module):
    """DimeNet++ of MLPerf HPC on OC20: 3 blocks of 192; 78 atoms, 2200 edges, 60,000 triplets.

    Energy only: the forces, a gradient by the positions inside the step, are not in the graph.
    """

    def __init__(self, hidden: int = 192, blocks: int = 3) -> None:
        super().__init__()
        self.atom = nn.Embedding(95, hidden)
        self.radial = nn.Linear(6, hidden)
        self.enter = nn.Linear(3 * hidden, hidden)
        self.blocks = nn.ModuleList(EdgeUpdate(hidden) for _ in range(blocks))
        self.scales = nn.ModuleList(nn.Linear(6, hidden, bias=False) for _ in range(blocks + 1))
        self.ups = nn.ModuleList(nn.Linear(hidden, 192, bias=False) for _ in range(blocks + 1))
        self.heads = nn.ModuleList(
            nn.Sequential(mlp((192, 192, 192, 192)), nn.Linear(192, 1, bias=False)) for _ in range(blocks + 1)
        )

    def forward(
        self, atoms: Tensor, radial: Tensor, angular: Tensor, edges: Tensor, triplets: Tensor, y: Tensor
    ) -> Tensor:
        """L1 error of the energy."""
        source, target = edges[:, 0], edges[:, 1]
        embedded = self.atom(atoms)
        parts = (
            embedded.index_select(0, source),
            embedded.index_select(0, target),
            F.silu(self.radial(radial)),
        )
        x = F.silu(self.enter(torch.cat(parts, 1)))
        energy = y.new_zeros(())
        for level, (scale, up, head) in enumerate(zip(self.scales, self.ups, self.heads, strict=True)):
            if level:
                x = self.blocks[level - 1](x, radial, angular, (triplets[:, 0], triplets[:, 1]))
            gathered = torch.zeros_like(embedded).index_add(0, target, scale(radial) * x)
            energy = energy + head(up(gathered)).view(y.shape[0], -1).sum(1)
        return F.l1_loss(energy, y)


class GraphConvolutions(nn.Module):
    """Two graph convolutions (Kipf and Welling 2017), 16 wide, on one whole citation graph."""

    def __init__(self, features: int, classes: int, hidden: int = 16) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            nn.Linear(inp, out, bias=False) for inp, out in ((features, hidden), (hidden, classes))
        )
        self.bias = nn.ParameterList((torch.empty(hidden), torch.empty(classes)))

    def forward(self, x: Tensor, edges: Tensor, norm: Tensor, labels: Tensor) -> Tensor:
        """Cross entropy of the nodes; `edges` (edges, 2) with the loops, `norm` their weights."""
        source, target = edges.unbind(-1)
        for place, (layer, bias) in enumerate(zip(self.layers, self.bias, strict=True)):
            if place:
                x = F.relu(x)
            wide = layer(F.dropout(x, 0.5))
            message = wide.index_select(0, source) * norm.unsqueeze(-1)
            x = torch.zeros_like(wide).index_add(0, target, message) + bias
        return F.cross_entropy(x, labels)


class GraphAttentions(nn.Module):
    """Two graph attentions (Velickovic et al. 2018), 8 heads of 8 and one, on one whole citation graph."""

    def __init__(self, features: int, classes: int, heads: int = 8, width: int = 8) -> None:
        super().__init__()
        shapes = ((features, heads, width), (heads * width, 1, classes))
        self.layers = nn.ModuleList(nn.Linear(inp, h * out, bias=False) for inp, h, out in shapes)
        self.left = nn.ParameterList(torch.empty(h, out) for _, h, out in shapes)
        self.right = nn.ParameterList(torch.empty(h, out) for _, h, out in shapes)
        self.bias = nn.ParameterList(torch.empty(h * out) for _, h, out in shapes)
        self.heads = tuple(h for _, h, _ in shapes)

    def forward(self, x: Tensor, edges: Tensor, labels: Tensor) -> Tensor:
        """Cross entropy of the nodes; `edges` (edges, 2) with the loops."""
        source, target = edges.unbind(-1)
        for place, layer in enumerate(self.layers):
            if place:
                x = F.elu(x)
            wide = layer(F.dropout(x, 0.6)).unflatten(-1, (self.heads[place], -1))
            left, right = (wide * self.left[place]).sum(-1), (wide * self.right[place]).sum(-1)
            score = left.index_select(0, source) + right.index_select(0, target)
            weight = F.leaky_relu(score, 0.2).exp()
            total = torch.zeros_like(right).index_add(0, target, weight)
            weight = F.dropout(weight / total.index_select(0, target), 0.6)
            message = wide.index_select(0, source) * weight.unsqueeze(-1)
            x = torch.zeros_like(wide).index_add(0, target, message).flatten(1) + self.bias[place]
        return F.cross_entropy(x, labels)


CITATIONS = {
    "cora": (2708, 10_556, 1433, 7),
    "citeseer": (3327, 9104, 3703, 6),
    "pubmed": (19_717, 88_648, 500, 3),
}
"""Nodes, directed edges without loops, features and classes (Yang et al. 2016, the Planetoid splits)."""


def _citation(kind: type[nn.Module], dataset: str, params: int) -> Entry:
    """A network on the whole graph: one sample of a batch is one graph."""
    nodes, edges, features, classes = CITATIONS[dataset]
    looped = edges + nodes
    weights = (lambda b: (real(b * looped),)) if kind is GraphConvolutions else (lambda b: ())  # noqa: ARG005
    return _entry(
        lambda: kind(features, classes),
        lambda b: (real(b * nodes, features), index(b * looped, 2), *weights(b), index(b * nodes)),
        _params(params, "layers of the paper: weights and biases"),
        task="gnn",
        sample_unit="graph",
        throughput_unit="graphs/s",
        dataset=dataset,
        dataset_samples=1,
    )


def _entry(factory: Callable[[], nn.Module], inputs: Any, *references: Reference, **changes: Any) -> Entry:
    settings: dict[str, Any] = {
        "build": on_meta(factory),
        "inputs": inputs,
        "family": "gnn",
        "optimizer": "adam",
    }
    return Entry(**(settings | {"references": references} | changes))


def _params(value: float, source: str, tolerance: float = 0.01) -> Reference:
    return Reference(quantity="params", value=value, source=source, tolerance=tolerance)


ENTRIES: dict[str, Entry] = {
    "rgat": _entry(
        RGAT,
        lambda b: (real(b, 704, 1024), index(b, 704, 2), index(b)),
        _params(25e6, "MLPerf training graph neural network: 25M parameters", 0.03),
        task="gnn",
        dataset="igbh-full",
        dataset_samples=94_605_581,
    ),
    "se3-transformer": _entry(
        SE3Transformer,
        lambda b: (
            real(b * 18, 6),
            real(b * 37, 5),
            real(b * 37, 16, 704),
            index(b * 37),
            index(b * 37),
            real(b),
        ),
        task="gnn",
        sample_unit="molecule",
        throughput_unit="molecules/s",
        dataset="qm9",
        dataset_samples=110_000,
    ),
    "tft": _entry(
        TFT,
        lambda b: (index(b), real(b, 168, 4), real(b, 24, 3), real(b, 24)),
        family="other",
        task="forecasting",
        sample_unit="item",
        throughput_unit="items/s",
        dataset="electricity",
        dataset_samples=450_000,
        seq_len=192,
    ),
    "moflow": _entry(
        MoFlow,
        lambda b: (real(b, 40, 10), real(b, 4, 40, 40)),
        sample_unit="molecule",
        throughput_unit="molecules/s",
        dataset="zinc250k",
        dataset_samples=224_569,
    ),
    "pointnet": _entry(
        PointNet,
        lambda b: (real(b, 3, 2500), index(b)),
        _params(3.5e6, "Qi et al. 2017, table 6: PointNet 3.5M", 0.03),
        family="other",
        task="point-cloud",
        sample_unit="cloud",
        throughput_unit="samples/s",
        dataset="shapenet",
        dataset_samples=12_137,
    ),
    "dimenet++-oc20": _entry(
        DimeNetPP,
        lambda b: (
            index(b * 78),
            real(b * 2200, 6),
            real(b * 60_000, 42),
            index(b * 2200, 2),
            index(b * 60_000, 2),
            real(b),
        ),
        _params(1.8e6, "Chanussot et al. 2021, table 4: DimeNet++ 1.8M", 0.05),
        task="gnn",
        optimizer="adamw",
        sample_unit="system",
        dataset="oc20",
        dataset_samples=2_000_000,
    ),
    "gcn-cora": _citation(GraphConvolutions, "cora", 23063),
    "gcn-citeseer": _citation(GraphConvolutions, "citeseer", 59366),
    "gcn-pubmed": _citation(GraphConvolutions, "pubmed", 8067),
    "gat-cora": _citation(GraphAttentions, "cora", 92373),
    "gat-citeseer": _citation(GraphAttentions, "citeseer", 237586),
    "gat-pubmed": _citation(GraphAttentions, "pubmed", 32393),
}
