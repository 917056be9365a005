"""A job as the flags or the configuration file of a launcher."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from ..cost.job import Job
from ..errors import ConfigError, LayoutError, PrecisionTimeError, UnknownNameError
from ..records import dataclass
from ..request.layout import needed_fields, option_words
from . import LAUNCHERS, formats
from .facts import PLAIN, Facts, facts_of, fields_of_facts
from .table import Launcher, holds, launcher_of


@dataclass(frozen=True, kw_only=True, slots=True)
class LaunchConfig:
    """What a launcher is started with."""

    launcher: str
    version: str
    """Of the launcher whose settings these are."""
    file: str
    """Usual name of the file."""
    text: str
    """The file."""
    settings: Mapping[str, Any]
    """The same by key."""
    notes: tuple[str, ...]
    """What to set elsewhere, and what the launcher cannot say."""

    def __str__(self) -> str:
        """The file."""
        return self.text

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready dictionary; keys are the field names."""
        return asdict(self)


def known_launcher(name: str) -> Launcher:
    """The table of a launcher.

    Raises:
        UnknownNameError: If there is none of that name.
    """
    if name not in LAUNCHERS:
        raise UnknownNameError(
            kind="launcher", name=name, known=LAUNCHERS, hint=f"Known: {', '.join(LAUNCHERS)}."
        )
    return launcher_of(name)


def launch_config_of(job: Job, launcher: str, *, sizes: Any = None, said: Sequence[str] = ()) -> LaunchConfig:
    """The settings of a job for a launcher.

    Args:
        job: With its layout.
        launcher: One of `LAUNCHERS`.
        sizes: Configuration of the model where it comes out of a table (`decoder_sizes`).
        said: Further remarks for its head.

    Raises:
        UnknownNameError: No such launcher.
        LayoutError: If it cannot run this layout; the message has every reason.
    """
    table = known_launcher(launcher)
    facts = table.with_choices(facts_of(job, sizes))
    settings = _settings(table, facts)
    errors, notes = _remarks(table, facts)
    if errors:
        raise LayoutError(
            f"{table.title} {table.version} cannot run this layout: {'; '.join(errors)}. To fix: a layout "
            "with those fields as it can run them (`precision-time layout` takes them with --fix)."
        )
    if table.stacks and job.stack.profile not in table.stacks:
        notes += (
            f"priced on the stack {job.stack.profile}: --stack {table.stacks[0]} has the times and "
            f"the memory of {table.title}.",
        )
    words = option_words(needed_fields(job.layout, job.workload))
    head = (
        f"{table.title} {table.version} ({table.source})",
        f"{facts['model']} on {facts['devices']} x {job.cluster.device.name}, {facts['precision']}: {words}",
        *said,
    )
    command = _filled(table.command, facts)
    if table.format in ("json", "yaml"):
        head += (f"Start: {command}",)
    remarks = (*head, *(f"Note: {note}" for note in notes))
    return LaunchConfig(
        launcher=launcher,
        version=table.version,
        file=table.file,
        text=formats.write(table.format, command, settings, remarks, table.ending),
        settings=settings,
        notes=notes,
    )


def layout_of_config(
    launcher: str, text: str, *, num_layers: int = 0, gpus: int | None = None
) -> dict[str, Any]:
    """The layout fields of a request that a launcher's file says: the way back from `launch_config_of`.

    Args:
        launcher: One of `LAUNCHERS`.
        text: The file.
        num_layers: Of the model: recomputed layers are a share of them.
        gpus: Devices of the job, where the file does not say how many replicas there are.

    Raises:
        UnknownNameError: No such launcher.
        ConfigError: If the text is none of its files.
    """
    facts = facts_of_config(launcher, text)
    try:
        return fields_of_facts(facts, num_layers, gpus)
    except PrecisionTimeError:
        raise
    except (TypeError, ValueError, ZeroDivisionError) as error:
        raise ConfigError(
            f"The file of {launcher} has a value that no layout has ({error}). To fix: give numbers where it "
            'takes them; what it leaves to the launcher ("auto") has to be said.'
        ) from None


def facts_of_config(launcher: str, text: str) -> dict[str, Any]:
    """What a launcher's file says, in the words of `facts`: batch, precision and sizes beside the layout.

    Args:
        launcher: One of `LAUNCHERS`.
        text: The file, or the arguments of a command line.

    Raises:
        UnknownNameError: If there is no launcher of that name.
        ConfigError: If the text is none of its files.
    """
    table = known_launcher(launcher)
    return _facts_of_settings(table, formats.read(table.format, text, [each.key for each in table.settings]))


def _settings(table: Launcher, facts: Facts) -> dict[str, Any]:
    said = ((setting.key, setting.said(facts)) for setting in table.settings)
    found = {key: value for key, value in said if value not in (None, "")}
    return {key: _filled(value, facts) if isinstance(value, str) else value for key, value in found.items()}


def _filled(text: str, facts: Facts) -> str:
    """Text with the facts in braces filled in."""
    return text.format_map(facts) if "{" in text else text


def _remarks(table: Launcher, facts: Facts) -> tuple[list[str], tuple[str, ...]]:
    """What a launcher cannot run, and what it does not say; every fact is said, remarked on or an error."""
    errors: list[str] = []
    notes: list[str] = []
    known: set[str] = set()
    for limit in table.limits:
        if limit.about(facts):
            known |= {limit.fact, *limit.covers}
            text = _filled(limit.text, facts)
            (errors if limit.kind == "error" else notes).append(
                text.rstrip(".") if limit.kind == "error" else text
            )
    for setting in table.settings:
        if setting.said(facts) is not None:
            known |= {setting.fact, *setting.covers}
    for name, plain in PLAIN.items():
        if facts[name] != plain and name not in known:
            errors.append(f"it has no setting for {name}={facts[name]}")
    return errors, tuple(notes)


def _facts_of_settings(table: Launcher, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Facts that these settings say: those of plain values first, since conditions depend on them."""
    found: dict[str, Any] = {}
    for setting in table.settings:
        if setting.fact and setting.values is None and setting.key in settings:
            found[setting.fact] = settings[setting.key]
    words: dict[str, list[Any]] = {}
    for setting in table.settings:
        if setting.values is not None and setting.fact not in found:
            words.setdefault(setting.fact, []).append(setting)
    for _ in words:
        implied = {
            row["fact"]: row["value"]
            for row in table.implied
            if holds(row.get("when"), found) and row.get("key", next(iter(settings), "")) in settings
        }
        found |= implied
        for fact, rows in words.items():
            if fact in implied:
                continue
            candidates = dict.fromkeys(value for row in rows for value in row.values)
            plain = str(PLAIN.get(fact, "")).lower()
            # A file that its user wrote may leave all keys of a fact out, which says nothing of it, unless
            # the table has a value for that.
            silent = not any(row.key in settings or "" in row.values.values() for row in rows)
            for candidate in (plain,) if silent else (plain, *candidates):
                trial = {**_PLAIN_FACTS, **found, fact: _typed(fact, candidate)}
                if all(_agrees(row.said(trial), settings.get(row.key)) for row in rows):
                    found[fact] = _typed(fact, candidate)
                    break
    return found


_PLAIN_FACTS = {name: value for name, value in PLAIN.items() if value is not None}


def _agrees(said: Any, given: Any) -> bool:
    return (said in (None, "") and given is None) or str(said).lower() == str(given).lower()


def _typed(fact: str, word: str) -> Any:
    """The value of a fact from its word in a table."""
    plain = PLAIN.get(fact)
    if isinstance(plain, bool):
        return word == "true"
    return int(word) if isinstance(plain, int) and word.lstrip("-").isdigit() else word
