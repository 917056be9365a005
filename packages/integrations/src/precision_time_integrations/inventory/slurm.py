"""A cluster out of what Slurm prints: `scontrol show node` or a table of `sinfo`.

Formats: the manual pages of scontrol and sinfo (Slurm 20.11 to 24.11, slurm.schedmd.com): records of
`Key=Value` that begin with `NodeName=`, or columns under a header line. A generic resource is written
`name[:type]:count[(S:sockets)]`. Many hosts are named at once: `gpu[01-04,07],login1`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from itertools import product
from math import prod

from precision_time.errors import CatalogError, shown
from precision_time.hardware.inventory import ClusterResources, NodeResources
from precision_time.units import MEBI

from .mapping import MOST_NODES, map_device, resources

_FIELD = re.compile(r"(?:^|\s)([A-Za-z][A-Za-z_]*)=(\S*)")
_RECORD = re.compile(r"^NodeName=", re.MULTILINE)
_PARENTHESES = re.compile(r"\([^)]*\)")
_NUMBER = re.compile(r"\d{1,18}")
_AWAY = ("down", "drain", "drng", "fail", "unk", "inval", "future", "not_responding", "maint", "planned_down")
"""Beginnings of the states in which a node takes no job; a trailing * says that it does not respond."""
_MOST_DIGITS = 6
"""Of the devices of a node."""
_MOST_HOST_DIGITS = 18
"""Of the number in a host name."""
_OUTER_COMMA = re.compile(r",(?![^\[]*\])")
_BRACKETS = re.compile(r"\[([^\[\]]*)\]")
_SINFO = "sinfo -N -o '%N %G %c %m %f %t'"
_COLUMNS = {
    "nodelist": ("nodelist", "hostnames", "node_name", "nodehost"),
    "gres": ("gres",),
    "cpus": ("cpus", "cpus(a/i/o/t)"),
    "memory": ("memory",),
    "features": ("active_features", "avail_features", "features"),
    "state": ("state",),
}


def read_slurm(text: str, *, custom: str = "") -> ClusterResources:
    """The cluster of a listing; nodes that take no job are left out and noted.

    Args:
        text: Output of `scontrol show node` (also with -o) or of `sinfo` with its header; of the latter the
            columns NODELIST and GRES are needed.
        custom: File with the user's own devices.

    Raises:
        CatalogError: If the text is neither, or lacks a needed column; names the line.
    """
    if _RECORD.search(text):
        return _resources(_scontrol(text), "Slurm (scontrol show node)", custom)
    return _resources(_sinfo(text), "Slurm (sinfo)", custom)


def _scontrol(text: str) -> Iterable[Mapping[str, str]]:
    for record in _RECORD.split(text)[1:]:
        fields = {key.lower(): value for key, value in _FIELD.findall(f"NodeName={record}")}
        if "state" not in fields:
            raise CatalogError(
                f"The record of node {fields['nodename']!r} has no State: the listing was cut off. To fix: "
                "save the whole output of `scontrol show node`."
            )
        yield {
            "nodelist": fields["nodename"],
            "gres": fields.get("gres", ""),
            "cpus": fields.get("cputot", ""),
            "memory": fields.get("realmemory", ""),
            "features": fields.get("activefeatures", fields.get("availablefeatures", "")),
            "state": fields["state"],
        }


def _sinfo(text: str) -> Iterable[Mapping[str, str]]:
    lines = [(number, line) for number, line in enumerate(text.splitlines(), start=1) if line.strip()]
    header = lines[0][1].lower().split() if lines else []
    places = {
        name: next((header.index(word) for word in words if word in header), None)
        for name, words in _COLUMNS.items()
    }
    if places["nodelist"] is None or places["gres"] is None:
        raise CatalogError(
            "The text is neither of `scontrol show node` nor a table of sinfo with the columns NODELIST and "
            f"GRES (first line: {lines[0][1].strip()[:60] if lines else 'empty'!r}). To fix: run `{_SINFO}`, "
            "or `scontrol show node`."
        )
    for number, line in lines[1:]:
        cells = line.split(maxsplit=len(header) - 1)
        if len(cells) < len(header):
            raise CatalogError(
                f"Line {number} of the sinfo table has {len(cells)} of {len(header)} columns: "
                f"{line.strip()[:60]!r}. To fix: run `{_SINFO}` again, unshortened."
            )
        yield {name: "" if place is None else cells[place] for name, place in places.items()}


def _resources(rows: Iterable[Mapping[str, str]], source: str, custom: str) -> ClusterResources:
    nodes: dict[str, NodeResources] = {}
    notes: dict[str, list[str]] = {}
    for row in rows:
        for name in expand_hostlist(row["nodelist"]):
            if _is_away(row["state"]):
                notes.setdefault(f"left out, state {row['state'].lower()}", []).append(name)
            elif name not in nodes:  # a node of several partitions is listed once for each
                node, note = _node(name, row, custom)
                nodes[name] = node
                if note:
                    notes.setdefault(note, []).append(name)
    said = [f"{note}: {', '.join(dict.fromkeys(names))}" for note, names in notes.items()]
    return resources(nodes.values(), source=source, notes=said, custom=custom)


def _is_away(state: str) -> bool:
    words = re.split(r"[+\s]", state.lower())
    return state.endswith("*") or any(word.startswith(_AWAY) for word in words)


def _node(name: str, row: Mapping[str, str], custom: str) -> tuple[NodeResources, str]:
    kinds = gpus_of_gres(row["gres"])
    note = ""
    named = {kind for kind in kinds if kind}
    if kinds and not named:
        features = [word for word in re.split(r"[,&|]", row["features"]) if map_device(word, None, custom)[0]]
        if features:
            named, note = {features[0]}, f"Slurm names no type of GPU: feature {features[0]!r} taken"
    reported = next(iter(named)) if len(named) == 1 else "mixed:" + "+".join(sorted(named)) if named else ""
    memory = _NUMBER.search(row["memory"])
    cores = _NUMBER.findall(row["cpus"])
    node = NodeResources(
        name=name,
        reported_device=reported,
        num_devices=sum(kinds.values()),
        cores=int(cores[-1]) if cores else None,  # of allocated/idle/other/total the last
        memory_bytes=float(memory[0]) * MEBI if memory else None,
    )
    return node, note


def gpus_of_gres(gres: str) -> dict[str, int]:
    """GPUs of a node by type; an unspecified type is the empty word.

    >>> gpus_of_gres("gpu:a100:8(S:0-1),shard:64")
    {'a100': 8}
    """
    kinds: dict[str, int] = {}
    for item in _PARENTHESES.sub("", gres).split(","):
        words = item.strip().split(":")
        if words[0] != "gpu":
            continue
        counted = len(words) > 1 and words[-1].isdecimal()
        if counted and len(words[-1]) > _MOST_DIGITS:
            raise CatalogError(
                f"The generic resource {shown(item)} counts too many devices. The rule: a node has at most "
                f"{10**_MOST_DIGITS - 1:,}. To fix: correct the listing."
            )
        kind = words[1] if len(words) > 2 or (len(words) == 2 and not counted) else ""
        kinds[kind] = kinds.get(kind, 0) + (int(words[-1]) if counted else 1)
    return kinds


def expand_hostlist(text: str) -> list[str]:
    """Every host that a host list names, in its order.

    Args:
        text: Names and ranges; numbers keep their leading zeros.

    Raises:
        CatalogError: If a bracket is open or a range is none.

    >>> expand_hostlist("gpu[08-10,12],login1")
    ['gpu08', 'gpu09', 'gpu10', 'gpu12', 'login1']
    """
    hosts: list[str] = []
    for item in filter(None, _OUTER_COMMA.split(text.strip())):
        plain = _BRACKETS.sub("", item)
        if "[" in plain or "]" in plain:
            raise _broken(text, "a bracket is not closed, so the list was cut off")
        pieces = _BRACKETS.split(item)
        choices = [[piece] if place % 2 == 0 else _range(piece, text) for place, piece in enumerate(pieces)]
        if len(hosts) + prod(map(len, choices)) > MOST_NODES:
            raise _broken(text, f"it names more than {MOST_NODES:,} hosts")
        hosts += ["".join(parts) for parts in product(*choices)]
    return hosts


def _range(piece: str, text: str) -> list[str]:
    numbers: list[str] = []
    for part in piece.split(","):
        first, _, last = part.partition("-")
        last = last or first
        is_number = all(end.isdecimal() and len(end) <= _MOST_HOST_DIGITS for end in (first, last))
        if not is_number or int(first) > int(last):
            raise _broken(text, f"{part!r} is not a range of numbers")
        if len(numbers) + int(last) - int(first) >= MOST_NODES:
            raise _broken(text, f"it names more than {MOST_NODES:,} hosts")
        numbers += [str(number).zfill(len(first)) for number in range(int(first), int(last) + 1)]
    return numbers


def _broken(text: str, why: str) -> CatalogError:
    return CatalogError(
        f"The host list {shown(text)} cannot be read: {why}. To fix: write it like gpu[01-04]."
    )
