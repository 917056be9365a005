"""AlphaFold 2 (Jumper et al. 2021, supplement, algorithms 2 to 32; sizes of its section 1 and of OpenFold).

One training step of the first phase: crops of 256 residues, 128 clustered and 1024 further sequences, 4
templates. Of the recycling passes, drawn from 0 to 3, the mean of 1.5 runs without gradients: one whole pass
and one through half of the Evoformer. Attention is written out, as in the published code; gradients are not
checkpointed, which a user says with `--recompute`. Geometry of side chains is left out.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from . import Entry, Reference
from ._blocks import on_meta, real

RESIDUES, SEQUENCES, EXTRA, TEMPLATES = 256, 128, 1024, 4
MSA, PAIR, SINGLE = 256, 128, 384


def _bare(inp: int, out: int) -> nn.Linear:
    return nn.Linear(inp, out, bias=False)


def _dropped(x: Tensor, share: float, axis: int) -> Tensor:
    """Dropout that is the same along one axis."""
    kept = F.dropout(torch.ones_like(x.narrow(axis, 0, 1)), share)
    return x * kept


class GatedAttention(nn.Module):
    """Attention along the second to last axis, with a bias from pairs where they are given, and a gate."""

    def __init__(self, width: int, heads: int, head: int, *, pair: int = 0) -> None:
        super().__init__()
        self.heads = heads
        self.norm = nn.LayerNorm(width)
        inner = heads * head
        self.query, self.key, self.value = (_bare(width, inner) for _ in range(3))
        self.gate, self.out = nn.Linear(width, inner), nn.Linear(inner, width)
        self.pair_norm = nn.LayerNorm(pair) if pair else None
        self.bias = _bare(pair or width, heads) if pair else None

    def forward(self, x: Tensor, pair: Tensor | None = None) -> Tensor:
        """Same shape: (batch, rows, columns, width)."""
        x = self.norm(x)

        def split(y: Tensor) -> Tensor:
            return y.unflatten(-1, (self.heads, -1)).transpose(-2, -3)

        query, key, value = split(self.query(x)), split(self.key(x)), split(self.value(x))
        scores = (query * query.shape[-1] ** -0.5) @ key.transpose(-1, -2)
        if pair is not None and self.bias is not None and self.pair_norm is not None:
            scores = scores + self.bias(self.pair_norm(pair)).permute(0, 3, 1, 2).unsqueeze(1)
        mixed = (scores.softmax(-1) @ value).transpose(-2, -3).flatten(-2)
        return self.out(torch.sigmoid(self.gate(x)) * mixed)


class TriangleAttention(nn.Module):
    """Attention of the edges that start (or end) at one residue, biased by the third edge."""

    def __init__(self, width: int, heads: int, head: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm = nn.LayerNorm(width)
        inner = heads * head
        self.query, self.key, self.value = (_bare(width, inner) for _ in range(3))
        self.bias = _bare(width, heads)
        self.gate, self.out = nn.Linear(width, inner), nn.Linear(inner, width)

    def forward(self, pair: Tensor) -> Tensor:
        """Same shape."""
        x = self.norm(pair)

        def split(y: Tensor) -> Tensor:
            return y.unflatten(-1, (self.heads, -1)).transpose(-2, -3)

        query, key, value = split(self.query(x)), split(self.key(x)), split(self.value(x))
        scores = (query * query.shape[-1] ** -0.5) @ key.transpose(-1, -2)
        scores = scores + self.bias(x).permute(0, 3, 1, 2).unsqueeze(1)
        mixed = (scores.softmax(-1) @ value).transpose(-2, -3).flatten(-2)
        return self.out(torch.sigmoid(self.gate(x)) * mixed)


class GlobalAttention(nn.Module):
    """Attention over the further sequences with one mean query per column (algorithm 19)."""

    def __init__(self, width: int, heads: int, head: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm = nn.LayerNorm(width)
        self.query, self.key, self.value = _bare(width, heads * head), _bare(width, head), _bare(width, head)
        self.gate, self.out = nn.Linear(width, heads * head), nn.Linear(heads * head, width)

    def forward(self, x: Tensor) -> Tensor:
        """Same shape: (batch, columns, sequences, width)."""
        x = self.norm(x)
        query = self.query(x.mean(-2)).unflatten(-1, (self.heads, -1))
        scores = (query * query.shape[-1] ** -0.5) @ self.key(x).transpose(-1, -2)
        mixed = (scores.softmax(-1) @ self.value(x)).flatten(-2)
        return self.out(torch.sigmoid(self.gate(x)) * mixed.unsqueeze(-2))


class Transition(nn.Module):
    """Two layers, several times as wide between them."""

    def __init__(self, width: int, times: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, times * width), nn.Linear(times * width, width)

    def forward(self, x: Tensor) -> Tensor:
        """Same shape."""
        return self.down(F.relu(self.up(self.norm(x))))


class OuterProductMean(nn.Module):
    """Pairs out of the sequences: outer products of two columns, averaged (algorithm 10)."""

    def __init__(self, width: int, inner: int = 32) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.left, self.right = nn.Linear(width, inner), nn.Linear(width, inner)
        self.out = nn.Linear(inner * inner, PAIR)

    def forward(self, msa: Tensor) -> Tensor:
        """(batch, residues, residues, pair width)."""
        x = self.norm(msa)
        left, right = self.left(x), self.right(x)
        batch, rows, columns, width = left.shape
        a = left.permute(0, 2, 3, 1).reshape(batch, columns * width, rows)
        b = right.reshape(batch, rows, columns * width)
        outer = (a @ b).reshape(batch, columns, width, columns, width).transpose(2, 3)
        return self.out(outer.flatten(-2)) / rows


class TriangleProduct(nn.Module):
    """Each edge is updated by the other two of all its triangles (algorithms 11 and 12)."""

    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.before, self.after = nn.LayerNorm(width), nn.LayerNorm(inner)
        self.parts = nn.ModuleList(nn.Linear(width, inner) for _ in range(4))
        self.gate, self.out = nn.Linear(width, width), nn.Linear(inner, width)

    def forward(self, pair: Tensor) -> Tensor:
        """Same shape."""
        x = self.before(pair)
        a = torch.sigmoid(self.parts[0](x)) * self.parts[1](x)
        b = torch.sigmoid(self.parts[2](x)) * self.parts[3](x)
        mixed = a.permute(0, 3, 1, 2) @ b.permute(0, 3, 2, 1)
        return torch.sigmoid(self.gate(x)) * self.out(self.after(mixed.permute(0, 2, 3, 1)))


class PairUpdate(nn.Module):
    """Triangle products, triangle attention both ways and a transition."""

    def __init__(self, width: int, inner: int, head: int, times: int) -> None:
        super().__init__()
        self.outgoing, self.incoming = TriangleProduct(width, inner), TriangleProduct(width, inner)
        self.starting, self.ending = TriangleAttention(width, 4, head), TriangleAttention(width, 4, head)
        self.transition = Transition(width, times)

    def forward(self, pair: Tensor) -> Tensor:
        """Same shape."""
        pair = pair + _dropped(self.outgoing(pair), 0.25, 1)
        pair = pair + _dropped(self.incoming(pair.transpose(1, 2)).transpose(1, 2), 0.25, 1)
        pair = pair + _dropped(self.starting(pair), 0.25, 1)
        turned = pair.transpose(1, 2)
        pair = pair + _dropped(self.ending(turned).transpose(1, 2), 0.25, 2)
        return pair + self.transition(pair)


class Block(nn.Module):
    """One Evoformer block; over further sequences the columns have global attention."""

    def __init__(self, width: int, head: int, *, further: bool) -> None:
        super().__init__()
        self.row = GatedAttention(width, 8, head, pair=PAIR)
        self.column = GlobalAttention(width, 8, head) if further else GatedAttention(width, 8, head)
        self.transition = Transition(width, 4)
        self.outer = OuterProductMean(width)
        self.pair = PairUpdate(PAIR, 128, 32, 4)

    def forward(self, msa: Tensor, pair: Tensor) -> tuple[Tensor, Tensor]:
        """Both, updated."""
        msa = msa + _dropped(self.row(msa, pair), 0.15, 1)
        msa = msa + self.column(msa.transpose(1, 2)).transpose(1, 2)
        msa = msa + self.transition(msa)
        return msa, self.pair(pair + self.outer(msa))


class Templates(nn.Module):
    """Four templates through two pair blocks, read by the pairs (algorithms 16 and 17)."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.enter = nn.Linear(88, width)
        self.blocks = nn.ModuleList(PairUpdate(width, width, 16, 2) for _ in range(2))
        self.norm = nn.LayerNorm(width)
        self.query = _bare(PAIR, 64)
        self.key, self.value = _bare(width, 64), _bare(width, 64)
        self.out = nn.Linear(64, PAIR)

    def forward(self, templates: Tensor, pair: Tensor) -> Tensor:
        """Update of the pairs."""
        batch, count = templates.shape[:2]
        x = self.enter(templates).flatten(0, 1)
        for block in self.blocks:
            x = block(x)
        x = self.norm(x).unflatten(0, (batch, count)).permute(0, 2, 3, 1, 4)
        query = self.query(pair).unflatten(-1, (4, 1, 16))
        key, value = (f(x).unflatten(-1, (4, 16)).transpose(-2, -3) for f in (self.key, self.value))
        mixed = ((query * 0.25) @ key.transpose(-1, -2)).softmax(-1) @ value
        return self.out(mixed.flatten(-3))


class PointAttention(nn.Module):
    """Invariant point attention: 12 heads over features, pairs and points in space (algorithm 22)."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.both = nn.Linear(SINGLE, 192), nn.Linear(SINGLE, 384)
        self.query_points, self.both_points = nn.Linear(SINGLE, 144), nn.Linear(SINGLE, 432)
        self.bias = nn.Linear(PAIR, 12)
        self.weights = nn.Parameter(torch.empty(12))
        self.out = nn.Linear(12 * (PAIR + 16 + 8 * 4), SINGLE)

    def forward(self, x: Tensor, pair: Tensor) -> Tensor:
        """Same shape."""
        query = self.query(x).unflatten(-1, (12, 16)).transpose(1, 2)
        key, value = self.both(x).unflatten(-1, (12, 32)).transpose(1, 2).chunk(2, -1)
        asked = self.query_points(x).unflatten(-1, (12, 12)).transpose(1, 2)
        points = self.both_points(x).unflatten(-1, (12, 36)).transpose(1, 2)
        there, seen = points[..., :12], points[..., 12:]
        apart = (asked.unsqueeze(3) - there.unsqueeze(2)).pow(2).sum(-1)
        scores = query @ key.transpose(-1, -2) + self.bias(pair).permute(0, 3, 1, 2)
        weights = (scores - F.softplus(self.weights)[:, None, None] * apart).softmax(-1)
        features, places = (weights @ value), (weights @ seen)
        pairs = weights.transpose(1, 2) @ pair
        lengths = places.unflatten(-1, (8, 3)).norm(dim=-1)
        joined = [y.transpose(1, 2).flatten(2) for y in (features, places, lengths)]
        return self.out(torch.cat((*joined, pairs.flatten(2)), -1))


class Structure(nn.Module):
    """Eight rounds of one block with shared weights; a frame per residue (algorithm 20)."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.pair_norm = nn.LayerNorm(SINGLE), nn.LayerNorm(PAIR)
        self.enter = nn.Linear(SINGLE, SINGLE)
        self.attention = PointAttention()
        self.norms = nn.ModuleList(nn.LayerNorm(SINGLE) for _ in range(2))
        self.layers = nn.ModuleList(nn.Linear(SINGLE, SINGLE) for _ in range(3))
        self.frame = nn.Linear(SINGLE, 6)
        self.angle_in = nn.ModuleList(nn.Linear(SINGLE, 128) for _ in range(2))
        self.angle = nn.ModuleList(nn.Linear(128, 128) for _ in range(4))
        self.angle_out = nn.Linear(128, 14)

    def forward(self, single: Tensor, pair: Tensor) -> tuple[Tensor, Tensor]:
        """Features, and the error of all frames in all frames, summed over the rounds."""
        first = self.norm(single)
        x, pair, error = self.enter(first), self.pair_norm(pair), single.new_zeros(())
        for _ in range(8):
            x = self.norms[0](F.dropout(x + self.attention(x, pair), 0.1))
            y = F.relu(self.layers[1](F.relu(self.layers[0](x))))
            x = self.norms[1](F.dropout(x + self.layers[2](y), 0.1))
            frames = self.frame(x)
            a = self.angle_in[0](F.relu(x)) + self.angle_in[1](F.relu(first))
            a = a + self.angle[1](F.relu(self.angle[0](F.relu(a))))
            a = a + self.angle[3](F.relu(self.angle[2](F.relu(a))))
            angles = F.normalize(self.angle_out(F.relu(a)).unflatten(-1, (7, 2)), dim=-1)
            local = frames[:, :, None, :3] - frames[:, None, :, :3]
            error = error + local.norm(dim=-1).clamp(max=10.0).mean() + angles.mean()
        return x, error


class AlphaFold(nn.Module):
    """Trunk, structure module and the heads of the first phase of training."""

    def __init__(self, blocks: int = 48) -> None:
        super().__init__()
        self.target_left, self.target_right = nn.Linear(22, PAIR), nn.Linear(22, PAIR)
        self.target_msa, self.msa_in = nn.Linear(22, MSA), nn.Linear(49, MSA)
        self.distance = nn.Linear(65, PAIR)
        self.again = nn.ModuleList((nn.LayerNorm(MSA), nn.LayerNorm(PAIR), nn.Linear(15, PAIR)))
        self.templates = Templates()
        self.angles = nn.Sequential(nn.Linear(57, MSA), nn.ReLU(), nn.Linear(MSA, MSA))
        self.further_in = nn.Linear(25, 64)
        self.further = nn.ModuleList(Block(64, 8, further=True) for _ in range(4))
        self.blocks = nn.ModuleList(Block(MSA, 32, further=False) for _ in range(blocks))
        self.single = nn.Linear(MSA, SINGLE)
        self.structure = Structure()
        self.confidence = nn.Sequential(
            nn.LayerNorm(SINGLE), nn.Linear(SINGLE, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU()
        )
        self.bins = nn.Linear(128, 50)
        self.distogram, self.masked = nn.Linear(PAIR, 64), nn.Linear(MSA, 23)
        self.resolved = nn.Linear(SINGLE, 37)

    def trunk(self, given: tuple[Tensor, ...], last: tuple[Tensor, ...], blocks: int) -> tuple[Tensor, ...]:
        """Sequences and pairs after the Evoformer."""
        target, places, msa_in, further_in, templates, angles, distances = given
        pair = self.target_left(target)[:, :, None] + self.target_right(target)[:, None]
        pair = pair + self.distance(places)
        msa = self.msa_in(msa_in) + self.target_msa(target)[:, None]
        before, beside = last
        first = torch.cat((msa[:, :1] + self.again[0](before)[:, None], msa[:, 1:]), 1)
        pair = pair + self.again[1](beside) + self.again[2](distances)
        pair = pair + self.templates(templates, pair)
        msa = torch.cat((first, self.angles(angles)), 1)
        further = self.further_in(further_in)
        for block in self.further:
            further, pair = block(further, pair)
        for block in self.blocks[:blocks]:
            msa, pair = block(msa, pair)
        return msa, pair

    def forward(self, *given: Tensor) -> Tensor:
        """Sum of the losses."""
        inputs = given[:7]
        last: tuple[Tensor, ...] = (given[7], given[8])
        with torch.no_grad():
            for blocks in (len(self.blocks), len(self.blocks) // 2):
                msa, pair = self.trunk(inputs, last, blocks)
                last = (msa[:, 0], pair)
        msa, pair = self.trunk(inputs, last, len(self.blocks))
        single = self.single(msa[:, 0])
        x, error = self.structure(single, pair)
        logits = self.distogram(pair)
        losses = [error, F.softplus(self.bins(self.confidence(x))).mean(), self.resolved(x).sigmoid().mean()]
        losses.append((logits + logits.transpose(1, 2)).log_softmax(-1).mean().neg())
        losses.append(self.masked(msa[:, :SEQUENCES]).log_softmax(-1).mean().neg())
        return torch.stack(losses).sum()


def _crop(batch: int) -> tuple[Tensor, ...]:
    n = RESIDUES
    return (
        real(batch, n, 22),
        real(batch, n, n, 65),
        real(batch, SEQUENCES, n, 49),
        real(batch, EXTRA, n, 25),
        real(batch, TEMPLATES, n, n, 88),
        real(batch, TEMPLATES, n, 57),
        real(batch, n, n, 15),
        real(batch, n, MSA),
        real(batch, n, n, PAIR),
    )


ENTRIES: dict[str, Entry] = {
    "alphafold2": Entry(
        build=on_meta(AlphaFold),
        inputs=_crop,
        family="other",
        task="protein-structure",
        optimizer="adam",
        sample_unit="crop",
        throughput_unit="samples/s",
        dataset="pdb",
        references=(
            Reference(
                quantity="params",
                value=93.2e6,
                source="Ahdritz et al. 2024 (OpenFold): 93 M parameters, as AlphaFold 2's model_1",
                tolerance=0.01,
            ),
        ),
        aliases=("alphafold",),
    )
}
