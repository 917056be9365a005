"""A child that is forked while another thread works: it answers, whatever that thread held."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

from surface import shown, source_files

_OF_LOCKS = {"Lock", "RLock", "Condition", "Semaphore", "BoundedSemaphore", "Barrier"}

_CHILDREN = """
import os, signal, sys, threading, time
sys.setswitchinterval(1e-5)


def children(count, work, limit_s=60.0):
    # How many of `count` forked children did not end with 0 by themselves.
    started = []
    for _ in range(count):
        child = os.fork()
        if child == 0:
            code = 1
            try:
                work()
                code = 0
            finally:
                os._exit(code)
        started.append(child)
        time.sleep(0.02)
    deadline, failed = time.monotonic() + limit_s, 0
    for child in started:
        while not (found := os.waitpid(child, os.WNOHANG))[0]:
            if time.monotonic() > deadline:
                os.kill(child, signal.SIGKILL)
                found = os.waitpid(child, 0)
                break
            time.sleep(0.005)
        failed += found[1] != 0
    return failed
"""

_WHILE_A_THREAD_PREDICTS = """
from itertools import cycle
from precision_time import Request
from precision_time.predict.api import predict_each


def predict(model, batch):
    fields = {"model": model, "device": "T4", "batch_size": batch, "precision": "fp16-mixed"}
    return predict_each([Request.of(fields)], remedies=False)


predict("resnet50", 8)
busy = True


def go_on():
    for batch in cycle(range(1, 200)):
        if not busy:
            return
        predict("gpt2", batch)


thread = threading.Thread(target=go_on)
thread.start()
print(children(12, lambda: predict("resnet50", 12), limit_s=40.0), flush=True)
busy = False
thread.join()
os._exit(0)
"""

_WHILE_EIGHT_THREADS_PREDICT = """
from concurrent.futures import ThreadPoolExecutor
from precision_time import cache, predict_time

MODELS = ("resnet50", "gpt2", "bert-large", "vit-base-16", "llama3-8b", "unet3d", "resnet18", "t5-small")
asked = [(model, batch) for batch in (1, 3, 8) for model in MODELS]


def ask(job):
    found = predict_time(job[0], device="A100", gpus=8, batch_size=job[1], precision="bf16-mixed")
    return found.step_time_s, found.interval.low_s, found.interval.high_s, found.memory_bytes_per_device


alone = [ask(job) for job in asked]
cache.clear()
threads = ThreadPoolExecutor(8)
answers = threads.map(ask, asked * 4)


def same():
    assert [ask(job) for job in asked] == alone


failed = children(4, same)
print(failed + ([*answers] != alone * 4), flush=True)
os._exit(0)
"""

_WHILE_A_THREAD_HOLDS_ALL = """
from contextlib import ExitStack
from precision_time import predict_time
from precision_time.corpus.store import corpus_store
from precision_time.precision.nodes import NodeColumns

kept = corpus_store()
predict_time("resnet50", device="T4", batch_size=8)
held, done = threading.Event(), threading.Event()


def hold():
    with ExitStack() as stack:
        for each in vars(NodeColumns).values():
            if hasattr(each, "lock"):
                stack.enter_context(each.lock)
        held.set()
        done.wait()


thread = threading.Thread(target=hold)
thread.start()
held.wait()


def work():
    predict_time("resnet50", device="T4", batch_size=12)
    assert corpus_store() is not kept
    assert len(corpus_store()) == size


size = len(kept)
print(children(2, work, limit_s=20.0))
done.set()
thread.join()
assert corpus_store() is kept
"""

_OWN_LOCK = """
from precision_time.forks import ForkLock, unforked

mine = ForkLock()
with mine, unforked:

    def work():
        with mine, unforked:
            pass

    print(children(2, work, limit_s=10.0))
with mine:
    pass
"""


def failed_children(script: str) -> int:
    result = subprocess.run(
        [sys.executable, "-c", _CHILDREN + script],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    return int(result.stdout)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
@pytest.mark.parametrize(
    "script",
    [_WHILE_A_THREAD_PREDICTS, _WHILE_EIGHT_THREADS_PREDICT, _WHILE_A_THREAD_HOLDS_ALL, _OWN_LOCK],
    ids=["a thread predicts", "eight threads give the answers of one", "a thread holds all", "own lock"],
)
def test_a_child_that_is_forked_meanwhile_answers(script: str) -> None:
    assert failed_children(script) == 0


def locks_of(path: Path) -> list[str]:
    """Where a module takes locks of the standard library, which forked children find held."""
    taken = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module in {"threading", "multiprocessing", "functools"}:
            names = _OF_LOCKS | {"cached_property"}
            taken += [f"{node.lineno} {each.name}" for each in node.names if each.name in names]
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            name = f"{node.value.id}.{node.attr}"
            if node.value.id == "functools" and node.attr == "cached_property":
                taken.append(f"{node.lineno} {name}")
            if node.value.id in {"threading", "multiprocessing"} and node.attr in _OF_LOCKS:
                taken.append(f"{node.lineno} {name}")
    return taken


def test_no_lock_escapes_the_module_of_forks() -> None:
    found = {shown(path): locks_of(path) for path in source_files()}
    assert found.pop("precision_time/forks.py")
    assert {path: locks for path, locks in found.items() if locks} == {}
