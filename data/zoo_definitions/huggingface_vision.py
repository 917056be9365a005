"""Vision models of transformers: masked autoencoders, SAM, SegFormer, SigLIP, video classifiers.

They are trained as their papers train them; products that grow with the square of the batch (SigLIP's
similarities) are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor, nn
from torch.nn import functional as F

from . import Entry, Reference
from ._blocks import image, index, on_meta, real


def _transformers() -> Any:
    from precision_time.capture.huggingface import import_transformers

    return import_transformers()


class LossOf(nn.Module):
    """A model of transformers that computes its own loss."""

    def __init__(self, model: str, config: str, **sizes: Any) -> None:
        super().__init__()
        library = _transformers()
        self.model = getattr(library, model)(getattr(library, config)(**sizes))

    def forward(self, pixels: Tensor, *labels: Tensor) -> Tensor:
        """The loss."""
        named = {"labels": labels[0]} if labels else {}
        return self.model(pixel_values=pixels, **named).loss


class ImageText(nn.Module):
    """SigLIP (Zhai et al. 2023): each pair by itself; the other pairs of a batch are left out."""

    def __init__(self, vision: Mapping[str, int], text: Mapping[str, int]) -> None:
        super().__init__()
        library = _transformers()
        config = library.SiglipConfig(vision_config=dict(vision), text_config=dict(text))
        self.model = library.SiglipModel(config)

    def forward(self, images: Tensor, tokens: Tensor) -> Tensor:
        """Pairs belong together."""
        seen = F.normalize(self.model.vision_model(pixel_values=images).pooler_output, dim=-1)
        read = F.normalize(self.model.text_model(input_ids=tokens).pooler_output, dim=-1)
        scores = (seen * read).sum(-1) * self.model.logit_scale.exp() + self.model.logit_bias
        return F.logsigmoid(scores).neg().mean()


class SegmentAnything(nn.Module):
    """SAM (Kirillov et al. 2023) with one point: image encoder, prompt encoder and mask decoder."""

    def __init__(self, **vision: Any) -> None:
        super().__init__()
        library = _transformers()
        self.model = library.SamModel(library.SamConfig(vision_config=vision))

    def forward(self, images: Tensor, points: Tensor, masks: Tensor) -> Tensor:
        """Cross entropy of the mask."""
        found = self.model(pixel_values=images, input_points=points, multimask_output=False)
        return F.binary_cross_entropy_with_logits(found.pred_masks.flatten(1, 2), masks)


def _entry(build: Callable[[], nn.Module], inputs: Any, params: float, source: str, **changes: Any) -> Entry:
    settings: dict[str, Any] = {
        "build": on_meta(build),
        "inputs": inputs,
        "family": "vit",
        "optimizer": "adamw",
        "sample_unit": "image",
        "throughput_unit": "images/s",
        "dataset": "imagenet",
        "dataset_samples": 1_281_167,
        "image_size": 224,
        "source_library": "transformers",
        "references": (Reference(quantity="params", value=params, source=source, tolerance=0.02),),
    }
    return Entry(**(settings | changes))


def _sizes(hidden: int, layers: int, heads: int, ffn: int = 0) -> dict[str, Any]:
    return {
        "hidden_size": hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "intermediate_size": ffn or 4 * hidden,
    }


_MAE = {
    "base": (_sizes(768, 12, 12), 16, 111.9e6),
    "large": (_sizes(1024, 24, 16), 16, 329.5e6),
    "huge": (_sizes(1280, 32, 16), 14, 657.1e6),
}
_SAM = {
    "b": (_sizes(768, 12, 12), (2, 5, 8, 11), 93.7e6, "base"),
    "l": (_sizes(1024, 24, 16), (5, 11, 17, 23), 312.3e6, "large"),
    "h": (_sizes(1280, 32, 16), (7, 15, 23, 31), 641.1e6, "huge"),
}
_SIGLIP = {
    "siglip-base-patch16-224": (_sizes(768, 12, 12), _sizes(768, 12, 12), 224, 16, 32_000, 203.2e6),
    "siglip-large-patch16-256": (_sizes(1024, 24, 16), _sizes(1024, 24, 16), 256, 16, 32_000, 652.2e6),
    "siglip-so400m-patch14-384": (
        _sizes(1152, 27, 16, 4304),
        _sizes(1152, 27, 16, 4304),
        384,
        14,
        32_000,
        878.0e6,
    ),
    "siglip2-base-patch16-224": (_sizes(768, 12, 12), _sizes(768, 12, 12), 224, 16, 256_000, 375.2e6),
}
_SIGLIP_NAMES = {
    "siglip-base-patch16-224": ("siglip", "siglip-base"),
    "siglip-large-patch16-256": ("siglip-large",),
    "siglip-so400m-patch14-384": ("siglip-so400m",),
    "siglip2-base-patch16-224": ("siglip2-base",),
}
_SEGFORMER = {
    0: ((32, 64, 160, 256), (2, 2, 2, 2), 256, 3.752e6),
    1: ((64, 128, 320, 512), (2, 2, 2, 2), 256, 13.7e6),
    2: ((64, 128, 320, 512), (3, 4, 6, 3), 768, 27.5e6),
    3: ((64, 128, 320, 512), (3, 4, 18, 3), 768, 47.3e6),
    4: ((64, 128, 320, 512), (3, 8, 27, 3), 768, 64.1e6),
    5: ((64, 128, 320, 512), (3, 6, 40, 3), 768, 84.7e6),
}
VIDEO = {
    "task": "video-classification",
    "sample_unit": "clip",
    "throughput_unit": "clips/s",
    "dataset": "kinetics400",
    "dataset_samples": None,
}

ENTRIES: dict[str, Entry] = {
    **{
        f"mae-{name}": _entry(
            lambda s=sizes, p=patch: LossOf("ViTMAEForPreTraining", "ViTMAEConfig", patch_size=p, **s),
            lambda batch: (image(batch, 3, 224, 224),),
            params,
            f"facebook/vit-mae-{name} checkpoint with its decoder",
            task="masked-autoencoder",
            aliases=(f"vit-mae-{name}", f"mae-vit-{name}"),
        )
        for name, (sizes, patch, params) in _MAE.items()
    },
    **{
        f"sam-vit-{name}": _entry(
            lambda s=sizes, g=full: SegmentAnything(
                global_attn_indexes=list(g), mlp_dim=s["intermediate_size"], **s
            ),
            lambda batch: (image(batch, 3, 1024, 1024), real(batch, 1, 1, 2), real(batch, 1, 256, 256)),
            params,
            f"facebook/sam-vit-{words} checkpoint",
            task="segmentation",
            dataset="sa-1b",
            dataset_samples=None,
            image_size=1024,
            aliases=(f"sam-vit-{words}",),
        )
        for name, (sizes, full, params, words) in _SAM.items()
    },
    **{
        name: _entry(
            lambda v=vision, t=text, side=side, p=patch, w=words: ImageText(
                {**v, "image_size": side, "patch_size": p}, {**t, "vocab_size": w}
            ),
            lambda batch, side=side: (image(batch, 3, side, side), index(batch, 64)),
            params,
            f"google/{name} checkpoint",
            task="contrastive-pretrain",
            sample_unit="pair",
            throughput_unit="samples/s",
            dataset="webli",
            dataset_samples=None,
            image_size=side,
            aliases=_SIGLIP_NAMES[name],
        )
        for name, (vision, text, side, patch, words, params) in _SIGLIP.items()
    },
    **{
        f"segformer-b{number}": _entry(
            lambda w=widths, d=depths, h=head: LossOf(
                "SegformerForSemanticSegmentation",
                "SegformerConfig",
                hidden_sizes=list(w),
                depths=list(d),
                decoder_hidden_size=h,
                num_labels=150,
            ),
            lambda batch: (image(batch, 3, 512, 512), index(batch, 512, 512)),
            params,
            "Xie et al. 2021 table 1",
            family="segmentation",
            task="segmentation",
            dataset="ade20k",
            dataset_samples=20_210,
            image_size=512,
        )
        for number, (widths, depths, head, params) in _SEGFORMER.items()
    },
    "videomae-base": _entry(
        lambda: LossOf("VideoMAEForVideoClassification", "VideoMAEConfig", num_labels=400),
        lambda batch: (real(batch, 16, 3, 224, 224), index(batch)),
        86.5e6,
        "MCG-NJU/videomae-base-finetuned-kinetics checkpoint",
        **VIDEO,
    ),
    "timesformer-base": _entry(
        lambda: LossOf("TimesformerForVideoClassification", "TimesformerConfig", num_labels=400),
        lambda batch: (real(batch, 8, 3, 224, 224), index(batch)),
        121.6e6,
        "Bertasius et al. 2021 table 2: 121.4 M",
        **VIDEO,
        aliases=("timesformer",),
    ),
}
