"""A predicted step over time, as drawn for a person: its timeline, its memory, its trace.

Beside the rooms: of them only the command line asks for it, when a picture is wanted.
"""
