"""Models that are captured now: a user's own, and names that do not ship; as workloads."""

from __future__ import annotations

import importlib.util
from typing import Any

from ..errors import BrokenPackageError, ConfigError, MissingExtraError, UnknownNameError
from ..plugins import plugins
from ..workload.families.tables import normalize
from ..workload.graph import OpClass, OpGraph
from ..workload.hf_config import is_absent_hub_id
from ..workload.resolve import is_refused, samples_of, sizes_that_apply
from ..workload.tuning import Adapter, with_adapter
from ..workload.workload import Workload
from .schema import RequestFields

_CONVOLUTIONS = (OpClass.CONV, OpClass.GROUPED_CONV, OpClass.DEPTHWISE_CONV)
_INSTALL_TO_CAPTURE = (
    "More names (timm, Hugging Face) are known with torch: pip install 'precision-time[capture]'."
)

_NOT_HERE = (
    "The Hugging Face hub is not asked, and the configuration of this id is not in its local cache. To fix: "
    "give the model's config.json, or your own module (file.py:object)."
)


def captured(model: Any, request: RequestFields) -> OpGraph:
    """The operators of a model that is captured now, once per process."""
    options = {
        "example_inputs": request.example_inputs, "inputs": tuple(request.inputs), "seq_len": request.seq_len,
        "image_size": request.image_size, "sizes": request.sizes, "forward": request.forward,
        "loss": request.loss, "trust": request.trust,
    }  # fmt: skip
    graphs = (capture.load()(model, **options) for capture in reversed(tuple(plugins("captures").values())))
    graph: OpGraph = next(each for each in graphs if each is not None)  # ours, the last, gives one or raises
    return graph


def capture_by_name(name: str, request: RequestFields, unknown: UnknownNameError) -> OpGraph:
    """A model that does not ship, captured if timm or transformers are installed and know it.

    Raises:
        UnknownNameError: `unknown`, if they are not or do not, if it is known that they cannot, or if the
            name is that of a family whose models are known.
    """
    # transformers would build the default configuration of such a type, which is nobody's model.
    of_family = any(normalize(near).startswith(f"{normalize(name)}-") for near in unknown.nearest)
    if is_refused(name) or of_family:
        raise unknown
    if is_absent_hub_id(name):
        raise unknown.with_hint(_NOT_HERE)
    if importlib.util.find_spec("torch") is None:
        raise unknown.with_hint(_INSTALL_TO_CAPTURE)
    try:
        return captured(name, request)
    except UnknownNameError:
        raise unknown from None
    except MissingExtraError:
        raise unknown.with_hint(_INSTALL_TO_CAPTURE) from None
    except BrokenPackageError as broken:
        raise unknown.with_hint(f"More names are known where this can be imported. {broken}") from broken


def sizes_with_a_field(request: RequestFields) -> dict[str, Any]:
    """Sizes of a sample that are fields of a request.

    Raises:
        ConfigError: If the model does not have them.
    """
    sizes = {"frames": request.frames, "audio_seconds": request.audio_seconds}
    sizes = {name: value for name, value in sizes.items() if value is not None}
    if sizes and isinstance(request.model, str):
        for name in sorted(sizes.keys() - sizes_that_apply(request.model, sizes).keys()):
            raise ConfigError(
                f"{name}={sizes[name]} does not apply to {request.model}. The rule: frames are of video "
                "models (wan2.1-1.3b ...), audio_seconds of models of raw audio (wav2vec2-base ...); Whisper "
                f"pads all audio to 30 s. To fix: leave out {name}."
            )
    return sizes


def captured_workload(graph: OpGraph, request: RequestFields, adapter: Adapter | None = None) -> Workload:
    """A workload around the graph of a user's own model."""
    sequences = graph.seq_len is not None
    for name, value in sizes_with_a_field(request).items():
        raise ConfigError(
            f"{name}={value} does not apply to {graph.name}: a captured model has the size of its example "
            f"input. To fix: leave out {name} and change the input."
        )
    if adapter is not None:
        graph = with_adapter(graph, adapter)
    optimizer = "adamw" if sequences or family_of(graph) != "cnn" else "momentum-sgd"
    assumed = (
        "" if request.optimizer else f"Optimizer not given: {optimizer} assumed, as usual for such a model."
    )
    return Workload(
        name=graph.name,
        graph=graph,
        family=family_of(graph),
        task=request.task,
        optimizer=request.optimizer or optimizer,
        sample_unit="sequence" if sequences else "sample",
        units_per_sample=float(graph.seq_len or 1),
        throughput_unit="tokens/s" if sequences else "samples/s",
        dataset=request.dataset or "",
        dataset_samples=samples_of(request.dataset or "", graph.seq_len),
        adapter=adapter.kind if adapter is not None else "",
        assumptions=tuple(filter(None, (*graph.notes.splitlines(), assumed))),
        warnings=tuple(graph.warnings.splitlines()),
    )


def family_of(graph: OpGraph) -> str:
    """The family whose kernels do most of the graph's work."""
    work: dict[OpClass, float] = {}
    for node in graph.nodes:
        work[node.op_class] = work.get(node.op_class, 0.0) + node.flops
    total = sum(work.values()) or 1.0
    if sum(work.get(op_class, 0.0) for op_class in _CONVOLUTIONS) > total / 2.0:
        return "cnn"
    if work.get(OpClass.RNN, 0.0) > total / 3.0:
        return "rnn"
    attention = [node for node in graph.nodes if node.op_class is OpClass.ATTENTION]
    if not attention:
        return "other"
    if graph.seq_len is None:
        return "vit"
    return "transformer-decoder" if any(node.causal for node in attention) else "transformer-encoder"
