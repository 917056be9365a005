"""Which builder turns which sizes into a graph, and how public size names map to its fields."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any

from ..graph import OpGraph
from .decoder import DecoderConfig, build_decoder
from .diffusion_transformer import DiffusionTransformerConfig, build_diffusion_transformer
from .encdec import EncDecConfig, build_encdec
from .encoder import EncoderConfig, build_encoder
from .hybrid import HybridConfig, build_hybrid
from .speech import Wav2Vec2Config, build_wav2vec2
from .tft import TemporalFusionConfig, build_tft
from .transformer_xl import TransformerXLConfig, build_transformer_xl
from .vision import ImageTextConfig, PatchClassifierConfig, build_image_text, build_patch_classifier
from .vision_language import VisionLanguageConfig, build_vision_language


@dataclass(frozen=True, kw_only=True, slots=True)
class FamilyBuilder:
    """A parametric family."""

    family: str
    """Coarse family of `Workload.family`."""
    config_type: type[Any]
    build: Callable[[str, Any], OpGraph]
    spellings: Mapping[str, str]
    """Size names of measurement files -> fields of the configuration, where they differ."""

    def field_of(self, size: str) -> str | None:
        """The configuration field that a public size name sets; None where it sets none."""
        name = self.spellings.get(size, size)
        return name if name in self.field_names else None

    @property
    def field_names(self) -> frozenset[str]:
        """Every field of the configuration."""
        return frozenset(item.name for item in fields(self.config_type))


_COMMON = {
    "mlp": "ffn",
    "d_inner": "ffn",
    "d_head": "head_dim",
    "hidden_size": "hidden",
    "num_layers": "layers",
    "num_heads": "heads",
    "num_kv_heads": "kv_heads",
    "vocab_size": "vocab",
    "max_seq_len": "seq_len",
    "moe_top_k": "top_k",
}
_TWO_SIDED = {
    "enc_layers": "encoder_layers",
    "dec_layers": "decoder_layers",
    "max_source_length": "seq_len",
    "max_target_length": "target_len",
    "tgt_len": "target_len",
}

BUILDERS: Mapping[str, FamilyBuilder] = {
    "decoder": FamilyBuilder(
        family="transformer-decoder", config_type=DecoderConfig, build=build_decoder, spellings=_COMMON
    ),
    "hybrid": FamilyBuilder(family="moe", config_type=HybridConfig, build=build_hybrid, spellings=_COMMON),
    "encoder": FamilyBuilder(
        family="transformer-encoder", config_type=EncoderConfig, build=build_encoder, spellings=_COMMON
    ),
    "encdec": FamilyBuilder(
        family="transformer-encdec",
        config_type=EncDecConfig,
        build=build_encdec,
        spellings={**_COMMON, **_TWO_SIDED},
    ),
    "transformer-xl": FamilyBuilder(
        family="transformer-decoder",
        config_type=TransformerXLConfig,
        build=build_transformer_xl,
        spellings={**_COMMON, "tgt_len": "seq_len"},
    ),
    "wav2vec2": FamilyBuilder(
        family="speech", config_type=Wav2Vec2Config, build=build_wav2vec2, spellings=_COMMON
    ),
    "patch-classifier": FamilyBuilder(
        family="vit", config_type=PatchClassifierConfig, build=build_patch_classifier, spellings=_COMMON
    ),
    "image-text": FamilyBuilder(
        family="other", config_type=ImageTextConfig, build=build_image_text, spellings=_COMMON
    ),
    "vision-language": FamilyBuilder(
        family="transformer-decoder",
        config_type=VisionLanguageConfig,
        build=build_vision_language,
        spellings=_COMMON,
    ),
    "diffusion-transformer": FamilyBuilder(
        family="diffusion",
        config_type=DiffusionTransformerConfig,
        build=build_diffusion_transformer,
        spellings=_COMMON,
    ),
    "tft": FamilyBuilder(
        family="other",
        config_type=TemporalFusionConfig,
        build=build_tft,
        spellings={**_COMMON, "forecast_horizon": "horizon"},
    ),
}
