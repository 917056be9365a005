"""`find_layouts`: the fastest layouts of a request."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ...cost.job import Job
from ...cost.search import under
from ...diagnostics import Diagnostic, Diagnostics, Severity
from ...errors import ConfigError, LayoutError
from ...executor import open_executor
from ...learn.artifact import chosen_predictor
from ...parallel.layout import Layout
from ...parallel.space import Fixed
from ...predict.answer import diagnostics_of
from ...predict.api import predict
from ...predict.remedies import at_layout, suggest_fit
from ...request.layout import habits_with_experts, parse_fixed
from ...request.lengths import check_full_rows
from ...request.method import degrees_of_method
from ...request.practice import axes_of
from ...request.published import usual_global_batch
from ...request.request import Request
from ...request.resolve import (
    assumed_precision,
    cluster_of,
    precision_of,
    stack_of,
    usual_stack_of,
    workload_of,
)
from ...request.schema import LAYOUT_OPTIONS, RequestFields
from ...request.signature import as_request, takes_request_fields
from ...workload.resolve import cautions_of, usual_of
from ...workload.workload import Workload
from .advice import usual_beside
from .result import LayoutSearch, RankedLayout
from .search import Progress, search_layouts

_OF_ONE_LAYOUT = frozenset(
    {
        *LAYOUT_OPTIONS,
        *(
            "anchors",
            "batch_size",
            "calibration",
            "epochs",
            "input_rate",
            "samples",
            "scope",
            "steps",
            "tokens",
        ),
    }
)
SEARCHED_FIELDS = tuple(name for name in RequestFields.model_fields if name not in _OF_ONE_LAYOUT)
"""Fields of a request that a search takes; the others belong to one layout or to a run."""


_UNUSED = Diagnostic(
    "calibration",
    Severity.WARNING,
    "Own measured steps (of the cluster, anchors) are not used in a search: its times are of the predictor "
    "alone. To fix: predict the layout that is chosen.",
)
DEFAULT_GPUS = 8
"""Devices that a layout is sought for when no number is given."""


@takes_request_fields(only=SEARCHED_FIELDS)
def find_layouts(
    model: Any,
    *,
    fix: Sequence[str] = (),
    top: int = 10,
    max_layouts: int | None = None,
    workers: int | None = 1,
    ray: str | None = None,
    progress: Progress | None = None,
    **options: Any,
) -> LayoutSearch:
    """The fastest layouts of a model on a cluster.

    Args:
        model: As `predict_time` takes it, or a `Request`.
        fix: Fields of the layout that are given, as "tp=8" or "zero_stage=1,3".
        top: Layouts to return.
        max_layouts: Refuse to search more valid layouts than this; None for any number.
        workers: Processes that price; None: one per core, at most 8.
        ray: Instead of processes: "local" for a Ray of its own with `workers` CPUs, or a cluster's address.
        progress: Called at every step with what is done, how much of it, and how much there is.
        options: Fields of `Request` but those of the layout, all optional. Without a global batch a step
            takes 4M tokens, or 32 samples per device; without a number of devices there are 8.

    Returns:
        Ranked layouts, each with its prediction; none where nothing fits, with what misses and what to
        change.

    Raises:
        UnknownNameError: Model, device, precision, stack or field of a layout that no catalog holds.
        ConfigError: Counts, batches or a precision that do not fit together.
        LayoutError: If no layout is valid.
        CaptureError: A model that cannot be turned into an operator graph.
    """
    fixed = parse_fixed(fix)
    request = as_request(model, options)
    if "gpus" not in request.model_fields_set:
        request = request.with_(gpus=DEFAULT_GPUS)
    predictor = chosen_predictor(request.predictor)
    job, batch = _plain_job(request)
    measured = (_UNUSED,) if request.anchors or request.calibration is not None else ()
    said = (*diagnostics_of(predictor), *measured, *job.diagnostics)
    job = replace(job, diagnostics=said)
    habits = habits_with_experts(job, recomputing=False)
    fixed = {**degrees_of_method(job.workload), **habits, **_other_axes(job), **fixed}
    with open_executor(ray, workers) as over:
        search = search_layouts(
            job,
            batch,
            fixed=fixed,
            top=top,
            most=max_layouts,
            over=over,
            predictor=predictor,
            coverage=request.coverage,
            progress=progress,
            request=request,
        )
    search = replace(search, request=request)
    missing = search.shortfall
    if missing is None:
        return search if fix else replace(search, why=f"{search.why} {_beside_usual(search)}".strip())
    # What to ask for beside more devices: from the layout that needs the least.
    nearest = under(job, missing.layout)
    remedy = suggest_fit(at_layout(request, nearest), nearest, predictor)
    return replace(search, shortfall=replace(missing, advice=(*missing.advice, remedy)))


def _beside_usual(search: LayoutSearch) -> str:
    """What `predict` assumes of the question without a layout, beside the first of the search, in words."""
    asked = (search.request or Request(model=search.model)).with_(global_batch_size=search.global_batch_size)
    try:
        job = asked.resolve()
    except LayoutError:  # no layout that people run shares out such a batch
        return ""
    # Said as those of the search are, so that they differ in the layout alone.
    usual = RankedLayout(layout=job.layout, prediction=predict(at_layout(asked, job)))
    return usual_beside(search.ranked[0], usual)


def _other_axes(job: Job) -> Fixed:
    """Degree 1 along the axes that the stack lacks; nothing of a stack of which none are known."""
    has = axes_of(job.stack.profile)
    return {axis: (1,) for axis in ("tp", "pp", "cp") if axis not in has} if has else {}


def _plain_job(request: Request) -> tuple[Job, int]:
    """The job under plain data parallelism, and the rows of its steps."""
    found = Diagnostics()
    workload = workload_of(request)
    cluster = cluster_of(request, found)
    usual = usual_stack_of(request, workload, cluster)
    stack = stack_of(request, workload.family, cluster.device, found, usual=usual)
    said = request.precision or assumed_precision(workload, cluster, found)
    precision = precision_of(said, cluster.device, found, stack, graph=workload.graph)
    check_full_rows(request)
    batch = _batch(request.global_batch_size, workload, request.gpus, found) * workload.rows_per_sample
    first = Diagnostics()
    first.assume("model", *usual_of(request.model), *workload.assumptions)
    first.warn("model", *cautions_of(request.model), *workload.warnings)
    first.assume("cluster", *cluster.assumptions)
    job = Job(
        workload=workload,
        cluster=cluster,
        precision=precision,
        layout=Layout(dp=cluster.num_devices - workload.generating_devices),
        stack=stack,
        stragglers=request.stragglers,
        diagnostics=(*first.items, *found.items),
    )
    return job, batch


def _batch(given: float | None, workload: Workload, gpus: int, found: Diagnostics) -> int:
    """The samples of a step: as given, else a usual number that the devices divide."""
    if given is not None:
        if given != int(given):
            raise ConfigError(
                f"global_batch_size={given:g} is invalid: a search shares out whole samples. To fix: "
                f"global_batch_size={math.ceil(given)}."
            )
        return int(given)
    batch, tokens = usual_global_batch(workload, gpus), workload.graph.seq_len
    size = f"{batch / gpus:g} per device" if tokens is None else f"{batch * tokens / 2**20:.3g}M tokens"
    found.assume("batch_size", f"Global batch not given: {batch} samples per step ({size}) assumed.")
    return batch
