"""DeepSpeed: the folder of its CSV monitor, and the report of its flops profiler.

The monitor counts samples and writes no time of day; times of a step are in it with `wall_clock_breakdown`.
"""

from __future__ import annotations

import re
from pathlib import Path

from .bounded import csv_rows, is_regular, names_in, small_text
from .contract import ImportedRun, Importer, LoggedStep, finite, unreadable

_STEM = "Train_Samples_"
_TIMES = ("forward", "backward", "step")
_MILLI = 1e-3
_PROFILE = "DeepSpeed Flops Profiler"
_UNITS = {"s": 1.0, "ms": 1e-3, "us": 1e-6}
_COUNTS = {"world size": "gpus", "batch size per GPU": "batch_size"}
_LINE = re.compile(
    r"^\s*(?P<name>[a-z][A-Za-z ]+?):\s+(?P<value>[\d.]+)\s*(?P<unit>s|ms|us)?\s*$", re.MULTILINE
)


def _read_monitor(folder: Path) -> list[ImportedRun]:
    """Three times add up to an optimizer step: each is summed over its micro batches."""
    times: dict[str, dict[int, float]] = {}
    for part in _TIMES:
        path = folder / f"{_STEM}elapsed_time_ms_{part}.csv"
        if not is_regular(path):
            continue
        times[part] = {}
        for row in csv_rows(path):
            count, value = finite(row.get("step")), finite(row.get(f"elapsed_time_ms_{part}"))
            if count is not None and value is not None:
                times[part][int(count)] = value * _MILLI
    samples = sorted(set.intersection(*(set(found) for found in times.values()))) if times else []
    if len(times) < len(_TIMES) or not samples:
        raise unreadable(
            folder,
            "holds DeepSpeed's CSV monitor without times (it counts samples, and has no clock)",
            'set "wall_clock_breakdown": true in ds_config.json, or import the log of the run',
        )
    apart = {after - before for before, after in zip(samples, samples[1:], strict=False)}
    batch = min(apart) if len(apart) == 1 else None
    steps = tuple(
        LoggedStep(
            step=seen // batch if batch else number + 1,
            step_time_s=sum(times[part][seen] for part in _TIMES),
            steps=1,
        )
        for number, seen in enumerate(samples)
    )
    return [
        ImportedRun(
            name=folder.name,
            origin=folder.name,
            importer="deepspeed-monitor",
            fields={"global_batch_size": batch} if batch else {},
            steps=steps,
            notes=(
                "a step is forward + backward + step as the engine timed them: loading data is not in it",
            ),
        )
    ]


def _read_profile(path: Path) -> list[ImportedRun]:
    """The summary at one step: iter latency, else the sum of its parts."""
    text = small_text(path)
    text = text[text.index(_PROFILE) :] if _PROFILE in text else ""
    lines = [found for found in _LINE.finditer(text[:20_000]) if finite(found["value"])]
    said = {found["name"].strip(): (float(found["value"]), found["unit"]) for found in lines}
    latency = {
        name: value * _UNITS[unit]
        for name, (value, unit) in said.items()
        if unit and name.endswith("latency")
    }
    time_s = latency.get("iter latency") or sum(
        latency.get(f"{part} latency", 0.0) for part in ("fwd", "bwd", "step")
    )
    if not latency or not time_s:
        raise unreadable(path, "holds no latency of DeepSpeed's flops profiler", "name its output_file")
    step = re.search(r"Profile Summary at step (\d{1,12})", text)
    fields = {field: int(said[name][0]) for name, field in _COUNTS.items() if name in said}
    whole = "" if "iter latency" in latency else ": forward alone or some parts, no whole step"
    return [
        ImportedRun(
            name=path.stem,
            origin=path.name,
            importer="deepspeed-flops",
            fields=fields,
            steps=(LoggedStep(step=int(step[1]) if step else 1, step_time_s=time_s, steps=1),),
            notes=(
                f"one step, slowed down by the hooks of the profiler{whole}",
                "with gradient accumulation it is that of one micro batch",
            ),
        )
    ]


def _is_monitor(path: Path, head: bytes) -> bool:
    return (
        not head and path.is_dir() and any(name.startswith(_STEM) for name in names_in(path, most=10_000_000))
    )


IMPORTERS = (
    Importer(
        name="deepspeed-monitor",
        description="DeepSpeed: the folder of its CSV monitor, with wall_clock_breakdown",
        matches=_is_monitor,
        read=_read_monitor,
        folders=True,
    ),
    Importer(
        name="deepspeed-flops",
        description="DeepSpeed: output_file of its flops profiler",
        matches=lambda path, head: _PROFILE.encode() in head[:4096],
        read=_read_profile,
    ),
)
