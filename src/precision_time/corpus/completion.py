"""What the recipe behind a row says and the row does not: cells and layout keys filled in by rule."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from .reading import Findings
from .rules import all_matches
from .schema import Row


def completed(row: Row, found: Findings) -> Row:
    """The row with every fitting rule of the table `completion` applied, in file order.

    A rule's `cells` fill empty cells, its `replace` corrects stated ones, its `parallelism` sets keys
    of the parallelism column and takes those away that it sets to an empty text. Its `why` joins the
    assumptions and its `doubt` the doubts.
    """
    cells: dict[str, str] = {}
    parallelism: dict[str, Any] = {}
    for rule in all_matches("completion", row.text):
        cells |= {name: text for name, text in rule.get("cells", {}).items() if not row.text(name)}
        cells |= rule.get("replace", {})
        parallelism |= rule.get("parallelism", {})
        _tell(rule, found)
    if parallelism:
        merged = {**row.json_object("parallelism"), **parallelism}
        kept = {name: value for name, value in merged.items() if value != ""}
        cells["parallelism"] = json.dumps(kept, separators=(",", ":"))
    return row.with_cells(**cells) if cells else row


def _tell(rule: Mapping[str, Any], found: Findings) -> None:
    if "why" in rule:
        found.assumptions.append(rule["why"])
    if "doubt" in rule:
        found.doubts.append(rule["doubt"])
