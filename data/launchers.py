"""Check what `--emit` writes against the launchers themselves, and extract their options for the tests.

Run in an environment of its own, with the packages under test (none is a dependency of this project):

    pip install accelerate deepspeed torchtitan
    git clone https://github.com/NVIDIA/Megatron-LM; git clone https://github.com/NVIDIA-NeMo/Megatron-Bridge
    python data/launchers.py --megatron Megatron-LM --bridge Megatron-Bridge

Every text is read by the launcher's own parser or schema, and `tests/launch/schemas.json` gets the types
and choices of all keys that the tables of `launch/data` name. A key that is gone ends the run with its name.
Triton is replaced by a stub, as it does not install everywhere.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import importlib
import importlib.metadata
import json
import os
import re
import shlex
import sys
import typing
from collections.abc import Callable, Iterator
from enum import EnumType
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

from precision_time.errors import LayoutError
from precision_time.launch.emit import launch_config_of
from precision_time.launch.table import launcher_of
from precision_time.request.request import Request
from precision_time.workload.resolve import decoder_sizes

SCHEMAS = Path(__file__).parents[1] / "tests" / "launch" / "schemas.json"
_H100 = {"device": "H100-SXM5-80GB", "gpus": 64}
JOBS: tuple[dict[str, Any], ...] = (
    {"model": "llama3-8b", "zero_stage": 3, "batch_size": 2, **_H100},
    {"model": "llama3-8b", "zero_stage": 3, "dp_shard": 8, "recompute": "selective", **_H100},
    {"model": "llama3-8b", "zero_stage": 3, "offload": "parameters", "reshard_after_forward": False, **_H100},
    {"model": "llama3-8b", "zero_stage": 2, "offload": "optimizer", "batch_size": 1,
     "num_microbatches": 4, **_H100},
    {"model": "llama3-8b", "zero_stage": 0, "batch_size": 1, "recompute": "full", **_H100},
    {"model": "llama3-8b", "zero_stage": 1, "tp": 2, "batch_size": 1, "precision": "fp16-mixed", **_H100},
    {"model": "llama3-8b", "zero_stage": 3, "tp": 2, "cp": 4, "batch_size": 1, "seq_len": 32768, **_H100},
    {"model": "llama3-70b", "zero_stage": 1, "tp": 8, "pp": 2, "num_microbatches": 8, "batch_size": 1,
     **_H100},
    {"model": "llama3-70b", "zero_stage": 1, "tp": 4, "pp": 4, "vpp": 5, "num_microbatches": 8,
     "batch_size": 1,
     "recompute": "full", "recompute_layers": 20, "precision": "fp8-mixed", **_H100},
    {"model": "llama3-70b", "zero_stage": 1, "tp": 8, "pp": 8, "stage_layers": "9,10,11,10x4,10",
     "num_microbatches": 8,
     "batch_size": 1, "recompute": "full", **_H100},
    {"model": "mixtral-8x7b", "zero_stage": 1, "tp": 4, "ep": 8, "etp": 1, "batch_size": 1,
     "num_microbatches": 2,
     "cp_comm_type": "all-gather", "cp": 2, "precision": "fp8-mixed:blockwise", **_H100},
    {"model": "llama3-70b", "zero_stage": 3, "pp": 4, "num_microbatches": 8, "batch_size": 1, **_H100},
    {"model": "resnet50", "device": "A100-SXM4-80GB", "gpus": 8, "batch_size": 64, "zero_stage": 0},
)  # fmt: skip
"""Layouts that together use every key of every table, where the launcher can run them."""
_FURTHER = shlex.split(
    "--train-iters 10 --lr 1e-4 --tokenizer-type NullTokenizer --mock-data --no-gradient-accumulation-fusion "
    "--transformer-impl local --no-persist-layer-norm --no-masked-softmax-fusion"
)
"""What Megatron's checks want beside a layout, and kernels that need no GPU to be imported."""
Schema = dict[str, dict[str, Any]]


def texts(launcher: str) -> Iterator[str]:
    """The files of all jobs that a launcher can run."""
    for fields in JOBS:
        request = Request.of(fields)
        sizes = decoder_sizes(request.model, request.sizes, request.seq_len)
        with contextlib.suppress(LayoutError):
            yield launch_config_of(request.resolve(), launcher, sizes=sizes).text


def words(text: str, after: str) -> list[str]:
    """The words of a command line behind one of them."""
    found = shlex.split(text.replace("\\\n", " "), comments=True)
    return found[found.index(after) + 1 :]


def of_parser(parser: argparse.ArgumentParser, keys: list[str], prefix: str = "") -> Schema:
    """Types and choices of options of a parser."""
    known = {name: action for action in parser._actions for name in action.option_strings}
    found: Schema = {}
    for key in keys:
        action = known[f"{prefix}{key}"]
        kind = "flag" if action.nargs == 0 else getattr(action.type, "__name__", "str")
        found[key] = {"type": kind, "choices": list(map(str, action.choices)) if action.choices else None}
    return found


def of_fields(kind: Any, name: str) -> dict[str, Any]:
    """Type and choices of a field of a dataclass or a pydantic model."""
    hint = typing.get_type_hints(kind)[name]
    options = [each for each in typing.get_args(hint) if each is not type(None)] or [hint]
    literal = typing.get_origin(hint) is typing.Literal
    return {
        "type": "str" if literal else getattr(options[0], "__name__", str(options[0])),
        "choices": list(options) if literal else None,
    }


def keys_of(launcher: str) -> list[str]:
    """All keys that a table names, each once."""
    return list(dict.fromkeys(setting.key for setting in launcher_of(launcher).settings))


def megatron(repository: Path) -> tuple[str, Schema, int]:
    """Megatron-LM's own parser reads all flags, and its own checks take them."""
    sys.path.insert(0, str(repository))
    from megatron.training.arguments import add_megatron_arguments, validate_args

    parser = argparse.ArgumentParser(allow_abbrev=False)
    add_megatron_arguments(parser)
    found = of_parser(parser, keys_of("megatron"))
    read = 0
    for text in texts("megatron"):
        given = parser.parse_args([*words(text, "pretrain_gpt.py"), *_FURTHER])
        os.environ.pop("CUDA_DEVICE_MAX_CONNECTIONS", None)
        if "CUDA_DEVICE_MAX_CONNECTIONS=1" in text:
            os.environ["CUDA_DEVICE_MAX_CONNECTIONS"] = "1"
        given.rank, given.local_rank = 0, 0
        given.world_size = int(words(text, "--nnodes")[0]) * int(words(text, "--nproc-per-node")[0])
        if given.num_layers is not None:
            with contextlib.redirect_stdout(None):
                validate_args(given)
        read += 1
    return _commit(repository), found, read


def _commit(repository: Path) -> str:
    head = (repository / "COMMIT").read_text() if (repository / "COMMIT").exists() else "unknown"
    return head.strip()


def nemo(bridge: Path, megatron_lm: Path) -> tuple[str, Schema, int]:
    """Fields of Megatron-Bridge's configuration, read without importing it (CUDA), and its recipes."""
    sources = {
        "model": ("core/model_parallel_config.py", "core/transformer/transformer_config.py"),
        "ddp": ("core/distributed/distributed_data_parallel_config.py",),
        "optimizer": ("core/optimizer/optimizer_config.py",),
        "train": ("training/config/training_config.py",),
        "checkpoint": ("training/config/training_config.py",),
        "dist": ("training/config/common_config.py",),
        "dataset": ("bridge/training/config.py",),
        "comm_overlap": ("bridge/training/comm_overlap.py",),
    }
    fields: dict[str, dict[str, str]] = {}
    for section, paths in sources.items():
        for path in paths:
            root = bridge / "src" if path.startswith("bridge") else megatron_lm
            tree = ast.parse((root / "megatron" / path).read_text())
            for node in ast.walk(tree):
                if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                    fields.setdefault(section, {}).setdefault(node.target.id, ast.unparse(node.annotation))
    mixed = (bridge / "src/megatron/bridge/training/mixed_precision.py").read_text()
    names = re.findall(r"@register\ndef (\w+)", mixed)
    found: Schema = {"mixed_precision": {"type": "str", "choices": names}}
    for key in keys_of("nemo"):
        section, _, name = key.partition(".")
        if name:
            literal = (
                re.findall(r"'([^']+)'", fields[section][name])
                if "Literal" in fields[section][name]
                else None
            )
            found[key] = {"type": fields[section][name], "choices": literal}
    recipes = "".join(path.read_text() for path in (bridge / "src/megatron/bridge/recipes").rglob("*.py"))
    missing = [
        model["recipe_function"]
        for model in launcher_of("nemo").models.values()
        if f"def {model['recipe_function']}(" not in recipes
    ]
    if missing:
        raise SystemExit(f"Megatron-Bridge has no recipes {', '.join(missing)}")
    return _commit(bridge), found, 0


def torchtitan() -> tuple[str, Schema, int]:
    """Torchtitan's own manager parses all flags over its configurations."""
    from torchtitan.config import CompileConfig, ConfigManager, ParallelismConfig, TrainingConfig
    from torchtitan.distributed.activation_checkpoint import ActivationCheckpointingConfig

    sections = {"parallelism": ParallelismConfig, "training": TrainingConfig, "compile": CompileConfig}
    policies = [
        each.name
        for hint in typing.get_args(ActivationCheckpointingConfig)
        for each in typing.get_args(hint)
        if hasattr(each, "name")
    ]
    found: Schema = {}
    for key in keys_of("torchtitan"):
        if key.endswith(":"):
            found[key] = {"type": "str", "choices": policies}
            continue
        section, _, name = key.removeprefix("--").partition(".")
        found[key] = of_fields(sections[section], name.removeprefix("no-").replace("-", "_"))
    read = 0
    for text in texts("torchtitan"):
        if "YOUR_MODULE" not in text:
            config = ConfigManager().parse_args(words(text, "torchtitan.train"))
            read += config.parallelism is not None
    for model in launcher_of("torchtitan").models.values():
        registry = importlib.import_module(f"torchtitan.models.{model['module']}.config_registry")
        assert callable(getattr(registry, model["config"]))
    return importlib.metadata.version("torchtitan"), found, read


def deepspeed() -> tuple[str, Schema, int]:
    """DeepSpeed's own configuration reads all files."""
    from deepspeed.runtime.config import DeepSpeedConfig
    from deepspeed.runtime.precision_config import DeepSpeedBF16Config, DeepSpeedFP16Config
    from deepspeed.runtime.tensor_parallel.config import TPTrainingConfig
    from deepspeed.runtime.zero.config import DeepSpeedZeroConfig
    from deepspeed.runtime.zero.offload_config import (
        DeepSpeedZeroOffloadOptimizerConfig,
        DeepSpeedZeroOffloadParamConfig,
    )

    models = {
        "zero_optimization": DeepSpeedZeroConfig,
        "zero_optimization.offload_optimizer": DeepSpeedZeroOffloadOptimizerConfig,
        "zero_optimization.offload_param": DeepSpeedZeroOffloadParamConfig,
        "bf16": DeepSpeedBF16Config,
        "fp16": DeepSpeedFP16Config,
        "tensor_parallel": TPTrainingConfig,
    }
    source = "".join(
        (Path(importlib.import_module("deepspeed").__file__ or "").parent / "runtime" / name).read_text()
        for name in ("constants.py", "config.py", "activation_checkpointing/config.py")
    )
    found: Schema = {}
    for key in keys_of("deepspeed"):
        section, _, name = key.rpartition(".")
        if section in models:
            info = next(
                one for field, one in models[section].model_fields.items() if name in (field, one.alias)
            )
            kind: Any = info.annotation
            choices = list(map(str, kind.__members__)) if isinstance(kind, EnumType) else None
            found[key] = {"type": getattr(kind, "__name__", str(kind)), "choices": choices}
        elif f'"{name}"' in source or f"'{name}'" in source:
            found[key] = {"type": "int" if "." not in key else "bool", "choices": None}
        else:
            raise SystemExit(f"DeepSpeed reads no {key}")
    read = 0
    for text in texts("deepspeed"):
        given = json.loads(text)
        config = DeepSpeedConfig(given)
        assert config.zero_config.stage == given["zero_optimization"]["stage"]
        assert config.gradient_accumulation_steps == given["gradient_accumulation_steps"]
        assert config.train_micro_batch_size_per_gpu == given["train_micro_batch_size_per_gpu"]
        assert config.bfloat16_config.enabled == ("bf16" in given)
        on_host = given["zero_optimization"].get("offload_optimizer", {}).get("device")
        offload = config.zero_config.offload_optimizer
        assert (str(getattr(offload.device, "value", offload.device)) if offload else None) == on_host
        read += 1
    return importlib.metadata.version("deepspeed"), found, read


def accelerate(folder: Path) -> tuple[str, Schema, int]:
    """Accelerate's own loader reads all files, and every key of a section is an option of its launcher."""
    from accelerate.commands.config.config_args import ClusterConfig, load_config_from_file
    from accelerate.commands.launch import launch_command_parser

    parser = launch_command_parser()
    found: Schema = {}
    for key in keys_of("accelerate"):
        section, _, name = key.partition(".")
        hints = typing.get_type_hints(ClusterConfig)
        if not name:
            found[key] = {"type": getattr(hints[section], "__name__", str(hints[section])), "choices": None}
            continue
        if section not in hints:
            raise SystemExit(f"Accelerate reads no {section}")
        found[key] = of_parser(parser, [name], "--")[name]
    found["mixed_precision"]["choices"] = list(
        next(action.choices for action in parser._actions if "--mixed_precision" in action.option_strings)
    )
    read = 0
    for text in texts("accelerate"):
        path = folder / "accelerate.yaml"
        path.write_text(text)
        config = load_config_from_file(str(path))
        assert isinstance(config, ClusterConfig)
        # `accelerate launch` turns every entry of a section into the option of the same name.
        for section in (config.fsdp_config, config.megatron_lm_config, config.deepspeed_config):
            options = [f"--{name}={value}" for name, value in (section or {}).items()]
            parser.parse_args([*options, "train.py"])
        read += 1
    path.unlink()
    return importlib.metadata.version("accelerate"), found, read


def main() -> None:
    """Check all launchers and write the schemas."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--megatron", type=Path, required=True, help="Checkout; COMMIT in it names the commit."
    )
    parser.add_argument("--bridge", type=Path, required=True, help="The same of Megatron-Bridge.")
    given = parser.parse_args()
    _stub_triton()
    steps: dict[str, Callable[[], tuple[str, Schema, int]]] = {
        "accelerate": lambda: accelerate(SCHEMAS.parent),
        "deepspeed": deepspeed,
        "torchtitan": torchtitan,
        "megatron": lambda: megatron(given.megatron),
        "nemo": lambda: nemo(given.bridge, given.megatron),
    }
    schemas: dict[str, dict[str, Any]] = {}
    for name, step in steps.items():
        version, options, read = step()
        schemas[name] = {"version": version, "options": options}
        print(f"{name} {version}: {len(options)} keys known, {read} files read by its own parser")
    rows = (
        f'  "{name}": {{"version": "{schema["version"]}", "options": {{\n'
        + ",\n".join(
            f"    {json.dumps(key)}: {json.dumps(value)}" for key, value in schema["options"].items()
        )
        + "\n  }}"
        for name, schema in schemas.items()
    )
    SCHEMAS.write_text("{\n" + ",\n".join(rows) + "\n}\n")


def _stub_triton() -> None:
    """Modules that import kernels at the top can be imported without Triton."""
    import torch._dynamo
    import torch._inductor.select_algorithm  # noqa: F401
    import typing_extensions

    torch.cuda.get_device_properties = lambda *_: MagicMock(major=9, minor=0)
    torch.cuda.get_device_capability = lambda *_: (9, 0)
    typing.override = typing_extensions.override  # type: ignore[attr-defined]
    for name in (
        "triton",
        "triton.language",
        "triton.language.extra",
        "triton.runtime",
        "triton.runtime.jit",
    ):
        stub = MagicMock(name=name)
        stub.__path__, stub.__spec__, stub.__version__ = [], None, "3.0.0"
        sys.modules[name] = stub


if __name__ == "__main__":
    main()
