"""One worker of a campaign without Ray: plain processes with torch.distributed over gloo, one on each node.

Ray Train starts six processes for a group of one worker, each of which imports for seconds. A campaign of
many machine types and few seconds per trial is measured by this script instead: the same trials, worker code,
columns and store, `ray_version` empty. Start it on every node (campaigns/nodes.sh) with its rank;
rank 0 stores.

    torch_workers.py CAMPAIGN --store FILE --rank 0 --workers 2 --master 10.77.0.11:29500 --node pt1

`group_start_s` is the process group alone, after the imports.
"""

from __future__ import annotations

import argparse
import time
import warnings
from typing import Any

import torch
import torch.distributed as dist

from precision_time_papers.campaign.campaign import load_campaign
from precision_time_papers.campaign.result import failed_result, measured_result
from precision_time_papers.campaign.store import CampaignStore
from precision_time_papers.campaign.worker import (
    NotBuiltError,
    WorkerContext,
    limited,
    measure_trial,
    worker_facts,
)


def main() -> None:
    """Measure the trials of one number of workers that the store does not hold."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("campaign")
    parser.add_argument("--store", required=True)
    parser.add_argument("--rank", type=int, default=0)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--master", default="127.0.0.1:29500", help="address and port of rank 0")
    parser.add_argument("--lane", default="0/1", help="of several that share the trials: number/count")
    parser.add_argument("--node", default="", help="what tells this node from the others")
    options = parser.parse_args()
    begun_s = time.perf_counter()
    torch.set_num_threads(1)
    if options.workers > 1:
        address = f"tcp://{options.master}"
        dist.init_process_group("gloo", init_method=address, rank=options.rank, world_size=options.workers)
    group_start_s = time.perf_counter() - begun_s

    def all_gather(_: str, value: Any) -> list[Any]:
        values: list[Any] = [value] * options.workers
        if options.workers > 1:
            dist.all_gather_object(values, value)
        return values

    def wrapped(module: Any) -> Any:
        return torch.nn.parallel.DistributedDataParallel(module) if options.workers > 1 else module

    context = WorkerContext(
        rank=options.rank, device=torch.device("cpu"), all_gather=all_gather, wrapped=wrapped
    )
    campaign = load_campaign(options.campaign)
    lane, lanes = map(int, options.lane.split("/"))
    trials = [trial for trial in campaign.trials if trial.group.num_workers == options.workers][lane::lanes]
    group = trials[0].group
    limit = limited(group)
    facts = {**worker_facts(context.device, 1, group, limit), "ray_node": options.node, "ray_version": ""}
    everyone = all_gather("facts", facts)
    store = CampaignStore(options.store) if options.rank == 0 else None
    settled = {each.identity for each in store.results()} if store else set()
    [settled, *_] = all_gather("settled", settled)
    for trial in trials:
        if trial.identity in settled:
            continue
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                figures = all_gather("figures", measure_trial(trial, context))
            result = measured_result(campaign.name, trial, everyone, group_start_s, figures)
        except NotBuiltError as error:
            result = failed_result(campaign.name, trial, everyone, str(error))
        if store:
            store.add(result)
            print(f"{time.strftime('%H:%M:%S')} {trial} {result.step_time_s} {result.error}", flush=True)


if __name__ == "__main__":
    main()
