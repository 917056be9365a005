"""Which builder turns which sizes into a graph, and how public size names map to its fields.

Families are imported when a model of theirs is asked for: a prediction needs one of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from importlib import import_module
from typing import Any

from ...cache import data
from ...records import dataclass
from ..graph import OpGraph


@dataclass(frozen=True, kw_only=True, slots=True)
class FamilyBuilder:
    """A parametric family."""

    family: str
    """Coarse family of `Workload.family`."""
    config_type: Callable[..., Any]
    build: Callable[[str, Any], OpGraph]
    field_types: Mapping[str, str]
    """Every field of the configuration, and its type: "int", "float", "bool", "str" ..."""
    spellings: Mapping[str, str]
    """Size names of measurement files -> fields of the configuration, where they differ."""

    def field_of(self, size: str) -> str | None:
        """The configuration field that a public size name sets; None where it sets none."""
        name = self.spellings.get(size, size)
        return name if name in self.field_types else None

    @property
    def size_names(self) -> dict[str, str]:
        """Every name by which a caller can set a size (not words), and the type of its field."""
        types = {name: kind for name, kind in self.field_types.items() if kind != "str"}
        spelled = {name: types[field] for name, field in self.spellings.items() if field in types}
        both = {"layers": "int"} if "encoder_layers" in types else {}
        return {**types, **spelled, **both}


_COMMON = {
    "mlp": "ffn", "d_inner": "ffn", "d_head": "head_dim", "hidden_size": "hidden", "num_layers": "layers",
    "num_heads": "heads", "num_kv_heads": "kv_heads", "vocab_size": "vocab", "max_seq_len": "seq_len",
    "moe_top_k": "top_k",
}  # fmt: skip
_ONE_SIDED = {"tgt_len": "seq_len"}
_TWO_SIDED = {"enc_layers": "encoder_layers", "dec_layers": "decoder_layers", "tgt_len": "target_len"}

_FAMILIES: Mapping[str, tuple[str, str, str, Mapping[str, str]]] = {
    "decoder": ("decoder", "DecoderConfig", "transformer-decoder", {}),
    "hybrid": ("hybrid", "HybridConfig", "moe", {}),
    "encoder": ("encoder", "EncoderConfig", "transformer-encoder", {}),
    "encdec": ("encdec", "EncDecConfig", "transformer-encdec", _TWO_SIDED),
    "transformer-xl": ("transformer_xl", "TransformerXLConfig", "transformer-decoder", _ONE_SIDED),
    "wav2vec2": ("speech", "Wav2Vec2Config", "speech", {"audio_seconds": "seconds"}),
    "patch-classifier": ("vision", "PatchClassifierConfig", "vit", {}),
    "vit": ("vision", "VitConfig", "vit", {"patch_size": "patch", "num_classes": "classes"}),
    "image-text": ("vision", "ImageTextConfig", "other", {}),
    "vision-language": ("vision_language", "VisionLanguageConfig", "transformer-decoder", {}),
    "denoiser": ("denoiser", "DenoiserConfig", "diffusion", {}),
    "diffusion-transformer": ("diffusion_transformer", "DiffusionTransformerConfig", "diffusion", {}),
    "tft": ("tft", "TemporalFusionConfig", "other", {"forecast_horizon": "horizon"}),
}
"""Key of the model tables -> module (with its function `build_KEY`), configuration, family, spellings."""


@data
def family_builder(key: str) -> FamilyBuilder:
    """The family of a table's `builder` key."""
    module_name, config_name, family, spellings = _FAMILIES[key]
    module = import_module(f".{module_name}", __package__)
    config_type = getattr(module, config_name)
    return FamilyBuilder(
        family=family,
        config_type=config_type,
        build=getattr(module, f"build_{key.replace('-', '_')}"),
        field_types={item.name: str(item.type) for item in fields(config_type)},
        spellings={**_COMMON, **spellings},
    )
