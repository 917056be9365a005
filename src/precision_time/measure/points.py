"""What to measure: the points of a plan file (`data/cuda.toml`, `data/cpu.toml`, or one of your own)."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

from ..errors import ConfigError, UnknownNameError
from ..precision.catalog import parse_precision

PLANS = ("cuda", "cpu")
"""Plan files that come with the package."""
STEP_PRECISIONS = ("fp32", "tf32", "fp16", "bf16", "fp16-mixed", "bf16-mixed", "fp8-mixed")
OP_DTYPES = ("fp32", "tf32", "fp16", "bf16", "fp8")
_DATA = Path(__file__).parent / "data"
_OWN_MODEL = ":"
"""What the name of a user's own model contains: package.module:function."""


@dataclass(frozen=True, kw_only=True, slots=True)
class OpPoint:
    """One operator at one shape, type and phase."""

    op: str
    dtype: str
    shape: Mapping[str, Any]
    phase: str
    """fwd, bwd (gradients of all inputs), or step (optimizers, loss scaling: no gradient)."""
    rank: int = 0
    """Points of lower rank are measured first."""

    @property
    def shape_json(self) -> str:
        """The shape as the CSV holds it."""
        return json.dumps(dict(self.shape), separators=(",", ":"))

    @property
    def key(self) -> str:
        """Equal for points that measure the same thing."""
        return "|".join((self.op, self.dtype, self.phase, self.shape_json))

    @property
    def precision(self) -> str:
        """Type of the product."""
        return self.dtype

    def __str__(self) -> str:
        return f"{self.op} {self.dtype} {self.phase} {self.shape_json}"


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelSpec:
    """How a model is built and what its row says of it."""

    name: str
    """Name in the rows: one that the model catalogue knows, unless it is the user's own."""
    library: str
    """timm, transformers, torch (measure/torch_models.py) or own (package.module:function)."""
    build: Mapping[str, Any] = field(default_factory=dict)
    """For the library: architecture, configuration, arguments."""
    sizes: Mapping[str, Any] = field(default_factory=dict)
    """Sizes that the row states (model_config)."""
    task: str = ""
    optimizer: str = "sgd_with_momentum"
    unit: str = "samples/s"
    image_size: int | None = None
    seq_len: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class StepPoint:
    """A whole optimizer step of one model in one configuration, on one device."""

    model: ModelSpec
    precision: str
    batch_size: int
    """Samples per forward pass; 0 where the user's own function decides."""
    channels_last: bool = False
    compiled: bool = False
    fused_optimizer: bool = False
    checkpointing: bool = False
    grad_accum: int = 1
    rank: int = 0

    @property
    def key(self) -> str:
        """Equal for points that measure the same thing; the `run_id` of the row."""
        marks = {
            "nhwc": self.channels_last,
            "compiled": self.compiled,
            "fused": self.fused_optimizer,
            "checkpointed": self.checkpointing,
            f"accum{self.grad_accum}": self.grad_accum > 1,
            f"s{self.model.seq_len}": self.model.seq_len is not None,
            f"i{self.model.image_size}": self.model.image_size is not None,
        }
        words = (self.model.name, self.precision, f"b{self.batch_size}", self.model.optimizer)
        return "/".join((*words, *(mark for mark, holds in marks.items() if holds)))

    def __str__(self) -> str:
        return self.key


Point = OpPoint | StepPoint


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """Everything a plan file asks for."""

    name: str
    ops: tuple[OpPoint, ...]
    steps: tuple[StepPoint, ...]
    op_seconds: float
    """Timed seconds of one operator."""
    step_seconds: float
    """Timed seconds of one training step's point."""
    specs: Mapping[str, ModelSpec]
    usual: Mapping[str, Any]
    """The `[[step]]` table for models that the file does not name."""


def load_plan(source: str | Path) -> Plan:
    """The plan in a file, or one of PLANS.

    Raises:
        ConfigError: If the file cannot be read or asks for something that does not exist.
    """
    path = _DATA / f"{source}.toml" if str(source) in PLANS else Path(source)
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(
            f"The plan {source} cannot be read: {error}. To fix: name a TOML file, or one of "
            f"{', '.join(PLANS)}."
        ) from error
    try:
        specs = {name: ModelSpec(name=name, **entry) for name, entry in document.get("model", {}).items()}
        return Plan(
            name=str(source),
            ops=tuple(_unique(point for entry in document.get("op", []) for point in _ops(entry))),
            steps=tuple(_unique(p for entry in document.get("step", []) for p in _steps(entry, specs))),
            op_seconds=float(document["seconds"]["ops"]),
            step_seconds=float(document["seconds"]["steps"]),
            specs=specs,
            usual=document.get("usual", {"precisions": ["fp32"], "batch_sizes": [8]}),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise ConfigError(
            f"The plan {source} is not complete: {error}. The rule: [seconds] with ops and steps, [[op]] "
            "and [[step]] tables, [model.NAME] for every model. To fix: see docs/devdocs/005-measuring.md."
        ) from error


def _unique(points: Iterable[Any]) -> Iterator[Any]:
    seen: set[str] = set()
    for point in points:
        if point.key not in seen:
            seen.add(point.key)
            yield point


def _ops(entry: Mapping[str, Any]) -> Iterator[OpPoint]:
    unknown = set(entry["dtypes"]) - set(OP_DTYPES)
    if unknown:
        raise ValueError(f"dtypes of {entry['op']}: {sorted(unknown)} are none of {OP_DTYPES}")
    axes = product(entry["shapes"], entry.get("variants", [{}]), entry["dtypes"], entry["phases"])
    for shape, variant, dtype, phase in axes:
        merged = {**shape, **variant}
        yield OpPoint(op=entry["op"], dtype=dtype, shape=merged, phase=phase, rank=entry.get("rank", 0))


def _steps(entry: Mapping[str, Any], specs: Mapping[str, ModelSpec]) -> Iterator[StepPoint]:
    axes = product(entry["models"], entry["precisions"], entry["batch_sizes"])
    for name, precision, batch_size in axes:
        if precision not in STEP_PRECISIONS:
            raise ValueError(f"precision {precision!r} is none of {STEP_PRECISIONS}")
        yield StepPoint(
            model=specs[name],
            precision=precision,
            batch_size=batch_size,
            channels_last=entry.get("channels_last", False),
            compiled=entry.get("compiled", False),
            fused_optimizer=entry.get("fused_optimizer", False),
            checkpointing=entry.get("checkpointing", False),
            grad_accum=entry.get("grad_accum", 1),
            rank=entry.get("rank", 0),
        )


def select(
    plan: Plan,
    *,
    what: str = "all",
    precisions: Sequence[str] = (),
    models: Sequence[str] = (),
    ops: Sequence[str] = (),
) -> list[Point]:
    """The points of a plan that pass every filter, those of low rank first.

    Args:
        plan: From `load_plan`.
        what: ops, steps or all.
        precisions: Any spelling; an operator passes under each precision that multiplies in its type.
        models: Names of the plan, names of timm models, or package.module:function.
        ops: Names of operators.

    Raises:
        ConfigError: If `what` is none of the three, or the filters leave nothing.
        UnknownNameError: For a precision or an operator that does not exist.
    """
    if what not in ("ops", "steps", "all"):
        raise ConfigError(f"--what {what!r} cannot be. To fix: use ops, steps or all.")
    wanted = {_precision(word) for word in precisions}
    known_ops = sorted({point.op for point in plan.ops})
    for op in ops:
        if op not in known_ops:
            raise UnknownNameError(
                kind="operator", name=op, known=known_ops, hint="All names: precision-time measure --list."
            )
    points: list[Point] = []
    if what != "ops":
        points += [p for p in _of_models(plan, models) if not wanted or p.precision in wanted]
    if what != "steps":
        types = {word.removesuffix("-mixed") for word in wanted}
        points += [p for p in plan.ops if (not types or p.dtype in types) and (not ops or p.op in ops)]
    if not points:
        raise ConfigError(
            f"Nothing of the plan {plan.name} is left by the filters. To fix: `--list` shows all of it."
        )
    return sorted(points, key=lambda point: point.rank)


def _precision(word: str) -> str:
    name = "fp8-mixed" if word == "fp8" else parse_precision(word).name
    if name not in STEP_PRECISIONS:
        raise ConfigError(f"{name} cannot be measured. To fix: use one of {', '.join(STEP_PRECISIONS)}.")
    return name


def _of_models(plan: Plan, models: Sequence[str]) -> list[StepPoint]:
    if not models:
        return list(plan.steps)
    chosen: list[StepPoint] = []
    for name in models:
        planned = [point for point in plan.steps if point.model.name == name]
        chosen += planned or list(_steps({**plan.usual, "models": [name]}, {name: _own(plan, name)}))
    return list(_unique(chosen))


def _own(plan: Plan, name: str) -> ModelSpec:
    """A model that no `[[step]]` names: one of the file, the user's own, or timm's."""
    if name in plan.specs:
        return plan.specs[name]
    if _OWN_MODEL in name:
        return ModelSpec(name=name, library="own", optimizer="adamw")
    return ModelSpec(name=name, library="timm", task="imagenet-train", unit="images/s")
