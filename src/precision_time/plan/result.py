"""What a search for a layout found."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from ..cost.job import Job
from ..diagnostics import Diagnostic, Severity, texts_of
from ..parallel.layout import Checkpointing, Layout, PipelineSchedule
from ..predict.prediction import Prediction


@dataclass(frozen=True, kw_only=True, slots=True)
class RankedLayout:
    """One layout and what is predicted of it."""

    layout: Layout
    prediction: Prediction

    @property
    def step_time_s(self) -> float:
        """Predicted seconds per optimizer step."""
        return self.prediction.step_time_s

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready dictionary."""
        return {
            "name": layout_name(self.layout),
            "layout": asdict(self.layout),
            "prediction": self.prediction.to_dict(),
        }


@dataclass(frozen=True, kw_only=True, slots=True)
class SearchCounts:
    """What became of the candidates: `enumerated` is the sum of the others but `refused`."""

    enumerated: int
    """Valid layouts."""
    too_large: int
    """Left out as they do not fit in memory."""
    recomputing: int
    """Left out as the same layout fits with less recomputation."""
    outrun: int
    """Left out as their kernels and their bubble alone take longer than the best whole steps."""
    priced: int
    refused: Mapping[str, int] = field(default_factory=dict)
    """Why layouts were refused before, and how many."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Shortfall:
    """By how much the layout that needs the least misses the memory, and what to change."""

    layout: Layout
    needed_bytes: float
    capacity_bytes: float
    memory_terms: Mapping[str, float]
    advice: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class LayoutSearch:
    """The best layouts of a job, fastest first."""

    model: str
    device: str
    num_devices: int
    num_nodes: int
    precision: str
    stack: str
    global_batch_size: int
    """Samples per optimizer step."""
    ranked: tuple[RankedLayout, ...]
    """Empty where nothing fits: `shortfall` then says by how much."""
    counts: SearchCounts
    search_s: float
    """Seconds that the search took."""
    why: str = ""
    """Why the best is faster than the next, in words."""
    shortfall: Shortfall | None = None
    diagnostics: tuple[Diagnostic, ...] = ()
    """Of every layout; those of one layout are in its prediction."""
    jobs: tuple[Job, ...] = field(default=(), repr=False)
    """Of the ranked layouts, in their order."""

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready dictionary; keys are the field names, without the jobs."""
        found = {item.name: getattr(self, item.name) for item in fields(self) if item.name != "jobs"}
        return found | {
            "ranked": [each.to_dict() for each in self.ranked],
            "counts": asdict(self.counts),
            "shortfall": None if self.shortfall is None else asdict(self.shortfall),
            "diagnostics": [asdict(each) for each in self.diagnostics],
        }

    @property
    def assumptions(self) -> tuple[str, ...]:
        """What was filled in, in words."""
        return texts_of(self.diagnostics, Severity.ASSUMPTION)

    @property
    def warnings(self) -> tuple[str, ...]:
        """What to act on whatever the layout, in words."""
        return texts_of(self.diagnostics, Severity.WARNING)

    def __str__(self) -> str:
        """The page that `precision-time layout` prints."""
        from .render import to_text

        return to_text(self)


def layout_name(layout: Layout) -> str:
    """A layout in a few words: degrees above 1, sharding, schedule, batches, recomputation.

    >>> layout_name(Layout(tp=8, pp=4, dp=16, zero_stage=1, num_micro_batches=64))
    'tp8 pp4 dp16 zero1 1f1b 1x64'
    """
    words = [f"{name}{getattr(layout, name)}" for name in ("tp", "pp", "cp") if getattr(layout, name) > 1]
    words.append(f"dp{layout.dp}")
    if layout.ep > 1:
        words.append(f"ep{layout.ep}")
        if layout.tensor_degree_of_experts != layout.tp:
            words.append(f"etp{layout.tensor_degree_of_experts}")
    if layout.zero_stage:
        words.append(f"zero{layout.zero_stage}")
    if layout.shard_size:
        words.append(f"hsdp{layout.shard_size}")
    if layout.zero_stage == 3 and not layout.reshard_after_forward:
        words.append("kept")
    if layout.zero_stage == 3 and layout.prefetch != 1:
        words.append(f"prefetch{layout.prefetch}")
    if layout.pp > 1:
        chunks = layout.virtual_pp if layout.schedule is PipelineSchedule.INTERLEAVED else ""
        words.append(f"{layout.schedule.value}{chunks}")
    words.append(f"{layout.micro_batch_size:g}x{layout.num_micro_batches}")
    if layout.checkpointing is not Checkpointing.NONE:
        words.append(layout.checkpointing.value)
    return " ".join(words)
