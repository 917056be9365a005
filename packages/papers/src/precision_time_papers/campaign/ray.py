"""Training trials on a Ray cluster: stored ones are skipped, the rest is measured, each stored at once."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from precision_time.errors import ConfigError, PrecisionTimeError
from precision_time.executor import usable_cores
from precision_time.ray.executor import LOCAL, LOOPBACK, OBJECT_STORE_BYTES, import_ray, loopback, ray_session
from precision_time_integrations.measure.device import import_torch
from precision_time_integrations.measure.report import Progress, ProgressCallback, TrialReport
from precision_time_integrations.measure.store import only_writer
from precision_time_integrations.measure.trial import TrainingTrial

from .budget import DurationEstimator, most_informative
from .campaign import Campaign
from .groups import GroupRunner
from .result import TrialResult, failed_result, measured_result
from .store import CampaignStore

_REMEDIES = {
    "CPU": "ask for fewer workers or CPUs per worker, connect to a larger cluster with --address, or set "
    "oversubscribe: true for a local Ray (such trials are labeled)",
    "GPU": "ask for fewer GPUs, or connect to a cluster that has them with --address",
}


def run_campaign(
    campaign: Campaign,
    store: str | Path,
    *,
    address: str | None = None,
    budget_s: float | None = None,
    retry_failed: bool = False,
    progress: ProgressCallback = lambda _: None,
) -> TrialReport:
    """Measure the trials of a campaign that the store does not hold yet.

    Args:
        campaign: What to measure.
        store: File to which results are appended.
        address: Of a Ray cluster; "local" or None: a Ray that is started on this machine.
        budget_s: Wall-clock limit: the most informative trials that fit into it, none started that passes it.
        retry_failed: Measure trials again that failed before.
        progress: Called whenever a group is started and before each trial.

    Raises:
        CorpusError: If the store cannot be used, or another campaign uses it; nothing that was measured is
            lost.
        ConfigError: If the cluster cannot hold a trial, or does not answer.
        MissingExtraError: If Ray is not installed.
        PrecisionTimeError: If Ray is lost during the campaign.
    """
    with CampaignStore(store) as opened, only_writer(opened.path):
        settled = {each.identity for each in opened.results() if each.status == "ok" or not retry_failed}
        wanted = [trial for trial in campaign.trials if trial.identity not in settled]
        known = [trial for trial in campaign.trials if trial.identity in settled]
        about = {"campaign": campaign.name, "store": str(store), "points": len(campaign.trials)}
        report = TrialReport(about=about, skipped=len(known))
        recorder = _Recorder(campaign, opened, report, progress, budget_s)
        try:
            _run_all(campaign, wanted, known, recorder, address)
        finally:
            report.seconds = time.monotonic() - recorder.begun_s
            report.left = len(wanted) - len(report.measured) - len(report.failed)
    return report


class _Recorder:
    """Listens to the groups: stores, counts, and keeps the time."""

    def __init__(
        self,
        campaign: Campaign,
        store: CampaignStore,
        report: TrialReport,
        progress: ProgressCallback,
        budget_s: float | None,
    ) -> None:
        self.begun_s = time.monotonic()
        self.durations = DurationEstimator()
        self.ahead: list[TrainingTrial] = []
        """Trials to be settled, in order."""
        self.tried: list[TrainingTrial] = []
        self._campaign, self._store, self._report, self._progress = campaign, store, report, progress
        self._budget_s = math.inf if budget_s is None else budget_s
        self._facts: Sequence[Mapping[str, Any]] = ()
        self._group_start_s: float | None = None
        self._trial_begun_s = 0.0

    @property
    def left_s(self) -> float:
        """Of the budget."""
        return self._budget_s - (time.monotonic() - self.begun_s)

    def has_time(self) -> bool:
        """Whether a group of workers could still be started."""
        return self.left_s > self.durations.group_start_s

    def show(self, trial: str) -> None:
        """Report where the campaign stands."""
        done, total = len(self.tried), len(self.tried) + len(self.ahead)
        left_s = self.durations.total_s(self.ahead)
        self._progress(Progress(done=done, total=total, left_s=left_s, trial=trial))

    def started(self, seconds: float, facts: Sequence[Mapping[str, Any]]) -> None:
        """See GroupListener."""
        self._group_start_s, self._facts = seconds, facts
        self.durations.add_start(seconds)

    def begins(self, trial: TrainingTrial) -> bool:
        """See GroupListener: no trial is begun that is expected to pass the budget."""
        self.show(str(trial))
        self._trial_begun_s = time.monotonic()
        return self.durations.seconds(trial) <= self.left_s

    def measured(self, trial: TrainingTrial, figures: Sequence[Mapping[str, Any]]) -> None:
        """See GroupListener."""
        name = self._campaign.name
        self._settle(trial, measured_result(name, trial, self._facts, self._group_start_s, figures))
        self._report.measured.append(trial)
        self.durations.add_trial(trial, time.monotonic() - self._trial_begun_s)

    def failed(self, trial: TrainingTrial, error: str) -> None:
        """See GroupListener."""
        self._settle(trial, failed_result(self._campaign.name, trial, self._facts, error))
        self._report.failed[str(trial)] = error

    def _settle(self, trial: TrainingTrial, result: TrialResult) -> None:
        self._store.add(result)
        self.tried.append(trial)
        self.ahead.remove(trial)


def _run_all(
    campaign: Campaign,
    wanted: Sequence[TrainingTrial],
    known: Sequence[TrainingTrial],
    recorder: _Recorder,
    address: str | None,
) -> None:
    """Settle all that is wanted, or as much of it as the budget allows."""
    left = list(wanted)
    for _, trials in _by_session(sorted(left, key=lambda trial: trial.group.num_nodes), address):
        if address in (None, LOCAL):
            check_capacity(trials, _local_nodes(campaign, trials))
    while left:
        recorder.ahead = _chosen(left, [*known, *recorder.tried], recorder)
        before = len(recorder.tried)
        for num_nodes, trials in _by_session(list(recorder.ahead), address):
            with _session(campaign, trials, num_nodes, address) as ray, GroupRunner(ray) as runner:
                check_capacity(trials, _nodes_of(ray))
                for group, same in groupby(trials, key=lambda trial: trial.group):
                    if recorder.has_time():
                        recorder.show("")
                        runner.run(group, list(same), recorder)
        if len(recorder.tried) == before:
            return
        tried = {trial.identity for trial in recorder.tried}
        left = [trial for trial in left if trial.identity not in tried]


def _chosen(
    left: Sequence[TrainingTrial], known: Sequence[TrainingTrial], recorder: _Recorder
) -> list[TrainingTrial]:
    """The trials to measure next, those of a group together, groups in the order of their first trial."""
    trials = list(left)
    if math.isfinite(recorder.left_s):
        trials = most_informative(
            left,
            recorder.left_s,
            seconds=recorder.durations.seconds,
            group_start_s=recorder.durations.group_start_s,
            known=known,
        )
    groups = list(dict.fromkeys(trial.group for trial in trials))
    return sorted(trials, key=lambda trial: (trial.group.num_nodes, groups.index(trial.group)))


def _by_session(
    trials: Sequence[TrainingTrial], address: str | None
) -> Iterator[tuple[int, list[TrainingTrial]]]:
    """Trials that one connection serves: all on a cluster; on this machine those of as many nodes."""
    if address not in (None, LOCAL):
        if trials:
            yield 1, list(trials)
        return
    for num_nodes, group in groupby(trials, key=lambda trial: trial.group.num_nodes):
        yield num_nodes, list(group)


@contextmanager
def _session(
    campaign: Campaign, trials: Sequence[TrainingTrial], num_nodes: int, address: str | None
) -> Iterator[Any]:
    """Ray for some of the trials."""
    cpus = max(int(node.cpus) for node in _local_nodes(campaign, trials))
    session = ray_session(address, num_cpus=cpus) if num_nodes == 1 else local_cluster(num_nodes, cpus)
    with session as ray:
        try:
            yield ray
        except ray.exceptions.RayError as error:
            raise PrecisionTimeError(
                f"Ray was lost during the campaign: {' '.join(str(error).split())}. To fix: run the same "
                "command again; what was measured is stored."
            ) from error


@dataclass(frozen=True, kw_only=True, slots=True)
class RayNode:
    """What a living node of the cluster offers."""

    cpus: float
    gpus: float


def _nodes_of(ray: Any) -> list[RayNode]:
    """The living nodes of the connected cluster."""
    resources: list[Mapping[str, float]] = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    return [RayNode(cpus=each.get("CPU", 0.0), gpus=each.get("GPU", 0.0)) for each in resources]


def _local_nodes(campaign: Campaign, trials: Sequence[TrainingTrial]) -> list[RayNode]:
    """What this machine offers as one node; as several, where trials are placed on several."""
    torch = import_torch()
    cores = usable_cores()
    gpus = int(torch.cuda.device_count()) if torch.cuda.is_available() else 0
    num_nodes = max((trial.group.num_nodes for trial in trials), default=1)
    needed = (math.ceil(trial.group.num_workers * trial.group.cpus_per_worker) for trial in trials)
    if campaign.oversubscribe:
        cores = max(cores, *needed)
    if num_nodes == 1:
        return [RayNode(cpus=cores, gpus=gpus)]
    return [RayNode(cpus=cores // num_nodes, gpus=gpus / num_nodes)] * num_nodes


def check_capacity(trials: Sequence[TrainingTrial], nodes: Sequence[RayNode]) -> None:
    """Refuse trials that the cluster cannot hold, before anything is started on it.

    Raises:
        ConfigError: If a trial asks for more CPUs, GPUs or nodes than there are; it names the trial.
    """
    first = {trial.group: trial for trial in reversed(trials)}
    for group, trial in first.items():
        if group.num_nodes > len(nodes):
            raise ConfigError(
                f"The trial {trial} is to be placed over {group.num_nodes} nodes, the cluster has "
                f"{len(nodes)}. To fix: fewer nodes, or connect to a larger cluster with --address."
            )
        _check_resource(trial, "CPU", group.cpus_per_worker, [node.cpus for node in nodes])
        _check_resource(trial, "GPU", group.gpus_per_worker, [node.gpus for node in nodes])


def _check_resource(trial: TrainingTrial, what: str, each: float, offered: Sequence[float]) -> None:
    workers = trial.group.num_workers
    if each and sum(int(amount / each + 1e-9) for amount in offered) < workers:
        raise ConfigError(
            f"The trial {trial} needs {workers} workers x {each:g} {what} = {workers * each:g} {what}, the "
            f"cluster has {sum(offered):g} on {len(offered)} node{'s' * (len(offered) != 1)}. "
            f"To fix: {_REMEDIES[what]}."
        )


@contextmanager
def local_cluster(nodes: int, cpus_per_node: int) -> Iterator[Any]:
    """Ray, connected to several nodes that this machine simulates, each with separate processes.

    Shows what crossing nodes costs in Ray; the network between them is the machine's loopback.

    Args:
        nodes: How many.
        cpus_per_node: CPUs that each offers.

    Yields:
        The module.

    Raises:
        MissingExtraError: If Ray is not installed.
        ConfigError: If Ray is connected to something already.
    """
    ray = import_ray()
    if ray.is_initialized():
        raise ConfigError("Ray is connected already. To fix: leave that session first.")
    from ray.cluster_utils import Cluster

    logging.getLogger("ray").setLevel(logging.ERROR)
    node = {
        "num_cpus": cpus_per_node,
        "object_store_memory": OBJECT_STORE_BYTES,
        "node_ip_address": LOOPBACK,
    }
    with loopback(ray):
        cluster = Cluster(initialize_head=True, head_node_args={**node, "include_dashboard": False})
        try:
            for _ in range(nodes - 1):
                cluster.add_node(**node)
            with ray_session(cluster.address):
                yield ray
        finally:
            cluster.shutdown()
