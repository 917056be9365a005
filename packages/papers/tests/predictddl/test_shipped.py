"""The predictors that ship: readable, of this GHN, small, and about as good as their cards say."""

from __future__ import annotations

import numpy as np
import pytest

from precision_time.corpus.jobs import job_of
from precision_time.corpus.store import load_corpus
from precision_time.learn.table import job_table
from precision_time_papers.predictddl.columns import PRECISION, VARIANTS, inputs_of, picked
from precision_time_papers.predictddl.embeddings import annotated_names, blind_names, ghn_version, same_probe
from precision_time_papers.predictddl.registry import Registry, shipped_folder
from precision_time_papers.predictddl.regressors import KINDS
from precision_time_papers.predictddl.trainer import input_columns, rows_by_type

SHIPPED = Registry(own=shipped_folder())
MOST_BYTES = 1_500_000


def test_every_type_with_enough_runs_ships() -> None:
    assert set(SHIPPED.types()) == {
        "cifar", "detection", "fine-tuning", "imagenet", "language-model", "recommendation", "speech",
        "translation", "volumes",
    }  # fmt: skip


@pytest.mark.parametrize("kind", SHIPPED.types())
def test_they_were_trained_under_the_shipped_ghn(kind: str) -> None:
    trained = SHIPPED.load(kind)
    assert trained.card["ghn_version"] == ghn_version(), "run packages/papers/studies/train_predictddl.py"
    assert same_probe(trained.probe), "run packages/papers/studies/train_predictddl.py"
    assert set(trained.variants) == set(VARIANTS)
    for variant, model in trained.variants.items():
        assert set(model.regressors) == set(KINDS)
        embedding = (*blind_names(), *(annotated_names() if variant == PRECISION else ()))
        assert model.names[: len(embedding)] == embedding
        assert inputs_of(variant, model.names) == model.names


def test_they_are_small() -> None:
    assert sum(path.stat().st_size for path in shipped_folder().rglob("*.npz")) < MOST_BYTES


def test_cards_name_no_machine_and_the_best_is_the_best_listed() -> None:
    for entry in SHIPPED.entries():
        assert not entry.problem
        for body in entry.card["variants"].values():
            assert body["best"] in body["scores"]
            assert set(body["scores"]) == set(KINDS)


def test_precision_buys_what_the_cards_say() -> None:
    """On the type with most architectures the annotated variant errs clearly less, by its own folds."""
    variants = SHIPPED.load("imagenet").variants
    errors = {name: model.scores[model.best]["mape_percent"] for name, model in variants.items()}
    assert errors["predictddl-precision"] < 0.7 * errors["predictddl"]


def test_measured_runs_are_answered_about_as_well_as_the_card_says() -> None:
    trained = SHIPPED.load("imagenet")
    rows = rows_by_type(load_corpus()[::400])["imagenet"].measurements
    jobs = [job_of(item) for item in rows]
    priced = job_table(jobs)
    names, values = input_columns(jobs, priced)
    measured = np.array([item.step_time_s for item in rows])
    for model in trained.variants.values():
        predicted = model.regressors[model.best].predict(
            picked(names, values, model.names), priced.analytical_s
        )
        median = float(np.median(np.abs(predicted / measured - 1.0))) * 100.0
        assert median < 1.5 * model.scores[model.best]["median_ape_percent"]
