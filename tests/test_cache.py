"""Caches: bounded, listed, cleared together, safe with threads and in forked children."""

from __future__ import annotations

import gc
import multiprocessing
import os
import pickle
import sys
import threading
import weakref
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from precision_time import cache, predict_time
from precision_time.errors import PrecisionTimeError
from precision_time.hardware.catalog import known_device_names
from precision_time.workload.resolve import model_names


@pytest.fixture(autouse=True)
def _unlisted(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What a test keeps is no cache of the package."""
    monkeypatch.setattr(cache, "_KEPT", {})
    yield


@dataclass(frozen=True, kw_only=True, slots=True)
class Shape(cache.Deriving):
    sides: tuple[int, ...]


def test_a_memo_keeps_the_newest_and_no_more() -> None:
    asked = []

    @cache.memo(2)
    def double(number: int) -> int:
        asked.append(number)
        return 2 * number

    assert [double(number) for number in (1, 2, 1, 3, 1, 2)] == [2, 4, 2, 6, 2, 4]
    assert asked == [1, 2, 3, 2]
    assert list(cache.entries().values()) == [2]


def test_all_are_listed_and_cleared_together_or_by_themselves() -> None:
    @cache.data
    def table() -> list[int]:
        return [1, 2]

    @cache.memo(8)
    def double(number: int) -> int:
        return 2 * number

    first = table()
    assert (double(1), table()) == (2, first)
    assert table() is first
    names = [name.rpartition(".")[2] for name in cache.entries()]
    assert names == ["table", "double"]
    cache.clear(double)
    assert list(cache.entries().values()) == [1, 0]
    double(1)
    cache.clear()
    assert list(cache.entries().values()) == [0, 0]
    assert table() is not first


def test_errors_are_not_kept() -> None:
    asked = []

    @cache.memo(8)
    def once_bad(number: int) -> int:
        asked.append(number)
        if len(asked) == 1:
            raise ValueError("not yet")
        return number

    with pytest.raises(ValueError, match="not yet"):
        once_bad(1)
    assert (once_bad(1), len(asked)) == (1, 2)


def test_eight_threads_get_right_answers_from_one_memo_that_is_too_small_and_cleared_meanwhile() -> None:
    @cache.memo(16)
    def square(number: int) -> tuple[int, int]:
        return number, number * number

    start = threading.Barrier(8)

    def hammer(seed: int) -> int:
        start.wait()
        for turn in range(3000):
            number = (turn * (2 * seed + 1)) % 64
            assert square(number) == (number, number * number)
            if turn % 500 == seed:
                cache.clear()
        return 3000

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(8) as threads:
            assert sum(threads.map(hammer, range(8))) == 24_000
    finally:
        sys.setswitchinterval(interval)
    assert max(cache.entries().values()) <= 16


def test_a_child_forked_while_a_thread_is_at_work_inside_goes_on() -> None:
    inside, go_on = threading.Event(), threading.Event()

    @cache.memo(8)
    def slow(number: int) -> int:
        if number == 1 and threading.current_thread() is not threading.main_thread():
            inside.set()
            assert go_on.wait(60)
        return 10 * number

    assert slow(2) == 20
    thread = threading.Thread(target=slow, args=(1,))
    thread.start()
    assert inside.wait(60)
    try:
        child = multiprocessing.get_context("fork").Process(target=lambda: os._exit(slow(1) + slow(2)))
        child.start()
        child.join(60)
        assert child.exitcode == 30
    finally:
        go_on.set()
        thread.join()


def test_eight_threads_get_the_answers_of_one() -> None:
    models = ("resnet50", "gpt2", "bert-large", "vit-base-16", "llama3-8b", "unet3d", "resnet18", "t5-small")
    asked = [(model, batch) for batch in (1, 2, 3, 8) for model in models]

    def ask(job: tuple[str, int]) -> tuple[float, float, float]:
        found = predict_time(job[0], device="A100", gpus=8, batch_size=job[1], precision="bf16-mixed")
        return found.step_time_s, found.interval.low_s, found.memory_bytes_per_device

    cache.clear()
    alone = [ask(job) for job in asked]
    cache.clear()
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        with ThreadPoolExecutor(8) as threads:
            assert [*threads.map(ask, asked * 2)] == alone * 2
    finally:
        sys.setswitchinterval(interval)


class Found(list[int]):
    """A list that can be referred to weakly."""


def test_what_is_derived_of_an_object_is_found_once_and_goes_with_it() -> None:
    asked = []

    @cache.derived
    def area(shape: Shape) -> Found:
        asked.append(shape.sides)
        return Found([shape.sides[0] * shape.sides[1]])

    @cache.derived
    def corners(shape: Shape) -> int:
        return len(area(shape)) + len(shape.sides)

    shape = Shape(sides=(2, 3))
    assert (corners(shape), area(shape), asked) == (3, [6], [(2, 3)])
    assert area(shape) is area(shape)
    assert shape == Shape(sides=(2, 3))
    for copy in (replace(shape, sides=(4, 5)), pickle.loads(pickle.dumps(shape))):
        assert not hasattr(copy, "_derived")
    left = weakref.ref(area(shape))
    assert left() is not None
    del shape
    gc.collect()
    assert left() is None


def _kept() -> tuple[int, int]:
    """Entries of all caches; objects alive that something is derived of, with what is."""
    gc.collect()
    alive = [each for each in gc.get_objects() if isinstance(each, cache.Deriving)]
    return sum(cache.entries().values()), sum(1 + len(getattr(each, "_derived", ())) for each in alive)


@pytest.mark.nightly(
    covered_by="tests/test_cache.py::test_what_is_derived_of_an_object_is_found_once_and_goes_with_it"
)
def test_a_process_that_answered_many_jobs_keeps_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """After 2,000 different jobs the caches are as full as they get: 8,000 more add little."""
    monkeypatch.undo()
    draw = np.random.default_rng(0)
    axes: list[Sequence[Any]] = [
        model_names()[::4], known_device_names(), (1, 2, 4, 8, 16, 32, 64),
        ("fp32", "bf16-mixed", "fp16-mixed"), (1, 2, 4, 8, 16, 32),
    ]  # fmt: skip
    kept, asked = [], 0
    while asked < 10_000:
        model, device, gpus, precision, batch_size = (axis[int(draw.integers(len(axis)))] for axis in axes)
        with suppress(PrecisionTimeError):  # a device that lacks the precision, a model that is too large ...
            predict_time(model, device=device, gpus=gpus, precision=precision, batch_size=batch_size)
            asked += 1
            if asked % 2_000 == 0:
                kept.append(_kept())
    (entries, derived), (most_entries, most_derived) = kept[0], kept[-1]
    assert most_entries < 1.2 * entries
    assert most_derived < 1.2 * derived
