"""Bytes that a training step needs on one device, as named terms: states, activations, buffers."""

from .framework import framework_memory
from .stages import micro_batches_in_flight
from .terms import (
    StageMemory,
    frozen_bytes,
    memory_by_stage,
    memory_of,
    memory_of_each,
    memory_of_stages,
    needed_bytes,
    total_bytes,
)

__all__ = [
    "StageMemory",
    "framework_memory",
    "frozen_bytes",
    "memory_by_stage",
    "memory_of",
    "memory_of_each",
    "memory_of_stages",
    "micro_batches_in_flight",
    "needed_bytes",
    "total_bytes",
]
