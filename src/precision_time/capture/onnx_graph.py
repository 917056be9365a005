"""ONNX files as operator graphs: shapes by ONNX's own inference, costs by the rules of aten operators."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from ..errors import CaptureError, import_failure, shown
from ..io import packaged_toml
from ..workload.graph import OpGraph
from . import products
from .fold import fold_repeats
from .recorder import CAPTURE_BATCH
from .tape import Call, Tape
from .values import ValueTable

_NORM_INPUTS = 3
_RECURRENT_GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}


def _operators() -> Mapping[str, Any]:
    return packaged_toml(__package__, "data/onnx_ops.toml")


def capture_onnx(path: Path, *, name: str) -> OpGraph:
    """The graph of an ONNX file, its first input dimension being the batch.

    Float initializers count as trainable parameters, running statistics of normalization do not.

    Raises:
        MissingExtraError: If onnx is not installed.
        CaptureError: If the file is not an ONNX model, reads values that nothing produces, has impossible
            sizes, or shapes cannot be inferred.
    """
    try:
        onnx = importlib.import_module("onnx")
        importlib.import_module("onnx.shape_inference")
    except ImportError as error:
        raise import_failure(
            error, name="onnx", package="onnx", extra="capture", purpose="read ONNX files"
        ) from error
    try:
        return _read(onnx, *_inferred(onnx, path, at_capture_batch=True), name, path)
    except CaptureError as failure:
        graph, batch = _inferred(onnx, path, at_capture_batch=False)
        if batch == 0:
            raise failure from None
        note = f"Exported for a batch of {batch}: sizes that are a multiple of it are taken to grow with it."
        return replace(_read(onnx, graph, batch, name, path), notes=note)


def _read(onnx: ModuleType, graph: Any, batch: int, name: str, path: Path) -> OpGraph:
    try:
        return _Reader(onnx, graph, batch, name).read()
    except CaptureError:
        raise
    except Exception as error:  # operators with missing inputs, attributes of another kind, absurd sizes ...
        raise CaptureError(
            f"{path} is not a valid ONNX model: {type(error).__name__}: {error}. To fix: export it again and "
            "check it with onnx.checker."
        ) from error


def _inferred(onnx: ModuleType, path: Path, *, at_capture_batch: bool) -> tuple[Any, int]:
    """The graph with inferred shapes and its batch: the capture batch, or the one exported (0 if open)."""
    try:
        model = onnx.load(str(path), load_external_data=False)
        batch = _set_batch(model) if at_capture_batch else _own_batch(model)
        graph = onnx.shape_inference.infer_shapes(model, data_prop=True).graph
    except CaptureError:
        raise
    except Exception as error:  # protobuf and onnx raise types of their own
        raise CaptureError(
            f"{path} is not a readable ONNX model: {type(error).__name__} {error}. To fix: export it again "
            "and check it with onnx.checker."
        ) from error
    if not graph.node:
        raise CaptureError(f"{path} holds no operators. To fix: export the model again.")
    return graph, batch


def _inputs(model: Any) -> list[Any]:
    initializers = {item.name for item in model.graph.initializer}
    found = [item for item in model.graph.input if item.name not in initializers]
    for item in found:
        sizes = [dim.dim_value for dim in item.type.tensor_type.shape.dim if dim.HasField("dim_value")]
        if any(size < 0 for size in sizes):
            raise CaptureError(
                f"The input {shown(item.name)} of the ONNX model has the sizes {shown(sizes)}. The rule: "
                "sizes are not negative. To fix: export the model again."
            )
    return found


def _own_batch(model: Any) -> int:
    sizes = [
        dims[0].dim_value for dims in (i.type.tensor_type.shape.dim for i in _inputs(model)) if len(dims)
    ]
    return int(sizes[0]) if sizes else 0


def _set_batch(model: Any) -> int:
    """Makes the first dimension of every input the capture batch; stored shapes are inferred again."""
    for dims in (item.type.tensor_type.shape.dim for item in _inputs(model)):
        for position, dim in enumerate(dims):
            if position == 0:
                dim.dim_value = CAPTURE_BATCH
            elif not dim.dim_value:
                raise CaptureError(
                    f"Input dimension {dim.dim_param or position!r} of the ONNX model is open. To fix: "
                    "export it with only the batch dynamic."
                )
    del model.graph.value_info[:]
    for item in model.graph.output:
        item.type.tensor_type.ClearField("shape")
    return CAPTURE_BATCH


@dataclass(slots=True)
class _Reader:
    """Walks the operators, each value being a meta tensor of its inferred shape."""

    onnx: ModuleType
    graph: Any
    batch: int
    name: str
    tape: Tape = field(init=False)
    values: dict[str, Any] = field(init=False, default_factory=dict)
    shapes: dict[str, tuple[int, ...]] = field(init=False, default_factory=dict)
    params: dict[str, Any] = field(init=False, default_factory=dict)

    def read(self) -> OpGraph:
        self.tape = Tape(table=ValueTable(self.batch))
        buffers = {
            name for node in self.graph.node if node.op_type == "BatchNormalization"
            for name in node.input[_NORM_INPUTS:]
        }  # fmt: skip
        for item in self.graph.initializer:
            self._add_initializer(item, trainable=item.name not in buffers)
        for sparse in self.graph.sparse_initializer:
            self.values[sparse.values.name] = torch.empty(tuple(sparse.dims), device="meta")
        input_bytes = 0.0
        for item in self.graph.input:
            if item.name not in self.values:
                tensor = self._tensor(item)
                self.tape.add_input(tensor)
                self.values[item.name] = tensor
                input_bytes += tensor.numel() * tensor.element_size() / self.batch
        for item in (*self.graph.value_info, *self.graph.output):
            self.shapes[item.name] = self._shape(item)
        for node in self.graph.node:
            self._node(node)
        elems = float(sum(t.numel() for t in self.params.values()))
        graph = OpGraph(
            name=self.name,
            nodes=tuple(self.tape.nodes),
            params=elems,
            trainable_params=elems,
            param_tensors=len(self.params),
            input_bytes_per_sample=input_bytes,
            unpriced=dict(self.tape.unpriced),
            warnings=self._inference_warning(),
        )
        return fold_repeats(graph)

    def _inference_warning(self) -> str:
        """What to say where nothing shows that the model was exported as it trains.

        Exports for inference, which is what exporters do unless told otherwise, leave out dropout and merge
        batch normalization into the convolutions before it.
        """
        trains = any(
            node.op_type == "Dropout"
            or any(item.name == "training_mode" and item.i for item in node.attribute)
            for node in self.graph.node
        )
        if trains:
            return ""
        return (
            f"{self.name} holds neither dropout nor batch normalization as they train: an export for "
            "inference loses both, and so does this answer. To fix: if the model has them, export it with "
            "training=torch.onnx.TrainingMode.TRAINING and do_constant_folding=False; or name the module "
            "itself."
        )

    def _add_initializer(self, item: Any, *, trainable: bool) -> None:
        floating = item.data_type in (1, 10, 11, 16)  # TensorProto FLOAT, FLOAT16, DOUBLE, BFLOAT16
        tensor = torch.empty(tuple(item.dims), device="meta", requires_grad=floating)
        self.values[item.name] = tensor
        if floating and trainable and tensor.dim() > 0:
            self.tape.add_param(item.name, tensor)
            self.params[item.name] = tensor
        else:
            self.tape.add_buffer(tensor)

    def _shape(self, item: Any) -> tuple[int, ...]:
        dims = item.type.tensor_type.shape.dim
        return tuple(d.dim_value if d.HasField("dim_value") else -1 for d in dims)

    def _tensor(self, item: Any) -> Any:
        kind = item.type.tensor_type.elem_type
        numpy_type = self.onnx.helper.tensor_dtype_to_np_dtype(kind)
        dtype = getattr(torch, str(numpy_type), torch.float32)
        return torch.empty(self._shape(item), dtype=dtype, device="meta")

    def _node(self, node: Any) -> None:
        missing = [name for name in node.input if name and name not in self.values]
        if missing:
            raise CaptureError(
                f"The operator {shown(node.name or node.op_type)} of {self.name!r} reads "
                f"{shown(missing[0])}, which nothing before it produces: the graph is cyclic, out of order "
                "or cut off. The rule: operators stand in the order of execution. To fix: export the model "
                "again and check it with onnx.checker."
            )
        reads = [self.values[name] for name in node.input if name]
        if node.op_type in _operators()["views"] and reads:
            for output in node.output:
                self.values[output] = self._alias(reads[0], output)
            return
        outputs = [self._new(node, output) for output in node.output if output]
        if node.op_type in ("Constant", "ConstantOfShape", "Range"):
            for tensor in outputs:
                self.tape.add_constant(tensor)
        elif outputs:
            self.tape.record(self._call(node, reads, outputs))
        self.values.update(zip([o for o in node.output if o], outputs, strict=True))

    def _new(self, node: Any, output: str) -> Any:
        shape = self.shapes.get(output, ())
        if any(d < 0 for d in shape):
            raise CaptureError(
                f"The shape of {output!r} ({node.op_type}) in {self.name!r} could not be inferred: {shape}. "
                "To fix: export with constant folding and only the batch dynamic."
            )
        return torch.empty(shape, device="meta")

    def _alias(self, source: Any, output: str) -> Any:
        shape = self.shapes.get(output)
        try:
            return source.as_strided(shape, source.new_empty(shape).stride()) if shape else source
        except RuntimeError:
            return source

    def _call(self, node: Any, reads: list[Any], outputs: list[Any]) -> Call:
        attributes = {a.name: self.onnx.helper.get_attribute_value(a) for a in node.attribute}
        op, args, product = _operators()["aten"].get(node.op_type, node.op_type), tuple(reads), None
        if node.op_type in ("Conv", "ConvTranspose"):
            op = "convolution"
            strides = list(attributes.get("strides", [1] * (reads[0].dim() - 2)))
            transposed = node.op_type == "ConvTranspose"
            group = attributes.get("group", 1)
            if group < 1 or min(strides, default=1) < 1:
                raise CaptureError(
                    f"The {node.op_type} {shown(node.name)} of {self.name!r} has group={group} and strides="
                    f"{shown(strides)}. The rule: both are 1 or more. To fix: export the model again."
                )
            args = (reads[0], reads[1], None, strides, [], [], transposed, [], group)
        elif node.op_type in ("Gemm", "MatMul"):
            op = "addmm" if node.op_type == "Gemm" else "matmul"
            product = self._matmul(reads, attributes)
        elif node.op_type in ("MaxPool", "AveragePool"):
            window = list(attributes.get("kernel_shape", [1]))
            args = (reads[0], window, list(attributes.get("strides", window)))
        elif node.op_type in _RECURRENT_GATES:
            op = node.op_type.lower()
            hidden, gates = int(attributes["hidden_size"]), _RECURRENT_GATES[node.op_type]
            product = products.recurrent(
                inputs=int(reads[0].shape[-1]),
                hidden=hidden,
                gates=gates,
                steps=int(reads[0].shape[0]),
                op=op,
            )
        return Call(op=op, args=args, reads=reads, fresh=outputs[:1], product=product, layer=node.name)

    def _matmul(self, reads: list[Any], attributes: dict[str, Any]) -> products.Product:
        left, right = reads[0], reads[1]
        if attributes.get("transA"):
            left = left.t()
        if attributes.get("transB"):
            right = right.t()
        table = self.tape.table
        if right.dim() == 2 and left.dim() > 2:
            left = left.reshape(-1, left.shape[-1])
        elif left.dim() > 2:
            left, right = (t.reshape(-1, *t.shape[-2:]) for t in (left, right))
        return products.matrix_product(table, left, right)
