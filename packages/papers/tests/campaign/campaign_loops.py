"""Loops of a user's own, good and bad."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from typing import Any

import torch


def steps(config: dict[str, Any]) -> Iterator[None]:
    model = torch.nn.Linear(16, 16)
    while True:
        model(torch.randn(config["batch_size"], 16)).square().mean().backward()
        yield


def sleeping_steps(config: dict[str, Any]) -> Iterator[None]:
    for _ in range(6):
        time.sleep(0.02)
        yield


def no_steps(config: dict[str, Any]) -> Iterator[None]:
    yield from ()


def whole_run(config: dict[str, Any]) -> None:
    import ray.train

    for _ in range(config["epochs"]):
        time.sleep(0.05)
        ray.train.report({"loss": 1.0})


def pair(config: dict[str, Any]) -> tuple[Any, Any]:
    return torch.nn.Linear(8, 8), torch.randn(config["batch_size"], 8)


def raises(config: dict[str, Any]) -> None:
    raise RuntimeError("the loss is not finite")


def hangs(config: dict[str, Any]) -> None:
    time.sleep(1000)


def dies(config: dict[str, Any]) -> None:
    os._exit(7)
