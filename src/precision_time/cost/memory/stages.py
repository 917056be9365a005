"""Layouts and pipeline stages as numbers or arrays: what memory is arithmetic on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from itertools import accumulate

import numpy as np

from ...arrays import Floats, Indices, Number
from ...parallel.layout import Layout, Offload, PipelineSchedule, Recompute, layers_of_stages
from ...parallel.schedules.registry import schedule_of
from ...records import dataclass
from ..job import Jobs
from .parts import ModelParts


@dataclass(frozen=True, kw_only=True, slots=True)
class Layouts:
    """Layouts as memory sees them: numbers of one layout, or arrays of shape (n,), one of n jobs each."""

    dp: Number
    tp: Number
    pp: Number
    cp: Number
    ep: Number
    etp: Number
    """Tensor-parallel degree inside an expert."""
    zero_stage: Number
    shards: Number
    """Ranks that share the states of one copy."""
    expert_shards: Number
    reshards: Number
    prefetch: Number
    offloads: Number
    offloads_parameters: Number
    exchanges: Number
    """Data-parallel ranks exchange gradients from buckets."""
    sequence_parallel: Number
    selective: Number
    full: Number
    recomputed_share: Number

    @classmethod
    def of(cls, layouts: Sequence[Layout], under: Indices | None = None) -> Layouts:
        """The layout of each job, shape (n,): those that `under` names; numbers of one for all."""
        rows = [_row(layout) for layout in layouts]
        columns: Sequence[Number] = rows[0]
        if under is not None:
            columns = [*np.array(rows, dtype=np.float64).T[:, under]]
        return cls(**dict(zip(_COLUMNS, columns, strict=True)))


_COLUMNS = tuple(item.name for item in fields(Layouts))


def _row(layout: Layout) -> tuple[float, ...]:
    shards, engine = layout.shard_ranks, layout.data_parallel_engine
    return (
        *(layout.dp, layout.tp, layout.pp, layout.cp, layout.ep, layout.tensor_degree_of_experts),
        *(layout.zero_stage, shards, min(layout.expert_data_ranks, shards)),
        *(layout.reshard_after_forward, layout.prefetch),
        *(layout.offload is not Offload.NONE, layout.offload is Offload.PARAMETERS),
        layout.data_ranks > 1 and engine == "ddp",
        layout.sequence_parallel,
        layout.recompute is Recompute.SELECTIVE,
        layout.recompute is Recompute.FULL,
        layout.recompute_share,
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Stages:
    """Pipeline stages: of one layout numbers or (S, 1), of n layouts (S, n)."""

    start: Number
    """Layers before it."""
    layers: Number
    first: Number
    """1 for the first stage, else 0; as `last`."""
    last: Number
    in_flight: Number
    """Micro batches whose activations a stage holds at its peak."""

    @classmethod
    def of(
        cls,
        group: Jobs,
        layouts: Sequence[Layout],
        parts: ModelParts,
        under: Indices | None = None,
        *,
        every: bool = False,
    ) -> Stages:
        """The stages of layouts of which one is the fullest, or every stage of one layout."""
        if all(layout.pp == 1 for layout in layouts):
            return cls(start=0.0, layers=parts.num_layers, first=1.0, last=1.0, in_flight=1.0)
        known: dict[tuple[int, tuple[int, ...]], Sequence[_StageRow]] = {}
        columns: list[Sequence[_StageRow]] = []
        for layout in layouts:
            cut = layout.pp, layout.stage_layers
            if cut not in known:
                stages = _stages(parts.num_layers, *cut)
                known[cut] = stages if every else _fullest_stages(stages, parts.leading)
            columns.append(known[cut])
        found = np.array(columns, dtype=np.float64).T
        index, start, layers, first, last = found if under is None else found[:, :, under]
        flying = _in_flight(index, layouts, group.num_microbatches, under)
        return cls(start=start, layers=layers, first=first, last=last, in_flight=flying)


def _in_flight(index: Floats, layouts: Sequence[Layout], counts: Floats, under: Indices | None) -> Number:
    """Micro batches whose activations stages hold, shapes as of `Stages`."""
    if under is None:
        return micro_batches_in_flight(index, layouts[0], counts)
    kinds = [(layout.pp, layout.schedule, layout.vpp) for layout in layouts]
    places = {kind: place for place, kind in enumerate(kinds)}
    kind_of = np.array([places[kind] for kind in kinds])[under]
    found = np.empty_like(index)
    for place in places.values():
        rows = np.flatnonzero(kind_of == place)
        found[:, rows] = micro_batches_in_flight(index[:, rows], layouts[place], counts[rows])
    return found


_StageRow = tuple[float, float, float, float, float]


def _stages(num_layers: float, pp: int, stage_layers: tuple[int, ...]) -> list[_StageRow]:
    """Index, layers before it, its layers, whether it is the first, and the last, of every stage."""
    if pp == 1:
        return [(0.0, 0.0, num_layers, 1.0, 1.0)]
    layers_of = layers_of_stages(int(num_layers), Layout(pp=pp, stage_layers=stage_layers))
    before = accumulate(layers_of, initial=0)
    return [
        (float(index), float(start), float(layers), float(index == 0), float(index == pp - 1))
        for index, (start, layers) in enumerate(zip(before, layers_of, strict=False))
    ]


def _fullest_stages(stages: Sequence[_StageRow], leading: float) -> tuple[_StageRow, ...]:
    """The first stage, the last, and the fullest of those between where it has more layers than the first.

    With as many layers the first holds more: the embedding, and at least as many micro batches in flight.
    Where `leading` layers differ from the others, the fullest behind them counts, too. Always four, so that
    layouts form an array: a stage may stand twice.
    """
    if len(stages) == 1:
        return (*stages, *stages, *stages, *stages)

    def fullest(of: Sequence[_StageRow]) -> _StageRow:
        return max(of, key=lambda stage: (stage[2], -stage[0]))

    behind = [stage for stage in stages[:-1] if stage[1] >= leading]
    return stages[0], fullest(stages[:-1]), fullest(behind or stages[:-1]), stages[-1]


def micro_batches_in_flight(stage: Number, layout: Layout, counts: Number | None = None) -> Number:
    """Micro batches whose activations a stage holds at its peak, in units of one full stage.

    Args:
        stage: Of the pipeline, () or (S, 1) or (S, C).
        layout: Stages, chunks, schedule.
        counts: Micro batches of a step, () or (C,); those of the layout unless given.
    """
    counts = layout.num_microbatches if counts is None else counts
    if layout.pp == 1:
        return 1.0
    virtual = layout.vpp if layout.schedule is PipelineSchedule.INTERLEAVED else 1
    return schedule_of(layout.schedule).in_flight(stage, layout.pp, counts, virtual)
