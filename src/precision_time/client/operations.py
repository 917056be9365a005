"""What a client can ask of a service: each operation once, for both clients.

An operation is a conversation (`conversation.Talk`); `Operation` makes a method of it that a client runs.
"""

from __future__ import annotations

import functools
import json
import math
import uuid
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, Generic, Literal, ParamSpec, TypeVar, overload
from urllib.parse import quote

from ..errors import ConfigError, PrecisionTimeError, ServerError, shown
from ..plain import from_plain
from ..planning.decision.result import Plan
from ..planning.layouts.result import LayoutSearch
from ..planning.run.prediction import RunPrediction
from ..predict.changes import Alternative
from ..predict.prediction import Prediction, Skipped
from ..predict.predictions import Predictions, plain_fields
from ..records import dataclass
from ..request.captured import captured
from ..request.request import Request
from ..workload.graph import OpGraph, graph_to_json
from ..workload.hf_config import is_config_source, read_config
from .conversation import Conversation, Talk, error_of

if TYPE_CHECKING:
    from .client import AsyncClient, Client

P = ParamSpec("P")
T = TypeVar("T")
Job = Request | Mapping[str, Any]
ModelKind = Literal["graph", "hf-config"]
Activate = Literal["never", "if-better", "always"]
_JOBS_AT_ONCE = 500
_OCTETS, _CSV, _JSON = "application/octet-stream", "text/csv", "application/json"


class Operation(Generic[P, T]):
    """A method of both clients."""

    def __init__(self, talk: Callable[Concatenate[Any, P], Talk[T]]) -> None:
        self.talk = talk
        functools.update_wrapper(self, talk)  # type: ignore[arg-type]

    @overload
    def __get__(self, client: None, owner: Any = None) -> Operation[P, T]: ...
    @overload
    def __get__(self, client: Client, owner: Any = None) -> Callable[P, T]: ...
    @overload
    def __get__(self, client: AsyncClient, owner: Any = None) -> Callable[P, Awaitable[T]]: ...
    def __get__(self, client: Any, owner: Any = None) -> Any:
        """The method of a client: the answer, or what is awaited for it."""
        if client is None:
            return self

        @functools.wraps(self.talk)
        def ask(*args: P.args, **kwargs: P.kwargs) -> Any:
            return client.run(self.talk(client, *args, **kwargs))

        return ask


@dataclass(frozen=True, kw_only=True, slots=True)
class Why:
    """What an answer rests on, as the service says it."""

    matters: tuple[Alternative, ...]
    """Assumptions whose alternative would move the answer, those that matter most first."""
    page: str
    """Of the command line."""


@dataclass(frozen=True, kw_only=True, slots=True)
class UploadedModel:
    """A model that a service keeps."""

    name: str
    """As `model` of a job."""
    label: str
    kind: str
    params: float = 0.0
    forward_flops: float = 0.0
    """Of one sample."""
    operators: int = 0
    warnings: tuple[str, ...] = ()


class Operations:
    """What both clients can ask; a service answers as the function of the same name."""

    talk: Conversation

    @Operation
    def predict(self, /, model: Any, **fields: Any) -> Talk[Prediction]:
        """How long a step, an epoch and the run take; as `predict_time`.

        Args:
            model: Known name, Hugging Face configuration as a mapping, name of an uploaded model, or a
                `Request`.
            fields: Of `Request`; `cluster` names a stored cluster.
        """
        answer = yield from self.talk.json("POST", "/v1/predictions", job_of(model, fields))
        return self.talk.read(Prediction.from_dict, answer)

    @Operation
    def why(self, /, model: Any, *, batch_assumed: bool = False, **fields: Any) -> Talk[Why]:
        """What `predict` would answer rests on: assumptions that matter, and the page of the command line.

        Args:
            model: As of `predict`.
            batch_assumed: The batch counts as an assumption, though it is among the fields.
            fields: As of `predict`.
        """
        params = {"why": "true", "batch_assumed": "true" if batch_assumed else None}
        answer = yield from self.talk.json("POST", "/v1/predictions", job_of(model, fields), params=params)
        return self.talk.read(lambda given: from_plain(Why, given["why"]), answer)

    @Operation
    def predict_each(self, jobs: Sequence[Job]) -> Talk[list[Prediction | PrecisionTimeError]]:
        """The answer to each job, or the error that `predict` would raise for it.

        A job that does not fit in memory comes without what to ask for instead, which `predict` says.
        """
        found: list[Prediction | PrecisionTimeError] = []
        each = math.ceil(len(jobs) / math.ceil(len(jobs) / _JOBS_AT_ONCE)) if jobs else 1
        for start in range(0, len(jobs), each):
            some = [job_of(job, {}) for job in jobs[start : start + each]]
            said = yield from self.talk.json("POST", "/v1/predictions/batch", {"jobs": some})
            answers = self.talk.read(_answers, said)
            if len(answers) != len(some):
                raise ServerError(
                    f"{self.talk.url} gives {len(answers)} answers to {len(some)} jobs. To fix: the same "
                    "version of precision-time on both sides."
                )
            found += answers
        return found

    @Operation
    def predict_many(self, jobs: Iterable[Job]) -> Talk[Predictions]:
        """The answers to many jobs; one that cannot be answered is in `skipped` with its reason."""
        asked = [*jobs]
        found = yield from Operations.predict_each.talk(self, asked)
        return Predictions.of(
            answer
            if isinstance(answer, Prediction)
            else Skipped(request=plain_fields(job_of(job, {})), reason=str(answer))
            for job, answer in zip(asked, found, strict=True)
        )

    @Operation
    def compare_precisions(
        self, /, model: Any, precisions: str | Sequence[str] = "all", **fields: Any
    ) -> Talk[Predictions]:
        """One job at several precisions."""
        named = precisions if isinstance(precisions, str) else [*precisions]
        body = {**job_of(model, fields), "precisions": named}
        answer = yield from self.talk.json("POST", "/v1/comparisons", body)
        return self.talk.read(Predictions.from_dict, answer)

    @Operation
    def sweep(self, /, model: Any, **fields: Any) -> Talk[Predictions]:
        """All combinations of the values given: lists, texts such as "8,16", ranges such as "8..64"."""
        answer = yield from self.talk.json("POST", "/v1/sweeps", job_of(model, fields))
        return self.talk.read(Predictions.from_dict, answer)

    @Operation
    def predict_run(
        self, /, model: Any, *, phases: Sequence[Mapping[str, Any]] | None = None, **fields: Any
    ) -> Talk[RunPrediction]:
        """How long a whole training takes; options of the run are beside the fields of the job."""
        also = {} if phases is None else {"phases": [dict(phase) for phase in phases]}
        answer = yield from self.talk.json("POST", "/v1/runs", job_of(model, fields) | also)
        return self.talk.read(RunPrediction.from_dict, answer)

    @Operation
    def plan(self, /, model: Any, **arguments: Any) -> Talk[Plan]:
        """Which devices, how many, at which precision, for how much; as `plan`, without all candidates."""
        answer = yield from self.talk.json("POST", "/v1/plans", job_of(model, arguments))
        return self.talk.read(Plan.from_dict, answer)

    @Operation
    def find_layouts(
        self, /, model: Any, *, fix: Sequence[str] = (), top: int = 10, **fields: Any
    ) -> Talk[LayoutSearch]:
        """The fastest ways to spread a model over devices; as `find_layouts`, without its jobs."""
        body = {**job_of(model, fields), "fix": [*fix], "top": top}
        answer = yield from self.talk.json("POST", "/v1/layouts", body)
        return self.talk.read(LayoutSearch.from_dict, answer)

    @Operation
    def upload_model(
        self, /, model: Any, kind: ModelKind | None = None, *, label: str | None = None, **options: Any
    ) -> Talk[UploadedModel]:
        """Keep the operators of a model on a service: `name` then stands for it in jobs.

        Args:
            model: A config.json (its path, its content, a mapping), which is sent as it is; or whatever
                `predict_time` takes (a module, "net.py:function", an .onnx or .pt2 file), which is captured
                here, by the extra `capture`, and sent as a graph; or a graph.
            kind: Of the content; "graph" also captures a configuration here, whose `model_type` no table has.
            label: What answers call it; None for its own name.
            **options: Fields of a request, such as `example_inputs` or `trust`.

        Raises:
            ConfigError: If it is not said what the content is.
            CaptureError: If the model cannot be captured.
            MissingExtraError: If what captures it is not installed.
        """
        if isinstance(model, bytes):
            if kind is None:
                raise ConfigError(
                    "It is not said what the content is. The rule: graph or hf-config. To fix: "
                    "kind='hf-config'."
                )
            content, called = model, ""
        elif kind != "graph" and is_config_source(model):
            kind, called = "hf-config", Path(model).stem if isinstance(model, str | Path) else ""
            content = json.dumps(dict(read_config(model))).encode()
        else:
            graph = model if isinstance(model, OpGraph) else capture(model, options)
            kind, called = "graph", graph.name
            content = json.dumps(graph_document(graph)).encode()
        answer = yield from self.talk.json(
            "POST",
            "/v1/models",
            params={"kind": kind, "label": called if label is None else label},
            content=content,
            media_type=_OCTETS,
        )
        return self.talk.read(lambda given: from_plain(UploadedModel, given), answer)

    @Operation
    def models(self) -> Talk[dict[str, Any]]:
        """The models that were uploaded."""
        return (yield from self.talk.json("GET", "/v1/models"))

    @Operation
    def delete_model(self, name: str) -> Talk[None]:
        """Forget an uploaded model."""
        yield from self.talk.json("DELETE", f"/v1/models/{_segment(name.removeprefix('uploads/'))}")

    @Operation
    def clusters(self) -> Talk[dict[str, Any]]:
        """All stored clusters."""
        return (yield from self.talk.json("GET", "/v1/clusters"))

    @Operation
    def cluster(self, name: str) -> Talk[dict[str, Any]]:
        """A stored cluster: defaults of its jobs, anchors, hardware, what was measured on it."""
        return (yield from self.talk.json("GET", _cluster(name)))

    @Operation
    def put_cluster(
        self,
        name: str,
        *,
        fields: Mapping[str, Any] | None = None,
        anchors: Sequence[Mapping[str, Any]] = (),
        hardware: Mapping[str, Any] | None = None,
        note: str = "",
    ) -> Talk[dict[str, Any]]:
        """Make or change a cluster.

        Args:
            name: Of the cluster.
            fields: Defaults of its jobs.
            anchors: Measured steps that count at once.
            hardware: Devices, links and node types of its own, as a cluster file has them.
            note: For people.
        """
        document = {"fields": dict(fields or {}), "anchors": [*anchors], "hardware": hardware, "note": note}
        return (yield from self.talk.json("PUT", _cluster(name), document))

    @Operation
    def delete_cluster(self, name: str) -> Talk[None]:
        """Delete a cluster with its measurements and calibrations."""
        yield from self.talk.json("DELETE", _cluster(name))

    @Operation
    def add_measurements(
        self,
        name: str,
        measurements: Sequence[Mapping[str, Any]] | str | Path,
        *,
        partial: bool = False,
        activate: Activate = "never",
        key: str | None = None,
    ) -> Talk[dict[str, Any]]:
        """What jobs really took: stored; answers the held-out error without and with them.

        Args:
            name: Of the cluster.
            measurements: Jobs with `step_time_s`, or the path of a CSV.
            partial: Store the rows that are not broken.
            activate: Whether a calibration on all measurements moves answers from now on.
            key: Rows sent twice with one key are stored once; None for a new one, so that a repeated call
                stores nothing twice.
        """
        rows, table, media_type = None, None, _JSON
        if isinstance(measurements, str | Path):
            table, media_type = _content(Path(measurements)), _CSV
        else:
            rows = {"measurements": [dict(row) for row in measurements]}
        return (
            yield from self.talk.json(
                "POST",
                f"{_cluster(name)}/measurements",
                rows,
                params={"partial": "true" if partial else None, "activate": activate},
                headers={"Idempotency-Key": _header(key or uuid.uuid4().hex)},
                content=table,
                media_type=media_type,
            )
        )

    @Operation
    def measurements(self, name: str, *, after: int = 0, limit: int = 100) -> Talk[dict[str, Any]]:
        """A page of what was measured on a cluster, oldest first."""
        params = {"after": after, "limit": limit}
        return (yield from self.talk.json("GET", f"{_cluster(name)}/measurements", params=params))

    @Operation
    def fit_calibration(self, name: str, *, activate: Activate = "never") -> Talk[dict[str, Any]]:
        """Make a calibration of all measurements of a cluster."""
        return (
            yield from self.talk.json(
                "POST", f"{_cluster(name)}/calibrations", {}, params={"activate": activate}, repeatable=False
            )
        )

    @Operation
    def calibrations(self, name: str) -> Talk[dict[str, Any]]:
        """The calibrations of a cluster, each with its card."""
        return (yield from self.talk.json("GET", f"{_cluster(name)}/calibrations"))

    @Operation
    def activate_calibration(self, name: str, number: int | None) -> Talk[dict[str, Any]]:
        """Choose the calibration that moves answers; None for none."""
        return (yield from self.talk.json("PUT", f"{_cluster(name)}/calibrations/active", {"id": number}))

    @Operation
    def evaluate(
        self,
        path: str | Path,
        *,
        device: str | None = None,
        group_by: Sequence[str] = (),
        cluster: str | None = None,
    ) -> Talk[dict[str, Any]]:
        """How well the measured runs of a CSV are predicted; as `precision-time evaluate --json`."""
        return (
            yield from self.talk.json(
                "POST",
                "/v1/evaluations",
                params={"device": device, "group_by": [*group_by] or None, "cluster": cluster},
                content=_content(Path(path)),
                media_type=_CSV,
            )
        )

    @Operation
    def predictddl(self, request: Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> Talk[dict[str, Any]]:
        """PredictDDL's answer to one request, or to each of several."""
        body = (
            dict(request) if isinstance(request, Mapping) else {"requests": [dict(each) for each in request]}
        )
        return (yield from self.talk.json("POST", "/v1/predictddl/predictions", body))

    @Operation
    def predictddl_task(self, dataset: str) -> Talk[dict[str, Any]]:
        """PredictDDL's task checker: whether a predictor of a dataset is there."""
        return (yield from self.talk.json("GET", "/v1/predictddl/tasks", params={"dataset": dataset}))

    @Operation
    def catalog(self, name: str, *, search: str = "", limit: int = 100) -> Talk[dict[str, Any]]:
        """What can be named: models, devices, precisions, stacks, datasets, optimizers, prices."""
        params = {"search": search or None, "limit": limit}
        return (yield from self.talk.json("GET", f"/v1/catalogs/{_segment(name)}", params=params))

    @Operation
    def health(self) -> Talk[dict[str, Any]]:
        """Whether calls can be answered, and the version of the service."""
        return (yield from self.talk.json("GET", "/health/ready"))

    @Operation
    def metrics(self) -> Talk[str]:
        """The figures of the service, in the text format of Prometheus."""
        return (yield from self.talk.text("/metrics"))


def job_of(model: Any, fields: Mapping[str, Any]) -> dict[str, Any]:
    """A job as a service takes it: a request or a mapping with changes, or a model and fields."""
    if isinstance(model, Request):
        return {**model.to_dict(), **fields}
    if isinstance(model, Mapping) and "model" in model:
        return {**model, **fields}
    return {"model": str(model) if isinstance(model, Path) else model, **fields}


def _answers(given: Any) -> list[Prediction | PrecisionTimeError]:
    """Of a batch, in its order."""
    return [
        Prediction.from_dict(each["prediction"])
        if "prediction" in each
        else error_of(each["problem"], status=int(each["problem"]["status"]))
        for each in given["answers"]
    ]


def _cluster(name: str) -> str:
    return f"/v1/clusters/{_segment(name)}"


def _segment(name: str) -> str:
    """A name as one part of a path."""
    if not isinstance(name, str) or not name.strip("."):
        raise ConfigError(f"{shown(name)} is no name. To fix: the name of what is stored.")
    return quote(name, safe="")


def _header(key: str) -> str:
    if not (key.isascii() and key.isprintable()):
        raise ConfigError(f"key={shown(key)} must be printable ASCII. To fix: such as a UUID.")
    return key


def graph_document(graph: OpGraph) -> dict[str, Any]:
    """A graph as JSON, with the names of its layers, which `graph_to_json` leaves out."""
    return {"graph": graph_to_json(graph), "layers": [node.layer for node in graph.nodes]}


def capture(model: Any, options: Mapping[str, Any]) -> OpGraph:
    """The graph of a model that is captured in this process, once.

    Args:
        model: As `predict_time` takes it.
        options: Fields of a request that say how: example_inputs, inputs, forward, loss, trust, sizes ...

    Raises:
        MissingExtraError: If torch is not installed.
        CaptureError: If the model cannot be captured.
    """
    return captured(model, Request.of({**options, "model": model}))


def _content(path: Path) -> bytes:
    """The bytes of a file.

    Raises:
        ConfigError: If it cannot be read.
    """
    try:
        return path.read_bytes()
    except OSError as error:
        raise ConfigError(
            f"{path} cannot be read: {error.strerror or error}. To fix: check path and permissions."
        ) from None
