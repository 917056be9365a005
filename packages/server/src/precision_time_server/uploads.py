"""Models that callers upload: captured graphs and configurations, stored under a name of their content."""

from __future__ import annotations

import hashlib
import time
from collections import OrderedDict
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from anyio import CapacityLimiter, to_thread

from precision_time import __version__
from precision_time.client.operations import graph_document
from precision_time.errors import CaptureError, ConfigError, UnknownNameError, shown
from precision_time.workload.graph import GRAPH_SCHEMA_VERSION, OpGraph
from precision_time.workload.hf_config import read_config
from precision_time.workload.resolve import load_workload

from .bodies import parsed
from .graphs import graph_of
from .jobs import UPLOADS
from .problems import ConflictError, NotFoundError

if TYPE_CHECKING:
    from .store.entries import ModelRecord, ModelSummary
    from .store.store import Store

MOST_BYTES = {"graph": 2**25, "hf-config": 2**20}
"""Of an upload, by its kind, whatever the operator allows more."""
_KEPT_GRAPHS = 64
_KNOWN_FOR_S = 5.0
"""A graph is taken from memory for so long before the store is asked: another worker may delete it."""
_LONGEST_LABEL = 120
_CODE = ("auto_map", "trust_remote_code", "custom_pipelines")
"""Keys of a configuration that name code."""
_VERSION = f"{__version__}/{GRAPH_SCHEMA_VERSION}"


class Uploads:
    """The uploaded models, those that were asked last ready to use."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._turn = CapacityLimiter(1)
        self._graphs: OrderedDict[str, tuple[OpGraph, float]] = OrderedDict()

    async def add(self, content: bytes, *, kind: str, label: str) -> tuple[ModelSummary, bool]:
        """The record of an upload, and whether it is new.

        Args:
            content: A captured graph as JSON, or a config.json.
            kind: "graph" or "hf-config".
            label: What the model is called; of its kind and content where empty.

        Raises:
            ConfigError: If there is no such kind, or the label is not printable.
            CaptureError: If it is no graph, or a configuration of a model that no table has.
        """
        if kind not in MOST_BYTES:
            raise ConfigError(
                f"kind={shown(kind)} is not known. The rule: one of {', '.join(MOST_BYTES)}. To fix: capture "
                "other models where they are, and send their graph: Client.upload_model(model), by the extra "
                "capture of precision-time."
            )
        label = " ".join(label.split())
        if len(label) > _LONGEST_LABEL or not label.isprintable():
            raise ConfigError(
                f"label={shown(label)} is not possible. The rule: at most {_LONGEST_LABEL} printable "
                "characters. To fix: shorten it."
            )
        digest = hashlib.sha256(f"{kind}\0{_VERSION}\0".encode() + content).hexdigest()[:32]
        name = f"{UPLOADS}{digest}"
        found = await self.record(name)
        if found is not None:
            return found, False

        def put() -> None:  # one at a time: a large one takes memory
            graph, remarks = (graph_of(content), ()) if kind == "graph" else _configured(content)
            graph = replace(graph, name=label or f"{kind} {digest[:8]}")
            facts = {
                "params": graph.params,
                "forward_flops": graph.forward_flops,
                "operators": sum(node.repeat for node in graph.nodes),
                "warnings": [*remarks, *graph.warnings.splitlines()],
            }
            document = graph_document(graph)
            self._store.put_model(name, label=graph.name, kind=kind, graph=document, facts=facts)

        await to_thread.run_sync(put, limiter=self._turn)
        found = await self.record(name)
        if found is None:
            raise ConflictError(f"{name} was deleted while it was stored. To fix: upload it again.")
        return found, True

    async def record(self, name: str) -> ModelRecord | None:
        """What the store has of a model, or None."""
        return await to_thread.run_sync(self._store.model, name)

    async def records(self) -> list[ModelSummary]:
        """What the store has of all models."""
        return await to_thread.run_sync(self._store.models)

    async def delete(self, name: str) -> bool:
        """Forget a model; whether there was one."""
        self._graphs.pop(name, None)
        return await to_thread.run_sync(self._store.delete_model, name)

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
                found = await to_thread.run_sync(graph_of, record.graph)
                graph = replace(found, name=record.label)
            self._graphs[name] = (graph, now)
            while len(self._graphs) > _KEPT_GRAPHS:
                self._graphs.popitem(last=False)
        self._graphs.move_to_end(name)
        return graph


def not_found(name: str) -> NotFoundError:
    """For a name that no upload has."""
    return NotFoundError(f"There is no model {shown(name)}. To fix: GET /v1/models lists them.")


def _configured(content: bytes) -> tuple[OpGraph, tuple[str, ...]]:
    """The graph of a configuration, and a remark where it names code, which is left out.

    Raises:
        ConfigError: If it is no JSON object.
        CaptureError: If no table has its `model_type`.
    """
    config: Any = parsed(content)
    if not isinstance(config, dict):
        raise ConfigError(f"The upload is {shown(config)}. The rule: a config.json, a JSON object.")
    read_config(config)
    model_type = shown(config.get("model_type"))
    try:
        graph = load_workload({key: value for key, value in config.items() if key not in _CODE}).graph
    except (UnknownNameError, CaptureError) as error:
        raise CaptureError(
            f"{error} Or capture the model where it is, and send its graph: "
            'Client.upload_model("config.json", "graph"), by the extra capture.'
        ) from None
    named = [key for key in _CODE if config.get(key)]
    remark = (
        f"{', '.join(named)} left out: code that a configuration names is never run; the model is the one "
        f"that its model_type {model_type} stands for."
    )
    return graph, (remark,) if named else ()
