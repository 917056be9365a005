"""Precision policies by name: `data/policies.toml`, and every spelling in `data/aliases.toml`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..cache import data
from ..errors import ConfigError, UnknownNameError
from ..io import packaged_toml
from ..records import dataclass
from .policy import DType, PrecisionPolicy

HINT = "All names: precision-time list precisions."

_SEPARATORS = re.compile(r"[\s_\-./()]+")
_CONTAINER = re.compile(r"^(?:ngc[-_ ]?)?([12]\d)\.(\d{2})(?:$|[-_ ])")
_NUMBER = re.compile(r"^\d+(?:\.\d+)?")
_FIRST_YEAR = 1990.0
_AND = "+"
"""Joins variants of one policy: fp8-mixed:mxfp8+bf16-reduce."""
_NO_MASTER = "none"
_FILES = (".yaml", ".yml", ".toml", ".json")
_DTYPE_FIELDS = ("matmul", "conv", "activation", "param", "grad", "reduce", "optimizer_state")


@dataclass(frozen=True, kw_only=True, slots=True)
class PrecisionChoice:
    """What a spelling of a precision means."""

    name: str
    """Canonical name of the policy."""
    variant: str | None = None
    """Variant of the policy that the spelling names (`O2` is fp16-mixed, apex-o2)."""
    assumption: str | None = None
    """Both readings, in words, where tools disagree on the spelling."""


def parse_precision(spelling: str) -> PrecisionChoice:
    """The policy that `spelling` means.

    Args:
        spelling: Canonical name, any usual spelling (`16-mixed`, `mixed_fp16_fp32`, `amp`, `O2`), or
            `name:variant`, `name:variant+variant` where both are meant.

    Raises:
        UnknownNameError: No spelling of a known policy or variant.
        ConfigError: Something that is asked for by another field.

    >>> parse_precision("mixed_fp16_fp32").name, parse_precision("O2").variant
    ('fp16-mixed', 'apex-o2')
    """
    text = str(spelling)
    base, _, variant = text.partition(":")
    choice = _spellings().get(_folded(base))
    if choice is None:
        for word, said in _toml("aliases.toml")["elsewhere"].items():
            if _folded(word) == _folded(base):
                raise ConfigError(f"{text} is no precision of a training step. To fix: {said}.")
        raise UnknownNameError(kind="precision", name=text, known=_offered(), hint=HINT)
    if not variant:
        return choice
    known = known_variants(choice.name)
    for part in variant.split(_AND):
        if part not in known:
            raise UnknownNameError(
                kind=f"variant of {choice.name}",
                name=part,
                known=known,
                hint=f"Variants of {choice.name}: {', '.join(known) or 'none'}.",
            )
    return PrecisionChoice(name=choice.name, variant=variant, assumption=choice.assumption)


def is_policy_file(given: Any) -> bool:
    """Whether a precision is the path of a policy of the user's own (`own.py`) rather than a name."""
    return isinstance(given, Path) or (isinstance(given, str) and given.strip().lower().endswith(_FILES))


def shown_precision(given: Any) -> str:
    """A precision of a request as a table shows it: its name."""
    return str(given.get("name", "own policy")) if isinstance(given, Mapping) else str(given)


def get_policy(name: str, *, variant: str | None = None) -> PrecisionPolicy:
    """The policy that a name or spelling means.

    Args:
        name: Anything `parse_precision` reads.
        variant: One of `known_variants(name)`, or several joined by "+", the later ones overriding the
            earlier; instead of the one in the spelling.

    Raises:
        UnknownNameError: Unknown name or variant.
    """
    choice = parse_precision(f"{name}:{variant}" if variant and ":" not in name else name)
    return _policy(choice.name, choice.variant)


def known_precisions() -> tuple[str, ...]:
    """Canonical names of all policies, widest first."""
    return tuple(_policies())


def known_policies() -> tuple[PrecisionPolicy, ...]:
    """Every policy without its variants, widest first."""
    return tuple(_policy(name, None) for name in _policies())


def known_variants(name: str) -> tuple[str, ...]:
    """Names of the variants of a canonical policy name."""
    return tuple(_policies()[name].get("variant", {}))


def tf32_defaults(framework: str, year_or_version: float | str) -> tuple[bool, bool]:
    """Whether TF32 is on by default for matrix products and for convolutions.

    Only Ampere and later have TF32: on older devices both flags change nothing.

    Args:
        framework: pytorch, tensorflow, jax, mxnet, paddle ...; unknown ones as PyTorch.
        year_or_version: Release year (2022.5), a version ("1.11", "2.6.0") or an NGC container tag
            ("21.03", "ngc-21.03"). A version that is not in `data/tf32.toml` counts as newer than all.

    Returns:
        (matmul, convolution).

    Raises:
        ConfigError: Neither a year nor a version.

    >>> tf32_defaults("pytorch", "1.11"), tf32_defaults("pytorch", "2.6")
    ((True, True), (False, True))
    """
    rules = _toml("tf32.toml")
    name = framework.strip().lower()
    text = str(year_or_version).strip().lower()
    container = _CONTAINER.match(text)
    if container:
        name = "ngc"
        year = 2000.0 + int(container.group(1)) + (int(container.group(2)) - 1) / 12.0
    else:
        year = _release_year(text, rules["release_year"].get(name, rules["release_year"]["pytorch"]))
    periods = rules["framework"].get(name, rules["framework"]["pytorch"])
    last = [period for period in periods if year >= period["from_year"]][-1]
    return bool(last["matmul"]), bool(last["conv"])


def _release_year(text: str, releases: Mapping[str, float]) -> float:
    """Year of a version, or the year that the text is."""
    number = _NUMBER.match(text)
    if number is None:
        raise ConfigError(
            f"{text!r} is neither a year nor a framework version. To fix: give a year such as 2023.5, "
            "or a version such as '2.1'."
        )
    if float(number.group()) >= _FIRST_YEAR:
        return float(number.group())
    newest = max(releases.values())
    oldest = min(releases.values())
    return releases.get(number.group(), oldest if float(number.group()) < 1.0 else newest)


def _folded(spelling: str) -> str:
    return _SEPARATORS.sub("", spelling.strip().lower())


@data
def _spellings() -> Mapping[str, PrecisionChoice]:
    table = {}
    aliases = _toml("aliases.toml")
    for spelling, entry in aliases["ambiguous"].items():
        table[_folded(spelling)] = PrecisionChoice(name=entry["policy"], assumption=entry["assumption"])
    for name in _policies():
        table.setdefault(_folded(name), PrecisionChoice(name=name))
    for name, spellings in aliases["alias"].items():
        for spelling in spellings:
            table.setdefault(_folded(spelling), PrecisionChoice(name=name))
    for spelling, entry in aliases["variant"].items():
        choice = PrecisionChoice(name=entry["policy"], variant=entry["variant"])
        table.setdefault(_folded(spelling), choice)
    return table


def _offered() -> tuple[str, ...]:
    aliases = _toml("aliases.toml")
    spelled = [spelling for spellings in aliases["alias"].values() for spelling in spellings]
    return (*_policies(), *spelled, *aliases["variant"], *aliases["ambiguous"])


@data
def _policy(name: str, variant: str | None) -> PrecisionPolicy:
    row = dict(_policies()[name])
    variants = row.pop("variant", {})
    for part in variant.split(_AND) if variant else ():
        row.update(variants[part])
    types: dict[str, Any] = {field: DType(row[field]) for field in _DTYPE_FIELDS}
    return PrecisionPolicy(
        name=name,
        master=None if row.get("master", _NO_MASTER) == _NO_MASTER else DType(row["master"]),
        autocast=row["autocast"],
        loss_scaling=row["loss_scaling"],
        fp8_recipe=row.get("fp8_recipe"),
        gather=None if "gather" not in row else DType(row["gather"]),
        wide_layers=tuple(row.get("wide_layers", (0, 0))),
        summary=row["summary"],
        **types,
    )


@data
def _policies() -> Mapping[str, Mapping[str, Any]]:
    policies: Mapping[str, Mapping[str, Any]] = _toml("policies.toml")["policy"]
    return policies


def _toml(name: str) -> Mapping[str, Any]:
    return packaged_toml(__package__, f"data/{name}")
