"""The zoo's own model definitions: published parameters and FLOPs, and what every entry must say."""

from __future__ import annotations

import sys
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch

DATA = Path(__file__).parents[2] / "data"
MODULES = (
    "cifar",
    "detection_onestage",
    "detection_twostage",
    "diffusion",
    "faces",
    "folding",
    "graphs",
    "huggingface_vision",
    "imagenet_extra",
    "language_rnn",
    "recsys",
    "segmentation",
    "speech_recognition",
    "speech_synthesis",
    "torchvision_models",
    "video_text",
    "yolo",
)
FAMILIES = {"cnn", "rnn", "detection", "segmentation", "speech", "recsys", "gnn", "diffusion", "vit", "other"}

PARAMETERS_MATCH = (
    "resnet18-cifar",
    "resnet50-cifar",
    "mobilenetv2-cifar",
    "efficientnet-b0-cifar",
    "vgg-cifar",
    "shakeshake-big(t2t)",
    "small-cnn-cifar-d2-f16",
    "small-cnn-cifar-d5-f128",
    "ncf-neumf--ml-20m",
    "dlrm--mlperf",
    "dlrm-dcnv2",
    "jasper-10x5dr",
    "quartznet-15x5",
    "rnnt",
    "tacotron2",
    "waveglow",
    "lstm-lm",
    "yolov3-darknet53",
    "efficientdet_d0",
    "retinanet-r50-fpn",
    "mask-rcnn-r50-fpn",
    "faster-rcnn-r50-fpn",
    "cascade-rcnn-r50-fpn",
    "unet-industrial",
    "unet-medical",
    "unet3plus",
    "nnunet-3d",
    "insightface-r100",
    "stable-diffusion-2-base",
    "dcgan",
    "gpunet_0",
    "gpunet_1",
    "gpunet_2",
    "pointnet",
    "dimenet++-oc20",
    "clip-vit-bigg-14",
    "detr-r50",
    "yolo11m",
)
FLOPS_MATCH = ("resnet18-cifar", "resnet50-cifar", "efficientdet_d0", "retinanet-r50-fpn")


@cache
def entries() -> dict[str, Any]:
    """All entries of this room's modules by name; a name may occur once only."""
    if str(DATA) not in sys.path:
        sys.path.insert(0, str(DATA))
    found: dict[str, Any] = {}
    for module in MODULES:
        own = import_module(f"zoo_definitions.{module}").ENTRIES
        assert not own.keys() & found.keys()
        found |= own
    return found


def published(name: str, quantity: str) -> float:
    """The published figure of an entry."""
    (value,) = {r.value for r in entries()[name].references if r.quantity == quantity}
    return float(value)


@pytest.mark.parametrize("name", PARAMETERS_MATCH)
def test_parameters_within_one_percent_of_the_published_count(name: str) -> None:
    with torch.device("meta"):
        model = entries()[name].build()
    count = sum(p.numel() for p in model.parameters())
    assert count == pytest.approx(published(name, "params"), rel=0.01)


@pytest.mark.parametrize("name", FLOPS_MATCH)
def test_forward_flops_within_one_percent_of_the_published_count(name: str) -> None:
    assert graph_of(name).forward_flops == pytest.approx(published(name, "forward_flops"), rel=0.01)


def test_recurrent_layers_stay_one_node_each() -> None:
    nodes = [node for node in graph_of("gnmt").nodes if node.op == "lstm"]
    # a bidirectional layer counts twice: encoder 2 + 3, decoder 1 + 3
    assert sum(node.repeat for node in nodes) == 9
    assert {node.sequential_steps for node in nodes} == {30}


def test_frozen_parts_of_a_detector_have_no_weight_gradient() -> None:
    graph = graph_of("retinanet-r50")
    # stem and first stage of ResNet-50 without norms: 9408 + 212,992 weights
    assert graph.params - graph.trainable_params == 9_408 + 212_992


def test_text_encoder_is_frozen_in_stable_diffusion() -> None:
    with torch.device("meta"):
        model = entries()["stable-diffusion-v2"].build()
    trained = sum(p.numel() for p in model.parameters() if p.requires_grad)
    assert trained == pytest.approx(published("stable-diffusion-2-base", "params"), rel=0.001)


def test_embedding_tables_of_click_models_stay_out_of_the_dense_optimizer() -> None:
    graph = graph_of("dlrm")
    towers = 13 * 512 + 512 * 256 + 256 * 128 + (512 + 256 + 128)
    towers += 479 * 1024 + 1024 * 1024 + 1024 * 512 + 512 * 256 + 256 + (1024 + 1024 + 512 + 256 + 1)
    assert graph.trainable_params == towers
    assert graph.params - towers == 33_762_577 * 128
    assert sum(node.param_elems * node.repeat for node in graph.nodes) == towers


def test_small_cnns_differ_by_depth_and_width() -> None:
    flops = [graph_of(f"small-cnn-cifar-d{d}-f{f}").forward_flops for d in (2, 3) for f in (16, 32)]
    assert len(set(flops)) == 4
    assert flops[1] > 3 * flops[0]


def test_every_entry_says_what_it_counts() -> None:
    for name, entry in entries().items():
        assert entry.family in FAMILIES, name
        assert entry.throughput_unit.endswith("/s"), name
        assert entry.units_per_sample >= 1, name
        assert entry.dataset or entry.task, name
        assert all(reference.source for reference in entry.references), name


def test_aliases_name_nothing_twice() -> None:
    aliases = [alias for entry in entries().values() for alias in entry.aliases]
    assert len(aliases) == len(set(aliases))
    assert not set(aliases) & entries().keys()


@cache
def graph_of(name: str) -> Any:
    """The captured graph of an entry."""
    from precision_time.capture.recorder import CAPTURE_BATCH, record

    entry = entries()[name]
    with torch.device("meta"):
        model = entry.build()
        inputs = entry.inputs(CAPTURE_BATCH)
    return record(model, inputs, {}, name=name)
