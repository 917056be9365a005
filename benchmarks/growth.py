"""Whether a process that answers many different jobs grows: resident memory as answers go by.

    python benchmarks/growth.py --jobs 100000 --full 10000

Jobs are drawn from all models, devices, precisions, numbers of devices and batches. Memory after the last one
is held against that after `--full`, when the caches are as full as they get. A line of JSON for every tenth,
then the verdict; 1 where the process has grown by more than a tenth.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time

from precision_time import cache, predict_time
from precision_time.errors import PrecisionTimeError
from precision_time.hardware.device_table import known_device_names
from precision_time.workload.resolve import model_names

_MOST_GROWTH = 1.1
_PAGE_BYTES = 4096


def resident_bytes() -> int:
    """What the process holds in memory now (Linux)."""
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * _PAGE_BYTES


def main() -> int:
    """Answer, measure, judge."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--jobs", type=int, default=100_000)
    parser.add_argument("--full", type=int, default=10_000, help="answers after which caches are full")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    draw = random.Random(options.seed)
    models, devices = sorted(model_names()), sorted(known_device_names())
    held: dict[int, int] = {}
    answered = 0
    while answered < options.jobs:
        try:
            predict_time(
                draw.choice(models),
                device=draw.choice(devices),
                gpus=draw.choice((1, 2, 4, 8, 16, 32, 64)),
                precision=draw.choice(("fp32", "bf16-mixed", "fp16-mixed")),
                batch_size=draw.choice((1, 2, 4, 8, 16, 32)),
            )
        except PrecisionTimeError:  # a device without the precision, a model without data-parallel layout ...
            continue
        answered += 1
        if answered % max(options.jobs // 10, 1) == 0 or answered == options.full:
            held[answered] = resident_bytes()
            entries = sum(cache.entries().values())
            figures = {"answered": answered, "resident_mb": held[answered] / 1e6, "entries": entries}
            print(json.dumps({**figures, "cpu_s": time.process_time()}), flush=True)
    growth = held[options.jobs] / held[options.full]
    print(json.dumps({"growth": growth, "allowed": _MOST_GROWTH}))
    return int(growth > _MOST_GROWTH)


if __name__ == "__main__":
    sys.exit(main())
