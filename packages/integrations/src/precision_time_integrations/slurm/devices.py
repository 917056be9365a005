"""Which device a cluster's names stand for: a gres type, a constraint or a partition.

A small file of the user's or of the site says so where the names are no device's::

    [gres]
    a100 = "A100-SXM4-40GB"
    [constraint]
    gpu80g = "A100-SXM4-80GB"
    [partition]
    gpu = "V100-SXM2-32GB"
    "*" = "H100-SXM5-80GB"
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path

from precision_time.errors import ConfigError, PrecisionTimeError
from precision_time.hardware.catalog import get_device
from precision_time.io import data_folder, read_input_bytes

from .options import Resources

VARIABLE = "PRECISION_TIME_SLURM"
_SITE = Path("/etc/precision-time/slurm.toml")
_SECTIONS = ("gres", "constraint", "partition")
_MOST_BYTES = 100_000
_EVERY = "*"
Names = Mapping[str, Mapping[str, str]]
"""Device by name, for each section."""


def names_file(given: Path | None = None) -> Path | None:
    """The file that is used: the one given, that of PRECISION_TIME_SLURM, the user's, the site's; or none."""
    if given is not None:
        return given
    if stated := os.environ.get(VARIABLE, "").strip():
        return Path(stated)
    return next((path for path in (data_folder() / "slurm.toml", _SITE) if path.is_file()), None)


def read_names(path: Path | None) -> Names:
    """What the names of a cluster stand for.

    Args:
        path: A TOML file; None for no names.

    Raises:
        ConfigError: If it cannot be read, or names what is no device.
    """
    if path is None:
        return {}
    remedy = (
        'To fix: sections [gres], [constraint] and [partition] with lines such as a100 = "A100-SXM4-40GB".'
    )
    try:
        content = read_input_bytes(path)[: _MOST_BYTES + 1]
        tree = tomllib.loads(content.decode("utf-8")) if len(content) <= _MOST_BYTES else None
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path} cannot be read as TOML: {error}. {remedy}") from error
    if tree is None or not all(
        name in _SECTIONS
        and isinstance(section, dict)
        and all(isinstance(device, str) for device in section.values())
        for name, section in tree.items()
    ):
        raise ConfigError(f"{path} is no file of names of devices. {remedy}")
    for section in tree.values():
        for device in section.values():
            get_device(device)
    return tree


def device_of(asked: Resources, names: Names) -> tuple[str, str]:
    """The device of a job, and what says so; both empty where nothing does."""
    kinds = {
        "gres": [asked.gpu_type],
        "constraint": re.split(r"[&|,*()\[\]]", asked.constraint),
        "partition": asked.partition.split(","),
    }
    for section, stated in kinds.items():
        known = {name.lower(): device for name, device in names.get(section, {}).items()}
        for name in (each.strip().lower() for each in stated):
            if name and name in known:
                return known[name], f"{section} {name} is {known[name]} by the file of names"
    for section in ("gres", "constraint"):
        for name in stated_names(kinds[section]):
            if (device := _in_catalog(name)) is not None:
                return device, f"{section} {name} is taken as {device}"
    every = names.get("partition", {}).get(_EVERY, "")
    return every, f"every partition is {every} by the file of names" if every else ""


def stated_names(given: list[str]) -> list[str]:
    """Names that could be a device's: more than a number or a letter."""
    return [name.strip() for name in given if len(name.strip()) > 1 and not name.strip().isdigit()]


def _in_catalog(name: str) -> str | None:
    for spelled in (name, f"{name}b"):  # v100-32g
        try:
            return get_device(spelled).name
        except PrecisionTimeError:
            continue
    return None
