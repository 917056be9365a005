"""A fitted performance model in one file: a zip of JSON and of estimators in skops' format, never a pickle.

skops builds no object of a type outside a fixed list; trees are checked to point into themselves, since
scikit-learn walks them without bounds. The checksum finds damage; it does not prove who wrote the file.
Estimators are tied to the version of scikit-learn that wrote them, which the JSON states.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, ValidationError

from precision_time.errors import ConfigError, CorpusError, PrecisionTimeError, validation_problems
from precision_time.io import write_atomically

from .features import Column, Feature, feature_table
from .grey import GreyBox
from .points import row_columns
from .trust import Flag, Trust
from .tuning import require_sklearn

Floats = NDArray[np.float64]

FORMAT = "precision-time performance model"
SCHEMA_VERSION = 3
_CARD, _ESTIMATORS = "model.json", "estimators.skops"
_MOST_BYTES = 512 * 2**20
"""A file that unpacks to more is not a model."""
_OWN = "precision_time_papers.ray_models.estimators"
_TRUSTED = {
    *(
        f"{_OWN}.{name}Regressor"
        for name in ("Forward", "Overlap", "Process", "Residual", "Stepwise", "Terms", "Time")
    ),
    "collections.OrderedDict",
    "lightgbm.basic.Booster",
    "lightgbm.sklearn.LGBMRegressor",
    "sklearn.tree._tree.Tree",
}
"""Types that may be built besides scikit-learn's and numpy's public ones."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """A predicted time, in the target's unit."""

    time: float
    low: float | None
    """Lower end of the interval that holds `trust.COVERAGE` of such points; None if too few were held out."""
    high: float | None
    flags: tuple[Flag, ...]
    """Why it may not be believed; empty if nothing speaks against it."""


class PerformanceModel(BaseModel):
    """Times of rows: the geometric mean of its estimators, times our own prediction in a grey box."""

    model_config = ConfigDict(frozen=True, arbitrary_types_allowed=True)

    target: str
    """Name of what is predicted."""
    columns: tuple[str, ...]
    """Numeric columns that a row must have."""
    categories: dict[str, tuple[str, ...]]
    """Columns of words, and the words that were measured."""
    roles: dict[str, str] = {}
    """Role (workers, cpus ...) to the column that plays it."""
    ranges: dict[str, tuple[float, float]]
    """Smallest and largest measured value of each numeric column."""
    features: tuple[Feature, ...]
    """What the estimators read; black boxes read the first of them."""
    grey: GreyBox | None = None
    """How our own predictor is queried for a row; None for a black box."""
    grey_power: float = 1.0
    """Of our own prediction: the share of grey boxes among the estimators."""
    card: dict[str, Any] = {}
    """What was fitted, chosen and scored."""
    trust: Trust = Trust()
    """How far off it was on points held out of its own."""
    estimators: tuple[Any, ...] = ()

    def answers(self, rows: Sequence[Mapping[str, Any]]) -> tuple[Answer, ...]:
        """Predicted time of each row with its interval and what speaks against it; rows as of `predict`."""
        columns = self._checked(rows)
        times, widths = self.predict_columns(columns), self.trust.widths(columns)
        return tuple(
            Answer(
                time=float(time),
                low=None if math.isnan(width) else float(time * math.exp(-width)),
                high=None if math.isnan(width) else float(time * math.exp(width)),
                flags=flags,
            )
            for time, width, flags in zip(times, widths, self.trust.flags(columns), strict=True)
        )

    def predict(self, rows: Sequence[Mapping[str, Any]]) -> Floats:
        """Predicted times of rows, shape (n,), in the target's unit.

        Args:
            rows: Each a value for every column, and for every field of the grey box.

        Raises:
            ConfigError: If a row lacks a column, or a value is invalid.
        """
        return self.predict_columns(self._checked(rows))

    def _checked(self, rows: Sequence[Mapping[str, Any]]) -> dict[str, Column]:
        """Columns of rows; see `predict`."""
        further = () if self.grey is None else self.grey.columns
        words = dict.fromkeys((*self.categories, *(name for name in further if name not in self.columns)))
        columns: dict[str, Column] = row_columns(rows, self.columns, tuple(words))
        for name, known in self.categories.items():
            for number, word in enumerate(columns[name], start=1):
                if word not in known:
                    raise ConfigError(
                        f"Row {number}: {name} = {word!r} was not measured; {', '.join(known)} were. "
                        "To fix: measure it, and fit again."
                    )
        return columns

    def predict_columns(self, columns: Mapping[str, Column]) -> Floats:
        """Predicted times of checked columns, shape (n,)."""
        times = np.ones(len(next(iter(columns.values()))))
        if self.grey is not None:
            predicted = self.grey.predictions(columns)
            columns = {**columns, **predicted}
            times = times * predicted[self.grey.PREDICTED] ** self.grey_power
        x = feature_table(self.features, columns)
        for estimator in self.estimators:
            times = times * estimator.predict(x[:, : estimator.n_features_in_]) ** (
                1.0 / len(self.estimators)
            )
        return times

    def remarks(self, rows: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
        """Which values of rows are outside of what was measured, in words."""
        found = []
        for name, (low, high) in self.ranges.items():
            values = [float(row[name]) for row in rows if name in row]
            beyond = [value for value in values if not low <= value <= high]
            more = f", and {len(beyond) - 1} more" if len(beyond) > 1 else ""
            if beyond:
                found.append(
                    f"{name} = {beyond[0]:g} lies outside the measured {low:g} to {high:g}: "
                    f"extrapolated{more}."
                )
        return tuple(found)

    def save(self, path: str | Path) -> None:
        """Write the model atomically.

        Raises:
            ConfigError: If it cannot be written.
            MissingExtraError: If skops is not installed.
        """
        require_sklearn()
        import sklearn
        import skops.io

        content = skops.io.dumps(list(self.estimators))
        card = {
            "format": FORMAT,
            "schema_version": SCHEMA_VERSION,
            "scikit_learn": sklearn.__version__,
            "sha256": hashlib.sha256(content).hexdigest(),
            "model": self.model_dump(mode="json", exclude={"estimators"}),
        }
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as file:
            file.writestr(_CARD, json.dumps(card, indent=1, allow_nan=False))
            file.writestr(_ESTIMATORS, content)
        write_atomically(Path(path), buffer.getvalue())

    @classmethod
    def load(cls, path: str | Path) -> PerformanceModel:
        """The model of a file.

        Raises:
            CorpusError: If there is none, or it is truncated, corrupt, something else, or of another version.
            MissingExtraError: If skops is not installed.
        """
        require_sklearn()
        version = "unknown"
        try:
            with zipfile.ZipFile(path) as file:
                if sum(item.file_size for item in file.infolist()) > _MOST_BYTES:
                    raise ValueError("larger than any model")
                card = json.loads(file.read(_CARD))
                if card["format"] != FORMAT:
                    raise ValueError("another format")
                if card["schema_version"] != SCHEMA_VERSION:
                    raise CorpusError(
                        f"{path} has model version {card['schema_version']}, this release reads "
                        f"{SCHEMA_VERSION}. To fix: upgrade precision-time, or fit again."
                    )
                version = card["scikit_learn"]
                content = file.read(_ESTIMATORS)
            if hashlib.sha256(content).hexdigest() != card["sha256"]:
                raise ValueError("its content does not match its checksum")
            estimators = _estimators(content)
            model = cls.model_validate({**card["model"], "estimators": estimators})
            if any(not 0 < item.n_features_in_ <= len(model.features) for item in estimators):
                raise ValueError("its estimators read other features")
            return model
        except FileNotFoundError as error:
            raise CorpusError(f"There is no model at {path}. To fix: check the path.") from error
        except PrecisionTimeError:
            raise
        except ValidationError as error:
            raise CorpusError(
                f"{path} is not a valid performance model ({validation_problems(error)}). To fix: fit it "
                "again."
            ) from error
        except (
            Exception
        ) as error:  # whatever a damaged archive, or an estimator of another version, may raise
            raise CorpusError(
                f"{path} is not a readable performance model ({error}; fitted with scikit-learn {version}). "
                "To fix: fit it again with `precision-time papers performance learn --out`."
            ) from error


def _estimators(content: bytes) -> tuple[Any, ...]:
    """The estimators of skops' format.

    Raises:
        ValueError: If a type is not trusted, or a tree points outside itself.
    """
    import skops.io

    unknown = set(skops.io.get_untrusted_types(data=content)) - _TRUSTED
    if unknown:
        raise ValueError(f"it holds {', '.join(sorted(unknown))}, which no model of this package holds")
    loaded = skops.io.loads(content, trusted=sorted(_TRUSTED))
    from .estimators import ResidualRegressor, TimeRegressor

    if not isinstance(loaded, list) or not loaded:
        raise ValueError("it holds no estimators")
    parts = [
        part
        for item in loaded
        for part in ((item.base_, item.residual_) if isinstance(item, ResidualRegressor) else (item,))
    ]
    for part in parts:
        if not isinstance(part, TimeRegressor):
            raise ValueError(f"it holds {type(part).__name__}, which is not an estimator of times")
        regressor = part.pipeline_[-1]
        for tree in getattr(regressor, "estimators_", [regressor]):
            if hasattr(tree, "tree_"):
                _check_tree(tree.tree_, len(part.columns_))
    return tuple(loaded)


def _check_tree(tree: Any, num_features: int) -> None:
    inner = tree.children_left >= 0
    for children in (tree.children_left[inner], tree.children_right[inner]):
        if (children <= np.flatnonzero(inner)).any() or (children >= tree.node_count).any():
            raise ValueError("a tree points outside itself")
    if (tree.feature[inner] < 0).any() or (tree.feature[inner] >= num_features).any():
        raise ValueError("a tree reads a feature that it was not given")
