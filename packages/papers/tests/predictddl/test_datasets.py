"""Dataset types, distances between datasets, and the task checker."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from precision_time.errors import ConfigError, UnknownNameError
from precision_time.request.datasets import (
    OTHER,
    DatasetFacts,
    dataset_types,
    known_dataset,
    known_datasets,
    type_of,
)
from precision_time_papers.predictddl.contract import Outcome
from precision_time_papers.predictddl.controller import FARTHEST, find_task
from precision_time_papers.predictddl.datasets import dataset_distance, dataset_facts
from precision_time_papers.predictddl.embeddings import probe_distance, probe_embeddings
from precision_time_papers.predictddl.registry import Registry, TrainedType

COUNTS = st.integers(1, 10**9)


@pytest.mark.parametrize(
    ("dataset", "task", "side", "expected"),
    [
        ("imagenet", "", 224, "imagenet"),
        ("ILSVRC2012", "imagenet-train", 224, "imagenet"),
        ("synthetic", "imagenet-train", 224, "imagenet"),
        ("cifar10", "", 32, "cifar"),
        ("cifar10", "", 224, "imagenet"),
        ("squad1.1", "", None, "fine-tuning"),
        ("wikitext103", "", None, "language-model"),
        ("", "lm-finetune-lora", None, "fine-tuning"),
        ("", "lm-pretrain", None, "language-model"),
        ("coco2017", "segmentation", 800, "detection"),
        ("kits19", "", None, "volumes"),
        ("tiny-imagenet", "", 64, OTHER),
        ("", "", None, OTHER),
    ],
)
def test_types(dataset: str, task: str, side: int | None, expected: str) -> None:
    assert type_of(dataset, task, side) == expected


def test_every_type_has_an_example_of_its_modality() -> None:
    for kind in dataset_types().values():
        assert kind.example.modality == kind.modality
        assert kind.example.samples > 0


def test_facts_of_every_known_data_set_are_complete() -> None:
    for facts in known_datasets().values():
        assert known_dataset(facts.name) == facts
        assert np.isfinite([facts.samples, facts.classes, facts.elements]).all()


def test_stated_facts_go_before_known_ones() -> None:
    facts = dataset_facts("cifar10", samples=1000)
    assert (facts.samples, facts.classes, facts.elements) == (1000, 10, 3072.0)
    with pytest.raises(UnknownNameError, match="state its classes, elements"):
        dataset_facts("my-pictures", samples=10)


@pytest.mark.parametrize("field", ["samples", "classes", "elements"])
def test_a_data_set_of_nothing_is_refused(field: str) -> None:
    with pytest.raises(ConfigError, match=f"{field}=0"):
        dataset_facts("cifar10", **{field: 0})


@given(COUNTS, COUNTS, COUNTS, COUNTS, COUNTS, COUNTS)
def test_distance_is_one(a: int, b: int, c: int, d: int, e: int, f: int) -> None:
    first = DatasetFacts(name="x", samples=a, classes=b, elements=float(c))
    second = DatasetFacts(name="y", samples=d, classes=e, elements=float(f))
    assert dataset_distance(first, first) == 0.0
    assert dataset_distance(first, second) == pytest.approx(dataset_distance(second, first))
    assert (dataset_distance(first, second) == 0.0) == ((a, b, c) == (d, e, f))


def test_a_trained_type_is_a_hit(registry: Registry) -> None:
    found = find_task(registry, "cifar", "cifar", None, probe_embeddings())
    assert found is not None
    assert (str(found), found.distance) == ("hit", 0.0)


def test_the_closest_type_is_named_with_its_distance(registry: Registry, trained: TrainedType) -> None:
    facts = known_dataset("tiny-imagenet")
    registry.save(replace(trained, dataset_type="imagenet"))
    found = find_task(registry, OTHER, "tiny-imagenet", facts, probe_embeddings())
    assert found is not None
    assert found.outcome is Outcome.CLOSEST
    assert found.used == "cifar"
    assert found.data_distance == pytest.approx(dataset_distance(facts, dataset_types()["cifar"].example))
    assert found.embedding_distance == 0.0
    assert "one GHN" in " ".join(found.notes)
    assert str(found) == f"closest({found.distance:.2f})"


def test_another_ghn_adds_to_the_distance(registry: Registry) -> None:
    other = np.random.default_rng(0).normal(size=probe_embeddings().shape)
    apart = probe_distance(probe_embeddings(), other)
    assert 0.0 < apart < 1.0
    turned = 3.0 * probe_embeddings()[:, ::-1]
    assert probe_distance(probe_embeddings(), turned) == pytest.approx(0.0, abs=1e-9)
    found = find_task(registry, OTHER, "tiny-imagenet", known_dataset("tiny-imagenet"), other)
    assert found is not None
    assert found.embedding_distance == pytest.approx(apart, rel=1e-5)
    assert found.distance == found.data_distance + found.embedding_distance


def test_other_modalities_and_far_data_sets_are_not_answered_for(registry: Registry) -> None:
    probe = probe_embeddings()
    assert find_task(registry, "speech", "librispeech", None, probe) is None
    far = DatasetFacts(name="one", samples=1, classes=10**9, elements=1e12, modality="image")
    assert dataset_distance(far, dataset_types()["cifar"].example) > FARTHEST
    assert find_task(registry, OTHER, "one", far, probe) is None
    assert find_task(registry, OTHER, "unknown", None, probe) is None
