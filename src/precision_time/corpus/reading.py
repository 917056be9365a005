"""One quantity of a raw row at a time: what it says, what is filled in, and what is doubtful."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..cost.constants import constants
from ..cost.job import TimingScope
from ..cost.roofline import flash_of
from ..cost.stacks import Stack, get_stack_profile, usual_variant
from ..errors import ConfigError
from ..hardware.catalog import get_device
from ..hardware.device import Device
from ..precision.catalog import known_precisions, tf32_defaults
from ..request.lengths import longest_of
from ..request.resolve import stack_profile, usual_year
from ..workload.tuning import known_targets
from .measurement import Quality
from .rules import all_matches, first_match, load_table, round_year
from .schema import Row

PRECISIONS = frozenset({*known_precisions(), "int8"})
_FRAMEWORKS = {"paddle": "paddlepaddle", "torch": "pytorch", "tf": "tensorflow"}
_SAMPLE_UNITS = frozenset(
    ["images", "sequences", "samples", "utterances", "sentences", "items", "molecules", "users", "volumes"]
)
_STEP_TOLERANCE = 0.15
_PLACEMENT = re.compile(r"placement=(\d+)")
_SYNC = re.compile(r"sync_time_s=([\d.eE+-]+)")
_REPEATS = re.compile(r"(?:mean|median) of (\d+) (?:repeats|runs|logs)")
_RANGE = re.compile(r"min ([\d.eE+]+) max ([\d.eE+]+)")
_RUNS_DIFFER = re.compile(r"runs differ ([\d.]+)x")
_PEAK_MEMORY = re.compile(r"(?:peak memory|max memory|\bmem) ([\d.]+) ?(GiB|GB)\b")
_BYTES = {"GiB": 2.0**30, "GB": 1e9}
_SPLIT_DIVISIONS = frozenset({"detection", "segmentation", "hpc-regression", "imagenet-train"})
_MONTHS = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]
_CONTAINER = re.compile(
    r"(?:ngc\D{0,20}|nemo\D{0,3}|release\s|nvidia\D{0,20}|\bnv)(\d\d)\.(\d\d)\b|^(\d\d)\.(\d\d)(?:\.\d+)?\s",
    re.I,
)
_DATE = re.compile(r"\b(20\d\d)-?(0[1-9]|1[0-2])(?:-?(?:[0-2]\d|3[01]))?\b|dev(20\d\d)(\d\d)\d\d")
_MONTH_YEAR = re.compile(r"\b([A-Z][a-z]{2})[a-z]* (20\d\d)\b")
_NOTED_DATE = re.compile(r"\b(20[12]\d)-?(0[1-9]|1[0-2])(?:-?(?:0[1-9]|[12]\d|3[01]))?\b")
_YEARS = re.compile(r"(?<![\d.v-])(20[12]\d)(?![\d.])")
_VERSION = re.compile(r"(\d+)\.(\d+)")
_ALL_LINEAR = re.compile(r"all[ _-]linear", re.I)
_WORD = re.compile(r"\w+")
_OF_STACK = "of-stack"
"""Of the rules on variants: what the row's stack does."""
_FLASH_OF_THE_YEAR = "flash"
"""Of the rules on attention: FlashAttention, in the version of the row's year."""
_OLDEST_IN_ROUND = 4.0
"""A version this many years older than the benchmark round that names it is a misreading."""
_INPUT_SCOPES = {TimingScope.WITH_INPUT, TimingScope.WITH_EVAL, TimingScope.EPOCH_AVERAGE}


@dataclass(slots=True)
class Findings:
    """What was assumed and what was doubtful while a row was read."""

    assumptions: list[str] = field(default_factory=list)
    doubts: list[str] = field(default_factory=list)
    inferred: list[str] = field(default_factory=list)
    """Columns that a rule filled in."""
    unusable: str = ""


def completed(row: Row, found: Findings) -> Row:
    """The row with every fitting rule of the tables `counted` and `completion` applied, in order.

    A rule's `cells` fill empty cells, its `replace` corrects stated ones, its `parallelism` sets keys
    of the parallelism column and takes those away that it sets to an empty text; its `sizes` fill those of
    the model that are not stated. `devices_each` is how many devices the framework sees in one that the row
    counts. Its `why` joins the assumptions and its `doubt` the doubts.
    """
    cells: dict[str, str] = {}
    parallelism: dict[str, Any] = {}
    sizes: dict[str, Any] = {}
    each = 1
    for rule in (*all_matches("counted", row), *all_matches("completion", row)):
        cells |= {name: text for name, text in rule.get("cells", {}).items() if not row.text(name)}
        cells |= rule.get("replace", {})
        parallelism |= rule.get("parallelism", {})
        sizes |= rule.get("sizes", {})
        each *= rule.get("devices_each", 1)
        if "why" in rule:
            found.assumptions.append(rule["why"])
        if "doubt" in rule:
            found.doubts.append(rule["doubt"])
    if parallelism:
        merged = {**row.json_object("parallelism"), **parallelism}
        kept = {name: value for name, value in merged.items() if value != ""}
        cells["parallelism"] = json.dumps(kept, separators=(",", ":"))
    if sizes:
        cells["model_config"] = json.dumps(
            {**sizes, **row.json_object("model_config")}, separators=(",", ":")
        )
    if each != 1:
        cells["devices"] = str(each * (row.count_or_none("devices") or 1))
    return row.with_cells(**cells) if cells else row


def rejection(row: Row) -> str:
    """Why a row names no configuration at all; empty if it does."""
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


def training_devices(row: Row, num_devices: int, total: float | None, found: Findings) -> int:
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


def nodes_and_placement(
    row: Row, notes: str, num_devices: int, found: Findings
) -> tuple[int, tuple[int, ...]]:
    """Number of nodes and, where stated, the devices on each."""
    stated = row.count_or_none("nodes")
    match = _PLACEMENT.search(notes)
    if match and sum(map(int, match[1])) == num_devices and "0" not in match[1]:
        return len(match[1]), tuple(map(int, match[1]))
    if "unconsolidated" in row.text("notes"):
        return num_devices, ()
    pod = first_match("pod", row)
    if pod and (stated is None or num_devices / stated > pod["devices"]):
        return math.ceil(num_devices / pod["devices"]), ()
    if stated is not None:
        all_devices = row.count_or_none("devices") or num_devices
        return min(math.ceil(stated * num_devices / all_devices), num_devices), ()
    per_node = (first_match("devices_per_node", row) or {"devices": 8})["devices"]
    nodes = math.ceil(num_devices / per_node)
    found.assumptions.append(f"nodes not stated: {nodes}, at {per_node} devices each")
    return nodes, ()


def timing_scope(row: Row) -> TimingScope:
    """What the time of the row includes."""
    text = row.text("timing_scope").lower()
    if not text:
        return TimingScope.UNKNOWN
    try:
        return TimingScope(text)
    except ValueError:
        raise row.error(
            "timing_scope", "is not a scope", f"use one of {', '.join(scope.value for scope in TimingScope)}"
        ) from None


def infer_stack(
    row: Row, *, framework: str, scope: TimingScope, family: Callable[[], str]
) -> tuple[Stack, tuple[str, ...]]:
    """The `Stack` behind a row and the assumptions that it rests on.

    Args:
        row: The raw row.
        framework: Canonical framework name, empty if the row does not say.
        scope: What the row's time includes: real input is part of the stack.
        family: The family of the row's model: decides where no rule does, as for any request.
    """
    rule = first_match("stack", row) or {}
    if row.text("stack"):
        rule = {"profile": row.text("stack")}
    profile = stack_profile(rule.get("profile"), None, family() if "profile" not in rule else "")
    assumptions = []
    if not rule.get("sure", True):
        assumptions.append(f"stack taken as {profile.name}: only the framework and task are known")
    device = _device(row)
    year = framework_year(row, framework=framework)
    if year is None:
        year = profile.framework_year if device is None else usual_year(profile, device)
        year = max(year, float((first_match("appeared", row) or {"year": year})["year"]))
        assumptions.append(f"framework version not stated: one of {year:.1f} assumed")
    layout = row.text("memory_format").lower()
    compiler = first_match("compiler", row) or {}
    unpadded = first_match("unpadded", row) or {"unpadded": "no"}
    arch = "" if device is None else device.arch
    stack = profile.stack(
        framework=framework or None,
        framework_year=year,
        compiler=compiler.get("compiler"),
        channels_last={"nhwc": True, "channels_last": True, "nchw": False}.get(layout),
        fused_optimizer=True if "fused" in row.text("optimizer").lower() else None,
        unpadded_sequences={"yes": True, "no": False}.get(unpadded["unpadded"]),
        real_input=_real_input(row, scope),
        attention=_attention(row, year, arch),
        arch=arch,
    )
    return stack, tuple(assumptions)


def _device(row: Row) -> Device | None:
    try:
        return get_device(row.text("device"))
    except ConfigError:
        return None


def framework_year(row: Row, *, framework: str) -> float | None:
    """When the row's framework version came out, as a decimal year; None if the row does not say."""
    version = row.text("framework_version")
    detail = row.text("precision_detail")
    for text in (version, detail if "container" in detail else ""):
        found = _year_in(text)
        if found is not None:
            return found
    table = load_table("years").get(framework, {})
    match = _VERSION.search(version)
    stated = table.get(f"{match[1]}.{match[2]}") if match else None
    submitted = round_year(row)
    if stated is not None and (submitted is None or 0 <= submitted - stated <= _OLDEST_IN_ROUND):
        return float(stated)
    if submitted is not None:
        return submitted
    rule = first_match("year", row)
    if rule:
        return float(rule["year"])
    years = [int(year) for year in _YEARS.findall(version)]
    if years:
        return (min(years) + max(years) + 1) / 2.0
    noted = _NOTED_DATE.search(row.text("notes"))
    return _decimal(int(noted[1]), int(noted[2])) if noted else None


def _year_in(text: str) -> float | None:
    """The decimal year of a container tag or date inside a version text."""
    if match := _CONTAINER.search(text):
        year, month = (match[1], match[2]) if match[1] else (match[3], match[4])
        if 15 <= int(year) <= 40 and 1 <= int(month) <= 12:  # noqa: PLR2004
            return _decimal(2000 + int(year), int(month))
    if match := _DATE.search(text):
        year, month = (match[1], match[2]) if match[1] else (match[3], match[4])
        return _decimal(int(year), int(month))
    if (match := _MONTH_YEAR.search(text)) and match[1].lower() in _MONTHS:
        return _decimal(int(match[2]), _MONTHS.index(match[1].lower()) + 1)
    return None


def _decimal(year: int, month: int) -> float:
    return round(year + (month - 1) / 12, 2)


def _attention(row: Row, year: float, arch: str) -> str | None:
    """The attention kernel that a row names; None: what its stack and year bring, or it cannot run."""
    rule = first_match("attention", row)
    if rule is None:
        return None
    kernel = str(rule["attention"])
    if kernel == _FLASH_OF_THE_YEAR:
        kernel = flash_of(year)
    runs = not kernel.startswith("flash") or arch not in constants("kernels")["without_flash"]
    return kernel if runs else None


def _real_input(row: Row, scope: TimingScope) -> bool | None:
    if first_match("synthetic_input", row):
        return False
    if scope is TimingScope.UNKNOWN:
        return None
    return scope in _INPUT_SCOPES


def precision_and_variant(row: Row, stack: Stack, found: Findings) -> tuple[str, str]:
    """Canonical policy and its variant."""
    stated = row.text("precision").lower()
    tf32_conv = ""
    if stated in ("", "unknown"):
        rule = first_match("precision", row) or {"precision": "fp32", "why": "precision not stated"}
        stated = str(rule["precision"])
        found.inferred.append("precision")
        found.assumptions.append(rule["why"])
        if "quality" in rule:
            found.doubts.append(rule["quality"])
        if "by_framework" in rule:
            matmul, conv = tf32_defaults(stack.framework, stack.framework_year)
            stated = "tf32" if matmul else "fp32"
            tf32_conv = "yes" if conv and not matmul else ""
    policy = "int8-mixed" if stated == "int8" else stated
    refuted = first_match("precision_refuted", row.with_cells(policy=policy))
    if refuted:
        found.inferred.append("precision")
        found.doubts.append(refuted["quality"])
        policy = str(refuted["precision"])
    of_stack = usual_variant(get_stack_profile(stack.profile), policy, 0) or ""
    cells = row.with_cells(policy=policy, profile=stack.profile, tf32_conv=tf32_conv, of_stack=of_stack)
    variant = str((first_match("variant", cells) or {"variant": ""})["variant"])
    wire = str((first_match("wire", cells) or {"wire": ""})["wire"])
    return policy, "+".join(part for part in (of_stack if variant == _OF_STACK else variant, wire) if part)


def model_sizes(row: Row, found: Findings) -> dict[str, Any]:
    """Sizes as stated, and those that follow from the dataset."""
    stated = _with_adapter(row.json_object("model_config"))
    rule = first_match("sizes", row)
    if rule is None:
        return stated
    found.assumptions.append(f"sizes not stated: {rule['why']}")
    return {**rule["sizes"], **stated}


def _with_adapter(stated: Mapping[str, Any]) -> dict[str, Any]:
    """Rank and projections of an adapter under our names, where the row states them."""
    if stated.get("peft_type") == "LORA":
        rank, targets = stated.get("r"), stated.get("target_modules")
    else:
        rank, targets = stated.get("adapter_rank"), stated.get("adapter_targets")
    projections = _projections(targets)
    if not projections or not isinstance(rank, int | float) or rank < 1:
        return dict(stated)
    return {**stated, "lora_rank": int(rank), "lora_targets": projections}


def _projections(targets: object) -> list[str]:
    """Layers that adapters stand beside, of a list or a sentence; words that name none are left out."""
    text = " ".join(map(str, targets)) if isinstance(targets, list) else str(targets or "")
    if _ALL_LINEAR.search(text):
        return ["all-linear"]
    known = known_targets()
    words = dict.fromkeys(_WORD.findall(text))
    return [word.removesuffix("_proj") for word in words if word.lower() in known]


def tokens_per_sample(row: Row, sizes: Mapping[str, Any], found: Findings) -> int | None:
    """Sequence length: stated, in the sizes, or the usual one of the task; None if unknown.

    A usual one is the mean of samples; with the `longest` of them micro batches are padded to their own.
    """
    stated = row.count_or_none("seq_len")
    if stated is not None:
        return stated
    in_config = sizes.get("seq_len")
    if isinstance(in_config, int) and in_config > 0:
        return in_config
    rule = first_match("seq_len", row)
    if rule is None:
        return None
    found.assumptions.append(f"sequence length not stated: {rule['seq_len']}, as {rule['why']}")
    together = row.positive_or_none("batch_per_device") or 1.0
    if together <= 1.0 or "longest" not in rule:
        return int(rule["seq_len"])
    padded = round(longest_of(rule["seq_len"], rule["longest"], together))
    found.assumptions.append(f"padded to the longest of {together:g} samples: {padded} tokens expected")
    return padded


def framework_name(row: Row) -> str:
    """Canonical framework name; empty where the row is silent."""
    text = row.text("framework").lower().partition(" (")[0]
    return _FRAMEWORKS.get(text, text)


def optimizer_name(row: Row) -> str:
    """Canonical optimizer name; empty where the row is silent."""
    text = row.text("optimizer").lower()
    return str(load_table("optimizers").get(text, text))


def step_time(row: Row, total: float | None, seq_len: int | None, found: Findings) -> float | None:
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


def sync_time(notes: str, step_time_s: float | None) -> float | None:
    """Measured wait for the gradient exchange [s], never more than the step."""
    match = _SYNC.search(notes)
    if match is None or step_time_s is None:
        return None
    return min(float(match[1]), step_time_s)


def peak_memory(notes: str) -> float | None:
    """Largest memory of one device [B] that the notes state."""
    match = _PEAK_MEMORY.search(notes)
    return float(match[1]) * _BYTES[match[2]] if match else None


def quality_and_reason(row: Row, found: Findings) -> tuple[Quality, str]:
    """Stated quality, lowered by what the import found."""
    stated, _, reason = row.text("quality").partition(":")
    stated = stated.strip().lower()
    if stated not in ("", "fine", "suspect", "unusable"):
        raise row.error("quality", "starts with no known word", "use 'suspect: why' or 'unusable: why'")
    reasons = [reason.strip()] if reason.strip() else []
    rule = first_match("unusable", row)
    if rule is not None:
        found.unusable = found.unusable or str(rule["reason"])
    rule = first_match("doubt", row)
    if rule is not None:
        found.doubts.append(str(rule["doubt"]))
    if stated == "unusable" or found.unusable:
        return Quality.UNUSABLE, "; ".join(reasons or [found.unusable])
    if stated == "suspect" or found.doubts:
        return Quality.SUSPECT, "; ".join(reasons + found.doubts)
    return Quality.FINE, ""


def fit_weight(row: Row, quality: Quality, reason: str) -> float:
    """Weight of the row in a fit, 0 to 1."""
    if quality is Quality.SUSPECT:
        rule = first_match("suspect_weight", row.with_cells(quality=reason)) or {"weight": 0.3}
        return float(rule["weight"])
    return 1.0 if quality is Quality.FINE else 0.0


def repeats_and_spread(row: Row) -> tuple[int, float | None]:
    """Runs behind the row and their relative spread, as the notes state them."""
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
