"""What a custom hardware file may contain: pydantic models, units of data sheets."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    WithJsonSchema,
    model_validator,
)

from ..errors import CatalogError, validation_problems
from ..io import read_input, read_yaml
from ..units import GIGA, TERA
from .device_table import SCALED
from .links import known_fabrics, known_networks, parse_network

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
TopologyWord = Literal["fat-tree", "rail-optimized", "dragonfly", "torus-2d", "torus-3d", "flat"]


def _known_kind(word: str) -> str:
    """A kind of the catalog: a link inside a node, or the family of networks that a word means."""
    if word in known_fabrics():
        return word
    network = parse_network(word)
    if not network.known or not network.technology_stated:
        raise ValueError(f"the catalog has no kind {word!r}; it has {', '.join(_KINDS)}")
    return network.family


_KINDS = (*known_fabrics(), *known_networks())
LinkKind = Annotated[
    str, AfterValidator(_known_kind), WithJsonSchema({"type": "string", "examples": list(_KINDS)})
]
DTypeWord = Literal["fp64", "fp32", "tf32", "fp16", "bf16", "fp8", "fp4", "int8"]

_MICRO = 1e-6


class _Sheet(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=False)


class CustomDevice(_Sheet):
    """One device; with `base`, only what differs from it."""

    base: str | None = Field(
        None, description="Device of the catalog; what is left out here is taken from it."
    )
    vendor: str | None = None
    arch: str | None = Field(None, description="Architecture word of the catalog, such as hopper.")
    memory_gib: Positive | None = Field(None, description="GiB, per device.")
    memory_gb_per_s: Positive | None = Field(None, description="GB/s, per device.")
    tflops: dict[DTypeWord, Positive] | None = Field(
        None, description="Dense peak per type [TFLOP/s], tensor rates with fp32 accumulation."
    )
    sm_count: Positive | None = Field(None, description="Multiprocessors, compute units or cores.")
    l2_mib: NotNegative | None = Field(None, description="Last cache [MiB].")
    boost_mhz: Positive | None = None
    tdp_w: Positive | None = None
    link_gb_per_s: NotNegative | None = Field(
        None,
        description="Fabric between devices (NVLink, Infinity Fabric), one direction, per device [GB/s].",
    )
    pcie_gb_per_s: Positive | None = Field(None, description="Host link, one direction, per device [GB/s].")
    launch_overhead_us: NotNegative | None = Field(None, description="Between two dependent kernel launches.")
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
    """One link or network; its bandwidth, in one direction, under one of the names that say of what it is."""

    gb_per_s_per_device: Positive | None = Field(None, description="GB/s that one device gets.")
    gb_per_s_per_node: Positive | None = Field(None, description="GB/s that a host has in all.")
    gbit_per_s_per_node: Positive | None = Field(None, description="Gbit/s that a host has in all.")
    gb_per_s: Positive | None = Field(None, description="Older name of gb_per_s_per_device.")
    kind: LinkKind | None = Field(
        None,
        description="Kind of the catalog whose measured efficiency, latency and TCP sockets it has; unknown "
        "where this is left out.",
    )
    latency_us: NotNegative | None = Field(None, description="Of one hop; that of the kind, else 3.")
    in_network_reduction: bool = Field(False, description="Switches add up gradients (SHARP).")
    sockets: Annotated[int, Field(ge=1, le=1024)] | None = Field(
        None,
        description="TCP sockets to a neighbor: NCCL_SOCKET_NTHREADS x NCCL_NSOCKS_PERTHREAD x channels.",
    )

    @model_validator(mode="after")
    def _one_bandwidth(self) -> CustomLink:
        given = [name for name in BANDWIDTHS if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError(
                f"one of {', '.join(BANDWIDTHS[:-1])} is needed, got {' and '.join(given) or 'none'}"
            )
        return self


BANDWIDTHS = ("gb_per_s_per_device", "gb_per_s_per_node", "gbit_per_s_per_node", "gb_per_s")


def _us_spelling(topology: object) -> object:
    """Older files spell it "rail-optimised"."""
    return topology.replace("optimised", "optimized") if isinstance(topology, str) else topology


class CustomNode(_Sheet):
    """One kind of host."""

    device: str = Field(description="Device of this file or of the catalog.")
    devices: Annotated[int, Field(ge=1, le=65536, description="Devices per host.")]
    intra_node: str = Field(
        "pcie", description="Link inside the host: of this file, or nvlink4+nvswitch, pcie4 ..."
    )
    inter_node: str = Field(
        "ethernet-25g", description="Network: a link of this file, or ib-ndr-400g x8, ethernet-100g ..."
    )
    domain: Annotated[
        int,
        Field(ge=0, description="Devices that share the link beyond the host (NVL72: 72); 0: they do not."),
    ] = 0
    topology: Annotated[TopologyWord | None, BeforeValidator(_us_spelling)] = None
    pod_nodes: Annotated[
        int, Field(ge=0, description="Hosts below one group of leaf switches; 0: nothing is oversubscribed.")
    ] = 0
    oversubscription: Annotated[
        float, Field(ge=1, allow_inf_nan=False, description="Bandwidth into a pod over bandwidth out of it.")
    ] = 1.0
    torus: Annotated[
        tuple[Annotated[int, Field(ge=1)], ...],
        Field(max_length=3, description="Devices along each dimension of a torus."),
    ] = ()

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
        text = read_input(path)
        is_yaml = path.suffix.lower() in (".yaml", ".yml")
        content = (read_yaml(text, once=True) or {}) if is_yaml else tomllib.loads(text)
    except (OSError, ValueError, RecursionError) as error:
        raise CatalogError(
            f"Custom hardware file {path.name!r} is not readable as {path.suffix or 'TOML'}: {error}. "
            "To fix: correct the file."
        ) from error
    return checked(content, f"Custom hardware file {path.name!r}")


def checked(content: Any, origin: str) -> CustomFile:
    """The tables of a file as models.

    Raises:
        CatalogError: A field breaks a rule; every such field is named with its rule and value.
    """
    try:
        return CustomFile.model_validate(content)
    except ValidationError as error:
        raise CatalogError(
            f"{origin[0].upper()}{origin[1:]} breaks its rules: {validation_problems(error)}. To fix: "
            "correct these fields."
        ) from error
