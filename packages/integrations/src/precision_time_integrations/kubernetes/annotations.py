"""What a prediction adds to a manifest: annotations, and a limit of time where there is none."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from precision_time import __version__
from precision_time.errors import ConfigError
from precision_time.units import format_duration

from ..estimate import JobEstimate
from .config_maps import ConfigMaps, config_maps
from .documents import objects
from .estimates import estimate_of
from .kinds import Place, kind_of
from .limits import MOST_S, PREFIX, LimitRule
from .reading import Manifest, read_manifest

_USUAL = LimitRule()


@dataclass(frozen=True, kw_only=True, slots=True)
class Change:
    """One field that is set."""

    place: Place
    value: str | int


@dataclass(frozen=True, kw_only=True, slots=True)
class Annotated:
    """What is known of one job of a manifest, and what of it is written there."""

    estimate: JobEstimate
    changes: tuple[Change, ...] = ()
    """Empty where the job stays as it is."""
    warnings: tuple[str, ...] = ()
    """What whoever starts the job should know, in short sentences."""
    trains: bool = True
    """False where nothing says that it trains: it has no accelerators and no annotation of ours."""


def annotate(
    document: Mapping[str, Any],
    estimate: JobEstimate,
    quantile: float = _USUAL.quantile,
    *,
    margin: float = _USUAL.margin,
) -> dict[str, Any]:
    """A copy of a job's manifest with what is predicted of it, and with a limit of time.

    Annotations `precision-time.dev/...` hold seconds, their interval, money and version. A limit of time that
    is there stays, whatever it is. A job whose whole run is not known stays as it is. What the manifest says
    of quantile, margin and limit in annotations of its own counts more than the arguments.

    Args:
        document: The manifest.
        estimate: Of this manifest.
        quantile: Share of the runs that end before the limit.
        margin: Added to the limit, as a share of it.

    Raises:
        ConfigError: If quantile or margin are none.
    """
    rule = LimitRule(quantile=quantile, margin=margin)
    kind = kind_of(document)
    changed: dict[str, Any] = copy.deepcopy(dict(document))
    if kind is not None:
        _apply(changed, _changed(document, read_manifest(document, kind), estimate, rule).changes)
    return changed


def annotated(
    document: Any,
    *,
    given: Mapping[str, Any] | None = None,
    rule: LimitRule = _USUAL,
    maps: ConfigMaps | None = None,
) -> Annotated | None:
    """What is known of an object and what is to be written into it; None where it is no job.

    Args:
        document: One object of a manifest.
        given: Fields that the user states, as of `estimate`.
        rule: For its limit of time.
        maps: Config maps, which may hold files that its command names.
    """
    kind = kind_of(document)
    if kind is None:
        return None
    manifest = read_manifest(document, kind, maps)
    return _changed(document, manifest, estimate_of(manifest, given=given), rule)


def annotate_all(
    documents: Iterable[Any],
    *,
    given: Mapping[str, Any] | None = None,
    rule: LimitRule = _USUAL,
    show: Callable[[int, int, str], None] | None = None,
) -> tuple[list[Any], list[Annotated]]:
    """`annotate` for every job of some documents, lists of objects among them.

    Args:
        documents: As `read_documents` reads them; they are changed.
        given: As of `annotated`.
        rule: As of `annotated`.
        show: Is told how many objects are done, of how many, and which one is next.
    """
    kept, found = list(documents), []
    inside = [each for document in kept for each in objects(document)]
    maps = config_maps(inside)
    for number, each in enumerate(inside):
        if show is not None:
            show(number, len(inside), str(each.get("kind")) if isinstance(each, Mapping) else "")
        job = annotated(each, given=given, rule=rule, maps=maps)
        if job is not None:
            _apply(each, job.changes)
            found.append(job)
    return kept, found


def _changed(
    document: Mapping[str, Any], manifest: Manifest, found: JobEstimate, usual: LimitRule
) -> Annotated:
    run, reason = found.run, found.reason
    try:
        rule = usual.as_stated(_found(document, ("metadata", "annotations")) or {}) if run else usual
    except ConfigError as error:
        run, reason = None, str(error)
    if run is None:
        return Annotated(estimate=found, warnings=(f"not predicted: {reason}",), trains=manifest.trains)
    seconds = found.duration_s(rule.quantile) or run.total_s
    warnings = (
        [] if found.fits else ["it does not fit in memory by the prediction, so no limit of time is set"]
    )
    said: dict[str, str] = {
        "expected-seconds": _whole(run.total_s),
        "low-seconds": _whole(run.interval.low_s),
        "high-seconds": _whole(run.interval.high_s),
        "coverage": f"{run.interval.coverage:g}",
        f"p{100 * rule.quantile:g}-seconds": _whole(seconds),
        "step-seconds": f"{run.phases[0].prediction.step_time_s:.4g}",
        "version": __version__,
    }
    if run.cost_usd is not None:
        said["cost-usd"] = f"{run.cost_usd:.2f}"
    changes = [
        Change(place=("metadata", "annotations", f"{PREFIX}{name}"), value=value)
        for name, value in sorted(said.items())
    ]
    limit_s = rule.limit_s(seconds)
    for place in manifest.deadlines:
        there = _found(document, place)
        if there is None and rule.sets and found.fits and limit_s <= MOST_S:
            changes.append(Change(place=place, value=limit_s))
        elif isinstance(there, int) and there < seconds:
            warnings.append(_too_short(f"{place[-1]}={there}", seconds, rule.quantile))
    for limit in manifest.limits:
        stated = limit.partition("=")[2].split(" ")[0]
        if stated.isdecimal() and len(stated) < 12 and int(stated) < seconds:  # noqa: PLR2004
            warnings.append(_too_short(limit, seconds, rule.quantile))
    return Annotated(estimate=found, changes=tuple(changes), warnings=tuple(warnings))


def _too_short(limit: str, seconds: float, quantile: float) -> str:
    return f"{limit} ends it early: {100 * quantile:g} % of such runs end within {format_duration(seconds)}"


def _whole(seconds: float) -> str:
    return str(round(seconds))


def _found(document: Any, place: Place) -> Any:
    """The value at a place; None where there is none."""
    for name in place:
        if isinstance(document, Mapping):
            document = document.get(name)
        elif isinstance(document, list) and isinstance(name, int) and name < len(document):
            document = document[name]
        else:
            return None
    return document


def _apply(document: dict[str, Any], changes: Iterable[Change]) -> None:
    for change in changes:
        inner: Any = document
        for name in change.place[:-1]:
            there = {} if isinstance(name, str) and inner.get(name) is None else inner[name]
            inner[name] = copy.copy(there)  # an alias of YAML may stand at several places
            inner = inner[name]
        inner[change.place[-1]] = change.value


def patch_of(document: Mapping[str, Any], changes: Iterable[Change]) -> list[dict[str, Any]]:
    """The changes as a JSON Patch (RFC 6902) of an object; empty mappings are added where none is.

    Args:
        document: The object as it is.
        changes: Fields to set.
    """
    operations: list[dict[str, Any]] = []
    made: set[Place] = set()
    for change in changes:
        for length in range(1, len(change.place)):
            parent = change.place[:length]
            if parent not in made and _found(document, parent) is None:
                operations.append({"op": "add", "path": _pointer(parent), "value": {}})
                made.add(parent)
        operations.append({"op": "add", "path": _pointer(change.place), "value": change.value})
    return operations


def _pointer(place: Place) -> str:
    return "".join(f"/{str(name).replace('~', '~0').replace('/', '~1')}" for name in place)
