"""A campaign: every training of a plan once, each stored at once, so that a stopped one goes on."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from precision_time.errors import required_module
from precision_time_integrations.measure.store import CsvTable, only_writer

from .plan import RiskPlan, Training

COLUMNS = (
    "kind", "model", "recipe", "layer_group", "seed", "optimizer", "steps", "planned_steps", "first_loss",
    "loss", "training_loss", "diverged", "underflow_share", "overflow_steps", "parameters", "cpu_s", "data",
    "execution", "device", "torch", "fingerprint",
)  # fmt: skip
_KEY = ("model", "recipe", "layer_group", "seed", "execution", "device", "fingerprint")


def fingerprint(plan: RiskPlan, model: str) -> str:
    """What a training's result depends on besides recipe, group and seed; others are not mixed in."""
    options = plan.model_dump_json(include={"evaluations", "loss_scale", "loss_scale_interval"})
    return hashlib.sha256((options + plan.model[model].model_dump_json()).encode()).hexdigest()[:10]


def run_campaign(
    plan: RiskPlan,
    path: Path,
    *,
    device: str = "cpu",
    native: bool = False,
    budget_s: float | None = None,
    progress: Callable[[int, int, str], None] = lambda *_: None,
) -> tuple[int, int]:
    """Train what is not in the file yet.

    Args:
        plan: What to train.
        path: CSV file, which only grows.
        device: Of torch.
        native: Multiply in the device's own types instead of emulating them.
        budget_s: No training is started after so many seconds.
        progress: Called with trainings done, all, and the one that starts.

    Returns:
        Trainings in the file at the end, and those of the plan.
    """
    torch = required_module(
        "torch", package="torch", extra="precision-time-papers[torch]", purpose="train small models"
    )
    from .training import train

    if device == "cpu":
        torch.set_num_threads(
            1
        )  # small models run no faster on more, and results stay the same on all machines
    table = CsvTable(path, COLUMNS)
    prints = {name: fingerprint(plan, name) for name in plan.model}
    common = {"execution": "native" if native else "emulated", "device": device}
    start_s = time.monotonic()
    with only_writer(path):
        known = {tuple(row[name] for name in _KEY) for row in table.rows()}
        todo = [item for item in plan.trainings if _key(item, common, prints) not in known]
        before, total = len(plan.trainings) - len(todo), len(plan.trainings)
        for number, training in enumerate(todo):
            done = before + number
            if budget_s is not None and time.monotonic() - start_s > budget_s:
                return done, total
            what = f"{training.model} {training.recipe} {training.group} seed {training.seed}"
            progress(done, total, what)
            result = train(training, plan, device=device, native=native)
            table.add(
                _row(training, plan, asdict(result), result.diverged, common, prints, torch.__version__)
            )
    return total, total


def _key(training: Training, common: dict[str, str], prints: dict[str, str]) -> tuple[str, ...]:
    return *training.key, common["execution"], common["device"], prints[training.model]


def _row(
    training: Training,
    plan: RiskPlan,
    result: dict[str, Any],
    diverged: bool,
    common: dict[str, str],
    prints: dict[str, str],
    version: str,
) -> dict[str, object]:
    model = plan.model[training.model]
    figures = {name: f"{value:.6g}" if isinstance(value, float) else value for name, value in result.items()}
    return {
        **figures,
        **common,
        "kind": model.kind,
        "model": training.model,
        "recipe": training.recipe,
        "layer_group": training.group,
        "seed": training.seed,
        "optimizer": model.optimizer,
        "planned_steps": model.steps,
        "diverged": int(diverged),
        "torch": version,
        "fingerprint": prints[training.model],
    }
