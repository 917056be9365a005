"""`precision-time papers predictors`: those that are compared."""

from __future__ import annotations

from precision_time.cli.catalogs import write_catalog
from precision_time.cli.options import JsonOption

EXAMPLES = """\b
Examples:
  precision-time papers predictors
  precision-time papers predictors --json
  precision-time papers compare --quick --only ours,predictddl
"""


def predictors(*, json_output: JsonOption = False) -> None:
    """List the predictors that are compared.

    Ours, those of the papers, and those of plugins.
    """
    from ..registry import PREDICTORS

    found = [
        {
            "name": entry.name,
            "title": entry.title,
            "knows": entry.knows,
            "needs": str(entry.needs),
            "installed": not entry.missing,
            "citation": entry.citation,
        }
        for entry in PREDICTORS.values()
    ]
    columns = ("name", "title", "knows", "needs", "citation")
    rows = [tuple(str(entry[column]) for column in columns) for entry in found]
    write_catalog("predictors", found, columns, rows, json_output)
