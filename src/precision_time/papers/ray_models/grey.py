"""What our own predictor says of a point: the grey box's divisor, and the features only it may see."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ...cost.job import Job, Stack
from ...cost.stacks import get_stack, usual_profile
from ...errors import ConfigError
from ...hardware.catalog import get_cluster
from ...parallel.layout import Layout
from ...precision.catalog import get_policy, parse_precision
from ...workload.resolve import load_workload
from .features import Column, Feature, feature

Floats = NDArray[np.float64]

FIELDS = (
    "model", "device", "workers", "nodes", "node_type", "batch_per_worker", "precision", "stack", "optimizer",
    "grad_accum", "seq_len", "image_size",
)  # fmt: skip
"""What a job is asked by."""
_NEEDED = ("model", "device", "workers", "batch_per_worker")
_COUNTS = ("workers", "nodes", "grad_accum", "seq_len", "image_size")


@dataclass(frozen=True, kw_only=True, slots=True)
class GreyBox:
    """Where the fields of a job are found in a row."""

    PREDICTED: ClassVar[str] = "predicted_s"
    SHARE: ClassVar[str] = "predicted_exposed_share"

    fields: Mapping[str, str] = field(default_factory=dict)
    """Field of FIELDS to the column that holds it."""
    constants: Mapping[str, Any] = field(default_factory=dict)
    """Field of FIELDS to its value in every row."""
    times: str = ""
    """Column with the number of steps that the target spans; empty for one step."""
    given: bool = False
    """The columns `predicted_s` and `predicted_exposed_share` are in the data: nothing is asked."""

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns that a row must have for it."""
        if self.given:
            return (self.PREDICTED, self.SHARE)
        return tuple(dict.fromkeys((*self.fields.values(), *((self.times,) if self.times else ()))))

    @property
    def features(self) -> tuple[Feature, ...]:
        """What only a grey box sees: the predicted time, and the share of it that waits for others."""
        return feature(("log", self.PREDICTED)), feature(("value", self.SHARE))

    def check(self) -> None:
        """Refuse a box that cannot name a job.

        Raises:
            ConfigError: If a field is unknown, missing or given twice.
        """
        if self.given:
            return
        named = (*self.fields, *self.constants)
        for name in named:
            if name not in FIELDS:
                raise ConfigError(
                    f"grey_box: unknown field {name!r}. To fix: use some of {', '.join(FIELDS)}."
                )
        missing = [name for name in _NEEDED if name not in named]
        if missing:
            raise ConfigError(
                f"grey_box: {', '.join(missing)} not given. To fix: name its column under `fields`, or its "
                "value under `constants`."
            )

    def ask(self, columns: Mapping[str, Column]) -> dict[str, Floats]:
        """Predicted times and shares of waiting, shape (n,) each.

        Args:
            columns: Columns of the rows.

        Raises:
            ConfigError: If a row names a job that cannot be; as `predict_time` otherwise.
        """
        from ...learn.artifact import shipped_predictor
        from ...learn.serving import predict_step_times

        if self.given:
            return {name: columns[name].astype(np.float64) for name in (self.PREDICTED, self.SHARE)}
        count = len(next(iter(columns.values())))
        asked = [
            {**self.constants, **{name: columns[column][row] for name, column in self.fields.items()}}
            for row in range(count)
        ]
        keys = [tuple(sorted((name, str(value)) for name, value in item.items())) for item in asked]
        first = {key: index for index, key in enumerate(keys)}
        times = predict_step_times(
            [job_named(asked[index]) for index in first.values()], shipped_predictor(), coverage=0.9
        )
        place = {key: index for index, key in enumerate(first)}
        order = np.array([place[key] for key in keys], dtype=np.intp)
        seconds = times.step_time_s[order]
        if self.times:
            seconds = seconds * columns[self.times].astype(np.float64)
        share = (times.corrected.exposed_s / times.corrected.step_time_s)[order]
        return {self.PREDICTED: seconds, self.SHARE: share}

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        return {
            "fields": dict(self.fields),
            "constants": dict(self.constants),
            "times": self.times,
            "given": self.given,
        }

    @classmethod
    def from_dict(cls, stated: Mapping[str, Any]) -> GreyBox:
        """The box that `to_dict` wrote."""
        return cls(
            fields={str(name): str(column) for name, column in stated["fields"].items()},
            constants=dict(stated["constants"]),
            times=str(stated["times"]),
            given=bool(stated["given"]),
        )


def job_named(said: Mapping[str, Any]) -> Job:
    """The data-parallel job that some of FIELDS name."""
    counts = {name: _count(name, said[name]) for name in _COUNTS if said.get(name) not in (None, "")}
    workload = load_workload(
        str(said["model"]),
        seq_len=counts.get("seq_len"),
        image_size=counts.get("image_size"),
        sizes=None,
        dataset=None,
        optimizer=_word(said, "optimizer"),
    )
    workers = counts["workers"]
    cluster = _cluster(str(said["device"]), workers, counts.get("nodes"), _word(said, "node_type"))
    policy = parse_precision(_word(said, "precision") or "fp32")
    stack = _word(said, "stack")
    return Job(
        workload=workload,
        cluster=cluster,
        precision=get_policy(policy.name, variant=policy.variant),
        layout=Layout(
            dp=workers,
            micro_batch_size=float(said["batch_per_worker"]),
            num_micro_batches=counts.get("grad_accum", 1),
        ),
        stack=_stack(stack, workload.family),
    )


def _stack(name: str | None, family: str) -> Stack:
    return usual_profile(family).stack() if name is None else get_stack(name)


@lru_cache(maxsize=256)
def _cluster(device: str, workers: int, nodes: int | None, node_type: str | None) -> Any:
    return get_cluster(device=device, num_devices=workers, num_nodes=nodes, node_type=node_type)


def _word(said: Mapping[str, Any], name: str) -> str | None:
    return str(said[name]) if said.get(name) not in (None, "") else None


def _count(name: str, value: Any) -> int:
    number = float(value)
    if number < 1 or not number.is_integer():
        raise ConfigError(f"grey_box: {name} = {value} is no count. To fix: give a whole number from 1.")
    return int(number)
