"""What is true of every training step, over random valid jobs: `python tests/fuzz/physics.py --jobs 5000`.

Each random job is asked again with more work, or on better hardware, or in other words. The cost model must
order the two by its formulas; the learned answer must as well, but where both jobs were measured.
"""

from __future__ import annotations

import argparse
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np

from precision_time.cost.job import Job, group_of_jobs
from precision_time.cost.memory.terms import memory_of, total_bytes
from precision_time.errors import PrecisionTimeError
from precision_time.hardware.catalog import known_devices
from precision_time.hardware.device import Device
from precision_time.learn.artifact import shipped_predictor
from precision_time.learn.serving import predict_step_times
from precision_time.precision.support import supported_precisions
from precision_time.request.request import Request

IMAGE = (
    "resnet18", "resnet50", "resnet101", "vgg16", "mobilenetv2_100", "efficientnet_b0", "densenet121",
    "convnext_tiny", "regnety_032",
)  # fmt: skip
PATCHES = ("vit_base_patch16_224", "deit_small_patch16_224")
TEXT = {
    "gpt2": 12, "gpt2-medium": 24, "tinyllama-1.1b": 22, "llama2-7b": 32, "bert-base": 12, "bert-large": 24,
    "t5-base": 12, "mixtral-8x7b": 32,
}  # fmt: skip
OTHER = ("dlrm", "ncf", "unet-industrial", "lstm-lm", "deepspeech2", "sd-v1.5")
BATCHES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256)
NETWORKS = ("ethernet-10g", "ethernet-25g", "ethernet-100g", "infiniband-edr", "infiniband-hdr", "infiniband-ndr")
STACKS = (None, None, "pytorch-eager", "ngc-pytorch", "megatron", "deepspeed", "jax", "tf-graph")
BETTER = 1.5
"""Times the rate that better hardware has."""
EXACT = 1e-9
MEASURED = 0.01
"""Novelty up to which a job was measured (`learn/serving.py`)."""


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
        "zero": int(one((0, 0, 0, 1, 2, 3))) if gpus > 1 else 0,
        "stack": one(STACKS),
    }
    if kind == "text":
        fields["seq_len"] = int(one((64, 128, 256, 384, 512, 768, 1024)))
        fields["checkpointing"] = one(("none", "none", "full"))
        fields["batch_size"] = min(fields["batch_size"], 32)
    if kind == "image":
        fields["image_size"] = int(one((128, 160, 192, 224, 224, 256, 288, 320)))
    if gpus > 8:
        fields["network"] = one(NETWORKS)
    if rng.random() < 0.2:
        fields["grad_accum"] = int(one((2, 4)))
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
    yield from changed("larger batch", batch_size=max(int(fields["batch_size"] * grown), fields["batch_size"] + 1))
    if "seq_len" in fields:
        yield from changed("longer sequence", seq_len=int(fields["seq_len"] * grown))
        depth = TEXT[fields["model"]]
        yield from changed("more layers", sizes={"num_layers": depth + int(rng.integers(1, depth))})
    if "image_size" in fields:
        yield from changed("larger image", image_size=fields["image_size"] + 32 * int(rng.integers(1, 4)))
    yield from changed("more devices, each with its batch", gpus=2 * fields["gpus"])
    if "network" in fields:
        at = NETWORKS.index(fields["network"])
        if at:
            yield from changed("slower network", network=NETWORKS[int(rng.integers(at))])
    for rule, better in _better(job):
        yield Pair(rule=rule, less=better, more=job)


def _better(job: Job) -> Iterator[tuple[str, Job]]:
    """The job on hardware of a user that has more of one thing than the catalog's, which stays its reference."""
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
    new = times.corrected.novelty.max(axis=1) > MEASURED
    for index, (fields, pair) in enumerate(rows):
        less, more = 2 * index, 2 * index + 1
        found.checks[pair.rule] += 1
        for name, seconds, where in (
            ("formulas", times.jobs.analytical_s, found.formulas),
            ("learned", times.step_time_s, found.learned),
        ):
            share = float(seconds[less] / seconds[more] - 1.0)
            if share > EXACT:
                measured = name == "learned" and not (new[less] or new[more])
                where.append(Broken(rule=pair.rule, share=share, fields=fields, measured=measured))
        if pair.rule in ("larger batch", "more layers"):
            rule = f"memory: {pair.rule}"
            found.checks[rule] += 1
            held = [_needed(job) for job in (pair.less, pair.more)]
            if held[0] >= held[1]:
                found.formulas.append(Broken(rule=rule, share=held[0] / held[1] - 1.0, fields=fields))
    return found


def _needed(job: Job) -> float:
    return float(np.max(total_bytes(memory_of(group_of_jobs([job])))))


def main() -> None:
    """Count, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--show", type=int, default=0, help="broken pairs shown of each rule")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    rng, start = np.random.default_rng(given.seed), process_time()
    total = Found(checks=Counter(), formulas=[], learned=[])
    done = 0
    while done < given.jobs:
        some = [*random_jobs(rng, min(250, given.jobs - done))]
        done += len(some)
        found = check(some, rng)
        total.checks += found.checks
        total.formulas += found.formulas
        total.learned += found.learned
    print(f"{done} jobs, {sum(total.checks.values())} checks, {process_time() - start:.0f} s of a core")
    by_rule: dict[str, list[list[Broken]]] = defaultdict(lambda: [[], [], []])
    for broken in total.formulas:
        by_rule[broken.rule][0].append(broken)
    for broken in total.learned:
        by_rule[broken.rule][2 if broken.measured else 1].append(broken)
    for rule, count in total.checks.items():
        cells = [
            f"{len(some)} (worst {100 * max((item.share for item in some), default=0.0):.3g} %)"
            for some in by_rule[rule]
        ]
        print(f"{rule:36} {count:6} formulas {cells[0]:24} learned {cells[1]:24} measured {cells[2]}")
        for some in by_rule[rule]:
            for item in sorted(some, key=lambda item: -item.share)[: given.show]:
                print(f"    {100 * item.share:8.3f} % {dict(item.fields)}")


if __name__ == "__main__":
    main()
