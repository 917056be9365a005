"""Fit what architectures sustain of their dense peaks (`cost/data/kernels.toml`, table `sustained`).

    python scripts/calibrate_sustained.py [--without SOURCE ...] [--write]

Matrix products in a training step run at the clocks that power allows, not at those of the data sheet, and
beside kernels that a single timed product does not meet. The utilization of the class GEMM comes from timings
of single products; what is left is read off whole steps here. In a step that spends most of its time in
products, measured = rest + x * products, both by the cost model, gives x for the row. An architecture and
width takes the median over sources of the median row of each source (a source may be slow for reasons of its
software, which must not slow the device), drawn towards the mean of all architectures by one source's weight;
the present share is divided by it.

Rows: transformers that spend at least 60 % of the modeled step in products (GEMM, attention, what is
recomputed), x between 1/4 and 4.
"""

from __future__ import annotations

import argparse
import re
from collections import defaultdict
from pathlib import Path

import numpy as np

from precision_time.corpus.store import load_corpus
from precision_time.cost.roofline import sustained_shares
from precision_time.hardware.catalog import get_device, known_devices
from precision_time.learn.table import measured_table
from precision_time.precision.catalog import get_policy
from precision_time.precision.policy import DType

DATA = Path(__file__).resolve().parents[1] / "src" / "precision_time" / "cost" / "data" / "kernels.toml"
_WIDTHS = {4.0: 0, 2.0: 1, 1.0: 2, 0.5: 3}
_LEAST_SHARE = 0.6
_LEAST_ROWS = 3
_BOUND = 4.0
_LEAST, _MOST = 0.3, 1.0
PRODUCTS = ("share.gemm_s", "share.attention_s", "share.recompute_s")

Found = dict[tuple[str, int], dict[str, list[float]]]


def factors(without: set[str]) -> Found:
    """Factor x of every usable row, by architecture, width and source."""
    rows = [row for row in load_corpus() if row.source not in without and row.usable]
    table = measured_table(rows)
    shares = table.jobs.features[:, [table.jobs.names.index(name) for name in PRODUCTS]]
    share = shares.sum(axis=1)
    found: Found = defaultdict(lambda: defaultdict(list))
    for index in np.flatnonzero((share >= _LEAST_SHARE) & (shares[:, 0] > 0.0)):
        row = table.measurements[index]
        matmul = get_policy(row.precision, variant=row.precision_variant or None).matmul
        if matmul in (DType.FP32, DType.FP64):
            continue
        ratio = table.measured_s[index] / table.jobs.analytical_s[index]
        x = (ratio - (1.0 - share[index])) / share[index]
        if 1.0 / _BOUND < x < _BOUND:
            found[get_device(row.device).arch, _WIDTHS[matmul.num_bytes]][row.source].append(x)
    return found


def fitted(found: Found) -> dict[tuple[str, int], float]:
    """Share of the peak for every architecture and width with enough rows."""
    logs = {
        key: [np.log(np.median(xs)) for xs in sources.values() if len(xs) >= _LEAST_ROWS]
        for key, sources in found.items()
    }
    logs = {key: values for key, values in logs.items() if values}
    present = {key: np.log(sustained_shares(key[0])[key[1]]) for key in logs}
    centre = float(np.mean([present[key] - np.mean(values) for key, values in logs.items()]))
    shares = {}
    for key, values in logs.items():
        own = present[key] - float(np.median(values))
        drawn = (len(values) * own + centre) / (len(values) + 1)
        shares[key] = float(np.clip(np.exp(drawn), _LEAST, _MOST))
    return shares


def main() -> None:
    """Print the shares, and write them if asked."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--without", action="append", default=[], metavar="SOURCE")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    found = factors(set(options.without))
    shares = fitted(found)
    for (arch, width), share in sorted(shares.items()):
        medians = {name: (round(float(np.median(xs)), 2), len(xs)) for name, xs in found[arch, width].items()}
        print(f"{arch:16s} width {width} {sustained_shares(arch)[width]:.2f} -> {share:.2f}  {medians}")
    if options.write:
        write(shares)


def completed(shares: dict[tuple[str, int], float]) -> dict[str, list[float]]:
    """Shares of every width for each architecture of the catalog whose own or whose family's rows say one.

    A width without rows takes the mean of the architecture's others; an architecture without rows that of
    its family (tpu, cdna, gaudi); `other` is the mean of all.
    """
    mean = [_mean([v for (_, w), v in shares.items() if w == width]) for width in range(len(_WIDTHS))]
    overall = _mean(list(shares.values()))
    table = {"other": [value or overall for value in mean]}
    for arch in sorted({device.arch for device in known_devices()}):
        own = {width: shares[arch, width] for width in range(len(_WIDTHS)) if (arch, width) in shares}
        family = [v for (name, _), v in shares.items() if _family(name) == _family(arch)]
        rest = _mean(list(own.values())) or (_mean(family) if _family(arch) != arch else 0.0)
        if rest:
            table[arch] = [own.get(width, rest) for width in range(len(_WIDTHS))]
    return table


def _family(arch: str) -> str:
    return arch.rstrip("0123456789xep")


def _mean(values: list[float]) -> float:
    return float(np.exp(np.mean(np.log(values)))) if values else 0.0


def write(shares: dict[tuple[str, int], float]) -> None:
    """Replace the table."""
    lines = [f"{arch} = {[round(v, 2) for v in values]}" for arch, values in completed(shares).items()]
    text = DATA.read_text(encoding="utf-8")
    table = "[sustained]\n" + "\n".join(lines) + "\n"
    text = re.sub(r"\[sustained\]\n(?:[\w-]+ = \[.*\]\n)+", table, text)
    DATA.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
