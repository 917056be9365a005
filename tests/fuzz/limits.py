"""Write docs/reference/limits.md: what is promised whatever comes in, and what no predictor can know.

    python tests/fuzz/limits.py --inputs 20000

sends that many inputs through every way in, kills writers and fills their disks (`tests/fuzz`), keeps the
counts in docs/reference/limits.json and writes the page. Without --inputs the kept counts are shown.

What no predictor can know has three kinds of evidence, all from the corpus alone: one job timed by two
sources, repeats of a configuration, and steps that do not move when the precision does.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections import defaultdict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from precision_time.corpus.families import families_of
from precision_time.corpus.measurement import Measurement
from precision_time.corpus.protocols import source_name
from precision_time.corpus.store import corpus_fingerprint, load_corpus
from precision_time.io import write_atomically
from precision_time.render.table import columns_of, markdown_lines

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "tools"))

from pages import write_page  # noqa: E402

PAGE = ROOT / "docs" / "reference" / "limits.md"
COUNTS = PAGE.with_suffix(".json")
PHYSICS = PAGE.with_name("physics.json")
FUZZ = ROOT / "tests" / "fuzz"
KILLS: Mapping[str, tuple[int, int]] = {
    "tables": (40, 20),
    "campaigns": (40, 20),
    "measurements": (40, 20),
    "files": (40, 20),
    "registry": (5, 3),
    "predictors": (3, 2),
}
"""Of each writer of `tests/fuzz/fuzz_kills.py`: kills, and disks that are full."""
PROMISES = """\
## What is promised

Whatever comes in, by Python, the command line or a file:

- An answer, or one of the errors of `precision_time.errors`: what was given, the rule, what to do, in at
  most 5,000 characters, none of them a control character. The command line ends with 0; 2 for what the
  caller can correct; 3 where nothing fits in memory; 130 when interrupted; 70 would be an error that nobody
  foresaw.
- No figure that is infinite or no number; JSON that any parser reads; terms that add up to the step and to
  the memory, none negative; an interval that contains the step time; MFU of at most 1; memory of at least
  the weights.
- At most 10 s of processor time and 2 GB of memory for an answer.
- No code out of data: a .pt2 file is loaded only with `--trust`; rows, job files and batches name models of
  the catalogs only.
- What was acknowledged as written stays, whatever kills the process; what is on the disk opens; a full disk
  is said in one line, and the file is as it was."""
LEAST_REPEATS = 10
SHOWN = 20
SAME_PERCENT = 3.0
"""Two times that differ by less are called equal."""


class SameJob(NamedTuple):
    """One job that two sources timed."""

    job: str
    one: str
    one_s: float
    other: str
    other_s: float

    @property
    def log_ratio(self) -> float:
        """|log| of the ratio of both times."""
        return abs(float(np.log(self.one_s / self.other_s)))


def job_key(run: Measurement) -> tuple[Hashable, ...]:
    """What a user would have to say to ask for the job: everything but who ran it and in which software."""
    return (
        *(run.model, run.device, run.num_devices, run.num_nodes, run.precision),
        *(run.global_batch_size, run.seq_len, None if run.layout is None else run.layout.num_microbatches),
    )


def same_jobs(runs: Sequence[Measurement]) -> list[SameJob]:
    """Jobs that two sources timed, the most different first."""
    times: dict[tuple[Hashable, ...], dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for run in runs:
        times[job_key(run)][source_name(run)].append(run.step_time_s)
    pairs = [
        SameJob(
            f"{key[0]}, {key[2]} x {key[1]}, {key[4]}, batch {key[5]:g}",
            *(one, float(np.median(of[one])), other, float(np.median(of[other]))),
        )
        for key, of in times.items()
        for one, other in combinations(sorted(of), 2)
    ]
    return sorted(pairs, key=lambda pair: -pair.log_ratio)


def repeats(runs: Sequence[Measurement]) -> Iterator[tuple[str, int, float, float]]:
    """Of every source: rows that repeat a configuration, their mean and 90th percentile distance [%]."""
    groups: dict[str, list[Measurement]] = defaultdict(list)
    for run in runs:
        groups[run.configuration_key].append(run)
    apart: dict[str, list[float]] = defaultdict(list)
    for same in groups.values():
        if len(same) > 1:
            median = float(np.median([run.step_time_s for run in same]))
            apart[same[0].source] += [abs(run.step_time_s / median - 1.0) * 100.0 for run in same]
    for source, values in sorted(apart.items(), key=lambda item: -float(np.mean(item[1]))):
        if len(values) >= LEAST_REPEATS:
            yield source, len(values), float(np.mean(values)), float(np.percentile(values, 90))


def unmoved(runs: Sequence[Measurement]) -> list[tuple[str, int, int]]:
    """Of every source and model: pairs of a wide and a narrow precision, and those whose times are equal."""
    tally: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0])
    times = np.array([run.step_time_s for run in runs])
    for family in families_of(runs):
        median = family.median(times)
        run = runs[int(next(iter(family.rows.values()))[0])]
        for wide in ("fp32", "tf32"):
            for narrow in ("fp16", "fp16-mixed", "bf16-mixed"):
                if wide in median and narrow in median:
                    count = tally[source_name(run), run.model]
                    count[0] += 1
                    count[1] += abs(median[narrow] / median[wide] - 1.0) * 100.0 <= SAME_PERCENT
    found = [(f"{source}: {model}", pairs, same) for (source, model), (pairs, same) in tally.items() if same]
    return sorted(found, key=lambda item: (-item[2], item[0]))


def measure(inputs: int) -> None:
    """Send inputs, kill writers, fill disks, and keep the counts.

    Raises:
        SystemExit: If the fuzzer could not run; what it found is in the counts.
    """
    import fuzz_kills

    COUNTS.unlink(missing_ok=True)
    command = [
        sys.executable,
        str(ROOT / "tests" / "fuzz" / "fuzz.py"),
        "--inputs",
        str(inputs),
        "--out",
        str(COUNTS),
    ]
    if subprocess.run(command, check=False).returncode not in (0, 1):
        raise SystemExit("The fuzzer did not end.")
    kept = json.loads(COUNTS.read_text(encoding="utf-8"))
    kept["kills"] = fuzz_kills.all_counts(KILLS)
    write_atomically(COUNTS, json.dumps(kept, indent=1) + "\n")
    pairs = [sys.executable, str(FUZZ / "physics.py"), "--out", str(PHYSICS)]
    if subprocess.run(pairs, check=False).returncode not in (0, 1):
        raise SystemExit("The pairs of jobs were not all asked.")


def promises(counts: Mapping[str, Any]) -> Iterator[str]:
    """What is promised whatever comes in, and what was tried."""
    inputs, kills = [*counts["inputs"].values()], [*counts["kills"].values()]
    tried, faults = (sum(found[name] for found in inputs) for name in ("tried", "faults"))
    killed, full = (sum(found[name] for found in kills) for name in ("kills", "full"))
    held = [sum(found[name] for found in kills) for name in ("killed_well", "full_well")]
    yield from (
        *PROMISES.splitlines(),
        "",
        f"Tried: {tried:,} inputs, of which {faults:,} broke a promise; {killed:,} kills in the middle of",
        f"writes, of which {held[0]:,} were survived; {full:,} full disks, of which {held[1]:,} were",
        "survived. Inputs are drawn by hypothesis from the fields of a request, from small valid files whose",
        "parts are replaced, and from their bytes (`tests/fuzz`).",
        *(["", counts["note"]] if "note" in counts else []),
        "",
        *markdown_lines(
            columns_of("inputs | >tried | >answered | >refused | >faults | >slowest s"),
            [
                (
                    found["what"],
                    *(f"{found[name]:,}" for name in ("tried", "answered", "refused", "faults")),
                    f"{found['slowest_s']:.1f}",
                )
                for found in inputs
            ],
        ),
        "",
        *markdown_lines(
            columns_of("written | >kills | >survived | >full disks | >survived"),
            [
                (found["what"], *(str(found[name]) for name in ("kills", "killed_well", "full", "full_well")))
                for found in kills
            ],
        ),
        "",
    )  # fmt: skip


def page(runs: Sequence[Measurement], counts: Mapping[str, Any]) -> str:
    """The whole of docs/reference/limits.md."""
    import physics

    jobs = same_jobs(runs)
    logs = np.array([pair.log_ratio for pair in jobs])
    parts = [
        "# Limits",
        "",
        "Generated by `tests/fuzz/limits.py`; do not edit.",
        "",
        *promises(counts),
        *(physics.page_lines(json.loads(PHYSICS.read_text("utf-8"))) if PHYSICS.is_file() else ()),
        "## What no predictor can know",
        "",
        "Everything below is measured, nothing is predicted:",
        f"corpus {corpus_fingerprint(runs)}, {len(runs)} runs.",
        "",
        "## Two teams, one job",
        "",
        f"{len(jobs)} jobs were timed by two sources: same model, device, number of devices and nodes,",
        "precision, batch and length. Neither number is wrong: the code differs, the loader, the host",
        "and what the time includes. Their times differ by a factor of "
        f"{np.exp(np.median(logs)):.2f} in the median, {np.exp(np.mean(logs)):.2f} on",
        f"average (mean of logarithms {np.mean(logs):.2f}) and {np.exp(logs.max()):.1f} at most. A "
        "prediction from the request alone can",
        "be right for one of the two at best: say `--stack`, or give a measured step with `--anchor`.",
        "",
        *markdown_lines(
            columns_of("job | one | >ms | other | >ms | >ratio"),
            [
                (pair.job, pair.one, f"{pair.one_s * 1e3:.4g}", pair.other, f"{pair.other_s * 1e3:.4g}",
                 f"{np.exp(pair.log_ratio):.2f}")
                for pair in jobs[:SHOWN]
            ],
        ),
        "",
        "## One team, one job, twice",
        "",
        "Repeats of a configuration by the same source, on hosts that it calls identical: distance from",
        f"their median. Sources with fewer than {LEAST_REPEATS} such rows are left out.",
        "",
        *markdown_lines(
            columns_of("source | >rows | >mean % | >p90 %"),
            [(name, count, f"{mean:.1f}", f"{p90:.1f}") for name, count, mean, p90 in repeats(runs)],
        ),
        "",
        "## Steps that do not move",
        "",
        "Runs equal in all but precision, one of them in fp32 or tf32 and one in a two-byte type. Where the",
        f"times are equal within {SAME_PERCENT:g} %, something else than the device sets the pace: loader,",
        "launches of the host, or software that did not use the type. Rows do not say which.",
        "",
        *markdown_lines(columns_of("runs | >pairs | >of equal time"), unmoved(runs)[:SHOWN]),
        "",
    ]  # fmt: skip
    return "\n".join(parts)


def main() -> None:
    """Measure where asked to, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0] if __doc__ else "")
    parser.add_argument("--inputs", type=int, help="inputs to send; left out: the kept counts are shown")
    inputs = parser.parse_args().inputs
    if inputs is not None:
        measure(inputs)
    counts = json.loads(COUNTS.read_text(encoding="utf-8"))
    write_page(PAGE, page([run for run in load_corpus() if run.usable], counts))


if __name__ == "__main__":
    main()
