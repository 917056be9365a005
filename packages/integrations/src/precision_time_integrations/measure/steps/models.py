"""Models as modules that return their loss, with random inputs, from the library that has them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, get_type_hints

import torch
import torch.nn.functional as F
from torch import nn

from precision_time.capture.huggingface import import_transformers
from precision_time.capture.sources import split_inputs
from precision_time.capture.timm_models import import_timm, import_torchvision
from precision_time.errors import CaptureError, ConfigError

from ..trial import ModelSpec
from .catalog import TORCHVISION

Batch = tuple[Any, ...]
Sizes = Mapping[str, float]

IMAGE_CLASSES = 1000
IMAGE_SIDE = 224
_CLICK_FEATURES = 26
_CLICK_NUMERIC = 13
_WORD_DROPOUT = 0.2


@dataclass(frozen=True, kw_only=True, slots=True)
class BuiltModel:
    """A module in training mode and one batch for it."""

    module: Any
    """Called with the tensors of the batch it returns the loss, a scalar."""
    batch: Batch
    batch_size: int


class WithLoss(nn.Module):  # type: ignore[misc]
    """A network and its loss."""

    def __init__(
        self, network: Any, loss: Callable[[Any], Any], *, num_args: int = 0, names: tuple[str, ...] = ()
    ) -> None:
        """Wrap a network.

        Args:
            network: Any module.
            loss: From what the network returns to a scalar.
            num_args: How many tensors of a batch are positional arguments.
            names: Of the arguments that the other tensors are.
        """
        super().__init__()
        self.network = network
        self._loss = loss
        self._num_args = num_args
        self._names = names

    def forward(self, *batch: Any) -> Any:
        """The loss of one batch."""
        named = dict(zip(self._names, batch[self._num_args :], strict=True))
        return self._loss(self.network(*batch[: self._num_args], **named))


class Classifier(nn.Module):  # type: ignore[misc]
    """Cross entropy of a network's logits: forward takes images and labels."""

    def __init__(self, network: Any) -> None:
        super().__init__()
        self.network = network

    def forward(self, images: Any, labels: Any) -> Any:
        """Mean loss."""
        return F.cross_entropy(self.network(images), labels)


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
        self.bottom = _mlp(_CLICK_NUMERIC, 512, 256, width)
        count = _CLICK_FEATURES + 1
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
        self.dropout = nn.Dropout(_WORD_DROPOUT)
        self.cells = nn.LSTM(hidden, hidden, layers, dropout=_WORD_DROPOUT)
        self.head = nn.Linear(hidden, words)

    def forward(self, tokens: Any, targets: Any) -> Any:
        """Cross entropy of the next word; tokens and targets are (T x batch)."""
        hidden, _ = self.cells(self.dropout(self.embedding(tokens)))
        logits = self.head(self.dropout(hidden))
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


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
        attended = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).reshape(batch, tokens, hidden))
        return x + self.ffn(self.norm_2(x))


class Decoder(nn.Module):  # type: ignore[misc]
    """A small GPT-2: learned positions, tied output layer."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        hidden, heads, ffn = (int(sizes[name]) for name in ("hidden", "heads", "ffn"))
        self.words = nn.Embedding(int(sizes["vocab"]), hidden)
        self.positions = nn.Embedding(int(sizes["positions"]), hidden)
        self.blocks = nn.Sequential(*(_Block(hidden, heads, ffn) for _ in range(int(sizes["layers"]))))
        self.norm = nn.LayerNorm(hidden)
        nn.init.normal_(self.words.weight, std=0.02)

    def forward(self, tokens: Any, targets: Any) -> Any:
        """Cross entropy of the next token; both (batch, tokens)."""
        places = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.norm(self.blocks(self.words(tokens) + self.positions(places)))
        return F.cross_entropy(F.linear(x, self.words.weight).flatten(0, 1), targets.flatten())


class Recommender(nn.Module):  # type: ignore[misc]
    """Neural matrix factorization (He et al. 2017): a product branch and a perceptron branch."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        users, items, factors = (int(sizes[name]) for name in ("users", "items", "factors"))
        widths = [int(sizes["hidden"]) // 2**step for step in range(4)]
        half = widths[0] // 2
        self.user_product, self.item_product = nn.Embedding(users, factors), nn.Embedding(items, factors)
        self.user_mlp, self.item_mlp = nn.Embedding(users, half), nn.Embedding(items, half)
        self.mlp = _mlp(*widths)
        self.head = nn.Linear(factors + widths[-1], 1)

    def forward(self, user: Any, item: Any, label: Any) -> Any:
        """Binary cross entropy of the interaction; all (batch,)."""
        product = self.user_product(user) * self.item_product(item)
        hidden = self.mlp(torch.cat((self.user_mlp(user), self.item_mlp(item)), -1))
        logit = self.head(torch.cat((product, hidden), -1)).squeeze(-1)
        return F.binary_cross_entropy_with_logits(logit.float(), label)


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


def _perceptron(sizes: Sizes) -> nn.Module:
    pixels, hidden = int(sizes["channels"] * sizes["side"] ** 2), int(sizes["hidden"])
    body = _mlp(pixels, *[hidden] * int(sizes["layers"]))
    return Classifier(nn.Sequential(nn.Flatten(), body, nn.Linear(hidden, int(sizes["classes"]))))


MODULES: Mapping[str, Callable[[Sizes], Any]] = {
    "cnn": _cnn,
    "mlp": _perceptron,
    "transformer": Decoder,
    "recommender": Recommender,
}
"""Built-in model of campaigns -> module from its sizes (data/models.toml)."""


def _images(count: int, sizes: Sizes) -> Batch:
    side = int(sizes["side"])
    images = torch.randn(count, int(sizes["channels"]), side, side)
    return images, torch.randint(int(sizes["classes"]), (count,))


def _tokens(count: int, sizes: Sizes) -> Batch:
    shape = (count, int(sizes["seq_len"]))
    return torch.randint(int(sizes["vocab"]), shape), torch.randint(int(sizes["vocab"]), shape)


def _pairs(count: int, sizes: Sizes) -> Batch:
    users, items = (torch.randint(int(sizes[name]), (count,)) for name in ("users", "items"))
    return users, items, torch.randint(2, (count,)).float()


INPUTS: Mapping[str, Callable[[int, Sizes], Batch]] = {
    "images": _images,
    "tokens": _tokens,
    "pairs": _pairs,
}
"""Kind of inputs -> that many random samples, in memory of the host."""


def build_model(spec: ModelSpec, batch_size: int, kind: str) -> BuiltModel:
    """The model that `spec` describes, with random weights and inputs.

    Args:
        spec: From the plan.
        batch_size: Samples; user-defined functions decide themselves.
        kind: cuda or cpu.

    Raises:
        ConfigError: If its library is unknown.
        CaptureError: If a user-defined function does not return what it should.
        MissingExtraError: If the library is not installed.
    """
    builder = _LIBRARIES.get(spec.library)
    if builder is None:
        raise ConfigError(
            f"The library {spec.library!r} of {spec.name} is unknown. "
            f"To fix: use one of {', '.join(_LIBRARIES)}."
        )
    return builder(spec, batch_size, kind)


def timm_network(spec: ModelSpec, **options: Any) -> Any:
    """A network of timm's.

    Raises:
        MissingExtraError: If timm is not installed.
    """
    name = spec.build.get("architecture", spec.name)
    return import_timm().create_model(name, **{**spec.build.get("options", {}), **options})


def torchvision_network(name: str, classes: int) -> Any:
    """A classifier of torchvision's, with random weights and without auxiliary outputs.

    Raises:
        MissingExtraError: If torchvision is not installed.
    """
    models = import_torchvision().models
    make = models.get_model_builder(name.removeprefix(TORCHVISION))
    # Layers draw their weights; some models draw them once more, which takes seconds and changes no step.
    known = inspect.signature(get_type_hints(make)["return"]).parameters
    options = {option: False for option in ("init_weights", "aux_logits") if option in known}
    return make(weights=None, num_classes=classes, **options)


def _timm(spec: ModelSpec, batch_size: int, kind: str) -> BuiltModel:
    side = spec.image_size or IMAGE_SIDE
    with torch.device(kind):
        network = timm_network(spec)
    images = torch.randn(batch_size, 3, side, side, device=kind)
    labels = torch.randint(IMAGE_CLASSES, (batch_size,), device=kind)
    return BuiltModel(module=Classifier(network.train()), batch=(images, labels), batch_size=batch_size)


def _transformers(spec: ModelSpec, batch_size: int, kind: str) -> BuiltModel:
    transformers = import_transformers()
    config = transformers.AutoConfig.for_model(spec.build["type"], **spec.build.get("config", {}))
    config.use_cache = False
    config._attn_implementation = "sdpa"
    with torch.device(kind):
        network = getattr(transformers, spec.build["head"])(config)
    tokens = torch.randint(config.vocab_size, (batch_size, spec.seq_len or 1), device=kind)
    inputs = {"input_ids": tokens, "labels": tokens.clone()}
    if spec.build.get("pairs"):
        inputs["next_sentence_label"] = torch.randint(2, (batch_size,), device=kind)
    module = WithLoss(network.train(), lambda output: output.loss, names=tuple(inputs))
    return BuiltModel(module=module, batch=tuple(inputs.values()), batch_size=batch_size)


def _torch(spec: ModelSpec, batch_size: int, kind: str) -> BuiltModel:
    build = spec.build
    if build["architecture"] == "click-model":
        with torch.device(kind):
            module: Any = ClickModel(build["rows"])
        features = torch.randint(build["rows"], (batch_size, _CLICK_FEATURES), device=kind)
        clicked = torch.randint(2, (batch_size,), device=kind).float()
        batch: Batch = (torch.randn(batch_size, _CLICK_NUMERIC, device=kind), features, clicked)
    else:
        with torch.device(kind):
            module = WordModel(build["words"], build["hidden"], build["layers"])
        shape = (build["tokens"], batch_size)
        batch = tuple(torch.randint(build["words"], shape, device=kind) for _ in range(2))
    return BuiltModel(module=module.train(), batch=batch, batch_size=batch_size)


def _user_defined(spec: ModelSpec, batch_size: int, kind: str) -> BuiltModel:
    """A module of the user's own, and one batch for it."""
    from ..own import built_own

    module, batch, size = built_own(spec, batch_size, kind)
    return BuiltModel(module=module, batch=batch, batch_size=size)


def built_from(made: Any, name: str, kind: str = "cpu") -> BuiltModel:
    """What a user-defined function returned, as a model with its batch.

    Args:
        made: (module, inputs).
        name: What errors call the function.
        kind: cuda or cpu.

    Raises:
        CaptureError: If it is something else.
    """
    if not (isinstance(made, tuple) and len(made) >= 2 and isinstance(made[0], torch.nn.Module)):
        raise CaptureError(
            f"{name} returned a {type(made).__name__}. The rule: (module, inputs), one batch. "
            "To fix: return both."
        )
    args, kwargs = split_inputs(made[1] if len(made) == 2 else made[1:])
    batch = tuple(v.to(kind) if isinstance(v, torch.Tensor) else v for v in (*args, *kwargs.values()))
    tensors = [value for value in batch if isinstance(value, torch.Tensor) and value.dim() > 0]
    if not tensors:
        raise CaptureError(f"{name} gave no tensor as input. To fix: return tensors, batch first.")
    module = WithLoss(made[0].to(kind).train(), _loss_of, num_args=len(args), names=tuple(kwargs))
    return BuiltModel(module=module, batch=batch, batch_size=int(tensors[0].shape[0]))


def _loss_of(output: Any) -> Any:
    """A scalar to differentiate: the model's own loss where it gives one."""
    loss = getattr(output, "loss", None)
    if loss is not None:
        return loss
    if not isinstance(output, torch.Tensor):
        values = output.values() if hasattr(output, "values") else output
        output = next(value for value in values if isinstance(value, torch.Tensor))
    return output if output.dim() == 0 else output.float().square().mean()


_LIBRARIES: dict[str, Callable[[ModelSpec, int, str], BuiltModel]] = {
    "timm": _timm,
    "transformers": _transformers,
    "torch": _torch,
    "own": _user_defined,
}
