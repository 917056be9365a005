"""The shipped corpus: every source is there, and its rows obey the rules of their columns."""

from __future__ import annotations

import math
from collections import Counter

import pytest

from precision_time.corpus.measurement import Measurement, Quality
from precision_time.corpus.reading import PRECISIONS
from precision_time.corpus.rules import load_rules
from precision_time.corpus.store import load_corpus, shipped_store
from precision_time.cost.stacks import known_stacks

SOURCES = {
    "a100-cnn-sweep": (159, 159, 0),
    "algoperf-v05": (108, 92, 0),
    "algoperf-v06": (16, 14, 0),
    "ascend-modelzoo-pytorch": (140, 108, 0),
    "auroragpt-small": (12, 12, 0),
    "aws-neuron": (169, 169, 0),
    "bigscience": (237, 229, 0),
    "bionemo-opengenome2": (1, 1, 0),
    "bionemo-recipes": (10, 10, 2),
    "capella-muon-qwen3": (6, 0, 0),
    "cdecatapult": (12, 12, 0),
    "cm-dare": (107, 23, 0),
    "colossalai": (4, 4, 0),
    "colossalai-readme": (2, 0, 0),
    "colossalai-vit": (4, 4, 0),
    "convnet-benchmarks": (48, 48, 0),
    "cream-tinyvit": (2, 2, 0),
    "dawnbench": (65, 41, 0),
    "decentralized-fm": (369, 369, 0),
    "deepspeed-chat": (22, 0, 0),
    "deepspeed-posts": (13, 7, 0),
    "deformable-detr-readme": (5, 5, 0),
    "detectron1-model-zoo": (63, 63, 0),
    "detectron2": (64, 52, 0),
    "dgl-examples": (27, 4, 15),
    "dgx-spark-playbooks": (1, 1, 0),
    "dit-threads": (2, 2, 0),
    "easyr1-baselines": (13, 0, 0),
    "edm-readme": (7, 7, 0),
    "fast-dit": (3, 3, 0),
    "flagperf": (103, 84, 0),
    "flash-attention": (5, 5, 0),
    "flax-imagenet": (2, 2, 0),
    "fms-acceleration": (376, 376, 0),
    "frontier-torchtitan": (8, 8, 0),
    "fugaku-llm": (78, 78, 0),
    "gavel": (462, 451, 0),
    "gb200-lowprec-attention": (12, 12, 0),
    "glm52-b300-256k": (1, 1, 0),
    "gpu-recipes": (7, 7, 0),
    "halo-b300": (27, 27, 0),
    "hf-cookbook": (1, 1, 0),
    "hf-trainer-benchmark": (21, 17, 4),
    "intel-gaudi-pages": (23, 19, 0),
    "isambard-nano30b-midtrain": (2, 2, 0),
    "isambard-super120b": (2, 2, 0),
    "jax-toolbox-rosetta": (49, 49, 0),
    "jcjohnson-cnn-benchmarks": (64, 64, 0),
    "lambda": (3975, 3279, 0),
    "levanter": (7, 7, 0),
    "libai": (0, 0, 88),
    "litgpt": (39, 39, 0),
    "litgpt-config-hub": (41, 41, 0),
    "llmc-scripts": (4, 4, 0),
    "lucid": (59, 59, 0),
    "lumi-megatron-bert": (4, 4, 0),
    "mac-ml-speed-test": (111, 111, 0),
    "mae-finetune": (3, 3, 0),
    "maskrcnn-benchmark": (23, 13, 0),
    "maxtext": (26, 26, 0),
    "maxtext-custom-models": (9, 1, 0),
    "maxtext-v6e-gemma4": (1, 1, 0),
    "megatron-bridge-skills": (5, 5, 0),
    "megatron-lm": (33, 33, 4),
    "megatron-lm-ci-golden": (15, 12, 0),
    "megatron-threads": (1, 1, 0),
    "mi100-deepspeed-pp": (9, 9, 0),
    "mi350x-notes": (8, 8, 0),
    "milabench": (205, 205, 0),
    "mindcv-readme": (48, 48, 0),
    "mindformers-cards": (57, 55, 5),
    "mindocr-readme": (8, 8, 0),
    "mindone-opensora": (8, 8, 0),
    "mindone-sd-benchmark": (37, 32, 0),
    "mindspeed-llm": (42, 26, 0),
    "mindspore-benchmark-pages": (9, 9, 0),
    "mindspore-models": (52, 30, 0),
    "mindyolo-readme": (48, 48, 0),
    "mistral-threads": (1, 1, 0),
    "mli-transformers-benchmarks": (2, 2, 0),
    "mlperf-hpc-v0.7": (15, 15, 0),
    "mlperf-hpc-v1.0": (23, 19, 0),
    "mlperf-hpc-v2.0": (10, 7, 0),
    "mlperf-hpc-v3.0": (11, 5, 0),
    "mlperf-v0.5": (18, 16, 4),
    "mlperf-v0.6": (31, 23, 0),
    "mlperf-v0.7": (93, 82, 0),
    "mlperf-v1.0": (114, 114, 0),
    "mlperf-v1.1": (139, 139, 0),
    "mlperf-v2.0": (200, 198, 0),
    "mlperf-v2.1": (99, 99, 0),
    "mlperf-v3.0": (140, 140, 0),
    "mlperf-v3.1": (118, 118, 0),
    "mlperf-v4.0": (115, 115, 0),
    "mlperf-v4.1": (82, 82, 0),
    "mlperf-v5.0": (84, 84, 0),
    "mlperf-v5.1": (60, 60, 0),
    "mmaction2-benchmark": (17, 17, 0),
    "mmdetection": (41, 41, 0),
    "mmdetection3d-benchmark": (8, 8, 0),
    "mmpretrain-threads": (1, 1, 0),
    "mmsegmentation-benchmark": (0, 0, 4),
    "modded-nanogpt": (129, 42, 0),
    "mosaic-llm-foundry": (351, 351, 0),
    "moussakam-fsdp-3d": (6, 6, 0),
    "ms-swift-benchmark": (110, 0, 0),
    "ms-swift-scripts": (8, 7, 0),
    "mxnet-docs": (52, 52, 0),
    "nanogpt-threads": (1, 1, 0),
    "nemo": (60, 54, 0),
    "nemo-automodel": (11, 11, 0),
    "nemo-automodel-pretrain": (13, 13, 0),
    "nemo-launcher": (92, 89, 0),
    "nemo-megatron-bridge": (175, 172, 0),
    "nemo-nvfp4-b200": (5, 5, 0),
    "nemotron3-nano-cpt": (8, 0, 0),
    "nnunet-v1-epoch-times": (153, 102, 0),
    "nvidia-dgxc": (224, 224, 0),
    "nvidia-dle": (1236, 730, 0),
    "olmoe3-b300": (4, 3, 0),
    "olmoe3-b300-275m": (7, 3, 0),
    "oneflow-dlperf": (535, 535, 0),
    "openpcdet-zoo": (9, 9, 0),
    "optimum-habana": (494, 484, 0),
    "paddle-perf": (103, 61, 0),
    "paddleclas-threads": (4, 4, 0),
    "paddlenlp-llm": (8, 0, 0),
    "paddlenlp-peft": (45, 26, 0),
    "peft-method-comparison": (192, 52, 0),
    "pollux": (6069, 6069, 0),
    "prime-rl": (36, 36, 0),
    "pycls-model-zoo": (35, 35, 0),
    "pyg-readme": (12, 12, 0),
    "pytorch-gpu-benchmark": (1318, 1318, 0),
    "server-gear": (50, 50, 0),
    "shockwave": (0, 0, 231),
    "sia": (7233, 7233, 3915),
    "simpletuner": (646, 354, 0),
    "stylegan2-ada-readme": (12, 12, 0),
    "stylegan3-configs": (110, 110, 0),
    "surogate": (171, 171, 0),
    "swin-threads": (1, 1, 0),
    "synergy": (5, 4, 0),
    "tensorpack-benchmarks": (42, 42, 0),
    "tf-docs-2017": (185, 185, 0),
    "tf-metal-experiments": (12, 12, 0),
    "timm": (5127, 5127, 0),
    "torchao": (16, 16, 2),
    "torchao-moe": (3, 3, 0),
    "torchtitan": (35, 35, 0),
    "torchtitan-distmoe-gb300": (2, 2, 0),
    "torchtitan-nvfp4": (5, 5, 0),
    "torchtune": (15, 12, 0),
    "tprimat": (5, 5, 0),
    "tpu-recipes": (37, 36, 0),
    "training-hub": (8, 0, 0),
    "transformer-engine-tutorial": (4, 0, 6),
    "u39kun-dl-benchmark": (50, 50, 0),
    "unsloth-notebooks": (47, 0, 0),
    "unsloth-readme": (13, 0, 0),
    "vocabulary-parallelism": (41, 9, 0),
    "vtrain": (1016, 1016, 0),
    "wenet-readme": (4, 0, 0),
    "xtuner-legacy": (24, 24, 0),
    "xtuner-megatron-moe": (16, 16, 0),
    "yolov5-readme": (13, 0, 0),
    "zeus": (1156, 416, 0),
}


@pytest.fixture(scope="module")
def corpus() -> list[Measurement]:
    return load_corpus()


def test_every_row_of_every_source_is_accounted_for():
    with shipped_store() as store:
        counts = {
            name: (entry["rows"], entry["usable"], entry["rejected"])
            for name, entry in store.sources().items()
        }
        rejected = store.rejected()
    assert counts == SOURCES
    assert sum(rows + refused for rows, _, refused in counts.values()) == 41_132
    assert Counter(row.reason for row in rejected) == {
        "device not stated": 4259,
        "number of devices not stated": 21,
    }


def test_layouts_fill_the_devices_and_hold_the_batch(corpus):
    for row in corpus:
        if row.layout is not None:
            assert row.layout.world_size == row.num_devices, row.source_ref
            assert row.layout.global_batch_size == pytest.approx(row.global_batch_size, rel=1e-6), (
                row.source_ref
            )
        assert 1 <= row.num_nodes <= row.num_devices
        assert not row.placement or sum(row.placement) == row.num_devices


def test_quality_weight_and_step_time_agree(corpus):
    for row in corpus:
        if row.quality is Quality.FINE:
            assert row.usable and row.weight == 1.0 and not row.quality_reason
        else:
            assert row.quality_reason and row.weight <= 0.5
        if row.quality is Quality.UNUSABLE:
            assert row.weight == 0.0 and not row.usable
        if row.usable:
            assert 1e-5 < row.step_time_s < 2e4
            assert row.sync_time_s is None or 0 <= row.sync_time_s <= row.step_time_s


def test_words_are_canonical(corpus):
    stacks = known_stacks()
    for row in corpus:
        assert row.precision in PRECISIONS
        assert row.stack.profile in stacks
        assert 2015 < row.stack.framework_year < 2027  # convnet-benchmarks ends in 2015
        assert row.source_ref


def test_repeats_share_key_count_and_configuration(corpus):
    groups: dict[str, list[Measurement]] = {}
    for row in corpus:
        if row.usable:
            groups.setdefault(row.configuration_key, []).append(row)
    for rows in groups.values():
        assert len({(row.model, row.device, row.num_devices, row.precision) for row in rows}) == 1
        assert len({row.global_batch_size for row in rows}) == 1
        assert all(row.repeat_count >= len(rows) for row in rows)


def test_fine_images_per_second_agree_with_the_step_time(corpus):
    for row in corpus:
        if row.quality is Quality.FINE and row.throughput_unit == "images/s" and row.throughput:
            assert abs(math.log(row.global_batch_size / row.throughput / row.step_time_s)) < 0.16


def test_every_variant_rule_names_a_variant_that_exists():
    from precision_time.precision.catalog import known_precisions, known_variants

    variants = {variant for name in known_precisions() for variant in known_variants(name)}
    for rule in load_rules("variant", curated=True):
        assert rule.values["variant"] in variants | {"", "of-stack"}


def test_a_precision_that_no_source_states_is_marked(corpus: list[Measurement]) -> None:
    """A rule that fills in a label says so among the assumptions."""
    usable = [row for row in corpus if row.usable]
    share = sum(row.precision_inferred for row in usable) / len(usable)
    assert share == pytest.approx(0.589, abs=0.005)
    filled = [row for row in corpus if any(text.startswith("precision not") for text in row.assumptions)]
    assert len(filled) > 1500 and all(row.precision_inferred for row in filled)
    assert any(not row.precision_inferred for row in usable)


def test_rates_that_were_read_into_the_wrong_row_are_out(corpus: list[Measurement]) -> None:
    zoo = [row for row in corpus if row.source == "ascend-modelzoo-pytorch"]
    assert not [row for row in zoo if row.usable and row.precision == "fp32"]
    one = [
        row for row in zoo if row.usable and row.num_devices == 1 and row.model.startswith("gluon_resnet50")
    ]
    assert one and max(row.throughput or 0.0 for row in one) < 2000
    (constant,) = [row for row in corpus if row.source == "synergy" and row.model == "resnet50"]
    assert not constant.usable and constant.weight == 0
