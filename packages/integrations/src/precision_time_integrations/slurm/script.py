"""`read_script` and `estimate_script`: what a job script trains, and how long. Nothing is executed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from precision_time.errors import ConfigError, PrecisionTimeError
from precision_time.planning.run.prediction import RunPrediction
from precision_time.planning.run.schema import RunOptions
from precision_time.request.request import Request
from precision_time.workload.resolve import check_named_in_data

from ..commands.launchers import Files
from ..commands.read import ReadCommand, read_command, remedy
from ..commands.shell import check_text
from ..estimate import JobEstimate, estimate_job
from .devices import Names, device_of
from .options import CommandLine, Resources, merged, resources, resources_of

SOURCE = "Slurm script"
Answer = Callable[[Request, RunOptions], RunPrediction]
_NO_DEVICE = (
    "The job does not say on which GPU it runs. To fix: ask for a type (--gres=gpu:a100:8), give --device, "
    "or name the device of the partition in the file of names (docs: guides/schedulers)."
)


@dataclass(frozen=True, kw_only=True, slots=True)
class SlurmScript:
    """What a job script says."""

    resources: Resources
    command: ReadCommand
    fields: Mapping[str, Any] = field(default_factory=dict)
    """Of a request: those of the command, with the device that Slurm grants."""
    notes: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()
    reason: str = ""
    """Why it cannot be read at all; empty where it can."""


def read_script(
    text: str,
    *,
    line: CommandLine | None = None,
    options: Mapping[str, str] | None = None,
    environment: Mapping[str, str] | None = None,
    files: Files | None = None,
    names: Names | None = None,
    device: str | None = None,
) -> SlurmScript:
    """What a job script says of its training.

    Args:
        text: The script.
        line: Command line of `sbatch`, whose options win.
        options: Options by long name, which win too: what a plugin of Slurm sees of a job.
        environment: That of `sbatch`; None where it is not known.
        files: Reads the files that the script names; None for none.
        names: What the cluster's names stand for (`devices.read_names`).
        device: In the place of what the script says.

    Raises:
        ConfigError: If the text is binary or too long, its quotes do not end, or a statement in it is wrong.
    """
    check_text(text)
    asked = resources(text, line=line, environment=environment)
    if options is not None:
        asked = merged(resources_of(options), asked)
    export = asked.export.lower()
    known = dict(environment) if environment is not None and export in ("", "all") else None
    command = read_command(
        text,
        environment=None if known is None else {**known, **asked.variables()},
        scheduler=asked.variables(),
        files=files,
        gpus_per_node=asked.gpus_per_node,
        nodes=asked.nodes,
        arguments=line.arguments if line is not None else (),
    )
    found = dict(command.fields)
    notes, unread = [*command.notes, *command.assumed], [*asked.unread, *command.unread]
    named, why = device_of(asked, names or {})
    if device is not None:
        found["device"] = device
    elif "device" not in command.stated:
        if named:
            found["device"] = named
            notes.append(why)
        else:
            found.pop("device", None)
    _devices(found, command, asked, notes)
    if asked.array:
        notes.append(f"each task of the array {asked.array} is taken to train for as long")
    return SlurmScript(
        resources=asked,
        command=command,
        fields=found,
        notes=tuple(notes),
        unread=tuple(dict.fromkeys(unread)),
    )


def _devices(found: dict[str, Any], command: ReadCommand, asked: Resources, notes: list[str]) -> None:
    """The number of devices: what the launcher starts, else what the job is granted."""
    if "gpus" in command.stated:
        return
    if command.gpus is None and asked.gpus is not None:
        found["gpus"] = asked.gpus
        if asked.nodes is not None:
            found["nodes"] = asked.nodes
        notes.append(f"as many devices as the job is granted: {asked.gpus}")
    elif asked.gpus is not None and command.gpus is not None and command.gpus != asked.gpus:
        notes.append(f"the launcher starts {command.gpus} processes on {asked.gpus} granted devices")


def estimate_script(
    text: str, *, given: Mapping[str, Any] | None = None, answer: Answer | None = None, **options: Any
) -> JobEstimate:
    """How long a job script trains; what cannot be read is a reason, never an error.

    Args:
        text: The script.
        given: Fields of `Request` and `RunOptions` in the place of those of the script.
        answer: Predicts the run, in the place of this process: a service.
        options: As of `read_script`.
    """
    try:
        script = read_script(text, **options)
    except ConfigError as error:
        return estimate_job(source=SOURCE, fields={}, reason=str(error), given=given)
    return estimate_of(script, given, answer=answer)


def estimate_of(
    script: SlurmScript, given: Mapping[str, Any] | None = None, *, answer: Answer | None = None
) -> JobEstimate:
    """`estimate_script` of a script that has been read.

    Args:
        script: As `read_script` returns it.
        given: As of `estimate_script`.
        answer: Predicts the run, in the place of this process: a service.
    """
    typed = {name: value for name, value in (given or {}).items() if value is not None}
    every = {**script.fields, **typed}
    reason = ""
    if "model" not in every or not any(name in every for name in ("steps", "epochs", "tokens")):
        why = f" ({script.unread[0]})" if script.unread else ""
        lacking = [] if "model" in every else ["which model it trains"]
        if not any(name in every for name in ("steps", "epochs", "tokens")):
            lacking.append("for how long")
        reason = f"The script does not say {' and '.join(lacking)}{why}. {remedy(script.command)}"
    elif "device" not in every:
        reason = _NO_DEVICE
    if answer is not None and not reason:
        return _answered(script, typed, answer)
    return estimate_job(
        source=SOURCE,
        name=script.resources.job_name,
        fields=script.fields,
        options=script.command.run_options,
        notes=script.notes,
        unread=script.unread,
        reason=reason,
        given=typed,
    )


def _answered(script: SlurmScript, typed: Mapping[str, Any], answer: Answer) -> JobEstimate:
    """The estimate with a run that somebody else predicts."""
    options = {
        **script.command.run_options,
        **{k: v for k, v in typed.items() if k in RunOptions.model_fields},
    }
    stated = {k: v for k, v in typed.items() if k not in RunOptions.model_fields}
    known: dict[str, Any] = {
        "source": SOURCE,
        "name": script.resources.job_name,
        "fields": {**script.fields, **stated},
        "options": options,
        "notes": script.notes,
        "unread": script.unread,
    }
    try:
        for name in {"model", "reference", "teacher"} - stated.keys():
            check_named_in_data(script.fields.get(name))
        request = Request.of({**script.fields, **stated})
        run = answer(request, RunOptions.of(options))
    except PrecisionTimeError as error:
        return JobEstimate(**known, reason=str(error))
    return JobEstimate(**known, request=request, run=run, step=run.phases[0].prediction)
