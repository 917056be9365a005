"""Files: written atomically, the cache folder, and the hash of the package that keys what is kept there."""

from __future__ import annotations

import hashlib
import os
import sys
import tempfile
import tomllib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

HOME_VARIABLE = "PRECISION_TIME_HOME"
_NOT_SOURCE = frozenset({"__pycache__"})


def write_atomically(path: Path, content: bytes | str) -> None:
    """Write a file in one step: a crash, or a disk that is full, leaves the old one in place.

    Args:
        path: The file; its folder must exist.
        content: All of it; text is written as UTF-8, its line ends as they are.

    Raises:
        OSError: If it cannot be written; nothing is left behind.
    """
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    part = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content.encode("utf-8") if isinstance(content, str) else content)
        part.chmod(0o644)
        part.replace(path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def cache_folder() -> Path:
    """Folder of results that can be computed again, in $PRECISION_TIME_HOME or the platform's cache."""
    home = os.environ.get(HOME_VARIABLE)
    if home:
        return Path(home) / "cache"
    if sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA", Path.home() / "AppData" / "Local"))
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    else:
        base = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))
    return base / "precision-time"


@cache
def packaged_toml(package: str, name: str) -> Mapping[str, Any]:
    """The tables of a TOML file that ships in `package`, read once; not to be changed."""
    return tomllib.loads(files(package).joinpath(name).read_text(encoding="utf-8"))


@cache
def package_hash() -> str:
    """Hash of every file of the package, code and data: a cached result of other code is never taken."""
    return folder_hash(Path(__file__).resolve().parent)


def folder_hash(folder: Path) -> str:
    """Hash of the names and contents of all files below a folder, compiled ones left out."""
    digest = hashlib.blake2b(digest_size=8)
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        name = path.relative_to(folder)
        if not _NOT_SOURCE.intersection(name.parts):
            digest.update(f"{name.as_posix()}\0{path.stat().st_size}\0".encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()
