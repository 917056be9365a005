"""Devices of several kinds in one job.

Beside the rooms: of them only the command line asks for it.
"""
