"""Recommenders: matrix factorisation networks, click models with big embeddings, autoencoders.

Embedding tables keep their full size, so that parameters and optimizer state are right. A sample is
one user-item pair, or one user for the autoencoders.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from . import Entry, Reference
from ._blocks import index, mlp, on_meta, real


class NeuMF(nn.Module):
    """Neural matrix factorisation (He et al. 2017): a product branch and a perceptron branch."""

    def __init__(self, users: int, items: int, factors: int, layers: tuple[int, ...], dropout: float) -> None:
        super().__init__()
        self.user_gmf = nn.Embedding(users, factors)
        self.item_gmf = nn.Embedding(items, factors)
        self.user_mlp = nn.Embedding(users, layers[0] // 2)
        self.item_mlp = nn.Embedding(items, layers[0] // 2)
        self.mlp = mlp(layers, dropout=dropout)
        self.head = nn.Linear(factors + layers[-1], 1)

    def forward(self, user: Tensor, item: Tensor, label: Tensor) -> Tensor:
        """Binary cross entropy of the interaction."""
        product = self.user_gmf(user) * self.item_gmf(item)
        hidden = self.mlp(torch.cat((self.user_mlp(user), self.item_mlp(item)), -1))
        logit = self.head(torch.cat((product, hidden), -1)).squeeze(-1)
        return F.binary_cross_entropy_with_logits(logit, label)


class Interaction(nn.Module):
    """Pairwise dot products of all feature vectors, lower triangle, next to the dense vector."""

    def forward(self, dense: Tensor, sparse: Tensor) -> Tensor:
        """(batch, width + pairs)."""
        vectors = torch.cat((dense.unsqueeze(1), sparse), 1)
        products = torch.bmm(vectors, vectors.transpose(1, 2)).flatten(1)
        count = vectors.shape[1]
        rows, cols = torch.tril_indices(count, count, -1, device="cpu")
        pairs = (rows * count + cols).to(dense.device)
        return torch.cat((dense, products.index_select(1, pairs)), 1)


class LowRankCross(nn.Module):
    """Cross layers of DCN v2 with a low-rank matrix (Wang et al. 2021)."""

    def __init__(self, width: int, rank: int, layers: int) -> None:
        super().__init__()
        self.down = nn.ModuleList(nn.Linear(width, rank, bias=False) for _ in range(layers))
        self.up = nn.ModuleList(nn.Linear(rank, width) for _ in range(layers))

    def forward(self, x: Tensor) -> Tensor:
        """x_{l+1} = x_0 * (W x_l + b) + x_l."""
        current = x
        for down, up in zip(self.down, self.up, strict=True):
            current = x * up(down(current)) + current
        return current


class ClickModel(nn.Module):
    """DLRM (Naumov et al. 2019) with dot interaction, or its DCN v2 variant with cross layers.

    The tables are one joint embedding of `rows` rows: `hot` look-ups per sample, summed per feature.
    They are sharded over the devices and updated by row, neither exchanged nor run through the dense
    optimizer: here a frozen parameter, whose row update is written as a second look-up.
    """

    def __init__(
        self, rows: int, *, hot: int = 26, cross: tuple[int, int] | None = None, width: int = 128
    ) -> None:
        super().__init__()
        self.hot = hot
        self.table = nn.Embedding(rows, width).requires_grad_(False)
        self.bottom = mlp((13, 512, 256, width))
        features = 27
        self.cross = LowRankCross(features * width, *cross) if cross else None
        joined = features * width if cross else width + features * (features - 1) // 2
        self.interaction = None if cross else Interaction()
        self.top = mlp((joined, 1024, 1024, 512, 256, 1), last_activation=False)

    def forward(self, dense: Tensor, sparse: Tensor, label: Tensor) -> Tensor:
        """Binary cross entropy of the click."""
        hidden = self.bottom(dense)
        vectors = self.table(sparse)
        with torch.no_grad():
            self.table(sparse)
        if self.hot != 26:
            sizes = [self.hot - 25, *([1] * 25)]
            vectors = torch.stack([part.sum(1) for part in vectors.split(sizes, 1)], 1)
        if self.cross is not None:
            joined = self.cross(torch.cat((hidden.unsqueeze(1), vectors), 1).flatten(1))
        else:
            assert self.interaction is not None
            joined = self.interaction(hidden, vectors)
        return F.binary_cross_entropy_with_logits(self.top(joined).squeeze(-1), label)


class WideAndDeep(nn.Module):
    """Linear part and five layers of 1024 over the Outbrain features (Cheng et al. 2016)."""

    def __init__(self, rows: int, features: int, numeric: int, embedding_total: int) -> None:
        super().__init__()
        self.wide = nn.Embedding(rows, 1)
        self.wide_numeric = nn.Linear(numeric, 1)
        self.width = (embedding_total - numeric) // features
        self.deep_table = nn.Embedding(rows, self.width)
        self.deep = mlp((features * self.width + numeric, 1024, 1024, 1024, 1024, 1024), dropout=0.1)
        self.head = nn.Linear(1024, 1)

    def forward(self, categories: Tensor, numeric: Tensor, label: Tensor) -> Tensor:
        """Binary cross entropy of the sum of both parts."""
        wide = self.wide(categories).sum(1) + self.wide_numeric(numeric)
        deep = self.deep(torch.cat((self.deep_table(categories).flatten(1), numeric), 1))
        return F.binary_cross_entropy_with_logits((wide + self.head(deep)).squeeze(-1), label)


class MultVAE(nn.Module):
    """Variational autoencoder 20108-600-200-600-20108 (Liang et al. 2018)."""

    def __init__(self, items: int, hidden: int = 600, latent: int = 200) -> None:
        super().__init__()
        self.encode = nn.Linear(items, hidden)
        self.moments = nn.Linear(hidden, 2 * latent)
        self.decode = nn.Linear(latent, hidden)
        self.out = nn.Linear(hidden, items)

    def forward(self, clicks: Tensor) -> Tensor:
        """Negative multinomial likelihood plus the divergence from the prior."""
        x = F.dropout(F.normalize(clicks, dim=1), 0.5)
        mean, log_variance = self.moments(torch.tanh(self.encode(x))).chunk(2, 1)
        z = mean + torch.randn_like(mean) * torch.exp(0.5 * log_variance)
        log_likelihood = F.log_softmax(self.out(torch.tanh(self.decode(z))), dim=1)
        divergence = 0.5 * (mean.pow(2) + log_variance.exp() - log_variance - 1).sum(1)
        return (divergence - (log_likelihood * clicks).sum(1)).mean()


class Autoencoder(nn.Module):
    """One hidden layer of 200, tanh, logistic loss over the items that occur in the batch."""

    def __init__(self, items: int, hidden: int = 200) -> None:
        super().__init__()
        self.encode = nn.Linear(items, hidden)
        self.decode = nn.Linear(hidden, items)

    def forward(self, clicks: Tensor) -> Tensor:
        """Mean binary cross entropy."""
        x = F.dropout(F.normalize(clicks, dim=1), 0.5)
        return F.binary_cross_entropy_with_logits(self.decode(torch.tanh(self.encode(x))), clicks)


class AttentionUnit(nn.Module):
    """Target attention of DIN: an 80-40-1 perceptron over each history item."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.score = nn.Sequential(
            nn.Linear(4 * width, 80), nn.Sigmoid(), nn.Linear(80, 40), nn.Sigmoid(), nn.Linear(40, 1)
        )

    def forward(self, target: Tensor, history: Tensor) -> Tensor:
        """Weighted sum of the history."""
        query = target.unsqueeze(1).expand_as(history)
        pairs = torch.cat((query, history, query - history, query * history), -1)
        return (torch.softmax(self.score(pairs), 1) * history).sum(1)


class SIM(nn.Module):
    """Search-based interest model: long history with target attention, short history with DIEN."""

    def __init__(self, rows: int, width: int = 16, features: int = 2) -> None:
        super().__init__()
        self.table = nn.Embedding(rows, width)
        item = features * width
        self.stage_one = nn.Sequential(mlp((4 * item, 200)), nn.Linear(200, 1))
        self.interest = nn.GRU(item, item, batch_first=True)
        self.evolution = nn.GRU(item, item, batch_first=True)
        self.attention = AttentionUnit(item)
        self.long_attention = nn.MultiheadAttention(item, 4, batch_first=True)
        self.auxiliary = nn.Sequential(mlp((2 * item, 100, 50)), nn.Linear(50, 1))
        self.stage_two = nn.Sequential(mlp((5 * item, 200, 80)), nn.Linear(80, 1))

    def forward(self, user: Tensor, target: Tensor, long: Tensor, short: Tensor, negative: Tensor) -> Tensor:
        """Losses of both stages and of the auxiliary task."""
        person = self.table(user).flatten(1)
        goal, far, near, other = (self.table(x).flatten(-2) for x in (target, long, short, negative))
        summary = far.mean(1)
        first = self.stage_one(torch.cat((goal, summary, goal * summary, person.repeat(1, 2)), 1))
        states, _ = self.interest(near)
        positive = self.auxiliary(torch.cat((states[:, :-1], near[:, 1:]), -1))
        wrong = self.auxiliary(torch.cat((states[:, :-1], other[:, 1:]), -1))
        evolved, _ = self.evolution(states)
        recent = self.attention(goal, evolved)
        search, _ = self.long_attention(goal.unsqueeze(1), far, far, need_weights=False)
        second = self.stage_two(torch.cat((goal, search.squeeze(1), recent, summary, person.repeat(1, 2)), 1))
        auxiliary = F.softplus(-positive).mean() + F.softplus(wrong).mean()
        return F.softplus(first).mean() + F.softplus(second).mean() + auxiliary


def _entry(factory: Callable[[], nn.Module], inputs: Any, *references: Reference, **changes: Any) -> Entry:
    settings: dict[str, Any] = {
        "build": on_meta(factory),
        "inputs": inputs,
        "family": "recsys",
        "task": "recsys",
        "optimizer": "adam",
        "sample_unit": "interaction",
        "references": references,
    }
    return Entry(**(settings | changes))


def _params(value: float, source: str, tolerance: float = 0.01) -> Reference:
    return Reference(quantity="params", value=value, source=source, tolerance=tolerance)


def _pairs(batch: int) -> tuple[Tensor, ...]:
    return index(batch), index(batch), real(batch)


def _clicks(hot: int = 26) -> Callable[[int], tuple[Tensor, ...]]:
    return lambda batch: (real(batch, 13), index(batch, hot), real(batch))


ML_1M = {"dataset": "movielens-1m", "dataset_samples": 994_169 * 5}
ML_20M = {"dataset": "ml-20m", "dataset_samples": 19_861_770 * 5}
CRITEO = {"dataset": "criteo-1tb", "dataset_samples": 4_195_197_692, "optimizer": "sgd"}
NEUMF_LAYERS = (256, 256, 128, 64)


def neumf_small() -> nn.Module:
    """Factors 32, MLP 256-128-64-32, MovieLens-1M: what the schedulers' job ran."""
    return NeuMF(6040, 3706, 32, (256, 128, 64, 32), 0.0)


def neumf_large() -> nn.Module:
    """Factors 64, MLP 256-256-128-64, MovieLens-20M: the MLPerf v0.5 model."""
    return NeuMF(138_493, 26_744, 64, NEUMF_LAYERS, 0.5)


ENTRIES: dict[str, Entry] = {
    "ncf-neumf": _entry(neumf_small, _pairs, **ML_1M),
    "ncf-neumf--ml-20m": _entry(
        neumf_large,
        _pairs,
        _params(31_832_577, "MLPerf v0.5 NCF, parameter count printed at start", 0.001),
        **ML_20M,
    ),
    "ncf": _entry(neumf_large, _pairs, **ML_20M),
    "ncf--movielens-1m": _entry(neumf_small, _pairs, **ML_1M),
    "dlrm": _entry(
        lambda: ClickModel(33_762_577),
        _clicks(),
        _params(4.2e9, "NVIDIA DeepLearningExamples TF2 DLRM small: 4.2 B, truncated", 0.04),
        **CRITEO,
        aliases=("dlrm-small",),
    ),
    "dlrm--large": _entry(
        lambda: ClickModel(178_000_000),
        _clicks(),
        **CRITEO,
        aliases=("dlrm-large",),
    ),
    "dlrm--extra-large": _entry(
        lambda: ClickModel(882_774_592),
        _clicks(),
        **CRITEO,
    ),
    "dlrm--mlperf": _entry(
        lambda: ClickModel(187_767_399),
        _clicks(),
        _params(24e9, "MLPerf DLRM, rows capped at 40 million per table: 24 B", 0.02),
        **CRITEO,
    ),
    "dlrm-dcnv2": _entry(
        lambda: ClickModel(204_184_588, hot=214, cross=(512, 3)),
        _clicks(214),
        _params(204_184_588 * 128.0, "MLPerf DLRM-DCNv2: 204,184,588 rows of 128, towers not counted", 0.01),
        **(CRITEO | {"dataset": "criteo-1tb-multihot", "optimizer": "adagrad"}),
    ),
    "dcnv2": _entry(
        lambda: ClickModel(33_762_577, cross=(512, 3)),
        _clicks(),
        _params(4.2e9, "NVIDIA DeepLearningExamples TF2 DCNv2 small: 4.2 B, truncated", 0.04),
        **(CRITEO | {"optimizer": "adam"}),
    ),
    "dcnv2--large": _entry(
        lambda: ClickModel(178_000_000, cross=(512, 3)),
        _clicks(),
        **(CRITEO | {"optimizer": "adam"}),
    ),
    "wide-and-deep": _entry(
        lambda: WideAndDeep(1_170_000, 17, 13, 1235),
        lambda batch: (index(batch, 17), real(batch, 13), real(batch)),
        optimizer="adagrad",
        dataset="outbrain",
        dataset_samples=59_761_827,
    ),
    "vae-cf": _entry(
        lambda: MultVAE(20_108),
        lambda batch: (real(batch, 20_108),),
        sample_unit="user",
        throughput_unit="users/s",
        dataset="ml-20m",
        dataset_samples=116_677,
    ),
    "recoder-autoencoder": _entry(
        lambda: Autoencoder(20_108),
        lambda batch: (real(batch, 20_108),),
        sample_unit="user",
        throughput_unit="samples/s",
        dataset="movielens-20m",
        dataset_samples=116_677,
    ),
    "sim": _entry(
        lambda: SIM(543_060 + 367_983 + 1_602),
        lambda batch: (
            index(batch, 1),
            index(batch, 2),
            index(batch, 90, 2),
            index(batch, 10, 2),
            index(batch, 10, 2),
        ),
        dataset="amazon-books-2014",
        dataset_samples=12_720_000,
    ),
}
