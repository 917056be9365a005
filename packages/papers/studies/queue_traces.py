"""Write the jobs of public scheduler traces as one small table, from local clones of their repositories.

    python queue_traces.py --pollux DIR --gavel DIR

A row is a job: when it arrives, what it trains, on how many GPUs, with which global batch, for how many
steps. The steps of Pollux's jobs are those that its own simulator counts: the iterations after the last epoch
of the measured run at that batch (traces/APPLICATION/validation-BATCH.csv), linear between two batches.
"""

from __future__ import annotations

import argparse
import csv
import io
import re
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

OUT = Path(__file__).resolve().parents[3] / "packages/papers/studies/queue_replay/data/traces.csv"
COLUMNS = ("trace", "workload", "arrival_s", "application", "gpus", "global_batch", "steps")
"""The file that a row is from is named by trace in traces.toml."""
POLLUX, GAVEL = "osdi21-artifact", "HEAD"
FOLDERS = {"tuned": "benchmark/workloads", "realistic": "benchmark/workloads-realistic"}
"""Of Pollux's repository; Sia's has the same files (adaptdl/benchmark)."""
EPOCHS = {"bert": 2, "cifar10": 100, "ncf": 10, "imagenet": 90, "deepspeech2": 80, "yolov3": 50}
"""Of simulator/applications.py (max_epochs)."""
WORKLOADS = range(1, 9)
GAVEL_TRACES = ("max_min_fairness", "minimize_makespan")


def shown(repository: Path, commit: str, path: str) -> str:
    """A file of a repository."""
    return subprocess.run(
        ["git", "-C", str(repository), "show", f"{commit}:{path}"], check=True, capture_output=True, text=True
    ).stdout


def pollux_jobs(repository: Path) -> Iterator[tuple[object, ...]]:
    """Jobs of the workloads of Pollux."""
    for trace, folder in FOLDERS.items():
        for number in WORKLOADS:
            content = shown(repository, POLLUX, f"{folder}/workload-{number}.csv")
            for row in csv.DictReader(io.StringIO(content)):
                batch, gpus = int(row["batch_size"]), int(row["num_replicas"])
                count = iterations(repository, row["application"], batch)
                yield trace, number, row["time"], row["application"], gpus, batch, count


@cache
def validated(repository: Path, application: str) -> dict[int, int]:
    """Iterations until the last epoch by the batches that were run."""
    listed = subprocess.run(
        ["git", "-C", str(repository), "ls-tree", "--name-only", POLLUX, f"simulator/traces/{application}/"],
        check=True, capture_output=True, text=True,
    ).stdout.split()  # fmt: skip
    found = {}
    for path in listed:
        if match := re.search(r"validation-(\d+)\.csv", path):
            rows = list(csv.DictReader(io.StringIO(shown(repository, POLLUX, path))))
            found[int(match[1])] = round(float(rows[min(EPOCHS[application], len(rows)) - 1]["iteration"]))
    return dict(sorted(found.items()))


def iterations(repository: Path, application: str, batch: int) -> int:
    """Steps of an application at a global batch."""
    known = validated(repository, application)
    low = max(size for size in known if size <= batch)
    high = min(size for size in known if size >= batch)
    share = 0.0 if low == high else (batch - low) / (high - low)
    return round(known[low] + share * (known[high] - known[low]))


def gavel_jobs(repository: Path) -> Iterator[tuple[object, ...]]:
    """Jobs of Gavel's physical cluster; the batch of a job is that of each worker."""
    for number, name in enumerate(GAVEL_TRACES, 1):
        path = f"scheduler/traces/physical_cluster/{name}.trace"
        for line in shown(repository, GAVEL, path).splitlines():
            kind, *_, steps, gpus, _, _, arrival = line.split("\t")
            match = re.fullmatch(r"(.+) \(batch size (\d+)\)", kind)
            application, batch = (match[1], int(match[2])) if match else (kind, 0)
            whole = batch * int(gpus)
            yield "gavel", number, round(float(arrival)), application, gpus, whole, steps


def main() -> None:
    """Write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("pollux", "gavel"):
        parser.add_argument(f"--{name}", type=Path, required=True, metavar="DIR")
    given = parser.parse_args()
    with OUT.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        writer.writerows(pollux_jobs(given.pollux))
        writer.writerows(gavel_jobs(given.gavel))


if __name__ == "__main__":
    main()
