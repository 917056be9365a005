"""Models that neither timm nor transformers has: as the catalogue holds them, computing their own loss."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

Inputs = tuple[Any, ...]

_FEATURES = 26
_NUMERIC = 13
_DROPOUT = 0.2


def _mlp(*widths: int, last_activation: bool = True) -> nn.Sequential:
    layers: list[Any] = []
    for wide, narrow in zip(widths[:-1], widths[1:], strict=True):
        layers += [nn.Linear(wide, narrow), nn.ReLU()]
    return nn.Sequential(*(layers if last_activation else layers[:-1]))


class ClickModel(nn.Module):  # type: ignore[misc]
    """DLRM (Naumov et al. 2019) with dot interaction; the tables are one, with sparse gradients."""

    def __init__(self, rows: int, width: int = 128) -> None:
        super().__init__()
        self.table = nn.Embedding(rows, width, sparse=True)
        self.bottom = _mlp(_NUMERIC, 512, 256, width)
        count = _FEATURES + 1
        self.top = _mlp(width + count * (count - 1) // 2, 1024, 1024, 512, 256, 1, last_activation=False)
        pairs = torch.tril_indices(count, count, offset=-1)
        self.register_buffer("pairs", pairs[0] * count + pairs[1])

    def forward(self, numeric: Any, features: Any, clicked: Any) -> Any:
        """Binary cross entropy of the click."""
        dense = self.bottom(numeric)
        vectors = torch.cat((dense.unsqueeze(1), self.table(features).to(dense.dtype)), 1)
        products = torch.bmm(vectors, vectors.transpose(1, 2)).flatten(1).index_select(1, self.pairs)
        answer = self.top(torch.cat((dense, products), 1)).squeeze(-1)
        return F.binary_cross_entropy_with_logits(answer.float(), clicked)


class WordModel(nn.Module):  # type: ignore[misc]
    """The word language model of the PyTorch examples: embedding, LSTM layers, projection to the words."""

    def __init__(self, words: int, hidden: int, layers: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(words, hidden)
        self.dropout = nn.Dropout(_DROPOUT)
        self.cells = nn.LSTM(hidden, hidden, layers, dropout=_DROPOUT)
        self.head = nn.Linear(hidden, words)

    def forward(self, tokens: Any, targets: Any) -> Any:
        """Cross entropy of the next word; tokens and targets are (T x batch)."""
        hidden, _ = self.cells(self.dropout(self.embedding(tokens)))
        logits = self.head(self.dropout(hidden))
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def _clicks(build: Mapping[str, Any], batch: int, kind: str) -> Inputs:
    features = torch.randint(build["rows"], (batch, _FEATURES), device=kind)
    clicked = torch.randint(2, (batch,), device=kind).float()
    return torch.randn(batch, _NUMERIC, device=kind), features, clicked


def _words(build: Mapping[str, Any], batch: int, kind: str) -> Inputs:
    pair = (torch.randint(build["words"], (build["tokens"], batch), device=kind) for _ in range(2))
    return tuple(pair)


BUILDERS: Mapping[str, tuple[Callable[[Mapping[str, Any]], Any], Callable[..., Inputs]]] = {
    "click-model": (lambda build: ClickModel(build["rows"]), _clicks),
    "word-model": (lambda build: WordModel(build["words"], build["hidden"], build["layers"]), _words),
}
"""Architecture -> module from its sizes, and one batch of inputs (floats stay fp32 where they are labels)."""
