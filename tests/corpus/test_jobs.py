"""From a Measurement to a Job that can be priced."""

from __future__ import annotations

from dataclasses import replace

import pytest

from precision_time.corpus.jobs import UnsupportedRow, job_of
from precision_time.errors import CorpusError
from precision_time.precision.policy import DType


def test_language_model_row(find):
    row = find(source="vtrain")
    job = job_of(row)
    assert job.workload.graph.seq_len == 1024
    assert job.cluster.num_devices == job.layout.world_size == 8
    assert job.cluster.device.name.startswith("A100-SXM4")
    assert job.precision.reduce is DType.FP16  # DeepSpeed sends fp16 gradients
    assert job.stack == row.stack and job.scope is row.scope
    assert set(row.assumptions) <= {found.text for found in job.diagnostics}


def test_frozen_base_of_a_lora_row(find):
    graph = job_of(find(source="optimum-habana", model="llama-7b")).workload.graph
    assert graph.trainable_params < 0.01 * graph.params


def test_stated_sizes_shape_the_model(find):
    row = find(source="megatron-lm")
    assert job_of(row).workload.graph.params == pytest.approx(row.sizes["params"], rel=0.05)


def test_host_named_in_free_words_gives_its_links(find):
    cluster = job_of(find(source="torchtitan")).cluster
    assert cluster.num_nodes == 32
    assert cluster.inter_node.bandwidth_bytes_per_s >= 400e9 / 8


def test_assumed_length_wins_over_the_longest_allowed(find):
    job = job_of(find(source="hf-trainer-benchmark"))
    assert job.workload.graph.seq_len == 64


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"layout": None}, "batch of a step not known"),
        ({"model": "no-such-model", "sizes": {}}, "model not known"),
        ({"device": "Abacus"}, "device not known"),
        (
            {"precision": "fp8-mixed", "precision_variant": "", "device": "V100-SXM2-16GB"},
            "precision not supported",
        ),
        ({"num_devices": 16}, "layout does not fill the devices"),
    ],
)
def test_what_cannot_be_priced_says_why(find, change, reason):
    row = replace(find(source="vtrain"), **change)
    with pytest.raises(UnsupportedRow) as caught:
        job_of(row)
    assert caught.value.reason == reason
    assert isinstance(caught.value, CorpusError)


def test_the_step_of_a_job_takes_the_work_of_its_batch(measurements):
    """No usable language-model row may imply more than the device's dense peak.

    Rows whose padding is skipped count their padding as work, and are left out.
    """
    checked = 0
    for row in measurements:
        if not row.usable or row.seq_len is None or row.stack.unpadded_sequences:
            continue
        job = job_of(row)
        peaks = job.cluster.device.peak_flops_per_s
        peak = peaks.get(job.precision.matmul.value, max(peaks.values()))
        useful = 2 if job.workload.graph.trainable_params < 0.5 * job.workload.graph.params else 3
        work = useful * job.workload.graph.forward_flops * row.global_batch_size
        rate = work / row.step_time_s / row.num_devices
        assert 1e-3 * peak < rate < peak, row.source_ref
        checked += 1
    assert checked >= 12


def test_words_for_links_that_mean_nothing_fall_back_to_the_node_type(find):
    row = find(source="vtrain")
    bare = job_of(replace(row, intra_node="", inter_node=""))
    odd = job_of(replace(row, intra_node="carrier pigeon", inter_node="smoke signals"))
    assert odd.cluster.intra_node == bare.cluster.intra_node
    assert odd.cluster.inter_node == bare.cluster.inter_node
    said = " ".join(item.text for item in odd.diagnostics)
    assert "'carrier pigeon' of the row is not known" in said
    assert "'smoke signals' of the row is not known" in said
