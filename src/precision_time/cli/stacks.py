"""`precision-time stacks`: the software profiles."""

from __future__ import annotations

from .options import JsonOption
from .output import write_json, write_rows

EXAMPLES = """\b
Examples:
  precision-time stacks
  precision-time predict resnet50 --device A100-SXM4-80GB --stack ngc-tuned
"""


def stacks(*, json_output: JsonOption = False) -> None:
    """List the software profiles.

    The same mathematics on the same device runs several times apart by software.
    """
    from ..cost.stacks import known_stacks

    found = known_stacks()
    if json_output:
        write_json({"stacks": found})
        return
    write_rows("", ("stack", "what it is"), [(name, entry["summary"]) for name, entry in found.items()])
