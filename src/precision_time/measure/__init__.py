"""Measuring kernels and whole training steps on the device at hand, into the project's own schema."""
