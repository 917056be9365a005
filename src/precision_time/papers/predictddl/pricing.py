"""Priced jobs, remembered: a service is asked about the same models and clusters again and again."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field

import numpy as np

from ...cost.job import Job, group_key
from ...learn.table import JobTable, job_table


@dataclass(kw_only=True, slots=True)
class PriceCache:
    """Prices of the jobs that were needed last; one per service, so that they go when the service goes."""

    size: int = 4096
    """Jobs remembered at most; one batch may exceed it while it is answered."""
    _tables: OrderedDict[Hashable, tuple[Job, JobTable]] = field(default_factory=OrderedDict)
    """Each job priced; the job is kept because its key names parts of it by identity."""

    def table(self, jobs: Sequence[Job]) -> JobTable:
        """`job_table` of the jobs; those priced before are not priced again."""
        keys = [(group_key(job), job.layout.micro_batch_size) for job in jobs]
        new = {key: job for key, job in zip(keys, jobs, strict=True) if key not in self._tables}
        if new:
            priced = job_table([*new.values()])
            for row, (key, job) in enumerate(new.items()):
                self._tables[key] = (job, priced.take(np.array([row])))
        for key in keys:
            self._tables.move_to_end(key)
        rows = [self._tables[key][1] for key in keys]
        while len(self._tables) > self.size:
            self._tables.popitem(last=False)
        return JobTable(
            features=np.concatenate([row.features for row in rows]),
            names=rows[0].names,
            analytical_s=np.concatenate([row.analytical_s for row in rows]),
            compute_s=np.concatenate([row.compute_s for row in rows]),
            exposed_s=np.concatenate([row.exposed_s for row in rows]),
        )
