"""Measuring kernels and training steps: on this machine's device, or by real training on a Ray cluster.

`trial` says what can be measured, `launchers` measure trials, `store` keeps what they measured.
"""
