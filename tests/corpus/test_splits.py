"""Splits: disjoint, complete, seeded, and never through a group."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from precision_time.corpus.splits import (
    SplitBy,
    configuration_groups,
    group_numbers,
    grouped_folds,
    model_group,
)
from precision_time.errors import ConfigError


@pytest.fixture(scope="module")
def rows(measurements):
    copies = []
    for number in range(6):
        copies += [
            replace(row, model=f"{row.model}-{number}", configuration_key=f"{index % 20:08x}{number:08x}")
            for index, row in enumerate(measurements)
        ]
    return copies


@pytest.mark.parametrize("by", list(SplitBy))
def test_folds_divide_no_group(rows, by):
    groups = group_numbers(rows, by=by)
    folds = grouped_folds(groups, num_folds=4, seed=3)
    assert folds.shape == groups.shape == (len(rows),)
    assert set(folds) <= {0, 1, 2, 3}
    for group in np.unique(groups):
        assert len(set(folds[groups == group])) == 1


def test_folds_depend_on_the_seed_and_on_nothing_else(rows):
    groups = group_numbers(rows, by=SplitBy.MODEL)
    first = grouped_folds(groups, seed=1)
    assert np.array_equal(first, grouped_folds(groups, seed=1))
    assert not np.array_equal(first, grouped_folds(groups, seed=2))


def test_every_fold_holds_out_as_many_groups(rows):
    groups = configuration_groups(rows)
    folds = grouped_folds(groups)
    held_out = [len(np.unique(groups[folds == fold])) for fold in range(5)]
    assert max(held_out) - min(held_out) <= 1


def test_one_fold_is_no_split(rows):
    with pytest.raises(ConfigError, match="num_folds=1"):
        grouped_folds(group_numbers(rows, by=SplitBy.MODEL), num_folds=1)


@pytest.mark.parametrize(
    "names",
    [
        ("efficientnet_b0", "tf_efficientnet_b0", "tf_efficientnet_b0_ns", "tf_efficientnet_b0_ap"),
        ("resnet50", "gluon_resnet50_v1b", "ssl_resnet50", "swsl_resnet50", "tv_resnet50"),
        (
            "vit_base_patch16_224",
            "vit_base_patch16_384",
            "vit-base-patch16-224-in21k",
            "vit_base_patch16_224_miil",
        ),
        ("deit_base_patch16_224", "deit_base_distilled_patch16_384"),
        ("xcit_small_12_p8_224", "xcit_small_12_p8_384_dist"),
        ("resnetv2_50x1_bitm", "resnetv2_50x1_bit_distilled"),
        ("mobilenet_v2", "mobilenetv2_100"),
        ("mask-rcnn-r50-fpn", "mask-rcnn-r-50-fpn", "mask-rcnn-r50-fpn-caffe"),
        ("bert-large", "bert-large-uncased", "bert-large-uncased-whole-word-masking"),
        ("llama2-7b", "llama-7b", "llama-2-7b-hf", "llamaguard-7b"),
        ("llama3-8b", "llama3.1-8b", "meta-llama-3.1-8b"),
        ("llama2-70b", "llama2-70b-lora"),
        ("gpt3-175b", "gpt-175b"),
    ],
)
def test_one_architecture_is_one_group(names):
    assert len({model_group(name) for name in names}) == 1


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("resnet50", "resnet50d"),
        ("resnet50", "resnet50_gn"),
        ("efficientnet_b0", "efficientnet_b1"),
        ("mobilenetv2_100", "mobilenetv2_140"),
        ("regnety_160", "regnety_320"),
        ("levit_192", "levit_256"),
        ("vit_base_patch16_224", "vit_base_patch32_224"),
        ("bert-base", "bert-large"),
        ("gpt3-175b", "gpt3-17b"),
        ("llama2-7b", "llama2-70b"),
        ("resnet18-cifar", "resnet18"),
    ],
)
def test_another_graph_is_another_group(one, other):
    assert model_group(one) != model_group(other)


def test_repeats_of_a_run_on_alike_hosts_stay_together(measurements):
    row = measurements[0]
    first = replace(row, source="lambda", run_id="a", configuration_key="00" * 8)
    second = replace(first, configuration_key="11" * 8)
    elsewhere = replace(second, source="pollux", configuration_key="22" * 8)
    names = configuration_groups([first, second, elsewhere])
    assert names[0] == names[1] != names[2]
