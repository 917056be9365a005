"""Named clusters: what they say of their jobs, and how they learn."""

from __future__ import annotations

import asyncio
import json
import math
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import numpy as np
from anyio import to_thread

from precision_time.errors import CorpusError, shown
from precision_time.forks import ForkLock
from precision_time.learn.calibration.calibration import Calibration

from .cluster_documents import ClusterDocument
from .jobs import UPLOADS
from .learning import Activate, Learned, learn
from .measured_rows import MeasuredRow, Setting
from .problems import ConflictError, NotFoundError

if TYPE_CHECKING:
    from precision_time.workload.graph import OpGraph

    from .service import Service
    from .store.store import Store

MOST_ROWS = 5000
"""Newest measurements that a calibration is made of at most."""
MOST_POINTS = 1000
"""Of a calibration that is uploaded: each answer reads all of them."""
LAST = "last_measurement"
"""On the card of a version."""
_PAGE = 1000
_LARGEST, _MOST_LOG = 1e6, math.log(1e6)
"""Of figures of an uploaded calibration, and of the logarithms of ratios."""
_KEEPING = ForkLock()
"""Held from the look at what is active to its change."""
_REMEMBERED = 64
"""Clusters whose points are kept ready."""


@dataclass(slots=True)
class ReadyPoints:
    """The points of the clusters that were asked last, ready to move answers."""

    _kept: OrderedDict[Any, Calibration | None] = field(default_factory=OrderedDict)
    _lock: ForkLock = field(default_factory=ForkLock)
    _calls: WeakKeyDictionary[asyncio.Task[Any], dict[str, dict[str, Any]]] = field(
        default_factory=WeakKeyDictionary
    )

    def seen_by_call(self) -> dict[str, dict[str, Any]]:
        """What the call of this task has read of clusters, by name; each call has a task of its own."""
        task = asyncio.current_task()
        return {} if task is None else self._calls.setdefault(task, {})

    def of(self, name: str, document: ClusterDocument, store: Store) -> Calibration | None:
        """Anchors and active calibration of a cluster together; None where it has neither."""
        active = next((each for each in store.calibrations(name) if each.active), None)
        if active is None and not document.anchors:
            return None
        number = None if active is None else active.id  # never given twice
        key = (number, json.dumps(document.to_dict()) if document.anchors else "")
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
                return self._kept[key]
        found = _together(name, number, document, store)
        with self._lock:
            self._kept[key] = found
            while len(self._kept) > _REMEMBERED:
                self._kept.popitem(last=False)
        return found


def _together(name: str, number: int | None, document: ClusterDocument, store: Store) -> Calibration | None:
    body, anchors = None if number is None else store.calibration(name, number), document.points()
    parts = [] if body is None else [Calibration.from_dict(body, f"calibration {number} of {name}")]
    parts += [] if anchors is None else [anchors]
    found = Calibration.together(parts) if len(parts) > 1 else parts[0] if parts else None
    if found is not None:
        _ = found.conditioned  # now, not in the first answer
    return found


async def cluster_fields(name: Any, service: Service) -> dict[str, Any]:
    """What a stored cluster says of its jobs: its defaults, `calibration` and `custom`.

    All jobs of one call see the same: it is read once. Anchors and the active calibration are one
    `Calibration`: both are measured steps of the cluster, and take nothing of the job that is asked.

    Raises:
        NotFoundError: If there is none of that name.
    """

    def read() -> dict[str, Any]:
        document = document_of(name, service.store)
        points = service.ready_points.of(name, document, service.store)
        found = {**document.fields, "custom": document.hardware, "calibration": points}
        return {field: value for field, value in found.items() if value is not None}

    seen = service.ready_points.seen_by_call()
    key = name if isinstance(name, str) else ""
    if key not in seen:
        seen[key] = await to_thread.run_sync(read)
    return dict(seen[key])


def document_of(name: Any, store: Store) -> ClusterDocument:
    """The document of a stored cluster.

    Raises:
        NotFoundError: If there is none of that name.
    """
    stored = store.cluster(name) if isinstance(name, str) else None
    if stored is None:
        raise NotFoundError(
            f"There is no cluster {shown(name)}. To fix: GET /v1/clusters lists them, PUT /v1/clusters/NAME "
            "makes one."
        )
    return ClusterDocument.stored(stored)


async def setting_of(rows: Sequence[MeasuredRow], document: ClusterDocument, service: Service) -> Setting:
    """What the rows of a cluster mean: its hardware, and the uploaded models that they name."""
    named = {
        model
        for row in rows
        if isinstance(model := row.given.get("model", row.defaults.get("model")), str)
        and model.startswith(UPLOADS)
    }
    graphs: dict[str, OpGraph] = {}
    for model in sorted(named):
        try:
            graphs[model] = await service.uploaded_graph(model)
        except NotFoundError:
            continue  # the row says that its model is not known
    return Setting(hardware=document.hardware, graphs=graphs)


def newest_rows(name: str, store: Store) -> list[tuple[int, MeasuredRow]]:
    """The newest measurements of a cluster, at most MOST_ROWS, oldest first."""
    found: list[tuple[int, Mapping[str, Any]]] = []
    after = 0
    while page := store.measurements(name, after=after, limit=_PAGE):
        found = [*found, *page][-MOST_ROWS:]
        after = page[-1][0]
    return [(number, MeasuredRow.stored(row)) for number, row in found]


async def learned(name: str, service: Service) -> Learned:
    """The calibration that the stored measurements of a cluster make, in a process of its own.

    Raises:
        NotFoundError: If there is no such cluster.
        ConfigError: If it has no measurement that can be priced.
        TimeLimitError: If it takes too long.
    """
    document = await to_thread.run_sync(document_of, name, service.store)
    rows = await to_thread.run_sync(newest_rows, name, service.store)
    setting = await setting_of([row for _, row in rows], document, service)
    active = await to_thread.run_sync(_active, name, service.store)
    return await service.long_work.run(learn, rows, setting, name, active)


def _active(name: str, store: Store) -> tuple[Mapping[str, Any], int] | None:
    """The calibration that moves answers, and the last measurement that it has seen.

    None where it was uploaded: nobody knows what it has seen.
    """
    active = next((each for each in store.calibrations(name) if each.active), None)
    if active is None or active.card.get(LAST) is None:
        return None
    body = store.calibration(name, active.id)
    return None if body is None else (body, int(active.card[LAST]))


@dataclass(frozen=True, kw_only=True, slots=True)
class Kept:
    """A calibration that was kept as a version, or why none was."""

    id: int | None
    """Of the version."""
    active: bool
    why: str

    def to_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        return {"id": self.id, "active": self.active, "why": self.why}


def keep(name: str, found: Learned, activate: Activate, store: Store) -> Kept:
    """Keep what was learned as a version, and let it answer if the caller wants that.

    Raises:
        ConflictError: If its measurements were deleted meanwhile.
    """
    last = found.last_measurement
    if store.cluster(name) is None or [
        number for number, _ in store.measurements(name, after=last - 1, limit=1)
    ] != [last]:
        raise ConflictError(
            f"Cluster {name} was deleted while it was calibrated; nothing was kept. To fix: make it again "
            "(PUT /v1/clusters/NAME) and send its measurements."
        )
    with _KEEPING:
        return _kept(name, found, activate, last, store)


def _kept(name: str, found: Learned, activate: Activate, last: int, store: Store) -> Kept:
    number = add_version(name, found.body, store, last=last)
    if activate == "never":
        return Kept(id=number, active=False, why="Not asked to be active.")
    if activate == "if-better" and not found.better:
        return Kept(id=number, active=False, why=found.why)
    later = _later_active(name, last, store)
    if later is not None:
        return Kept(
            id=number, active=False, why=f"Calibration {later} is active, and is of later measurements."
        )
    store.activate(name, number)
    return Kept(id=number, active=True, why=found.why)


def _later_active(name: str, last: int, store: Store) -> int | None:
    """The active calibration, if another caller made it of measurements that this one has not seen."""
    for each in store.calibrations(name):
        if each.active and int(each.card.get(LAST) or 0) > last:
            return int(each.id)
    return None


def add_version(name: str, body: Mapping[str, Any], store: Store, *, last: int | None = None) -> int:
    """Keep a calibration; answers its number.

    Args:
        name: Of the cluster.
        body: As `Calibration.to_dict` has it.
        store: Where to.
        last: Number of the last measurement that it has seen; None of one that was uploaded.
    """
    return store.add_calibration(name, body, {**body["card"], "sha256": body["sha256"], LAST: last})


def check_upload(stated: Mapping[str, Any]) -> Calibration:
    """A calibration that is uploaded.

    Raises:
        CorpusError: If it is damaged, of another version, or has too many points.
    """
    found = Calibration.from_dict(stated, "The body")
    count, process = len(found.places), found.process
    if not 1 <= count <= MOST_POINTS:
        raise CorpusError(
            f"The calibration has {count} points. The rule: 1 to {MOST_POINTS:,}, as every answer reads all "
            "of them. To fix: calibrate with fewer configurations."
        )
    figures = (process.sd, process.rates, found.places.positions, process.power, 1.0 / process.noise_sd)
    sums = found.places.shares.sum(axis=1)
    if (
        max(float(np.abs(each).max()) for each in figures) > _LARGEST
        or not np.allclose(sums, 1.0, atol=1e-6)
        or not (np.abs(np.log(found.places.width)) < _MOST_LOG).all()
        or not (np.abs(found.log_ratios) < _MOST_LOG).all()
    ):
        raise CorpusError(
            "The calibration has figures that no measured step leads to. The rule: shares of a step that sum "
            "to 1, times within a factor of a million. To fix: make it with `precision-time calibrate`."
        )
    return found
