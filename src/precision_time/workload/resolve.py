"""From a model's name (and sizes, where the caller knows them) to a `Workload`, without torch.

A name is looked up in this order: alias, parametric table (`data/decoders.toml`,
`data/transformers.toml`), captured zoo, names that spell their own sizes (`gpt-h1024-l24`), and at
last sizes that are complete enough to build a decoder from.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ..cache import data, memo
from ..errors import ConfigError, UnknownNameError, shown
from ..records import dataclass
from .families.registry import family_builder
from .families.sizes import check_size_names, choose_sizes
from .families.tables import (
    ModelEntry,
    alias_table,
    dataset_table,
    find_entry,
    model_table,
    model_table_names,
    normalize,
    preset,
    preset_of,
    read_toml,
    task_rule,
    unsupported,
    unsupported_table,
    variant_of,
    variant_sizes,
)
from .graph import OpGraph
from .hf_config import entry_of_config, is_config_source
from .spellings import by_spelling, nearest_models, respelled, squashed, worded
from .tuning import Adapter, adapter_of, target_roles, with_adapter
from .workload import Workload

if TYPE_CHECKING:
    from .zoo import ZooEntry

_SELF_DESCRIBING = (
    (re.compile(r"gpt-h(?P<hidden>\d{1,12})-l(?P<layers>\d{1,12})"), "megatron"),
    (re.compile(r"gpt-(?P<hidden>\d{1,12})x(?P<layers>\d{1,12})"), "megatron"),
    (re.compile(r"gpt-(?P<layers>\d{1,12})l-(?P<hidden>\d{1,12})"), "megatron"),
)
_LENGTHS = frozenset({"seq_len", "image_size"})
"""Sizes with an argument of their own: where a model has none, the answer says that they were left out."""
_FILE_SUFFIXES = (".json", ".onnx", ".pt2", ".py")
_ADAPTED = re.compile(r"(?P<base>.+)-(?P<kind>qlora8|q?lora|q?dora)")
_BY_TASK = frozenset({"decoder", "vision-language"})
"""Builders of models whose task may say that adapters are trained."""
ADAPTER_SIZES: Mapping[str, str] = {
    "lora_rank": "int",
    "lora_targets": "tuple",
    "qlora": "bool",
    "qlora8": "bool",
}
"""Sizes that say which adapters are trained, and their types."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelInfo:
    """What is known of a model by name alone."""

    name: str
    family: str
    params: float
    forward_flops: float
    """Per sample, at the model's default image size or sequence length."""
    source: str
    """Where the shape comes from."""
    aliases: tuple[str, ...] = ()
    """Other names that it answers to; separators and suffixes such as `-instruct` need none."""


def load_workload(
    model: Any,
    *,
    seq_len: int | None = None,
    image_size: int | None = None,
    sizes: Mapping[str, Any] | None = None,
    task: str = "",
    dataset: str | None = None,
    optimizer: str | None = None,
    strict: bool = False,
    adapter: Adapter | None = None,
) -> Workload:
    """The workload of a known model.

    Args:
        model: Name in any usual spelling (`resnet50`, `meta-llama/Llama-3.1-8B`), or a Hugging Face
            configuration: a config.json or its folder, a mapping, an object of transformers.
        seq_len: Tokens per sample; the model's default if not given, which `assumptions` names.
        image_size: Side length of the input [pixels].
        sizes: Sizes that override the table (hidden, layers, heads, kv_heads, ffn, vocab, experts,
            lora_rank ...); with hidden, layers and heads a decoder resolves under any name.
        task: What is trained (`lm-pretrain`, `squad-finetune`, `lora-finetune` ...): chooses the
            head of an encoder and what is frozen.
        dataset: Training set; the model's default if not given.
        optimizer: Optimizer name; the model's default if not given.
        strict: Refuse `sizes` that the model does not have, as of a user's request; rows of measurement files
            carry sizes that describe the run only, and leave it off.
        adapter: Adapters that are trained beside a frozen base; as sizes and task say if not given.

    Raises:
        UnknownNameError: If no table holds the name and `sizes` do not describe a decoder.
        CaptureError: If a configuration is not one, or has parts that no family here has.
        ConfigError: If a size is zero, negative or does not fit the others, or, with `strict`, is not one of
            the model's.
    """
    if is_config_source(model):
        stated = _stated(dict(sizes or {}), seq_len, image_size)
        return _from_entry(
            entry_of_config(model), stated, _Training(task, dataset, optimizer, strict, adapter)
        )
    try:
        key = json.dumps(dict(sizes), sort_keys=True) if sizes else ""
    except (TypeError, ValueError) as error:
        raise ConfigError(
            f"sizes={shown(sizes)} is not possible. The rule: a mapping of names to numbers. To fix: correct "
            "it."
        ) from error
    return _load(model, seq_len, image_size, key, _Training(task, dataset, optimizer, strict, adapter))


def check_named_in_data(model: Any) -> None:
    """Refuse a model that data (a line of a batch, a row, a job file) names by code or by a file.

    Raises:
        ConfigError: If it is `module:function`, or an existing or possible file.
    """
    if not isinstance(model, str | Path):
        return
    words = str(model)
    if ":" in words or words.endswith(_FILE_SUFFIXES) or is_config_source(words):
        raise ConfigError(
            f"The model {shown(words)} is code or a file. The rule: data names models by a known name or an "
            "inline configuration; code and files are named on the command line or in Python only. To fix: "
            "use a name of `precision-time list models`, or sizes."
        )


class _Training(NamedTuple):
    """What the caller of `load_workload` states of the training."""

    task: str
    dataset: str | None
    optimizer: str | None
    strict: bool
    adapter: Adapter | None


@memo(512)
def _load(
    model: str, seq_len: int | None, image_size: int | None, sizes_json: str, training: _Training
) -> Workload:
    sizes = _stated(json.loads(sizes_json) if sizes_json else {}, seq_len, image_size)
    entry = _find_entry(model, sizes)
    if entry is None and training.strict and preset_of(canonical_name(model)):
        entry = _from_sizes(model, canonical_name(model), sizes)  # a captured model in another shape
    if entry is None:
        entry, kind = _adapted(model, sizes)
        training = training._replace(task=training.task or (f"finetune-{kind}" if kind else ""))
    if entry is not None:
        return _from_entry(entry, sizes, training)
    kind = adapter_in_name(model)
    base = canonical_name(canonical_name(model).removesuffix(f"-{kind}")) if kind else ""
    if base and _zoo_name(base):
        usual = training.adapter or adapter_of(kind, None, None)[0]
        return _from_zoo(base, sizes, training._replace(adapter=usual))
    return _from_zoo(model, sizes, training)


def decoder_sizes(model: str, sizes: Mapping[str, Any], seq_len: int | None) -> Any:
    """The sizes of a decoder-only model that a table holds, as a `DecoderConfig`; None for all others."""
    stated = _stated(dict(sizes), seq_len, None)
    entry = _find_entry(model, stated) or _adapted(model, stated)[0]
    if entry is None or entry.builder != "decoder":
        return None
    builder = family_builder(entry.builder)
    bare = {name: value for name, value in entry.sizes.items() if name not in ADAPTER_SIZES}
    chosen, _ = choose_sizes(replace(entry, sizes=bare), builder, stated, rules={})
    return builder.config_type(**chosen)


def _stated(sizes: dict[str, Any], seq_len: int | None, image_size: int | None) -> dict[str, Any]:
    """The caller's sizes with the two that have an argument of their own, checked."""
    for label, value in (("seq_len", seq_len), ("image_size", image_size)):
        if value is not None:
            sizes[label] = value
    _check(sizes)
    return sizes


def _check(sizes: Mapping[str, Any]) -> None:
    for name, value in sizes.items():
        if isinstance(value, int | float) and not isinstance(value, bool) and not value > 0:
            raise ConfigError(
                f"{name}={shown(value)} is not possible. The rule: sizes are positive numbers. "
                f"To fix: give a positive {name} or leave it out for the model's default."
            )


def _find_entry(model: str, sizes: Mapping[str, Any]) -> ModelEntry | None:
    name = canonical_name(model)
    entry = find_entry(name)
    if entry is not None:
        return entry
    for pattern, arch in _SELF_DESCRIBING:
        found = pattern.fullmatch(name)
        if found:
            stated = {key: int(value) for key, value in found.groupdict().items()}
            _check(stated)
            return _generic_decoder(model, arch, stated)
    return None if _zoo_name(name) else _from_sizes(model, name, sizes)


def _adapted(model: str, sizes: Mapping[str, Any]) -> tuple[ModelEntry | None, str]:
    """A model whose name says that only adapters are trained (`llama3-70b-qlora`), and which."""
    found = _ADAPTED.fullmatch(canonical_name(model))
    entry = _find_entry(found["base"], sizes) if found else None
    if found is None or entry is None:
        return None, ""
    return replace(entry, name=found[0]), found["kind"]


def adapter_in_name(model: str) -> str:
    """The adapters that a name says (`llama3-70b-qlora`: qlora); empty where a model has the name."""
    name = canonical_name(model)
    found = _ADAPTED.fullmatch(name)
    return found["kind"] if found and find_entry(name) is None and not _zoo_name(name) else ""


def _adapter_of(
    entry: ModelEntry, sizes: Mapping[str, Any], training: _Training
) -> tuple[Adapter | None, str]:
    """Adapters as the caller states, else as sizes and task say, and in words what was assumed."""
    if training.adapter is not None:
        return training.adapter, ""
    stated = {name: value for name, value in {**entry.sizes, **sizes}.items() if name in ADAPTER_SIZES}
    suffix = _ADAPTED.fullmatch(entry.name)
    by_task = (training.task, "qlora" if stated.get("qlora") else None)
    rule = task_rule("adapters", *by_task) if entry.builder in _BY_TASK or suffix else {}
    if not rule and not stated.get("lora_rank"):
        return None, ""
    kind = suffix["kind"] if suffix else "qlora" if rule.get("qlora") else "lora"
    if kind == "lora":  # sizes say how the frozen base is held
        kind = "qlora8" if stated.get("qlora8") else "qlora" if stated.get("qlora") else kind
    if stated.get("lora_rank"):
        targets = target_roles(stated.get("lora_targets", ("q", "v")))
        return Adapter(kind=kind, rank=int(stated["lora_rank"]), targets=targets), ""
    said = f"frozen base with adapters of rank {rule['lora_rank']} ({rule['source']})"
    return Adapter(kind=kind, rank=rule["lora_rank"], targets=tuple(rule["lora_targets"])), said


def _from_sizes(model: str, name: str, sizes: Mapping[str, Any]) -> ModelEntry | None:
    """A decoder that no table names: from stated sizes, or from stated parameters and a known prefix."""
    arch = preset_of(name)
    if {"hidden", "layers", "heads"} <= sizes.keys() or (arch and {"hidden", "layers"} <= sizes.keys()):
        return _generic_decoder(model, arch or ("llama" if sizes.get("kv_heads") else "megatron"), {})
    if arch and "params" in sizes and "experts" not in sizes:
        entry = _generic_decoder(model, arch, {})
        return replace(entry, facts={**entry.facts, "target_params": float(sizes["params"])})
    return None


def canonical_name(model: str) -> str:
    """The normalized name under which a table or the zoo holds `model`, aliases and spellings followed."""
    name = normalize(model)
    usual = normalize(alias_table().get(name, name))
    if usual != name or _is_known(name):
        return usual
    return _respelled(name) or name


def usual_of(model: Any) -> tuple[str, ...]:
    """What is assumed of a name that leaves the size open; nothing where it says one."""
    name = normalize(model) if isinstance(model, str) else ""
    meant = alias_table().get(name, "")
    taken, rest = normalize(meant), normalize(meant)[len(name) :]
    ends = bool(name and rest) and not (name[-1].isalpha() and rest[0].isalpha())  # vit-l is vit-large
    return (f"{model!r} read as {meant}, the usual one.",) if ends and taken.startswith(name) else ()


def cautions_of(model: Any) -> tuple[str, ...]:
    """What is not priced of a model that is known by the way it is trained."""
    name = normalize(model) if isinstance(model, str) else ""
    return tuple(
        each["says"] for each in read_toml("aliases.toml")["cautions"] if re.fullmatch(each["name"], name)
    )


def is_known_model(model: str) -> bool:
    """Whether a table or the zoo holds `model` in any spelling."""
    return _is_known(canonical_name(model))


def _is_known(name: str) -> bool:
    """Whether a normalized name needs no other spelling."""
    if find_entry(name) is not None or any(pattern.fullmatch(name) for pattern, _ in _SELF_DESCRIBING):
        return True
    return _zoo_name(name) is not None or name in unsupported_table()


def _respelled(name: str) -> str | None:
    return respelled(name, lambda spelling: _spellings().get(squashed(spelling))) or _by_words().get(
        worded(name)
    )


@data
def _by_words() -> Mapping[Any, str]:
    """Every known model by the words of its names in any order; words that two models share mean none."""
    found: dict[Any, set[str]] = {}
    for name in (*model_table_names(), *_zoo_names(), *alias_table()):
        found.setdefault(worded(normalize(name)), set()).add(normalize(alias_table().get(name, name)))
    return {
        words: next(iter(meant)) for words, meant in found.items() if len(meant) == 1 and len(words[0]) > 1
    }


@data
def _spellings() -> Mapping[str, str]:
    """Every known model by the spelling of its names without separators."""
    exact = [(name, name) for name in (*model_table_names(), *_zoo_names())]
    aliases = ((name, normalize(meant)) for name, meant in alias_table().items())
    return {**by_spelling(aliases), **by_spelling(exact)}


def _generic_decoder(model: str, arch: str, sizes: Mapping[str, Any]) -> ModelEntry:
    base = preset(arch)
    if base is None:
        raise ConfigError(f"No preset {arch!r} in the model tables. To fix: reinstall the package.")
    return replace(
        base,
        name=normalize(model),
        sizes={**base.sizes, **sizes},
        source="sizes in the name or from the caller",
    )


def _from_entry(entry: ModelEntry, sizes: Mapping[str, Any], training: _Training) -> Workload:
    task, dataset, optimizer, strict, _ = training
    builder = family_builder(entry.builder)
    if strict:
        _check_names(entry.name, sizes, _entry_sizes(entry, sizes))
    known = dataset_table().get(normalize(dataset or ""))  # sst2 is a task of GLUE, whatever it is called
    rules = task_rule(entry.builder, task, dataset, None if known is None else known.name)
    adapter, said = _adapter_of(entry, sizes, training)
    bare = {name: value for name, value in entry.sizes.items() if name not in ADAPTER_SIZES}
    chosen, assumptions = choose_sizes(replace(entry, sizes=bare), builder, sizes, rules=rules)
    try:
        config = builder.config_type(**chosen)
    except TypeError as error:
        raise ConfigError(
            f"The sizes of {entry.name!r} are incomplete: {error}. The rule: hidden, layers and heads are "
            "needed. To fix: pass them in sizes."
        ) from error
    graph = _build(entry.builder, entry.name, config)
    family, facts = family_of(entry, chosen), entry.facts
    if adapter is not None:
        graph = with_adapter(graph, adapter, train_heads=family != "diffusion")
        assumptions += [said] * bool(said)
    units = float(chosen.get(facts.get("units", "seq_len"), graph.seq_len or 1))
    unit = facts.get("throughput_unit", "tokens/s")
    data = dataset or facts.get("dataset", "")
    return Workload(
        name=entry.name,
        graph=graph,
        family=family,
        task=task or facts.get("task", "lm-pretrain"),
        optimizer=optimizer or rules.get("optimizer") or facts.get("optimizer", "adamw"),
        sample_unit=facts.get("sample_unit", "sequence"),
        units_per_sample=units if unit == "tokens/s" else 1.0,
        throughput_unit=unit,
        dataset=data,
        dataset_samples=samples_of(data, graph.seq_len),
        adapter=adapter.kind if adapter is not None else "",
        assumptions=tuple(assumptions),
    )


@memo(512)
def _build(builder: str, name: str, config: Any) -> OpGraph:
    return family_builder(builder).build(name, config)


def family_of(entry: ModelEntry, sizes: Mapping[str, Any]) -> str:
    """The coarse family: experts make a model `moe` unless the table says otherwise."""
    default = "moe" if sizes.get("experts") else family_builder(entry.builder).family
    return str(entry.facts.get("family", default))


def samples_of(dataset: str, seq_len: int | None) -> int | None:
    """Samples per epoch of a known dataset; running text is cut into pieces of `seq_len` tokens."""
    found = dataset_table().get(normalize(dataset)) if dataset else None
    if found is None:
        return None
    if found.tokens is not None and seq_len:
        return found.tokens // seq_len
    return found.samples


def _zoo_name(name: str) -> str | None:
    return _zoo_names().get(name) or _zoo_names().get(name.split(".", maxsplit=1)[0])


@data
def _zoo_names() -> Mapping[str, str]:
    from .zoo import zoo_index

    return {normalize(name): name for name in zoo_index()}


def _check_names(model: str, sizes: Mapping[str, Any], known: Mapping[str, str], way_out: str = "") -> None:
    """`check_size_names` of what has no argument of its own."""
    check_size_names(model, {name: sizes[name] for name in sizes if name not in _LENGTHS}, known, way_out)


def _entry_sizes(entry: ModelEntry, sizes: Mapping[str, Any]) -> Mapping[str, str]:
    """Sizes that an entry has, with their types."""
    target = {"params": "int"} if "target_params" in entry.facts and "params" in sizes else {}
    return {**family_builder(entry.builder).size_names, **ADAPTER_SIZES, **target}


def sizes_that_apply(model: str, sizes: Mapping[str, Any]) -> dict[str, Any]:
    """Those of `sizes` that a model has: what describes only the run of a row is left out."""
    entry = _find_entry(model, sizes) or _adapted(model, sizes)[0]
    known = variant_sizes(canonical_name(model)) if entry is None else _entry_sizes(entry, sizes)
    return {name: value for name, value in sizes.items() if name in known or name in _LENGTHS}


def _from_zoo(model: str, sizes: Mapping[str, Any], training: _Training) -> Workload:
    from .zoo import load_zoo_graph, zoo_index

    task, dataset, optimizer, strict, adapter = training
    usual = canonical_name(model)
    variant = variant_of(usual, {**sizes, "task": task, "dataset": dataset or ""})
    name = variant if variant in zoo_index() else _zoo_name(usual)
    if name is None:
        raise _unknown(model)
    if strict:
        known = dict.fromkeys(variant_sizes(usual), "word")
        way_out = "or say its shape by both hidden and layers" if preset_of(usual) else ""
        _check_names(name, sizes, known, way_out)
    entry = zoo_index()[name]
    meanings = {"image_size": entry.image_size, "seq_len": entry.seq_len}
    left_out = [
        f"{size}={sizes[size]} left out: {name} has none"
        for size, default in meanings.items()
        if size in sizes and default is None
    ]
    wanted = sizes.get("image_size") if entry.image_size is not None else None
    graph = load_zoo_graph(name, image_size=wanted if isinstance(wanted, int) else None)
    if adapter is not None:
        graph = with_adapter(graph, adapter, train_heads=entry.family != "diffusion")
        name = f"{name}-{adapter.kind}"
    data = dataset or entry.dataset
    return Workload(
        name=name,
        graph=graph,
        family=entry.family,
        task=task or entry.task,
        optimizer=optimizer or entry.optimizer,
        sample_unit=entry.sample_unit,
        units_per_sample=entry.units_per_sample,
        throughput_unit=entry.throughput_unit,
        dataset=data,
        dataset_samples=_zoo_samples(entry, data, graph.seq_len),
        adapter=adapter.kind if adapter is not None else "",
        assumptions=tuple(left_out),
    )


def _unknown(model: str) -> UnknownNameError:
    """What is known of the same kind, and why a model that was met cannot be built."""
    usual = canonical_name(model)
    met = unsupported(usual)
    if met:
        return UnknownNameError(
            kind="model",
            name=model,
            known=(),
            nearest=(),
            hint=f"It cannot be built by its name: {met['why']} To fix: name a module of your own as "
            "file.py:object (guide: docs/guides/own-model.md).",
        )
    kind, nearest = _nearest(usual)
    return UnknownNameError(
        kind="model",
        name=model,
        known=(),
        nearest=nearest,
        hint=f"To fix: `precision-time list models{f' --search {kind}' if kind else ''}` lists the known "
        "ones; or pass the path of its config.json, sizes (hidden, layers, heads) of a language model, or "
        "your own module.",
    )


def is_refused(model: str) -> bool:
    """Whether a name is known to stand for nothing that can be built: no package need be asked for it.

    A name of a hub, `organization/model`, may be in the user's own cache.
    """
    met = unsupported(canonical_name(model))
    return bool(met) and "captured" not in met and "/" not in model


@memo(256)
def _nearest(name: str) -> tuple[str, tuple[str, ...]]:
    """The kind of an unknown name and the known names nearest to it: one name stands in many rows."""
    meant, spelled = _names_and_meanings()
    kind, nearest = nearest_models(name, meant)
    return kind, tuple(spelled[found] for found in nearest)


@data
def _names_and_meanings() -> tuple[dict[str, str], dict[str, str]]:
    """What every normalized name stands for, and how it is spelled."""
    meant = {normalize(name): normalize(alias_table().get(normalize(name), name)) for name in model_names()}
    return meant, {normalize(name): name for name in reversed(model_names())}


def _zoo_samples(entry: ZooEntry, dataset: str, seq_len: int | None) -> int | None:
    """Samples per epoch: the entry's own for its own dataset, which may count drawn negatives or crops."""
    if entry.dataset_samples is not None and normalize(dataset) == normalize(entry.dataset):
        return entry.dataset_samples
    return samples_of(dataset, seq_len)


@data
def known_models() -> tuple[ModelInfo, ...]:
    """Every model that resolves by name: parametric ones first, then the captured zoo."""
    from .zoo import zoo_index

    aliases: dict[str, list[str]] = {}
    for alias, meant in alias_table().items():
        aliases.setdefault(normalize(meant), []).append(alias)
    infos = []
    for entry in model_table().values():
        work = load_workload(entry.name)
        infos.append(
            ModelInfo(
                name=entry.name,
                family=work.family,
                params=work.graph.params,
                forward_flops=work.graph.forward_flops,
                source=entry.source,
                aliases=tuple(aliases.get(normalize(entry.name), ())),
            )
        )
    for name, zoo in zoo_index().items():
        if find_entry(normalize(name)) is not None:
            continue
        infos.append(
            ModelInfo(
                name=name,
                family=zoo.family,
                params=zoo.params,
                forward_flops=zoo.forward_flops,
                source=zoo.source_library,
                aliases=tuple(aliases.get(normalize(name), ())),
            )
        )
    return tuple(infos)


def search_models(words: str) -> tuple[ModelInfo, ...]:
    """Known models of whose names one holds `words`, however separated; the nearest ones where none does."""
    wanted = squashed(normalize(words))
    found = [
        info
        for info in known_models()
        if any(wanted in squashed(normalize(name)) for name in (info.name, *info.aliases))
    ]
    if found:
        return tuple(found)
    near = {canonical_name(name) for name in _nearest(canonical_name(words))[1]}
    return tuple(info for info in known_models() if normalize(info.name) in near)


@data
def model_names() -> tuple[str, ...]:
    """Every name and alias that resolves, canonical ones first."""
    names = [entry.name for entry in model_table().values()]
    return tuple(dict.fromkeys([*names, *_zoo_names().values(), *alias_table()]))
