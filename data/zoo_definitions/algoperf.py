"""Models of AlgoPerf (Dahl et al. 2023, arXiv 2306.07179; mlcommons/algorithmic-efficiency).

Audio is padded to 20 s, 2000 frames of 80 bands; a molecule of ogbg-molpcba has 26 atoms and 56 directed
bonds in the mean (Hu et al. 2020, arXiv 2005.00687, table 2).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from . import Entry, Reference
from ._blocks import image, index, on_meta, real
from .recsys import ClickModel
from .speech_recognition import ctc

WIDTH = 512
FRAMES, BANDS, CHARACTERS = 2000, 80, 256
LIBRISPEECH: dict[str, Any] = {"dataset": "librispeech", "dataset_samples": 263_840}


class Subsample(nn.Module):
    """Two convolutions with stride 2 over time and bands, and a projection."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(1, WIDTH, 3, 2, 1)
        self.second = nn.Conv2d(WIDTH, WIDTH, 3, 2, 1)
        self.project = nn.Linear(WIDTH * BANDS // 4, WIDTH)

    def forward(self, spectrogram: Tensor) -> Tensor:
        """(batch, time / 4, width)."""
        x = F.relu(self.second(F.relu(self.first(spectrogram.unsqueeze(1)))))
        return F.dropout(self.project(x.permute(0, 2, 3, 1).flatten(2)), 0.1)


class FeedForward(nn.Module):
    """Norm, four times the width, back."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.up = nn.Linear(WIDTH, 4 * WIDTH)
        self.down = nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        """What is added to `x`."""
        return F.dropout(self.down(F.silu(self.up(self.norm(x)))), 0.1)


class ConformerBlock(nn.Module):
    """Half a feed-forward block, attention, convolution, the other half (Gulati et al. 2020)."""

    def __init__(self, heads: int, kernel: int) -> None:
        super().__init__()
        self.first, self.second = FeedForward(), FeedForward()
        self.attention_norm = nn.LayerNorm(WIDTH)
        self.joined = nn.Linear(WIDTH, 3 * WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH)
        self.conv_norm = nn.LayerNorm(WIDTH)
        self.gates = nn.Linear(WIDTH, 2 * WIDTH)
        self.depthwise = nn.Conv1d(WIDTH, WIDTH, kernel, padding=kernel // 2, groups=WIDTH, bias=False)
        self.batch_norm = nn.BatchNorm1d(WIDTH)
        self.mix = nn.Linear(WIDTH, WIDTH)
        self.last_norm = nn.LayerNorm(WIDTH)
        self.heads = heads

    def forward(self, x: Tensor) -> Tensor:
        """(batch, time, width)."""
        x = x + 0.5 * self.first(x)
        parts = self.joined(self.attention_norm(x)).chunk(3, -1)
        query, key, value = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in parts)
        seen = F.scaled_dot_product_attention(query, key, value)
        x = x + F.dropout(self.out(seen.transpose(1, 2).flatten(2)), 0.1)
        inner = F.glu(self.gates(self.conv_norm(x)), -1).transpose(1, 2)
        inner = F.silu(self.batch_norm(self.depthwise(inner))).transpose(1, 2)
        x = x + F.dropout(self.mix(inner), 0.1)
        return self.last_norm(x + 0.5 * self.second(x))


class Conformer(nn.Module):
    """Four blocks of 512 and CTC over 1024 word pieces."""

    def __init__(self) -> None:
        super().__init__()
        self.subsample = Subsample()
        self.blocks = nn.Sequential(*(ConformerBlock(8, 5) for _ in range(4)))
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, 1024)

    def forward(self, spectrogram: Tensor, targets: Tensor) -> Tensor:
        """CTC loss."""
        logits = self.head(self.norm(self.blocks(self.subsample(spectrogram))))
        return ctc(F.log_softmax(logits.transpose(0, 1), -1), targets)


class DeepSpeech(nn.Module):
    """Six bidirectional LSTMs and three linear layers with residuals, CTC over 1024 word pieces."""

    def __init__(self) -> None:
        super().__init__()
        self.subsample = Subsample()
        self.norms = nn.ModuleList(nn.BatchNorm1d(WIDTH) for _ in range(9))
        self.recurrent = nn.ModuleList(
            nn.LSTM(WIDTH, WIDTH // 2, bidirectional=True, batch_first=True) for _ in range(6)
        )
        self.linear = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(3))
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, 1024)

    def forward(self, spectrogram: Tensor, targets: Tensor) -> Tensor:
        """CTC loss."""
        x = self.subsample(spectrogram)
        for norm, layer in zip(self.norms, [*self.recurrent, *self.linear], strict=True):
            inner = norm(x.flatten(0, 1)).view(x.shape)
            if isinstance(layer, nn.LSTM):
                x = x + layer(inner)[0]
            else:
                x = x + F.dropout(F.relu(layer(inner)), 0.1)
        logits = self.head(self.norm(x))
        return ctc(F.log_softmax(logits.transpose(0, 1), -1), targets)


def _twice(inp: int, out: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for width in (inp, out):
        layers += [nn.Conv2d(width, out, 3, padding=1, bias=False), nn.InstanceNorm2d(out), nn.LeakyReLU(0.2)]
    return nn.Sequential(*layers)


class MriUNet(nn.Module):
    """U-Net of fastMRI: 32 channels, four times halved (Zbontar et al. 2018, arXiv 1811.08839)."""

    def __init__(self, channels: int = 32, halvings: int = 4) -> None:
        super().__init__()
        widths = [channels * 2**level for level in range(halvings + 1)]
        self.down = nn.ModuleList(
            _twice(inp, out) for inp, out in zip([1, *widths[:-2]], widths[:-1], strict=True)
        )
        self.middle = _twice(widths[-2], widths[-1])
        pairs = list(zip(widths[:0:-1], widths[-2::-1], strict=True))
        self.wider = nn.ModuleList(
            nn.Sequential(
                nn.ConvTranspose2d(inp, out, 2, 2, bias=False), nn.InstanceNorm2d(out), nn.LeakyReLU(0.2)
            )
            for inp, out in pairs
        )
        self.up = nn.ModuleList(_twice(inp, out) for inp, out in pairs)
        self.head = nn.Conv2d(channels, 1, 1)

    def forward(self, images: Tensor, targets: Tensor) -> Tensor:
        """Mean absolute error."""
        x, kept = images, []
        for layer in self.down:
            x = layer(x)
            kept.append(x)
            x = F.avg_pool2d(x, 2)
        x = self.middle(x)
        for wider, layer in zip(self.wider, self.up, strict=True):
            x = layer(torch.cat((wider(x), kept.pop()), 1))
        return F.l1_loss(self.head(x), targets)


class GraphNetwork(nn.Module):
    """Five rounds over bonds, atoms and the molecule (Battaglia et al. 2018, algorithm 1)."""

    def __init__(self, width: int = 256, outputs: int = 128, rounds: int = 5) -> None:
        super().__init__()
        self.atoms, self.bonds = nn.Linear(9, width), nn.Linear(3, width)
        layers = []
        for step in range(rounds):
            whole = width if step else outputs
            sizes = (3 * width + whole, 3 * width + whole, 2 * width + whole)
            layers += [
                nn.Sequential(nn.Linear(size, width), nn.LayerNorm(width), nn.ReLU(), nn.Dropout(0.1))
                for size in sizes
            ]
        self.layers = nn.ModuleList(layers)
        self.head = nn.Linear(width, outputs)
        self.outputs = outputs

    def forward(self, atoms: Tensor, bonds: Tensor, ends: Tensor, labels: Tensor) -> Tensor:
        """Binary cross entropy of 128 assays; `ends` (batch, 2, bonds) index both atoms of each bond."""
        nodes, edges = self.atoms(atoms), self.bonds(bonds)
        whole = atoms.new_zeros(atoms.shape[0], self.outputs)
        for step in range(0, len(self.layers), 3):
            sent, got = (end.unsqueeze(-1).expand(-1, -1, nodes.shape[-1]) for end in ends.unbind(1))
            seen = whole.unsqueeze(1)
            spread = seen.expand(-1, edges.shape[1], -1)
            joined = torch.cat((edges, nodes.gather(1, sent), nodes.gather(1, got), spread), -1)
            edges = self.layers[step](joined)
            sums = [torch.zeros_like(nodes).scatter_add(1, end, edges) for end in (sent, got)]
            joined = torch.cat((nodes, *sums, seen.expand(-1, nodes.shape[1], -1)), -1)
            nodes = self.layers[step + 1](joined)
            whole = self.layers[step + 2](torch.cat((nodes.sum(1), edges.sum(1), whole), -1))
        return F.binary_cross_entropy_with_logits(self.head(whole), labels)


def click_model() -> nn.Module:
    """DLRM small: one table of 4,194,304 rows, which the dense optimizer updates as a whole."""
    model = ClickModel(4_194_304)
    model.table.requires_grad_(True)
    return model


def _entry(factory: Callable[[], nn.Module], inputs: Any, *references: Reference, **changes: Any) -> Entry:
    settings: dict[str, Any] = {
        "build": on_meta(factory),
        "inputs": inputs,
        "optimizer": "adamw",
        "references": references,
    }
    return Entry(**(settings | changes))


def _audio(batch: int) -> tuple[Tensor, Tensor]:
    return real(batch, FRAMES, BANDS), index(batch, CHARACTERS)


SPEECH: dict[str, Any] = {
    "family": "speech",
    "task": "asr-train",
    "sample_unit": "utterance",
    "throughput_unit": "utterances/s",
    "seq_len": FRAMES,
    **LIBRISPEECH,
}

ENTRIES: dict[str, Entry] = {
    "conformer-algoperf": _entry(Conformer, _audio, **SPEECH),
    "deepspeech-algoperf": _entry(DeepSpeech, _audio, **SPEECH),
    "unet2d-fastmri": _entry(
        MriUNet,
        lambda batch: (image(batch, 1, 320, 320), image(batch, 1, 320, 320)),
        Reference(
            quantity="params",
            value=7.76e6,
            source="facebookresearch/fastMRI: U-Net of 32 channels, 7.76 M",
            tolerance=0.01,
        ),
        family="segmentation",
        task="mri-reconstruction",
        sample_unit="image",
        throughput_unit="images/s",
        dataset="fastmri-knee",
        dataset_samples=34_742,
        image_size=320,
    ),
    "gnn-ogbg-molpcba": _entry(
        GraphNetwork,
        lambda batch: (real(batch, 26, 9), real(batch, 56, 3), index(batch, 2, 56), real(batch, 128)),
        family="gnn",
        task="gnn",
        sample_unit="graph",
        throughput_unit="graphs/s",
        dataset="ogbg-molpcba",
        dataset_samples=350_343,
    ),
    "dlrm-small-criteo1tb": _entry(
        click_model,
        lambda batch: (real(batch, 13), index(batch, 26), real(batch)),
        family="recsys",
        task="recsys",
        sample_unit="interaction",
        dataset="criteo-1tb",
        dataset_samples=4_195_197_692,
    ),
}
