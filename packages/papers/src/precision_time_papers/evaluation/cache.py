"""Arrays that took minutes to compute, kept in the cache folder by the corpus and the hash of the package."""

from __future__ import annotations

import io
import shutil
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from precision_time.corpus.measurement import Measurement
from precision_time.corpus.store import corpus_fingerprint
from precision_time.io import package_hash, write_atomically

Arrays = dict[str, NDArray[Any]]


@dataclass(frozen=True, kw_only=True, slots=True)
class ArrayCache:
    """Named groups of arrays, computed once: in memory, and in `folder` where there is one."""

    folder: Path | None
    """None keeps them for this object only."""
    kind: str
    """How the folders of this cache begin; of older versions only a few are kept."""
    key: str
    """What the arrays depend on besides their name."""
    _memory: dict[str, Arrays] = field(default_factory=dict)

    def get(self, name: str, compute: Callable[[], Arrays]) -> Arrays:
        """The arrays of a name; a cache that cannot be written is done without."""
        if name not in self._memory:
            found = self._read(name)
            if found is None:
                found = compute()
                self._write(name, found)
            self._memory[name] = found
        return self._memory[name]

    def _read(self, name: str) -> Arrays | None:
        if self.folder is None:
            return None
        try:
            path = self.folder / f"{self.kind}-{self.key}" / f"{name}.npz"
            with path.open("rb") as opened, np.load(opened, allow_pickle=False) as file:
                return dict(file)
        except (OSError, ValueError, KeyError, zipfile.BadZipFile):
            return None

    def _write(self, name: str, arrays: Arrays) -> None:
        if self.folder is None:
            return
        content = io.BytesIO()
        np.savez_compressed(content, allow_pickle=False, **arrays)
        path = self.folder / f"{self.kind}-{self.key}" / f"{name}.npz"
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(path, content.getvalue())
        except OSError:
            return
        prune(self.folder, f"{self.kind}-*")


def cache_key(measurements: Sequence[Measurement], *settings: object) -> str:
    """Key of what was computed from measurements by this version of the package."""
    seen = " ".join(map(str, (corpus_fingerprint(measurements), package_hash(), *settings)))
    return blake2b(seen.encode(), digest_size=8).hexdigest()


def prune(folder: Path, pattern: str, *, keep: int = 3) -> None:
    """Delete the oldest folders that match, all but `keep`: they are of older versions."""
    try:
        for path in sorted(folder.glob(pattern), key=lambda path: path.stat().st_mtime)[:-keep]:
            shutil.rmtree(path)
    except OSError:
        # Another report may be pruning the same folder; what is left goes the next time.
        return
