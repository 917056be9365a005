"""Builds the zoo of pre-captured graphs: timm models of zoo_models.csv and the zoo_definitions.

Resumable: each graph is written to a work folder first, and only what is missing there is captured. `--add`
fills the folder from the shipped archive first, so that only new models are captured.

    python data/build_zoo.py                      everything that is missing, then the archive
    python data/build_zoo.py --add                only what the shipped archive lacks, then the archive
    python data/build_zoo.py --only resnet50      capture one model again, then the archive
    python data/build_zoo.py --pack               only the archive from the parts
    python data/build_zoo.py --compare            captured against published parameters and GMACs
    python data/build_zoo.py --old-timm FOLDER    models that only an older timm in FOLDER builds
"""

from __future__ import annotations

import argparse
import csv
import importlib
import json
import pkgutil
import sys
import tempfile
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "src"))
sys.path.insert(0, str(HERE))

import rich.progress  # noqa: E402
import torch  # noqa: E402

from precision_time.capture.recorder import record  # noqa: E402
from precision_time.capture.timm_models import (  # noqa: E402
    import_timm,
    import_torchvision,
    resolve_timm_name,
    timm_capturer,
)
from precision_time.errors import PrecisionTimeError, UnknownNameError  # noqa: E402
from precision_time.workload.graph import PRODUCT_CLASSES, OpClass, OpGraph, graph_from_json, graph_to_json  # noqa: E402
from precision_time.workload.zoo import ZOO_SCHEMA_VERSION, graph_member, zoo_path  # noqa: E402
from zoo_definitions import Entry  # noqa: E402

BATCHES = (101, 103)
"""Two primes: a graph in which a size happens to be a multiple of one differs under the other."""

TIMM_DEFAULTS = {
    "task": "image-classification",
    "optimizer": "momentum-sgd",
    "sample_unit": "image",
    "throughput_unit": "images/s",
    "dataset": "imagenet",
    "dataset_samples": 1281167,
    "source_library": "timm",
}
_CONVOLUTIONS = (OpClass.CONV, OpClass.GROUPED_CONV, OpClass.DEPTHWISE_CONV)


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """One line of zoo_models.csv."""

    model: str
    image_size: int | None
    params_m: float | None
    gmacs: float | None


def read_rows() -> list[Row]:
    """All models and sizes to capture."""
    with (HERE / "zoo_models.csv").open() as file:
        lines = [line for line in file if not line.startswith("#")]
    return [
        Row(
            model=line["model"],
            image_size=int(line["image_size"]) if line["image_size"] else None,
            params_m=float(line["params_m"]) if line["params_m"] else None,
            gmacs=float(line["gmacs"]) if line["gmacs"] else None,
        )
        for line in csv.DictReader(lines)
    ]


def definitions() -> Iterator[tuple[str, Entry]]:
    """Every entry of every module of zoo_definitions."""
    package = importlib.import_module("zoo_definitions")
    for info in sorted(pkgutil.iter_modules(package.__path__), key=lambda item: item.name):
        module = importlib.import_module(f"zoo_definitions.{info.name}")
        yield from sorted(getattr(module, "ENTRIES", {}).items())


class Parts:
    """Captured graphs and failures in the work folder, one small file each."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def path(self, name: str, image_size: int | None) -> Path:
        """Where a captured graph lies."""
        return self.folder / graph_member(name, image_size).removeprefix("graphs/")

    def write(self, graph: OpGraph, meta: Mapping[str, Any]) -> None:
        """Keeps a captured graph."""
        target = self.path(graph.name, graph.image_size)
        self._write(target, {"graph": graph_to_json(graph), "summary": summary(graph), "meta": dict(meta)})

    def fail(self, name: str, image_size: int | None, reason: str) -> None:
        """Keeps why there is none."""
        self._write(self.path(name, image_size).with_suffix(".failed"), {"name": name, "reason": reason})

    def _write(self, target: Path, data: Mapping[str, Any]) -> None:
        partial = target.with_suffix(".partial")
        partial.write_text(json.dumps(data, separators=(",", ":")))
        partial.replace(target)

    def done(self, name: str, image_size: int | None) -> bool:
        """Whether the graph is there."""
        return self.path(name, image_size).exists()

    def unpack(self, archive_path: Path) -> None:
        """Takes over every graph of an archive that the folder lacks."""
        with zipfile.ZipFile(archive_path) as archive:
            entries = json.loads(archive.read("index.json"))["entries"]
            for member in archive.namelist():
                target = self.folder / member.removeprefix("graphs/")
                if member == "index.json" or target.exists():
                    continue
                graph = json.loads(archive.read(member))
                body = entries[graph["name"]]
                meta = {key: body[key] for key in ENTRY_META if key in body}
                if "kind" not in body:
                    meta["aliases"] = [n for n, b in entries.items() if b.get("graph") == graph["name"]]
                self._write(
                    target,
                    {
                        "graph": graph,
                        "summary": summary(graph_from_json(graph)),
                        "meta": {} if "kind" in body else meta,
                    },
                )

    def forget(self, name: str) -> None:
        """Removes all sizes of a model."""
        for path in [*self.folder.glob(f"{name}@*"), *self.folder.glob(f"{name}.json")]:
            path.unlink()

    def all(self) -> list[dict[str, Any]]:
        """Every captured graph."""
        return [json.loads(path.read_text()) for path in sorted(self.folder.glob("*.json"))]

    def failures(self) -> list[dict[str, Any]]:
        """Every failure."""
        return [json.loads(path.read_text()) for path in sorted(self.folder.glob("*.failed"))]


def summary(graph: OpGraph) -> dict[str, float]:
    """What the index and the comparison need, so that packing reads no graph."""
    products = sum(n.flops for n in graph.nodes if n.op_class in PRODUCT_CLASSES)
    convolutions = sum(n.flops for n in graph.nodes if n.op_class in _CONVOLUTIONS)
    return {
        "params": graph.params,
        "forward_flops": graph.forward_flops,
        "conv_share": convolutions / products if products else 0.0,
    }


def captured(capture: Callable[[int], OpGraph], *, verify: bool) -> OpGraph:
    """The graph, noting whether another prime batch gives another one (twice the time)."""
    first = capture(BATCHES[0])
    if not verify:
        return first
    second = capture(BATCHES[1])
    if graph_to_json(first) != graph_to_json(second):
        note = f"numbers differ between capture batches {BATCHES[0]} and {BATCHES[1]}"
        return replace(first, notes="; ".join(part for part in (first.notes, note) if part))
    return first


def timm_targets(rows: list[Row]) -> dict[tuple[str, int], None]:
    """Distinct (architecture, image size), aliases folded; unknown names are left out."""
    targets: dict[tuple[str, int], None] = {}
    for row in rows:
        try:
            resolved = resolve_timm_name(row.model)
        except UnknownNameError:
            continue
        targets[resolved.architecture, row.image_size or resolved.image_size] = None
    return targets


def capture_all(
    parts: Parts, only: str | None, shard: tuple[int, int] = (0, 1), *, verify: bool = False
) -> None:
    """Captures what the work folder lacks; of several processes each takes every n-th model."""
    import_torchvision()
    jobs: list[tuple[str, int | None, Any, dict[str, Any]]] = []
    for name, image_size in timm_targets(read_rows()):
        jobs.append((name, image_size, lambda n=name, s=image_size: timm_capturer(n, image_size=s), {}))
    for name, entry in definitions():
        meta = {key: getattr(entry, key) for key in ENTRY_META}
        side = entry.image_size
        jobs.append((name, side, lambda n=name, e=entry: partial(capture_entry, n, e), meta))
    if only is not None:
        architecture = only
        if only not in {job[0] for job in jobs}:
            architecture = resolve_timm_name(only).architecture
        jobs = [job for job in jobs if job[0] == architecture]
        parts.forget(architecture)
    todo = [job for job in jobs[shard[0] :: shard[1]] if not parts.done(job[0], job[1])]
    for name, size, capturer, meta in rich.progress.track(todo, description="capturing"):
        try:
            parts.write(captured(capturer(), verify=verify), meta)
            parts.path(name, size).with_suffix(".failed").unlink(missing_ok=True)
        except (PrecisionTimeError, RuntimeError, TypeError, ValueError, AssertionError) as error:
            parts.fail(name, size, str(error))


ENTRY_META = (
    "family",
    "task",
    "optimizer",
    "sample_unit",
    "units_per_sample",
    "throughput_unit",
    "dataset",
    "dataset_samples",
    "seq_len",
    "source_library",
    "aliases",
)


def capture_entry(name: str, entry: Entry, batch: int) -> OpGraph:
    """The graph of an extra definition."""
    with torch.device("meta"):
        model = entry.build().train()
        inputs = entry.inputs(batch)
        kwargs = dict(entry.kwargs(batch)) if entry.kwargs else {}
    graph = record(model, inputs, kwargs, name=name, batch=batch)
    return replace(graph, image_size=entry.image_size, seq_len=entry.seq_len)


def capture_old(parts: Parts, folder: Path) -> None:
    """Models the installed timm no longer has, built by the older timm in `folder`."""
    wanted = {row.model: None for row in read_rows() if not _known(row.model)}
    for module in [name for name in sys.modules if name == "timm" or name.startswith("timm.")]:
        del sys.modules[module]
    sys.path.insert(0, str(folder))
    timm = importlib.import_module("timm")
    sizes: dict[str, list[int | None]] = {row.model: [] for row in read_rows()}
    for row in read_rows():
        sizes[row.model].append(row.image_size)
    for name in rich.progress.track(wanted, description=f"timm {timm.__version__}"):
        if not timm.models.is_model(name):
            continue
        for size in sizes[name]:
            try:
                parts.write(captured(lambda batch: _old(timm, name, size, batch), verify=False), {})  # noqa: B023
            except (PrecisionTimeError, RuntimeError, TypeError, ValueError, AssertionError) as error:
                parts.fail(name, size, str(error))


def _old(timm: Any, name: str, size: int | None, batch: int) -> OpGraph:
    model = timm.create_model(name).train()  # old initialisers copy real numbers
    side = size or model.default_cfg["input_size"][-1]
    inputs = (torch.empty(batch, 3, side, side, device="meta"),)
    graph = replace(record(model, inputs, name=name, batch=batch), image_size=side)
    return replace(graph, notes="; ".join(part for part in (graph.notes, f"timm {timm.__version__}") if part))


def _known(name: str) -> bool:
    try:
        resolve_timm_name(name)
    except UnknownNameError:
        return False
    return True


def build_index(parts: list[dict[str, Any]], rows: list[Row]) -> dict[str, Any]:
    """Entries of all captured graphs, then the aliases among the names of zoo_models.csv."""
    by_name: dict[str, list[dict[str, Any]]] = {}
    for part in parts:
        by_name.setdefault(part["graph"]["name"], []).append(part)
    entries: dict[str, dict[str, Any]] = {}
    for name, group in by_name.items():
        if group[0]["meta"]:
            entries[name] = _definition_entry(group[0])
            for alias in group[0]["meta"]["aliases"]:
                entries[alias] = {**entries[name], "graph": name}
        else:
            entries[name] = _timm_entry(group, _default_size(name, group))
    for row in rows:
        if row.model in entries or not _known(row.model):
            continue
        resolved = resolve_timm_name(row.model)
        found = by_name.get(resolved.architecture)
        if found:
            own = [r.image_size or resolved.image_size for r in rows if r.model == row.model]
            size = resolved.image_size if resolved.image_size in own else own[0]
            entry = _timm_entry(found, size)
            entries[row.model] = {**entry, "graph": resolved.architecture}
    return {"schema": ZOO_SCHEMA_VERSION, "defaults": {"timm": TIMM_DEFAULTS}, "entries": entries}


def _default_size(name: str, group: list[dict[str, Any]]) -> int:
    stored = [part["graph"]["image_size"] for part in group]
    own = resolve_timm_name(name).image_size if _known(name) else stored[0]
    return own if own in stored else stored[0]


def _timm_entry(group: list[dict[str, Any]], size: int) -> dict[str, Any]:
    part = next((p for p in group if p["graph"]["image_size"] == size), group[0])
    figures = part["summary"]
    return {
        "kind": "timm",
        "family": "cnn" if figures["conv_share"] >= 0.5 else "vit",
        "params": int(figures["params"]),
        "forward_flops": int(figures["forward_flops"]),
        "image_size": part["graph"]["image_size"],
        "stored_sizes": sorted(p["graph"]["image_size"] for p in group),
    }


def _definition_entry(part: dict[str, Any]) -> dict[str, Any]:
    meta = {key: value for key, value in part["meta"].items() if key != "aliases" and value not in ("", None)}
    size = part["graph"]["image_size"]
    return {
        **meta,
        "params": int(part["summary"]["params"]),
        "forward_flops": int(part["summary"]["forward_flops"]),
        "image_size": size,
        "stored_sizes": [] if size is None else [size],
    }


def pack(parts: Parts, target: Path) -> None:
    """Writes the archive: same parts, same bytes."""
    everything = parts.all()
    partial = target.with_suffix(".partial")
    with zipfile.ZipFile(partial, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        members = {"index.json": build_index(everything, read_rows())}
        for part in everything:
            graph = part["graph"]
            members[graph_member(graph["name"], graph["image_size"])] = graph
        for member, data in members.items():
            info = zipfile.ZipInfo(member, date_time=(2020, 1, 1, 0, 0, 0))
            info.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(info, json.dumps(data, separators=(",", ":"), sort_keys=True))
    partial.replace(target)
    print(f"{target.name}: {len(everything)} graphs, {target.stat().st_size / 2**20:.2f} MiB")
    for failure in parts.failures():
        print(f"not captured: {failure['name']}: {failure['reason'][:300]}")


def published_convention(graph: Mapping[str, Any], products: float) -> float:
    """FLOPs as the publication counted them (fvcore): norms too, 5 per element, 2 for a batch norm."""
    counts = Counter(body for body, *_ in graph["sequence"])
    norms = 0.0
    for index, body in enumerate(graph["bodies"]):
        if body["op_class"] == OpClass.NORM:
            on_weights = not body.get("scales_with_batch", True)
            each = 2.0 if "batch_norm" in body["op"] and not on_weights else 5.0
            elems = body.get("weight_elems" if on_weights else "in_elems", 0.0)
            norms += each * elems * body.get("repeat", 1) * counts[index]
    return products + 2.0 * norms  # a GMAC is counted as two FLOPs below


def compare(parts: Parts) -> None:
    """Prints deviations of captured parameters and GMACs from the published ones."""
    captured_parts = {(p["graph"]["name"], p["graph"]["image_size"]): p for p in parts.all()}
    deviations: dict[str, list[tuple[float, str]]] = {"params": [], "gmacs": [], "gmacs with norms": []}
    for row in read_rows():
        name = resolve_timm_name(row.model).architecture if _known(row.model) else row.model
        part = captured_parts.get((name, row.image_size or 0))
        if part is None:
            continue
        flops = part["summary"]["forward_flops"]
        for key, published, ours in (
            ("params", row.params_m, part["summary"]["params"] / 1e6),
            ("gmacs", row.gmacs, flops / 2e9),
            ("gmacs with norms", row.gmacs, published_convention(part["graph"], flops) / 2e9),
        ):
            if published:
                # half a unit of the last published digit is rounding, not deviation
                excess = max(abs(ours - published) - 0.005, 0.0) / published
                sign = 1 if ours > published else -1
                label = f"{row.model}@{row.image_size} ours {ours:.3f} published {published}"
                deviations[key].append((sign * excess, label))
    for key, values in deviations.items():
        sizes = sorted(abs(v) for v, _ in values)
        shares = {limit: sum(s <= limit for s in sizes) for limit in (0.001, 0.005, 0.01, 0.02, 0.05, 0.1)}
        print(
            f"{key}: {len(values)} figures, within " + ", ".join(f"{k:.1%}: {v}" for k, v in shares.items())
        )
        for deviation, label in sorted(values, key=lambda item: -abs(item[0])):
            if abs(deviation) > 0.01:
                print(f"  {deviation:+.2%} {label}")


def main() -> None:
    """Parses the command line and runs what it asks for."""
    parser = argparse.ArgumentParser(description="Builds workload/data/zoo.zip.")
    parser.add_argument("--work", type=Path, default=Path(tempfile.gettempdir()) / "precision-time-zoo")
    parser.add_argument("--output", type=Path, default=zoo_path())
    parser.add_argument("--only", help="capture this model again")
    parser.add_argument("--pack", action="store_true", help="only write the archive")
    parser.add_argument("--add", action="store_true", help="start from the shipped archive")
    parser.add_argument("--compare", action="store_true", help="only print deviations")
    parser.add_argument(
        "--shard", default="0/1", help="I/N: capture every N-th model, starting with the I-th"
    )
    parser.add_argument("--verify", action="store_true", help="check each graph at a second capture batch")
    parser.add_argument("--old-timm", type=Path, help="folder with an older timm")
    options = parser.parse_args()
    torch.set_num_threads(1)
    parts = Parts(options.work)
    if options.add:
        parts.unpack(zoo_path())
    if options.compare:
        return compare(parts)
    import_timm()
    if options.old_timm:
        return capture_old(parts, options.old_timm)  # two timm do not go together: pack in a second run
    if not options.pack:
        number, _, count = options.shard.partition("/")
        capture_all(parts, options.only, (int(number), int(count)), verify=options.verify)
    return pack(parts, options.output)


if __name__ == "__main__":
    main()
