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
    """Answers that the policy writes before the update, and what writes them."""

    prompt: OpGraph
    """Forward pass over the prompt."""
    first_token: OpGraph
    """Forward pass of one more token right behind the prompt."""
    last_token: OpGraph
    """The same behind a prompt and the longest answer."""
    most_tokens: int
    """No answer is longer."""
    mean_tokens: float
    spread: float
    """Standard deviation over mean of the lengths, before the longest are cut at `most_tokens`."""
    lengths_said: bool
    """Whether the mean is said; else it is an assumption."""
    answers_per_prompt: int
    token_cache_elems: float
    """Keys and values of one token over all layers."""
    cache_heads: float
    """Tensor-parallel ranks that share keys and values at most; further ones hold copies."""
    engine: str = ""
    """What writes: a name of cost/data/engines.toml; empty: the usual one of the device."""
    devices: int = 0
    """Devices that only generate, beside those that train; 0: the same ones do both."""
    tp: int = 0
    """Tensor-parallel degree of the engine; 0: the least over which the weights fit."""
    updates: int = 1
    """Optimizer steps that a generated batch is cut into."""
    staleness: int = 0
    """Updates by which answers may be older than the policy: above 0, writing and training overlap."""
    resident: bool = False
    """An engine on the devices that train stays beside their states; else these go to the host meanwhile."""
    counted: bool = False
    """Micro batches are so many answers, short or long; else they are filled up to so many tokens."""


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
    for index, node in enumerate(graph.nodes):
        if not node.scales_with_batch:
            nodes.append(node)
            continue
        one = replace(node, in_elems=node.in_elems / length, out_elems=node.out_elems / length)
        if node.op_class is OpClass.ATTENTION:
            keys = min(node.n, float(context)) if node.n < length else float(context)
            read = node.count * node.k + _cached(graph, index) * keys
            # Query heads that share keys and values are the rows of one product (FlashInfer, Ye et al. 2025).
            heads = min(_cache_heads(graph, index), node.count)
            one = replace(one, m=node.count / heads, n=keys, count=heads, causal=False, in_elems=read)
        elif node.batch_in_count:
            one = replace(one, count=node.count / length)
        else:
            one = replace(one, m=node.m / length)
        nodes.append(one)
    return replace(graph, nodes=tuple(nodes), seq_len=1)


@derived
def with_asked_experts(graph: OpGraph) -> tuple[OpGraph, float]:
    """The pass of one token that reads the weights of its own experts alone, and their share of all.

    The graph itself and 1 where it has no experts, or a token asks for all of them.
    """
    share, nodes = 1.0, []
    for node in graph.nodes:
        routed = node.weight_elems > 0.0 and node.count > 1.0 and not node.batch_in_count and node.m < 1.0
        nodes.append(replace(node, weight_elems=node.weight_elems * node.m) if routed else node)
        share = min(share, node.m) if routed else share
    return (graph if share >= 1.0 else replace(graph, nodes=tuple(nodes))), share


def token_cache(graph: OpGraph) -> tuple[float, float]:
    """Elements of the keys and values of one token over all layers, and the heads that they fall into.

    Layers with a window count with the share of the sequence that the window covers.
    """
    elems = heads = 0.0
    for index, node in enumerate(graph.nodes):
        if node.op_class is OpClass.ATTENTION:
            elems += _cached(graph, index) * min(node.n / node.m, 1.0) * node.repeat
            heads = max(heads, _cache_heads(graph, index))
    return elems, max(heads, 1.0)


def _cache_heads(graph: OpGraph, index: int) -> float:
    """Heads of keys and values of one attention: one where all are made of a latent vector."""
    if _latent(graph, index) is not None:
        return 1.0
    return max(_cached(graph, index) / (2.0 * graph.nodes[index].k), 1.0)


@derived
def as_served(graph: OpGraph, copies: float, fused: bool) -> OpGraph:
    """The pass of one token in an engine.

    Args:
        graph: The pass of one token.
        copies: Of the keys and values, on ranks that share a head of them.
        fused: Rows reach their experts inside the grouped product (vLLM's and SGLang's fused experts): they
            are moved by one kernel before it and one behind, where a framework that trains has dozens.
    """
    nodes = []
    for node in graph.nodes:
        if node.op_class is OpClass.ATTENTION:
            nodes.append(replace(node, in_elems=node.in_elems * copies))
        else:
            moves = fused and node.op_class is OpClass.DISPATCH
            nodes.append(replace(node, op_class=OpClass.MOVE) if moves else node)
    return replace(graph, nodes=tuple(nodes))


def _cached(graph: OpGraph, index: int) -> float:
    """Elements of keys and values per token of one attention."""
    latent = _latent(graph, index)
    if latent is not None:
        return latent
    node = graph.nodes[index]
    return max(node.in_elems / node.m - node.count * node.k, 0.0)


def _latent(graph: OpGraph, index: int) -> float | None:
    """Elements per token of the latent vector that keys and values are made of, which is all that is cached.

    Reference: DeepSeek-V2, arXiv 2405.04434, section 2.1.
    """
    wide = _product_before(graph, graph.nodes[index].inputs[-1:])
    if wide is None or wide.k >= wide.n:
        return None
    narrow = _product_before(graph, wide.inputs)
    return narrow.n if narrow is not None and wide.k <= narrow.n < narrow.k else None


def _product_before(graph: OpGraph, inputs: tuple[int, ...]) -> Node | None:
    """The nearest product with weights among what leads to `inputs`, along first inputs."""
    while inputs and inputs[0] >= 0:
        node = graph.nodes[inputs[0]]
        if node.op_class is OpClass.GEMM:
            return node
        inputs = node.inputs
    return None
