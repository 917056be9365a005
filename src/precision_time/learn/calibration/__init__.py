"""Calibration: the shipped predictor conditioned on a user's own measured steps."""
