"""From a request to a `Job`: names looked up, gaps filled, what was filled in reported."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..barrier import is_data_only
from ..cache import memo
from ..cost.constants import constants
from ..cost.input import SYNTHETIC
from ..cost.job import Job
from ..cost.stacks import (
    Stack,
    StackProfile,
    framework_profile,
    get_stack_profile,
    is_framework,
    software_in,
    stack_name,
    usual_profile,
)
from ..diagnostics import Diagnostic, Diagnostics, Severity
from ..errors import CaptureError, ConfigError, UnknownNameError, shown
from ..hardware.catalog import devices_in_name, get_cluster, load_custom
from ..hardware.custom import hardware_beside, tables_text
from ..hardware.device import Cluster, Device
from ..hardware.inventory import ClusterResources
from ..precision.catalog import get_policy, parse_precision
from ..precision.policy import PrecisionPolicy
from ..precision.support import check_support, natural_precision
from ..workload.graph import OpGraph
from ..workload.hf_config import is_config_source
from ..workload.resolve import cautions_of, check_named_in_data, load_workload, usual_of
from ..workload.tuning import Adapter
from ..workload.workload import Workload
from .applies import check_applies
from .batch import held_weights, tokens_per_sample, with_batch
from .captured import capture_by_name, captured, captured_workload, sizes_with_a_field
from .dataset_files import file_of, is_file
from .dataset_rows import rows_of_dataset, with_dataset_rows
from .datasets import dataset_types, known_dataset
from .layout import layout_of, layout_remarks
from .lengths import with_lengths
from .method import METHOD_FIELDS, check_group, say_method, training_devices, with_method
from .practice import last_year
from .published import published_precision
from .question import question_of
from .schema import RequestFields
from .training import stated_adapter, with_frozen_parts
from .usual import usual_stack

DEFAULT_DEVICE = "A100-SXM4-80GB"
_SUPPORTED_AFTER_YEARS = 0.5
"""Software that supports a device well comes out this long after it."""
_TIMM_PREFIX = "timm:"
_FILE_SUFFIXES = (".json", ".onnx", ".pt2", ".py")
_OF_MODULES = ("example_inputs", "inputs", "forward", "loss")
_CLUSTER_FIELDS = {"device", "gpus", "nodes", "node_type", "intra_node", "inter_node", "network", "custom"}


def job_of_request(
    request: RequestFields, *, named_only: bool = False, workload: Workload | None = None
) -> Job:
    """The job that a request describes.

    Args:
        request: Validated fields.
        named_only: Take models from the catalogs only: nothing that data names is imported or run.
        workload: What the model is, where it is known already.

    Raises:
        UnknownNameError: Model, device, precision or stack that no catalog holds.
        ConfigError: A precision that the device cannot compute in.
        LayoutError: Degrees or batches that do not fit together.
        CaptureError: A model that cannot be turned into an operator graph.
    """
    found = Diagnostics()
    job = job_without_batch(request, found, named_only=named_only, workload=workload)
    request = with_dataset_rows(request, job, found)
    return completed(with_batch(job, request, found), request, found, named_only=named_only)


def job_without_batch(
    request: RequestFields,
    found: Diagnostics,
    *,
    named_only: bool = False,
    workload: Workload | None = None,
) -> Job:
    """The job with a micro batch of 1: all that does not depend on the batch; see `job_of_request`."""
    workload = workload or workload_of(request, named_only=named_only)
    cluster = cluster_of(request, found)
    layout = layout_of(request, workload, training_devices(workload, cluster), found)
    stack = stack_of(
        request, workload.family, cluster.device, found, usual=usual_stack_of(request, workload, cluster)
    )
    return Job(
        workload=workload,
        cluster=cluster,
        precision=precision_of(
            request.precision or assumed_precision(workload, cluster, found),
            *(cluster.device, found, stack, layout.weights_stage, workload.graph),
        ),
        layout=layout,
        stack=stack,
        scope=request.scope,
        stragglers=request.stragglers,
        given=request.model_fields_set,
    )


def assumed_precision(workload: Workload, cluster: Cluster, found: Diagnostics) -> str | None:
    """What a model of such a cluster was trained in, where that is published and is not the usual."""
    run = published_precision(workload, cluster)
    if run is None:
        return None
    found.assume(
        "precision",
        f"Precision not given: {run.precision} assumed, as {run.model} was trained in ({run.source}).",
    )
    return run.precision


def completed(job: Job, request: RequestFields, found: Diagnostics, *, named_only: bool = False) -> Job:
    """The job with its batch as its lengths and method make it, checked and with all remarks."""
    workload, cluster = job.workload, job.cluster
    job = with_lengths(
        job,
        request,
        lambda length: workload_of(request.changed(seq_len=length), named_only=named_only),
        found,
    )
    check_group(job, request)
    say_method(job, request, found)
    check_applies(request, job, found)
    placed, warnings = layout_remarks(job.layout, workload, cluster)
    found.assume("rank_order", *placed)
    found.warn("layout", *warnings)
    _report_length(request, workload, found)
    for old, new in request.old_names.items():
        found.warn("renamed-field", f"{old} is called {new} now; the old name goes with the next release.")
    first = Diagnostics()
    first.assume("model", *usual_of(request.model), *workload.assumptions)
    first.warn("model", *cautions_of(request.model), *workload.warnings)
    first.assume("cluster", *cluster.assumptions)
    return replace(job, diagnostics=(*first.items, *found.items))


def workload_of(request: RequestFields, *, named_only: bool = False) -> Workload:
    """The workload of a known name, of a configuration or of a model captured now, as it is trained."""
    adapter, said = stated_adapter(request)
    own = is_file(request.dataset)
    if own and named_only:
        raise ConfigError(
            f"dataset={shown(str(request.dataset))} is a file. The rule: only names are looked up here. To "
            "fix: samples= and mean_seq_len=."
        )

    def made(request: RequestFields) -> Workload:
        workload = _model_of(request, adapter, named_only=named_only)
        workload = with_frozen_parts(workload, request, adapter, said)
        if own:
            read = file_of(str(request.dataset))
            workload = replace(workload, dataset=read.name, dataset_samples=read.samples)
        return workload

    workload = made(request)
    rows = rows_of_dataset(request, workload)
    if rows is not None and rows.seq_len != workload.graph.seq_len:
        workload = made(request.changed(seq_len=rows.seq_len))

    def load(**changes: Any) -> Workload:
        plain = dict.fromkeys(METHOD_FIELDS)
        return workload_of(request.changed(**{**plain, **changes}), named_only=named_only)

    return with_method(workload, request, load)


def _model_of(request: RequestFields, adapter: Adapter | None, *, named_only: bool) -> Workload:
    model = request.model
    catalog: dict[str, Any] = {
        "seq_len": request.seq_len,
        "image_size": request.image_size,
        "sizes": {**request.sizes, **sizes_with_a_field(request)} or None,
        "task": request.task,
        "dataset": None if is_file(request.dataset) else request.dataset,
        "optimizer": request.optimizer,
        "strict": True,
        "adapter": adapter,
    }
    if isinstance(model, OpGraph):
        return captured_workload(model, request, adapter)
    if named_only or is_data_only():
        if not isinstance(model, Mapping):
            check_named_in_data(model)
            model = str(model)
        return load_workload(model, **catalog)
    if is_config_source(model):
        try:
            return _known_workload(request, model, catalog)
        except (UnknownNameError, CaptureError):
            if isinstance(model, Mapping) or importlib.util.find_spec("torch") is None:
                raise
    if isinstance(model, str | Path):
        model = str(model).removeprefix(_TIMM_PREFIX)
        if not (":" in model or model.endswith(_FILE_SUFFIXES)):
            try:
                return _known_workload(request, model, catalog)
            except UnknownNameError as unknown:
                return captured_workload(capture_by_name(model, request, unknown), request, adapter)
    return captured_workload(captured(model, request), request, adapter)


def _known_workload(request: RequestFields, model: Any, catalog: Mapping[str, Any]) -> Workload:
    """A model of the catalogs; what only a module has is refused.

    Raises:
        ConfigError: If the request states inputs, a method or a loss of it.
    """
    workload = load_workload(model, **catalog)
    for name in _OF_MODULES:
        if getattr(request, name) not in (None, []):
            raise ConfigError(
                f"{name} does not apply to {workload.name}, whose operators are known: only a "
                "module of your own (file.py:function, module:function, an nn.Module) has it. To fix: leave "
                "it out."
            )
    return workload


def cluster_of(request: RequestFields, found: Diagnostics) -> Cluster:
    """The cluster, with the device that was assumed when none was named.

    Raises:
        ConfigError: If a whole cluster is given and described as well, or has no devices.
    """
    device, given = request.device, request.cluster
    if given is not None:
        described = sorted(request.model_fields_set & _CLUSTER_FIELDS)
        if described:
            raise ConfigError(
                f"{', '.join(described)} and a whole cluster are given. To fix: give only one of them."
            )
        if isinstance(given, Cluster):
            return given
        found.assume("inventory", *given.notes)
        return given.cluster() if given.custom else _kept_cluster(given)
    custom: Path | Mapping[str, Any] | None = request.custom or _measured_hardware(request)
    if device is None and request.node_type is None and custom is not None and request.custom is None:
        device = next(iter(load_custom(custom).devices.values())).name
        found.assume(
            "device", f"Device not given: {device} assumed, on which {request.calibration} was measured."
        )
    if device is None and request.node_type is None:
        found.assume("device", f"Device not given: {DEFAULT_DEVICE} assumed.")
        device = DEFAULT_DEVICE
    gpus = request.gpus
    if device is not None and "gpus" not in request.model_fields_set:
        gpus = devices_in_name(device) or gpus
    links = (request.intra_node, request.inter_node, request.network)
    named = (device, gpus, request.nodes, request.node_type, *links)
    if isinstance(custom, Path):
        cluster = _cluster(custom, *named)  # the file may change
    else:
        cluster = _kept_cluster(None if custom is None else tables_text(custom), *named)
    if cluster.num_nodes == 1 and (stated := request.network or request.inter_node) and stated != "none":
        found.warn("network", f"The network {stated!r} is not used: the devices are on one node.")
    return cluster


def _measured_hardware(request: RequestFields) -> Path | None:
    """The device description beside the measured steps of a request, where it is of the device asked."""
    given = request.calibration
    beside = hardware_beside(given) if isinstance(given, str | Path) else None
    if beside is None:
        return None
    own = load_custom(beside)
    named = [name for name in (request.device, request.node_type) if name is not None]
    known = own.devices and (not named or any(own.find_device(n) or own.find_node_type(n) for n in named))
    return beside if known else None


def _cluster(
    custom: Path | Mapping[str, Any] | None,
    device: str | None,
    gpus: int,
    nodes: int | None,
    node_type: str | None,
    intra_node: str | None,
    inter_node: str | None,
    network: str | None,
) -> Cluster:
    return get_cluster(
        device=device,
        num_devices=gpus,
        num_nodes=nodes,
        node_type=node_type,
        intra_node=intra_node,
        inter_node=inter_node,
        network=network,
        custom=custom,
    )


@memo(1024)
def _kept_cluster(given: ClusterResources | str | None, *named: Any) -> Cluster:
    """One object per cluster, so that what is worked out for it is kept."""
    if isinstance(given, ClusterResources):
        return given.cluster()
    return _cluster(None if given is None else json.loads(given), *named)


def precision_of(
    name: str | Mapping[str, Any] | None,
    device: Device,
    found: Diagnostics,
    stack: Stack | None = None,
    zero_stage: int = 0,
    graph: OpGraph | None = None,
) -> PrecisionPolicy:
    """The policy of a name in any usual spelling; the natural one of the device where none is given.

    Args:
        name: As given; a mapping is a policy of the user's own, which says everything itself.
        device: What computes.
        found: Collects what had to be assumed.
        stack: Where the name leaves open how weights are held, its code decides.
        zero_stage: Sharding of the data-parallel state, which decides where the stack does not.
        graph: Operators of the model, which the rules of a user-defined policy name.

    Raises:
        UnknownNameError: If no policy has that name.
        ConfigError: If the device cannot compute in it, or its rules name what the model does not have.
    """
    if isinstance(name, Mapping):
        from ..precision.own import check_rules, policy_of

        policy = policy_of(name)
        if graph is not None and policy.ruled:
            check_rules(policy, graph)
        found.warn("precision", *check_support(policy, device))
        return policy
    if name is None:
        name = natural_precision(device)
        found.assume("precision", f"Precision not given: {name} assumed, as usual on {device.name}.")
    choice = parse_precision(name)
    if choice.assumption:
        found.items.append(Diagnostic("precision", Severity.ASSUMPTION, choice.assumption))
    variant = choice.variant
    if variant is None and stack is not None:
        variant = held_weights(choice.name, stack, zero_stage, found)
    policy = get_policy(choice.name, variant=variant)
    found.warn("precision", *check_support(policy, device))
    return policy


def usual_stack_of(request: RequestFields, workload: Workload, cluster: Cluster) -> str | None:
    """The stack that people use for what a request asks; None where it names one."""
    if request.stack is not None:
        return None
    # Neither batch nor length decides a stack, nor the number of devices, that a sweep may go through.
    question = question_of(request, workload, cluster)
    scale = question.scale if question.scale == "fleet" else "host"
    of_all = replace(question, samples=None, longest=None, dataset="", given=frozenset())
    return usual_stack(replace(of_all, scale=scale, num_devices=1))


def stack_of(
    request: RequestFields, family: str, device: Device, found: Diagnostics, *, usual: str | None = None
) -> Stack:
    """The software: the named stack, else what people use, else the usual one of the model's family.

    Versions are of the year that the request says, else of today, or the last ones of the stack, but never
    older than what first supports the device.
    """
    profile = stack_profile(request.stack or usual, request.framework, family, device)
    if request.stack is None and request.framework is None:
        found.assume("stack", f"Software not given: {profile.name} assumed (`precision-time list stacks`).")
    framework = None if request.framework is None else framework_profile(request.framework).framework
    if request.framework is not None and not is_framework(request.framework):
        found.assume("framework", f"Framework {request.framework} read as {framework}.")
    if request.stack is not None and (said := stack_name(request.stack)) is not None:
        brought = ", ".join(f"{name} {value}" for name, value in said.fields.items())
        read = f"read as {profile.name}" if said.name != profile.name else f"brings {brought}"
        found.assume("stack-name", f"{request.stack} {read}.")
        found.warn("stack-name", *filter(None, [said.approximate and f"{said.approximate}."]))
    elif request.stack is not None and software_in(request.stack)[1] is not None:
        found.assume("stack-name", f"{request.stack} read as {profile.name}.")
    _check_attention(request.attention, device)
    return profile.stack(
        framework=framework if request.stack is not None else None,
        framework_year=request.software or year_of_today(profile, device),
        compiler=request.compiler,
        channels_last=request.channels_last,
        fused_optimizer=request.fused_optimizer,
        unpadded_sequences=request.unpadded_sequences,
        chunked_loss=request.chunked_loss,
        real_input=_real_input(request),
        loader=request.loader,
        loader_cores=float(request.cpus or _inventory_cores(request.cluster)),
        attention=request.attention,
        arch=device.arch,
    )


def _inventory_cores(given: Cluster | ClusterResources | None) -> float:
    """Cores of the smallest host of an inventory, half of its threads; 0 where it does not say."""
    hosts = given.computing if isinstance(given, ClusterResources) else ()
    return min((float(host.cores or 0) / 2.0 for host in hosts), default=0.0)


def _real_input(request: RequestFields) -> bool | None:
    """Whether a loader feeds the step: naming one, or its cores, says so.

    Raises:
        ConfigError: If `real_input` says otherwise.
    """
    if request.loader is None and request.cpus is None:
        return request.real_input
    fed = request.loader != SYNTHETIC
    if request.real_input is not None and request.real_input is not fed:
        given = f"loader={request.loader}" if request.loader else f"cpus={request.cpus}"
        raise ConfigError(
            f"real_input={request.real_input} and {given} contradict each other: a loader feeds real input, "
            "synthetic input has none. To fix: leave out real_input."
        )
    return fed


def _check_attention(attention: str | None, device: Device) -> None:
    """Refuse a kernel that is not written for the device.

    Raises:
        ConfigError: FlashAttention on an architecture before Ampere.
    """
    if attention and attention.startswith("flash") and device.arch in constants("kernels")["without_flash"]:
        raise ConfigError(
            f"attention={attention} does not run on {device.name} ({device.arch}): it needs Ampere "
            "or newer. To fix: attention=memory-efficient or attention=math."
        )


def stack_profile(
    stack: str | None, framework: str | None, family: str, device: Device | None = None
) -> StackProfile:
    """The profile of a stack that is named, else of a framework, else of a device and a family of models.

    Raises:
        UnknownNameError: If no such stack or framework is known.
    """
    if stack is not None:
        return get_stack_profile(stack)
    if framework is not None:
        return framework_profile(framework)
    return usual_profile(family) if device is None else usual_profile(family, device.vendor, device.arch)


def year_of_today(profile: StackProfile, device: Device) -> float:
    """Decimal year of the software of a question that does not say it: today's."""
    return max(last_year(profile), device.release_year + _SUPPORTED_AFTER_YEARS)


def usual_year(profile: StackProfile, device: Device) -> float:
    """Decimal year of the software of a measurement that does not say it."""
    return max(profile.framework_year, device.release_year + _SUPPORTED_AFTER_YEARS)


def _report_small_images(request: RequestFields, workload: Workload, found: Diagnostics) -> None:
    """Whether small images of a data set that is named are enlarged, and what they would be else."""
    facts, side = known_dataset(request.dataset or ""), workload.graph.image_size
    small = max(kind.largest_side or 0 for kind in dataset_types().values())
    if facts is None or facts.side is None or side is None or request.image_size is not None:
        return
    if facts.side <= small < side:
        found.warn(
            "small-images",
            f"The images of {facts.name} have {facts.side} pixels; priced is {workload.name} on images "
            f"enlarged to {side}. To price them as they are: image_size={facts.side}.",
        )


def _report_length(request: RequestFields, workload: Workload, found: Diagnostics) -> None:
    """What was assumed of the length of the run.

    Raises:
        ConfigError: Tokens of a model that takes none.
    """
    if request.tokens is not None and tokens_per_sample(workload) is None:
        raise ConfigError(
            f"tokens={request.tokens}: {workload.name} takes no tokens. To fix: steps=, or epochs= and "
            "samples=."
        )
    _report_small_images(request, workload, found)
    if request.steps is not None or request.tokens is not None:
        return
    known = request.samples or workload.dataset_samples
    if request.samples is None and known:
        found.assume("dataset", f"Dataset: {workload.dataset}, {known:,} samples per epoch.")
    if request.epochs is None and known:
        found.assume("epochs", "Length of the run not given: one epoch.")
