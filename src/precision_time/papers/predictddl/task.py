"""The task checker: is there a predictor for this dataset, or which is closest (papers.md 3.2)?"""

from __future__ import annotations

from .contract import Outcome, TaskMatch
from .datasets import DatasetFacts, dataset_distance, dataset_types
from .embeddings import probe_distance
from .registry import Registry
from .regressors import Floats

FARTHEST = 3.0
"""A dataset farther than this from every trained one is not answered for."""
_SHARED = "one GHN is shared by all dataset types: the embedding part of the distance is 0"


def find_task(
    registry: Registry, wanted: str, dataset: str, facts: DatasetFacts | None, probe: Floats
) -> TaskMatch | None:
    """The predictor that serves a dataset; None if one must be trained.

    The distance is that of the facts of the datasets in standard deviations, plus 1 - mean cosine
    similarity of the embeddings of the probe networks by both GHNs.

    Args:
        registry: Trained predictors.
        wanted: Dataset type, `OTHER` for none.
        dataset: Its name, for the report.
        facts: Of the dataset; without them only its own type will do.
        probe: Embeddings of the probe networks by the GHN of the request, shape (n_probe, 32).
    """
    trained = registry.types()
    if wanted in trained:
        return TaskMatch(outcome=Outcome.HIT, wanted=wanted, used=wanted)
    known = dataset_types()
    facts = facts or (known[wanted].example if wanted in known else None)
    modality = known[wanted].modality if wanted in known else facts.modality if facts else ""
    near = [
        (dataset_distance(facts, known[name].example), name)
        for name in trained
        if facts is not None and name in known and modality in ("", known[name].modality)
    ]
    if not near:
        return None
    distance, used = min(near)
    apart = probe_distance(probe, registry.load(used).probe)
    if distance + apart > FARTHEST:
        return None
    said = [f"no predictor for {dataset!r}: that for {used!r} is closest, {distance + apart:.2f} away"]
    return TaskMatch(
        outcome=Outcome.CLOSEST,
        wanted=dataset,
        used=used,
        data_distance=distance,
        embedding_distance=apart,
        notes=(*said, *(() if apart else (_SHARED,))),
    )
