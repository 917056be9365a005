"""The fields of a request: their types, rules, defaults and help, in one place.

An option of the command line is a field here and nothing else: its name, its help and its completion are read
off the field.
"""

# No annotation is text here: what is evaluated when the class is made need not be parsed again.
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from msgspec import Meta

from ..cost.job import TimingScope
from ..cost.stacks import stack_name
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
    Option,
    PositiveNumber,
    Read,
    Year,
    choices_of,
    pairs_of,
)
from ..hardware.device import Cluster
from ..hardware.inventory import ClusterResources
from ..hardware.words import with_cluster_words
from ..parallel.layout import Layout
from ..precision.catalog import is_policy_file
from ..units import duration_s
from .validation import Field, Fields, broken, declared_fields

ALIASES: Mapping[str, str] = {
    "num_devices": "gpus",
    "devices": "gpus",
    "num_nodes": "nodes",
    "micro_batch_size": "batch_size",
    "batch_per_device": "batch_size",
    "batch": "batch_size",
    "global_batch": "global_batch_size",
    "dataset_samples": "samples",
    "model_config": "sizes",
    "timing_scope": "scope",
    "system": "node_type",
    "zero": "zero_stage",
    "gradient_accumulation_steps": "num_microbatches",
    "num_samples": "samples",
    "num_epochs": "epochs",
    "max_steps": "steps",
    "train_tokens": "tokens",
    "year": "software",
}
"""Names of the same quantities in answers, in measurement tables and in the words of trainers."""
MOVED: Mapping[str, str] = {
    "grad_accum": "num_microbatches",
    "num_micro_batches": "num_microbatches",
    "virtual_pp": "vpp",
    "expert_tp": "etp",
    "expert_capacity": "expert_capacity_factor",
    "context_method": "cp_comm_type",
    "shard_size": "dp_shard",
    "checkpointing": "recompute",
}
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

    model: Annotated[
        Any,
        Option(
            help="A known name (`precision-time list models`), a timm or Hugging Face name, "
            "net.py:function or "
            "module:function (the file is run), a config.json, .onnx, .pt2 or job file (.yaml, .toml, "
            ".json).",
            complete="model",
        ),
    ]
    device: Annotated[
        str | None,
        Option(
            help="Device name (`precision-time list devices`), with a count (8xA100, 2x8xH100), or a host "
            "(p5.48xlarge, 4xdgx-h100).",
            flags=("-d",),
            complete="device",
            default="A100-SXM4-80GB",
        ),
    ] = None
    gpus: Annotated[
        Count, Option(help="Devices in all.", flags=("-g",), default="1, or as many as --nodes hold")
    ] = 1
    nodes: Annotated[
        Count | None, Option(help="Hosts the devices are spread over.", default="as few as hold them")
    ] = None
    node_type: Annotated[
        str | None,
        Option(help="DGX-A100, p4d.24xlarge ...: sets the links.", default="the usual one of the device"),
    ] = None
    intra_node: Annotated[
        str | None,
        Option(help="Link between the devices of a host: nvlink3+nvswitch, pcie4 ...", default="--node-type"),
    ] = None
    inter_node: Annotated[
        str | None,
        Option(
            help="Network between hosts by its adapters: ib-hdr-200g x8, ethernet-50g ...",
            default="--network",
        ),
    ] = None
    network: Annotated[
        str | None,
        Option(
            help="Network between hosts, in Gbit/s of a host: 100g-tcp, 400g-ib, efa-400g, roce-100g, "
            "tcpx-800g, 8x400g-ib ...",
            default="--node-type",
        ),
    ] = None
    precision: Annotated[
        str | dict[str, Any] | None,
        Read(_precision),
        Option(
            help="Precision in any usual spelling (`precision-time list precisions`), or a policy file "
            "of your "
            "own (.yaml, .toml, .json).",
            flags=("-p",),
            complete="precision",
            default="bf16-mixed where the device has bf16, else fp16-mixed, else fp32",
        ),
    ] = None
    batch_size: Annotated[
        BatchSize | None,
        Option(
            help="Samples per device and forward pass, as in a PyTorch script.",
            flags=("-b",),
            default="the largest power of two up to 256 that fits",
        ),
    ] = None
    global_batch_size: Annotated[
        BatchSize | None, Option(help="Samples per optimizer step over all devices.", default="--batch-size")
    ] = None
    global_batch_tokens: Annotated[
        BatchTokens | None,
        Option(help="The same in tokens, such as 4M (2^22): the nearest whole number of samples."),
    ] = None
    seq_len: Annotated[
        Count | None,
        Option(
            help="Tokens per sample; 8k is 8192.", default="that of --dataset in fine-tunes, else the model's"
        ),
    ] = None
    image_size: Annotated[
        Count | None, Option(help="Side of the images [pixels].", default="the model's")
    ] = None
    frames: Annotated[Count | None, Option(help="Frames of a video.", default="the model's")] = None
    audio_seconds: Annotated[
        PositiveNumber | None, Option(help="Audio per sample [s].", default="the model's")
    ] = None
    mean_seq_len: Annotated[
        PositiveNumber | None,
        Option(
            help="Mean tokens of a sample, where samples are shorter than --seq-len.", default="--seq-len"
        ),
    ] = None
    packing: Annotated[
        bool | None,
        Option(
            help="Samples share a row of --seq-len tokens, instead of padding to the longest of a batch.",
            default="no",
        ),
    ] = None
    padding_share: Annotated[
        float | None,
        NUMBER,
        Meta(ge=0.0, lt=1.0),
        Option(
            help="Share of a batch's tokens that is padding, 0 to 1.",
            default="by --mean-seq-len and the batch",
        ),
    ] = None
    sizes: Annotated[
        dict[str, Any],
        FINITE,
        Option(
            help="Size of a parametric model, such as hidden=2048 or layers=16; may be repeated.",
            flags=("--size",),
            metavar="NAME=VALUE",
        ),
    ] = {}
    task: Annotated[
        str, Option(help="What is trained where a model serves several tasks: squad-finetune, lora ...")
    ] = ""
    adapter: Annotated[
        Literal["lora", "qlora", "dora", "qdora", "qlora8"] | None,
        WORD,
        Option(
            help="Train low-rank factors beside a frozen base; qlora and qdora hold it in four bits, "
            "qlora8 in eight."
        ),
    ] = None
    lora_rank: Annotated[Count | None, Option(help="Rank of the factors.", default="8")] = None
    lora_targets: Annotated[
        ListText | None,
        Option(
            help="Linear layers with factors: q,k,v,o,gate,up,down, all-linear, or names such as q_proj.",
            metavar="NAME,...",
            default="q,v",
        ),
    ] = None
    freeze: Annotated[
        ListText | None,
        Option(
            help="Parts that are not trained: backbone, embeddings, encoder, layers:N (the first N), or "
            "modules of your model with *.",
            metavar="PART,...",
        ),
    ] = None
    method: Annotated[
        Literal["sft", "dpo", "reward", "distill", "grpo", "ppo"] | None,
        WORD,
        Read(_method),
        Option(help="Training method: what runs beside the update.", default="sft"),
    ] = None
    reference: Annotated[
        str | None,
        Option(
            help="Reference model of dpo, grpo and ppo; none where grpo has no KL term.",
            complete="model",
            default="the model itself",
        ),
    ] = None
    teacher: Annotated[str | None, Option(help="Teacher of distill.", complete="model")] = None
    generate_tokens: Annotated[
        Count | None,
        Option(
            help="Tokens of the longest answer in grpo and ppo; --seq-len holds prompt and answer.",
            default="1024, or half of --seq-len",
        ),
    ] = None
    answer_tokens: Annotated[
        PositiveNumber | None,
        Option(
            help="Mean tokens of an answer.",
            default="half of --generate-tokens, at most 1,000; 0.7 where a model reasons",
        ),
    ] = None
    answer_spread: Annotated[
        PositiveNumber | None,
        Option(help="Standard deviation of the tokens of an answer, over their mean.", default="0.6"),
    ] = None
    group_size: Annotated[Count | None, Option(help="Answers per prompt in grpo.", default="8")] = None
    prompts: Annotated[Count | None, Option(help="Prompts of a step in grpo and ppo.", default="256")] = None
    updates: Annotated[
        Count | None, Option(help="Optimizer steps that the answers of a step are cut into.", default="1")
    ] = None
    engine: Annotated[
        Literal["vllm", "sglang", "trtllm", "hf"] | None,
        WORD,
        Option(help="What generates answers.", default="vllm on NVIDIA and AMD devices, else hf"),
    ] = None
    generate_gpus: Annotated[
        Count | None,
        Option(
            help="Devices among --gpus that only generate.", default="none; half of them with --off-policy"
        ),
    ] = None
    generate_tp: Annotated[
        Count | None,
        Option(help="Tensor-parallel degree of the engine.", default="the least over which the weights fit"),
    ] = None
    off_policy: Annotated[
        Count | None,
        Option(
            help="Updates by which answers may be older than the policy: generation beside training.",
            default="0",
        ),
    ] = None
    dataset: Annotated[
        str | None,
        Option(
            help="imagenet, alpaca, gsm8k ... or a file of yours (.jsonl, .json, .csv).",
            default="the model's usual one",
            complete="dataset",
        ),
    ] = None
    samples: Annotated[
        LongCount | None,
        Option(help="Training samples per epoch, such as 1.28M.", default="those of --dataset"),
    ] = None
    epochs: Annotated[PositiveNumber | None, Option(help="Length of the run in epochs.", default="1")] = None
    steps: Annotated[LongCount | None, Option(help="Length of the run in steps.", default="--epochs")] = None
    tokens: Annotated[
        LongCount | None, Option(help="Length of the run in tokens, such as 300B.", default="--epochs")
    ] = None
    optimizer: Annotated[str | None, Option(help="sgd, adamw, lamb ...", default="the model's usual one")] = (
        None
    )
    framework: Annotated[
        str | None, Option(help="pytorch, tensorflow, jax ...", default="that of --stack")
    ] = None
    stack: Annotated[
        str | None,
        Option(
            help="Software stack (`precision-time list stacks`).",
            complete="stack",
            default="what such a model usually runs on",
        ),
    ] = None
    software: Annotated[
        Year | None,
        Option(
            help="When the versions of the software came out, as a decimal year such as 2024.5.",
            flags=("--software", "--year"),
            metavar="YEAR",
            default="today, or the last year of a stack that nobody maintains",
        ),
    ] = None
    compiler: Annotated[
        Literal["none", "inductor", "xla", "cudagraphs", "torchscript", "graph"] | None,
        WORD,
        Option(help="What compiles the step.", default="that of --stack"),
    ] = None
    channels_last: Annotated[
        bool | None, Option(help="Images in channels-last (NHWC) memory format.", default="that of --stack")
    ] = None
    fused_optimizer: Annotated[
        bool | None, Option(help="One fused kernel for the optimizer.", default="that of --stack")
    ] = None
    attention: Annotated[
        Literal["math", "memory-efficient", "flash1", "flash2", "flash3"] | None,
        WORD,
        Option(
            help="Attention kernel: math keeps the scores in memory; flash3 stands for cuDNN's too.",
            default="what the stack runs in its year",
        ),
    ] = None
    unpadded_sequences: Annotated[
        bool | None, Option(help="Attention skips padding tokens.", default="that of --stack")
    ] = None
    chunked_loss: Annotated[
        bool | None,
        Option(
            help="Head and loss in chunks of tokens, logits never whole (Liger, cut cross entropy).",
            default="that of --stack",
        ),
    ] = None
    real_input: Annotated[
        bool | None,
        Option(
            help="A real input pipeline feeds the step, not tensors in memory.", default="that of --stack"
        ),
    ] = None
    loader: Annotated[
        Literal["synthetic", "pil", "tf.data", "dali", "ffcv"] | None,
        WORD,
        Option(
            help="What decodes and augments samples on the host; synthetic for tensors in memory.",
            default="usual for --stack with --real-input",
        ),
    ] = None
    cpus: Annotated[
        Count | None,
        Option(help="Cores of a host that feed its devices.", default="those of --node-type"),
    ] = None
    scope: Annotated[
        TimingScope,
        WORD,
        Option(help="What the step time includes, to compare with a measured one."),
    ] = TimingScope.FULL_STEP
    of_layout: ClassVar[type[Layout]] = Layout
    """Its options stand here, beside the others."""
    dp_replicate: Annotated[
        NaturalNumber,
        Option(
            help="Data: copies, each sharded over the other data ranks (HSDP, torchtitan); 0: what "
            "--dp-shard leaves."
        ),
    ] = 0
    uneven: Annotated[
        bool,
        Option(
            help="Accept layers, heads or micro batches that the degrees do not divide: the framework "
            "pads or splits them unevenly."
        ),
    ] = False
    input_rate: Annotated[
        PositiveNumber | None,
        Option(
            help="Samples/s that the input pipeline delivers over all devices.", default="as fast as needed"
        ),
    ] = None
    stragglers: Annotated[bool, Option(help="Allow for the slowest of many devices.")] = True
    custom: Annotated[
        Path | dict[str, Any] | None,
        FILE_OR_MAPPING,
        Option(help="YAML or TOML file with user-defined devices or clusters.", metavar="FILE"),
    ] = None
    calibration: Annotated[
        Any,
        Option(
            help="Your measured steps: a table or store of them, or what `calibrate` made of it.",
            metavar="FILE",
        ),
    ] = None
    predictor: Annotated[
        Path | None,
        FILE,
        Option(
            help="Folder of a predictor of your own (`precision-time train`).",
            metavar="DIR",
            default="PRECISION_TIME_PREDICTOR, else the one that ships",
        ),
    ] = None
    anchors: Annotated[
        list[dict[str, Any]],
        Read(_anchors),
        Meta(max_length=MOST_ANCHORS),
        Option(
            help="A step you measured: fields in which it differs from the request, and step_time_s or "
            "samples_per_s; may be repeated.",
            flags=("--anchor", "--anchors"),
            metavar="NAME=VALUE,...",
        ),
    ] = []
    coverage: Annotated[
        float,
        NUMBER,
        Meta(ge=LEAST_COVERAGE, le=1.0 - LEAST_COVERAGE),
        Option(help="Probability that the interval holds, 0 to 1."),
    ] = 0.9
    trust: Annotated[
        bool, Option(help="Load a .pt2 file, which can run code stored in it: only if you know who made it.")
    ] = False
    inputs: Annotated[
        list[str],
        TEXTS,
        Option(
            help="One argument of your own module, such as ids:int64[B,512] with B for the batch; may be "
            "repeated.",
            flags=("--input",),
            metavar="NAME:TYPE[SIZES]",
            default="found out by trying",
        ),
    ] = []
    forward: Annotated[
        Any, Option(help="Method of your own module that a step calls.", metavar="NAME", default="forward")
    ] = None
    loss: Annotated[
        Any,
        Option(
            help="Loss function of what your own module returns.",
            metavar="MODULE:FUNCTION",
            default="a loss that the module returns itself",
        ),
    ] = None
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
        return with_stack_name(with_cluster_words(given))

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
SECTIONS: Mapping[str, str] = {
    "device": "Devices and network",
    "precision": "Precision and batch",
    "seq_len": "Samples and sizes",
    "adapter": "What is trained",
    "dataset": "Length of the run",
    "optimizer": "Optimizer and software",
    "tp": "Layout",
    "input_rate": "Input, own measurements, assumptions",
    "inputs": "A model of your own",
}
"""The first field of every section of the help; a section lasts up to the next one."""


def sections_of_fields() -> dict[str, str]:
    """The section of the help that each field stands in; empty before the first."""
    found, section = {}, ""
    for name in RequestFields.model_fields:
        found[name] = section = SECTIONS.get(name, section)
    return found
