"""Estimators in scikit-learn's manner for what it lacks here.

Targets with relative weights, a second regressor on what a first one leaves over, stepwise regression,
forward selection, stated terms (rules of proportion, Ernest), and Pollux's overlapping parts.
"""

from __future__ import annotations

import json
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, RegressorMixin, clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler

if TYPE_CHECKING:
    from precision_time.learn.calibration.places import Places

Floats = NDArray[np.float64]

_FLOOR = 0.05
"""No prediction below this share of the shortest measured time: a linear form may reach below 0."""
_LARGEST_LOG = 50.0
"""exp of it is beyond any time: an exploding extrapolation stays a number."""


class TimeRegressor(RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """A regressor of times: columns chosen and standardized, target as it is or its logarithm.

    Args:
        regressor: Any scikit-learn regressor; takes sample weights if the target is "seconds".
        target: "seconds", or "log" for its logarithm.
        columns: Indices of the columns to use; None takes all.
        standardize: Subtract the mean and divide by the standard deviation of the fitted rows.

    Seconds are weighted by 1/y^2, so that relative errors count, which is what is scored; a logarithm
    has them of itself. TransformedTargetRegressor passes no weights made of the target and knows no floor.
    """

    def __init__(
        self,
        regressor: Any,
        *,
        target: str = "log",
        columns: tuple[int, ...] | None = None,
        standardize: bool = True,
    ) -> None:
        self.regressor = regressor
        self.target = target
        self.columns = columns
        self.standardize = standardize

    def fit(self, x: Floats, y: Floats) -> TimeRegressor:
        """Fit on rows of shape (n, n_features) and times of shape (n,), all above 0."""
        # Columns are taken by an index: a ColumnTransformer costs ten times what a small fit does.
        self.columns_ = np.arange(x.shape[1]) if self.columns is None else np.array(self.columns, dtype=int)
        scaler = StandardScaler() if self.standardize else "passthrough"
        self.pipeline_ = Pipeline([("scaler", scaler), ("regressor", clone(self.regressor))])
        self.unit_ = float(np.exp(np.log(y).mean()))
        self.least_ = float(_FLOOR * y.min())
        self.n_features_in_ = x.shape[1]
        chosen, ratio = x[:, self.columns_], y / self.unit_
        with warnings.catch_warnings():
            # Candidates that do not converge lose the search; a warning for each would add nothing.
            warnings.simplefilter("ignore", ConvergenceWarning)
            if self.target == "log":
                self.pipeline_.fit(chosen, np.log(ratio))
            else:
                self.pipeline_.fit(chosen, ratio, regressor__sample_weight=1.0 / np.square(ratio))
        return self

    def predict(self, x: Floats) -> Floats:
        """Times, shape (n,)."""
        values = self.pipeline_.predict(x[:, self.columns_])
        if self.target == "log":
            values = np.exp(np.minimum(values, _LARGEST_LOG))
        times: Floats = np.maximum(self.unit_ * values, self.least_)
        return times


class ResidualRegressor(RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """A second regressor of times on the ratio of measured time to a first one's: their product predicts.

    Args:
        base: A few coefficients that go on beyond the measured range.
        residual: What learns the rest within it.
    """

    def __init__(self, base: TimeRegressor, residual: TimeRegressor) -> None:
        self.base = base
        self.residual = residual

    def fit(self, x: Floats, y: Floats) -> ResidualRegressor:
        """Fit both."""
        self.base_ = clone(self.base).fit(x, y)
        self.residual_ = clone(self.residual).fit(x, y / self.base_.predict(x))
        self.n_features_in_ = x.shape[1]
        return self

    def predict(self, x: Floats) -> Floats:
        """Times, shape (n,)."""
        times: Floats = self.base_.predict(x) * self.residual_.predict(x)
        return times


class StepwiseRegressor(RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """Draper and Smith's stepwise regression.

    Starts empty; adds the column most correlated with the residual if its coefficient differs from 0 at
    `p_add`, then drops the weakest whose significance is worse than `p_remove`; ends when neither happens.

    Args:
        p_add: Significance to enter.
        p_remove: Significance to stay; not below p_add, or a column would enter and leave for ever.
        max_steps: Most rounds.

    Reference: Draper, Smith, Applied Regression Analysis, 3rd edition, chapter 15.
    """

    def __init__(self, *, p_add: float = 0.05, p_remove: float = 0.1, max_steps: int = 100) -> None:
        self.p_add = p_add
        self.p_remove = p_remove
        self.max_steps = max_steps

    def fit(self, x: Floats, y: Floats, sample_weight: Floats | None = None) -> StepwiseRegressor:
        """Fit by weighted least squares."""
        root = np.ones(len(y)) if sample_weight is None else np.sqrt(sample_weight / sample_weight.mean())
        chosen: list[int] = []
        for _ in range(self.max_steps):
            before = list(chosen)
            self._enter(x, y, root, chosen)
            self._leave(x, y, root, chosen)
            if chosen == before:
                break
        beta, _ = _least_squares(x[:, chosen], y, root)
        self.chosen_ = tuple(chosen)
        self.intercept_ = float(beta[0])
        self.coef_ = np.zeros(x.shape[1])
        self.coef_[chosen] = beta[1:]
        return self

    def predict(self, x: Floats) -> Floats:
        """Values, shape (n,)."""
        values: Floats = x @ self.coef_ + self.intercept_
        return values

    def _enter(self, x: Floats, y: Floats, root: Floats, chosen: list[int]) -> None:
        if len(chosen) + 2 >= len(y):
            return
        beta, _ = _least_squares(x[:, chosen], y, root)
        left = (y - beta[0] - x[:, chosen] @ beta[1:]) * root
        left = left - left.mean()
        weighted = x * root[:, None]
        weighted = weighted - weighted.mean(axis=0)
        norms = np.linalg.norm(weighted, axis=0) * max(float(np.linalg.norm(left)), 1e-300)
        strength = np.abs(weighted.T @ left) / np.maximum(norms, 1e-300)
        strength[chosen] = -1.0
        best = int(np.argmax(strength))
        if strength[best] <= 0.0:
            return
        _, p_values = _least_squares(x[:, [*chosen, best]], y, root)
        if p_values[-1] < self.p_add:
            chosen.append(best)

    def _leave(self, x: Floats, y: Floats, root: Floats, chosen: list[int]) -> None:
        if not chosen:
            return
        _, p_values = _least_squares(x[:, chosen], y, root)
        weakest = int(np.argmax(p_values))
        if p_values[weakest] > max(self.p_remove, self.p_add):
            chosen.pop(weakest)


def _least_squares(x: Floats, y: Floats, root: Floats) -> tuple[Floats, Floats]:
    """Intercept and coefficients, shape (k + 1,), and the two-sided p-values of the latter, shape (k,)."""
    from scipy.stats import t

    design = np.column_stack([np.ones(len(y)), x]) * root[:, None]
    beta: Floats = np.linalg.lstsq(design, y * root, rcond=None)[0].astype(np.float64)
    freedom = max(len(y) - design.shape[1], 1)
    variance = float(np.square(y * root - design @ beta).sum()) / freedom
    errors = np.sqrt(np.maximum(np.diag(np.linalg.pinv(design.T @ design)) * variance, 1e-300))
    p_values: Floats = 2.0 * t.sf(np.abs(beta / errors), freedom)
    return beta, p_values[1:]


class ForwardRegressor(RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """Ridge regression on columns added forward, the best first, while the error on inner folds falls.

    The folds lie inside the rows of `fit`, so that an error on other rows is of columns chosen without them.
    scikit-learn's SequentialFeatureSelector fits a model for each candidate; here a round of all candidates
    is one batch of small linear systems.

    Args:
        most: Most columns.
        folds: Inner folds; rows equal in every column are in one.
        alpha: Penalty of standardized coefficients, per row.

    Reference: aMLLibrary's SFS, whose score is the percentage error of inner folds, too.
    """

    def __init__(self, *, most: int = 8, folds: int = 5, alpha: float = 1e-4) -> None:
        self.most = most
        self.folds = folds
        self.alpha = alpha

    def fit(self, x: Floats, y: Floats, sample_weight: Floats | None = None) -> ForwardRegressor:
        """Choose columns, and fit on all rows by weighted least squares."""
        root = np.ones(len(y)) if sample_weight is None else np.sqrt(sample_weight / sample_weight.mean())
        design = np.column_stack([np.ones(len(y)), x])
        _, same = np.unique(x, axis=0, return_inverse=True)
        fold = np.random.default_rng(0).permutation(int(same.max()) + 1)[same.ravel()] % self.folds
        parts = [
            (self._system(design, y, root, fold != number), np.flatnonzero(fold == number))
            for number in range(self.folds)
            if 0 < (fold == number).sum() < len(y)
        ]
        chosen, best = [0], np.inf
        while parts and len(chosen) <= min(self.most, x.shape[1] - 1, len(y) - 2):
            left = np.setdiff1d(np.arange(design.shape[1]), chosen)
            sets = np.column_stack([np.tile(chosen, (len(left), 1)), left])
            errors = np.zeros(len(left))
            for system, rows in parts:
                values = np.einsum("ijk,ik->ij", design[rows][:, sets].swapaxes(0, 1), _solved(*system, sets))
                errors += (np.abs(values - y[rows]) * root[rows]).sum(axis=1)
            found = int(errors.argmin())
            if errors[found] >= best:
                break
            best = float(errors[found])
            chosen.append(int(left[found]))
        beta = _solved(*self._system(design, y, root, np.ones(len(y), dtype=bool)), np.array([chosen]))[0]
        self.chosen_ = tuple(index - 1 for index in chosen[1:])
        self.intercept_ = float(beta[0])
        self.coef_ = np.zeros(x.shape[1])
        self.coef_[list(self.chosen_)] = beta[1:]
        return self

    def predict(self, x: Floats) -> Floats:
        """Values, shape (n,)."""
        values: Floats = x @ self.coef_ + self.intercept_
        return values

    def _system(
        self, design: Floats, y: Floats, root: Floats, rows: NDArray[np.bool_]
    ) -> tuple[Floats, Floats]:
        """Normal equations of some rows: matrix with the penalty, and right side."""
        weighted = design[rows] * root[rows][:, None]
        penalty = np.full(design.shape[1], self.alpha * rows.sum())
        penalty[0] = 0.0
        return weighted.T @ weighted + np.diag(penalty), weighted.T @ (y[rows] * root[rows])


def _solved(matrix: Floats, right: Floats, sets: NDArray[np.intp]) -> Floats:
    """Coefficients of each set of columns, shape (n_sets, n_columns)."""
    systems = matrix[sets[:, :, None], sets[:, None, :]]
    regular = systems + 1e-12 * np.eye(sets.shape[1])
    solved: Floats = np.linalg.solve(regular, right[sets][..., None])[..., 0].astype(np.float64)
    return solved


class TermsRegressor(RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """Non-negative least squares of a few stated terms, with coefficients for each group of points.

    The first columns are the terms. The others tell groups apart: points equal in all of them. A group that
    was not measured, or with fewer points than terms, has the coefficients of the nearest that has enough,
    else of all points.

    Args:
        num_terms: Columns that are terms: one is a rule of proportion, Ernest's model has four.
    """

    def __init__(self, *, num_terms: int = 1) -> None:
        self.num_terms = num_terms

    def fit(self, x: Floats, y: Floats, sample_weight: Floats | None = None) -> TermsRegressor:
        """Fit by weighted least squares."""
        from scipy.optimize import nnls

        root = np.ones(len(y)) if sample_weight is None else np.sqrt(sample_weight)
        terms, groups = x[:, : self.num_terms] * root[:, None], x[:, self.num_terms :]
        known = [np.flatnonzero((groups == group).all(axis=1)) for group in np.unique(groups, axis=0)]
        kept = [rows for rows in known if len(rows) >= self.num_terms] or [np.arange(len(y))]
        self.groups_ = np.array([groups[rows[0]] for rows in kept])
        self.coef_ = np.array([nnls(terms[rows], y[rows] * root[rows])[0] for rows in kept])
        self.scale_ = np.maximum(np.ptp(_compressed(groups), axis=0), 1e-12)
        return self

    def predict(self, x: Floats) -> Floats:
        """Values, shape (n,)."""
        asked, known = _compressed(x[:, self.num_terms :]), _compressed(self.groups_)
        away = np.square((asked[:, None, :] - known[None, :, :]) / self.scale_).sum(axis=2)
        values: Floats = (x[:, : self.num_terms] * self.coef_[away.argmin(axis=1)]).sum(axis=1)
        return values


def _compressed(columns: Floats) -> Floats:
    """Columns on a scale where a doubling counts about the same anywhere."""
    compressed: Floats = np.sign(columns) * np.log1p(np.abs(columns))
    return compressed


class ProcessRegressor(RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """log(measured / predicted) by the process that `--anchor` and `calibrate` condition.

    Of the process only what two columns show is left: the predicted time stands for batch and devices, and
    its two parts are what waits for others and what does not.

    Args:
        prior: The process as JSON; empty for that of the shipped predictor, which a fit notes.
    """

    def __init__(self, *, prior: str = "") -> None:
        self.prior = prior

    def fit(self, x: Floats, y: Floats) -> ProcessRegressor:
        """Condition on rows of (log predicted time, exposed share), shape (n, 2), and log ratios."""
        from precision_time.learn.artifact import shipped_predictor

        self.process_ = self.prior or json.dumps(shipped_predictor().process.to_dict())
        self.x_, self.y_ = x, y
        return self

    def predict(self, x: Floats) -> Floats:
        """Log ratios, shape (n,)."""
        from precision_time.learn.calibration.process import Conditioned, Process

        process = Process.from_dict(json.loads(self.process_))
        return Conditioned.on(process, _places(self.x_), self.y_).at(_places(x)).log_factor


def _places(x: Floats) -> Places:
    """Rows of (log predicted time, exposed share) as places of one kind."""
    from precision_time.learn.calibration.places import KINDS, PARAMETERS, Places, position_columns
    from precision_time.learn.calibration.process import USUAL_WIDTH

    columns = position_columns()
    positions, shares = np.zeros((len(x), len(columns))), np.zeros((len(x), len(PARAMETERS)))
    positions[:, columns.index("log_micro_batch_size")] = x[:, 0]
    exposed = np.clip(x[:, 1], 0.0, 1.0)
    shares[:, PARAMETERS.index("memory")] = 1.0 - exposed
    shares[:, PARAMETERS.index("links")] = exposed
    kinds = np.full((len(x), len(KINDS)), "")
    return Places(kinds=kinds, positions=positions, shares=shares, width=np.full(len(x), USUAL_WIDTH))


class OverlapRegressor(RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """Pollux's form, `overlapped_time`, by least squares on the logarithm from a few starts.

    Args:
        width: The loss is quadratic up to this error of the logarithm, linear beyond.
    """

    def __init__(self, *, width: float = 0.05) -> None:
        self.width = width

    def fit(self, x: Floats, y: Floats, sample_weight: Floats | None = None) -> OverlapRegressor:
        """Fit the nine numbers to x as `overlapped_time` has it; weights are ignored: errors are relative."""
        from scipy.optimize import least_squares

        log_y = np.log(y)
        start = np.full(9, float(np.log(np.median(y) / 10.0)))
        start[1] -= np.log(np.median(x[:, 0]))
        found = None
        for gamma in (-2.0, 0.0, 2.0):
            start[8] = gamma
            tried = least_squares(
                lambda point: np.log(overlapped_time(x, *_coefficients(point))) - log_y,
                start,
                loss="soft_l1",
                f_scale=self.width,
                max_nfev=200,
            )
            if found is None or tried.cost < found.cost:
                found = tried
        assert found is not None
        self.coef_, self.gamma_ = _coefficients(found.x)
        return self

    def predict(self, x: Floats) -> Floats:
        """Values, shape (n,)."""
        return overlapped_time(x, self.coef_, self.gamma_)


def overlapped_time(x: Floats, a: Floats, gamma: float) -> Floats:
    """Computation and communication that hide each other in part: (c^g + s^g)^(1/g), shape (n,).

    c = a0 + a1 batch; s within a node = a2 + a3 (workers - 2); s between nodes = a4 + a5 (nodes - 2)
    + a6 (per node - 1) + a7 log workers; none for one worker.

    Args:
        x: Batch, workers, nodes, largest number of workers on a node; shape (n, 4).
        a: Coefficients, all above 0, shape (8,).
        gamma: 1: nothing hides; large: the longer of the two counts.

    Source: Qiao et al., Pollux, OSDI 2021, eq. 8-11; a6 and a7 are added.
    """
    batch, workers, nodes, per_node = x.T
    compute = a[0] + a[1] * batch
    inner = a[2] + a[3] * (workers - 2.0)
    outer = a[4] + a[5] * (nodes - 2.0) + a[6] * (per_node - 1.0) + a[7] * np.log(np.maximum(workers, 1))
    waits = np.where(nodes > 1, outer, np.where(workers > 1, inner, 0.0))
    larger = np.maximum(compute, waits)
    # Scaled by the larger one, so that no power overflows.
    shares = (compute / larger) ** gamma + (waits / larger) ** gamma
    times: Floats = larger * shares ** (1.0 / gamma)
    return times


def _coefficients(point: Floats) -> tuple[Floats, float]:
    """Arguments of `overlapped_time` from free numbers: logarithms, and gamma between 1 and 10."""
    gamma = 1.0 + 9.0 / (1.0 + np.exp(-np.clip(point[8], -50.0, 50.0)))
    return np.exp(np.clip(point[:8], -40.0, 20.0)), float(gamma)
