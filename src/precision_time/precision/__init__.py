"""Precision policies, and the lowering of a graph under one."""
