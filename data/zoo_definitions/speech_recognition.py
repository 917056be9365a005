"""Speech recognisers. A sample is an utterance of the average padded length of its dataset.

Lengths: LibriSpeech-960h has 281,241 utterances of 12.3 s on average, cut at 16.7 s in training;
VoxForge and CMU ARCTIC sentences take 3 to 10 s.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn
from torch.nn import functional as F

from . import Entry, Reference
from ._blocks import index, on_meta, real

LABELS = 29
LIBRISPEECH = {"dataset": "librispeech", "dataset_samples": 281_241}


def ctc(log_probs: Tensor, targets: Tensor) -> Tensor:
    """CTC over full lengths: (time, batch, labels) against (batch, characters)."""
    steps, batch, _ = log_probs.shape
    lengths = (steps,) * batch, (targets.shape[1],) * batch
    return F.ctc_loss(log_probs, targets, *lengths, reduction="sum")


class SummedRNN(nn.Module):
    """Batch norm, bidirectional recurrence, sum of both directions."""

    def __init__(self, inp: int, hidden: int, kind: type[nn.RNNBase], *, norm: bool) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(inp) if norm else None
        self.rnn = kind(inp, hidden, bidirectional=True)
        self.hidden = hidden

    def forward(self, x: Tensor) -> Tensor:
        """(time, batch, hidden)."""
        steps, batch, width = x.shape
        if self.norm is not None:
            x = self.norm(x.reshape(steps * batch, width)).view(steps, batch, width)
        out, _ = self.rnn(x)
        return out.view(steps, batch, 2, self.hidden).sum(2)


class DeepSpeech2(nn.Module):
    """Two 2-D convolutions, recurrent layers and CTC (Amodei et al. 2015)."""

    def __init__(self, kind: type[nn.RNNBase], hidden: int, layers: int) -> None:
        super().__init__()
        self.conv = nn.Sequential(
            nn.Conv2d(1, 32, (41, 11), (2, 2), (20, 5)),
            nn.BatchNorm2d(32),
            nn.Hardtanh(0, 20),
            nn.Conv2d(32, 32, (21, 11), (2, 1), (10, 5)),
            nn.BatchNorm2d(32),
            nn.Hardtanh(0, 20),
        )
        self.rnns = nn.ModuleList(
            SummedRNN(32 * 41 if layer == 0 else hidden, hidden, kind, norm=layer > 0)
            for layer in range(layers)
        )
        self.norm = nn.BatchNorm1d(hidden)
        self.head = nn.Linear(hidden, LABELS, bias=False)

    def forward(self, spectrogram: Tensor, targets: Tensor) -> Tensor:
        """CTC loss."""
        x = self.conv(spectrogram)
        batch, channels, bands, steps = x.shape
        x = x.view(batch, channels * bands, steps).permute(2, 0, 1).contiguous()
        for rnn in self.rnns:
            x = rnn(x)
        logits = self.head(self.norm(x.reshape(steps * batch, -1))).view(steps, batch, LABELS)
        return ctc(F.log_softmax(logits, -1), targets)


class TimeConv(nn.Module):
    """One-dimensional convolution with batch norm, dense or depthwise separable."""

    def __init__(
        self, inp: int, out: int, kernel: int, stride: int = 1, dilation: int = 1, *, separable: bool = False
    ) -> None:
        super().__init__()
        pad = dilation * (kernel - 1) // 2
        if separable and kernel > 1:
            self.conv: nn.Module = nn.Sequential(
                nn.Conv1d(inp, inp, kernel, stride, pad, dilation, groups=inp, bias=False),
                nn.Conv1d(inp, out, 1, bias=False),
            )
        else:
            self.conv = nn.Conv1d(inp, out, kernel, stride, pad, dilation, bias=False)
        self.norm = nn.BatchNorm1d(out)

    def forward(self, x: Tensor) -> Tensor:
        """Normalised convolution."""
        return self.norm(self.conv(x))


class TimeBlock(nn.Module):
    """`depth` convolutions; 1x1 shortcuts from each given input are added before the last ReLU."""

    def __init__(
        self, inputs: list[int], out: int, kernel: int, depth: int, dropout: float, *, separable: bool
    ) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            TimeConv(inputs[-1] if level == 0 else out, out, kernel, separable=separable)
            for level in range(depth)
        )
        self.shortcuts = nn.ModuleList(TimeConv(inp, out, 1) for inp in inputs)
        self.dropout = dropout

    def forward(self, sources: list[Tensor]) -> Tensor:
        """Block output."""
        x = sources[-1]
        for layer in self.layers[:-1]:
            x = F.dropout(F.relu(layer(x)), self.dropout)
        x = self.layers[-1](x)
        for shortcut, source in zip(self.shortcuts, sources, strict=True):
            x = x + shortcut(source)
        return F.dropout(F.relu(x), self.dropout)


class Jasper(nn.Module):
    """Jasper 10x5 dense residual (Li et al. 2019) and QuartzNet 15x5 (Kriman et al. 2019)."""

    def __init__(
        self,
        blocks: tuple[tuple[int, int], ...],
        stem: int,
        tail: tuple[tuple[int, int], tuple[int, int]],
        *,
        dense: bool,
        separable: bool,
    ) -> None:
        super().__init__()
        self.dense = dense
        self.stem = TimeConv(64, 256, stem, 2, separable=separable)
        widths = [256]
        layers: list[nn.Module] = []
        for out, kernel in blocks:
            inputs = list(widths) if dense else [widths[-1]]
            layers.append(TimeBlock(inputs, out, kernel, 5, 0.2 if dense else 0.0, separable=separable))
            widths.append(out)
        self.blocks = nn.ModuleList(layers)
        (width, kernel), (last, last_kernel) = tail
        self.tail = nn.Sequential(
            TimeConv(widths[-1], width, kernel, dilation=2, separable=separable),
            nn.ReLU(),
            TimeConv(width, last, last_kernel),
            nn.ReLU(),
        )
        self.head = nn.Conv1d(last, LABELS, 1)

    def forward(self, features: Tensor, targets: Tensor) -> Tensor:
        """CTC loss."""
        outputs = [F.relu(self.stem(features))]
        for block in self.blocks:
            outputs.append(block(outputs if self.dense else outputs[-1:]))
        logits = self.head(self.tail(outputs[-1])).permute(2, 0, 1)
        return ctc(F.log_softmax(logits, -1), targets)


class RNNT(nn.Module):
    """LSTM transducer: 2 encoder layers, the others on pairs of frames, joint over time and label.

    The sizes are those of MLPerf training. `fused`: the loss passes over the logits once and its gradient
    takes their place, as in apex's transducer.
    """

    def __init__(
        self,
        vocab: int = 1024,
        *,
        width: int = 1024,
        layers: int = 3,
        predicted: int = 512,
        joint: int = 512,
        fused: bool = False,
    ) -> None:
        super().__init__()
        self.fused = fused
        self.first = nn.LSTM(240, width, 2)
        self.second = nn.LSTM(2 * width, width, layers)
        self.embed = nn.Embedding(vocab - 1, predicted)
        self.prediction = nn.LSTM(predicted, predicted, 2)
        self.from_encoder = nn.Linear(width, joint)
        self.from_prediction = nn.Linear(predicted, joint)
        self.head = nn.Linear(joint, vocab)

    def forward(self, features: Tensor, tokens: Tensor) -> Tensor:
        """Transducer loss; the alignment sums stand as one pass over time and one over labels."""
        x, _ = self.first(features)
        steps, batch, width = x.shape
        x = x.view(steps // 2, 2, batch, width).transpose(1, 2).reshape(steps // 2, batch, 2 * width)
        x, _ = self.second(x)
        y, _ = self.prediction(self.embed(tokens).transpose(0, 1))
        encoded = self.from_encoder(x).transpose(0, 1).unsqueeze(2)
        predicted = self.from_prediction(y).transpose(0, 1).unsqueeze(1)
        logits = self.head(F.dropout(F.relu(encoded + predicted), 0.3))
        if self.fused:
            labels = tokens.unsqueeze(1).expand(-1, logits.shape[1], -1)
            return F.cross_entropy(logits.flatten(0, 2), labels.flatten())
        log_probs = F.log_softmax(logits, -1)
        chosen = tokens[:, None, :, None].expand(-1, log_probs.shape[1], -1, 1)
        labels = log_probs.gather(3, chosen).squeeze(3)
        alpha = (log_probs[..., 0].cumsum(1) + labels.cumsum(2)).logsumexp(2)
        return -alpha[:, -1].mean()


def _entry(factory: Callable[[], nn.Module], inputs: Any, *references: Reference, **changes: Any) -> Entry:
    settings: dict[str, Any] = {
        "build": on_meta(factory),
        "inputs": inputs,
        "family": "speech",
        "task": "asr-train",
        "optimizer": "adam",
        "sample_unit": "utterance",
        "throughput_unit": "utterances/s",
        "references": references,
    }
    return Entry(**(settings | changes))


def _params(value: float, source: str, tolerance: float = 0.01) -> Reference:
    return Reference(quantity="params", value=value, source=source, tolerance=tolerance)


def _spectrogram(frames: int, characters: int) -> Callable[[int], tuple[Tensor, Tensor]]:
    return lambda batch: (real(batch, 1, 161, frames), index(batch, characters))


def _mel(frames: int, characters: int) -> Callable[[int], tuple[Tensor, Tensor]]:
    return lambda batch: (real(batch, 64, frames), index(batch, characters))


JASPER_BLOCKS = tuple(
    block for block in ((256, 11), (384, 13), (512, 17), (640, 21), (768, 25)) for _ in range(2)
)
QUARTZNET_BLOCKS = tuple(
    block for block in ((256, 33), (256, 39), (512, 51), (512, 63), (512, 75)) for _ in range(3)
)

ENTRIES: dict[str, Entry] = {
    "deepspeech2": _entry(
        lambda: DeepSpeech2(nn.GRU, 800, 5),
        _spectrogram(600, 60),
        optimizer="momentum-sgd",
        dataset="voxforge+cmu-arctic",
        seq_len=600,
    ),
    "deepspeech2--librispeech": _entry(
        lambda: DeepSpeech2(nn.LSTM, 1024, 5),
        _spectrogram(1300, 185),
        optimizer="adamw",
        **LIBRISPEECH,
        seq_len=1300,
    ),
    "jasper-10x5dr": _entry(
        lambda: Jasper(JASPER_BLOCKS, 11, ((896, 29), (1024, 1)), dense=True, separable=False),
        _mel(1672, 185),
        _params(333e6, "Li et al. 2019, table 5: Jasper DR 10x5, 333M"),
        optimizer="novograd",
        throughput_unit="sequences/s",
        **(LIBRISPEECH | {"dataset": "librispeech-960h"}),
        seq_len=1672,
    ),
    "quartznet-15x5": _entry(
        lambda: Jasper(QUARTZNET_BLOCKS, 33, ((512, 87), (1024, 1)), dense=False, separable=True),
        _mel(1672, 185),
        _params(18.9e6, "Kriman et al. 2019: QuartzNet 15x5, 18.9M"),
        optimizer="novograd",
        throughput_unit="sequences/s",
        **(LIBRISPEECH | {"dataset": "librispeech-960h"}),
        seq_len=1672,
    ),
    "rnnt": _entry(
        RNNT,
        lambda batch: (real(410, batch, 240), index(batch, 56)),
        _params(49.1e6, "MLPerf training RNN-T reference, 49M parameters"),
        optimizer="lamb",
        throughput_unit="samples/s",
        **LIBRISPEECH,
        seq_len=410,
    ),
    # CAIMAN-ASR: utterances of 16.6 s (seconds over utterances per second of its table), 30 ms a frame; 54
    # and 50 word pieces in one are estimates.
    "rnnt-caiman-base": _entry(
        lambda: RNNT(8704, layers=6, joint=768, fused=True),
        lambda batch: (real(552, batch, 240), index(batch, 54)),
        _params(85e6, "CAIMAN-ASR training/README.md: base, 85M parameters", 0.03),
        optimizer="lamb",
        throughput_unit="utterances/s",
        seq_len=552,
    ),
    "rnnt-caiman-large": _entry(
        lambda: RNNT(17408, width=1536, layers=6, predicted=768, joint=1024, fused=True),
        lambda batch: (real(552, batch, 240), index(batch, 50)),
        _params(196e6, "CAIMAN-ASR training/README.md: large, 196M parameters", 0.03),
        optimizer="lamb",
        throughput_unit="utterances/s",
        seq_len=552,
    ),
}
