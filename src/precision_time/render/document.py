"""Pages of sections with tables and plots, as Markdown or as HTML that needs nothing else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from html import escape
from typing import Any

from ..records import dataclass
from .html import page
from .table import Table


@dataclass(frozen=True, kw_only=True, slots=True)
class Metric:
    """One number of a section and how far it moves from seed to seed."""

    value: float
    spread: float | None = None
    """Standard deviation over the seeds; None with one seed."""

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready dictionary."""
        return {"value": self.value, "spread": self.spread}


@dataclass(frozen=True, kw_only=True, slots=True)
class Section:
    """One part of a page, such as T1 of the report."""

    key: str
    title: str
    headline: str
    """What it says in a sentence."""
    tables: tuple[Table, ...] = ()
    figures: Mapping[str, Metric] = field(default_factory=dict)
    """Name to number; names begin with the key of the section."""
    plot: Mapping[str, Any] = field(default_factory=dict)
    """What plots of the section need beyond its tables; arrays."""

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready dictionary, without the data of the plots."""
        return {
            "title": self.title,
            "headline": self.headline,
            "figures": {name: figure.to_dict() for name, figure in self.figures.items()},
            "tables": [table.to_dict() for table in self.tables],
        }

    def markdown(self, *, with_key: bool = True) -> str:
        """Its tables below its headline."""
        title = f"{self.key} {self.title}" if with_key else self.title
        return "\n".join([f"## {title}\n", f"{self.headline}\n", *map(table_markdown, self.tables)])

    def html(self, plots: Sequence[tuple[str, str]] = ()) -> str:
        """The same in HTML, with plots below the headline: caption and `<svg>`."""
        drawn = (
            f'<figure>{svg}<figcaption class="note">{escape(caption)}</figcaption></figure>'
            for caption, svg in plots
        )
        return "\n".join(
            [
                f'<h2 id="{self.key}">{self.key} {escape(self.title)}</h2>',
                f'<p class="headline">{escape(self.headline)}</p>',
                *drawn,
                *(_table_html(table) for table in self.tables),
            ]
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Document:
    """A page."""

    title: str
    introduction: str
    """A paragraph."""
    sections: Sequence[Section]

    def markdown(self) -> str:
        """The page; its parts are separated by empty lines."""
        return "\n".join(
            [f"# {self.title}\n\n{self.introduction}\n", *(section.markdown() for section in self.sections)]
        )

    def html(self, plots: Mapping[str, Sequence[tuple[str, str]]] | None = None) -> str:
        """One page that needs nothing else."""
        body = "\n".join(section.html((plots or {}).get(section.key, ())) for section in self.sections)
        introduction = f"<p>{escape(self.introduction)}</p>"
        return page(self.title, f"{introduction}\n{body}", head="precision-time: ")


def table_markdown(table: Table) -> str:
    """A table of a page, with its title and its note."""
    note = f"\n{table.note.strip()}\n" if table.note else ""
    return f"### {table.title}\n\n{table.markdown()}\n{note}"


def _table_html(table: Table) -> str:
    note = f'<p class="note">{escape(table.note.strip())}</p>\n' if table.note else ""
    return f'<h3>{escape(table.title)}</h3>\n{note}<div class="scroll">{table.html()}</div>'
