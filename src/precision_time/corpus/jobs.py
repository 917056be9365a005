"""A Measurement as a `Request`: a measured run takes the same way to its `Job` as any request."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from ..cache import memo
from ..cost.job import Job
from ..cost.optimizer import canonical_optimizer
from ..diagnostics import Diagnostics
from ..errors import CorpusError, PrecisionTimeError, UnknownNameError
from ..hardware.catalog import find_node_type, get_cluster, get_device, parse_network
from ..hardware.links import fabric_name
from ..precision.catalog import known_precisions, known_variants
from ..request.applies import length_applies
from ..request.layout import fields_of
from ..request.request import Request
from ..request.resolve import cluster_of, precision_of, workload_of
from ..workload.graph import OpGraph
from ..workload.resolve import is_known_model, sizes_that_apply
from ..workload.workload import Workload
from .measurement import Measurement
from .rules import load_table

_OF_MODEL = ("model", "seq_len", "sizes", "task", "dataset", "optimizer")
"""Fields of a measurement that say what is trained."""
_REPORTED = frozenset({"gmacs", "macts", "train_mem_gb", "model_size_gb"})
"""Sizes that say something of the model without shaping it."""
_LIMITS = frozenset({"max_source_length", "max_target_length", "max_seq_len", "max_len"})
"""Longest samples allowed: they shape the step only where its real length is unknown."""


_OTHER_LAYERS = frozenset({"hybrid", "mixer"})
"""Sizes that say that the layers are not those of a decoder: the others describe no model by themselves."""

_AS_NAMED = {name: "autocast" for name in known_precisions() if "autocast" in known_variants(name)}
"""The variant that is the policy itself: the importer decides, so that the stack of a request does not."""


class UnsupportedRow(CorpusError):  # noqa: N818 - the row is what is unsupported
    """A measurement that cannot be priced. `reason` is short and the same for similar rows."""

    def __init__(self, reason: str, detail: str = "") -> None:
        self.reason = reason
        super().__init__(f"{reason}: {detail}" if detail else reason)


def request_of(
    measurement: Measurement,
    *,
    hardware: Path | Mapping[str, Any] | None = None,
    graph: OpGraph | None = None,
) -> Request:
    """The configuration that `measurement` timed, as a request.

    Raises:
        UnsupportedRow: If the row has no step of a known batch, or its degrees do not fill its devices.
    """
    layout = measurement.layout
    if layout is None:
        raise UnsupportedRow("batch of a step not known", measurement.quality_reason)
    if layout.world_size != measurement.num_devices:
        raise UnsupportedRow("layout does not fill the devices")
    stack = measurement.stack
    hosts = _hosts_of(measurement)
    variant = measurement.precision_variant or _AS_NAMED.get(measurement.precision, "")
    request = Request.of(
        {
            **_model_fields({name: getattr(measurement, name) for name in _OF_MODEL}),
            **({} if graph is None else {"model": graph, "sizes": None}),
            "custom": hardware,
            "samples": measurement.dataset_samples,
            "device": measurement.device,
            "gpus": measurement.num_devices,
            "nodes": measurement.num_nodes,
            "node_type": hosts.node_type,
            "intra_node": hosts.intra_node or None,
            "inter_node": hosts.inter_node or None,
            "precision": f"{measurement.precision}:{variant}" if variant else measurement.precision,
            "batch_size": layout.micro_batch_size,
            "stack": stack.profile,
            "framework": stack.framework,
            "software": stack.framework_year,
            "compiler": stack.compiler,
            "channels_last": stack.channels_last,
            "fused_optimizer": stack.fused_optimizer,
            "unpadded_sequences": stack.unpadded_sequences,
            "real_input": stack.real_input,
            "attention": stack.attention or None,
            "scope": measurement.scope,
            # The run happened, so its framework could split the model that way.
            **fields_of(layout), "uneven": True,
        }
    )  # fmt: skip
    return _without_lengths_of_the_run(request)


def job_of(
    measurement: Measurement,
    *,
    hardware: Path | Mapping[str, Any] | None = None,
    graph: OpGraph | None = None,
) -> Job:
    """The configuration that `measurement` timed, ready to be priced; arguments as `request_of`.

    Raises:
        UnsupportedRow: If the row has no step of a known batch, its model or device is unknown, or
            its device cannot run its precision.
    """
    request = request_of(measurement, hardware=hardware, graph=graph)
    try:
        job = request.resolve(named_only=True)
    except PrecisionTimeError as error:
        raise unsupported(request, error) from error
    found = Diagnostics()
    notes = (*_optimizer(measurement.optimizer)[1], *_hosts_of(measurement).notes)
    found.assume("row", *measurement.assumptions, *notes)
    return replace(job, diagnostics=(*found.items, *job.diagnostics))


def row_workload(stated: Mapping[str, Any]) -> Workload:
    """The workload of a row before the rest of it is known.

    Raises:
        UnsupportedRow: If the model is not known.
    """
    try:
        return workload_of(Request.of(_model_fields(stated)), named_only=True)
    except PrecisionTimeError as error:
        raise UnsupportedRow("model not known", f"{stated['model']}: {error}") from error


def _model_fields(row: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a request that say what is trained."""
    skipped = _REPORTED | {"seq_len"} | (_LIMITS if row["seq_len"] is not None else set())
    stated = {
        name: value
        for name, value in row["sizes"].items()
        if name not in skipped and isinstance(value, int | float | str | list)
    }
    if not _OTHER_LAYERS.isdisjoint(stated) and not is_known_model(row["model"]):
        raise UnsupportedRow("model not known", f"{row['model']}: its layers are of several kinds")
    if row["model"] in load_table("unsized")["models"] and not stated:
        raise UnsupportedRow("model not known", f"{row['model']}: its size is not stated")
    image_size = stated.pop("image_size", None)
    return {
        "model": row["model"],
        "sizes": sizes_that_apply(row["model"], stated) or None,
        "seq_len": row["seq_len"],
        "image_size": int(image_size) if isinstance(image_size, int | float) else None,
        "task": row["task"] or None,
        "dataset": _one_value(row["dataset"]),
        "optimizer": _optimizer(row["optimizer"])[0] or None,
    }


def _one_value(text: str) -> str | None:
    """A source's words without commas, which stand between several values of a field; None of nothing."""
    return text.replace(",", "") or None


def _without_lengths_of_the_run(request: Request) -> Request:
    """Without a length that a row states and its model does not have: it says something of the run alone."""
    stated = [name for name in ("seq_len", "image_size") if getattr(request, name) is not None]
    try:
        graph = workload_of(request, named_only=True).graph
    except PrecisionTimeError:
        return request
    foreign = [name for name in stated if not length_applies(request, name, graph)]
    if not foreign:
        return request
    return Request.of({name: value for name, value in request.given().items() if name not in foreign})


class _Hosts(NamedTuple):
    """What a row says of its hosts and links, as far as its words mean something."""

    node_type: str | None
    intra_node: str
    inter_node: str
    notes: tuple[str, ...]
    """Which words mean nothing."""


def _hosts_of(row: Measurement) -> _Hosts:
    return _read_hosts(row.device, row.num_devices, row.num_nodes, row.system, row.intra_node, row.inter_node)


@memo(8192)
def _read_hosts(
    device: str, num_devices: int, num_nodes: int, system: str, intra_node: str, inter_node: str
) -> _Hosts:
    """Nobody wrote a row to be understood by this package.

    Its words for links may fall back to the links of the node type, which is refused to a user. The system is
    a node type only where that holds the row's devices.
    """
    words = (intra_node, inter_node)
    notes: tuple[str, ...] = ()
    try:
        fabric = fabric_name(intra_node, get_device(device))
    except UnknownNameError:  # The device is reported, not the link.
        pass
    else:
        known = (fabric is not None or not intra_node, not inter_node or parse_network(inter_node).known)
        notes = tuple(
            f"Link {word!r} of the row is not known: the node type's is taken."
            for word, means in zip(words, known, strict=True)
            if not means
        )
        intra_node, inter_node = (word if means else "" for word, means in zip(words, known, strict=True))
    return _Hosts(
        _node_type(device, num_devices, num_nodes, system, intra_node, inter_node),
        intra_node, inter_node, notes,
    )  # fmt: skip


def unsupported(request: Request, error: PrecisionTimeError) -> UnsupportedRow:
    """Which part of a request of the catalogs an error is of."""
    found = Diagnostics()
    try:
        workload_of(request, named_only=True)
    except PrecisionTimeError:
        return UnsupportedRow("model not known", f"{request.model}: {error}")
    try:
        cluster = cluster_of(request, found)
    except UnknownNameError:
        return UnsupportedRow("device not known", str(error))
    except PrecisionTimeError:
        return UnsupportedRow("cluster is invalid", str(error))
    try:
        precision_of(request.precision, cluster.device, found)
    except PrecisionTimeError:
        return UnsupportedRow("precision not supported", str(error))
    return UnsupportedRow("layout is invalid", str(error))


def _optimizer(stated: str) -> tuple[str, tuple[str, ...]]:
    """The optimizer to price, empty for the model's usual one, and what was assumed if it is not known."""
    if stated in ("", "none"):
        return "", ()
    try:
        return canonical_optimizer(stated), ()
    except UnknownNameError:
        return "", (f"Optimizer {stated!r} has no cost formula: the model's usual one is priced.",)


def _node_type(
    device: str, num_devices: int, num_nodes: int, system: str, intra_node: str, inter_node: str
) -> str | None:
    """The node type that a row's system is, where it holds the row's devices."""
    node = find_node_type(system) if system else None
    if node is None:
        return None
    try:
        get_cluster(
            device=device,
            num_devices=num_devices,
            num_nodes=num_nodes,
            node_type=node.name,
            intra_node=intra_node or None,
            inter_node=inter_node or None,
        )
    except PrecisionTimeError:
        return None
    return node.name
