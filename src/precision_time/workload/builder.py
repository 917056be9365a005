"""Write operator graphs by hand: a few lines per layer, the bookkeeping of `Node` done here.

A `Tensor` is rows x width elements per sample. The builder follows through the graph which tensors
need a gradient and which are already kept for the backward pass, so that `input_grad`,
`weight_grad`, `saved_elems` and `param_elems` come out of the structure instead of being typed in.
Data types are not decided here: nodes carry aten operator names and precision is applied later.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from ..records import dataclass
from .graph import EXPERT_PRODUCT, Node, OpClass, OpGraph

MASK_ELEMS = 0.5
"""A one-byte dropout mask in elements of a two-byte activation (Korthikanti et al. 2022, section 4)."""

KEEPS_INPUT = frozenset(
    {"gelu", "silu", "mul", "pow", "hardswish", "leaky_relu", "elu", "abs", "softplus", "log_sigmoid"}
)
KEEPS_OUTPUT = frozenset({"relu", "tanh", "sigmoid", "exp", "sqrt", "rsqrt"})


@dataclass(frozen=True, slots=True)
class Tensor:
    """The output of one node: `rows` x `width` elements per sample."""

    node: int
    rows: float
    width: float
    grad: bool = True

    @property
    def elems(self) -> float:
        """Elements per sample."""
        return self.rows * self.width


class GraphBuilder:
    """Collects nodes in execution order and turns them into an `OpGraph`."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._nodes: list[Node] = []
        self._kept: set[int] = set()
        self._repeat = 1
        self._segment = 0
        self._segments = 0
        self._train = True
        self._share = False
        self._scales = True
        self._params = 0.0
        self._trainable = 0.0
        self._tensors = 0

    @contextmanager
    def block(self, repeat: int) -> Iterator[None]:
        """Everything inside stands once and occurs `repeat` times in a row."""
        self._segments += 1
        before = self._repeat, self._segment
        self._repeat, self._segment = before[0] * int(repeat), self._segments
        yield
        self._repeat, self._segment = before

    @contextmanager
    def _set(self, flag: str, value: bool) -> Iterator[None]:
        """A flag of the builder inside the block."""
        before = getattr(self, flag)
        setattr(self, flag, value)
        yield
        setattr(self, flag, before)

    def frozen(self, on: bool = True) -> AbstractContextManager[None]:
        """Parameters used inside are not trained."""
        return self._set("_train", self._train and not on)

    def shared(self, on: bool = True) -> AbstractContextManager[None]:
        """Parameters used inside were counted before (layers that share their weights)."""
        return self._set("_share", self._share or on)

    def once(self) -> AbstractContextManager[None]:
        """Operators inside run once a step, whatever the batch (what positions alone decide)."""
        return self._set("_scales", False)

    def carry(self, x: Tensor, *, grad: bool | None = None) -> Tensor:
        """`x` as it enters a repeated block: every repeat keeps its own copy and may need its gradient."""
        self._kept.discard(x.node)
        return Tensor(x.node, x.rows, x.width, x.grad if grad is None else grad)

    def input(self, rows: float, width: float) -> Tensor:
        """An input of the graph: no gradient."""
        return Tensor(-1, rows, width, False)

    def reshape(self, x: Tensor, rows: float, width: float) -> Tensor:
        """A view of `x`; moves nothing."""
        return Tensor(x.node, rows, width, x.grad)

    def node(
        self,
        op: str,
        op_class: OpClass,
        inputs: Sequence[Tensor],
        *,
        rows: float | None = None,
        width: float | None = None,
        weight: float = 0.0,
        new_params: float | None = None,
        tensors: int = 0,
        saves: Sequence[Tensor] = (),
        saves_output: bool = False,
        extra_saved: float = 0.0,
        in_elems: float | None = None,
        **fields: Any,
    ) -> Tensor:
        """One operator of `weight` parameter elements, of which `new_params` are used here first.

        The output is shaped like the first input where `rows` or `width` is not given.
        """
        index = len(self._nodes)
        rows = inputs[0].rows if rows is None else rows
        width = inputs[0].width if width is None else width
        own = 0.0 if self._share else (weight if new_params is None else new_params)
        count = tensors if own else 0
        has_weight = weight > 0 or own > 0
        grad_in = any(t.grad for t in inputs)
        grad_out = grad_in or (has_weight and self._train)
        self._params += own * self._repeat
        if self._train:
            self._trainable += own * self._repeat
            self._tensors += count * self._repeat
        self._nodes.append(
            Node(
                op=op,
                op_class=op_class,
                inputs=tuple(dict.fromkeys(t.node for t in inputs)),
                in_elems=sum(t.elems for t in inputs) if in_elems is None else in_elems,
                out_elems=rows * width,
                weight_elems=weight,
                param_elems=own if self._train else 0.0,
                param_tensors=count if self._train else 0,
                input_grad=grad_in,
                weight_grad=has_weight and self._train,
                saved_elems=self._keep(index, saves, saves_output, rows * width, extra_saved)
                if grad_out
                else 0.0,
                repeat=self._repeat,
                segment=self._segment,
                **({"scales_with_batch": self._scales} | fields),
            )
        )
        return Tensor(index, rows, width, grad_out)

    def _keep(
        self, index: int, saves: Sequence[Tensor], saves_output: bool, out_elems: float, extra: float
    ) -> float:
        kept = extra
        for tensor in saves:
            if tensor.node >= 0 and tensor.node not in self._kept:
                kept += self._nodes[tensor.node].out_elems
                self._kept.add(tensor.node)
            elif tensor.node < 0:
                kept += tensor.elems
        if saves_output:
            kept += out_elems
            self._kept.add(index)
        return kept

    def linear(
        self, x: Tensor, out: float, *, bias: bool = True, tied: bool = False, layer: str = ""
    ) -> Tensor:
        """A linear layer x.width -> out; `tied` weights were counted where they were first used."""
        weight = x.width * out + (out if bias else 0.0)
        return self.node(
            "linear",
            OpClass.GEMM,
            (x,),
            width=out,
            weight=weight,
            new_params=(out if bias else 0.0) if tied else weight,
            tensors=int(not tied) + int(bias),
            saves=(x,) if self._train else (),
            m=x.rows,
            n=out,
            k=x.width,
            count=1.0,
            layer=layer,
        )

    def experts(self, x: Tensor, out: float, experts: float, *, bias: bool = False) -> Tensor:
        """One linear layer per expert over evenly routed rows: `experts` products of rows/experts."""
        weight = experts * (x.width * out + (out if bias else 0.0))
        return self.node(
            EXPERT_PRODUCT,
            OpClass.GEMM,
            (x,),
            width=out,
            weight=weight,
            tensors=int(experts) * (1 + int(bias)),
            saves=(x,) if self._train else (),
            m=x.rows / experts,
            n=out,
            k=x.width,
            count=experts,
        )

    def conv(
        self,
        x: Tensor,
        out: float,
        *,
        rows: float,
        kernel: int,
        stride: int = 1,
        groups: float = 1,
        bias: bool = True,
    ) -> Tensor:
        """A convolution of any dimension: `rows` output positions, `kernel` area, `out` channels."""
        per_group = x.width / groups
        weight = out * per_group * kernel + (out if bias else 0.0)
        if groups == 1:
            op_class = OpClass.CONV
        else:
            op_class = OpClass.DEPTHWISE_CONV if per_group == 1 else OpClass.GROUPED_CONV
        return self.node(
            "convolution",
            op_class,
            (x,),
            rows=rows,
            width=out,
            weight=weight,
            tensors=1 + int(bias),
            saves=(x,) if self._train else (),
            m=rows,
            n=out / groups,
            k=per_group * kernel,
            count=groups,
            kernel=kernel,
            stride=stride,
        )

    def norm(self, x: Tensor, *, bias: bool = True, affine: bool = True) -> Tensor:
        """Layer normalization over the width; keeps its input, mean and deviation."""
        weight = x.width * (1 + int(bias)) if affine else 0.0
        return self.node(
            "native_layer_norm",
            OpClass.NORM,
            (x,),
            weight=weight,
            tensors=1 + int(bias),
            saves=(x,),
            extra_saved=2 * x.rows,
        )

    def rms_norm(self, x: Tensor, *, affine: bool = True) -> Tensor:
        """Root-mean-square normalization over the width."""
        weight = x.width if affine else 0.0
        return self.node(
            "rms_norm",
            OpClass.NORM,
            (x,),
            weight=weight,
            tensors=1,
            saves=(x,),
            extra_saved=x.rows,
        )

    def group_norm(self, x: Tensor, *, groups: float) -> Tensor:
        """Group normalization over channels (`x.width`)."""
        return self.node(
            "native_group_norm",
            OpClass.NORM,
            (x,),
            weight=2 * x.width,
            tensors=2,
            saves=(x,),
            extra_saved=2 * groups,
        )

    def elementwise(
        self, op: str, *inputs: Tensor, width: float | None = None, weight: float = 0.0, tensors: int = 1
    ) -> Tensor:
        """A pointwise operator over `inputs`; what it keeps follows from its derivative."""
        first = max(inputs, key=lambda t: t.elems)
        return self.node(
            op,
            OpClass.ELEMENTWISE,
            inputs,
            rows=first.rows,
            width=first.width if width is None else width,
            weight=weight,
            tensors=tensors,
            saves=inputs if op in KEEPS_INPUT else (),
            saves_output=op in KEEPS_OUTPUT,
        )

    def add(self, x: Tensor, y: Tensor) -> Tensor:
        """A residual addition; keeps nothing."""
        return self.elementwise("add", x, y)

    def mul(self, x: Tensor, y: Tensor) -> Tensor:
        """A product of two tensors; keeps both."""
        return self.elementwise("mul", x, y)

    def dropout(self, x: Tensor, on: bool = True) -> Tensor:
        """Dropout with a one-byte mask; nothing at all where `on` is false."""
        if not on:
            return x
        return self.node(
            "native_dropout",
            OpClass.ELEMENTWISE,
            (x,),
            extra_saved=MASK_ELEMS * x.elems,
        )

    def softmax(self, x: Tensor) -> Tensor:
        """Softmax over the width; keeps its output."""
        return self.node("_softmax", OpClass.SOFTMAX, (x,), saves_output=True)

    def move(self, op: str, *inputs: Tensor, rows: float | None = None, width: float | None = None) -> Tensor:
        """A copy, concatenation, padding or layout change."""
        out_rows = inputs[0].rows if rows is None else rows
        out_width = sum(t.elems for t in inputs) / out_rows if width is None else width
        return self.node(op, OpClass.MOVE, inputs, rows=out_rows, width=out_width)

    def gather(self, op: str, x: Tensor, *, rows: float) -> Tensor:
        """Indexed rows of `x` (`index`, `index_add`, `scatter_add`); keeps the indices."""
        return self._indexed(op, OpClass.GATHER, x, rows)

    def _indexed(self, op: str, op_class: OpClass, x: Tensor, rows: float) -> Tensor:
        return self.node(
            op, op_class, (x,), rows=rows, in_elems=max(rows, x.rows) * x.width, extra_saved=rows
        )

    def dispatch(self, op: str, x: Tensor, *, rows: float) -> Tensor:
        """Rows of `x` sorted to their experts (`index`), or summed back (`index_add`); keeps the indices."""
        return self._indexed(op, OpClass.DISPATCH, x, rows)

    def reduce(self, op: str, x: Tensor, *, rows: float, width: float = 1.0) -> Tensor:
        """A reduction such as `mean`, `sum` or `topk`."""
        return self.node(op, OpClass.REDUCTION, (x,), rows=rows, width=width)

    def embedding(self, tokens: float, vocab: float, width: float) -> Tensor:
        """`tokens` rows read out of a table of vocab x width parameters."""
        return self.node(
            "embedding",
            OpClass.EMBEDDING,
            (self.input(tokens, 1),),
            rows=tokens,
            width=width,
            weight=vocab * width,
            tensors=1,
            in_elems=tokens * width,
            extra_saved=tokens,
        )

    def attention(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        *,
        heads: float,
        head_dim: float,
        value_dim: float | None = None,
        causal: bool = False,
        window: float | None = None,
    ) -> Tensor:
        """Fused scaled dot-product attention.

        `query.rows` are the query length, `key.rows` the key length; widths are only read for
        traffic, so views of one fused projection may be handed in. A sliding `window` smaller than
        the keys counts the mean number of keys a query sees.
        """
        values = head_dim if value_dim is None else value_dim
        keys = key.rows
        windowed = window is not None and window < keys
        if windowed and window is not None:
            keys = window - window * window / (2 * keys) if causal else window
        return self.node(
            "scaled_dot_product_attention",
            OpClass.ATTENTION,
            (query, key, value),
            width=heads * values,
            saves=(query, key, value),
            saves_output=True,
            extra_saved=heads * query.rows,
            m=query.rows,
            n=keys,
            k=(head_dim + values) / 2,
            count=heads,
            batch_in_count=True,
            causal=causal and not windowed,
        )

    def bmm(self, x: Tensor, y: Tensor, *, m: float, n: float, k: float, count: float) -> Tensor:
        """`count` products of two activations per sample; keeps both."""
        return self.node(
            "bmm",
            OpClass.BMM,
            (x, y),
            rows=m * count,
            width=n,
            saves=(x, y),
            m=m,
            n=n,
            k=k,
            count=count,
            batch_in_count=True,
        )

    def lstm(self, x: Tensor, hidden: float, *, steps: float) -> Tensor:
        """One recurrent layer of four gates: `steps` dependent products with both weights."""
        return self.node(
            "lstm",
            OpClass.RNN,
            (x,),
            width=hidden,
            weight=4 * (hidden * (x.width + hidden) + 2 * hidden),
            tensors=4,
            saves=(x,),
            saves_output=True,
            extra_saved=x.rows * hidden * 5,
            m=x.rows / steps,
            n=4 * hidden,
            k=x.width + hidden,
            count=1,
            sequential_steps=int(steps),
        )

    def cross_entropy(self, logits: Tensor) -> Tensor:
        """Log-softmax over the classes and the negative log likelihood of the labels."""
        logs = self.node(
            "_log_softmax",
            OpClass.SOFTMAX,
            (logits,),
            saves_output=True,
        )
        return self.node(
            "nll_loss_forward",
            OpClass.REDUCTION,
            (logs,),
            rows=1,
            width=1,
            in_elems=logits.rows,
            extra_saved=logits.rows,
        )

    def loss(self, op: str, scores: Tensor) -> Tensor:
        """A scalar loss of every element of `scores` (`mse_loss`, `binary_cross_entropy_with_logits`)."""
        return self.node(op, OpClass.REDUCTION, (scores,), rows=1, width=1, saves=(scores,))

    def build(
        self,
        *,
        input_bytes: float,
        seq_len: int | None = None,
        image_size: int | None = None,
        notes: str = "",
    ) -> OpGraph:
        """The finished graph; `input_bytes` per sample come from the host."""
        return OpGraph(
            name=self._name,
            nodes=tuple(self._nodes),
            params=self._params,
            trainable_params=self._trainable,
            param_tensors=self._tensors,
            input_bytes_per_sample=input_bytes,
            image_size=image_size,
            seq_len=seq_len,
            notes=notes,
        )
