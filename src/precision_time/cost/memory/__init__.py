"""Bytes that a training step needs on one device, as named terms: states, activations, buffers."""

from .terms import memory_by_stage, memory_of, micro_batches_in_flight, total_bytes

__all__ = [
    "memory_by_stage",
    "memory_of",
    "micro_batches_in_flight",
    "total_bytes",
]
