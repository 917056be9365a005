"""Numerical risk of precisions, measured by training small models on real data with emulated rounding."""
