"""All importers: those of this package, and those of plugins (entry points `precision_time.importers`)."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

from precision_time.errors import CorpusError, UnknownNameError
from precision_time.io import open_input
from precision_time.plugins import loaded

from .contract import HEAD_BYTES, Importer

MODULES: tuple[str, ...] = (
    "mlflow", "wandb", "deepspeed", "tensorboard", "kineto", "hf_state", "tables",
    "text_logs",
)  # fmt: skip
"""Modules of this package with a tuple `IMPORTERS`; where several match, the first does."""


def importers() -> tuple[Importer, ...]:
    """Every importer; those of plugins come before the text logs, which take any text."""
    built_in = [item for module in MODULES for item in import_module(f".{module}", __package__).IMPORTERS]
    names = {item.name for item in built_in}
    added = [
        item for item in loaded("importers").values() if isinstance(item, Importer) and item.name not in names
    ]
    *first, last = built_in
    return (*first, *added, last)


def known_importer(name: str) -> Importer:
    """The importer of a name.

    Raises:
        UnknownNameError: If there is none.
    """
    known = {item.name: item for item in importers()}
    if name not in known:
        raise UnknownNameError(
            kind="format", name=name, known=known, hint=f"Known: {', '.join(sorted(known))}."
        )
    return known[name]


def importer_of(path: Path) -> Importer | None:
    """The importer whose kind of file, or of folder, this is; None where there is none.

    Raises:
        CorpusError: If the file cannot be read.
    """
    if path.is_dir():
        return next((item for item in importers() if item.folders and item.matches(path, b"")), None)
    head = head_of(path)
    return next((item for item in importers() if item.matches(path, head)), None)


def head_of(path: Path) -> bytes:
    """The first bytes of a file.

    Raises:
        CorpusError: If it cannot be read.
    """
    try:
        with open_input(path, most_bytes=None) as file:
            return file.read(HEAD_BYTES)
    except OSError as error:
        raise CorpusError(f"{path} cannot be read: {error.strerror or error}. To fix: check it.") from error
