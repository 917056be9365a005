"""Requests as people write them: a mapping, or a batch file with one JSON object a line or a list."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from math import prod
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from ...errors import ConfigError, in_one_line, printable, shown, validation_problems
from ...hardware.inventory import MOST_NODES, ClusterResources, NodeResources, resources
from ...hardware.inventory_file import read_inventory
from ...io import read_yaml
from ...workload.resolve import check_named_in_data
from .columns import PRECISION
from .contract import Refusal, Request
from .datasets import DatasetFacts, dataset_facts

Positive = Annotated[float, Field(gt=0, lt=1e13, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=1, le=10_000_000)]


class _Sheet(BaseModel):
    model_config = ConfigDict(extra="forbid")


class DatasetSheet(_Sheet):
    """A data set of the caller's own; what is left out is taken from a known one of that name."""

    name: str
    samples: int | None = None
    classes: int | None = None
    shape: list[Count] | None = None
    """[channels, height, width] of an image."""
    length: Count | None = None
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


class ClusterSheet(_Sheet):
    """A cluster in place of an inventory file."""

    device: str
    num_nodes: Annotated[int, Field(le=MOST_NODES)] = 1
    devices_per_node: Annotated[int, Field(le=65536)] = 1
    intra_node: str = ""
    inter_node: str = ""
    custom: str = ""

    def collected(self) -> ClusterResources:
        """As the collectors give it."""
        count = max(self.devices_per_node, 0)
        return resources(
            (
                NodeResources(name=f"node {place}", reported_device=self.device, num_devices=count)
                for place in range(1, self.num_nodes + 1)
            ),
            source="the request",
            intra_node=self.intra_node,
            inter_node=self.inter_node,
            custom=self.custom,
        )


class RequestSheet(_Sheet):
    """One request."""

    model: str | dict[str, Any]
    batch_size: Positive
    cluster: ClusterSheet | str | None = None
    """Its description, or an inventory file; None for the one given with the batch."""
    dataset: DatasetSheet | str | None = None
    epochs: Positive = 1.0
    precision: str = "fp32"
    num_micro_batches: Count = 1
    seq_len: Count | None = None
    image_size: Count | None = None
    sizes: dict[str, float | int | str] = {}
    task: str = ""
    stack: str | None = None
    variant: str = PRECISION
    regressor: str | None = None
    version: Count | None = None
    name: str = ""

    @model_validator(mode="after")
    def _model_is_named(self) -> RequestSheet:
        if not self.model:
            raise ValueError("model is empty")
        return self


def read_request(
    content: Mapping[str, Any], *, cluster: ClusterResources | None = None, is_data: bool = True
) -> Request:
    """The request of a mapping out of JSON or YAML.

    Args:
        content: See `RequestSheet`.
        cluster: For a request that names none.
        is_data: Whether it was read from a file; only a request typed by the caller may name code or files as
            its model.

    Raises:
        ConfigError: If a field breaks a rule, all of which are named, no cluster is given, or data names
            code.
        UnknownNameError: If a data set is neither known nor described.
        CatalogError: If an inventory file cannot be read.
    """
    try:
        sheet = RequestSheet.model_validate(content)
    except ValidationError as error:
        raise ConfigError(
            f"The request breaks its rules: {validation_problems(error)}. To fix: give at least model, "
            "batch_size and cluster."
        ) from error
    if is_data:
        check_named_in_data(sheet.model)
    given = sheet.cluster
    if isinstance(given, ClusterSheet):
        found: ClusterResources | None = given.collected()
    else:
        found = read_inventory(given) if given else cluster
    if found is None:
        raise ConfigError(
            "The request names no cluster. To fix: add cluster: {device: ..., num_nodes: ..., "
            "devices_per_node: ...}, or an inventory file."
        )
    plain = sheet.model_dump(exclude={"cluster", "dataset"})
    dataset = sheet.dataset.facts() if isinstance(sheet.dataset, DatasetSheet) else sheet.dataset
    return Request(cluster=found, dataset=dataset, **plain)


def read_batch(
    path: str | Path, *, cluster: ClusterResources | None = None, defaults: Mapping[str, Any] | None = None
) -> list[Request | Refusal]:
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
        text = file.read_text(encoding="utf-8", errors="replace")
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
    line: int, item: Any, cluster: ClusterResources | None, defaults: Mapping[str, Any]
) -> Request | Refusal:
    try:
        content = json.loads(item) if isinstance(item, str) else item
        if not isinstance(content, Mapping):
            raise ValueError(f"{shown(content)} is no object")
    except (ValueError, RecursionError) as error:
        said = f"The line is no JSON object ({printable(str(error), longest=400)}). To fix: correct it."
        return Refusal(name=f"line {line}", line=line, error=" ".join(said.split()))
    name = printable(str(content.get("name") or f"line {line}"), longest=200)
    try:
        return read_request({**defaults, **content, "name": name}, cluster=cluster)
    except Exception as error:  # noqa: BLE001 - one line never stops the others
        return Refusal(name=name, line=line, error=in_one_line(error))
