import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from precision_time.cost.collectives import Line, LinkParams, all_reduce_lines
from precision_time.cost.overlap import (
    exposed_s,
    gradient_schedule,
    group_s,
    overlapped,
    pipelined,
    ready_s,
)
from precision_time.errors import ConfigError
from precision_time.units import MEBI

LINES = all_reduce_lines(
    8, 1, *2 * [LinkParams(bandwidth_bytes_per_s=100e9, latency_s=1e-6)]
)  # fmt: skip


def schedule_of(elems, repeat=None, segment=None, **options):
    count = len(elems)
    return gradient_schedule(
        np.array(elems, dtype=np.float64),
        np.array(repeat or [1.0] * count),
        np.array(segment or [0] * count),
        **{"bytes_per_elem": 4.0, **options},
    )


def one_after_the_other(ready, group):
    """The recurrence as it is written in the docstring."""
    end = 0.0
    for start, length in zip(ready, group, strict=True):
        end = max(start, end) + length
    return end


def test_buckets_are_those_that_ddp_forms():
    # 16 linear layers of 1024 x 1024, traced on PyTorch 2.13: 4, 28, 28, 4 MiB.
    schedule = schedule_of([1024 * 1024] * 16)
    np.testing.assert_array_equal(schedule.bucket_bytes / MEBI, [4, 28, 28, 4])
    np.testing.assert_array_equal(schedule.num_buckets, [1, 1, 1, 1])


def test_a_cap_of_ones_own_has_no_small_first_bucket():
    schedule = schedule_of([1024 * 1024] * 16, bucket_bytes=32 * MEBI)
    np.testing.assert_array_equal(schedule.bucket_bytes / MEBI, [32, 32])


def test_narrow_gradients_fill_fewer_buckets():
    schedule = schedule_of([1024 * 1024] * 16, bytes_per_elem=2.0)
    assert schedule.bucket_bytes @ schedule.num_buckets == 16 * 2 * MEBI


@settings(max_examples=60)
@given(
    elems=st.lists(st.sampled_from([0.0, 1e4, 1e6, 4e7]), min_size=1, max_size=30),
    repeats=st.integers(1, 5),
    groups=st.integers(1, 8),
)
def test_no_gradient_is_lost(elems, repeats, groups):
    count = len(elems)
    schedule = schedule_of(elems, [float(repeats)] * count, [1] * count, max_groups=groups)
    assert schedule.bucket_bytes @ schedule.num_buckets == pytest.approx(4 * repeats * sum(elems))
    assert len(schedule.num_buckets) <= groups
    assert np.all(np.diff(schedule.completed, axis=0) >= 0)
    assert np.all((schedule.completed >= 0) & (schedule.completed <= 1))


def test_repeated_layers_get_ready_round_by_round():
    # Head, then 4 times a block of two kernels, then the embedding.
    schedule = schedule_of([8e6, 0.0, 8e6, 8e6], [1.0, 4.0, 4.0, 1.0], [0, 1, 1, 0])
    kernel_s = np.array([1.0, 8.0, 4.0, 1.0])
    np.testing.assert_allclose(ready_s(schedule, kernel_s), [1.0, 4.0, 7.0, 10.0, 13.0, 14.0])


def test_a_block_written_out_and_a_repeated_one_are_the_same():
    folded = schedule_of([3e6, 5e6], [3.0, 3.0], [1, 1])
    unrolled = schedule_of([3e6, 5e6] * 3)
    np.testing.assert_allclose(folded.bucket_bytes, unrolled.bucket_bytes)
    np.testing.assert_allclose(
        ready_s(folded, np.array([6.0, 3.0])), ready_s(unrolled, np.array([2.0, 1.0] * 3))
    )


times = st.lists(st.floats(0.0, 10.0), min_size=1, max_size=12)


@settings(max_examples=100)
@given(gaps=times, lengths=times)
def test_the_closed_form_is_the_recurrence_within_its_bounds(gaps, lengths):
    count = min(len(gaps), len(lengths))
    ready, group = np.cumsum(gaps[:count]), np.array(lengths[:count])
    backward = float(ready[-1])
    exposed = float(exposed_s(ready, group, backward))
    assert exposed == pytest.approx(max(one_after_the_other(ready, group) - backward, 0.0), abs=1e-9)
    assert max(0.0, group.sum() - backward) - 1e-9 <= exposed <= group.sum() + 1e-9


@settings(max_examples=30)
@given(seed=st.integers(0, 1000), groups=st.integers(4, 16))
def test_grouping_delays_by_at_most_a_groups_share_of_the_backward_pass(seed, groups):
    random = np.random.default_rng(seed)
    elems, kernel_s = random.uniform(1e6, 2e7, 80), random.uniform(0.5e-3, 1.5e-3, 80)
    fine, coarse = (
        overlapped(schedule_of(elems, max_groups=most), kernel_s, LINES) for most in (10_000, groups)
    )
    num_buckets = len(schedule_of(elems, max_groups=10_000).num_buckets)
    widest = np.ceil(num_buckets / groups) / num_buckets
    slack = 4 * widest * (kernel_s.sum() + fine.link_s)
    assert fine.exposed_s - 0.01 * fine.link_s <= coarse.exposed_s <= fine.exposed_s + slack


def test_configurations_side_by_side_are_what_they_are_alone():
    schedule = schedule_of([1e6, 5e6, 2e7, 1e6])
    kernel_s = np.random.default_rng(0).uniform(1e-4, 1e-3, (3, 4))
    bandwidth = np.array([1e9, 1e10, 1e11])
    line = Line(startup_s=np.full(3, 1e-5), s_per_byte=1 / bandwidth)
    together = overlapped(schedule, kernel_s, (line,))
    for i in range(3):
        alone = overlapped(schedule, kernel_s[i], (Line(startup_s=1e-5, s_per_byte=1 / bandwidth[i]),))
        assert together.exposed_s[i] == pytest.approx(float(alone.exposed_s))
        assert together.link_s[i] == pytest.approx(float(alone.link_s))


def test_a_share_of_the_model_has_fewer_buckets_not_smaller_ones():
    schedule = schedule_of([7e6] * 40)
    whole, half = group_s(schedule, LINES), group_s(schedule, LINES, 0.5)
    assert half.sum() == pytest.approx(whole.sum() / 2, rel=0.2)


def test_a_faster_link_exposes_less_and_hidden_traffic_slows_the_computation():
    schedule, kernel_s = schedule_of([5e6] * 20), np.full(20, 1e-3)
    slow, fast = (
        overlapped(schedule, kernel_s, (Line(startup_s=1e-5, s_per_byte=1 / rate),)) for rate in (1e9, 1e11)
    )
    assert fast.exposed_s < slow.exposed_s
    assert fast.slowdown_s == pytest.approx(0.1 * (fast.link_s - fast.exposed_s))


def test_without_parameters_there_is_nothing_to_send():
    schedule = schedule_of([0.0, 0.0])
    assert overlapped(schedule, np.array([1.0, 1.0]), LINES).exposed_s == 0.0
    assert overlapped(schedule, np.ones((5, 2)), LINES).link_s.shape == (5,)


@given(link=st.floats(1e-6, 10.0), compute=st.floats(0.0, 10.0), units=st.integers(1, 100))
def test_prefetching_hides_at_most_the_computation_and_never_the_first_unit(link, compute, units):
    found = pipelined(link, compute, units)
    assert max(link / units, link - compute) * (1 - 1e-9) <= found.exposed_s <= link * (1 + 1e-9)
    assert found.slowdown_s >= -1e-12


def test_a_bucket_needs_room():
    with pytest.raises(ConfigError, match="at least one byte"):
        schedule_of([1e6], bucket_bytes=0.0)
