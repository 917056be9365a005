"""What `precision-time measure` runs: the trials of a plan file (data/*.toml, or your own)."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from precision_time.errors import ConfigError, UnknownNameError
from precision_time.io import read_input
from precision_time.precision.catalog import parse_precision

from .precisions import DATA, MODES
from .trial import KernelTrial, LocalTrial, ModelSpec, StepTrial

PLANS = ("cuda", "cpu")
"""Plan files that come with the package."""
STEP_PRECISIONS = tuple(MODES)
OP_DTYPES = ("fp32", "tf32", "fp16", "bf16", "fp8")
_STEP_OPTIONS = ("channels_last", "compiled", "fused_optimizer", "checkpointing", "grad_accum", "rank")


@dataclass(frozen=True, kw_only=True, slots=True)
class MeasurePlan:
    """Everything a plan file asks for."""

    name: str
    ops: tuple[KernelTrial, ...]
    steps: tuple[StepTrial, ...]
    op_seconds: float
    """Timed seconds of one operator."""
    step_seconds: float
    """Timed seconds of one training step's trial."""
    specs: Mapping[str, ModelSpec]
    usual: Mapping[str, Any]
    """The `[[step]]` table for models that the file does not name."""


def is_own(name: str) -> bool:
    """Whether a model is of the user's own: a file, or a function of a package."""
    return ":" in name or name.endswith(".py")


def load_plan(source: str | Path) -> MeasurePlan:
    """The plan in a file, or one of PLANS.

    Raises:
        ConfigError: If the file cannot be read or asks for something that does not exist.
    """
    path = DATA / f"{source}.toml" if str(source) in PLANS else Path(source)
    try:
        document = tomllib.loads(read_input(path))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(
            f"The plan {source} cannot be read: {error}. To fix: name a TOML file, or one of "
            f"{', '.join(PLANS)}."
        ) from error
    try:
        specs = {name: ModelSpec(name=name, **entry) for name, entry in document.get("model", {}).items()}
        return MeasurePlan(
            name=str(source),
            ops=tuple(_unique(trial for entry in document.get("op", []) for trial in _ops(entry))),
            steps=tuple(_unique(p for entry in document.get("step", []) for p in _steps(entry, specs))),
            op_seconds=float(document["seconds"]["ops"]),
            step_seconds=float(document["seconds"]["steps"]),
            specs=specs,
            usual=document.get("usual", {"precisions": ["fp32"], "batch_sizes": [8]}),
        )
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ConfigError(
            f"The plan {source} is not complete: {error}. The rule: [seconds] with ops and steps, [[op]] "
            "and [[step]] tables, [model.NAME] for every model. To fix: see docs/devdocs/measuring.md."
        ) from error


def _unique(trials: Iterable[Any]) -> Iterator[Any]:
    seen: set[str] = set()
    for trial in trials:
        if trial.key not in seen:
            seen.add(trial.key)
            yield trial


def _ops(entry: Mapping[str, Any]) -> Iterator[KernelTrial]:
    unknown = set(entry["dtypes"]) - set(OP_DTYPES)
    if unknown:
        raise ValueError(f"dtypes of {entry['op']}: {sorted(unknown)} are none of {OP_DTYPES}")
    axes = product(entry["shapes"], entry.get("variants", [{}]), entry["dtypes"], entry["phases"])
    for shape, variant, dtype, phase in axes:
        merged = {**shape, **variant}
        yield KernelTrial(op=entry["op"], dtype=dtype, shape=merged, phase=phase, rank=entry.get("rank", 0))


def _steps(entry: Mapping[str, Any], specs: Mapping[str, ModelSpec]) -> Iterator[StepTrial]:
    axes = product(entry["models"], entry["precisions"], entry["batch_sizes"])
    for name, precision, batch_size in axes:
        if precision not in STEP_PRECISIONS:
            raise ValueError(f"precision {precision!r} is none of {STEP_PRECISIONS}")
        yield StepTrial(
            model=specs[name],
            precision=precision,
            batch_size=batch_size,
            **{name: entry[name] for name in _STEP_OPTIONS if name in entry},
        )


def select(
    plan: MeasurePlan,
    *,
    what: str = "all",
    precisions: Sequence[str] = (),
    models: Sequence[str] = (),
    ops: Sequence[str] = (),
    specs: Mapping[str, ModelSpec] | None = None,
    batch_sizes: Sequence[int] = (),
) -> list[LocalTrial]:
    """The trials of a plan that pass every filter, those of low rank first.

    Args:
        plan: From `load_plan`.
        what: ops, steps or all.
        precisions: Any spelling; an operator passes under each precision that multiplies in its type.
        models: Names of the plan, names of timm models, or package.module:function.
        ops: Names of operators.
        specs: Of users' own models, by the name they are given in `models`.
        batch_sizes: Of models that the plan does not name; the plan's usual ones if empty.

    Raises:
        ConfigError: If `what` is none of the three, or the filters leave nothing.
        UnknownNameError: For a precision or an operator that does not exist.
    """
    if what not in ("ops", "steps", "all"):
        raise ConfigError(f"--what {what!r} is invalid. To fix: use ops, steps or all.")
    wanted = {_precision(word) for word in precisions}
    known_ops = sorted({trial.op for trial in plan.ops})
    for op in ops:
        if op not in known_ops:
            raise UnknownNameError(
                kind="operator", name=op, known=known_ops, hint="All names: precision-time measure --list."
            )
    trials: list[LocalTrial] = []
    if what != "ops":
        trials += [
            p
            for p in _of_models(plan, models, specs or {}, batch_sizes)
            if not wanted or p.precision in wanted
        ]
    if what != "steps":
        types = {word.removesuffix("-mixed") for word in wanted}
        trials += [p for p in plan.ops if (not types or p.dtype in types) and (not ops or p.op in ops)]
    if not trials:
        raise ConfigError(
            f"Nothing of the plan {plan.name} passes the filters. To fix: `--list` shows all of it."
        )
    return sorted(trials, key=lambda trial: trial.rank)


def _precision(word: str) -> str:
    name = "fp8-mixed" if word == "fp8" else parse_precision(word).name
    if name not in STEP_PRECISIONS:
        raise ConfigError(f"{name} cannot be measured. To fix: use one of {', '.join(STEP_PRECISIONS)}.")
    return name


def _of_models(
    plan: MeasurePlan,
    models: Sequence[str],
    specs: Mapping[str, ModelSpec],
    batch_sizes: Sequence[int],
) -> list[StepTrial]:
    if not models:
        return list(plan.steps)
    chosen: list[StepTrial] = []
    for name in models:
        planned = [trial for trial in plan.steps if trial.model.name == name and not batch_sizes]
        usual = {**plan.usual, "models": [name]} | ({"batch_sizes": batch_sizes} if batch_sizes else {})
        chosen += planned or list(_steps(usual, {name: specs.get(name) or _unplanned(plan, name)}))
    return list(_unique(chosen))


def _unplanned(plan: MeasurePlan, name: str) -> ModelSpec:
    """A model that no `[[step]]` names: one of the file, user-defined, or timm's."""
    if name in plan.specs:
        return plan.specs[name]
    if is_own(name):
        return ModelSpec(name=name, library="own", optimizer="adamw")
    return ModelSpec(name=name, library="timm", task="imagenet-train", unit="images/s")
