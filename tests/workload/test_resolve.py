"""From names and sizes to workloads."""

from pathlib import Path
from typing import Any

import pytest

from precision_time.diagnostics import Severity
from precision_time.errors import ConfigError, UnknownNameError
from precision_time.request.request import Request
from precision_time.workload.families.tables import (
    alias_table,
    dataset_table,
    model_table,
    normalize,
    read_toml,
)
from precision_time.workload.resolve import (
    canonical_name,
    cautions_of,
    check_named_in_data,
    known_models,
    load_workload,
    model_names,
    search_models,
    usual_of,
)
from precision_time.workload.zoo import zoo_index


@pytest.mark.parametrize(
    ("spelling", "name"),
    [
        ("meta-llama/Llama-3.1-8B", "llama3.1-8b"),
        ("facebook/opt-1.3b", "opt-1.3b"),
        ("bert-base-uncased", "bert-base"),
        ("BERT_LARGE", "bert-large"),
        ("google-bert/bert-large-uncased-whole-word-masking", "bert-large"),
        ("mistralai/Mistral-7B-Instruct-v0.2", "mistral-7b-v0.2"),
        ("Llama-2-7b-hf", "llama2-7b"),
        ("openai-community/gpt2", "gpt2"),
        ("nvidia/Nemotron-4-340B-Base", "nemotron-340b"),
        ("mt-nlg-530b", "turing-530b"),
        ("ai21labs/AI21-Jamba-1.5-Mini", "jamba-v0.1"),
        ("granite-3-8b", "granite-3.1-8b"),
        ("flux", "flux.1-dev"),
        ("DeiT-B", "deit_base_patch16_224"),
        ("DINOv2 ViT-L", "vit_large_patch14_dinov2"),
        ("Qwen/Qwen3.6-27B-FP8", "qwen3.5-27b"),
        ("qwen3-235b", "qwen3-235b-a22b"),
        ("mistralai/Ministral-3-14B-Reasoning-2512", "ministral-3-14b"),
        ("mistralai/Magistral-Small-2509", "mistral-small-24b"),
        ("allenai/Olmo-3-32B-Think", "olmo3-32b"),
        ("moonshotai/Kimi-K2-Instruct-0905", "kimi-k2"),
        ("deepseek-ai/DeepSeek-V3-0324", "deepseek-v3"),
        ("nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", "nemotron-3-nano"),
    ],
)
def test_spellings(spelling: str, name: str) -> None:
    assert load_workload(spelling).name == name


@pytest.mark.parametrize(
    ("name", "other"),
    [
        ("google/gemma-3n-E4B-it", "gemma3-4b"),
        ("gemma4", "gemma3-27b"),
        ("deepseek-ai/DeepSeek-V3.2-Exp", "deepseek-v3"),
        ("zai-org/GLM-5", "glm-4.5"),
    ],
)
def test_what_has_no_formulas_names_what_comes_near(name: str, other: str) -> None:
    """A bare `gemma4` was the default size of a package, at 512 tokens, where the package was there."""
    with pytest.raises(UnknownNameError, match=f"It cannot be built by its name: .*{other}"):
        load_workload(name)


def test_aliases_lead_somewhere() -> None:
    known = {normalize(name) for name in model_names()}
    assert {canonical_name(alias) for alias in alias_table()} <= known


def test_aliases_are_those_of_the_file() -> None:
    written = read_toml("aliases.toml")["aliases"]
    assert alias_table() == {normalize(name): meant for name, meant in written.items()}
    assert len(alias_table()) == len(written)


@pytest.mark.parametrize("name", ["llama3-99b", "gpt5-xl", "bert-huge", "opt-77b"])
def test_sizes_are_not_guessed_from_a_suffix(name: str) -> None:
    with pytest.raises(UnknownNameError) as caught:
        load_workload(name)
    assert caught.value.nearest


def test_stated_sizes_override_the_table() -> None:
    graph = load_workload("llama3.1-405b", sizes={"layers": 4, "seq_len": 4096, "hidden": 16384}).graph
    per_layer = 16384 * (2 * 16384 + 2 * 1024 + 3 * 53248) + 2 * 16384
    assert graph.params == 4 * per_layer + 2 * 128256 * 16384 + 16384
    assert graph.seq_len == 4096


def test_seq_len_argument_wins() -> None:
    assert load_workload("llama3-8b", seq_len=1024, sizes={"seq_len": 4096}).graph.seq_len == 1024


def test_unknown_name_with_sizes_is_a_decoder() -> None:
    work = load_workload("our-own-7b", sizes={"hidden": 512, "layers": 3, "heads": 8, "vocab": 1000})
    assert work.family == "transformer-decoder"
    assert work.graph.params == pytest.approx(3 * (12 * 512**2 + 13 * 512) + (1000 + 2048) * 512 + 2 * 512)


def test_stated_parameters_and_a_family_name_make_a_shape() -> None:
    work = load_workload("gpt-99b", sizes={"params": 99e9, "seq_len": 2048})
    assert work.graph.params == pytest.approx(99e9, rel=0.01)
    assert any("chosen by" in text for text in work.assumptions)
    with pytest.raises(UnknownNameError):
        load_workload("something-99b", sizes={"params": 99e9})


def test_unstated_gated_width_follows_llama() -> None:
    work = load_workload("llama-own", sizes={"hidden": 4096, "layers": 32, "heads": 32, "vocab": 32000})
    assert work.graph.params == pytest.approx(load_workload("llama2-7b").graph.params, rel=0.001)


def test_names_that_spell_their_sizes() -> None:
    work = load_workload("gpt-h1024-l24", sizes={"heads": 16, "seq_len": 1024})
    assert work.graph.params == pytest.approx(24 * 12 * 1024**2 + 52224 * 1024, rel=0.002)
    assert load_workload("gpt-1536x16").graph.params == pytest.approx(16 * 12 * 1536**2, rel=0.2)


@pytest.mark.parametrize(("name", "params"), [("gpt-52b", 52e9), ("gpt-200b", 200e9), ("gpt2-13b", 13e9)])
def test_shape_chosen_by_parameters_is_said(name: str, params: float) -> None:
    work = load_workload(name)
    assert work.graph.params == pytest.approx(params, rel=0.01)
    assert any("chosen" in text for text in work.assumptions)


def test_shape_by_parameters_keeps_a_stated_width() -> None:
    work = load_workload("gpt-187b", sizes={"hidden": 13824, "vocab": 250000, "seq_len": 2048})
    assert work.graph.params == pytest.approx(187e9, rel=0.01)


def test_default_length_is_an_assumption_only_when_unsaid() -> None:
    assert any("seq_len 8192" in text for text in load_workload("llama3-8b").assumptions)
    assert not load_workload("llama3-8b", seq_len=8192).assumptions


@pytest.mark.parametrize(
    ("task", "dataset", "seq_len"),
    [
        ("squad-finetune", "squad1.1", 384),
        ("glue-mrpc-finetune", "glue-mrpc", 128),
        ("lm-pretrain", None, 512),
    ],
)
def test_task_chooses_head_and_length(task: str, dataset: str | None, seq_len: int) -> None:
    assert load_workload("bert-large", task=task, dataset=dataset).graph.seq_len == seq_len


@pytest.mark.parametrize("dataset", ["sst2", "mnli", "cola", "glue-sst2"])
def test_a_task_of_glue_is_read_by_any_of_its_names(dataset: str) -> None:
    work = load_workload("bert-base", dataset=dataset)
    assert (work.graph.seq_len, work.optimizer) == (128, "adamw")
    assert not any(node.n == 30522 for node in work.graph.nodes)


def test_question_answering_has_no_vocabulary_head() -> None:
    qa = load_workload("bert-large", task="squad-finetune", seq_len=384).graph
    pretrain = load_workload("bert-large", task="lm-pretrain", seq_len=384).graph
    assert qa.params == 334_094_338
    assert not any(n.n == 30522 for n in qa.nodes)
    assert any(n.n == 30522 for n in pretrain.nodes)


def test_units_and_defaults() -> None:
    llama, bert = load_workload("llama3-8b"), load_workload("bert-large")
    assert (llama.throughput_unit, llama.units_per_sample, llama.optimizer) == ("tokens/s", 8192, "adamw")
    assert (bert.throughput_unit, bert.units_per_sample, bert.optimizer) == ("sequences/s", 1, "lamb")
    assert load_workload("bert-large", optimizer="adam").optimizer == "adam"
    assert load_workload("mixtral-8x7b").family == "moe"


@pytest.mark.parametrize(
    ("name", "samples"),
    [
        *(
            ("mnist", 60_000),
            ("tiny-imagenet", 100_000),
            ("ADE20K", 20_210),
            ("VOC", 16_551),
            ("voc2012", 10_582),
        ),
        *(("LAION400M", 400_000_000), ("k400", 240_000), ("celeba", 162_770), ("criteo-kaggle", 45_840_617)),
        *(
            ("common_voice", 1_101_170),
            ("mozilla-foundation/common_voice_11_0", 948_736),
            ("wmt16", 4_548_885),
            ("WMT14", 4_528_446),
        ),
        *(("kinetics", 240_000), ("imagenet-21k", 14_197_122), ("coco2014", 82_783), ("BraTS", 1_251)),
    ],
)
def test_data_sets_as_people_call_them(name: str, samples: int) -> None:
    assert load_workload("resnet18", dataset=name).dataset_samples == samples


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        *(("whisper", "whisper-small"), ("wav2vec2", "wav2vec2-base"), ("segformer", "segformer-b0")),
        *(
            ("yolo11", "yolo11n"),
            ("YOLOv5", "yolov5s"),
            ("yolov8", "yolov8n"),
            ("swinv2", "swinv2_tiny_window8_256"),
        ),
    ],
)
def test_a_family_by_its_bare_name_is_its_usual_size(name: str, meant: str) -> None:
    assert canonical_name(name) == normalize(meant)
    assert [meant in said and "the usual one" in said for said in usual_of(name)] == [True]


@pytest.mark.parametrize("name", ["yolov8n", "vit-l", "llama-3.1-8b-instruct", "gpt2", "Llama-2-7b-hf"])
def test_nothing_is_assumed_of_a_name_that_says_its_size(name: str) -> None:
    assert usual_of(name) == ()


def test_the_size_that_was_taken_is_among_the_assumptions() -> None:
    said = Request.of({"model": "yolov8", "device": "A100", "batch_size": 32}).resolve().diagnostics
    assert "'yolov8' read as yolov8n, the usual one." in [item.text for item in said]


def test_a_model_known_by_its_training_says_what_is_not_priced() -> None:
    for name in ("dino", "facebook/dino-vits16", "dinov2-b"):
        assert ["student" in said and "4 times" in said for said in cautions_of(name)] == [True]
    assert cautions_of("vit-s") == ()
    said = Request.of({"model": "dino", "device": "A100", "batch_size": 32}).resolve().diagnostics
    assert [item.severity for item in said if "global" in item.text] == [Severity.WARNING]


def test_dataset_sizes() -> None:
    assert load_workload("bert-large", task="squad-finetune", dataset="squad").dataset_samples == 88524
    text = load_workload("gpt2", dataset="wikitext103", seq_len=1024)
    assert text.dataset_samples == 103227021 // 1024
    assert dataset_table()["imagenet"].samples == 1281167
    assert load_workload("gpt2", dataset="my-own").dataset_samples is None


@pytest.mark.parametrize(
    "sizes",
    [
        {"hidden": 0},
        {"layers": -3},
        {"heads": 7},
        {"kv_heads": 3},
        {"hidden": 10**12},
        {"layers": 2.5},
        {"seq_len": float("nan")},
    ],
)
def test_absurd_sizes_are_refused(sizes: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match="To fix") as caught:
        load_workload("llama3-8b", sizes=sizes)
    assert str(next(iter(sizes.values()))) in str(caught.value)


@pytest.mark.parametrize("seq_len", [0, -1])
def test_absurd_lengths_are_refused(seq_len: int) -> None:
    with pytest.raises(ConfigError, match=f"seq_len={seq_len}"):
        load_workload("gpt2", seq_len=seq_len)


@pytest.mark.parametrize(
    "name",
    ["gpt-99999999999x99999999999", "gpt-1024x999999", "gpt-0x12", "gpt-h64-l0", "llama3-mine-params"],
)
def test_names_that_spell_absurd_sizes_are_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="To fix"):
        load_workload(name, sizes={"params": 1e30} if name.endswith("params") else None)


@pytest.mark.parametrize(
    ("model", "sizes", "named"),
    [
        ("llama3-8b", {"hiden": 2048}, "no size 'hiden'. The rule: its sizes are hidden, "),
        ("t5-base", {"encoder_layer": 2}, "its sizes are encoder_layers, "),
        ("resnet50", {"hidden": 2048}, "'resnet50' has no size 'hidden'. The rule: it has none"),
        ("my-own", {"hidden": 64, "layers": 2, "heads": 2, "kvheads": 2}, "its sizes are kv_heads, "),
        ("llama3-8b", {"hidden": "2048"}, "hidden='2048' is not possible"),
        ("llama3-8b", {"hidden": True}, "hidden=True is not possible"),
        ("llama3-8b", {"lora_targets": 3}, "lora_targets=3 is not possible"),
        ("llama3-8b", {"params": 1e9}, "no size 'params'"),
        ("dlrm", {"variant": ["large"]}, "variant="),
        ("llama3-8b", {"hidden": {1}}, "a mapping of names to numbers"),
    ],
)
def test_a_users_sizes_are_those_of_the_model(model: str, sizes: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigError, match=named) as caught:
        load_workload(model, sizes=sizes, strict=True)
    assert "To fix" in str(caught.value)


@pytest.mark.parametrize(
    ("model", "sizes"),
    [
        ("llama3-8b", {"hidden_size": 2048, "num_layers": 4, "ffn": 8192}),
        ("llama3-8b", {"lora_rank": 8, "lora_targets": ["q", "v"], "qlora": True}),
        ("t5-base", {"layers": 2}),
        ("llama-mine", {"params": 3e9}),
        ("my-own", {"hidden": 64, "layers": 2, "heads": 2}),
        ("small-cnn-cifar", {"depth": 4, "base_filters": 16}),
        ("dlrm", {"variant": "large"}),
        ("wav2vec2-base", {"seconds": 2.5}),
        ("resnet50", {"image_size": 128}),
    ],
)
def test_sizes_that_a_model_has_answer_as_those_of_a_row_do(model: str, sizes: dict[str, Any]) -> None:
    assert load_workload(model, sizes=sizes, strict=True) == load_workload(model, sizes=sizes)


def test_rows_may_carry_sizes_that_shape_nothing() -> None:
    assert load_workload("resnet50", sizes={"hidden": 2048, "note": "x"}).name == "resnet50"


@pytest.mark.parametrize("model", ["os:abort", "timm:resnet50", "a/net.pt2", "net.onnx", "config.json", "."])
def test_data_names_no_code_and_no_files(model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(ConfigError, match="is code or a file.*To fix"):
        check_named_in_data(model)


def test_data_names_models_and_configurations() -> None:
    for model in ("resnet50", "meta-llama/Llama-3.1-8B", "gpt-1024x24", {"model_type": "llama"}):
        check_named_in_data(model)


def test_equal_questions_share_one_graph() -> None:
    assert load_workload("gpt2", dataset="wikitext103").graph is load_workload("gpt2").graph


def test_known_models_are_unique_and_sized() -> None:
    infos = known_models()
    names = [info.name for info in infos]
    assert len(names) == len(set(names))
    assert all(info.params > 0 and info.forward_flops > 0 and info.source for info in infos)


def test_image_size_sets_the_tokens_of_a_diffusion_transformer() -> None:
    small, large = (load_workload("flux.1-schnell", image_size=size).graph for size in (256, 512))
    assert (small.seq_len, large.seq_len) == (256, 1024)
    assert large.params == small.params


def test_lengths_without_a_meaning_are_said() -> None:
    assert any(
        "seq_len=100 left out" in text for text in load_workload("wav2vec2-base", seq_len=100).assumptions
    )


def test_models_that_cannot_be_built_say_why() -> None:
    with pytest.raises(UnknownNameError, match="not public"):
        load_workload("nemotron-3-ultra")


@pytest.mark.parametrize("spelling", ["resnet50", "ResNet50", "resnet50.a1_in1k"])
def test_captured_models_resolve_by_any_spelling(spelling: str) -> None:
    work = load_workload(spelling, image_size=224)
    assert (work.name, work.throughput_unit, work.dataset_samples) == ("resnet50", "images/s", 1281167)
    assert work.graph.params == pytest.approx(25.557e6, rel=0.001)


def test_hugging_face_vision_names_lead_to_captured_models() -> None:
    work = load_workload("google/vit-base-patch16-224-in21k", task="image-classification", dataset="cifar10")
    assert (work.name, work.dataset_samples) == ("vit_base_patch16_224", 50000)


@pytest.mark.parametrize(
    ("model", "stated", "name"),
    [
        ("ncf-neumf", {"dataset": "ml-20m"}, "ncf-neumf--ml-20m"),
        ("ncf-neumf", {"dataset": "movielens-1m"}, "ncf-neumf"),
        ("ncf", {"dataset": "movielens-1m"}, "ncf--movielens-1m"),
        ("deepspeech2", {"dataset": "librispeech"}, "deepspeech2--librispeech"),
        ("dlrm", {}, "dlrm"),
        ("dlrm", {"dataset": "criteo-1tb"}, "dlrm--mlperf"),
        ("dlrm", {"dataset": "criteo-1tb-t3", "sizes": {"variant": "large"}}, "dlrm--large"),
        ("dlrm", {"sizes": {"variant": "extra large"}}, "dlrm--extra-large"),
        ("stable-diffusion-2-base", {"image_size": 256}, "stable-diffusion-2-base--256"),
        ("insightface-r100", {"dataset": "glint360k"}, "insightface-r100--glint360k"),
        ("small-cnn-cifar", {"sizes": {"depth": 4, "base_filters": 64}}, "small-cnn-cifar-d4-f64"),
        ("small-cnn-cifar", {"sizes": {"depth": 4}}, "small-cnn-cifar"),
    ],
)
def test_data_sets_and_sizes_choose_the_graph(model: str, stated: dict[str, Any], name: str) -> None:
    assert load_workload(model, **stated).name == name


def test_every_variant_is_in_the_zoo() -> None:
    uses = [rule["use"] for rules in read_toml("variants.toml").values() for rule in rules]
    assert {use for use in uses if "{" not in use} <= set(zoo_index())


def test_drawn_negatives_count_as_samples() -> None:
    assert load_workload("ncf", dataset="ml-20m").dataset_samples == pytest.approx(5 * 20e6, rel=0.01)


@pytest.mark.parametrize(
    ("spelling", "name"),
    [
        ("unsloth/Llama-3.2-3B-Instruct", "llama3.2-3b"),
        ("meta-llama/Llama-4-Scout-17B-16E-Instruct", "llama4-scout"),
        ("ResNet-50", "resnet50"),
        ("vgg-16", "vgg16"),
        ("phi4", "phi-4"),
        ("gpt-2-xl", "gpt2-xl"),
        ("ViT-B/16", "vit_base_patch16_224"),
        ("vit_l_32", "vit_large_patch32_224"),
        ("facebook/esm2_t33_650M_UR50D", "esm2-650m"),
        ("allenai/OLMo-2-1124-7B", "olmo2-7b"),
        ("Qwen/Qwen2.5-Coder-7B-Instruct", "qwen2.5-7b"),
        ("deepseek-ai/deepseek-llm-67b-base", "deepseek-67b"),
        ("yolov11n.pt", "yolo11n"),
        ("laion/CLIP-ViT-H-14-laion2B-s32B-b79K", "clip-vit-h-14"),
        ("llama-3-8b-instruct-qlora", "llama-3-8b-instruct-qlora"),
    ],
)
def test_spellings_found_by_rules(spelling: str, name: str) -> None:
    assert load_workload(spelling).name == name


def test_spellings_do_not_join_digits() -> None:
    """8 billion of Llama 3.1 are not 18 billion of Llama 3, nor 3.6 billion of GPT 6 billion of GPT-3."""
    for name in ("llama3-18b", "llama-31-8b", "gpt3-6b", "gpt-5.5b"):
        with pytest.raises(UnknownNameError):
            load_workload(name)


@pytest.mark.parametrize(
    ("name", "kind", "offered"),
    [
        ("vit-l-99", "vit", "vit-l"),
        ("llama5-8b", "llama", "llama3-8b"),
        ("yolov8-q", "yolo", "yolov8"),
        ("resent-50", "resnet", "resnet50"),
        ("whisper-smal", "whisper", "whisper-small"),
        ("qwen2-9b", "qwen", "qwen2-7b"),
        ("my-mixtral-8x9b", "mixtral", "mixtral-8x7b"),
    ],
)
def test_unknown_names_offer_the_same_kind(name: str, kind: str, offered: str) -> None:
    with pytest.raises(UnknownNameError, match=f"models --search {kind}") as caught:
        load_workload(name)
    assert offered in caught.value.nearest
    assert all(near.startswith(kind) for near in caught.value.nearest)


def test_names_of_no_known_kind_offer_nothing() -> None:
    with pytest.raises(UnknownNameError) as caught:
        load_workload("hyperweather")
    assert caught.value.nearest == ()


def test_models_are_found_by_any_of_their_names() -> None:
    assert "gpt2-xl" in {info.name for info in search_models("gpt2-1558m")}
    assert "vit_large_patch16_224" in {info.name for info in search_models("ViT-L/16")}
    assert "qwen3-8b" in {info.name for info in search_models("qwen4-8b")}


@pytest.mark.parametrize("name", ["vit", "vit-mine", "vit-l"])
def test_a_vision_transformer_of_stated_shape_is_that_of_timm(name: str) -> None:
    graph = load_workload(name, sizes={"hidden": 768, "layers": 12}, strict=True).graph
    captured = load_workload("vit_base_patch16_224").graph
    assert graph.params == captured.params
    assert graph.forward_flops == captured.forward_flops
    assert graph.saved_elems == pytest.approx(captured.saved_elems, rel=0.01)


def test_patches_of_a_stated_vision_transformer() -> None:
    sizes = {"hidden": 384, "layers": 12, "patch_size": 8, "num_classes": 10}
    graph = load_workload("vit-mine", sizes=sizes, image_size=96, strict=True).graph
    per_layer = 12 * 384**2 + 13 * 384
    tables = (3 * 64 + 1) * 384 + (144 + 2) * 384 + 2 * 384 + 385 * 10
    assert graph.params == 12 * per_layer + tables
    assert graph.image_size == 96


def test_a_shape_said_in_part_says_what_is_missing() -> None:
    with pytest.raises(ConfigError, match="both hidden and layers"):
        load_workload("vit-b", sizes={"layers": 6}, strict=True)


@pytest.mark.parametrize(
    ("name", "like"),
    [("bert-mine", "bert-base"), ("modernbert-mine", "modernbert-base"), ("esm2-mine", "esm2-150m")],
)
def test_an_encoder_of_ones_own_is_of_its_family(name: str, like: str) -> None:
    entry = model_table()[like].sizes
    sizes = {key: entry[key] for key in ("hidden", "layers", "heads", "ffn") if key in entry}
    assert load_workload(name, sizes=sizes).graph.params == load_workload(like).graph.params


@pytest.mark.parametrize(
    ("name", "usual"),
    [
        ("llama3.2-vision-11b", "llama-3.2-11b-vision"),
        ("8b llama 3", "llama3-8b"),
        ("large bert", "bert-large"),
        ("qwen3-vl", "qwen3-vl-8b"),
    ],
)
def test_words_in_another_order_mean_the_same_model(name: str, usual: str) -> None:
    assert canonical_name(name) == canonical_name(usual)


@pytest.mark.parametrize(("size", "params"), [("2b", 2.13), ("4b", 4.44), ("8b", 8.77), ("32b", 33.4)])
def test_qwen3_vl_has_the_parameters_of_its_card(size: str, params: float) -> None:
    assert load_workload(f"qwen3-vl-{size}").graph.params / 1e9 == pytest.approx(params, rel=0.005)
