"""What reading images adds to a step: the campaign own-images-cpu, a pair of trials for each configuration.

One trial of a pair trains on one random batch in memory, as all of own-predictddl-cpu does; the other on
generated JPEGs of the same shape that are read from disk, decoded and augmented while training.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from precision_time.render.document import Section
from precision_time.render.table import Table
from precision_time_papers.campaign.result import TrialResult, read_results_csv

from . import STORED
from .claims import PaperSection

FILE = STORED / "own-images-cpu.csv"
FROM_DISK, IN_MEMORY = "generated-images", "synthetic"
_SHAPES: Mapping[int, str] = {32: "32 x 32 (CIFAR-10's shape)", 64: "64 x 64 (Tiny-ImageNet's shape)"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Pair:
    """One network, shape and batch, with and without reading; medians over the repeats."""

    network: str
    side: int
    batch: int
    in_memory_s: float
    """Step time on a batch that is reused."""
    from_disk_s: float
    """Step time with reading."""
    input_s: float
    """Of it, waiting for the batch."""

    @property
    def longer(self) -> float:
        """Step time with reading over that without."""
        return self.from_disk_s / self.in_memory_s

    @property
    def input_share(self) -> float:
        """Share of the step that waits for the batch, 0..1."""
        return self.input_s / self.from_disk_s


def pairs_of(results: Sequence[TrialResult]) -> tuple[Pair, ...]:
    """The configurations that were measured both ways."""
    groups: dict[tuple[str, int, int], dict[str, list[TrialResult]]] = defaultdict(lambda: defaultdict(list))
    for each in results:
        if each.status == "ok" and each.step_time_s is not None:
            key = each.model.rpartition("/")[2], int(each.sizes["side"]), each.batch_per_worker
            groups[key][each.dataset].append(each)
    return tuple(
        Pair(
            network=network,
            side=side,
            batch=batch,
            in_memory_s=statistics.median(each.step_time_s or 0.0 for each in found[IN_MEMORY]),
            from_disk_s=statistics.median(each.step_time_s or 0.0 for each in found[FROM_DISK]),
            input_s=statistics.median(each.input_s or 0.0 for each in found[FROM_DISK]),
        )
        for (network, side, batch), found in sorted(groups.items())
        if found[IN_MEMORY] and found[FROM_DISK]
    )


def input_sections(path: Path = FILE) -> tuple[Section, ...]:
    """The section of docs/papers.md; none where the campaign is not stored."""
    if not path.is_file():
        return ()
    results = read_results_csv(path)
    pairs = pairs_of(results)
    origin = next(each.data_origin for each in results if each.dataset == FROM_DISK)
    return (
        PaperSection(
            key="predictddl-input",
            title="What reading the images adds",
            headline=_headline(pairs, origin),
            tables=(
                Table(
                    title="Steps with and without reading, one worker on an oversubscribed machine",
                    columns=(
                        "network", "images", ">batch", ">reused batch ms", ">from disk ms",
                        ">of it input ms", ">input %", ">from disk / reused",
                    ),
                    rows=tuple(
                        (
                            pair.network, _SHAPES[pair.side], pair.batch, 1e3 * pair.in_memory_s,
                            1e3 * pair.from_disk_s, 1e3 * pair.input_s, 100.0 * pair.input_share, pair.longer,
                        )
                        for pair in pairs
                    ),
                    note=f"{path.stem}.csv, {len(results)} trials; column `data_origin`: {origin}. Files "
                    "were written once and are likely in the cache of the operating system when they are "
                    "read again. Some ten other processes ran on the machine's two cores: times are several "
                    "times those of a machine of its own, and ratios of two trials scatter; the share is of "
                    "one trial.",
                ),
                Table(title="By shape and batch", columns=("images", ">batch", ">networks", ">input %"),
                      rows=tuple(_by_shape(pairs))),
            ),
        ),
    )  # fmt: skip


def _headline(pairs: Sequence[Pair], origin: str) -> str:
    """What reading takes at the median and at the most."""
    most = max(pairs, key=lambda pair: pair.input_share)
    median = statistics.median(pair.input_share for pair in pairs)
    longer = statistics.median(pair.longer for pair in pairs)
    return (
        "The campaign above trains on one random batch of the shapes of CIFAR-10 and Tiny-ImageNet. On "
        f"{origin} (read, decoded, cropped and mirrored in the step), {median:.1%} of a step wait for the "
        f"batch at the median of {len(pairs)} configurations, at most {most.input_share:.1%} "
        f"({most.network}, {most.side} x {most.side}, batch {most.batch}); the step takes {longer:.2f} times "
        "as long as on the reused batch."
    )


def _by_shape(pairs: Sequence[Pair]) -> Iterator[tuple[str, int, int, float]]:
    for side, batch in sorted({(pair.side, pair.batch) for pair in pairs}):
        shares = [pair.input_share for pair in pairs if (pair.side, pair.batch) == (side, batch)]
        yield _SHAPES[side], batch, len(shares), 100.0 * statistics.median(shares)
