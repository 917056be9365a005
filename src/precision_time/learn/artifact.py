"""The trained predictor on disk: one file of arrays (`array_file`) and one `.json` card, never a pickle.

The shipped arrays are mapped into memory: an answer reads those that it needs, and processes share them.

The card carries the hash of the arrays and what they go with: the version of the package and the shipped
corpus, whose rows they refer to. A predictor of the user's own is refused where one of them is another.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .. import __version__
from ..array_file import mapped, packed, unpacked
from ..cache import data
from ..corpus.measurement import Measurement
from ..cost.stacks import Stack
from ..errors import NotFittedError
from ..io import once_per_file, packaged, read_input, read_input_bytes, write_atomically
from ..plugins import TRAINED, TRAINED_BY_MEMBERS, is_predictor, plugins
from ..records import dataclass
from .intervals import IntervalModel
from .novelty import RunIndex, TrainingSet
from .predictor import Predictor
from .trees import TreeEnsemble

if TYPE_CHECKING:
    from .calibration.process import Process

ARTIFACT_SCHEMA_VERSION = 5
PREDICTOR_VARIABLE = "PRECISION_TIME_PREDICTOR"
"""Environment variable: the predictor that answers where a request names none."""
_ARRAYS, _CARD = "predictor.safetensors", "predictor.json"
_OWN_ARRAYS = "predictor-{}.safetensors"
"""By their content, so that a card never finds arrays that are not its own."""
_SHOWN_OF_A_RUN = (
    *("model", "device", "num_devices", "num_nodes", "precision", "global_batch_size"),
    *("measured_step_time_s", "source", "source_ref", "row_id"),
)
"""Fields of a user's own run that an answer shows beside its stack."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MeasurementIndex:
    """Every measured run of the corpus: where to find it by similarity, and its prediction."""

    runs: RunIndex
    measurement_ids: NDArray[np.int64]
    predicted_s: NDArray[np.float64]
    """Out of fold: the predictor had not seen the run's configuration."""
    own: Mapping[int, Measurement] = field(default_factory=dict)
    """Runs of the user's own, by their id: a negative one, which no row of the corpus has."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class TrainedPredictor(Predictor):
    """Everything that an answer needs; one is equal to itself alone, and may be the key of a cache."""

    intervals: IntervalModel
    measurements: MeasurementIndex
    model_card: Mapping[str, Any]
    """Seed, corpus fingerprint, settings, cross-validated errors, known models and devices, `process`."""
    origin: str = ""
    """Folder of a predictor of the user's own; empty for the one that ships."""

    @property
    def process(self) -> Process:
        """How errors of jobs are alike: what measured points are conditioned on with."""
        from .calibration.process import Process

        return Process.from_dict(self.model_card["process"])

    def save(self, folder: Path, *, ships: bool = False) -> None:
        """Write the arrays, then the card that names them; a crash leaves the old predictor in place.

        Args:
            folder: Existing or new folder.
            ships: Written into the package, with names that stay, rather than for one user.
        """
        folder.mkdir(parents=True, exist_ok=True)
        content = packed(self._to_arrays(), {})
        digest = _sha256(content)
        name = _ARRAYS if ships else _OWN_ARRAYS.format(digest[:16])
        stated = {
            "schema": ARTIFACT_SCHEMA_VERSION,
            "package": __version__,
            "arrays": {"file": name, "sha256": digest},
            "features": list(self.names),
            "fade": self.fade,
        }
        if not ships:
            stated["shipped_corpus"] = shipped_card()["corpus"]
            stated["own"] = [
                {**{name: getattr(run, name) for name in _SHOWN_OF_A_RUN}, "stack": run.stack.profile}
                for run in self.measurements.own.values()
            ]
        card = {**self.model_card, **stated}
        write_atomically(folder / name, content)
        write_atomically(folder / _CARD, json.dumps(card, indent=1, sort_keys=True).encode())
        for old in folder.glob(_OWN_ARRAYS.format("*")):
            if old.name != name:
                old.unlink(missing_ok=True)

    def _to_arrays(self) -> dict[str, NDArray[Any]]:
        runs = self.measurements.runs
        return {
            **self.trees.to_arrays("step"),
            **self.intervals.to_arrays(),
            "runs.positions": self.training_set.positions,
            "evidence.order": runs.order,
            "evidence.starts": runs.starts,
            "evidence.configurations": runs.configurations,
            "evidence.ids": self.measurements.measurement_ids,
            "evidence.predicted_s": self.measurements.predicted_s,
        }


def load_predictor(folder: Path) -> TrainedPredictor:
    """The predictor that was saved in `folder`, which is not the package's.

    Raises:
        NotFittedError: If it is missing, damaged, or of another version of the package or of its corpus.
    """
    return _load(folder, own=True)


def chosen_predictor(given: Path | str | None) -> TrainedPredictor:
    """The predictor given, else that of the environment variable, else the one that ships.

    That of a folder is read once as long as its card stays the same.

    Args:
        given: A folder, or the name of a predictor that an installed package brings.

    Raises:
        NotFittedError: As `load_predictor`; if a package that brings it is not installed.
    """
    named = given or os.environ.get(PREDICTOR_VARIABLE)
    if not named:
        return shipped_predictor()
    if is_predictor(named):
        return _of_plugin(str(named))
    try:
        return once_per_file(_of_card, Path(named) / _CARD)
    except (OSError, ValueError):
        return load_predictor(Path(named))  # which says what is missing


def _of_plugin(name: str) -> TrainedPredictor:
    plugin = plugins(TRAINED).get(name)
    if plugin is None:
        raise NotFittedError(
            f"The predictor {name} is not installed. To fix: pip install {TRAINED_BY_MEMBERS[name]}."
        )
    found: TrainedPredictor = plugin.load()()
    return found


def _of_card(card: Path) -> TrainedPredictor:
    return load_predictor(card.parent)


@data
def shipped_predictor() -> TrainedPredictor:
    """The predictor that ships with the package."""
    return _load(packaged(__package__, "data"), own=False)


def shipped_card() -> Mapping[str, Any]:
    """The card of the predictor that ships."""
    card: Mapping[str, Any] = json.loads(packaged(__package__, f"data/{_CARD}").read_bytes())
    return card


def _load(folder: Path, *, own: bool) -> TrainedPredictor:
    remedy = f"To fix: train it again, precision-time train --out {folder}" if own else "To fix: reinstall"
    remedy += f"; or leave out --predictor and {PREDICTOR_VARIABLE}." if own else " the package."
    try:
        card = json.loads(read_input(folder / _CARD))
        _check_versions(card, own=own)
        arrays_path = folder / Path(card.get("arrays", {}).get("file", _ARRAYS)).name
        content = read_input_bytes(arrays_path) if own else b""
        if own and _sha256(content) != card["arrays"]["sha256"]:
            raise NotFittedError(f"{arrays_path.name} is not the file that its card names")
        arrays, _ = unpacked(content) if own else mapped(arrays_path)
        return _assemble(card, arrays, str(folder) if own else "")
    except FileNotFoundError as error:
        raise NotFittedError(f"No predictor in {folder}: {error.filename} is missing. {remedy}") from error
    except NotFittedError as error:
        raise NotFittedError(f"The predictor in {folder} cannot be used: {error}. {remedy}") from error
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise NotFittedError(f"The predictor in {folder} is damaged ({error}). {remedy}") from error


def _sha256(content: bytes) -> str:
    import hashlib

    return hashlib.sha256(content).hexdigest()


def _check_versions(card: Mapping[str, Any], *, own: bool) -> None:
    """Refuse what this version of the package would serve wrongly; the message is the reason alone."""
    wanted: dict[str, tuple[str, Any]] = {"schema": ("its format", ARTIFACT_SCHEMA_VERSION)}
    if own:
        wanted["package"] = ("the version of precision-time that trained it", __version__)
        wanted["shipped_corpus"] = ("the shipped corpus it learned from", shipped_card()["corpus"])
    for name, (what, ours) in wanted.items():
        if card[name] != ours:
            raise NotFittedError(f"{what} is {card[name]}, here it is {ours}")


def _run_from_dict(stated: Mapping[str, Any]) -> Measurement:
    return Measurement(**{**stated, "stack": Stack(profile=stated["stack"])})


def _assemble(card: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]], origin: str) -> TrainedPredictor:
    found = TrainedPredictor(
        names=tuple(card["features"]),
        trees=TreeEnsemble.from_arrays(arrays, "step"),
        training_set=TrainingSet(positions=arrays["runs.positions"]),
        fade=card["fade"],
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
            own={run["row_id"]: _run_from_dict(run) for run in card.get("own", ())},
        ),
        model_card=card,
        origin=origin,
    )
    if origin:
        _ = found.process  # that it can be read is known of ours alone
    return found
