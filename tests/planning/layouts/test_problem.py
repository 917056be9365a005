"""Copies of a problem that tasks bring into a process, and what is kept of them."""

import pickle
from dataclasses import replace

from precision_time.cache import entries
from precision_time.request import problem as module
from precision_time.request.problem import Problem


def test_a_copy_from_another_process_is_replaced_by_the_first_one(small: Problem) -> None:
    first = small.here()
    copy = pickle.loads(pickle.dumps(small))
    assert copy is not first
    assert copy.here() is first
    assert replace(small, token="other").here() is not first


def test_only_the_last_problems_are_kept(small: Problem) -> None:
    for index in range(50):
        replace(small, token=f"problem {index}").here()
    assert entries()[f"{module.__name__}._first_copy"] <= 8
