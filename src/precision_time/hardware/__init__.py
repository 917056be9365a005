"""Devices, links, node types and clusters: plain facts with their sources."""
