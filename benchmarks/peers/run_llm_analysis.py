"""Run llm-analysis on the jobs of docs/reference/peers.md and store its answers in llm_analysis.json.

It pins a transformers of 2023, so it gets an environment of its own, made on the first run (about 220 MB).
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
import tomllib
import venv
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from precision_time.corpus.measurement import Measurement
from precision_time.corpus.store import load_corpus

HERE = Path(__file__).resolve().parent
ANSWERS, PUBLISHED, WORKER = (
    HERE / "llm_analysis.json",
    HERE / "published.toml",
    HERE / "llm_analysis_worker.py",
)
PACKAGE, VERSION = "llm-analysis", "0.2.2"
SOURCES = frozenset({"vtrain", "megatron-lm", "mosaic-llm-foundry"})
GPUS = {
    "A100-SXM4": "a100-sxm-80gb",
    "A100-SXM4-40GB": "a100-sxm-40gb",
    "A100-SXM4-80GB": "a100-sxm-80gb",
    "H100-SXM5-80GB": "h100-sxm-80gb",
}
"""Its name of each device; vTrain does not say how much memory its A100 have, which changes no time."""
USUAL_HEAD = 128
"""Width of a head where the source does not state the number of heads: no time depends on it."""
USUAL_VOCAB = 50257
"""GPT-2's, vTrain's default."""


def corpus_jobs() -> Iterator[tuple[str, dict[str, Any]]]:
    """The rows that both can price, by the key of their configuration; a key stands for its repeats."""
    for row in load_corpus():
        if row.source in SOURCES and row.usable and row.device in GPUS and row.seq_len:
            yield row.configuration_key, _job_of_row(row)


def _job_of_row(row: Measurement) -> dict[str, Any]:
    layout, sizes = row.layout, row.sizes
    assert layout is not None and row.seq_len is not None
    whole = layout.micro_batch_size == int(layout.micro_batch_size)
    return {
        "layers": int(sizes["layers"]),
        "hidden": int(sizes["hidden"]),
        "heads": int(sizes.get("heads") or int(sizes["hidden"]) // USUAL_HEAD),
        "vocab": int(sizes.get("vocab") or USUAL_VOCAB),
        "seq_len": row.seq_len,
        "gpu": GPUS[row.device],
        "tp": layout.tp,
        "pp": layout.pp,
        "dp": layout.dp,
        "sequence_parallel": layout.sequence_parallel,
        "micro_batch_size": int(layout.micro_batch_size) if whole else layout.micro_batch_size,
        "num_microbatches": layout.num_microbatches,
        "recompute": str(layout.recompute),
        "zero_stage": layout.zero_stage,
    }


def published_jobs(published: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The published jobs that are no rows of the corpus, by their id."""
    for job in published["job"]:
        usual = {
            "tp": 1,
            "pp": 1,
            "dp": 1,
            "sequence_parallel": False,
            "micro_batch_size": 1,
            "num_microbatches": 1,
            "zero_stage": 0,
        }
        yield job["id"], {**usual, **job["layout"], **job["sizes"], "seq_len": 2048, "gpu": "a100-sxm-80gb"}


def python_of(folder: Path) -> Path:
    """The interpreter of the environment in `folder`, which is made if it is not there."""
    python = folder / "bin" / "python"
    if not python.exists():
        venv.create(folder, with_pip=True)
        install = [str(python), "-m", "pip", "install", "--quiet", f"{PACKAGE}=={VERSION}"]
        subprocess.run(install, check=True)
    return python


def _readable(answers: dict[str, Any]) -> str:
    """JSON with one job per line, so that a change of an answer is a change of a line."""
    seconds = answers.pop("seconds")
    lines = [
        f"  {json.dumps(key)}: {json.dumps([float(f'{value:.6g}') for value in values])}"
        for key, values in sorted(seconds.items())
    ]
    return json.dumps(answers)[:-1] + ', "seconds": {\n' + ",\n".join(lines) + "\n}}\n"


def main() -> None:
    """Ask llm-analysis and store what it says."""
    parser = argparse.ArgumentParser(description=__doc__)
    folder = Path(tempfile.gettempdir()) / f"{PACKAGE}-{VERSION}"
    parser.add_argument("--environment", type=Path, default=folder, help="folder of its environment")
    options = parser.parse_args()
    published = tomllib.loads(PUBLISHED.read_text(encoding="utf-8"))
    jobs = dict([*corpus_jobs(), *published_jobs(published)])
    python = python_of(options.environment)
    start = time.perf_counter()
    done = subprocess.run(
        [str(python), str(WORKER)],
        input=json.dumps(jobs),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        sys.exit(f"{WORKER.name} failed:\n{done.stderr}")
    answers = json.loads(done.stdout.splitlines()[-1])
    head = {"package": PACKAGE, "version": VERSION, "date": time.strftime("%Y-%m-%d"), "jobs": len(jobs)}
    ANSWERS.write_text(_readable(head | answers), encoding="utf-8")
    print(
        f"{len(answers['seconds'])} answers, {len(answers['refused'])} refusals "
        f"in {time.perf_counter() - start:.0f} s"
    )


if __name__ == "__main__":
    main()
