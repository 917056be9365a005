"""The report as Markdown."""

from __future__ import annotations

from collections.abc import Iterator

from .contract import Cell, Report, Section, Table, text_of


def markdown(report: Report) -> str:
    """The whole report as one Markdown page."""
    parts = [f"# How good the predictions are\n\n{introduction(report)}\n"]
    parts += [section_markdown(section) for section in report.sections]
    rejected = report.card["rejected"]
    if rejected:
        lines = [f"| {_escaped(reason)} | {count} |" for reason, count in rejected.items()]
        parts.append(
            "## Rows of the corpus that could not be predicted\n\n"
            + "\n".join(["| reason | rows |", "|---|---:|", *lines])
            + "\n"
        )
    return "\n".join(parts)


def introduction(report: Report) -> str:
    """What the figures are of, in a paragraph."""
    card = report.card
    seeds = "one seed" if card["seeds"] == 1 else f"{card['seeds']} seeds"
    how = f"{card['folds']} folds, {seeds}"
    kind = f"a sample of {card['sample']}" if card["sample"] else "all"
    quick = (
        " Quick: a tenth of the trees, so errors are larger than the shipped predictor's."
        if card["quick"]
        else ""
    )
    return (
        f"Version {card['version']}, corpus {card['corpus']}: {card['rows']} measured runs ({kind}), {how}. "
        "All data are measured, none synthetic. Errors are |predicted - measured| / measured of the step "
        f"time, of rows that the predictor under test has not seen.{quick}"
    )


def section_markdown(section: Section) -> str:
    """One section, its tables below its headline."""
    parts = [f"## {section.key} {section.title}\n", f"{section.headline}\n"]
    parts += [table_markdown(table) for table in section.tables]
    return "\n".join(parts)


def table_markdown(table: Table) -> str:
    """One table with its title and its note."""
    return "\n".join([f"### {table.title}\n", *_lines(table), ""]) + (
        f"\n{table.note.strip()}\n" if table.note else ""
    )


def _lines(table: Table) -> Iterator[str]:
    yield "| " + " | ".join(_escaped(name.removeprefix(">")) for name in table.columns) + " |"
    yield "|" + "|".join("---:" if name.startswith(">") else "---" for name in table.columns) + "|"
    for row in table.rows:
        yield "| " + " | ".join(_escaped(cell) for cell in row) + " |"


def _escaped(cell: Cell) -> str:
    return text_of(cell).replace("\\", "\\\\").replace("|", "\\|")
