"""Command-line options made of the fields of `Request`: a new field is a new option."""

from __future__ import annotations

import functools
import inspect
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import typer

from ..errors import ConfigError, PrecisionTimeError
from ..fields import Option, choices_of, plain_type
from ..predict.prediction import Skipped
from ..predict.predictions import plain_fields
from ..request.files import is_request_file, read_jobs
from ..request.recipes import Recipe, recipe_of
from ..request.request import Request
from ..request.schema import ALIASES, RequestFields, over, sections_of_fields
from ..request.sweep import combinations_of
from ..request.validation import Field
from ..workload.resolve import check_named_in_data
from .options import COMPLETIONS, PREFIX, SETTINGS, complete_words, flags_of, sign
from .output import message, write_page

_SEVERAL_PRECISIONS = "Precision, several separated by commas, or all that the device can do."
SHOWN_TYPES = {int: "INTEGER", float: "NUMBER", Path: "FILE"}
"""How a type is called where a field does not say."""
SHOWN = frozenset(
    {
        *("device", "gpus", "nodes", "precision", "batch_size", "global_batch_size", "seq_len", "image_size"),
        *("sizes", "dataset", "samples", "epochs", "steps", "tokens", "adapter", "optimizer", "stack"),
        *("compiler", "channels_last", "tp", "pp", "cp", "ep", "zero_stage", "num_microbatches", "recompute"),
        *("custom", "calibration"),
    }
)
"""Fields that the help of a command shows as options; all others go by --set, or are typed as options too."""


Further = Callable[[], Mapping[str, Field]]
"""Fields beside those of a request; asked for when one is named."""


def request_options(
    *,
    only: Iterable[str] = (),
    several: bool = False,
    also: Further | None = None,
    shown: Iterable[str] = SHOWN,
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Let a command that ends in `**fields` take every field of a request, some as options, all by --set.

    The command's own parameters come after them. A field that is not given is not in `fields`.

    Args:
        only: Fields to take; all when empty.
        several: Whether options take several values, separated by commas.
        also: Further fields, taken like those of a request.
        shown: Fields that are options in the help.
    """
    kept, as_options = set(only), set(shown)

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        signature = inspect.signature(command, eval_str=True)
        own = [item for item in signature.parameters.values() if item.kind is not item.VAR_KEYWORD]
        names = {"model"} | {item.name for item in own}

        def fields() -> dict[str, Field]:
            """Every field that the command takes."""
            found = {
                name: info for name, info in RequestFields.model_fields.items() if not kept or name in kept
            }
            found |= {} if also is None else also()
            return {name: info for name, info in found.items() if name not in names and info.option}

        def with_options(chosen: Mapping[str, Field], *more: inspect.Parameter) -> inspect.Signature:
            listed = [
                _parameter(name, info, option, several=several, section=sections_of_fields().get(name, ""))
                for name, info in chosen.items()
                if (option := info.option)
            ]
            before = [item for item in own if item.kind is not item.KEYWORD_ONLY]
            behind = [item for item in own if item.kind is item.KEYWORD_ONLY]
            return signature.replace(parameters=[*before, *listed, *more, *behind])

        @functools.wraps(command)
        def asked(*arguments: Any, **given: Any) -> None:
            if pairs := given.pop(SETTINGS, None):
                from .settings import settings_of

                given |= settings_of(pairs, fields, given)
            command(*arguments, **given)

        def with_every_option() -> Callable[..., None]:
            @functools.wraps(command)
            def called(**given: Any) -> None:
                command(**given)

            return sign(called, with_options(fields()))

        usual = {
            name: info
            for name, info in RequestFields.model_fields.items()
            if name in as_options and name not in names and (not kept or name in kept)
        }
        asked.fields = fields  # type: ignore[attr-defined]
        asked.with_every_option = with_every_option  # type: ignore[attr-defined]
        further = [] if kept and kept <= as_options else [_set_option()]
        return sign(asked, with_options(usual, *further))

    return decorate


def _set_option() -> inspect.Parameter:
    option = typer.Option(
        "--set",
        metavar="FIELD=VALUE",
        help="Any field of the job, such as lora_rank=8 (`precision-time list fields`); may be repeated.",
        autocompletion=_complete_field,
    )
    return inspect.Parameter(
        SETTINGS, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[list[str] | None, option]
    )


def _complete_field(prefix: str) -> list[str]:
    return [
        f"{name}="
        for name, info in RequestFields.model_fields.items()
        if info.option and name.startswith(prefix)
    ]


def requests_of(model: str, fields: Mapping[str, Any]) -> list[Request]:
    """What a command line asks: one request, or one for each combination where an option has several values.

    The same of a job file, with the options in the place of its fields.

    Raises:
        ConfigError: If a value breaks the rule of its field.
    """
    given = given_options(fields)
    if not is_request_file(model):
        return combinations_of({"model": model, **given}, prefix=PREFIX)
    found = []
    for job in read_jobs(model):
        try:
            found += job.requests(**given)
        except ConfigError as error:
            raise ConfigError(f"{model}, {job.place}: {error}") from None
    return found


def report_of(model: str | None, fields: Mapping[str, Any]) -> tuple[Recipe, dict[str, Any]] | None:
    """The recipe of another project that was asked about, and the options beside it; None for others.

    Raises:
        ConfigError: If it cannot be read.
    """
    recipe = recipe_of(model) if model else None
    return None if recipe is None else (recipe, given_options(fields))


def say_recipe(model: str | None, fields: Mapping[str, Any], *, aside: bool = True) -> None:
    """Write how a recipe was understood, before the answer to it."""
    if (found := report_of(model, fields)) is None:
        return
    recipe, given = found
    if aside:
        for line in recipe.lines(given):
            message(line)
    else:
        from ..render.blocks import GAP, Text

        write_page([*map(Text, recipe.lines(given)), GAP])


def given_fields(model: str, fields: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
    """The model and the fields of one job as they were given, lists and ranges among them.

    Raises:
        ConfigError: If the file holds several jobs, or none with a model.
    """
    given = given_options(fields)
    if not is_request_file(model):
        return model, given
    jobs = read_jobs(model)
    if len(jobs) > 1 or not isinstance(jobs[0].fields.get("model"), str):
        raise ConfigError(
            f"{model} holds {len(jobs)} jobs, and one with one model is planned. To fix: split the file."
        )
    stated = {ALIASES.get(name, name): value for name, value in jobs[0].fields.items()}
    if jobs[0].recipe is not None:
        say_recipe(model, fields)
        stated = jobs[0].recipe.merged(given)
    named = stated.pop("model")
    check_named_in_data(named)
    return named, over(stated, given)


def requests_of_jobs(path: Path, fields: Mapping[str, Any]) -> list[Request | Skipped]:
    """What a file of many jobs asks, in its order; a job that breaks a rule is passed on with the reason.

    Raises:
        ConfigError: If the file cannot be read.
    """
    given = given_options(fields)
    found: list[Request | Skipped] = []
    for job in read_jobs(path):
        try:
            found += job.requests(**given)
        except PrecisionTimeError as error:
            asked = plain_fields(over(job.fields, given))
            found.append(Skipped(request=asked, reason=f"{path.name}, {job.place}: {error}"))
    return found


def given_options(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The options that were given, as fields of a request."""
    given = {name: value for name, value in fields.items() if value is not None}
    if "sizes" in given:
        given["sizes"] = sizes_of(given["sizes"])
    several = ("sizes", "anchors", "inputs")
    return {name: value for name, value in given.items() if name not in several or value}


def requests_in_words(words: Iterable[str]) -> list[Request]:
    """What `precision-time predict WORDS` asks; options of the page that it prints aside."""
    from .main import load_command
    from .settings import settings_of

    command = load_command("predict")
    fields = command.make_context("predict", [*words]).params
    fields |= settings_of(fields.pop(SETTINGS) or (), command.callback.fields, fields)
    names = RequestFields.model_fields.keys() - {"model"}
    named = {name: value for name, value in fields.items() if RequestFields.own_name(name) in names}
    return requests_of(fields["model"], named)


def one_request(model: str, fields: Mapping[str, Any]) -> Request:
    """`requests_of` for a command that answers one request.

    Raises:
        ConfigError: If a job file holds several.
    """
    say_recipe(model, fields)
    return _only(requests_of(model, fields), model)


def _only(found: Sequence[Request], model: str) -> Request:
    if len(found) != 1:
        raise ConfigError(
            f"{model} and the options ask for {len(found)} jobs, this command answers one. To fix: one "
            "value per option, or split the file."
        )
    return found[0]


def request_and_others(
    model: str, fields: Mapping[str, Any], others: Iterable[str]
) -> tuple[Request, dict[str, Any]]:
    """`one_request`, and what a job file says beside the fields of a request.

    Raises:
        ConfigError: If a job file holds several jobs.
    """
    if not is_request_file(model):
        return one_request(model, fields), {}
    jobs = read_jobs(model)
    beside = [{name: job.fields[name] for name in others if name in job.fields} for job in jobs]
    found = []
    for job, apart in zip(jobs, beside, strict=True):
        plain = {name: value for name, value in job.fields.items() if name not in apart}
        try:
            found += replace(job, fields=plain).requests(**given_options(fields))
        except ConfigError as error:
            raise ConfigError(f"{model}, {job.place}: {error}") from None
    return _only(found, model), beside[0]


def _parameter(name: str, info: Field, option: Option, *, several: bool, section: str) -> inspect.Parameter:
    kind = plain_type(info.annotation)
    precisions = several and name == "precision"
    text = _SEVERAL_PRECISIONS if precisions else option.help
    default = option.default or shown_default(info.default)
    choices = choices_of(info.annotation)
    shown: dict[str, Any] = {
        "help": f"{text} Default: {default}." if default else text,
        "show_default": False,
        "rich_help_panel": section or None,
    }
    if kind is bool:
        flag = f"{PREFIX}{name.replace('_', '-')}"
        typed: Any = bool | None
        declared: tuple[str, ...] = (f"{flag}/{PREFIX}no-{flag.removeprefix(PREFIX)}",)
    else:
        # Text, whatever the type: the request checks it, with the same words as for a job file.
        typed = list[str] | None if kind in (dict, list) else str | None
        declared = flags_of(name, option)
        shown["metavar"] = option.metavar or "|".join(choices) or SHOWN_TYPES.get(kind, "TEXT")
        if precisions:
            shown["metavar"] = "P[,P2...]|all"
        if option.complete or choices:
            shown["autocompletion"] = COMPLETIONS.get(option.complete) or complete_words(*choices)
    return inspect.Parameter(
        name,
        inspect.Parameter.KEYWORD_ONLY,
        default=None,
        annotation=Annotated[typed, typer.Option(*declared, **shown)],
    )


def shown_default(default: Any) -> str:
    """A default value in the words of the command line; empty where it says nothing."""
    if default is None or default in ("", {}, []) or isinstance(default, bool):
        return ""
    return str(default.value if isinstance(default, Enum) else default)


def sizes_of(pairs: Iterable[str]) -> dict[str, Any]:
    """`["hidden=2048"]` as `{"hidden": 2048}`; a value that is no JSON is a word."""
    sizes: dict[str, Any] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals or not name.strip() or not text.strip():
            raise ConfigError(f"--size {pair!r} is not NAME=VALUE. To fix: write it like --size hidden=2048.")
        try:
            value = json.loads(text)
        except ValueError:
            value = text.strip()
        sizes[name.strip()] = int(value) if isinstance(value, float) and value.is_integer() else value
    return sizes
