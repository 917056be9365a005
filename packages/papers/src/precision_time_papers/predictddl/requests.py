"""Requests to PredictDDL: `precision_time.request.Request` with a dataset and a choice of predictor.

Python gives a `PredictDDLRequest`, files give mappings of its fields, or a batch of them, one JSON object a
line or a list.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil, prod
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from precision_time.cost.job import Job
from precision_time.errors import ConfigError, in_one_line, printable, shown, validation_problems
from precision_time.fields import COUNT, MAX_COUNT, Count
from precision_time.hardware.device import Cluster
from precision_time.hardware.inventory import ClusterResources
from precision_time.io import read_input, read_yaml
from precision_time.request.datasets import OTHER, DatasetFacts, dataset_types, known_dataset, type_of
from precision_time.request.request import Request
from precision_time.workload.graph import OpGraph
from precision_time.workload.resolve import check_named_in_data
from precision_time_integrations.inventory.file import read_inventory
from precision_time_integrations.inventory.mapping import MOST_NODES
from precision_time_papers.predictddl.datasets import dataset_facts, type_of_workload

from .contract import FIELDS, Refusal
from .embeddings import embedding_of_graph

_SMALL_SIDE = 64
"""Datasets of smaller images are trained at their own size: ImageNet's 224 pixels are not assumed."""


class PredictDDLRequest(Request):
    """One training run whose time is wanted; of the layout only `num_microbatches` may be given."""

    facts: DatasetFacts | None = None
    """Of a dataset that is not known by name; in the place of `dataset`."""
    variant: Literal["predictddl", "predictddl-size", "predictddl-precision"] = "predictddl-precision"
    """`predictddl`, as the paper describes it and blind to precision; `predictddl-size`, blind too, which
    knows how large the network is; or `predictddl-precision`."""
    regressor: Literal["linear", "polynomial-2", "svr", "mlp"] | None = None
    """None for the one that cross-validation chose."""
    version: Count | None = None
    """Of the predictor; None for the newest."""
    name: str = ""
    """The caller's name of the request; empty for none."""
    deadline: str | float | None = None
    """How long the training may take, as `2h` or in seconds: how many servers meet it is then asked
    (`servers.py`)."""
    max_servers: Count | None = None
    """Of each kind, for a request with a deadline; None for as many as its cluster has."""


_OWN_FIELDS = {*PredictDDLRequest.model_fields} - {*Request.model_fields}


@dataclass(frozen=True, kw_only=True, slots=True)
class Resolved:
    """A request with every name looked up."""

    request: PredictDDLRequest
    job: Job
    wanted: str
    """Dataset type; `OTHER` for a dataset of none."""
    facts: DatasetFacts | None
    """Of the dataset; None where only its type is known."""
    notes: tuple[str, ...]
    """What was assumed, in words."""

    @property
    def dataset_name(self) -> str:
        """Type, or the dataset where it is of none."""
        return self.wanted if self.wanted != OTHER else self.facts.name if self.facts else OTHER

    @property
    def steps_per_epoch(self) -> int | None:
        """Optimizer steps; None where the samples are not known."""
        layout, workload = self.job.layout, self.job.workload
        samples = self.request.samples or (self.facts.samples if self.facts else workload.dataset_samples)
        batch = layout.micro_batch_size * layout.num_microbatches * layout.dp
        return max(ceil(samples / batch), 1) if samples else None


def resolve(request: PredictDDLRequest) -> Resolved:
    """The job of a request, and the facts of its dataset.

    Raises:
        UnknownNameError: Model, dataset or precision that is not known.
        ConfigError: A field that PredictDDL does not read, a precision that the device cannot compute in, or
            a cluster without devices.
        CaptureError: A model that cannot be turned into a graph, or has no operators.
    """
    if request.deadline is not None or request.max_servers is not None:
        raise ConfigError(
            "A request with a deadline asks for a number of servers, not for a time. To fix: "
            "`servers_needed(service, request)`, `precision-time papers predictddl servers`, or leave "
            "out deadline "
            "and max_servers."
        )
    unread = sorted(request.given().keys() - {"model", *FIELDS, *_OWN_FIELDS})
    if unread:
        raise ConfigError(
            f"PredictDDL does not read {', '.join(unread)}: it knows data-parallel jobs only. To fix: remove "
            "it, or use `precision-time predict`."
        )
    notes: list[str] = []
    facts, wanted = _dataset(request)
    changes: dict[str, Any] = {"zero_stage": 0} | ({"dataset": facts.name} if facts is not None else {})
    is_small = facts is not None and facts.side is not None and facts.side <= _SMALL_SIDE
    own = isinstance(request.model, OpGraph)
    if is_small and facts is not None and not own and request.image_size is None and not request.sizes:
        changes["image_size"] = facts.side
        notes.append(f"image size not given: {facts.side} pixels of {facts.name} assumed")
    job = request.with_(**changes).resolve()
    workload = job.workload
    embedding_of_graph(workload.graph)  # refuses an empty one
    if request.dataset is None and request.facts is None:
        wanted = type_of_workload(workload)
        facts = known_dataset(workload.dataset) if workload.dataset else None
        if wanted != OTHER:
            usual = workload.dataset or dataset_types()[wanted].title
            notes.append(f"dataset not given: {usual} assumed, as usual for {workload.name}")
    notes.extend(item.text for item in job.diagnostics)
    return Resolved(request=request, job=job, wanted=wanted, facts=facts, notes=tuple(dict.fromkeys(notes)))


def _dataset(request: PredictDDLRequest) -> tuple[DatasetFacts | None, str]:
    """Facts and type of the dataset that a request names."""
    facts, name = request.facts, request.dataset
    if facts is not None:
        name = facts.name
    elif name is None:
        return None, OTHER
    else:
        facts = known_dataset(name)
    side = request.image_size or (facts.side if facts is not None else None)
    wanted = type_of(name, "", side)
    if wanted == OTHER and facts is None:
        wanted = type_of("", request.task, side)
        if wanted == OTHER:
            facts = dataset_facts(name)  # names what is missing
    return facts, wanted


_Count = Annotated[int, BeforeValidator(COUNT.function), Field(ge=1, le=MAX_COUNT)]
"""`Count` as pydantic reads it."""


class _Described(BaseModel):
    model_config = ConfigDict(extra="forbid")


class DescribedDataset(_Described):
    """A user-defined dataset; what is left out is taken from a known one of that name."""

    name: str
    samples: int | None = None
    classes: int | None = None
    shape: list[_Count] | None = None
    """[channels, height, width] of an image."""
    length: _Count | None = None
    """Elements of a sequence."""
    modality: str | None = None

    def facts(self) -> DatasetFacts:
        """As the task checker reads it."""
        sizes = self.shape or ([self.length] if self.length else None)
        is_image = self.shape is not None and len(self.shape) == 3
        return dataset_facts(
            self.name,
            samples=self.samples,
            classes=self.classes,
            elements=None if sizes is None else float(prod(sizes)),
            side=max(self.shape[1:]) if is_image and self.shape else None,
            modality=self.modality or ("image" if is_image else None),
        )


class DescribedCluster(_Described):
    """A cluster in the place of an inventory file."""

    device: str
    num_nodes: Annotated[_Count, Field(le=MOST_NODES)] = 1
    devices_per_node: Annotated[_Count, Field(le=65536)] = 1
    intra_node: str | None = None
    inter_node: str | None = None
    network: str | None = None
    custom: str | None = None

    def fields(self) -> dict[str, Any]:
        """The same as fields of a request."""
        names = ("intra_node", "inter_node", "network", "custom")
        links = {name: getattr(self, name) for name in names}
        return {
            "device": self.device,
            "gpus": self.num_nodes * self.devices_per_node,
            "nodes": self.num_nodes,
            **{name: value or None for name, value in links.items()},
        }


def read_request(
    content: Mapping[str, Any], *, cluster: Cluster | ClusterResources | None = None
) -> PredictDDLRequest:
    """The request of a mapping out of JSON or YAML.

    Args:
        content: Fields of `PredictDDLRequest`. `dataset` may be a `DescribedDataset`, `cluster` a
            `DescribedCluster`, an inventory or the path of its file. The model is one of the catalogs.
        cluster: For a request that names none.

    Raises:
        ConfigError: If a field breaks its rule, or data name code.
        UnknownNameError: If a dataset is neither known nor described.
        CatalogError: If an inventory file cannot be read.
    """
    fields = dict(content)
    dataset, described = fields.get("dataset"), fields.pop("cluster", None)
    try:
        if isinstance(dataset, Mapping):
            del fields["dataset"]
            fields["facts"] = DescribedDataset.model_validate(dataset).facts()
        if isinstance(described, Mapping):
            places = DescribedCluster.model_validate(described).fields()
            twice = sorted(name for name in places if fields.get(name) is not None)
            if twice:
                raise ConfigError(
                    f"{', '.join(twice)} and a whole cluster are given. To fix: give only one of them."
                )
            fields |= places
        elif isinstance(described, Cluster | ClusterResources):
            fields["cluster"] = described
        elif described is not None:
            fields["cluster"] = read_inventory(described)
        elif not {"device", "node_type"} & fields.keys():
            fields["cluster"] = cluster
    except ValidationError as error:
        raise ConfigError(
            f"The request breaks its rules: {validation_problems(error)}. To fix: correct these fields of "
            "its dataset or cluster."
        ) from error
    request = PredictDDLRequest.of(fields)
    if not isinstance(request.model, Mapping):
        check_named_in_data(request.model)
    return request


def read_batch(
    path: str | Path,
    *,
    cluster: Cluster | ClusterResources | None = None,
    defaults: Mapping[str, Any] | None = None,
) -> list[PredictDDLRequest | Refusal]:
    """The requests of a file, in its order; what cannot be read is a `Refusal` with its line.

    Args:
        path: `.jsonl` (one JSON object a line; empty lines are skipped), or `.json`, `.yaml`, `.yml` with a
            list of them.
        cluster: For requests that name none.
        defaults: Fields of requests that leave them out.

    Raises:
        ConfigError: If the file cannot be read, holds no request, or is a list that cannot be parsed.
    """
    file = Path(path)
    try:
        # A broken byte spoils its own line only.
        text = read_input(file, errors="replace")
        items = _items(text, file.suffix.lower())
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(
            f"The batch file {str(path)!r} cannot be read: {' '.join(str(error).split())}. To fix: write one "
            "JSON object a line (.jsonl), or a list of requests (.json, .yaml)."
        ) from error
    if not items:
        raise ConfigError(f"The batch file {str(path)!r} holds no request. To fix: add one.")
    return [_read_item(line, item, cluster, defaults or {}) for line, item in items]


def _items(text: str, suffix: str) -> list[tuple[int, Any]]:
    """Line or place of each request, and its content; text where it is not yet parsed."""
    if suffix in (".json", ".yaml", ".yml"):
        content = read_yaml(text)  # YAML holds JSON
        listed = content.get("requests") if isinstance(content, Mapping) else content
        if not isinstance(listed, Sequence) or isinstance(listed, str):
            raise ValueError("it holds no list of requests")
        return list(enumerate(listed, start=1))
    lines = enumerate(text.split("\n"), start=1)
    return [(number, line) for number, line in lines if line.strip()]


def _read_item(
    line: int, item: Any, cluster: Cluster | ClusterResources | None, defaults: Mapping[str, Any]
) -> PredictDDLRequest | Refusal:
    name = f"line {line}"
    try:
        content = json.loads(item) if isinstance(item, str) else item
        if not isinstance(content, Mapping):
            raise ConfigError(f"{shown(content)} is not an object. To fix: write a JSON object.")
        name = printable(str(content.get("name") or name), longest=200)
        return read_request({**defaults, **content, "name": name}, cluster=cluster)
    except (json.JSONDecodeError, RecursionError) as error:
        reason = printable(" ".join(str(error).split()), longest=400)
        return Refusal(
            name=name, line=line, error=f"The line is not a JSON object ({reason}). To fix: correct it."
        )
    except Exception as error:  # noqa: BLE001 - one line never stops the others
        return Refusal(name=name, line=line, error=in_one_line(error))
