"""What a training method does beside the update of the policy: forward passes of other models, generation.

References: Rafailov et al. 2023 (DPO: policy and reference on a chosen and a rejected answer); Ouyang et al.
2022 (reward model, PPO with critic, reference and reward model); Shao et al. 2024 (GRPO: a group of answers
per prompt, no critic); Hinton et al. 2015 (distillation from a teacher's forward pass).
"""

from __future__ import annotations

from dataclasses import replace

from ..cache import derived
from ..records import dataclass
from .graph import Node, OpClass, OpGraph
from .roles import heads_of, is_vocabulary_head

METHODS = ("sft", "dpo", "reward", "distill", "grpo", "ppo")


@dataclass(frozen=True, kw_only=True, slots=True)
class Generation:
    """Answers that the policy writes before the update."""

    prompt: OpGraph
    """Forward pass over the prompt."""
    token: OpGraph
    """Forward pass of one more token at the mean length so far."""
    tokens: int
    """Of an answer."""
    answers_per_prompt: int
    cache_elems: float
    """Keys and values of one answer at its full length."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Method:
    """A method as the parts that it adds to a step."""

    name: str
    rows_per_sample: int = 1
    """Sequences of one sample: a chosen and a rejected answer are two."""
    forward: tuple[tuple[str, OpGraph], ...] = ()
    """Term and graph of models that only run forward."""
    trained: tuple[tuple[str, OpGraph], ...] = ()
    """Term and graph of models that are trained beside the policy."""
    held: tuple[OpGraph, ...] = ()
    """Models that memory holds beside the policy; shared ones are not among them."""
    generation: Generation | None = None


@derived
def with_scalar_head(graph: OpGraph) -> OpGraph:
    """`graph` with one number per token in the place of the vocabulary: a reward model, a critic."""
    heads = {index for index in heads_of(graph) if is_vocabulary_head(graph, index)}
    behind = set(heads)
    nodes: list[Node] = []
    for index, node in enumerate(graph.nodes):
        if index in heads:
            nodes.append(_scalar(node))
            continue
        nodes.append(node)
        if behind & set(node.inputs):
            behind.add(index)
            rows = max(nodes[source].out_elems for source in node.inputs if source in behind)
            kept = min(rows, node.saved_elems)
            nodes[-1] = replace(node, in_elems=rows, out_elems=min(rows, node.out_elems), saved_elems=kept)
    change = sum(nodes[index].weight_elems - graph.nodes[index].param_elems for index in heads)
    return replace(
        graph,
        nodes=tuple(nodes),
        params=graph.params + change,
        trainable_params=sum(node.param_elems * node.repeat for node in nodes),
        param_tensors=sum(node.param_tensors * node.repeat for node in nodes),
    )


def _scalar(head: Node) -> Node:
    own = head.k if head.weight_grad else 0.0
    return replace(
        head,
        n=1.0,
        out_elems=head.m,
        weight_elems=head.k,
        param_elems=own,
        param_tensors=int(own > 0.0),
    )


def can_generate(graph: OpGraph) -> bool:
    """Whether a graph is that of a decoder alone, which writes answers token by token."""
    attention = [node for node in graph.nodes if node.op_class is OpClass.ATTENTION]
    return (
        graph.seq_len is not None
        and any(is_vocabulary_head(graph, index) for index in heads_of(graph))
        and bool(attention)
        and all(node.m == graph.seq_len for node in attention)
        and any(node.causal for node in attention)
    )


@derived
def one_token(graph: OpGraph, context: int) -> OpGraph:
    """The forward pass of one token behind `context` others, whose keys and values are in a cache."""
    length = float(graph.seq_len or 1)
    nodes = []
    for node in graph.nodes:
        if not node.scales_with_batch:
            nodes.append(node)
            continue
        one = replace(node, in_elems=node.in_elems / length, out_elems=node.out_elems / length)
        if node.op_class is OpClass.ATTENTION:
            keys = min(node.n, float(context)) if node.n < length else float(context)
            read = node.count * node.k + _cached(node) * keys
            one = replace(one, m=1.0, n=keys, causal=False, in_elems=read)
        elif node.batch_in_count:
            one = replace(one, count=node.count / length)
        else:
            one = replace(one, m=node.m / length)
        nodes.append(one)
    return replace(graph, nodes=tuple(nodes), seq_len=1)


def cached_elems(graph: OpGraph, length: int) -> float:
    """Elements of the keys and values of `length` tokens over all layers; windowed ones keep a window."""
    return sum(
        _cached(node) * min(node.n if node.n < node.m else length, length) * node.repeat
        for node in graph.nodes
        if node.op_class is OpClass.ATTENTION
    )


def _cached(node: Node) -> float:
    """Elements of keys and values per token of one attention."""
    return max(node.in_elems / node.m - node.count * node.k, 0.0)
