"""PredictDDL's controller behind the service: requests as JSON in, answers or errors out, one call at a time.

A call never trains a predictor unless the operator switched that on (Settings.train_predictddl); it is then
long work, in another process, and the registry on disk is what both share.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any, TypeVar

from anyio import CapacityLimiter, Lock, to_thread

from precision_time.errors import ConfigError, PrecisionTimeError, shown
from precision_time_server.routing import TooLargeError, resolved

from .collectors import CollectedCluster, collected_cluster

if TYPE_CHECKING:
    from precision_time_server.routing import Service

    from ..predictddl.controller import PredictDDL
    from ..predictddl.registry import Registry
    from ..predictddl.requests import PredictDDLRequest
    from ..predictddl.servers import ServersNeeded

_Found = TypeVar("_Found")
_SLICE = 64
"""Requests that are answered before another call has its turn."""
_OF_FILES = ("same_arrays", "sha256", "ghn_sha256")
"""Of a predictor's card: how its arrays are stored."""
_REFUSED_S = 600.0
"""Runs are not counted again sooner where there were too few to train on: it takes seconds."""


class PredictDDLAnswers:
    """One controller of a process, asked by one thread at a time: it and its caches know no others."""

    def __init__(self, registry: Registry | None = None) -> None:
        self._registry = registry
        self._controller: PredictDDL | None = None
        self._turn = CapacityLimiter(1)
        self._training = Lock()
        self._refused: dict[str, tuple[float, str]] = {}
        """By dataset type: when it was found that it cannot be trained, and why."""

    async def controller(self) -> PredictDDL:
        """Loaded when it is first asked, so that a service that nobody asks for it starts fast."""
        if self._controller is None:
            self._controller = await self.run(_controller, self._registry)
        return self._controller

    async def run(self, function: Callable[..., _Found], *arguments: Any) -> _Found:
        """`function(*arguments)` in its turn, in a thread."""
        return await to_thread.run_sync(function, *arguments, limiter=self._turn)

    async def answers(self, requests: Sequence[Any], service: Service) -> list[Any]:
        """What each request asks, in their order.

        Args:
            requests: Objects of the fields of a line of the command line's batch file, where `cluster` may
                name one whose servers report.
            service: Has clusters, models and limits.

        Returns:
            `Answer`, `ServersNeeded` for a request with a deadline, or the error of one that has neither.
        """
        controller = await self.controller()
        given, remarks = await _given(requests, service)
        asked: list[Any] = []
        for start in range(0, len(given), _SLICE):
            asked += await self.run(_read_each, given[start : start + _SLICE])
        trained = await self._train_missing(asked, service) if service.settings.train_predictddl else {}
        found = dict(enumerate(asked))
        timed = [n for n, each in found.items() if not isinstance(each, Exception) and each.deadline is None]
        for start in range(0, len(timed), _SLICE):
            places = timed[start : start + _SLICE]
            some = await self.run(controller.predict_each, [asked[place] for place in places])
            found |= dict(zip(places, some, strict=True))
        budget = service.settings.max_jobs
        for place, each in enumerate(asked):
            if not isinstance(each, Exception) and each.deadline is not None:
                found[place], budget = await self._servers(controller, each, budget)
        return [_with_remarks(found[place], said, trained) for place, said in enumerate(remarks)]

    async def _servers(
        self, controller: PredictDDL, request: PredictDDLRequest, budget: int
    ) -> tuple[ServersNeeded | Exception, int]:
        """The numbers of servers for a deadline, and how many more predictions the call may ask for."""
        from ..predictddl.servers import servers_needed, servers_tried

        try:
            tried = await self.run(servers_tried, request)
            if tried > budget:
                raise TooLargeError(
                    f"Pricing {tried} numbers of servers is more than the {budget} that this call has left. "
                    "The rule: each counts as a request. To fix: a smaller max_servers, or let the operator "
                    "raise the limit (--limit jobs=N)."
                )
            budget -= tried
            return await self.run(servers_needed, controller, request), budget
        except Exception as error:  # noqa: BLE001 - one request never stops the others
            return error, budget

    async def task(self, dataset: str, stated: Mapping[str, Any], service: Service) -> dict[str, Any]:
        """What the task checker finds for a dataset, JSON-ready.

        Args:
            dataset: Any usual name.
            stated: Facts of it, as of `dataset_facts`; None for those that are not stated.
            service: Has the settings.

        Raises:
            UnknownNameError: If the dataset is of no type, not known, and not described.
        """
        wanted, found = await self.run(_checked_task, await self.controller(), dataset, stated)
        enabled = service.settings.train_predictddl
        found["trains_on_request"] = enabled
        if found["outcome"] != "hit":
            found["training"] = _how(wanted)
            if enabled and _has_predictors(wanted):
                refusal = await self._refusal(wanted, service)
                found |= {} if refusal else {"outcome": "train", "served": True}
                found["training"] = (
                    refusal or "the next request for it trains a predictor and is answered by it"
                )
        return found

    async def types(self) -> dict[str, Any]:
        """The registry, JSON-ready."""
        return await self.run(_types, await self.controller())

    async def _refusal(self, wanted: str, service: Service) -> str:
        """Why no predictor can be trained for a type; empty if one can."""
        known = self._refused.get(wanted)
        if known is None or time.monotonic() - known[0] > _REFUSED_S:
            known = time.monotonic(), await service.long_work.run(refusal_of, wanted)
            self._refused[wanted] = known
        return known[1]

    async def _train_missing(self, asked: Sequence[Any], service: Service) -> dict[str, str]:
        """Train each type that is asked for, has no predictor and can be trained: a note for each."""
        trained: dict[str, str] = {}
        controller = await self.controller()
        requests = [each for each in asked if not isinstance(each, Exception)]
        for wanted in await self.run(_types_without, controller, requests):
            async with self._training:
                if wanted in controller.registry.types() or await self._refusal(wanted, service):
                    continue
                trained[wanted] = await service.long_work.run(train, controller.registry, wanted)
        return trained


def _controller(registry: Registry | None) -> PredictDDL:
    from ..predictddl.controller import PredictDDL
    from ..predictddl.registry import Registry

    return PredictDDL(registry=registry or Registry.default(), train=False)


async def _given(
    requests: Sequence[Any], service: Service
) -> tuple[list[dict[str, Any] | PrecisionTimeError], list[tuple[str, ...]]]:
    """The fields of each request with what they name in the store, and what is to be said of its cluster."""
    clusters: dict[str, CollectedCluster | PrecisionTimeError] = {}
    given: list[dict[str, Any] | PrecisionTimeError] = []
    remarks: list[tuple[str, ...]] = []
    for fields in requests:
        said: tuple[str, ...] = ()
        try:
            if not isinstance(fields, Mapping):
                raise ConfigError(
                    f"A request is {shown(fields)}. The rule: an object of fields. To fix: correct it."
                )
            found = await resolved({k: v for k, v in fields.items() if k != "cluster"}, service)
            cluster = fields.get("cluster")
            if isinstance(cluster, str):
                collected = await _collected(cluster, service, clusters)
                cluster, said = collected.resources(), collected.remarks
            if cluster is not None:
                found["cluster"] = _checked_cluster(cluster)
            given.append(found)
        except PrecisionTimeError as error:
            given.append(error)
        remarks.append(said)
    return given, remarks


async def _collected(
    name: str, service: Service, known: dict[str, CollectedCluster | PrecisionTimeError]
) -> CollectedCluster:
    """A cluster by its name, read once for a call."""
    if name not in known:
        try:
            known[name] = await to_thread.run_sync(collected_cluster, service.store, name)
        except PrecisionTimeError as error:
            known[name] = error
    found = known[name]
    if isinstance(found, PrecisionTimeError):
        raise found
    return found


def _checked_cluster(cluster: Any) -> Any:
    """What a request says of its cluster, unless it names a file."""
    from precision_time.hardware.inventory import ClusterResources

    if isinstance(cluster, ClusterResources):
        return cluster
    if not isinstance(cluster, Mapping):
        raise ConfigError(
            f"cluster={shown(cluster)} is no cluster. The rule: the name of one whose servers report, or an "
            'object. To fix: {"device": "A100", "num_nodes": 2, "devices_per_node": 8}.'
        )
    if cluster.get("custom") is not None:
        raise ConfigError(
            f"cluster.custom={shown(cluster['custom'])} is a file. The rule: a request names no files. To "
            "fix: leave it out, and name a device of GET /v1/catalogs/devices."
        )
    return cluster


def _read_each(given: Sequence[dict[str, Any] | PrecisionTimeError]) -> list[Any]:
    return [each if isinstance(each, PrecisionTimeError) else _read(each) for each in given]


def _read(fields: dict[str, Any]) -> PredictDDLRequest | PrecisionTimeError:
    from ..predictddl.requests import read_request

    try:
        return read_request(fields)
    except PrecisionTimeError as error:
        return error


def _checked_task(
    controller: PredictDDL, dataset: str, stated: Mapping[str, Any]
) -> tuple[str, dict[str, Any]]:
    """The dataset's type, and what the task checker says of it."""
    from precision_time.request.datasets import OTHER, known_dataset, type_of
    from precision_time_papers.predictddl.datasets import dataset_facts

    from ..predictddl.controller import find_task
    from ..predictddl.embeddings import probe_embeddings

    facts = known_dataset(dataset)
    if any(value is not None for value in stated.values()):
        facts = dataset_facts(dataset, **stated)
    wanted = type_of(dataset, "", facts.side if facts is not None else None)
    if wanted == OTHER and facts is None:
        facts = dataset_facts(dataset)  # names what is missing
    match = find_task(controller.registry, wanted, dataset, facts, probe_embeddings(controller.ghn))
    said: dict[str, Any] = {
        "dataset": dataset,
        "type": wanted,
        "outcome": "train" if match is None else match.outcome.value,
        "served": match is not None,
        "used": None,
        "distance": None,
        "notes": [],
    }
    if match is not None:
        parts = asdict(match)
        said |= {name: parts[name] for name in ("used", "data_distance", "embedding_distance", "notes")}
        said["distance"] = match.distance
    return wanted, said


def _has_predictors(wanted: str) -> bool:
    from precision_time.request.datasets import OTHER

    return wanted != OTHER


def _types(controller: PredictDDL) -> dict[str, Any]:
    from precision_time.request.datasets import dataset_types

    versions: dict[str, list[dict[str, Any]]] = {name: [] for name in dataset_types()}
    for entry in controller.registry.entries():
        card = {name: value for name, value in entry.card.items() if name not in _OF_FILES}
        # Folders of the service's machine are nobody's business.
        problem = entry.problem.replace(str(entry.folder), f"{entry.dataset_type}/v{entry.version}")
        versions.setdefault(entry.dataset_type, []).append(
            {"version": entry.version, "shipped": entry.shipped, "card": card, "problem": problem}
        )
    titles = {name: kind.title for name, kind in dataset_types().items()}
    return {
        "types": [
            {"type": name, "title": titles.get(name, ""), "versions": found}
            for name, found in versions.items()
        ]
    }


def _how(wanted: str) -> str:
    if not _has_predictors(wanted):
        return "the dataset is of no type that predictors are trained for"
    return (
        "this service trains no predictor on a request. To fix: measure runs, `precision-time papers "
        "predictddl "
        f"train {wanted} --measurements RUNS` where the service runs, or let the operator switch it on "
        "(--train-predictddl)"
    )


def _types_without(controller: PredictDDL, requests: Sequence[PredictDDLRequest]) -> list[str]:
    """Dataset types of these requests that have no predictor."""
    from precision_time.request.datasets import OTHER

    from ..predictddl.requests import resolve

    types: set[str] = set()
    for request in requests:
        try:
            types.add(resolve(request.with_(deadline=None, max_servers=None)).wanted)
        except PrecisionTimeError:
            continue  # said when it is answered
    return sorted(types - {*controller.registry.types(), OTHER})


def refusal_of(wanted: str) -> str:
    """Why no predictor can be trained for a dataset type from the known runs; empty if one can."""
    from precision_time.corpus.store import load_corpus

    from ..predictddl.trainer import rows_by_type

    rows = rows_by_type(load_corpus(local=True))[wanted]
    return "" if rows.enough else rows.refusal()


def train(registry: Registry, wanted: str) -> str:
    """Train a predictor from the known runs and keep it; what is to be said of it."""
    from precision_time.corpus.store import load_corpus

    from ..predictddl.trainer import rows_by_type, train_and_save

    rows = rows_by_type(load_corpus(local=True))[wanted]
    version = train_and_save(registry, rows).version
    return f"trained now on {len(rows.measurements)} runs, kept as version {version}"


def _with_remarks(answer: Any, remarks: tuple[str, ...], trained: Mapping[str, str]) -> Any:
    """An answer that says what was left out of its cluster, and whether its predictor was trained for it."""
    from ..predictddl.contract import Answer, Outcome

    if not isinstance(answer, Answer):
        return answer if not remarks or isinstance(answer, Exception) else _servers_with(answer, remarks)
    if answer.task.used in trained and answer.task.outcome is Outcome.HIT:
        note = trained[answer.task.used]
        task = replace(answer.task, outcome=Outcome.TRAINED, notes=(*answer.task.notes, note))
        answer = replace(answer, task=task, substitutions=(note, *answer.substitutions))
    return replace(answer, substitutions=(*remarks, *answer.substitutions)) if remarks else answer


def _servers_with(needed: ServersNeeded, remarks: tuple[str, ...]) -> ServersNeeded:
    kinds = tuple(
        kind if kind.answer is None else replace(kind, answer=_with_remarks(kind.answer, remarks, {}))
        for kind in needed.kinds
    )
    return replace(needed, kinds=kinds)
