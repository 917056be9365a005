"""What is priced together is what each job is alone, whatever its micro batches and their number."""

from __future__ import annotations

import numpy as np
import pytest

from precision_time import Request
from precision_time.cost.job import Job, Jobs
from precision_time.learn.table import JOB_ARRAYS, JobTable, priced_groups, with_halves

BATCHES = ((12.0, 4.0), (2.0, 4.0), (12.0, 8.0), (5.0, 1.0))


@pytest.fixture(scope="module", params=[{"pp": 4, "tp": 2}, {"zero_stage": 3}], ids=["pipeline", "sharded"])
def job(request: pytest.FixtureRequest) -> Job:
    asked = {"model": "llama3.2-1b", "gpus": 16, "device": "A100-SXM4-40GB", "batch_size": 1}
    return Request.of({**asked, **request.param}).resolve()


def test_halves_keep_the_number_of_micro_batches() -> None:
    batches, halves = with_halves(BATCHES)
    assert batches[: len(BATCHES)] == BATCHES
    for place, batch in enumerate(BATCHES):
        alone, own = with_halves((batch,))
        chain = [batches[row] for row in halves[place] if row >= 0]
        assert chain == [alone[row] for row in own[0]]
        assert {count for _, count in chain} <= {batch[1]}
    assert len({*batches}) == len(batches)
    assert with_halves(((4.0, 1.0), (3.0, 1.0), (2.0, 1.0), (1.0, 1.0)))[0][4:] == ()


def test_jobs_priced_together_are_those_priced_alone(job: Job) -> None:
    sizes, counts = zip(*BATCHES, strict=True)
    table = priced_groups([Jobs.at(job, sizes, counts)])[1]
    for place, (size, count) in enumerate(BATCHES):
        row = Jobs.at(job, sizes, counts).row(place)
        assert (row.layout.micro_batch_size, row.layout.num_microbatches) == (size, count)
        alone = priced_groups([Jobs.at(row)])[1]
        assert same(table.take(np.array([place])), alone)
        assert table.halves is not None
        smaller = table.opened().take(table.halves[place][table.halves[place] >= 0])
        assert same(smaller, alone.smaller or smaller.take(np.arange(0)))
        taken = table.take(np.array([place]))
        assert taken.halves is not None
        assert same(taken.opened().take(taken.halves[0][taken.halves[0] >= 0]), smaller)


def same(one: JobTable, other: JobTable) -> bool:
    assert one.names == other.names
    assert one.features == pytest.approx(other.features, rel=1e-9, abs=2e-9)
    for name in JOB_ARRAYS[1:]:
        assert getattr(one, name) == pytest.approx(getattr(other, name), rel=1e-12)
    return len(one) == len(other)
