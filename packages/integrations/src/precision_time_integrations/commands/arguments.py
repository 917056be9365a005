"""Arguments of a training script as fields of a request, by the `arguments` part of `projects/data`.

Layouts, batches and sizes of Megatron, NeMo and torchtitan are read by the tables of `launch` that write
them.
"""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from precision_time.errors import PrecisionTimeError
from precision_time.launch.emit import facts_of_config
from precision_time.launch.facts import fields_of_facts
from precision_time.launch.table import launcher_of
from precision_time.workload.families.decoder import DecoderConfig

from ..projects import parts
from .configs import flattened, parsed_config
from .expand import is_known, told
from .launchers import Files

_TRUE = "true"
_WORDS = ("activation-checkpoint",)
"""Of torchtitan: what stands before a colon in words that are no options."""
_UNSTATED = ("", "null", "none", "None", "auto")
_SIZES = frozenset(DecoderConfig.__dataclass_fields__) - {"seq_len", "activation", "norm", "positions"}
"""Words are no sizes: they come with the model that the sizes are put into."""
_GPT, _LLAMA = "decoder", "llama2-7b"
"""Models whose sizes a script states: layer norm and learned positions, or RMS norm and rotary ones."""
_OF_FACTS: Mapping[str, str] = {
    "micro_batch": "batch_size", "global_batch": "global_batch_size", "seq_len": "seq_len",
    "precision": "precision", "optimizer": "optimizer",
}  # fmt: skip
"""Facts of a launcher that are fields of a request, layout options aside."""
_TEXT = frozenset(
    {"model", "precision", "optimizer", "dataset", "compiler", "recompute", "adapter", "device"}
)
"""Fields that hold words; the others hold numbers or switches."""


@dataclass(slots=True)
class Arguments:
    """What the arguments of a script say."""

    style: str = ""
    """The project whose table reads them."""
    fields: dict[str, Any] = field(default_factory=dict)
    run: dict[str, Any] = field(default_factory=dict)
    """Options of a whole run."""
    nodes: int | None = None
    devices_per_node: int | None = None
    deepspeed: str = ""
    """Name of a DeepSpeed configuration."""
    unread: list[str] = field(default_factory=list)


_OVERRIDE = re.compile(r"[+~]{0,2}[A-Za-z_]\w*\.[\w.@/-]*=")
"""Hydra's `trainer.devices=4`: never the value of the option before it."""


def named_arguments(words: Sequence[str]) -> dict[str, str]:
    """Values by name, underscores for dashes and no dashes before it; a switch is `true`.

    >>> named_arguments(["--batch-size", "64", "--bf16", "trainer.devices=4"])
    {'batch_size': '64', 'bf16': 'true', 'trainer.devices': '4'}
    """
    found: dict[str, str] = {}
    for place, word in enumerate(words):
        name, equals, value = word.partition("=")
        after = words[place + 1] if place + 1 < len(words) else ""
        if word.startswith("-") and not _is_number(word):
            key = name.lstrip("-").replace("-", "_")
            if not equals:
                taken = after and not _OVERRIDE.match(after) and (after[0] != "-" or _is_number(after))
                value = after if taken else _TRUE
            if key.startswith("no_") and value == _TRUE:
                key, value = key.removeprefix("no_"), "false"
            found[key] = value
        elif equals and re.fullmatch(r"[+~]{0,2}[A-Za-z_][\w.@/-]*", name):
            found[name.lstrip("+")] = value
    return found


def _is_number(word: str) -> bool:
    """Whether a word is a number of ordinary size; Python takes `6_348_800` too."""
    return len(word) < 30 and re.fullmatch(r"-?(\d[\d_]*\.?\d*|\.\d+)(?:[eE][+-]?\d{1,2})?", word) is not None


def read_arguments(script: str, words: Sequence[str], files: Files, *, gpus: int | None) -> Arguments:
    """What a script's arguments say of its job.

    Args:
        script: Path or module.
        words: Its arguments, expanded.
        files: Reads the configuration files that they name.
        gpus: Devices of the job, where they are known.
    """
    given = named_arguments(words)
    found = Arguments()
    given = {**_of_files(script, words, given, files, found), **given}
    found.style = style_of(script, words, given)
    table = parts("arguments")[found.style]
    if "table" in table:
        of_launcher(table, given, words, gpus, found)
    for name in table.get("fields", {}):
        _field(name, table, given, found)
    for name, keys in table.get("run", {}).items():
        value = _first(keys, given)
        if value is not None and is_known(value) and re.fullmatch(r"\d+", value) and int(value) > 0:
            found.run[name] = int(value)
    for key, fields in table.get("switches", {}).items():
        if given.get(key, "").lower() == _TRUE:
            found.fields |= fields
    for keys in table.get("files", {}).values():
        path = _first(keys, given)
        if path is not None and path != _TRUE:
            found.deepspeed = path
    if found.style == "hf-trainer" and given.get("fsdp", _TRUE) != _TRUE:
        _fsdp_of_words(given["fsdp"], found)
    _finish(found, given)
    return found


def style_of(script: str, words: Sequence[str], given: Mapping[str, str]) -> str:
    """The first table with enough of its markers among the names; the last one asks for none."""
    for name, table in parts("arguments").items():
        marks = sum(marker in given for marker in table["markers"])
        marks += sum(word in words[:1] for word in table.get("words", ()))
        if marks >= table["needed"] or any(script.startswith(each) for each in table.get("modules", ())):
            return name
    raise AssertionError("the last table asks for no marker")


def _of_files(
    script: str, words: Sequence[str], given: Mapping[str, str], files: Files, found: Arguments
) -> dict[str, str]:
    """Arguments that stand in a configuration file which the command names."""
    named = [given[key] for key in ("job.config_file", "config", "c", "config_file", "cfg") if key in given]
    single = [word for word in words[:2] if word.endswith((".json", ".yaml", ".yml")) and "=" not in word]
    inner: dict[str, str] = {}
    for path in dict.fromkeys([*named, *single]):
        if not path.endswith((".toml", ".yaml", ".yml", ".json")):
            continue
        text = files(path)
        tree = None if text is None else parsed_config(path, text)
        if tree is None:
            why = "is not there to be read" if text is None else "is no TOML, YAML or JSON mapping"
            found.unread.append(f"the file {told(path)} {why}")
            continue
        inner |= {key.replace("-", "_"): value for key, value in flattened(tree).items()}
    return inner


def _first(keys: Sequence[str], given: Mapping[str, str]) -> str | None:
    return next((given[key] for key in keys if key in given), None)


def _field(name: str, table: Mapping[str, Any], given: Mapping[str, str], found: Arguments) -> None:
    """Put one field of a table, where it is given and known."""
    key = next((each for each in table["fields"][name] if each in given), None)
    if key is None:
        return
    value = given[key]
    if not is_known(value):
        found.unread.append(f"{key}={told(value)}: known only when it runs ({name})")
        return
    values = {str(word).lower(): meant for word, meant in table.get("values", {}).get(name, {}).items()}
    value = str(values.get(value.lower(), value))
    for suffix in table.get("model_suffixes", {}).get(key, ()):
        value = value.removesuffix(suffix) if name == "model" else value
    if value in _UNSTATED or (value == _TRUE and name in _TEXT and name != "recompute"):
        return
    if name in _TEXT:
        found.fields[name] = value
    elif value.lower() in (_TRUE, "false"):
        found.fields[name] = value.lower() == _TRUE
    elif _is_number(value):
        number = float(value.replace("_", ""))
        found.fields[name] = int(number) if number == int(number) else number
    elif name in ("strategy", "flavor"):
        found.fields[name] = value
    elif name == "devices_per_node" and value.startswith("["):
        found.fields[name] = value.count(",") + 1
    else:
        found.unread.append(f"{key}={told(value)}: not a number ({name})")


def of_launcher(
    table: Mapping[str, Any],
    given: Mapping[str, str],
    arguments: Sequence[str],
    gpus: int | None,
    found: Arguments,
) -> None:
    """Layout, batch, precision and sizes, by the table of a launcher."""
    launcher = table["table"]
    read = {setting.key.removeprefix("--").replace("-", "_") for setting in launcher_of(launcher).settings}
    known = {key: value for key, value in given.items() if is_known(value)}
    found.unread += [
        f"{key}={told(value)}: known only when it runs"
        for key, value in given.items()
        if not is_known(value) and key in read
    ]
    if launcher == "torchtitan":
        known = {key: value for key, value in known.items() if value != "-1"}
    words = [
        f"{key}={value}" if table.get("hydra") else _flag(key, value, dashes=launcher == "megatron")
        for key, value in known.items()
    ]
    words += [word for word in arguments if ":" in word and word.partition(":")[0] in _WORDS]
    try:
        facts = facts_of_config(launcher, shlex.join(words))
        if launcher == "torchtitan":
            facts.setdefault("zero_stage", 3)
            facts = _torchtitan_sharding(facts, given)
        if launcher == "megatron":
            facts.setdefault("sequence_parallel", False)
        put_facts(found, facts, gpus)
        if "sizes" in found.fields:
            _more_sizes(table, given, found)
    except (PrecisionTimeError, ValueError, TypeError, ArithmeticError) as error:
        found.unread.append(f"the layout of {table['title']}: {error}")


def _more_sizes(table: Mapping[str, Any], given: Mapping[str, str], found: Arguments) -> None:
    """Sizes that switches say, and the vocabulary, which the tokenizer brings."""
    sizes = dict(found.fields["sizes"])
    for key, more in table.get("sizes", {}).items():
        if given.get(key) == _TRUE:
            sizes |= more
    hidden = int(sizes["hidden"])
    # As Megatron fills them in.
    sizes.setdefault("ffn", int(4 * hidden * 2 / 3 / 64) * 64 if sizes.get("gated") else 4 * hidden)
    plain: dict[str, Any] = {"gated": False, "tied": True}
    if found.fields["model"] == _LLAMA:
        bias = given.get("disable_bias_linear") != _TRUE
        heads = int(sizes["heads"])
        plain |= {"mlp_bias": bias, "out_bias": bias, "qkv_bias": bias}
        plain |= {"kv_heads": heads, "head_dim": hidden // heads}
    sizes = plain | sizes
    found.fields["sizes"] = sizes
    if "vocab" not in sizes:
        found.unread.append("the size of the vocabulary, which the tokenizer brings: --vocab-size says it")


def _flag(key: str, value: str, *, dashes: bool) -> str:
    name = f"--{key.replace('_', '-') if dashes else key}"
    return name if value == _TRUE else f"{name}={value}"


def _torchtitan_sharding(facts: dict[str, Any], given: Mapping[str, str]) -> dict[str, Any]:
    """Its shard degree is -1 unless it is stated: all that the other degrees leave."""
    shard = given.get("parallelism.data_parallel_shard_degree", "-1")
    if shard == "1":
        return facts
    return {**{name: value for name, value in facts.items() if name != "dp"}, "zero_stage": 3}


def put_facts(found: Arguments, facts: Mapping[str, Any], gpus: int | None) -> None:
    """Fields of a request that facts of a launcher's configuration are."""
    stated = {name: value for name, value in facts.items() if value not in _UNSTATED}
    numbers = {
        "micro_batch",
        "global_batch",
        "num_microbatches",
        "seq_len",
        "replica_batch",
        "local_batch",
        "zero_stage",
    }
    stated = {name: value for name, value in stated.items() if name not in numbers or isinstance(value, int)}
    for name, wanted in _OF_FACTS.items():
        if name in stated:
            found.fields[wanted] = stated[name]
    if "global_batch" in stated and stated.get("global_batch", 0) < 1:
        del found.fields["global_batch_size"]
    if "local_batch" in stated:
        found.fields["batch_size"] = stated["local_batch"]
    words = {_TRUE: True, "false": False}
    sizes = {name: words.get(str(value), value) for name, value in stated.items() if name in _SIZES}
    if {"layers", "hidden", "heads"} <= sizes.keys():
        rms = stated.get("norm") == "rms"
        found.fields |= {"model": _LLAMA if rms else _GPT, "sizes": sizes}
    layout = fields_of_facts(
        {name: value for name, value in stated.items() if name not in ("global_batch", "dp")},
        int(stated.get("layers", 0)),
        gpus,
    )
    layout |= {name: stated[name] for name in ("num_microbatches",) if name in stated}
    cut = layout.get("pp", 1) * layout.get("tp", 1) > 1
    for name, value in layout.items():
        if name not in ("schedule", "sequence_parallel") or (name in stated and cut):
            found.fields[name] = value
    _accumulation(found.fields, gpus)


def _accumulation(fields: dict[str, Any], gpus: int | None) -> None:
    """Micro batches of a step in the place of a global batch, where the devices say how many there are."""
    if "global_batch_size" not in fields:
        return
    fields.pop("num_microbatches", None)
    ranks = math.prod(int(fields.get(name, 1)) for name in ("tp", "pp", "cp"))
    if gpus and "batch_size" in fields and gpus % ranks == 0:
        of_micro = fields["batch_size"] * (gpus // ranks)
        if of_micro and fields["global_batch_size"] % of_micro == 0:
            fields["num_microbatches"] = int(fields.pop("global_batch_size") // of_micro)


def _fsdp_of_words(text: str, found: Arguments) -> None:
    """`--fsdp "full_shard auto_wrap offload"` of the Hugging Face Trainer."""
    words = text.lower().split()
    if "no_shard" not in words and words and words != ["false"]:
        found.fields["zero_stage"] = 2 if "shard_grad_op" in words else 3
        if "offload" in words:
            found.fields["offload"] = "parameters"
        if "hybrid_shard" in words:
            found.unread.append("fsdp hybrid_shard: a shard is taken to span all devices, not one node")


def _finish(found: Arguments, given: Mapping[str, str]) -> None:
    """What a table's fields mean together."""
    fields = found.fields
    for name in ("nodes", "devices_per_node"):
        value = fields.pop(name, None)
        if isinstance(value, int) and value > 0:
            setattr(found, name, value)
    sizes = {name.partition(".")[2]: fields.pop(name) for name in tuple(fields) if name.startswith("sizes.")}
    if {"layers", "hidden", "heads"} <= sizes.keys() and "model" not in fields:
        fields |= {"model": "decoder", "sizes": sizes}
    flavor = fields.pop("flavor", None)
    if flavor is not None and "model" in fields:
        fields["model"] = f"{fields['model']}-{flavor}".lower()
    if found.style == "torchtitan" and (mode := given.get("activation_checkpoint.mode")):
        kinds = {"none": "none", "selective": "selective", "full": "full"}
        if mode in kinds:
            fields["recompute"] = kinds[mode]
    strategy = str(fields.pop("strategy", ""))
    if strategy.startswith(("fsdp", "deepspeed")):
        stage = re.search(r"stage_(\d)", strategy)
        fields["zero_stage"] = int(stage[1]) if stage else 3 if strategy.startswith("fsdp") else 2
        if "offload" in strategy:
            fields["offload"] = "optimizer"
    samples = fields.pop("train_samples", None)
    if samples is not None and "steps" not in fields:
        fields |= {"samples": samples, "epochs": 1}
    if "steps" in fields and "epochs" in fields:
        # Both limits: frameworks stop at whichever comes first, and steps are the surer one to state.
        found.unread.append(f"epochs={fields.pop('epochs')} beside steps={fields['steps']}: steps are taken")
    if fields.get("packing") is not True:
        fields.pop("packing", None)
    if not fields.get("adapter"):
        fields.pop("lora_rank", None)
