"""A Measurement: one published training run, normalised, with everything that was assumed about it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from enum import StrEnum
from typing import Any

from ..cost.job import TimingScope
from ..cost.stacks import Stack
from ..errors import CorpusError
from ..parallel.layout import Layout
from ..records import dataclass


class Quality(StrEnum):
    """How far a row can be trusted as a step time."""

    FINE = "fine"
    SUSPECT = "suspect"  # the number stands, but something about it is odd or missing
    UNUSABLE = "unusable"  # no step time, or one that means something else


@dataclass(frozen=True, kw_only=True, slots=True)
class Measurement:
    """One training configuration and how long a step of it took."""

    source: str
    source_ref: str
    """repository@commit:path, or wherever else the figure was read."""
    run_id: str = ""
    """Rows of one run (repeats, neighbouring measurements) share it."""
    model: str
    sizes: Mapping[str, Any] = field(default_factory=dict)
    """Sizes of the model as its source states them (hidden, layers, image_size, ...)."""
    task: str = ""
    dataset: str = ""
    dataset_samples: int | None = None
    framework: str = ""
    framework_version: str = ""
    device: str
    num_devices: int
    num_nodes: int
    placement: tuple[int, ...] = ()
    """Devices on each node where the source says so; empty when the nodes are equally filled."""
    system: str = ""
    intra_node: str = ""
    inter_node: str = ""
    precision: str
    """Canonical word of the precision policy, filled in where the source is silent."""
    precision_variant: str = ""
    """Variant of the policy (apex-o2, megatron, fsdp ...); empty for the policy as it stands."""
    precision_detail: str = ""
    """What the source says of its precision, verbatim."""
    optimizer: str = ""
    layout: Layout | None = None
    """None where the batch of a step is not known."""
    global_batch_size: float | None = None
    """Samples per optimizer step over all devices."""
    seq_len: int | None = None
    """Tokens per sample."""
    throughput: float | None = None
    """Whole job, in `throughput_unit`."""
    throughput_unit: str = ""
    measured_step_time_s: float | None = None
    """Per optimizer step; None where no step time can be derived."""
    sync_time_s: float | None = None
    """Of the step: waiting for the gradient exchange after the backward pass, where measured."""
    mfu: float | None = None
    tflops_per_device: float | None = None
    peak_memory_bytes: float | None = None
    """Largest memory that one device allocated, where the source says so."""
    epochs: float | None = None
    time_to_train_s: float | None = None
    scope: TimingScope = TimingScope.UNKNOWN
    stack: Stack = field(default_factory=Stack)
    quality: Quality = Quality.FINE
    quality_reason: str = ""
    weight: float = 1.0
    """For fitting: 1 for a row beyond doubt, less for suspect ones, 0 for unusable ones."""
    repeat_count: int = 1
    """Runs behind this row, or rows of the same configuration, whichever is more."""
    spread: float | None = None
    """(largest - smallest) / median step time over those repeats; None without repeats."""
    configuration_key: str = ""
    """Equal for rows that measure the same configuration."""
    inferred: tuple[str, ...] = ()
    """Raw columns that the source does not state: the collector of the row or a rule filled them in."""
    notes: str = ""
    assumptions: tuple[str, ...] = ()
    """What the importer filled in, in words."""
    row_id: int = field(default=0, compare=False)
    """Number of the row in the store it was read from; 0 outside one."""

    @property
    def usable(self) -> bool:
        """Whether the row says how long a step of a known batch takes."""
        return (
            self.quality is not Quality.UNUSABLE
            and self.measured_step_time_s is not None
            and self.layout is not None
        )

    @property
    def step_time_s(self) -> float:
        """Seconds per optimizer step.

        Raises:
            CorpusError: If the row has none; ask `usable` first.
        """
        if self.measured_step_time_s is None:
            raise CorpusError(
                f"The row {self.source_ref} of {self.source} has no step time ({self.quality_reason}). "
                "To fix: keep to rows whose `usable` is true."
            )
        return self.measured_step_time_s

    @property
    def precision_inferred(self) -> bool:
        """Whether the source of the row does not state its precision."""
        return "precision" in self.inferred

    @property
    def micro_batch_size(self) -> float | None:
        """Samples per forward pass and model replica."""
        return None if self.layout is None else self.layout.micro_batch_size

    @property
    def num_microbatches(self) -> int | None:
        """Forward passes per optimizer step and replica."""
        return None if self.layout is None else self.layout.num_microbatches


@dataclass(frozen=True, kw_only=True, slots=True)
class Rejected:
    """A row that names no configuration at all, and why."""

    row_number: int
    """Line in the file, the header being 1."""
    reason: str
    source: str = ""
    source_ref: str = ""
    model: str = ""
