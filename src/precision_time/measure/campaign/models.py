"""The built-in models of campaigns as modules that return their loss, and random inputs of their shape."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

Batch = tuple[Any, ...]
Sizes = Mapping[str, float]


class Classifier(nn.Module):  # type: ignore[misc]
    """Cross entropy of a network's logits: forward takes images and labels."""

    def __init__(self, network: Any) -> None:
        super().__init__()
        self.network = network

    def forward(self, images: Any, labels: Any) -> Any:
        """Mean loss."""
        return F.cross_entropy(self.network(images), labels)


class _Block(nn.Module):  # type: ignore[misc]
    """A pre-norm decoder block."""

    def __init__(self, hidden: int, heads: int, ffn: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm_1, self.norm_2 = nn.LayerNorm(hidden), nn.LayerNorm(hidden)
        self.qkv, self.out = nn.Linear(hidden, 3 * hidden), nn.Linear(hidden, hidden)
        self.ffn = nn.Sequential(nn.Linear(hidden, ffn), nn.GELU(), nn.Linear(ffn, hidden))

    def forward(self, x: Any) -> Any:
        """(batch, tokens, hidden) -> the same."""
        batch, tokens, hidden = x.shape
        qkv = self.qkv(self.norm_1(x)).view(batch, tokens, 3, self.heads, hidden // self.heads)
        query, key, value = qkv.permute(2, 0, 3, 1, 4)
        seen = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).reshape(batch, tokens, hidden))
        return x + self.ffn(self.norm_2(x))


class Decoder(nn.Module):  # type: ignore[misc]
    """A small GPT-2: learned positions, tied output layer."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        hidden = int(sizes["hidden"])
        self.words = nn.Embedding(int(sizes["vocab"]), hidden)
        self.positions = nn.Embedding(int(sizes["positions"]), hidden)
        self.blocks = nn.Sequential(
            *(_Block(hidden, int(sizes["heads"]), int(sizes["ffn"])) for _ in range(int(sizes["layers"])))
        )
        self.norm = nn.LayerNorm(hidden)
        nn.init.normal_(self.words.weight, std=0.02)

    def forward(self, tokens: Any, targets: Any) -> Any:
        """Cross entropy of the next token; both (batch, tokens)."""
        places = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.norm(self.blocks(self.words(tokens) + self.positions(places)))
        return F.cross_entropy(F.linear(x, self.words.weight).flatten(0, 1), targets.flatten())


class Recommender(nn.Module):  # type: ignore[misc]
    """Neural matrix factorisation: a product branch and a perceptron branch over embeddings."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        users, items, factors = (int(sizes[name]) for name in ("users", "items", "factors"))
        widths = [int(sizes["hidden"]) // 2**step for step in range(4)]
        self.user_product, self.item_product = nn.Embedding(users, factors), nn.Embedding(items, factors)
        self.user_mlp, self.item_mlp = (
            nn.Embedding(users, widths[0] // 2),
            nn.Embedding(items, widths[0] // 2),
        )
        self.mlp = _perceptron(*widths)
        self.head = nn.Linear(factors + widths[-1], 1)

    def forward(self, user: Any, item: Any, label: Any) -> Any:
        """Binary cross entropy of the interaction; all (batch,)."""
        product = self.user_product(user) * self.item_product(item)
        hidden = self.mlp(torch.cat((self.user_mlp(user), self.item_mlp(item)), -1))
        logit = self.head(torch.cat((product, hidden), -1)).squeeze(-1)
        return F.binary_cross_entropy_with_logits(logit.float(), label)


def _perceptron(*widths: int) -> nn.Sequential:
    layers: list[Any] = []
    for wide, narrow in zip(widths[:-1], widths[1:], strict=True):
        layers += [nn.Linear(wide, narrow), nn.ReLU()]
    return nn.Sequential(*layers)


def _cnn(sizes: Sizes) -> nn.Module:
    filters, stages, hidden = (int(sizes[name]) for name in ("filters", "stages", "hidden"))
    layers: list[Any] = []
    channels = int(sizes["channels"])
    for stage in range(stages):
        width = filters * 2**stage
        layers += [nn.Conv2d(channels, width, 3, padding=1), nn.ReLU()]
        layers += [nn.Conv2d(width, width, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
        channels = width
    side = int(sizes["side"]) // 2**stages
    layers += [nn.Flatten(), nn.Linear(channels * side * side, hidden), nn.ReLU()]
    return Classifier(nn.Sequential(*layers, nn.Linear(hidden, int(sizes["classes"]))))


def _mlp(sizes: Sizes) -> nn.Module:
    pixels, hidden = int(sizes["channels"] * sizes["side"] ** 2), int(sizes["hidden"])
    body = _perceptron(pixels, *[hidden] * int(sizes["layers"]))
    return Classifier(nn.Sequential(nn.Flatten(), body, nn.Linear(hidden, int(sizes["classes"]))))


def random_images(count: int, sizes: Sizes) -> Batch:
    """Images and labels."""
    side = int(sizes["side"])
    return torch.randn(count, int(sizes["channels"]), side, side), torch.randint(
        int(sizes["classes"]), (count,)
    )


def _tokens(count: int, sizes: Sizes) -> Batch:
    shape = (count, int(sizes["seq_len"]))
    return torch.randint(int(sizes["vocab"]), shape), torch.randint(int(sizes["vocab"]), shape)


def _pairs(count: int, sizes: Sizes) -> Batch:
    users, items = torch.randint(int(sizes["users"]), (count,)), torch.randint(int(sizes["items"]), (count,))
    return users, items, torch.randint(2, (count,)).float()


MODULES: Mapping[str, Callable[[Sizes], Any]] = {
    "cnn": _cnn,
    "mlp": _mlp,
    "transformer": Decoder,
    "recommender": Recommender,
}
"""Name -> module from its sizes."""
INPUTS: Mapping[str, Callable[[int, Sizes], Batch]] = {
    "images": random_images,
    "tokens": _tokens,
    "pairs": _pairs,
}
"""Kind of inputs -> that many random samples, in memory of the host."""
