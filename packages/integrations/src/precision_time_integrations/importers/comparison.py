"""Terms of a step as a trace has them, beside those of the prediction for the same job."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from precision_time.cost.terms import METHOD_TERMS, TERMS

from .contract import ImportedRun
from .spans import GROUPS

_TITLES = {
    "kernels": "kernels",
    "update": "optimizer and update",
    "exposed": "exposed communication",
    "copies": "copies",
    "input": "waiting for input",
    "host": "waiting for the host",
    "method": "training method",
}
_GROUP_OF = {term.name: str(term.group) for term in (*TERMS, *METHOD_TERMS)}


@dataclass(frozen=True, kw_only=True, slots=True)
class ComparedTerm:
    """Seconds of a step in one group of terms."""

    group: str
    title: str
    measured_s: float | None
    """None where the trace does not tell this group from others."""
    predicted_s: float | None
    """None where the prediction has no such group."""


def compared_terms(run: ImportedRun, terms: Mapping[str, float]) -> list[ComparedTerm]:
    """The groups of a trace beside those of a prediction; each column adds up to its step time.

    Args:
        run: With terms, as traces have them.
        terms: Of the prediction, by name [s].
    """
    predicted: dict[str, float] = {}
    for name, seconds in terms.items():
        group = _GROUP_OF.get(name, "kernels")
        predicted[group] = predicted.get(group, 0.0) + seconds
    measured = {name.removesuffix("_s"): seconds for name, seconds in run.terms_s.items()}
    groups = dict.fromkeys((*GROUPS, *predicted))
    return [
        ComparedTerm(
            group=group,
            title=_TITLES.get(group, group),
            measured_s=measured.get(group, 0.0 if group in GROUPS else None),
            predicted_s=predicted.get(group, None if group == "copies" else 0.0),
        )
        for group in groups
        if measured.get(group) or predicted.get(group)
    ]
