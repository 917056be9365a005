"""What every predictor of the benchmark is told of a job, and the rows that it is asked.

`python benchmarks/predictors/facts.py` draws the rows of a new edition.

A row is a measured run of the corpus with a stated precision and nothing doubtful about it. `request` holds
what its source states, in the fields of `precision-time predict`; the columns after it say the same in
numbers that any predictor understands. All predictors get all columns but `measured_s`, and nothing else.
"""

from __future__ import annotations

import csv
import hashlib
import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from enum import Enum
from pathlib import Path
from typing import Any

import numpy as np

from precision_time.corpus.jobs import job_of, request_of
from precision_time.corpus.measurement import Measurement, Quality
from precision_time.corpus.protocols import publisher, source_name
from precision_time.corpus.store import load_corpus
from precision_time.cost.job import Job
from precision_time.cost.roofline import peak_flops_per_s
from precision_time.errors import PrecisionTimeError
from precision_time.request.request import Request
from precision_time.workload.resolve import decoder_sizes

HERE = Path(__file__).resolve().parent
EDITION = 1
"""Of the rows: a change of them is another edition, in files of its own."""
ROWS = HERE / f"rows-{EDITION}.csv"
OUTSIDE: Mapping[str, str] = {
    "vtrain": "the table that vTrain validates itself on",
    "megatron-lm": "Megatron-LM's tables, which Calculon validates itself on",
}
"""Sources that no row is drawn from: a peer's constants were set by them, or chosen beside them."""
PER_SOURCE = 14
"""Rows of a question from one source at most."""
QUESTIONS: Mapping[str, str] = {
    "dense": "Dense language models, pretraining",
    "moe": "Language models with experts",
    "fine-tuning": "Fine-tuning of language models, adapters included",
    "vision": "Vision: classification, detection, segmentation",
}
_VISION = frozenset({"cnn", "vit", "detection", "segmentation"})
_DECODERS = frozenset({"transformer-decoder", "moe"})
NAMED = ("row", "question", "source", "publisher", "source_ref", "request")
_SIZES = (
    *("layers", "hidden", "heads", "kv_heads", "head_dim", "ffn", "gated", "vocab", "experts", "top_k"),
    *("expert_ffn", "shared_ffn", "dense_layers", "kv_lora_rank"),
)
"""Of a decoder; empty for other models."""
_LAYOUT = ("dp", "tp", "pp", "cp", "ep", "vpp", "zero_stage", "micro_batch_size", "num_microbatches")
NUMBERS = (
    *_SIZES, "seq_len", "params", "trainable_params", "training_flops_per_sample", "forward_flops_per_sample",
    *_LAYOUT, "global_batch_size", "sequence_parallel", "recompute_layers",
    "devices", "nodes", "devices_per_node", "peak_flops_per_s", "memory_bytes", "memory_bytes_per_s",
    "intra_bytes_per_s", "inter_bytes_per_s",
)  # fmt: skip
"""Links are one direction, of one device; widths in elements; the peak is that of the row's precision."""
WORDS = ("model", "family", "adapter", "device", "precision", "recompute", "framework", "optimizer")
COLUMNS = (*NAMED, *WORDS, *NUMBERS, "measured_s")
Row = dict[str, Any]


def question_of(job: Job) -> str | None:
    """The question that a job belongs to; None: to none."""
    family, task = job.workload.family, job.workload.task
    tuned = bool(job.workload.adapter) or "sft" in task or "finetune" in task
    if family in _DECODERS and tuned:
        return "fine-tuning"
    if family in _DECODERS and task.startswith("lm-pretrain"):
        return "moe" if family == "moe" else "dense"
    return "vision" if family in _VISION and not tuned else None


def facts_of(measured: Measurement) -> tuple[Row, Job]:
    """A run as every predictor is told of it, with its time, and its job.

    Raises:
        PrecisionTimeError: If no step time can be told of it, or it cannot be asked as a request.
    """
    given = request_of(measured).given()
    plain = {name: value.value if isinstance(value, Enum) else value for name, value in given.items()}
    job = job_of(measured)
    request = json.dumps(plain, sort_keys=True, default=list)
    seconds = float(f"{measured.step_time_s:.6g}")
    key = f"{measured.source_ref}|{measured.run_id}|{request}|{seconds}".encode()
    return {
        "row": hashlib.blake2b(key, digest_size=6).hexdigest(),
        "question": question_of(job) or "",
        "source": source_name(measured),
        "publisher": publisher(measured),
        "source_ref": measured.source_ref,
        "request": request,
        **numbers_of(job, Request.of(plain)),
        "measured_s": seconds,
    }, job


def numbers_of(job: Job, request: Request) -> Row:
    """The words and numbers of a job."""
    workload, cluster, layout = job.workload, job.cluster, job.layout
    decoder = None
    if workload.family in _DECODERS:
        decoder = decoder_sizes(str(request.model), request.sizes or {}, request.seq_len)
    found: Row = dict.fromkeys(_SIZES)
    if decoder is not None:
        found |= {name: getattr(decoder, name) for name in _SIZES}
        found["kv_heads"] = decoder.kv_heads or decoder.heads
        found["head_dim"] = decoder.size_of_head
        found["ffn"] = decoder.ffn or 4 * decoder.hidden
    found |= {name: getattr(layout, name) for name in (*_LAYOUT, "global_batch_size", "recompute_layers")}
    return found | {
        "model": workload.name,
        "family": workload.family,
        "adapter": workload.adapter,
        "device": cluster.device.name,
        "precision": job.precision.name,
        "recompute": layout.recompute.value,
        "framework": job.stack.framework,
        "optimizer": workload.optimizer,
        "seq_len": workload.graph.seq_len,
        "params": workload.graph.params,
        "trainable_params": workload.graph.trainable_params,
        "training_flops_per_sample": workload.graph.training_flops,
        "forward_flops_per_sample": workload.graph.forward_flops,
        "sequence_parallel": int(layout.sequence_parallel),
        "devices": cluster.num_devices,
        "nodes": cluster.num_nodes,
        "devices_per_node": cluster.devices_per_node,
        "peak_flops_per_s": peak_flops_per_s(cluster.device, job.precision.matmul),
        "memory_bytes": cluster.device.memory_bytes,
        "memory_bytes_per_s": cluster.device.memory_bandwidth_bytes_per_s,
        "intra_bytes_per_s": cluster.intra_node.bandwidth_bytes_per_s,
        "inter_bytes_per_s": cluster.inter_node.bandwidth_bytes_per_s,
    }


def beyond_doubt(measured: Measurement) -> bool:
    """Whether a run may be a row: its precision is stated, and nothing about it is suspect."""
    fine = measured.usable and measured.quality is Quality.FINE and measured.weight == 1.0
    return fine and not measured.precision_inferred and source_name(measured) not in OUTSIDE


def draw(measurements: Sequence[Measurement]) -> Iterator[Row]:
    """The rows of the benchmark: of every source and question the same number at most, chosen by a seed."""
    found: defaultdict[tuple[str, str], dict[str, Row]] = defaultdict(dict)
    for measured in filter(beyond_doubt, measurements):
        try:
            row, _ = facts_of(measured)
        except PrecisionTimeError:
            continue
        if row["question"]:
            found[row["question"], row["source"]].setdefault(measured.configuration_key, row)
    for question in QUESTIONS:
        for source in sorted({source for asked, source in found if asked == question}):
            rows = sorted(found[question, source].values(), key=lambda row: str(row["row"]))
            chosen = np.random.default_rng(EDITION).permutation(len(rows))[:PER_SOURCE]
            yield from (rows[index] for index in sorted(chosen))


def corpus_facts() -> list[Row]:
    """Every run of the corpus that a predictor may learn from, as rows with their time and number."""
    found = []
    for measured in load_corpus():
        if measured.usable:
            with suppress(PrecisionTimeError):  # What cannot be asked cannot be learned from.
                found.append({**facts_of(measured)[0], "request": "", "row_id": measured.row_id})
    return found


def rows_of(path: Path = ROWS) -> list[Row]:
    """The rows of an edition, numbers as numbers, None for what a row does not have."""
    with path.open(encoding="utf-8", newline="") as lines:
        return [
            {
                name: (float(value) if value else None) if name in {*NUMBERS, "measured_s"} else value
                for name, value in line.items()
            }
            for line in csv.DictReader(lines)
        ]


def told(row: Mapping[str, Any]) -> Row:
    """What a predictor is told of a row: all but the measured time."""
    return {name: value for name, value in row.items() if name != "measured_s"}


def digest(row: Mapping[str, Any]) -> str:
    """Of what is told of a row: a recorded answer holds for these facts and no others."""
    text = json.dumps(told(row), sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=4).hexdigest()


def main() -> None:
    """Draw the rows of this edition."""
    rows = list(draw(load_corpus()))
    with ROWS.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        for row in rows:
            shown = {name: f"{value:.7g}" for name, value in row.items() if isinstance(value, int | float)}
            writer.writerow({**row, **shown})
    print(f"{len(rows)} rows of {len({row['source'] for row in rows})} sources in {ROWS.name}")


if __name__ == "__main__":
    main()
