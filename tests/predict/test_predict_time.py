"""The one call: what it fills in, what it refuses, and that its answer adds up."""

import json
import math
import subprocess
import sys
from dataclasses import FrozenInstanceError

import pytest

from precision_time.errors import ConfigError, LayoutError, UnknownNameError
from precision_time.predict.api import predict_time

CALL = {"model": "resnet50", "precision": "mixed_fp16_fp32", "gpus": 8, "batch_size": 256}


@pytest.fixture(scope="module")
def answer():
    return predict_time(**CALL)


def said(prediction, word):
    return [line for line in prediction.assumptions if word in line]


def test_the_call_of_the_readme_works_as_it_stands(answer):
    assert (answer.model, answer.precision, answer.gpus, answer.nodes) == (
        "resnet50",
        "fp16-mixed",
        8,
        1,
    )
    assert answer.device == "A100-SXM4-80GB"
    assert (answer.batch_size, answer.global_batch_size) == (256.0, 2048.0)
    assert answer.throughput_unit == "images/s"
    # Published: 0.086 to 0.12 s on this machine and batch (NVIDIA DeepLearningExamples); eager is slower.
    assert 0.06 < answer.step_time_s < 0.4
    for word in ("Device not given", "Software not given", "one epoch"):
        assert said(answer, word), word


def test_terms_add_up_and_the_interval_holds_the_step(answer):
    assert math.fsum(answer.terms.values()) == pytest.approx(answer.step_time_s, rel=1e-12)
    assert min(answer.terms.values()) > 0.0
    assert answer.interval.low_s <= answer.step_time_s <= answer.interval.high_s
    assert answer.interval.coverage == 0.9
    assert {"conv_s", "norm_s", "optimizer_s"} <= answer.terms.keys()


def test_epoch_and_run_are_steps(answer):
    assert answer.steps_per_epoch == math.ceil(1_281_167 / 2048)  # ImageNet
    assert answer.epoch_time_s == pytest.approx(answer.steps_per_epoch * answer.step_time_s)
    assert answer.total_steps == answer.steps_per_epoch
    longer = predict_time(**CALL, epochs=90)
    assert longer.total_time_s == pytest.approx(90 * answer.epoch_time_s)
    short = predict_time(**CALL, steps=1000)
    assert short.total_time_s == pytest.approx(1000 * answer.step_time_s)
    own = predict_time(**CALL, samples=4096, epochs=2.5)
    assert (own.steps_per_epoch, own.total_steps) == (2, 5)


def test_throughput_and_mfu_follow_from_the_step(answer):
    assert answer.throughput == pytest.approx(2048 / answer.step_time_s)
    # 3 passes of 8.2 GFLOP per image (He et al. 2016, v1.5) over 312 TFLOP/s per device.
    assert answer.mfu == pytest.approx(3 * 8.2e9 * 256 / answer.step_time_s / 312e12, rel=0.05)
    llm = predict_time("gpt2", seq_len=1024, batch_size=4)
    assert llm.throughput_unit == "tokens/s"
    assert llm.throughput == pytest.approx(4 * 1024 / llm.step_time_s)


def test_memory_is_a_sum_and_decides_the_fit(answer):
    assert math.fsum(answer.memory_terms.values()) == pytest.approx(answer.memory_bytes_per_device)
    assert answer.fits
    small = predict_time("resnet50", device="V100-SXM2-16GB", precision="fp32", batch_size=1024)
    assert not small.fits
    assert any("Does not fit" in line and "GiB" in line for line in small.warnings)


def test_nearest_measurements_is_real_and_near(answer):
    assert answer.nearest_measurements
    similar = [run.similarity for run in answer.nearest_measurements]
    assert similar == sorted(similar, reverse=True)
    assert answer.nearest_measurements[0].model == "resnet50"
    assert all(run.source_ref and run.measured_step_time_s > 0 for run in answer.nearest_measurements)


def test_a_batch_can_be_said_globally(answer):
    assert predict_time("resnet50", precision="fp16-mixed", gpus=8, global_batch_size=2048) == answer
    assert predict_time(**CALL, global_batch_size=2048) == answer
    accumulated = predict_time("resnet50", gpus=4, num_microbatches=2, global_batch_size=512)
    assert accumulated.batch_size == 64.0


def test_without_a_batch_the_largest_that_fits_is_taken():
    large = predict_time("resnet50", device="A100-SXM4-80GB")
    assert (large.batch_size, large.fits) == (256.0, True)
    tight = predict_time("resnet50", device="GTX1080Ti", precision="fp32")
    assert tight.fits
    assert 1 <= tight.batch_size < 256
    twice = predict_time("resnet50", device="GTX1080Ti", precision="fp32", batch_size=2 * tight.batch_size)
    assert not twice.fits
    assert said(tight, f"Batch size not given: {tight.batch_size:g} per device")


def test_sharding_is_the_default_where_plain_data_parallelism_does_not_fit():
    llama = {"model": "llama2-7b", "gpus": 8, "batch_size": 1, "device": "A100-SXM4-80GB"}
    sharded, plain = (
        predict_time(**llama, precision="bf16-mixed"),
        predict_time(**llama, precision="bf16-mixed", zero_stage=0),
    )
    assert said(sharded, "zero_stage=3")
    assert sharded.fits and not plain.fits
    assert not said(plain, "zero_stage=3")
    assert sharded.memory_bytes_per_device < plain.memory_bytes_per_device
    stated = predict_time(**llama, precision="bf16-mixed", zero_stage=3)
    assert stated.analytical_step_time_s == sharded.analytical_step_time_s


def test_it_turns_into_json_and_prints(answer):
    told = json.loads(json.dumps(answer.to_dict()))
    assert told["step_time_s"] == answer.step_time_s
    assert math.fsum(told["terms"].values()) == pytest.approx(told["step_time_s"])
    assert set(told["interval"]) == {"low_s", "high_s", "coverage"}
    assert {
        *("epoch_time_s", "total_time_s", "throughput", "throughput_unit", "mfu"),
        *("memory_bytes_per_device", "fits", "nearest_measurements", "diagnostics", "global_batch_size"),
    } <= told.keys()
    assert "resnet50" in str(answer) and "2,048 per step" in str(answer)


def test_an_answer_is_frozen(answer):
    with pytest.raises(FrozenInstanceError):
        answer.step_time_s = 1.0


def test_another_process_gives_the_same_answer(answer):
    code = f"""
import json
from precision_time.predict.api import predict_time
print(json.dumps(predict_time(**{CALL!r}).to_dict()))
"""
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert json.loads(done.stdout) == json.loads(json.dumps(answer.to_dict()))


@pytest.mark.parametrize(
    ("word", "name"),
    [
        ("amp", "fp16-mixed"),
        ("16-mixed", "fp16-mixed"),
        ("bf16-true", "bf16"),
        ("no", "fp32"),
        ("TF32", "tf32"),
    ],
)
def test_precisions_in_their_usual_spellings(word, name):
    assert predict_time("resnet50", precision=word, batch_size=32).precision == name


@pytest.mark.parametrize(
    ("arguments", "value", "nearest"),
    [
        ({"model": "resnet5o"}, "resnet5o", "resnet50"),
        ({"device": "A1000-SXM4"}, "A1000-SXM4", "A100-SXM4"),
        ({"precision": "fp61-mixed"}, "fp61-mixed", "fp16-mixed"),
        ({"optimizer": "adamww"}, "adamww", "adamw"),
        ({"stack": "pytorch-eagre"}, "pytorch-eagre", "pytorch-eager"),
        ({"framework": "pytorhc"}, "pytorhc", "pytorch"),
    ],
)
def test_unknown_names_offer_the_nearest(arguments, value, nearest):
    with pytest.raises(UnknownNameError) as caught:
        predict_time(**{"model": "resnet50", "batch_size": 32, **arguments})
    assert repr(value) in str(caught.value)
    assert "Did you mean" in str(caught.value)
    assert nearest in caught.value.nearest


@pytest.mark.parametrize(
    "name",
    [
        "gpus",
        "nodes",
        "batch_size",
        "global_batch_size",
        "seq_len",
        "image_size",
        "samples",
        "epochs",
        "steps",
    ]
    + ["tp", "pp", "cp", "ep", "etp", "vpp", "num_microbatches"],
)
@pytest.mark.parametrize("value", [0, -3, float("nan"), float("inf"), True, "eight"], ids=repr)
def test_invalid_counts(name, value):
    with pytest.raises(ConfigError, match=rf"{name}={value!r} is invalid: it must be .*\. To fix: "):
        predict_time(**{"model": "resnet50", name: value})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"gpus": 1.5}, r"gpus=1\.5 is invalid: it must be a whole number\. To fix: gpus=1"),
        ({"gpus": 10**9}, r"gpus=1000000000 is invalid: it must be at most 10,000,000\. To fix"),
        (
            {"batch_size": 10**10},
            r"batch_size=10000000000 is invalid: it must be at most 1,000,000,000\. To fix",
        ),
        (
            {"model": "gpt2", "seq_len": 10**8},
            r"seq_len=100000000 is invalid: it must be at most 10,000,000\. To fix",
        ),
        ({"image_size": 10**6}, r"image_size 1000000 is invalid.*To fix"),
        ({"gpus": 2, "nodes": 4}, r"2 devices cannot be spread over 4 nodes.*To fix: num_nodes <= 2"),
        ({"zero_stage": 7}, r"zero_stage=7 is invalid: it must be at most 3\. To fix"),
        ({"coverage": 1.0}, r"coverage=1\.0 .*To fix"),
        ({"coverage": 90}, r"coverage=90 .*To fix"),
        (
            {"recompute": "some"},
            r"recompute='some' is invalid: it must be one of none, selective or full\. To fix",
        ),
    ],
)
def test_invalid_values_name_the_rule_and_the_remedy(options, message):
    with pytest.raises(ConfigError, match=message):
        predict_time(**{"model": "resnet50", **options})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"gpus": 8, "global_batch_size": 100},
            r"global_batch_size=100 does not divide by dp\(8\).*To fix: use 96",
        ),
        (
            {"gpus": 8, "batch_size": 4, "global_batch_size": 100},
            r"batch_size\(4\) \* dp\(8\).*= 32, but global_batch_size=100\. To fix: give only one",
        ),
        ({"gpus": 6, "tp": 4}, r"tp\(4\) \* pp\(1\) = 4 does not divide 6 devices\. To fix: use 4 devices"),
    ],
)
def test_what_does_not_divide(options, message):
    with pytest.raises(LayoutError, match=message):
        predict_time(**{"model": "resnet50", **options})


def test_the_way_out_works():
    with pytest.raises(LayoutError, match="use 96"):
        predict_time("resnet50", gpus=8, global_batch_size=100)
    assert predict_time("resnet50", gpus=8, global_batch_size=96).batch_size == 12.0


def test_fp8_on_v100_is_refused_with_what_it_can_do():
    with pytest.raises(
        ConfigError, match=r"V100-SXM2-16GB cannot compute in fp8: .*To fix: use one of"
    ) as caught:
        predict_time("resnet50", device="V100-SXM2-16GB", precision="fp8", batch_size=32)
    assert "fp16-mixed" in str(caught.value)


def test_bf16_on_v100_is_emulated_and_warned_of():
    v100 = {"model": "resnet50", "device": "V100-SXM2-16GB", "batch_size": 64}
    emulated = predict_time(**v100, precision="bf16-mixed")
    assert any("no bf16 hardware" in line and "emulated" in line for line in emulated.warnings)
    assert emulated.step_time_s > predict_time(**v100, precision="fp16-mixed").step_time_s
    assert not any("emulated" in line for line in predict_time(**v100, precision="fp16-mixed").warnings)


def test_a_slow_input_pipeline_bounds_the_step() -> None:
    asked = {
        "model": "resnet50",
        "gpus": 8,
        "batch_size": 256,
        "precision": "fp16-mixed",
        "real_input": False,
    }
    fast, slow = predict_time(**asked), predict_time(**asked, input_rate=2048.0)
    assert slow.step_time_s == pytest.approx(1.0)
    assert slow.terms["data_stall_s"] == pytest.approx(1.0 - fast.step_time_s)
    assert math.fsum(slow.terms.values()) == pytest.approx(slow.step_time_s, rel=1e-12)
    assert "data_stall_s" not in predict_time(**asked, input_rate=1e9).terms


LLAMA = {"model": "llama3-8b", "device": "H100-SXM5-80GB", "precision": "bf16-mixed", "batch_size": 1}
"""32 layers, 32 heads, 8192 tokens."""


def test_layouts_said_in_full_are_those_said_by_default():
    """What a layout leaves out is what its documentation says it is."""
    short = predict_time(**LLAMA, gpus=16, tp=4, pp=2, num_microbatches=4)
    full = predict_time(
        **LLAMA,
        gpus=16,
        tp=4,
        pp=2,
        num_microbatches=4,
        cp=1,
        ep=1,
        vpp=1,
        schedule="1f1b",
        stage_layers=(16, 16),
        sequence_parallel=True,
        cp_comm_type="ring",
        dp_shard=0,
        reshard_after_forward=True,
        offload="none",
        expert_capacity_factor=0.0,
        rank_order="tp-cp-ep-dp-pp",
        prefetch=1,
        stragglers=True,
    )
    assert full == short
    assert predict_time(**LLAMA, gpus=16, tp=4, pp=2, num_microbatches=4, sequence_parallel=False) != short


def test_what_tensor_pipeline_and_context_leave_is_data_parallel():
    answer = predict_time(**LLAMA, gpus=64, tp=4, pp=2, cp=2, num_microbatches=4)
    assert answer.global_batch_size == 4 * 64 / (4 * 2 * 2)


def test_interleaving_shortens_a_pipeline_and_few_micro_batches_are_warned_of():
    pipeline = {**LLAMA, "gpus": 8, "pp": 8, "num_microbatches": 8}
    plain, chunked = predict_time(**pipeline), predict_time(**pipeline, vpp=4)
    assert chunked.terms["pipeline_bubble_s"] < 0.5 * plain.terms["pipeline_bubble_s"]
    assert predict_time(**pipeline, vpp=4, schedule="interleaved") == chunked
    assert not any("Fewer micro batches" in line for line in plain.warnings)
    few = predict_time(**{**pipeline, "num_microbatches": 2})
    assert any("Fewer micro batches than stages: 2 over pp=8" in line for line in few.warnings)


def test_ranks_are_placed_and_tensor_parallelism_across_nodes_is_warned_of():
    inside = predict_time(**LLAMA, gpus=16, tp=8)
    assert said(inside, "tp 8 inside an NVLink domain")
    assert not any("crosses nodes" in line for line in inside.warnings)
    outside = predict_time(**LLAMA, gpus=16, tp=8, rank_order="dp-tp-cp-pp")
    assert any("Tensor parallelism crosses nodes: tp=8" in line for line in outside.warnings)
    # What errs least also depends on how much is known of each: formulas alone are compared.
    assert outside.analytical_step_time_s > inside.analytical_step_time_s
    assert not said(predict_time(**CALL), "Ranks in the order")


def test_words_that_need_sharding_bring_it():
    asked = {**LLAMA, "gpus": 8, "recompute": "full"}
    for words, stage in (
        ({"dp_shard": 4}, 3),
        ({"reshard_after_forward": False}, 3),
        ({"prefetch": 2}, 3),
        ({"offload": "parameters"}, 3),
        ({"offload": "optimizer"}, 2),
    ):
        answer = predict_time(**asked, **words)
        assert said(answer, f"zero_stage={stage} assumed, for {next(iter(words))}"), words
        stated = predict_time(**asked, **words, zero=stage)
        assert stated.analytical_step_time_s == answer.analytical_step_time_s


def test_a_pipeline_that_does_not_fit_shares_out_its_optimizer_states():
    answer = predict_time("llama3-70b", gpus=16, tp=4, pp=2, batch_size=1)
    assert said(answer, "optimizer states sharded (zero_stage=1) assumed")


def test_recomputation_of_some_layers_lies_between_none_and_all():
    asked = {**LLAMA, "gpus": 8, "zero_stage": 3}
    half, same, all_32 = (
        predict_time(**asked, recompute="full", recompute_layers=layers) for layers in (16, 0.5, 32)
    )
    none, every = (predict_time(**asked, recompute=mode) for mode in ("none", "full"))
    assert half == same and all_32 == every
    assert none.analytical_step_time_s < half.analytical_step_time_s < every.analytical_step_time_s


def test_both_batches_say_how_many_micro_batches_are_accumulated():
    asked = {**LLAMA, "gpus": 8, "zero_stage": 3, "global_batch_size": 64}
    answer = predict_time(**asked)
    assert said(answer, "8 micro batches accumulated (--num-microbatches 8)")
    assert answer.step_time_s == predict_time(**asked, num_microbatches=8).step_time_s
    with pytest.raises(LayoutError, match="give only one of them, or num_microbatches=8"):
        predict_time(**asked, num_microbatches=4)
    with pytest.raises(LayoutError, match="give only one of them"):
        predict_time(**{**asked, "global_batch_size": 60})


def test_a_hugging_face_configuration_is_one_call(tmp_path):
    sizes = {"hidden_size": 2048, "intermediate_size": 5632, "num_hidden_layers": 22, "vocab_size": 32000}
    heads = {"num_attention_heads": 32, "num_key_value_heads": 4, "max_position_embeddings": 2048}
    config = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], **sizes, **heads}
    file = tmp_path / "config.json"
    file.write_text(json.dumps(config), encoding="utf-8")
    asked = {"device": "A100-SXM4-80GB", "precision": "bf16-mixed", "seq_len": 2048, "batch_size": 4}
    from_words, from_file = predict_time(config, **asked), predict_time(str(file), **asked)
    assert from_words.step_time_s == from_file.step_time_s > 0.0
    assert from_file.throughput_unit == "tokens/s"


def test_units_gathered_ahead_hide_behind_the_computation_and_take_memory():
    asked = {**LLAMA, "gpus": 16, "zero_stage": 3}
    none, one, two = (predict_time(**asked, prefetch=ahead) for ahead in (0, 1, 2))
    assert one == predict_time(**asked)
    assert none.analytical_step_time_s > one.analytical_step_time_s
    held = [answer.memory_terms["gathered"] for answer in (none, one, two)]
    assert 0.0 < held[1] - held[0] == pytest.approx(held[2] - held[1])


def test_without_stragglers_only_their_seconds_are_gone():
    asked = {**LLAMA, "gpus": 64, "zero_stage": 3}
    on, off = predict_time(**asked), predict_time(**asked, stragglers=False)
    assert on.terms["straggler_s"] > 0.0
    assert "straggler_s" not in off.terms
    assert off.step_time_s < on.step_time_s
    factors = [answer.step_time_s / answer.analytical_step_time_s for answer in (on, off)]
    assert factors[1] == pytest.approx(factors[0], rel=1e-12)
    widths = [answer.interval.high_s / answer.step_time_s for answer in (on, off)]
    assert widths[1] == pytest.approx(widths[0], rel=1e-12)
    assert off.warnings == on.warnings


def test_one_device_waits_for_no_other():
    on, off = (predict_time(**{**CALL, "gpus": 1}, stragglers=given) for given in (True, False))
    assert off.step_time_s == pytest.approx(on.step_time_s, rel=1e-12)
    assert off.analytical_step_time_s == on.analytical_step_time_s
