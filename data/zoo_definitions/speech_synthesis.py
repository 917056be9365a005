"""Text-to-speech networks on LJSpeech: 13,100 clips of 6.57 s, 22,050 Hz, hop 256.

A clip has 566 mel frames and 100 characters on average. Batches are padded to their longest clip, and
throughput counts real frames: the networks run on 850 frames and 180 characters, `units_per_sample`
is 566.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from . import Entry, Reference
from ._blocks import index, on_meta, real

MELS = 80
FRAMES = 850
CHARACTERS = 180
REAL_FRAMES = 566.0


def _conv_tanh(inp: int, out: int, act: nn.Module) -> nn.Sequential:
    return nn.Sequential(nn.Conv1d(inp, out, 5, padding=2), nn.BatchNorm1d(out), act, nn.Dropout(0.5))


class FusedLSTMCell(nn.LSTMCell):
    """LSTM cell as CUDA runs it: two products and one fused kernel for gates and state."""

    def forward(self, x: Tensor, state: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:  # type: ignore[override]
        """New hidden and cell state."""
        hidden, cell = state
        gates = F.linear(x, self.weight_ih), F.linear(hidden, self.weight_hh)
        new_hidden, new_cell, _ = torch.ops.aten._thnn_fused_lstm_cell(
            *gates, cell, self.bias_ih, self.bias_hh
        )
        return new_hidden, new_cell


class TacotronStep(nn.Module):
    """One decoder step: prenet output in, attention, two LSTM cells, one mel frame and a stop gate out."""

    def __init__(self) -> None:
        super().__init__()
        self.attention_rnn = FusedLSTMCell(256 + 512, 1024)
        self.query = nn.Linear(1024, 128, bias=False)
        self.location = nn.Conv1d(2, 32, 31, padding=15, bias=False)
        self.location_dense = nn.Linear(32, 128, bias=False)
        self.energy = nn.Linear(128, 1, bias=False)
        self.decoder_rnn = FusedLSTMCell(1024 + 512, 1024)
        self.project = nn.Linear(1024 + 512, MELS)
        self.gate = nn.Linear(1024 + 512, 1)

    def forward(
        self, frame: Tensor, memory: Tensor, keys: Tensor, state: tuple[Tensor, ...]
    ) -> tuple[Any, ...]:
        """Frame, gate and the next state."""
        hidden, cell, decoder_hidden, decoder_cell, weights, total, context = state
        hidden, cell = self.attention_rnn(torch.cat((frame, context), -1), (hidden, cell))
        hidden = F.dropout(hidden, 0.1)
        seen = self.location(torch.stack((weights, total), 1)).transpose(1, 2)
        mixed = torch.tanh(self.query(hidden).unsqueeze(1) + self.location_dense(seen) + keys)
        weights = torch.softmax(self.energy(mixed).squeeze(-1), 1)
        total = total + weights
        context = torch.bmm(weights.unsqueeze(1), memory).squeeze(1)
        decoder_hidden, decoder_cell = self.decoder_rnn(
            torch.cat((hidden, context), -1), (decoder_hidden, decoder_cell)
        )
        decoder_hidden = F.dropout(decoder_hidden, 0.1)
        out = torch.cat((decoder_hidden, context), 1)
        state = (hidden, cell, decoder_hidden, decoder_cell, weights, total, context)
        return self.project(out), self.gate(out), state


class Tacotron2(nn.Module):
    """Encoder, location-sensitive attention decoder with teacher forcing, postnet (Shen et al. 2018)."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(148, 512)
        self.convs = nn.Sequential(*(_conv_tanh(512, 512, nn.ReLU()) for _ in range(3)))
        self.encoder = nn.LSTM(512, 256, bidirectional=True)
        self.prenet = nn.Sequential(
            nn.Linear(MELS, 256, bias=False),
            nn.ReLU(),
            nn.Dropout(0.5),
            nn.Linear(256, 256, bias=False),
            nn.ReLU(),
            nn.Dropout(0.5),
        )
        self.memory_keys = nn.Linear(512, 128, bias=False)
        self.step = TacotronStep()
        self.postnet = nn.Sequential(
            _conv_tanh(MELS, 512, nn.Tanh()),
            *(_conv_tanh(512, 512, nn.Tanh()) for _ in range(3)),
            _conv_tanh(512, MELS, nn.Identity()),
        )

    def forward(self, text: Tensor, mel: Tensor, gate: Tensor) -> Tensor:
        """Squared error before and after the postnet plus the stop loss."""
        x = self.convs(self.embed(text).transpose(1, 2))
        memory, _ = self.encoder(x.permute(2, 0, 1))
        memory = memory.transpose(0, 1).contiguous()
        keys = self.memory_keys(memory)
        frames = self.prenet(mel.permute(2, 0, 1))
        batch = text.shape[0]
        blank = mel.new_zeros(batch, 1024)
        weights = mel.new_zeros(batch, text.shape[1])
        state = (blank, blank, blank, blank, weights, weights, mel.new_zeros(batch, 512))
        mels, gates = [], []
        # every step reads stand-ins of what came before the loop: the steps are then alike in all
        # their edges, and 850 of them fold into one
        memory, keys = (torch.empty_like(x, requires_grad=True) for x in (memory, keys))
        frame = torch.empty_like(frames[0], requires_grad=True)
        for _ in range(frames.shape[0]):
            out, stop, state = self.step(frame, memory, keys, state)
            mels.append(out)
            gates.append(stop)
        coarse = torch.stack(mels, 2)
        fine = coarse + self.postnet(coarse)
        stop_loss = F.binary_cross_entropy_with_logits(torch.cat(gates, 1), gate)
        return F.mse_loss(coarse, mel) + F.mse_loss(fine, mel) + stop_loss


class WaveNet(nn.Module):
    """Affine coupling network: eight dilated gated convolutions conditioned on the spectrogram."""

    def __init__(self, inp: int, channels: int = 512, layers: int = 8) -> None:
        super().__init__()
        self.channels = channels
        self.start = nn.Conv1d(inp, channels, 1)
        self.inputs = nn.ModuleList(
            nn.Conv1d(channels, 2 * channels, 3, padding=2**layer, dilation=2**layer)
            for layer in range(layers)
        )
        self.conditions = nn.ModuleList(nn.Conv1d(MELS * 8, 2 * channels, 1) for _ in range(layers))
        self.outputs = nn.ModuleList(
            nn.Conv1d(channels, channels * (2 if layer < layers - 1 else 1), 1) for layer in range(layers)
        )
        self.end = nn.Conv1d(channels, 2 * inp, 1)

    def forward(self, audio: Tensor, mel: Tensor) -> Tensor:
        """Bias and log scale."""
        x = self.start(audio)
        skip: Tensor | None = None
        for dilated, condition, output in zip(self.inputs, self.conditions, self.outputs, strict=True):
            both = dilated(x) + condition(mel)
            left, right = both.chunk(2, 1)
            out = output(torch.tanh(left) * torch.sigmoid(right))
            if out.shape[1] > self.channels:
                rest, out = out.chunk(2, 1)
                x = x + rest
            skip = out if skip is None else skip + out
        assert skip is not None
        return self.end(skip)


class WaveGlow(nn.Module):
    """Twelve flows over groups of eight samples (Prenger et al. 2018)."""

    def __init__(self) -> None:
        super().__init__()
        self.upsample = nn.ConvTranspose1d(MELS, MELS, 1024, 256)
        widths = [8 - 2 * (flow // 4) for flow in range(12)]
        self.mixes = nn.ModuleList(nn.Conv1d(width, width, 1, bias=False) for width in widths)
        self.nets = nn.ModuleList(WaveNet(width // 2) for width in widths)

    def forward(self, mel: Tensor, audio: Tensor) -> Tensor:
        """Negative log likelihood; the determinants of the 8x8 mixes are left out."""
        batch, samples = audio.shape
        spect = self.upsample(mel)[:, :, :samples]
        spect = (
            spect.reshape(batch, MELS, samples // 8, 8)
            .permute(0, 1, 3, 2)
            .reshape(batch, MELS * 8, samples // 8)
        )
        x = audio.view(batch, samples // 8, 8).transpose(1, 2)
        early: list[Tensor] = []
        log_scales = audio.new_zeros(())
        for flow, (mix, net) in enumerate(zip(self.mixes, self.nets, strict=True)):
            if flow in (4, 8):
                early.append(x[:, :2])
                x = x[:, 2:]
            x = mix(x)
            kept, changed = x.chunk(2, 1)
            bias, log_scale = net(kept, spect).chunk(2, 1)
            x = torch.cat((kept, torch.exp(log_scale) * changed + bias), 1)
            log_scales = log_scales + log_scale.sum()
        z = torch.cat((*early, x), 1)
        return (z.pow(2).sum() / 2 - log_scales) / z.numel()


class ResStack(nn.Module):
    """Three pairs of dilated and plain convolutions of one kernel size."""

    def __init__(self, channels: int, kernel: int) -> None:
        super().__init__()
        self.dilated = nn.ModuleList(
            nn.Conv1d(channels, channels, kernel, padding=d * (kernel // 2), dilation=d) for d in (1, 3, 5)
        )
        self.plain = nn.ModuleList(
            nn.Conv1d(channels, channels, kernel, padding=kernel // 2) for _ in range(3)
        )

    def forward(self, x: Tensor) -> Tensor:
        """Residual sum."""
        for dilated, plain in zip(self.dilated, self.plain, strict=True):
            x = x + plain(F.leaky_relu(dilated(F.leaky_relu(x, 0.1)), 0.1))
        return x


class HiFiGenerator(nn.Module):
    """HiFi-GAN V1 generator (Kong et al. 2020): 256 times upsampling in four steps."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv1d(MELS, 512, 7, padding=3)
        steps = ((8, 16), (8, 16), (2, 4), (2, 4))
        self.ups = nn.ModuleList(
            nn.ConvTranspose1d(512 >> step, 256 >> step, kernel, rate, (kernel - rate) // 2)
            for step, (rate, kernel) in enumerate(steps)
        )
        self.stacks = nn.ModuleList(
            nn.ModuleList(ResStack(256 >> step, kernel) for kernel in (3, 7, 11)) for step in range(4)
        )
        self.last = nn.Conv1d(32, 1, 7, padding=3)

    def forward(self, mel: Tensor) -> Tensor:
        """Waveform."""
        x = self.first(mel)
        for up, stacks in zip(self.ups, self.stacks, strict=True):
            x = up(F.leaky_relu(x, 0.1))
            x = sum((stack(x) for stack in stacks), start=torch.zeros((), device=x.device)) / 3
        return torch.tanh(self.last(F.leaky_relu(x)))


class PeriodDiscriminator(nn.Module):
    """Two-dimensional convolutions over the waveform folded by a period."""

    def __init__(self, period: int) -> None:
        super().__init__()
        self.period = period
        widths = (1, 32, 128, 512, 1024)
        self.convs = nn.ModuleList(
            [nn.Conv2d(i, o, (5, 1), (3, 1), (2, 0)) for i, o in zip(widths, widths[1:], strict=False)]
            + [nn.Conv2d(1024, 1024, (5, 1), 1, (2, 0))]
        )
        self.last = nn.Conv2d(1024, 1, (3, 1), 1, (1, 0))

    def forward(self, wave: Tensor) -> list[Tensor]:
        """Feature maps and score."""
        missing = -wave.shape[-1] % self.period
        x = F.pad(wave, (0, missing), mode="reflect") if missing else wave
        x = x.view(x.shape[0], 1, -1, self.period)
        maps = []
        for conv in self.convs:
            x = F.leaky_relu(conv(x), 0.1)
            maps.append(x)
        return [*maps, self.last(x)]


class ScaleDiscriminator(nn.Module):
    """Grouped one-dimensional convolutions of MelGAN."""

    def __init__(self) -> None:
        super().__init__()
        plan = (
            (1, 128, 15, 1, 1),
            (128, 128, 41, 2, 4),
            (128, 256, 41, 2, 16),
            (256, 512, 41, 4, 16),
            (512, 1024, 41, 4, 16),
            (1024, 1024, 41, 1, 16),
            (1024, 1024, 5, 1, 1),
        )
        self.convs = nn.ModuleList(nn.Conv1d(i, o, k, s, k // 2, groups=g) for i, o, k, s, g in plan)
        self.last = nn.Conv1d(1024, 1, 3, padding=1)

    def forward(self, wave: Tensor) -> list[Tensor]:
        """Feature maps and score."""
        x, maps = wave, []
        for conv in self.convs:
            x = F.leaky_relu(conv(x), 0.1)
            maps.append(x)
        return [*maps, self.last(x)]


class HiFiGAN(nn.Module):
    """One training step of generator and both discriminators, 8192 samples per clip."""

    def __init__(self) -> None:
        super().__init__()
        self.generator = HiFiGenerator()
        self.periods = nn.ModuleList(PeriodDiscriminator(period) for period in (2, 3, 5, 7, 11))
        self.scales = nn.ModuleList(ScaleDiscriminator() for _ in range(3))
        window = 1024
        self.register_buffer("basis", torch.empty(window // 2 + 1, 2, window))
        self.register_buffer("filters", torch.empty(MELS, window // 2 + 1))

    def spectrogram(self, wave: Tensor) -> Tensor:
        """Log-mel spectrogram; the Fourier transform is written as a product with its basis."""
        frames = F.pad(wave.squeeze(1), (384, 384)).unfold(1, 1024, 256)
        parts = frames @ self.basis.flatten(0, 1).t()
        magnitude = parts.unflatten(-1, (-1, 2)).pow(2).sum(-1).add(1e-9).sqrt()
        return torch.log(torch.clamp(magnitude @ self.filters.t(), min=1e-5))

    def judge(self, wave: Tensor) -> list[list[Tensor]]:
        """Feature maps of all discriminators."""
        pooled = [wave, F.avg_pool1d(wave, 4, 2, 2)]
        pooled.append(F.avg_pool1d(pooled[1], 4, 2, 2))
        maps = [period(wave) for period in self.periods]
        return maps + [scale(part) for scale, part in zip(self.scales, pooled, strict=True)]

    def forward(self, mel: Tensor, wave: Tensor) -> Tensor:
        """Sum of the discriminators' loss and the generator's loss."""
        fake = self.generator(mel)
        loss = wave.new_zeros(())
        for real_maps, fake_maps in zip(self.judge(wave), self.judge(fake.detach()), strict=True):
            loss = loss + (1 - real_maps[-1]).pow(2).mean() + fake_maps[-1].pow(2).mean()
        for real_maps, fake_maps in zip(self.judge(wave), self.judge(fake), strict=True):
            loss = loss + (1 - fake_maps[-1]).pow(2).mean()
            for truth, guess in zip(real_maps[:-1], fake_maps[:-1], strict=True):
                loss = loss + 2 * F.l1_loss(guess, truth)
        return loss + 45 * F.l1_loss(self.spectrogram(fake), self.spectrogram(wave))


class FeedForwardTransformer(nn.Module):
    """Self-attention and two convolutions of kernel 3, post norm."""

    def __init__(self, width: int, heads: int, head: int, filters: int) -> None:
        super().__init__()
        self.heads, self.head = heads, head
        self.qkv = nn.Linear(width, 3 * heads * head)
        self.out = nn.Linear(heads * head, width, bias=False)
        self.norm = nn.LayerNorm(width)
        self.conv1 = nn.Conv1d(width, filters, 3, padding=1)
        self.conv2 = nn.Conv1d(filters, width, 3, padding=1)
        self.norm2 = nn.LayerNorm(width)

    def forward(self, x: Tensor) -> Tensor:
        """(batch, length, width); attention weights written out as both implementations do."""
        batch, length, _ = x.shape
        q, k, v = self.qkv(x).view(batch, length, 3, self.heads, self.head).permute(2, 0, 3, 1, 4)
        scores = torch.matmul(q, k.transpose(2, 3)) * self.head**-0.5
        weights = F.dropout(torch.softmax(scores, -1), 0.1)
        mixed = torch.matmul(weights, v).transpose(1, 2).reshape(batch, length, self.heads * self.head)
        x = self.norm(x + F.dropout(self.out(mixed), 0.1))
        hidden = F.relu(self.conv1(x.transpose(1, 2)))
        return self.norm2(x + F.dropout(self.conv2(hidden).transpose(1, 2), 0.1))


class Predictor(nn.Module):
    """Two convolutions with layer norm and a linear output: duration, pitch or energy."""

    def __init__(self, width: int, filters: int = 256) -> None:
        super().__init__()
        self.convs = nn.ModuleList(nn.Conv1d(i, filters, 3, padding=1) for i in (width, filters))
        self.norms = nn.ModuleList(nn.LayerNorm(filters) for _ in range(2))
        self.head = nn.Linear(filters, 1)

    def forward(self, x: Tensor) -> Tensor:
        """(batch, length)."""
        for conv, norm in zip(self.convs, self.norms, strict=True):
            x = F.dropout(norm(F.relu(conv(x.transpose(1, 2))).transpose(1, 2)), 0.1)
        return self.head(x).squeeze(-1)


class FastSpeech(nn.Module):
    """FastSpeech (Ren et al. 2019) and FastPitch (Lancucki 2020) with its learned alignment."""

    def __init__(self, heads: int, head: int, *, pitch: bool) -> None:
        super().__init__()
        width = 384
        self.embed = nn.Embedding(148, width)
        self.encoder = nn.Sequential(*(FeedForwardTransformer(width, heads, head, 1536) for _ in range(6)))
        self.decoder = nn.Sequential(*(FeedForwardTransformer(width, heads, head, 1536) for _ in range(6)))
        self.duration = Predictor(width)
        self.project = nn.Linear(width, MELS)
        self.pitch = Predictor(width) if pitch else None
        if pitch:
            self.energy = Predictor(width)
            self.pitch_embed = nn.Conv1d(1, width, 3, padding=1)
            self.energy_embed = nn.Conv1d(1, width, 3, padding=1)
            self.keys = nn.Sequential(nn.Conv1d(width, 768, 3, padding=1), nn.ReLU(), nn.Conv1d(768, MELS, 1))
            self.queries = nn.Sequential(
                nn.Conv1d(MELS, 160, 3, padding=1),
                nn.ReLU(),
                nn.Conv1d(160, MELS, 1),
                nn.ReLU(),
                nn.Conv1d(MELS, MELS, 1),
            )

    def align(self, text: Tensor, mel: Tensor) -> Tensor:
        """Negative log likelihood of the soft alignment between frames and characters."""
        keys = self.keys(text.transpose(1, 2)).unsqueeze(2)
        distance = (self.queries(mel).unsqueeze(3) - keys).pow(2).sum(1)
        scores = F.log_softmax(-0.0005 * distance, -1)
        return -scores.cumsum(1).logsumexp(2).mean()

    def forward(self, text: Tensor, mel: Tensor, source: Tensor, target: Tensor) -> Tensor:
        """Mel error, duration error and, for FastPitch, pitch, energy and alignment losses."""
        embedded = self.embed(text)
        x = self.encoder(embedded)
        loss = F.mse_loss(self.duration(x), target)
        if self.pitch is not None:
            loss = loss + F.mse_loss(self.pitch(x), target) + F.mse_loss(self.energy(x), target)
            loss = loss + self.align(embedded, mel)
            x = x + self.pitch_embed(target.unsqueeze(1)).transpose(1, 2)
            x = x + self.energy_embed(target.unsqueeze(1)).transpose(1, 2)
        spread = x.gather(1, source.unsqueeze(-1).expand(-1, -1, x.shape[-1]))
        out = self.project(self.decoder(spread))
        return loss + F.mse_loss(out, mel.transpose(1, 2))


def _entry(factory: Callable[[], nn.Module], inputs: Any, *references: Reference, **changes: Any) -> Entry:
    settings: dict[str, Any] = {
        "build": on_meta(factory),
        "inputs": inputs,
        "family": "speech",
        "task": "tts",
        "optimizer": "adam",
        "sample_unit": "clip",
        "units_per_sample": REAL_FRAMES,
        "throughput_unit": "mel frames/s",
        "dataset": "ljspeech-1.1",
        "dataset_samples": 12_500,
        "references": references,
    }
    return Entry(**(settings | changes))


def _params(value: float, source: str, tolerance: float = 0.01) -> Reference:
    return Reference(quantity="params", value=value, source=source, tolerance=tolerance)


def _clip(batch: int) -> tuple[Tensor, ...]:
    return (
        index(batch, CHARACTERS),
        real(batch, MELS, FRAMES),
        index(batch, FRAMES),
        real(batch, CHARACTERS),
    )


ENTRIES: dict[str, Entry] = {
    "tacotron2": _entry(
        Tacotron2,
        lambda batch: (index(batch, CHARACTERS), real(batch, MELS, FRAMES), real(batch, FRAMES)),
        _params(28.2e6, "NVIDIA/tacotron2, 28.2M parameters"),
        seq_len=FRAMES,
    ),
    "waveglow": _entry(
        WaveGlow,
        lambda batch: (real(batch, MELS, 32), real(batch, 8000)),
        _params(268e6, "NVIDIA WaveGlow with 512 channels, 268M parameters"),
        units_per_sample=8000.0,
        throughput_unit="audio samples/s",
        seq_len=8000,
    ),
    "hifigan-v1": _entry(
        HiFiGAN,
        lambda batch: (real(batch, MELS, 32), real(batch, 1, 8192)),
        _params(
            13.92e6 + 41.1e6 + 29.6e6, "Kong et al. 2020: V1 generator 13.92M; discriminators 70.7M", 0.02
        ),
        optimizer="adamw",
        units_per_sample=32.0,
        seq_len=8192,
    ),
    "fastpitch": _entry(
        lambda: FastSpeech(1, 64, pitch=True),
        _clip,
        optimizer="lamb",
        seq_len=FRAMES,
    ),
    "fastspeech": _entry(lambda: FastSpeech(2, 64, pitch=False), _clip, seq_len=FRAMES),
}
