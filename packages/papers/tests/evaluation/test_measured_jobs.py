"""Jobs, questions, sampling: what is predicted, and no row twice."""

from dataclasses import replace

import numpy as np
import pytest

from precision_time.corpus.protocols import PROTOCOLS, SMALL_CLUSTER
from precision_time.corpus.splits import SplitBy, group_numbers
from precision_time.corpus.store import load_corpus
from precision_time.errors import UnknownNameError
from precision_time_papers.evaluation.comparison import QUESTIONS, QUICK_OF_SETTING, QUICK_ROWS
from precision_time_papers.evaluation.measured_jobs import (
    LEAST_OFFERED,
    can_be_sampled,
    configuration_of,
    job_key,
    job_numbers,
    measured_jobs,
    run_limit,
    sampled_jobs,
)
from precision_time_papers.predictddl.fitting import LEAST_GROUPS, LEAST_ROWS
from precision_time_papers.registry import PREDICTORS, chosen_predictors

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


GROUPS = {
    "configuration": lambda rows: group_numbers(rows, by=SplitBy.CONFIGURATION),
    "architecture": lambda rows: group_numbers(rows, by=SplitBy.MODEL),
    "cluster": lambda rows: np.array([item.num_devices for item in rows]),
}


@pytest.mark.parametrize("name", QUESTIONS)
@pytest.mark.parametrize("seed", [0, 1])
def test_no_group_is_in_training_and_test_and_no_row_tested_twice(name: str, seed: int) -> None:
    folds = PROTOCOLS[QUESTIONS[name].protocol].split(ROWS, seed, 5)
    groups = GROUPS[name](ROWS)
    tested = np.concatenate([fold.test for fold in folds])
    assert len(tested) == len(np.unique(tested)) > 0
    for fold in folds:
        assert not set(groups[fold.train]) & set(groups[fold.test])


def test_each_question_asks_what_it_says() -> None:
    whole = len(ROWS)
    split = {name: PROTOCOLS[item.protocol].split(ROWS, 0, 5) for name, item in QUESTIONS.items()}
    fifth = split["configuration"]
    assert 0.1 * whole < len(fifth[0].test) < 0.35 * whole
    assert sum(len(fold.test) for fold in split["architecture"]) == whole
    (larger,) = split["cluster"]
    assert max(ROWS[row].num_devices for row in larger.train) == SMALL_CLUSTER
    assert min(ROWS[row].num_devices for row in larger.test) > SMALL_CLUSTER


def test_the_quick_sample_holds_jobs_that_can_be_sampled() -> None:
    sample = sampled_jobs(ROWS, 300)
    assert 290 <= len(sample) <= 300 + 40
    assert sample == sampled_jobs(ROWS, 300)
    jobs = [job for job in measured_jobs(sample) if can_be_sampled(job, np.arange(len(job.rows)))]
    assert len(jobs) >= 4
    assert sampled_jobs(ROWS[:50], 300) == ROWS[:50]


def test_the_quick_sample_of_a_comparison_holds_a_setting_to_be_fitted_within() -> None:
    sample = sampled_jobs(ROWS, QUICK_ROWS, of_setting=QUICK_OF_SETTING)
    settings: dict[tuple[str, ...], list[str]] = {}
    for item in sample:
        name = (item.source, item.precision, item.stack.profile)
        settings.setdefault(name, []).append(item.model)
    most = max(settings.values(), key=lambda models: len(set(models)))
    # Half of the rows, and of the architectures, are left where two folds hold out whole ones.
    assert len(most) >= 2 * LEAST_ROWS
    assert len(set(most)) >= 2 * LEAST_GROUPS
    assert len([job for job in measured_jobs(sample) if can_be_sampled(job, np.arange(len(job.rows)))]) >= 4


def test_no_predictor_runs_more_than_half_of_what_a_job_offers() -> None:
    for offered in range(LEAST_OFFERED, 200):
        assert 4 <= run_limit(offered) <= min(7, offered // 2)


def test_predictors_that_sample_are_always_compared() -> None:
    samplers = {item.name for item in PREDICTORS.values() if item.samples}
    assert {item.name for item in chosen_predictors(["flops"])} == {"flops", *samplers}
    assert chosen_predictors([]) == tuple(PREDICTORS.values())
    with pytest.raises(UnknownNameError, match="Unknown predictor 'ernst'. Did you mean 'ernest'"):
        chosen_predictors(["ernst"])
