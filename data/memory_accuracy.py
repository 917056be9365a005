"""Predicted against published memory: what fits, what does not, and measured peaks, term by term.

Run: PYTHONPATH=src python data/memory_accuracy.py [--terms]
"""

from __future__ import annotations

import argparse
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from precision_time.corpus.jobs import UnsupportedRow, job_of
from precision_time.corpus.measurement import Measurement
from precision_time.corpus.store import corpus_store
from precision_time.cost.job import Job, Jobs
from precision_time.cost.memory import memory_of
from precision_time.cost.stacks import get_stack_profile
from precision_time.hardware.catalog import get_cluster
from precision_time.parallel.layout import CpCommType, Layout, Offload, PipelineSchedule, Recompute
from precision_time.precision.catalog import get_policy
from precision_time.units import GIBI
from precision_time.workload.resolve import load_workload

_DATA = Path(__file__).parents[1] / "tests" / "cost"
_EVERY_SECOND = 0.5
_ENUMS = {
    "recompute": Recompute,
    "cp_comm_type": CpCommType,
    "offload": Offload,
    "schedule": PipelineSchedule,
}
_PEAK = re.compile(r"(?:peak memory|mem|per GPU memory|memory use|mem_MB=) ?([\d.]+) ?(GiB|GB|MB)?")
ALLOCATOR_SOURCES = frozenset({"torchtitan", "torchao", "vocabulary-parallelism", "simumax"})
"""Sources that state what PyTorch's allocator held: context and collective buffers are beside it."""
PEAK_SOURCES = (
    "torchtitan",
    "torchao",
    "bigscience",
    "mli-transformers-benchmarks",
    "cdecatapult",
    "vocabulary-parallelism",
)
"""Sources whose rows state a peak. Lucid's are kept out: their context was read off them."""
FITTED_ON = {
    "simumax": "share of the allocator that is not handed out",
    "torchtitan": "the same share with expandable segments",
    "bigscience": "bytes of DeepSpeed's optimizer step",
}
"""What of the memory model was fitted on a source; the others were not looked at for a constant."""
_BASELINE = re.compile(r"full-exp\.txt#L(\d+)$")
_METHODS = 6
"""Lines of a vocabulary in the table of vocabulary-parallelism: the first is plain Megatron-LM."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Peak:
    """A measured peak and the prediction of it."""

    source: str
    job: Job
    stated_bytes: float
    terms: Mapping[str, float]

    @property
    def predicted_bytes(self) -> float:
        """What the source counts of the terms."""
        beside = self.terms["framework"] if self.source in ALLOCATOR_SOURCES else 0.0
        return sum(self.terms.values()) - beside

    @property
    def error(self) -> float:
        """Relative, positive where the prediction is too high."""
        return self.predicted_bytes / self.stated_bytes - 1.0


def published_cases() -> list[dict[str, Any]]:
    """The cases of published_memory.toml."""
    return _tables("published_memory.toml", "case")


def published_peaks() -> list[dict[str, Any]]:
    """The runs of measured_peaks.toml."""
    return _tables("measured_peaks.toml", "peak")


def _tables(file: str, name: str) -> list[dict[str, Any]]:
    tables: list[dict[str, Any]] = tomllib.loads((_DATA / file).read_text(encoding="utf-8"))[name]
    return tables


def job_of_case(case: Mapping[str, Any]) -> Job:
    """The job that a case describes."""
    cluster = get_cluster(device=case["device"], num_devices=case.get("devices", 1))
    if "memory_gib" in case:
        device = replace(cluster.device, memory_bytes=case["memory_gib"] * GIBI)
        cluster = replace(cluster, device=device)
    fields: dict[str, Any] = {
        name: _ENUMS.get(name, _same)(value) for name, value in case.get("layout", {}).items()
    }
    return Job(
        workload=load_workload(
            case["model"],
            seq_len=case.get("seq_len"),
            sizes=case.get("sizes"),
            task=case.get("task", ""),
            optimizer=case.get("optimizer"),
        ),
        cluster=cluster,
        precision=get_policy(case["precision"], variant=case.get("variant")),
        layout=Layout(**fields),
        stack=get_stack_profile(case["stack"]).stack(framework_year=case.get("year")),
    )


def _same(value: Any) -> Any:
    return value


def terms_of(job: Job) -> dict[str, float]:
    """Named bytes on the fullest device."""
    found = memory_of(Jobs.at(job))
    return {name: float(np.asarray(value).reshape(-1)[0]) for name, value in found.items()}


def stated_peak_bytes(row: Measurement) -> float | None:
    """The peak that a row's notes state; None where they do not."""
    match = _PEAK.search(row.notes)
    if match is None or not match[1].strip("."):
        return None
    unit = 1e6 if row.source == "cdecatapult" else GIBI
    return float(match[1]) * unit


def measured_peaks() -> Iterator[Peak]:
    """Runs of measured_peaks.toml, and rows of the corpus whose job says what their peak depends on."""
    for run in published_peaks():
        ran = job_of_case(run)
        yield Peak(
            source=run["source"], job=ran, stated_bytes=run["reserved_gib"] * GIBI, terms=terms_of(ran)
        )
    for source in PEAK_SOURCES:
        for row in corpus_store().measurements(source=source):
            stated = stated_peak_bytes(row)
            if stated is None:
                continue
            try:
                job = _completed(row, job_of(row))
            except UnsupportedRow:
                continue
            if job is not None:
                yield Peak(source=source, job=job, stated_bytes=stated, terms=terms_of(job))


def jobs_that_ran(source: str) -> Iterator[Job]:
    """The usable rows of a source: each of them fitted."""
    for row in corpus_store().measurements(source=source, usable_only=True):
        try:
            job = _completed(row, job_of(row))
        except UnsupportedRow:
            continue
        if job is not None:
            yield job


def _completed(row: Measurement, job: Job) -> Job | None:
    """The job with what its source says elsewhere; None where it cannot be described.

    torchtitan's Llama 3 8B configuration checkpoints selectively, operator by operator, unless said
    otherwise; the corpus prices that as half of the layers run again. It shards over data and context
    ranks alike. Weights that are themselves int8 (quantised training) have no policy. Of the methods that
    vocabulary-parallelism compares, only the first is a layout.
    """
    line = _BASELINE.search(row.source_ref)
    if row.source == "vocabulary-parallelism" and (line is None or int(line[1]) % _METHODS != 2):  # noqa: PLR2004
        return None
    if row.source == "torchao" and job.precision.name == "int8-mixed":
        return None
    layout = job.layout
    if "every 2nd layer" in row.notes:
        return job
    if layout.recompute is Recompute.FULL and layout.recompute_layers == _EVERY_SECOND:
        layout = replace(layout, recompute=Recompute.SELECTIVE, recompute_layers=0.0)
    if row.source == "torchtitan":
        layout = replace(layout, zero_stage=3 if layout.data_ranks > 1 else 0)
        if layout.recompute is Recompute.NONE:
            layout = replace(layout, recompute=Recompute.SELECTIVE)
    return replace(job, layout=layout)


def summary(peaks: Sequence[Peak]) -> str:
    """Mean absolute and mean error of some peaks."""
    errors = np.array([peak.error for peak in peaks])
    return f"{len(errors)} rows, mean absolute {np.abs(errors).mean():.1%}, mean {errors.mean():+.1%}"


def _print_cases(with_terms: bool) -> None:
    wrong = 0
    for case in published_cases():
        job = job_of_case(case)
        terms = terms_of(job)
        needed, capacity = sum(terms.values()), job.cluster.device.memory_bytes
        right = (needed <= capacity) == case["fits"]
        wrong += not right
        said = "fits" if case["fits"] else "does not fit"
        print(
            f"{'ok   ' if right else 'WRONG'} {case['name']}: "
            f"{needed / GIBI:.1f} of {capacity / GIBI:.1f} GiB, published: {said}"
        )
        if with_terms:
            print("      " + _listed(terms))
    print(f"{len(published_cases()) - wrong} of {len(published_cases())} published cases judged rightly\n")


def _print_peaks(with_terms: bool) -> None:
    peaks = list(measured_peaks())
    for peak in peaks:
        layout, workload = peak.job.layout, peak.job.workload
        print(
            f"{peak.source:12.12s} {workload.name:18.18s} {workload.graph.seq_len or ''!s:>6s} "
            f"{peak.job.precision.name:10s} dp{layout.dp} tp{layout.tp} pp{layout.pp} cp{layout.cp} "
            f"zero{layout.zero_stage} batch {layout.micro_batch_size:g} {layout.recompute.value:9s} "
            f"stated {peak.stated_bytes / GIBI:6.1f} predicted {peak.predicted_bytes / GIBI:6.1f} GiB "
            f"{peak.error:+.1%}"
        )
        if with_terms:
            print("      " + _listed(peak.terms))
    for source in dict.fromkeys(peak.source for peak in peaks):
        fitted = f"; fitted on it: {FITTED_ON[source]}" if source in FITTED_ON else ""
        print(f"{source}: {summary([peak for peak in peaks if peak.source == source])}{fitted}")
    print(f"sources that nothing was fitted on: {summary([p for p in peaks if p.source not in FITTED_ON])}")
    print(f"all: {summary(peaks)}")


def _listed(terms: Mapping[str, float]) -> str:
    largest = sorted(terms.items(), key=lambda item: -item[1])
    return ", ".join(f"{name} {value / GIBI:.1f}" for name, value in largest if value > 0.05 * GIBI)


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--terms", action="store_true", help="Show every term of every case [GiB].")
    given = parser.parse_args()
    _print_cases(given.terms)
    _print_peaks(given.terms)


if __name__ == "__main__":
    main()
