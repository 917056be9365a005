"""The fields of a request: their types, rules and defaults, in one place.

An option of the command line is a field here, with its help and its completion in `data/fields.toml`.
"""

# No annotation is text here: what is evaluated when the class is made need not be parsed again.
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from msgspec import Meta

from ..cost.job import TimingScope
from ..cost.stacks import is_framework, software_called, software_in, stack_name
from ..errors import ConfigError, nearest_names
from ..fields import (
    FILE,
    FILE_OR_MAPPING,
    FINITE,
    NUMBER,
    TEXTS,
    WORD,
    BatchSize,
    BatchTokens,
    Count,
    ListText,
    LongCount,
    NaturalNumber,
    PositiveNumber,
    Read,
    Year,
    choices_of,
    pairs_of,
)
from ..hardware.device import Cluster
from ..hardware.inventory import ClusterResources
from ..hardware.words import with_cluster_words
from ..io import packaged_toml
from ..parallel.layout import Layout
from ..precision.catalog import is_policy_file
from ..units import duration_s
from .validation import Field, Fields, broken, declared_fields

_NAMES = packaged_toml(__package__, "data/names.toml")
ALIASES: Mapping[str, str] = _NAMES["alias"]
"""Names of the same quantities in answers, in measurement tables and in the words of trainers."""
MOVED: Mapping[str, str] = _NAMES["moved"]
"""Names that fields had in the release before: they answer in this one, with a remark that names the new."""
LEAST_COVERAGE = 1e-9
"""Closer to 0 or 1 doubles cannot tell the quantiles of intervals apart."""
RUN_LENGTHS = ("steps", "epochs", "tokens")
GLOBAL_BATCHES = ("global_batch_size", "global_batch_tokens", "prompts")
"""Fields of which a request has one at most."""
STEP_TIME_S, SAMPLES_PER_S = "step_time_s", "samples_per_s"
ANCHOR_TIMES = (STEP_TIME_S, SAMPLES_PER_S)
MOST_ANCHORS = 64
"""Of a request, and of a cluster of the service."""
_ANCHOR_ALIASES = {"step": STEP_TIME_S, "step_time": STEP_TIME_S}
"""What an anchor says that was measured: seconds per step, or samples per second over all devices."""


def _with_software(given: Mapping[str, Any]) -> Mapping[str, Any]:
    """A trainer that is named as the framework is the software: `framework=axolotl` says `stack=axolotl`.

    Beside a stack it says nothing more.
    """
    words, stack = given.get("framework"), given.get("stack")
    if not isinstance(words, str) or is_framework(words):
        return given
    fields = {name: value for name, value in given.items() if name != "framework"}
    if isinstance(stack, str) and (profile := software_called(stack)) is not None:
        return {**fields, "framework": profile.framework}
    return given if software_in(words)[0] is None else {**fields, "stack": words}


def with_stack_name(given: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a request with what the name of its software implies, where they do not say otherwise."""
    fields, words = dict(given), given.get("stack")
    said = stack_name(words) if isinstance(words, str) else None
    if said is None:
        return fields
    several = any(str(fields.get(name) or 1) != "1" for name in ("gpus", "nodes"))
    for name, value in {**said.fields, **(said.sharded if several else {})}.items():
        fields.setdefault(name, value)
    return fields


def over(given: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Fields with others in their place, by whichever of its names each is called.

    >>> over({"batch": 4, "gpus": 8}, {"batch_size": 2})
    {'gpus': 8, 'batch_size': 2}
    """
    replaced = {RequestFields.own_name(name) for name in changes}
    kept = {name: value for name, value in given.items() if RequestFields.own_name(name) not in replaced}
    return {**kept, **changes}


def _with_recompute(given: Mapping[str, Any]) -> Mapping[str, Any]:
    """`checkpointing="full:16"` of the release before as the fields that say it now."""
    word = given.get("checkpointing")
    mode, colon, amount = word.partition(":") if isinstance(word, str) else ("", "", "")
    field = {"full": "recompute_layers", "selective": "recompute_modules"}.get(mode.strip().lower())
    if not colon or field is None:
        return given
    whole = amount.strip().rstrip("0") == "1."  # a share, of all of them
    return {**given, "checkpointing": mode, field: 0.0 if whole else amount}


def _precision(given: Any) -> Any:
    """A policy of the user's own, in a file or as a mapping, as what it says: requests travel, files do not.

    Raises:
        ConfigError: If it cannot be read or says what no policy can.
    """
    if isinstance(given, Mapping) or is_policy_file(given):
        from ..precision.own import stated_policy

        return stated_policy(given)
    return given


def _cluster(given: Any) -> Any:
    if not isinstance(given, Cluster | ClusterResources):
        raise ValueError("a Cluster or the ClusterResources of an inventory")
    return given


def _anchors(given: Any) -> Any:
    """Measured steps as mappings of fields to values, one of them the time.

    Raises:
        ConfigError: If one is no mapping, or does not state one time above 0.
    """
    if isinstance(given, str | Mapping):
        given = [given]
    if not isinstance(given, Sequence):
        raise ConfigError(f"anchors={given!r} is invalid: it must be a list. {_ANCHOR_REMEDY}")
    if len(given) > MOST_ANCHORS:
        raise ConfigError(
            f"{len(given):,} anchors are given. The rule: at most {MOST_ANCHORS}, as each is a job to be "
            "priced. To fix: leave some out, or make a calibration of them (precision-time calibrate)."
        )
    return [_anchor(item) for item in given]


def _in_our_words(given: Any, name: str) -> Any:
    """A value of a field under the name that the field knows: `torch.compile` is inductor."""
    words = re.sub(r"[\s_]+", "-", given.strip().lower()) if isinstance(given, str) else ""
    return _NAMES["value"][name].get(words, given)


_OURS = Read(_in_our_words, named=True)


def _method(given: Any) -> Any:
    """A training method; an adapter is none, though people say so.

    Raises:
        ConfigError: If it is the name of an adapter.
    """
    if isinstance(given, str) and given in choices_of(RequestFields.model_fields["adapter"].annotation):
        raise ConfigError(
            f"method={given} is invalid: {given} is an adapter, which any method may train. To fix: "
            f"--adapter {given} in its place (adapter={given})."
        )
    if isinstance(given, str) and (way := _NAMES["no_method"].get(given)):
        raise ConfigError(f"method={given} is invalid: {way}.")
    return given


_ANCHOR_REMEDY = "To fix: write each like batch_size=64,gpus=8,step_time_s=0.21."
_BETWEEN_PAIRS = re.compile(r"[\s,]+(?=[\w-]+\s*=)")
"""Anchors are written with commas or spaces: `gpus=8 step=1.2s`."""


def _anchor(given: Any) -> dict[str, Any]:
    fields = given
    if isinstance(given, str):
        fields = pairs_of(given if given.lstrip().startswith("{") else _BETWEEN_PAIRS.sub(",", given.strip()))
    if not isinstance(fields, Mapping):
        raise ConfigError(f"The anchor {given!r} is no mapping of fields to values. {_ANCHOR_REMEDY}")
    anchor = {_ANCHOR_ALIASES.get(str(name), str(name)): value for name, value in fields.items()}
    times = [name for name in ANCHOR_TIMES if name in anchor]
    if len(times) != 1:
        raise ConfigError(
            f"The anchor {given!r} must state one of {' and '.join(ANCHOR_TIMES)}. {_ANCHOR_REMEDY}"
        )
    said = anchor[times[0]]
    try:
        timed = times[0] == STEP_TIME_S and isinstance(said, str) and said.endswith("s")
        value = duration_s(STEP_TIME_S, said) if timed else float(said)
    except (TypeError, ValueError, ConfigError):
        value = math.nan
    if not (math.isfinite(value) and value > 0.0) or isinstance(said, bool):
        raise ConfigError(
            f"{times[0]}={said} of the anchor {given!r} must be a number above 0. {_ANCHOR_REMEDY}"
        )
    known = {*RequestFields.model_fields, *ALIASES, *ANCHOR_TIMES}
    for name in anchor:
        if name not in (known | {*MOVED}) - {"anchors", "calibration", "predictor"}:
            near = nearest_names(name, known)
            guess = f" Did you mean {' or '.join(near)}?" if near else ""
            raise ConfigError(
                f"The anchor {given!r} names an unknown field {name!r}.{guess} {_ANCHOR_REMEDY}"
            )
    return {**anchor, times[0]: value}


class RequestFields(Fields):
    """What can be asked of a training job."""

    aliases: ClassVar[Mapping[str, str]] = ALIASES
    moved: ClassVar[Mapping[str, str]] = MOVED
    words: ClassVar[Mapping[str, Mapping[str, Any]]] = packaged_toml(__package__, "data/fields.toml")

    model: Any
    device: str | None = None
    gpus: Count = 1
    nodes: Count | None = None
    node_type: str | None = None
    intra_node: str | None = None
    inter_node: str | None = None
    network: str | None = None
    precision: Annotated[str | dict[str, Any] | None, Read(_precision)] = None
    batch_size: BatchSize | None = None
    global_batch_size: BatchSize | None = None
    global_batch_tokens: BatchTokens | None = None
    seq_len: Count | None = None
    image_size: Count | None = None
    frames: Count | None = None
    audio_seconds: PositiveNumber | None = None
    mean_seq_len: PositiveNumber | None = None
    packing: bool | None = None
    padding_share: Annotated[float | None, NUMBER, Meta(ge=0.0, lt=1.0)] = None
    sizes: Annotated[dict[str, Any], FINITE] = {}
    task: str = ""
    adapter: Annotated[Literal["lora", "qlora", "dora", "qdora", "qlora8"] | None, WORD] = None
    lora_rank: Count | None = None
    lora_targets: ListText | None = None
    freeze: ListText | None = None
    method: Annotated[
        Literal["sft", "dpo", "reward", "distill", "grpo", "ppo"] | None, WORD, Read(_method)
    ] = None
    reference: str | None = None
    teacher: str | None = None
    generate_tokens: Count | None = None
    answer_tokens: PositiveNumber | None = None
    answer_spread: PositiveNumber | None = None
    group_size: Count | None = None
    prompts: Count | None = None
    updates: Count | None = None
    engine: Annotated[Literal["vllm", "sglang", "trtllm", "hf"] | None, WORD] = None
    generate_gpus: Count | None = None
    generate_tp: Count | None = None
    off_policy: Count | None = None
    dataset: str | None = None
    samples: LongCount | None = None
    epochs: PositiveNumber | None = None
    steps: LongCount | None = None
    tokens: LongCount | None = None
    optimizer: str | None = None
    framework: str | None = None
    stack: str | None = None
    software: Year | None = None
    compiler: Annotated[
        Literal["none", "inductor", "xla", "cudagraphs", "torchscript", "graph"] | None, _OURS, WORD
    ] = None
    channels_last: bool | None = None
    fused_optimizer: bool | None = None
    attention: Annotated[
        Literal["math", "memory-efficient", "flash1", "flash2", "flash3"] | None, _OURS, WORD
    ] = None
    unpadded_sequences: bool | None = None
    chunked_loss: bool | None = None
    real_input: bool | None = None
    loader: Annotated[Literal["synthetic", "pil", "tf.data", "dali", "ffcv"] | None, WORD] = None
    cpus: Count | None = None
    scope: Annotated[TimingScope, WORD] = TimingScope.FULL_STEP
    of_layout: ClassVar[type[Layout]] = Layout
    """Its options stand here, beside the others."""
    dp_replicate: NaturalNumber = 0
    uneven: bool = False
    input_rate: PositiveNumber | None = None
    stragglers: bool = True
    custom: Annotated[Path | dict[str, Any] | None, FILE_OR_MAPPING] = None
    calibration: Any = None
    predictor: Annotated[Path | None, FILE] = None
    anchors: Annotated[list[dict[str, Any]], Read(_anchors), Meta(max_length=MOST_ANCHORS)] = []
    coverage: Annotated[float, NUMBER, Meta(ge=LEAST_COVERAGE, le=1.0 - LEAST_COVERAGE)] = 0.9
    trust: bool = False
    inputs: Annotated[list[str], TEXTS] = []
    forward: Any = None
    loss: Any = None
    example_inputs: Any = None
    """Inputs of an `nn.Module`."""
    cluster: Annotated[Cluster | ClusterResources | None, Read(_cluster, checks=True)] = None
    """A `Cluster` or the `ClusterResources` of an inventory, in the place of the fields that describe one."""

    @property
    def given_layout(self) -> frozenset[str]:
        """The layout options that were given."""
        return self.model_fields_set & LAYOUT_OPTIONS

    @property
    def says_sharding(self) -> bool:
        """Whether it was given which data ranks share a copy of the states."""
        return self.zero_stage is not None or self.dp_replicate > 0

    @classmethod
    def _spread(cls, given: Mapping[str, Any]) -> Mapping[str, Any]:
        """Layout options may stand under `layout`; one beside the others goes first."""
        layout = given.get("layout")
        if isinstance(layout, Mapping):
            given = {**layout, **{name: value for name, value in given.items() if name != "layout"}}
        elif layout is not None:
            raise broken("layout", layout, "a mapping of names to values", "write {} as name: value")
        return _with_recompute(given)

    @classmethod
    def _prepared(cls, given: dict[str, Any]) -> dict[str, Any]:
        return with_stack_name(_with_software(with_cluster_words(given)))

    def _check_agreement(self) -> None:
        """Of fields that say the same in other words, only one is given.

        Raises:
            ConfigError: If two are.
        """
        for names, what in ((RUN_LENGTHS, "how long the run is"), (GLOBAL_BATCHES, "the global batch")):
            given = [
                f"{name}={getattr(self, name):.15g}" for name in names if getattr(self, name) is not None
            ]
            if len(given) > 1:
                raise ConfigError(f"{' and '.join(given)} both say {what}. To fix: give only one of them.")


LAYOUT: Mapping[str, Field] = declared_fields(Layout)
"""The fields of a layout."""
LAYOUT_OPTIONS = frozenset({n for n, field in LAYOUT.items() if field.option} | {"dp_replicate", "uneven"})
"""Fields of a request that say how it is spread over the devices."""


def sections_of_fields() -> dict[str, str]:
    """The section of the help that each field stands in; empty before the first."""
    found, section = {}, ""
    for name in RequestFields.model_fields:
        found[name] = section = _NAMES["section"].get(name, section)
    return found
