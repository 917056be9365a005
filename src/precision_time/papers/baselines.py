"""Predictors that the literature offers, behind one contract: what ours has to beat (table T3)."""

from __future__ import annotations

from collections.abc import Mapping

from ..learn.stages import DEFAULT_SETTINGS, BoosterSettings
from .contract import Estimator, Fitted
from .daydream import DaydreamWhatIf
from .flops_regression import FlopsRegression
from .formulas import Formulas
from .paleo import PaleoLike
from .precision_aware.blind import PrecisionBlind
from .precision_aware.fp32_blind import Fp32TrainedBlind
from .roofline import RooflineOnly

__all__ = [
    "DaydreamWhatIf",
    "Estimator",
    "Fitted",
    "FlopsRegression",
    "Formulas",
    "Fp32TrainedBlind",
    "PaleoLike",
    "PrecisionBlind",
    "RooflineOnly",
    "baselines",
]


def baselines(
    *, settings: Mapping[str, BoosterSettings] = DEFAULT_SETTINGS, seed: int = 0
) -> dict[str, Estimator]:
    """Every predictor of T3 but ours, by name.

    Args:
        settings: LightGBM settings of those that learn like ours.
        seed: Of their boosters.
    """
    fp32 = Fp32TrainedBlind(settings=settings, seed=seed)
    return {
        "blind": PrecisionBlind(settings=settings, seed=seed),
        "fp32-blind": fp32,
        "flops": FlopsRegression(),
        "roofline": RooflineOnly(),
        "paleo": PaleoLike(),
        "daydream": DaydreamWhatIf(of_fp32=fp32),
        "formulas": Formulas(),
    }
