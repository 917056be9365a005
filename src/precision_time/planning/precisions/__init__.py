"""Advice on precisions, and precision schedules: which layers and which phases run in which type."""
