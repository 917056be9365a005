"""What the corpus makes of a source, and what a user would be told who types its most typical run.

For every source: rows priced, error and bias of the cost formulas alone over all of them, and the run of the
most frequent model, device, device count and precision with the median step time: its measured time, and the
answer of the shipped predictor to the words that a user would type (no stack, no network, no software year).

Usage: python new_sources.py [--source NAME ...]
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from precision_time.corpus.jobs import UnsupportedRow, job_of, request_of
from precision_time.corpus.measurement import Measurement
from precision_time.corpus.store import load_corpus
from precision_time.cost.stacks import get_stack_profile, stack_names
from precision_time.errors import PrecisionTimeError
from precision_time.learn.measured import measured_table
from precision_time.parallel.layout import Recompute
from precision_time.predict.api import predict
from precision_time.request.request import Request

_TYPED = ("model", "sizes", "seq_len", "image_size", "task", "dataset", "optimizer")
"""What a user says of the model, beside the layout."""
_FRAMEWORKS = {get_stack_profile(name).framework for name in stack_names()} - {"pytorch"}
"""Frameworks that a user would name."""
_CHOICES: tuple[Callable[[Measurement], Any], ...] = (
    lambda row: row.model,
    lambda row: row.device,
    lambda row: row.num_devices,
    lambda row: row.precision,
)


def typical(rows: Sequence[Measurement]) -> Measurement:
    """The median run of the most frequent model, device, device count and precision."""
    for key in _CHOICES:
        usual = Counter(map(key, rows)).most_common(1)[0][0]
        rows = [row for row in rows if key(row) == usual]
    return sorted(rows, key=lambda row: row.step_time_s)[len(rows) // 2]


def typed(row: Measurement) -> Request:
    """The run in the words of a user: model, devices, precision, batch, degrees."""
    given, layout = request_of(row).given(), row.layout
    assert layout is not None
    degrees = {name: getattr(layout, name) for name in ("tp", "pp", "cp", "ep", "vpp")}
    options: dict[str, Any] = {name: degree for name, degree in degrees.items() if degree > 1}
    options |= {"num_microbatches": layout.num_microbatches, "zero_stage": layout.zero_stage, "uneven": True}
    if layout.recompute is not Recompute.NONE:
        options["recompute"] = layout.recompute.value
    return Request.of(
        {name: given[name] for name in _TYPED if name in given}
        | {"device": row.device, "gpus": row.num_devices, "precision": row.precision}
        | {"batch_size": layout.micro_batch_size, "layout": options}
        | ({"framework": row.framework} if row.framework in _FRAMEWORKS else {})
    )


def answer_s(row: Measurement) -> float:
    """What `precision-time predict` says of the run; NaN where it refuses."""
    try:
        return predict(typed(row)).step_time_s
    except PrecisionTimeError as error:
        print(f"refused: {error}")
        return float("nan")


def supported(row: Measurement) -> bool:
    """Whether the run can be priced."""
    try:
        job_of(row)
    except UnsupportedRow:
        return False
    return True


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--source", nargs="*", help="names of sources; all of them if left out")
    wanted = parser.parse_args().source
    rows = [row for row in load_corpus() if row.usable and (not wanted or row.source in wanted)]
    print("| source | priced | formulas | bias | typical run | measured s | answered s | error |")
    print("|---|--:|--:|--:|---|--:|--:|--:|")
    for source in sorted({row.source for row in rows}):
        own = [row for row in rows if row.source == source and supported(row)]
        if not own:
            print(f"| {source} | 0 | | | | | | |")
            continue
        table = measured_table(own)
        ratio = table.jobs.analytical_s / table.measured_s
        off, bias = np.mean(np.abs(ratio - 1)), -np.median(np.log(ratio))
        run = typical(own)
        answer = answer_s(run)
        print(
            f"| {source} | {len(own)} | {off:.0%} | {bias:+.2f} | "
            f"{run.model}, {run.num_devices} x {run.device}, {run.precision} | {run.step_time_s:.3g} | "
            f"{answer:.3g} | {answer / run.step_time_s - 1:+.0%} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
