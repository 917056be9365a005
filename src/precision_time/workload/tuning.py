"""What of a model is trained: adapters beside a frozen base, frozen parts, what follows for the backward.

One transformation of operator graphs, whatever they come from: parametric families, the zoo, captures. Frozen
weights get no gradient; below the lowest trained weight nothing runs backward and nothing is kept for it.

References: Hu et al. 2021 (LoRA): y = Wx + (alpha/r)·B·A·x with A of r x in, B of out x r. Dettmers et al.
2023 (QLoRA): W in four bits, unpacked before each use. Liu et al. 2024 (DoRA, section 4.3): W + BA scaled to
a trained norm per output, the norm itself taken as a constant in the backward pass.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Any

from ..cache import derived
from ..errors import ConfigError, shown
from ..records import dataclass
from .blocks import split_ends
from .builder import KEEPS_INPUT, KEEPS_OUTPUT
from .families.tables import read_toml
from .graph import Node, OpClass, OpGraph
from .packing import EIGHT_BIT_BYTES, PACKED_BYTES, UNPACKING, packed_share, unpacking
from .roles import OTHER, ROLES, consumers_of, heads_of, is_vocabulary_head, roles_of

_ALL = (*ROLES, OTHER)
_KEEPS_PARAMETERS = frozenset({OpClass.GEMM, OpClass.CONV, OpClass.GROUPED_CONV, OpClass.DEPTHWISE_CONV})
_KEEPS_OPERANDS = frozenset({OpClass.BMM, OpClass.ATTENTION, OpClass.NORM, OpClass.RNN})
_LAYERS = "layers:"
_PARTS = ("backbone", "all-but-head", "embeddings", "encoder", "head")
_NUMBER = re.compile(r"(?<![^.])\d+(?![^.])")
"""The number of a layer in the name of a module."""
_UNPACKED_AGAIN = "dequantize_4bit_for_norm"
"""Not `UNPACKING`, which says how many weights are held packed."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Adapter:
    """Low-rank factors beside frozen linear layers."""

    kind: str = "lora"
    """lora, qlora, dora, qdora or qlora8."""
    rank: int = 8
    targets: tuple[str, ...] = ("q", "v")
    """Roles of linear layers, or names of the model's own modules; none for the frozen base alone."""

    @property
    def packed(self) -> bool:
        """The frozen base is held in four bits, or in eight."""
        return self.kind.startswith("q")

    @property
    def packed_bytes(self) -> float:
        """Of a weight of a packed base."""
        return EIGHT_BIT_BYTES if self.kind.endswith("8") else PACKED_BYTES

    @property
    def normed(self) -> bool:
        """The norm of every output's weights is trained apart (DoRA)."""
        return self.kind.endswith("dora")


def adapter_of(kind: str, rank: int | None, targets: str | Sequence[str] | None) -> tuple[Adapter, str]:
    """An adapter as stated, usual values where nothing is said, and in words what was assumed."""
    usual = read_toml("adapters.toml")["default"]
    words = [word.strip() for word in targets.split(",")] if isinstance(targets, str) else targets
    chosen = Adapter(
        kind=kind, rank=rank or int(usual["rank"]), targets=target_roles(words or usual["targets"])
    )
    said = [f"rank {chosen.rank}"] * (rank is None) + [f"targets {','.join(chosen.targets)}"] * (not words)
    return chosen, f"Adapters of {' and '.join(said)} ({usual['source']})." if said else ""


def known_targets() -> Mapping[str, Sequence[str]]:
    """Roles by every spelling of a target, in lower case."""
    spelled: Mapping[str, list[str]] = read_toml("adapters.toml")["spellings"]
    return {name.lower(): roles for name, roles in spelled.items()} | {role: [role] for role in _ALL}


def target_roles(words: Sequence[str]) -> tuple[str, ...]:
    """Roles that target names stand for; names that are no known spelling stay as they are."""
    spelled: Mapping[str, list[str]] = read_toml("adapters.toml")["spellings"]
    known = known_targets()
    found: list[str] = []
    for word in words:
        plain = word.strip().rsplit(".", 1)[-1] if word not in spelled else word
        bare = plain.lower().removesuffix("_proj")
        found += known.get(plain.lower(), known.get(bare, [word.strip()]))
    return tuple(dict.fromkeys(found))


@derived
def with_adapter(graph: OpGraph, adapter: Adapter, *, train_heads: bool = True) -> OpGraph:
    """`graph` with adapters beside its targeted linear layers and everything else frozen.

    Heads of a task stay trained (unless `train_heads` is false), as fine-tuning adds new ones; those of a
    language model are frozen. No head is packed. Experts, their routers and parts that were frozen before
    carry no adapters.

    Raises:
        ConfigError: If no linear layer of the model is a target.
    """
    targeted = _targeted(graph, adapter)
    heads = heads_of(graph)
    nodes: list[Node] = []
    trained: list[bool] = []
    where: dict[int, int] = {}

    def put(node: Node, *, train: bool) -> int:
        nodes.append(node)
        trained.append(train)
        return len(nodes) - 1

    packed = 0.0
    for index, node in enumerate(graph.nodes):
        sources = dict.fromkeys(where[source] if source >= 0 else -1 for source in node.inputs)
        moved = replace(node, inputs=tuple(sources))
        weight = node.n * node.k * node.count
        packs = adapter.packed and index not in heads and _is_packable(node)
        if packs:
            written = unpacking(
                weight, repeat=node.repeat, segment=node.segment, packed_bytes=adapter.packed_bytes
            )
            packed += weight * node.repeat * packed_share(written)
            put(written, train=False)
        own_head = index in heads and node.weight_grad and not is_vocabulary_head(graph, index)
        value = put(moved, train=own_head and train_heads)
        for width in targeted.get(index, ()):
            value = _add_factors(nodes, trained, value, nodes[value], moved, width, adapter, packs)
        where[index] = value
    return _settled(graph, nodes, trained, packed=packed)


def _is_packable(node: Node) -> bool:
    return node.op_class is OpClass.GEMM and node.weight_elems > 0.0 and node.scales_with_batch


def _targeted(graph: OpGraph, adapter: Adapter) -> dict[int, list[float]]:
    """Columns of the factors of each linear layer that carries some."""
    wanted = set(adapter.targets)
    if not wanted:
        return {}
    found: dict[int, list[float]] = {}
    present: set[str] = set()
    for index, parts in roles_of(graph).items():
        node = graph.nodes[index]
        if not node.weight_grad:
            continue
        module = node.layer.rsplit(".", 1)[-1]
        present |= {*parts, *([module] if module else ())}
        named = any(target == module or node.layer.endswith(f".{target}") for target in wanted if node.layer)
        widths = [node.n] if named else [width for part, width in parts.items() if part in wanted]
        if sum(parts.values()) > node.n and widths:  # equal layers that stand once carry factors together
            widths = [node.n * len(widths) / len(parts)]
        if widths:
            found[index] = widths
    unknown = sorted(wanted - present - {*ROLES, OTHER})
    if not found or unknown:
        what = unknown[0] if unknown else ",".join(adapter.targets)
        have = ", ".join(sorted(present)) if present else "none, so that it cannot carry adapters"
        fix = "name some of these, or all-linear" if present else "freeze='backbone' trains its head alone"
        raise ConfigError(
            f"lora_targets={shown(what)} is not a projection of {graph.name}. The rule: targets are among "
            f"its linear layers ({have}). To fix: {fix}."
        )
    return found


def _add_factors(
    nodes: list[Node],
    trained: list[bool],
    value: int,
    base: Node,
    linear: Node,
    width: float,
    adapter: Adapter,
    packed: bool,
) -> int:
    """Nodes of one pair of factors beside the product `linear`; gives back the index of the sum."""
    rank, rows, wide = float(adapter.rank), linear.m, linear.m * width
    shared = {
        "repeat": linear.repeat,
        "segment": linear.segment,
        "layer": f"{linear.layer}.lora" * bool(linear.layer),
    }

    def put(op: str, op_class: OpClass, inputs: tuple[int, ...], *, weight: float = 0.0, **more: Any) -> int:
        own = {"weight_elems": weight, "param_elems": weight, "param_tensors": int(weight > 0.0)}
        nodes.append(Node(op=op, op_class=op_class, inputs=inputs, **{**own, **shared, **more}))
        trained.append(weight > 0.0)
        return len(nodes) - 1

    def product(source: int, inner: float, columns: float, saved: float) -> int:
        return put(
            "linear", OpClass.GEMM, (source,), weight=inner * columns, m=rows, n=columns, k=inner, count=1.0,
            in_elems=rows * inner, out_elems=rows * columns, saved_elems=saved,
        )  # fmt: skip

    source = linear.inputs[0] if linear.inputs else -1
    low = product(source, linear.k, rank, rows * linear.k if source < 0 else 0.0)
    delta = product(low, rank, width, rows * rank)
    scaled = put("mul", OpClass.ELEMENTWISE, (delta,), in_elems=wide, out_elems=wide, saved_elems=wide)
    added, size = scaled, base.out_elems
    if adapter.normed:
        added = _scaled_to_norm(put, value, scaled, linear, width, rank, packed)
    return put("add", OpClass.ELEMENTWISE, (value, added), in_elems=size + wide, out_elems=size)


def _scaled_to_norm(
    put: Any, value: int, scaled: int, linear: Node, width: float, rank: float, packed: bool
) -> int:
    """DoRA: the norm of the merged weight's rows, which the trained magnitude replaces in both products."""
    fixed = {"scales_with_batch": False, "input_grad": False}
    area, wide = linear.k * width, linear.m * width
    if packed:
        again = unpacking(area, repeat=1, segment=0)
        put(_UNPACKED_AGAIN, OpClass.ELEMENTWISE, (), in_elems=again.in_elems, out_elems=area, **fixed)
    merged = put(
        "mm", OpClass.GEMM, (), m=width, n=linear.k, k=rank, count=1.0,
        in_elems=rank * (width + linear.k), out_elems=area, **fixed,
    )  # fmt: skip
    both = put("add", OpClass.ELEMENTWISE, (merged,), in_elems=2.0 * area, out_elems=area, **fixed)
    put("linalg_vector_norm", OpClass.REDUCTION, (both,), in_elems=area, out_elems=width, **fixed)
    base = put(
        "mul", OpClass.ELEMENTWISE, (value,), weight=width, in_elems=wide, out_elems=wide, saved_elems=wide
    )
    pair = put(
        "mul", OpClass.ELEMENTWISE, (scaled,), weight=width, param_elems=0.0, param_tensors=0,
        in_elems=wide, out_elems=wide, saved_elems=wide,
    )  # fmt: skip
    return int(put("add", OpClass.ELEMENTWISE, (base, pair), in_elems=2.0 * wide, out_elems=wide))


@derived
def with_frozen(graph: OpGraph, patterns: tuple[str, ...]) -> OpGraph:
    """`graph` without gradients for the weights that `patterns` name.

    Args:
        graph: What is trained in it now.
        patterns: `backbone` (or all-but-head), `embeddings`, `encoder`, `layers:N` (the first N and what
            stands before them), `head`, or names of modules with * where the graph has names.

    Raises:
        ConfigError: If a pattern names nothing in this model, or nothing is left to train.
    """
    names = tuple(pattern for pattern in patterns if not _is_part(pattern))
    counts = [_first_layers(graph, pattern) for pattern in patterns if pattern.startswith(_LAYERS)]
    nodes = graph.nodes
    for count in sorted({*counts, *_boundaries(graph, names)}):
        nodes, _ = split_ends(nodes, (count, 0))
    cut = replace(graph, nodes=nodes)
    frozen = _named(graph, nodes, names)
    for pattern in patterns:
        if pattern.startswith(_LAYERS):
            chosen = _before(nodes, _first_layers(graph, pattern))
        elif _is_part(pattern):
            chosen = _part(cut, pattern)
        else:
            continue
        frozen = [one or other for one, other in zip(frozen, chosen, strict=True)]
    trained = [node.weight_grad and not cold for node, cold in zip(nodes, frozen, strict=True)]
    if not any(trained):
        raise ConfigError(
            f"freeze={shown(','.join(patterns))} leaves nothing of {graph.name} to train. The rule: some "
            "weights are trained. To fix: freeze less, such as freeze=backbone."
        )
    return _settled(graph, list(nodes), trained, packed=graph.packed_params)


@derived
def without_training(graph: OpGraph) -> OpGraph:
    """The forward pass alone: no weight of `graph` is trained."""
    return _settled(graph, list(graph.nodes), [False] * len(graph.nodes), packed=graph.packed_params)


def _is_part(pattern: str) -> bool:
    return pattern in _PARTS or pattern.startswith(_LAYERS)


def _first_layers(graph: OpGraph, pattern: str) -> int:
    """How many layers `layers:N` freezes."""
    text, depth = pattern.removeprefix(_LAYERS), _depth(graph)
    if not text.isdecimal() or not 0 < int(text) <= depth:
        rule = (
            f"it has {depth} repeated layers" if depth else "its layers differ, so that they have no number"
        )
        raise ConfigError(
            f"freeze={shown(pattern)} is not possible for {graph.name}. The rule: layers:N freezes the first "
            f"N layers, and {rule}. To fix: freeze=backbone, embeddings"
            + (f" or layers:{max(depth // 2, 1)}." if depth else ".")
        )
    return int(text)


def _before(nodes: Sequence[Node], count: int) -> list[bool]:
    """What stands before the end of the first `count` layers, which blocks do not cross."""
    end = max(run[-1] for run, start in _layer_runs(nodes) if start < count)
    return [index <= end for index in range(len(nodes))]


def _layer_runs(nodes: Sequence[Node]) -> Iterator[tuple[range, int]]:
    """Blocks with the number of layers before them."""
    count = 0
    for run in _runs(nodes):
        if nodes[run[0]].segment:
            yield run, count
            count += nodes[run[0]].repeat


def _matched(node: Node, patterns: Sequence[str], repeat: int) -> bool:
    """Whether a pattern names the module of a node, as it is called in one repeat of its block."""
    name = (
        _NUMBER.sub(lambda found: str(int(found[0]) + repeat), node.layer, count=1) if repeat else node.layer
    )
    return bool(name) and any(
        fnmatchcase(name, pattern) or f"{name}.".startswith(f"{pattern.rstrip('.*')}.")
        for pattern in patterns
    )


def _boundaries(graph: OpGraph, patterns: Sequence[str]) -> set[int]:
    """Numbers of layers at which blocks are cut, as a pattern names some of their repeats alone."""
    found: set[int] = set()
    for run, start in _layer_runs(graph.nodes) if patterns else ():
        for index in run:
            named = [_matched(graph.nodes[index], patterns, r) for r in range(graph.nodes[index].repeat)]
            found |= {start + r for r in range(1, len(named)) if named[r] != named[r - 1]}
    return found


def _named(graph: OpGraph, nodes: Sequence[Node], patterns: Sequence[str]) -> list[bool]:
    """Which of the cut nodes the names of modules freeze.

    Raises:
        ConfigError: If a pattern names none.
    """
    offsets = [0] * len(nodes)
    starts = [start for _, start in _layer_runs(graph.nodes)]
    for run, start in _layer_runs(nodes):
        for index in run:
            offsets[index] = start - max(first for first in starts if first <= start)
    for pattern in patterns:
        if not any(_matched(node, [pattern], r) for node in graph.nodes for r in range(node.repeat)):
            raise ConfigError(_names_nothing(graph, pattern))
    return [_matched(node, patterns, offset) for node, offset in zip(nodes, offsets, strict=True)]


def _names_nothing(graph: OpGraph, pattern: str) -> str:
    modules = list(dict.fromkeys(node.layer.split(".", 1)[0] for node in graph.nodes if node.layer))
    depth = _depth(graph)
    parts = ["backbone", "embeddings", *([f"layers:{depth // 2 or 1}"] if depth else [])]
    return (
        f"freeze={shown(pattern)} names nothing in {graph.name}. The rule: {', '.join(parts)}, or modules of "
        f"the model, of which its graph names {', '.join(modules[:8]) or 'none'}. To fix: use one of these."
    )


def _depth(graph: OpGraph) -> int:
    """Layers that stand as repeated blocks; 0 where others stand between them, which leaves no count."""
    nodes = graph.nodes
    inside = [index for index, node in enumerate(nodes) if node.segment]
    if not inside:
        return 0
    between = nodes[inside[0] : inside[-1]]
    if any(node.flops and node.weight_elems and not node.segment for node in between):
        return 0
    return sum(nodes[block[0]].repeat for block in _runs(nodes) if nodes[block[0]].segment)


def _part(graph: OpGraph, pattern: str) -> list[bool]:
    """Which nodes a part that every model may have consists of."""
    nodes, heads = graph.nodes, heads_of(graph)
    if pattern == "head":
        return [index in heads for index in range(len(nodes))]
    if pattern == "embeddings":
        first = next((index for index, node in enumerate(nodes) if node.repeat > 1), 0)
        return [node.op_class is OpClass.EMBEDDING or index < first for index, node in enumerate(nodes)]
    if pattern != "encoder":
        return [index not in heads for index in range(len(nodes))]
    chosen = _encoder(nodes)
    if any(chosen):
        return chosen
    named = [_matched(node, [pattern], 0) for node in nodes]  # a module of that name
    if not any(named):
        raise ConfigError(_names_nothing(graph, pattern))
    return named


def _encoder(nodes: Sequence[Node]) -> list[bool]:
    """What leads to the tensors that another stack of layers attends to."""
    chosen = [False] * len(nodes)
    for block in _blocks(nodes):
        carried = nodes[block[-1]].out_elems
        for index in block:
            for source in nodes[index].inputs:
                if 0 <= source < block[0] and nodes[source].out_elems != carried and nodes[source].input_grad:
                    open_ends = [source]
                    while open_ends:
                        at = open_ends.pop()
                        if at >= 0 and not chosen[at]:
                            chosen[at] = True
                            open_ends.extend(nodes[at].inputs)
    return chosen


def _runs(nodes: Sequence[Node]) -> Iterator[range]:
    """Neighbors of one segment."""
    start = 0
    for index in range(1, len(nodes) + 1):
        if index == len(nodes) or nodes[index].segment != nodes[start].segment:
            yield range(start, index)
            start = index


def _blocks(nodes: Sequence[Node]) -> Iterator[range]:
    """Runs of nodes that repeat together."""
    return (run for run in _runs(nodes) if nodes[run[0]].repeat > 1)


def _settled(graph: OpGraph, nodes: list[Node], trained: Sequence[bool], *, packed: float) -> OpGraph:
    """The graph with gradients, kept activations and trained parameters as `trained` weights make them."""
    alive_in, alive_out = _gradients(nodes, trained)
    saved = _kept(nodes, trained, alive_out)
    tied = _tied_heads(graph, nodes, trained)
    settled = []
    for index, node in enumerate(nodes):
        own = tied.get(index, node.param_elems) if trained[index] else 0.0
        settled.append(
            replace(
                node,
                input_grad=alive_in[index],
                weight_grad=trained[index],
                saved_elems=saved[index],
                param_elems=own,
                param_tensors=(node.param_tensors + (index in tied)) * (own > 0.0),
            )
        )
    _unpack_where_used(settled)
    added = sum(node.param_elems * node.repeat for node in nodes) - sum(
        node.param_elems * node.repeat for node in graph.nodes
    )
    return replace(
        graph,
        nodes=tuple(settled),
        params=graph.params + max(added, 0.0) * (len(nodes) != len(graph.nodes)),
        trainable_params=sum(node.param_elems * node.repeat for node in settled),
        param_tensors=sum(node.param_tensors * node.repeat for node in settled),
        packed_params=packed,
    )


def _gradients(nodes: Sequence[Node], trained: Sequence[bool]) -> tuple[list[bool], list[bool]]:
    """Whether each node needs the gradient by its input, and whether one by its output comes in.

    The input of a repeated block needs one if anything in the block is trained: later repeats hand it down.
    """
    carried: dict[int, float] = {}
    for block in _blocks(nodes):
        if any(trained[index] for index in block):
            carried |= dict.fromkeys(block, nodes[block[-1]].out_elems)
    starts = {index: block[0] for block in _blocks(nodes) for index in block}
    alive_in: list[bool] = []
    alive_out: list[bool] = []
    for index, node in enumerate(nodes):
        needed = any(
            alive_out[source]
            or (index in carried and source < starts[index] and nodes[source].out_elems == carried[index])
            for source in node.inputs
            if source >= 0
        )
        alive_in.append(node.input_grad and needed)
        alive_out.append(alive_in[-1] or trained[index])
    return alive_in, alive_out


def _kept(nodes: Sequence[Node], trained: Sequence[bool], alive: Sequence[bool]) -> list[float]:
    """Activation elements that each node keeps: a tensor is counted with the first that still needs it."""
    saved = [node.saved_elems for node in nodes]
    readers = consumers_of(nodes)
    for source, node in enumerate(nodes):
        keepers = [source] if node.op in KEEPS_OUTPUT else []
        keepers += [index for index in readers[source] if _keeps_input(nodes[index])]
        held = next((index for index in keepers if saved[index] > 0.0), None)
        if held is None or _still(held, nodes, trained, alive):
            continue
        saved[held] -= min(saved[held], node.out_elems)
        heir = next((index for index in keepers if _still(index, nodes, trained, alive)), None)
        if heir is not None:
            saved[heir] += node.out_elems
    for index, node in enumerate(nodes):
        if not alive[index] or (node.op_class in _KEEPS_PARAMETERS and not trained[index]):
            saved[index] = 0.0
    return saved


def _keeps_input(node: Node) -> bool:
    return (
        (node.op_class in _KEEPS_PARAMETERS and node.weight_elems > 0.0)
        or node.op_class in _KEEPS_OPERANDS
        or node.op in KEEPS_INPUT
    )


def _still(index: int, nodes: Sequence[Node], trained: Sequence[bool], alive: Sequence[bool]) -> bool:
    return trained[index] if nodes[index].op_class in _KEEPS_PARAMETERS else alive[index]


def _tied_heads(graph: OpGraph, nodes: Sequence[Node], trained: Sequence[bool]) -> dict[int, float]:
    """Trained heads that share the table of a frozen embedding: the table is theirs then."""
    frozen = {
        node.weight_elems
        for node, on in zip(nodes, trained, strict=True)
        if node.op_class is OpClass.EMBEDDING and node.param_elems and not on
    }
    return {
        index: node.weight_elems
        for index, node in enumerate(nodes)
        if trained[index] and node.n * node.k in frozen and node.param_elems < node.n * node.k
    }


def _unpack_where_used(nodes: list[Node]) -> None:
    """Packed weights are unpacked again in the backward pass where their product has one."""
    for index, node in enumerate(nodes[:-1]):
        if node.op == UNPACKING and nodes[index + 1].op_class is OpClass.GEMM and not node.inputs:
            used = nodes[index + 1].input_grad and nodes[index + 1].scales_with_batch
            nodes[index] = replace(node, input_grad=used)
