"""Mean power of the GPU that a worker computes on, by the driver's energy counter."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

_MILLI = 1e-3


def energy_counter(device: Any) -> Callable[[], float | None]:
    """What reads the energy of a device so far [J]; None where nothing counts it.

    The driver numbers all GPUs of a host, a worker only its own: they are matched by their identifier.

    Args:
        device: A torch device.
    """
    if device.type != "cuda":
        return lambda: None
    import torch

    try:
        library = importlib.import_module("pynvml")
        library.nvmlInit()
        identifier = f"GPU-{torch.cuda.get_device_properties(device).uuid}"
        handle = library.nvmlDeviceGetHandleByUUID(identifier)
        library.nvmlDeviceGetTotalEnergyConsumption(handle)
    except Exception:  # noqa: BLE001 - the library raises errors of its own; power is an extra
        return lambda: None
    return lambda: float(library.nvmlDeviceGetTotalEnergyConsumption(handle)) * _MILLI


def mean_power_w(begin_j: float | None, end_j: float | None, seconds: float) -> float | None:
    """Mean power over `seconds` [W]; None where energy was not counted."""
    if begin_j is None or end_j is None or seconds <= 0:
        return None
    return (end_j - begin_j) / seconds
