"""From raw CSV rows to Measurements: units, batches, layout, stack, defaults and doubts."""

from __future__ import annotations

import hashlib
import json
import math
import re
import statistics
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ..cost.job import Stack, TimingScope
from ..cost.stacks import get_stack_profile
from ..parallel.layout import Layout
from ..precision.catalog import tf32_defaults
from .layouts import Batches, infer_layout
from .measurement import Measurement, Quality, Rejected
from .rules import first_match, load_table
from .schema import Row, read_rows
from .stacks import infer_stack

PRECISIONS = frozenset(
    [
        "fp64",
        "fp32",
        "tf32",
        "fp16",
        "bf16",
        "fp16-mixed",
        "bf16-mixed",
        "fp8-mixed",
        "nvfp4-mixed",
        "int8-mixed",
        "int8",
    ]
)
_FRAMEWORKS = {"paddle": "paddlepaddle", "torch": "pytorch", "tf": "tensorflow"}
_SAMPLE_UNITS = frozenset(
    ["images", "sequences", "samples", "utterances", "sentences", "items", "molecules", "users", "volumes"]
)
_STEP_TOLERANCE = 0.15
_REPORT_SIZES = frozenset({"params", "gmacs", "macts", "train_mem_gb", "model_size_gb", "trainable"})
"""Sizes that a source reports of a model, as opposed to those that define it."""
_DEFINING_SIZES = frozenset({"layers", "hidden", "image_size", "gmacs"})
_PLACEMENT = re.compile(r"placement=(\d+)")
_SYNC = re.compile(r"sync_time_s=([\d.eE+-]+)")
_REPEATS = re.compile(r"(?:mean|median) of (\d+) (?:repeats|runs|logs)")
_RANGE = re.compile(r"min ([\d.eE+]+) max ([\d.eE+]+)")
_RUNS_DIFFER = re.compile(r"runs differ ([\d.]+)x")
_REDUNDANT = re.compile(r"(?:placement=\d+ \(GPUs per node\)|sync_time_s=\S+ \([^)]*\))(?:; )?")
"""Parts of notes that stand in fields of their own."""
_SPLIT_DIVISIONS = frozenset({"detection", "segmentation", "hpc-regression", "imagenet-train"})


@dataclass(slots=True)
class _Findings:
    """What went wrong or was assumed while a row was read."""

    assumptions: list[str] = field(default_factory=list)
    doubts: list[str] = field(default_factory=list)
    unusable: str = ""


def read_measurements(path: str | Path) -> Iterator[Measurement | Rejected]:
    """One Measurement or Rejected per row of a measurement CSV, in file order.

    Args:
        path: CSV in the schema of docs/corpus.md.

    Raises:
        CorpusError: If the file is not such a CSV, or a cell breaks its column's rule; the message
            names line, column, value and rule.
    """
    for row in read_rows(path):
        yield measurement_of(row)


def measurement_of(row: Row) -> Measurement | Rejected:
    """The Measurement that one row describes, or why it describes none."""
    reason = _rejection(row)
    if reason:
        return Rejected(
            row_number=row.number,
            reason=reason,
            source=row.text("source"),
            source_ref=row.text("source_ref"),
            model=row.text("model"),
        )
    found = _Findings()
    measured_notes = row.text("notes")
    row = row.with_cells(notes=_REDUNDANT.sub("", measured_notes).strip("; "))
    num_devices = row.count_or_none("devices") or 1
    total = row.positive_or_none("global_batch")
    num_devices = _training_devices(row, num_devices, total, found)
    num_nodes, placement = _nodes(row, measured_notes, num_devices, found)
    scope = _scope(row, found)
    sizes = _sizes(row, found)
    seq_len = _seq_len(row, sizes, found)
    framework = _framework(row)
    stack, stack_assumptions = infer_stack(row, framework=framework, scope=scope)
    precision, variant = _precision(row, stack, found)
    batches = Batches(
        micro=row.positive_or_none("batch_per_device"),
        accumulation=row.count_or_none("grad_accum"),
        total=total,
    )
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
        found.unusable = found.unusable or "batch of a step not stated"
    step_time_s = _step_time(row, batches.total, seq_len, found)
    quality, reason = _quality(row, found)
    repeats, spread = _repeats(row)
    parts: dict[str, Any] = {
        "source": row.text("source"),
        "source_ref": row.text("source_ref"),
        "run_id": row.text("run_id"),
        "model": row.text("model"),
        "sizes": sizes,
        "task": (first_match("task", row.text) or {}).get("task", row.text("task")),
        "dataset": row.text("dataset"),
        "dataset_samples": row.count_or_none("dataset_samples"),
        "framework": framework,
        "framework_version": row.text("framework_version"),
        "device": row.text("device"),
        "num_devices": num_devices,
        "num_nodes": num_nodes,
        "placement": placement,
        "system": row.text("system"),
        "intra_node": row.text("intra_node"),
        "inter_node": row.text("inter_node"),
        "precision": precision,
        "precision_variant": variant,
        "precision_detail": row.text("precision_detail"),
        "optimizer": _optimizer(row),
        "layout": layout,
        "global_batch_size": batches.total,
        "seq_len": seq_len,
        "throughput": row.positive_or_none("throughput"),
        "throughput_unit": row.text("throughput_unit"),
        "measured_step_time_s": step_time_s,
        "sync_time_s": _sync_time(measured_notes, step_time_s),
        "mfu": row.number_or_none("mfu"),
        "tflops_per_device": row.number_or_none("tflops_per_device"),
        "epochs": row.number_or_none("epochs"),
        "time_to_train_s": row.positive_or_none("time_to_train_s"),
        "scope": scope,
        "stack": stack,
        "quality": quality,
        "quality_reason": reason,
        "weight": _weight(row, quality),
        "repeat_count": repeats,
        "spread": spread,
        "inferred": tuple(name for name in row.text("inferred").split(";") if name),
        "notes": row.text("notes"),
        "assumptions": tuple(found.assumptions) + stack_assumptions,
    }
    return Measurement(**parts, configuration_key=configuration_key(parts))


def _rejection(row: Row) -> str:
    if not row.text("model"):
        return "model not stated"
    if not row.text("device"):
        return "device not stated"
    if row.count_or_none("devices") is None:
        return "number of devices not stated"
    precision = row.text("precision").lower()
    if precision not in PRECISIONS and precision not in ("", "unknown"):
        raise row.error(
            "precision", "is not a known precision", f"use one of {', '.join(sorted(PRECISIONS))}"
        )
    return ""


def _training_devices(row: Row, num_devices: int, total: float | None, found: _Findings) -> int:
    """Devices that train, where a step has fewer samples than the run has devices."""
    if total is None or total >= num_devices or row.text("task") not in _SPLIT_DIVISIONS:
        return num_devices
    sharing = int(2 ** int(math.log2(num_devices / total)))
    training = int(total) * sharing
    if training < 1 or training == num_devices:
        return num_devices
    found.assumptions.append(
        f"{num_devices - training} of {num_devices} devices evaluate, the others train"
        + (f" with {sharing} devices per sample" if sharing > 1 else "")
    )
    return training


def _nodes(row: Row, notes: str, num_devices: int, found: _Findings) -> tuple[int, tuple[int, ...]]:
    """Number of nodes and, where stated, the devices on each."""
    stated = row.count_or_none("nodes")
    match = _PLACEMENT.search(notes)
    if match and sum(map(int, match[1])) == num_devices and "0" not in match[1]:
        return len(match[1]), tuple(map(int, match[1]))
    if "unconsolidated" in row.text("notes"):
        return num_devices, ()
    pod = first_match("pod", row.text)
    if pod and (stated is None or num_devices / stated > pod["devices"]):
        return math.ceil(num_devices / pod["devices"]), ()
    if stated is not None:
        all_devices = row.count_or_none("devices") or num_devices
        return min(math.ceil(stated * num_devices / all_devices), num_devices), ()
    per_node = (first_match("devices_per_node", row.text) or {"devices": 8})["devices"]
    nodes = math.ceil(num_devices / per_node)
    found.assumptions.append(f"nodes not stated: {nodes}, at {per_node} devices each")
    return nodes, ()


def _scope(row: Row, found: _Findings) -> TimingScope:
    text = row.text("timing_scope").lower()
    if not text:
        return TimingScope.UNKNOWN
    try:
        return TimingScope(text)
    except ValueError:
        raise row.error(
            "timing_scope", "is not a scope", f"use one of {', '.join(scope.value for scope in TimingScope)}"
        ) from None


def _precision(row: Row, stack: Stack, found: _Findings) -> tuple[str, str]:
    """Canonical policy and its variant."""
    stated = row.text("precision").lower()
    tf32_conv = ""
    if stated in ("", "unknown"):
        rule = first_match("precision", row.text) or {"precision": "fp32", "why": "precision not stated"}
        stated = str(rule["precision"])
        found.assumptions.append(rule["why"])
        if "quality" in rule:
            found.doubts.append(rule["quality"])
        if "by_framework" in rule:
            matmul, conv = tf32_defaults(stack.framework, stack.framework_year)
            stated = "tf32" if matmul else "fp32"
            tf32_conv = "yes" if conv and not matmul else ""
    policy = "int8-mixed" if stated == "int8" else stated
    refuted = first_match("precision_refuted", row.with_cells(policy=policy).text)
    if refuted:
        found.doubts.append(refuted["quality"])
        policy = str(refuted["precision"])
    cells = row.with_cells(policy=policy, profile=stack.profile, tf32_conv=tf32_conv)
    variant = first_match("variant", cells.text) or {"variant": ""}
    return policy, str(variant["variant"])


def _sizes(row: Row, found: _Findings) -> dict[str, Any]:
    """Sizes as stated, and those that follow from the data set."""
    stated = row.json_object("model_config")
    rule = first_match("sizes", row.text)
    if rule is None:
        return stated
    found.assumptions.append(f"sizes not stated: {rule['why']}")
    return {**rule["sizes"], **stated}


def _seq_len(row: Row, sizes: Mapping[str, Any], found: _Findings) -> int | None:
    stated = row.count_or_none("seq_len")
    if stated is not None:
        return stated
    in_config = sizes.get("seq_len")
    if isinstance(in_config, int) and in_config > 0:
        return in_config
    rule = first_match("seq_len", row.text)
    if rule is None:
        return None
    found.assumptions.append(f"sequence length not stated: {rule['seq_len']}, as {rule['why']}")
    return int(rule["seq_len"])


def _framework(row: Row) -> str:
    text = row.text("framework").lower()
    return _FRAMEWORKS.get(text, text)


def _optimizer(row: Row) -> str:
    text = row.text("optimizer").lower()
    return str(load_table("optimizers").get(text, text))


def _step_time(row: Row, total: float | None, seq_len: int | None, found: _Findings) -> float | None:
    """Seconds per optimizer step: as stated, or samples of a step over throughput."""
    stated = row.positive_or_none("step_time_s")
    derived = _derived_step_time(row, total, seq_len)
    if stated is None:
        if derived is None:
            found.unusable = found.unusable or "no step time, and none can be derived from the throughput"
        else:
            found.assumptions.append("step time derived from throughput and global batch")
        return derived
    if derived is not None and abs(math.log(stated / derived)) > _STEP_TOLERANCE:
        found.doubts.append(
            f"stated step time {stated:g} s, but global batch / throughput gives {derived:g} s"
        )
    return stated


def _derived_step_time(row: Row, total: float | None, seq_len: int | None) -> float | None:
    rate = row.positive_or_none("throughput")
    unit = row.text("throughput_unit").lower().removesuffix("/s").removesuffix("/sec")
    if rate is None or total is None:
        return None
    if unit in _SAMPLE_UNITS:
        return total / rate
    if unit == "tokens" and seq_len is not None and row.text("task") not in ("translation", "tts"):
        return total * _tokens_per_sample(row, seq_len) / rate
    if unit == "steps":
        return 1.0 / rate
    return None


def _tokens_per_sample(row: Row, seq_len: int) -> float:
    """Tokens that count as throughput: Transformer-XL counts target tokens only."""
    target = row.json_object("model_config").get("tgt_len")
    return float(target) if isinstance(target, int | float) and target > 0 else float(seq_len)


def _sync_time(notes: str, step_time_s: float | None) -> float | None:
    match = _SYNC.search(notes)
    if match is None or step_time_s is None:
        return None
    return min(float(match[1]), step_time_s)


def _quality(row: Row, found: _Findings) -> tuple[Quality, str]:
    stated, _, reason = row.text("quality").partition(":")
    stated = stated.strip().lower()
    if stated not in ("", "fine", "suspect", "unusable"):
        raise row.error("quality", "starts with no known word", "use 'suspect: why' or 'unusable: why'")
    reasons = [reason.strip()] if reason.strip() else []
    if stated == "unusable" or found.unusable:
        return Quality.UNUSABLE, "; ".join(reasons or [found.unusable])
    if stated == "suspect" or found.doubts:
        return Quality.SUSPECT, "; ".join(reasons + found.doubts)
    return Quality.FINE, ""


def _weight(row: Row, quality: Quality) -> float:
    if quality is Quality.SUSPECT:
        rule = first_match("suspect_weight", row.text) or {"weight": 0.3}
        return float(rule["weight"])
    return 1.0 if quality is Quality.FINE else 0.0


def _repeats(row: Row) -> tuple[int, float | None]:
    notes = row.text("notes")
    match = _REPEATS.search(notes)
    count = int(match[1]) if match else 1
    if bounds := _RANGE.search(notes):
        low, high = float(bounds[1]), float(bounds[2])
        return count, (high - low) / ((high + low) / 2) if high > 0 else None
    if ratio := _RUNS_DIFFER.search(notes):
        factor = float(ratio[1])
        return count, 2 * (factor - 1) / (factor + 1)
    return count, None


def with_repeats(measurements: Iterable[Measurement]) -> list[Measurement]:
    """The same measurements with repeat count and spread of each configuration filled in.

    A row that already stands for more repeats than its configuration has rows keeps its own figures.
    """
    rows = list(measurements)
    groups: dict[str, list[float]] = {}
    for row in rows:
        if row.usable:
            groups.setdefault(row.configuration_key, []).append(row.step_time_s)
    return [_with_repeats(row, groups.get(row.configuration_key, [])) for row in rows]


def _with_repeats(row: Measurement, times: list[float]) -> Measurement:
    if len(times) <= row.repeat_count or not row.usable:
        return row
    spread = (max(times) - min(times)) / statistics.median(times)
    return replace(row, repeat_count=len(times), spread=spread)


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
        None if layout is None else [getattr(layout, name) for name in Layout.__slots__],
        [parts["framework"], stack.profile, stack.compiler, stack.channels_last],
        parts["scope"].value,
        "" if layout is not None else parts["source_ref"],
    ]
    text = json.dumps(body, sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
