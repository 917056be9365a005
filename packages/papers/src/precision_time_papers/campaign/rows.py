"""Results of campaigns as rows of training steps, as docs/reference/corpus.md describes them."""

from __future__ import annotations

import csv
from collections.abc import Collection, Container, Iterable, Iterator
from io import StringIO
from pathlib import PurePath
from typing import Any

from precision_time import __version__
from precision_time.corpus.schema import OPTION_COLUMNS, OPTION_OF
from precision_time.io import table_cell
from precision_time.units import GIBI, GIGA
from precision_time_integrations.measure.rows import as_json, common_cells, share_name, short
from precision_time_integrations.measure.steps.catalog import built_in_models, planned_models

from .result import TrialResult


def corpus_rows(
    results: Iterable[TrialResult],
    *,
    source: str,
    known: Container[str] = (),
    described: Collection[str] = (),
) -> Iterator[dict[str, Any]]:
    """Results of a campaign in the schema of docs/reference/corpus.md.

    Results without a time, or without a model of the catalog, are left out (`why_left_out`). On a CPU a
    device is what one worker has: the row names it by processor and cores ("CPU-X-avx2-1-core"). Results
    that are not valid are rows of quality suspect.

    Args:
        results: From a store.
        source: `source` column.
        known: Models (`own_name`) whose operators lie beside the rows.
        described: Names of the devices of a file.
    """
    for result in results:
        if not why_left_out(result, known):
            named = _catalog_model(result) or (own_name(result), {}, result.sizes.get("seq_len"))
            yield {**_corpus_row(result, source, *named), "device": device_name(result, described)}


def own_name(result: TrialResult) -> str:
    """What a model that no catalog has is called in rows: with the sizes it was given and what it read."""
    sizes = ",".join(f"{name}={value:g}" for name, value in sorted(result.sizes.items()))
    data = "" if result.dataset == "synthetic" else f"@{PurePath(result.dataset).name}"
    return f"{result.model}{f'({sizes})' if sizes else ''}{data}"


def why_left_out(result: TrialResult, known: Container[str] = ()) -> str:
    """Why a result is no row; empty if it is one."""
    if result.step_time_s is None:
        return f"no step time: {short(result.error)}" if result.error else "no step time"
    if _catalog_model(result) is None and own_name(result) not in known:
        return f"no operators known of the model {own_name(result)}"
    return ""


def device_name(result: TrialResult, described: Collection[str] = ()) -> str:
    """The device of a row: on a CPU what one worker has, by processor, instructions and cores.

    Args:
        result: Of a campaign.
        described: Names of a file of devices. Results that do not say their instructions are those of the
            one device of the same processor and cores, if there is one.
    """
    if result.gpus_per_worker:
        return result.device
    stated = result.vector_isa  # stores of older releases do not say
    named = "" if result.device.endswith(f"-{stated}") else stated
    name = share_name(result.device, named, result.cpus_per_worker)
    first, last = f"{result.device}-", f"-{share_name('', '', result.cpus_per_worker)}"
    alike = [each for each in described if each.startswith(first) and each.endswith(last)]
    return name if stated or name in described or len(alike) != 1 else alike[0]


def corpus_csv(
    results: Iterable[TrialResult],
    *,
    source: str,
    known: Container[str] = (),
    described: Collection[str] = (),
) -> tuple[str, int]:
    """The rows as a CSV with columns named as options, and how many there are."""
    rows = list(corpus_rows(results, source=source, known=known, described=described))
    text = StringIO()
    writer = csv.DictWriter(text, OPTION_COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(
        {
            OPTION_OF.get(name, name): table_cell(cell) if isinstance(cell, str) else cell
            for name, cell in row.items()
        }
        for row in rows
    )
    return text.getvalue(), len(rows)


def _catalog_model(result: TrialResult) -> tuple[str, dict[str, Any], float | None] | None:
    """The catalog's name of a model, its sizes and tokens per sample; None where the catalog lacks it."""
    built_in = built_in_models().get(result.model)
    if built_in is None:
        spec = planned_models().get(result.model)
        if ":" in result.model or "/" in result.model:
            return None
        return result.model, dict(spec.sizes) if spec else {}, spec.seq_len if spec else None
    changed = {name for name in result.sizes if name not in (*built_in.zoo_sizes, "seq_len")}
    if not built_in.zoo or changed or result.dataset != "synthetic":
        return None
    sizes = {**built_in.sizes, **result.sizes}
    zoo_sizes = {theirs: int(sizes[ours]) for ours, theirs in built_in.zoo_sizes.items()}
    return built_in.zoo, zoo_sizes, sizes.get("seq_len")


def _corpus_row(
    result: TrialResult, source: str, model: str, sizes: dict[str, Any], seq_len: float | None
) -> dict[str, Any]:
    gpus = int(result.gpus_per_worker)
    devices = result.num_workers * max(gpus, 1)
    return {
        **common_cells(result.precision, result.framework_version),
        "source": source,
        "source_ref": f"precision-time papers campaign {__version__}: {result.campaign}",
        "run_id": f"{result.key}#{result.repeat}",
        "model": model,
        "model_config": as_json(sizes) if sizes else "",
        "dataset": result.dataset if result.dataset in ("synthetic", "digits") else "imagefolder",
        "dataset_samples": result.num_samples,
        "devices": devices,
        # A link is stated of every node, also where one machine plays several.
        "nodes": result.num_ray_nodes if result.link_bytes_per_s else result.num_hosts,
        "inter_node": f"{8 * result.link_bytes_per_s / GIGA:g}g-tcp" if result.link_bytes_per_s else "",
        "compiler": "none",
        "stack": "pytorch-eager",
        "parallelism": as_json({"dp": devices}),
        "optimizer": result.optimizer,
        "batch_per_device": result.batch_per_worker,
        "grad_accum": 1,
        "global_batch": result.batch_per_worker * result.num_workers,
        "seq_len": int(seq_len) if seq_len else "",
        "throughput": result.samples_per_s,
        "throughput_unit": "samples/s",
        "step_time_s": result.step_time_s,
        "notes": "; ".join(_notes(result)),
        "quality": f"suspect: {result.label}" if result.label else "",
    }


def _notes(result: TrialResult) -> Iterator[str]:
    yield f"median of {result.num_steps} steps, warm-up excluded"
    ray = f"Ray {result.ray_version}" if result.ray_version else "no Ray"
    yield f"{ray}, {result.backend or 'no'} collectives"
    if result.data_origin:
        yield result.data_origin
    if result.cpu_limit:
        yield f"{result.cpus_per_worker:g} of a core enforced ({result.cpu_limit})"
    if result.gradient_wait_s is not None:
        yield f"sync_time_s={result.gradient_wait_s:.6g} ({result.gradient_wait_method})"
    if result.gpus_per_worker and result.peak_memory_bytes is not None:
        yield f"peak memory {result.peak_memory_bytes / GIBI:.3f} GiB"
    if result.power_w is not None:
        yield f"mean power {result.power_w:.0f} W"
