"""Names of software that people say: each is a request, and what it implies gives way to what is said."""

from typing import Any

import numpy as np
import pytest

from precision_time import predict_time
from precision_time.cost.job import Jobs
from precision_time.cost.memory import memory_of
from precision_time.cost.optimizer import canonical_optimizer
from precision_time.cost.stacks import get_stack_profile, said_stack_names, stack_name, stack_names
from precision_time.errors import UnknownNameError
from precision_time.hardware.catalog import get_device
from precision_time.request.practice import runs_on
from precision_time.request.request import Request

_SAID = (
    "unsloth", "trl", "peft", "axolotl", "llama-factory", "deepspeed", "fsdp", "lightning", "mlx", "jax",
    "keras", "verl", "accelerate", "megatron", "nemo", "torchtitan", "torchtune", "composer",
    "mosaic-composer", "transformers",
)  # fmt: skip

_DEVICES = ("A100", "IPU-Bow", "TPUv4", "Gaudi2", "Trainium2", "Ascend910B", "Apple-M3-Max-40c", "MI300X")


@pytest.mark.parametrize("name", _SAID)
def test_what_people_say_is_a_stack(name: str) -> None:
    job = Request.of({"model": "gpt2", "device": "2xA100", "stack": name, "batch_size": 4}).resolve()
    assert job.stack.profile == get_stack_profile(name).name


@pytest.mark.parametrize("name", said_stack_names())
def test_what_a_name_implies_is_what_a_user_could_say(name: str) -> None:
    said = stack_name(name)
    assert said is not None and said.source and said.stack in stack_names()
    device = next(f"2x{each}" for each in _DEVICES if runs_on(said.stack, get_device(each)))
    job = Request.of({"model": "gpt2", "device": device, "stack": name, "batch_size": 4}).resolve()
    fields = {
        name: value
        for name, value in {**said.fields, **said.sharded}.items()
        if name not in ("zero_stage", "recompute")
    }
    plain = Request.of({"model": "gpt2", "device": device, "stack": said.stack, **fields, "batch_size": 4})
    assert plain.resolve().stack == job.stack
    assert any(item.code == "stack-name" and said.stack in item.text for item in job.diagnostics)


@pytest.mark.parametrize(
    ("words", "stack"),
    [
        ("torchtune", "torchtune"), ("Megatron-LM", "megatron"), ("PyTorch Lightning", "lightning"),
        ("unsloth", "unsloth"), ("llm.c", "llm.c"), ("megatron-lm + fastmoe", "megatron-lm"),
        ("Megatron", "megatron"), ("poptorch", "poptorch"),
        ("PyTorch (HF Trainer, fms-hf-tuning)", "hf-trainer"), ("pytorch (prime-rl)", "prime-rl"),
        ("pytorch (litgpt, Fabric)", "litgpt"), ("pytorch-lightning (deepspeed (zero3))", "deepspeed"),
    ],
)  # fmt: skip
def test_a_trainer_named_as_the_framework_is_the_stack(words: str, stack: str) -> None:
    said = {"model": "gpt2", "device": "IPU-Bow" if words == "poptorch" else "2xA100", "batch_size": 4}
    asked = Request.of({**said, "framework": words})
    assert asked.given().get("framework") is None
    assert asked.resolve().stack == Request.of({**said, "stack": stack}).resolve().stack
    assert Request.of(asked.given()) == asked
    both = Request.of({**said, "framework": words, "stack": stack})
    assert both.resolve().stack.framework == get_stack_profile(stack).framework


@pytest.mark.parametrize(
    ("words", "framework", "is_told"),
    [
        ("torch", "pytorch", False), ("tf", "tensorflow", False), ("Keras", "tensorflow", False),
        ("paddle", "paddlepaddle", False), ("pytorch 1.8", "pytorch", True), ("mxnet (2016)", "mxnet", True),
        ("pytorch (own loop)", "pytorch", True),
    ],
)  # fmt: skip
def test_a_framework_by_its_other_names_is_the_same_question(
    words: str, framework: str, is_told: bool
) -> None:
    said = {"model": "resnet50", "device": "8xV100", "batch_size": 64}
    other = Request.of({**said, "framework": words}).resolve()
    own = Request.of({**said, "framework": framework}).resolve()
    assert (other.stack, other.precision) == (own.stack, own.precision)
    assert other.stack.framework == framework
    assert is_told == any(f"Framework {words} read as" in item.text for item in other.diagnostics)
    times = {name: predict_time(**said, framework=name).step_time_s for name in (words, framework)}
    assert times[words] == times[framework]


def test_a_framework_that_nobody_knows_is_refused_with_the_nearest() -> None:
    assert Request.of({"model": "gpt2", "framework": "torch"}).framework == "torch"
    with pytest.raises(UnknownNameError, match="torchtune.*tensorflow"):
        Request.of({"model": "gpt2", "device": "A100", "framework": "torchtunes"}).resolve()


def test_what_is_said_holds_before_what_a_name_implies() -> None:
    request = Request.of(
        {"model": "gpt2", "device": "8xA100", "stack": "verl", "zero_stage": 1, "software": 2024.0}
    )
    assert (request.zero_stage, request.software, request.recompute) == (1, 2024.0, "full")
    nested = Request.of({"model": "gpt2", "stack": "trl", "layout": {"recompute": "none"}})
    assert nested.recompute == "none"


def test_one_device_is_not_sharded() -> None:
    assert Request.of({"model": "gpt2", "device": "A100", "stack": "deepspeed"}).zero_stage is None
    assert Request.of({"model": "gpt2", "device": "8xA100", "stack": "deepspeed"}).zero_stage == 2


def test_a_request_with_a_name_says_itself_again() -> None:
    request = Request.of({"model": "gpt2", "device": "8xA100", "stack": "axolotl"})
    assert Request.of(request.given()) == request


def test_what_nobody_says_is_refused_with_the_nearest() -> None:
    with pytest.raises(UnknownNameError, match="unsloth"):
        get_stack_profile("unslot")


@pytest.mark.parametrize(
    ("field", "words", "ours"),
    [
        ("compiler", "torch.compile", "inductor"), ("compiler", "CUDA graphs", "cudagraphs"),
        ("compiler", "torch.jit", "torchscript"), ("compiler", "Eager", "none"),
        ("attention", "flash_attention_2", "flash2"), ("attention", "FA3", "flash3"),
        ("attention", "xformers", "memory-efficient"),
    ],
)  # fmt: skip
def test_values_by_the_names_that_people_use(field: str, words: str, ours: str) -> None:
    assert getattr(Request.of({"model": "gpt2", field: words}), field) == ours
    assert Request.of({"model": "gpt2", field: ours}) == Request.of({"model": "gpt2", field: words})


@pytest.mark.parametrize(
    ("words", "ours"),
    [
        ("SGD with Momentum", "momentum-sgd"), ("torch.optim.AdamW", "adamw"), ("Adamax", "adam"),
        ("muon+adamw", "muon"), ("adamw-bf16", "adamw_bf16"), ("optimi-lion", "lion"),
    ],
)  # fmt: skip
def test_optimizers_by_the_names_that_people_use(words: str, ours: str) -> None:
    assert canonical_optimizer(words) == ours


def test_lion_keeps_half_of_the_states_of_adam() -> None:
    said: dict[str, Any] = {"model": "gpt2", "device": "A100", "batch_size": 8, "stack": "pytorch-eager"}
    lion, adam = (Request.of({**said, "optimizer": name}).resolve() for name in ("lion", "adamw"))
    held = [memory_of(Jobs.at(job))["optimizer_states"] for job in (lion, adam)]
    assert float(np.max(held[0])) == pytest.approx(float(np.max(held[1])) / 2)
