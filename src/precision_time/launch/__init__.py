"""A layout as the flags or the configuration file of a launcher, and back."""

LAUNCHERS = ("torchrun", "deepspeed", "megatron", "nemo", "torchtitan", "accelerate", "fsdp")
"""Launchers with a table in `data/`."""
