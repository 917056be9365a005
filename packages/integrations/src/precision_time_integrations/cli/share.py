"""`precision-time share`: own runs as a file that may be given to others."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from precision_time.cli.options import JsonOption
from precision_time.cli.output import message, progress, write_json, write_rows

EXAMPLES = """\b
Examples:
  precision-time share for-others.csv
  precision-time share for-others.csv --from ~/runs.csv
  precision-time calibrate for-others.csv --out theirs.json
"""


def share(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="CSV to write; it must not be there yet.")],
    *,
    source: Annotated[
        Path | None,
        typer.Option(
            "--from",
            metavar="DATA",
            help="Table of your runs.  [default: runs.csv in PRECISION_TIME_HOME or your data folder]",
        ),
    ] = None,
    json_output: JsonOption = False,
) -> None:
    """Write your own runs without what tells whose they are.

    Kept are numbers, choices and names of the catalogs. A model that no catalog has is given as its operators
    (FILE.models.json), a device of your own by its figures (FILE.hardware.toml), both without their names.
    Paths, host and user names, names of modules and notes stay here; nothing is sent anywhere.
    """
    from ..online.offer import own_runs
    from ..online.share import shared_runs

    with progress("Leaving out names"):
        shared = shared_runs(own_runs() if source is None else source)
    files = shared.write(file) if shared.rows else []
    if json_output:
        write_json(
            {
                "files": [str(path) for path in files],
                "runs": len(shared.rows),
                "models_as_operators": sorted(shared.graphs),
                "devices_as_figures": sorted(shared.hardware),
                "left_out": dict(shared.left_out),
            }
        )
    else:
        rows = [
            ("runs", str(len(shared.rows))),
            ("models given as operators", str(len(shared.graphs))),
            ("devices given by figures", str(len(shared.hardware))),
        ]
        write_rows("", ("what", ">number"), rows)
    for reason, count in shared.left_out.items():
        message(f"Left out {count} runs: {reason}")
    for path in files:
        message(f"Wrote {path}")
    if not files:
        message(
            "Nothing was written. To fix: train with share_with_corpus=True, or name other runs (--from)."
        )
        raise typer.Exit(1)
