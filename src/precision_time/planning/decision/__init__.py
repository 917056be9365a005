"""Decisions: which devices, how many, at which precision, for how much money and carbon, and done in time."""
