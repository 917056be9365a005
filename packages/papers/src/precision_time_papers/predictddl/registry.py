"""Trained predictors on disk: `<dataset type>/v<number>/` with `predictor.json` and `model.npz`.

A `ghn.safetensors` beside them is the hypernetwork of their embeddings, where it is not the shipped one.
Two folders make a registry: the one that ships with the package, which is only read, and the user's own,
where versions are counted on. Nothing is pickled. A version is written to a temporary folder and renamed, so
that it appears atomically.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import shutil
import tempfile
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from precision_time.cache import memo
from precision_time.corpus.store import local_store_path
from precision_time.errors import ConfigError, NotFittedError, UnknownNameError

from ..ghn.weights import GhnWeights, load_weights, save_weights
from .regressors import TARGETS, Floats, Regressor, TrainedVariant

SCHEMA_VERSION = 1
_CARD, _ARRAYS, _GHN = "predictor.json", "model.npz", "ghn.safetensors"
_VERSION = re.compile(r"v(\d{1,9})")


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainedType:
    """What was trained for one dataset type."""

    dataset_type: str
    variants: Mapping[str, TrainedVariant]
    probe: Floats
    """Embeddings of the probe networks by the GHN of training, shape (n_probe, 32)."""
    card: Mapping[str, Any]
    """GHN version, rows, architectures, sources, date, seed."""
    ghn: GhnWeights | None = None
    """Hypernetwork of its embeddings; None for the shipped one."""
    version: int = 0
    """0 until it is in a registry."""

    @property
    def label(self) -> str:
        """How messages name it."""
        return f"Version {self.version} of the predictor for {self.dataset_type!r}"


@dataclass(frozen=True, kw_only=True, slots=True)
class RegistryEntry:
    """One version in a registry, as a listing shows it."""

    dataset_type: str
    version: int
    folder: Path
    shipped: bool
    card: Mapping[str, Any]
    """Empty where it cannot be read."""
    problem: str = ""
    """Why it cannot be read; empty if it can."""


def registry_folder() -> Path:
    """The user's own registry, in the folder of the measurement store (see $PRECISION_TIME_HOME)."""
    return local_store_path().parent / "predictddl"


def shipped_folder() -> Path:
    """The registry that ships with the package."""
    return Path(str(files(__package__).joinpath("data/registry")))


@dataclass(frozen=True, kw_only=True, slots=True)
class Registry:
    """Predictors by dataset type and version."""

    own: Path
    """Folder that new versions are written to; need not exist."""
    shipped: Path | None = None
    """Folder that is only read."""

    @classmethod
    def default(cls) -> Registry:
        """The user's own over the shipped one."""
        return cls(own=registry_folder(), shipped=shipped_folder())

    def entries(self) -> list[RegistryEntry]:
        """Every version, by type and number; those that cannot be read say why."""
        found = [
            _entry(folder, shipped=root == self.shipped)
            for root in (self.shipped, self.own)
            if root is not None and root.is_dir()
            for folder in root.glob("*/v*")
            if _VERSION.fullmatch(folder.name)
        ]
        return sorted(found, key=lambda entry: (entry.dataset_type, entry.version))

    def types(self) -> tuple[str, ...]:
        """Dataset types that have a version."""
        return tuple(dict.fromkeys(entry.dataset_type for entry in self.entries()))

    def load(self, dataset_type: str, version: int | None = None) -> TrainedType:
        """A version, the newest by default.

        Raises:
            UnknownNameError: If there is no version of that type.
            ConfigError: If there is no such version.
            NotFittedError: If its files are damaged or of a newer schema; names the file.
        """
        entry = self._find(dataset_type, version)
        stamps = tuple(_stamp(entry.folder / name) for name in (_CARD, _ARRAYS, *_own_ghn(entry.card)))
        return _load(entry.folder, stamps)

    def save(self, trained: TrainedType) -> TrainedType:
        """Write a new version; a crash leaves the registry as it was.

        Raises:
            ConfigError: If the folder cannot be written.
        """
        parent = self.own / trained.dataset_type
        taken = [entry.version for entry in self.entries() if entry.dataset_type == trained.dataset_type]
        version = max(taken, default=0) + 1
        try:
            parent.mkdir(parents=True, exist_ok=True)
            part = Path(tempfile.mkdtemp(dir=parent, prefix=".part-"))
            try:
                _write(part, replace(trained, version=version))
                while (parent / f"v{version}").exists():  # another process may have taken the number
                    version += 1
                part.chmod(0o755)
                part.rename(parent / f"v{version}")
            finally:
                shutil.rmtree(part, ignore_errors=True)
        except OSError as error:
            raise ConfigError(
                f"The registry {self.own} cannot be written ({error}). To fix: choose another folder, or set "
                "PRECISION_TIME_HOME."
            ) from error
        return replace(trained, version=version)

    def delete(self, dataset_type: str, version: int) -> Path:
        """Remove one version of the user's own registry.

        Returns:
            The folder that is gone.

        Raises:
            UnknownNameError: If there is no version of that type.
            ConfigError: If there is no such version, or it ships with the package.
        """
        entry = self._find(dataset_type, version)
        if entry.shipped:
            raise ConfigError(
                f"Version {version} of {dataset_type!r} ships with the package and is only read. To fix: "
                "train a newer version, which is then used instead."
            )
        gone = entry.folder.with_name(f".gone-{entry.folder.name}-{os.getpid()}")
        entry.folder.rename(gone)
        shutil.rmtree(gone)
        return entry.folder

    def _find(self, dataset_type: str, version: int | None) -> RegistryEntry:
        versions = [entry for entry in self.entries() if entry.dataset_type == dataset_type]
        if not versions:
            raise UnknownNameError(
                kind="predictor",
                name=dataset_type,
                known=self.types(),
                hint="To fix: `precision-time papers predictddl train`, or choose one of `precision-time "
                "papers predictddl "
                "registry`.",
            )
        chosen = [entry for entry in versions if version in (None, entry.version)]
        if not chosen:
            have = ", ".join(str(entry.version) for entry in versions)
            raise ConfigError(
                f"There is no version {version} of the predictor for {dataset_type!r}. To fix: use {have}."
            )
        return chosen[-1]


def _entry(folder: Path, *, shipped: bool) -> RegistryEntry:
    card: Mapping[str, Any] = {}
    problem = ""
    try:
        card = _known_card(folder / _CARD, _stamp(folder / _CARD))
        if not (folder / _ARRAYS).is_file():
            problem = f"{_ARRAYS} is missing"
    except NotFittedError as error:
        problem = str(error)
    return RegistryEntry(
        dataset_type=folder.parent.name,
        version=int(folder.name[1:]),
        folder=folder,
        shipped=shipped,
        card=card,
        problem=problem,
    )


def _write(folder: Path, trained: TrainedType) -> None:
    arrays: dict[str, NDArray[Any]] = {"probe": trained.probe.astype(np.float32)}
    for variant, model in trained.variants.items():
        for kind, regressor in model.regressors.items():
            arrays |= regressor.to_arrays(f"{variant}.{kind}")
    kept, same = _without_repeats(arrays)
    buffer = io.BytesIO()
    np.savez_compressed(buffer, allow_pickle=False, **kept)
    content = buffer.getvalue()
    card = {
        **trained.card,
        "schema": SCHEMA_VERSION,
        "dataset_type": trained.dataset_type,
        "version": trained.version,
        "sha256": hashlib.sha256(content).hexdigest(),
        "same_arrays": same,
        "variants": {
            variant: {
                "names": list(model.names),
                "best": model.best,
                "targets": {kind: regressor.target for kind, regressor in model.regressors.items()},
                "scores": dict(model.scores),
            }
            for variant, model in trained.variants.items()
        },
    }
    if trained.ghn is not None:
        save_weights(folder / _GHN, trained.ghn)
        card["ghn_sha256"] = hashlib.sha256((folder / _GHN).read_bytes()).hexdigest()
        card["ghn_card"] = json.loads(trained.ghn.card or "{}")
    (folder / _ARRAYS).write_bytes(content)
    text = json.dumps(card, indent=1, sort_keys=True, allow_nan=False)
    (folder / _CARD).write_text(text + "\n", encoding="utf-8")


def _without_repeats(
    arrays: Mapping[str, NDArray[Any]],
) -> tuple[dict[str, NDArray[Any]], dict[str, str]]:
    """Arrays without those equal to an earlier one, and which one each of these equals."""
    seen: dict[tuple[bytes, tuple[int, ...]], str] = {}
    kept: dict[str, NDArray[Any]] = {}
    same: dict[str, str] = {}
    for name, values in arrays.items():
        first = seen.setdefault((values.tobytes(), values.shape), name)
        if first == name:
            kept[name] = values
        else:
            same[name] = first
    return kept, same


def _stamp(path: Path) -> tuple[int, int]:
    try:
        found = path.stat()
    except OSError as error:
        raise _damaged(path, error) from error
    return found.st_mtime_ns, found.st_size


@memo(64)
def _load(folder: Path, _stamps: tuple[tuple[int, int], ...]) -> TrainedType:
    card = _read_card(folder / _CARD)
    path = folder / _ARRAYS
    try:
        content = path.read_bytes()
        if hashlib.sha256(content).hexdigest() != card["sha256"]:
            raise ValueError("its content is not what predictor.json says: cut off or changed")
        with np.load(io.BytesIO(content), allow_pickle=False) as file:
            arrays = dict(file)
        arrays |= {name: arrays[first] for name, first in card["same_arrays"].items()}
        variants = {variant: _variant(variant, body, arrays) for variant, body in card["variants"].items()}
        return TrainedType(
            dataset_type=card["dataset_type"],
            version=int(_VERSION.fullmatch(folder.name)[1]),  # type: ignore[index] # found by that pattern
            variants=variants,
            probe=arrays["probe"].astype(np.float64),
            card=card,
            ghn=_read_ghn(folder / _GHN, card) if _own_ghn(card) else None,
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError, zipfile.BadZipFile) as error:
        raise _damaged(path, error) from error


def _own_ghn(card: Mapping[str, Any]) -> tuple[str, ...]:
    """The file of the hypernetwork, where a version has its own."""
    return (_GHN,) if "ghn_sha256" in card else ()


def _read_ghn(path: Path, card: Mapping[str, Any]) -> GhnWeights:
    """The hypernetwork that was kept.

    Raises:
        ValueError: If it is not the one that the card names.
    """
    if hashlib.sha256(path.read_bytes()).hexdigest() != card["ghn_sha256"]:
        raise ValueError(f"{path.name} is not what predictor.json says: cut off or changed")
    weights = load_weights(path)
    if weights.version != card["ghn_version"]:
        raise ValueError(f"{path.name} is the GHN {weights.version}, trained under {card['ghn_version']}")
    return weights


def _variant(variant: str, body: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> TrainedVariant:
    names = tuple(body["names"])
    regressors = {}
    for kind, target in body["targets"].items():
        if target not in TARGETS:
            raise ValueError(f"the target {target!r} of {kind} is none of {', '.join(TARGETS)}")
        regressors[kind] = Regressor.from_arrays(kind, target, arrays, f"{variant}.{kind}")
        if len(regressors[kind].inputs.mean) != len(names):
            raise ValueError(f"{kind} has {len(regressors[kind].inputs.mean)} inputs, {len(names)} are named")
    if body["best"] not in regressors:
        raise ValueError(f"the chosen regressor {body['best']!r} is missing")
    return TrainedVariant(names=names, best=body["best"], regressors=regressors, scores=body["scores"])


@memo(256)
def _known_card(path: Path, _stamp: tuple[int, int]) -> Mapping[str, Any]:
    """The card, read again where its file changed: a service looks at all of them for every answer."""
    return _read_card(path)


def _read_card(path: Path) -> Mapping[str, Any]:
    try:
        card = json.loads(path.read_text(encoding="utf-8"))
        schema = card["schema"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise _damaged(path, error) from error
    if schema != SCHEMA_VERSION:
        raise NotFittedError(
            f"The predictor {path} has schema {schema!r}, this version of precision-time reads "
            f"{SCHEMA_VERSION}. To fix: update precision-time, or {_REMEDY}."
        )
    found: Mapping[str, Any] = card
    return found


_REMEDY = (
    "delete that version (`precision-time papers predictddl registry --delete TYPE --predictor-version N`) "
    "and train again"
)


def _damaged(path: Path, error: Exception) -> NotFittedError:
    return NotFittedError(f"The predictor file {path} is damaged or missing ({error}). To fix: {_REMEDY}.")
