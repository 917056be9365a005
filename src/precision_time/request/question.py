"""What of a request decides its practice: family, method, kind of machine, scale, lengths."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ..cache import data
from ..cost.stacks import framework_profile, get_stack_profile
from ..hardware.device import Cluster, Device
from ..records import dataclass
from ..workload.families.tables import dataset_table, normalize
from ..workload.graph import OpClass
from ..workload.workload import Workload
from .datasets import type_of
from .schema import RequestFields
from .votes import classes_table, practice_file

_CONVOLUTIONS = frozenset({OpClass.CONV, OpClass.GROUPED_CONV, OpClass.DEPTHWISE_CONV})

_LAYOUT_DEGREES = ("tp", "pp", "cp")

SPREADS_TABLES = frozenset({"recsys"})
"""Families whose tables lie on different devices already: no trainer gathers them, so none is sharded."""
SCALES = ("one", "host", "cluster", "fleet")
"""Numbers of devices as people have them: practice counts the less, the more steps lie between."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Question:
    """What of a question decides its practice."""

    family: str
    """vision, language, encoder ... (`families` of classes.toml)."""
    family_of_model: str = "other"
    """`Workload.family`."""
    method: str
    """pretrain, full, lora, qlora, preference or rl."""
    device: Device
    kind: str
    """gaming, workstation, small-cloud, data-center, amd, tpu ..."""
    chip: str = ""
    """Of the device, whatever its board: A100, H100, RTX4090 ..."""
    num_devices: int = 1
    scale: str = "one"
    """one, host, cluster or fleet."""
    room: str = "roomy"
    """roomy, or crowded where the states of a replica take most of a device's memory."""
    year: float | None = None
    """Decimal year of the software; None for today."""
    stack: str | None = None
    """Name of the profile, where it is said."""
    frameworks: tuple[str, ...] = ()
    """Framework, where that alone is said."""
    dataset: str = ""
    """Of lengths.toml; empty for any other."""
    longest: int | None = None
    """Tokens of a sample, where they are said."""
    samples: float | None = None
    """Samples of a step over all devices, where they are said."""
    convolutions: bool = False
    attention: bool = False
    cut_up: bool = False
    """Whether tensor, pipeline or context degrees are said."""
    given: frozenset[str] = frozenset()
    """Request fields that are said, those of the layout among them."""

    def _key(self) -> tuple[Any, ...]:
        own = tuple(getattr(self, name) for name in self.__dataclass_fields__ if name != "device")
        device = self.device
        return (device.name, device.arch, device.vendor, device.memory_bytes, device.release_year, *own)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Question) and other._key() == self._key()

    def __hash__(self) -> int:
        return hash(self._key())


def question_of(request: RequestFields, workload: Workload, cluster: Cluster) -> Question:
    """The question that a request asks."""
    given = request.model_fields_set | ({"zero_stage"} if request.says_sharding else set())
    like = cluster.reference
    if like is not None and (cluster.node_type, cluster.inter_node) == (like.node_type, like.inter_node):
        given -= {"custom"}  # a file that says no links of its own
    graph = workload.graph
    devices, cut_up = cluster.num_devices, any(getattr(request, name) > 1 for name in _LAYOUT_DEGREES)
    samples = request.global_batch_size
    if request.global_batch_tokens is not None and graph.seq_len:
        samples = request.global_batch_tokens / graph.seq_len
    elif request.batch_size is not None and samples is None:
        samples = request.batch_size * request.num_microbatches * devices
    return Question(
        family=family_of(workload.family),
        family_of_model=workload.family,
        method=method_of(request, workload),
        device=cluster.device,
        kind=kind_of_device(cluster.device),
        chip=(cluster.device.base or cluster.device.name).split("-", maxsplit=1)[0],
        num_devices=devices,
        scale=scale_of(devices, cluster.num_nodes),
        room=room_of(workload, cluster.device),
        year=request.software,
        stack=None if request.stack is None else get_stack_profile(request.stack).name,
        frameworks=() if request.framework is None else (framework_profile(request.framework).framework,),
        dataset=_known_lengths(request.dataset or ""),
        longest=request.seq_len,
        samples=samples,
        convolutions=any(node.op_class in _CONVOLUTIONS for node in graph.nodes),
        attention=any(node.op_class is OpClass.ATTENTION for node in graph.nodes),
        cut_up=cut_up,
        given=given,
    )


def family_of(family: str) -> str:
    """The family in which practice is told apart, of one of `Workload.family`.

    >>> family_of("moe"), family_of("vit")
    ('language', 'vision')
    """
    families: Mapping[str, str] = classes_table()["families"]
    return families.get(family, families["other"])


def method_of(request: RequestFields, workload: Workload) -> str:
    """How a request trains: rl, preference, lora, qlora, full (fine-tuning) or pretrain."""
    if request.method in ("grpo", "ppo"):
        return "rl"
    if request.method in ("dpo", "reward", "distill"):
        return "preference"
    if workload.adapter:
        return "qlora" if workload.adapter.startswith("q") else "lora"
    if (said := method_in_words(request.task or "")) != "pretrain":
        return said
    known_set = dataset_table().get(normalize(request.dataset or ""))
    name = request.dataset or "" if known_set is None else known_set.name
    tunes = request.method == "sft" or type_of(name, "") == "fine-tuning"
    known = _lengths_table().get(_known_lengths(request.dataset or ""), {})
    return "full" if tunes or known.get("method") == "full" else "pretrain"


def method_in_words(task: str) -> str:
    """The method that a task is called by.

    >>> method_in_words("squad-finetune"), method_in_words("lora-finetune"), method_in_words("imagenet-train")
    ('full', 'lora', 'pretrain')
    """
    words = task.lower()
    for row in classes_table()["method"]:
        if any(word in words for word in row["words"]):
            return str(row["name"])
    return "pretrain"


def kind_of_device(device: Device) -> str:
    """The kind of people's machine that a device is in.

    >>> from precision_time.hardware.catalog import get_device
    >>> [kind_of_device(get_device(name)) for name in ("RTX4090", "A100", "T4", "TPUv4", "A6000")]
    ['gaming', 'data-center', 'small-cloud', 'tpu', 'workstation']
    """
    name = device.base or device.name
    return next(
        str(row["name"])
        for row in classes_table()["kind"]
        if row.get("vendor", device.vendor) == device.vendor
        and device.arch.startswith(tuple(row.get("archs", [""])))
        and re.search("|".join(row.get("names", [""])), name)
    )


def scale_of(devices: int, nodes: int) -> str:
    """One device, a host, a cluster, or a fleet: a cluster that only those have who pretrain large models."""
    if devices >= classes_table()["fleet"]["devices"]:
        return "fleet"
    return "cluster" if nodes > 1 else "host" if devices > 1 else "one"


def room_of(workload: Workload, device: Device) -> str:
    """Whether parameters, gradients and states of a replica leave room on a device."""
    rule = classes_table()["room"]
    trained = workload.graph.trainable_params
    frozen = max(workload.graph.params - trained, 0.0)
    quantized = workload.adapter.startswith("q")
    held = trained * rule["trained_bytes_per_param"]
    held += frozen * rule["quantized_bytes_per_param" if quantized else "frozen_bytes_per_param"]
    return "crowded" if held > rule["crowded_share"] * device.memory_bytes else "roomy"


def lengths_of_dataset(dataset: str) -> Mapping[str, Any]:
    """What lengths.toml says of a data set in any usual spelling, with its `name`; empty where nothing.

    >>> lengths_of_dataset("tatsu-lab/alpaca")["mean_tokens"]
    125
    """
    name = _known_lengths(dataset)
    return {**_lengths_table()[name], "name": name} if name else {}


def _known_lengths(dataset: str) -> str:
    """The name in lengths.toml of a data set in any usual spelling; empty where it is not there."""
    known, named = dataset_table().get(spelling := normalize(dataset)), _length_names()
    return named.get(spelling) or named.get("" if known is None else normalize(known.name), "")


@data
def _length_names() -> Mapping[str, str]:
    """Names in lengths.toml by all their spellings."""
    rows = _lengths_table().items()
    return {normalize(each): name for name, row in rows for each in (name, *row.get("aliases", ()))}


def _lengths_table() -> Mapping[str, Any]:
    table: Mapping[str, Any] = practice_file("lengths")["dataset"]
    return table
