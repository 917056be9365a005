"""What `make demo` runs: three real training jobs, each at several precisions."""

from __future__ import annotations

import shlex

from precision_time.cli.main import main

JOBS = (
    "predict resnet50 --device A100-SXM4-80GB --gpus 8 --batch-size 256 --dataset imagenet --epochs 90"
    " --precision fp32,tf32,fp16-mixed,bf16-mixed",
    "predict bert-large --device A100-SXM4-80GB --gpus 8 --batch-size 16 --seq-len 512"
    " --precision tf32,fp16-mixed,bf16-mixed --steps 7038",
    "predict llama3-8b --device H100-SXM5-80GB --gpus 8 --batch-size 1 --seq-len 8192 --zero-stage 3"
    " --precision bf16-mixed,fp8-mixed --recompute selective --steps 1000",
)


def run() -> None:
    """Print each command as one would type it, and its answer."""
    for job in JOBS:
        print(f"$ precision-time {job}", flush=True)
        try:
            main(shlex.split(job))
        except SystemExit as done:
            if done.code:
                raise
        print(flush=True)


if __name__ == "__main__":
    run()
