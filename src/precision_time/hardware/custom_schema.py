"""What a custom hardware file may contain: pydantic models, units of data sheets."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from ..errors import CatalogError, validation_problems
from ..io import read_yaml
from ..units import GIGA, TERA
from .device_table import SCALED

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
TopologyWord = Literal["fat-tree", "rail-optimized", "dragonfly", "torus-2d", "torus-3d", "flat"]
DTypeWord = Literal["fp64", "fp32", "tf32", "fp16", "bf16", "fp8", "fp4", "int8"]

_MICRO = 1e-6


class _Sheet(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=False)


class CustomDevice(_Sheet):
    """One device; with `base`, only what differs from it."""

    base: str | None = None
    vendor: str | None = None
    arch: str | None = None
    memory_gib: Positive | None = None
    memory_gb_per_s: Positive | None = None
    tflops: dict[DTypeWord, Positive] | None = None
    sm_count: Positive | None = None
    l2_mib: NotNegative | None = None
    boost_mhz: Positive | None = None
    tdp_w: Positive | None = None
    link_gb_per_s: NotNegative | None = None
    pcie_gb_per_s: Positive | None = None
    launch_overhead_us: NotNegative | None = None
    release_year: Annotated[int, Field(ge=2006, le=2100)] | None = None
    source: str | None = None
    """Where the figures come from."""

    SCALES: ClassVar[dict[str, tuple[str, float]]] = {
        **SCALED,
        "pcie_gb_per_s": ("pcie_bandwidth_bytes_per_s", GIGA),
        "launch_overhead_us": ("launch_overhead_s", _MICRO),
    }
    DEFAULTS: ClassVar[dict[str, Any]] = {
        "vendor": "custom",
        "arch": "custom",
        "l2_bytes": 0.0,
        "link_bandwidth_bytes_per_s": 0.0,
        "pcie_bandwidth_bytes_per_s": 31.5 * GIGA,
        "launch_overhead_s": 5.0 * _MICRO,
        "release_year": 2024,
    }
    REQUIRED: ClassVar = ("memory_gib", "memory_gb_per_s", "tflops", "sm_count", "boost_mhz", "tdp_w")

    def si_fields(self) -> dict[str, Any]:
        """The fields that are given, under their names in `Device`, in SI units."""
        given = self.model_dump(exclude_none=True, exclude={"base", "tflops", "source"})
        fields: dict[str, Any] = {}
        for key, value in given.items():
            field, factor = self.SCALES.get(key, (key, None))
            fields[field] = value if factor is None else value * factor
        if self.tflops is not None:
            fields["peak_flops_per_s"] = {dtype: value * TERA for dtype, value in self.tflops.items()}
        return fields

    def missing_fields(self) -> list[str]:
        """What a device without `base` needs and this one lacks."""
        missing = [key for key in self.REQUIRED if getattr(self, key) is None]
        if self.tflops is not None and "fp32" not in self.tflops:
            missing.append("tflops.fp32")
        return missing


class CustomLink(_Sheet):
    """One level of the network, as one device sees it."""

    gb_per_s: Positive
    latency_us: NotNegative = 3.0
    in_network_reduction: bool = False


def _us_spelling(topology: object) -> object:
    """Older files spell it "rail-optimised"."""
    return topology.replace("optimised", "optimized") if isinstance(topology, str) else topology


class CustomNode(_Sheet):
    """One kind of host."""

    device: str
    devices: Annotated[int, Field(ge=1, le=65536)]
    intra_node: str = "pcie"
    inter_node: str = "ethernet-25g"
    domain: Annotated[int, Field(ge=0)] = 0
    topology: Annotated[TopologyWord | None, BeforeValidator(_us_spelling)] = None
    pod_nodes: Annotated[int, Field(ge=0)] = 0
    oversubscription: Annotated[float, Field(ge=1, allow_inf_nan=False)] = 1.0
    torus: Annotated[tuple[Annotated[int, Field(ge=1)], ...], Field(max_length=3)] = ()

    @model_validator(mode="after")
    def _pods_are_named(self) -> CustomNode:
        if self.oversubscription > 1 and not self.pod_nodes:
            raise ValueError("an oversubscription above 1 needs pod_nodes, the nodes of a pod")
        return self


class CustomFile(_Sheet):
    """A whole file."""

    device: dict[str, CustomDevice] = {}
    link: dict[str, CustomLink] = {}
    node: dict[str, CustomNode] = {}


def read(path: Path) -> CustomFile:
    """The content of a TOML or YAML file as models.

    Raises:
        CatalogError: Not readable as what its ending says, or a field breaks a rule; every such field is
            named with its rule and value.
    """
    try:
        text = path.read_text(encoding="utf-8")
        is_yaml = path.suffix.lower() in (".yaml", ".yml")
        content = (read_yaml(text) or {}) if is_yaml else tomllib.loads(text)
    except (OSError, ValueError, RecursionError) as error:
        raise CatalogError(
            f"Custom hardware file {path.name!r} is not readable as {path.suffix or 'TOML'}: {error}. "
            "To fix: correct the file."
        ) from error
    try:
        return CustomFile.model_validate(content)
    except ValidationError as error:
        raise CatalogError(
            f"Custom hardware file {path.name!r} breaks its rules: {validation_problems(error)}. To fix: "
            "correct these fields."
        ) from error
