"""What a precision changes in a model: work, traffic, casts and seconds per operator class, against fp32."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from ..cost.roofline import kernel_seconds, load_kernel_model, rates_of
from ..diagnostics import Diagnostics, Severity, texts_of
from ..hardware.device import Device
from ..precision.catalog import get_policy
from ..precision.lowered import PHASES, LoweredStep
from ..precision.lowering import DTYPES, OP_CLASSES, lower, operator_types
from ..precision.support import on_device
from ..records import dataclass
from ..render.blocks import GAP, TEXT_WIDTH, Block, Text, Tone, warnings
from ..render.result import Result
from ..render.table import Table
from ..request.resolve import cluster_of, precision_of, workload_of
from ..request.signature import as_request, takes_request_fields
from ..units import format_field, plain_name

_DEFAULT_BATCH = 32.0
EXPLAINED_FIELDS = (
    *("device", "precision", "batch_size", "seq_len", "image_size", "sizes", "task", "custom"),
    *("frames", "audio_seconds", "adapter", "lora_rank", "lora_targets", "freeze"),
    "example_inputs",
)
"""Fields of a request that an explanation depends on."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ExplainedClass:
    """Kernels of one class, phase and type, beside the same class and phase at fp32."""

    op_class: str
    phase: str
    dtype: str
    flops: float
    bytes: float
    time_s: float
    launches: float
    fp32_bytes: float
    fp32_time_s: float


@dataclass(frozen=True, kw_only=True, slots=True, repr=False)
class Explanation(Result):
    """One micro batch of a model under a precision and under fp32, on one device, by the roofline alone."""

    model: str
    device: str
    precision: str
    batch_size: float
    flops: float
    bytes: float
    fp32_bytes: float
    cast_bytes: float
    casts: float
    time_s: float
    fp32_time_s: float
    tensor_core_share: float
    """Share of the FLOPs that run on matrix units at the policy's types."""
    rows: tuple[ExplainedClass, ...]
    operators: dict[str, str]
    """The type that each forward operator computes in, by the name that patterns of a policy match."""
    own_rules: bool
    """Whether the policy has rules of its own for operators or layers."""
    warnings: tuple[str, ...]

    def in_one_line(self) -> str:
        """What is explained."""
        return f"{self.model} at {self.precision} on one {self.device}, batch {self.batch_size:g}"

    def blocks(self, *, width: int = TEXT_WIDTH, why: bool = False) -> Iterator[Block]:
        """The page that `precision-time explain` prints: figures of the whole step, and rows per op class."""
        del width, why
        yield Text(self.in_one_line(), Tone.LEAD)
        for name, value in self.to_dict().items():
            if name not in _TOLD:
                yield Text(f"{_header(name)}: {format_field(name, value)}")
        yield from (GAP, _table([asdict(row) for row in self.rows]))
        if self.own_rules:
            operators = [{"operator": name, "dtype": dtype} for name, dtype in self.operators.items()]
            yield from (GAP, _table(operators))
        yield from warnings(self.warnings)

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready dictionary."""
        return asdict(self)


_TOLD = ("model", "precision", "device", "batch_size", "rows", "operators", "own_rules", "warnings")
"""Fields of an explanation that have their own place on its page."""


def _table(rows: Sequence[Mapping[str, Any]]) -> Table:
    columns = list(dict.fromkeys(name for row in rows for name in row))
    numeric = {name for name in columns if all(isinstance(row[name], (int, float)) for row in rows)}
    return Table(
        columns=tuple(f"{'>' if name in numeric else ''}{_header(name)}" for name in columns),
        rows=tuple(tuple(format_field(name, row[name]) for name in columns) for row in rows),
    )


def _header(name: str) -> str:
    return plain_name(name) if name.endswith("time_s") else name.replace("_", " ")


@dataclass(frozen=True, kw_only=True, slots=True)
class _Priced:
    step: LoweredStep
    flops: np.ndarray[Any, np.dtype[np.float64]]
    moved: np.ndarray[Any, np.dtype[np.float64]]
    seconds: np.ndarray[Any, np.dtype[np.float64]]
    launches: np.ndarray[Any, np.dtype[np.float64]]


@takes_request_fields(only=EXPLAINED_FIELDS)
def explain(model: Any, **options: Any) -> Explanation:
    """Compare a precision with fp32, per operator class.

    Args:
        model: As `predict_time` takes it, or a `Request`.
        options: Fields of `Request` that describe the model, the device and the precision; the batch is 32
            when not given.

    Raises:
        ConfigError: As `predict_time`.
    """
    request = as_request(model, options)
    workload = workload_of(request)
    found = Diagnostics()
    target = cluster_of(request, found).device
    policy = precision_of(request.precision, target, found, graph=workload.graph)
    batch = float(request.batch_size or _DEFAULT_BATCH)
    runs = on_device(policy, target)
    ours = _price(lower(workload.graph, runs), target, batch)
    wide = _price(lower(workload.graph, get_policy("fp32")), target, batch)
    casts = ours.step.is_cast
    product_flops = float(ours.flops.sum())
    narrow = np.array([dtype.value not in ("fp32", "fp64") for dtype in DTYPES])[ours.step.dtype]
    return Explanation(
        model=workload.name,
        device=target.name,
        precision=policy.name,
        batch_size=batch,
        flops=product_flops,
        bytes=float(ours.moved.sum()),
        fp32_bytes=float(wide.moved.sum()),
        cast_bytes=float(ours.moved[casts].sum()),
        casts=float(ours.launches[casts].sum()),
        time_s=float(ours.seconds.sum()),
        fp32_time_s=float(wide.seconds.sum()),
        tensor_core_share=float(ours.flops[narrow].sum()) / max(product_flops, 1.0),
        rows=_rows(ours, wide),
        operators={name: dtype.value for name, dtype in operator_types(workload.graph, runs).items()},
        own_rules=policy.ruled,
        warnings=texts_of(found.items, Severity.WARNING),
    )


def _price(step: LoweredStep, device: Device, batch: float) -> _Priced:
    scaled = step.m_scales | step.k_scales | step.count_scales
    repeats = step.repeat * step.sequential_steps
    seconds = kernel_seconds(step, np.array([[batch]]), rates_of(device), load_kernel_model())[0]
    return _Priced(
        step=step,
        flops=step.flops * repeats * np.where(scaled, batch, 1.0),
        moved=(step.bytes_per_sample * batch + step.bytes_fixed) * repeats,
        seconds=seconds,
        launches=step.launches * repeats,
    )


def _rows(ours: _Priced, wide: _Priced) -> tuple[ExplainedClass, ...]:
    """One row per phase, class and type, in the order of a step; casts have a row of their own."""
    rows: list[ExplainedClass] = []
    for phase_index, phase in enumerate(PHASES):
        for class_index, op_class in enumerate(OP_CLASSES):
            here = (ours.step.phase == phase_index) & (ours.step.op_class == class_index) & ~ours.step.is_cast
            there = (wide.step.phase == phase_index) & (wide.step.op_class == class_index)
            rows.extend(_class_rows(op_class.value, phase, ours, wide, here, there))
        casts = (ours.step.phase == phase_index) & ours.step.is_cast
        none = np.zeros(len(wide.moved), dtype=bool)
        rows.extend(_class_rows("cast", phase, ours, wide, casts, none))
    return tuple(rows)


def _class_rows(
    name: str,
    phase: str,
    ours: _Priced,
    wide: _Priced,
    here: np.ndarray[Any, np.dtype[np.bool_]],
    there: np.ndarray[Any, np.dtype[np.bool_]],
) -> list[ExplainedClass]:
    rows: list[ExplainedClass] = []
    total = float(ours.moved[here].sum()) or 1.0
    for dtype_index in np.unique(ours.step.dtype[here]):
        mask = here & (ours.step.dtype == dtype_index)
        share = float(ours.moved[mask].sum()) / total
        rows.append(
            ExplainedClass(
                op_class=name,
                phase=phase,
                dtype=DTYPES[int(dtype_index)].value,
                flops=float(ours.flops[mask].sum()),
                bytes=float(ours.moved[mask].sum()),
                time_s=float(ours.seconds[mask].sum()),
                launches=float(ours.launches[mask].sum()),
                fp32_bytes=float(wide.moved[there].sum()) * share,
                fp32_time_s=float(wide.seconds[there].sum()) * share,
            )
        )
    return rows
