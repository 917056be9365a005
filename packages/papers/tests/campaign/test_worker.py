"""What a worker does, without Ray: its share of the data, its models, its steps and what they wait for."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from hypothesis import given, settings
from hypothesis import strategies as st

from precision_time.capture.own import load_function
from precision_time.errors import CaptureError, ConfigError
from precision_time.workload.resolve import load_workload
from precision_time_integrations.measure.steps import training
from precision_time_integrations.measure.steps.catalog import built_in_models
from precision_time_integrations.measure.steps.images import GENERATED
from precision_time_integrations.measure.steps.models import INPUTS, MODULES
from precision_time_integrations.measure.steps.tasks import build_task, in_memory, synthetic_pool
from precision_time_integrations.measure.steps.training import (
    Trainer,
    build_optimizer,
    endless,
)
from precision_time_integrations.measure.trial import TrainingTrial
from precision_time_papers.campaign.result import failed_result
from precision_time_papers.campaign.worker import (
    WorkerContext,
    _generated,
    _one_batch,
    _step_figures,
    loop_config,
    measure_trial,
)

Make = Callable[..., TrainingTrial]
CPU = torch.device("cpu")
ALONE = WorkerContext(rank=0, device=CPU, all_gather=lambda _, value: [value], wrapped=lambda module: module)


@given(
    workers=st.integers(1, 4), batch=st.integers(1, 5), samples=st.integers(20, 60), epoch=st.integers(0, 5)
)
@settings(max_examples=25)
def test_workers_share_an_epoch_without_overlap(
    trial_of: Make, workers: int, batch: int, samples: int, epoch: int
) -> None:
    trial = trial_of(workers=workers, batch_per_worker=batch, dataset_samples=samples)
    pool = (torch.arange(samples),)
    seen = [[tuple(b[0].tolist()) for b in in_memory(trial, rank, pool)(epoch)] for rank in range(workers)]
    assert {len(batches) for batches in seen} == {trial.steps_per_epoch}
    flat = [row for batches in seen for rows in batches for row in rows]
    assert len(flat) == len(set(flat)) == trial.steps_per_epoch * workers * batch


def test_a_large_synthetic_set_goes_round(trial_of: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("precision_time_integrations.measure.steps.tasks.POOL_BYTES", 10 * 3 * 32 * 32 * 4)
    trial = trial_of(dataset_samples=100_000)
    pool = synthetic_pool(trial, "images", built_in_models()["cnn"].sizes)
    assert 8 <= len(pool[0]) <= 10
    images, labels = next(in_memory(trial, 0, pool)(0))
    assert images.shape == (8, 3, 32, 32)
    assert labels.shape == (8,)


@pytest.mark.parametrize("name", built_in_models())
def test_models_have_the_parameters_of_the_catalogues(name: str) -> None:
    model = built_in_models()[name]
    module = MODULES[name](model.sizes)
    params = sum(parameter.numel() for parameter in module.parameters())
    loss = module(*INPUTS[model.inputs](4, model.sizes))
    assert loss.dim() == 0
    if not model.zoo:
        return
    sizes = {theirs: model.sizes[ours] for ours, theirs in model.zoo_sizes.items()}
    seq_len = int(model.sizes["seq_len"]) if "seq_len" in model.sizes else None
    assert load_workload(model.zoo, seq_len=seq_len, sizes=sizes or None).graph.params == params


@pytest.mark.parametrize("name", ["cnn", "mlp"])
def test_digits_are_real_images(trial_of: Make, name: str) -> None:
    task = build_task(trial_of(model=name, dataset="digits", dataset_samples=1797), 0)
    images, labels = next(iter(task.batches(0)))
    assert images.shape == (8, 1, 8, 8)
    assert 0 <= float(images.min()) < float(images.max()) <= 1
    assert torch.isfinite(task.module(images, labels))


def test_models_refuse_data_they_cannot_read(trial_of: Make) -> None:
    with pytest.raises(ConfigError, match="reads tokens.*To fix"):
        build_task(trial_of(model="transformer", dataset="digits", dataset_samples=1797), 0)


def trainer_of(module: Any, precision: str = "fp32") -> Trainer:
    return Trainer(module, precision=precision, device=CPU, optimizer=build_optimizer("sgd", module))


@pytest.mark.parametrize("precision", ["fp32", "bf16-mixed"])
def test_steps_train(trial_of: Make, precision: str) -> None:
    task = build_task(trial_of(model="mlp"), 0)
    before = [parameter.clone() for parameter in task.module.parameters()]
    trainer = trainer_of(task.module, precision=precision)
    wall_s = trainer.run(endless(task.batches), 3)
    assert len(trainer.step_times()) == 3
    assert 0 < sum(trainer.step_times()) <= wall_s
    assert trainer.waits() == []
    changed = zip(before, task.module.parameters(), strict=True)
    assert all(not torch.equal(old, new) for old, new in changed)


@pytest.fixture
def process_group() -> Iterator[None]:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.mark.usefixtures("process_group")
def test_waiting_for_gradients_is_told_from_computing_them(
    trial_of: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow_s = 0.1
    plain = training.default_hooks.allreduce_hook

    def slow(group: Any, bucket: Any) -> Any:
        time.sleep(slow_s)
        return plain(group, bucket)

    monkeypatch.setattr(training.default_hooks, "allreduce_hook", slow)
    task = build_task(trial_of(model="mlp"), 0)
    trainer = trainer_of(torch.nn.parallel.DistributedDataParallel(task.module))
    trainer.run(endless(task.batches), 3)
    waits, times = trainer.waits(), trainer.step_times()
    assert len(waits) == len(times) == 3
    assert trainer.wait_method == "ddp-hook-host-clock"
    assert all(slow_s <= wait < step for wait, step in zip(waits, times, strict=True))


@pytest.mark.usefixtures("process_group")
def test_sparse_gradients_are_not_watched() -> None:
    module = torch.nn.Sequential(torch.nn.Embedding(8, 4, sparse=True))
    assert trainer_of(torch.nn.parallel.DistributedDataParallel(module)).wait_method == ""


@given(st.lists(st.floats(1e-6, 1e3), min_size=1, max_size=50))
def test_figures_of_steps_lie_in_order(times: Sequence[float]) -> None:
    figures = _step_figures(times)
    assert min(times) <= figures["step_time_s"] <= figures["step_time_p90_s"] <= max(times)
    assert figures["num_steps"] == len(times)
    assert (figures["step_time_sd_s"] is None) == (len(times) == 1)


def test_every_yield_is_a_step(trial_of: Make) -> None:
    trial = trial_of(model="campaign_loops:sleeping_steps", batch_per_worker=32, epochs=9)
    function = load_function(trial.model)
    figures = _generated(trial, ALONE, function(loop_config(trial, 0)), time.perf_counter())
    assert figures["num_steps"] == 3
    assert figures["step_time_s"] >= 0.02
    assert figures["warmup_s"] >= 3 * 0.02
    assert figures["num_epochs"] == 1
    assert figures["epoch_time_s"] == pytest.approx(sum(figures["epoch_times_s"]))


def test_loops_without_steps_are_refused(trial_of: Make) -> None:
    trial = trial_of(model="campaign_loops:no_steps")
    with pytest.raises(ConfigError, match="ended before its first step"):
        _generated(trial, ALONE, load_function(trial.model)({}), time.perf_counter())
    short = trial_of(model="campaign_loops:sleeping_steps", warmup_steps=9)
    with pytest.raises(ConfigError, match="all of them warm-up"):
        _generated(short, ALONE, load_function(short.model)({}), time.perf_counter())


def test_a_users_module_comes_with_the_batch_of_the_trial(trial_of: Make) -> None:
    trial = trial_of(model="campaign_loops:pair")
    made = load_function(trial.model)(loop_config(trial, 0))
    task = _one_batch(trial, ALONE, made)
    assert task.module(*next(iter(task.batches(0)))).dim() == 0
    with pytest.raises(ConfigError, match="8 samples where the trial asks for 4"):
        _one_batch(trial_of(model="campaign_loops:pair", batch_per_worker=4), ALONE, made)
    with pytest.raises(CaptureError, match="returned a int"):
        _one_batch(trial, ALONE, 3)


@pytest.mark.parametrize("name", ["no_such_module:f", "campaign_loops:no_such_function"])
def test_functions_that_are_not_there_are_named(name: str) -> None:
    with pytest.raises(CaptureError, match=f"{name}.*cannot be imported.*To fix"):
        load_function(name)


def test_a_whole_job_evaluates_and_writes_after_each_epoch(trial_of: Make) -> None:
    sizes = {"side": 8.0, "stages": 1.0, "filters": 4.0, "hidden": 8.0}
    common = {"sizes": sizes, "dataset_samples": 32, "epochs": 3, "warmup_steps": 0}
    plain = measure_trial(trial_of(**common), ALONE)
    assert "evaluation_s" not in plain
    assert "checkpoint_s" not in plain
    job = measure_trial(trial_of(**common, evaluation_share=0.4, checkpoint=True), ALONE)
    assert job["num_epochs"] == 3
    assert job["evaluation_samples"] == 16  # 12.8 in batches of 8
    # Three forward passes of two batches are less than the twelve steps they go with.
    assert 0 < job["evaluation_s"] < job["train_time_s"]
    # Parameters, and Adam's two moments of each, in fp32.
    assert 12 * job["params"] < job["checkpoint_bytes"] < 12 * job["params"] + 20_000
    assert job["checkpoint_s"] > 0


def test_a_classifier_of_torchvision_reads_the_images_that_it_is_asked_to(trial_of: Make) -> None:
    trial = trial_of(model="torchvision/squeezenet1_1", sizes={"side": 32, "classes": 10}, batch_per_worker=2)
    task = build_task(trial, 0)
    [images, labels] = next(task.batches(0))
    assert images.shape == (2, 3, 32, 32)
    assert labels.max() < 10
    # torchvision states 1,235,496 parameters for 1000 classes, each a 1 x 1 convolution of 512 channels.
    assert sum(p.numel() for p in task.module.parameters()) == 1_235_496 - 990 * 513


def test_generated_images_are_read_from_disk_in_every_step(
    trial_of: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("precision_time_integrations.measure.steps.images.cache_folder", lambda: tmp_path)
    small = {"side": 16.0, "stages": 1.0, "filters": 4.0, "hidden": 8.0, "classes": 7.0}
    trial = trial_of(dataset="generated-images", dataset_samples=40, sizes=small, warmup_steps=0)
    [images, labels], [again, same] = (next(build_task(trial, 0).batches(0)) for _ in range(2))
    assert images.shape == (8, 3, 16, 16)
    assert torch.equal(labels, same)
    assert not torch.equal(images, again), "cropped and mirrored at random"
    (folder,) = (tmp_path / GENERATED).iterdir()
    files = sorted(folder.iterdir())
    assert len(files) == 40
    written = [path.stat().st_mtime_ns for path in files]
    figures = measure_trial(trial, ALONE)
    assert [path.stat().st_mtime_ns for path in files] == written, "written once"
    assert 0.0 < figures["input_s"] < figures["step_time_s"]
    files[0].unlink()
    with pytest.raises(Exception, match="No such file|out of range"):
        for _ in build_task(trial, 0).batches(0):
            pass


def test_a_result_says_what_its_samples_are(trial_of: Make) -> None:
    trial = trial_of(dataset="generated-images")
    result = failed_result("c", trial, [], "not run")
    assert result.data_origin == "images from disk, generated, no CIFAR"
    assert failed_result("c", trial_of(), [], "not run").data_origin == "random numbers in memory"
