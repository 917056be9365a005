"""Protocols on the shipped corpus: nothing that is asked was learned from."""

from collections import defaultdict
from dataclasses import replace

import numpy as np
import pytest

from precision_time.corpus.families import families_of, family_key, family_numbers
from precision_time.corpus.protocols import PROTOCOLS, chip, publisher, source_name
from precision_time.corpus.splits import configuration_groups, model_group
from precision_time.corpus.store import load_corpus
from precision_time_papers.evaluation.report import sample_families

FOLDS = 5


@pytest.fixture(scope="module")
def usable():
    return [item for item in load_corpus() if item.usable]


@pytest.fixture(scope="module")
def runs(usable):
    return sample_families(usable, 3000)


@pytest.fixture(scope="module", params=PROTOCOLS)
def asked(request, runs):
    return request.param, PROTOCOLS[request.param].split(runs, 0, FOLDS)


def test_no_row_is_on_both_sides_or_asked_twice(asked, runs) -> None:
    _, folds = asked
    outside = np.concatenate([fold.test for fold in folds])
    assert len(outside) > 100
    assert len(np.unique(outside)) == len(outside)
    assert all(not np.intersect1d(fold.train, fold.test).size for fold in folds)


def test_no_configuration_is_on_both_sides(asked, runs) -> None:
    groups = configuration_groups(runs)
    for fold in asked[1]:
        assert not np.intersect1d(groups[fold.train], groups[fold.test]).size


@pytest.mark.parametrize(
    ("protocol", "label"),
    [
        ("model", lambda item: model_group(item.model)),
        ("device", lambda item: chip(item.device)),
        ("source", source_name),
        ("publisher", publisher),
        ("family", family_key),
        ("precision", lambda item: (model_group(item.model), item.device, item.precision)),
    ],
)
def test_groups_are_held_out_whole(protocol, label, runs) -> None:
    labels = [label(item) for item in runs]
    for fold in PROTOCOLS[protocol].split(runs, 1, FOLDS):
        known = {labels[row] for row in fold.train}
        assert not known & {labels[row] for row in fold.test}


def test_an_unseen_precision_has_a_known_one_beside_it(runs) -> None:
    folds = PROTOCOLS["precision"].split(runs, 0, FOLDS)
    for fold in folds:
        known = defaultdict(set)
        for row in fold.train:
            known[model_group(runs[row].model), runs[row].device].add(runs[row].precision)
        for row in fold.test:
            pair = known[model_group(runs[row].model), runs[row].device]
            assert pair
            assert runs[row].precision not in pair


def test_every_pair_with_several_precisions_is_asked_at_each(runs) -> None:
    pairs = defaultdict(set)
    for item in runs:
        pairs[model_group(item.model), item.device].add(item.precision)
    several = [len(pairs[model_group(item.model), item.device]) > 1 for item in runs]
    folds = PROTOCOLS["precision"].split(runs, 0, FOLDS)
    assert sum(len(fold.test) for fold in folds) == sum(several)


def test_scale_learns_from_few_devices_and_asks_of_many(runs) -> None:
    (fold,) = PROTOCOLS["scale"].split(runs, 0, FOLDS)
    assert max(runs[row].num_devices for row in fold.train) == 8
    assert min(runs[row].num_devices for row in fold.test) >= 16


@pytest.mark.parametrize(
    "protocol", [name for name in PROTOCOLS if name not in ("scale", "cluster", "publisher")]
)
def test_a_seed_decides_the_folds(protocol, runs) -> None:
    first, again, other = (PROTOCOLS[protocol].split(runs, seed, FOLDS)[0].test for seed in (0, 0, 1))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)


def test_families_differ_in_precision_only(runs) -> None:
    families = families_of(runs)
    assert len(families) > 100
    for family in families:
        members = [runs[row] for rows in family.rows.values() for row in rows]
        assert len({family_key(item) for item in members}) == 1
        assert all({runs[row].precision for row in rows} == {name} for name, rows in family.rows.items())


def test_repeats_under_another_version_stay_in_the_family(runs) -> None:
    first = runs[0]
    newer = replace(first, stack=replace(first.stack, framework_year=first.stack.framework_year + 1.0))
    assert family_key(first) != family_key(newer)
    assert len(set(family_numbers([first, newer]).tolist())) == 1


def test_a_sample_keeps_families_whole_and_favours_several_precisions(usable) -> None:
    sample = sample_families(usable, 800)
    assert 800 <= len(sample) <= 1600
    whole = family_numbers(usable)
    taken = {item.row_id for item in sample}
    inside = np.array([item.row_id in taken for item in usable])
    assert not np.intersect1d(whole[inside], whole[~inside]).size
    rows = {row for family in families_of(sample) for part in family.rows.values() for row in part}
    assert len(rows) >= 300
