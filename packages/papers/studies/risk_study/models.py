"""Small models as functions of their parameters: every layer has a name that a recipe may round.

A model is a `Task`: parameters by name, the loss of a batch, batches of training and of validation.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F

from .products import Products
from .samples import Samples, load_samples

Tensor = Any
Parameters = dict[str, Any]
Loss = Callable[[Parameters, Products, tuple[Tensor, ...]], Tensor]


@dataclass(frozen=True, kw_only=True)
class Task:
    """What is trained."""

    parameters: Parameters
    loss: Loss
    training: Iterator[tuple[Tensor, ...]]
    """Batches without end."""
    validation: tuple[tuple[Tensor, ...], ...]
    """All batches of one evaluation, the same each time."""
    data: str


class _Init:
    """Parameters drawn one after the other from one generator, on the CPU: the same on every device."""

    def __init__(self, seed: int, device: str) -> None:
        self.random = torch.Generator().manual_seed(seed)
        self.device = device
        self.parameters: Parameters = {}

    def weight(self, name: str, *shape: int, std: float | None = None) -> None:
        """A matrix or kernel with standard deviation 1 / sqrt(inner size), or as given."""
        inner = math.prod(shape[1:])
        self._add(name, torch.randn(shape, generator=self.random) * (std or inner**-0.5))

    def bias(self, name: str, size: int) -> None:
        """Zeros."""
        self._add(name, torch.zeros(size))

    def norm(self, name: str, size: int) -> None:
        """Scale one, shift zero."""
        self._add(f"{name}.scale", torch.ones(size))
        self._add(f"{name}.shift", torch.zeros(size))

    def _add(self, name: str, value: Tensor) -> None:
        self.parameters[name] = value.to(self.device).requires_grad_()


def _norm(p: Parameters, products: Products, name: str, x: Tensor) -> Tensor:
    normalize = partial(
        F.layer_norm, normalized_shape=x.shape[-1:], weight=p[f"{name}.scale"], bias=p[f"{name}.shift"]
    )
    return products.norm(name, normalize, x)


def _linear(p: Parameters, products: Products, name: str, x: Tensor) -> Tensor:
    return products.linear(name, x, p[f"{name}.weight"], p.get(f"{name}.bias"))


def _block_init(init: _Init, name: str, width: int) -> None:
    init.norm(f"{name}.norm1", width)
    init.weight(f"{name}.qkv.weight", 3 * width, width)
    init.weight(f"{name}.out.weight", width, width)
    init.norm(f"{name}.norm2", width)
    init.weight(f"{name}.up.weight", 4 * width, width)
    init.weight(f"{name}.down.weight", width, 4 * width)


def _block(
    p: Parameters, products: Products, name: str, x: Tensor, heads: int, mask: Tensor | None
) -> Tensor:
    """A block with norms before its parts, as GPT-2 and ViT have it."""
    batch, length, width = x.shape
    qkv = _linear(p, products, f"{name}.qkv", _norm(p, products, f"{name}.norm1", x))
    q, k, v = qkv.view(batch, length, 3, heads, width // heads).permute(2, 0, 3, 1, 4)
    scores = products.matmul(f"{name}.scores", q, k.transpose(-2, -1)) / math.sqrt(width // heads)
    scores = scores if mask is None else scores + mask
    mixed = products.matmul(f"{name}.values", scores.softmax(dim=-1), v)
    x = x + _linear(p, products, f"{name}.out", mixed.transpose(1, 2).reshape(batch, length, width))
    hidden = F.gelu(_linear(p, products, f"{name}.up", _norm(p, products, f"{name}.norm2", x)))
    return x + _linear(p, products, f"{name}.down", hidden)


def _shuffled(samples: Samples, batch: int, seed: int, device: str) -> Iterator[tuple[Tensor, ...]]:
    """Batches of epochs in random order; what is left of an epoch is left out."""
    arrays = [torch.tensor(array).to(device) for array in samples.training]
    random = torch.Generator().manual_seed(seed)
    while True:
        order = torch.randperm(len(arrays[0]), generator=random)
        for rows in order.split(batch)[: len(order) // batch]:
            yield tuple(array[rows] for array in arrays)


def _whole(samples: Samples, device: str) -> tuple[tuple[Tensor, ...], ...]:
    return (tuple(torch.tensor(array).to(device) for array in samples.validation),)


def decoder(sizes: Mapping[str, int], seed: int, device: str) -> Task:
    """A language model over bytes: predicts the next one."""
    samples = load_samples("manual")
    width, length, heads, layers = (sizes[name] for name in ("width", "length", "heads", "layers"))
    batch, vocabulary = sizes["batch"], 128
    init = _Init(seed, device)
    init.weight("embedding.weight", vocabulary, width, std=0.02)
    init.weight("position.weight", length, width, std=0.02)
    for layer in range(layers):
        _block_init(init, f"block{layer}", width)
    init.norm("norm", width)
    init.weight("head.weight", vocabulary, width)
    mask = torch.full((length, length), -torch.inf, device=device).triu(1)

    def loss(p: Parameters, products: Products, inputs: tuple[Tensor, ...]) -> Tensor:
        text = inputs[0]
        x = products.embedding("embedding", text[:, :-1], p["embedding.weight"]) + p["position.weight"]
        for layer in range(layers):
            x = _block(p, products, f"block{layer}", x, heads, mask)
        logits = _linear(p, products, "head", _norm(p, products, "norm", x))
        return F.cross_entropy(logits.flatten(0, 1), text[:, 1:].flatten())

    def windows(data: Tensor, starts: Tensor) -> tuple[Tensor, ...]:
        return (data[starts[:, None] + torch.arange(length + 1)].to(device),)

    def training() -> Iterator[tuple[Tensor, ...]]:
        data = torch.tensor(samples.training[0])
        random = torch.Generator().manual_seed(seed)
        while True:
            yield windows(data, torch.randint(len(data) - length - 1, (batch,), generator=random))

    held = torch.tensor(samples.validation[0])
    starts = torch.linspace(0, len(held) - length - 2, sizes["validation_windows"]).long()
    return Task(
        parameters=init.parameters,
        loss=loss,
        training=training(),
        validation=tuple(windows(held, part) for part in starts.split(64)),
        data=samples.description,
    )


def encoder(sizes: Mapping[str, int], seed: int, device: str) -> Task:
    """A vision transformer on digits: 16 patches of 2 x 2 pixels, their mean classified."""
    samples = load_samples("digits")
    width, heads, layers = (sizes[name] for name in ("width", "heads", "layers"))
    init = _Init(seed, device)
    init.weight("embedding.weight", width, 4)
    init.weight("position.weight", 16, width, std=0.02)
    for layer in range(layers):
        _block_init(init, f"block{layer}", width)
    init.norm("norm", width)
    init.weight("head.weight", 10, width)

    def loss(p: Parameters, products: Products, inputs: tuple[Tensor, ...]) -> Tensor:
        images, labels = inputs
        patches = images.view(-1, 4, 2, 4, 2).transpose(2, 3).reshape(-1, 16, 4)
        x = _linear(p, products, "embedding", patches) + p["position.weight"]
        for layer in range(layers):
            x = _block(p, products, f"block{layer}", x, heads, None)
        pooled = _norm(p, products, "norm", x).mean(dim=1)
        return F.cross_entropy(_linear(p, products, "head", pooled), labels)

    return _task(init, loss, samples, sizes["batch"], seed)


def convnet(sizes: Mapping[str, int], seed: int, device: str) -> Task:
    """Three convolutions on digits, each with a norm of groups of channels, averaged and classified."""
    samples = load_samples("digits")
    width = sizes["width"]
    channels = (1, width, 2 * width, 2 * width)
    init = _Init(seed, device)
    for layer, (inner, outer) in enumerate(zip(channels, channels[1:], strict=False)):
        init.weight(f"conv{layer}.weight", outer, inner, 3, 3)
        init.norm(f"norm{layer}", outer)
    init.weight("head.weight", 10, channels[-1])
    init.bias("head.bias", 10)

    def loss(p: Parameters, products: Products, inputs: tuple[Tensor, ...]) -> Tensor:
        x, labels = inputs[0][:, None], inputs[1]
        for layer in range(3):
            x = products.conv(f"conv{layer}", x, p[f"conv{layer}.weight"], stride=2 if layer == 1 else 1)
            scale, shift = p[f"norm{layer}.scale"], p[f"norm{layer}.shift"]
            normalize = partial(F.group_norm, num_groups=4, weight=scale, bias=shift)
            x = F.relu(products.norm(f"norm{layer}", normalize, x))
        return F.cross_entropy(_linear(p, products, "head", x.mean(dim=(2, 3))), labels)

    return _task(init, loss, samples, sizes["batch"], seed)


def _perceptron_init(init: _Init, widths: tuple[int, ...]) -> None:
    for layer, (inner, outer) in enumerate(zip(widths, widths[1:], strict=False)):
        init.weight(f"linear{layer}.weight", outer, inner)
        init.bias(f"linear{layer}.bias", outer)


def _perceptron(p: Parameters, products: Products, x: Tensor, layers: int) -> Tensor:
    for layer in range(layers):
        x = _linear(p, products, f"linear{layer}", x)
        x = F.relu(x) if layer < layers - 1 else x
    return x


def mlp(sizes: Mapping[str, int], seed: int, device: str) -> Task:
    """Three fully connected layers on digits."""
    samples = load_samples("digits")
    init = _Init(seed, device)
    _perceptron_init(init, (64, sizes["width"], sizes["width"], 10))

    def loss(p: Parameters, products: Products, inputs: tuple[Tensor, ...]) -> Tensor:
        return F.cross_entropy(_perceptron(p, products, inputs[0].flatten(1), 3), inputs[1])

    return _task(init, loss, samples, sizes["batch"], seed)


def regression(sizes: Mapping[str, int], seed: int, device: str) -> Task:
    """Three fully connected layers on the diabetes figures; the loss is the mean squared error."""
    samples = load_samples("diabetes")
    init = _Init(seed, device)
    _perceptron_init(init, (10, sizes["width"], sizes["width"], 1))

    def loss(p: Parameters, products: Products, inputs: tuple[Tensor, ...]) -> Tensor:
        return F.mse_loss(_perceptron(p, products, inputs[0], 3)[:, 0], inputs[1])

    return _task(init, loss, samples, sizes["batch"], seed)


def diffusion(sizes: Mapping[str, int], seed: int, device: str) -> Task:
    """A denoiser of patches of photos: predicts the noise at a random time, arXiv 2006.11239, equation 14."""
    samples = load_samples("photos")
    width, layers, batch = sizes["width"], sizes["layers"], sizes["batch"]
    init = _Init(seed, device)
    init.weight("embedding.weight", width, 64 + 32)
    for layer in range(layers):
        init.norm(f"block{layer}.norm", width)
        init.weight(f"block{layer}.up.weight", 2 * width, width)
        init.weight(f"block{layer}.down.weight", width, 2 * width)
    init.norm("norm", width)
    init.weight("head.weight", 64, width)
    frequencies = torch.exp(torch.linspace(0.0, math.log(100.0), 16)).to(device)

    def loss(p: Parameters, products: Products, inputs: tuple[Tensor, ...]) -> Tensor:
        clean, noise, time = inputs
        angle = time[:, None] * (math.pi / 2.0)
        waves = time[:, None] * frequencies
        noisy = torch.cat([angle.cos() * clean + angle.sin() * noise, waves.sin(), waves.cos()], dim=1)
        x = _linear(p, products, "embedding", noisy)
        for layer in range(layers):
            hidden = _linear(p, products, f"block{layer}.up", _norm(p, products, f"block{layer}.norm", x))
            x = x + _linear(p, products, f"block{layer}.down", F.gelu(hidden))
        return F.mse_loss(_linear(p, products, "head", _norm(p, products, "norm", x)), noise)

    def noised(clean: Tensor, random: Any) -> tuple[Tensor, ...]:
        noise, time = torch.randn(clean.shape, generator=random), torch.rand(len(clean), generator=random)
        return clean, noise.to(device), time.to(device)

    def training() -> Iterator[tuple[Tensor, ...]]:
        random = torch.Generator().manual_seed(seed + 1_000_000)
        for (clean,) in _shuffled(samples, batch, seed, device):
            yield noised(clean, random)

    held = _whole(samples, device)[0][0]
    return Task(
        parameters=init.parameters,
        loss=loss,
        training=training(),
        validation=(noised(held, torch.Generator().manual_seed(0)),),
        data=samples.description,
    )


def gnn(sizes: Mapping[str, int], seed: int, device: str) -> Task:
    """A graph convolutional network (arXiv 1609.02907) over the digits, all nodes in each step."""
    samples = load_samples("digits-graph")
    width = sizes["width"]
    init = _Init(seed, device)
    init.weight("linear0.weight", width, 64)
    init.weight("linear1.weight", width, width)
    init.weight("head.weight", 10, width)
    images, labels = (
        torch.cat([torch.tensor(part) for part in parts]).to(device)
        for parts in zip(samples.training, samples.validation, strict=True)
    )
    images = images.flatten(1)
    edges = torch.stack([torch.tensor(ends) for ends in samples.graph or ()])
    count, train = len(labels), len(samples.training[1])
    share = torch.full((edges.shape[1],), count / edges.shape[1])
    mean = torch.sparse_coo_tensor(edges, share, (count, count), check_invariants=True).coalesce().to(device)

    def loss(p: Parameters, products: Products, inputs: tuple[Tensor, ...]) -> Tensor:
        nodes = inputs[0]
        x = images
        for layer in range(2):
            x = F.relu(_linear(p, products, f"linear{layer}", products.aggregate(f"mean{layer}", mean, x)))
        return F.cross_entropy(_linear(p, products, "head", x)[nodes], labels[nodes])

    def training() -> Iterator[tuple[Tensor, ...]]:
        random = torch.Generator().manual_seed(seed)
        while True:
            yield (torch.randperm(train, generator=random)[: sizes["batch"]].to(device),)

    return Task(
        parameters=init.parameters,
        loss=loss,
        training=training(),
        validation=((torch.arange(train, count).to(device),),),
        data=samples.description,
    )


def _task(init: _Init, loss: Loss, samples: Samples, batch: int, seed: int) -> Task:
    return Task(
        parameters=init.parameters,
        loss=loss,
        training=_shuffled(samples, batch, seed, init.device),
        validation=_whole(samples, init.device),
        data=samples.description,
    )


BUILDERS: Mapping[str, Callable[[Mapping[str, int], int, str], Task]] = {
    "decoder": decoder,
    "encoder": encoder,
    "convnet": convnet,
    "mlp": mlp,
    "regression": regression,
    "diffusion": diffusion,
    "gnn": gnn,
}
