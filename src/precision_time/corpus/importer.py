"""From raw CSV rows to Measurements: every quantity read, then put together."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..cost.stacks import Stack, get_stack_profile
from ..errors import ConfigError, CorpusError
from ..hardware.catalog import get_device
from ..parallel.layout import Layout
from . import reading
from .columns import to_json
from .jobs import UnsupportedRow, row_workload
from .layouts import Batches, infer_layout
from .measurement import Measurement, Rejected
from .reading import Findings, completed, infer_stack
from .rules import first_match
from .schema import Row, read_rows

_REPORT_SIZES = frozenset({"params", "gmacs", "macts", "train_mem_gb", "model_size_gb", "trainable"})
"""Sizes that a source reports of a model, as opposed to those that define it."""
_DEFINING_SIZES = frozenset({"layers", "hidden", "image_size", "gmacs"})
_REDUNDANT = re.compile(r"(?:placement=\d+ \(GPUs per node\)|sync_time_s=\S+ \([^)]*\))(?:; )?")
"""Parts of notes that stand in fields of their own."""
_TRAINING_PASSES = 3.0
"""Forward, and a backward pass of twice its products; recomputation does not count as model FLOPs."""


def read_measurements(path: str | Path, *, curated: bool = False) -> Iterator[Measurement | Rejected]:
    """One Measurement or Rejected per row of a measurement CSV, in file order.

    Args:
        path: CSV in the schema of docs/reference/corpus.md.
        curated: Its rows are of our own corpus: what data/curation.toml knows of its sources holds, too.

    Raises:
        CorpusError: If the file is not such a CSV, or a cell breaks its column's rule; the message
            names line, column, value and rule.
    """
    for row in read_rows(path):
        yield measurement_of(replace(row, curated=curated))


def measurement_of(row: Row) -> Measurement | Rejected:
    """The Measurement that one row describes, or why it describes none."""
    reason = reading.rejection(row)
    if reason:
        return Rejected(
            row_number=row.number,
            reason=reason,
            source=row.text("source"),
            source_ref=row.text("source_ref"),
            model=row.text("model"),
        )
    found = Findings()
    row = completed(row, found)
    notes = row.text("notes")
    row = row.with_cells(notes=_REDUNDANT.sub("", notes).strip("; "))
    batches = Batches(
        micro=row.positive_or_none("batch_per_device"),
        accumulation=row.count_or_none("grad_accum"),
        total=row.positive_or_none("global_batch"),
    )
    parts = {**_as_stated(row), **_where(row, notes, batches, found)}
    parts |= _how(row, batches, parts, found)
    parts |= _how_long(row, notes, parts, found)
    parts["assumptions"] = tuple(found.assumptions)
    parts["inferred"] = tuple(dict.fromkeys((*parts["inferred"], *found.inferred)))
    return Measurement(**parts, configuration_key=configuration_key(parts))


def _as_stated(row: Row) -> dict[str, Any]:
    """Fields that only change their type."""
    texts = ("source", "source_ref", "run_id", "model", "dataset", "framework_version", "device", "system")
    further = ("intra_node", "inter_node", "precision_detail", "throughput_unit", "notes")
    return {
        **{name: row.text(name) for name in (*texts, *further)},
        "task": (first_match("task", row) or {}).get("task", row.text("task")),
        "framework": reading.framework_name(row),
        "optimizer": reading.optimizer_name(row),
        "dataset_samples": row.count_or_none("dataset_samples"),
        "throughput": row.positive_or_none("throughput"),
        "mfu": row.number_or_none("mfu"),
        "peak_memory_bytes": reading.peak_memory(row.text("notes")),
        "tflops_per_device": row.number_or_none("tflops_per_device"),
        "epochs": row.number_or_none("epochs"),
        "time_to_train_s": row.positive_or_none("time_to_train_s"),
        "inferred": tuple(name for name in row.text("inferred").split(";") if name),
    }


def _where(row: Row, notes: str, batches: Batches, found: Findings) -> dict[str, Any]:
    """Devices and nodes; `notes` as they stood, with the placement still in them."""
    stated = row.count_or_none("devices") or 1
    num_devices = reading.training_devices(row, stated, batches.total, found)
    num_nodes, placement = reading.nodes_and_placement(row, notes, num_devices, found)
    return {"num_devices": num_devices, "num_nodes": num_nodes, "placement": placement}


def _how(row: Row, batches: Batches, stated: dict[str, Any], found: Findings) -> dict[str, Any]:
    """Model sizes, stack, precision and layout; completes `batches`."""
    scope = reading.timing_scope(row)
    sizes = reading.model_sizes(row, found)
    seq_len = reading.tokens_per_sample(row, sizes, found)
    stack, assumptions = infer_stack(
        row,
        framework=reading.framework_name(row),
        scope=scope,
        family=lambda: _family(stated, sizes, seq_len),
    )
    precision, variant = reading.precision_and_variant(row, stack, found)
    layout = _layout(row, batches, stated["num_devices"], seq_len, stack, found)
    found.assumptions += assumptions
    return {
        "scope": scope,
        "sizes": sizes,
        "seq_len": seq_len,
        "stack": stack,
        "precision": precision,
        "precision_variant": variant,
        "layout": layout,
        "global_batch_size": batches.total,
    }


def _family(stated: dict[str, Any], sizes: dict[str, Any], seq_len: int | None) -> str:
    """The family of a row's model; empty where the model is not known."""
    try:
        return row_workload({**stated, "sizes": sizes, "seq_len": seq_len}).family
    except CorpusError:
        return ""


def _layout(
    row: Row, batches: Batches, num_devices: int, seq_len: int | None, stack: Stack, found: Findings
) -> Layout | None:
    layout = infer_layout(
        row,
        num_devices=num_devices,
        seq_len=seq_len,
        batches=batches,
        profile=get_stack_profile(stack.profile),
        year=stack.framework_year,
    )
    found.assumptions += batches.assumptions
    found.doubts += batches.doubts
    if layout is None:
        found.unusable = "batch of a step not stated"
    return layout


def _how_long(row: Row, notes: str, parts: dict[str, Any], found: Findings) -> dict[str, Any]:
    """Step time and how far it can be trusted."""
    step_time_s = step_time_from_rate(row, parts, found)
    if step_time_s is None:
        step_time_s = reading.step_time(row, parts["global_batch_size"], parts["seq_len"], found)
    quality, reason = reading.quality_and_reason(row, found)
    repeats, spread = reading.repeats_and_spread(row)
    return {
        "measured_step_time_s": step_time_s,
        "sync_time_s": reading.sync_time(notes, step_time_s),
        "quality": quality,
        "quality_reason": reason,
        "weight": reading.fit_weight(row, quality, reason),
        "repeat_count": repeats,
        "spread": spread,
    }


def step_time_from_rate(row: Row, parts: Mapping[str, Any], found: Findings) -> float | None:
    """Seconds per step from a stated TFLOP/s or MFU per device, where the table `model_flops` allows it.

    The model FLOPs of a sample are three times its forward products, attention at its full square, as
    the sources that the table names count them.
    None where the row states a time or throughput, or no such rate.
    """
    if row.text("step_time_s") or row.text("throughput") or parts["layout"] is None:
        return None
    rule = first_match("model_flops", row)
    rate = _flops_per_s(row, parts["device"])
    if rule is None or rate is None:
        return None
    try:
        workload = row_workload(parts)
    except UnsupportedRow:
        return None
    found.assumptions.append(str(rule["why"]))
    found.doubts.append("step time from the stated FLOP rate and the source's count of FLOPs")
    flops = _TRAINING_PASSES * workload.graph.forward_flops * parts["global_batch_size"]
    return float(flops / (rate * parts["num_devices"]))


def _flops_per_s(row: Row, device: str) -> float | None:
    """Model FLOP/s of one device: stated, or the stated share of its bf16 peak."""
    stated = row.positive_or_none("tflops_per_device")
    if stated is not None:
        return stated * 1e12
    share = row.positive_or_none("mfu")
    if share is None:
        return None
    try:
        return share * get_device(device).peak_flops_per_s["bf16"]
    except (ConfigError, KeyError):
        return None


def configuration_key(parts: dict[str, Any]) -> str:
    """Short hash of everything that defines a configuration: repeats of it share the key.

    The framework's version, the host and its links are left out: runs that differ only there count
    as repeats, so that no split tests on what it has trained on.
    """
    sizes = parts["sizes"]
    if _DEFINING_SIZES & sizes.keys():
        sizes = {name: value for name, value in sizes.items() if name not in _REPORT_SIZES}
    layout: Layout | None = parts["layout"]
    stack = parts["stack"]
    body = [
        parts["model"],
        sizes,
        parts["seq_len"],
        parts["device"],
        parts["num_devices"],
        parts["num_nodes"],
        sorted(parts["placement"], reverse=True),
        [parts["precision"], parts["precision_variant"]],
        parts["optimizer"],
        parts["global_batch_size"],
        None if layout is None else to_json(layout),
        [parts["framework"], stack.profile, stack.compiler, stack.channels_last],
        parts["scope"].value,
        "" if layout is not None else parts["source_ref"],
    ]
    text = json.dumps(body, sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
