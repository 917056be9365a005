"""Jobs, questions, sampling: who is asked what, and nobody twice."""

from dataclasses import replace

import numpy as np
import pytest

from precision_time.corpus.store import load_corpus
from precision_time.errors import UnknownNameError
from precision_time.evaluation.comparison.held_out import LEAST_OFFERED, enough, run_limit
from precision_time.evaluation.comparison.jobs import configuration_of, job_key, job_numbers, measured_jobs
from precision_time.evaluation.comparison.protocols import FEW_DEVICES, QUESTIONS
from precision_time.evaluation.comparison.registry import BY_NAME, ENTRIES, Needs, chosen_entries
from precision_time.evaluation.comparison.sample import sampled_jobs

ROWS = [item for item in load_corpus() if item.usable][::7]


def test_every_row_is_of_one_configuration_of_one_job() -> None:
    jobs = measured_jobs(ROWS)
    rows = np.concatenate([np.concatenate(job.rows) for job in jobs])
    assert sorted(rows.tolist()) == list(range(len(ROWS)))
    assert (job_numbers(jobs, len(ROWS)) >= 0).all()
    for job in jobs[:200]:
        assert job.configurations.share.max() == 1.0
        for found in job.rows:
            assert len({configuration_of(ROWS[row]) for row in found}) == 1
            assert {job_key(ROWS[row]) for row in found} == {job.key}


def test_what_varies_within_a_job_is_devices_nodes_and_batch_alone() -> None:
    item = ROWS[0]
    other_size = replace(item, num_devices=item.num_devices * 2, num_nodes=2, global_batch_size=4096.0)
    assert job_key(other_size) == job_key(item)
    for change in ({"precision": "fp64"}, {"device": "K80"}, {"model": "alexnet"}, {"seq_len": 77}):
        assert job_key(replace(item, **change)) != job_key(item)


@pytest.mark.parametrize("name", QUESTIONS)
@pytest.mark.parametrize("seed", [0, 1])
def test_no_group_is_on_both_sides_and_no_row_asked_twice(name: str, seed: int) -> None:
    question = QUESTIONS[name]
    folds = question.split(ROWS, seed, 5)
    groups = question.groups(ROWS)
    asked = np.concatenate([fold.outside for fold in folds])
    assert len(asked) == len(np.unique(asked)) > 0
    for fold in folds:
        assert not set(groups[fold.inside]) & set(groups[fold.outside])


def test_each_question_asks_what_it_says() -> None:
    whole = len(ROWS)
    fifth = QUESTIONS["configuration"].split(ROWS, 0, 5)
    assert 0.1 * whole < len(fifth[0].outside) < 0.35 * whole
    assert sum(len(fold.outside) for fold in QUESTIONS["architecture"].split(ROWS, 0, 5)) == whole
    (larger,) = QUESTIONS["cluster"].split(ROWS, 0, 5)
    assert max(ROWS[row].num_devices for row in larger.inside) == FEW_DEVICES
    assert min(ROWS[row].num_devices for row in larger.outside) > FEW_DEVICES


def test_the_quick_sample_holds_jobs_that_can_be_sampled() -> None:
    sample = sampled_jobs(ROWS, 300)
    assert 290 <= len(sample) <= 300 + 40
    assert sample == sampled_jobs(ROWS, 300)
    jobs = [job for job in measured_jobs(sample) if enough(job, np.arange(len(job.rows)))]
    assert len(jobs) >= 4
    assert sampled_jobs(ROWS[:50], 300) == ROWS[:50]


def test_nobody_runs_more_than_half_of_what_a_job_offers() -> None:
    for offered in range(LEAST_OFFERED, 200):
        assert 4 <= run_limit(offered) <= min(7, offered // 2)


def test_those_who_sample_are_always_compared() -> None:
    samplers = {entry.name for entry in ENTRIES if entry.needs is Needs.RUNS}
    assert {entry.name for entry in chosen_entries(["flops"])} == {"flops", *samplers}
    assert chosen_entries([]) == ENTRIES
    assert len(BY_NAME) == len(ENTRIES)
    with pytest.raises(UnknownNameError, match="Unknown predictor 'ernst'. Did you mean 'ernest'"):
        chosen_entries(["ernst"])
