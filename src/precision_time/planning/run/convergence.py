r"""Steps and samples to the same loss against the batch: a model that is stated, and off unless asked for.

$S = S_{min} (1 + B_{crit} / B)$ steps and $E = E_{min} (1 + B / B_{crit})$ samples, with $E = S B$.

Reference: McCandlish, Kaplan, Amodei and the OpenAI Dota team, An empirical model of large-batch training,
2018, equations 2.11 and 2.12. The critical batch size grows during training; one number is its mean.
"""

from __future__ import annotations

from ...arrays import Number


def relative_steps(batch: Number, reference: Number, critical: Number) -> Number:
    """Steps at a batch over those at the reference.

    >>> relative_steps(2048.0, 1024.0, 1024.0), relative_steps(512.0, 512.0, 99.0)
    (0.75, 1.0)
    """
    return (1.0 + critical / batch) / (1.0 + critical / reference)


def relative_samples(batch: Number, reference: Number, critical: Number) -> Number:
    """Samples at a batch over those at the reference.

    >>> relative_samples(2048.0, 1024.0, 1024.0)
    1.5
    """
    return (1.0 + batch / critical) / (1.0 + reference / critical)
