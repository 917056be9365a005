"""Profiling campaigns: real training runs on a Ray cluster, point after point, into a store of their own."""
