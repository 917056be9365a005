"""Fit the constants of `cost/collectives/` to published collective timings and write collectives.toml.

    python data/calibrate_collectives.py measurements/collectives.csv

Fitted, in the logarithm of the time, per kind of link: bandwidth efficiency, protocol efficiencies and
hop latencies; per algorithm: the base latencies. Every constant is drawn toward its prior (NCCL's own
table), so that kinds with few rows stay near it. The error is reported with each source held out.
"""

from __future__ import annotations

import argparse
import csv
import json
import sys
import tomllib
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares

from precision_time.arrays import Number
from precision_time.cost.collectives import choose, collective_s, link, min_time_s, send
from precision_time.cost.collectives.link import LinkParams
from precision_time.cost.constants import constants
from precision_time.hardware.device import Link

Floats = NDArray[np.float64]
DATA = Path(link.__file__).parents[1] / "data" / "collectives.toml"
PRIORS = Path(__file__).with_name("collectives_priors.toml")
PRIOR_SPREAD = {
    "efficiency": 0.15,
    "in_switch": 0.05,
    "protocol": 0.4,
    "hop": 0.5,
    "base": 0.2,
    "tree": 0.1,
    "knee": 1.0,
    "host": 1.5,
}
"""How far, in the logarithm, a constant may move before it costs as much as a row that is 20 % off."""
HOST_OVERHEAD_US = 3.0
"""Prior of the constant time that a source's host adds to every collective: fitted per source, so that
slow hosts do not pass for slow links; the median over the sources goes into the base latencies."""
ROW_ERROR = 0.2
MAX_ROWS_PER_CASE = 40
MAX_SHARE = 0.97
"""No link gives more than this of its nominal bandwidth, no protocol more than this of Simple's."""
SMALL_BYTES, SMALL_WEIGHT = 65536.0, 0.1
"""Messages that training hardly sends, and what they count."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """One timing with its nominal links."""

    source: str
    system: str
    collective: str
    num_devices: float
    num_nodes: float
    intra: str
    inter: str
    in_switch: bool
    message_bytes: float
    time_s: float


def read_rows(table: Path, priors: Mapping[str, Any]) -> tuple[list[Row], dict[str, int]]:
    """The rows that name what the model needs, and why the others were left out."""
    rows: list[Row] = []
    skipped: dict[str, int] = defaultdict(int)
    with table.open(encoding="utf-8") as handle:
        for raw in csv.DictReader(handle):
            reason = next((r["reason"] for r in priors["skip"] if _matches(raw, r["where"])), None)
            links = next((r for r in priors["systems"] if _matches(raw, r["where"])), None)
            if reason is None and links is None:
                reason = "links not known"
            if reason is not None or links is None or not raw["time_us"]:
                skipped[reason or "no time"] += 1
                continue
            rows.append(
                Row(
                    source=raw["source"],
                    system="|".join(raw[c] for c in ("source", "system", "device", "devices", "nodes")),
                    collective=raw["collective"],
                    num_devices=float(raw["devices"]),
                    num_nodes=float(links.get("nodes", raw["nodes"] or 1)),
                    intra=links["intra"],
                    inter=links.get("inter", "none"),
                    in_switch=bool(links.get("in_switch"))
                    and "NVLS_ENABLE=0" not in raw["notes"]
                    and "ring" not in raw["notes"].replace("(ring)", ""),
                    message_bytes=float(raw["message_bytes"]),
                    time_s=float(raw["time_us"]) * 1e-6,
                )
            )
    return [row for group in _by_case(rows).values() for row in _thin(group)], dict(skipped)


def _matches(raw: Mapping[str, str], where: Mapping[str, Any]) -> bool:
    """Whether every condition holds: a string is a substring, a list names alternatives."""
    for column, wanted in where.items():
        if column == "message_bytes_below":
            if float(raw["message_bytes"]) >= wanted:
                return False
        elif not any(str(word) in raw[column] if word else not raw[column] for word in _as_list(wanted)):
            return False
    return True


def _as_list(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list) else [value]


def _by_case(rows: Sequence[Row]) -> dict[tuple[str, str], list[Row]]:
    cases: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in rows:
        cases[row.system, row.collective].append(row)
    return cases


def _thin(rows: Sequence[Row]) -> Iterator[Row]:
    """At most MAX_ROWS_PER_CASE rows, evenly over the sizes."""
    ordered = sorted(rows, key=lambda row: row.message_bytes)
    step = max(1.0, len(ordered) / MAX_ROWS_PER_CASE)
    return (ordered[int(i * step)] for i in range(int(len(ordered) / step)))


class Model:
    """The cost functions of the package, run on rows with the constants of a parameter vector."""

    def __init__(self, rows: Sequence[Row], priors: Mapping[str, Any]) -> None:
        self.rows = rows
        self.priors = priors
        self.links = priors["nominal"]
        kinds = {link.link_kind(self.links[name]["name"]) for row in rows for name in (row.intra, row.inter)}
        self.slots = (
            [
                (("kinds", kind, field, i), PRIOR_SPREAD[group])
                for kind in sorted(kinds - {"other"})
                for field, group, indices in (
                    ("efficiency", "efficiency", (None,)),
                    ("in_switch_efficiency", "in_switch", (None,)),
                    ("protocol_efficiency", "protocol", (0, 1)),
                    ("hop_ratio", "hop", (0, 1, 2)),
                )
                for i in indices
            ]
            + [
                (("base_latency_us", name, i), PRIOR_SPREAD["base"])
                for name in ("ring", "tree", "nvls", "send")
                for i in range(3)
            ]
            + [(("tree_efficiency", i), PRIOR_SPREAD["tree"]) for i in range(3)]
            + [(("knee",), PRIOR_SPREAD["knee"])]
            + [
                (("host_overhead_us", source), PRIOR_SPREAD["host"])
                for source in sorted({row.source for row in rows})
            ]
        )
        names = [(row.intra, row.inter, row.in_switch, row.num_devices / row.num_nodes) for row in rows]
        self.configs = sorted(set(names))
        self.config_of_row = np.array([self.configs.index(name) for name in names])
        self.measured = np.log([row.time_s for row in rows])
        self.weights = self._weights()
        start = self._start()
        self.prior = np.array([_get(start, path) for path, _ in self.slots])
        self.spread = np.array([spread for _, spread in self.slots])

    def _start(self) -> dict[str, Any]:
        names = ("patterns", "all_to_all", "base_latency_us", "tree_efficiency", "knee", "kinds")
        start: dict[str, Any] = json.loads(json.dumps({name: self.priors[name] for name in names}))
        start["host_overhead_us"] = {row.source: HOST_OVERHEAD_US for row in self.rows}
        return start

    def _weights(self) -> Floats:
        """Every decade of every case counts as much as one row would, small messages less."""
        cells = [(row.system, row.collective, int(np.log10(row.message_bytes))) for row in self.rows]
        counts: dict[tuple[str, str, int], int] = defaultdict(int)
        for cell in cells:
            counts[cell] += 1
        small = [SMALL_WEIGHT if row.message_bytes < SMALL_BYTES else 1.0 for row in self.rows]
        return np.array([(w / counts[cell]) ** 0.5 for cell, w in zip(cells, small, strict=True)])

    def table(self, theta: Floats) -> dict[str, Any]:
        """The constants of a parameter vector."""
        table = self._start()
        for (path, _), value in zip(self.slots, self.prior * np.exp(theta), strict=True):
            is_share = any("efficiency" in str(key) for key in path)
            _set(table, path, min(float(value), MAX_SHARE) if is_share else float(value))
        return table

    def log_times(self, table: Mapping[str, Any]) -> Floats:
        """Logarithm of the predicted seconds of every row, host overhead included where the table has it."""
        live = constants("collectives")
        live.clear()  # type: ignore[attr-defined]
        live.update(table)  # type: ignore[attr-defined]
        intra, inter = (self._params(level) for level in ("intra", "inter"))
        out = np.zeros(len(self.rows))
        for name in {row.collective for row in self.rows}:
            picked = np.array([i for i, row in enumerate(self.rows) if row.collective == name])
            size, devices, nodes = (
                np.array([getattr(self.rows[i], field) for i in picked])
                for field in ("message_bytes", "num_devices", "num_nodes")
            )
            first = _take(intra, picked), _take(inter, picked)
            if name == "send_recv":
                seconds = min_time_s(send((nodes > 1).astype(np.float64), *first), size)
            else:
                seconds = collective_s(COLLECTIVES[name], size, devices, nodes, *first)
            out[picked] = seconds
        host = table.get("host_overhead_us", {})
        return np.log(out + np.array([host.get(row.source, 0.0) for row in self.rows]) * 1e-6)

    def _params(self, level: str) -> LinkParams:
        links = []
        for intra, inter, in_switch, per_node in self.configs:
            name = intra if level == "intra" else inter
            nominal = self.links[name]
            fact = Link(
                name=nominal["name"],
                bandwidth_bytes_per_s=nominal["bandwidth_bytes_per_s"],
                latency_s=self.priors["kinds"][link.link_kind(nominal["name"])]["latency_s"],
                in_network_reduction=in_switch and level == "intra",
            )
            links.append(link.link_params(fact, per_node if level == "intra" else 8.0))
        return _take(stack_links(links), self.config_of_row)

    def fit(self) -> dict[str, Any]:
        """The constants that fit the rows best and stay near the priors."""

        def residuals(theta: Floats) -> Floats:
            table = self.table(theta)
            errors = (self.log_times(table) - self.measured) / ROW_ERROR * self.weights
            return np.concatenate([errors, theta / self.spread])

        found = least_squares(residuals, np.zeros(len(self.slots)), loss="soft_l1", max_nfev=25)
        return settled(self.table(found.x))


def settled(table: dict[str, Any]) -> dict[str, Any]:
    """The table with the median host's overhead moved into the base latencies."""
    median_us = float(np.median(list(table["host_overhead_us"].values())))
    return {
        "patterns": table["patterns"],
        "all_to_all": table["all_to_all"],
        "kinds": table["kinds"],
        "tree_efficiency": table["tree_efficiency"],
        "knee": table["knee"],
        "base_latency_us": {
            name: [value + median_us for value in values] for name, values in table["base_latency_us"].items()
        },
    }


def _get(table: Any, path: Sequence[Any]) -> float:
    for key in path:
        table = table if key is None else table[key]
    return float(table)


def _set(table: Any, path: Sequence[Any], value: float) -> None:
    keys = [key for key in path if key is not None]
    for key in keys[:-1]:
        table = table[key]
    table[keys[-1]] = value


def stack_links(links: Sequence[LinkParams]) -> LinkParams:
    """Several links as one `LinkParams` of arrays, for a sweep with one link per configuration.

    Links of a torus have no such form: the sum over dimensions would need one number of them for all.
    """

    def column(name: str) -> Number:
        return np.array([getattr(link, name) for link in links], dtype=np.float64)

    def columns(name: str) -> tuple[Number, Number, Number]:
        table = np.array([getattr(link, name) for link in links], dtype=np.float64)
        return table[:, 0], table[:, 1], table[:, 2]

    return LinkParams(
        bandwidth_bytes_per_s=column("bandwidth_bytes_per_s"),
        latency_s=column("latency_s"),
        in_network_reduction=column("in_network_reduction"),
        efficiency=column("efficiency"),
        in_switch_efficiency=column("in_switch_efficiency"),
        protocol_efficiency=columns("protocol_efficiency"),
        hop_ratio=columns("hop_ratio"),
        oversubscription=column("oversubscription"),
        pod_nodes=column("pod_nodes"),
    )


def _take(params: LinkParams, picked: NDArray[np.int64]) -> LinkParams:
    def pick(value: Any) -> Any:
        return tuple(v[picked] for v in value) if isinstance(value, tuple) else value[picked]

    names = [name for name in LinkParams.__slots__ if name != "torus"]
    return LinkParams(**{name: pick(getattr(params, name)) for name in names})


COLLECTIVES = {
    "all_reduce": choose.all_reduce_lines,
    "all_gather": choose.all_gather_lines,
    "reduce_scatter": choose.all_gather_lines,
    "alltoall": choose.all_to_all_lines,
    "broadcast": choose.broadcast_lines,
    "reduce": choose.broadcast_lines,
}


def _label(row: Row, links: Mapping[str, Any]) -> str:
    """Kinds of link that a row used: "nvlink3" or "nvlink3+efa"."""
    levels = [row.intra] * (row.num_devices > row.num_nodes) + [row.inter] * (row.num_nodes > 1)
    return "+".join(link.link_kind(links[name]["name"]) for name in levels)


def accuracy(model: Model, columns: Mapping[str, Floats]) -> list[dict[str, Any]]:
    """Mean absolute percentage error per link kind, collective and decade, of several predictions."""
    cells: dict[tuple[str, str, str], list[int]] = defaultdict(list)
    for i, row in enumerate(model.rows):
        decade = f"1e{int(np.log10(row.message_bytes))}"
        cells[_label(row, model.links), row.collective, decade].append(i)
        cells[_label(row, model.links), "all", "all"].append(i)
        cells["all", "all", decade].append(i)
        cells["all", row.collective, "all"].append(i)
        cells["all", "all", "all"].append(i)
    out = []
    for (kind, collective, decade), picked in sorted(cells.items()):
        index = np.array(picked)
        entry: dict[str, Any] = {"link": kind, "collective": collective, "message_bytes": decade}
        entry["rows"] = len(picked)
        for name, predicted in columns.items():
            error = np.abs(np.expm1(predicted[index] - model.measured[index]))
            weight = model.weights[index] ** 2
            entry[f"{name}_mape_percent"] = round(100 * float(np.average(error, weights=weight)), 1)
        out.append(entry)
    return out


def held_out(rows: Sequence[Row], priors: Mapping[str, Any]) -> Floats:
    """Logarithm of the predicted seconds of every row by constants fitted without its source."""
    out = np.zeros(len(rows))
    for source in sorted({row.source for row in rows}):
        table = Model([row for row in rows if row.source != source], priors).fit()
        index = [i for i, row in enumerate(rows) if row.source == source]
        out[index] = Model([rows[i] for i in index], priors).log_times(table)
    return out


def write(table: Mapping[str, Any], skipped: Mapping[str, int], errors: list[dict[str, Any]]) -> None:
    """Write collectives.toml."""

    def value(item: Any) -> str:
        if isinstance(item, list):
            return "[" + ", ".join(value(x) for x in item) + "]"
        return json.dumps(item) if isinstance(item, str) else f"{item:.4g}"

    lines = [
        "# Constants of the collectives, written by data/calibrate_collectives.py; do not edit.",
        "# Source: nccl-tests and similar timings published by the sources listed in the corpus notes,",
        "# drawn toward the constants of NVIDIA/nccl src/graph/tuning.cc (data/collectives_priors.toml).",
        f"tree_efficiency = {value(table['tree_efficiency'])}",
        "# Cost of filling the pipeline relative to the geometric mean of start-up and transfer.",
        f"knee = {value(table['knee'])}",
        "",
        "# All-to-all between nodes: share of a ring's rate, and microseconds per peer on another node. The",
        "# timings have none between nodes: from data/collectives_priors.toml as they stand.",
        "[all_to_all]",
        *(f"{name} = {value(number)}" for name, number in table["all_to_all"].items()),
        "",
        "# Microseconds before the first hop: [LL, LL128, Simple].",
        "[base_latency_us]",
        *(f"{name} = {value(numbers)}" for name, numbers in table["base_latency_us"].items()),
        "",
        "# latency_s: one LL hop, the nominal that hop_ratio refers to. Efficiencies: share of the nominal",
        "# bandwidth. mesh_share: share of a device's links that 2, 3, ... participants can use.",
        *(
            line
            for kind, facts in table["kinds"].items()
            for line in (f"[kinds.{kind}]", *(f"{name} = {value(item)}" for name, item in facts.items()), "")
        ),
        "# The first pattern that occurs in a link's lower-case name decides its kind.",
        "patterns = [",
        *(f'  {{ contains = "{p["contains"]}", kind = "{p["kind"]}" }},' for p in table["patterns"]),
        "]",
    ]
    # Top-level keys must precede the tables in TOML.
    tail = lines.index("# The first pattern that occurs in a link's lower-case name decides its kind.")
    lines = [*lines[:6], *lines[tail:], *lines[6:tail]]
    lines.append("# Rows of the table that the fit did not use, and why.")
    lines.append("[skipped]")
    lines += [f"{json.dumps(reason)} = {count}" for reason, count in sorted(skipped.items())]
    lines += [
        "",
        "# Mean absolute percentage error of the seconds, every decade of sizes of a system counting once,",
        "# one under 64 KiB a tenth:",
        "# prior = NCCL's constants, fitted = these constants, held_out = constants fitted without the",
        "# source of the row.",
    ]
    for entry in errors:
        lines.append("[[accuracy]]")
        lines += [f"{name} = {value(item)}" for name, item in entry.items()]
    DATA.write_text("\n".join(lines) + "\n", encoding="utf-8")


def main() -> None:
    """Read the timings, fit, hold each source out, write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("table", type=Path, help="collectives.csv")
    arguments = parser.parse_args()
    priors = tomllib.loads(PRIORS.read_text(encoding="utf-8"))
    constants("collectives").clear()  # type: ignore[attr-defined]
    constants("collectives").update({name: priors[name] for name in ("patterns", "kinds", "all_to_all")})  # type: ignore[attr-defined]
    rows, skipped = read_rows(arguments.table, priors)
    model = Model(rows, priors)
    fitted = model.fit()
    errors = accuracy(
        model,
        {
            "prior": model.log_times(settled(model.table(np.zeros(len(model.slots))))),
            "fitted": model.log_times(fitted),
            "held_out": held_out(rows, priors),
        },
    )
    write(fitted, skipped, errors)
    for entry in errors:
        sys.stdout.write(" ".join(f"{item!s:>24}" for item in entry.values()) + "\n")


if __name__ == "__main__":
    main()
