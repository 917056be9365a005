"""Uploaded models, captured in a process of their own that may do next to nothing."""
