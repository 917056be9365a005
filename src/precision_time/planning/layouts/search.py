"""The search: every candidate that fits and could win is priced, corrected and ranked."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from ...arrays import Floats, Indices
from ...cost.constants import constants
from ...cost.job import Job, Jobs
from ...cost.search import Pruned, fitting, host_bytes, merged, space_of, under
from ...diagnostics import Diagnostics
from ...errors import ConfigError, LayoutError
from ...executor import Executor, OneCopy, in_chunks
from ...learn.artifact import TrainedPredictor, shipped_predictor
from ...parallel.layout import EQUAL_WITHIN, Layout, Offload, Recompute, simplicity
from ...parallel.shape import ModelShape, model_shape
from ...parallel.space import Fixed, Frame, Refusals
from ...parallel.validation import layout_warnings
from ...precision.policy import PrecisionPolicy
from ...predict.answer import answer
from ...predict.remedies import at_layout
from ...request.request import Request
from ...units import format_bytes
from .advice import shortfall, why_first
from .pricing import Bounds, bounds_of, families_of, priced_by
from .result import LayoutSearch, RankedLayout, SearchCounts

Progress = Callable[[str, int, int], None]
"""Called with what is done now, how much of it is done, and how much there is."""

_SLACK = 1.05
"""A layout is priced unless its lower bound is this much above the best whole steps."""
_FRAMES = 512
"""Frames per task: some tenths of a second."""
_SAMPLES = 1, 3
"""Layouts of each kind that are priced first, for what they take above their bounds, and next of each kind
that may hold a fast one; as many more with the fewest micro batches. 19 searches of 21 to 15,235 layouts find
what three of every kind find; up to four tenths of the pricing are saved."""
_NEAR = 1.2
"""A kind may hold a fast layout unless the bounds of all are this much above the best so far."""
_ROUND = 256
"""Layouts between two looks at the best so far."""
_COVERAGE = 0.9
"""Of intervals that are not shown."""
_REASONS_NAMED = 3
_EQUAL = 1.0 + EQUAL_WITHIN


def search_layouts(
    job: Job,
    batch: int,
    *,
    fixed: Fixed | None = None,
    top: int = 10,
    exhaustive: bool = False,
    most: int | None = None,
    over: Executor = map,
    predictor: TrainedPredictor | None = None,
    coverage: float = 0.9,
    progress: Progress | None = None,
    request: Request | None = None,
) -> LayoutSearch:
    """The fastest layouts of a job.

    Candidates are checked, pruned by memory, and priced unless a lower bound rules them out
    (`pricing.Bounds`). The ranking is by the time that the answer to each says.

    Args:
        job: Under plain data parallelism: what it is under the others follows.
        batch: Rows of a step over all devices: samples, times the rows of each.
        fixed: Values that some fields of the layout must have (`parse_fixed`); the others are varied.
        top: Layouts to return, fastest first.
        exhaustive: Price every candidate that fits.
        most: Refuse more valid layouts than this before any is looked at; None for any number.
        over: What runs the chunks of candidates: `map`, or the map of a pool (`process_map`) or a cluster.
        predictor: Instead of the shipped one.
        coverage: Probability that the intervals hold, 0..1.
        progress: Called at every step.
        request: What the job was asked by: what it leaves open is in the answers of the layouts shown.

    Returns:
        Ranked layouts; none where nothing fits, with what misses and what to change.

    Raises:
        LayoutError: If no layout holds at all; the message says why.
        ConfigError: If `top` is below 1, or there are more than `most` layouts.
    """
    if top < 1:
        raise ConfigError(f"top={top} leaves nothing to show. To fix: top=1 or more.")
    start = time.perf_counter()
    report = progress or _ignored
    one = OneCopy(job)
    refused, kept = _candidates(one, batch, fixed or {}, over, report, most)
    pricing = _Pricing(
        job=one,
        predictor=predictor or shipped_predictor(),
        over=over,
        report=lambda done: report("pricing", done, len(kept.layouts)),
    )
    if kept.layouts:
        _price(pricing, kept.layouts, top, exhaustive)
    ranked = _ranked(pricing, top, coverage, request)
    nearest = None if ranked else kept.nearest
    missing = None if nearest is None else shortfall(job, batch, nearest, fixed or {})
    return LayoutSearch(
        model=job.workload.name,
        device=job.cluster.device.name,
        gpus=job.cluster.num_devices,
        nodes=job.cluster.num_nodes,
        precision=job.precision.name,
        stack=job.stack.profile,
        global_batch_size=batch // job.workload.rows_per_sample,
        ranked=ranked,
        counts=SearchCounts(
            enumerated=len(kept.layouts) + kept.too_large + kept.recomputing,
            too_large=kept.too_large,
            recomputing=kept.recomputing,
            outrun=len(kept.layouts) - len(pricing.layouts),
            priced=len(pricing.layouts),
            refused=dict(refused.counts.most_common()),
        ),
        search_s=time.perf_counter() - start,
        why=why_first(ranked),
        shortfall=missing,
        diagnostics=job.diagnostics,
        jobs=tuple(under(job, each.layout) for each in ranked),
    )


def _ignored(what: str, done: int, total: int) -> None:
    """Progress that is not shown."""


def _candidates(
    one: OneCopy[Job], batch: int, fixed: Fixed, over: Executor, report: Progress, most: int | None
) -> tuple[Refusals, Pruned]:
    """What fits within a fast domain, else what fits with tensor parallelism across them.

    Where all that fits recomputes whole layers, host memory is tried too: only then can it win, since moving
    states and parameters takes longer than keeping them.

    Raises:
        LayoutError: If there is no valid layout.
    """
    job = one.value

    def frames(refused: Refusals, **where: bool) -> tuple[Frame, ...]:
        space = space_of(job, batch, fixed=fixed, by_layer=True, **where)
        return tuple(_bounded(space.frames(refused), most))

    for beyond in (False, True):
        refused = Refusals()
        kept = _fitting(one, frames(refused, beyond_domain=beyond), over, report)
        if kept.layouts:
            break
    short = all(layout.recompute is Recompute.FULL for layout in kept.layouts)
    if short and "offload" not in fixed:
        moved = frames(Refusals(), beyond_domain=beyond, offload=True)
        capacity = constants("optimizers")["offload"]["host_bytes"]
        first = [frame.layout(frame.batches[0], frame.recompute[-1]) for frame in moved]
        room = [
            frame for frame, layout in zip(moved, first, strict=True) if host_bytes(job, layout) <= capacity
        ]
        too_large = sum(map(len, moved)) - sum(map(len, room))
        on_host = merged([Pruned(too_large=too_large), _fitting(one, room, over, report)])
        kept = merged([kept, _gaining(on_host, kept.layouts)])
    if kept.nearest is None:
        reasons = "; ".join(reason for reason, _ in refused.counts.most_common(_REASONS_NAMED))
        fields = ", ".join(f"{name}={'/'.join(map(str, values))}" for name, values in fixed.items())
        raise LayoutError(
            f"No layout of {job.workload.name} over {job.cluster.num_devices} devices holds with "
            f"global_batch_size={batch}"
            f"{' and ' + fields if fixed else ''}: {reasons or 'no degrees divide the devices'}. "
            "To fix: fix fewer fields, or use a batch that the replicas divide."
        )
    return refused, kept


def _gaining(offloaded: Pruned, plain: Sequence[Layout]) -> Pruned:
    """Of layouts in host memory, those that recompute less than on the device alone, if they fit there."""
    known = {replace(layout, **_RECOMPUTING_NONE): _recomputed_share(layout) for layout in plain}

    def gains(layout: Layout) -> bool:
        same = replace(layout, offload=Offload.NONE, **_RECOMPUTING_NONE)
        return _recomputed_share(layout) < known.get(same, math.inf)

    kept = tuple(filter(gains, offloaded.layouts))
    left = len(offloaded.layouts) - len(kept)
    return replace(offloaded, layouts=kept, recomputing=offloaded.recomputing + left)


_RECOMPUTING_NONE: Mapping[str, Any] = {"recompute": Recompute.NONE, "recompute_layers": 0.0}


def _recomputed_share(layout: Layout) -> float:
    """Share of the layers that the backward pass runs again."""
    return layout.recompute_share if layout.recompute is Recompute.FULL else 0.0


def _fitting(one: OneCopy[Job], frames: Sequence[Frame], over: Executor, report: Progress) -> Pruned:
    """All candidates that fit the devices."""
    parts: list[Pruned] = []
    chunks = in_chunks(frames, _FRAMES)
    for done, part in enumerate(over(partial(_fitting_here, one), chunks), start=1):
        parts.append(part)
        report("fitting", done, len(chunks))
    return merged(parts)


def _fitting_here(one: OneCopy[Job], frames: Sequence[Frame]) -> Pruned:
    return merged(fitting(one.here(), frames))


def _bounded(frames: Iterable[Frame], most: int | None) -> Iterator[Frame]:
    """The frames, as long as their layouts are no more than `most`.

    Raises:
        ConfigError: If they are.
    """
    count = 0
    for frame in frames:
        count += len(frame)
        if most is not None and count > most:
            raise ConfigError(
                f"More than {most:,} layouts are valid. The rule: no more of one search. To fix: fix some "
                "fields of the layout, as in tp=8 or zero_stage=1,3, or take fewer devices."
            )
        yield frame


@dataclass(slots=True)
class _Pricing:
    """Prices layouts, corrects their times and keeps both."""

    job: OneCopy[Job]
    predictor: TrainedPredictor
    over: Executor
    report: Callable[[int], None]
    layouts: list[Layout] = field(default_factory=list)
    corrected_s: list[float] = field(default_factory=list)

    def __call__(self, layouts: Sequence[Layout]) -> Floats:
        """Corrected times of some layouts more [s]."""
        before = len(self.layouts)
        priced = priced_by(self.job, layouts, self.over, lambda done: self.report(before + done))
        times = self.predictor.times(priced, coverage=_COVERAGE)
        self.layouts += layouts
        self.corrected_s += times.step_time_s.tolist()
        return times.step_time_s

    def fastest(self) -> dict[int, float]:
        """Seconds of all layouts so far, as answers say them, fastest first; of equal ones the simplest."""
        places = range(len(self.layouts))
        order = sorted(places, key=lambda place: (self.corrected_s[place], simplicity(self.layouts[place])))
        return {place: self.corrected_s[place] for place in order}

    def best_s(self, top: int) -> float:
        """The slowest of the fastest `top` so far."""
        return sorted(self.corrected_s)[:top][-1]


def _price(pricing: _Pricing, layouts: Sequence[Layout], top: int, exhaustive: bool) -> None:
    """Price some of each kind, then all that their bounds do not rule out, lowest first."""
    precision = _precision_by_stage(pricing.job.value, layouts)
    families = families_of(layouts, lambda layout: precision[layout.weights_stage])
    bounds = bounds_of(pricing.job, families, pricing.over)
    left = near = np.arange(len(bounds.layouts))
    for count in (len(left),) if exhaustive else _SAMPLES:
        left = _without(np.intersect1d(bounds.samples(count, near), left), left, bounds, pricing)
        near = bounds.near(_NEAR * pricing.best_s(top))
    chosen = left
    while len(chosen):
        lowest = bounds.of(left)
        order = np.argsort(lowest, kind="stable")[:_ROUND]
        chosen = left[order[lowest[order] <= _SLACK * pricing.best_s(top)]]
        left = _without(chosen, left, bounds, pricing)


def _without(chosen: Indices, left: Indices, bounds: Bounds, pricing: _Pricing) -> Indices:
    """What is left when some layouts are priced and learned from."""
    if len(chosen):
        bounds.learn(chosen, pricing([bounds.layouts[row] for row in chosen]))
    return np.setdiff1d(left, chosen)


def _precision_by_stage(job: Job, layouts: Sequence[Layout]) -> dict[int, PrecisionPolicy]:
    """What a job runs in under each ZeRO stage of some layouts."""
    some = {layout.weights_stage: layout for layout in layouts}
    return {stage: under(job, layout).precision for stage, layout in some.items()}


def _ranked(
    pricing: _Pricing, top: int, coverage: float, request: Request | None
) -> tuple[RankedLayout, ...]:
    """The fastest layouts by the time of their answer, with the whole answer for each.

    First comes the simplest of those that are as fast as the fastest: of layouts that no measurement could
    tell apart, nobody sets up the one with more parts.
    """
    plain, fastest = pricing.job.value, pricing.fastest()
    if not fastest:
        return ()
    equal_s = _EQUAL * min(fastest.values())
    equal = [index for index, shown_s in fastest.items() if shown_s <= equal_s]
    simplest = min((pricing.layouts[index] for index in equal), key=simplicity)
    best = [pricing.layouts[index] for index in [*fastest][:top]]
    if simplest not in best:
        best[-1] = simplest
    shape = model_shape(plain.workload.graph)
    jobs = [_remarked(under(plain, layout), plain, shape) for layout in best]
    requests = [] if request is None else [at_layout(request, job) for job in jobs]
    table = answer(Jobs.of(jobs), pricing.predictor, coverage=coverage, requests=requests)
    answers = [RankedLayout(layout=layout, prediction=each) for layout, each in zip(best, table, strict=True)]
    answers.sort(key=lambda each: each.step_time_s)
    return tuple(sorted(answers, key=lambda each: _behind(each, answers[0], simplest)))


def _remarked(job: Job, plain: Job, shape: ModelShape) -> Job:
    """A job with what is to be known of its layout."""
    found = Diagnostics([*job.diagnostics])
    found.warn("layout", *layout_warnings(job.layout, shape))
    if job.layout.offload is not Offload.NONE:
        on_host = format_bytes(host_bytes(plain, job.layout))
        found.warn("host-memory", f"Hosts must have {on_host} of memory per device for the offload.")
    return replace(job, diagnostics=tuple(found.items))


def _behind(each: RankedLayout, fastest: RankedLayout, simplest: Layout) -> bool:
    """Whether a layout comes after the simplest of the fastest."""
    return each.layout != simplest or each.step_time_s > _EQUAL * fastest.step_time_s
