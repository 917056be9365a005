"""Degrees that a row leaves out: what its device can hold, and what is usual for its model."""

import pytest

from precision_time.corpus.importer import read_measurements
from precision_time.corpus.measurement import Measurement, Quality
from precision_time.parallel.layout import PipelineSchedule


@pytest.mark.parametrize(
    ("cells", "degrees"),
    [
        ({"model": "llama3.1-8b", "device": "H100-SXM5-80GB", "global_batch": 32}, (4, 2, 1, 1)),
        ({"model": "llama3.1-8b", "device": "MI355X", "global_batch": 32}, (8, 1, 1, 1)),
        ({"model": "llama2-70b-lora", "device": "H200-SXM-141GB", "global_batch": 4}, (4, 1, 1, 2)),
        ({"model": "llama2-70b-lora", "device": "H100-SXM5-80GB", "global_batch": 1}, (1, 4, 1, 2)),
        (
            {"model": "gpt3-175b", "device": "H100-SXM5-80GB", "devices": 32, "global_batch": 1},
            (1, 4, 8, 1),
        ),
    ],
)
def test_degrees_that_are_not_stated(write_csv, minimal, cells, degrees):
    row = {**minimal, "source": "mlperf-v5.1", "task": "lm-pretrain", "precision": "fp8-mixed"}
    row |= {"devices": 8, "grad_accum": 1, "batch_per_device": "", "seq_len": 2048, **cells}
    (found,) = read_measurements(write_csv({key: str(value) for key, value in row.items()}), curated=True)
    assert isinstance(found, Measurement) and found.layout is not None
    layout = found.layout
    assert (layout.dp, layout.tp, layout.pp, layout.cp) == degrees


@pytest.fixture
def layout_of(write_csv, minimal):
    """Measurement and layout of a language-model row with these cells."""

    def read(**cells):
        row = {**minimal, "task": "lm-pretrain", "model": "llama2-70b", "device": "H100-SXM5-80GB"}
        row |= {"precision": "bf16-mixed", "seq_len": 4096, "batch_per_device": "", "step_time_s": 7, **cells}
        (found,) = read_measurements(write_csv({key: str(value) for key, value in row.items()}), curated=True)
        assert isinstance(found, Measurement) and found.layout is not None
        return found, found.layout

    return read


def test_replicas_of_a_sharded_model_are_no_context_parallelism(layout_of):
    stated = '{"tp":1,"pp":1,"fsdp":true,"fsdp_degree":128,"dp":8}'
    found, layout = layout_of(devices=1024, parallelism=stated, batch_per_device=2, global_batch=2048)
    assert (layout.dp, layout.cp, layout.zero_stage, layout.dp_shard) == (1024, 1, 3, 128)
    assert found.quality is Quality.FINE


def test_devices_that_no_degree_explains_are_replicas_and_doubtful(layout_of):
    found, layout = layout_of(devices=64, parallelism='{"tp":4,"pp":8,"dp":1}', global_batch=256)
    assert (layout.dp, layout.tp, layout.pp, layout.cp) == (2, 4, 8, 1)
    assert found.quality is Quality.SUSPECT


@pytest.mark.parametrize(
    ("cells", "batches"),
    [
        ({"batch_per_device": 16, "global_batch": 64}, (4, 4)),  # of its own: one micro batch per stage
        ({"batch_per_device": 2, "global_batch": 8}, (2, 1)),  # no more than there are samples
        ({"batch_per_device": 16, "global_batch": 64, "grad_accum": 1}, (1, 16)),  # stated: one
        ({"batch_per_device": 2, "global_batch": 64}, (8, 2)),  # the micro batch is stated
        ({"batch_per_device": 16, "global_batch": 64, "source": "vtrain"}, (1, 16)),  # runs it in one piece
    ],
)
def test_local_batch_of_a_pipeline_is_split(layout_of, cells, batches):
    _, layout = layout_of(devices=32, parallelism='{"dp":4,"tp":2,"pp":4}', **cells)
    assert (layout.num_microbatches, layout.micro_batch_size) == batches


def test_stated_schedules_are_read(layout_of):
    words = {"1f1b": "1f1b", "gpipe": "gpipe", "ZeroBubble": "zero-bubble"}
    for word, schedule in words.items():
        stated = f'{{"dp":1,"tp":1,"pp":8,"schedule":"{word}"}}'
        _, layout = layout_of(devices=8, parallelism=stated, batch_per_device=1, global_batch=64)
        assert layout.schedule is PipelineSchedule(schedule)
    for chunks in ('"virtual_pp":2,"schedule":"1f1b"', '"schedule":"Interleaved 1F1B"'):
        stated = f'{{"dp":1,"tp":1,"pp":8,{chunks}}}'
        _, layout = layout_of(devices=8, parallelism=stated, batch_per_device=1, global_batch=64)
        assert (layout.schedule, layout.vpp) == (PipelineSchedule.INTERLEAVED, 2)


def test_cores_of_a_chip_are_devices_where_the_framework_sees_them(layout_of):
    stated = '{"tp":8,"dp":64,"pp":1}'
    cells = {"source": "aws-neuron", "model": "llama2-7b", "grad_accum": 16, "global_batch": 1024}
    found, layout = layout_of(device="Trainium1", devices=256, parallelism=stated, **cells)
    assert (found.device, found.num_devices) == ("NeuronCore-v2", 512)
    assert (layout.dp, layout.tp, layout.micro_batch_size) == (64, 8, 1)


def test_both_sockets_of_a_cloud_instance_are_devices(layout_of):
    cells = {"model": "resnet50", "batch_per_device": 32, "global_batch": 2048, "grad_accum": 1}
    cells |= {"precision": "fp32", "task": "imagenet-train", "seq_len": ""}
    cells |= {"system": "64 nodes, 36 cores (Amazon EC2 [c5.18xlarge])", "parallelism": '{"dp":64}'}
    found, layout = layout_of(device="CPU-Xeon-Platinum-8124M", devices=64, **cells)
    assert (found.num_devices, layout.dp, layout.micro_batch_size) == (128, 128, 16)


@pytest.mark.parametrize(("stated", "degrees"), [("", (4, 1, 4, 1)), ('{"tp":1,"pp":2}', (8, 1, 2, 0))])
def test_bert_large_is_a_pipeline_of_four_ipus_where_the_row_does_not_say(layout_of, stated, degrees):
    cells = {"model": "bert-large", "grad_accum": 192, "global_batch": 3072, "precision": "fp16-mixed"}
    _, layout = layout_of(device="IPU-GC200", devices=16, parallelism=stated, **cells)
    assert (layout.dp, layout.tp, layout.pp, layout.zero_stage) == degrees


def test_layers_on_several_devices_are_no_pipeline(layout_of):
    stated = '{"dp":1,"device_map_layers":2}'
    cells = {"model": "qwen2.5-7b-lora", "batch_per_device": 4, "global_batch": 4}
    _, layout = layout_of(devices=2, parallelism=stated, **cells)
    assert (layout.dp, layout.tp, layout.pp, layout.num_microbatches) == (1, 1, 2, 1)


def test_sequences_split_by_exchanging_heads_are_context_parallelism(layout_of):
    _, layout = layout_of(
        devices=8, parallelism='{"dp":1,"sp":8,"zero":3}', batch_per_device=1, global_batch=8, grad_accum=8
    )
    assert (layout.dp, layout.cp, layout.cp_comm_type) == (1, 8, "ulysses")


def test_parameters_that_stay_gathered_are_no_zero_3(layout_of):
    _, layout = layout_of(
        devices=64, parallelism='{"dp":64,"fsdp":true}', batch_per_device=1, notes="FSDP never reshards"
    )
    assert layout.zero_stage == 2
