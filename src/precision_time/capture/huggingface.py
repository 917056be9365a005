"""Hugging Face models from their configuration alone: no weights, no network.

Long models are built with two and with three layers; the difference is one layer, which is written with
the number of times it repeats. Where that does not add up exactly (layers of several kinds) every layer
is built.
"""

from __future__ import annotations

import contextlib
import copy
import importlib
import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest import mock

import torch

from ..errors import CaptureError, PrecisionTimeError, UnknownNameError, import_failure, shown
from ..records import dataclass
from ..workload.families.tables import read_toml
from ..workload.graph import OpGraph
from ..workload.hf_config import is_absent_hub_id, read_config
from .fold import fold_repeats
from .recorder import CAPTURE_BATCH, record
from .timm_models import import_torchvision

DEFAULT_SEQ_LEN = 512
"""Tokens per sample where neither the caller nor a shorter position table says otherwise."""

_LAYER_COUNTS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")
_FEWEST_LAYERS_TO_EXTRAPOLATE = 6
_HEADS = (
    "MODEL_FOR_CAUSAL_LM_MAPPING_NAMES",
    "MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES",
    "MODEL_FOR_MASKED_LM_MAPPING_NAMES",
    "MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING_NAMES",
    "MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING_NAMES",
    "MODEL_FOR_CTC_MAPPING_NAMES",
    "MODEL_MAPPING_NAMES",
)
_MASKED_HEAD = "MODEL_FOR_MASKED_LM_MAPPING_NAMES"
_PAIRED_HEADS = ("MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING_NAMES", "MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES")


def import_transformers() -> ModuleType:
    """Transformers.

    Raises:
        MissingExtraError: If it is not installed.
    """
    with contextlib.suppress(ImportError):
        import_torchvision()
    try:
        return importlib.import_module("transformers")
    except ImportError as error:
        raise import_failure(
            error,
            name="transformers",
            package="transformers",
            extra="capture",
            purpose="build Hugging Face models",
        ) from error


def known_ids() -> Mapping[str, Mapping[str, Any]]:
    """Model ids known without network, from data/hf_models.toml."""
    models: dict[str, Mapping[str, Any]] = read_toml("hf_models.toml")["models"]
    return models


def is_config(source: Any) -> bool:
    """Whether `source` is a transformers configuration object; found without importing transformers."""
    return any(cls.__name__ in ("PretrainedConfig", "PreTrainedConfig") for cls in type(source).__mro__)


def config_of(source: str | Path) -> Any:
    """The configuration behind a config.json, a folder with one, a known id, a cached id or a type.

    Raises:
        UnknownNameError: If it is none of these.
        CaptureError: If the file is not a Hugging Face configuration.
    """
    transformers = import_transformers()
    path = Path(source)
    if path.suffix == ".json" or os.path.isfile(path / "config.json"):
        return _read_config(transformers, path if path.suffix == ".json" else path / "config.json")
    name = str(source)
    if name in known_ids():
        entry = known_ids()[name]
        config = transformers.AutoConfig.for_model(entry["type"], **entry.get("config", {}))
        config.architectures = [entry["head"]]
        return config
    types = transformers.models.auto.configuration_auto.CONFIG_MAPPING_NAMES
    if name in types:
        return transformers.AutoConfig.for_model(name)
    try:
        if is_absent_hub_id(name):
            raise OSError(f"{name} is not in the local cache")
        with _offline():
            return transformers.AutoConfig.from_pretrained(
                name, local_files_only=True, trust_remote_code=False
            )
    except (OSError, ValueError) as error:
        raise UnknownNameError(
            kind="Hugging Face model",
            name=name,
            known=[*known_ids(), *types],
            hint="Only ids of the built-in table, ids in the local cache and model types are known without "
            "network. To fix: pass the path of the model's config.json.",
        ) from error


def _read_config(transformers: ModuleType, path: Path) -> Any:
    data = dict(read_config(path))
    kind = str(data.pop("model_type"))
    types = transformers.models.auto.configuration_auto.CONFIG_MAPPING_NAMES
    if kind not in types:
        raise UnknownNameError(
            kind="model_type",
            name=kind,
            known=types,
            hint="To fix: a newer transformers, or the module.",
        )
    try:
        with _offline():
            return transformers.AutoConfig.for_model(kind, **data)
    except Exception as error:  # its values are anyone's, and transformers raises whatever they lead to
        raise CaptureError(
            f"{path} is not a configuration that transformers can read: {type(error).__name__}: {error}. To "
            "fix: take the config.json that lies next to the model's weights."
        ) from error


@contextlib.contextmanager
def _offline() -> Iterator[None]:
    """No lookup at a model hub, whatever a configuration names."""
    constants = importlib.import_module("huggingface_hub.constants")
    hub = importlib.import_module("transformers.utils.hub")
    with ExitStack() as stack:
        stack.enter_context(mock.patch.object(constants, "HF_HUB_OFFLINE", True))
        if hasattr(hub, "_is_offline_mode"):  # transformers 4 keeps a copy
            stack.enter_context(mock.patch.object(hub, "_is_offline_mode", True))
        yield


def _without_pretrained(config: Any) -> Any:
    """The configuration, and those inside it, with backbones of random weights: no weight is read here."""
    for part in (config, *(value for value in vars(config).values() if is_config(value))):
        if getattr(part, "use_pretrained_backbone", None):
            part.use_pretrained_backbone = False
    return config


def capture_config(
    config: Any, *, seq_len: int | None = None, image_size: int | None = None, name: str | None = None
) -> OpGraph:
    """The graph of one training forward pass (loss included) of the model `config` describes.

    Raises:
        CaptureError: If the model cannot be built or run on the meta device.
    """
    try:
        return _captured(config, seq_len, image_size, name)
    except PrecisionTimeError:
        raise
    except Exception as error:  # values of a configuration are anyone's, and lead to any error
        raise CaptureError(
            f"The configuration of {shown(getattr(config, 'model_type', config))} cannot be built: "
            f"{type(error).__name__}: {error}. To fix: take the config.json that lies next to the model's "
            "weights."
        ) from error


def _captured(config: Any, seq_len: int | None, image_size: int | None, name: str | None) -> OpGraph:
    label = name or getattr(config, "name_or_path", "") or config.model_type
    size = HfSizes.choose(config, seq_len, image_size)
    attribute, layers = _layer_count(config)
    if attribute is not None and layers >= _FEWEST_LAYERS_TO_EXTRAPOLATE:
        graph = _extrapolated(config, size, label, attribute, layers)
        if graph is not None:
            return size.mark(graph)
    return size.mark(fold_repeats(capture_hf_module(build_config(config), size, label)))


@dataclass(frozen=True, kw_only=True, slots=True)
class HfSizes:
    """Input sizes of a capture."""

    seq_len: int | None
    image_size: int | None

    @classmethod
    def choose(cls, config: Any, seq_len: int | None, image_size: int | None) -> HfSizes:
        """The sizes asked for, or those the configuration suggests."""
        longest = getattr(config, "max_position_embeddings", None) or getattr(config, "n_positions", None)
        usual = min(DEFAULT_SEQ_LEN, longest) if isinstance(longest, int) and longest > 0 else DEFAULT_SEQ_LEN
        own = getattr(config, "image_size", None)
        own = own[0] if isinstance(own, (list, tuple)) else own
        return cls(seq_len=seq_len or usual, image_size=image_size or own or 224)

    def mark(self, graph: OpGraph) -> OpGraph:
        """`graph` with the size that enters the model it was captured from."""
        if "pixel_values" in graph.notes:
            return replace(graph, notes="", image_size=self.image_size)
        return replace(graph, notes="", seq_len=self.seq_len)


def build_config(config: Any) -> torch.nn.Module:
    """The model on the meta device in training mode, with fused attention where it has one.

    Raises:
        CaptureError: If transformers cannot build it.
    """
    transformers = import_transformers()
    config = _without_pretrained(copy.deepcopy(config))
    config.use_cache = False
    cls = _model_class(transformers, config)
    failure: Exception | None = None
    for attention in ("sdpa", "eager"):
        with torch.device("meta"), _offline():
            try:
                config._attn_implementation = attention
                model: torch.nn.Module = cls(config)
                return model.train()
            except Exception as error:  # noqa: BLE001 - whatever the values of the configuration lead to
                failure = failure or error
    raise CaptureError(
        f"transformers cannot build {config.model_type!r}: {failure}. To fix: check the "
        "values of the configuration."
    )


def _model_class(transformers: ModuleType, config: Any) -> Any:
    for architecture in getattr(config, "architectures", None) or ():
        found = getattr(transformers, architecture, None)
        if isinstance(found, type) and issubclass(found, transformers.PreTrainedModel):
            return found  # and nothing else of transformers that a configuration may name
    auto = transformers.models.auto.modeling_auto
    heads = list(_HEADS)
    if getattr(config, "is_encoder_decoder", False):
        heads = [*_PAIRED_HEADS, *heads]
    elif not getattr(config, "is_decoder", False) and hasattr(config, "type_vocab_size"):
        heads.insert(0, _MASKED_HEAD)
    for mapping in heads:
        found = getattr(auto, mapping, {}).get(config.model_type)
        if found:
            return getattr(transformers, found if isinstance(found, str) else found[0])
    raise CaptureError(
        f"transformers has no model for the type {config.model_type!r}. To fix: pass the module itself."
    )


def capture_hf_module(model: Any, size: HfSizes, name: str, batch: int = CAPTURE_BATCH) -> OpGraph:
    """The unfolded graph of a transformers model with a batch of the kind it takes."""
    main = getattr(model, "main_input_name", "input_ids")
    kwargs = _inputs(model.config, main, size, batch)
    names = model.forward.__code__.co_varnames
    if "labels" in names:
        kwargs.update(_labels(model, main, size, batch))
    elif getattr(model.config, "is_encoder_decoder", False):
        kwargs["decoder_input_ids"] = torch.empty(batch, size.seq_len or 1, dtype=torch.long, device="meta")
    return replace(record(model, (), kwargs, name=name, batch=batch, fold=False), notes=main)


def _inputs(config: Any, main: str, size: HfSizes, batch: int) -> dict[str, Any]:
    if main == "input_ids":
        return {main: torch.empty(batch, size.seq_len or 1, dtype=torch.long, device="meta")}
    if main == "pixel_values":
        channels, side = getattr(config, "num_channels", 3), size.image_size or 224
        return {main: torch.empty(batch, channels, side, side, device="meta")}
    if main == "input_features":
        frames = 2 * getattr(config, "max_source_positions", DEFAULT_SEQ_LEN)
        return {main: torch.empty(batch, getattr(config, "num_mel_bins", 80), frames, device="meta")}
    if main == "input_values":
        return {main: torch.empty(batch, 16000, device="meta")}
    raise CaptureError(
        f"A {config.model_type!r} model takes {main!r}, for which no example is known. To fix: pass the "
        "module with example_inputs."
    )


def _labels(model: Any, main: str, size: HfSizes, batch: int) -> dict[str, Any]:
    """Labels make the model compute its loss, as in training."""
    kind = type(model).__name__
    if "Classification" in kind and "Token" not in kind:
        return {"labels": torch.empty(batch, dtype=torch.long, device="meta")}
    if main == "input_ids" or "ConditionalGeneration" in kind:
        labels = torch.empty(batch, size.seq_len or 1, dtype=torch.long, device="meta")
        second = "next_sentence_label" in model.forward.__code__.co_varnames
        extra = {"next_sentence_label": torch.empty(batch, dtype=torch.long, device="meta")} if second else {}
        return {"labels": labels, **extra}
    return {}


def _layer_count(config: Any) -> tuple[str | None, int]:
    if getattr(config, "is_encoder_decoder", False):
        return None, 0
    for attribute in _LAYER_COUNTS:
        count = getattr(config, attribute, None)
        if isinstance(count, int):
            return attribute, count
    return None, 0


def _with_layers(config: Any, attribute: str, layers: int) -> Any | None:
    """A shorter configuration, or None if its layers are of several kinds."""
    kinds = getattr(config, "layer_types", None)
    if kinds is not None and len(set(kinds)) > 1:
        return None
    shorter = copy.deepcopy(config)
    try:
        setattr(shorter, attribute, layers)
        if kinds is not None and len(shorter.layer_types) != layers:
            shorter.layer_types = list(kinds[:layers])
    except (AttributeError, ValueError):  # derived from something else
        return None
    return shorter


def _extrapolated(config: Any, size: HfSizes, name: str, attribute: str, layers: int) -> OpGraph | None:
    """Prefix + layer x layers + suffix, or None where that is not exactly what the full model holds."""
    configs = [_with_layers(config, attribute, count) for count in (2, 3)]
    if any(c is None for c in configs):
        return None
    two, three = (capture_hf_module(build_config(c), size, name) for c in configs)
    full = build_config(config)
    step = three.params - two.params
    if sum(p.numel() for p in full.parameters()) != three.params + (layers - 3) * step:
        return None
    period = len(three.nodes) - len(two.nodes)
    folded = fold_repeats(three, period=period)
    segments = {n.segment for n in folded.nodes if n.repeat > 1}
    block = [n for n in folded.nodes if n.repeat > 1]
    if len(segments) != 1 or len(block) != period or not _adds_up(two, three, block):
        return None
    more = layers - 3
    tensors = three.param_tensors - two.param_tensors
    return replace(
        folded,
        nodes=tuple(replace(n, repeat=n.repeat + more) if n.repeat > 1 else n for n in folded.nodes),
        params=three.params + more * step,
        trainable_params=three.trainable_params + more * (three.trainable_params - two.trainable_params),
        param_tensors=three.param_tensors + more * tensors,
        unpriced={
            op: count + more * (count - two.unpriced.get(op, 0)) for op, count in three.unpriced.items()
        },
    )


def _adds_up(two: OpGraph, three: OpGraph, block: list[Any]) -> bool:
    """Whether one more layer adds exactly one block."""
    flops = sum(n.flops / n.repeat for n in block)
    saved = sum(n.saved_elems for n in block if n.scales_with_batch)
    params = sum(n.param_elems for n in block)
    return bool(
        abs(three.forward_flops - two.forward_flops - flops) <= 1e-9 * three.forward_flops
        and abs(three.saved_elems - two.saved_elems - saved) <= 1e-9 * max(three.saved_elems, 1.0)
        and three.params - two.params == params
    )
