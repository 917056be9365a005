"""What a search for a layout found, and the page that shows it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, field, fields
from typing import TYPE_CHECKING, Any

from ...cost.job import Job
from ...diagnostics import Diagnostic
from ...errors import ConfigError, LayoutError
from ...hardware.clusters import nodes_in_words
from ...parallel.layout import Layout, Offload, PipelineSchedule, Recompute
from ...plain import from_plain
from ...predict.prediction import Prediction
from ...records import dataclass
from ...render.blocks import GAP, TEXT_WIDTH, Block, Text, Tone, warnings
from ...render.result import Remarked
from ...render.table import Table
from ...request.request import Request
from ...request.schema import ALIASES
from ...units import format_bytes, format_duration, format_range, plain_name

if TYPE_CHECKING:
    from ...launch.emit import LaunchConfig

_SMALL_SHARE = 0.01
"""Terms below this share of every step shown are summed up as `other`."""
_REASONS_SHOWN = 3
_OWN_NAMES = {ALIASES[item.name]: item.name for item in fields(Layout) if item.name in ALIASES}
"""Fields of a layout by the names that `to_dict` gives them."""
_LEGEND = (
    (r"\b(\d+)x(\d+)\b", "{0}: {2} micro batches of {1} samples"),
    (r"\bhsdp(\d+)\b", "{0}: sharded within groups of {1} ranks"),
    (r"\bkept\b", "{0}: parameters stay gathered after the forward pass"),
    (r"\binterleaved(\d+)\b", "{0}: {1} model chunks per stage"),
    (r"\bfull:([\d.]+)", "{0}: {1} of the layers are recomputed"),
    (r"\boffload-(\w+)\b", "{0}: {1} in host memory"),
)
"""Words of a layout's name, and what they mean."""


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
            "layout": {ALIASES.get(name, name): value for name, value in asdict(self.layout).items()},
            "prediction": self.prediction.to_dict(),
        }

    @classmethod
    def from_dict(cls, given: Mapping[str, Any]) -> RankedLayout:
        """The way back from `to_dict`.

        Raises:
            ConfigError: If it is no such dictionary.
        """
        layout = given.get("layout")
        if isinstance(layout, Mapping):
            given = {**given, "layout": {_OWN_NAMES.get(name, name): value for name, value in layout.items()}}
        return from_plain(cls, given)


@dataclass(frozen=True, kw_only=True, slots=True)
class SearchCounts:
    """What became of the candidates: `enumerated` is the sum of the others but `refused`."""

    enumerated: int
    """Valid layouts."""
    too_large: int
    """Left out as they do not fit in memory."""
    recomputing: int
    """Left out as the same layout fits with less recomputation, or without host memory."""
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


@dataclass(frozen=True, kw_only=True, slots=True, repr=False)
class LayoutSearch(Remarked):
    """The best layouts of a job, fastest first."""

    model: str
    device: str
    gpus: int
    nodes: int
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
    request: Request | None = field(default=None, repr=False, compare=False)
    """What was asked."""

    def launch_config(self, launcher: str, pick: int = 1) -> LaunchConfig:
        """The flags or the configuration file of one of the ranked layouts.

        Args:
            launcher: torchrun, deepspeed, megatron, nemo, torchtitan, accelerate or fsdp.
            pick: Its rank, from 1.

        Raises:
            UnknownNameError: No such launcher.
            LayoutError: If it cannot run the layout; the message has every reason, and a rank that it can.
            ConfigError: If there is no such rank.
        """
        if not 1 <= pick <= len(self.ranked):
            raise ConfigError(
                f"pick={pick} is no rank: {len(self.ranked)} layouts are ranked. To fix: one of them, or "
                "more of them (top)."
            )
        from ...launch.api import config_of_job

        def config(place: int) -> LaunchConfig | LayoutError:
            request = self.request or Request(model=self.model)
            try:
                return config_of_job(self.jobs[place], request, launcher, self.ranked[place].prediction)
            except LayoutError as error:
                return error

        found = config(pick - 1)
        if not isinstance(found, LayoutError):
            return found
        ranks = range(1, len(self.ranked) + 1)
        runs = next((rank for rank in ranks if not isinstance(config(rank - 1), LayoutError)), None)
        other = f" Or the first of the {len(self.ranked)} that it can run: --pick {runs}."
        raise LayoutError(f"{found}{other if runs else ''}")

    def in_one_line(self) -> str:
        """What was asked, and the best."""
        found = "nothing fits"
        if self.ranked:
            best = self.ranked[0]
            found = f"best of {len(self.ranked)}: {layout_name(best.layout)}, {_short(best.prediction)}"
        return f"{_headline(self)}; {found}"

    def blocks(self, *, width: int = TEXT_WIDTH, why: bool = False) -> Iterator[Block]:
        """The page that `precision-time layout` prints; as many layouts show their terms as fit."""
        del why
        lead = [] if self.shortfall is None else _shortfall_lines(self.shortfall)
        yield from (Text(line, Tone.LEAD) for line in lead)
        yield from (Text(_headline(self), Tone.SOFT if lead else Tone.LEAD), GAP)
        if self.ranked:
            yield from (_ranking(self.ranked), GAP, Text(_legend(self.ranked), Tone.SOFT), GAP)
            yield from (_terms(self.ranked, width), GAP)
            yield from (Text(self.why), GAP) if self.why else ()
        yield from map(Text, _count_lines(self.counts))
        yield from (Text(f"Assumed: {line}") for line in self.assumptions)
        yield from warnings(self.ranked[0].prediction.warnings if self.ranked else self.warnings)

    def notebook(self) -> Iterator[Block]:
        """The ranking as a table."""
        yield Text(f"{_headline(self)}. {self.why if self.ranked else 'Nothing fits.'} ", Tone.LEAD)
        yield _ranking(self.ranked)


def layout_name(layout: Layout) -> str:
    """A layout in a few words: degrees above 1, sharding, schedule, batches, recomputation.

    >>> layout_name(Layout(tp=8, pp=4, dp=16, zero_stage=1, num_microbatches=64))
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
    if layout.dp_shard:
        words.append(f"hsdp{layout.dp_shard}")
    if layout.zero_stage == 3 and not layout.reshard_after_forward:
        words.append("kept")
    if layout.zero_stage == 3 and layout.prefetch != 1:
        words.append(f"prefetch{layout.prefetch}")
    if layout.pp > 1:
        chunks = layout.vpp if layout.schedule is PipelineSchedule.INTERLEAVED else ""
        words.append(f"{layout.schedule.value}{chunks}")
    words.append(f"{layout.micro_batch_size:g}x{layout.num_microbatches}")
    if layout.recompute is not Recompute.NONE:
        partly = layout.recompute is Recompute.FULL and layout.recompute_layers
        words.append(f"full:{layout.recompute_layers:.3g}" if partly else layout.recompute.value)
    if layout.offload is not Offload.NONE:
        words.append(f"offload-{layout.offload.value}")
    return " ".join(words)


def _legend(ranked: Sequence[RankedLayout]) -> str:
    """What the words of the names mean, by the first that has each."""
    names = " ".join(layout_name(each.layout) for each in ranked)
    found = ((re.search(pattern, names), text) for pattern, text in _LEGEND)
    return ". ".join(text.format(match[0], *match.groups()) for match, text in found if match) + "."


def _headline(search: LayoutSearch) -> str:
    nodes = nodes_in_words(search.nodes, search.assumptions)
    return (
        f"{search.model} on {search.gpus} x {search.device} ({nodes}), {search.precision}, "
        f"{search.stack}, {search.global_batch_size:,} samples per step"
    )


def _ranking(ranked: Sequence[RankedLayout]) -> Table:
    coverage = f"{ranked[0].prediction.interval.coverage:.0%} " if ranked else ""
    rows = (
        (
            str(place),
            layout_name(each.layout),
            format_duration(found.step_time_s),
            format_range(found.interval.low_s, found.interval.high_s),
            "-" if found.mfu is None else f"{found.mfu:.1%}",
            format_bytes(found.memory_bytes_per_device),
            f"{found.throughput:,.0f} {found.throughput_unit}",
        )
        for place, each in enumerate(ranked, start=1)
        if (found := each.prediction)
    )
    columns = ("", "layout", ">step time", f">{coverage}interval", ">MFU", ">memory", ">throughput")
    return Table(columns=columns, rows=tuple(rows))


def _short(prediction: Prediction) -> str:
    interval = prediction.interval
    return (
        f"{format_duration(prediction.step_time_s)} per step "
        f"({interval.coverage:.0%} interval {format_range(interval.low_s, interval.high_s)})"
    )


def _terms(ranked: Sequence[RankedLayout], width: int) -> Table:
    """Terms and memory as rows, layouts as columns, as many as fit."""
    shown = ranked[: max((width - 26) // 11, 1)]
    times = [each.prediction.terms for each in shown]
    steps = [each.step_time_s for each in shown]
    names = dict.fromkeys(name for terms in times for name in terms)
    large = [
        name
        for name in names
        if any(terms.get(name, 0.0) >= _SMALL_SHARE * step for terms, step in zip(times, steps, strict=True))
    ]
    large.sort(key=lambda name: -max(terms.get(name, 0.0) for terms in times))
    rows = [(plain_name(name), *(_duration(terms.get(name, 0.0)) for terms in times)) for name in large]
    rest = [sum(seconds for name, seconds in terms.items() if name not in large) for terms in times]
    if any(rest):
        rows.append(("other", *map(_duration, rest)))
        rows.append(("",) * len(rows[0]))
    memory = [each.prediction.memory_terms for each in shown]
    for name in dict.fromkeys(name for terms in memory for name in terms):
        sizes = [terms.get(name, 0.0) for terms in memory]
        if any(sizes):
            cells = (format_bytes(value) if value else "-" for value in sizes)
            rows.append((f"memory: {plain_name(name)}", *cells))
    columns = ("where the time goes", *(f">{place}" for place in range(1, len(shown) + 1)))
    return Table(columns=columns, rows=tuple(rows))


def _shortfall_lines(found: Shortfall) -> list[str]:
    largest = max(found.memory_terms, key=lambda name: found.memory_terms[name])
    missing = found.needed_bytes - found.capacity_bytes
    return [
        f"Nothing fits. The layout that needs the least, {layout_name(found.layout)}, needs "
        f"{format_bytes(found.needed_bytes)} of {format_bytes(found.capacity_bytes)} per device: "
        f"{format_bytes(missing)} too much. "
        f"Largest: {plain_name(largest)} ({format_bytes(found.memory_terms[largest])}).",
        *found.advice,
    ]


def _count_lines(counts: SearchCounts) -> list[str]:
    said = (
        f"{counts.enumerated:,} layouts: {counts.priced:,} priced, "
        f"{counts.too_large:,} do not fit, {counts.recomputing:,} recompute more than they need to, "
        f"{counts.outrun:,} slower by their kernels and bubble alone."
    )
    reasons = list(counts.refused.items())[:_REASONS_SHOWN]
    return [said, *(f"{count:,} refused: {reason.partition(' To fix')[0]}" for reason, count in reasons)]


def _duration(seconds: float) -> str:
    return format_duration(seconds) if seconds else "-"
