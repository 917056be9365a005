"""`estimate`: how long the jobs of manifests run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from precision_time.errors import ConfigError, shown

from ..estimate import LENGTHS, JobEstimate, estimate_job
from .config_maps import config_maps
from .documents import objects
from .kinds import kind_of, kinds_in_words
from .reading import JOB_ANNOTATION, Manifest, read_manifest

_EXAMPLE = f'{JOB_ANNOTATION}: \'{{"model": "resnet50", "batch_size": 256, "epochs": 90}}\''
_IN_A_MANIFEST = {
    "model": f"The manifest does not say what it trains. To fix: an annotation such as {_EXAMPLE}.",
    LENGTHS: "The manifest does not say how long it trains. To fix: steps, epochs or tokens in an "
    f"annotation such as {_EXAMPLE}.",
}
"""By the missing field: the reason in the words of a manifest, short enough for a warning of `kubectl`."""
_DEVICE = frozenset({"device", "node_type"})


def estimate(documents: Iterable[Any], *, given: Mapping[str, Any] | None = None) -> list[JobEstimate]:
    """How long the jobs of some manifests run, and for what money, in their order.

    Objects that are no jobs (services, config maps ...) are passed over.

    Args:
        documents: As `read_documents` reads them; lists of objects among them.
        given: Fields of a request and of a run that the user states, in the place of those in the manifests.

    Raises:
        ConfigError: If none of them is a job.
    """
    found, others = [], []
    inside = [each for document in documents for each in objects(document)]
    maps = config_maps(inside)
    for each in inside:
        kind = kind_of(each)
        if kind is None:
            others.append(each)
        else:
            found.append(estimate_of(read_manifest(each, kind, maps), given=given))
    if not found:
        raise ConfigError(_no_job(others))
    return found


def estimate_of(manifest: Manifest, *, given: Mapping[str, Any] | None = None) -> JobEstimate:
    """The answer to what a manifest says.

    Args:
        manifest: As it was read.
        given: As of `estimate`.
    """
    typed = {name for name, value in (given or {}).items() if value is not None}
    names_device = bool(typed & _DEVICE)
    reason = "" if manifest.lacks_device and names_device else manifest.reason
    fields = {
        name: value for name, value in manifest.fields.items() if not (names_device and name in _DEVICE)
    }
    found = estimate_job(
        source=manifest.source,
        name=manifest.name,
        fields=fields,
        options=manifest.options,
        unread=manifest.unread,
        notes=manifest.notes,
        reason=reason,
        given=given,
    )
    missing = ("device",) if reason and manifest.lacks_device else found.missing
    return replace(found, reason=_IN_A_MANIFEST.get("".join(missing[:1]), found.reason), missing=missing)


def _no_job(others: list[Any]) -> str:
    kinds = sorted(
        {
            f"{each.get('kind')} ({each.get('apiVersion')})"
            if isinstance(each, Mapping)
            else type(each).__name__
            for each in others
        }
    )
    held = f"holds {', '.join(map(shown, kinds[:5]))}" if kinds else "is empty"
    return (
        f"The text {held} and no job. The rule: at least one of {kinds_in_words()}. To fix: "
        "give such a manifest."
    )
