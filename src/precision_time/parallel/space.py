"""The layouts that a model can take on a cluster: degrees, sharding, schedules, batches, recomputation.

A `Frame` fixes everything but the micro batch and the recomputation; those two are what memory decides
(`cost/search.py`). Host memory is tried where `offload` says so.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field, fields
from itertools import product
from typing import Any, get_args, get_type_hints

from ..errors import LayoutError
from ..fields import Varied
from ..records import dataclass
from .layout import Layout, Offload, PipelineSchedule, Recompute, layers_of_stages
from .schedules.interleaved import check_groups
from .schedules.registry import searched_schedules
from .shape import ModelShape
from .validation import check_model_layout

_LEAST_TOKENS = 2048
"""Tokens that a context-parallel rank keeps at least; below, a block of the ring is over in microseconds."""
_MOST_STAGES = 64
_HYBRID_DOMAINS = (1, 8)
"""Hybrid sharding keeps a copy of the model within so many nodes."""
_NUMBERS = re.compile(r"\d[\d.,x]*")
Fixed = Mapping[str, tuple[Any, ...]]
"""Values that some fields of a layout must have."""
COPIES = "dp_replicate"
"""What may be fixed beside them: copies over the data ranks, torchtitan's word for what `dp_shard` leaves."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Frame:
    """Layouts that differ in the micro batch and the recomputation only."""

    settings: Mapping[str, Any]
    """Fields of the layout, all but those two and the number of micro batches."""
    batches: tuple[tuple[float, int], ...]
    """Micro batch [samples] and number of micro batches, ascending in the first."""
    recompute: tuple[Recompute, ...]
    """From the least recomputation to the most."""
    layers: int = 1
    """Layers of a model chunk: full recomputation covers as few as memory asks for; 1: all."""

    def __len__(self) -> int:
        return len(self.batches) * len(self.recompute)

    @property
    def recomputations(self) -> list[tuple[Recompute, float]]:
        """Modes of recomputation, each with the share of the layers that it covers."""
        share = self.settings.get("recompute_layers", 0.0)
        return [(mode, share) for mode in self.recompute]

    def layout(self, batch: tuple[float, int], recompute: Recompute, share: float | None = None) -> Layout:
        """One of its layouts; `share` of the layers where full recomputation does not cover all."""
        settings = self.settings if share is None else {**self.settings, "recompute_layers": share % 1.0}
        return Layout(
            micro_batch_size=batch[0],
            num_microbatches=batch[1],
            recompute=recompute,
            **settings,
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Refusals:
    """Why layouts were refused, and how many: the first refusal by each rule stands for all."""

    counts: Counter[str] = field(default_factory=Counter)
    rules: dict[str, str] = field(default_factory=dict)
    """Each rule, without its numbers, to its first refusal."""

    def add(self, reason: str) -> None:
        """Count a refusal under its rule."""
        self.counts[self.rules.setdefault(_NUMBERS.sub("", reason), reason)] += 1


@dataclass(frozen=True, kw_only=True, slots=True)
class Space:
    """The candidates of a model on a number of devices."""

    shape: ModelShape
    num_devices: int
    devices_per_node: int
    """Of one fast domain (node, NVLink rack)."""
    batch: int
    """Rows of a step over all devices: samples, times the rows of each."""
    rows_per_sample: int = 1
    fixed: Fixed = field(default_factory=dict)
    """The fields that are not varied."""
    beyond_domain: bool = False
    """The tensor degree may exceed the devices of one fast domain."""
    offload: bool = False
    """Candidates that keep states or parameters in host memory, instead of those that do not."""
    by_layer: bool = False
    """Full recomputation of some layers only, as many as memory asks for."""

    def frames(self, refused: Refusals | None = None) -> Iterator[Frame]:
        """All candidates that pass the checks of a layout, frame by frame; those that fail are counted."""
        refused = Refusals() if refused is None else refused
        for degrees in self._degrees(refused):
            batches, undivided = self._batches(self.batch // degrees["dp"])
            for experts in self._experts(degrees, refused):
                for sharding in self._sharding(degrees):
                    for schedule in self._schedules(degrees):
                        for reason in undivided:
                            refused.add(reason)
                        settings = {**degrees, **experts, **sharding, **schedule}
                        yield from self._frame(settings, batches, refused)

    def _pick(self, name: str, usual: Iterable[Any]) -> tuple[Any, ...]:
        """The values that the caller fixed, else the usual ones."""
        return self.fixed.get(name) or tuple(usual)

    def _frame(
        self, settings: dict[str, Any], batches: tuple[tuple[float, int], ...], refused: Refusals
    ) -> Iterator[Frame]:
        """The frame of settings that hold, with those of its batches that divide."""
        extra = {name: values for name, values in self.fixed.items() if name in _PASSED_ON}
        for values in product(*extra.values()):
            whole = settings | dict(zip(extra, values, strict=True))
            if whole.get("ep", 1) == 1:  # nothing is sent that these could hide or spare
                whole = {name: value for name, value in whole.items() if name not in _OF_CUT_EXPERTS}
            held = self._held(whole, batches, refused)
            if held:
                yield Frame(
                    settings=whole,
                    batches=held,
                    recompute=self._pick("recompute", self._modes()),
                    layers=self._layers_of_chunk(whole),
                )

    def _held(
        self, settings: Mapping[str, Any], batches: tuple[tuple[float, int], ...], refused: Refusals
    ) -> tuple[tuple[float, int], ...]:
        """The batches with which the layout passes its checks; of the others the reasons are counted."""
        held: list[tuple[float, int]] = []
        grouped = settings.get("schedule") is PipelineSchedule.INTERLEAVED
        for size, count in batches:
            try:
                if held:  # all but the number of micro batches was checked with the first
                    if grouped and count % settings["pp"]:
                        check_groups(settings["pp"], count)
                else:
                    layout = Layout(micro_batch_size=size, num_microbatches=count, **settings)
                    check_model_layout(layout, self.shape, num_devices=self.num_devices)
            except LayoutError as error:
                refused.add(str(error))
            else:
                held.append((size, count))
        return tuple(held)

    def _modes(self) -> tuple[Recompute, ...]:
        return tuple(Recompute) if (self.shape.num_layers or 1) > 1 else (Recompute.NONE,)

    def _layers_of_chunk(self, settings: Mapping[str, Any]) -> int:
        """What full recomputation counts in (Megatron: per chunk of a stage); 1 where all or nothing."""
        if not self.by_layer or {"recompute", "recompute_layers"} & self.fixed.keys():
            return 1
        layers, left = divmod(self.shape.num_layers or 1, settings["pp"] * settings.get("vpp", 1))
        return 1 if left else layers

    def _degrees(self, refused: Refusals) -> Iterator[dict[str, Any]]:
        """Degrees that multiply to the devices, with a batch that divides among the replicas."""
        world, batch = self.num_devices, self.batch
        for tp, pp, cp in product(self._tensor(), self._pipeline(), self._context()):
            if world % (tp * pp * cp):
                refused.add(
                    f"tp({tp}) * pp({pp}) * cp({cp}) = {tp * pp * cp} does not divide {world} devices."
                )
                continue
            dp = world // (tp * pp * cp)
            if "dp" in self.fixed and dp not in self.fixed["dp"]:
                continue
            if batch % dp:
                refused.add(f"global_batch_size({batch}) does not divide by dp({dp}).")
                continue
            for split in self._pick("sequence_parallel", (tp > 1,)):
                yield {"tp": tp, "pp": pp, "cp": cp, "dp": dp, "sequence_parallel": split}

    def _tensor(self) -> tuple[int, ...]:
        """Powers of two that divide the heads, within one fast domain unless nothing fits there."""
        heads = self.shape.heads or 1
        most = self.num_devices if self.beyond_domain else self.devices_per_node
        return self._pick("tp", (tp for tp in powers_of_two(min(most, heads)) if heads % tp == 0))

    def _pipeline(self) -> tuple[int, ...]:
        """Divisors of the devices up to the layers; an uneven split is one too."""
        layers = (self.shape.num_layers or 1) if self.shape.heads else 1
        most = min(layers, self.num_devices, _MOST_STAGES)
        return self._pick("pp", (pp for pp in range(1, most + 1) if self.num_devices % pp == 0))

    def _context(self) -> tuple[int, ...]:
        """Powers of two that leave each rank a few thousand tokens."""
        tokens = self.shape.seq_len if self.shape.heads else None
        return self._pick("cp", powers_of_two(max((tokens or 1) // _LEAST_TOKENS, 1)))

    def _experts(self, degrees: Mapping[str, Any], refused: Refusals) -> Iterator[dict[str, Any]]:
        """Expert degrees over the devices of one stage, with whole experts or split as the other layers."""
        experts, tp = self.shape.num_experts, degrees["tp"]
        ranks = tp * degrees["cp"] * degrees["dp"]
        if not experts:
            fixed = {name: self.fixed[name][0] for name in ("ep", "etp") if name in self.fixed}
            yield fixed
            return
        for ep in self._pick("ep", (ep for ep in powers_of_two(experts) if experts % ep == 0)):
            for etp in self._pick("etp", dict.fromkeys((1, tp))):
                if ranks % (ep * etp):
                    refused.add(f"ep({ep}) * etp({etp}) does not divide the {ranks} devices of a stage.")
                else:
                    yield {"ep": ep, "etp": etp}

    def _sharding(self, degrees: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        """ZeRO stages; full sharding with and without a second gather, over all ranks or some nodes'."""
        stages, sizes = self._shards(degrees)
        for stage in stages:
            for place in self._pick("offload", _OFFLOADS.get(stage, ()) if self.offload else (Offload.NONE,)):
                moved = {"offload": place} if place is not Offload.NONE else {}
                if stage != 3:
                    yield {"zero_stage": stage, **moved}
                    continue
                # In a pipeline every micro batch would gather again: those who combine both keep them.
                again = self._pick("reshard_after_forward", (True, False) if degrees["pp"] == 1 else (False,))
                for dp_shard, reshard in product(sizes, again):
                    sharding = {"dp_shard": dp_shard, "reshard_after_forward": reshard}
                    yield {"zero_stage": 3, **sharding, **moved}

    def _shards(self, degrees: Mapping[str, Any]) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """ZeRO stages, and the ranks of a copy under full sharding (0: all); both as `COPIES` has them."""
        copies = [number for number in self.fixed.get(COPIES, ()) if number]
        if not copies:
            stages = self._pick("zero_stage", self._stages(degrees))
            return stages, self._pick("dp_shard", self._hybrid(degrees))
        ranks = degrees["dp"] * degrees["cp"]
        held = [number for number in copies if degrees["dp"] % number == 0]
        shards = [ranks // number % ranks for number in held if number < ranks]
        sizes = tuple(size for size in shards if size in self.fixed.get("dp_shard", (size,)))
        stages = (*((0,) if ranks in held else ()), *((3,) if sizes else ()))
        return tuple(stage for stage in stages if stage in self.fixed.get("zero_stage", (stage,))), sizes

    def _stages(self, degrees: Mapping[str, Any]) -> tuple[int, ...]:
        """ZeRO stages; with host memory those that shard what goes there, even if nobody shares it."""
        if self.offload or any(place is not Offload.NONE for place in self.fixed.get("offload", ())):
            return (2, 3) if degrees["pp"] == 1 else (1,)
        return (0, 1, 3) if degrees["dp"] * degrees["cp"] > 1 else (0,)

    def _hybrid(self, degrees: Mapping[str, Any]) -> Iterator[int]:
        """0 for full sharding, and the ranks that a copy within some nodes has."""
        yield 0
        ranks = degrees["dp"] * degrees["cp"]
        per_node = max(self.devices_per_node // degrees["tp"], 1)
        for nodes in _HYBRID_DOMAINS:
            if 1 < (size := per_node * nodes) < ranks and ranks % size == 0:
                yield size

    def _schedules(self, degrees: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        """Pipeline schedules, the interleaved one with every number of chunks that divides a stage."""
        pp, num_layers = degrees["pp"], self.shape.num_layers or 1
        if pp == 1:
            yield {}
            return
        stages = layers_of_stages(num_layers, Layout(pp=pp))
        uneven = {"stage_layers": stages} if num_layers % pp else {}
        for schedule in self._pick("schedule", searched_schedules()):
            if schedule is not PipelineSchedule.INTERLEAVED:
                if "vpp" not in self.fixed or 1 in self.fixed["vpp"]:
                    yield {"schedule": schedule, **uneven}
                continue
            # Of an uneven split, where embedding and loss fill up the ends (Llama 3 405B, section 3.3.2).
            filled = {layers + (bool(uneven) and stage in (0, pp - 1)) for stage, layers in enumerate(stages)}
            layers = filled.pop() if len(filled) == 1 else 1
            for chunks in self._pick("vpp", (v for v in range(2, layers + 1) if layers % v == 0)):
                if chunks > 1:
                    split = {} if layers % chunks else uneven
                    yield {"schedule": schedule, "vpp": chunks, **split}

    def _batches(self, per_replica: int) -> tuple[tuple[tuple[float, int], ...], list[str]]:
        """Micro batches that divide a replica's samples, and why the others do not."""
        rows = self.rows_per_sample
        usual = tuple(
            rows * size for size in (*powers_of_two(per_replica // rows), per_replica // rows) if size
        )
        found: list[tuple[float, int]] = []
        undivided: list[str] = []
        for size in sorted(set(self._pick("micro_batch_size", usual))):
            count = per_replica / size
            if count != int(count):
                undivided.append(
                    f"micro_batch_size({size:g}) does not divide the {per_replica} of a replica."
                )
            elif "num_microbatches" not in self.fixed or count in self.fixed["num_microbatches"]:
                found.append((float(size), int(count)))
        return tuple(found), undivided


VARIED = frozenset(
    name for name, hint in get_type_hints(Layout, include_extras=True).items() if Varied in get_args(hint)
)
"""Fields that a search varies."""
_OFFLOADS = {
    1: (Offload.OPTIMIZER,),
    2: (Offload.OPTIMIZER,),
    3: (Offload.OPTIMIZER, Offload.PARAMETERS),
}
"""What can live in host memory under each ZeRO stage."""
_OF_CUT_EXPERTS = frozenset({"expert_nodes", "expert_overlap"})
_PASSED_ON = frozenset(item.name for item in fields(Layout)) - VARIED
"""Fields that the search leaves as they are unless the caller says otherwise."""


def powers_of_two(most: int) -> tuple[int, ...]:
    """1, 2, 4 ... up to `most`.

    >>> powers_of_two(9)
    (1, 2, 4, 8)
    """
    return tuple(2**power for power in range(max(int(most), 1).bit_length()))
