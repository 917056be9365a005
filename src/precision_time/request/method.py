"""The training method of a request: which other models run beside the update, and what is generated."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from ..cost.constants import constants
from ..cost.engines import engine_of
from ..cost.generation import writing_times
from ..cost.job import Job
from ..diagnostics import Diagnostics
from ..errors import ConfigError
from ..hardware.device import Cluster
from ..records import dataclass
from ..units import format_duration
from ..workload.graph import OpGraph
from ..workload.method import Generation, Method, can_generate, one_token, token_cache, with_scalar_head
from ..workload.resolve import ADAPTER_SIZES, adapter_in_name
from ..workload.tuning import Adapter, with_adapter, without_training
from ..workload.workload import Workload
from .schema import RequestFields

DEFAULT_GROUP = 8
"""Answers per prompt: `num_generations` of TRL's GRPOConfig."""
_LEAST_APART = 2
_GENERATING = ("grpo", "ppo")
_OF_GENERATION = (
    *("generate_tokens", "answer_tokens", "answer_spread", "prompts", "updates"),
    *("engine", "generate_gpus", "generate_tp", "off_policy"),
)
_OPTIONS = {
    "reference": ("dpo", "grpo", "ppo"),
    "teacher": ("distill",),
    "group_size": ("grpo",),
    **dict.fromkeys(_OF_GENERATION, _GENERATING),
}
"""Fields that belong to some methods."""
METHOD_FIELDS = ("method", *_OPTIONS)
"""Fields that say how a model is trained, not what it is."""
_NO_REFERENCE = "none"
_LENGTHS = ("mean_seq_len", "packing", "padding_share")
_SEQUENCES = ("dpo", "reward", "grpo", "ppo")
Load = Callable[..., Workload]


def with_method(workload: Workload, request: RequestFields, load: Load) -> Workload:
    """The workload with the parts that the method adds.

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
    if method == "dpo":
        reference, held = _reference(workload, request, load)
        return _with(workload, Method(name=method, rows_per_sample=2, forward=reference, held=held))
    workload, generation = _generating(workload, request, load)
    reference, held = _reference(workload, request, load)
    if method == "grpo":
        return _with(workload, Method(name=method, forward=reference, held=held, generation=generation))
    critic = with_scalar_head(workload.graph)
    scorer = without_training(critic)
    return _with(
        workload,
        Method(
            name=method,
            forward=(*reference, ("reward_model_s", scorer), ("critic_s", scorer)),
            trained=(("critic_s", critic),),
            held=(*held, scorer, critic),
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


def _reference(
    workload: Workload, request: RequestFields, load: Load
) -> tuple[tuple[tuple[str, OpGraph], ...], tuple[OpGraph, ...]]:
    """The forward pass of the reference, and the copy of it that memory holds, where there is one."""
    if request.reference == _NO_REFERENCE:
        if request.method != "grpo":
            raise ConfigError(
                f"reference=none does not apply to method={request.method}. The rule: it compares the policy "
                "with its reference. To fix: leave it out, or method=grpo."
            )
        return (), ()
    graph = _reference_graph(workload, request, load)
    return (("reference_s", graph),), () if _shares_base(request, workload) else (graph,)


def _reference_graph(workload: Workload, request: RequestFields, load: Load) -> OpGraph:
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


def _generating(workload: Workload, request: RequestFields, load: Load) -> tuple[Workload, Generation]:
    """The workload with answers of their mean length, the longest for memory, and what writes them.

    Raises:
        ConfigError: If the model writes no answers, or what is said of them contradicts itself.
    """
    graph = workload.graph
    if not can_generate(graph):
        raise ConfigError(
            f"method={request.method} cannot be priced for {workload.name}. The rule: answers are generated "
            "by a decoder-only language model. To fix: such a model, or method=dpo."
        )
    lengths = _lengths(workload, request)
    tokens, mean, length = lengths.most, lengths.mean, lengths.prompt + lengths.most
    if lengths.prompt < 1:
        raise ConfigError(
            f"generate_tokens={tokens} leaves no prompt in seq_len={request.seq_len}. The rule: a sequence "
            "is its prompt and its answer. To fix: a larger seq_len, or fewer tokens."
        )
    if mean > tokens:
        raise ConfigError(
            f"answer_tokens={mean:g} is more than generate_tokens={tokens}. The rule: answers are cut at "
            f"generate_tokens. To fix: answer_tokens={tokens}, or a larger generate_tokens and seq_len."
        )
    _check_engine(request)
    unit = request.tp * (2 * request.cp if request.cp > 1 else 1)
    trained = min(-(-(lengths.prompt + round(mean)) // unit) * unit, length)
    prompt, usual = load(seq_len=lengths.prompt).graph, load(seq_len=trained)
    graph = graph if graph.seq_len == length else load(seq_len=length).graph
    if (prompt.seq_len, usual.graph.seq_len, graph.seq_len) != (lengths.prompt, trained, length):
        raise ConfigError(
            f"method={request.method} cannot be priced for {workload.name}: its graph is of "
            f"{workload.graph.seq_len} tokens. To fix: a model whose seq_len can be chosen."
        )
    elems, heads = token_cache(graph)
    writer = without_training(graph)
    generation = Generation(
        prompt=without_training(prompt),
        first_token=one_token(writer, lengths.prompt),
        last_token=one_token(writer, length),
        most_tokens=tokens,
        mean_tokens=float(mean),
        spread=request.answer_spread or constants("engines")["answers"]["spread"],
        lengths_said=request.answer_tokens is not None,
        answers_per_prompt=(request.group_size or DEFAULT_GROUP) if request.method == "grpo" else 1,
        token_cache_elems=elems,
        cache_heads=heads,
        engine=request.engine or "",
        devices=_generating_devices(request),
        tp=request.generate_tp or 0,
        updates=request.updates or 1,
        staleness=request.off_policy or 0,
        resident=(request.stack or "").strip().lower() in constants("engines")["resident"]["trainers"],
        counted=request.batch_size is not None,
    )
    return replace(usual, largest=graph if usual.graph.seq_len != length else None), generation


@dataclass(frozen=True, kw_only=True, slots=True)
class _Lengths:
    """Tokens of prompts and answers."""

    prompt: int
    most: int
    mean: float


def _lengths(workload: Workload, request: RequestFields) -> _Lengths:
    """Lengths as they are said, or as published runs have them (cost/data/engines.toml)."""
    table = constants("engines")["answers"]
    # A base model has the sizes of the one that was taught to think, and its name in the catalog.
    base = isinstance(request.model, str) and request.model.lower().endswith("-base")
    reasons = not base and any(re.search(pattern, workload.name) for pattern in table["reasoning"])
    share = table["reasoning_share" if reasons else "share"]
    length, said = request.seq_len, request.answer_tokens
    most = request.generate_tokens
    if most is None:
        usual = table["reasoning_most_tokens" if reasons else "most_tokens"]
        most = max(usual, math.ceil((said or 0.0) / share))
        most = most if length is None else min(most, max(length // 2, 1))
        most = max(most, math.ceil(said or 1.0))
    prompt = table["prompt_tokens"] if length is None else length - most
    mean = said or max(share * most if reasons else min(share * most, table["usual_tokens"]), 1.0)
    return _Lengths(prompt=prompt, most=most, mean=mean)


def _generating_devices(request: RequestFields) -> int:
    """Devices that only generate: those that are said, or half of them where generation runs beside training.

    Raises:
        ConfigError: If nothing says how many devices there are.
    """
    if request.generate_gpus or not request.off_policy:
        return request.generate_gpus or 0
    if not request.gpus or request.gpus < _LEAST_APART:
        raise ConfigError(
            f"off_policy={request.off_policy} needs generate_gpus. The rule: only devices of their own write "
            "answers while others train. To fix: generate_gpus= some of the devices, or leave out off_policy."
        )
    return request.gpus // 2


def _check_engine(request: RequestFields) -> None:
    """Refuse a model that generates itself where it is cut up along its layers or sequences.

    Raises:
        ConfigError: If it is.
    """
    colocated = not _generating_devices(request)
    if request.engine == "hf" and colocated and (request.pp > 1 or request.cp > 1):
        raise ConfigError(
            f"engine=hf with pp={request.pp} and cp={request.cp} cannot be priced. The rule: the model that "
            "is trained generates itself, with tensor and data parallelism. To fix: pp=1 and cp=1, or "
            "engine=vllm."
        )


def degrees_of_method(workload: Workload) -> dict[str, tuple[Any, ...]]:
    """Degrees that a method leaves no choice of: a model that generates itself has no pipeline."""
    generation = None if workload.method is None else workload.method.generation
    itself = generation is not None and generation.engine == "hf" and not generation.devices
    return {"pp": (1,), "cp": (1,)} if itself else {}


def training_devices(workload: Workload, cluster: Cluster) -> int:
    """Devices of the layout: all but those that only generate.

    Raises:
        ConfigError: If none is left, or the engine's degree does not divide its devices.
    """
    generating, devices = workload.generating_devices, cluster.num_devices
    if generating >= devices:
        raise ConfigError(
            f"generate_gpus={generating} leaves none of the {devices} devices to train. The rule: they are "
            f"some of gpus. To fix: at most {devices - 1}, or more gpus."
        )
    generation = None if workload.method is None else workload.method.generation
    if generation is not None and (generating or devices) % max(generation.tp, 1):
        raise ConfigError(
            f"generate_tp={generation.tp} does not divide the {generating or devices} devices that generate. "
            "To fix: a divisor of them."
        )
    return devices - generating


def says_samples(request: RequestFields) -> bool:
    """Whether a request counts the answers of a step, not its prompts."""
    said = (request.batch_size, request.global_batch_size, request.global_batch_tokens)
    return request.prompts is None and said != (None, None, None)


def check_group(job: Job, request: RequestFields) -> None:
    """Refuse groups of answers that do not fill the batch.

    Raises:
        ConfigError: If the answers of a prompt do not divide the sequences of a step.
    """
    method = job.workload.method
    if method is None or method.generation is None:
        return
    generation = method.generation
    group, batch = generation.answers_per_prompt, job.layout.global_batch_size
    if batch % group and says_samples(request):
        raise ConfigError(
            f"group_size={group} does not divide the {batch:g} answers of a step. The rule: a sample is one "
            "answer, "
            f"and every prompt has group_size of them. To fix: a batch that is a multiple of {group}, or "
            "another group_size."
        )
    answers = batch if request.prompts is None else request.prompts * group
    if answers % generation.updates and (request.prompts is not None or says_samples(request)):
        raise ConfigError(
            f"updates={generation.updates} does not divide the {answers:g} answers of a step. The rule: "
            "every update has as many. To fix: a divisor of them."
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
    if method.generation is not None:
        parts += _writing_words(job, method.generation, request)
        parts += ["rewards by rule"] if method.name == "grpo" else []
    found.assume("method", f"Method {method.name}: {'; '.join(parts)}.")
    if method.forward:
        found.assume(
            "method-price",
            "Forward passes of other models: cost model, with the correction of the trained step.",
        )


def _writing_words(job: Job, generation: Generation, request: RequestFields) -> list[str]:
    """What generates which answers where, with what was assumed of it."""
    engine = engine_of(generation, job)

    def said(name: str) -> str:
        return "" if getattr(request, name) is not None else " (assumed)"

    place = f"{engine.devices} devices of its own" if engine.apart else "the devices that train"
    answers, mean = job.layout.global_batch_size, generation.mean_tokens
    parts = [
        "log-probabilities of the policy forward",
        f"{answers:,.0f} answers, {generation.answers_per_prompt} per prompt, of {mean:,.0f} tokens in "
        f"the mean{said('answer_tokens')}, {generation.most_tokens:,} at most, spread "
        f"{generation.spread:g}{said('answer_spread')}, behind prompts of {generation.prompt.seq_len}"
        f"{said('seq_len')}",
        f"written by {engine.name}{said('engine')} on {place}, tensor-parallel "
        f"{engine.tp}{said('generate_tp')}, up to {engine.concurrent:,.0f} at once on "
        "each (roofline and published steps)",
        "one update" if generation.updates == 1 else f"{generation.updates} updates per generated batch",
        f"micro batches of {'answers, of unequal lengths' if generation.counted else 'as many tokens'}",
    ]
    if engine.settings["graphs"] and not engine.apart:
        stay = "stay beside it" if engine.resident else "go to the host meanwhile, as verl and NeMo RL do it"
        parts.append(f"weights and optimizer states {stay}")
    if generation.staleness:
        times = writing_times(job, generation)
        seconds = times.prefill_s + times.decode_s + times.tail_s
        parts.append(
            f"generation of {format_duration(seconds)} beside training: only what training does not hide of "
            "it is in the step"
        )
    return parts
