"""Who chooses: predictors by their out-of-fold times, rules that predict nothing, and chance.

A chooser gives every alternative a score and takes the least. Scores are of what is minimized, seconds or
dollars per sample; of rules only their order has a meaning.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from precision_time.io import packaged_toml
from precision_time_papers.contract import Floats

from .alternatives import Alternatives, Group
from .choices import Chosen, choice, under_caps

OURS, OURS_SEEN, BLIND, BLIND_SEEN, FORMULAS = (
    *("ours on unseen models", "ours on unseen configurations"),
    *("blind on unseen models", "blind on unseen configurations"),
    "formulas alone",
)
PREDICTED: Mapping[str, str] = {
    OURS: "ours-model",
    OURS_SEEN: "ours-family",
    BLIND: "blind-model",
    BLIND_SEEN: "blind-family",
    FORMULAS: "formulas",
}
"""Chooser to the out-of-fold predictions that it goes by. "Seen" configurations are those whose family, the
same configuration at all precisions, was held out, while other configurations of the model were fitted."""
EASIER = (OURS_SEEN, BLIND_SEEN)
"""Those that have seen other runs of the model: no rivals of ours on unseen models."""
BLIND_PEAK = "blind on unseen models with data-sheet peak"
"""What a blind planner can do about precision: of what it cannot tell apart, the highest peak."""
MIXED = "always mixed precision"
BIGGEST_BATCH, PEAK, RANDOM = "biggest batch on fewest devices", "data-sheet peak", "random"
CHOOSERS = (*PREDICTED, BLIND_PEAK, BIGGEST_BATCH, PEAK, MIXED, RANDOM)
_DIGITS = 6
"""Of log scores that count as equal."""


def scores(found: Alternatives, *, money: bool) -> Mapping[str, Floats]:
    """The score of every alternative by every chooser, shape (n,).

    Args:
        found: All alternatives.
        money: Whether dollars per sample are minimized, otherwise seconds per sample.
    """
    rate = found.usd_per_second if money else np.ones(len(found))
    predicted = {
        name: found.predicted_s[key] / found.batch * rate
        for name, key in PREDICTED.items()
        if key in found.predicted_s
    }
    rules = {
        BLIND_PEAK: _ranks(np.log(predicted[BLIND]).round(_DIGITS), -found.peak_flops_per_s / found.devices),
        BIGGEST_BATCH: _ranks(-found.batch / found.devices, found.devices),
        # FLOP/s, or FLOP per dollar: the more the better.
        PEAK: rate / found.peak_flops_per_s,
        RANDOM: np.ones(len(found)),
    }
    return {**predicted, **rules}


def choices(
    values: Floats, score: Floats, groups: Sequence[Group], devices: Floats | None = None
) -> list[Chosen]:
    """The choice in every group.

    Args:
        values: Measured, of all alternatives, shape (n,).
        score: Of one chooser.
        groups: Groups of alternatives.
        devices: Given, choices are made under every cap on them, and averaged; every group has two counts.
    """
    if devices is None:
        return [choice(values[item.places], score[item.places]) for item in groups]
    capped = (under_caps(values[item.places], score[item.places], devices[item.places]) for item in groups)
    return [item for item in capped if item is not None]


def by_preference(words: Sequence[str]) -> Floats:
    """Place of each precision in the order of the rule "always mixed precision"; unknown ones last."""
    order = packaged_toml(__package__, "data/planning.toml")["mixed_precision_first"]
    places = {name: place for place, name in enumerate(order)}
    return np.array([places.get(word, len(order)) for word in words], dtype=np.float64)


def _ranks(*keys: Floats) -> Floats:
    """Rank of each entry, ordered by the first key first; equal in all keys is equal in rank."""
    columns = np.stack(keys, axis=1)
    ranks: Floats = np.unique(columns, axis=0, return_inverse=True)[1].reshape(-1).astype(np.float64)
    return ranks
