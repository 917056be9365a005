"""What a request says that means nothing for this model, device or stack: refused, or told where harmless.

Nothing that is stated is dropped without a word. What an answer would be wrong with (a length that the model
does not have) is an error that names what would apply; what changes nothing because the job happens to be so
(a network of a job on one host) is a warning.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from ..cost.input import SYNTHETIC, feed_of
from ..cost.job import Job
from ..cost.memory import framework_memory
from ..diagnostics import Diagnostics
from ..errors import ConfigError, UnknownNameError
from ..parallel.layout import AXES, CpCommType, PipelineSchedule, Recompute
from ..workload.graph import OpClass, OpGraph
from ..workload.resolve import load_workload
from ..workload.workload import Workload
from .datasets import unreadable
from .practice import axes_said_of, is_told_apart, runs_on, stacks_on
from .question import kind_of_device
from .schema import RequestFields

_CODE = (".py", ".onnx", ".pt2", ".json")
_CONVOLUTIONS = frozenset({OpClass.CONV, OpClass.GROUPED_CONV, OpClass.DEPTHWISE_CONV})


class _Remark(NamedTuple):
    field: str
    says: str
    """What is wrong, and the remedy."""


def check_applies(request: RequestFields, job: Job, found: Diagnostics) -> None:
    """Refuse what does not apply to a job, and warn of what changes nothing.

    Raises:
        ConfigError: Of the first field that does not apply; names what would.
    """
    workload = job.workload
    if workload.largest is not None:
        workload = replace(workload, graph=workload.largest)
    for field, says in (*of_model(request, workload), *_of_stack(request, job), *_of_layout(request, job)):
        value = getattr(request, field)
        raise ConfigError(f"{field}={getattr(value, 'value', value)} does not apply: {says}")
    for field, says in _without_effect(request, job):
        found.warn("no-effect", f"{field} changes nothing: {says}")
    scores_alone = framework_memory(job.stack).selective == "attention"
    if (
        scores_alone
        and not job.layout.recompute_modules
        and job.layout.recompute is Recompute.SELECTIVE
        and job.stack.fused_attention
        and job.workload.graph.seq_len is not None
    ):
        found.warn(
            "no-effect",
            f"recompute=selective saves no memory: {job.stack.profile} recomputes the attention scores "
            "alone, and its fused attention keeps none. recompute=full recomputes layers.",
        )


def of_model(request: RequestFields, workload: Workload) -> Iterator[_Remark]:
    """Fields that say something of a model that it does not have."""
    graph, name = workload.graph, workload.name
    for field, other in (("seq_len", "image_size"), ("image_size", "seq_len")):
        if not length_applies(request, field, graph):
            has = getattr(graph, other)
            fits = "" if has is None else f" Its {other} is {has}: {other}= would apply."
            what = "sequences of another length" if field == "seq_len" else "images of another size"
            yield _Remark(field, f"{name} takes no {what}.{fits} To fix: leave it out.")
    if request.dataset is not None and (why := unreadable(request.dataset, workload)):
        yield _Remark("dataset", why)
    if request.unpadded_sequences and graph.seq_len is None:
        yield _Remark("unpadded_sequences", f"{name} takes no sequences. To fix: leave it out.")
    if request.example_inputs is not None and _is_known(request.model):
        yield _Remark("example_inputs", f"{name} is known by its name. To fix: leave it out.")


def _is_known(model: Any) -> bool:
    """Whether a model is a name of the catalogs or a graph, not code or a file that is captured now."""
    if isinstance(model, str):
        return ":" not in model and Path(model).suffix not in _CODE
    return isinstance(model, OpGraph | Mapping)


def length_applies(request: RequestFields, field: str, graph: OpGraph) -> bool:
    """Whether a stated `seq_len` or `image_size` means something for the model whose graph this is.

    Of a model of the catalogs that does not show it, twice the length is asked: it must take more work.
    """
    value = getattr(request, field)
    if value is None or value == getattr(graph, field):
        return True
    if isinstance(request.model, OpGraph):
        return False
    other = {"seq_len": request.seq_len, "image_size": request.image_size, field: 2 * value}
    try:
        longer = load_workload(request.model, sizes=request.sizes or None, task=request.task, **other)
    except (UnknownNameError, ConfigError, TypeError, ValueError):
        return True
    return longer.graph.forward_flops != graph.forward_flops


def _of_stack(request: RequestFields, job: Job) -> Iterator[_Remark]:
    """A stack that does not exist for the device, and axes that a stack does not have."""
    stack, device = job.stack.profile, job.cluster.device
    if request.stack is None:
        return
    if not runs_on(stack, device) and is_told_apart(stack):
        others = " or ".join(stacks_on(kind_of_device(device))[:3])
        yield _Remark("stack", f"{stack} is not made for {device.name}. To fix: --stack {others}.")
    if (has := axes_said_of(stack)) is None:
        return
    for axis in ("tp", "pp", "cp"):
        if getattr(job.layout, axis) > 1 and axis not in has:
            named = f"it has {', '.join(has)}" if has else "it has none"
            yield _Remark(
                axis, f"{stack} cannot cut a model up along {axis}; {named}. To fix: {axis}=1, or --zero 3."
            )


def _of_layout(request: RequestFields, job: Job) -> Iterator[_Remark]:
    """Options of axes that a job does not have, and lengths that contradict each other."""
    layout = job.layout
    if request.cp_comm_type is not CpCommType.RING and layout.cp == 1:
        yield _Remark("cp_comm_type", "no context parallelism. To fix: cp=2 or more, or leave it out.")
    if layout.pp == 1 and request.schedule not in (None, PipelineSchedule.ONE_F_ONE_B):
        yield _Remark("schedule", "no pipeline. To fix: pp=2 or more, or leave it out.")
    if layout.zero_stage and layout.data_parallel_engine != "ddp":
        yield _Remark(
            "data_parallel_engine",
            f"it shards nothing, got zero_stage={layout.zero_stage}. To fix: zero_stage=0.",
        )
    if request.input_rate is not None and (request.loader or request.cpus):
        other = "loader" if request.loader else "cpus"
        yield _Remark(other, "input_rate says what the loader delivers. To fix: give only one of them.")


def _without_effect(request: RequestFields, job: Job) -> Iterator[_Remark]:
    """What is stated and changes nothing in this job."""
    layout, cluster = job.layout, job.cluster
    stated, name = request.given_layout, job.workload.name
    nodes = job.workload.graph.nodes
    if request.channels_last and not any(node.op_class in _CONVOLUTIONS for node in nodes):
        yield _Remark("channels_last", f"{name} has no convolutions.")
    if request.attention is not None and not any(node.op_class is OpClass.ATTENTION for node in nodes):
        yield _Remark("attention", f"{name} has no attention.")
    if request.sequence_parallel and layout.tp == 1:  # Megatron-LM and NeMo switch it off themselves
        yield _Remark("sequence_parallel", "no tensor parallelism (tp=1).")
    if request.inter_node is not None and cluster.num_nodes == 1:
        yield _Remark("inter_node", "all devices are on one host.")
    if request.intra_node is not None and cluster.devices_per_node == 1:
        yield _Remark("intra_node", "every host has one device.")
    if request.zero_stage and layout.data_ranks == 1:
        yield _Remark("zero_stage", "there is one data-parallel rank, and nobody to share its states with.")
    if "data_parallel_engine" in stated and layout.data_ranks == 1:
        yield _Remark("data_parallel_engine", "there is one data-parallel rank.")
    if "rank_order" in stated and sum(getattr(layout, axis) > 1 for axis in AXES) < 2:
        yield _Remark("rank_order", "it orders axes of degree above 1, and there are fewer than two.")
    for field in ("expert_nodes", "expert_overlap"):
        if field in stated and getattr(request, field) and layout.ep == 1:
            yield _Remark(field, "no expert parallelism (ep=1), so that no token is sent anywhere.")
    for field in ("loader", "cpus"):
        if getattr(request, field) in (None, SYNTHETIC):
            continue
        feed = feed_of(job.workload, cluster, job.stack)
        if feed.core_s == 0.0:
            what = "is not known" if job.workload.dataset and not feed.kind else "costs next to nothing"
            yield _Remark(field, f"what preparing a sample of this model takes {what}.")
    if request.trust and not str(request.model).endswith(".pt2"):
        yield _Remark("trust", "it is about .pt2 files.")
    if request.task and _task_is_a_label(request, job.workload):
        yield _Remark("task", f"{name} is trained the same way in any task of that name.")


def _task_is_a_label(request: RequestFields, workload: Workload) -> bool:
    """Whether a task changes neither the graph nor the optimizer of a model of the catalogs."""
    asked: dict[str, Any] = {
        name: getattr(request, name) for name in ("seq_len", "image_size", "dataset", "optimizer")
    }
    try:
        usual = load_workload(request.model, sizes=request.sizes or None, **asked)
    except (UnknownNameError, ConfigError, TypeError, ValueError):
        return False
    same = usual.graph is workload.graph and usual.optimizer == workload.optimizer
    return same and usual.task != workload.task
