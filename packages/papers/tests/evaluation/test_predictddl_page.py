"""PredictDDL's page: Ernest is not scored on what it ran, and verdicts follow the figures."""

from __future__ import annotations

import csv
from dataclasses import replace

import numpy as np
import pytest

from papers_tables.one_campaign import (
    BOTH,
    CHOSEN,
    OURS,
    PER_JOB,
    POOLED,
    QUESTIONS,
    SIZED,
    THREE,
    Answers,
    refitted,
)
from papers_tables.own_campaign import FILE, device_name
from papers_tables.predictddl import claims_of, embedding_verdict, times_lower, verdict
from precision_time.corpus.measurement import Measurement
from precision_time.corpus.splits import Fold
from precision_time.hardware.custom import hardware_beside, load_custom
from precision_time.hardware.device_table import get_device
from precision_time.hardware.prices.offers import reference_offers, usd_per_device_hour
from precision_time_papers.ernest import Ernest
from precision_time_papers.evaluation.measured_jobs import measured_jobs
from precision_time_papers.evaluation.replay import drawn_replay_rows


def rows() -> list[Measurement]:
    """Three networks on one to six devices: names and counts alone matter."""
    return [
        Measurement(
            source="made up",
            source_ref="",
            model=model,
            device="V100-SXM2-16GB",
            num_devices=count,
            num_nodes=1,
            precision="fp32",
            global_batch_size=8.0 * count,
            configuration_key=f"{model}-{count}",
        )
        for model in ("resnet18", "vgg16", "alexnet")
        for count in range(1, 7)
    ]


def test_ernest_is_not_scored_on_what_it_has_run() -> None:
    runs = rows()
    seconds = np.array([0.1 + 0.05 * item.num_devices for item in runs])
    jobs = measured_jobs(runs)
    vgg = np.arange(6, 12)
    never_run = Fold(train=np.delete(np.arange(18), vgg), test=vgg)
    found = refitted(Ernest(), jobs, seconds, never_run)
    answered = ~np.isnan(found)
    assert not answered[never_run.train].any()
    assert answered[vgg].sum() == 3
    known = Fold(train=np.delete(np.arange(18), [7, 10]), test=np.array([7, 10]))
    found = refitted(Ernest(), jobs, seconds, known)
    assert np.flatnonzero(~np.isnan(found)).tolist() == [7, 10]
    assert found[[7, 10]] == pytest.approx(seconds[[7, 10]], rel=1e-6)


def test_folds_leave_out_whole_networks_and_whole_counts() -> None:
    runs = rows()
    for key, of in (("architecture", "model"), ("count", "num_devices")):
        tested = []
        for fold in QUESTIONS[key].folds(QUESTIONS[key].groups(runs), 0):
            known, asked = ({getattr(runs[row], of) for row in part} for part in (fold.train, fold.test))
            assert not known & asked
            tested += fold.test.tolist()
        assert sorted(tested) == list(range(18))


def test_the_verdict_follows_the_figures() -> None:
    def answers(sums: float, both: float) -> Answers:
        ratios = {CHOSEN: 1.1, THREE: sums, BOTH: both, POOLED: 1.4, SIZED: 1.1, PER_JOB: np.nan, OURS: 1.02}
        return Answers(
            rows=np.arange(4),
            measured_s=np.ones(4),
            predicted_s={name: np.full(4, ratio) for name, ratio in ratios.items()},
            chosen=(),
        )

    assert "4.0 times lower by the mean" in verdict("unseen", answers(1.2, 1.1))
    better, worse = embedding_verdict(answers(1.2, 1.1)), embedding_verdict(answers(1.1, 1.2))
    assert "the embedding adds to them by the mean and the median" in better
    assert "the embedding does not add to them" in worse
    assert times_lower(answers(1.2, 1.1), CHOSEN, PER_JOB) == (None, None, 0)
    against, unseen = claims_of("networks", {"architecture": answers(1.2, 1.1)})
    assert (against.ours, against.rows, against.verdict) == ("4.0x (one fit)", 4, "does not hold")
    assert unseen.ours.startswith("10.0 % (median 10.0); three sums") and unseen.ours.endswith(
        "(median 20.0)"
    )


def test_drawn_jobs_come_whole_and_others_are_of_no_such_job() -> None:
    large = [
        replace(item, num_devices=count, configuration_key=f"{item.model}-{count}-{repeat}")
        for item in rows()[::6]
        for count in range(1, 14)
        for repeat in range(2)
    ]
    small = [replace(item, dataset="cifar10") for item in rows()]
    drawn = drawn_replay_rows([*large, *small], jobs=2, others=5)
    of_large = [item for item in drawn if not item.dataset]
    assert len(of_large) == 2 * 13
    assert len({item.model for item in of_large}) == 2
    assert len(drawn) == 2 * 13 + 5


def test_the_own_campaign_has_the_figures_of_its_devices() -> None:
    with FILE.open(encoding="utf-8", newline="") as file:
        devices = {device_name(trial) for trial in csv.DictReader(file) if trial["step_time_s"]}
    hardware = hardware_beside(FILE)
    assert hardware is not None
    assert devices
    assert all(load_custom(hardware).find_device(name) is not None for name in devices)


def test_every_price_is_of_a_device_of_the_catalog() -> None:
    for name in reference_offers():
        price = usd_per_device_hour(name)
        assert price is not None
        assert get_device(name).memory_bytes > 0.0
        assert 0.1 < price < 20.0
