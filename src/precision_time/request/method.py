"""The training method of a request: which other models run beside the update, and what is generated."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from ..cost.job import Job
from ..diagnostics import Diagnostics
from ..errors import ConfigError
from ..workload.graph import OpGraph
from ..workload.method import Generation, Method, cached_elems, can_generate, one_token, with_scalar_head
from ..workload.resolve import ADAPTER_SIZES, adapter_in_name
from ..workload.tuning import Adapter, with_adapter, without_training
from ..workload.workload import Workload
from .schema import RequestFields

DEFAULT_TOKENS, DEFAULT_GROUP = 256, 8
"""Of an answer, and answers per prompt: `max_completion_length` and `num_generations` of TRL's GRPOConfig."""
_OPTIONS = {
    "reference": ("dpo", "grpo", "ppo"),
    "teacher": ("distill",),
    "generate_tokens": ("grpo", "ppo"),
    "group_size": ("grpo",),
}
"""Fields that belong to some methods."""
_LENGTHS = ("mean_seq_len", "packing", "padding_share")
_SEQUENCES = ("dpo", "reward", "grpo", "ppo")
_GENERATING = ("grpo", "ppo")
Load = Callable[..., Workload]


def with_method(workload: Workload, request: RequestFields, load: Load) -> Workload:
    """The workload with the parts that the method adds.

    Args:
        workload: Of the policy, the student or the reward model that is trained.
        request: What is said of the method.
        load: The workload of the same request with other values.

    Raises:
        ConfigError: If an option belongs to another method, or the model cannot do what the method needs.
    """
    method = request.method
    for name, methods in _OPTIONS.items():
        if getattr(request, name) is not None and method not in methods:
            raise ConfigError(
                f"{name}={getattr(request, name)} does not apply to method={method or 'sft'}. The rule: it "
                f"belongs to {' and '.join(methods)}. To fix: method={methods[0]}, or leave out {name}."
            )
    if method is None or method == "sft":
        return workload
    if request.anchors:
        raise ConfigError(
            f"anchors and method={method} are given. The rule: an anchor is a plain training step. To fix: "
            "leave out one of them."
        )
    lengths = [name for name in _LENGTHS if getattr(request, name) is not None]
    if method in _GENERATING and lengths:
        raise ConfigError(
            f"{lengths[0]} does not apply to method={method}. The rule: its sequences are a prompt and "
            f"generate_tokens. To fix: leave out {lengths[0]}."
        )
    graph = workload.graph
    if method in _SEQUENCES and workload.sample_unit != "sequence":
        raise ConfigError(
            f"method={method} does not apply to {workload.name}. The rule: it compares sequences of tokens. "
            "To fix: a language model, or method=distill."
        )
    if method == "distill":
        return _with(workload, Method(name=method, **_beside("teacher_s", _teacher(workload, request, load))))
    if method == "reward":
        scored = replace(workload, graph=with_scalar_head(graph))
        return _with(scored, Method(name=method, rows_per_sample=2))
    reference = _reference(workload, request, load)
    copies = () if _shares_base(request, workload) else (reference,)
    if method == "dpo":
        return _with(
            workload,
            Method(name=method, rows_per_sample=2, forward=(("reference_s", reference),), held=copies),
        )
    generation = _generation(workload, request, load)
    if method == "grpo":
        return _with(
            workload,
            Method(name=method, forward=(("reference_s", reference),), held=copies, generation=generation),
        )
    critic = with_scalar_head(graph)
    scorer = without_training(critic)
    return _with(
        workload,
        Method(
            name=method,
            forward=(("reference_s", reference), ("reward_model_s", scorer), ("critic_s", scorer)),
            trained=(("critic_s", critic),),
            held=(*copies, scorer, critic),
            generation=generation,
        ),
    )


def _with(workload: Workload, method: Method) -> Workload:
    return replace(workload, method=method)


def _beside(term: str, graph: OpGraph) -> dict[str, Any]:
    return {"forward": ((term, graph),), "held": (graph,)}


def _shares_base(request: RequestFields, workload: Workload) -> bool:
    """Whether the reference is the frozen base of the policy, whose adapters are switched off."""
    return request.reference is None and bool(workload.adapter)


def _other(model: str, workload: Workload, load: Load) -> OpGraph:
    """The forward pass of another model over the samples of `workload`.

    Raises:
        ConfigError: If it cannot read them.
    """
    own = workload.graph
    stated: dict[str, Any] = {
        "adapter": None,
        "lora_rank": None,
        "lora_targets": None,
        "freeze": None,
        "sizes": {},
    }
    graph = load(model=model, seq_len=own.seq_len, image_size=own.image_size, **stated).graph
    if (graph.seq_len, graph.image_size) != (own.seq_len, own.image_size):
        sample = f"{own.seq_len} tokens" if own.seq_len else f"images of {own.image_size} pixels"
        raise ConfigError(
            f"{model} does not take the samples of {workload.name}, {sample}. The rule: both models of a "
            "step read the same samples. To fix: another model, or a length or image size that both take."
        )
    return without_training(graph)


def _teacher(workload: Workload, request: RequestFields, load: Load) -> OpGraph:
    if request.teacher is None:
        raise ConfigError(
            "method=distill needs a teacher. The rule: the teacher's forward pass is part of every step. To "
            "fix: teacher=MODEL, such as a larger one of the same kind."
        )
    return _other(request.teacher, workload, load)


def _reference(workload: Workload, request: RequestFields, load: Load) -> OpGraph:
    if request.reference is not None:
        return _other(request.reference, workload, load)
    if not workload.adapter:
        return without_training(workload.graph)
    model, suffix = request.model, f"-{workload.adapter}"
    if isinstance(model, str) and adapter_in_name(model):
        model = model[: -len(suffix)]
    sizes = {name: value for name, value in request.sizes.items() if name not in ADAPTER_SIZES}
    length = workload.graph.seq_len
    base = load(
        model=model, seq_len=length, adapter=None, lora_rank=None, lora_targets=None, freeze=None, sizes=sizes
    )
    if base.adapter:
        return without_training(workload.graph)
    return without_training(with_adapter(base.graph, Adapter(kind=workload.adapter, targets=())))


def _generation(workload: Workload, request: RequestFields, load: Load) -> Generation:
    graph = workload.graph
    length, tokens = (
        graph.seq_len or 0,
        request.generate_tokens or min(DEFAULT_TOKENS, (graph.seq_len or 2) // 2),
    )
    if not can_generate(graph):
        raise ConfigError(
            f"method={request.method} cannot be priced for {workload.name}. The rule: answers are generated "
            "by a decoder-only language model. To fix: such a model, or method=dpo."
        )
    if tokens >= length:
        raise ConfigError(
            f"generate_tokens={tokens} leaves no prompt in seq_len={length}. The rule: a sequence is its "
            "prompt and its answer. To fix: a larger seq_len, or fewer tokens."
        )
    if request.pp > 1 or request.cp > 1:
        raise ConfigError(
            f"method={request.method} with pp={request.pp} and cp={request.cp} cannot be priced. The rule: "
            "answers are generated with tensor and data parallelism. To fix: pp=1 and cp=1."
        )
    prompt = load(seq_len=length - tokens).graph
    if prompt.seq_len != length - tokens:
        raise ConfigError(
            f"method={request.method} cannot be priced for {workload.name}: its graph is of {length} tokens. "
            "To fix: a model whose seq_len can be chosen."
        )
    return Generation(
        prompt=without_training(prompt),
        token=one_token(without_training(graph), length - tokens // 2),
        tokens=tokens,
        answers_per_prompt=(request.group_size or DEFAULT_GROUP) if request.method == "grpo" else 1,
        cache_elems=cached_elems(graph, length),
    )


def degrees_of_method(workload: Workload) -> dict[str, tuple[Any, ...]]:
    """Degrees that a method leaves no choice of: what generates has no pipeline and whole sequences."""
    method = workload.method
    return {} if method is None or method.generation is None else {"pp": (1,), "cp": (1,)}


def check_group(job: Job) -> None:
    """Refuse groups of answers that do not fill the batch.

    Raises:
        ConfigError: If the answers of a prompt do not divide the sequences of a step.
    """
    method = job.workload.method
    if method is None or method.generation is None:
        return
    group, batch = method.generation.answers_per_prompt, job.layout.global_batch_size
    if batch % group:
        raise ConfigError(
            f"group_size={group} does not divide the {batch:g} answers of a step. The rule: a sample is one "
            "answer, "
            f"and every prompt has group_size of them. To fix: a batch that is a multiple of {group}, or "
            "another group_size."
        )


def say_method(job: Job, request: RequestFields, found: Diagnostics) -> None:
    """Report the composition that the answer adds up."""
    method = job.workload.method
    if method is None:
        return
    parts = ["policy forward and backward" if method.name != "distill" else "student forward and backward"]
    if method.rows_per_sample > 1:
        parts.append("a sample is a chosen and a rejected sequence")
    words = {"reference_s": "reference", "teacher_s": "teacher", "reward_model_s": "reward model"}
    parts += [f"{words[term]} forward" for term, _ in method.forward if term in words]
    shared = any(term == "reference_s" for term, _ in method.forward) and _shares_base(request, job.workload)
    parts += ["the reference is the frozen base (no second copy)"] if shared else []
    parts += ["critic forward, backward and update (of the policy's size)"] if method.trained else []
    generation = method.generation
    if generation is not None:
        parts.append(
            f"{generation.tokens} tokens generated behind prompts of {generation.prompt.seq_len}, "
            f"{generation.answers_per_prompt} per prompt, all of a step's at once, whole weights per "
            "tensor-parallel group, as a serving engine with CUDA graphs does (roofline, no measured run)"
        )
        parts.append("one update per generated batch")
        parts += ["rewards by rule, at no cost"] if method.name == "grpo" else []
    found.assume("method", f"Method {method.name}: {'; '.join(parts)}.")
    if method.forward:
        found.assume(
            "method-price",
            "Forward passes of other models: cost model, with the correction of the trained step.",
        )
