"""Links from the words people use for them: `nvlink3+nvswitch`, `ib-hdr-200g x8`, `ethernet-50g`.

All figures are nominal; what collectives get out of a kind of link is in `cost/`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ..cache import data
from ..records import dataclass
from ..units import GIGA
from .device import Device, Link
from .device_table import bridged_cards, is_host_staged, load_toml
from .fabrics import split_network

_BITS_PER_BYTE = 8.0
_UNKNOWN_LATENCY_S = 3e-6
_OLDEST_PCIE, _NEWEST_SLOT = 2, 5
_FIRST_SWITCHED = 3
"""From A100 on, boards of eight come with NVSwitch."""
_SPEED_IN_THE_NAME = frozenset({"none", "nvlink5 nvl72", "ici", "aries", "tofud"})
_ADAPTERS_BEFORE = re.compile(r"(?<![\w.])(\d+)\s*[x*×]\s*(?=\S)", re.IGNORECASE)
_ADAPTERS_AFTER = re.compile(r"(?:(?<=[a-z])\s*[*×]|(?:\b|(?<=\dg|gb|ps|/s))x)\s*(\d+)\s*$", re.IGNORECASE)
_GBIT = re.compile(
    r"(\d+(?:\.\d+)?)\s*g(?:b(?:e|ps|its?)?)?(?:/s(?:ec)?)?(?!(?!x\s*\d+\s*$)[a-z])", re.IGNORECASE
)
_GBYTE = re.compile(r"(\d+(?:\.\d+)?)\s*G(?:B(?:/s(?:ec)?|ps)|[Bb]ytes?(?:/s(?:ec)?)?)(?![a-z])")
"""Bytes are a capital B with a time: adapters are also spelled "100GB Ethernet", which are bits."""
_SOCKETS = re.compile(r"\b(\d+)\s*(?:tcp\s+)?(?:sockets|streams|flows)\b", re.IGNORECASE)
_PARTS = re.compile(r"\s*(?:[;,+]|\band\b)\s*", re.IGNORECASE)


@dataclass(frozen=True, kw_only=True, slots=True)
class Network:
    """What joins the nodes, as one node sees it."""

    family: str
    """Name in links.toml: ib, roce, ethernet, efa ..."""
    gbit_per_s: float
    """One adapter, one direction."""
    adapters: int
    latency_s: float
    flow_gbit_per_s: float = math.inf
    """What one stream carries at most."""
    flows: int = 1
    """Streams to a neighbor: collectives over TCP sockets keep few."""
    speed_stated: bool = True
    """Whether the spelling states the speed of an adapter, or it is assumed."""
    technology_stated: bool = True
    """Whether the spelling names a technology (InfiniBand, Ethernet ...), not a speed alone."""
    known: bool = True
    """Whether the spelling means a network at all; the fallback is taken where it does not."""
    assumption: str | None = None

    @property
    def gbit_per_s_of_node(self) -> float:
        """What all adapters of a node carry together."""
        return self.adapters * min(self.gbit_per_s, self.flows * self.flow_gbit_per_s)

    @property
    def limit(self) -> str | None:
        """What holds the adapters back, in words; None where nothing does."""
        carried = self.flows * self.flow_gbit_per_s
        if carried >= self.gbit_per_s:
            return None
        return (
            f"{self.name}: the {self.flows} TCP sockets that NCCL opens to a neighbor carry {carried:g} of "
            f"{self.gbit_per_s:g} Gbit/s; state more as '{self.gbit_per_s:g}g-tcp 16 sockets' "
            "(NCCL_SOCKET_NTHREADS x NCCL_NSOCKS_PERTHREAD x channels)"
        )

    @property
    def name(self) -> str:
        """Canonical spelling: family, speed of an adapter, number of adapters."""
        if self.family in ("none", "nvlink5 nvl72", "ici"):
            return self.family
        return f"{self.family}-{self.gbit_per_s:g}g x{self.adapters}"

    def link(self, *, devices_per_node: float, slots: float) -> Link:
        """The network as one device sees it.

        Args:
            devices_per_node: Devices of the job on each node; they share the adapters.
            slots: Devices that the node has: one device alone drives its own adapters only.
        """
        total = self.gbit_per_s_of_node * GIGA / _BITS_PER_BYTE
        one = total / self.adapters
        per_device = min(total / devices_per_node, max(one, total / max(slots, devices_per_node)))
        stream = None
        if math.isfinite(self.flow_gbit_per_s):
            stream = min(self.gbit_per_s, self.flow_gbit_per_s) * GIGA / _BITS_PER_BYTE / devices_per_node
        return Link(
            name=self.name,
            bandwidth_bytes_per_s=per_device,
            latency_s=self.latency_s,
            stream_bytes_per_s=stream,
        )


def parse_network(spelling: str, *, fallback: str = "ethernet-25g") -> Network:
    """The network that `spelling` means.

    Args:
        spelling: As in `ib-hdr-200g x8`, `efa 4x100Gbps`, `slingshot11 4x200G`, `ethernet-50g`. What it says
            of the wiring (`2:1`, `pods of 32`, `rail-optimized`) is `fabrics.split_network`'s business.
        fallback: Network of the node type: its technology is taken, with an assumption, for a spelling that
            names a speed alone (`400g`), and all of it for one that says nothing known.
    """
    return _network(" ".join(split_network(spelling)[0].split()), fallback)


def fabric_link(spelling: str, device: Device, *, devices_per_node: float) -> tuple[Link, str | None]:
    """The link inside a node that `spelling` means for a device, and what was assumed.

    Args:
        spelling: As in `nvlink3+nvswitch`, `nvlink2-bridge`, `pcie4`, `xgmi`, `none`.
        device: Its own fabric gives the bandwidth.
        devices_per_node: Devices of the job on each node; a bridge joins only two of them.
    """
    name = fabric_name(spelling, device)
    if name is None:
        default = default_fabric(device)
        link, _ = fabric_link(default, device, devices_per_node=devices_per_node)
        return link, f"link inside a node {spelling!r} is not known: {default} taken"
    row = _file()["fabric"][name]
    group = bridged_cards(device) or row.get("group", 0)
    if group and name.startswith("nvlink") and devices_per_node > group:
        host = f"pcie{_pcie_generation(device)}"
        link, _ = fabric_link(host, device, devices_per_node=devices_per_node)
        return link, f"NVLink bridges join {group} cards: with {devices_per_node:g} on a node, {host} decides"
    own = device.link_bandwidth_bytes_per_s if row.get("from_device") else 0.0
    if name.startswith("pcie"):
        nominal = min(row["gb_per_s"] * GIGA, device.pcie_bandwidth_bytes_per_s)
        nominal *= staged_share(device)
    else:
        nominal = own or row["gb_per_s"] * GIGA
    link = Link(
        name=name,
        bandwidth_bytes_per_s=nominal,
        latency_s=row["latency_us"] * 1e-6,
        in_network_reduction=row.get("in_network_reduction", False),
    )
    return link, None


def staged_share(device: Device) -> float:
    """Share of its PCIe rate that a card exchanges with another one, below 1 without peer access."""
    return float(_file()["staged"]["share"]) if is_host_staged(device) else 1.0


def fabric_name(spelling: str, device: Device) -> str | None:
    """Name in links.toml of the fabric that `spelling` means for a device; None where it means nothing."""
    words = spelling.strip().lower()
    if words in _file()["fabric"]:
        return words
    for row in _file()["fabric_spelling"]:
        found = re.search(row["pattern"], words)
        if found is not None:
            name = _with_generation(row["fabric"], found, device)
            return name if name in _file()["fabric"] else None
    return None


def default_fabric(device: Device) -> str:
    """Name of the fabric of a device when none is given: its own, or PCIe where bridges are optional."""
    named: str | None = _file()["default_fabric"].get(device.arch)
    if named is not None:
        return named
    if device.link_bandwidth_bytes_per_s > 0.0 and not bridged_cards(device):
        generation = _file()["generation"].get(device.arch)
        if generation is not None:
            return f"nvlink{generation}" + ("+nvswitch" if generation >= _FIRST_SWITCHED else "")
    return f"pcie{_pcie_generation(device)}"


def _with_generation(template: str, found: re.Match[str], device: Device) -> str:
    """The name a pattern gives: its group, or the generation of the device where the group is empty."""
    default = str(_file()["generation"].get(device.arch, 3))
    stated = next((group for group in found.groups() if group), None)
    name = template.replace("\\1", stated or default)
    generation = str(_pcie_generation(device)) if name.startswith("pcie") else default
    return name.replace("{gen}", generation)


def _pcie_generation(device: Device) -> int:
    """The fastest generation that the device's host link reaches; NVLink-C2C hosts have PCIe 5 slots."""
    reached = [
        int(name.removeprefix("pcie"))
        for name, row in _file()["fabric"].items()
        if name.startswith("pcie") and row["gb_per_s"] * GIGA <= device.pcie_bandwidth_bytes_per_s
    ]
    return min(max(reached, default=_OLDEST_PCIE), _NEWEST_SLOT)


def _network(spelling: str, fallback: str) -> Network:
    data = _file()
    exact = data["network_exact"].get(spelling)
    if exact is None:
        exact = next((row for known, row in data["network_exact"].items() if _starts(known, spelling)), None)
    if exact is not None:
        return _of_family(exact["network"], exact["gbit_per_s"], exact["adapters"])
    words = _ADAPTERS_BEFORE.sub(r"\1x ", _of_collectives(spelling))
    for row in data["network_spelling"]:
        if re.search(row["pattern"], words, re.IGNORECASE):
            return _spelled(words, row["pattern"], row["network"], plain=row.get("plain", False))
    usual = _network(fallback, "ethernet-25g")
    speed = _speed(words)
    if speed is not None:
        return _speed_alone(spelling, words, speed, usual)
    note = f"network {spelling!r} is not known: {usual.name} taken"
    return replace(usual, known=False, assumption=note)


def _of_collectives(spelling: str) -> str:
    """A list of adapters without those that do not carry collectives: management, storage, north-south."""
    not_theirs = re.compile(_file()["not_for_collectives"]["pattern"], re.IGNORECASE)
    parts = [part for part in _PARTS.split(spelling) if part and not not_theirs.search(part)]
    return ", ".join(parts) or spelling


def _spelled(words: str, pattern: str, name: str, *, plain: bool) -> Network:
    """Speed, adapters and sockets out of a spelling; what it does not say is assumed, in words."""
    data = _file()
    sockets = _SOCKETS.search(words)
    words = _SOCKETS.sub(" ", words).strip()
    family = data["network"][name]
    # In a list of adapters the speed and the number are those next to the technology.
    named = next((part for part in words.split(", ") if re.search(pattern, part, re.IGNORECASE)), words)
    lowered = words.lower()
    spoken = next((value for word, value in data["network_speed"].items() if word in lowered), None)
    speed = next((found for found in (_speed(named), _speed(words), spoken) if found is not None), None)
    assumption = None
    speed_stated = speed is not None or name in _SPEED_IN_THE_NAME
    if not speed_stated:
        assumption = f"network {words!r} says no speed: {family['gbit_per_s']:g} Gbit/s per adapter taken"
    if speed is not None and not plain and _family_at(speed, name) != name:
        name, assumption = "roce", f"Ethernet of {speed:g} Gbit/s per adapter taken as RoCE"
    network = _of_family(name, speed or family["gbit_per_s"], _adapters(named) or _adapters(words) or 1)
    flows = network.flows if sockets is None else max(int(sockets.group(1)), 1)
    return replace(network, flows=flows, speed_stated=speed_stated, assumption=assumption)


def _speed_alone(spelling: str, words: str, gbit_per_s: float, usual: Network) -> Network:
    """A speed without a technology: that of the node type, and its adapters where they are as fast.

    A speed that its adapters do not have is read as that of all of them together, and one below what the
    technology ever had as Ethernet.
    """
    adapters = _adapters(words)
    least = _file()["network"][usual.family].get("least_gbit_per_s", 0.0)
    family = "ethernet" if gbit_per_s < least else _family_at(gbit_per_s, usual.family)
    if family != usual.family:
        usual = _of_family(family, gbit_per_s, adapters or 1)
    elif adapters is None:
        whole = usual.gbit_per_s * usual.adapters
        adapters = usual.adapters if gbit_per_s in (usual.gbit_per_s, whole) else 1
        gbit_per_s = usual.gbit_per_s if gbit_per_s == whole else gbit_per_s
    found = replace(
        usual, gbit_per_s=gbit_per_s, adapters=adapters or usual.adapters, technology_stated=False
    )
    return replace(found, assumption=f"network {spelling!r} names no technology: {found.name} taken")


def _family_at(gbit_per_s: float, name: str) -> str:
    """The family at that speed of an adapter: Ethernet that no TCP stack fills is RoCE."""
    return "roce" if gbit_per_s >= _file()["network"][name].get("rdma_from_gbit_per_s", math.inf) else name


def _speed(words: str) -> float | None:
    """Gbit/s that a spelling states: `GB/s` are bytes, everything else with a g is bits."""
    stated = _GBYTE.search(words)
    if stated is not None:
        return float(stated.group(1)) * _BITS_PER_BYTE
    gbit = _GBIT.search(words)
    return None if gbit is None else float(gbit.group(1))


def _adapters(words: str) -> int | None:
    counted = _ADAPTERS_AFTER.search(words) or _ADAPTERS_BEFORE.search(words)
    return None if counted is None else max(int(counted.group(1)), 1)


def _of_family(name: str, gbit_per_s: float, adapters: int) -> Network:
    row = _file()["network"][name]
    return Network(
        family=name,
        gbit_per_s=gbit_per_s,
        adapters=adapters,
        latency_s=row["latency_us"] * 1e-6,
        flow_gbit_per_s=row.get("flow_gbit_per_s", math.inf),
        flows=row.get("flows", 1),
    )


def loopback() -> Link:
    """One TCP stream between two containers of a host, which share neither memory nor buses."""
    row = _file()["network"]["ethernet"]
    return Link(
        name="ethernet loopback",
        bandwidth_bytes_per_s=row["flow_gbit_per_s"] * GIGA / _BITS_PER_BYTE,
        latency_s=row["latency_us"] * 1e-6,
    )


def says_adapters(spelling: str) -> bool:
    """Whether a spelling of a network states how many adapters a node has."""
    words = " ".join(split_network(spelling)[0].split())
    if words in _file()["network_exact"]:
        return True
    return _adapters(words) is not None


def per_node(spelling: str) -> str:
    """A spelling of a network whose speed is that of a node in all, where it counts no adapters.

    >>> per_node("400g-ib"), per_node("8x400g-ib"), per_node("infiniband")
    ('1x 400g-ib', '8x400g-ib', 'infiniband')
    """
    network = parse_network(spelling)
    counted = not (network.known and network.speed_stated) or says_adapters(spelling)
    return spelling if counted else f"1x {spelling}"


def in_adapters(network: Network, usual: Network | None = None) -> Network:
    """The network of a host that was stated in all, in the adapters of its node type or usual ones."""
    whole = network.gbit_per_s * network.adapters
    same = usual is not None and is_kind_of(usual.family, network.family)
    if usual is not None and same and whole == usual.gbit_per_s * usual.adapters:
        return usual
    if network.gbit_per_s <= _file()["fastest_adapter"]["gbit_per_s"]:
        return network
    each = _file()["network"][network.family]["gbit_per_s"]
    adapters = math.ceil(whole / each)
    return replace(network, adapters=adapters, gbit_per_s=whole / adapters)


def network_of_node(kind: str, gbit_per_s: float) -> Network:
    """A network of a family by what a node has in all; one of no family for an empty kind."""
    if kind:
        return in_adapters(_of_family(kind, gbit_per_s, 1))
    return Network(family="", gbit_per_s=gbit_per_s, adapters=1, latency_s=_UNKNOWN_LATENCY_S)


def usual_latency_s(kind: str) -> float:
    """Latency of a hop on a kind of link inside a node or between nodes; a usual one for an empty kind."""
    data = _file()
    row = data["fabric"].get(kind) or data["network"].get(kind)
    return _UNKNOWN_LATENCY_S if row is None else float(row["latency_us"]) * 1e-6


def is_kind_of(family: str, other: str) -> bool:
    """Whether a family of networks is a special case of another one: EC2's Ethernet of Ethernet."""
    return family == other or _file()["network"][family].get("kind_of") == other


def known_fabrics() -> tuple[str, ...]:
    """Names of all links inside a node."""
    return tuple(_file()["fabric"])


def known_networks() -> tuple[str, ...]:
    """Names of all families of networks."""
    return tuple(_file()["network"])


def _starts(known: str, spelling: str) -> bool:
    """Whether `spelling` is a cut or continued form of a long listed one."""
    shared = min(len(known), len(spelling))
    return shared >= 40 and known[:shared] == spelling[:shared]


@data
def _file() -> Mapping[str, Any]:
    return load_toml("links.toml")
