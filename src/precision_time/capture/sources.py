"""`capture_model`: whatever a user calls their model becomes an `OpGraph`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map

from ..errors import CaptureError, ConfigError, MissingExtraError, UnknownNameError, printable, shown
from ..workload.graph import OpGraph, graph_from_json
from ..workload.hf_config import config_label, read_config
from .fold import fold_repeats
from .huggingface import HfSizes, capture_config, capture_hf_module, config_of, is_config
from .inputs import parse_inputs
from .onnx_graph import capture_onnx
from .own import is_own, load_own
from .recorder import CAPTURE_BATCH, record
from .step import OwnStep, evaluation_warning, guessed
from .timm_models import timm_capturer

_LONGEST_LOAD_S = 900.0
_MODE_OF = {"dropout": 2, "feature_dropout": 2, "batch_norm": 5}
"""Place of the argument that says whether the model trains."""


def capture_model(
    source: Any,
    *,
    example_inputs: Any = None,
    inputs: Sequence[str] = (),
    seq_len: int | None = None,
    image_size: int | None = None,
    sizes: Mapping[str, Any] | None = None,
    forward: str | Callable[..., Any] | None = None,
    loss: str | Callable[..., Any] | None = None,
    name: str | None = None,
    trust: bool = False,
) -> OpGraph:
    """The operator graph of a model, from one forward pass without weights, data or a GPU.

    Args:
        source: A `torch.nn.Module`; "package.module:function" or "file.py:function" (returns a module, or a
            module and its example inputs); a timm name; a Hugging Face configuration object, config.json,
            known id or model type; a `torch.export.ExportedProgram` or .pt2 file; an .onnx file.
        example_inputs: One batch of any size: a tensor, a tuple of arguments or a dict of keyword
            arguments.
        inputs: The same in words, such as `ids:int64[B,512]`. Without either a module is tried with what its
            first layers take.
        seq_len: Tokens per sample, for models that take token ids.
        image_size: Side length, for models that take images.
        sizes: Arguments of the function or class that builds the model.
        forward: Method of the module to run in the place of `forward`, or a function of module and inputs.
        loss: Function (or its "module:function") of what the module returns, and of inputs that its forward
            pass does not take.
        name: Name of the graph; by default what the source is called.
        trust: Whether a .pt2 file may be loaded, which can run code that is stored in it (torch unpickles
            parts of it). It is loaded by a separate process, which has the caller's rights all the same.

    Raises:
        CaptureError: If the model cannot be run without data (says at which operator), computes nothing, or
            is a .pt2 file that is not trusted.
        UnknownNameError: If a name is neither a timm nor a Hugging Face model.
        ConfigError: If a size is not a positive number, or something is said that this kind of source lacks.
        MissingExtraError: If the library the source needs is not installed.
    """
    for label, value in (("seq_len", seq_len), ("image_size", image_size)):
        if value is not None and value <= 0:
            raise ConfigError(
                f"{label}={shown(value)} is not possible: sizes are positive. To fix: leave it out or raise "
                "it."
            )
    own = isinstance(source, torch.nn.Module)
    if isinstance(source, str | os.PathLike) and is_own(os.fspath(source)):
        source, given, called = load_own(os.fspath(source), sizes)
        own, name, sizes = True, name or called, None
        example_inputs = given if example_inputs is None and not inputs else example_inputs
    _refuse_unused(own, sizes=sizes, inputs=inputs, forward=forward, loss=loss)
    if own:
        step = OwnStep.of(source, forward=forward, loss=loss, name=name or type(source).__name__)
        graph = capture_module(
            source,
            example_inputs,
            inputs=inputs,
            seq_len=seq_len,
            image_size=image_size,
            name=name,
            step=step,
        )
    elif isinstance(source, str | os.PathLike) and Path(source).suffix in (".pt2", ".onnx"):
        _refuse_unused(False, seq_len=seq_len, image_size=image_size)
        graph = _capture_file(Path(source), name or Path(source).stem, trust)
    elif isinstance(source, str | os.PathLike):
        graph = _capture_named(os.fspath(source), seq_len, image_size, name)
    elif is_config(source):
        graph = capture_config(source, seq_len=seq_len, image_size=image_size, name=name)
    elif isinstance(source, torch.export.ExportedProgram):
        graph = capture_exported(source, name=name or "exported")
    else:
        raise CaptureError(
            f"A {type(source).__name__} cannot be captured. The rule: a torch module, a model "
            "name, a Hugging "
            "Face configuration, an exported program or an ONNX file. To fix: pass one of these."
        )
    if not graph.nodes:
        raise CaptureError(
            f"The model {graph.name!r} has no operators: there is nothing to predict. To fix: capture a "
            "model whose forward pass computes something."
        )
    return graph


def _refuse_unused(own: bool, **given: Any) -> None:
    """Refuse what only a user's own module has.

    Raises:
        ConfigError: Names the first that was given.
    """
    for label, value in given.items():
        if value and not own:
            what = {"sizes": "size", "inputs": "input"}.get(label, label)
            raise ConfigError(
                f"{what}={shown(value)} does not apply: only a module of your own (an nn.Module, "
                f"file.py:function or module:function) has it. To fix: leave out {what}."
            )


def _capture_named(source: str, seq_len: int | None, image_size: int | None, name: str | None) -> OpGraph:
    path = Path(source)
    if path.suffix == ".json" or os.path.isfile(path / "config.json"):
        return capture_config(
            config_of(source),
            seq_len=seq_len,
            image_size=image_size,
            name=name or config_label(read_config(source), source),
        )
    try:
        graph = timm_capturer(source, image_size=image_size)(CAPTURE_BATCH)
        return replace(graph, name=name or source)
    except (UnknownNameError, MissingExtraError) as not_timm:
        try:
            config = config_of(source)
        except MissingExtraError:
            raise not_timm from None
        except UnknownNameError as unknown:
            timm_names = getattr(not_timm, "nearest", ())
            raise UnknownNameError(
                kind="model",
                name=source,
                known=[*timm_names, *unknown.nearest],
                hint="It is neither a timm name nor a Hugging Face type or id known without network. To fix: "
                "pass the path of a config.json, or package.module:function.",
            ) from None
    return capture_config(config, seq_len=seq_len, image_size=image_size, name=name or source)


def capture_module(
    module: torch.nn.Module,
    example_inputs: Any = None,
    *,
    inputs: Sequence[str] = (),
    seq_len: int | None = None,
    image_size: int | None = None,
    name: str | None = None,
    step: OwnStep | None = None,
) -> OpGraph:
    """The graph of a module; its weights are neither read nor changed."""
    step = step or OwnStep.of(module, name=name or type(module).__name__)
    label = step.name
    if example_inputs is not None and inputs:
        raise ConfigError("example_inputs and inputs are given. To fix: give only one of them.")
    if inputs:
        tensors = parse_inputs(inputs)
        return step.captured(step.arranged(tensors), told=seq_len, side=image_size)
    if example_inputs is None:
        example_inputs = getattr(module, "example_input_array", None)  # of Lightning
    if example_inputs is None:
        return _capture_self_describing(module, step, seq_len, image_size)
    args, kwargs = split_inputs(example_inputs)
    given = _batch_of((args, kwargs), label)
    try:
        graph = step.recorded(*rebatch((args, kwargs), given, CAPTURE_BATCH), batch=CAPTURE_BATCH)
    except CaptureError:
        if given == 1:
            raise
        graph = step.recorded(args, kwargs, batch=given)
    return step.finished(graph, tree_leaves((args, kwargs)))


def _capture_self_describing(
    module: Any, step: OwnStep, seq_len: int | None, image_size: int | None
) -> OpGraph:
    if is_config(getattr(module, "config", None)) and step.usual:
        sizes = HfSizes.choose(module.config, seq_len, image_size)
        return sizes.mark(fold_repeats(capture_hf_module(module, sizes, step.name)))
    config = getattr(module, "default_cfg", None)
    if not isinstance(config, Mapping) or "input_size" not in config:
        return guessed(module, step, seq_len=seq_len, image_size=image_size)
    size = image_size or config["input_size"][-1]
    inputs = (torch.empty(CAPTURE_BATCH, config["input_size"][0], size, size, device="meta"),)
    return replace(step.recorded(inputs, {}, batch=CAPTURE_BATCH), image_size=size)


def split_inputs(example_inputs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Positional and keyword arguments out of a tensor, a sequence or a dict."""
    if isinstance(example_inputs, Mapping):
        return (), dict(example_inputs)
    if isinstance(example_inputs, tuple | list):
        return tuple(example_inputs), {}
    return (example_inputs,), {}


def _batch_of(tree: Any, name: str) -> int:
    for leaf in tree_leaves(tree):
        if isinstance(leaf, torch.Tensor) and leaf.dim() > 0 and leaf.shape[0] > 0:
            return int(leaf.shape[0])
    raise CaptureError(
        f"The example inputs of {name} hold no tensor with a batch dimension. To fix: pass tensors whose "
        "first dimension is the batch."
    )


def rebatch(tree: Any, given: int, batch: int) -> Any:
    """Meta copies of all tensors, `batch` samples instead of `given` along the first dimension."""

    def resize(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor):
            return leaf
        shape = tuple(leaf.shape)
        if shape and shape[0] == given:
            shape = (batch, *shape[1:])
        return torch.empty(shape, dtype=leaf.dtype, device="meta")

    return tree_map(resize, tree)


def capture_exported(program: Any, *, name: str) -> OpGraph:
    """The graph of a `torch.export` program: at its own batch size where it was exported with one."""
    if program.example_inputs is None:
        raise CaptureError(
            f"The exported program {name!r} carries no example inputs. To fix: export it again with "
            "torch.export.export(model, args) and save it with torch.export.save."
        )
    args, kwargs = program.example_inputs
    given = _batch_of((args, kwargs), name)
    module = program.module(check_guards=False)
    warning = ""
    if _exported_for_inference(program):
        warning = evaluation_warning(name, "export it again after model.train()")
    for hook in list(module._forward_pre_hooks):
        del module._forward_pre_hooks[hook]  # it refuses other batch sizes
    try:
        return replace(
            record(module, *rebatch((args, kwargs), given, CAPTURE_BATCH), name=name), warnings=warning
        )
    except CaptureError:
        graph = record(module, *rebatch((args, kwargs), given, given), name=name, batch=given)
    note = f"Exported for a batch of {given}: sizes that are a multiple of it are taken to grow with it."
    return replace(graph, notes=note, warnings=warning)


def _exported_for_inference(program: Any) -> bool:
    """Whether dropout or batch normalization of an exported program are as in evaluation.

    Both keep their mode as an argument: dropout(input, p, train), batch_norm(input, weight, bias, mean,
    variance, training, ...).
    """
    modes = [
        node.args[_MODE_OF[operator]]
        for node in program.graph.nodes
        if (operator := str(node.target).removeprefix("aten.").partition(".")[0]) in _MODE_OF
        and len(node.args) > _MODE_OF[operator]
    ]
    return bool(modes) and not any(modes)


def _capture_file(path: Path, name: str, trust: bool) -> OpGraph:
    """The graph of an .onnx file, or of a .pt2 file: loaded by a separate process that returns JSON."""
    if not os.path.isfile(path):
        raise CaptureError(f"There is no file {str(path)!r}. To fix: check the path.")
    if path.suffix == ".onnx":
        return capture_onnx(path, name=name)
    if not trust:
        raise CaptureError(
            f"{path} is an exported program, and loading one can run code that is stored in it. The rule: "
            "only a file that is trusted is loaded. To fix: --trust (trust=True in Python) if you know who "
            "made it; or export the model to ONNX, which holds no code."
        )
    places = [str(Path(__file__).parents[2]), *filter(None, sys.path)]
    with tempfile.TemporaryDirectory(prefix="precision-time-") as folder:
        out = Path(folder) / "graph.json"
        program = "precision_time.capture.isolated"
        command = [sys.executable, "-P", "-m", program, str(path.resolve()), name, str(out)]
        ended = ""
        try:
            done = subprocess.run(
                command, env={**os.environ, "PYTHONPATH": os.pathsep.join(places)}, stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=_LONGEST_LOAD_S, check=False,
            )  # fmt: skip
            ended = f" (exit code {done.returncode})"
            answer = json.loads(out.read_text(encoding="utf-8"))
        except subprocess.TimeoutExpired:
            answer = {"error": f"it was not loaded within {_LONGEST_LOAD_S:.0f} s"}
        except (OSError, ValueError):
            answer = {"error": f"the process that loaded it ended without an answer{ended}"}
    if "error" in answer:
        raise CaptureError(
            f"{path} is not a torch.export program that can be captured: {printable(answer['error'])}. To "
            "fix: write it with torch.export.save."
        )
    graph = graph_from_json(answer["graph"])
    layered = zip(graph.nodes, answer["layers"], strict=True)
    return replace(graph, nodes=tuple(replace(node, layer=str(layer)) for node, layer in layered))
