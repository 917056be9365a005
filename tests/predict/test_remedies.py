import re
from dataclasses import replace

import pytest

from precision_time.cost.job import Job
from precision_time.cost.stacks import get_stack_profile
from precision_time.hardware.catalog import get_cluster
from precision_time.parallel.layout import Checkpointing, Layout
from precision_time.precision.catalog import get_policy
from precision_time.predict.remedies import memory_of_job, suggest_fit
from precision_time.units import GIBI
from precision_time.workload.resolve import load_workload

OFFER = re.compile(r"-> ([\d.]+) of ([\d.]+) GiB")


def job(model, layout, device="A100-SXM4-80GB", precision="bf16-mixed", seq_len=2048, stack="pytorch-llm"):
    return Job(
        workload=load_workload(model, seq_len=seq_len),
        cluster=get_cluster(device=device, num_devices=layout.world_size),
        precision=get_policy(precision),
        layout=layout,
        stack=get_stack_profile(stack).stack(),
    )


def test_nothing_is_said_of_a_job_that_fits():
    assert suggest_fit(job("gpt2", Layout(micro_batch_size=4.0), seq_len=1024)) == ()


def test_the_shortfall_is_what_the_memory_says():
    large = job("llama3.1-8b", Layout(dp=8))
    memory = memory_of_job(large)
    shortfall, _ = suggest_fit(large)
    needed = sum(memory.values()) / GIBI
    assert f"needs {needed:.1f} GiB" in shortfall
    assert f"{needed - 80:.1f} too little" in shortfall
    assert max(memory, key=lambda name: memory[name]).replace("_", " ") in shortfall


@pytest.mark.parametrize(
    ("model", "layout"),
    [
        ("llama3.1-8b", Layout(dp=8)),
        ("llama3.1-8b", Layout(dp=8, zero_stage=3, micro_batch_size=16.0)),
        ("llama2-70b", Layout(dp=8, zero_stage=1, micro_batch_size=4.0)),
        ("mixtral-8x7b", Layout(dp=8, zero_stage=2, micro_batch_size=4.0)),
        ("llama3.1-405b", Layout(dp=16)),
    ],
)
def test_every_offer_fits(model, layout):
    _, remedy = suggest_fit(job(model, layout))
    offers = OFFER.findall(remedy)
    assert offers
    assert all(float(needed) <= float(capacity) for needed, capacity in offers)


def test_an_offered_checkpointing_needs_what_is_said():
    large = job("llama3.1-8b", Layout(dp=8, zero_stage=3, micro_batch_size=4.0))
    _, remedy = suggest_fit(large)
    changed = replace(large, layout=replace(large.layout, checkpointing=Checkpointing.FULL))
    needed = sum(memory_of_job(changed).values()) / GIBI
    assert f"full checkpointing -> {needed:.1f} of 80.0 GiB" in remedy


def test_a_smaller_batch_keeps_the_samples_per_step():
    _, remedy = suggest_fit(job("gpt2", Layout(micro_batch_size=128.0), seq_len=1024))
    batch, parts = re.search(r"micro batch (\d+) with (\d+) accumulated", remedy).groups()
    assert int(batch) * int(parts) == 128


def test_sharding_is_not_offered_to_a_single_device():
    _, remedy = suggest_fit(job("llama3.1-8b", Layout()))
    assert "zero=1" not in remedy and "tp=" not in remedy


def test_changes_that_do_not_suffice_alone_are_added_up_or_devices_are():
    _, remedy = suggest_fit(job("llama3.1-405b", Layout(dp=16)))
    assert ", " in remedy.split(" -> ")[0]
    assert "devices with zero=3" in remedy


def test_a_sample_that_no_cluster_holds_is_said_so():
    long = job("llama3.1-405b", Layout(), device="RTX3070", seq_len=2**23)
    shortfall, remedy = suggest_fit(long)
    assert shortfall.startswith("Does not fit")
    assert "smaller model or shorter samples" in remedy
    assert not OFFER.search(remedy)
