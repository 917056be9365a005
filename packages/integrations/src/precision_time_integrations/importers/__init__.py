"""Measured steps out of the logs and exports of other tools."""
