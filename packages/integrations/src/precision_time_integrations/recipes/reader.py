"""Values by key as fields of a request, with what was read, assumed and not understood."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from precision_time.cost.optimizer import canonical_optimizer
from precision_time.errors import UnknownNameError
from precision_time.fields import choices_of
from precision_time.request.datasets import known_dataset
from precision_time.request.question import lengths_of_dataset
from precision_time.request.schema import RequestFields
from precision_time.workload.families.tables import dataset_table, normalize
from precision_time.workload.resolve import adapter_in_name, is_known_model

from .documents import Given, Stated
from .recipe import Recipe, Said, place_of
from .vocabulary import RecipeRule, RecipeVocabulary

_UNSTATED = frozenset({"", "null", "none", "auto", "~"})
_LENGTHS = ("steps", "tokens", "epochs")
"""Where several are stated, the first holds: trainers stop at whichever comes first."""
_TEXT = frozenset(
    {
        *(
            "model",
            "precision",
            "optimizer",
            "dataset",
            "compiler",
            "recompute",
            "adapter",
            "device",
            "lora_targets",
        ),
        *(
            "offload",
            "attention",
            "method",
            "freeze",
            "stack",
            "schedule",
            "reference",
            "teacher",
            "task",
            "loader",
        ),
        *("framework", "cp_comm_type", "flavor"),
    }
)
"""Fields that hold words; the others hold numbers or switches."""
_SWITCHES = frozenset(
    {"packing", "sequence_parallel", "channels_last", "fused_optimizer", "real_input", "chunked_loss"}
)
_TARGETS = re.compile(r"[\w.-]+(,[\w.-]+)*")
_MOST_SHOWN = 60


@dataclass(slots=True)
class Draft:
    """A recipe while it is read."""

    vocabulary: RecipeVocabulary
    given: dict[str, Stated]
    fields: dict[str, Any] = field(default_factory=dict)
    run: dict[str, Any] = field(default_factory=dict)
    read: list[Said] = field(default_factory=list)
    assumed: list[str] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)
    used: set[str] = field(default_factory=set)
    """Keys that were dealt with."""
    open: set[str] = field(default_factory=set)
    """Fields that are stated by what only a run knows: no default holds for them."""

    def say(self, key: str, **fields: Any) -> None:
        """A key was read."""
        value = self.given[key]
        self.used.add(key)
        self.read.append(Said(key=key, value=value.word, fields=fields, line=value.line, file=value.file))

    def complain(self, key: str, why: str) -> None:
        """A key was not understood."""
        value = self.given[key]
        self.used.add(key)
        self.unread.append(f"{place_of(value.line, value.file)}{key}={_short(value.word)}: {why}")


def read_given(
    vocabulary: RecipeVocabulary,
    given: Given,
    *,
    source: str,
    before: Mapping[str, Any] | None = None,
    below: Mapping[str, Any] | None = None,
    more: Callable[[Draft], None] | None = None,
    unread: Sequence[str] = (),
) -> Recipe:
    """What the values of a recipe say.

    Args:
        vocabulary: Of its project.
        given: Values by key.
        source: The file, for the report.
        before: Fields that are known already, such as devices by a launcher: they hold.
        below: Fields that hold where the recipe is silent, such as a launcher's sharding.
        more: Reads further keys into the draft, before defaults are assumed.
        unread: What could not be read before, such as a file that is not there.
    """
    before = dict(before or {})
    trainer = {"trainer": Stated(before.pop("trainer"), 0)} if "trainer" in before else {}
    draft = Draft(vocabulary, {**given, **trainer}, unread=list(unread), used={*trainer})
    for name, keys in vocabulary.fields.items():
        _read_field(draft, name, keys)
    for name, switches in vocabulary.joined.items():
        _join(draft, name, switches)
    for name, keys in vocabulary.run.items():
        _read_run(draft, name, keys)
    for rule in vocabulary.rules:
        if not rule.assume and rule.holds(draft.given):
            _apply(draft, rule)
    if more is not None:
        more(draft)
    draft.fields = {**(below or {}), **draft.fields, **before}
    _finish(draft)
    said = {*draft.fields}
    _assume(draft)
    _lengths(draft)
    _leave(draft)
    if vocabulary.stack:
        draft.fields.setdefault("stack", vocabulary.stack)
    told = {each.key for each in draft.read if each.fields}
    read = [each for each in draft.read if each.fields or each.key not in told]
    return Recipe(
        source=source,
        project=vocabulary.versioned,
        fields=draft.fields,
        run=draft.run,
        silent=frozenset({*draft.fields} - said),
        read=tuple(sorted(read, key=lambda said: said.line)),
        assumed=tuple(draft.assumed),
        unread=tuple(dict.fromkeys(draft.unread)),
        idle=_idle(draft),
    )


def _read_field(draft: Draft, name: str, keys: Sequence[str]) -> None:
    """One field of a request, by the first of its keys that states something."""
    for key in keys:
        value = draft.given.get(key)
        if value is None:
            continue
        if value.unknown:
            draft.complain(key, f"{value.unknown} ({name})")
            draft.open.add(name)
            return
        words = draft.vocabulary.values.get(name, {})
        word = value.word
        for pattern, new in draft.vocabulary.respell.get(name, ()):
            word = pattern.sub(new, word)
        known = words.get(word.lower())
        if known is None:
            if word.lower() in _UNSTATED:
                draft.used.add(key)
                continue
            known = _typed(name, word)
        elif known == "":
            draft.say(key)
            if name in _TEXT:
                draft.open.add(name)  # stated: there is none
            return
        elif name not in _TEXT and isinstance(known, str):
            known = _typed(name, known)
        if known is None or (_choices(name) and str(known) not in _choices(name)):
            draft.complain(
                key, f"is not a {name} that is modeled" if known else f"is nothing that {name} can be"
            )
            draft.open.add(name)
            return
        draft.fields[name] = known
        draft.say(key, **{name: known})
        for other in keys:
            if other not in draft.given or other in draft.used:
                continue
            if draft.given[other].word.lower() in {value.word.lower(), *_UNSTATED}:
                draft.used.add(other)
            elif not draft.vocabulary.idle.fullmatch(other):
                draft.complain(other, f"beside {key}={_short(value.word)}, which holds")
        return


def _choices(name: str) -> tuple[str, ...]:
    """What a field may be, where its words are listed."""
    info = RequestFields.model_fields.get(name)
    return tuple(choices_of(info.annotation)) if info is not None and name not in ("precision",) else ()


def _typed(name: str, word: str) -> Any:
    """A word as the value of a field; None where it cannot be one."""
    if name in _TEXT:
        return word
    if name in _SWITCHES or word.lower() in ("true", "false"):
        return word.lower() in ("true", "yes", "on", "1")
    number = _number(word)
    if number is None or number < 0:
        return None
    return int(number) if number == int(number) else number


def _number(word: str) -> float | None:
    try:
        number = float(word.replace("_", "").replace(",", "")) if len(word) < 30 else math.nan
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def _join(draft: Draft, name: str, switches: Mapping[str, str]) -> None:
    """A field whose words are switched on one by one."""
    stated = [key for key in switches if key in draft.given]
    words = [switches[key] for key in stated if draft.given[key].word.lower() == "true"]
    if words:
        draft.fields[name] = ",".join(words)
    for key in stated:
        draft.say(key, **({name: switches[key]} if switches[key] in words else {}))


def _read_run(draft: Draft, name: str, keys: Sequence[str]) -> None:
    for key in keys:
        value = draft.given.get(key)
        number = None if value is None or value.unknown else _number(value.word)
        if value is not None and number is not None and number >= 1 and number == int(number):
            draft.run[name] = int(number)
            draft.used.add(key)
            draft.read.append(
                Said(
                    key=key,
                    value=value.word,
                    fields={f"run.{name}": int(number)},
                    line=value.line,
                    file=value.file,
                )
            )
            return


def _apply(draft: Draft, rule: RecipeRule) -> None:
    """A rule that holds: its fields, or what is not modeled of it."""
    for name, value in rule.fields.items():
        if value is None:
            draft.fields.pop(name, None)
        else:
            draft.fields[name] = value
    first, *others = rule.when
    for other in others:
        if other not in draft.used:
            draft.say(other)
    stated = {name: value for name, value in rule.fields.items() if value is not None}
    if rule.note and not stated:
        draft.complain(first, rule.note)
    elif first in draft.given:
        draft.read = [said for said in draft.read if said.key != first or said.fields.keys() - stated.keys()]
        draft.say(first, **stated)
        if rule.note:
            draft.complain(first, rule.note)


def _finish(draft: Draft) -> None:
    """What fields mean together, and names that have to be known here."""
    fields = draft.fields
    flavor = fields.pop("flavor", None)
    if flavor is not None and "model" in fields:
        fields["model"] = f"{fields['model']}-{flavor}".lower()
    for name, others in draft.vocabulary.times.items():
        if name in fields:
            fields[name] = math.prod([fields[name], *(fields.get(each, 1) for each in others)])
    if (per_node := fields.pop("devices_per_node", None)) is not None and "gpus" not in fields:
        fields["gpus"] = per_node * fields.get("nodes", 1)
    if not fields.get("adapter"):
        for name in ("adapter", "lora_rank", "lora_targets"):
            fields.pop(name, None)
    _sizes(draft)
    _chunks(draft)
    _model(draft)
    _targets(draft)
    _optimizer(draft)
    _dataset(draft)
    stated = [name for name in _LENGTHS if fields.get(name)]
    for name in stated[1:]:
        draft.unread.append(
            f"{name}={fields.pop(name)} beside {stated[0]}={fields[stated[0]]}: {stated[0]} holds"
        )
    if "global_batch_size" in fields and "num_microbatches" in fields:
        stated_count = fields.pop("num_microbatches")
        draft.assumed.append(f"num_microbatches as the global batch makes it (the recipe has {stated_count})")
    for name in ("gpus", "nodes", "steps", "epochs", "tokens", "samples"):
        if fields.get(name) == 0:
            del fields[name]


def _sizes(draft: Draft) -> None:
    """Sizes of a model that has no name."""
    fields = draft.fields
    sizes = {name.partition(".")[2]: fields.pop(name) for name in [*fields] if name.startswith("sizes.")}
    if not sizes or fields.get("sizes"):
        return
    if "model" in fields:
        draft.unread.append(f"sizes beside the model {fields['model']}: those of the model hold")
    elif {"layers", "hidden", "heads"} <= sizes.keys():
        if sizes.get("top_k", 1) > sizes.get("experts", 1):
            del sizes["top_k"]
        fields |= {"model": "llama2-7b", "sizes": sizes}
    else:
        draft.unread.append(
            f"sizes {', '.join(sizes)} without layers, hidden and heads: no model is known by them"
        )


def _chunks(draft: Draft) -> None:
    """Layers per chunk of an interleaved schedule as chunks per stage, where they cut the stages evenly."""
    fields = draft.fields
    each = fields.pop("layers_per_chunk", None)
    if each is None:
        return
    said = next(said for said in draft.read if "layers_per_chunk" in said.fields)
    layers, stages = fields.get("sizes", {}).get("layers", 0), fields.get("pp", 1)
    count, rest = divmod(layers, stages * each) if each else (0, 1)
    draft.read.remove(said)
    if rest or not count:
        draft.complain(said.key, "layers and stages do not say how many chunks a stage has: --vpp says it")
    elif count > 1:
        fields["vpp"] = count
        draft.say(said.key, vpp=count)


def _model(draft: Draft) -> None:
    """A model of no known name is told with its line; who asks gets the names that come near."""
    name = draft.fields.get("model")
    said = next((each for each in draft.read if "model" in each.fields), None)
    if name is None or said is None or draft.fields.get("sizes") or is_known_model(str(name)):
        return
    if adapter_in_name(str(name)):
        return
    draft.unread.append(
        f"{place_of(said.line, said.file)}{said.key}={_short(said.value)}: no model of that name is known"
    )


def _targets(draft: Draft) -> None:
    targets = draft.fields.get("lora_targets")
    if targets is not None and not _TARGETS.fullmatch(str(targets)):
        _move(
            draft, "lora_targets", "is a pattern of module names, which is not matched: all-linear is taken"
        )
        draft.fields["lora_targets"] = "all-linear"


def _optimizer(draft: Draft) -> None:
    name = draft.fields.get("optimizer")
    if name is None:
        return
    try:
        draft.fields["optimizer"] = canonical_optimizer(str(name))
    except UnknownNameError:
        _move(draft, "optimizer", "is not priced here: the usual optimizer of the model is taken")


def _dataset(draft: Draft) -> None:
    """Data sets of the catalog; of others nobody here knows the number of samples."""
    name = draft.fields.get("dataset")
    if name is None:
        return
    known = next(
        (each for each in (str(name), str(name).rpartition("/")[2]) if _is_known_dataset(each)), None
    )
    if known is not None:
        draft.fields["dataset"] = known
        return
    _move(
        draft, "dataset", "its samples and their lengths are not known: --dataset FILE or --samples says them"
    )


def _lengths(draft: Draft) -> None:
    """Where the lengths of a data set are known, that of a recipe is the longest, not each sample's."""
    fields = draft.fields
    longest, name = fields.get("seq_len"), fields.get("dataset")
    if longest is None or name is None or fields.get("method") not in (None, "sft", "dpo", "reward"):
        return
    known = lengths_of_dataset(str(name))
    if known and known["packing"] != "always" and known["mean_tokens"] < longest:
        fields["mean_seq_len"] = known["mean_tokens"]
        draft.assumed.append(
            f"mean_seq_len={known['mean_tokens']:g}, the mean of {known['name']}: seq_len is the longest"
        )


def _is_known_dataset(name: str) -> bool:
    return normalize(name) in dataset_table() or known_dataset(name) is not None


def _move(draft: Draft, name: str, why: str) -> None:
    """Take back a field that was read: its key is not understood."""
    draft.fields.pop(name)
    said = next((each for each in draft.read if name in each.fields), None)
    if said is None:
        draft.unread.append(f"{name}: {why}")
        return
    rest = {key: value for key, value in said.fields.items() if key != name}
    draft.read.remove(said)
    if rest:
        draft.read.append(Said(key=said.key, value=said.value, fields=rest, line=said.line, file=said.file))
    draft.complain(said.key, why)


def _assume(draft: Draft) -> None:
    """Defaults of the project for what nothing says."""
    whose = draft.vocabulary.versioned
    found: dict[str, tuple[Any, str]] = {}
    for rule in draft.vocabulary.rules:
        if rule.assume and rule.holds(draft.given):
            found |= {name: (value, rule.note) for name, value in rule.assume.items()}
    found = {**{name: (value, "") for name, value in draft.vocabulary.defaults.items()}, **found}
    length_known = any(draft.fields.get(name) or name in draft.open for name in _LENGTHS)
    _devices(draft)
    _fill(draft)
    for name, (value, note) in found.items():
        said = (
            name in draft.fields or name in draft.open or (name in _LENGTHS and length_known) or value == ""
        )
        about_adapter = name.startswith("lora_") and not draft.fields.get("adapter")
        global_said = name == "num_microbatches" and "global_batch_size" in draft.fields
        if not (said or about_adapter or global_said):
            draft.fields[name] = value
            draft.assumed.append(f"{name}={value}, by {note or 'default'} of {whose}")


def _devices(draft: Draft) -> None:
    """As many devices as the layout needs, where nothing says more."""
    fewest = math.prod(int(draft.fields.get(name, 1)) for name in ("tp", "pp", "cp"))
    if fewest > 1 and "gpus" not in draft.fields:
        draft.fields["gpus"] = fewest
        draft.assumed.append(f"gpus={fewest}, the fewest that tp, pp and cp leave: -g says how many")


def _fill(draft: Draft) -> None:
    """Accumulation up to a global batch, where the project does so by default."""
    for name, total in draft.vocabulary.fill.items():
        if (
            total
            and name not in draft.fields
            and name not in draft.open
            and "global_batch_size" not in draft.fields
        ):
            samples = draft.fields.get("batch_size", 1) * draft.fields.get("gpus", 1)
            draft.fields[name] = max(1, math.ceil(total / samples))
            draft.assumed.append(
                f"{name}={draft.fields[name]}, as {draft.vocabulary.versioned} fills a batch of {total}"
            )


def _leave(draft: Draft) -> None:
    """Everything that is left, with its line: nothing is dropped in silence."""
    for key, value in draft.given.items():
        if key in draft.used or draft.vocabulary.idle.fullmatch(key):
            continue
        off = value.word.lower() in {*_UNSTATED, "false", "0", "0.0"} and not value.unknown
        why = draft.vocabulary.why_unmodeled(key)
        if off and (why or value.word.lower() in ("", "null", "none")):
            continue  # what is not switched on
        draft.complain(key, why or value.unknown or f"not a key that is known of {draft.vocabulary.title}")


def _idle(draft: Draft) -> tuple[str, ...]:
    """Keys that change no time, those of one mapping together."""
    names = [key for key in draft.given if key not in draft.used]
    return tuple(
        dict.fromkeys(
            f"{head}.*" if rest else head for head, _, rest in (key.partition(".") for key in names)
        )
    )


def _short(text: str) -> str:
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}..."
