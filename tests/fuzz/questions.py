"""One question through every door: one batch, layout, interval, fit and price; what holds of all answers.

    python tests/fuzz/questions.py --questions 2000

Random questions as people ask them: a model, devices, perhaps a batch, adapters, a data set, software by
its name. Doors: a step (`predict_time`), a run, a plan of one device and one number, a search of layouts
(what it says of the layout that it ranks first), a sweep, a Slurm script as `estimate` and `sbatch` read it,
the service, and what its page asks for.
"""

from __future__ import annotations

import argparse
import csv
import math
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import precision_time
from physics import wired
from precision_time.errors import PrecisionTimeError
from precision_time.predict.prediction import Prediction
from precision_time.predict.remedies import at_layout
from precision_time.request.request import Request

TEXT = (
    "llama3-8b",
    "llama2-7b",
    "qwen2.5-1.5b",
    "mistral-7b",
    "gpt2",
    "bert-base",
    "llama3-70b",
    "mixtral-8x7b",
)
IMAGES = ("resnet50", "vit_base_patch16_224", "efficientnet_b0", "convnext_tiny")
ADAPTED = frozenset(TEXT) - {"gpt2", "bert-base"}
DEVICES = ("A100", "H100", "V100", "RTX4090", "RTX3090", "T4", "L4", "A10G", "MI300X", "H200")
COUNTS = (1, 2, 4, 8, 16, 32)
TUNED_ON = ("alpaca", "dolly", "guanaco", "gsm8k")
STACKS = {
    "text": ("hf-trainer", "trl", "axolotl", "unsloth", "torchtune"),
    "images": ("pytorch-eager", "lightning"),
}
SAME = 1e-9
STEPS = 1000
FIGURES = (
    "step_time_s",
    "low_s",
    "high_s",
    "batch_size",
    "global_batch_size",
    "memory_bytes_per_device",
    "fits",
)


def random_question(rng: np.random.Generator) -> dict[str, Any]:
    """One question; perhaps one that is refused."""
    text = rng.random() < 0.6
    model = str(rng.choice(TEXT if text else IMAGES))
    asked: dict[str, Any] = {
        "model": model,
        "device": str(rng.choice(DEVICES)),
        "gpus": int(rng.choice(COUNTS)),
    }
    if asked["gpus"] > 8:
        asked["nodes"] = asked["gpus"] // 8
    if text:
        asked["seq_len"] = int(rng.choice((512, 1024, 2048)))
        if model in ADAPTED and rng.random() < 0.6:
            asked["adapter"] = str(rng.choice(("lora", "qlora", "qlora8")))
            if rng.random() < 0.6:
                asked["dataset"] = str(rng.choice(TUNED_ON))
    batch = rng.random()
    if batch < 0.4:
        asked["batch_size"] = int(rng.choice((1, 2, 4, 8, 16)))
    elif batch < 0.7:
        asked["global_batch_size"] = int(asked["gpus"] * rng.choice((1, 2, 4, 8)))
    if rng.random() < 0.3:
        asked["stack"] = str(rng.choice(STACKS["text" if text else "images"]))
    if rng.random() < 0.2:
        asked["software"] = float(rng.choice((2021, 2023, 2025)))
    return asked


@dataclass(slots=True)
class Found:
    """What was asked, and what broke which rule."""

    checks: Counter[str] = field(default_factory=Counter)
    broken: list[tuple[str, Mapping[str, Any], str]] = field(default_factory=list)

    def check(self, rule: str, asked: Mapping[str, Any], wrong: str) -> None:
        """Count a check; `wrong` is empty where it holds."""
        self.checks[rule] += 1
        if wrong:
            self.broken.append((rule, asked, wrong))


def figures(answer: Prediction | Mapping[str, Any]) -> dict[str, float]:
    """What all doors say alike."""
    data = answer if isinstance(answer, Mapping) else answer.to_dict()
    low, high = data["interval"]["low_s"], data["interval"]["high_s"]
    named = {**data, "low_s": low, "high_s": high}
    return {name: float(named[name]) for name in FIGURES}


def unlike(one: Mapping[str, float], other: Mapping[str, float]) -> str:
    """Where two answers differ; empty where nowhere."""
    return "; ".join(
        f"{name}: {one[name]:.10g} and {other[name]:.10g}"
        for name in one
        if name in other and not math.isclose(one[name], other[name], rel_tol=SAME, abs_tol=1e-12)
    )


def through_doors(asked: Mapping[str, Any], found: Found, client: Any = None) -> None:
    """One question through every door, compared with the answer to a step."""
    try:
        answer = precision_time.predict_time(**asked)
    except PrecisionTimeError:
        found.checks["refused"] += 1
        return
    said = figures(answer)
    run = precision_time.predict_run(**asked, steps=STEPS)
    found.check("run", asked, unlike(said, figures(run.phases[0].prediction)))
    found.check("sweep", asked, unlike(said, _sweep_row(asked, answer.gpus)))
    found.check("two spellings of a batch", asked, _spelled_otherwise(asked, answer))
    found.check("first line says the length", asked, _length_unsaid(asked, answer))
    if answer.fits:
        planned = {name: value for name, value in asked.items() if name not in ("device", "gpus", "nodes")}
        # Of a batch per device another number of devices would be another training.
        length = {"samples": 100_000, "epochs": 1} if "batch_size" in asked else {"steps": STEPS}
        try:
            plan = precision_time.plan(
                **planned, **length, devices=[answer.device], gpus=[answer.gpus], max_gpus=answer.gpus
            )
        except PrecisionTimeError as error:
            if str(error).startswith("Nobody in the list of prices"):
                found.checks["plan: nobody rents so many"] += 1
            else:
                found.check("plan", asked, f"refused: {error}")
        else:
            found.check("plan", asked, _planned_otherwise(plan.best, said))
    if asked["gpus"] in (4, 8) and "dataset" not in asked and "batch_size" not in asked:
        found.check("layout", asked, _laid_out_otherwise(asked))
    _through_script(asked, run, found)
    if client is not None:
        found.check("service", asked, unlike(said, _served(client, "predictions", asked)))
        # What the page asks for besides: the run, its job in a form.
        page = _served(client, "runs", {**asked, "steps": STEPS})
        found.check("page", asked, unlike(figures(run.phases[0].prediction), page))


def _served(client: Any, route: str, asked: Mapping[str, Any]) -> dict[str, float]:
    """Figures that the service answers; nothing but NaN where it refuses."""
    served = client.post(f"/v1/{route}", json=dict(asked))
    if served.status_code != 200:
        return dict.fromkeys(FIGURES, math.nan)
    answer = served.json()
    return figures(answer["phases"][0]["prediction"] if route == "runs" else answer)


def _planned_otherwise(best: Any, said: Mapping[str, float]) -> str:
    """Whether a plan takes another batch, or says another time than a step on the host that it rents."""
    if best is None:
        return ""  # nobody rents such devices
    if best.global_batch_size != said["global_batch_size"]:
        return f"batch {best.global_batch_size:g} and {said['global_batch_size']:g}"
    rented = {
        name: value for name, value in best.request.items() if name not in ("steps", "epochs", "samples")
    }
    again = precision_time.predict_time(**rented)
    return (
        ""
        if math.isclose(again.step_time_s, best.step_time_s, rel_tol=SAME)
        else (f"step_time_s: {best.step_time_s:.10g} and {again.step_time_s:.10g} of {dict(best.request)}")
    )


def _laid_out_otherwise(asked: Mapping[str, Any]) -> str:
    """Whether a search says of its first layout what a step with that layout says."""
    search = precision_time.find_layouts(**{"global_batch_size": 8 * asked["gpus"], **asked}, top=1)
    if not search.ranked:
        return ""
    again = precision_time.predict_time(at_layout(search.request, search.jobs[0]))
    return unlike(figures(search.ranked[0].prediction), figures(again))


def _sweep_row(asked: Mapping[str, Any], gpus: int) -> dict[str, float]:
    """The row of a sweep over devices that is the question; node counts belong to one number of devices."""
    swept = {**asked, "coverage": [0.9, 0.5]}
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "sweep.csv"
        precision_time.sweep(**swept, out=out)
        with out.open(newline="", encoding="utf-8") as lines:
            row = next(row for row in csv.DictReader(lines) if float(row.get("coverage") or 0.9) == 0.9)
    names = {"step_time_s", "low_s", "high_s", "batch_size", "global_batch_size"} & row.keys()
    return {name: float(row[name]) for name in names if row[name]}


def _spelled_otherwise(asked: Mapping[str, Any], answer: Prediction) -> str:
    """The same job with everything of its batch and layout said."""
    if not {"batch_size", "global_batch_size"} & asked.keys():
        return ""
    job = Request.of(dict(asked)).resolve()
    rest = {name: value for name, value in asked.items() if name not in ("batch_size", "global_batch_size")}
    try:
        other = Request.of({**rest, "global_batch_size": answer.global_batch_size}).resolve()
    except PrecisionTimeError as error:
        return str(error)
    whole = job.layout.global_batch_size, other.layout.global_batch_size
    return "" if math.isclose(*whole, rel_tol=SAME) else f"batches {whole}"


def _length_unsaid(asked: Mapping[str, Any], answer: Prediction) -> str:
    tunes = "dataset" in asked and "adapter" in asked
    first = " ".join(str(answer).partition("\n\n")[0].split())
    return "tokens a sample is not in the answer" if tunes and "tokens a sample" not in first else ""


def _through_script(asked: Mapping[str, Any], run: Any, found: Found) -> None:
    try:
        from precision_time_integrations.slurm.script import estimate_script
    except ImportError:
        return
    words = " ".join(f"{name}={value}" for name, value in {**asked, "steps": STEPS}.items())
    estimate = estimate_script(f"#!/bin/bash\n#PRECISION_TIME {words}\npython train.py\n", environment={})
    if estimate.run is None:
        found.check("script", asked, f"no answer: {estimate}"[:200])
        return
    found.check(
        "script", asked, unlike(figures(run.phases[0].prediction), figures(estimate.run.phases[0].prediction))
    )


def more_devices(asked: Mapping[str, Any], found: Found) -> None:
    """Devices x time does not fall as devices grow, at the same global batch and settings.

    Sharded, more devices may take larger micro batches: those are other settings. Devices that are wired to
    each other have more links the more they are.
    """
    if asked["gpus"] > 8:
        return
    batch = 64
    rows = []
    for gpus in (1, 2, 4, 8):
        same = {name: value for name, value in asked.items() if name not in ("gpus", "batch_size", "nodes")}
        try:
            answer = precision_time.predict_time(**{**same, "gpus": gpus, "global_batch_size": batch})
        except PrecisionTimeError:
            return
        if not answer.fits:
            return
        job = Request.of({**same, "gpus": gpus, "global_batch_size": batch}).resolve()
        rows.append((gpus, gpus * answer.step_time_s, job))
    for one, other in zip(rows, rows[1:], strict=False):
        layouts = (one[2].layout, other[2].layout)
        before, after = [
            (each.zero_stage, each.tp, each.pp, each.recompute, each.recompute_layers) for each in layouts
        ]
        if before != after or layouts[1].micro_batch_size > layouts[0].micro_batch_size:
            found.checks["other settings"] += 1
            continue
        if wired(other[2]):
            found.checks["more links"] += 1
            continue
        fell = 1.0 - other[1] / one[1]
        rule = "devices x time never falls"
        found.check(
            rule, asked, f"{one[0]} -> {other[0]} devices: {fell:.1%} less" if fell > MEASURED else ""
        )


MEASURED = 0.02
"""Share by which devices x time may fall: what measured runs on so many devices say. Of 2,445 pairs of 2,000
questions 7 fall by more, by 5.4 % at most."""


def service() -> Any:
    """A client of the service in this process; None where the server is not installed."""
    try:
        from starlette.testclient import TestClient

        from precision_time_server.app import create_app
        from precision_time_server.settings import Settings
    except ImportError:
        return None
    return TestClient(create_app(Settings.of({"store": "sqlite://"})))


def checked(count: int, seed: int, *, told: bool = False) -> Found:
    """So many random questions."""
    rng, found, client = np.random.default_rng(seed), Found(), service()
    with client or nullcontext():
        for number in range(count):
            asked = random_question(rng)
            through_doors(asked, found, client)
            more_devices(asked, found)
            if told:
                print(f"\r{number + 1} of {count}, {len(found.broken)} broken", end="", file=sys.stderr)
    return found


def told(found: Found) -> Iterator[str]:
    """Counts by rule, then what broke."""
    broken = Counter(rule for rule, _, _ in found.broken)
    for rule, count in sorted(found.checks.items()):
        yield f"{rule}: {count} checked, {broken[rule]} broken"
    for rule, asked, wrong in found.broken[:40]:
        yield f"  {rule}: {dict(asked)}: {wrong}"


def main() -> int:
    """Ask and tell."""
    parser = argparse.ArgumentParser(description="One question through every door.")
    parser.add_argument("--questions", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    found = checked(given.questions, given.seed, told=True)
    print("\n".join(["", *told(found)]))
    return int(bool(found.broken))


if __name__ == "__main__":
    sys.exit(main())
