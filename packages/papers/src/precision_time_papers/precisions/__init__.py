"""Precision schedules: which layers and which phases of a run take which type."""
