"""Models of a user's own, as `--models own_models:perceptron` finds them."""

from __future__ import annotations

from typing import Any

import torch

BATCH = 32


def perceptron() -> Any:
    """Two linear layers with sizes that fp8 products allow, and a batch for them."""
    model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 16))
    return model, torch.randn(BATCH, 16)


def no_inputs() -> Any:
    """A module alone: not enough to run a step."""
    return torch.nn.Linear(2, 2)
