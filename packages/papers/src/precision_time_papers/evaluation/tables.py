"""A report: what it was computed on, and its sections, as Markdown or HTML."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from precision_time.render.document import Document, Metric, Section
from precision_time.render.table import markdown_lines

_TITLE = "How good the predictions are"


@dataclass(frozen=True, kw_only=True, slots=True)
class Report:
    """Everything that was requested."""

    sections: Sequence[Section]
    card: Mapping[str, Any]
    """Version, corpus, rows, seeds, folds, whether quick: figures compare only where these agree."""

    @property
    def figures(self) -> dict[str, Metric]:
        """All numbers of all sections."""
        return {name: figure for section in self.sections for name, figure in section.figures.items()}

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready dictionary."""
        return {
            "card": dict(self.card),
            "sections": {section.key: section.to_dict() for section in self.sections},
        }


def introduction(report: Report) -> str:
    """What the figures are of, in a paragraph."""
    card = report.card
    seeds = "one seed" if card["seeds"] == 1 else f"{card['seeds']} seeds"
    how = f"{card['folds']} folds, {seeds}"
    kind = f"a sample of {card['sample']}" if card["sample"] else "all"
    quick = " Quick: a tenth of the trees, so errors are larger than with all." if card["quick"] else ""
    return (
        f"Version {card['version']}, corpus {card['corpus']}: {card['rows']} measured runs ({kind}), {how}. "
        "All data are measured, none synthetic. Errors are |predicted - measured| / measured of the step "
        f"time, of rows that the predictor under test has not seen.{quick}"
    )


def _document(report: Report) -> Document:
    return Document(title=_TITLE, introduction=introduction(report), sections=report.sections)


def markdown(report: Report) -> str:
    """The whole report as one Markdown page."""
    page = _document(report).markdown()
    rejected = report.card["rejected"]
    if rejected:
        page += "\n## Rows of the corpus that could not be predicted\n\n"
        page += "\n".join(markdown_lines(("reason", ">rows"), tuple(rejected.items()))) + "\n"
    return page


def html(report: Report) -> str:
    """The report as one HTML page that needs nothing else: tables, and plots as SVG inside it.

    Raises:
        MissingExtraError: If matplotlib is not installed.
    """
    from .plots import section_plots

    return _document(report).html({section.key: [*section_plots(section)] for section in report.sections})
