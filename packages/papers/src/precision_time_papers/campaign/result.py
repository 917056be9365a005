"""The result of a training trial: one training run, as it was asked for and as it was measured.

The fields are the columns of `campaign export` and of the store, in this order. They hold what the
performance models of Filippini et al. (SEAA 2023) are fitted on: training time against dataset size,
number of workers and resources per worker.
"""

from __future__ import annotations

import csv
import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar, TextIO

from pydantic import ConfigDict, TypeAdapter, ValidationError

from precision_time.cache import data
from precision_time.errors import CorpusError, validation_problems
from precision_time.io import open_input_text, table_cell
from precision_time_integrations.measure.trial import TrainingTrial

SCHEMA_VERSION = 3
"""Of the columns below and of the store. A column that is added or changes its meaning raises it."""

_OVERSUBSCRIBED, _SIMULATED = "oversubscribed", "simulated-nodes"
_LONGEST_ERROR = 500
_OF_TRIAL = (
    "key", "repeat", "model", "dataset", "num_samples", "batch_per_worker", "precision", "optimizer",
    "machine", "link_bytes_per_s", "data_origin",
)  # fmt: skip
_OF_WORKER = (
    "device", "framework_version", "ray_version", "python_version", "cpu_limit", "vector_isa",
)  # fmt: skip
_OF_GROUP = ("num_workers", "cpus_per_worker", "gpus_per_worker")


@dataclass(frozen=True, kw_only=True, slots=True)
class TrialResult:
    """One training run. None: does not apply or was not measured; nothing is ever estimated."""

    __pydantic_config__: ClassVar = ConfigDict(allow_inf_nan=False, coerce_numbers_to_str=True)

    # What was asked for.
    campaign: str
    key: str
    """Equal for trials that measure the same thing, repeats apart; with `repeat` unique in a store."""
    repeat: int
    """0, 1, ..."""
    model: str
    dataset: str
    """synthetic, digits, generated-images, or the path of an ImageFolder."""
    dataset_fraction: float
    """Share of the dataset, above 0 to 1."""
    num_samples: int
    """Of an epoch, over all workers: the fraction of the whole."""
    num_workers: int
    cpus_per_worker: float
    gpus_per_worker: float
    batch_per_worker: int
    """Samples of a worker's forward pass; the global batch is this times `num_workers`."""
    precision: str
    """fp32, tf32, bf16-mixed or fp16-mixed."""
    optimizer: str
    sizes: Mapping[str, float] = field(default_factory=dict)
    """Of the model, as the campaign gives them (hidden, layers ...); empty for the model's own."""
    status: str = "ok"
    """ok, or failed: then `error` says why and the measurements are None."""
    error: str = ""

    # Where it ran.
    framework: str = "torch"
    framework_version: str = ""
    ray_version: str = ""
    python_version: str = ""
    backend: str = ""
    """gloo or nccl; empty with one worker."""
    device: str = ""
    """Of the workers, as the device catalog spells it where it has it."""
    hosts: tuple[str, ...] = ()
    """Host name of each worker, by rank."""
    num_hosts: int = 1
    """Different machines among them."""
    num_ray_nodes: int = 1
    """Ray nodes of the workers: more than `num_hosts` where one machine plays several."""
    cores_per_host: int | None = None
    """Of the smallest host."""
    label: str = ""
    """Empty for a valid result; oversubscribed (more busy threads than cores on a host), simulated-nodes
    (several Ray nodes on one machine), or both with a blank between."""
    timestamp: str = ""
    """End of the run, UTC, ISO 8601."""

    machine: str = ""
    """What the campaign calls the type of its machines."""
    cpu_limit: str = ""
    """How `cpus_per_worker` was enforced ("cgroup-v1 1250/5000 us"); empty: Ray counted it only."""
    vector_isa: str = ""
    """Vector instructions of the workers' libraries, where they are CPUs: avx512, avx2 ... (processor.py)."""
    link_bytes_per_s: float | None = None
    """Of the network of a node, each way, as the campaign states it."""
    data_origin: str = ""
    """What the samples are and where they are read from; empty in results of older releases."""

    # Start-up, apart from training.
    group_start_s: float | None = None
    """From asking Ray for the workers to the last of them being ready, process group included. Trials that
    shared a group of workers share this figure."""
    build_s: float | None = None
    """Model, dataset and DDP wrapper."""
    first_step_s: float | None = None
    """Iteration 0: allocation, choice of kernels."""
    warmup_s: float | None = None
    """Iteration 0 and the warm-up steps together; they belong to no epoch."""

    # Steps, rank 0, warm-up apart [s].
    num_steps: int | None = None
    step_time_s: float | None = None
    """Median."""
    step_time_mean_s: float | None = None
    step_time_sd_s: float | None = None
    step_time_p90_s: float | None = None
    gradient_wait_s: float | None = None
    """Median per step from the last local gradient to the last reduced one; None with one worker."""
    gradient_wait_method: str = ""
    """ddp-hook-host-clock, ddp-hook-cuda-events, or empty."""
    input_s: float | None = None
    """Median per step of waiting for the batch: reading, decoding and augmenting where it comes from disk."""

    # Epochs [s].
    steps_per_epoch: int | None = None
    num_epochs: int | None = None
    """Whole epochs that were run."""
    epoch_time_s: float | None = None
    """Mean of the whole epochs."""
    epoch_times_s: tuple[float, ...] = ()
    train_time_s: float | None = None
    """All steps after the warm-up, from the first to the last."""
    total_time_s: float | None = None
    """group_start_s + build_s + warmup_s + train_time_s + evaluation_s + checkpoint_s: what a job of this one
    trial would have taken."""
    evaluation_s: float | None = None
    """Of all evaluations on held-out samples, the forward passes of the slowest worker."""
    evaluation_samples: int | None = None
    """Held-out samples of one evaluation, over all workers."""
    checkpoint_s: float | None = None
    """Of all checkpoints: written by rank 0 and on its disk (fsync), while the others wait."""
    checkpoint_bytes: float | None = None
    """Of one checkpoint: model and optimizer."""

    # Rates and resources.
    samples_per_s: float | None = None
    """Over all workers: global batch / step_time_s."""
    params: int | None = None
    peak_memory_bytes: float | None = None
    """Largest of the workers: allocated on the GPU; on a CPU the resident set of the process."""
    power_w: float | None = None
    """Mean of the GPUs over the timed steps, summed over the workers."""

    @property
    def identity(self) -> tuple[str, int]:
        """What a store holds once."""
        return self.key, self.repeat

    @property
    def valid(self) -> bool:
        """Measured, and with as many cores and machines as it claims."""
        return self.status == "ok" and not self.label

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready dictionary, columns in order."""
        return {name: _plain(getattr(self, name)) for name in COLUMNS}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> TrialResult:
        """The result of a dictionary whose values may be texts, as a CSV has them.

        Raises:
            CorpusError: If a column is missing that every result has, or a value cannot be read.
        """
        given = {name: _parsed(name, values[name]) for name in COLUMNS if name in values}
        try:
            return _reader().validate_python(given)
        except ValidationError as error:
            raise CorpusError(
                f"A result of a campaign cannot be read: {validation_problems(error)}. To fix: export the "
                "store again with `precision-time papers campaign export`."
            ) from error


COLUMNS = tuple(item.name for item in fields(TrialResult))
"""Of the CSV, in order."""
_JSON_COLUMNS = frozenset({"sizes", "hosts", "epoch_times_s"})


def measured_result(
    campaign: str,
    trial: TrainingTrial,
    facts: Sequence[Mapping[str, Any]],
    group_start_s: float | None,
    figures: Sequence[Mapping[str, Any]],
) -> TrialResult:
    """The result of a trial that was measured.

    Args:
        campaign: Its name.
        trial: As it was asked for.
        facts: Of each worker, by rank.
        group_start_s: How long the workers took to be ready.
        figures: What each worker measured, by rank; times are those of rank 0.
    """
    first = dict(figures[0])
    parts = ("build_s", "warmup_s", "train_time_s", "evaluation_s", "checkpoint_s")
    spent = (group_start_s, *(first.get(part) for part in parts))
    step_s = first.get("step_time_s")
    samples = trial.batch_per_worker * trial.group.num_workers
    powers = [each["power_w"] for each in figures if each.get("power_w") is not None]
    peaks = [each["peak_memory_bytes"] for each in figures if each.get("peak_memory_bytes") is not None]
    return TrialResult(
        **_requested(campaign, trial),
        **_location(facts),
        **{
            **first,
            "group_start_s": group_start_s,
            "total_time_s": sum(each for each in spent if each is not None),
            "samples_per_s": samples / step_s if step_s else None,
            "power_w": sum(powers) if len(powers) == len(figures) else None,
            "peak_memory_bytes": max(peaks, default=None),
        },
    )


def failed_result(
    campaign: str, trial: TrainingTrial, facts: Sequence[Mapping[str, Any]], error: str
) -> TrialResult:
    """The result of a trial that could not be measured, and why."""
    text = " ".join(error.split())
    short = text if len(text) <= _LONGEST_ERROR else text[: _LONGEST_ERROR - 3] + "..."
    return TrialResult(**_requested(campaign, trial), **_location(facts), status="failed", error=short)


def _requested(campaign: str, trial: TrainingTrial) -> dict[str, Any]:
    """The fields of a result that were known before."""
    return {
        "campaign": campaign,
        "dataset_fraction": trial.fraction,
        "sizes": dict(trial.sizes),
        "timestamp": datetime.now(UTC).isoformat(timespec="seconds"),
        **{name: getattr(trial, name) for name in _OF_TRIAL},
        **{name: getattr(trial.group, name) for name in _OF_GROUP},
    }


def _location(facts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The fields of a result that say where it ran; none before the workers have registered."""
    if not facts:
        return {}
    hosts = tuple(each["host"] for each in facts)
    busy: dict[str, float] = defaultdict(float)
    for each in facts:
        busy[each["host"]] += each["busy_cores"]
    cores = {each["host"]: each["cores"] for each in facts}
    nodes = len({each["ray_node"] for each in facts})
    labels = {
        _OVERSUBSCRIBED: any(busy[host] > cores[host] for host in cores),
        _SIMULATED: nodes > len(cores),
    }
    first = facts[0]
    return {
        "hosts": hosts,
        "num_hosts": len(cores),
        "num_ray_nodes": nodes,
        "cores_per_host": min(cores.values()),
        "label": " ".join(label for label, holds in labels.items() if holds),
        **{name: first[name] for name in _OF_WORKER},
        "backend": first["backend"] if len(facts) > 1 else "",
    }


def write_results(results: Iterable[TrialResult], file: TextIO) -> int:
    """Results as CSV. Returns how many there were."""
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(COLUMNS)
    count = 0
    for result in results:
        writer.writerow([_cell(value) for value in result.to_dict().values()])
        count += 1
    return count


def read_results_csv(path: str | Path) -> list[TrialResult]:
    """The results of a CSV that `campaign export` wrote.

    Raises:
        CorpusError: If the file cannot be read or holds something else.
    """
    try:
        with open_input_text(path, newline="") as file:
            reader = csv.DictReader(file)
            names, rows = reader.fieldnames or COLUMNS, list(reader)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise CorpusError(f"{path} cannot be read: {error}. To fix: check the path.") from error
    if "campaign" not in names or "key" not in names:
        raise CorpusError(
            f"{path} is no table of trials: it has no columns 'campaign' and 'key'. To fix: name a file that "
            "`precision-time papers campaign export` wrote."
        )
    return [TrialResult.from_dict({name: cell for name, cell in row.items() if cell}) for row in rows]


@data
def _reader() -> TypeAdapter[TrialResult]:
    return TypeAdapter(TrialResult)


def _parsed(name: str, value: Any) -> Any:
    """A value as pydantic checks it: lists and mappings are JSON in a CSV and in the store."""
    if name not in _JSON_COLUMNS or not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except ValueError:
        return value


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict(value)
    return list(value) if isinstance(value, tuple) else value


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, (list, dict)):
        return json.dumps(value, separators=(",", ":")) if value else ""
    return repr(value) if isinstance(value, float) else table_cell(" ".join(str(value).split()))
