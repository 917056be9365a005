"""Stack profiles: named software stacks, and the `Stack` that each stands for by default."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, field
from types import MappingProxyType
from typing import Any

from ..cache import data
from ..errors import ConfigError, UnknownNameError, validation_problems
from ..plugins import left_out, loaded
from ..precision.catalog import get_policy, known_precisions, known_variants
from ..precision.policy import PrecisionPolicy
from ..records import dataclass
from .constants import constants

DEFAULT_PROFILE = "pytorch-eager"
"""What a user's own script most likely is."""
UNFUSED = "math"
"""Attention as separate products with the scores in memory (PyTorch calls it the math kernel)."""
_TUNED = "flash3"
_PORTABLE = "memory-efficient"
_APART = re.compile(r"\s*[(),;+]\s*|\s+(?=[rv]?\d)")
"""Between the names of software that a user says at once."""
"""What PyTorch runs where FlashAttention does not."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Stack:
    """The software that runs the mathematics."""

    profile: str = "pytorch-eager"
    """Name of a profile in cost/data/stacks.toml."""
    framework: str = "pytorch"
    framework_year: float = 2022.0
    """When the framework version came out: kernels get faster with the years."""
    compiler: str = "none"
    """none, inductor, xla, cudagraphs, torchscript, graph (static-graph frameworks)."""
    channels_last: bool = False
    fused_optimizer: bool = False
    fused_attention: bool = True
    tuned_attention: bool = False
    """Fused attention written for the architecture (FlashAttention-3, cuDNN) instead of the portable one."""
    attention: str = ""
    """Kernel of fused attention (an entry of cost/data/kernels.toml) where it is known; else by the year."""
    unpadded_sequences: bool = False
    """Variable-length kernels skip padding tokens (MLPerf BERT)."""
    chunked_loss: bool = False
    """Head and loss are computed together in chunks of tokens: logits are never whole in memory (Liger,
    cut cross entropy)."""
    device_containers: bool = False
    """Every device is in a container of its own: collectives keep one TCP stream to a neighbor."""
    overlap_grad_reduce: bool = True
    """Gradients are reduced during the backward pass, not after it."""
    overlap_param_gather: bool = False
    """ZeRO 1 and 2: new parameters are gathered during the next forward pass."""
    overlap_tensor: bool = False
    """Messages of tensor parallelism are cut up and hidden behind the products (user buffers, async TP)."""
    overlap_experts: bool = False
    """Interleaved pipelines hide messages of the experts behind another micro batch (combined 1F1B)."""
    dispatch_once_per_node: bool = False
    """Tokens cross the network once per node that holds experts of theirs, not once per expert (DeepEP)."""
    real_input: bool = False
    """A real input pipeline feeds the step, rather than tensors already in memory."""
    loader: str = ""
    """What decodes and augments the samples (cost/data/input.toml); empty where they are in memory."""
    loader_cores: float = 0.0
    """Cores of a node that do it; 0 for those of the node type."""
    fused_kernels: bool = False
    """Hand-written kernels join what stands between products: bias with GELU, dropout with the residual sum,
    norms with casts (Megatron, Transformer Engine)."""
    host_per_layer_s: float = 0.0
    """Host time per repeated layer and pass through it (forward, backward, recomputation) besides the
    kernels' launches: modules, hooks, views, random states."""
    host_per_tensor_s: float = 0.0
    """Host time per parameter tensor and step that the trainer adds and no kernel hides: hooks,
    statistics of gradients."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StackProfile:
    """One documented software stack. Where a run does not say otherwise, its details hold."""

    name: str
    summary: str
    framework: str
    framework_year: float
    """Of a run that does not say its version."""
    kind: str = ""
    """Of a code base: the stack that it is a variety of, which answers for it where the base is new."""
    category: str = "script"
    """suite (tuned for its models and devices), trainer (anybody's model), script (a user's own) or untuned
    (no vendor's library): what the speed of its kernels is taken from where nobody measured it."""
    compiler: str = "none"
    channels_last: bool = False
    fused_optimizer: bool = False
    fused_attention_from: float | None = None
    """Year from which this stack's attention is a fused kernel; None if never."""
    tuned_attention_from: float | None = None
    """Year from which that kernel is written for the newest architectures (FlashAttention-3, cuDNN)."""
    own_attention: bool = False
    """It brings FlashAttention itself: where that does not run, attention is unfused. PyTorch has another."""
    unpadded_from: float | None = None
    """Year from which encoders of this stack skip padding tokens; None if never."""
    chunked_loss_from: float | None = None
    """Year from which head and loss of this stack go together in chunks of tokens; None if never."""
    real_input: bool = False
    device_containers: bool = False
    """Runs every device in a container of its own."""
    zero_stage: int = 0
    """Sharding of the data-parallel state that this stack uses when the run does not say."""
    sharded_optimizer_from: float | None = None
    """Year from which scripts of this stack shard the optimizer's states (stage 1); None: as `zero_stage`."""
    variants: tuple[str, ...] = ()
    """How this code holds the weights of mixed precision: of each policy the first variant that it has."""
    host_per_tensor_s: float = 0.0
    """Host time per parameter tensor and step that the trainer itself adds."""
    sequence_parallel_from: float | None = None
    """Year from which tensor parallelism of this stack also splits the norms; None if never."""
    fused_kernels: bool = False
    """Hand-written kernels join what stands between products."""
    host_per_layer_s: float = 0.0
    """Host time per layer and pass that the trainer adds to the kernels."""
    overlap_grad_reduce_from: float | None = 0.0
    """Year from which gradients are reduced during the backward pass; None if never."""
    overlap_param_gather_from: float | None = None
    """Year from which ZeRO 1 and 2 gather parameters during the forward pass; None if never."""
    overlap_tensor_from: float | None = None
    """Year from which messages of tensor parallelism hide behind products; None if never."""
    overlap_experts_from: float | None = None
    """Year from which interleaved pipelines hide the experts' messages behind another micro batch."""
    dispatch_once_per_node_from: float | None = None
    """Year from which a token crosses the network once per node, however many experts it has there."""

    def usual_zero_stage(self, year: float, *, pipeline: bool) -> int:
        """Sharding where nobody says it: pipelines shard the optimizer's states at most."""
        stage = max(self.zero_stage, int(_since(self.sharded_optimizer_from, year)))
        return min(stage, 1) if pipeline else stage

    def stack(
        self,
        *,
        framework: str | None = None,
        framework_year: float | None = None,
        compiler: str | None = None,
        channels_last: bool | None = None,
        fused_optimizer: bool | None = None,
        unpadded_sequences: bool | None = None,
        chunked_loss: bool | None = None,
        real_input: bool | None = None,
        loader: str | None = None,
        loader_cores: float = 0.0,
        attention: str | None = None,
        arch: str = "",
    ) -> Stack:
        """The `Stack` of this profile with whatever is known about the run put in.

        Args:
            framework: Of the run.
            framework_year: When its versions came out.
            compiler: What compiled it.
            channels_last: Memory format of images.
            fused_optimizer: One kernel for the update.
            unpadded_sequences: Attention skips padding.
            chunked_loss: Head and loss go together in chunks of tokens.
            real_input: A real input pipeline fed it.
            loader: What decoded its samples; None: the usual one.
            loader_cores: Cores of a host that decode; 0: those of the node type.
            attention: `UNFUSED`, or a kernel of `data/kernels.toml`; None: as of its year and device.
            arch: Architecture of the device: FlashAttention does not run on the older ones.
        """
        fed = self.real_input if real_input is None else real_input
        year = self.framework_year if framework_year is None else framework_year
        fused, tuned = _since(self.fused_attention_from, year), _since(self.tuned_attention_from, year)
        kernel = attention or ""
        if attention:
            fused, tuned = attention != UNFUSED, attention == _TUNED
        elif fused and arch in constants("kernels")["without_flash"]:
            fused, tuned, kernel = not self.own_attention, False, _PORTABLE
        return Stack(
            profile=self.name,
            framework=framework or self.framework,
            framework_year=year,
            compiler=self.compiler if compiler is None else compiler,
            channels_last=self.channels_last if channels_last is None else channels_last,
            fused_optimizer=self.fused_optimizer if fused_optimizer is None else fused_optimizer,
            fused_attention=fused,
            tuned_attention=tuned,
            attention=kernel if fused else "",
            unpadded_sequences=(
                _since(self.unpadded_from, year) if unpadded_sequences is None else unpadded_sequences
            ),
            chunked_loss=_since(self.chunked_loss_from, year) if chunked_loss is None else chunked_loss,
            device_containers=self.device_containers,
            overlap_grad_reduce=_since(self.overlap_grad_reduce_from, year),
            overlap_param_gather=_since(self.overlap_param_gather_from, year),
            overlap_tensor=_since(self.overlap_tensor_from, year),
            overlap_experts=_since(self.overlap_experts_from, year),
            dispatch_once_per_node=_since(self.dispatch_once_per_node_from, year),
            real_input=fed,
            loader=(loader or usual_loader(self.kind or self.name, framework or self.framework))
            if fed
            else "",
            loader_cores=loader_cores,
            fused_kernels=self.fused_kernels,
            host_per_layer_s=self.host_per_layer_s,
            host_per_tensor_s=self.host_per_tensor_s,
        )


def usual_loader(kind: str, framework: str) -> str:
    """The loader that a kind of stack, else a framework, usually has.

    >>> usual_loader("pytorch-eager", "pytorch")
    'pil'
    """
    usual: Mapping[str, str] = constants("input")["usual"]
    return usual.get(kind, usual.get(framework, usual["other"]))


def _since(start: float | None, year: float) -> bool:
    return start is not None and year >= start


def _profile(name: str, table: Mapping[str, Any], kinds: Mapping[str, Mapping[str, Any]]) -> StackProfile:
    """A code base is as its kind is but where it says otherwise."""
    fields = {**kinds.get(table.get("kind", ""), {}), **table}
    return StackProfile(name=name, **{**fields, "variants": tuple(fields.get("variants", ()))})


@data
def _profiles() -> Mapping[str, StackProfile]:
    tables = constants("stacks")["stack"]
    own = {name: _profile(name, table, tables) for name, table in tables.items()}
    return MappingProxyType({**own, **_of_plugins(own, tables)})


def _of_plugins(
    built_in: Mapping[str, StackProfile], tables: Mapping[str, Mapping[str, Any]]
) -> dict[str, StackProfile]:
    """The stacks that plugins add; one that is not complete, or bears the name of another, is left out.

    A plugin of the group "stacks" is a mapping of names to tables in the words of stacks.toml, or a function
    that gives one. `kind` names the stack of the catalog that it is a variety of: it fills what the table
    does not say, and it answers for the stack in what is learned from measurements.
    """
    found: dict[str, StackProfile] = {}
    for plugin, given in loaded("stacks").items():
        own: dict[str, StackProfile] = {}
        try:
            for name, table in (given() if callable(given) else given).items():
                own[name] = _of_plugin(name, table, {**built_in, **found, **own}, tables)
            found |= own
        except Exception as error:  # noqa: BLE001 - whatever a plugin gives, the catalog stands
            left_out("stacks", plugin, error)
    return found


def _of_plugin(
    name: str,
    table: Mapping[str, Any],
    known: Mapping[str, StackProfile],
    tables: Mapping[str, Mapping[str, Any]],
) -> StackProfile:
    """A stack of a plugin.

    Raises:
        ConfigError: If its name is taken, its kind is none, or a value of it breaks its rule.
    """
    from pydantic import TypeAdapter, ValidationError

    if name in known:
        raise ConfigError(f"there is a stack {name!r}")
    kind = str(table.get("kind") or "")
    if kind not in tables or tables[kind].get("kind"):
        kinds = ", ".join(each for each in tables if not tables[each].get("kind"))
        raise ConfigError(f"kind={kind!r} of the stack {name!r} must be one of {kinds}")
    profile = _profile(name, table, tables)
    try:
        return TypeAdapter(StackProfile).validate_python(asdict(profile))
    except ValidationError as error:
        raise ConfigError(f"the stack {name!r}: {validation_problems(error)}") from error


def usual_variant(profile: StackProfile, policy: str, zero_stage: int) -> str | None:
    """How a stack holds the weights of a mixed precision: a variant of the policy, None where as named.

    >>> usual_variant(get_stack_profile("megatron"), "bf16-mixed", 0)
    'megatron'
    """
    known = known_variants(policy)
    by_stage: Mapping[str, str] = constants("stacks")["sharded_variant"].get(profile.framework, {})
    sharded = () if profile.variants else (by_stage.get(str(zero_stage), ""),)
    offered = (*profile.variants, *sharded)
    return next((name for name in offered if name in known), None)


@data
def policy_of_stack(name: str, stack: str, zero_stage: int) -> PrecisionPolicy:
    """The policy of a name as the code of a stack holds weights at a ZeRO stage; as named where unknown."""
    profile = _profiles().get(stack)
    return get_policy(name, variant=None if profile is None else usual_variant(profile, name, zero_stage))


def policy_under(policy: PrecisionPolicy, stack: str, before: int, after: int) -> PrecisionPolicy:
    """A policy once the data-parallel state is sharded otherwise.

    Args:
        policy: As the code of the stack holds weights under `before`; any other was asked for, and stays.
        stack: Name of the profile.
        before: ZeRO stage.
        after: ZeRO stage.
    """
    if policy.name not in known_precisions():
        return policy
    was, becomes = (policy_of_stack(policy.name, stack, stage) for stage in (before, after))
    return becomes if policy == was else policy


def known_stacks() -> dict[str, dict[str, Any]]:
    """Every stack profile by name, as JSON-ready fields; `summary` says in a sentence what it is."""
    return {name: asdict(profile) for name, profile in _profiles().items()}


def stack_names() -> tuple[str, ...]:
    """Names of all stack profiles."""
    return tuple(_profiles())


def category_of_stack(name: str) -> str:
    """suite, trainer or script; of a stack that is not known: script."""
    profile = _profiles().get(name)
    return "script" if profile is None else profile.category


def kernels_of_stack(name: str, vendor: str) -> str:
    """The stack whose kernels a stack runs on the devices of a vendor: most often itself.

    >>> kernels_of_stack("jax-xla", "Google"), kernels_of_stack("jax-xla", "NVIDIA")
    ('jax-tpu', 'jax-xla')
    """
    return str(constants("stacks")["kernels_on"].get(vendor, {}).get(name, name))


def kind_of_stack(name: str) -> str:
    """The stack that a code base is a variety of, the name itself where it is none or not known."""
    profile = _profiles().get(name)
    return profile.kind if profile is not None and profile.kind else name


def suite_names() -> tuple[str, ...]:
    """Names of the profiles that are code bases of a wider kind; what plugins add is never learned."""
    return tuple(name for name, table in constants("stacks")["stack"].items() if table.get("kind"))


def kind_names() -> tuple[str, ...]:
    """Names of the profiles that are no variety of another."""
    return tuple(name for name, profile in _profiles().items() if not profile.kind)


def get_stack_profile(name: str) -> StackProfile:
    """The profile called `name`, or that stands for software that people call so.

    >>> get_stack_profile("axolotl").name
    'hf-trainer'

    Raises:
        UnknownNameError: If there is none; the message offers the nearest names.
    """
    if (found := software_called(name)) is not None:
        return found
    raise UnknownNameError(
        kind="stack",
        name=name,
        known=[*_profiles(), *_stack_names()],
        hint="All stacks: precision-time list stacks.",
    )


def software_called(name: str) -> StackProfile | None:
    """The profile called `name`, or that stands for software that people call so; None if there is none."""
    profiles, said = _profiles(), stack_name(name)
    if said is None:
        return profiles.get(_spelled(software_in(name)[0] or name))
    return profiles.get(_spelled(name)) or profiles[said.stack]


def software_in(words: str) -> tuple[str | None, str | None]:
    """The trainer and the framework that words name, what stands in brackets first; None where none is known.

    >>> software_in("PyTorch (HF Trainer, own loader)"), software_in("tensorflow r0.10")
    (('HF Trainer', 'pytorch'), (None, 'tensorflow'))
    """
    first, *others = [part for part in _APART.split(words) if part] or [""]
    frameworks, known = constants("stacks")["framework"], _profiles().keys() | _stack_names().keys()
    parts = [*others, first]
    framework = next((part.lower() for part in parts if part.lower() in frameworks), None)
    heads = [each for part in parts for each in (part, part.partition(" ")[0] if others else part)]
    return next((n for n in heads if _spelled(n) in known and n.lower() not in frameworks), None), framework


@dataclass(frozen=True, kw_only=True, slots=True)
class StackName:
    """A name of software that people say, and what it implies."""

    name: str
    stack: str
    """Name of the profile that runs the mathematics."""
    source: str
    fields: Mapping[str, Any] = field(default_factory=dict)
    """Request fields that the software sets where its user does not."""
    sharded: Mapping[str, Any] = field(default_factory=dict)
    """Further ones with more than one device."""
    approximate: str = ""
    """In what the stack differs from it, as far as that matters to a reader."""
    also: tuple[str, ...] = ()


def stack_name(name: str) -> StackName | None:
    """What a name of software implies; None of a stack that implies nothing and of what nobody says.

    >>> stack_name("LLaMA_Factory").stack
    'hf-trainer'
    """
    names = _stack_names()
    return names.get(_spelled(name)) or names.get(_spelled(software_in(name)[0] or ""))


def _spelled(name: str) -> str:
    return re.sub(r"[\s_]+", "-", name.strip().lower())


def said_stack_names() -> tuple[str, ...]:
    """All names of software that imply settings."""
    return tuple(_stack_names())


@data
def _stack_names() -> Mapping[str, StackName]:
    found: dict[str, StackName] = {}
    for name, row in constants("stack_names")["name"].items():
        said = StackName(name=name, **{**row, "also": tuple(row.get("also", ()))})
        found |= dict.fromkeys((name, *said.also), said)
    return found


def is_framework(name: str) -> bool:
    """Whether a framework is called so: pytorch, tensorflow, jax, mxnet ..."""
    return name.strip().lower() in constants("stacks")["framework"]


def framework_profile(framework: str) -> StackProfile:
    """The stack that a script in `framework` usually is (pytorch, tensorflow, jax, mxnet ...).

    Raises:
        UnknownNameError: If no stack of that framework is known.
    """
    usual: Mapping[str, str] = constants("stacks")["framework"]
    name = framework.strip().lower() if is_framework(framework) else software_in(framework)[1]
    if name is None:
        raise UnknownNameError(
            kind="framework",
            name=framework.strip().lower(),
            known=[*usual, *_profiles(), *_stack_names()],
            hint=f"Known: {', '.join(usual)}, and the trainers of `precision-time list stacks`.",
        )
    return get_stack_profile(usual[name])


def usual_profile(family: str, vendor: str = "", arch: str = "") -> StackProfile:
    """The stack that a user's script usually is, by family of the model, vendor and architecture.

    >>> usual_profile("cnn").name, usual_profile("cnn", "Google").name
    ('pytorch-eager', 'xla-tpu')
    >>> usual_profile("moe", "Intel", "gaudi2").name, usual_profile("moe", "Intel", "cpu-skylake").name
    ('habana-lazy', 'pytorch-eager')
    """
    data = constants("stacks")
    of_arch = (stacks for start, stacks in data["arch"].items() if arch.startswith(start))
    own: Mapping[str, str] = next(of_arch, {}) or data["vendor"].get(vendor, {})
    usual = own.get("other", DEFAULT_PROFILE)
    return get_stack_profile(own.get(family) or (usual if own else data["family"].get(family, usual)))
