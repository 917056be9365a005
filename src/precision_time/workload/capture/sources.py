"""`capture_model`: whatever a user calls their model becomes an `OpGraph`."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map

from ...errors import (
    CaptureError,
    ConfigError,
    MissingExtraError,
    PrecisionTimeError,
    UnknownNameError,
    printable,
    shown,
)
from ..graph import OpGraph, graph_from_json
from .fold import fold_repeats
from .huggingface import HfSizes, capture_config, capture_hf_module, config_of, is_config
from .onnx_graph import capture_onnx
from .recorder import CAPTURE_BATCH, record
from .timm_models import timm_capturer

_LONGEST_LOAD_S = 900.0


def capture_model(
    source: Any,
    *,
    example_inputs: Any = None,
    seq_len: int | None = None,
    image_size: int | None = None,
    name: str | None = None,
    trust: bool = False,
) -> OpGraph:
    """The operator graph of a model, from one forward pass without weights, data or a GPU.

    Args:
        source: A `torch.nn.Module`; "package.module:function" (returns a module, or a module and its
            example inputs); a timm name; a Hugging Face configuration object, config.json, known id or
            model type; a `torch.export.ExportedProgram` or .pt2 file; an .onnx file.
        example_inputs: One batch of any size: a tensor, a tuple of arguments or a dict of keyword
            arguments. Needed for modules that do not say themselves what they take.
        seq_len: Tokens per sample, for models that take token ids.
        image_size: Side length, for models that take images.
        name: Name of the graph; by default what the source is called.
        trust: Whether a .pt2 file may be loaded, which can run code that is stored in it (torch unpickles
            parts of it). It is loaded by a separate process, which has the caller's rights all the same.

    Raises:
        CaptureError: If the model cannot be run without data (says at which operator), computes nothing, or
            is a .pt2 file that is not trusted.
        UnknownNameError: If a name is neither a timm nor a Hugging Face model.
        ConfigError: If a size is not a positive number.
        MissingExtraError: If the library the source needs is not installed.
    """
    for label, value in (("seq_len", seq_len), ("image_size", image_size)):
        if value is not None and value <= 0:
            raise ConfigError(
                f"{label}={shown(value)} is not possible: sizes are positive. To fix: leave it out or raise "
                "it."
            )
    if isinstance(source, str | os.PathLike) and Path(source).suffix in (".pt2", ".onnx"):
        graph = _capture_file(Path(source), name or Path(source).stem, trust)
    elif isinstance(source, str | os.PathLike):
        graph = _capture_named(os.fspath(source), example_inputs, seq_len, image_size, name)
    else:
        graph = _capture_object(source, example_inputs, seq_len, image_size, name)
    if not graph.nodes:
        raise CaptureError(
            f"The model {graph.name!r} has no operators: there is nothing to predict. To fix: capture a "
            "model whose forward pass computes something."
        )
    return graph


def _capture_object(
    source: Any, example_inputs: Any, seq_len: int | None, image_size: int | None, name: str | None
) -> OpGraph:
    if is_config(source):
        return capture_config(source, seq_len=seq_len, image_size=image_size, name=name)
    if isinstance(source, torch.export.ExportedProgram):
        return capture_exported(source, name=name or "exported")
    if isinstance(source, torch.nn.Module):
        return capture_module(source, example_inputs, seq_len=seq_len, image_size=image_size, name=name)
    raise CaptureError(
        f"A {type(source).__name__} cannot be captured. The rule: a torch module, a model name, a Hugging "
        "Face configuration, an exported program or an ONNX file. To fix: pass one of these."
    )


def _capture_named(
    source: str, example_inputs: Any, seq_len: int | None, image_size: int | None, name: str | None
) -> OpGraph:
    path = Path(source)
    if path.suffix == ".json" or (path / "config.json").is_file():
        return capture_config(
            config_of(source), seq_len=seq_len, image_size=image_size, name=name or path.stem
        )
    if ":" in source:
        module, inputs = _call_function(source)
        chosen = example_inputs if example_inputs is not None else inputs
        return capture_module(module, chosen, seq_len=seq_len, image_size=image_size, name=name or source)
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
    seq_len: int | None = None,
    image_size: int | None = None,
    name: str | None = None,
) -> OpGraph:
    """The graph of a module; its weights are neither read nor changed."""
    label = name or type(module).__name__
    if example_inputs is None:
        return _capture_self_describing(module, label, seq_len, image_size)
    args, kwargs = split_inputs(example_inputs)
    given = _batch_of((args, kwargs), label)
    try:
        resized = rebatch((args, kwargs), given, CAPTURE_BATCH)
        return record(module, *resized, name=label)
    except CaptureError:
        if given == 1:
            raise
        return record(module, args, kwargs, name=label, batch=given)


def _capture_self_describing(module: Any, name: str, seq_len: int | None, image_size: int | None) -> OpGraph:
    if is_config(getattr(module, "config", None)):
        sizes = HfSizes.choose(module.config, seq_len, image_size)
        return sizes.mark(fold_repeats(capture_hf_module(module, sizes, name)))
    config = getattr(module, "default_cfg", None)
    size = image_size or (config["input_size"][-1] if isinstance(config, Mapping) else None)
    if size is None:
        raise CaptureError(
            f"{name} does not say what it takes. To fix: pass example_inputs (one batch of any size), or "
            "image_size for a model of images."
        )
    channels = config["input_size"][0] if isinstance(config, Mapping) else 3
    inputs = (torch.empty(CAPTURE_BATCH, channels, size, size, device="meta"),)
    return replace(record(module, inputs, name=name), image_size=size)


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
    for hook in list(module._forward_pre_hooks):
        del module._forward_pre_hooks[hook]  # it refuses other batch sizes
    try:
        return record(module, *rebatch((args, kwargs), given, CAPTURE_BATCH), name=name)
    except CaptureError:
        graph = record(module, *rebatch((args, kwargs), given, given), name=name, batch=given)
    note = f"exported for a batch of {given}: sizes that are a multiple of it are taken to grow with it"
    return replace(graph, notes=note)


def _capture_file(path: Path, name: str, trust: bool) -> OpGraph:
    """The graph of an .onnx file, or of a .pt2 file: loaded by a separate process that returns JSON."""
    if not path.is_file():
        raise CaptureError(f"There is no file {str(path)!r}. To fix: check the path.")
    if path.suffix == ".onnx":
        return capture_onnx(path, name=name)
    if not trust:
        raise CaptureError(
            f"{path} is an exported program, and loading one can run code that is stored in it. The rule: "
            "only a file that is trusted is loaded. To fix: --trust (trust=True in Python) if you know who "
            "made it; or export the model to ONNX, which holds no code."
        )
    places = [str(Path(__file__).parents[3]), *filter(None, sys.path)]
    with tempfile.TemporaryDirectory(prefix="precision-time-") as folder:
        out = Path(folder) / "graph.json"
        program = "precision_time.workload.capture.isolated"
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


def load_function(name: str) -> Callable[..., Any]:
    """The function (or module of torch) of "package.module:function"; the working directory counts.

    Raises:
        CaptureError: If it cannot be imported.
    """
    module, _, attribute = name.partition(":")
    if "" not in sys.path and os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        function: Callable[..., Any] = getattr(importlib.import_module(module), attribute)
    except (Exception, SystemExit) as error:  # a user's module may raise anything while it is imported
        raise CaptureError(
            f"{name!r} cannot be imported: {type(error).__name__}: {error}. The form is "
            "package.module:function. To fix: run the command in the folder that holds the package; on a "
            "cluster every node must be able to import it."
        ) from error
    return function


def _call_function(source: str) -> tuple[Any, Any]:
    """What "module:function" returns: a module, and its example inputs where it gives some."""
    function = load_function(source)
    try:
        made = function() if not isinstance(function, torch.nn.Module) else function
    except PrecisionTimeError:
        raise
    except (Exception, SystemExit) as error:
        raise CaptureError(
            f"{source!r} raised {type(error).__name__}: {error}. The rule: called without arguments it "
            "returns a module. To fix: correct the function; --debug shows its traceback."
        ) from error
    if isinstance(made, torch.nn.Module):
        return made, None
    if isinstance(made, tuple) and made and isinstance(made[0], torch.nn.Module):
        return made[0], made[1] if len(made) == 2 else made[1:]
    raise CaptureError(
        f"{source!r} returned a {type(made).__name__}. The rule: a torch.nn.Module, or (module, example "
        "inputs). To fix: return one of these."
    )
