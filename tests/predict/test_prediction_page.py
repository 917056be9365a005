"""The page says what the prediction holds."""

from __future__ import annotations

import dataclasses
import math
import re

import pytest

from precision_time import predict_time
from precision_time.cost.job import Jobs
from precision_time.diagnostics import Diagnostic, Severity
from precision_time.explain.precision import ExplainedClass, Explanation
from precision_time.io import packaged_toml
from precision_time.learn.artifact import shipped_predictor
from precision_time.predict.answer import answer as answer_of
from precision_time.predict.changes import Alternative, what_matters
from precision_time.predict.headline import Interval
from precision_time.predict.page import blocks_of, labels_of
from precision_time.predict.prediction import NearestMeasurement, Prediction
from precision_time.predict.predictions import Predictions
from precision_time.render.terminal import text_of_blocks
from precision_time.request.request import Request
from precision_time.workload.resolve import load_workload


def prediction(precision: str = "fp16-mixed", step_time_s: float = 0.25, **changes: object) -> Prediction:
    fields: dict[str, object] = {
        "model": "resnet50",
        "device": "A100-SXM4-80GB",
        "gpus": 8,
        "nodes": 1,
        "precision": precision,
        "stack": "pytorch-eager",
        "batch_size": 256.0,
        "global_batch_size": 2048.0,
        "step_time_s": step_time_s,
        "terms": {"compute_s": step_time_s * 0.75, "dp_comm_exposed_s": step_time_s * 0.25, "bubble_s": 0.0},
        "interval": Interval(low_s=step_time_s * 0.8, high_s=step_time_s * 1.2, coverage=0.9),
        "steps_per_epoch": 626,
        "epoch_time_s": 626 * step_time_s,
        "total_steps": None,
        "total_time_s": None,
        "throughput": 2048 / step_time_s,
        "throughput_unit": "images/s",
        "mfu": 0.314,
        "memory_bytes_per_device": 20 * 2.0**30,
        "memory_terms": {"activations": 20 * 2.0**30},
        "fits": True,
        "device_memory_bytes": 80 * 2.0**30,
        "link_seconds": {},
        "analytical_step_time_s": step_time_s,
    }
    return Prediction(**(fields | changes))  # type: ignore[arg-type]


RUN = NearestMeasurement(
    model="resnet50",
    device="A100-SXM4-40GB",
    gpus=8,
    precision="fp16-mixed",
    global_batch_size=2048,
    stack="ngc-tuned",
    measured_step_time_s=0.1,
    predicted_step_time_s=0.11,
    similarity=0.9,
    source="nvidia-dle",
    source_ref="somewhere",
)


def page(*predictions: Prediction) -> str:
    return text_of_blocks(blocks_of(predictions))


def line_with(text: str, word: str) -> str:
    return next(line for line in text.splitlines() if line.startswith(word))


def test_str_is_the_page() -> None:
    assert str(prediction()) == page(prediction())
    both = (prediction(), prediction("fp32", 1.0))
    assert str(Predictions.of(both)) == page(*both)


def test_the_answer_comes_first() -> None:
    run, answer, job, *_ = str(prediction()).splitlines()
    assert run.startswith("A million images take 2 min 2 s, about $0.")
    for text in ("250 ms", "200 - 300 ms", "8,192 images/s", "31.4%", "Fits: 20.0 of 80.0 GiB"):
        assert text in answer
    assert "8 x A100-SXM4-80GB" in job
    assert "batch 256 per device, 2,048 per step" in job


def test_what_does_not_fit_comes_first() -> None:
    needs = Diagnostic("memory", Severity.WARNING, "Does not fit: needs 90 GiB.")
    assert str(prediction(fits=False, diagnostics=(needs,))).startswith(needs.text)
    assert "fit" not in str(prediction())


def test_table_of_several_prints_time_interval_throughput_and_memory() -> None:
    line = line_with(page(prediction(), prediction("fp32", 1.0)), "fp16-mixed")
    for text in ("250 ms", "200 - 300 ms", "8,192 images/s", "31.4%", "20.0 GiB", "2 min 36 s"):
        assert text in line


def test_variants_of_a_precision_are_told_apart() -> None:
    fp8 = [prediction("fp8-mixed", request={"precision": name}) for name in ("fp8-mixed", "mxfp8")]
    assert labels_of([prediction("fp32"), *fp8]) == ["fp32", "fp8-mixed", "fp8-mixed (mxfp8)"]


def test_large_batches_are_whole_numbers() -> None:
    assert "2,097,152 per step" in str(prediction(global_batch_size=2.0**21))


def test_repr_is_one_line_per_prediction() -> None:
    both = Predictions.of((prediction("fp32", 1.0), prediction()))
    assert len(repr(prediction())) < 200
    assert len(repr(both).splitlines()) == 3
    assert "250 ms per step (90% interval 200 - 300 ms)" in repr(both)


def test_html_has_no_script_and_escapes_names() -> None:
    text = prediction(model="<script>net</script>")._repr_html_()
    assert "<script" not in text
    assert "&lt;script&gt;net" in text
    assert text.count("<div") == text.count("</div>")


def test_plot_adds_up_and_shows_the_interval() -> None:
    axes = Predictions.of((prediction("fp32", 1.0), prediction())).plot()
    bars = [patch for patch in axes.patches if patch.get_y() < 0.5]
    assert sum(bar.get_width() for bar in bars) == pytest.approx(0.25)
    assert "90% interval" in axes.get_legend_handles_labels()[1]


ASSUMED = [
    Alternative(
        field="compiler", value=f"c{index}", assumed=f"guess {index}", words="that", time_change=-0.5 / index
    )
    for index in (1, 2, 3, 4)
]


def test_at_most_three_assumptions_are_shown_but_for_why() -> None:
    short, full = (
        text_of_blocks(blocks_of([prediction()], matters=ASSUMED, why=why)) for why in (False, True)
    )
    assert [f"guess {index}" in short for index in (1, 2, 3, 4)] == [True, True, True, False]
    assert "guess 4" in full
    assert "-50%" in short


def test_a_processor_without_a_name_is_an_assumption_and_has_no_tf32() -> None:
    found = {each.field: each for each in what_matters(predict_time("resnet50", device="cpu", batch_size=32))}
    assert found["device"].assumed == "'cpu' as CPU-Xeon-Platinum-8480+"
    assert str(found["device"].value).startswith("CPU-")
    assert (found["precision"].value, found["precision"].words) == ("fp32", "no autocast")


@pytest.mark.parametrize("model", ["whisper-small", "flux.1-dev-lora"])
def test_positions_that_the_model_fixes_are_no_length_to_choose(model: str) -> None:
    answer = predict_time(model, device="H200", batch_size=1)
    assert (load_workload(model).graph.seq_len or 0) > 512
    assert "seq_len" not in {each.field for each in what_matters(answer)}


def test_what_matters_is_by_how_much_the_prediction_moves() -> None:
    """Largest first, and each figure is what the predictor says of the job with the alternative."""
    given = {"model": "resnet50", "device": "A100", "gpus": 8, "batch_size": 64, "precision": "fp16-mixed"}
    found = what_matters(predict_time(**given))
    sizes = [abs(math.log(1.0 + item.time_change)) for item in found]
    assert sizes == sorted(sizes, reverse=True)
    assert len({item.field for item in found}) == len(found) >= 3
    asked = [given, *({**given, item.field: item.value} for item in found[:3])]
    jobs = Jobs.of([Request.of(each).resolve() for each in asked])
    columns = answer_of(jobs, shipped_predictor()).figures
    rates, held = columns["throughput"], columns["memory_bytes_per_device"]
    for row, item in enumerate(found[:3], 1):
        assert rates[0] / rates[row] - 1.0 == pytest.approx(item.time_change, rel=1e-6)
        assert held[row] / held[0] - 1.0 == pytest.approx(item.memory_change, rel=1e-6, abs=1e-9)


def test_the_assumption_that_moves_the_memory_most_is_shown() -> None:
    """A model cut over devices is more often Megatron's than a script's own: its optimizer is sharded."""
    answer = predict_time("llama3.2-1b", device="H100", gpus=8, tp=2, seq_len=4096, batch_size=1)
    [stack] = [each for each in what_matters(answer) if each.field == "stack"]
    assert stack.value == "megatron" and stack.memory_change < -0.3
    full = dataclasses.replace(ASSUMED[3], memory_change=0.5)
    text = text_of_blocks(blocks_of([prediction()], matters=[*ASSUMED[:3], full]))
    assert "guess 4" in text and "+50%" in text


def test_alternatives_of_a_step_with_answers_keep_its_answers() -> None:
    """A batch that was assumed is a micro batch: as the batch of the step it held half a group of answers."""
    found = predict_time("qwen2.5-1.5b-lora", device="RTX4090", gpus=2, method="grpo", dataset="gsm8k")
    batch = next(each for each in what_matters(found) if each.field == "batch_size")
    assert found.global_batch_size == 1024.0
    halved = predict_time(
        "qwen2.5-1.5b-lora",
        device="RTX4090",
        gpus=2,
        method="grpo",
        dataset="gsm8k",
        batch_size=1,
        prompts=128,
    )
    assert halved.global_batch_size == 1024.0
    assert 0.0 < batch.time_change < 0.5


@pytest.mark.parametrize(
    "asked", [("Gaudi2", "bf16-mixed"), ("Gaudi3", "fp8-mixed"), ("H100-SXM5-80GB", "bf16-mixed")]
)
def test_the_answer_lies_in_what_is_said_of_values_left_open(asked: tuple[str, str]) -> None:
    """Questions on Gaudi2 take half longer than the jobs they are filled in with: the range does, too."""
    device, precision = asked
    found = predict_time("llama3-8b", device=device, gpus=8, precision=precision)
    (text,) = [each.text for each in found.diagnostics if "Left open" in each.text]
    low_s, high_s = [
        float(number) * {"s": 1.0, "ms": 1e-3}[unit]
        for number, unit in re.findall(r"([\d.]+) (ms|s) (?=to|per)", text)
    ]
    assert 0.9 * low_s <= found.step_time_s <= 1.1 * high_s


def test_what_is_given_is_not_assumed() -> None:
    given = {"device": "A100-SXM4-80GB", "batch_size": 64, "precision": "tf32", "channels_last": False}
    found = what_matters(predict_time("resnet50", **given))
    assert found
    assert not {item.field for item in found} & given.keys()


def test_no_run_near_is_said() -> None:
    far = dataclasses.replace(RUN, similarity=0.1)
    assert "No measured run is near" in str(prediction(nearest_measurements=(far,)))
    assert "No measured run is near" in str(prediction())
    assert "No measured run is near" not in str(prediction(nearest_measurements=(RUN,)))


def test_a_run_whose_source_states_no_precision_is_shown_so() -> None:
    assert "inferred" not in str(prediction(nearest_measurements=(RUN,)))
    inferred = dataclasses.replace(RUN, precision_inferred=True)
    page = str(prediction(nearest_measurements=(inferred,)))
    assert "fp16-mixed (precision" in page and "inferred)" in page


def test_the_distance_of_a_run_is_in_words() -> None:
    line = line_with(str(prediction(nearest_measurements=(RUN,))), "resnet50, 8 x A100-SXM4-40GB")
    assert "other device; on ngc-tuned" in line
    alike = dataclasses.replace(RUN, device="A100-SXM4-80GB", stack="pytorch-eager")
    assert "the same job" in str(prediction(nearest_measurements=(alike,)))


def test_bars_are_proportional_to_the_terms() -> None:
    text = str(prediction())
    assert line_with(text, "compute").count("█") == 3 * line_with(text, "dp comm exposed").count("█")
    assert line_with(text, "compute").endswith("75%")


def test_terms_that_are_zero_are_left_out() -> None:
    assert "bubble" not in str(prediction())


def test_several_precisions_share_one_scale() -> None:
    text = page(prediction("fp32", 1.0), prediction("bf16-mixed", 0.5))
    slow, fast = line_with(text, "compute").split("ms")[1:]
    assert slow.count("█") == 2 * fast.count("█")


def test_lines_common_to_all_stand_once_and_others_say_whose_they_are() -> None:
    dataset, tf32 = (
        Diagnostic("any", Severity.ASSUMPTION, text) for text in ("the dataset is imagenet", "TF32 is off")
    )
    text = page(
        prediction("fp32", diagnostics=(dataset, tf32)), prediction("bf16-mixed", diagnostics=(dataset,))
    )
    assert text.count("the dataset is imagenet") == 1
    assert "Assumed: fp32: TF32 is off" in text


def test_differences_beside_the_precision_are_labelled() -> None:
    text = page(prediction(), prediction(device="V100-SXM2-16GB"))
    assert "fp16-mixed V100-SXM2-16GB" in text


def test_nearest_measurements_prints_measured_and_predicted() -> None:
    line = line_with(str(prediction(nearest_measurements=(RUN,))), "resnet50, 8 x A100-SXM4-40GB")
    assert "100 ms" in line
    assert "110 ms" in line
    assert "nvidia-dle" in line


def test_the_same_run_stands_once() -> None:
    text = page(prediction("fp32", nearest_measurements=(RUN,)), prediction(nearest_measurements=(RUN,)))
    assert text.count("nvidia-dle") == 1


@pytest.mark.parametrize("count", [1, 4, 7])
def test_any_number_of_predictions_prints(count: int) -> None:
    text = page(*(prediction(f"p{index}", 0.1 + index) for index in range(count)))
    for index in range(count):
        assert f"p{index}" in text


def test_explanation_prints_figures_in_their_units() -> None:
    row = ExplainedClass(
        op_class="conv", phase="forward", dtype="fp16", flops=8.2e9, bytes=2.0**20, time_s=1e-3, launches=3.0,
        fp32_bytes=2.0**21, fp32_time_s=2e-3,
    )  # fmt: skip
    text = str(
        Explanation(
            model="resnet50", device="A100-SXM4-80GB", precision="fp16-mixed", batch_size=32.0, flops=8.2e9,
            bytes=2.0**20, fp32_bytes=2.0**21, cast_bytes=2.0**30, casts=1.0, time_s=1e-3, fp32_time_s=2e-3,
            tensor_core_share=0.98, rows=(row,), operators={}, own_rules=False,
            warnings=("bf16 is emulated",),
        )
    )  # fmt: skip
    assert text.startswith("resnet50 at fp16-mixed on one A100-SXM4-80GB, batch 32")
    assert "cast bytes: 1.0 GiB" in text
    assert "tensor core share: 98%" in text
    assert " ".join(line_with(text, "conv").split()).startswith("conv forward fp16 8.2 GFLOP 1.0 MiB 1 ms")
    assert "Warning: bf16 is emulated" in text


def test_brackets_in_a_name_are_printed() -> None:
    text = page(prediction("fp8[bold]:smile:", 0.1), prediction())
    assert len([line for line in text.splitlines() if line.startswith("fp8[bold]:smile:")]) == 1


def test_every_alternative_names_a_field_and_a_known_value() -> None:
    """A row with a value that no request takes would never be tried, and nobody would notice."""
    for row in packaged_toml("precision_time.predict", "data/alternatives.toml")["alternative"]:
        for value in row.get("values", [row["value"]] if "value" in row else []):
            like = row.get("where", {}).get("cluster.device.name", "H100-SXM5-80GB")
            Request.of({"model": "gpt2", "device": like, row["field"]: value}).resolve()


@pytest.mark.parametrize(("device", "batch"), [("A100-SXM4-40GB", 4), ("TPUv4", 8)])
def test_an_alternative_keeps_the_sharding_that_was_assumed(device: str, batch: int) -> None:
    """Checkpoints make plain data parallelism fit again, which took more memory than the job without them."""
    given = {"model": "gpt3-1.3b", "device": device, "gpus": 8, "batch_size": batch}
    answer = predict_time(**given)
    [full] = [each for each in what_matters(answer) if each.field == "recompute"]
    assert full.option == "recompute=full zero_stage=3"
    assert full.memory_change < 0.0
    as_said = predict_time(**given, recompute="full", zero_stage=3)
    memory = as_said.memory_bytes_per_device / answer.memory_bytes_per_device - 1.0
    assert full.memory_change == pytest.approx(memory, rel=1e-9)


def test_another_device_of_the_name_keeps_the_network_between_the_nodes() -> None:
    """A host of H100-NVL has one adapter, that of DGX H100 eight: it was told as ten times slower by that."""
    given = {"model": "llama3-8b", "gpus": 64, "batch_size": 1, "zero_stage": 3, "recompute": "full"}
    given |= {"stack": "torchtitan", "precision": "bf16-mixed"}
    answer = predict_time(device="H100", **given)
    [other] = [each for each in what_matters(answer) if each.field == "device"]
    assert other.option == f"device={other.value} 'inter_node=ib-400g x8'" and other.time_change < 1.5
    as_said = predict_time(device=other.value, inter_node="ib-400g x8", **given)
    assert other.time_change == pytest.approx(answer.throughput / as_said.throughput - 1.0, rel=0.01)
    [own] = [each for each in what_matters(predict_time(device="H100", network="100g-tcp", **given))
             if each.field == "device"]  # fmt: skip
    assert "inter_node" not in own.option


def test_a_slice_is_told_by_its_hosts() -> None:
    answer = predict_time(model="gpt3-1.3b", device="TPUv4", gpus=64)
    assert "on 64 x TPUv4 (16 hosts of one fabric)" in str(answer)
