"""The columns of the store's measurement table, and rows to and from `Measurement`."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, fields, replace
from typing import Any

from ..cost.job import Stack, TimingScope
from ..cost.stacks import get_stack_profile
from ..parallel.layout import Checkpointing, ContextMethod, Layout, Offload, PipelineSchedule
from .measurement import Measurement, Quality

# Names are fields of Measurement. Texts and objects repeat a great deal and stand once, in a side table.
TEXTS = [
    "source",
    "source_ref",
    "run_id",
    "model",
    "task",
    "dataset",
    "framework",
    "framework_version",
    "device",
    "system",
    "intra_node",
    "inter_node",
    "precision",
    "precision_variant",
    "precision_detail",
    "optimizer",
    "throughput_unit",
    "scope",
    "quality",
    "quality_reason",
    "notes",
]
OBJECTS = ("sizes", "placement", "layout", "stack", "inferred", "assumptions")
INTEGERS = ("dataset_samples", "num_devices", "num_nodes", "seq_len", "repeat_count")
REALS = [
    "global_batch_size",
    "throughput",
    "measured_step_time_s",
    "sync_time_s",
    "mfu",
    "tflops_per_device",
    "peak_memory_bytes",
    "epochs",
    "time_to_train_s",
    "weight",
    "spread",
]
SIDE = (*TEXTS, *OBJECTS)
COLUMNS = (*SIDE, *INTEGERS, *REALS, "configuration_key")

# Values that the stored form leaves out. They belong to the format: they stay as they are when the
# defaults of the classes change.
_LEFT_OUT: dict[type, dict[str, Any]] = {
    Layout: {
        "dp": 1,
        "tp": 1,
        "pp": 1,
        "cp": 1,
        "ep": 1,
        "zero_stage": 0,
        "virtual_pp": 1,
        "sequence_parallel": False,
        "num_micro_batches": 1,
        "checkpointing": "none",
        "bucket_bytes": 25 * 2**20,
        "data_parallel_engine": "ddp",
        "expert_tp": None,
        "shard_size": 0,
        "reshard_after_forward": True,
        "prefetch": 1,
        "offload": "none",
        "schedule": "1f1b",
        "stage_layers": (),
        "context_method": "ring",
        "expert_capacity": 0.0,
        "checkpointed_share": 1.0,
        "rank_order": ("tp", "cp", "dp", "pp"),
    },
    Stack: {
        "framework": "pytorch",
        "compiler": "none",
        "channels_last": False,
        "fused_optimizer": False,
        "fused_attention": False,
        "unpadded_sequences": False,
        "real_input": False,
        "host_per_tensor_s": 0.0,
    },
}


_LAYOUT_TYPES: dict[str, Callable[[Any], Any]] = {
    "checkpointing": Checkpointing,
    "offload": Offload,
    "schedule": PipelineSchedule,
    "context_method": ContextMethod,
    "stage_layers": tuple,
    "rank_order": tuple,
}


def _as_is(value: Any) -> Any:
    return value


def to_json(value: Any) -> str:
    """The stored form of a tuple, mapping, Layout, Stack or None."""
    if isinstance(value, Layout):
        value = _differences(asdict(value), _LEFT_OUT[Layout])
    elif isinstance(value, Stack):
        usual = get_stack_profile(value.profile).stack(framework_year=value.framework_year)
        named = {"of": value.profile, "year": value.framework_year}
        value = {**named, **_differences(asdict(value), asdict(usual))}
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def _differences(values: dict[str, Any], usual: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name not in usual or value != usual[name]}


def _layout(text: str) -> Layout | None:
    data = json.loads(text)
    if data is None:
        return None
    stored = {**_LEFT_OUT[Layout], **data}
    return Layout(**{name: _LAYOUT_TYPES.get(name, _as_is)(value) for name, value in stored.items()})


def _stack(text: str) -> Stack:
    """What a profile and year say today, and what the row said otherwise; version 1 stored every field."""
    data = json.loads(text)
    if "of" not in data:
        return Stack(**{**_LEFT_OUT[Stack], **data})
    profile = get_stack_profile(data.pop("of"))
    return replace(profile.stack(framework_year=data.pop("year")), **data)


def _tuple(text: str) -> tuple[Any, ...]:
    return tuple(json.loads(text))


_READERS: dict[str, Callable[[str], Any]] = {
    "sizes": json.loads,
    "placement": _tuple,
    "layout": _layout,
    "stack": _stack,
    "inferred": _tuple,
    "assumptions": _tuple,
    "scope": TimingScope,
    "quality": Quality,
}


def decode(rows: Sequence[Sequence[Any]], texts: dict[int, str]) -> list[Measurement]:
    """Measurements from table rows; equal side values are decoded once and shared."""
    if not rows:
        return []
    columns: list[Iterable[Any]] = list(zip(*rows, strict=True))
    for index, name in enumerate(SIDE):
        read = _READERS.get(name)
        values = {key: read(texts[key]) if read else texts[key] for key in set(columns[index])}
        columns[index] = map(values.__getitem__, columns[index])
    columns[-2] = map(bytes.hex, columns[-2])
    found = [Measurement.__new__(Measurement) for _ in rows]
    # Slots filled a column at a time: the generated constructor takes five times as long.
    for name, column in zip((*COLUMNS, "row_id"), columns, strict=True):
        deque(map(getattr(Measurement, name).__set__, found, column), maxlen=0)
    return found


assert {item.name for item in fields(Measurement)} == {*COLUMNS, "row_id"}
