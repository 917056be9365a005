"""`read_command`: what a command line or a script trains, as fields of a request. Nothing is executed."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from precision_time.errors import ConfigError, PrecisionTimeError
from precision_time.launch.emit import facts_of_config
from precision_time.request.schema import RUN_LENGTHS

from ..recipes.arguments import STARTS_ITSELF, recipe_of_launch
from ..recipes.recipe import Recipe
from .accelerate import accelerate_facts
from .arguments import Arguments, put_facts, read_arguments
from .configs import no_files
from .expand import Expansions, as_written, is_known, told
from .launchers import Files, Launch, count_own, programs, unwrapped
from .shell import Command, check_text, check_words, read_shell
from .statement import COMMENT, VARIABLE, stated_fields, statement_in

_DEEPEST = 4
"""Scripts that start scripts."""
_SPREADING = frozenset({"srun", "torchrun", "accelerate", "deepspeed", "mpirun", "horovodrun"})


@dataclass(frozen=True, kw_only=True, slots=True)
class ReadCommand:
    """What a command line says of the training it starts."""

    launcher: str = ""
    """From the outside in: `srun torchrun`, `python`; empty where none was found."""
    nodes: int | None = None
    gpus: int | None = None
    """Devices of the job: one for each process. None where only a run could tell."""
    processes_per_node: int | None = None
    script: str = ""
    """Path or module of the training script."""
    arguments: tuple[str, ...] = ()
    """Of the script."""
    style: str = ""
    """Whose names the arguments have: hf-trainer, megatron, nemo, torchtitan, lightning, plain."""
    fields: Mapping[str, Any] = field(default_factory=dict)
    """Fields of a request, `gpus` and `nodes` among them: for `Request.of`, with what else is known."""
    run_options: Mapping[str, Any] = field(default_factory=dict)
    """Options of a whole run (`RunOptions`)."""
    recipe: Recipe | None = None
    """What its arguments and the recipe that they name say, where a vocabulary of recipes has them."""
    stated: frozenset[str] = frozenset()
    """Fields that a `#PRECISION_TIME` line or PRECISION_TIME_JOB set."""
    notes: tuple[str, ...] = ()
    """How something was understood."""
    assumed: tuple[str, ...] = ()
    """Defaults of the project that hold where its arguments are silent, each with its version."""
    unread: tuple[str, ...] = ()
    """What could not be known, each with where it stands."""


@dataclass(frozen=True, slots=True)
class _Around:
    """What is known of the environment of a command."""

    environment: Mapping[str, str] | None
    """All of it; None where it is not known."""
    scheduler: Mapping[str, str]
    """Variables that are known in either case."""
    expansions: Expansions = field(default_factory=Expansions)


@dataclass(slots=True)
class _Found:
    launch: Launch
    command: Command
    files: Files
    defaults: Mapping[str, str]


def read_command(
    argv_or_text: Sequence[str] | str,
    *,
    environment: Mapping[str, str] | None = None,
    files: Files | None = None,
    gpus_per_node: int | None = None,
    nodes: int | None = None,
    scheduler: Mapping[str, str] | None = None,
    arguments: Sequence[str] = (),
) -> ReadCommand:
    """What a command line, or a whole shell script, trains.

    Args:
        argv_or_text: Words as a container has them, or text of a shell.
        environment: Variables that are set when it starts; None where that is not known.
        files: Text of a file by the name that the command has for it, None where it is not there; None: no
            file is read.
        gpus_per_node: Devices of a node that a scheduler grants, for `--nproc-per-node gpu`.
        nodes: That a scheduler grants, for launchers that are not told.
        scheduler: Variables that a scheduler sets in the job (SLURM_NTASKS ...): they are known even where
            `environment` is not, and launchers read them.
        arguments: Of the script, where the text is one.

    Returns:
        Launcher, counts and fields; `unread` lists what could not be known.

    Raises:
        ConfigError: If the text is binary, too long, or its quotes do not end, or if a statement
            (`#PRECISION_TIME`) is wrong.
    """
    read = _reading(files or no_files)
    around = _Around(environment, dict(scheduler or {}))
    text = argv_or_text if isinstance(argv_or_text, str) else ""
    candidates: list[_Found] = []
    unread: list[str] = []
    if isinstance(argv_or_text, str):
        comments = tuple(line.strip() for line in text.splitlines() if line.lstrip().startswith("#"))
        check_text(text)
        statement = statement_in(comments, environment)
        try:
            _search(text, around, arguments, read, candidates, unread)
        except ConfigError as error:
            if not statement:
                raise
            unread.append(str(error))
    else:
        statement = statement_in((), environment)
        words = tuple(str(word) for word in argv_or_text)
        check_text("\n".join(words))
        check_words(words)
        _take(Command(words=words, environment={}, line=1), around, read, {}, candidates, unread)
    fields, run = stated_fields(statement) if statement else ({}, {})
    chosen = _chosen(candidates, unread, stated=bool(statement))
    if chosen is None:
        if not statement and not unread:
            unread.append(
                "no line starts a training script (torchrun, srun, accelerate, deepspeed, python ...)"
            )
        return ReadCommand(
            fields=fields, run_options=run, stated=frozenset({*fields, *run}), unread=tuple(unread)
        )
    return _result(chosen, (fields, run), unread, around, gpus_per_node=gpus_per_node, nodes=nodes)


def _reading(files: Files) -> Files:
    """Reads files whose names are known."""

    def read(name: str) -> str | None:
        return files(name) if is_known(name) else None

    return read


def _search(
    text: str,
    around: _Around,
    arguments: Sequence[str],
    files: Files,
    found: list[_Found],
    unread: list[str],
    depth: int = 0,
) -> None:
    """Collect the commands of a shell text that start something."""
    known_before = len(around.environment or ()) + len(around.scheduler)
    around.expansions.add((len(text) if depth else 0) + known_before)
    script = read_shell(
        text,
        environment=around.environment,
        known=around.scheduler,
        arguments=arguments,
        expansions=around.expansions,
    )

    def read(name: str) -> str | None:
        # A name that only a run could tell is still the name of what the script writes itself.
        written = script.files.get(name.removeprefix("./"))
        return written if written is not None else files(name)

    known = {name: value for name, value in script.variables.items() if isinstance(value, str)}
    inner = _Around(None if around.environment is None else known, known, around.expansions)
    for command in script.commands:
        _take(
            command,
            inner,
            read,
            script.defaults,
            found,
            unread,
            depth,
        )


def _take(
    command: Command,
    around: _Around,
    files: Files,
    defaults: Mapping[str, str],
    found: list[_Found],
    unread: list[str],
    depth: int = 0,
) -> None:
    """Keep a command if it starts a script; follow shells into theirs."""
    launch = unwrapped(command.words, files)
    if (launch.shell or launch.shell_file) and depth < _DEEPEST:
        inner: list[_Found] = []
        text = launch.shell if launch.shell else files(launch.shell_file)
        if launch.shell:
            text, around = _with_unknowns(launch.shell, around)
        if text is None:
            if launch.launchers:
                unread.append(f"line {command.line}: {told(launch.shell_file)} is not there to be read")
            return
        try:
            _search(text, around, launch.words, files, inner, unread, depth + 1)
        except ConfigError as error:
            unread.append(f"line {command.line}: {error}")
        around.expansions.add(len(inner) * len(defaults))
        for each in inner:
            each.launch = _joined(launch, each.launch)
            each.defaults = {**defaults, **each.defaults}
            each.command = command if launch.shell else each.command
        found += inner
    elif launch.script and launch.script != "-c":
        launch.environment = {**command.environment, **launch.environment}
        count_own(launch)
        found.append(_Found(launch, command, files, defaults))
    elif launch.launchers and launch.words and launch.launchers != ["srun"]:
        unread.append(f"line {command.line}: {_begun(command)}: no script found")


def _with_unknowns(text: str, around: _Around) -> tuple[str, _Around]:
    """A text for another shell, with what is not known in it as variables of no known value."""
    unknowns: dict[str, str] = {}

    def named(found: re.Match[str]) -> str:
        name = f"unknown_{len(unknowns)}"
        unknowns[name] = found[0]
        return f"${{{name}}}"

    return re.sub(r"\0[^\0]*\0", named, text), replace(around, scheduler={**around.scheduler, **unknowns})


def _joined(outer: Launch, inner: Launch) -> Launch:
    """A launcher in the shell that another one starts."""
    inner.launchers = [*outer.launchers, *inner.launchers]
    inner.nodes = inner.nodes if inner.nodes is not None else outer.nodes
    if not set(inner.launchers) & {"torchrun", "accelerate", "deepspeed"}:
        inner.per_node = inner.per_node if inner.per_node is not None else outer.per_node
        inner.processes = inner.processes if inner.processes is not None else outer.processes
    inner.unread = [*outer.unread, *inner.unread]
    return inner


def _begun(command: Command) -> str:
    """How a command begins, for people; cut first: a word of it may be a whole script."""
    return as_written(" ".join(word[:200] for word in command.words[:80]))[:80]


def _chosen(found: Sequence[_Found], unread: list[str], *, stated: bool) -> _Found | None:
    """The one command that trains; others take time that nobody predicts, and are listed."""
    spread = [each for each in found if set(each.launch.launchers) & {*_SPREADING, *programs()}]
    training = spread or list(found)
    if len(training) > 1:
        named = [each for each in training if "train" in each.launch.script.lower()]
        training = named if len(named) == 1 else training
    if not training:
        return None
    last = training[-1]
    alone = len(training) == 1 or stated
    for each in found:
        if each is not last and alone:
            what = f"line {each.command.line} runs too, and its time is not predicted: {_begun(each.command)}"
            unread.append(what)
    if len(training) > 1 and not stated:
        lines = ", ".join(str(each.command.line) for each in training)
        unread.append(f"lines {lines} each start a script: which one trains is not known")
        return None
    if last.command.inside in ("loop", "function") and not stated:
        unread.append(
            f"line {last.command.line} stands in a {last.command.inside}: how often it runs is not known"
        )
        return None
    return last


def _result(
    found: _Found,
    stated: tuple[dict[str, Any], dict[str, Any]],
    unread: list[str],
    around: _Around,
    *,
    gpus_per_node: int | None,
    nodes: int | None,
) -> ReadCommand:
    launch = found.launch
    _tasks_of_job(launch, {**(around.environment or {}), **around.scheduler})
    notes = [
        f"{name} is taken as {value}, its default, since the environment is not known"
        for name, value in found.defaults.items()
    ]
    of_launcher = Arguments()
    counts = _launcher_config(launch, found.files, of_launcher)
    num_nodes, gpus, per_node = _devices(launch, counts, gpus_per_node, nodes)
    of_project = recipe_of_launch(
        launch, found.files, line=found.command.line, gpus=gpus, below=of_launcher.fields
    )
    recipe = None
    if of_project is None:
        read = read_arguments(launch.script, launch.words, found.files, gpus=gpus)
    else:
        style, recipe = of_project
        read = Arguments(
            style=style, fields=dict(recipe.fields), run=dict(recipe.run), unread=[*recipe.unread]
        )
        read.nodes = read.fields.pop("nodes", None)
        stated_gpus = read.fields.pop("gpus", None)
        read.devices_per_node = stated_gpus // (read.nodes or 1) if stated_gpus else None
        gpus = gpus if gpus is not None else stated_gpus
    if read.style in STARTS_ITSELF:
        # Lightning starts its processes itself, and is told how many it has to expect of a launcher.
        num_nodes = read.nodes or num_nodes
        per_node = read.devices_per_node or (
            per_node if launch.processes or launch.per_node else gpus_per_node
        )
        gpus = (num_nodes or 1) * per_node if per_node else gpus
    deepspeed = Arguments()
    if read.deepspeed:
        _deepspeed(read.deepspeed, found.files, deepspeed, gpus)
    fields = {**of_launcher.fields, **deepspeed.fields, **read.fields}
    if "zero_stage" in deepspeed.fields:
        fields["zero_stage"] = deepspeed.fields["zero_stage"]  # Megatron's own flag is another one
    if read.style == "plain" and "batch_size" in fields:
        notes.append(f"batch_size={fields['batch_size']} is taken as samples of one process (one device)")
    if gpus is not None:
        fields["gpus"] = gpus
    if num_nodes is not None and num_nodes > 1 and (gpus is None or gpus >= num_nodes):
        fields["nodes"] = num_nodes
    fields |= stated[0]
    unread = [*unread, *launch.unread, *of_launcher.unread, *deepspeed.unread, *read.unread]
    return ReadCommand(
        launcher=" ".join(launch.launchers),
        nodes=num_nodes,
        gpus=fields.get("gpus", gpus),
        processes_per_node=per_node,
        script=as_written(launch.script),
        arguments=tuple(as_written(word) for word in launch.words),
        style=read.style,
        fields=_with_run(fields, recipe),
        run_options={**read.run, **stated[1]},
        recipe=None
        if recipe is None
        else replace(recipe, fields=fields, unread=tuple(dict.fromkeys(unread))),
        stated=frozenset({*stated[0], *stated[1]}),
        notes=tuple(notes),
        assumed=() if recipe is None else recipe.assumed,
        unread=tuple(dict.fromkeys(unread)),
    )


def _with_run(fields: Mapping[str, Any], recipe: Recipe | None) -> dict[str, Any]:
    """The fields without a length that only the project's default says, where nothing says of what data."""
    if recipe is None or {"dataset", "samples"} & fields.keys():
        return dict(fields)
    return {
        name: value for name, value in fields.items() if name not in recipe.silent or name not in RUN_LENGTHS
    }


def _launcher_config(launch: Launch, files: Files, found: Arguments) -> dict[str, int]:
    """Fields of the configuration of `accelerate launch`; its counts of processes and machines."""
    if "accelerate" not in launch.launchers:
        return {}
    counts: dict[str, int] = {}
    try:
        facts = accelerate_facts(launch, files, found.unread)
        counts = {name: facts[name] for name in ("devices", "hosts") if isinstance(facts.get(name), int)}
        put_facts(found, {**facts, "copies": None}, counts.get("devices"))
    except (PrecisionTimeError, ValueError, TypeError, ArithmeticError) as error:
        found.unread.append(f"the configuration of accelerate: {error}")
    return counts


def _tasks_of_job(launch: Launch, variables: Mapping[str, str]) -> None:
    """`srun` and the MPI launchers start as many tasks as the job has, unless they are told."""
    told = launch.processes is not None or launch.per_node is not None
    if told or set(launch.launchers) & {"torchrun", "accelerate", "deepspeed"}:
        return
    if launch.launchers[:1] in (["srun"], ["mpirun"]):
        counts = {
            name: int(variables[key])
            for name, key in (("processes", "SLURM_NTASKS"), ("per_node", "SLURM_NTASKS_PER_NODE"))
            if variables.get(key, "").isdigit()
        }
        if launch.nodes is None or "per_node" in counts:
            launch.per_node = counts.get("per_node")
        launch.processes = counts.get("processes") if launch.nodes is None else None


def _deepspeed(path: str, files: Files, found: Arguments, gpus: int | None) -> None:
    """Fields of a DeepSpeed configuration, in a file or in the argument itself."""
    text = path if path.lstrip().startswith("{") else files(path)
    if text is None:
        found.unread.append(f"the DeepSpeed configuration {told(path)} is not there to be read")
        return
    try:
        put_facts(found, facts_of_config("deepspeed", text), gpus)
    except (PrecisionTimeError, ValueError, TypeError, ArithmeticError) as error:
        found.unread.append(f"the DeepSpeed configuration {told(path)}: {error}")


def _devices(
    launch: Launch, counts: Mapping[str, int], gpus_per_node: int | None, nodes: int | None
) -> tuple[int | None, int | None, int | None]:
    """Nodes, devices and processes of a node."""
    num_nodes = launch.nodes if launch.nodes is not None else counts.get("hosts")
    granted = num_nodes if num_nodes is not None else nodes
    if launch.launchers in ([], ["python"]):
        return 1, 1, 1
    processes = launch.processes if launch.processes is not None else counts.get("devices")
    if set(launch.launchers) & {"torchrun", "accelerate", "deepspeed"} and "srun" not in launch.launchers:
        granted = num_nodes if num_nodes is not None else 1
    per_node = launch.per_node
    if launch.all_devices and per_node is None:
        per_node = gpus_per_node
    if processes is not None:
        granted = granted or 1
        return granted, processes, math.ceil(processes / granted) if per_node is None else per_node
    if per_node is not None:
        return (
            granted,
            per_node * (granted or 1) if granted or launch.launchers[-1] != "srun" else None,
            per_node,
        )
    if launch.launchers[0] == "srun" and len(launch.launchers) > 1 and launch.launchers[1] == "python":
        return granted, granted, 1 if granted else None
    return granted, None, None


def missing_fields(read: ReadCommand) -> tuple[str, ...]:
    """What has to be added for a prediction: the model, and how long the run is."""
    lengths = ("steps", "epochs", "tokens")
    found = [] if "model" in read.fields else ["model"]
    return (*found, *([] if any(name in read.fields for name in lengths) else ["steps or epochs"]))


def remedy(read: ReadCommand) -> str:
    """What to add to a script, as a line of it."""
    example = {"model": "model=resnet50", "steps or epochs": "steps=10000"}
    words = " ".join(example[name] for name in missing_fields(read))
    return f"To fix: add a line such as `{COMMENT} {words}` to the script, or set {VARIABLE}."
