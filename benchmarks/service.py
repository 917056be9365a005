"""Load on the HTTP service over the loopback: write benchmarks/service.json.

The service runs in processes of its own, started by the command that users type. Jobs are drawn with a seed
from 360 combinations of model, device, number of devices and precision, each with 64 batch sizes; what a few
repeat is measured apart. Single calls are sent at their times whatever the service does, and seconds count
from those times: a service that falls behind cannot hide it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import aiohttp
import numpy as np

RESULTS = Path(__file__).with_name("service.json")
MODELS = (
    "resnet50", "resnet18", "vgg16", "vit-base", "efficientnet-b0", "bert-base", "bert-large", "gpt2",
    "t5-base", "distilbert-base",
)  # fmt: skip
DEVICES = ("A100-SXM4-80GB", "H100-SXM5-80GB", "V100-SXM2-32GB")
PRECISIONS = ("fp32", "fp16-mixed", "bf16-mixed")
_LONGEST_START_S = 60.0
_WARM_UP_S = 8.0
"""Every worker has met every combination by then: the first answer of each takes five times as long."""
_BATCH = 100
_CONNECTIONS = 8


@dataclass(frozen=True, kw_only=True, slots=True)
class Figure:
    """One measured figure beside its target."""

    name: str
    value: float
    unit: str
    target: float | None = None
    met: bool | None = None


def jobs(count: int, *, seed: int) -> list[dict[str, Any]]:
    """Different jobs of common models, devices and precisions."""
    draw = random.Random(seed)
    return [
        {
            "model": draw.choice(MODELS),
            "device": draw.choice(DEVICES),
            "gpus": draw.choice((1, 4, 8, 32)),
            "precision": draw.choice(PRECISIONS),
            "batch_size": draw.randrange(1, 65),
        }
        for _ in range(count)
    ]


def like_jobs(count: int, *, seed: int) -> list[dict[str, Any]]:
    """Different jobs of one model on one kind and number of devices: batch sizes and precisions."""
    [first] = jobs(1, seed=seed)
    draw = random.Random(seed)
    pairs = draw.sample([(size, name) for size in range(1, 65) for name in PRECISIONS], count)
    return [{**first, "batch_size": size, "precision": name} for size, name in pairs]


class Server:
    """A service in processes of its own, on a free port."""

    def __init__(self, folder: Path, *, workers: int) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = int(free.getsockname()[1])
        self.url = f"http://127.0.0.1:{self.port}"
        command = [sys.executable, "-m", "precision_time", "serve", "--port", str(self.port)]
        command += ["--workers", str(workers), "--store", f"sqlite:///{folder / 'service.sqlite'}"]
        started_s = time.perf_counter()
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        self._log = (folder / "service.log").open("ab")
        self.process = subprocess.Popen(
            command, env=environment, stdout=self._log, stderr=self._log, start_new_session=True
        )
        while not self.is_ready():
            if time.perf_counter() - started_s > _LONGEST_START_S or self.process.poll() is not None:
                raise RuntimeError(f"The service did not start: {folder / 'service.log'}")
            time.sleep(0.01)
        self.start_s = time.perf_counter() - started_s

    def is_ready(self) -> bool:
        """Whether it answers calls."""
        try:
            with urllib.request.urlopen(f"{self.url}/health/ready", timeout=1) as answer:
                return bool(answer.status == 200)  # noqa: PLR2004
        except (urllib.error.URLError, OSError):
            return False

    def memory_bytes(self) -> int:
        """Of all its processes, shared pages counted once (proportional set size)."""
        total = 0
        for folder in Path("/proc").iterdir():
            try:
                if folder.name.isdigit() and os.getpgid(int(folder.name)) == self.process.pid:
                    lines = (folder / "smaps_rollup").read_text().splitlines()
                    total += sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))
            except (OSError, ProcessLookupError):
                continue
        return total

    def stop(self, sign: int = signal.SIGTERM) -> None:
        """End all its processes."""
        try:
            os.killpg(self.process.pid, sign)
            self.process.wait(timeout=20)
        except (ProcessLookupError, subprocess.TimeoutExpired):
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        self._log.close()


@contextmanager
def server(folder: Path, *, workers: int) -> Iterator[Server]:
    """A running service."""
    found = Server(folder, workers=workers)
    try:
        yield found
    finally:
        found.stop()


async def batches(
    url: str, *, seconds: float, seed: int, drawn: Callable[..., list[dict[str, Any]]] = jobs
) -> float:
    """Predictions per second, asked in batches over a few connections."""
    done, end_s = 0, time.perf_counter() + seconds
    async with aiohttp.ClientSession() as session:

        async def ask(connection: int) -> None:
            nonlocal done
            number = 0
            while time.perf_counter() < end_s:
                asked = drawn(_BATCH, seed=hash((seed, connection, number)))
                number += 1
                async with session.post(f"{url}/v1/predictions/batch", json={"jobs": asked}) as answer:
                    answers = (await answer.json())["answers"]
                    done += sum("prediction" in each for each in answers)

        started_s = time.perf_counter()
        await asyncio.gather(*(ask(connection) for connection in range(_CONNECTIONS)))
        return done / (time.perf_counter() - started_s)


async def singles(
    url: str, *, per_s: float, seconds: float, asked: Sequence[dict[str, Any]]
) -> tuple[np.ndarray[Any, np.dtype[np.float64]], int]:
    """Seconds of single calls that are sent at a constant rate, and how many failed."""
    count = int(per_s * seconds)
    took = np.full(count, np.nan)
    failed = 0
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector) as session:
        start_s = time.perf_counter() + 0.1

        async def ask(number: int) -> None:
            nonlocal failed
            async with session.post(f"{url}/v1/predictions", json=asked[number % len(asked)]) as answer:
                await answer.read()
                failed += answer.status != 200  # noqa: PLR2004
            took[number] = time.perf_counter() - (start_s + number / per_s)

        calls = []
        for number in range(count):
            await asyncio.sleep(max(0.0, start_s + number / per_s - time.perf_counter()))
            calls.append(asyncio.create_task(ask(number)))
        await asyncio.gather(*calls)
    return took, failed


async def _memory(running: Server, *, calls: int, connections: int, seed: int) -> list[tuple[int, int]]:
    """Memory after every twentieth of many single calls, each with a job of its own."""
    found: list[tuple[int, int]] = []
    numbers = iter(range(calls))
    asked = iter(jobs(calls, seed=seed))
    async with aiohttp.ClientSession() as session:

        async def ask() -> None:
            for number in numbers:
                async with session.post(f"{running.url}/v1/predictions", json=next(asked)) as answer:
                    await answer.read()
                if number % (calls // 20) == 0:
                    found.append((number, running.memory_bytes()))

        await asyncio.gather(*(ask() for _ in range(connections)))
    return [*found, (calls, running.memory_bytes())]


def memory_over(running: Server, *, calls: int) -> list[tuple[int, int]]:
    """Calls made and memory of the service then [B]."""
    return asyncio.run(_memory(running, calls=calls, connections=8, seed=11))


def killed_and_restarted(folder: Path, *, seconds: float) -> tuple[int, int]:
    """Measurements that were acknowledged until the service was killed, and those lost when it is back."""
    running = Server(folder, workers=2)
    acknowledged: set[float] = set()

    async def load() -> None:
        async with aiohttp.ClientSession() as session:
            await session.put(
                f"{running.url}/v1/clusters/load", json={"fields": {"device": "A100-SXM4-80GB"}}
            )

            async def store(lane: int) -> None:
                for number in range(10**6):
                    step_time_s = 0.1 + lane + number * 1e-6
                    row = {"model": "resnet50", "batch_size": 64, "step_time_s": step_time_s}
                    try:
                        async with session.post(
                            f"{running.url}/v1/clusters/load/measurements",
                            json={"measurements": [row]},
                        ) as answer:
                            if answer.status < 300:  # noqa: PLR2004
                                acknowledged.add(step_time_s)
                    except aiohttp.ClientError:
                        return

            lanes = [asyncio.create_task(store(lane)) for lane in range(4)]
            await asyncio.sleep(seconds)
            await asyncio.to_thread(running.stop, signal.SIGKILL)
            await asyncio.gather(*lanes)

    asyncio.run(load())
    with server(folder, workers=1) as again:
        stored: set[float] = set()
        after = 0
        while True:
            url = f"{again.url}/v1/clusters/load/measurements?after={after}&limit=1000"
            with urllib.request.urlopen(url, timeout=20) as answer:
                page = json.load(answer)["measurements"]
            if not page:
                break
            stored |= {each["given"]["step_time_s"] for each in page}
            after = page[-1]["id"]
    return len(acknowledged), len(acknowledged - stored)


def measured(*, workers: int, seconds: float, memory_calls: int) -> dict[str, Any]:
    """All figures."""
    figures: list[Figure] = []

    def add(name: str, value: float, unit: str, target: float | None = None, *, most: bool = False) -> None:
        met = None if target is None else (value <= target if most else value >= target)
        figures.append(Figure(name=name, value=value, unit=unit, target=target, met=met))
        print(f"{name}: {value:,.4g} {unit}" + ("" if target is None else f" (target {target:g}: {met})"))

    memory: list[tuple[int, int]] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with server(folder, workers=workers) as running:
            add("cold start", running.start_s, "s", 3.0, most=True)
            asyncio.run(batches(running.url, seconds=3.0, seed=1))  # every worker has seen every model once
            for what, drawn in (("of one model and device", like_jobs), ("of any model and device", jobs)):
                asyncio.run(batches(running.url, seconds=_WARM_UP_S, seed=1, drawn=drawn))
                rate = asyncio.run(batches(running.url, seconds=seconds, seed=2, drawn=drawn))
                add(f"predictions in batches of 100 {what}", rate, "1/s", 1000)
            for per_s, what, asked in (
                (300, "of 500 that repeat", jobs(500, seed=4)),
                (100, "all different", jobs(int(100 * seconds), seed=5)),
                (200, "all different", jobs(int(200 * seconds), seed=6)),
                (300, "all different", jobs(int(300 * seconds), seed=3)),
            ):
                if what != "all different":  # once, so that all of them repeat
                    asyncio.run(singles(running.url, per_s=50, seconds=len(asked) / 50, asked=asked))
                took, failed = asyncio.run(singles(running.url, per_s=per_s, seconds=seconds, asked=asked))
                label = f"{per_s} single calls/s, {what}"
                add(f"{label}: failed", failed, "calls", 0, most=True)
                add(f"{label}: p50", float(np.quantile(took, 0.5)) * 1e3, "ms")
                add(f"{label}: p99", float(np.quantile(took, 0.99)) * 1e3, "ms", 50.0, most=True)
        if memory_calls:
            with server(folder, workers=workers) as running:
                started_s = time.perf_counter()
                memory = memory_over(running, calls=memory_calls)
                add("calls for memory", memory_calls / (time.perf_counter() - started_s), "1/s")
                half = memory[len(memory) // 2][1]
                add("memory after all calls", memory[-1][1] / 2**20, "MiB")
                add("memory after all calls over that after half", memory[-1][1] / half, "x", 1.05, most=True)
        count, lost = killed_and_restarted(folder, seconds=min(seconds, 5.0))
        add("measurements acknowledged until the service was killed", count, "rows", 100)
        add("of these lost", lost, "rows", 0, most=True)
    return {
        "machine": {
            "processor": platform.machine(),
            "cores": os.cpu_count(),
            "python": platform.python_version(),
        },
        "workers": workers,
        "seconds": seconds,
        "load_average": os.getloadavg(),
        "figures": [asdict(each) for each in figures],
        "memory_bytes": memory,
    }


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=20.0, help="of each kind of load")
    parser.add_argument("--memory-calls", type=int, default=100_000, help="0 leaves them out")
    parser.add_argument("--no-write", action="store_true", help="print only")
    given = parser.parse_args()
    found = measured(workers=given.workers, seconds=given.seconds, memory_calls=given.memory_calls)
    if not given.no_write:
        RESULTS.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
