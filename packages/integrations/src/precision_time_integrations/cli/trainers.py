"""`precision-time trainers`: what watches a run in its trainer."""

from __future__ import annotations

from dataclasses import asdict

from precision_time.cli.catalogs import write_catalog
from precision_time.cli.options import JsonOption

EXAMPLES = """\b
Examples:
  precision-time trainers
  precision-time trainers --json
"""


def trainers(*, json_output: JsonOption = False) -> None:
    """List the adapters that watch a run in its trainer.

    Each is imported from its module: from precision_time_integrations.online.lightning import EtaCallback.
    """
    from ..online.trainers import trainer_adapters

    found = trainer_adapters().values()
    rows = [
        (item.name, item.trainer, f"{item.module}.{item.attribute}", "yes" if item.installed else "no")
        for item in found
    ]
    entries = [{**asdict(item), "installed": item.installed} for item in found]
    write_catalog("trainers", entries, ("name", "trainer", "adapter", "trainer installed"), rows, json_output)
