"""The trained predictor on disk: one `.npz` of arrays and one `.json` card, never a pickle."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import NotFittedError
from ..io import write_atomically
from .intervals import IntervalModel
from .novelty import MeasuredRuns
from .stages import STAGES, StagedCorrection
from .trees import TreeEnsemble

ARTIFACT_SCHEMA_VERSION = 2
_ARRAYS, _CARD = "predictor.npz", "predictor.json"


@dataclass(frozen=True, kw_only=True, slots=True)
class EvidenceTable:
    """Where every measured run of the corpus lies, and what the predictor says of it."""

    keys: NDArray[np.float32]
    """Position in the space of similarity, shape (n, dims)."""
    measurement_ids: NDArray[np.int64]
    predicted_s: NDArray[np.float64]
    """Out of fold: the run's configuration was not learned from."""
    squares: NDArray[np.float32]
    """Squared length of each key, shape (n,): makes looking for near ones one product."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainedPredictor:
    """Everything that serving needs."""

    correction: StagedCorrection
    intervals: IntervalModel
    evidence: EvidenceTable
    card: Mapping[str, Any]
    """Seed, corpus fingerprint, settings, cross-validated errors, known models and devices."""

    def save(self, folder: Path) -> None:
        """Write both files; a crash leaves the old ones in place.

        Args:
            folder: Existing or new folder.
        """
        folder.mkdir(parents=True, exist_ok=True)
        arrays: dict[str, NDArray[Any]] = {}
        for stage in STAGES:
            arrays |= self.correction.stages[stage].to_arrays(stage)
        arrays |= self.intervals.to_arrays()
        arrays["runs.positions"] = self.correction.runs.positions
        arrays |= {
            "evidence.keys": self.evidence.keys,
            "evidence.ids": self.evidence.measurement_ids,
            "evidence.predicted_s": self.evidence.predicted_s,
        }
        buffer = io.BytesIO()
        np.savez_compressed(buffer, allow_pickle=False, **arrays)
        write_atomically(folder / _ARRAYS, buffer.getvalue())
        card = {
            "schema": ARTIFACT_SCHEMA_VERSION,
            "features": list(self.correction.names),
            **self.card,
        }
        write_atomically(folder / _CARD, json.dumps(card, indent=1, sort_keys=True).encode())


def load_predictor(folder: Path) -> TrainedPredictor:
    """The predictor saved in `folder`.

    Raises:
        NotFittedError: If it is missing, truncated or of another schema.
    """
    way_out = "To fix: run `precision-time train`, or reinstall the package."
    try:
        card = json.loads((folder / _CARD).read_text(encoding="utf-8"))
        if card["schema"] != ARTIFACT_SCHEMA_VERSION:
            raise NotFittedError(
                f"The predictor in {folder} has schema {card['schema']}, this version reads "
                f"{ARTIFACT_SCHEMA_VERSION}. {way_out}"
            )
        with (folder / _ARRAYS).open("rb") as opened, np.load(opened, allow_pickle=False) as file:
            arrays = dict(file)
        return _assemble(card, arrays)
    except FileNotFoundError as error:
        raise NotFittedError(f"No predictor in {folder}: {error.filename} is missing. {way_out}") from error
    except (OSError, ValueError, KeyError, zipfile.BadZipFile) as error:
        raise NotFittedError(f"The predictor in {folder} is damaged ({error}). {way_out}") from error


@lru_cache(maxsize=1)
def shipped_predictor() -> TrainedPredictor:
    """The predictor that ships with the package."""
    with resources.as_file(resources.files(__package__).joinpath("data")) as folder:
        return load_predictor(folder)


def _assemble(card: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> TrainedPredictor:
    return TrainedPredictor(
        correction=StagedCorrection(
            names=tuple(card["features"]),
            stages={stage: TreeEnsemble.from_arrays(arrays, stage) for stage in STAGES},
            runs=MeasuredRuns(positions=arrays["runs.positions"]),
        ),
        intervals=IntervalModel.from_arrays(arrays),
        evidence=EvidenceTable(
            keys=arrays["evidence.keys"],
            measurement_ids=arrays["evidence.ids"],
            predicted_s=arrays["evidence.predicted_s"],
            squares=np.square(arrays["evidence.keys"]).sum(axis=1),
        ),
        card=card,
    )
