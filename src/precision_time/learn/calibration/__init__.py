"""Calibration: the shipped predictor moved to a user's own cluster by a few measured points."""
