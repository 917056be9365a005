"""Models that callers upload: received into a file, captured apart, stored under a name of their content."""

from __future__ import annotations

import asyncio
import hashlib
import importlib.util
import json
import shutil
import tempfile
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from anyio import to_thread

from precision_time import __version__
from precision_time.errors import CaptureError, ConfigError, MissingExtraError, UnknownNameError, shown
from precision_time.workload.graph import GRAPH_SCHEMA_VERSION, OpGraph
from precision_time.workload.hf_config import read_config
from precision_time.workload.resolve import load_workload

from .bodies import parsed
from .capture.answer import graph_of
from .capture.kinds import UPLOAD, document_of
from .capture.process import CaptureLimits, capture_upload
from .jobs import UPLOADS
from .problems import BusyError, ConflictError, NotFoundError, TooLargeError

if TYPE_CHECKING:
    from .settings import Settings
    from .store.entries import ModelRecord, ModelSummary
    from .store.store import Store

_Found = TypeVar("_Found")
_WAITING = 4
"""Uploads that may wait while one is captured."""
_KEPT_GRAPHS = 64
_KNOWN_FOR_S = 5.0
"""A graph is taken from memory for so long before the store is asked: another worker may delete it."""
_LONGEST_LABEL = 120
_CODE = ("auto_map", "trust_remote_code", "custom_pipelines", "_name_or_path")
"""Keys of a configuration that name code or places."""
_VERSION = f"{__version__}/{GRAPH_SCHEMA_VERSION}"
_IN_MEMORY = 2**20
MOST_CONFIG_BYTES = 2**20
"""Of a configuration of Hugging Face, whatever other uploads may have: it is read here, not apart."""


class Uploads:
    """The uploaded models of a worker process; one is captured at a time."""

    def __init__(self, settings: Settings, store: Store) -> None:
        self._store = store
        self._most_bytes = settings.max_upload_bytes
        self._limits = CaptureLimits(
            memory_bytes=settings.capture_memory_bytes,
            time_s=min(settings.capture_time_s, settings.time_limit_s),
        )
        self._turn = asyncio.Semaphore(1)
        self._in_progress = 0
        self._graphs: OrderedDict[str, tuple[OpGraph, float]] = OrderedDict()

    async def add(self, body: AsyncIterator[bytes], *, kind: str, label: str) -> tuple[ModelSummary, bool]:
        """The record of an upload, and whether it is new: what is stored is not captured again.

        Args:
            body: The upload.
            kind: "onnx", "pt2" or "hf-config".
            label: What the model is called; of its kind and content where empty.

        Raises:
            ConfigError: If there is no such kind, or the upload is empty.
            CaptureError: If it cannot be captured within the limits.
            TooLargeError: If it is too long; the rest is not read.
            BusyError: If too many wait already.
        """
        if kind not in UPLOAD:
            raise ConfigError(
                f"kind={shown(kind)} is not known. The rule: one of {', '.join(UPLOAD)}. To fix: say it in "
                "the address (?kind=onnx)."
            )
        label = " ".join(label.split())
        if len(label) > _LONGEST_LABEL or not label.isprintable():
            raise ConfigError(
                f"label={shown(label)} is not possible. The rule: at most {_LONGEST_LABEL} printable "
                "characters. To fix: shorten it."
            )
        if self._in_progress > _WAITING:
            raise BusyError(f"{self._in_progress} uploads wait already. To fix: come again in a minute.")
        self._in_progress += 1
        try:
            async with _folder() as folder:
                name = await self._received(body, folder / UPLOAD[kind], kind)
                found = await self.record(name)
                if found is not None:
                    return found, False
                async with self._turn:  # the same upload may have been captured meanwhile
                    found = await self.record(name)
                    if found is not None:
                        return found, False
                    called = label or f"{kind} {name.removeprefix(UPLOADS)[:8]}"
                    graph, remarks = await self._captured(folder, kind, called)
                    document, facts = document_of(graph), _facts(graph, remarks)
                    await _in_thread(
                        lambda: self._store.put_model(
                            name, label=called, kind=kind, graph=document, facts=facts
                        )
                    )
            found = await self.record(name)
            if found is None:
                raise ConflictError(f"{name} was deleted while it was stored. To fix: upload it again.")
            return found, True
        finally:
            self._in_progress -= 1

    async def record(self, name: str) -> ModelRecord | None:
        """What the store has of a model, or None."""
        return await _in_thread(lambda: self._store.model(name))

    async def records(self) -> list[ModelSummary]:
        """What the store has of all models."""
        return await _in_thread(self._store.models)

    async def delete(self, name: str) -> bool:
        """Forget a model; whether there was one."""
        self._graphs.pop(name, None)
        return await _in_thread(lambda: self._store.delete_model(name))

    async def graph(self, name: str) -> OpGraph:
        """The operators of an uploaded model.

        Raises:
            NotFoundError: If there is none of this name.
        """
        graph, checked = self._graphs.get(name, (None, 0.0))
        now = time.monotonic()
        if graph is None or now - checked > _KNOWN_FOR_S:
            record = await self.record(name)
            if record is None:
                self._graphs.pop(name, None)
                raise not_found(name)
            if graph is None:
                found = await _in_thread(lambda: graph_of(record.graph))
                graph = replace(found, name=record.label)
            self._graphs[name] = (graph, now)
            while len(self._graphs) > _KEPT_GRAPHS:
                self._graphs.popitem(last=False)
        self._graphs.move_to_end(name)
        return graph

    def most_bytes(self, kind: str) -> int:
        """How long an upload of a kind may be."""
        return min(self._most_bytes, MOST_CONFIG_BYTES) if kind == "hf-config" else self._most_bytes

    async def _received(self, body: AsyncIterator[bytes], file: Path, kind: str) -> str:
        """Write the upload to a file; its name."""
        digest, size = hashlib.sha256(f"{kind}\0{_VERSION}\0".encode()), 0
        with file.open("xb", buffering=_IN_MEMORY) as out:
            async for part in body:
                size += len(part)
                if size > self.most_bytes(kind):
                    raise too_large(self.most_bytes(kind))
                digest.update(part)
                out.write(part)
        if not size:
            raise ConfigError("The upload is empty. To fix: send the file as the body (curl --data-binary).")
        _check_beginning(file, kind)
        return f"{UPLOADS}{digest.hexdigest()[:32]}"

    async def _captured(self, folder: Path, kind: str, label: str) -> tuple[OpGraph, list[str]]:
        if kind != "hf-config":
            return await capture_upload(folder, kind=kind, name=label, limits=self._limits), []
        config, remarks = await _in_thread(lambda: _config(folder / UPLOAD[kind]))
        try:  # known ones need neither torch nor another process
            return await _in_thread(lambda: replace(load_workload(config).graph, name=label)), remarks
        except (UnknownNameError, CaptureError):
            if importlib.util.find_spec("torch") is None:
                raise MissingExtraError(
                    package="torch",
                    extra="capture",
                    purpose=f"capture the model_type {shown(config.get('model_type'))}",
                ) from None
        return await capture_upload(folder, kind=kind, name=label, limits=self._limits), remarks


def not_found(name: str) -> NotFoundError:
    """For a name that no upload has."""
    return NotFoundError(f"There is no model {shown(name)}. To fix: GET /v1/models lists them.")


def too_large(most_bytes: int) -> TooLargeError:
    """For an upload beyond the limit."""
    return TooLargeError(
        f"The upload is too long. The rule: at most {most_bytes:,} bytes. To fix: upload the Hugging Face "
        "configuration, or a .pt2 or ONNX file without weights; or let the operator raise the limit."
    )


def _check_beginning(file: Path, kind: str) -> None:
    """Refuse what cannot be of its kind before a process is started for it.

    Raises:
        CaptureError: Says what such a file begins with.
    """
    with file.open("rb") as opened:
        first = opened.read(4)
    if kind == "pt2" and first != b"PK\3\4":
        raise CaptureError(
            f"The upload begins with {shown(first)}. The rule: kind=pt2 is the archive that "
            "torch.export.save writes. To fix: send such a file, or say what kind it is."
        )
    if kind == "onnx" and first[:1] not in _ONNX_BEGINNINGS:
        raise CaptureError(
            f"The upload begins with {shown(first)}. The rule: kind=onnx is a model as onnx.save writes it. "
            "To fix: send such a file, or say what kind it is."
        )


_ONNX_BEGINNINGS = tuple(bytes([byte]) for byte in (0x08, 0x12, 0x1A, 0x22, 0x28, 0x32, 0x3A, 0x42, 0x72))
"""Of the fields of ModelProto; writers put the first of them, the version, first."""


def _config(file: Path) -> tuple[dict[str, Any], list[str]]:
    """A configuration without what names code; it is written back so."""
    config = parsed(file.read_bytes())
    if not isinstance(config, dict):
        raise ConfigError(f"The upload is {shown(config)}. The rule: a config.json, a JSON object.")
    read_config(config)
    named = [key for key in _CODE[:3] if config.get(key)]
    clean = {key: value for key, value in config.items() if key not in _CODE}
    file.write_text(json.dumps(clean), encoding="utf-8")
    remark = (
        f"{', '.join(named)} left out: code that a configuration names is never run; the model is the one "
        f"that its model_type {shown(config.get('model_type'))} stands for."
    )
    return clean, [remark] if named else []


def _facts(graph: OpGraph, remarks: list[str]) -> Mapping[str, Any]:
    return {
        "params": graph.params,
        "forward_flops": graph.forward_flops,
        "operators": sum(node.repeat for node in graph.nodes),
        "warnings": [*remarks, *graph.warnings.splitlines()],
    }


async def _in_thread(function: Callable[[], _Found]) -> _Found:
    return await to_thread.run_sync(function)


@asynccontextmanager
async def _folder() -> AsyncIterator[Path]:
    """A fresh folder that nobody else may enter, removed in the end."""
    folder = Path(tempfile.mkdtemp(prefix="precision-time-upload-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
