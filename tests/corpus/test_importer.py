"""Row semantics, rule by rule, on real rows (tests/corpus/data/rows.csv carries each one's source_ref)."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path

import pytest

from build_corpus import with_repeats
from precision_time.corpus.importer import read_measurements
from precision_time.corpus.measurement import Measurement, Quality, Rejected
from precision_time.cost.job import TimingScope
from precision_time.parallel.layout import Recompute

Find = Callable[..., Measurement]


def only(path: Path) -> Measurement:
    (row,) = read_measurements(path, curated=True)
    assert isinstance(row, Measurement)
    return row


def test_every_row_comes_back_in_order(raw_rows, imported):
    assert len(raw_rows) == len(imported)
    for raw, row in zip(raw_rows, imported, strict=True):
        assert raw.text("model") == row.model


def test_row_without_device_is_listed_with_its_reason(imported):
    rejected = [row for row in imported if isinstance(row, Rejected)]
    assert [(row.source, row.reason) for row in rejected] == [("sia", "device not stated")]


def test_batches_multiply_to_the_global_batch_and_degrees_to_the_devices(measurements):
    for row in measurements:
        if row.layout is None:
            continue
        assert row.layout.world_size == row.num_devices
        assert row.layout.global_batch_size == pytest.approx(row.global_batch_size, rel=1e-6)


def test_single_device_image_row(find: Find):
    row = find(source="timm")
    assert (row.num_devices, row.micro_batch_size, row.num_microbatches) == (1, 384, 1)
    assert row.measured_step_time_s == pytest.approx(384 / row.throughput, rel=0.01)
    assert row.scope is TimingScope.FULL_STEP and row.quality is Quality.FINE and row.weight == 1.0


def test_repeats_and_spread_come_from_the_notes(find: Find):
    row = find(source="lambda")
    assert row.repeat_count == 3
    assert row.spread == pytest.approx((248.1 - 227.58) / ((248.1 + 227.58) / 2))


def test_transformer_xl_counts_target_tokens_only(find: Find):
    row = find(model="transformer-xl-base")
    assert row.measured_step_time_s == pytest.approx(32 * 192 / 41527, rel=0.01)
    assert row.quality is Quality.FINE


def test_accumulated_step_is_one_optimizer_step(find: Find):
    row = find(source="nvidia-dle", model="bert-large")
    assert (row.micro_batch_size, row.num_microbatches, row.global_batch_size) == (16, 256, 4096)
    assert row.measured_step_time_s == pytest.approx(4096 / 110, rel=0.01)
    assert row.stack.unpadded_sequences  # LDDL: sequences come sorted into bins by length


def test_ragged_last_micro_batch_is_averaged(find: Find):
    row = find(source="mosaic-llm-foundry")
    assert row.layout.dp == 8 and row.num_microbatches == 22
    assert row.micro_batch_size == pytest.approx(2048 / 8 / 22)
    assert row.quality is Quality.FINE
    assert any("last micro batch" in text for text in row.assumptions)


def test_fsdp_precision_and_sharding(find: Find):
    row = find(source="mosaic-llm-foundry")
    assert (row.precision, row.precision_variant) == ("bf16-mixed", "compress-hook")
    assert row.layout.zero_stage == 3


def test_micro_batch_is_per_replica_under_model_parallelism(find: Find):
    row = find(source="vtrain")
    assert (row.layout.dp, row.layout.tp, row.layout.pp) == (1, 2, 4)
    assert (row.micro_batch_size, row.num_microbatches) == (1, 8)
    assert row.layout.recompute is Recompute.FULL


def test_placement_gives_nodes_and_sync_time_is_kept(find: Find):
    row = find(source="pollux")
    assert row.num_nodes == len(row.placement) and sum(row.placement) == row.num_devices == 7
    assert 0 < row.sync_time_s < row.measured_step_time_s
    assert "sync_time_s" not in row.notes and "placement" not in row.notes


def test_unconsolidated_devices_sit_on_a_host_each(find: Find):
    assert find(source="gavel", num_devices=4).num_nodes == 4


def test_missing_nodes_are_filled_and_said(find: Find):
    row = find(source="gavel", num_devices=8)
    assert row.num_nodes == 2
    assert any("nodes not stated" in text for text in row.assumptions)


def test_pod_counted_as_one_node_gets_its_hosts(find: Find):
    assert find(device="TPUv4").num_nodes == 64 / 4


def test_degrees_follow_from_accumulation_where_not_stated(find: Find):
    row = find(model="gpt3-175b")
    # 1536 sequences in 384 micro batches: 4 per forward pass on 256 devices.
    assert (row.layout.dp, row.micro_batch_size, row.num_microbatches) == (4, 1, 384)
    assert row.layout.tp * row.layout.pp == 64
    assert any("degrees not stated" in text for text in row.assumptions)


def test_unstated_context_parallelism_fills_the_devices(find: Find):
    row = find(model="llama2-70b-lora")
    # 8 sequences in 2 micro batches feed 4 of the 8 devices, so two share a sequence.
    assert (row.layout.dp, row.layout.cp, row.num_microbatches) == (4, 2, 2)


@pytest.mark.parametrize(("nodes", "training", "sharing"), [(7, 56, 1), (84, 672, 8)])
def test_devices_that_only_evaluate_do_not_count(measurements, nodes, training, sharing):
    (row,) = (row for row in measurements if row.model == "unet3d" and row.num_devices == training)
    assert row.num_nodes == nodes
    assert row.layout.tp == sharing and row.micro_batch_size == 1
    assert any("evaluate" in text for text in row.assumptions)


def test_stated_degrees_that_do_not_fit_make_the_row_suspect(find: Find):
    row = find(source="bigscience")
    assert row.quality is Quality.SUSPECT and row.weight < 1
    assert row.layout.world_size == row.num_devices == 16


def test_nvfp4_is_read_from_the_detail(find: Find):
    row = find(source="nemo-megatron-bridge")
    assert row.precision == "nvfp4-mixed"
    assert (row.layout.vpp, row.num_microbatches, row.layout.zero_stage) == (4, 192, 1)
    assert row.layout.sequence_parallel


@pytest.mark.parametrize(
    ("values", "precision", "variant"),
    [
        ({"source": "lucid"}, "tf32", ""),
        ({"source": "a100-cnn-sweep"}, "tf32", ""),
        ({"source": "zeus"}, "fp32", ""),
        ({"source": "lambda"}, "fp16-mixed", "apex-o2"),
        ({"source": "pollux"}, "fp16-mixed", "apex-o1"),
        ({"source": "vtrain"}, "fp16-mixed", "deepspeed"),
        ({"source": "megatron-lm"}, "fp16-mixed", "apex-o2"),
        ({"source": "torchtitan"}, "fp8-mixed", "torchao-fp8-gather"),
        ({"source": "pytorch-gpu-benchmark"}, "fp16", ""),
        ({"source": "mlperf-hpc-v1.0"}, "fp16-mixed", ""),
        ({"device": "TPUv4"}, "bf16-mixed", "xla"),
        ({"source": "optimum-habana", "model": "gpt2-xl"}, "bf16-mixed", "deepspeed"),
    ],
)
def test_precision_and_variant(find: Find, values, precision, variant):
    row = find(**values)
    assert (row.precision, row.precision_variant) == (precision, variant)


def test_fp8_on_a_device_without_it_is_read_as_fp16(write_csv, minimal):
    row = only(write_csv({**minimal, "precision": "fp8-mixed"}))
    assert row.precision == "fp16-mixed" and row.quality is Quality.SUSPECT


@pytest.mark.parametrize(
    ("source", "engine"),
    [("pytorch-gpu-benchmark", "dataparallel"), ("cm-dare", "parameter-server"), ("vtrain", "ddp")],
)
def test_data_parallel_engine(find: Find, source, engine):
    assert find(source=source).layout.data_parallel_engine == engine


def test_model_parallelism_is_split_as_megatron_does(find: Find):
    row = find(source="megatron-lm")
    assert (row.layout.dp, row.layout.tp, row.layout.pp) == (32, 8, 4)
    assert row.micro_batch_size * row.num_microbatches * 32 == 1792


def test_a_model_too_big_for_one_device_is_spread_where_no_degrees_are_stated(find: Find):
    row = find(source="intel-gaudi-pages")
    assert row.layout.tp * row.layout.pp >= 8
    assert any("needs that memory" in text for text in row.assumptions)


@pytest.mark.parametrize(
    ("values", "seq_len"),
    [
        ({"source": "oneflow-dlperf", "model": "bert-base"}, 128),
        ({"source": "optimum-habana", "model": "gpt2-xl"}, 1024),
        ({"source": "optimum-habana", "model": "llama-7b"}, 512),
        ({"source": "hf-trainer-benchmark"}, 64),
    ],
)
def test_default_sequence_length_is_said(find: Find, values, seq_len):
    row = find(**values)
    assert row.seq_len == seq_len
    assert any("not stated" in text and str(seq_len) in text for text in row.assumptions)


def test_task_named_after_a_data_set_becomes_what_is_trained(find: Find):
    assert find(source="optimum-habana", model="llama-7b").task == "lora-finetune"


@pytest.mark.parametrize("source", ["cm-dare"])
def test_unusable_rows_stay_with_their_reason(find: Find, source):
    row = find(source=source)
    assert row.quality is Quality.UNUSABLE and not row.usable
    assert row.quality_reason and row.weight == 0


def test_mel_frames_without_their_length_give_no_step_time(find: Find):
    row = find(model="fastpitch")
    assert row.measured_step_time_s is None and row.quality is Quality.UNUSABLE


def test_a_step_of_several_models_is_no_plain_training_step(write_csv, minimal):
    cells = {**minimal, "source": "optimum-habana", "model": "llama-7b", "device": "Gaudi2"}
    row = only(write_csv({**cells, "task": "trl-ppo"}))
    assert row.quality is Quality.UNUSABLE and row.weight == 0 and "plain training step" in row.quality_reason
    assert only(write_csv({**cells, "task": "trl-sft"})).weight == 1


def test_power_capped_rows_carry_no_weight(find: Find):
    row = find(source="zeus")
    assert row.quality is Quality.SUSPECT and row.weight == 0


@pytest.mark.parametrize(
    ("unit", "extra", "expected_s"),
    [
        ("images/s", {}, 2048 / 1000),
        ("samples/s", {}, 2048 / 1000),
        ("tokens/s", {"seq_len": 128}, 2048 * 128 / 1000),
        ("steps/s", {}, 1 / 1000),
    ],
)
def test_step_time_from_throughput(write_csv, minimal, unit, extra, expected_s):
    row = only(
        write_csv({**minimal, "step_time_s": "", "throughput": 1000, "throughput_unit": unit, **extra})
    )
    assert row.usable and row.measured_step_time_s == pytest.approx(expected_s)
    assert any("derived from throughput" in text for text in row.assumptions)


def test_tokens_without_a_length_give_no_step_time(write_csv, minimal):
    cells = {**minimal, "step_time_s": "", "throughput": 1000, "throughput_unit": "tokens/s"}
    row = only(write_csv(cells))
    assert row.quality is Quality.UNUSABLE and "step time" in row.quality_reason


def test_contradicting_step_time_and_throughput_make_a_row_suspect(write_csv, minimal):
    cells = {**minimal, "throughput": 40_960, "throughput_unit": "images/s"}  # 0.05 s, not 0.1 s
    row = only(write_csv(cells))
    assert row.quality is Quality.SUSPECT and "0.05" in row.quality_reason
    assert row.measured_step_time_s == 0.1


@pytest.mark.parametrize(
    ("micro", "accumulation", "total", "expected"),
    [
        (256, "", "", (256, 1)),
        ("", "", 2048, (256, 1)),
        (64, "", 2048, (64, 4)),
        ("", 4, 2048, (64, 4)),
        (64, 4, "", (64, 4)),
    ],
)
def test_batches_complete_each_other(write_csv, minimal, micro, accumulation, total, expected):
    cells = {**minimal, "batch_per_device": micro, "grad_accum": accumulation, "global_batch": total}
    row = only(write_csv(cells))
    assert (row.micro_batch_size, row.num_microbatches) == expected
    assert row.global_batch_size == expected[0] * expected[1] * 8


def test_contradicting_batches_make_a_row_suspect(write_csv, minimal):
    row = only(write_csv({**minimal, "grad_accum": 2, "global_batch": 8192}))
    assert row.quality is Quality.SUSPECT and "global batch" in row.quality_reason
    assert row.layout.global_batch_size == 8192


def test_repeats_of_one_configuration_share_a_key(write_csv, minimal):
    rows = [{**minimal, "step_time_s": time, "system": f"host{time}"} for time in (0.1, 0.11, 0.12)]
    found = with_repeats(read_measurements(write_csv(*rows)))
    assert len({row.configuration_key for row in found}) == 1
    assert [row.repeat_count for row in found] == [3, 3, 3]
    assert found[0].spread == pytest.approx(0.02 / 0.11)


@pytest.mark.parametrize(
    "change",
    [
        {"model": "resnet101"},
        {"device": "H100-SXM5-80GB"},
        {"devices": 4},
        {"precision": "tf32"},
        {"batch_per_device": 128},
        {"nodes": 2},
        {"memory_format": "nhwc"},
        {"timing_scope": "no-optimizer"},
        {"parallelism": '{"zero":3}'},
    ],
)
def test_another_configuration_has_another_key(write_csv, minimal, change):
    columns = {**minimal, "nodes": 1, "memory_format": "", "timing_scope": "full-step", "parallelism": ""}
    first, second = read_measurements(write_csv(columns, {**columns, **change}))
    assert first.configuration_key != second.configuration_key


def test_derived_and_stated_step_times_agree_on_every_fine_row(measurements):
    for row in measurements:
        if row.usable and row.quality is Quality.FINE and row.throughput_unit == "images/s":
            assert abs(math.log(row.global_batch_size / row.throughput / row.step_time_s)) < 0.15


@pytest.mark.parametrize(
    ("cells", "inferred"),
    [
        ({"precision": "unknown"}, True),
        ({"precision": ""}, True),
        ({"precision": "fp16-mixed"}, False),
        ({"precision": "fp16-mixed", "inferred": "nodes;precision"}, True),
        ({"precision": "fp8-mixed", "device": "V100-SXM2-16GB"}, True),
    ],
)
def test_a_label_that_the_row_does_not_state_is_marked(write_csv, minimal, cells, inferred):
    row = only(write_csv({**minimal, **cells}))
    assert row.precision_inferred is inferred
    assert len(set(row.inferred)) == len(row.inferred)


@pytest.mark.parametrize(
    ("cells", "kernel"),
    [
        ({"model_config": '{"flash_attention":false}'}, (False, "")),
        ({"model_config": '{"flash_attention":true}', "framework_version": "2024-03"}, (True, "flash2")),
        ({"notes": "8 GPUs; fa3, Liger kernels"}, (True, "flash3")),
        ({"notes": "no flash attention"}, (False, "")),
    ],
)
def test_the_attention_kernel_that_a_row_names_is_taken(write_csv, minimal, cells, kernel):
    row = {**minimal, "model": "llama2-7b", "device": "H100-SXM5-80GB", "precision": "bf16-mixed"}
    row |= {"task": "sft", "seq_len": 4096, "batch_per_device": 1, **cells}
    (found,) = read_measurements(write_csv({key: str(value) for key, value in row.items()}))
    assert (found.stack.fused_attention, found.stack.attention) == kernel


@pytest.mark.parametrize(
    ("targets", "layers"),
    [
        ("q_proj k_proj v_proj o_proj", ["q", "k", "v", "o"]),
        (".*wq|.*wv", ["wq", "wv"]),
        ("prime-rl default (all linear layers)", ["all-linear"]),
        (["query", "value"], ["query", "value"]),
    ],
)
def test_layers_of_adapters_are_read_of_lists_and_sentences(write_csv, minimal, targets, layers):
    config = json.dumps({"adapter": "lora", "adapter_rank": 16, "adapter_targets": targets})
    row = {**minimal, "model": "llama2-7b", "task": "lora-sft", "seq_len": 512, "model_config": config}
    (found,) = read_measurements(write_csv({key: str(value) for key, value in row.items()}))
    assert (found.sizes["lora_rank"], list(found.sizes["lora_targets"])) == (16, layers)
