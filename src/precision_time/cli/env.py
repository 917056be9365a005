"""`precision-time env`: what is installed here, for bug reports and for choosing a device."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from collections.abc import Mapping
from importlib import metadata
from typing import Any

from .. import __version__
from .options import JsonOption, declared
from .output import message, write_json, write_rows

_PACKAGES = (
    "msgspec", "numpy", "pydantic", "PyYAML", "rich", "threadpoolctl", "typer", "lightgbm", "scipy",
    "torch", "torchvision", "transformers", "timm", "onnx", "ray", "matplotlib", "pandas", "polars",
)  # fmt: skip
_NVIDIA_SMI_TIMEOUT_S = 10


@declared("env")
def env(*, json_output: JsonOption = False) -> None:
    """Show versions, the corpus, packages and GPUs."""
    from ..learn.artifact import PREDICTOR_VARIABLE

    found: dict[str, Any] = {
        "precision_time": __version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "predictor": os.environ.get(PREDICTOR_VARIABLE) or "ships with the package",
        "corpus": _corpus(),
        "packages": {name: _version_of(name) for name in _PACKAGES},
        "gpus": _gpus(),
    }
    if json_output:
        write_json(found)
        return
    names = ("precision_time", "predictor", "corpus", "python", "platform")
    rows = [(name, found[name] or "no predictor yet") for name in names]
    rows += [(name, version or "not installed") for name, version in found["packages"].items()]
    if _other_build(found["packages"]):
        message(
            "torchvision is of another build than torch, so that Lightning and transformers cannot be "
            "imported alone (operator torchvision::nms does not exist). To fix: install both from one index, "
            "or import precision_time_integrations.online.lightning or "
            "precision_time_integrations.online.transformers first."
        )
    rows += [(f"gpu {index}", name) for index, name in enumerate(found["gpus"])]
    write_rows("", ("what", "version"), rows)


def _other_build(packages: Mapping[str, str | None]) -> bool:
    """Whether torch and torchvision say different builds ("+cpu", "+cu126"): indexes name theirs."""
    torch, torchvision = packages.get("torch"), packages.get("torchvision")
    return bool(torch and torchvision) and str(torch).partition("+")[2] != str(torchvision).partition("+")[2]


def _version_of(package: str) -> str | None:
    """Installed version, read from the metadata: nothing is imported."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _corpus() -> str | None:
    """Fingerprint of the measurements that the predictor learned from, and how many they are."""
    from ..errors import NotFittedError
    from ..learn.artifact import PREDICTOR_VARIABLE, chosen_predictor

    try:
        card = chosen_predictor(None).model_card
    except NotFittedError as error:
        return None if PREDICTOR_VARIABLE not in os.environ else str(error)
    return f"{card['corpus']} ({card['rows']} rows)"


def _gpus() -> list[str]:
    """Names of the NVIDIA GPUs that the driver reports; empty without one."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return []
    try:
        answer = subprocess.run(
            [tool, "--query-gpu=name", "--format=csv,noheader"],
            capture_output=True,
            text=True,
            timeout=_NVIDIA_SMI_TIMEOUT_S,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return []
    return [line.strip() for line in answer.stdout.splitlines() if line.strip()]
