"""Schedulers replayed on public traces: what accurate durations are worth."""
