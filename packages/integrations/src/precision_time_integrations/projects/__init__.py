"""What other projects call things, a file of data for each: their logs, arguments, settings.

A file has up to three parts: `log`, how the project writes what it does (`importers/described.py`);
`arguments`, what its command lines say (`commands/arguments.py`); `settings`, what trackers keep of its runs
(`importers/parameters.py`). Names of fields are ours, names in lists are theirs, the surest first.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from precision_time.cache import data
from precision_time.io import packaged_toml

PROJECTS = (
    "torchtitan", "nemo1", "nemo", "megatron", "maxtext", "nanogpt", "deepspeed", "fairseq", "openmmlab",
    "detectron2", "pytorch-examples", "json-lines", "keras", "hf-trainer", "lightning", "tqdm", "trackers",
    "plain",
)  # fmt: skip
"""Where several fit what is read, the first counts: those that anything fits come last."""


@data
def parts(name: Literal["log", "arguments", "settings"]) -> Mapping[str, Mapping[str, Any]]:
    """That part of every project that has one."""
    files = {project: packaged_toml(__package__, f"data/{project}.toml") for project in PROJECTS}
    return {project: file[name] for project, file in files.items() if name in file}
