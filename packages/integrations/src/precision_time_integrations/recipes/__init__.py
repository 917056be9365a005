"""Recipes of other projects, read as requests: `files.py: read_recipe(...)`. Nothing is executed.

`projects/data/NAME.toml` says in its part `recipe` what each project calls things (`vocabulary.py`).
Documents (`documents.py`) and Python sources (`sources.py`) become values by key and line, and one reader
(`reader.py`) makes fields of a request of them, with a report of what was read, assumed and not understood.
"""
