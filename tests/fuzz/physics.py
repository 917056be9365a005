"""What is true of every training step, over random valid jobs.

    python tests/fuzz/physics.py --jobs 5000 --out docs/reference/physics.json

Each random job is asked again with more work, or on better hardware, or in other words. The cost model must
order the two by its formulas; the learned answer must as well, but where both jobs were measured.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np

from precision_time.cost.job import Job, Jobs
from precision_time.cost.memory.terms import memory_of, total_bytes
from precision_time.cost.utilization import model_flops_utilization
from precision_time.errors import PrecisionTimeError
from precision_time.hardware.catalog import known_devices
from precision_time.hardware.device import Device
from precision_time.io import packaged_toml
from precision_time.learn.artifact import shipped_predictor
from precision_time.learn.priced import predict_step_times
from precision_time.precision.policy import DType
from precision_time.precision.support import supported_precisions
from precision_time.render.table import columns_of, markdown_lines
from precision_time.request.request import Request

IMAGE = (
    "resnet18", "resnet50", "resnet101", "vgg16", "mobilenetv2_100", "efficientnet_b0", "densenet121",
    "convnext_tiny", "regnety_032",
)  # fmt: skip
PATCHES = ("vit_base_patch16_224", "deit_small_patch16_224")
TEXT = {
    "gpt2": 12, "gpt2-medium": 24, "tinyllama-1.1b": 22, "llama2-7b": 32, "bert-base": 12, "bert-large": 24,
    "t5-base": 12, "mixtral-8x7b": 32, "pythia-1.4b": 24,
}  # fmt: skip
OTHER = ("dlrm", "ncf", "unet-industrial", "lstm-lm", "deepspeech2", "sd-v1.5")
BATCHES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256)
NETWORKS = (
    "ethernet-10g",
    "ethernet-25g",
    "ethernet-100g",
    "infiniband-edr",
    "infiniband-hdr",
    "infiniband-ndr",
)
STACKS = (None, None, "pytorch-eager", "ngc-pytorch", "megatron", "deepspeed-megatron", "jax-xla", "tf-graph")
ALIASES = packaged_toml("precision_time.precision", "data/aliases.toml")["alias"]
SHARDED = 3
BETTER = 1.5
"""Times the rate that better hardware has."""
SMALL = 0.01
EXACT = 1e-9
MEASURED = 0.01
"""Novelty up to which a job was measured (`Times.distance`)."""


DEVICES, MEMORY, WORDS, RATE = (
    "more devices, same batch on each",
    "memory: ",
    "the same in other words",
    "rate above peak",
)
JUMP, RECOMPUTED, TWICE = (
    "sequence + 1 %: at most 10 % longer",
    "full recomputation",
    "num_microbatches 2: 1 to 2.05 times",
)
MOST_TIMES = {JUMP: 1.1, TWICE: 2.05}
"""How many times as long the second of a pair takes at most."""
ALIKE = ("larger batch", "more layers")
"""What also takes more memory."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Pair:
    """Two jobs of which one cannot take longer, or need more memory, than the other."""

    rule: str
    less: Job
    more: Job


def random_jobs(rng: np.random.Generator, count: int) -> Iterator[tuple[dict[str, Any], Job]]:
    """Valid requests and their jobs."""
    devices = [item for item in known_devices() if item.memory_bytes >= 8e9]
    while count:
        fields = _fields(rng, devices)
        job = _resolved(fields)
        if job is not None:
            count -= 1
            yield fields, job


def _fields(rng: np.random.Generator, devices: Sequence[Device]) -> dict[str, Any]:
    def one(values: Sequence[Any]) -> Any:
        return values[int(rng.integers(len(values)))]

    kind = rng.choice(["image", "patches", "text", "other"], p=[0.35, 0.1, 0.4, 0.15])
    model = one({"image": IMAGE, "patches": PATCHES, "text": tuple(TEXT), "other": OTHER}[str(kind)])
    device, gpus = one(devices), int(one((1, 1, 2, 4, 8, 8, 16, 32, 64)))
    fields: dict[str, Any] = {
        "model": model,
        "device": device.name,
        "gpus": gpus,
        "precision": one(supported_precisions(device)),
        "batch_size": int(one(BATCHES)),
        "zero_stage": int(one((0, 0, 0, 1, 2, 3))) if gpus > 1 else 0,
        "stack": one(STACKS),
    }
    if kind == "text":
        fields["seq_len"] = int(one((64, 128, 256, 384, 512, 768, 1024)))
        fields["recompute"] = one(("none", "none", "full"))
        fields["batch_size"] = min(fields["batch_size"], 32)
    if kind == "image":
        fields["image_size"] = int(one((128, 160, 192, 224, 224, 256, 288, 320)))
    if gpus > 8:
        fields["network"] = one(NETWORKS)
    if rng.random() < 0.2:
        fields["num_microbatches"] = int(one((2, 4)))
    return fields


def _resolved(fields: Mapping[str, Any]) -> Job | None:
    try:
        return Request.of(fields).resolve()
    except PrecisionTimeError:
        return None


def pairs_of(fields: Mapping[str, Any], job: Job, rng: np.random.Generator) -> Iterator[Pair]:
    """What follows for one job."""

    def changed(rule: str, **changes: Any) -> Iterator[Pair]:
        other = _resolved({**fields, **changes})
        if other is not None:
            yield Pair(rule=rule, less=job, more=other)

    grown = float(rng.choice([1.25, 1.5, 2.0, 3.0]))
    yield from changed(
        "larger batch", batch_size=max(int(fields["batch_size"] * grown), fields["batch_size"] + 1)
    )
    if "seq_len" in fields:
        yield from changed("longer sequence", seq_len=int(fields["seq_len"] * grown))
        depth = TEXT[fields["model"]]
        yield from changed(ALIKE[1], sizes={"num_layers": depth + int(rng.integers(1, depth))})
    if "image_size" in fields:
        yield from changed("larger image", image_size=fields["image_size"] + 32 * int(rng.integers(1, 4)))
    yield from _of_length(fields, job)
    if fields["precision"] == "fp32":
        slower = _resolved({**fields, "precision": "fp64"})
        if slower is not None:
            yield Pair(rule="fp64 instead of fp32", less=job, more=slower)
    if "full" in (again := fields.get("recompute", "none")) or again == "none":
        kept, again = (_resolved({**fields, "recompute": each}) for each in ("none", "full"))
        if kept is not None and again is not None:
            yield Pair(rule=RECOMPUTED, less=kept, more=again)
            yield Pair(rule=f"{MEMORY}no recomputation", less=again, more=kept)
    if fields.get("num_microbatches", 1) == 1:
        yield from changed(TWICE, num_microbatches=2)
    if "seq_len" in fields and fields["gpus"] <= 8:
        adapted = {**fields, "precision": "bf16-mixed", "recompute": "none"}
        lora, qlora = (_resolved({**adapted, "adapter": each}) for each in ("lora", "qlora"))
        if lora is not None and qlora is not None:
            yield Pair(rule=f"{MEMORY}LoRA instead of QLoRA", less=qlora, more=lora)
    if not fields["zero_stage"]:  # else more devices share the update
        yield from changed(DEVICES, gpus=2 * fields["gpus"])
    mixed = f"{fields['precision']}-mixed:autocast"
    if mixed in ("fp16-mixed:autocast", "bf16-mixed:autocast"):
        yield from changed("mixed instead of pure 16 bits", precision=mixed)
    if fields["precision"] == "fp32":
        quicker = _resolved({**fields, "precision": "tf32"})
        if quicker is not None and quicker.runs != job.runs:
            yield Pair(rule="fp32 where TF32 is allowed", less=quicker, more=job)
    if fields["zero_stage"] == SHARDED:
        sharded = {"precision": str(fields["precision"]).replace("-mixed", "-mixed:megatron")}
        whole, less = (
            _resolved({**fields, **sharded, "zero_stage": stage}) for stage in (SHARDED - 1, SHARDED)
        )
        if whole is not None and less is not None:
            yield Pair(rule=f"{MEMORY}ZeRO 2 instead of 3", less=less, more=whole)
    other = _resolved(_other_words(fields, job)[int(rng.integers(4))])
    if other is not None:
        yield Pair(rule=WORDS, less=job, more=other)
    if "network" in fields:
        at = NETWORKS.index(fields["network"])
        if at:
            yield from changed("slower network", network=NETWORKS[int(rng.integers(at))])
    for rule, better in _better(job):
        yield Pair(rule=rule, less=better, more=job)


def _of_length(fields: Mapping[str, Any], job: Job) -> Iterator[Pair]:
    """A little longer sequences: no shorter steps, and no jumps."""
    if "seq_len" not in fields:
        return
    for rule, grown in ((JUMP, 1.01), ("sequence + 1 %", 1.01), ("sequence + 10 %", 1.1)):
        length = fields["seq_len"]
        longer = _resolved({**fields, "seq_len": max(int(length * grown), length + 1)})
        if longer is not None:
            yield Pair(rule=rule, less=job, more=longer)


def _other_words(fields: Mapping[str, Any], job: Job) -> list[dict[str, Any]]:
    """The request as others would say it; the last one went through a job file."""
    rest = {name: value for name, value in fields.items() if name not in ("gpus", "batch_size")}
    device, gpus, batch = fields["device"], fields["gpus"], fields["batch_size"]
    micro_batches = fields.get("num_microbatches", 1)
    of_all = {"global_batch_size": batch * gpus * micro_batches, "num_microbatches": micro_batches}
    alias = ALIASES[fields["precision"]][0]
    return [
        {**fields, "device": device.lower().replace("-", " "), "model": fields["model"].upper()},
        {**rest, "device": f"{gpus}x{device}", "batch": f"{batch}"},
        {**rest, "num_devices": str(gpus), "nodes": job.cluster.num_nodes, **of_all},
        json.loads(json.dumps({**fields, "precision": alias})),
    ]


def _better(job: Job) -> Iterator[tuple[str, Job]]:
    """The job on a user's hardware that has more of one thing than the catalog's, which is its reference."""
    cluster, device = job.cluster, job.cluster.device

    def custom(rule: str, **changes: Any) -> tuple[str, Job]:
        return rule, replace(job, cluster=replace(cluster, reference=cluster, assumptions=(), **changes))

    wider = replace(device, memory_bandwidth_bytes_per_s=BETTER * device.memory_bandwidth_bytes_per_s)
    yield custom("more memory bandwidth", device=wider)
    peaks = {name: BETTER * peak for name, peak in device.peak_flops_per_s.items()}
    yield custom("higher peaks", device=replace(device, peak_flops_per_s=peaks))
    for name, shown in (("intra_node", "faster links in a node"), ("inter_node", "faster network")):
        link = getattr(cluster, name)
        faster = replace(link, bandwidth_bytes_per_s=BETTER * link.bandwidth_bytes_per_s)
        if cluster.num_devices > 1 and (name == "intra_node" or cluster.num_nodes > 1):
            yield custom(shown, **{name: faster})


@dataclass(frozen=True, kw_only=True, slots=True)
class Broken:
    """A pair that is the wrong way round."""

    rule: str
    share: float
    """By how much, 0.02 for 2 %."""
    fields: Mapping[str, Any]
    measured: bool = False
    """Both were measured, so that the measured runs have the word."""


@dataclass(kw_only=True, slots=True)
class Found:
    """Counts by rule, and what was broken."""

    checks: Counter[str]
    formulas: list[Broken]
    learned: list[Broken]


def check(jobs: Iterable[tuple[Mapping[str, Any], Job]], rng: np.random.Generator) -> Found:
    """All rules over some jobs: times of the cost model, learned times, memory, rates."""
    found = Found(checks=Counter(), formulas=[], learned=[])
    rows = [(fields, pair) for fields, job in jobs for pair in pairs_of(fields, job, rng)]
    asked = [job for _, pair in rows for job in (pair.less, pair.more)]
    times = predict_step_times(asked, shipped_predictor(), coverage=0.9)
    new = times.distance.max(axis=1) > MEASURED
    for index, (fields, pair) in enumerate(rows):
        at = slice(2 * index, 2 * index + 2)
        analytical_s, learned_s = times.jobs.analytical_s[at], times.step_time_s[at]
        measured = not new[at].any()

        def count(
            rule: str, formulas: float, learned: float = 0.0, fields: Any = fields, measured: bool = measured
        ) -> None:
            found.checks[rule] += 1
            if formulas > EXACT:
                found.formulas.append(Broken(rule=rule, share=formulas, fields=fields))
            if learned > EXACT:
                found.learned.append(Broken(rule=rule, share=learned, fields=fields, measured=measured))

        ratio, formulas = learned_s[0] / learned_s[1], analytical_s[0] / analytical_s[1]
        if pair.rule == WORDS:
            memory = _needed(pair.less) / _needed(pair.more)
            count(WORDS, max(abs(formulas - 1.0), abs(memory - 1.0)), abs(ratio - 1.0))
        elif pair.rule == DEVICES:
            # Where devices are wired to each other, more of them have more links.
            more_links = formulas > 1.0 and wired(pair.more)
            count(DEVICES, 0.0 if more_links else formulas - 1.0, ratio / max(formulas, 1.0) - 1.0)
        elif pair.rule in MOST_TIMES:
            most = MOST_TIMES[pair.rule]
            shorter = (0.0, 0.0) if pair.rule == JUMP else (formulas - 1.0, ratio - 1.0)
            count(
                pair.rule,
                max(1.0 / (formulas * most) - 1.0, shorter[0]),
                max(1.0 / (ratio * most) - 1.0, shorter[1]),
            )
        elif not pair.rule.startswith(MEMORY):
            count(pair.rule, formulas - 1.0, ratio - 1.0)
        if pair.rule.startswith(MEMORY) or pair.rule in ALIKE:
            rule = f"{MEMORY}{pair.rule.removeprefix(MEMORY)}"
            count(rule, _needed(pair.less) / _needed(pair.more) - 1.0)
        # Winograd's convolutions in fp32 do with fewer products than are counted.
        if pair.rule == ALIKE[0] and pair.more.runs.conv is not DType.FP32:
            rates = [
                model_flops_utilization(pair.more, float(s[1])) or 0.0 for s in (analytical_s, learned_s)
            ]
            count(RATE, rates[0] - 1.0, rates[1] - 1.0)
    return found


def wired(job: Job) -> bool:
    """Whether devices reach each other over links of their own instead of a switch or the host."""
    name = job.cluster.intra_node.name.lower()
    return bool(job.cluster.fabric.torus) or not ("switch" in name or "pcie" in name)


def _needed(job: Job) -> float:
    """Bytes of a device but for gathered parameters, which only sharding brings."""
    memory = dict(memory_of(Jobs.at(job)))
    memory.pop("gathered", None)
    return float(np.max(total_bytes(memory)))


def main() -> None:
    """Count, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--show", type=int, default=0, help="broken pairs shown of each rule")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    start = process_time()
    jobs = [*random_jobs(np.random.default_rng(given.seed), given.jobs)]
    rng = np.random.default_rng(given.seed + 1)  # the same jobs whatever the pairs of them draw
    total = Found(checks=Counter(), formulas=[], learned=[])
    for first in range(0, len(jobs), 250):
        found = check(jobs[first : first + 250], rng)
        total.checks += found.checks
        total.formulas += found.formulas
        total.learned += found.learned
    table = table_of(total)
    print(f"{len(jobs)} jobs, {sum(total.checks.values())} checks, {process_time() - start:.0f} s of a core")
    for rule, row in table.items():
        print(f"{rule:34}" + "".join(f" {name} {value:g}" for name, value in row.items()))
        broken = [item for item in (*total.formulas, *total.learned) if item.rule == rule]
        for item in sorted(broken, key=lambda item: -item.share)[: given.show]:
            print(f"    {100 * item.share:8.3f} % {dict(item.fields)}")
    if given.out:
        written: dict[str, Any] = {"jobs": len(jobs), "seed": given.seed, "rules": table}
        given.out.write_text(json.dumps(written, indent=2) + "\n", encoding="utf-8")


def table_of(found: Found) -> dict[str, dict[str, float]]:
    """Of each rule: checks, broken by the formulas, by the learned answer, and by how much at most [%]."""
    table = {}
    for rule, checks in sorted(found.checks.items()):
        formulas = [item.share for item in found.formulas if item.rule == rule]
        learned = [item.share for item in found.learned if item.rule == rule and not item.measured]
        told = sum(item.rule == rule and item.measured for item in found.learned)
        table[rule] = {
            "checks": checks,
            "formulas_broken": len(formulas),
            "formulas_worst_percent": round(100.0 * float(max(formulas, default=0.0)), 3),
            "learned_broken": len(learned),
            "learned_worst_percent": round(100.0 * float(max(learned, default=0.0)), 3),
            "learned_above_1_percent": sum(float(share) > SMALL for share in learned),
            "as_measured": told,
        }
    return table


def page_lines(counts: Mapping[str, Any]) -> list[str]:
    """Section of docs/reference/limits.md, of what `--out` wrote."""
    rules = counts["rules"]
    words = "not faster, or smaller | >pairs | >formulas | >learned | >by > 1 % | >worst %"
    return [
        "## Physics",
        "",
        f"{counts['jobs']:,} random valid jobs, each asked again with more work, on better",
        "hardware or in other words:",
        f"{sum(row['checks'] for row in rules.values()):,} pairs whose order is known. How many stand the",
        "other way round, by the formulas alone and as answered: the scatter of the trees, and that answers",
        "lie the lower below what is expected, the less of a job is known.",
        "",
        *markdown_lines(
            columns_of(words),
            [
                (
                    rule, row["checks"], row["formulas_broken"], row["learned_broken"],
                    row["learned_above_1_percent"], _worst(row),
                )
                for rule, row in rules.items()
            ],
        ),
        "",
    ]  # fmt: skip


def _worst(row: Mapping[str, float]) -> float:
    return max(row["learned_worst_percent"], row["formulas_worst_percent"])


if __name__ == "__main__":
    main()
