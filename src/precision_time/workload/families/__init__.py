"""Parametric model families: operator graphs from sizes, without torch and without weights."""
