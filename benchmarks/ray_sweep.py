"""A million configurations over processes and over Ray: how fast, what Ray costs, how much memory.

Usage: python benchmarks/ray_sweep.py [--configurations 1000000] [--only processes,ray,cluster]

Each way runs in a fresh interpreter with two CPUs: `processes`, `ray` on one node, and `cluster`, two Ray
nodes with one CPU each that this machine plays. Answers are streamed: the step times of a chunk are folded
into a digest and a best configuration, and dropped. Equal digests are answers equal bit for bit and in order.
Writes benchmarks/ray_sweep.json when all ways run at full size.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass
from functools import lru_cache
from itertools import islice, product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from precision_time.cli.output import write_rows
from precision_time.executor import Executor, process_map
from precision_time.ray.executor import ray_map
from precision_time_papers.campaign.ray import local_cluster
from run import machine

RESULTS = Path(__file__).with_name("ray_sweep.json")
FULL = 1_000_000
WORKERS = 2
BATCHES = 250
NODES_PER_CHUNK = 4
PER_CHUNK = BATCHES * NODES_PER_CHUNK
DEVICES = (
    "V100-SXM2-16GB", "V100-SXM2-32GB", "A100-SXM4-40GB", "A100-SXM4-80GB", "A100-PCIe-40GB",
    "H100-SXM5-80GB", "H100-PCIe-80GB", "H200-SXM-141GB", "A30", "L4",
)  # fmt: skip
PRECISIONS = ("fp32", "tf32", "fp16-mixed", "bf16-mixed")
MOST_NODES = 100
_EMPTY_CHUNKS = 500
"""Behind the cost of a chunk that computes nothing."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Chunk:
    """Batches 1 to BATCHES on a few sizes of one cluster, at one precision."""

    device: str
    precision: str
    nodes: tuple[int, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """What a chunk came to."""

    step_time_s: NDArray[np.float64]
    """Shape (PER_CHUNK,)."""
    worker: int
    peak_bytes: float
    """Of the process that computed it, so far."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Result:
    """One way of running the sweep."""

    way: str
    configurations: int
    seconds: float
    start_s: float
    """Until the workers were there."""
    empty_chunk_ms: float
    """Per chunk of a function that does nothing."""
    parent_peak_bytes: float
    worker_peak_bytes: float
    digest: str
    """Of all step times in order."""
    best: str


def chunks() -> Iterator[Chunk]:
    """A million configurations, a thousand at a time."""
    for first in range(1, MOST_NODES + 1, NODES_PER_CHUNK):
        for device, precision in product(DEVICES, PRECISIONS):
            nodes = tuple(range(first, first + NODES_PER_CHUNK))
            yield Chunk(device=device, precision=precision, nodes=nodes)


def sweep(chunk: Chunk) -> Answer:
    """Predicted step times of a chunk, nodes by nodes and batch by batch."""
    from precision_time.cost.job import Job
    from precision_time.hardware.catalog import get_cluster
    from precision_time.learn.priced import predict_step_times
    from precision_time.parallel.layout import Layout
    from precision_time.precision.catalog import get_policy

    predictor, workload, stack = _shared()
    policy = get_policy(chunk.precision)
    jobs = []
    for count in chunk.nodes:
        cluster = get_cluster(device=chunk.device, num_devices=8 * count)
        jobs += [
            Job(
                workload=workload, cluster=cluster, precision=policy, stack=stack,
                layout=Layout(dp=cluster.num_devices, micro_batch_size=float(batch)),
            )
            for batch in range(1, BATCHES + 1)
        ]  # fmt: skip
    times = predict_step_times(jobs, predictor, coverage=0.9)
    return Answer(step_time_s=times.step_time_s, worker=os.getpid(), peak_bytes=peak_bytes())


@lru_cache(maxsize=1)
def _shared() -> tuple[Any, Any, Any]:
    from precision_time.cost.stacks import get_stack_profile
    from precision_time.learn.artifact import shipped_predictor
    from precision_time.workload.resolve import load_workload

    return shipped_predictor(), load_workload("resnet50"), get_stack_profile("pytorch-eager").stack()


def peak_bytes() -> float:
    """Largest resident set of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024.0


def nothing(chunk: Chunk) -> None:
    """What a chunk costs when it computes nothing."""


@contextmanager
def _cluster_map() -> Iterator[Executor]:
    with local_cluster(WORKERS, 1), ray_map() as map_fn:
        yield map_fn


WAYS: dict[str, Any] = {
    "processes": lambda: process_map(WORKERS),
    "ray": lambda: ray_map("local", num_cpus=WORKERS),
    "cluster": _cluster_map,
}


def measure(way: str, configurations: int) -> Result:
    """Run the sweep one way, in this process."""
    executor: AbstractContextManager[Executor] = WAYS[way]()
    begun_s = time.perf_counter()
    with executor as map_fn:
        list(map_fn(_warm, range(WORKERS)))
        start_s = time.perf_counter() - begun_s
        empty_s = time.perf_counter()
        for _ in map_fn(nothing, islice(chunks(), _EMPTY_CHUNKS)):
            pass
        empty_s = time.perf_counter() - empty_s
        digest, best_s, best, count, worker_peak = hashlib.sha256(), np.inf, "", 0, 0.0
        begun_s = time.perf_counter()
        asked = islice(chunks(), configurations // PER_CHUNK)
        for chunk, answer in zip(chunks(), map_fn(sweep, asked), strict=False):
            digest.update(answer.step_time_s.tobytes())
            count += len(answer.step_time_s)
            worker_peak = max(worker_peak, answer.peak_bytes)
            place = int(np.argmin(answer.step_time_s))
            if answer.step_time_s[place] < best_s:
                best_s, best = float(answer.step_time_s[place]), _named(chunk, place)
        seconds = time.perf_counter() - begun_s
    return Result(
        way=way, configurations=count, seconds=seconds, start_s=start_s, best=best,
        digest=digest.hexdigest(), empty_chunk_ms=1e3 * empty_s / _EMPTY_CHUNKS,
        parent_peak_bytes=peak_bytes(), worker_peak_bytes=worker_peak,
    )  # fmt: skip


def _warm(number: int) -> int:
    """Load in a worker what every chunk needs; long enough for each worker to take one."""
    _shared()
    time.sleep(1.0)
    return number


def _named(chunk: Chunk, place: int) -> str:
    nodes, batch = chunk.nodes[place // BATCHES], place % BATCHES + 1
    return f"{nodes} x 8 {chunk.device}, {chunk.precision}, {batch} per device"


def in_new_process(way: str, configurations: int) -> Result:
    """The same in a fresh interpreter, in which this file is a module that workers can import too."""
    folder = str(Path(__file__).resolve().parent)
    path = os.pathsep.join(filter(None, [folder, os.environ.get("PYTHONPATH")]))
    code = (
        "import dataclasses, json, ray_sweep\n"
        f"print(json.dumps(dataclasses.asdict(ray_sweep.measure({way!r}, {configurations}))))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": path},
    )
    return Result(**json.loads(done.stdout.splitlines()[-1]))


def main() -> int:
    """Measure every way and print a table. 1 if two ways differ in their answers."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--configurations", type=int, default=FULL)
    parser.add_argument("--only", default=",".join(WAYS))
    options = parser.parse_args()
    ways = options.only.split(",")
    results = [in_new_process(way, options.configurations) for way in ways]
    rows = [
        (
            each.way, f"{each.configurations:,}", f"{each.seconds:.1f}",
            f"{each.configurations / each.seconds:,.0f}", f"{each.seconds / results[0].seconds - 1.0:+.1%}",
            f"{each.empty_chunk_ms:.2f}", f"{each.start_s:.1f}",
            f"{each.parent_peak_bytes / 2**20:.0f}", f"{each.worker_peak_bytes / 2**20:.0f}",
        )
        for each in results
    ]  # fmt: skip
    columns = (
        "way", ">configurations", ">s", ">per s", f">over {ways[0]}", ">ms per empty chunk", ">start s",
        ">parent MiB", ">worker MiB",
    )  # fmt: skip
    write_rows(f"resnet50, {WORKERS} CPUs", columns, rows)
    same = len({each.digest for each in results}) == 1
    print(f"Answers {'equal bit for bit' if same else 'DIFFER'}; fastest: {results[0].best}")
    if set(ways) == set(WAYS) and options.configurations == FULL:
        document = {"machine": machine(), "results": [asdict(each) for each in results]}
        RESULTS.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    return int(not same)


if __name__ == "__main__":
    sys.exit(main())
