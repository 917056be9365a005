"""Measure what PredictDDL's embedding is worth, and keep it in docs/reference/embedding.json.

    python scripts/embedding_study.py
    python scripts/embedding_study.py --ghns FOLDER    with hypernetworks of scripts/ghn_types.py

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

from precision_time.corpus.importer import read_measurements
from precision_time.corpus.measurement import Measurement
from precision_time.corpus.store import load_corpus
from precision_time.evaluation.papers.embedding import RESULT, embedding_study
from precision_time.papers.ghn.weights import load_weights
from precision_time.papers.predictddl.trainer import rows_by_type

SEEDS = {"torchvision": 5, "timm": 3, "reuse": 3}
_MOST = 1500
"""Rows of a data-set type whose reuse is measured, drawn with seed 0."""


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--ghns", type=Path, help="folder of hypernetworks by data type")
    parser.add_argument("--output", type=Path, default=RESULT)
    parser.add_argument("--own", type=Path, help="runs on the shapes of CIFAR-10 and Tiny-ImageNet (CSV)")
    asked = parser.parse_args()
    files = sorted(asked.ghns.glob("*.safetensors")) if asked.ghns else []
    ghns = {file.stem: load_weights(file) for file in files}
    corpus = [item for item in load_corpus() if item.usable]
    study = embedding_study(corpus, ghns=ghns, reused=_reused(corpus, asked.own), seeds=SEEDS, progress=_tell)
    card = {
        "command": "python scripts/embedding_study.py" + (" --ghns FOLDER" if ghns else ""),
        "created": datetime.now(UTC).date().isoformat(),
        "corpus_rows": len(corpus),
        "seeds": SEEDS,
        "scikit_learn": version("scikit-learn"),
        "ghns": {name: json.loads(weights.card) for name, weights in ghns.items()},
    }
    asked.output.write_text(json.dumps({"card": card, **study}, indent=1) + "\n", encoding="utf-8")


def _reused(corpus: Sequence[Measurement], own_file: Path | None) -> dict[str, tuple[str, list[Measurement]]]:
    """Pairs of data-set types: those of the corpus in fp32, and those of our own campaign."""
    fp32 = [item for item in corpus if item.precision == "fp32" and item.dataset]
    images = [item for item in fp32 if "cifar" in item.dataset or "imagenet" in item.dataset]
    types = rows_by_type(images)
    draw = np.random.default_rng(0)
    sets = {}
    for name, other in (("cifar", "imagenet"), ("imagenet", "cifar")):
        rows = types[name].measurements
        kept = np.sort(draw.permutation(len(rows))[:_MOST])
        sets[f"{name}, corpus"] = (f"{other}, corpus", [rows[place] for place in kept])
    if own_file is not None:
        own = [item for item in read_measurements(own_file) if isinstance(item, Measurement) and item.usable]
        for name, other in (("cifar10", "tiny-imagenet"), ("tiny-imagenet", "cifar10")):
            sets[f"{name}, own"] = (f"{other}, own", [item for item in own if item.dataset == name])
    return sets


def _tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
