"""One request at many batches: the jobs that differ in nothing else, found by arrays.

A request at n batches is n jobs. Most differ in the batch alone: one of them is resolved as `Request.resolve`
does, and speaks for all. A batch can also change the sharding or the layout that is assumed where none is
stated: where memory alone decides they are told apart at once, else they are resolved one by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ..arrays import Bools, Floats, Indices
from ..cost.job import Job, Jobs
from ..cost.memory import memory_of, total_bytes
from ..diagnostics import Diagnostics
from ..errors import PrecisionTimeError
from ..records import dataclass
from .batch import is_open, sharded_if_needed, with_batch
from .dataset_rows import with_dataset_rows
from .request import Request
from .resolve import completed, job_without_batch

BATCH_FIELDS = ("batch_size", "global_batch_size")
"""Fields of which a request may be resolved at many values at once."""
_OF_LENGTHS = ("mean_seq_len", "packing", "padding_share")
"""What makes rows of samples, by the batch."""


Refused = dict[int, PrecisionTimeError]


def jobs_at_batches(request: Request, name: str, values: Sequence[float]) -> tuple[Jobs, Indices, Refused]:
    """The jobs of a request with other batches, which batch each row has, and those that are refused.

    Jobs of one group are equal but for the micro batch, remarks included.

    Args:
        request: With any batch in that field.
        name: One of BATCH_FIELDS.
        values: n batches that hold the rule of the field.
    """
    found = Diagnostics()
    try:
        job = job_without_batch(request, found)
        request = with_dataset_rows(request, job, found)
        return _Batches(request, name, np.asarray(values, dtype=np.float64), job, found).split()
    except PrecisionTimeError as error:  # of what all of them share
        return Jobs.together([]), np.zeros(0, dtype=np.intp), dict.fromkeys(range(len(values)), error)


@dataclass(frozen=True, slots=True)
class _Batches:
    request: Request
    name: str
    values: Floats
    job: Job
    """Before it has a batch."""
    found: Diagnostics

    def split(self) -> tuple[Jobs, Indices, Refused]:
        """The jobs by what they share."""
        alone = np.ones(len(self.values), dtype=bool)
        found: list[tuple[Jobs, Indices]] = []
        refused: Refused = {}
        if self._memory_decides():
            micro, whole = self._micro_batches()
            for rows in self._alike(micro, whole):
                alone[rows] = False
                self._add(found, refused, rows, micro[rows])
        order = np.flatnonzero(alone)
        order = order[np.argsort(self.values[order], kind="stable")]
        for place, row in enumerate(order):
            answered = len(found)
            self._add(found, refused, order[place : place + 1], None)
            if len(found) > answered:
                [job] = found[-1][0].shared
                if self._none_above(job, float(self.values[row])):
                    rows = order[place:]
                    micro, _ = self._micro_batches()
                    found[-1] = (Jobs.at(job, micro[rows]), rows)
                    break
        rows = np.concatenate([np.zeros(0, dtype=np.intp), *(rows for _, rows in found)])
        return Jobs.together([jobs for jobs, _ in found]), rows, refused

    def _add(
        self, found: list[tuple[Jobs, Indices]], refused: Refused, rows: Indices, micro: Floats | None
    ) -> None:
        """Resolve the first of some rows, which speaks for all."""
        request = self.request.changed(**{self.name: float(self.values[rows[0]])})
        remarks = Diagnostics([*self.found.items])
        try:
            job = with_batch(self.job, request, remarks)
            job = completed(job, request, remarks)
        except PrecisionTimeError as error:
            refused.update(dict.fromkeys(rows.tolist(), error))
            return
        found.append((Jobs.at(job, () if micro is None else micro), rows))

    def _memory_decides(self) -> bool:
        """Whether a batch changes nothing but what fits."""
        request, job = self.request, self.job
        others = ({*BATCH_FIELDS} - {self.name}) | {*_OF_LENGTHS, "global_batch_tokens"}
        stated = any(getattr(request, name) is not None for name in others)
        searched = job.layout.pp > 1 and is_open(job, request, self._global())
        return job.workload.method is None and not stated and not searched

    def _global(self) -> float | None:
        return None if self.name == "batch_size" else float(self.values[0])

    def _micro_batches(self) -> tuple[Floats, Bools]:
        """Rows per forward pass, and whether they are whole."""
        rows = self.job.workload.rows_per_sample
        if self.name == "batch_size":
            return self.values * rows, np.ones(len(self.values), dtype=bool)
        shares = self.job.layout.dp * self.job.layout.num_microbatches
        return self.values / shares * rows, self.values % shares == 0

    def _alike(self, micro: Floats, whole: Bools) -> list[Indices]:
        """Rows that fit as they are, that fit sharded, and, where no layout may be chosen, the others."""
        job = self.job
        capacity = job.cluster.device.usable_bytes
        fits = whole & (_needed(job, micro) <= capacity)
        found, rest = [fits], whole & ~fits
        cut = self.name == "global_batch_size" and is_open(job, self.request, self._global())
        if rest.any() and not cut:
            first = replace(job, layout=replace(job.layout, micro_batch_size=float(micro[rest.argmax()])))
            sharded = sharded_if_needed(first, self.request.says_sharding, Diagnostics())
            if sharded is not first:
                found.append(rest & (_needed(sharded, micro) <= capacity))
                rest &= ~found[-1]
            if not is_open(job, self.request, self._global()):
                found.append(rest)
        return [np.flatnonzero(each) for each in found if each.any()]

    def _none_above(self, job: Job, value: float) -> bool:
        """Whether no layout is chosen for larger batches, as none was for this one.

        The candidates are those of every whole batch above one sample per device, and need more memory.
        """
        whole = value > 1.0 and value == int(value)
        return self._memory_decides() and self.name == "batch_size" and whole and not job.layout_chosen


def _needed(job: Job, micro: Floats) -> Floats:
    group = Jobs.at(job, micro)
    return np.broadcast_to(np.asarray(total_bytes(memory_of(group))), (len(micro),))
