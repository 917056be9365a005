"""Measure what PredictDDL's embedding is worth, and keep it in docs/reference/embedding.json.

    python embedding_study.py
    python embedding_study.py --parts ghns --ghns FOLDER    with those of ghn_types.py

About five minutes on one idle core.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import numpy as np

from papers_tables.embedding import (
    RESULT,
    Rows,
    ghn_study,
    reuse_study,
    unseen_study,
)
from precision_time.corpus.measurement import Measurement
from precision_time.corpus.store import load_corpus
from precision_time_papers.ghn.weights import load_weights
from precision_time_papers.predictddl.trainer import rows_by_type

PARTS = ("unseen", "ghns", "reuse")
SEEDS = {"torchvision": 5, "timm": 2, "reuse": 2}
_MOST = 500
"""Rows of a dataset type whose reuse is measured, drawn with seed 0."""


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--parts", default=",".join(PARTS), help="what is measured; the rest is kept")
    parser.add_argument("--ghns", type=Path, help="folder of hypernetworks by data type")
    parser.add_argument("--own", type=Path, help="our campaign on the shapes of both datasets (CSV)")
    parser.add_argument("--output", type=Path, default=RESULT)
    asked = parser.parse_args()
    files = sorted(asked.ghns.glob("*.safetensors")) if asked.ghns else []
    ghns = {file.stem: load_weights(file) for file in files}
    corpus = [item for item in load_corpus() if item.usable]
    study = json.loads(asked.output.read_text(encoding="utf-8")) if asked.output.is_file() else {"card": {}}
    measures = {
        "unseen": lambda: unseen_study(corpus, seeds=SEEDS, progress=_tell),
        "ghns": lambda: ghn_study(corpus, ghns, seeds=SEEDS["torchvision"], progress=_tell),
        "reuse": lambda: reuse_study(_reused(corpus, asked.own), seeds=SEEDS["reuse"], progress=_tell),
    }
    for part in asked.parts.split(","):
        study[part] = measures[part]()
        if part == "ghns":
            study["card"]["ghns"] = {name: json.loads(weights.card) for name, weights in ghns.items()}
        study["card"] |= {
            "command": "python packages/papers/studies/embedding_study.py"
            + (" --own FILE" if asked.own else ""),
            "created": datetime.now(UTC).date().isoformat(),
            "corpus_rows": len(corpus),
            "seeds": SEEDS,
            "scikit_learn": version("scikit-learn"),
        }
        asked.output.write_text(json.dumps(study, indent=1) + "\n", encoding="utf-8")


def _reused(corpus: Sequence[Measurement], own: Path | None) -> dict[str, tuple[str, Rows]]:
    """Pairs of dataset types: those of the corpus in fp32, and those of our own campaign."""
    fp32 = [item for item in corpus if item.precision == "fp32" and item.dataset]
    types = rows_by_type([item for item in fp32 if "cifar" in item.dataset or "imagenet" in item.dataset])
    draw = np.random.default_rng(0)
    sets = {}
    for name, other in (("cifar", "imagenet"), ("imagenet", "cifar")):
        rows = types[name].measurements
        kept = np.sort(draw.permutation(len(rows))[:_MOST])
        sets[f"{name}, corpus"] = (f"{other}, corpus", Rows.of([rows[place] for place in kept]))
    if own is not None:
        for side, name, other in ((32, "cifar10", "tiny-imagenet"), (64, "tiny-imagenet", "cifar10")):
            sets[f"{name} shapes, own"] = (f"{other} shapes, own", Rows.of_campaign(own, side))
    return sets


def _tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
