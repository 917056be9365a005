"""The model of a live trainer: its configuration where that says all, else captured with the first batch."""

from __future__ import annotations

import inspect
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves, tree_map

from precision_time.cache import data
from precision_time.capture.huggingface import is_config
from precision_time.capture.recorder import CAPTURE_BATCH, record
from precision_time.capture.sources import capture_model
from precision_time.errors import PrecisionTimeError, in_one_line
from precision_time.workload.graph import OpGraph
from precision_time.workload.hf_config import read_config
from precision_time.workload.resolve import load_workload

if TYPE_CHECKING:
    from .describe import Found

_SAME_PARAMETERS = 1e-3
"""A configuration stands for a model whose number of parameters differs by this share at most."""
_WORDS = {torch.float64: "fp64", torch.float32: "fp32", torch.bfloat16: "bf16", torch.float16: "fp16"}
_ATTENTION = {"eager": "math", "flash_attention_2": "flash2", "flash_attention_3": "flash3"}
_NOT_ALONE = frozenset({"input_ids", "pixel_values", "input_features", "input_values", "labels"})
"""Inputs of a Hugging Face model without those that its forward pass reads the values of, such as masks."""
_IMAGE_DIMENSIONS = 4

Call = tuple[Any, Callable[..., Any] | None]
"""Example inputs, and what is run with them in the place of `forward`."""


def read_module(
    found: Found,
    model: Any,
    batch: Any,
    *,
    forward: Callable[..., Any] | None,
    loss: Callable[..., Any] | None,
    limit_s: float,
) -> None:
    """Add the model and what follows from it: batch, lengths, precision, compiler, adapters.

    Args:
        found: Collects the fields.
        model: A module, wrapped or not.
        batch: The first batch; None where it is not known.
        forward: As in `request_of`.
        loss: As in `request_of`.
        limit_s: Of all captures together [s].
    """
    module = unwrapped(model)
    if module is not model and hasattr(model, "_orig_mod"):
        found.update(compiler="inductor")
    batch = plain(batch)
    _read_batch(found, batch)
    batch = _in_type_of(_read_numbers(found, module), batch)
    _read_attention(found, module)
    own = module if forward is None else _only_child(module)
    if own is not None and loss is None and _read_config(found, own, batch):
        return
    graph = _captured(found, module, batch, forward, loss, limit_s)
    if graph is not None:
        found.update(model=graph)
        found.fields.pop("seq_len", None)  # the graph has its own


def unwrapped(model: Any) -> Any:
    """The module inside of DistributedDataParallel, FSDP, DeepSpeed's engine and torch.compile."""
    for _ in range(8):
        for attribute in ("_orig_mod", "_fsdp_wrapped_module", "module"):
            inner = getattr(model, attribute, None)
            if isinstance(inner, torch.nn.Module) and not _is_own_part(model, attribute):
                model = inner
                break
        else:
            return model
    return model


def _is_own_part(model: Any, attribute: str) -> bool:
    """Whether `module` is a part that a user's own class happens to call so."""
    library = type(model).__module__.partition(".")[0]
    return attribute == "module" and library not in ("torch", "deepspeed", "lightning", "pytorch_lightning")


def plain(tree: Any) -> Any:
    """A batch of mappings, sequences and tensors, without the classes of libraries."""
    if isinstance(tree, Mapping) or (hasattr(tree, "keys") and hasattr(tree, "__getitem__")):
        return {str(name): plain(tree[name]) for name in tree.keys()}  # noqa: SIM118 - may be no Mapping
    if isinstance(tree, tuple | list):
        return tuple(plain(item) for item in tree)
    return tree


def _read_batch(found: Found, batch: Any) -> None:
    first = next((t for t in tree_leaves(batch) if isinstance(t, torch.Tensor) and t.dim()), None)
    if first is not None and "batch_size" not in found.fields:
        found.update(batch_size=int(first.shape[0]))


def _read_numbers(found: Found, module: Any) -> Any:
    """Precision by the type of most parameters, where the trainer does not say it; memory format.

    Returns:
        That type; None of a module without parameters.
    """
    sizes: dict[Any, int] = {}
    for parameter in module.parameters():
        sizes[parameter.dtype] = sizes.get(parameter.dtype, 0) + parameter.numel()
    most = max(sizes, key=lambda dtype: sizes[dtype]) if sizes else None
    if "precision" not in found.fields and most is not None:
        word = _WORDS.get(most)
        if word is None:
            found.reasons.append(f"The parameters are {most}: no precision is known for it.")
        found.update(precision="tf32" if word == "fp32" and _uses_tf32(module) else word)
    filters = next((p for p in module.parameters() if p.dim() == _IMAGE_DIMENSIONS and p.shape[2] > 1), None)
    if filters is not None:
        last = filters.is_contiguous(memory_format=torch.channels_last) and not filters.is_contiguous()
        found.update(channels_last=last)
    return most


def _in_type_of(dtype: Any, batch: Any) -> Any:
    """The batch as engines that hold 16-bit weights hand it to the model."""

    def cast(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor) or leaf.dtype != torch.float32:
            return leaf
        return torch.empty_like(leaf, dtype=dtype, device="meta")

    return tree_map(cast, batch) if dtype in (torch.bfloat16, torch.float16) else batch


def _uses_tf32(module: Any) -> bool:
    first = next(module.parameters(), None)
    if first is None or first.device.type != "cuda":
        return False
    said = getattr(torch.backends.cuda.matmul, "fp32_precision", "none")  # from torch 2.9 on
    return bool(said == "tf32") if said != "none" else torch.get_float32_matmul_precision() != "highest"


def _read_attention(found: Found, module: Any) -> None:
    config = getattr(module, "config", None)
    if is_config(config):
        found.update(attention=_ATTENTION.get(getattr(config, "_attn_implementation", None) or ""))
    names = ("is_activation_checkpointing", "is_gradient_checkpointing")  # of transformers from 5.20, before
    if getattr(module, next((name for name in names if hasattr(type(module), name)), names[0]), False):
        found.fields.setdefault("recompute", "full")


def _only_child(module: Any) -> Any:
    """The part that has all parameters of a module, such as the model of a `LightningModule`; else None."""
    held = sum(1 for _ in module.parameters())
    return next((part for part in module.children() if sum(1 for _ in part.parameters()) == held), None)


def _read_config(found: Found, module: Any, batch: Any) -> bool:
    """Whether the model's own configuration stands for it: the same parameters, all of them trained."""
    adapters, base = _adapters(module), module
    if adapters:
        base = module.get_base_model()
    if not is_config(getattr(base, "config", None)):
        return False
    held = {name: p for name, p in base.named_parameters() if not (adapters and "lora_" in name)}
    if not adapters and not all(p.requires_grad for p in held.values()):
        return False
    seq_len = _seq_len(batch)
    if seq_len is None and batch is not None:
        return False
    try:
        config = read_config(base.config)
        known = load_workload(config, seq_len=seq_len).graph.params
    except PrecisionTimeError:
        return False
    count = sum(p.numel() for p in held.values())
    if not _is_sharded(base) and abs(known / max(count, 1) - 1.0) > _SAME_PARAMETERS:
        return False
    if seq_len is None and "seq_len" not in found.fields:
        found.reasons.append("The first batch was not seen: sequences as long as usual for the model")
    found.fields.setdefault("seq_len", seq_len)
    found.update(model=dict(config), **adapters)
    return True


def _adapters(module: Any) -> dict[str, Any]:
    """Adapters of PEFT as fields; empty where there are none, or such as no request has."""
    configs = getattr(module, "peft_config", None)
    if not isinstance(configs, Mapping) or len(configs) != 1 or not hasattr(module, "get_base_model"):
        return {}
    config = next(iter(configs.values()))
    targets = getattr(config, "target_modules", None)
    if not getattr(config, "r", 0) or not targets or isinstance(targets, str):
        return {}
    packed = "q" if getattr(module, "is_loaded_in_4bit", False) else ""
    kind = "dora" if getattr(config, "use_dora", False) else "lora"
    return {"adapter": packed + kind, "lora_rank": int(config.r), "lora_targets": ",".join(sorted(targets))}


def _is_sharded(module: Any) -> bool:
    """Whether parameters are pieces of their tensors (FSDP), or empty until they are gathered (ZeRO 3)."""
    kinds = {type(parameter).__name__ for parameter in module.parameters()}
    return "FlatParameter" in kinds or any(hasattr(p, "ds_id") for p in module.parameters())


def _seq_len(batch: Any) -> int | None:
    ids = batch.get("input_ids") if isinstance(batch, Mapping) else None
    return int(ids.shape[1]) if isinstance(ids, torch.Tensor) and ids.dim() > 1 else None


class _Deadline(TorchFunctionMode):  # type: ignore[misc]
    """Ends a capture that takes too long."""

    def __init__(self, limit_s: float) -> None:
        super().__init__()
        self.limit_s = limit_s
        self._end_s = time.monotonic() + limit_s

    @property
    def over(self) -> bool:
        """Whether the time is up."""
        return time.monotonic() > self._end_s

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if self.over:
            raise TimeoutError
        return func(*args, **(kwargs or {}))


def _captured(
    found: Found,
    module: Any,
    batch: Any,
    forward: Callable[..., Any] | None,
    loss: Callable[..., Any] | None,
    limit_s: float,
) -> OpGraph | None:
    """The operators of one step; None where none of the ways to run it does."""
    if _is_sharded(module):
        found.reasons.append(
            "The model is sharded, so its layers cannot be read; its configuration says too little."
        )
        return None
    _load_capture()
    deadline, first = _Deadline(limit_s), ""
    for inputs, call in _calls(module, batch, forward, loss):
        try:
            with deadline, warnings.catch_warnings():
                warnings.simplefilter("ignore")
                graph = capture_model(module, example_inputs=inputs, forward=call)
        except Exception as error:  # noqa: BLE001 - a user's forward pass may raise anything
            said = (
                in_one_line(error)
                if isinstance(error, PrecisionTimeError)
                else f"{type(error).__name__}: {error}"
            )
            first = first or said
            if deadline.over:
                first = f"its capture took longer than {limit_s:g} s"
                break
            continue
        if first and forward is not None:
            found.reasons.append(f"The loss is not priced: {first}")
        return graph
    found.reasons.append(f"The model {type(module).__name__} could not be captured: {first}")
    return None


@data
def _load_capture() -> None:
    """What PyTorch imports at its first operator without data: a second or more that no model takes."""
    record(torch.nn.Linear(1, 1), (torch.empty(CAPTURE_BATCH, 1),), name="first")


def _calls(
    module: Any, batch: Any, forward: Callable[..., Any] | None, loss: Callable[..., Any] | None
) -> Iterator[Call]:
    """Ways to run a step with a batch, the most complete first."""
    if batch is None:
        yield None, None
        return
    if forward is not None:
        yield (batch,), forward
    if isinstance(batch, Mapping):
        taken = _arguments(module)
        known = {name: value for name, value in batch.items() if taken is None or name in taken}
        if is_config(getattr(module, "config", None)):
            yield {name: value for name, value in known.items() if name in _NOT_ALONE}, None
        yield known, None
        return
    parts = batch if isinstance(batch, tuple) else (batch,)
    needed = _required(module, len(parts))
    if loss is not None and needed < len(parts):
        yield parts, lambda run, *given: loss(run(*given[:needed]), *given[needed:])
    yield parts[:needed], None
    if needed != 1:
        yield parts[:1], None


def _arguments(module: Any) -> set[str] | None:
    """Names that the forward pass takes; None where it takes any."""
    parameters = inspect.signature(module.forward).parameters.values()
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return None
    return {parameter.name for parameter in parameters}


def _required(module: Any, most: int) -> int:
    """How many of the parts of a batch the forward pass needs; one at least."""
    parameters = inspect.signature(module.forward).parameters.values()
    needed = sum(
        parameter.default is parameter.empty and parameter.kind in (0, 1) for parameter in parameters
    )
    return min(max(needed, 1), most)
