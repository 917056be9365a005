"""Recurrent translation and language models, and the recurrent player of Pong.

WMT16 English-German after byte-pair encoding: 27 source and 28 target tokens per pair on average for
sentences of at most 50; batches are bucketed, the networks run on 30 each.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from . import Entry, Reference
from ._blocks import index, on_meta, real


class GNMT(nn.Module):
    """LSTM layers of 1024 on each side, four or eight; additive attention from the first decoder layer."""

    def __init__(self, vocab: int = 32_320, width: int = 1024, layers: int = 4) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocab, width)
        self.both_ways = nn.LSTM(width, width, bidirectional=True)
        self.encoder = nn.ModuleList(
            nn.LSTM(2 * width if layer == 0 else width, width) for layer in range(layers - 1)
        )
        self.first = nn.LSTM(width, width)
        self.query = nn.Linear(width, width, bias=False)
        self.key = nn.Linear(width, width, bias=False)
        self.score = nn.Linear(width, 1, bias=False)
        self.decoder = nn.ModuleList(nn.LSTM(2 * width, width) for _ in range(layers - 1))
        self.head = nn.Linear(width, vocab)

    def encode(self, source: Tensor) -> Tensor:
        """(time, batch, width)."""
        x, _ = self.both_ways(F.dropout(self.embed(source), 0.2))
        for layer, lstm in enumerate(self.encoder):
            out, _ = lstm(F.dropout(x, 0.2))
            x = out + x if layer > 0 else out
        return x

    def attend(self, state: Tensor, memory: Tensor) -> Tensor:
        """Context per target position (time, batch, width)."""
        queries = self.query(state).transpose(0, 1).unsqueeze(2)
        keys = self.key(memory).transpose(0, 1).unsqueeze(1)
        weights = torch.softmax(self.score(torch.tanh(queries + keys)).squeeze(-1), -1)
        return torch.bmm(weights, memory.transpose(0, 1)).transpose(0, 1)

    def forward(self, source: Tensor, target: Tensor, labels: Tensor) -> Tensor:
        """Smoothed cross entropy."""
        memory = self.encode(source)
        x, _ = self.first(F.dropout(self.embed(target), 0.2))
        context = self.attend(x, memory)
        for layer, lstm in enumerate(self.decoder):
            out, _ = lstm(torch.cat((F.dropout(x, 0.2), context), 2))
            x = out + x if layer > 0 else out
        logits = self.head(x).flatten(0, 1)
        log_probs = F.log_softmax(logits, -1)
        picked = log_probs.gather(1, labels.reshape(-1, 1)).squeeze(1)
        return -(0.9 * picked + 0.1 * log_probs.mean(-1)).sum()


class LuongNMT(nn.Module):
    """TensorFlow's NMT tutorial: bidirectional encoder of half the layers, multiplicative attention."""

    def __init__(self, vocab: tuple[int, int], width: int, layers: int) -> None:
        super().__init__()
        self.source = nn.Embedding(vocab[0], width)
        self.target = nn.Embedding(vocab[1], width)
        self.encoder = nn.LSTM(width, width, layers // 2, bidirectional=True)
        self.decoder = nn.LSTM(2 * width, width, layers)
        self.memory = nn.Linear(2 * width, width, bias=False)
        self.attended = nn.Linear(3 * width, width, bias=False)
        self.head = nn.Linear(width, vocab[1], bias=False)

    def forward(self, source: Tensor, target: Tensor, labels: Tensor) -> Tensor:
        """Cross entropy; the fed-back attention stands as a second input of the target's width."""
        memory, _ = self.encoder(F.dropout(self.source(source), 0.2))
        embedded = F.dropout(self.target(target), 0.2)
        states, _ = self.decoder(torch.cat((embedded, embedded), 2))
        keys = self.memory(memory).transpose(0, 1)
        weights = torch.softmax(torch.bmm(states.transpose(0, 1), keys.transpose(1, 2)), -1)
        context = torch.bmm(weights, memory.transpose(0, 1)).transpose(0, 1)
        x = torch.tanh(self.attended(torch.cat((states, context), 2)))
        return F.cross_entropy(self.head(x).flatten(0, 1), labels.flatten())


class WordModel(nn.Module):
    """Embedding, two LSTM layers and a projection to the vocabulary (200 wide on WikiText-2)."""

    def __init__(self, vocab: int, width: int, layers: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocab, width)
        self.lstm = nn.LSTM(width, width, layers, dropout=0.2)
        self.head = nn.Linear(width, vocab)

    def forward(self, tokens: Tensor, labels: Tensor) -> Tensor:
        """Cross entropy."""
        x, _ = self.lstm(F.dropout(self.embed(tokens), 0.2))
        return F.cross_entropy(self.head(F.dropout(x, 0.2)).flatten(0, 1), labels.flatten())


class LastState(nn.Module):
    """One recurrent layer, its cells unrolled over the steps; the last state is compared with a target."""

    def __init__(self, width: int, *, gated: bool) -> None:
        super().__init__()
        self.gated = gated
        self.cell = nn.Linear(2 * width, (4 if gated else 1) * width)

    def forward(self, inputs: Tensor, target: Tensor) -> Tensor:
        """Mean squared error."""
        state, memory = torch.zeros_like(target), torch.zeros_like(target)
        for step in inputs.unbind(0):
            x = self.cell(torch.cat((step, state), 1))
            if self.gated:
                enter, fresh, forget, leave = x.chunk(4, 1)
                memory = memory * torch.sigmoid(forget) + torch.sigmoid(enter) * torch.tanh(fresh)
                state = torch.tanh(memory) * torch.sigmoid(leave)
            else:
                state = torch.tanh(x)
        return F.mse_loss(state, target)


class PongPlayer(nn.Module):
    """Four strided convolutions on 80x80 frames, an LSTM of 512, actor and critic (Mnih et al. 2016)."""

    def __init__(self, actions: int = 6) -> None:
        super().__init__()
        self.convs = nn.ModuleList(nn.Conv2d(1 if layer == 0 else 32, 32, 3, 2, 1) for layer in range(4))
        self.lstm = nn.LSTM(32 * 5 * 5, 256)
        self.actor = nn.Linear(256, actions)
        self.critic = nn.Linear(256, 1)

    def forward(self, frames: Tensor, actions: Tensor, returns: Tensor) -> Tensor:
        """Policy, value and entropy losses over a roll-out of 20 frames."""
        batch, steps = frames.shape[:2]
        x = frames.flatten(0, 1)
        for conv in self.convs:
            x = F.elu(conv(x))
        states, _ = self.lstm(x.view(batch, steps, -1).transpose(0, 1))
        log_policy = F.log_softmax(self.actor(states), -1)
        advantage = returns.t() - self.critic(states).squeeze(-1)
        chosen = log_policy.gather(2, actions.t().unsqueeze(2)).squeeze(2)
        entropy = (log_policy * log_policy.exp()).sum(-1)
        return (advantage.pow(2) - chosen * advantage.detach() + 0.01 * entropy).sum()


def _entry(factory: Callable[[], nn.Module], inputs: Any, *references: Reference, **changes: Any) -> Entry:
    settings: dict[str, Any] = {"build": on_meta(factory), "inputs": inputs, "family": "rnn"}
    return Entry(**(settings | {"references": references} | changes))


def _pairs(length: int) -> Callable[[int], tuple[Tensor, ...]]:
    return lambda batch: (index(length, batch), index(length, batch), index(length, batch))


GNMT_FACTS: dict[str, Any] = {
    "task": "translation",
    "optimizer": "adam",
    "sample_unit": "sequence",
    "units_per_sample": 55.0,
    "throughput_unit": "tokens/s",
    "dataset": "wmt16-en-de",
    "dataset_samples": 3_498_161,
    "seq_len": 30,
}

ENTRIES: dict[str, Entry] = {
    "gnmt": _entry(GNMT, _pairs(30), **GNMT_FACTS, aliases=("gnmt-v2",)),
    "gnmt-8l": _entry(lambda: GNMT(layers=8), _pairs(30), **GNMT_FACTS),
    "nmt-luong-4l": _entry(lambda: LuongNMT((36_549, 36_549), 1024, 4), _pairs(30), **GNMT_FACTS),
    "nmt-luong-8l": _entry(lambda: LuongNMT((36_549, 36_549), 1024, 8), _pairs(30), **GNMT_FACTS),
    "nmt-luong-2l": _entry(
        lambda: LuongNMT((17_191, 7_709), 512, 2),
        _pairs(22),
        **(
            GNMT_FACTS
            | {
                "units_per_sample": 44.0,
                "dataset": "iwslt15-en-vi",
                "dataset_samples": 133_317,
                "seq_len": 22,
            }
        ),
    ),
    "lstm-lm": _entry(
        lambda: WordModel(33_278, 200, 2),
        lambda batch: (index(35, batch), index(35, batch)),
        Reference(
            quantity="params",
            value=33_278 * 200 * 2 + 33_278 + 2 * 4 * (200 * 200 * 2 + 400),
            source="sum over the layers of the published layout, by hand",
            tolerance=1e-6,
        ),
        task="lm-train",
        sample_unit="sequence",
        units_per_sample=35.0,
        throughput_unit="tokens/s",
        dataset="wikitext2",
        dataset_samples=2_088_628 // 35,
        seq_len=35,
    ),
    **{
        f"{name}-layer-{width}": _entry(
            lambda gated=gated, width=width: LastState(width, gated=gated),
            lambda batch, width=width: (real(30, batch, width), real(batch, width)),
            task="sequence",
            sample_unit="sequence",
            throughput_unit="sequences/s",
            seq_len=30,
        )
        for name, gated in (("lstm", True), ("rnn", False))
        for width in (128, 512, 1024)
    },
    "a3c-pong": _entry(
        PongPlayer,
        lambda batch: (real(batch, 20, 1, 80, 80), index(batch, 20), real(batch, 20)),
        task="rl",
        optimizer="adam",
        sample_unit="roll-out",
        throughput_unit="steps/s",
        dataset="PongDeterministic-v4",
    ),
}
