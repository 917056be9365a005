"""The trained predictor on disk: one `.npz` of arrays and one `.json` model card, never a pickle."""

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
from .calibration.process import Process
from .intervals import IntervalModel
from .novelty import RunIndex, TrainingSet
from .stages import STAGES, StagedCorrection
from .trees import TreeEnsemble

ARTIFACT_SCHEMA_VERSION = 3
_ARRAYS, _CARD = "predictor.npz", "predictor.json"
_STORED = {stage: "detail" if stage == "local" else stage for stage in STAGES}
"""Names of the stages in the file."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MeasurementIndex:
    """Every measured run of the corpus: where to find it by similarity, and its prediction."""

    runs: RunIndex
    measurement_ids: NDArray[np.int64]
    predicted_s: NDArray[np.float64]
    """Out of fold: the predictor had not seen the run's configuration."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainedPredictor:
    """Everything that a prediction needs."""

    correction: StagedCorrection
    intervals: IntervalModel
    measurements: MeasurementIndex
    model_card: Mapping[str, Any]
    """Seed, corpus fingerprint, settings, cross-validated errors, known models and devices."""
    process: Process
    """How errors of jobs are alike: what measured points are conditioned on with."""

    def save(self, folder: Path) -> None:
        """Write both files; a crash leaves the old ones in place.

        Args:
            folder: Existing or new folder.
        """
        folder.mkdir(parents=True, exist_ok=True)
        arrays: dict[str, NDArray[Any]] = {}
        for stage in STAGES:
            arrays |= self.correction.stages[stage].to_arrays(_STORED[stage])
        arrays |= self.intervals.to_arrays()
        runs = self.measurements.runs
        arrays |= {
            "runs.positions": self.correction.training_set.positions,
            "evidence.order": runs.order,
            "evidence.starts": runs.starts,
            "evidence.configurations": runs.configurations,
            "evidence.ids": self.measurements.measurement_ids,
            "evidence.predicted_s": self.measurements.predicted_s,
        }
        buffer = io.BytesIO()
        np.savez_compressed(buffer, allow_pickle=False, **arrays)
        write_atomically(folder / _ARRAYS, buffer.getvalue())
        stated = {"schema": ARTIFACT_SCHEMA_VERSION, "features": list(self.correction.names)}
        card = {**stated, **self.model_card, "process": self.process.to_dict()}
        write_atomically(folder / _CARD, json.dumps(card, indent=1, sort_keys=True).encode())


def load_predictor(folder: Path) -> TrainedPredictor:
    """The predictor saved in `folder`.

    Raises:
        NotFittedError: If it is missing, truncated or of another schema.
    """
    remedy = "To fix: run `precision-time train`, or reinstall the package."
    try:
        card = json.loads((folder / _CARD).read_text(encoding="utf-8"))
        if card["schema"] != ARTIFACT_SCHEMA_VERSION:
            raise NotFittedError(
                f"The predictor in {folder} has schema {card['schema']}, this version reads "
                f"{ARTIFACT_SCHEMA_VERSION}. {remedy}"
            )
        with (folder / _ARRAYS).open("rb") as opened, np.load(opened, allow_pickle=False) as file:
            arrays = dict(file)
        return _assemble(card, arrays)
    except FileNotFoundError as error:
        raise NotFittedError(f"No predictor in {folder}: {error.filename} is missing. {remedy}") from error
    except (OSError, ValueError, KeyError, zipfile.BadZipFile) as error:
        raise NotFittedError(f"The predictor in {folder} is damaged ({error}). {remedy}") from error


@lru_cache(maxsize=1)
def shipped_predictor() -> TrainedPredictor:
    """The predictor that ships with the package."""
    with resources.as_file(resources.files(__package__).joinpath("data")) as folder:
        return load_predictor(folder)


def _assemble(card: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> TrainedPredictor:
    return TrainedPredictor(
        correction=StagedCorrection(
            names=tuple(card["features"]),
            stages={stage: TreeEnsemble.from_arrays(arrays, _STORED[stage]) for stage in STAGES},
            training_set=TrainingSet(positions=arrays["runs.positions"]),
        ),
        intervals=IntervalModel.from_arrays(arrays),
        measurements=MeasurementIndex(
            runs=RunIndex(
                positions=arrays["runs.positions"],
                order=arrays["evidence.order"],
                starts=arrays["evidence.starts"],
                configurations=arrays["evidence.configurations"],
            ),
            measurement_ids=arrays["evidence.ids"],
            predicted_s=arrays["evidence.predicted_s"],
        ),
        model_card=card,
        process=Process.from_dict(card["process"]),
    )
