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
    "adriangrupp-kit-tf": (24, 24, 0),
    "aibench-fork-h100": (5, 5, 0),
    "aibench-gke-v100": (5, 5, 0),
    "aibench-itex-a770": (5, 5, 0),
    "alcf-graphcore": (6, 6, 0),
    "algoperf-v05": (108, 92, 0),
    "algoperf-v06": (16, 14, 0),
    "apple-silicon-bert": (16, 16, 0),
    "asangcode-imagenet-a10g": (1, 1, 0),
    "ascend-modelzoo-pytorch": (140, 108, 0),
    "auroragpt-small": (12, 12, 0),
    "autoresearch-baseline": (1, 1, 0),
    "aws-distributed-samples": (6, 6, 0),
    "aws-neuron": (169, 169, 0),
    "aws-resnet-horovod": (6, 6, 0),
    "axlearn-configs": (18, 18, 0),
    "azure-batchai-horovod": (40, 40, 0),
    "bagua-net-readme": (2, 2, 0),
    "baskerville-ddp": (9, 9, 0),
    "bigpurple-gpt2": (6, 6, 0),
    "bigscience": (237, 229, 0),
    "bionemo-opengenome2": (1, 1, 0),
    "bionemo-recipes": (10, 10, 2),
    "caiman-asr": (10, 10, 0),
    "capella-muon-qwen3": (6, 0, 0),
    "cdecatapult": (12, 12, 0),
    "chethan180-imagenet-l4": (1, 1, 0),
    "cloud-cnn-benchmarks": (50, 50, 0),
    "cm-dare": (107, 23, 0),
    "coat-toolbench": (3, 3, 0),
    "colossalai": (4, 4, 0),
    "colossalai-lightning-gpt2xl": (3, 3, 0),
    "colossalai-readme": (2, 0, 0),
    "colossalai-vit": (4, 4, 0),
    "convnet-benchmarks": (48, 48, 0),
    "cream-tinyvit": (2, 2, 0),
    "csc-ml-benchmarks": (210, 210, 0),
    "cvpods-zoo": (3, 3, 0),
    "daint-p2-inception3": (22, 22, 0),
    "dawnbench": (65, 41, 0),
    "decentralized-fm": (369, 369, 0),
    "deepspeed-chat": (22, 0, 0),
    "deepspeed-posts": (13, 7, 0),
    "deformable-detr-readme": (5, 5, 0),
    "detectron1-model-zoo": (63, 63, 0),
    "detectron2": (64, 52, 0),
    "detr-readme": (1, 1, 0),
    "devos50-aws-cards": (8, 8, 0),
    "dew-scoreboard": (16, 16, 0),
    "dgl-examples": (27, 4, 15),
    "dgx-spark-nanochat": (1, 1, 0),
    "dgx-spark-playbooks": (1, 1, 0),
    "dhairyag-imagenet-t4": (2, 2, 0),
    "distributed-embeddings": (16, 16, 0),
    "dit-threads": (2, 2, 0),
    "dlprim-native-cards": (40, 40, 0),
    "dlprim-pytorch-cards": (42, 42, 0),
    "dp-tp-pp-lab": (22, 22, 0),
    "easycontext-readme": (4, 4, 0),
    "easyr1-baselines": (13, 0, 0),
    "edm-readme": (7, 7, 0),
    "eth-kaspar-ddp": (24, 24, 0),
    "eth-lai-proj": (4, 4, 0),
    "eth-shaswat": (8, 8, 0),
    "fast-dit": (3, 3, 0),
    "fastcode-finetune": (18, 18, 0),
    "finetune-win-mac": (6, 6, 0),
    "fla-threads": (5, 5, 0),
    "flagperf": (103, 84, 0),
    "flash-attention": (5, 5, 0),
    "flax-imagenet": (2, 2, 0),
    "flopcheck": (6, 6, 0),
    "fms-acceleration": (376, 376, 0),
    "frontier-torchtitan": (8, 8, 0),
    "fsdp-bench-l40s": (76, 76, 0),
    "fugaku-llm": (78, 78, 0),
    "gavel": (462, 451, 0),
    "gb200-lowprec-attention": (12, 12, 0),
    "gipfelsturm-baudoin": (3, 3, 0),
    "gipfelsturm-kilianmandon": (8, 8, 0),
    "gipfelsturm-marischn": (1, 1, 0),
    "gipfelsturm-youssef62": (24, 24, 0),
    "glm52-b300-256k": (1, 1, 0),
    "gluoncv-logs": (44, 44, 0),
    "gpt2-rtx3060-laptop": (23, 23, 0),
    "gpu-insights": (61, 61, 0),
    "gpu-recipes": (7, 7, 0),
    "gradient-llama3-long": (3, 3, 0),
    "groupnorm-reproduce": (1, 1, 0),
    "guolinke-k40": (7, 7, 0),
    "gx10-finetune-bench": (3, 3, 0),
    "haiku-imagenet": (4, 4, 0),
    "hal-ddp-apex": (11, 11, 0),
    "halo-b300": (27, 27, 0),
    "hf-accelerate-docs": (3, 3, 0),
    "hf-cookbook": (1, 1, 0),
    "hf-docs-performance": (12, 12, 0),
    "hf-gpt2-3090-nvlink": (22, 22, 0),
    "hf-trainer-benchmark": (21, 17, 4),
    "horovod-readme": (36, 36, 0),
    "hyperion-mi250x": (7, 7, 0),
    "ibm-ado-sfttrainer": (40, 40, 0),
    "intel-ai-models": (6, 6, 0),
    "intel-gaudi-pages": (23, 19, 0),
    "isambard-nano30b-midtrain": (2, 2, 0),
    "isambard-super120b": (2, 2, 0),
    "itex-performance": (12, 12, 0),
    "jax-toolbox-rosetta": (49, 49, 0),
    "jcjohnson-cnn-benchmarks": (64, 64, 0),
    "johnny12150-aibench": (32, 32, 0),
    "kai-gpu-benchmark": (40, 40, 0),
    "kaust-ibex-bloom": (1, 1, 0),
    "kempner-resnet50": (7, 7, 0),
    "koshian-tpu-colab": (6, 6, 0),
    "lambda": (3975, 3279, 0),
    "fsdp-405b-guide": (1, 1, 0),
    "languini-throughput": (244, 244, 0),
    "levanter": (7, 7, 0),
    "libai": (0, 0, 88),
    "lightning-lite-fsdp": (13, 13, 0),
    "lightseq-docs": (126, 126, 0),
    "ling-v2-docs": (1, 1, 0),
    "litgpt": (39, 39, 0),
    "litgpt-config-hub": (41, 41, 0),
    "llmc-scripts": (4, 4, 0),
    "llmc-torch-zero1": (2, 2, 0),
    "llmq-benchmarks": (40, 40, 0),
    "lucid": (59, 59, 0),
    "lucie-jean-zay": (40, 40, 0),
    "lucky-spark-sft": (4, 4, 0),
    "lumi-llm-scaling": (11, 11, 0),
    "lumi-megatron-bert": (4, 4, 0),
    "lumi-reframe-megatron": (3, 3, 0),
    "mac-ml-speed-test": (111, 111, 0),
    "mae-finetune": (3, 3, 0),
    "marin-speedrun": (15, 15, 0),
    "maskrcnn-benchmark": (23, 13, 0),
    "maxtext": (26, 26, 0),
    "maxtext-custom-models": (9, 1, 0),
    "maxtext-v6e-gemma4": (1, 1, 0),
    "mccormick-bert": (3, 3, 0),
    "megatron-bridge-skills": (5, 5, 0),
    "megatron-llama-readme": (5, 5, 0),
    "megatron-lm": (33, 33, 4),
    "megatron-lm-ci-golden": (15, 12, 0),
    "megatron-threads": (1, 1, 0),
    "megatron-tutorials-h100": (40, 40, 0),
    "mi100-deepspeed-pp": (9, 9, 0),
    "mi350x-notes": (8, 8, 0),
    "milabench": (205, 205, 0),
    "mindcv-readme": (48, 48, 0),
    "mindformers-cards": (57, 55, 5),
    "mindocr-readme": (8, 8, 0),
    "mindone-opensora": (8, 8, 0),
    "mindone-sd-benchmark": (37, 32, 0),
    "mindspeed-llm": (42, 26, 0),
    "mindspeed-mm-diffusers": (4, 4, 0),
    "mindspore-benchmark-pages": (9, 9, 0),
    "mindspore-models": (52, 30, 0),
    "mindyolo-readme": (48, 48, 0),
    "mingpt-lightning-strategies": (22, 22, 0),
    "mirathfan-perf-lab": (8, 8, 0),
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
    "mlx-examples-threads": (2, 2, 0),
    "mmaction2-benchmark": (17, 17, 0),
    "mmdetection": (41, 41, 0),
    "mmdetection3d-benchmark": (8, 8, 0),
    "mmpretrain-threads": (1, 1, 0),
    "mmsegmentation-benchmark": (0, 0, 4),
    "modal-nanogpt-cluster": (4, 4, 0),
    "modded-nanogpt": (129, 42, 0),
    "modded-nanogpt-rwkv": (4, 4, 0),
    "mosaic-llm-foundry": (351, 351, 0),
    "moussakam-fsdp-3d": (6, 6, 0),
    "ms-ort-hf-recipes": (16, 16, 0),
    "ms-swift-benchmark": (110, 0, 0),
    "ms-swift-scripts": (8, 7, 0),
    "mxnet-docs": (52, 52, 0),
    "mxnet-finetuner": (38, 38, 0),
    "nanochat-a100-pr147": (1, 1, 0),
    "nanochat-log": (7, 7, 0),
    "nanochat-moe-h800": (8, 8, 0),
    "nanogpt-issue-110": (1, 1, 0),
    "nanogpt-threads": (1, 1, 0),
    "nanot5-readme": (5, 5, 0),
    "nanotron-scaling-bench": (26, 26, 0),
    "nebius-ddp-reports": (5, 5, 0),
    "nebius-h100-acceptance": (1, 1, 0),
    "nemo": (60, 54, 0),
    "nemo-automodel": (11, 11, 0),
    "nemo-automodel-pretrain": (13, 13, 0),
    "nemo-launcher": (92, 89, 0),
    "nemo-megatron-bridge": (175, 172, 0),
    "nemo-nvfp4-b200": (5, 5, 0),
    "nemotron3-nano-cpt": (8, 0, 0),
    "nersc-sc20-tutorial": (4, 4, 0),
    "neural-nova-qwen3": (2, 2, 0),
    "nnunet-v1-epoch-times": (153, 102, 0),
    "northcutt-workstation": (17, 17, 0),
    "nvidia-dgxc": (224, 224, 0),
    "nvidia-dle": (1236, 730, 0),
    "oci-a10-strategies": (4, 4, 0),
    "odissei-torchtune": (18, 18, 0),
    "oellm-autoexp": (129, 129, 0),
    "olmoe3-b300": (4, 3, 0),
    "olmoe3-b300-275m": (7, 3, 0),
    "oneflow-dlperf": (535, 535, 0),
    "openpcdet-zoo": (9, 9, 0),
    "opensora-speed": (6, 6, 0),
    "optimum-habana": (494, 484, 0),
    "oumi-llama2b": (24, 24, 0),
    "paddle-perf": (103, 61, 0),
    "paddleclas-threads": (4, 4, 0),
    "paddlenlp-llm": (8, 0, 0),
    "paddlenlp-peft": (45, 26, 0),
    "pai-megatron-patch-threads": (4, 4, 0),
    "paiml-train-canary": (1, 1, 0),
    "parameter-golf": (13, 13, 0),
    "peft-method-comparison": (192, 52, 0),
    "phillipcarroll-bert": (28, 28, 0),
    "philschmid-bert-pt2": (2, 2, 0),
    "philschmid-dl1": (3, 3, 0),
    "plsc-readmes": (8, 8, 0),
    "pollux": (6069, 6069, 0),
    "prime-rl": (36, 36, 0),
    "pycls-model-zoo": (35, 35, 0),
    "pyg-readme": (12, 12, 0),
    "pytorch-gpu-benchmark": (1318, 1318, 0),
    "raschka-cvpr2023": (7, 7, 0),
    "raschka-distilbert-layers": (1, 1, 0),
    "raschka-distilbert-precision": (12, 12, 0),
    "raschka-faster-pytorch": (4, 4, 0),
    "raschka-memory-optim": (9, 9, 0),
    "raschka-vgg16": (15, 15, 0),
    "recbole-times": (15, 15, 0),
    "resnet-rs-readme": (11, 11, 0),
    "retinanet-tf2-tpu": (6, 6, 0),
    "rnn-benchmarks": (12, 12, 0),
    "rosetta-stone-densenet": (16, 16, 0),
    "rossum-multi-gpu": (11, 11, 0),
    "rtx2080-tfcnn": (17, 17, 0),
    "rwkv-infctx-benchmark": (22, 22, 0),
    "sagemaker-falcon-fsdp": (1, 1, 0),
    "sandeepkumar-torchvision": (4, 4, 0),
    "scicom-small-ablation": (3, 3, 0),
    "server-gear": (50, 50, 0),
    "shockwave": (0, 0, 231),
    "sia": (7233, 7233, 3915),
    "simpledet": (39, 39, 0),
    "simpletuner": (646, 354, 0),
    "siwooyong-imagenet-3090": (3, 3, 0),
    "small-malaysian-lm": (20, 20, 0),
    "smartmoe-ae": (23, 23, 0),
    "smollm3-fsdp2-blog": (2, 2, 0),
    "sok-dlrm": (16, 16, 0),
    "soup-h100": (4, 4, 0),
    "speechbrain-readme": (2, 2, 0),
    "starbeeva-t4": (20, 20, 0),
    "stylegan-lambda": (72, 72, 0),
    "stylegan2-ada-readme": (12, 12, 0),
    "stylegan3-configs": (110, 110, 0),
    "super-gradients-recipes": (5, 5, 0),
    "surogate": (171, 171, 0),
    "swin-threads": (1, 1, 0),
    "swissai-megatron": (3, 3, 0),
    "synergy": (5, 4, 0),
    "tensorflow-nmt": (5, 5, 0),
    "tensorpack-benchmarks": (42, 42, 0),
    "tensorpack-fasterrcnn-zoo": (8, 8, 0),
    "tf-docs-2017": (185, 185, 0),
    "tf-metal-experiments": (12, 12, 0),
    "tfcnn-gtx1050ti": (13, 13, 0),
    "tfcnn-posts": (4, 4, 0),
    "thunder-docs": (1, 1, 0),
    "timm": (5127, 5127, 0),
    "tlkh-transformers": (40, 40, 0),
    "together-gb200": (16, 16, 0),
    "torchacc-docs": (5, 5, 0),
    "torchao": (16, 16, 2),
    "torchao-moe": (3, 3, 0),
    "torchprime-issues": (4, 4, 0),
    "torchtitan": (35, 35, 0),
    "torchtitan-distmoe-gb300": (2, 2, 0),
    "torchtitan-nvfp4": (5, 5, 0),
    "torchtune": (15, 12, 0),
    "tprimat": (5, 5, 0),
    "tpu-recipes": (37, 36, 0),
    "tpuchat-post": (2, 2, 0),
    "training-hub": (8, 0, 0),
    "transformer-engine-tutorial": (4, 0, 6),
    "trl-long-context": (7, 7, 0),
    "u39kun-dl-benchmark": (50, 50, 0),
    "ultralytics-yolov3-readme": (6, 6, 0),
    "unsloth-lora-bench": (12, 12, 0),
    "unsloth-notebooks": (47, 0, 0),
    "unsloth-readme": (13, 0, 0),
    "uvit-readme": (3, 3, 0),
    "vit-colossalai-t4": (24, 24, 0),
    "vocabulary-parallelism": (41, 9, 0),
    "vtrain": (1016, 1016, 0),
    "wenet-readme": (4, 0, 0),
    "whynlp-tinyllama": (13, 13, 0),
    "willgpaik-ddp-scaling": (40, 40, 0),
    "wsl-cifar-cards": (4, 4, 0),
    "xhmy-torch-benchmark": (35, 35, 0),
    "xla-fp8-perf-test": (13, 13, 0),
    "xtuner-legacy": (24, 24, 0),
    "xtuner-megatron-moe": (16, 16, 0),
    "yafsdp-readme": (30, 30, 0),
    "yeqiao-cifar-cards": (18, 18, 0),
    "yolov5-readme": (13, 0, 0),
    "zeus": (1156, 416, 0),
    "zyr17-24gb-cards": (9, 9, 0),
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
    assert sum(rows + refused for rows, _, refused in counts.values()) == 43_950
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
    assert share == pytest.approx(0.577, abs=0.005)
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
