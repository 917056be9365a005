"""Bytes that a training step needs on one device, as named terms: states, activations, buffers."""

from .terms import fits, memory_by_stage, memory_of, micro_batches_in_flight, total_bytes

__all__ = [
    "fits",
    "memory_by_stage",
    "memory_of",
    "micro_batches_in_flight",
    "total_bytes",
]
