"""Exported programs (.pt2) without unpickling: the JSON program of the archive, run on meta tensors.

`torch.export.load` unpickles example inputs and constants, resolves names to any function of torch and
evaluates expressions. None of this is needed for shapes: the program states the sizes of every tensor, and
its operators are run here one by one, those of ATen and arithmetic only.
"""

from __future__ import annotations

import json
import math
import operator
import re
import stat
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch._export.serde import schema
from torch._export.serde import serialize as serde

from precision_time.capture.recorder import CAPTURE_BATCH, record
from precision_time.capture.sources import rebatch
from precision_time.capture.step import evaluation_warning
from precision_time.errors import CaptureError, shown
from precision_time.workload.graph import OpGraph

_WAY_OUT = "To fix: write it with torch.export.save of a current torch, or export the model to ONNX."
_PROGRAM = "/models/model.json"
_MOST_ENTRIES = 20_000
_MOST_PROGRAM_BYTES = 2**28
_MOST_RATIO = 100
"""Bytes of the program for each one in the archive; torch does not compress."""
_DEEPEST = 16
"""Graphs inside of graphs."""
_ATEN = re.compile(r"torch\.ops\.aten\.(\w+)\.(\w+)")
_REFUSED = ("from_file", "set_", "set", "resize_", "record_stream", "_print", "warn")
_ARITHMETIC: Mapping[str, Callable[..., Any]] = {
    **{
        f"_operator.{name}": getattr(operator, name)
        for name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "neg", "pos", "eq", "ne", "lt", "le")
        + ("gt", "ge", "and_", "or_", "not_", "getitem")
    },
    **{f"math.{name}": getattr(math, name) for name in ("ceil", "floor", "trunc", "sqrt")},
    **{
        f"torch.{name}": getattr(torch, name)
        for name in ("sym_max", "sym_min", "sym_not", "sym_int", "sym_float", "sym_ite")
    },
}
_MODES = {"dropout", "feature_dropout", "batch_norm"}
"""Operators that say whether the model trains."""


def capture_program(file: Path, *, name: str) -> OpGraph:
    """The graph of an exported program: at its own batch size where it was exported with one.

    Raises:
        CaptureError: If the file is no such archive, was written by another version of torch, or holds
            operators, objects or expressions that are not run.
    """
    program = _program(file)
    try:
        module = _Program(program)
        inputs = module.example_inputs()
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, RuntimeError) as error:
        raise _malformed(error) from error
    given = next((t.shape[0] for t in inputs if isinstance(t, torch.Tensor) and t.dim() and t.shape[0]), 0)
    if not given:
        raise CaptureError(
            f"The program {name!r} takes no tensor with a batch dimension. To fix: export it with example "
            "inputs whose first dimension is the batch."
        )
    warning = evaluation_warning(name, "export it again after model.train()") if module.evaluates() else ""
    try:
        graph = record(module, rebatch(inputs, given, CAPTURE_BATCH), name=name)
        return replace(graph, warnings=warning)
    except CaptureError:
        graph = record(module, rebatch(inputs, given, given), name=name, batch=given)
    note = f"Exported for a batch of {given}: sizes that are a multiple of it are taken to grow with it."
    return replace(graph, notes=note, warnings=warning)


def _malformed(error: Exception) -> CaptureError:
    return CaptureError(
        f"The program of the upload is malformed: {type(error).__name__}: {shown(str(error))}. {_WAY_OUT}"
    )


def _program(file: Path) -> Mapping[str, Any]:
    """The JSON program of an archive.

    Raises:
        CaptureError: If it is no archive, one that grows when it is read, or none that torch wrote.
    """
    try:
        with zipfile.ZipFile(file) as archive:
            entry = _entry(archive, file.stat().st_size)
            program: dict[str, Any] = json.loads(archive.read(entry))
    except (zipfile.BadZipFile, OSError, ValueError, EOFError, NotImplementedError, RuntimeError) as error:
        if isinstance(error, RecursionError):
            raise CaptureError(f"The program of the upload is nested too deeply. {_WAY_OUT}") from None
        raise CaptureError(
            f"The upload is not an archive of torch.export.save ({shown(str(error))}). {_WAY_OUT}"
        ) from error
    major = program.get("schema_version", {}).get("major") if isinstance(program, Mapping) else None
    if major != schema.SCHEMA_VERSION[0]:
        raise CaptureError(
            f"The program has schema version {shown(major)}. The rule: {schema.SCHEMA_VERSION[0]}, that of "
            f"torch {torch.__version__}. {_WAY_OUT}"
        )
    return program


def _entry(archive: zipfile.ZipFile, size: int) -> zipfile.ZipInfo:
    entries = archive.infolist()
    if len(entries) > _MOST_ENTRIES or sum(entry.compress_size for entry in entries) > size:
        raise CaptureError(
            f"The archive states {len(entries):,} entries, or entries that overlap. The rule: at most "
            f"{_MOST_ENTRIES:,}, each with bytes of its own. {_WAY_OUT}"
        )
    for entry in entries:
        parts = entry.filename.replace("\\", "/").split("/")
        if ".." in parts or parts[0] == "" or ":" in parts[0] or stat.S_ISLNK(entry.external_attr >> 16):
            raise CaptureError(
                f"The archive holds {shown(entry.filename)}. The rule: no links, and no paths that lead out "
                f"of it. {_WAY_OUT}"
            )
    found = [entry for entry in entries if f"/{entry.filename}".endswith(_PROGRAM)]
    if len(found) != 1:
        raise CaptureError(
            f"The archive holds {len(found)} programs named {_PROGRAM[1:]}. The rule: one. {_WAY_OUT}"
        )
    most = min(_MOST_PROGRAM_BYTES, _MOST_RATIO * max(found[0].compress_size, 1))
    if found[0].file_size > most:
        raise CaptureError(
            f"The program takes {found[0].compress_size:,} bytes in the archive and states "
            f"{found[0].file_size:,}. The rule: at most {most:,}. {_WAY_OUT}"
        )
    return found[0]


class _Program(torch.nn.Module):  # type: ignore[misc]
    """A program as a module: its parameters and buffers on the meta device, its nodes run in order."""

    def __init__(self, program: Mapping[str, Any]) -> None:
        super().__init__()
        whole = program["graph_module"]
        self._graph = whole["graph"]
        self._given: dict[str, Any] = {}
        """Names of parameters, buffers and constants in the graph, and what they are here."""
        self._inputs: list[tuple[str, Any]] = []
        for index, spec in enumerate(whole["signature"]["input_specs"]):
            self._add_input(index, *_only(spec))
        self._written = [
            (found["arg"]["name"], found.get("buffer_name") or found.get("parameter_name"))
            for kind, found in map(_only, whole["signature"]["output_specs"])
            if kind in ("buffer_mutation", "parameter_mutation")
        ]

    def _add_input(self, index: int, kind: str, spec: Mapping[str, Any]) -> None:
        if kind == "user_input":
            how, what = _only(spec["arg"])
            name = what["name"] if how == "as_tensor" else what.get("as_name") if how == "as_sym_int" else ""
            self._inputs.append((name or f"constant {index}", (how, what)))
            return
        if kind == "constant_input":
            self._given[spec["name"]] = next(iter(spec["value"].values()))
            return
        if kind not in ("parameter", "buffer", "tensor_constant"):
            raise CaptureError(
                f"The program takes a {shown(kind)}, which only unpickling gives. The rule: nothing of an "
                f"upload is unpickled. {_WAY_OUT}"
            )
        name = spec["arg"]["name"]
        tensor = _tensor(self._graph["tensor_values"][name])
        own = f"tensor{index}"
        if kind == "parameter":
            self.register_parameter(own, torch.nn.Parameter(tensor, tensor.requires_grad))
        else:
            self.register_buffer(own, tensor)
        self._given[name] = own
        self._given[f".{spec.get('parameter_name') or spec.get('buffer_name')}"] = own

    def example_inputs(self) -> tuple[Any, ...]:
        """Of the sizes that the program was exported with."""
        found: list[Any] = []
        for name, (how, what) in self._inputs:
            if how == "as_tensor":
                found.append(_tensor(self._graph["tensor_values"][name]))
            elif how == "as_sym_int":
                found.append(_size(self._graph["sym_int_values"][name]) if name else what["as_int"])
            else:
                found.append(_Run({}).value({how: what}))
        return tuple(found)

    def evaluates(self) -> bool:
        """Whether dropout or batch normalization are as in evaluation."""
        modes = [
            item["arg"].get("as_bool")
            for node in self._graph["nodes"]
            if (match := _ATEN.fullmatch(node["target"])) and match[1] in _MODES
            for item in node["inputs"]
            if item["name"] in ("train", "training")
        ]
        return bool(modes) and not any(modes)

    def forward(self, *inputs: Any) -> Any:
        """Run every operator once."""
        values = {
            name: getattr(self, own) if isinstance(own, str) and own.startswith("tensor") else own
            for name, own in self._given.items()
        }
        values.update((name, value) for (name, _), value in zip(self._inputs, inputs, strict=True))
        run = _Run(values)
        outputs = run.outputs(self._graph)
        for name, target in self._written:
            torch.ops.aten.copy_.default(values[f".{target}"], run.values[name])
        return outputs


class _Run:
    """Values by name while a graph is run."""

    def __init__(self, values: dict[str, Any], depth: int = 0) -> None:
        self.values, self._depth = values, depth

    def outputs(self, graph: Mapping[str, Any]) -> Any:
        """What a graph returns, its inputs being among the values."""
        for node in graph["nodes"]:
            self._node(node)
        found = [self.value(output) for output in graph["outputs"]]
        return found[0] if graph.get("is_single_tensor_return") else tuple(found)

    def _node(self, node: Mapping[str, Any]) -> None:
        target = node["target"]
        if target.startswith("torch.ops.higher_order."):
            result = self._higher_order(target.rpartition(".")[2], node["inputs"])
        elif target in _ARITHMETIC:
            result = _ARITHMETIC[target](*(self.value(item["arg"]) for item in node["inputs"]))
        else:
            function = _aten(target)
            args, kwargs = self._arguments(function, node["inputs"])
            result = function(*args, **kwargs)
        single = node.get("is_hop_single_tensor_return") is not False
        self._bind(node["outputs"], result, is_single=single)

    def _arguments(self, function: Any, inputs: Sequence[Any]) -> tuple[list[Any], dict[str, Any]]:
        """As torch writes them: by place up to the last stated one by place, else by name."""
        found = {item["name"]: (self.value(item["arg"]), item.get("kind")) for item in inputs}
        args: list[Any] = []
        kwargs: dict[str, Any] = {}
        for argument in function._schema.arguments:
            if argument.name not in found:
                continue
            value, kind = found[argument.name]
            by_name = argument.kwarg_only if kind not in (1, 2) else kind == 2
            if by_name:
                kwargs[argument.name] = value
            else:
                args.append(value)
        return args, kwargs

    def _higher_order(self, name: str, inputs: Sequence[Any]) -> Any:
        """Parts of a model without gradients or with autocast, the two that ordinary models have."""
        graph = next((item["arg"]["as_graph"]["graph"] for item in inputs if "as_graph" in item["arg"]), None)
        if name not in ("wrap_with_set_grad_enabled", "wrap_with_autocast") or graph is None:
            raise CaptureError(
                f"The program holds {shown(name)}, which is not run. The rule: operators of ATen. {_WAY_OUT}"
            )
        if self._depth >= _DEEPEST:
            raise CaptureError(f"The program has more than {_DEEPEST} graphs in one another. {_WAY_OUT}")
        place = next(index for index, item in enumerate(inputs) if "as_graph" in item["arg"])
        operands = [self.value(item["arg"]) for item in inputs[place + 1 :]]
        stated = [self.value(item["arg"]) for item in inputs[:place]]
        names = [_only(each)[1] for each in graph["inputs"]]
        inner = _Run(
            {each.get("name") or each["as_name"]: value for each, value in zip(names, operands, strict=True)},
            self._depth + 1,
        )
        grad = stated[0] if name == "wrap_with_set_grad_enabled" else torch.is_grad_enabled()
        with torch.set_grad_enabled(bool(grad)):
            return inner.outputs(graph)

    def _bind(self, outputs: Sequence[Mapping[str, Any]], result: Any, *, is_single: bool) -> None:
        if not outputs:
            return
        if len(outputs) == 1:
            how, what = _only(outputs[0])
            if how == "as_none":
                return
            if how in ("as_tensor", "as_sym_int", "as_sym_bool", "as_sym_float"):
                self._name(what, result if is_single else result[0])
                return
            outputs = [{"as_tensor": each} for each in what] if how == "as_tensors" else outputs
        for output, value in zip(outputs, result, strict=False):
            how, what = _only(output)
            if how == "as_tensors":
                for each, part in zip(what, value, strict=True):
                    self._name(each, part)
            elif how != "as_none":
                self._name(what, value)

    def _name(self, what: Mapping[str, Any], value: Any) -> None:
        name = what.get("name") or what.get("as_name")
        if name:
            self.values[name] = value

    def value(self, argument: Mapping[str, Any]) -> Any:
        """The value of an argument as the program states it."""
        how, what = _only(argument)
        if how in _PLAIN:
            return what
        if how in ("as_float", "as_floats"):  # infinities are written as text
            return float(what) if how == "as_float" else [float(each) for each in what]
        if how in ("as_tensor", "as_sym_int", "as_sym_float", "as_sym_bool", "as_optional_tensor"):
            return self._one(what)
        if how in ("as_tensors", "as_sym_ints", "as_sym_floats", "as_sym_bools", "as_optional_tensors"):
            return [self._one(each) for each in what]
        if how == "as_nested_tensors":
            return [[self._one(each) for each in row] for row in what]
        if how in _WORDS:
            return _WORDS[how][what]
        if how == "as_none":
            return None
        if how == "as_device":
            return torch.device("cpu")  # values of constants; everything else is on the meta device
        if how == "as_complex":
            return complex(what["real"], what["imag"])
        raise CaptureError(
            f"The program holds an argument of the kind {shown(how)}, which is not read. {_WAY_OUT}"
        )

    def _one(self, what: Mapping[str, Any]) -> Any:
        if "name" in what:
            return self.values[what["name"]]
        if "as_name" in what:
            return self.values[what["as_name"]]
        how, value = _only(what)
        return None if how == "as_none" else self._one(value) if how == "as_tensor" else value


_PLAIN = {
    "as_int", "as_bool", "as_string", "as_ints", "as_bools", "as_strings",
    "as_int_lists", "as_float_lists",
}  # fmt: skip
_WORDS: Mapping[str, Mapping[Any, Any]] = {
    "as_scalar_type": serde._SERIALIZE_TO_TORCH_DTYPE,
    "as_memory_format": serde._SERIALIZE_TO_TORCH_MEMORY_FORMAT,
    "as_layout": serde._SERIALIZE_TO_TORCH_LAYOUT,
}


def _only(union: Mapping[str, Any]) -> tuple[str, Any]:
    """The one key and value of a union."""
    ((how, what),) = union.items()
    return how, what


def _size(stated: Mapping[str, Any]) -> int:
    """A size: of one that is open, what it was when the program was exported. Expressions are not read."""
    if "as_int" in stated:
        return int(stated["as_int"])
    hint = stated["as_expr"].get("hint")
    if not hint:
        raise CaptureError(
            "The program does not say for which sizes of its inputs it was exported. To fix: export it again "
            "with example inputs."
        )
    return int(hint["as_int"])


def _tensor(stated: Mapping[str, Any]) -> torch.Tensor:
    return torch.empty(
        [_size(size) for size in stated["sizes"]],
        dtype=serde._SERIALIZE_TO_TORCH_DTYPE[stated["dtype"]],
        device="meta",
        requires_grad=bool(stated["requires_grad"]),
    )


def _aten(target: str) -> Any:
    """An operator of ATen by its name; no other function of torch is reached."""
    match = _ATEN.fullmatch(target)
    found = None
    if match and match[1] not in _REFUSED:
        packet = getattr(torch.ops.aten, match[1], None)
        found = getattr(packet, match[2], None) if isinstance(packet, torch._ops.OpOverloadPacket) else None
    if not isinstance(found, torch._ops.OpOverload):
        raise CaptureError(
            f"The program calls {shown(target)}. The rule: operators of ATen and arithmetic only. {_WAY_OUT}"
        )
    return found
