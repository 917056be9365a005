"""Whole training steps: the models, the data that they read, and the loop that is timed."""
