"""Click models over fields of categories, rankers of pairs, and recommenders made to benchmark embeddings.

A sample is one interaction. RecBole keeps all fields in one table that the dense optimizer runs over;
distributed-embeddings spreads its tables over the devices and updates rows (`ClickModel` of recsys.py).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from . import Entry, Reference
from ._blocks import index, mlp, on_meta, real


class FieldModel(nn.Module):
    """A table of all fields, a linear part over the same rows, and a subclass's network over the vectors."""

    def __init__(self, rows: int, fields: int, width: int) -> None:
        super().__init__()
        self.table = nn.Embedding(rows, width)
        self.linear = nn.Embedding(rows, 1)
        self.size = fields * width

    def logit(self, vectors: Tensor) -> Tensor:
        """What a subclass adds to the linear part: (batch, 1)."""
        raise NotImplementedError

    def forward(self, categories: Tensor, label: Tensor) -> Tensor:
        """Binary cross entropy of the click."""
        logit = self.linear(categories).sum(1) + self.logit(self.table(categories))
        return F.binary_cross_entropy_with_logits(logit.squeeze(-1), label)


def _second_order(vectors: Tensor) -> Tensor:
    """Half of the square of the sum less the sum of squares: (batch, width)."""
    return 0.5 * (vectors.sum(1).pow(2) - vectors.pow(2).sum(1))


class DeepFM(FieldModel):
    """Guo et al. 2017; without the products the deep part of Wide & Deep (Cheng et al. 2016)."""

    def __init__(
        self, rows: int, fields: int, width: int, layers: tuple[int, ...], *, products: bool, dropout: float
    ) -> None:
        super().__init__(rows, fields, width)
        self.products = products
        self.deep = mlp((self.size, *layers), dropout=dropout)
        self.head = nn.Linear(layers[-1], 1)

    def logit(self, vectors: Tensor) -> Tensor:
        """Perceptron over all vectors, and the products of pairs."""
        deep = self.head(self.deep(vectors.flatten(1)))
        return deep + _second_order(vectors).sum(1, keepdim=True) if self.products else deep


class NeuralFM(FieldModel):
    """He and Chua 2017: a perceptron over the pooled products."""

    def __init__(self, rows: int, fields: int, width: int, layers: tuple[int, ...]) -> None:
        super().__init__(rows, fields, width)
        self.norm = nn.BatchNorm1d(width)
        self.deep = mlp((width, *layers))
        self.head = nn.Linear(layers[-1], 1, bias=False)

    def logit(self, vectors: Tensor) -> Tensor:
        """Perceptron over the second order."""
        return self.head(self.deep(self.norm(_second_order(vectors))))


class DeepCross(FieldModel):
    """Wang et al. 2017: cross layers of rank one beside a perceptron."""

    def __init__(self, rows: int, fields: int, width: int, layers: tuple[int, ...], crosses: int) -> None:
        super().__init__(rows, fields, width)
        self.weights = nn.ModuleList(nn.Linear(self.size, 1, bias=False) for _ in range(crosses))
        self.biases = nn.ParameterList(nn.Parameter(torch.empty(self.size)) for _ in range(crosses))
        self.deep = mlp((self.size, *layers), dropout=0.2)
        self.head = nn.Linear(self.size + layers[-1], 1)

    def logit(self, vectors: Tensor) -> Tensor:
        """Head over both branches."""
        start = vectors.flatten(1)
        x = start
        for weight, bias in zip(self.weights, self.biases, strict=True):
            x = start * weight(x) + bias + x
        return self.head(torch.cat((x, self.deep(start)), -1))


class AutoInt(FieldModel):
    """Song et al. 2019: self-attention between fields, beside a perceptron."""

    def __init__(
        self, rows: int, fields: int, width: int, attended: int, depth: int, layers: tuple[int, ...]
    ) -> None:
        super().__init__(rows, fields, width)
        self.into = nn.Linear(width, attended)
        self.attentions = nn.ModuleList(
            nn.MultiheadAttention(attended, 2, dropout=0.2, batch_first=True) for _ in range(depth)
        )
        self.shortcut = nn.Linear(width, attended)
        self.attended_head = nn.Linear(fields * attended, 1)
        self.deep = mlp((self.size, *layers), dropout=0.2)
        self.head = nn.Linear(layers[-1], 1)

    def logit(self, vectors: Tensor) -> Tensor:
        """Sum of both branches."""
        x = self.into(vectors)
        for attention in self.attentions:
            x, _ = attention(x, x, x)
        x = F.relu(x + self.shortcut(vectors))
        return self.attended_head(x.flatten(1)) + self.head(self.deep(vectors.flatten(1)))


class ExtremeFM(FieldModel):
    """xDeepFM (Lian et al. 2018): a compressed interaction network beside a perceptron."""

    def __init__(
        self, rows: int, fields: int, width: int, maps: tuple[int, ...], layers: tuple[int, ...]
    ) -> None:
        super().__init__(rows, fields, width)
        self.convs = nn.ModuleList()
        incoming = fields
        for position, count in enumerate(maps):
            self.convs.append(nn.Conv1d(fields * incoming, count, 1))
            incoming = count // 2 if position < len(maps) - 1 else count
        self.maps = maps
        self.interaction_head = nn.Linear(sum(m // 2 for m in maps[:-1]) + maps[-1], 1)
        self.deep = mlp((self.size, *layers), dropout=0.2)
        self.head = nn.Linear(layers[-1], 1)

    def logit(self, vectors: Tensor) -> Tensor:
        """Sum of both branches; half of each layer's maps go on, the others to the head."""
        hidden, kept = vectors, []
        for position, conv in enumerate(self.convs):
            outer = (vectors.unsqueeze(2) * hidden.unsqueeze(1)).flatten(1, 2)
            hidden = F.relu(conv(outer))
            if position < len(self.convs) - 1:
                hidden, direct = hidden.chunk(2, 1)
                kept.append(direct)
            else:
                kept.append(hidden)
        pooled = torch.cat(kept, 1).sum(-1)
        return self.interaction_head(pooled) + self.head(self.deep(vectors.flatten(1)))


class PairRanking(nn.Module):
    """Matrix factorisation under the ranking loss of Rendle et al. 2009."""

    def __init__(self, users: int, items: int, width: int = 64) -> None:
        super().__init__()
        self.user = nn.Embedding(users, width)
        self.item = nn.Embedding(items, width)

    def forward(self, user: Tensor, liked: Tensor, other: Tensor) -> Tensor:
        """A liked item above one drawn at random."""
        person = self.user(user).unsqueeze(1)
        pair = torch.stack((self.item(liked), self.item(other)), 2)
        liking, other_liking = torch.bmm(person, pair).squeeze(1).unbind(1)
        return -F.logsigmoid(liking - other_liking).mean()


Tables = tuple[tuple[int, tuple[int, ...], int, int], ...]
"""Number of tables, look-ups of each of their inputs, rows, width."""


class SyntheticRecommender(nn.Module):
    """Recommender of NVIDIA's distributed-embeddings: summed look-ups, average pooling, a perceptron.

    Tables of one width are one embedding here; they are sharded over the devices and updated by row.
    """

    def __init__(self, tables: Tables, layers: tuple[int, ...], numeric: int, stride: int | None) -> None:
        super().__init__()
        self.stride = stride
        self.hots: list[list[int]] = []
        self.tables = nn.ModuleList()
        joined = 0
        for width in sorted({width for *_, width in tables}):
            chosen = [table for table in tables if table[3] == width]
            hot = [h for count, inputs, _, _ in chosen for h in inputs * count]
            rows = sum(count * rows for count, _, rows, _ in chosen)
            self.tables.append(nn.Embedding(rows, width).requires_grad_(False))
            self.hots.append(hot)
            joined += width * len(hot)
        self.pooled = -(-joined // stride) if stride else joined
        self.rest = self.pooled * stride - joined if stride else 0
        self.deep = mlp((self.pooled + numeric, *layers))
        self.head = nn.Linear(layers[-1], 1)

    def forward(self, numeric: Tensor, label: Tensor, *categories: Tensor) -> Tensor:
        """Binary cross entropy of the click."""
        parts = []
        for table, hots, looked in zip(self.tables, self.hots, categories, strict=True):
            vectors = table(looked)
            with torch.no_grad():
                table(looked)
            single = hots.count(1)
            parts.append(vectors[:, :single].flatten(1))
            more = [h for h in hots if h > 1]
            if more:
                pooled = vectors[:, single:].unflatten(1, (len(more), more[0])).sum(2)
                parts.append(pooled.flatten(1))
        x = torch.cat(parts, 1)
        if self.stride:
            x = F.avg_pool1d(F.pad(x, (0, self.rest)).unsqueeze(1), self.stride).squeeze(1)
        logit = self.head(self.deep(torch.cat((x, numeric), 1)))
        return F.binary_cross_entropy_with_logits(logit.squeeze(-1), label)


def _synthetic(
    tables: Tables, layers: tuple[int, ...], numeric: int, stride: int | None, gibibytes: float
) -> Entry:
    widths = sorted({width for *_, width in tables})
    looked = [
        sum(count * sum(inputs) for count, inputs, _, width in tables if width == wanted) for wanted in widths
    ]
    return _entry(
        lambda: SyntheticRecommender(tables, layers, numeric, stride),
        lambda batch: (real(batch, numeric), real(batch), *(index(batch, n) for n in looked)),
        Reference(
            quantity="params",
            value=gibibytes * 2**30 / 4,
            source="distributed-embeddings, synthetic_models/README.md: size of the tables",
            tolerance=0.02,
        ),
        optimizer="adagrad",
        dataset="synthetic",
    )


def _entry(factory: Callable[[], nn.Module], inputs: Any, *references: Reference, **changes: Any) -> Entry:
    settings: dict[str, Any] = {
        "build": on_meta(factory),
        "inputs": inputs,
        "family": "recsys",
        "task": "ctr",
        "optimizer": "adam",
        "sample_unit": "sample",
        "throughput_unit": "samples/s",
        "references": references,
    }
    return Entry(**(settings | changes))


def _fields(kind: str, build: Callable[[int, int], nn.Module]) -> dict[str, Entry]:
    """The model on both data sets of RecBole's table of times."""
    return {
        f"{kind}-{dataset}": _entry(
            lambda rows=rows, fields=fields: build(rows, fields),
            lambda batch, fields=fields: (index(batch, fields), real(batch)),
            dataset=dataset,
            dataset_samples=samples,
        )
        for dataset, rows, fields, samples in RECBOLE_FIELDS
    }


RECBOLE_FIELDS = (("movielens-1m", 9_880, 7, 591_210), ("avazu", 1_326_631, 21, 3_375_150))
"""Data set, rows over all fields, fields, samples of an epoch (0.8 of the interactions): RecBole's table."""

ENTRIES: dict[str, Entry] = {
    **_fields(
        "deepfm",
        lambda rows, fields: DeepFM(rows, fields, 16, (128, 128, 128), products=True, dropout=0.2),
    ),
    **_fields(
        "widedeep",
        lambda rows, fields: DeepFM(rows, fields, 16, (32, 16, 8), products=False, dropout=0.1),
    ),
    **_fields("nfm", lambda rows, fields: NeuralFM(rows, fields, 16, (64, 64, 64))),
    **_fields("dcn", lambda rows, fields: DeepCross(rows, fields, 16, (256, 256, 256), 6)),
    **_fields("autoint", lambda rows, fields: AutoInt(rows, fields, 16, 16, 3, (128, 128))),
    **_fields("xdeepfm", lambda rows, fields: ExtremeFM(rows, fields, 16, (100, 100, 100), (128, 128, 128))),
    "bpr-movielens-1m": _entry(
        lambda: PairRanking(6_034, 3_124),
        lambda batch: (index(batch), index(batch), index(batch)),
        task="recsys",
        dataset="movielens-1m",
        dataset_samples=667_559,
    ),
    "bpr-amazon-books": _entry(
        lambda: PairRanking(40_550, 31_094),
        lambda batch: (index(batch), index(batch), index(batch)),
        task="recsys",
        dataset="amazon-books",
        dataset_samples=945_035,
    ),
    "bpr-yelp2022": _entry(
        lambda: PairRanking(72_488, 43_749),
        lambda batch: (index(batch), index(batch), index(batch)),
        task="recsys",
        dataset="yelp2022",
        dataset_samples=1_634_722,
    ),
    "synthetic-recsys-tiny": _synthetic(
        (
            (1, (1, 10), 10_000, 8),
            (1, (1, 10), 1_000_000, 16),
            (1, (1, 10), 25_000_000, 16),
            (1, (1,), 25_000_000, 16),
            (16, (1,), 10, 8),
            (10, (1,), 1_000, 8),
            (4, (1,), 10_000, 8),
            (2, (1,), 100_000, 16),
            (19, (1,), 1_000_000, 16),
        ),
        (256, 128),
        10,
        None,
        4.2,
    ),
    "synthetic-recsys-small": _synthetic(
        (
            (5, (1, 30), 10_000, 16),
            (3, (1, 30), 4_000_000, 32),
            (1, (1, 30), 50_000_000, 32),
            (1, (1,), 50_000_000, 32),
            (30, (1,), 10, 16),
            (30, (1,), 1_000, 16),
            (5, (1,), 10_000, 16),
            (5, (1,), 100_000, 32),
            (27, (1,), 4_000_000, 32),
        ),
        (512, 256, 128),
        10,
        None,
        26.3,
    ),
    "synthetic-recsys-medium": _synthetic(
        (
            (20, (1, 50), 100_000, 64),
            (5, (1, 50), 10_000_000, 64),
            (1, (1, 50), 100_000_000, 128),
            (1, (1,), 100_000_000, 128),
            (80, (1,), 10, 32),
            (60, (1,), 1_000, 32),
            (80, (1,), 100_000, 64),
            (24, (1,), 200_000, 64),
            (40, (1,), 10_000_000, 64),
        ),
        (1024, 512, 256, 128),
        25,
        7,
        206.2,
    ),
    "synthetic-recsys-large": _synthetic(
        (
            (40, (1, 100), 100_000, 64),
            (16, (1, 100), 15_000_000, 64),
            (1, (1, 100), 200_000_000, 128),
            (1, (1,), 200_000_000, 128),
            (100, (1,), 10, 32),
            (100, (1,), 10_000, 32),
            (160, (1,), 100_000, 64),
            (50, (1,), 500_000, 64),
            (144, (1,), 15_000_000, 64),
        ),
        (2048, 1024, 512, 256),
        100,
        8,
        773.8,
    ),
    "synthetic-recsys-jumbo": _synthetic(
        (
            (50, (1, 200), 100_000, 128),
            (24, (1, 200), 20_000_000, 128),
            (1, (1, 200), 400_000_000, 256),
            (1, (1,), 400_000_000, 256),
            (100, (1,), 10, 32),
            (200, (1,), 10_000, 64),
            (350, (1,), 100_000, 128),
            (80, (1,), 1_000_000, 128),
            (216, (1,), 20_000_000, 128),
        ),
        (2048, 1024, 512, 256),
        200,
        20,
        3109.5,
    ),
}
