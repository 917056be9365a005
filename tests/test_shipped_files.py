"""Every file that ships is read by something."""

from __future__ import annotations

import re
from pathlib import Path

from surface import SOURCES, shown, source_files

PACKAGES = [folder / name for name, folder in SOURCES.items()]
FOR_PEOPLE = frozenset({"LICENSE.md"})


def data_folder(path: Path) -> Path:
    return next(folder for folder in path.parents if folder.name == "data")


def test_every_data_file_is_named_by_code_that_reads_it() -> None:
    """By its name or what stands before the first dot: in its own package, or where its package is named."""
    code = {path: path.read_text(encoding="utf-8") for path in source_files()}
    shipped = [
        path
        for package in PACKAGES
        for path in sorted(package.rglob("*"))
        if path.is_file() and "data" in path.parts and path.name not in FOR_PEOPLE and path.suffix != ".pyc"
    ]
    assert len(shipped) > 80
    for path in shipped:
        owner = data_folder(path).parent
        named = re.compile(rf"""["'/](?:{re.escape(path.name)}|{re.escape(path.name.split(".")[0])})["'./]""")
        elsewhere = re.compile(rf"""(?:["'/]|precision_time[\w.]*\.){owner.name}["'/]""")
        readers = [
            each
            for each, text in code.items()
            if named.search(text) and (owner in each.parents or elsewhere.search(text))
        ]
        assert readers, f"{shown(path)} is named nowhere"
