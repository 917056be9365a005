"""What recipes say of large-model rows: completed cells, layouts and step times."""

import json
import sqlite3

import pytest

from build_corpus import write_store
from precision_time.corpus.importer import read_measurements
from precision_time.corpus.jobs import job_of
from precision_time.corpus.measurement import Measurement, Quality
from precision_time.corpus.store import SCHEMA_VERSION, MeasurementStore
from precision_time.parallel.layout import Offload, PipelineSchedule, Recompute

PROPS = {"task": "lm-pretrain", "precision": "bf16-mixed", "batch_per_device": "", "step_time_s": "10"}
"""Of a large-model row, beside what each test states."""


@pytest.fixture
def imported_row(write_csv, minimal):
    """The Measurement of one row with these cells; mappings become JSON."""

    def read(**cells: object) -> Measurement:
        texts = {key: json.dumps(value) if isinstance(value, dict) else value for key, value in cells.items()}
        (found,) = read_measurements(write_csv({**minimal, **PROPS, **texts}), curated=True)
        assert isinstance(found, Measurement)
        return found

    return read


@pytest.mark.parametrize(
    ("model", "degrees", "total", "micro", "chunks"),
    [
        ("gpt3-1.7b", {"dp": 32, "tp": 1, "pp": 1}, 512, 16, 1),
        ("gpt3-76b", {"dp": 32, "tp": 8, "pp": 4}, 1792, 2, 3),
        ("gpt3-310b", {"dp": 15, "tp": 8, "pp": 16}, 2160, 1, 2),
    ],
)
def test_megatron_of_2021_runs_by_its_published_script(imported_row, model, degrees, total, micro, chunks):
    found = imported_row(
        source="megatron-lm",
        source_ref="NVIDIA/Megatron-LM@50a4b5fa02:images/cases_april2021.png",
        model=model,
        devices=degrees["dp"] * degrees["tp"] * degrees["pp"],
        parallelism=degrees,
        global_batch=total,
        seq_len=2048,
        precision="fp16-mixed",
    )
    layout = found.layout
    assert layout is not None and layout.global_batch_size == total
    assert (layout.micro_batch_size, layout.vpp) == (micro, chunks)
    assert (layout.schedule is PipelineSchedule.INTERLEAVED) is (chunks > 1)
    assert layout.recompute is Recompute.FULL
    assert any("run_table_1.sh" in text for text in found.assumptions)


def test_experts_keep_their_own_tensor_degree(imported_row):
    found = imported_row(
        source="nemo-megatron-bridge",
        model="deepseek-v3",
        device="H100-SXM5-80GB",
        devices=1024,
        precision="fp8-mixed",
        precision_detail="FP8",
        parallelism={"tp": 2, "pp": 8, "cp": 1, "ep": 64, "virtual_pp": 4, "dp": 64},
        batch_per_device=1,
        global_batch=8192,
        seq_len=4096,
    )
    layout = found.layout
    assert layout is not None
    assert (layout.ep, layout.etp, layout.expert_data_ranks) == (64, 1, 2)
    assert sum(layout.stage_layers) == 61 and len(layout.stage_layers) == layout.pp
    assert found.precision_variant == "blockwise+bf16-reduce"


def test_experts_may_span_the_tensor_axis_when_they_are_not_cut(imported_row):
    found = imported_row(
        source="nemo-megatron-bridge",
        model="qwen3-235b-a22b",
        device="GB200",
        devices=64,
        parallelism={"tp": 2, "pp": 1, "cp": 1, "ep": 64, "dp": 32},
        batch_per_device=1,
        global_batch=1024,
        seq_len=4096,
    )
    assert found.layout is not None and found.layout.ep == 64
    assert found.stack.compiler == "cudagraphs" or not found.framework_version


@pytest.mark.parametrize(
    ("source", "word", "expected"),
    [
        ("torchtitan", "selective layer", (Recompute.FULL, 0.5)),
        ("torchtitan", "full", (Recompute.FULL, 1.0)),
        ("megatron-lm", "selective", (Recompute.SELECTIVE, 1.0)),
        ("torchtitan", "none", (Recompute.NONE, 1.0)),
        ("other", "half of the blocks (2 of 4)", (Recompute.FULL, 0.5)),
    ],
)
def test_words_of_checkpointing(imported_row, source, word, expected):
    found = imported_row(
        source=source,
        model="llama3-8b",
        parallelism={"dp": 8, "fsdp": True, "tp": 1, "activation_checkpointing": word},
        batch_per_device=1,
        seq_len=8192,
    )
    assert found.layout is not None
    assert (found.layout.recompute, found.layout.recompute_share) == expected


def test_step_time_from_a_stated_flop_rate(imported_row):
    """16B parameters, 6 x 2048 tokens per chip, 120 TFLOP/s: 6 N T and 12 L q S T over the rate."""
    found = imported_row(
        source="maxtext",
        model="maxtext-16b",
        device="TPUv5e",
        devices=512,
        parallelism={"slices": 2, "activation_checkpointing": "full", "fsdp": True},
        batch_per_device=6,
        global_batch=3072,
        seq_len=2048,
        step_time_s="",
        tflops_per_device=120,
        quality="unusable: no step time or throughput",
    )
    weights, layers, queries, length = 15.7e9, 32, 64 * 128, 2048
    expected = 6 * length * (6 * weights + 12 * layers * queries * length) / 120e12
    assert found.step_time_s == pytest.approx(expected, rel=0.02)
    assert found.quality is Quality.SUSPECT and found.weight == 0.5
    assert found.layout is not None and found.layout.dp_shard == 256


def test_flop_rate_makes_no_step_time_for_other_sources(imported_row):
    found = imported_row(
        source="own",
        model="llama3-8b",
        batch_per_device=1,
        seq_len=2048,
        step_time_s="",
        tflops_per_device=300,
    )
    assert not found.usable


@pytest.mark.parametrize(
    ("stated", "expected"),
    [
        ({"offload": "cpu"}, Offload.PARAMETERS),
        ({"offload": "optimizer+params"}, Offload.PARAMETERS),
        ({"offload_optimizer": True}, Offload.OPTIMIZER),
        ({}, Offload.NONE),
    ],
)
def test_offload(imported_row, stated, expected):
    found = imported_row(model="llama3-8b", parallelism={"dp": 8, "zero": 3, **stated}, batch_per_device=1)
    assert found.layout is not None and found.layout.offload is expected


@pytest.mark.parametrize(
    ("notes", "expected"),
    [
        ("stated 5605 tokens/s per GPU; peak memory 67.0 GiB; read at iteration 90", 67.0 * 2**30),
        ("longest 1034 tokens; max memory 9.69 GB", 9.69e9),
        ("iteration 2; 02-28; mem 52GB", 52e9),
        ("GPU memory size not stated", None),
    ],
)
def test_peak_memory_in_notes(imported_row, notes, expected):
    found = imported_row(model="llama3-8b", batch_per_device=1, seq_len=2048, notes=notes)
    assert found.peak_memory_bytes == (None if expected is None else pytest.approx(expected))


@pytest.fixture
def first_version(tmp_path, imported_row):
    """A store as version 1 wrote it: without the column for peak memory."""
    path = tmp_path / "old.sqlite"
    row = imported_row(model="llama3-8b", batch_per_device=1, seq_len=2048, notes="peak memory 67.0 GiB")
    write_store(path, [row])
    connection = sqlite3.connect(path)
    connection.executescript("ALTER TABLE measurement DROP COLUMN peak_memory_bytes; PRAGMA user_version=1;")
    connection.close()
    return path


def test_store_of_the_first_version_is_still_read(first_version):
    with MeasurementStore(first_version, read_only=True) as store:
        (row,) = store.measurements()
    assert row.model == "llama3-8b" and row.peak_memory_bytes is None


def test_store_of_the_first_version_is_brought_up_when_written(first_version, imported_row):
    row = imported_row(model="llama3-8b", batch_per_device=2, seq_len=2048, notes="peak memory 70.0 GiB")
    with MeasurementStore(first_version) as store:
        store.add([row])
    with MeasurementStore(first_version, read_only=True) as store:
        assert [item.peak_memory_bytes for item in store.measurements()] == [None, 70.0 * 2**30]
    connection = sqlite3.connect(first_version)
    assert connection.execute("PRAGMA user_version").fetchone()[0] == SCHEMA_VERSION
    connection.close()


@pytest.mark.parametrize(
    ("source", "intra", "inter", "expected"),
    [
        ("mlperf-v0.7", "nvlink2", "1Gb Ethernet", ("nvlink2", "")),
        ("mlperf-v4.0", "", "ethernet-1g", ("", "")),
        ("mlperf-v4.0", "2x 400Gbe Ethernet rail-optimized", "ethernet-1g", ("", "ethernet-400g x2")),
        ("mlperf-v4.0", "nvlink4", "ethernet-100g", ("nvlink4", "ethernet-100g")),
        ("pollux", "pcie3", "ethernet-1g", ("pcie3", "ethernet-1g")),
    ],
)
def test_networks_that_manage_hosts_are_not_the_fabric(imported_row, source, intra, inter, expected):
    found = imported_row(
        source=source, intra_node=intra, inter_node=inter, devices=16, nodes=2, batch_per_device=4
    )
    assert found.intra_node == expected[0]
    assert found.inter_node.removesuffix(" rail-optimized") == expected[1]


def test_low_rank_adapters_are_read_from_their_configuration(imported_row):
    config = {"peft_type": "LORA", "r": 10, "target_modules": ["gate_proj", "up_proj"]}
    found = imported_row(
        model="llama3.2-3b-lora", task="lm-finetune", dataset="metamathqa", model_config=config
    )
    assert found.task == "lora-finetune" and found.seq_len == 210
    assert found.sizes["lora_rank"] == 10 and found.sizes["lora_targets"] == ["gate", "up"]
    other = imported_row(model="llama3.2-3b-boft", task="lm-finetune", model_config={"peft_type": "BOFT"})
    assert other.quality is Quality.UNUSABLE


@pytest.mark.parametrize(("micro", "expected"), [(1, 128), (2, 191), (4, 262), (8, 335)])
def test_micro_batches_are_padded_to_the_longest_of_their_samples(imported_row, micro, expected):
    found = imported_row(
        source="litgpt-config-hub", model="llama2-7b", task="lora-sft", batch_per_device=micro, grad_accum=1
    )
    assert found.seq_len == expected


@pytest.mark.parametrize(
    ("detail", "config", "kind"),
    [
        ("bf16-true, bnb.nf4 base weights", {}, "qlora"),
        ("bf16-true", {}, "lora"),
        (
            "fp8wo-torchao; mixed_precision bf16",
            {"adapter": "lora", "base_weights": "fp8 weight only"},
            "qlora8",
        ),
        ("int8-sdnq-hadamard", {"adapter": "lora", "base_weights": "int8 (SDNQ)"}, "lora"),
    ],
)
def test_how_the_frozen_base_is_held_is_read_from_the_words_of_the_precision(
    imported_row, detail, config, kind
):
    found = imported_row(
        source="x", model="llama2-7b", task="finetune-lora", seq_len=512, batch_per_device=1,
        precision="bf16", precision_detail=detail, model_config=config,
    )  # fmt: skip
    assert job_of(found).workload.adapter == kind


def test_flash_attention_4_is_a_kernel_written_for_the_architecture(imported_row):
    found = imported_row(
        source="x",
        model="qwen3-4b",
        device="B300-SXM-288GB",
        seq_len=4096,
        batch_per_device=1,
        notes="Liger; FA4",
    )
    assert found.stack.attention == "flash3"
