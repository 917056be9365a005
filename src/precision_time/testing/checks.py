"""What the suites share: refusals with a remedy, and jobs that anything registered must be able to price."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ..predict.api import predict_time
from ..predict.prediction import Prediction

CNN, DECODER = "resnet50", "gpt2"
"""A convolutional network and a decoder: between them they have kernels of nearly every class."""


def refusal(kind: type[Exception], call: Callable[[], object], *words: str) -> str:
    """The message with which a call refuses its input.

    Args:
        kind: Exception expected.
        call: What must raise it.
        words: Words that the message must contain, such as the value that was given.

    Raises:
        AssertionError: If the call succeeds, or its message lacks a word.
    """
    try:
        call()
    except kind as error:
        text = str(error)
    else:
        raise AssertionError(f"Expected {kind.__name__}: the call succeeded.")
    missing = [word for word in words if word not in text]
    assert not missing, f"The message {text!r} lacks {missing}."
    return text


def answer(model: str, **request: Any) -> Prediction:
    """A prediction whose seconds are positive and add up, and whose bytes are not negative.

    Args:
        model: A known model.
        request: Further fields of `Request`.

    Raises:
        AssertionError: If a term is negative, not finite, or the terms do not add up.
    """
    prediction = predict_time(model, **request)
    check_terms(prediction.terms, prediction.step_time_s, relative=1e-9)
    assert prediction.analytical_step_time_s > 0.0
    interval = prediction.interval
    assert 0.0 < interval.low_s <= prediction.step_time_s <= interval.high_s < np.inf
    check_terms(prediction.memory_terms, prediction.memory_bytes_per_device, relative=1e-6)
    return prediction


def check_terms(terms: Mapping[str, float], total: float, *, relative: float) -> None:
    """Named terms are finite, not negative, and add up to a positive total.

    Raises:
        AssertionError: If they do not.
    """
    wrong = {name: value for name, value in terms.items() if not 0.0 <= value < np.inf}
    assert not wrong, f"Terms that are negative or not finite: {wrong}."
    assert total > 0.0
    assert abs(sum(terms.values()) - total) <= relative * total, f"{sum(terms.values())} is not {total}."
