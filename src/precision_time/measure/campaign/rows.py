"""Points of a campaign as rows of the corpus, where the catalogue has their model."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Iterator
from io import StringIO
from typing import Any

from ... import __version__
from ...corpus.schema import COLUMNS
from ...units import GIBI
from ..modes import MODES
from .catalog import BuiltIn, built_in_models, planned_models
from .point import FinishedPoint


def corpus_rows(points: Iterable[FinishedPoint], *, source: str) -> Iterator[dict[str, Any]]:
    """Rows in the schema of docs/reference/corpus.md.

    Points without a time, or without a model of the catalogue, are left out. On a CPU a device is what one
    worker has: the row names it by processor and cores ("CPU-X-1-core"). Points that are not honest are rows
    of quality suspect.

    Args:
        points: From a store.
        source: `source` column.
    """
    for point in points:
        named = _model(point)
        if named is not None and point.step_time_s is not None:
            yield _row(point, source, *named)


def corpus_csv(points: Iterable[FinishedPoint], *, source: str) -> tuple[str, int]:
    """The rows as a CSV, and how many there are."""
    rows = list(corpus_rows(points, source=source))
    text = StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue(), len(rows)


def _model(point: FinishedPoint) -> tuple[str, dict[str, Any]] | None:
    """The catalogue's name of a model and its sizes; None where the catalogue has none such."""
    built_in = built_in_models().get(point.model)
    if built_in is None:
        spec = planned_models().get(point.model)
        if ":" in point.model or "/" in point.model:
            return None
        return point.model, dict(spec.sizes) if spec else {}
    changed = {name for name in point.sizes if name not in (*built_in.zoo_sizes, "seq_len")}
    if not built_in.zoo or changed or point.dataset != "synthetic":
        return None
    return built_in.zoo, _zoo_sizes(point, built_in)


def _zoo_sizes(point: FinishedPoint, built_in: BuiltIn) -> dict[str, Any]:
    sizes = {**built_in.sizes, **point.sizes}
    return {theirs: int(sizes[ours]) for ours, theirs in built_in.zoo_sizes.items()}


def _row(point: FinishedPoint, source: str, model: str, sizes: dict[str, Any]) -> dict[str, Any]:
    gpus = int(point.gpus_per_worker)
    devices = point.num_workers * max(gpus, 1)
    cores = f"{point.cpus_per_worker:g}"
    built_in = built_in_models().get(point.model)
    seq_len = {**built_in.sizes, **point.sizes}.get("seq_len") if built_in else _planned_seq_len(point.model)
    return {
        "source": source,
        "source_ref": f"precision-time campaign {__version__}: {point.campaign}",
        "run_id": f"{point.key}#{point.repeat}",
        "model": model,
        "model_config": json.dumps(sizes, separators=(",", ":")) if sizes else "",
        "dataset": point.dataset if point.dataset in ("synthetic", "digits") else "imagefolder",
        "dataset_samples": point.num_samples,
        "framework": "pytorch",
        "framework_version": point.framework_version,
        "device": point.device if gpus else f"{point.device}-{cores}-core{'s' * (cores != '1')}",
        "devices": devices,
        "nodes": point.num_hosts,
        "precision": point.precision,
        "precision_detail": MODES[point.precision].detail,
        "compiler": "none",
        "parallelism": json.dumps({"dp": devices}, separators=(",", ":")),
        "optimizer": point.optimizer,
        "batch_per_device": point.batch_per_worker,
        "grad_accum": 1,
        "global_batch": point.batch_per_worker * point.num_workers,
        "seq_len": int(seq_len) if seq_len else "",
        "throughput": point.samples_per_s,
        "throughput_unit": "samples/s",
        "step_time_s": point.step_time_s,
        "notes": "; ".join(_notes(point)),
        "quality": f"suspect: {point.label}" if point.label else "",
        "timing_scope": "full-step",
    }


def _planned_seq_len(model: str) -> int | None:
    spec = planned_models().get(model)
    return spec.seq_len if spec else None


def _notes(point: FinishedPoint) -> Iterator[str]:
    group = point.backend or "no"
    yield f"median of {point.num_steps} steps, warm-up excluded; Ray {point.ray_version}, {group} collectives"
    if point.gradient_wait_s is not None:
        yield f"sync_time_s={point.gradient_wait_s:.6g} ({point.gradient_wait_method})"
    if point.gpus_per_worker and point.peak_memory_bytes is not None:
        yield f"peak memory {point.peak_memory_bytes / GIBI:.3f} GiB"
    if point.power_w is not None:
        yield f"mean power {point.power_w:.0f} W"
