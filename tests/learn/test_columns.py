"""The feature columns that the predictor was trained with, and those that this version computes."""

from dataclasses import replace

import numpy as np
import pytest

from precision_time.cache import clear
from precision_time.cost.job import Job, Jobs
from precision_time.cost.stacks import Stack
from precision_time.cost.step import price
from precision_time.errors import NotFittedError
from precision_time.hardware.catalog import get_cluster
from precision_time.learn import features
from precision_time.learn.artifact import shipped_predictor
from precision_time.learn.priced import predict_step_times
from precision_time.learn.table import job_table
from precision_time.parallel.layout import Layout
from precision_time.precision.catalog import get_policy
from precision_time.workload.resolve import load_workload


def job(model="resnet50", device="A100-SXM4-80GB", num_devices=8, batch=32, **stack) -> Job:
    return Job(
        workload=load_workload(model),
        cluster=get_cluster(device=device, num_devices=num_devices),
        precision=get_policy("fp16-mixed"),
        layout=Layout(dp=num_devices, micro_batch_size=batch),
        stack=Stack(**stack),
    )


STACKS = features.kind_names()


def jobs() -> list[Job]:
    """Made of what is kept now: features are kept with graph, policy and cluster."""
    return [job(), job("bert-large", "V100-SXM2-32GB", 1, 8), job("llama3-8b", "H100-SXM5-80GB", 64, 1)]


@pytest.fixture(autouse=True)
def _computed_anew():
    yield
    clear()


def changed(monkeypatch, kind, replacement) -> None:
    monkeypatch.setattr(features, kind, replacement)
    clear()


def times(asked=None):
    found = predict_step_times(jobs() if asked is None else asked, shipped_predictor(), coverage=0.9)
    return np.stack([found.step_time_s, found.low_s, found.high_s, found.distance.sum(axis=1)])


def column(jobs, name: str):
    table = job_table(jobs)
    return table.features[:, table.names.index(name)]


def test_the_shipped_predictor_has_the_columns_that_this_version_computes():
    assert shipped_predictor().names == job_table(jobs()).names


@pytest.mark.parametrize(
    ("kind", "replacement"),
    [
        ("VENDORS", ("AWS", *features.VENDORS)),
        ("COMPILERS", ("none", "tensorrt", *features.COMPILERS[1:])),
        ("FRAMEWORKS", ("caffe2", *features.FRAMEWORKS)),
        ("FAMILIES", (*features.FAMILIES, "world-model")),
        ("kind_names", lambda: ("brand-new", *STACKS)),
    ],
)
def test_a_new_vendor_or_stack_leaves_all_other_answers_as_they_were(monkeypatch, kind, replacement):
    before, columns = times(), len(job_table(jobs()).names)
    changed(monkeypatch, kind, replacement)
    assert len(job_table(jobs()).names) == columns + 1
    np.testing.assert_array_equal(times(), before)


def test_a_job_of_a_new_stack_is_a_job_of_no_known_stack(monkeypatch):
    unknown = job(profile="nobody-measured-it")
    before = times([unknown])
    changed(monkeypatch, "kind_names", lambda: (*STACKS, "nobody-measured-it"))
    assert column([job(profile="nobody-measured-it")], "stack.nobody-measured-it")[0] == 1.0
    np.testing.assert_array_equal(times([job(profile="nobody-measured-it")]), before)


@pytest.mark.parametrize(
    ("kind", "replacement", "difference"),
    [
        ("VENDORS", features.VENDORS[1:], r"1 missing \(vendor\.NVIDIA\)"),
        ("OFFLOAD", None, "1 unknown"),
    ],
)
def test_any_other_difference_is_an_error_that_says_which(monkeypatch, kind, replacement, difference):
    if replacement is None:
        stated = features._layout_features

        def with_another(layout):
            found = stated(layout)
            return replace(found, names=(*found.names, "log_new_degree"), values=np.append(found.values, 0.0))

        monkeypatch.setattr(features, "_layout_features", with_another)
        difference += r" \(log_new_degree\)"
    else:
        changed(monkeypatch, kind, replacement)
    with pytest.raises(NotFittedError, match=f"{difference}.*`precision-time train`"):
        times()


def test_columns_in_another_order_are_the_same_table():
    table, predictor = job_table(jobs()), shipped_predictor()
    order = np.random.default_rng(0).permutation(len(table.names))
    mixed = replace(
        table, features=table.features[:, order], names=tuple(table.names[place] for place in order)
    )
    np.testing.assert_array_equal(
        predictor.times(mixed.alone()).step_time_s, predictor.times(table.alone()).step_time_s
    )


def test_no_jobs_have_no_times():
    assert times([]).shape == (4, 0)


@pytest.mark.parametrize("vendor", ["NVIDIA", "AMD", "Intel", "Google", "CPU"])
def test_each_vendor_has_its_column(vendor):
    one = job(num_devices=1)
    device = replace(one.cluster.device, vendor=vendor)
    one = replace(one, cluster=replace(one.cluster, device=device))
    assert {name: column([one], f"vendor.{name}")[0] for name in features.VENDORS} == {
        name: float(name == vendor) for name in features.VENDORS
    }


def test_indicators_are_what_their_prefix_says():
    table = job_table(jobs())
    for kind in features.INDICATORS:
        places = [place for place, name in enumerate(table.names) if name.startswith(kind)]
        assert set(np.unique(table.features[:, places])) <= {0.0, 1.0}, kind
        assert (table.features[:, places].sum(axis=1) <= 1.0).all(), kind


def test_ratios_are_of_the_costs_that_they_name():
    one = replace(job(), precision=get_policy("bf16-mixed"))
    costs = price(Jobs.at(one))
    facts = {name: values[0] for name, values in costs.facts.items()}
    expected = {
        "host_over_kernels": facts["host_s"] / facts["kernels_s"],
        "link_over_compute": costs.link_s[0] / costs.compute_s[0],
        "log_analytical_s": np.log(costs.step_time_s[0]),
        "log_compute_s": np.log(costs.compute_s[0]),
        "log_mean_kernel_s": np.log(facts["kernels_s"] / facts["launches"]),
        "log_flops_per_byte": np.log(facts["flops"] / facts["bytes"]),
        "cast_share": facts["cast_bytes"] / facts["bytes"],
        "share.conv_s": costs.terms["conv_s"][0] / costs.step_time_s[0],
        "log_global_batch_size": np.log(8 * 32),
        "tdp_per_peak": 400.0 / 312.0,
    }
    assert {name: column([one], name)[0] for name in expected} == pytest.approx(expected, abs=1e-8)


@pytest.mark.parametrize("device", ["A100-SXM4-80GB", "H100-SXM5-80GB", "MI300X"])
@pytest.mark.parametrize("model", ["resnet50", "bert-large", "gpt2"])
def test_fp16_and_bf16_mixed_differ_by_what_the_formulas_say(device, model):
    """Loss scaling, and that softmax reads fp16 but not bf16 without a cast; nothing else is learned."""
    asked = job(model, device, 8, 16)
    jobs = [replace(asked, precision=get_policy(f"{name}-mixed")) for name in ("fp16", "bf16")]
    found = predict_step_times(jobs, shipped_predictor(), coverage=0.9)
    half, brain = found.step_time_s / found.jobs.analytical_s
    assert half == pytest.approx(brain, rel=0.03)
