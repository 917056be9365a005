"""Turning torch models into operator graphs on meta tensors (needs torch)."""
