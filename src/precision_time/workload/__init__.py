"""Operator graphs of training steps: known models by name, parametric families, capture."""
