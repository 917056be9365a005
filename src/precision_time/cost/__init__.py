"""Analytical seconds: kernels, collectives, overlap, optimizer and memory of a training step."""
