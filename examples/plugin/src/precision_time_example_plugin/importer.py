"""An importer: logs whose lines read `step=12 seconds=0.31`, after a first line with the job.

# example-log model=resnet50 batch_size=32
step=1 seconds=2.75
step=2 seconds=0.31
"""

from __future__ import annotations

import re
from pathlib import Path

from precision_time.errors import CorpusError
from precision_time_integrations.importers.contract import ImportedRun, Importer, LoggedStep, finite

MARK = "# example-log"
LINE = re.compile(r"^step=(\d{1,12}) seconds=([\d.]+)$")
MOST_BYTES = 100_000_000


def read(path: Path) -> list[ImportedRun]:
    """The one run in a log.

    Raises:
        CorpusError: If it is no such log.
    """
    with path.open(encoding="utf-8", errors="replace") as file:
        head, *lines = file.read(MOST_BYTES).splitlines() or [""]
    if not head.startswith(MARK):
        raise CorpusError(f"{path} does not start with {MARK!r}. To fix: name a log of the example.")
    found = [LINE.match(line) for line in lines]
    steps = tuple(
        LoggedStep(step=int(line[1]), step_time_s=seconds)
        for line in found
        if line and (seconds := finite(line[2])) is not None
    )
    left_out = len(lines) - len(steps)
    return [
        ImportedRun(
            name=path.stem,
            origin=path.name,
            importer=IMPORTER.name,
            fields=dict(word.split("=", 1) for word in head.removeprefix(MARK).split() if "=" in word),
            steps=steps,
            notes=(f"{left_out} lines were not understood",) if left_out else (),
        )
    ]


IMPORTER = Importer(
    name="example-log",
    description="the log of the example plugin",
    matches=lambda path, head: head.startswith(MARK.encode()),
    read=read,
)
