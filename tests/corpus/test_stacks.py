"""Which stack ran a row: known sources, sources nobody has seen, and versions as decimal years."""

from __future__ import annotations

import pytest

from precision_time.corpus.reading import framework_year, infer_stack
from precision_time.corpus.rules import load_rules
from precision_time.corpus.schema import Row
from precision_time.cost.job import TimingScope
from precision_time.cost.stacks import DEFAULT_PROFILE, Stack, framework_profile, get_stack_profile
from precision_time.errors import UnknownNameError


def row(**cells: str) -> Row:
    return Row(number=2, path="runs.csv", cells=cells, curated=True)


def stack_of(scope: TimingScope = TimingScope.FULL_STEP, **cells: str) -> Stack:
    return inferred(row(timing_scope=scope.value, **cells), cells.get("framework", ""), scope)[0]


def inferred(
    of: Row, framework: str, scope: TimingScope, family: str = "cnn"
) -> tuple[Stack, tuple[str, ...]]:
    return infer_stack(of, framework=framework, scope=scope, family=lambda: family)


@pytest.mark.parametrize(
    ("version", "framework", "source", "year"),
    [
        ("ngc-21.03", "pytorch", "", 2021.17),
        ("ngc-20.06-tf1", "tensorflow", "", 2020.42),
        ("1.9.0a0+df837d0 (ngc-21.03)", "pytorch", "", 2021.17),
        ("26.04.01 NeMo Container", "pytorch", "", 2026.25),
        ("NeMo24.07", "pytorch", "", 2024.5),
        ("MXNet NVIDIA Release 23.04, PyTorch NVIDIA Release 23.04", "pytorch", "mlperf-v3.0", 2023.25),
        ("1.13", "pytorch", "", 2022.8),
        ("1.12-cu113", "pytorch", "", 2022.5),
        ("2.10.0.dev20251210+cu126", "pytorch", "", 2025.92),
        ("nightly 2024-12-23 (1963fc8)", "pytorch", "", 2024.92),
        ("0.1 (August 2020)", "oneflow", "", 2020.58),
        ("TensorFlow 2.8.0", "tensorflow", "mlperf-v2.0", 2022.1),
        ("", "pytorch", "mlperf-v3.1", 2023.85),
        ("NGC MLPerf v2.1/2.0", "pytorch", "mlperf-v2.1", 2022.85),
        ("LLMBoost 1.1.0", "pytorch", "mlperf-v5.0", 2025.4),
        ("", "pytorch", "", None),
        ("abc", "nobody", "", None),
    ],
)
def test_framework_year(version, framework, source, year):
    found = framework_year(row(framework_version=version, source=source), framework=framework)
    assert found == (None if year is None else pytest.approx(year, abs=0.011))


@pytest.mark.parametrize(
    ("cells", "profile"),
    [
        ({"source": "timm", "framework": "pytorch"}, "pytorch-bench"),
        ({"source": "pollux", "framework": "pytorch", "framework_version": "ngc-20.10"}, "pytorch-adaptive"),
        ({"source": "mlperf-v9.9", "framework": "pytorch", "device": "B200-SXM-180GB"}, "mlperf-tuned"),
        ({"source": "mlperf-v2.1", "framework": "jax", "device": "TPUv4"}, "xla-tpu"),
        ({"source": "mlperf-v3.0", "framework": "pytorch", "device": "Gaudi2"}, "habana-reference"),
        ({"source": "mlperf-v3.0", "framework": "hugectr"}, "hugectr"),
        (
            {"source": "new", "framework": "pytorch", "framework_version": "Megatron-DeepSpeed"},
            "deepspeed-megatron",
        ),
        (
            {"source": "new", "framework": "pytorch", "framework_version": "25.02 NeMo Container"},
            "nemo-tuned",
        ),
        ({"source": "new", "framework": "pytorch", "framework_version": "torchtitan 0.1"}, "torchtitan"),
        ({"source": "new", "framework": "pytorch", "precision_detail": "Megatron-LM --fp16"}, "megatron"),
        ({"source": "new", "framework": "pytorch", "device": "Trainium2"}, "neuron"),
        ({"source": "new", "framework": "pytorch", "framework_version": "ngc-22.01"}, "ngc-pytorch"),
        ({"source": "new", "framework": "pytorch", "compiler": "torch.compile"}, "pytorch-compiled"),
        ({"source": "new", "framework": "pytorch", "notes": "HF Trainer, short run"}, "hf-trainer"),
        ({"source": "new", "framework": "pytorch", "task": "lm-pretrain"}, "pytorch-llm"),
        (
            {
                "source": "new",
                "framework": "pytorch",
                "task": "lm-pretrain",
                "parallelism": '{"tp":8,"pp":4}',
            },
            "megatron",
        ),
        ({"source": "new", "framework": "jax", "device": "H100-SXM5-80GB"}, "jax-xla"),
        ({"source": "new", "framework": "tensorflow"}, "tf-graph"),
        ({"source": "new", "framework": "pytorch"}, "pytorch-eager"),
        ({"source": "new"}, "pytorch-eager"),
    ],
)
def test_profile(cells, profile):
    assert stack_of(**cells).profile == profile


def test_a_guess_from_the_framework_alone_is_said():
    _, assumptions = inferred(row(source="new"), "", TimingScope.UNKNOWN)
    assert any("stack taken as pytorch-eager" in text for text in assumptions)
    known = row(source="timm", framework="pytorch", framework_version="1.12")
    _, assumptions = inferred(known, "pytorch", TimingScope.FULL_STEP)
    assert assumptions == ()


def test_software_of_no_stated_version_is_no_older_than_the_model():
    asked = {"framework": "hf trainer", "device": "A100-SXM4-80GB", "task": "lm-finetune"}
    old, new = (stack_of(model=model, **asked) for model in ("gpt2", "qwen3-8b"))
    assert old.framework_year < 2025.0 <= new.framework_year
    assert not old.fused_attention and new.fused_attention
    stated = stack_of(model="qwen3-8b", framework_version="pytorch 2.1", **{**asked, "framework": "pytorch"})
    assert stated.framework_year < 2025.0


@pytest.mark.parametrize(
    ("cells", "profile"),
    [
        ({"framework_version": "ngc-25.01", "task": "lm-pretrain"}, "pytorch-llm"),
        ({"framework_version": "ngc-21.03", "task": "lm-pretrain"}, "ngc-pytorch"),
        ({"framework_version": "ngc-25.01", "task": "imagenet-train"}, "ngc-pytorch"),
    ],
)
def test_language_models_in_new_containers_run_code_of_their_own(cells, profile):
    assert stack_of(framework="pytorch", **cells).profile == profile


def test_software_is_never_older_than_its_device():
    assert stack_of(source="megatron-lm", framework="pytorch", device="B200-SXM-180GB").framework_year >= 2024


@pytest.mark.parametrize(
    ("notes", "compiler"),
    [
        ("batch size=128 & with xla", "xla"),
        ("batch size=128 & without xla", "graph"),
        ("Batch size = 256 & W/O XLA", "graph"),
        ("XLA enabled in the script configs", "xla"),
    ],
)
def test_xla_is_read_from_the_notes(notes, compiler):
    assert (
        stack_of(framework="tensorflow", framework_version="ngc-20.03-tf1", notes=notes).compiler == compiler
    )


def test_memory_format_overrides_the_profile():
    assert stack_of(source="timm", framework="pytorch", memory_format="nhwc").channels_last
    assert not stack_of(source="mlperf-v1.0", framework="pytorch", memory_format="nchw").channels_last


@pytest.mark.parametrize(
    ("scope", "dataset", "real"),
    [
        (TimingScope.WITH_INPUT, "imagenet", True),
        (TimingScope.EPOCH_AVERAGE, "imagenet", True),
        (TimingScope.WITH_INPUT, "synthetic", False),
        (TimingScope.FULL_STEP, "imagenet", False),
    ],
)
def test_real_input(scope, dataset, real):
    assert stack_of(scope, source="lambda", framework="pytorch", dataset=dataset).real_input is real


@pytest.mark.parametrize(
    ("source", "model", "unpadded"),
    [
        ("mlperf-v0.7", "bert-large", False),
        ("mlperf-v2.0", "bert-large", True),
        ("mlperf-v2.0", "resnet50", False),
        ("lambda", "bert-large", False),
    ],
)
def test_padding_is_removed_in_mlperf_bert_from_round_1_0(source, model, unpadded):
    assert stack_of(source=source, framework="pytorch", model=model).unpadded_sequences is unpadded


def test_attention_is_fused_from_the_year_of_the_profile():
    before = stack_of(source="megatron-lm", framework="pytorch", framework_version="ngc-21.03")
    after = stack_of(source="megatron-lm", framework="pytorch", framework_version="ngc-24.03")
    assert (before.fused_attention, after.fused_attention) == (False, True)


def test_every_rule_names_a_profile_that_exists():
    named = [rule.values["profile"] for rule in load_rules("stack", curated=True) if "profile" in rule.values]
    assert [get_stack_profile(name).name for name in named] == named


def test_the_default_stack_is_an_own_script():
    stack = get_stack_profile(DEFAULT_PROFILE).stack()
    assert stack.framework == "pytorch" and not stack.real_input


def test_unknown_stack_offers_the_nearest():
    with pytest.raises(UnknownNameError, match="megatron"):
        get_stack_profile("megatorn").stack()


@pytest.mark.parametrize(
    ("framework", "profile"), [("pytorch", "pytorch-eager"), ("JAX", "jax-xla"), ("tensorflow", "tf-graph")]
)
def test_framework_profile(framework, profile):
    assert framework_profile(framework).name == profile


def test_unknown_framework_offers_the_nearest():
    with pytest.raises(UnknownNameError, match="pytorch"):
        framework_profile("pytroch")
