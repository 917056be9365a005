"""What people do where a question leaves it open: weighted alternatives, and their joint ones.

The data are votes (`data/practice/`): `counted.toml` holds those of the measured rows of the corpus, one for
every publisher in a class of questions, `recipes.toml` those of public recipes that were read. A vote counts
the less the more its class differs from that of the question (`likeness` in classes.toml), so a class that
nobody published anything of is answered by its neighbors. The stack comes first; everything else is asked of
those who use that stack.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Concatenate, NamedTuple, ParamSpec, TypeVar

from ..cache import memo
from ..cost.constants import constants
from ..cost.stacks import StackProfile, get_stack_profile, usual_profile
from ..errors import ConfigError
from ..hardware.device import Device
from ..precision.catalog import get_policy, parse_precision
from ..precision.support import check_support, on_device
from ..records import dataclass
from .question import (
    SCALES,
    SPREADS_TABLES,
    Question,
    _lengths_table,
    kind_of_device,
)
from .votes import ANY, STACK, Vote, Votes, classes_table, shipped_votes, stacks_table

P = ParamSpec("P")
T = TypeVar("T")
_SEQUENCES = frozenset({"language", "encoder"})
_LENGTHS = frozenset({"seq_len", "mean_seq_len", "packing", "padding_share"})
_WIDER = 2
"""Times as many combinations are followed as scenarios are asked for."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Habit:
    """One way to fill in an open point."""

    weight: float
    """Of all alternatives of the point 1."""
    fields: Mapping[str, Any]
    """Request fields and their values; empty to leave it as it is."""
    source: str
    """Who votes for it."""

    @property
    def reason(self) -> str:
        """In words, for a reader: what is assumed and how many do so."""
        words = ", ".join(f"{name}={value}" for name, value in self.fields.items()) or "as it is"
        return f"{words}: {self.weight:.0%} of the practice counted ({self.source})"


_AS_IT_IS = Habit(weight=1.0, fields={}, source="")


@dataclass(frozen=True, kw_only=True, slots=True)
class Practice:
    """Alternatives for every open point of a question, the usual one first."""

    question: Question
    stacks: tuple[Habit, ...]
    settings: Mapping[str, Mapping[str, tuple[Habit, ...]]]
    """By stack, then by point: precision, length, batch, sharding, recompute, compiler ..."""

    def points(self, stack: str) -> Mapping[str, tuple[Habit, ...]]:
        """The open points beside the stack, for those who use this one."""
        return self.settings[stack]


class JointHabits(NamedTuple):
    """One joint way to fill in a question."""

    weight: float
    fields: Mapping[str, Any]


def practice(question: Question, votes: Votes | None = None) -> Practice:
    """The alternatives of a question for every point that it leaves open.

    Args:
        question: See `question_of`.
        votes: Others than those that ship.
    """
    cast = shipped_votes() if votes is None else votes
    stacks = stack_alternatives(question, cast.stacks)
    names = [str(each.fields.get(STACK, question.stack)) for each in stacks]
    return Practice(
        question=question,
        stacks=stacks,
        settings={name: dict(_settings(question, get_stack_profile(name), cast)) for name in names},
    )


def scenarios(of: Practice, most: int = 32) -> tuple[JointHabits, ...]:
    """The joint alternatives of a question, the usual one first, then by weight; weights sum to 1.

    Where there are more than `most`, the heavy ones stay as they are and the others are thinned out evenly,
    each of those kept for an equal share of the weight (Fearnhead and Clifford 2003, optimal resampling, with
    a fixed offset for the random one): the weight of every single alternative stays close to what it is.

    Raises:
        ConfigError: If `most` is below 1.
    """
    if most < 1:
        raise ConfigError(f"most={most} is invalid: it must be at least 1. To fix: most=1 or more.")
    usual, *others = _joint(of, _WIDER * most)
    kept = _thinned(others, most - 1)
    total = usual.weight + sum(each.weight for each in kept)
    ranked = sorted(kept, key=lambda each: -each.weight)
    return tuple(JointHabits(each.weight / total, each.fields) for each in (usual, *ranked))


@memo(1024)
def _found(find: Callable[..., T], question: Question, *more: Any, **named: Any) -> T:
    return find(question, *more, **named)


def of_question(find: Callable[Concatenate[Question, P], T]) -> Callable[Concatenate[Question, P], T]:
    """Keep what a function finds of questions by the votes that ship: many rows ask the same one."""

    @functools.wraps(find)
    def kept(question: Question, /, *more: P.args, **named: P.kwargs) -> T:
        return _found(find, question, *more, **named)

    return kept


@of_question
def usual_scenarios(question: Question, points: tuple[str, ...], most: int) -> tuple[JointHabits, ...]:
    """`scenarios` of a question by the votes that ship, in its stack and some of its points alone.

    Args:
        question: What is asked.
        points: Open points that scenarios fill in.
        most: Scenarios at most.
    """
    return scenarios(at_points(practice(question), points), most)


def at_points(of: Practice, points: Sequence[str]) -> Practice:
    """The practice of the stack and of some of the points alone."""
    settings = {
        stack: {name: each for name, each in found.items() if name in points}
        for stack, found in of.settings.items()
    }
    return replace(of, settings=settings)


def stacks_on(kind: str) -> tuple[str, ...]:
    """Names of the stacks that run on a kind of device."""
    table = stacks_table()["kind"]
    return tuple(table.get(kind, table["data-center"]))


def runs_on(stack: str, device: Device) -> bool:
    """Whether a stack exists for a device.

    >>> from precision_time.hardware.catalog import get_device
    >>> runs_on("megatron", get_device("TPUv4")), runs_on("jax-xla", get_device("TPUv4"))
    (False, True)
    """
    return _runs_on(stack, kind_of_device(device))


def _runs_on(stack: str, kind: str) -> bool:
    profile, names = get_stack_profile(stack), stacks_on(kind)
    return profile.name in names or profile.kind in names


def serves(stack: str, family: str) -> bool:
    """Whether a stack trains models of a family of practice: some are written for one kind alone."""
    families = stacks_table()["serves"].get(stack)
    return families is None or family in families


def last_year(profile: StackProfile) -> float:
    """Decimal year of the newest software of a stack: today's, as long as somebody maintains it."""
    today = float(classes_table()["today"])
    return min(today, float(stacks_table()["last_year"].get(profile.name, today)))


def axes_of(stack: str) -> tuple[str, ...]:
    """Axes of a layout that a stack has besides data parallelism.

    >>> axes_of("megatron"), axes_of("pytorch-eager")
    (('tp', 'pp', 'cp', 'ep'), ())
    """
    axes: Mapping[str, Sequence[str]] = stacks_table()["axes"]
    profile = get_stack_profile(stack)
    return tuple(axes.get(profile.name, axes.get(profile.kind, ())))


def axes_said_of(stack: str) -> tuple[str, ...] | None:
    """Axes that may be said of a stack; None of a stack of which nothing is known.

    >>> axes_said_of("torchtune"), axes_said_of("pytorch-eager")
    (('tp', 'cp'), None)
    """
    table = stacks_table()
    profile = get_stack_profile(stack)
    name = next((each for each in (profile.name, profile.kind) if each in table["axes"]), None)
    return None if name is None else (*table["axes"][name], *table["said_axes"].get(name, ()))


def is_told_apart(stack: str) -> bool:
    """Whether it is known for which kinds of devices a stack is made."""
    profile = get_stack_profile(stack)
    return any({profile.name, profile.kind} & set(names) for names in stacks_table()["kind"].values())


def stack_alternatives(question: Question, cast: Sequence[Vote]) -> tuple[Habit, ...]:
    """The stacks that a question leaves open, the usual one first; see `practice`."""
    if question.stack is not None:
        return (Habit(weight=1.0, fields={}, source="as said"),)
    possible = {
        name
        for name in {vote.stack for vote in cast}
        if _runs_on(name, question.kind)
        and serves(name, question.family)
        and (not question.frameworks or get_stack_profile(name).framework in question.frameworks)
    }
    votes = [vote for vote in cast if vote.stack in possible]
    found = _alternatives(question, votes)
    if found:
        return found
    device = question.device
    usual = usual_profile(question.family, device.vendor, device.arch)
    return (Habit(weight=1.0, fields={STACK: usual.name}, source="nobody counted: usual for the device"),)


def _settings(
    question: Question, profile: StackProfile, cast: Votes
) -> Iterator[tuple[str, tuple[Habit, ...]]]:
    for point, fields in _points().items():
        if point == STACK or not _is_open(question, point, fields):
            continue
        votes = [*cast.settings.get((point, profile.name), ()), *cast.settings.get((point, ANY), ())]
        if profile.kind:
            votes += cast.settings.get((point, profile.kind), ())
        if point == "length":
            votes = [*_lengths_of_rows(question, votes)]
        if point == "batch":
            votes = [*_cuts(question, votes)]
        if point == "software":
            votes = [*_years(question, profile, votes)]
        if found := _alternatives(question, _without_said(question, votes), profile):
            yield point, found


def _is_open(question: Question, point: str, fields: Sequence[str]) -> bool:
    """Whether a question leaves a point open that means something to it."""
    given, method = question.given, question.method
    if all(name in given for name in fields):
        return False
    if point == "batch":  # all answers to a prompt belong together, and degrees say who shares a batch
        return not (given & {"batch_size", "num_microbatches"} or method == "rl" or question.cut_up)
    if point == "optimizer":  # elsewhere a model's usual one is better known than who uses what
        return question.family == "language" and method in ("full", "lora", "qlora")
    if point == "links":
        said = {"network", "intra_node", "inter_node", "node_type", "cluster", "custom"}
        return question.scale in ("cluster", "fleet") and not given & said
    if point == "length":
        closed = given & {"mean_seq_len", "padding_share"} or ("seq_len" in given and not question.dataset)
        return question.family in _SEQUENCES and method != "rl" and not closed
    if point == "sharding":
        spread = question.family_of_model in SPREADS_TABLES
        return question.num_devices > 1 and "zero_stage" not in given and not spread
    if point == "generation":
        return method == "rl"
    if point == "adapter":
        return method in ("lora", "qlora")
    if point == "memory_format":
        return question.convolutions
    if point == "attention":
        return question.attention
    if point == "input":
        fed = question.family in stacks_table()["fed"]["families"]
        return fed and not given & {"loader", "real_input", "input_rate"}
    return True


def _can(question: Question, profile: StackProfile, fields: Mapping[str, Any]) -> bool:
    """Whether device and stack can do what an alternative says."""
    device, given = question.device, question.given
    if (precision := fields.get("precision")) is not None and not _computes(str(precision), device):
        return False
    if (compiler := fields.get("compiler")) is not None:
        row = stacks_table()["compiler"].get(compiler)
        if row is not None and (
            profile.framework not in row["frameworks"] or device.arch in row.get("not_archs", ())
        ):
            return False
    attention = str(fields.get("attention", ""))
    if attention.startswith("flash") and device.arch in constants("kernels")["without_flash"]:
        return False
    whole = question.room == "crowded" and not question.cut_up and "pp" not in axes_of(profile.name)
    if fields.get("zero_stage") == 0 and question.num_devices > 1 and whole:
        return False
    packs = fields.keys() & (_LENGTHS - {"seq_len"})
    if packs and (profile.unpadded_from is not None or "unpadded_sequences" in given):
        return False
    if question.samples is not None and question.samples % fields.get("group_size", 1):
        return False
    longest = question.longest or fields.get("seq_len") or math.inf
    return bool(fields.get("mean_seq_len", 0) <= longest and fields.get("generate_tokens", 0) < longest)


def _computes(precision: str, device: Device) -> bool:
    """Whether a device has hardware of its own for a precision, as people then choose it."""
    choice = parse_precision(precision)
    policy = get_policy(choice.name, variant=choice.variant)
    try:
        check_support(policy, device)
    except ConfigError:
        return False
    return policy.name == "fp32" or on_device(policy, device).matmul is policy.matmul


def _years(question: Question, profile: StackProfile, votes: Sequence[Vote]) -> Iterator[Vote]:
    """Votes for the age of the software as votes for its year: not before the device, not after today.

    Today's has its share whatever was counted: a question without a year is one of today.
    """
    last = last_year(profile)
    first, share = question.device.release_year + 0.5, float(classes_table()["software"]["today_share"])
    weights = [vote.votes * _likeness(question, vote, of_stack=True) for vote in votes]
    cast = share / (1.0 - share) * sum(weights) or 1.0
    yield Vote(
        votes=cast, stack=profile.name, fields={"software": max(last, first)}, source="software of today"
    )
    for vote, weight in zip(votes, weights, strict=True):
        year = min(question.device.release_year + float(vote.fields["years_after_device"]), last)
        fields = {"software": round(max(year, first), 2)}
        yield Vote(votes=weight, stack=profile.name, fields=fields, source=vote.source)


def _lengths_of_rows(question: Question, votes: Iterable[Vote]) -> Iterator[Vote]:
    """Votes for lengths, with the mean of the data set where it is known: rows are cut at or packed to it."""
    known = _lengths_table().get(question.dataset)
    mean = float(known.get("mean_tokens", 0.0)) if known else 0.0
    for vote in votes:
        longest = question.longest or vote.fields.get("seq_len")
        if not known or not mean:
            yield Vote(**{**_slots(vote), "fields": {} if longest is None else {"seq_len": longest}})
            continue
        if not longest:
            continue
        if known["packing"] == "always":  # running text is cut into full rows
            fields: dict[str, Any] = {"seq_len": longest}
        else:
            fields = {**vote.fields, "seq_len": longest, "mean_seq_len": min(mean, float(longest))}
        source = f"{vote.source}; {question.dataset}: {known['source']}"
        yield Vote(**{**_slots(vote), "fields": fields, "source": source})


def _cuts(question: Question, votes: Iterable[Vote]) -> Iterator[Vote]:
    """Votes for a batch as votes for its micro batch, of a global one at most all of a device's."""
    each = None if question.samples is None else question.samples / question.num_devices
    for vote in votes:
        micro = min(float(vote.fields["batch_size"]), each or math.inf)
        if micro >= 1.0 and (each is None or each % micro == 0.0):
            yield Vote(**{**_slots(vote), "fields": {"batch_size": micro}})


def _slots(vote: Vote) -> dict[str, Any]:
    return {name: getattr(vote, name) for name in Vote.__slots__}


def _without_said(question: Question, votes: Iterable[Vote]) -> Iterator[Vote]:
    """Votes without the fields that a question says: they leave those as they are said."""
    for vote in votes:
        if vote.fields.keys() & question.given:
            fields = {name: value for name, value in vote.fields.items() if name not in question.given}
            yield Vote(**{**_slots(vote), "fields": fields})
        else:
            yield vote


def _alternatives(
    question: Question, votes: Iterable[Vote], profile: StackProfile | None = None
) -> tuple[Habit, ...]:
    """Votes by what they are for, as shares; what cannot be and the lightest left out. The usual first.

    Args:
        question: What is asked.
        votes: For a point of those who use a stack, or for the stack.
        profile: That stack; None where the votes are for it.
    """
    cast: dict[tuple[tuple[str, Any], ...], list[tuple[float, str]]] = defaultdict(list)
    for vote in votes:
        fields = {STACK: vote.stack} if profile is None else vote.fields
        weight = vote.votes * _likeness(question, vote, of_stack=profile is not None)
        cast[tuple(sorted(fields.items()))].append((weight, vote.source))
    weights = {
        key: sum(weight for weight, _ in each)
        for key, each in cast.items()
        if profile is None or _can(question, profile, dict(key))
    }
    least = float(classes_table()["least"]["weight"]) * sum(weights.values())
    kept = {key: weight for key, weight in weights.items() if weight > 0.0 and weight >= least}
    total = sum(kept.values())
    return tuple(
        Habit(weight=kept[key] / total, fields=dict(key), source=max(cast[key])[1])
        for key in sorted(kept, key=lambda key: (-kept[key], repr(key)))
    )


def _likeness(question: Question, vote: Vote, *, of_stack: bool) -> float:
    """How much a vote counts for a question: the product over the classes in which they differ."""
    classes = classes_table()
    factors: Mapping[str, float] = classes["likeness"]
    weight = factors["any_stack"] if of_stack and vote.stack == ANY else 1.0
    for name, values in vote.classes.items():
        asked = getattr(question, name)
        if asked not in values:
            steps = 1 if name != "scale" else min(abs(SCALES.index(asked) - SCALES.index(v)) for v in values)
            weight *= factors[name] ** steps
    if vote.year is not None:
        year = classes["today"] if question.year is None else question.year
        weight *= 0.5 ** (abs(year - vote.year) / factors["half_life_years"])
    return weight


def _joint(of: Practice, most: int) -> list[JointHabits]:
    """Combinations of alternatives with the products of their weights, that of the usual ones first.

    Point by point, thinned out to `most` after each: all of them would be hundreds of thousands.
    """
    found = [JointHabits(each.weight, dict(each.fields)) for each in of.stacks]
    names = [str(each.fields.get(STACK, of.question.stack)) for each in of.stacks]
    points = dict.fromkeys(itertools.chain.from_iterable(of.settings[name] for name in names))
    for point in sorted(points, key=list(_points()).index):
        longer = []
        for weight, fields in found:
            stack = str(fields.get(STACK, of.question.stack))
            open_points = of.settings[stack]
            for each in open_points.get(point, (_AS_IT_IS,)):
                longer.append(JointHabits(weight * each.weight, {**fields, **each.fields}))
        found = [longer[0], *_thinned(longer[1:], most - 1)]
    return found


def _thinned(given: Sequence[JointHabits], most: int) -> list[JointHabits]:
    """At most so many of the scenarios, in their order; each of the light ones stands for its neighbors."""
    if len(given) <= most:
        return list(given)
    if most <= 0:
        return []
    bound = _bound([each.weight for each in given], most)
    light_each, kept, passed = bound, [], 0.5 * bound
    for each in given:
        if each.weight >= bound:
            kept.append(each)
            continue
        passed -= each.weight
        if passed <= 0.0:
            kept.append(JointHabits(light_each, each.fields))
            passed += bound
    return kept[:most]


def _bound(weights: Sequence[float], most: int) -> float:
    """The weight above which `most` can be kept as they are: sum of min(1, weight / bound) is `most`."""
    ranked = sorted(weights, reverse=True)
    rest = sum(ranked)
    for kept, weight in enumerate(ranked):
        bound = rest / max(most - kept, 1)
        if weight < bound or kept + 1 >= most:
            return bound
        rest -= weight
    return ranked[-1]


def usual_rows(family: str, method: str, stack: str | None) -> Mapping[str, Any]:
    """The longest row and whether samples share it, as most do for a method; whatever the device.

    Args:
        family: As `Question` has it, like the method.
        method: full, lora, qlora ...
        stack: Name of a stack, whose users alone are asked where any of them was counted.
    """
    factors: Mapping[str, float] = classes_table()["likeness"]
    profile = None if stack is None else get_stack_profile(stack)
    names = () if profile is None else (profile.name, profile.kind)
    own: dict[tuple[tuple[str, Any], ...], float] = defaultdict(float)
    every: dict[tuple[tuple[str, Any], ...], float] = defaultdict(float)
    asked = {"family": family, "method": method}
    for (point, of_stack), votes in shipped_votes().settings.items():
        if point != "length":
            continue
        for vote in votes:
            if not {"seq_len", "packing"} <= vote.fields.keys():
                continue
            other = [name for name, value in asked.items() if value not in vote.classes.get(name, (value,))]
            weight = vote.votes * math.prod(factors[name] for name in other)
            key = tuple(sorted(vote.fields.items()))
            every[key] += weight
            if of_stack in names:
                own[key] += weight
    ranked = sorted((own or every).items(), key=lambda each: (each[1], repr(each[0])))
    return dict(ranked[-1][0])


def _points() -> Mapping[str, tuple[str, ...]]:
    """Open points and the fields that fill them in, in the order in which they are decided."""
    table: Mapping[str, Any] = stacks_table()["points"]
    return {name: tuple(fields) for name, fields in table.items()}
