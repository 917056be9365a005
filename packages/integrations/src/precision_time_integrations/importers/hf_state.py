"""What Hugging Face's Trainer leaves behind: trainer_state.json, train_results.json, all_results.json.

`log_history` has no times, except in its last entry, which has those of the whole training. Its elapsed time
holds the evaluations, whose time the entries of evaluations say.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from precision_time.io import read_input, read_input_bytes
from precision_time.workload.families.tables import find_entry, normalize

from .contract import ImportedRun, Importer, LoggedStep, finite, unreadable
from .lines import count

MOST_BYTES = 256 * 2**20
"""A trainer_state.json with an entry per step is this large at most."""
_RESULTS = ("train_results.json", "all_results.json")
_STATE = "trainer_state.json"
_CARD = re.compile(r"^- ([a-z_]+): (.+?)\s*$", re.MULTILINE)
"""A line of the hyperparameters that Trainer writes into README.md."""
_CARD_FIELDS = {"train_batch_size": "batch_size", "total_train_batch_size": "global_batch_size",
                "gradient_accumulation_steps": "num_microbatches", "num_devices": "gpus"}  # fmt: skip
_REMEDY = "give the trainer_state.json or train_results.json that Trainer.save_state and save_metrics write"


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object.

    Raises:
        CorpusError: If the file is none, or is too large.
    """
    try:
        if path.stat().st_size > MOST_BYTES:
            raise unreadable(path, f"is larger than {MOST_BYTES >> 20} MiB", _REMEDY)
        tree = json.loads(read_input_bytes(path))
    except (OSError, ValueError, RecursionError) as error:
        raise unreadable(path, f"is no JSON file: {error}", _REMEDY) from error
    if not isinstance(tree, dict):
        raise unreadable(path, "is no JSON object", _REMEDY)
    return tree


def read_state(path: Path) -> list[ImportedRun]:
    """The run of a trainer_state.json.

    Raises:
        CorpusError: If it is none.
    """
    tree = read_json(path)
    history = tree.get("log_history")
    if not isinstance(history, list):
        raise unreadable(path, "has no log_history", _REMEDY)
    entries = [entry for entry in history if isinstance(entry, dict)]
    fields, notes = _fields_beside(path)
    steps: list[LoggedStep] = []
    total = count(str(tree.get("max_steps")))
    started, evaluated_s = 0, 0.0
    for entry in entries:
        evaluated_s += finite(entry.get("eval_runtime")) or 0.0
        done, runtime_s = count(str(entry.get("step"))), finite(entry.get("train_runtime"))
        if runtime_s is None or done is None or done <= started:
            continue
        training_s = runtime_s - evaluated_s if evaluated_s < runtime_s else runtime_s
        steps.append(
            LoggedStep(
                step=done, steps=done - started, step_time_s=training_s / (done - started), total_steps=total
            )
        )
        notes += _of_rates(entry, fields, tree)
        if evaluated_s:
            notes.append(f"{evaluated_s:.4g} s of evaluation were taken off its {runtime_s:.4g} s")
        started, evaluated_s = done, 0.0
    if not steps:
        notes.append("log_history has no train_runtime: it was saved before training ended")
        steps = [LoggedStep(step=done) for entry in entries if (done := count(str(entry.get("step"))))]
    else:
        notes.append("the mean of the whole training: warm-up and checkpoints are in it")
    return [_run(path, fields, steps, notes)]


def _of_rates(entry: Mapping[str, Any], fields: dict[str, Any], tree: Mapping[str, Any]) -> list[str]:
    """Take the batch from the two rates of a training, where nothing else says it."""
    samples, steps = (
        finite(entry.get("train_samples_per_second")),
        finite(entry.get("train_steps_per_second")),
    )
    runtime_s = finite(entry.get("train_runtime"))
    done, total = count(str(entry.get("step"))), count(str(tree.get("max_steps")))
    each = count(str(tree.get("train_batch_size")))
    notes = []
    if done and total and steps and runtime_s and abs(steps * runtime_s - done) > 0.02 * done + 1.0:
        notes.append(
            f"train_steps_per_second counts {steps * runtime_s:.0f} steps and {done} were made: not used"
        )
    if "global_batch_size" in fields or "gpus" in fields or not (samples and steps):
        return notes
    batch = samples / steps
    if each is not None:
        whole = max(1, round(batch / each + 0.2)) * each  # the last batch of an epoch may be smaller
        fields["global_batch_size"] = whole
        notes.append(f"global batch {whole}: the multiple of train_batch_size {each} next to its {batch:.1f}")
    return notes


def _fields_beside(path: Path) -> tuple[dict[str, Any], list[str]]:
    """What config.json and README.md in the same folder say."""
    fields: dict[str, Any] = {"framework": "pytorch"}
    notes: list[str] = []
    card = path.with_name("README.md")
    if card.is_file() and card.stat().st_size < 2**20:
        text = read_input(card, errors="replace")
        said = dict(_CARD.findall(text))
        for name, field in _CARD_FIELDS.items():
            if number := count(said.get(name)):
                fields[field] = number
        if "AMP" in said.get("mixed_precision_training", ""):
            fields["precision"] = "fp16-mixed"
        base = re.search(r"^base_model: (\S+)", text, re.MULTILINE)
        if base and find_entry(normalize(base[1])):
            fields["model"] = base[1]
    for config in (path.with_name("config.json"), *sorted(path.parent.glob("checkpoint-*/config.json"))[:1]):
        if "model" not in fields and config.is_file():
            name = str(read_json(config).get("_name_or_path") or "")
            fields["model"] = name if name and find_entry(normalize(name)) else str(config)
    return fields, notes


def read_results(path: Path) -> list[ImportedRun]:
    """The run of a train_results.json.

    Raises:
        CorpusError: If it is none.
    """
    tree = read_json(path)
    runtime_s, rate = finite(tree.get("train_runtime")), finite(tree.get("train_steps_per_second"))
    if runtime_s is None or rate is None:
        raise unreadable(path, "has no train_runtime and train_steps_per_second", _REMEDY)
    done = max(1, round(rate * runtime_s))
    fields, notes = _fields_beside(path)
    samples = finite(tree.get("train_samples_per_second"))
    if samples and "global_batch_size" not in fields and "gpus" not in fields:
        notes.append(f"its steps are of {samples / rate:.1f} samples: give --set batch_size and --set gpus")
    notes.append("the mean of the whole training: warm-up, evaluation and checkpoints are in it")
    step = LoggedStep(step=done, steps=done, step_time_s=runtime_s / done, total_steps=done)
    return [_run(path, fields, [step], notes)]


def _run(path: Path, fields: dict[str, Any], steps: list[LoggedStep], notes: list[str]) -> ImportedRun:
    return ImportedRun(
        name=path.parent.name or path.stem,
        origin=path.name,
        importer="hf-trainer",
        fields=fields,
        steps=tuple(steps),
        notes=tuple(dict.fromkeys(notes)),
    )


def _matches(path: Path, head: bytes) -> bool:
    if path.name == _STATE:
        return True
    if path.name in _RESULTS and b"train_runtime" in head:
        better = (_STATE, _RESULTS[0]) if path.name == _RESULTS[1] else (_STATE,)
        return not any(path.with_name(name).is_file() for name in better)
    return b'"log_history"' in head and b'"global_step"' in head and head.lstrip()[:1] == b"{"


def _read(path: Path) -> list[ImportedRun]:
    return read_results(path) if path.name in _RESULTS else read_state(path)


IMPORTERS: tuple[Importer, ...] = (
    Importer(
        name="hf-trainer",
        description="Hugging Face Trainer: trainer_state.json, train_results.json, all_results.json",
        matches=_matches,
        read=_read,
    ),
)
