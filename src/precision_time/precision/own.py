"""Precision policies of the user's own: a mapping or a file (YAML, TOML, JSON) in the place of a name.

It starts from a named policy (`base`) or from fp32 and says what differs: types, lists of operators, types of
layers, recipe, loss scaling. `fields_of` says any policy in full, so that each named one is a starting point.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, ValidationError, model_validator

from ..barrier import check_may_read
from ..errors import ConfigError, UnknownNameError, nearest_names, shown
from ..io import packaged_toml, read_input, read_yaml
from ..workload.graph import OpClass, OpGraph
from .catalog import get_policy
from .policy import NARROW, DType, LayerRule, PrecisionPolicy
from .rules import layers_of_pattern, operator_names

_MAX_BYTES = 2**20
_START = "fp32"
_NONE = "none"
_TYPES = ("matmul", "conv", "activation", "param", "grad", "reduce", "optimizer_state")
_SIXTEEN_BITS = 2.0
_Word = Annotated[str, Field(min_length=1, max_length=200)]
_Words = Annotated[tuple[_Word, ...], Field(max_length=1000)]


class _Ops(BaseModel):
    """Lists of operators, as autocast has them."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    lower: _Words = Field((), validation_alias=AliasChoices("lower", "allow"))
    fp32: _Words = Field((), validation_alias=AliasChoices("fp32", "deny"))
    promote: _Words = ()
    same: _Words = ()


class _Recipe(BaseModel):
    """A recipe of narrow products with a history of maxima of the user's own."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: _Word
    amax_history: Annotated[int, Field(ge=1, le=1_000_000)] | None = None


class PolicyFields(BaseModel):
    """What a policy file says; what it leaves out is as in its base."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_enum_values=True)

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_. -]{0,63}$")] | None = None
    summary: Annotated[str, Field(max_length=500)] | None = None
    base: _Word | None = None
    compute: DType | None = None
    matmul: DType | None = None
    conv: DType | None = None
    activation: DType | None = None
    param: DType | None = Field(None, validation_alias=AliasChoices("param", "params"))
    grad: DType | None = Field(None, validation_alias=AliasChoices("grad", "grads"))
    reduce: DType | None = None
    master: DType | Literal["none"] | None = None
    optimizer_state: DType | None = Field(
        None, validation_alias=AliasChoices("optimizer_state", "optimizer_states")
    )
    autocast: bool | None = None
    loss_scaling: Literal["dynamic", "static", "none"] | None = None
    fp8_recipe: _Word | _Recipe | None = None
    gather: DType | Literal["none"] | None = None
    wide_layers: tuple[Annotated[int, Field(ge=0, le=1000)], Annotated[int, Field(ge=0, le=1000)]] | None = (
        None
    )
    ops: _Ops | None = None
    layers: Annotated[dict[_Word, DType], Field(max_length=200)] | None = None

    @model_validator(mode="after")
    def _once(self) -> Self:
        """No operator stands in two lists."""
        said: dict[str, str] = {}
        for kind, names in (self.ops.model_dump() if self.ops else {}).items():
            for name in names:
                if said.setdefault(_op(name), kind) != kind:
                    raise ValueError(f"{name} stands in the lists {said[_op(name)]} and {kind}")
        return self


def stated_policy(given: str | Path | Mapping[str, Any]) -> dict[str, Any]:
    """What a policy file or a mapping says, checked, as JSON can hold it: content, not a path.

    Raises:
        ConfigError: If it cannot be read, says something unknown, or contradicts itself.
    """
    if isinstance(given, Mapping):
        where, said = "The precision policy", dict(given)
    else:
        check_may_read(given)
        where, said = f"The precision policy {given}", _read(Path(given))
        said.setdefault("name", Path(given).stem)
    try:
        fields = PolicyFields.model_validate(said)
    except ValidationError as error:
        raise ConfigError(f"{where} is invalid: {_reason(error)}") from None
    stated = fields.model_dump(exclude_none=True, exclude_defaults=True, mode="json")
    policy_of(stated)
    return stated


def policy_of(stated: Mapping[str, Any]) -> PrecisionPolicy:
    """The policy that checked fields (`stated_policy`) say.

    Raises:
        ConfigError: If its types contradict each other, or its base or recipe is unknown.
    """
    return _policy_of(json.dumps(stated))  # in the order given: of patterns the last one holds


def _policy_of(text: str) -> PrecisionPolicy:
    fields = PolicyFields.model_validate_json(text)
    base = get_policy(fields.base or _START)
    changes: dict[str, Any] = {}
    if fields.compute is not None:
        changes |= _computing(DType(fields.compute), base)
    given = {name: getattr(fields, name) for name in _TYPES}
    changes |= {name: DType(dtype) for name, dtype in given.items() if dtype is not None}
    for name in ("master", "gather"):
        dtype = getattr(fields, name)
        if dtype is not None:
            changes[name] = None if dtype == _NONE else DType(dtype)
    if fields.autocast is not None:
        changes["autocast"] = fields.autocast
    if fields.loss_scaling is not None:
        changes |= {
            "loss_scaling": fields.loss_scaling != _NONE,
            "static_scaling": fields.loss_scaling == "static",
        }
    if isinstance(fields.fp8_recipe, _Recipe):
        changes |= {"fp8_recipe": fields.fp8_recipe.name, "amax_history": fields.fp8_recipe.amax_history}
    elif fields.fp8_recipe is not None:
        changes["fp8_recipe"] = None if fields.fp8_recipe == _NONE else fields.fp8_recipe
    if fields.wide_layers is not None:
        changes["wide_layers"] = tuple(fields.wide_layers)
    if fields.ops is not None:
        lists = fields.ops.model_dump()
        changes["ops"] = tuple(sorted((_op(name), kind) for kind in lists for name in set(lists[kind])))
    if fields.layers is not None:
        changes["layers"] = tuple(
            LayerRule(pattern=pattern, dtype=DType(dtype), multiplied=DType(dtype))
            for pattern, dtype in fields.layers.items()
        )
    name = fields.name or (f"{fields.base} with changes" if fields.base else "own policy")
    policy = replace(base, **changes, name=name, summary=fields.summary or base.summary)
    if policy.narrow is None:
        policy = replace(policy, fp8_recipe=None)
    elif policy.fp8_recipe is None:
        policy = replace(policy, fp8_recipe="nvfp4" if policy.narrow is DType.FP4 else "delayed")
    _check(policy)
    return policy


def _computing(dtype: DType, base: PrecisionPolicy) -> dict[str, Any]:
    """Products in a type, and what stands around them."""
    if dtype in NARROW:
        wide = base.activation if base.activation.num_bytes == _SIXTEEN_BITS else DType.BF16
        return {"matmul": dtype, "conv": wide, "activation": wide}
    return {"matmul": dtype, "conv": dtype, "activation": DType.FP32 if dtype is DType.TF32 else dtype}


def _check(policy: PrecisionPolicy) -> None:
    """Refuse types that contradict each other.

    Raises:
        ConfigError: What they are, and the remedy.
    """
    narrow = {rule.dtype for rule in policy.layers} | {policy.matmul, policy.conv}
    narrow &= NARROW
    wide = DType.FP32.num_bytes
    problems = {
        f"activation={policy.activation} is narrower than {policy.matmul} or {policy.conv} of products": (
            policy.activation.num_bytes < max(policy.matmul.num_bytes, policy.conv.num_bytes)
        ),
        f"activation={policy.activation} and param={policy.param} must have 16 bits or more": (
            policy.activation in NARROW or policy.param in NARROW
        ),
        f"{' and '.join(sorted(narrow))} are two narrow types, and a policy has one recipe": len(narrow) > 1,
        f"master={policy.master} is no wider than param={policy.param}": (
            policy.master is not None and policy.master.num_bytes <= policy.param.num_bytes
        ),
        "ops.lower needs a type of 16 bits to lower to, such as base: bf16-mixed": (
            policy.activation.num_bytes >= wide and "lower" in dict(policy.ops).values()
        ),
        "fp64 has no lists of operators or layers": (
            policy.ruled and DType.FP64 in (policy.activation, *(rule.dtype for rule in policy.layers))
        ),
    }
    for problem, found in problems.items():
        if found:
            raise ConfigError(
                f"The precision policy {policy.name} is invalid: {problem}. To fix: change one of them."
            )
    recipes = tuple(packaged_toml(__package__, "data/recipes.toml")["recipe"])
    if policy.fp8_recipe is not None and policy.fp8_recipe not in recipes:
        raise UnknownNameError(
            kind="fp8 recipe", name=policy.fp8_recipe, known=recipes, hint=f"Recipes: {', '.join(recipes)}."
        )
    if policy.narrow is not None and policy.gather not in (None, policy.narrow):
        raise ConfigError(
            f"The precision policy {policy.name} gathers in {policy.gather} what it multiplies in "
            f"{policy.narrow}. To fix: gather: {policy.narrow}, or none."
        )


def check_rules(policy: PrecisionPolicy, graph: OpGraph) -> None:
    """Refuse operators that nobody knows and patterns that match nothing in a model.

    Raises:
        ConfigError: What was given, what there is, and the remedy.
    """
    lists = packaged_toml(__package__, "data/autocast.toml")
    known = {_op(op) for part in ("header", "recorded") for ops in lists[part].values() for op in ops}
    own = {_op(node.op) for node in graph.nodes} | {node.op_class.value for node in graph.nodes}
    known |= own | {item.value for item in OpClass}
    for name, kind in policy.ops:
        if name not in known:
            near = nearest_names(name, known)
            guess = f" Did you mean {' or '.join(near)}?" if near else ""
            raise ConfigError(
                f"ops.{kind} of the precision policy {policy.name} names {name!r}, which is no operator of "
                f"{graph.name}, of torch's autocast lists, nor a class of operators.{guess} To fix: name one "
                f"of {', '.join(sorted(own))}."
            )
    for rule in policy.layers:
        if not layers_of_pattern(graph, rule.pattern):
            names = list(dict.fromkeys(names[0] for names in operator_names(graph.nodes)))
            shown = ", ".join(names[:_SHOWN]) + (
                f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
            )
            raise ConfigError(
                f"layers of the precision policy {policy.name}: {rule.pattern!r} matches no operator of "
                f"{graph.name}. It has {shown.replace('{}', 'N')}. To fix: use these names, * for anything, "
                f"0-3 for a range of layers (`precision-time explain` shows all)."
            )


_SHOWN = 24


def fields_of(policy: PrecisionPolicy, *, name: str = "") -> dict[str, Any]:
    """Everything that a policy says, as a policy file says it."""
    said: dict[str, Any] = {"name": (name or policy.name).replace(":", "-").replace("+", "-")}
    said["summary"] = policy.summary
    said |= {field: getattr(policy, field).value for field in _TYPES}
    said["master"] = policy.master.value if policy.master else _NONE
    said["autocast"] = policy.autocast
    said["loss_scaling"] = (
        ("static" if policy.static_scaling else "dynamic") if policy.loss_scaling else _NONE
    )
    if policy.fp8_recipe:
        said["fp8_recipe"] = policy.fp8_recipe
        if policy.amax_history is not None:
            said["fp8_recipe"] = {"name": policy.fp8_recipe, "amax_history": policy.amax_history}
    if policy.gather:
        said["gather"] = policy.gather.value
    if policy.wide_layers != (0, 0):
        said["wide_layers"] = list(policy.wide_layers)
    if policy.ops:
        said["ops"] = {kind: [op for op, its in policy.ops if its == kind] for _, kind in policy.ops}
    if policy.layers:
        said["layers"] = {rule.pattern: rule.dtype.value for rule in policy.layers}
    return said


def as_yaml(policy: PrecisionPolicy, *, name: str = "") -> str:
    """`fields_of` as a file to start from."""
    import yaml

    text: str = yaml.safe_dump(fields_of(policy, name=name), sort_keys=False, width=110)
    return text


def _op(name: str) -> str:
    """An operator without namespace, overload and the underscores of its recorded form."""
    return name.rpartition("::")[2].partition(".")[0].strip("_").lower()


def _read(path: Path) -> dict[str, Any]:
    try:
        if path.stat().st_size > _MAX_BYTES:
            raise ConfigError(
                f"The precision policy {path} is larger than {_MAX_BYTES // 2**20} MiB. To fix: shorten it."
            )
        text = read_input(path, encoding="utf-8-sig")
        found = tomllib.loads(text) if path.suffix.lower() == ".toml" else read_yaml(text, once=True)
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"The precision policy {path} cannot be read: {error}. To fix: check the path, or name a policy "
            "(`precision-time list precisions`)."
        ) from error
    except (ValueError, RecursionError) as error:
        if isinstance(error, ConfigError):
            raise
        reason = " ".join(str(error).split())
        raise ConfigError(
            f"The precision policy {path} cannot be read: {reason}. To fix: correct it."
        ) from error
    if not isinstance(found, Mapping):
        raise ConfigError(
            f"The precision policy {path} is {type(found).__name__}, not a mapping. To fix: start from "
            "`precision-time list precisions bf16-mixed --yaml`."
        )
    return {str(name): value for name, value in found.items()}


def _reason(error: ValidationError) -> str:
    """The first problem, in words."""
    first = error.errors(include_url=False, include_context=False)[0]
    place = ".".join(str(part) for part in first["loc"])
    if first["type"] == "extra_forbidden":
        within = _Ops if place.startswith("ops.") else PolicyFields
        known = tuple(within.model_fields)
        near = nearest_names(place.rpartition(".")[2], known)
        guess = f" Did you mean {' or '.join(near)}?" if near else ""
        return f"it has no field {place!r}.{guess} To fix: use {', '.join(known)}."
    given = shown(first.get("input"))
    return (
        f"{place or 'it'}={given}: {first['msg']}. To fix: correct it (`precision-time list precisions "
        "NAME --yaml` shows one)."
    )
