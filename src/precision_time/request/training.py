"""What of a model a request trains: adapters and frozen parts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ..errors import ConfigError
from ..workload.graph import EXPERT_PRODUCT, OpGraph
from ..workload.resolve import adapter_in_name
from ..workload.roles import heads_of
from ..workload.tuning import Adapter, adapter_of, with_frozen
from ..workload.workload import Workload
from .schema import RequestFields


def stated_adapter(request: RequestFields) -> tuple[Adapter | None, str]:
    """The adapters that a request names, by option or in the model's name, and in words what was assumed.

    None where it names none, or where the name alone does, which the model tables read.

    Raises:
        ConfigError: If rank or targets are given without adapters, or two kinds of them.
    """
    rank = request.lora_rank or request.sizes.get("lora_rank")
    targets = request.lora_targets or request.sizes.get("lora_targets")
    in_name = adapter_in_name(request.model) if isinstance(request.model, str) else ""
    if request.adapter is not None and in_name not in ("", request.adapter):
        raise ConfigError(
            f"adapter={request.adapter} and the model {request.model} contradict each other. To fix: leave "
            "out one of them."
        )
    options = {"lora_rank": request.lora_rank, "lora_targets": request.lora_targets}
    given = [name for name, value in options.items() if value is not None]
    kind = request.adapter or (in_name if given else "")
    if not kind:
        if given:
            raise ConfigError(
                f"{given[0]}={options[given[0]]} changes nothing without adapters. The rule: adapter says "
                "which are trained. To fix: adapter=lora, qlora, qlora8, dora or qdora."
            )
        return None, ""
    return adapter_of(kind, int(rank) if rank else None, targets)


def with_frozen_parts(
    workload: Workload, request: RequestFields, adapter: Adapter | None, said: str
) -> Workload:
    """The workload as it is trained: named by its adapters, without gradients for frozen parts."""
    if adapter is not None:
        beside = [text for text in (said, *_trained_or_bare(workload.graph, adapter)) if text]
        named = workload.name.endswith(f"-{adapter.kind}")
        workload = replace(
            workload,
            name=workload.name if named else f"{workload.name}-{adapter.kind}",
            task=workload.task if request.task else f"finetune-{adapter.kind}",
            assumptions=(*workload.assumptions, *beside),
        )
    if request.freeze is None:
        return workload
    patterns = tuple(part.strip() for part in request.freeze.split(",") if part.strip())
    graph = with_frozen(workload.graph, patterns)
    share = graph.trainable_params / max(graph.params, 1.0)
    said = f"Frozen: {', '.join(patterns)}; {graph.trainable_params:,.0f} parameters trained ({share:.1%})."
    return replace(workload, graph=graph, assumptions=(*workload.assumptions, said))


def _trained_or_bare(graph: OpGraph, adapter: Adapter) -> Iterator[str]:
    """What adapters leave as it was: a task's head is trained, experts are frozen without factors."""
    head = sum(graph.nodes[index].param_elems for index in heads_of(graph))
    if head:
        yield f"The head is trained beside the adapters: {head:,.0f} parameters."
    if any(node.op == EXPERT_PRODUCT for node in graph.nodes) and {"gate", "up", "down"} & set(
        adapter.targets
    ):
        yield "Experts and their routers carry no adapters."
