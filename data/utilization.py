"""Write what utilization measured runs of the corpus reach, by class of run (`precision-time mfu`).

    python data/utilization.py

A run is a measured row of the corpus; a configuration that a source states several times counts once, with
the median.
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from statistics import median

import numpy as np

from precision_time.corpus.jobs import UnsupportedRow, job_of
from precision_time.corpus.store import load_corpus
from precision_time.cost.utilization import model_flops_utilization
from precision_time_integrations.utilization import LEAST_RUNS, kinds_of

TARGET = (
    Path(__file__).parents[1] / "packages/integrations/src/precision_time_integrations/data/utilization.toml"
)
_HEAD = """\
# MFU of the measured runs of the corpus by class: quantiles at 0, 10 ... 100 %, number of runs and sources.
# Written by data/utilization.py.

[usual]
"""


def main() -> None:
    """Write the table."""
    found: dict[str, dict[tuple[str, ...], list[float]]] = defaultdict(lambda: defaultdict(list))
    for row in (each for each in load_corpus() if each.usable):
        try:
            job = job_of(row)
        except UnsupportedRow:
            continue
        mfu = model_flops_utilization(job, row.step_time_s)
        if mfu is None or not 0.0 < mfu <= 1.0:
            continue
        run = (row.source, row.model, row.device, str(row.num_devices), row.precision)
        for key, _ in kinds_of(job):
            found[key][run].append(mfu)
    lines = []
    for key, runs in sorted(found.items()):
        values = [median(each) for each in runs.values()]
        if len(values) < LEAST_RUNS:
            continue
        quantiles = ", ".join(f"{each:.4g}" for each in np.quantile(values, np.linspace(0.0, 1.0, 11)))
        sources = len({source for source, *_ in runs})
        lines.append(f'"{key}" = {{ runs = {len(values)}, sources = {sources}, quantiles = [{quantiles}] }}')
    TARGET.write_text(_HEAD + "\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
