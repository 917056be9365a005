"""Three dense language models on 1,000 to 100,000 GPUs: docs/reference/scale.md and scale.svg.

For each number of devices the layouts of a plain grid that fit in memory are priced, and the fastest is
kept. Every number of the page is computed here; how far anyone has measured is read from the corpus.
"""

from __future__ import annotations

import argparse
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, product
from math import log
from pathlib import Path

import numpy as np

from precision_time import __version__
from precision_time.corpus.jobs import job_of
from precision_time.corpus.measurement import Measurement
from precision_time.corpus.store import load_corpus
from precision_time.cost.job import Job, Jobs
from precision_time.cost.stacks import get_stack_profile
from precision_time.cost.step import StepCosts, price
from precision_time.cost.terms import EXPOSED_TERMS
from precision_time.cost.utilization import model_flops_utilization
from precision_time.errors import LayoutError
from precision_time.hardware.catalog import get_cluster
from precision_time.hardware.device import Cluster
from precision_time.learn.artifact import shipped_predictor
from precision_time.parallel.layout import Layout, PipelineSchedule, Recompute, layers_of_stages
from precision_time.parallel.shape import model_shape
from precision_time.parallel.validation import check_model_layout
from precision_time.precision.catalog import get_policy
from precision_time.predict.answer import answer
from precision_time.predict.prediction import Prediction
from precision_time.predict.remedies import memory_of_job
from precision_time.workload.resolve import load_workload
from precision_time.workload.workload import Workload
from repository import write_page

DOCS = Path(__file__).resolve().parents[3] / "docs" / "reference"
PAGE, PLOT = DOCS / "scale.md", DOCS / "scale.svg"
DEVICE, NODE = "H100-SXM5-80GB", "DGX-H100"
SIZES = (1024, 2048, 4096, 8192, 16384, 32768, 65536, 98304)
STACK = get_stack_profile("megatron").stack(framework_year=2024.6)
TENSOR, PIPELINE = (2, 4, 8), (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
CONTEXT, MICRO_BATCHES, CHUNKS = (1, 2, 4), (1, 2, 4), (2, 3, 4, 6, 7, 8)
_LEAST_TOKENS = 2048
"""Tokens of a sequence that a context-parallel rank keeps."""
_FINALISTS = 6
"""Layouts whose pipelines are tried interleaved, too."""
_KEEPS = 0.5
"""A step scales while its time falls at least with the square root of the devices."""
_MEASURED_FROM = 1000
"""Devices of a measured run that is shown beside the curves."""
_SHOWN_LOSSES = 2
_LEAST_SHARE = 1.0
"""Percent of a step that a term takes somewhere to be shown."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Model:
    """A model, its sequences per step (at the least devices, where they grow), and its kin in the corpus."""

    name: str
    title: str
    batch_size: int
    seq_len: int
    family: str
    why: str


MODELS = tuple(
    Model(**entry)
    for entry in tomllib.loads(Path(__file__).with_name("scale_models.toml").read_text(encoding="utf-8"))[
        "model"
    ]
)
REGIMES = {"fixed": "Batch as it is", "growing": "Batch in proportion to the devices"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Point:
    """The fastest layout of a model on some devices."""

    job: Job
    costs: StepCosts
    prediction: Prediction

    @property
    def devices(self) -> int:
        """Devices in all."""
        return self.job.cluster.num_devices

    @property
    def mfu(self) -> float:
        """Model FLOPs utilization of the cost model, 0..1."""
        return model_flops_utilization(self.job, float(self.costs.step_time_s[0])) or 0.0

    @property
    def tokens(self) -> float:
        """Tokens per step."""
        return self.job.layout.global_batch_size * (self.job.workload.graph.seq_len or 1)

    def device_seconds(self) -> dict[str, float]:
        """Seconds of all devices per sequence, by term: what a sequence costs, and where it goes."""
        scale = self.devices / self.job.layout.global_batch_size
        return {name: float(seconds[0]) * scale for name, seconds in self.costs.terms.items()}


Curves = Mapping[tuple[str, str], Sequence[Point]]
"""By name of the model and regime of the batch."""


def tell(text: str) -> None:
    """A word on what is being done."""
    print(text, file=sys.stderr, flush=True)


def grid(
    workload: Workload, cluster: Cluster, batch_size: int, seq_len: int, layers: int
) -> Iterator[Layout]:
    """Layouts of the grid whose degrees fill the devices and whose batches divide."""
    for tp, pp, cp, micro in product(TENSOR, PIPELINE, CONTEXT, MICRO_BATCHES):
        ranks = tp * pp * cp
        if cluster.num_devices % ranks or pp > layers or (cp > 1 and seq_len // cp < _LEAST_TOKENS):
            continue
        dp = cluster.num_devices // ranks
        if batch_size % (dp * micro):
            continue
        yield Layout(
            tp=tp,
            pp=pp,
            cp=cp,
            dp=dp,
            zero_stage=1 if dp * cp > 1 else 0,
            sequence_parallel=tp > 1,
            stage_layers=layers_of_stages(layers, Layout(pp=pp)) if layers % pp else (),
            micro_batch_size=float(micro),
            num_microbatches=batch_size // (dp * micro),
        )


def interleaved(layout: Layout, layers: int) -> Iterator[Layout]:
    """The layout with its stages cut into chunks: micro batches then go in rounds of the stages."""
    if layout.pp == 1 or layers % layout.pp or layout.num_microbatches % layout.pp:
        return
    for chunks in CHUNKS:
        if (layers // layout.pp) % chunks == 0:
            yield replace(layout, schedule=PipelineSchedule.INTERLEAVED, vpp=chunks)


def fitting(job: Job) -> Job | None:
    """The job with as little recomputation as its memory allows; None where even all of it is too little."""
    for mode in Recompute:
        tried = replace(job, layout=replace(job.layout, recompute=mode))
        if sum(memory_of_job(tried).values()) <= job.cluster.device.memory_bytes:
            return tried
    return None


def fastest(model: Model, workload: Workload, devices: int, batch_size: int, precision: str) -> Job | None:
    """The job under the fastest layout of the grid; None where none fits."""
    cluster = get_cluster(device=DEVICE, num_devices=devices, node_type=NODE)
    layers = model_shape(workload.graph).num_layers or 1
    base = Job(
        workload=workload,
        cluster=cluster,
        precision=get_policy(precision, variant="megatron" if precision == "bf16-mixed" else None),
        layout=Layout(dp=devices),
        stack=STACK,
    )

    def best_of(layouts: Sequence[Layout]) -> list[Job]:
        jobs = [job for layout in layouts if (job := _fits(base, layout)) is not None]
        seconds = [float(price(Jobs.at(job)).step_time_s[0]) for job in jobs]
        return [jobs[index] for index in np.argsort(seconds, kind="stable")]

    plain = best_of(list(grid(workload, cluster, batch_size, model.seq_len, layers)))
    if not plain:
        return None
    leaders = [job.layout for job in plain[:_FINALISTS]]
    chunked = [each for layout in leaders for each in interleaved(layout, layers)]
    return best_of([*leaders, *chunked])[0]


def _fits(base: Job, layout: Layout) -> Job | None:
    shape = model_shape(base.workload.graph)
    try:
        check_model_layout(layout, shape, num_devices=base.cluster.num_devices)
    except LayoutError:
        return None
    return fitting(replace(base, layout=layout))


def curve(model: Model, regime: str, precision: str) -> list[Point]:
    """The fastest layouts at every size."""
    workload = load_workload(model.name, seq_len=model.seq_len)
    points = []
    for devices in SIZES:
        batch_size = model.batch_size * (devices // SIZES[0] if regime == "growing" else 1)
        job = fastest(model, workload, devices, batch_size, precision)
        tell(f"{model.title}, {regime} batch, {devices:,} devices: {job.layout if job else 'nothing fits'}")
        if job is not None:
            points.append(
                Point(
                    job=job,
                    costs=price(Jobs.at(job)),
                    prediction=answer(Jobs.of([job]), shipped_predictor())[0],
                )
            )
    return points


def stop_of(points: Sequence[Point]) -> int | None:
    """Index of the last point up to which the step keeps getting shorter fast enough; None: all of them."""
    for index, (before, after) in enumerate(pairwise(points)):
        gained = log(_time_per_token(before) / _time_per_token(after)) / log(after.devices / before.devices)
        if gained < _KEEPS:
            return index
    return None


def _time_per_token(point: Point) -> float:
    return float(point.costs.step_time_s[0]) / point.tokens


def losses(first: Point, last: Point) -> list[tuple[str, float]]:
    """By how many percent of the first point's cost of a sequence each term has grown, largest first."""
    before, after = first.device_seconds(), last.device_seconds()
    whole = sum(before.values())
    grown = {name: (after[name] - before.get(name, 0.0)) / whole * 100.0 for name in after}
    return sorted(grown.items(), key=lambda item: -item[1])


def word(term: str) -> str:
    """A term of the step as people call it."""
    return term.removesuffix("_s").replace("_", " ")


def layout_words(layout: Layout) -> str:
    """Degrees, batches and recomputation in short."""
    degrees = [f"tp{layout.tp}", f"pp{layout.pp}"]
    if layout.vpp > 1:
        degrees[-1] += f" in {layout.vpp} chunks"
    if layout.cp > 1:
        degrees.append(f"cp{layout.cp}")
    batches = f"{layout.micro_batch_size:g} x {layout.num_microbatches}"
    return f"{' '.join(degrees)} dp{layout.dp}, {batches}, {layout.recompute.value}"


def largest(rows: Sequence[Measurement], beginning: str, device: str | None = None) -> Measurement | None:
    """The run on the most devices of the models whose names begin so, on any device or on `device`."""
    chosen = [row for row in rows if row.model.startswith(beginning) and device in (None, row.device)]
    return max(chosen, key=lambda row: row.num_devices, default=None)


def limit_words(rows: Sequence[Measurement], model: Model) -> str:
    """How far the corpus goes, in two sentences."""
    own, here = largest(rows, model.name), largest(rows, model.name, DEVICE)
    family = largest(rows, model.family, DEVICE)
    runs = [f"Its largest run in the corpus: {_run_words(own)}"]
    if here is not own:
        runs.append(f"on {DEVICE}: {_run_words(here)}")
    if family is not here and family is not None:
        runs.append(f"of its family on {DEVICE}: {family.model}, {_run_words(family)}")
    tokens = [
        row.global_batch_size * row.seq_len
        for row in rows
        if row.model == model.name and row.global_batch_size and row.seq_len
    ]
    return f"{'; '.join(runs)}. Its largest batch there: {max(tokens, default=0.0) / 1e6:.1f}M tokens."


def _run_words(row: Measurement | None) -> str:
    return "none" if row is None else f"{row.num_devices:,} x {row.device} ({row.precision}, {row.source})"


def measured_limit(rows: Sequence[Measurement], model: Model) -> int:
    """Devices of the largest run of the model, whatever it ran on; 0 without one."""
    found = largest(rows, model.name)
    return 0 if found is None else found.num_devices


def table_lines(points: Sequence[Point], limit: int) -> Iterator[str]:
    """The curve of a model as a table; rows beyond what was measured bear a mark."""
    yield "| devices | layout | tokens per step | step | tokens/s | MFU | efficiency | memory | corrected |"
    yield "|---:|---|---:|---:|---:|---:|---:|---:|---:|"
    for point in points:
        mark = " *" if point.devices > limit else ""
        efficiency = points[0].devices * _time_per_token(points[0]) / (point.devices * _time_per_token(point))
        interval = point.prediction.interval
        yield (
            f"| {point.devices:,}{mark} | {layout_words(point.job.layout)} | {point.tokens / 1e6:.1f}M | "
            f"{point.costs.step_time_s[0]:.3g} s | {1.0 / _time_per_token(point) / 1e6:.3g}M | "
            f"{point.mfu * 100.0:.0f} % | {efficiency * 100.0:.0f} % | "
            f"{sum(memory_of_job(point.job).values()) / 2**30:.0f} GiB | "
            f"{point.prediction.step_time_s:.3g} s ({interval.low_s:.3g} to {interval.high_s:.3g}) |"
        )


def why_words(points: Sequence[Point]) -> str:
    """Where a curve stops scaling, and what has grown by then."""
    stop = stop_of(points)
    if stop is None:
        place, last = f"It scales to the {points[-1].devices:,} devices of the table", points[-1]
    else:
        place = f"It stops scaling at {points[stop].devices:,} devices"
        last = points[stop + 1]
    missing = [f"{devices:,}" for devices in SIZES if devices not in {point.devices for point in points}]
    nothing = f" On {', '.join(missing)} devices no layout of the grid divides the batch and fits." * bool(
        missing
    )
    grown = [item for item in losses(points[0], last) if item[1] > 0.0]
    whole = sum(last.device_seconds().values()) / sum(points[0].device_seconds().values())
    named = ", ".join(f"{word(name)} +{percent:.0f} %" for name, percent in grown[:_SHOWN_LOSSES])
    return (
        f"{place}. On {last.devices:,} devices a token costs {(whole - 1.0) * 100.0:+.0f} % "
        f"device time over {points[0].devices:,}, above all {named} of that cost.{nothing}"
    )


def share_lines(points: Sequence[Point]) -> Iterator[str]:
    """Where the time of the devices goes: percent of the step by term."""
    shares = {
        name: [float(point.costs.terms[name][0]) / point.costs.step_time_s[0] * 100.0 for point in points]
        for name in sorted(EXPOSED_TERMS)
    }
    shown = {name: values for name, values in shares.items() if max(values) >= _LEAST_SHARE}
    yield f"| devices | computing | {' | '.join(map(word, shown))} |"
    yield "|---:" * (2 + len(shown)) + "|"
    for index, point in enumerate(points):
        computing = float(point.costs.compute_s[0]) / point.costs.step_time_s[0] * 100.0
        cells = (f"{values[index]:.0f} %" for values in (*shown.values(),))
        yield f"| {point.devices:,} | {computing:.0f} % | {' | '.join(cells)} |"


def measured_lines(rows: Sequence[Measurement]) -> Iterator[str]:
    """Runs of the three models on many devices of any kind, with what we say of them."""
    evidence = shipped_predictor().measurements
    folds = dict(zip(evidence.measurement_ids.tolist(), evidence.predicted_s.tolist(), strict=True))
    names = {model.name for model in MODELS}
    yield "| model | devices | precision | batch | measured | cost model | configuration folds | source |"
    yield "|---|---|---|---:|---:|---:|---:|---|"
    chosen = [row for row in rows if row.model in names and row.num_devices >= _MEASURED_FROM]
    for row in sorted(chosen, key=lambda row: (row.model, row.num_devices)):
        seconds = float(price(Jobs.at(job_of(row))).step_time_s[0])
        held = folds.get(row.row_id)
        yield (
            f"| {row.model} | {row.num_devices:,} x {row.device} | {row.precision} | "
            f"{row.global_batch_size or 0:,.0f} | {row.step_time_s:.3g} s | {_error(seconds, row)} | "
            f"{'-' if held is None else _error(held, row)} | {row.source} |"
        )


def _error(seconds: float, row: Measurement) -> str:
    return f"{(seconds / row.step_time_s - 1.0) * 100.0:+.0f} %"


HEADER = """# Three models from 1,000 to 100,000 GPUs

Generated by `python packages/papers/studies/scale.py`; do not edit. Version {version}.

{precision} on {device}, {node}, {network} between the nodes, the {stack} stack of {year}. For every number
of devices: the fastest layout, by the cost model, of a grid that fits in memory (tp {tensor}; pp up to
{stages}; cp up to {context} while {tokens:,} tokens are left to a rank; micro batches up to {micro}; ZeRO 1;
1F1B, or interleaved in up to {chunks} chunks; the least recomputation that fits).

![Throughput and utilization by number of devices](scale.svg)

How to read the tables:

* **step**, **tokens/s**, **MFU**, **efficiency** (device time per token of the first row over that of this
  one) and the shares of the step are the cost model's: physics under its assumptions, the straggler allowance
  among them.
* **corrected** is the shipped predictor's answer with its 90 % interval. Its trees have seen nothing beyond
  the largest measured run and carry on with what they last saw.
* A star marks rows on more devices than any measured run of the model: nobody's measurement speaks for them.
* **Scaling** is said to stop where twice the devices give less than {least:.2f} times the tokens per second.
* "Batch as it is" keeps the batch that the model was trained with: the same training, sooner. "In
  proportion" gives every device as much as on the fewest: what the machine can do. Beyond the critical batch
  (McCandlish et al. 2018), though, more tokens per step hardly save steps: tokens/s are then no progress.
* Failures, restarts, checkpoints and evaluation are in none of it; at such sizes they are no trifle.
"""
MEASURED = f"""## What was measured

All runs of these models in the corpus on {_MEASURED_FROM:,} devices or more, with the error of the cost model
alone and of the corrected answer that has not seen the configuration: the ground under the tables above.

"""


def page(
    curves: Mapping[tuple[str, str], Sequence[Point]], rows: Sequence[Measurement], precision: str
) -> str:
    """The whole of docs/reference/scale.md."""
    cluster = get_cluster(device=DEVICE, num_devices=SIZES[0], node_type=NODE)
    parts = [
        HEADER.format(
            version=__version__,
            precision=precision,
            device=DEVICE,
            node=NODE,
            network=cluster.inter_node.name,
            stack=STACK.profile,
            year=int(STACK.framework_year),
            tensor=", ".join(map(str, TENSOR)),
            stages=max(PIPELINE),
            context=max(CONTEXT),
            tokens=_LEAST_TOKENS,
            micro=max(MICRO_BATCHES),
            chunks=max(CHUNKS),
            least=2.0**_KEEPS,
        )
    ]
    for model in MODELS:
        parts.append(f"## {model.title}\n\nBatch: {model.why}. {limit_words(rows, model)}\n")
        for regime, title in REGIMES.items():
            points = curves[model.name, regime]
            parts.append(f"### {model.title}: {title[0].lower()}{title[1:]}\n")
            if not points:
                parts.append("No layout of the grid fits.\n")
                continue
            parts.append("\n".join(table_lines(points, measured_limit(rows, model))) + "\n")
            parts.append(why_words(points) + " Shares of the step:\n")
            parts.append("\n".join(share_lines(points)) + "\n")
    parts.append(MEASURED + "\n".join(measured_lines(rows)) + "\n")
    return "\n".join(parts)


def draw(curves: Curves, rows: Sequence[Measurement]) -> None:
    """Write docs/reference/scale.svg: tokens per second, and MFU, by number of devices."""
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams.update({"svg.hashsalt": "scale", "svg.fonttype": "none", "font.size": 9})
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(2, len(MODELS), figsize=(11, 6.5), sharex=True, layout="constrained")
    colours = {"fixed": "#b5542b", "growing": "#2b6cb0"}
    for column, model in enumerate(MODELS):
        limit = measured_limit(rows, model)
        for (name, regime), points in curves.items():
            if name != model.name or not points:
                continue
            devices = [point.devices for point in points]
            heights = [[1e-6 / _time_per_token(point), point.mfu * 100.0] for point in points]
            label = f"{REGIMES[regime]} ({points[0].job.precision.name})"
            style = {"marker": "o", "ms": 3, "color": colours[regime], "label": label}
            for axis, values in zip(axes[:, column], zip(*heights, strict=True), strict=True):
                axis.plot(devices, values, **style)
        first = curves[model.name, "fixed"][0]
        ideal = [devices / first.devices / _time_per_token(first) / 1e6 for devices in SIZES]
        axes[0][column].plot(SIZES, ideal, ":", color="#777777", label="ideal")
        ran = [row for row in rows if row.model == model.name and row.device == DEVICE]
        ran = [row for row in ran if row.num_devices >= _MEASURED_FROM]
        for precision, runs in _by_precision(ran).items():
            rates = [
                (row.global_batch_size or 0) * (row.seq_len or 0) / row.step_time_s / 1e6 for row in runs
            ]
            alike = precision == first.job.precision.name
            style = {
                "marker": "x" if alike else "+",
                "color": "black" if alike else "#999999",
                "ls": "",
                "ms": 5,
            }
            label = f"measured ({precision})"
            axes[0][column].plot([row.num_devices for row in runs], rates, label=label, **style)
        for axis in axes[:, column]:
            axis.axvspan(max(limit, SIZES[0]), SIZES[-1] * 1.2, color="#000000", alpha=0.06, lw=0)
            axis.set_xscale("log")
        axes[0][column].set_yscale("log")
        axes[0][column].set_title(model.title)
        axes[1][column].set_ylim(bottom=0)
        axes[1][column].set_xlabel(f"{DEVICE}; gray: more than ever measured")
    axes[0][0].set_ylabel("million tokens/s")
    axes[1][0].set_ylabel("MFU, %")
    entries = {
        label: handle
        for axis in axes[0]
        for handle, label in zip(*axis.get_legend_handles_labels(), strict=True)
    }
    figure.legend(
        entries.values(), entries.keys(), loc="outside lower center", ncols=3, frameon=False, fontsize=8
    )
    figure.savefig(PLOT, metadata={"Date": None})


def _by_precision(rows: Sequence[Measurement]) -> dict[str, list[Measurement]]:
    """Measured runs apart by precision: only those at the precision of the curves can be set against them."""
    groups: dict[str, list[Measurement]] = {}
    for row in sorted(rows, key=lambda row: row.precision):
        groups.setdefault(row.precision, []).append(row)
    return groups


def main() -> None:
    """Price, then write the page and its picture."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--precision", default="bf16-mixed")
    options = parser.parse_args()
    rows = [row for row in load_corpus() if row.usable]
    curves = {
        (model.name, regime): curve(model, regime, options.precision)
        for model in MODELS
        for regime in REGIMES
    }
    write_page(PAGE, page(curves, rows, options.precision))
    draw(curves, rows)


if __name__ == "__main__":
    main()
