"""What a job asks of Slurm: `#SBATCH` lines, SBATCH_ variables and the command line of `sbatch`."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields

from precision_time.errors import ConfigError

_SHORT: Mapping[str, str] = {
    "A": "account", "B": "extra-node-info", "C": "constraint", "D": "chdir", "F": "nodefile", "G": "gpus",
    "J": "job-name", "L": "licenses", "M": "clusters", "N": "nodes", "S": "core-spec", "a": "array",
    "b": "begin", "c": "cpus-per-task", "d": "dependency", "e": "error", "i": "input", "m": "distribution",
    "n": "ntasks", "o": "output", "p": "partition", "q": "qos", "t": "time", "w": "nodelist", "x": "exclude",
}  # fmt: skip
"""Letters that take a value, and the names that they stand for."""
_BARE = frozenset({
    "contiguous", "exclusive", "get-user-env", "help", "hold", "ignore-pbs", "kill-on-invalid-dep", "no-kill",
    "no-requeue", "overcommit", "oversubscribe", "parsable", "quiet", "reboot", "requeue", "spread-job",
    "test-only", "usage", "use-min-nodes", "verbose", "version", "wait", "nice", "propagate",
})  # fmt: skip
"""Options without a value, or with one behind `=` only."""
_BARE_LETTERS = frozenset("HIkOQsvVWhK")
_VARIABLES: Mapping[str, str] = {
    "SBATCH_TIMELIMIT": "time", "SBATCH_PARTITION": "partition", "SBATCH_CONSTRAINT": "constraint",
    "SBATCH_GRES": "gres", "SBATCH_GPUS": "gpus", "SBATCH_GPUS_PER_NODE": "gpus-per-node",
    "SBATCH_GPUS_PER_TASK": "gpus-per-task", "SBATCH_JOB_NAME": "job-name", "SBATCH_ARRAY_INX": "array",
    "SBATCH_EXPORT": "export",
}  # fmt: skip
_GPUS = re.compile(
    r"(?:(?:gres[:/])?gpu[:=/])?(?:(?P<kind>[A-Za-z][\w.+-]*)[:=])?(?P<count>\d+)(?:\(.*\))?", re.ASCII
)
_TIMES = re.compile(r"(?:(?P<days>\d+)-)?(?P<clock>\d+(?::\d+){0,2})")
_ENDLESS = frozenset({"infinite", "unlimited", "-1", "0", "none"})
_MOST = 10_000_000


@dataclass(frozen=True, kw_only=True, slots=True)
class Resources:
    """What a job asks for; None and empty where it does not say."""

    nodes: int | None = None
    tasks: int | None = None
    tasks_per_node: int | None = None
    cpus_per_task: int | None = None
    gpus: int | None = None
    """In all."""
    gpus_per_node: int | None = None
    gpu_type: str = ""
    """As gres names it."""
    partition: str = ""
    constraint: str = ""
    time_s: float | None = None
    """The limit that was stated; None where none was."""
    job_name: str = ""
    array: str = ""
    export: str = ""
    unread: tuple[str, ...] = ()

    def variables(self) -> dict[str, str]:
        """The environment that Slurm sets in the job, as far as it follows from what was asked."""
        found = {
            "SLURM_NNODES": self.nodes,
            "SLURM_JOB_NUM_NODES": self.nodes,
            "SLURM_NTASKS": self.tasks,
            "SLURM_NPROCS": self.tasks,
            "SLURM_NTASKS_PER_NODE": self.tasks_per_node,
            "SLURM_CPUS_PER_TASK": self.cpus_per_task,
            "SLURM_GPUS": self.gpus if self.gpus_per_node is None else None,
            "SLURM_GPUS_PER_NODE": self.gpus_per_node,
            "SLURM_GPUS_ON_NODE": self.gpus_per_node,
            "SLURM_JOB_PARTITION": self.partition.partition(",")[0],
            "SLURM_JOB_NAME": self.job_name,
        }
        return {name: str(value) for name, value in found.items() if value not in (None, "")}


@dataclass(frozen=True, kw_only=True, slots=True)
class CommandLine:
    """The words behind `sbatch`, parted."""

    options: tuple[tuple[str, str], ...]
    """Long names and values, in their order; a switch has an empty value."""
    words: tuple[str, ...]
    """Of the options, as they were given."""
    script: str = ""
    """Empty where the script comes by stdin, or by --wrap."""
    arguments: tuple[str, ...] = ()

    def value(self, name: str) -> str | None:
        """The last value of an option; None where it was not given."""
        return next((value for key, value in reversed(self.options) if key == name), None)


def command_line(words: Sequence[str]) -> CommandLine:
    """The options, the script and its arguments of a command line of `sbatch`.

    Raises:
        ConfigError: If an option lacks its value.
    """
    options, used = _options(words, last=False)
    rest = words[used:]
    return CommandLine(
        options=tuple(options),
        words=tuple(words[:used]),
        script=rest[0] if rest else "",
        arguments=tuple(rest[1:]),
    )


def without(words: Sequence[str], name: str) -> list[str]:
    """The words without an option of that long name."""
    letter = next((key for key, value in _SHORT.items() if value == name), "")
    found: list[str] = []
    place = 0
    while place < len(words):
        _, used = _options(words[place:], last=False, most=1)
        used = max(used, 1)
        word = words[place]
        if not (word.partition("=")[0] == f"--{name}" or (letter and word.startswith(f"-{letter}"))):
            found += words[place : place + used]
        place += used
    return found


def _options(
    words: Sequence[str], *, last: bool, most: int | None = None
) -> tuple[list[tuple[str, str]], int]:
    """Options by long name, and how many words they take; `last`: words that are none are skipped."""
    found: list[tuple[str, str]] = []
    place = 0
    while place < len(words) and (most is None or len(found) < most):
        word = words[place]
        place += 1
        if not word.startswith("-") or word == "-":
            if last:
                continue
            return found, place - 1
        if word.startswith("--"):
            name, equals, value = word[2:].partition("=")
            if not equals and name not in _BARE:
                value, place = _next(words, place, word)
            found.append((name, value))
            continue
        letter, rest = word[1], word[2:]
        if letter in _BARE_LETTERS:
            found.append((letter, ""))
        else:
            if not rest:
                rest, place = _next(words, place, word)
            found.append((_SHORT.get(letter, letter), rest.removeprefix("=")))
    return found, place


def _next(words: Sequence[str], place: int, option: str) -> tuple[str, int]:
    if place >= len(words):
        raise ConfigError(f"{option} lacks its value. The rule: that of sbatch. To fix: {option} VALUE.")
    return words[place], place + 1


def lines_of(text: str) -> list[str]:
    """The words of the `#SBATCH` lines of a script, which end at its first command."""
    found: list[str] = []
    for line in text.splitlines():
        stripped = line.strip()
        if stripped.startswith("#SBATCH") and stripped[7:8] in ("", " ", "\t"):
            try:
                found += shlex.split(stripped[7:], comments=True)
            except ValueError:
                found += stripped[7:].split()
        elif stripped and not stripped.startswith("#"):
            break
    return found


def resources(
    text: str, *, line: CommandLine | None = None, environment: Mapping[str, str] | None = None
) -> Resources:
    """What a job asks for: the command line wins over SBATCH_ variables, and these over `#SBATCH` lines.

    Args:
        text: The script.
        line: Of `sbatch`.
        environment: Of `sbatch`.
    """
    unread: list[str] = []
    try:
        in_script, _ = _options(lines_of(text), last=True)
    except ConfigError as error:
        in_script = []
        unread.append(f"the #SBATCH lines: {error}")
    stated = dict(in_script)
    for variable, name in _VARIABLES.items():
        if value := (environment or {}).get(variable):
            stated[name] = value
    stated |= dict(line.options if line is not None else ())
    if any("hetjob" in word or word == ":" for word in lines_of(text)):
        unread.append("heterogeneous jobs: one component is read")
    return _resources(stated, unread)


def resources_of(stated: Mapping[str, str]) -> Resources:
    """`resources` of options by their long names, such as a service is sent."""
    return _resources({name.replace("_", "-"): str(value) for name, value in stated.items()}, [])


def merged(first: Resources, second: Resources) -> Resources:
    """What the first one says, and the second where it does not."""
    empty = Resources()
    return Resources(
        **{
            item.name: getattr(first, item.name)
            if getattr(first, item.name) != getattr(empty, item.name)
            else getattr(second, item.name)
            for item in fields(Resources)
        }
    )


def _resources(stated: Mapping[str, str], unread: list[str]) -> Resources:
    def count(name: str) -> int | None:
        text = stated.get(name)
        if text is None:
            return None
        # `2-4`: Slurm gives at least two; `4k` is 4096.
        found = re.fullmatch(r"(\d+)(?:-(\d+))?", text)
        if found is None or int(found[1]) < 1 or int(found[1]) > _MOST:
            unread.append(f"--{name}={text}")
            return None
        if found[2] and found[2] != found[1]:
            unread.append(f"--{name}={text}: how many it gets is known only when it starts")
            return None
        return int(found[1])

    nodes, tasks, per_node = count("nodes"), count("ntasks"), count("ntasks-per-node")
    gpus, kind = _gpus(stated.get("gpus"))
    on_node, other = _gpus(_gres(stated))
    of_task, third = _gpus(stated.get("gpus-per-task"))
    if nodes is None and tasks is not None and per_node:
        nodes = -(-tasks // per_node)
    if tasks is None and per_node is not None and nodes is not None:
        tasks = per_node * nodes
    if of_task is not None and gpus is None and tasks is not None:
        gpus = of_task * tasks
    if gpus is not None and on_node and nodes is None:
        nodes = -(-gpus // on_node)
    if "nodes" not in stated and nodes is None and gpus is None and tasks is None:
        nodes = 1
    if on_node is None and gpus is not None and nodes and gpus % nodes == 0:
        on_node = gpus // nodes
    if gpus is None and on_node is not None and nodes is not None:
        gpus = on_node * nodes
    time_s = None
    if (text := stated.get("time")) is not None:
        try:
            time_s = time_of(text)
        except ConfigError as error:
            unread.append(str(error))
    return Resources(
        nodes=nodes,
        tasks=tasks,
        tasks_per_node=per_node,
        cpus_per_task=count("cpus-per-task"),
        gpus=gpus,
        gpus_per_node=on_node,
        gpu_type=kind or other or third,
        partition=stated.get("partition", ""),
        constraint=stated.get("constraint", ""),
        time_s=time_s,
        job_name=stated.get("job-name", ""),
        array=stated.get("array", ""),
        export=stated.get("export", ""),
        unread=tuple(unread),
    )


def _gres(stated: Mapping[str, str]) -> str | None:
    """The GPUs of a node: --gpus-per-node, or the GPU in a list of generic resources."""
    if (found := stated.get("gpus-per-node")) is not None:
        return found
    each = [part for part in stated.get("gres", "").split(",") if re.match(r"(gres[:/])?gpu\b", part)]
    return each[0] if each else None


def _gpus(text: str | None) -> tuple[int | None, str]:
    """Number and type in `a100:4`, `gpu:a100:4`, `gpu:4`, `gpu:a100` or `4`.

    >>> _gpus("gpu:a100:4")
    (4, 'a100')
    """
    if not text:
        return None, ""
    text = re.sub(r"^(gres[:/])?", "", text.partition(",")[0])
    if text == "gpu":
        return 1, ""
    if found := _GPUS.fullmatch(text):
        return min(int(found["count"]), _MOST), found["kind"] or ""
    kind = re.fullmatch(r"gpu[:/]([A-Za-z][\w.+-]*)", text)
    return (1, kind[1]) if kind else (None, "")


def time_of(text: str) -> float:
    """Seconds of a time as Slurm has it: minutes, minutes:seconds, hours:minutes:seconds, with days before.

    >>> time_of("90"), time_of("1-12"), time_of("2:30:00")
    (5400.0, 129600.0, 9000.0)

    Raises:
        ConfigError: If it is no such time.
    """
    if text.strip().lower() in _ENDLESS:
        return float("inf")
    found = _TIMES.fullmatch(text.strip())
    if found is None:
        raise ConfigError(
            f"time={text!r:.60} is no time of Slurm. The rule: minutes, or days-hours:minutes:seconds. "
            "To fix: such as 90, 1:30:00 or 2-12:00:00."
        )
    parts = [int(part) for part in found["clock"].split(":")]
    if found["days"] is not None:
        hours, minutes, seconds = (*parts, 0, 0)[:3]
    elif len(parts) == 3:
        hours, minutes, seconds = parts
    else:
        hours, (minutes, seconds) = 0, (*parts, 0)[:2]
    return float(((int(found["days"] or 0) * 24 + hours) * 60 + minutes) * 60 + seconds)


def time_text(seconds: float) -> str:
    """Seconds as Slurm writes them.

    >>> time_text(9000.0), time_text(129600.0)
    ('2:30:00', '1-12:00:00')
    """
    days, rest = divmod(round(seconds), 86_400)
    hours, rest = divmod(rest, 3600)
    minutes, left = divmod(rest, 60)
    return f"{days}-{hours:02d}:{minutes:02d}:{left:02d}" if days else f"{hours}:{minutes:02d}:{left:02d}"
