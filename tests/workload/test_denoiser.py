"""Denoisers and hybrids: what their sizes do to the work of a step."""

from __future__ import annotations

import pytest

from precision_time.errors import ConfigError
from precision_time.workload.families.denoiser import latent_area
from precision_time.workload.graph import OpClass, OpGraph
from precision_time.workload.resolve import load_workload


def flops(graph: OpGraph, *classes: OpClass) -> float:
    return sum(node.flops * node.repeat for node in graph.nodes if node.op_class in classes)


def test_a_frame_has_two_sides() -> None:
    assert latent_area(1024, 0, 0, 16) == latent_area(0, 1024, 1024, 16) == 4096
    assert latent_area(480, 832, 0, 16) == 52 * 30
    assert latent_area(0, 0, 0, 16) == 0
    with pytest.raises(ConfigError, match="height=480 alone is no size"):
        latent_area(0, 0, 480, 16)


@pytest.mark.parametrize(("name", "frames_per_latent", "side"), [("wan2.1-1.3b", 4, 16), ("ltx-2", 8, 32)])
def test_width_height_and_frames_set_the_tokens(name: str, frames_per_latent: int, side: int) -> None:
    graph = load_workload(name, sizes={"width": 768, "height": 512, "frames": 49}).graph
    assert graph.seq_len == (48 // frames_per_latent + 1) * (768 // side) * (512 // side)


def test_an_image_has_no_frames() -> None:
    with pytest.raises(ConfigError, match="draws single images"):
        load_workload("qwen-image", sizes={"frames": 9})


def test_linear_attention_grows_with_the_tokens() -> None:
    for name, growth in (("sana", 4.0), ("qwen-image", 14.0)):
        small, large = (load_workload(name, image_size=side).graph for side in (1024, 2048))
        kinds = (OpClass.BMM,) if name == "sana" else (OpClass.ATTENTION,)
        assert flops(large, *kinds) == pytest.approx(growth * flops(small, *kinds), rel=0.1)


def test_delta_nets_and_scans_grow_with_the_tokens() -> None:
    for name in ("mamba-130m", "mamba2-130m"):
        short, long = (load_workload(name, seq_len=length).graph for length in (2048, 4096))
        assert long.forward_flops == pytest.approx(2 * short.forward_flops, rel=1e-6)
    short, long = (load_workload("qwen3.5-9b", seq_len=length).graph for length in (4096, 8192))
    assert flops(long, OpClass.BMM) == pytest.approx(2 * flops(short, OpClass.BMM))
    assert flops(long, OpClass.ATTENTION) == pytest.approx(4 * flops(short, OpClass.ATTENTION))


def test_adapters_of_a_captured_model_follow_the_alias_of_its_base() -> None:
    assert load_workload("kolors-lora").adapter == load_workload("sdxl-lora").adapter == "lora"
    trained = load_workload("qwen-image-lora").graph
    assert trained.trainable_params < 0.01 * trained.params
