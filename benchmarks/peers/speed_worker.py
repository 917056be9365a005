"""Seconds that another predictor takes for one job again and again: GPT-3 175B on 1,024 A100, in its own way.

Runs in the environment of that predictor: `python speed_worker.py NAME FOLDER`, where FOLDER is its checkout.
Nothing of the project is imported. Prints JSON: the seconds per job.
"""

from __future__ import annotations

import contextlib
import io
import json
import logging
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

REPEATS = 30
TP, PP, DP, MICRO, ROUNDS = 8, 8, 16, 1, 96


def llm_analysis(folder: Path) -> Callable[[int], Any]:
    """Its analysis object, made again for each job as its command does."""
    del folder
    from llm_analysis_worker import seconds_per_step  # type: ignore[import-not-found]

    job: dict[str, Any] = {
        **{"layers": 96, "hidden": 12288, "heads": 96, "vocab": 51200, "seq_len": 2048},
        **{"gpu": "a100-sxm-80gb", "tp": TP, "pp": PP, "dp": DP, "sequence_parallel": True},
        **{"micro_batch_size": MICRO, "recompute": "full", "zero_stage": 1},
    }
    return lambda rounds: seconds_per_step({**job, "num_microbatches": rounds}, 0.5)


def calculon(folder: Path) -> Callable[[int], Any]:
    """Its shipped model and system."""
    sys.path.insert(0, str(folder))
    from calculon.io import read_json_file  # type: ignore[import-not-found]
    from calculon.llm import Llm  # type: ignore[import-not-found]
    from calculon.system import System  # type: ignore[import-not-found]

    model = read_json_file(str(folder / "models/gpt3-175B.json"))
    system = read_json_file(str(folder / "systems/a100_80g.json"))
    execution = read_json_file(str(folder / "examples/3072_t4_p64_d12_mbs4_full.json"))
    execution |= {"num_procs": TP * PP * DP, "tensor_par": TP, "pipeline_par": PP, "data_par": DP}
    execution |= {"microbatch_size": MICRO}
    logger = logging.getLogger()

    def price(rounds: int) -> Any:
        job = Llm(Llm.Application(model), logger)
        described = System(system)
        job.compile(described, Llm.Execution.from_json({**execution, "batch_size": DP * MICRO * rounds}))
        job.run(described)
        return job.get_total_time()

    return price


def simumax(folder: Path) -> Callable[[int], Any]:
    """Its shipped model and A100 system."""
    sys.path.insert(0, str(folder))
    from simumax.core.config import (  # type: ignore[import-not-found]
        ModelConfig,
        StrategyConfig,
        SystemConfig,
    )
    from simumax.core.perf_llm import PerfLLM  # type: ignore[import-not-found]

    configs = folder / "configs"

    def price(rounds: int) -> Any:
        strategy = StrategyConfig.init_from_config_file(str(configs / "strategy/tp8_pp1_dp1_mbs1.json"))
        strategy.seq_len, strategy.micro_batch_size, strategy.micro_batch_num = 2048, MICRO, rounds
        strategy.world_size, strategy.tp_size, strategy.pp_size = TP * PP * DP, TP, PP
        job = PerfLLM()
        job.configure(
            strategy_config=strategy,
            model_config=ModelConfig.init_from_config_file(str(configs / "models/gpt3-175b.json")),
            system_config=SystemConfig.init_from_config_file(str(configs / "system/a100_pcie.json")),
        )
        job.run_estimate()
        return job.analysis_cost()

    return price


WAYS = {"llm-analysis": llm_analysis, "calculon": calculon, "simumax": simumax}


def main() -> None:
    """Price one job many times, of another number of micro batches each."""
    name, folder = sys.argv[1], Path(sys.argv[2]).resolve()
    logging.disable(logging.CRITICAL)
    with contextlib.redirect_stdout(io.StringIO()):
        price = WAYS[name](folder)
        price(ROUNDS)
        seconds = []
        for extra in range(REPEATS):
            start = time.process_time()
            price(ROUNDS + 8 * extra)
            seconds.append(time.process_time() - start)
    print(json.dumps({"seconds": statistics.median(seconds)}))


if __name__ == "__main__":
    main()
