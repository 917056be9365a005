"""A fitted performance model in one file: arrays and JSON in a zip, read without running anything."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...errors import ConfigError, CorpusError, PrecisionTimeError
from ...io import write_atomically
from .features import Column, Feature
from .forms import Form, Part, form_of
from .grey import GreyBox
from .points import row_columns

Floats = NDArray[np.float64]

FORMAT = "precision-time performance model"
SCHEMA_VERSION = 1
_CARD, _ARRAYS = "model.json", "arrays.npz"
_MOST_BYTES = 512 * 2**20
"""A file that unpacks to more is no model of ours."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PerformanceModel:
    """Times of rows: the product of its parts, and of our own prediction in a grey box."""

    target: str
    """Name of what is predicted."""
    columns: tuple[str, ...]
    """Numeric columns that a row must have."""
    categories: Mapping[str, tuple[str, ...]]
    """Columns of words, and the words that were measured."""
    ranges: Mapping[str, tuple[float, float]]
    """Smallest and largest measured value of each numeric column."""
    parts: tuple[Part, ...]
    grey: GreyBox | None = None
    """How our own predictor is asked about a row; None for a black box."""
    grey_power: float = 1.0
    """Of our own prediction: the share of grey boxes among the models whose mean is taken."""
    card: Mapping[str, Any] = field(default_factory=dict)
    """What was fitted, chosen and scored."""

    def predict(self, rows: Sequence[Mapping[str, Any]]) -> Floats:
        """Predicted times of rows, shape (n,), in the target's unit.

        Args:
            rows: Each a value for every column, and for every field of the grey box.

        Raises:
            ConfigError: If a row lacks a column, or a value cannot be.
        """
        further = () if self.grey is None else self.grey.columns
        words = tuple(
            dict.fromkeys((*self.categories, *(name for name in further if name not in self.columns)))
        )
        columns: dict[str, Column] = row_columns(rows, self.columns, words)
        for name, known in self.categories.items():
            for number, word in enumerate(columns[name], start=1):
                if word not in known:
                    raise ConfigError(
                        f"Row {number}: {name} = {word!r} was not measured; {', '.join(known)} were. "
                        "To fix: measure it, and fit again."
                    )
        return self.predict_columns(columns)

    def predict_columns(self, columns: Mapping[str, Column]) -> Floats:
        """Predicted times of checked columns, shape (n,)."""
        times = np.ones(len(next(iter(columns.values()))))
        if self.grey is not None:
            said = self.grey.ask(columns)
            columns = {**columns, **said}
            times = times * said[self.grey.PREDICTED] ** self.grey_power
        for part in self.parts:
            times = times * part.predict(columns)
        return times

    def remarks(self, rows: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
        """Where rows lie outside of what was measured, in words."""
        said = []
        for name, (low, high) in self.ranges.items():
            values = [float(row[name]) for row in rows if name in row]
            beyond = [value for value in values if not low <= value <= high]
            if beyond:
                said.append(
                    f"{name} = {beyond[0]:g} lies outside the measured {low:g} to {high:g}: extrapolated"
                    f"{_more(len(beyond) - 1)}."
                )
        return tuple(said)

    def save(self, path: str | Path) -> None:
        """Write the model, whole or not at all."""
        target = Path(path)
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as file:
            file.writestr(_CARD, json.dumps(self._to_json(), indent=1, allow_nan=False))
            file.writestr(_ARRAYS, _packed(self.parts))
        write_atomically(target, buffer.getvalue())

    @classmethod
    def load(cls, path: str | Path) -> PerformanceModel:
        """The model of a file.

        Raises:
            CorpusError: If there is none, or it is truncated, corrupt, something else, or of a newer version.
        """
        try:
            with zipfile.ZipFile(path) as file:
                if sum(item.file_size for item in file.infolist()) > _MOST_BYTES:
                    raise ValueError("larger than any model")
                stated = json.loads(file.read(_CARD))
                packed = file.read(_ARRAYS)
            if stated["format"] != FORMAT:
                raise ValueError("another format")
            if stated["schema_version"] > SCHEMA_VERSION:
                raise CorpusError(
                    f"{path} has model version {stated['schema_version']}, this release reads up to "
                    f"{SCHEMA_VERSION}. To fix: upgrade precision-time, or fit again."
                )
            with np.load(io.BytesIO(packed), allow_pickle=False) as arrays:
                return cls._from_json(stated, dict(arrays))
        except FileNotFoundError as error:
            raise CorpusError(f"There is no model at {path}. To fix: check the path.") from error
        except (OSError, ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile) as error:
            raise CorpusError(
                f"{path} is no readable performance model ({error}). To fix: fit it again with "
                "`precision-time performance-models --out`."
            ) from error
        except PrecisionTimeError:
            raise
        except Exception as error:  # zlib.error and what a damaged archive may raise beside it
            raise CorpusError(f"{path} is damaged ({error!r}). To fix: fit it again.") from error

    def _to_json(self) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "schema_version": SCHEMA_VERSION,
            "target": self.target,
            "columns": list(self.columns),
            "categories": {name: list(words) for name, words in self.categories.items()},
            "ranges": {name: list(span) for name, span in self.ranges.items()},
            "grey": None if self.grey is None else self.grey.to_dict(),
            "grey_power": self.grey_power,
            "parts": [
                {
                    "kind": part.form.kind,
                    "features": [item.to_list() for item in part.features],
                    "log": part.log,
                    "unit": part.unit,
                    "least": part.least,
                    "power": part.power,
                }
                for part in self.parts
            ],
            "card": dict(self.card),
        }

    @classmethod
    def _from_json(cls, stated: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> PerformanceModel:
        return cls(
            target=str(stated["target"]),
            columns=tuple(stated["columns"]),
            categories={name: tuple(words) for name, words in stated["categories"].items()},
            ranges={name: (float(low), float(high)) for name, (low, high) in stated["ranges"].items()},
            parts=tuple(_part(index, item, arrays) for index, item in enumerate(stated["parts"])),
            grey=None if stated["grey"] is None else GreyBox.from_dict(stated["grey"]),
            grey_power=float(stated["grey_power"]),
            card=stated["card"],
        )


def _packed(parts: Sequence[Part]) -> bytes:
    arrays: dict[str, NDArray[Any]] = {}
    for index, part in enumerate(parts):
        arrays |= {f"{index}.form.{name}": item for name, item in part.form.to_arrays().items()}
        arrays |= {f"{index}.center": part.center, f"{index}.scale": part.scale}
    file = io.BytesIO()
    np.savez(file, allow_pickle=False, **arrays)
    return file.getvalue()


def _part(index: int, stated: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Part:
    lead = f"{index}.form."
    own = {name.removeprefix(lead): item for name, item in arrays.items() if name.startswith(lead)}
    features = tuple(Feature.from_list(item) for item in stated["features"])
    center, scale = arrays[f"{index}.center"], arrays[f"{index}.scale"]
    form: Form = form_of(stated["kind"], own)
    if not len(center) == len(scale) == len(features):
        raise ValueError(f"part {index} has {len(features)} features, but {len(center)} means")
    part = Part(
        features=features,
        center=center,
        scale=scale,
        form=form,
        log=bool(stated["log"]),
        unit=float(stated["unit"]),
        least=float(stated["least"]),
        power=float(stated["power"]),
    )
    part.of_table(np.ones((1, len(features))))
    return part


def _more(count: int) -> str:
    return f", and {count} more" if count else ""
