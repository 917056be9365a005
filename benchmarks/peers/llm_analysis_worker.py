"""Runs inside the environment of llm-analysis: jobs as JSON on stdin, its answers as JSON on stdout.

It gets what it asks for: sizes, degrees, batches, recomputation, its own file of the GPU. Everything else
stays at its default.
"""

from __future__ import annotations

import json
import logging
import sys
from typing import Any

from llm_analysis.analysis import ActivationRecomputation, DSZeRO, LLMAnalysis  # type: ignore[import-not-found]
from llm_analysis.config import (  # type: ignore[import-not-found]
    ModelConfig,
    ParallelismConfig,
    get_dtype_config_by_name,
    get_gpu_config_by_name,
)

EFFICIENCIES = (1.0, 0.5)
"""Its default, and what its documentation advises."""
RECOMPUTATION = {"none": 0, "selective": 1, "full": 2}


def seconds_per_step(job: dict[str, Any], flops_efficiency: float) -> float:
    """What llm-analysis says of one job."""
    analysis = LLMAnalysis(
        ModelConfig(
            name="job",
            num_layers=job["layers"],
            n_head=job["heads"],
            hidden_dim=job["hidden"],
            vocab_size=job["vocab"],
            max_seq_len=job["seq_len"],
        ),
        get_gpu_config_by_name(job["gpu"]),
        get_dtype_config_by_name("w16a16e16"),
        ParallelismConfig(
            tp_size=job["tp"],
            pp_size=job["pp"],
            dp_size=job["dp"],
            sp_size=job["tp"] if job["sequence_parallel"] else 1,
        ),
        flops_efficiency=flops_efficiency,
        hbm_memory_efficiency=1.0,
    )
    summary = analysis.training(
        batch_size_per_gpu=job["micro_batch_size"],
        gradient_accumulation_steps=job["num_microbatches"],
        global_batch_size=job["micro_batch_size"] * job["num_microbatches"] * job["dp"],
        seq_len=job["seq_len"],
        activation_recomputation=ActivationRecomputation(RECOMPUTATION[job["recompute"]]),
        ds_zero=DSZeRO(job["zero_stage"]),
    )
    return float(summary["latency_per_iter"])


def main() -> None:
    """Answer every job; a refusal is an answer, too."""
    logging.disable(logging.CRITICAL)
    found: dict[str, Any] = {}
    refused: dict[str, str] = {}
    for key, job in json.load(sys.stdin).items():
        try:
            found[key] = [seconds_per_step(job, efficiency) for efficiency in EFFICIENCIES]
        except (AssertionError, ValueError, TypeError, ZeroDivisionError) as error:
            refused[key] = f"{type(error).__name__}: {error}"[:200]
    json.dump({"efficiencies": EFFICIENCIES, "seconds": found, "refused": refused}, sys.stdout)


if __name__ == "__main__":
    main()
