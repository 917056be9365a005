"""The command line's root: registers the commands and turns errors into one line and exit code 2."""

from __future__ import annotations

import contextlib
import gc
import io
import os
import sys
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from itertools import permutations
from typing import Annotated, Any

# Else pydantic searches every installed package for plugins.
os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
import typer
import typer.core

from .. import __version__
from ..cache import data
from ..client.remote import ASKED_OF_SERVERS, SERVER_VARIABLE, choose
from ..errors import (
    ERROR_SCHEMA,
    ConfigError,
    PrecisionTimeError,
    in_one_line,
    nearest_names,
    printable,
    problem_of,
    shown,
)
from ..io import packaged_toml
from ..plugins import Command, left_out, loaded
from .output import message, write_json

_Tree = dict[str, Any]
"""Commands by word: a `Command`, or the tree of the words that may follow."""


_TAKES_COMMAND = ("predict", "plan", "layout", "explain")
"""Commands to which a command line of a training can be given behind `--`."""


def _placed(tree: _Tree, command: Command) -> bool:
    """Whether a command found its place in a tree: its words are not another's."""
    *group, name = command.path.split()
    place: Any = tree
    for word in group:
        place = place.setdefault(word, {})
        if isinstance(place, Command):
            return False
    return bool(place.setdefault(name, command) is command)


def _tree_of(commands: Iterable[Command]) -> _Tree:
    tree: _Tree = {}
    for command in commands:
        _placed(tree, command)
    return tree


OWN: _Tree = _tree_of(
    Command(
        path=path,
        module=f"{__package__}.{row['code'].partition(':')[0]}",
        attribute=row["code"].partition(":")[2],
        summary=row["summary"],
        section=section,
    )
    for section, rows in packaged_toml(__package__, "data/commands.toml").items()
    for path, row in rows.items()
)
"""What the core has, in the order of the help."""
_OPEN = frozenset({"precisions"})
"""Words of the core below which plug-ins may add commands."""


_MEASURING = frozenset({"measure", "campaign"})
JSON = "--json"


class _Stopped(BaseException):
    """What ended a command from outside, by a name that typer does not turn into exit code 1."""

    def __init__(self, *, interrupted: bool) -> None:
        self.interrupted = interrupted


@data
def _tree() -> _Tree:
    """All commands: the core's, then what plug-ins add; words of the core stay its own."""
    tree: _Tree = {word: dict(found) if isinstance(found, dict) else found for word, found in OWN.items()}
    for plugin, added in loaded("commands").items():
        for command in added:
            word = command.path.split()[0]
            if (word in OWN and word not in _OPEN) or not _placed(tree, command):
                left_out("commands", plugin, ConfigError(f"{command.path} is there already"))
    return tree


def check_installed(words: str) -> None:
    """Say what to install for a command of a distribution that is not.

    Raises:
        ConfigError: If another distribution brings it.
    """
    missing = packaged_toml(__package__, "data/members.toml")["commands"].get(words)
    if missing is not None:
        raise ConfigError(f"The command {words} is not installed. To fix: pip install {missing}.")


def _listed(tree: _Tree) -> _Tree:
    """A tree without the commands that leave with the next release."""
    return {word: found for word, found in tree.items() if isinstance(found, dict) or not found.leaves}


def _section(found: Command | _Tree) -> str:
    while isinstance(found, dict):
        found = next(iter(found.values()))
    return found.section


class Commands(typer.core.TyperGroup):
    """The group of all commands, each loaded when it is used: help and completion stay fast.

    What plug-ins add is asked for help, completion, and a first word that is not built in.
    """

    words: _Tree | None = None
    """Of a group that plug-ins make of words; None for the root."""

    def get_params(self, ctx: Any) -> list[Any]:
        """The parameters, which leave alone what needs no check."""
        return [_as_given(item) for item in super().get_params(ctx)]

    def invoke(self, ctx: Any) -> Any:
        """Run the command; interrupts and closed pipes reach `main`."""
        try:
            return super().invoke(ctx)
        except (KeyboardInterrupt, BrokenPipeError) as stop:
            raise _Stopped(interrupted=isinstance(stop, KeyboardInterrupt)) from stop

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """The arguments as usual; what the parser quotes of wrong ones is made printable."""
        with _printable_errors():
            return super().parse_args(ctx, args)

    def list_commands(self, ctx: Any) -> list[str]:
        """Names in the order of the help."""
        del ctx
        return list(_listed(_tree() if self.words is None else self.words))

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command that the words begin with; one that was called otherwise says so.

        Raises:
            ConfigError: If there is none; offers the nearest.
        """
        if self.words is None and args and (args[0] not in OWN or args[0] in _OPEN):
            args = _renamed(args, say=not ctx.resilient_parsing)
        if args and not args[0].startswith("-") and self.get_command(ctx, args[0]) is None:
            check_installed(args[0] if self.words is None else f"{ctx.info_name} {args[0]}")
            near = nearest_names(args[0], self.list_commands(ctx)) or self.list_commands(ctx)[:1]
            raise ConfigError(
                f"No such command: {shown(args[0])}. Did you mean {' or '.join(near)}? "
                "To fix: `precision-time -h` lists all of them."
            )
        return super().resolve_command(ctx, args)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command of a name; None where there is none."""
        del ctx
        words = _words_of(cmd_name) if self.words is None else self.words
        found = words.get(cmd_name)
        return None if found is None else loaded_command(cmd_name, found)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """The list of commands by section, without loading them."""
        words = _listed(_tree() if self.words is None else self.words)
        sections: dict[str, list[tuple[str, str]]] = {}
        for name in self.list_commands(ctx):
            title = _section(words[name]) if self.words is None else "Commands"
            sections.setdefault(title, []).append((name, _summary(words[name])))
        for title, rows in sections.items():
            with formatter.section(title):
                formatter.write_dl(rows)


def _words_of(first: str) -> Mapping[str, Any]:
    """The tree that a first word is looked up in: plug-ins are asked only for what is not the core's."""
    return OWN if first in OWN and first not in _OPEN else _tree()


def _renamed(words: list[str], *, say: bool) -> list[str]:
    """The words of a command line by the names of today; of old ones it is said what they are called now."""
    table = packaged_toml(__package__, "data/moved.toml")
    first = _tree().get(words[0], {})
    for count in (2, 1):
        old = " ".join(words[:count])
        if say and old in table["gone"]:
            raise ConfigError(f"{old} is gone. To fix: {table['gone'][old]}")
        if len(words) < count or old not in table["commands"]:
            continue
        if count == 1 and isinstance(first, dict) and first:  # a group now, which showed something before
            if words[1:2] and (words[1] in first or words[1] in _HELP):
                return words
            if words[1:2]:
                check_installed(f"{old} {words[1]}")
        new = table["commands"][old]
        if say:
            message(f"Note: {old} is called {new} now; the old name goes with the next release.")
        return [*new.split(), *words[count:]]
    return words


_WRITES = frozenset({"--out", "--trace", "--memory-timeline", "--write-baseline"})
"""Options that name a file to write."""


class OneCommand(typer.core.TyperCommand):
    """A command whose options stand in sections, and that knows what other tools call them."""

    path = ""
    """What one types after the program's name."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command.

        Raises:
            ConfigError: If it would write over a file that it is to read.
        """
        files = [
            (item.opts[0], str(value))
            for item in self.params
            for given in (ctx.params.get(item.name),)
            for value in (given if isinstance(given, list | tuple) else (given,))
            if isinstance(value, str | os.PathLike) and os.path.isfile(value)
        ]
        for (flag, path), (_, other) in permutations(files, 2):
            if flag in _WRITES and os.path.samefile(path, other):
                raise ConfigError(f"{flag} {path} is a file that is read. To fix: name another one.")
        return super().invoke(ctx)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """The parameters by section (`request/data/names.toml`), the own ones of the command last."""
        own = "Options"
        sections: dict[str, list[tuple[str, str]]] = {}
        for item in self.get_params(ctx):
            kind = "Arguments" if item.param_type_name == "argument" else own
            record = item.get_help_record(ctx)
            if record is not None:
                sections.setdefault(getattr(item, "rich_help_panel", None) or kind, []).append(record)
        last = sections.pop(own, [])
        for title, rows in [*sections.items(), (own, last)]:
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows)

    def get_params(self, ctx: Any) -> list[Any]:
        """The parameters, which leave alone what needs no check."""
        return [_as_given(item) for item in super().get_params(ctx)]

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """The arguments as usual, fields of the job that are no options by --set.

        An option that is not there says what stands in its place.

        Raises:
            ConfigError: If the option has another name here, or --set names no field.
        """
        try:
            with _printable_errors():
                args = self._json_as_options(args)
                return super().parse_args(ctx, args if ctx.resilient_parsing else self._today(ctx, args))
        except Exception as error:
            given = getattr(error, "option_name", "")  # of the parser's NoSuchOption
            gone = packaged_toml(__package__, "data/moved.toml")["gone"].get(f"{self.path} {given}")
            if gone is not None:
                raise ConfigError(f"{given} is gone. To fix: {gone}") from None
            ours = other_options().get(str(given).lower().replace("_", "-"))
            flags = {flag for item in self.params for flag in item.opts}
            if ours is None or (ours.split()[0] not in flags and "--set" not in flags):
                raise
            raise ConfigError(f"No such option: {given}. To fix: {ours}.") from None

    def _json_as_options(self, args: list[str]) -> list[str]:
        """`--json=brief` as the two options that it stands for.

        Raises:
            ConfigError: If there is no such form of the answer.
        """
        found: list[str] = []
        for word in args:
            name, equals, form = word.partition("=")
            if name != JSON or not equals:
                found.append(word)
                continue
            brief = {"full": [JSON]}
            if any("--brief" in item.opts for item in self.params):
                brief["brief"] = [JSON, "--brief"]
            if form not in brief:
                raise ConfigError(
                    f"--json={form} is no form that {self.path} answers in. To fix: --json="
                    f"{' or --json='.join(brief)}."
                )
            found += brief[form]
        return found

    def _today(self, ctx: Any, args: list[str]) -> list[str]:
        """The words, with fields that are no options said by --set, and options by their names of today."""
        takes_value = {
            flag: not item.is_flag
            for item in self.get_params(ctx)
            if item.param_type_name == "option"
            for flag in (*item.opts, *item.secondary_opts)
        }
        if all(not word.startswith("-") or word.partition("=")[0] in takes_value for word in args):
            return args
        from .settings import as_settings

        table: dict[str, str] = packaged_toml(__package__, "data/moved.toml")["options"].get(self.path, {})

        fields: dict[str, Any] = getattr(self.callback, "fields", dict)()

        def renamed(flag: str) -> str | None:
            if (new := table.get(flag)) is not None:
                message(f"Note: {flag} of {self.path} is {new} now; the old name goes with the next release.")
            return new

        return as_settings(
            args, fields, takes_value, renamed=renamed, leading=not ctx.allow_interspersed_args
        )


@contextlib.contextmanager
def _printable_errors() -> Iterator[None]:
    """The parser quotes what was typed: control characters in it would reach the terminal."""
    try:
        yield
    except Exception as error:
        if isinstance(getattr(error, "message", None), str):
            error.message = printable(error.message)  # type: ignore[attr-defined]
        raise


def _as_given(item: Any) -> Any:
    """A parameter that leaves text, and what was not given, as it is: typer builds a validator for each."""
    described = getattr(item, "type_descriptor", None)
    if described is None or "process_value" in vars(item):  # older typer converts, and builds none
        return item
    process = item.process_value
    annotation = getattr(described, "annotation", None) if item.nargs == 1 else None

    def processed(ctx: Any, value: Any) -> Any:
        if item.multiple and annotation == list[str] and isinstance(value, list | tuple) and value:
            value = list(value)
        elif not (value is None and not item.required or annotation is str and isinstance(value, str)):
            return process(ctx, value)
        return value if item.callback is None else item.callback(ctx, item, value)

    vars(item)["process_value"] = processed
    return item


@data
def other_options() -> dict[str, str]:
    """Options of other tools and scripts, and what to type here for each."""
    found: dict[str, str] = dict(packaged_toml(__package__, "data/other_options.toml"))
    return found


def _summary(found: Command | _Tree) -> str:
    """The line of the help; that of a group of words is of its commands."""
    return found.summary if isinstance(found, Command) else ", ".join(_listed(found)) + "."


_COMPLETION = "_PRECISION_TIME_COMPLETE"
"""Variable in which a shell asks what completes a word: also the options that the help does not show."""


def load_command(name: str, *, every_option: bool = False) -> Any:
    """The command of a first word.

    Raises:
        KeyError: If there is none.
    """
    return loaded_command(name, _words_of(name)[name], every_option=every_option)


def loaded_command(name: str, found: Command | _Tree, *, every_option: bool = False) -> Any:
    """A command with its code, or a group of those below a word."""
    if isinstance(found, Command):
        return _command(found, every_option=every_option or _COMPLETION in os.environ)
    group = Commands(
        name=name,
        no_args_is_help=True,
        help=_summary(found),
        context_settings=_SETTINGS,
        rich_markup_mode=None,
    )
    group.words = found
    return group


@data
def _command(place: Command, *, every_option: bool) -> Any:
    try:
        module = import_module(place.module)
    except ImportError as error:
        if isinstance(error, PrecisionTimeError):
            raise
        raise ConfigError(
            f"{place.path} cannot be loaded: {place.module}: {error}. To fix: install again what brings it."
        ) from error
    found = getattr(module, place.attribute)
    if every_option and hasattr(found, "with_every_option"):
        found = found.with_every_option()
    if place.leaves:
        message(f"Note: {place.path} goes with the next release: {place.leaves}")
    alone = typer.Typer(add_completion=False, rich_markup_mode=None, context_settings=_SETTINGS)
    settings = _HANDING_ON if place.hands_on else None
    alone.command(
        place.path.split()[-1],
        cls=OneCommand,
        context_settings=settings,
        epilog=getattr(found, "examples", None) or getattr(module, place.examples),
    )(found)
    made: Any = typer.main.get_command(alone)
    made.path = place.path
    return made


_HANDING_ON = {
    "help_option_names": ["--help"],  # -h could be a letter of another program's word
    "ignore_unknown_options": True,
    "allow_interspersed_args": False,
    "max_content_width": 100,
}
_HELP = ["-h", "--help"]
_SETTINGS = {"help_option_names": _HELP, "max_content_width": 100}
app = typer.Typer(
    name="precision-time",
    cls=Commands,
    help="How long a training step or run takes, at every precision, before a GPU is rented.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings=_SETTINGS,
)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def root(
    context: typer.Context,
    *,
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version.")
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", help="Show the traceback of an error. May stand anywhere.")
    ] = False,
    server: Annotated[
        str | None,
        typer.Option(
            "--server",
            metavar="URL",
            envvar=SERVER_VARIABLE,
            help="Let a service (`precision-time serve`) answer, with the token of PRECISION_TIME_TOKEN. For "
            f"{', '.join(ASKED_OF_SERVERS)}.",
        ),
    ] = None,
    cluster: Annotated[
        str | None, typer.Option("--cluster", metavar="NAME", help="Cluster that the service has stored.")
    ] = None,
    server_timeout: Annotated[
        float | None,
        typer.Option(
            "--server-timeout",
            metavar="SECONDS",
            help="How long an answer of the service may take, with all attempts. By default 70.",
        ),
    ] = None,
) -> None:
    """How long a training step or run takes, at every precision, before a GPU is rented."""
    source = context.get_parameter_source("server")
    by_option = source is not None and source.name == "COMMANDLINE"
    found = choose(
        server,
        cluster=cluster,
        timeout_s=server_timeout,
        command=context.invoked_subcommand,
        by_option=by_option,
        say=message,
    )
    if found is not None:
        context.call_on_close(found.close)


_INTERRUPTED = 130
_OBJECTS = 200_000
"""New objects before a search for cycles: 158 searches were a tenth of the CPU time of one answer."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line; errors end in a traceback with --debug only.

    Exit codes: 2 for what the caller can correct (input, files, folders), 3 for a job that does not fit in
    memory, 130 when interrupted, 70 for an unforeseen error.

    Args:
        arguments: Words after the program name; `sys.argv` if None.
    """
    gc.set_threshold(_OBJECTS, 10, 10)
    sys.stdout = sys.stdout or io.StringIO()  # None where the shell closed it
    sys.stderr = sys.stderr or io.StringIO()
    words = list(sys.argv[1:] if arguments is None else arguments)
    if arguments is None:
        _prepare_process(measures=not _MEASURING.isdisjoint(words[:2]))
    debug = "--debug" in words
    words = [word for word in words if word != "--debug"]
    as_json = any(word.partition("=")[0] == JSON for word in words)
    try:
        try:
            code = app(args=_with_command(words), prog_name="precision-time", standalone_mode=not as_json)
        finally:
            sys.stdout.flush()  # while an error can still be reported
    except (Exception, KeyboardInterrupt, _Stopped) as error:
        code, line = _last_words(error)
        if debug and code:
            raise
        with contextlib.suppress(OSError, ValueError):
            line = " ".join(line.split())
            if as_json and code not in (0, _INTERRUPTED):
                write_json({"schema": ERROR_SCHEMA, "error": problem_of(error, line.removeprefix("Error: "))})
            if line:
                message(line)
        _silence()
        raise SystemExit(code) from None
    if as_json:
        raise SystemExit(code or 0)  # as the parser does without


def _with_command(words: Sequence[str]) -> list[str]:
    """Words with the command that stands behind `--` as one of them: `predict -- torchrun train.py`.

    >>> _with_command(["predict", "-d", "A100", "--", "torchrun", "train.py", "--bf16"])
    ['predict', '-d', 'A100', '--', 'torchrun train.py --bf16']
    """
    if words[:1] and words[0] in _TAKES_COMMAND and "--" in words:
        place = list(words).index("--") + 1
        if len(words) > place + 1:
            import shlex

            return [*words[:place], shlex.join(words[place:])]
    return list(words)


def _prepare_process(*, measures: bool) -> None:
    """Settle what holds for a process that is this program alone.

    Stdout is for what commands write: what libraries and the processes they start (Ray's) print there goes to
    stderr, where a warning is one line. One BLAS thread, as in the workers: products are small, more threads
    are slower on a busy machine, and sums do not depend on the number of cores. It counts where NumPy is not
    loaded yet.

    Args:
        measures: What users' code takes is measured: its threads are its own.
    """
    warnings.formatwarning = lambda text, *_, **__: f"Warning: {' '.join(str(text).split())}\n"
    if not measures:
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    with contextlib.suppress(OSError, ValueError):
        if sys.stdout.fileno() == 1:
            sys.stdout.flush()
            kept = os.dup(1)
            os.dup2(2, 1)
            encoding, errors = sys.stdout.encoding, sys.stdout.errors
            buffering = 1 if os.isatty(kept) else -1
            sys.stdout = os.fdopen(kept, "w", buffering, encoding=encoding, errors=errors)
            sys.__stdout__ = sys.stdout  # type: ignore[misc]  # asked for the size of the terminal


def _last_words(error: BaseException) -> tuple[int, str]:
    """Exit code and line of an error."""
    if isinstance(error, PrecisionTimeError):
        return 2, f"Error: {error}"
    if isinstance(error, KeyboardInterrupt) or (isinstance(error, _Stopped) and error.interrupted):
        return _INTERRUPTED, "Interrupted."
    if (said := getattr(error, "format_message", None)) is not None:  # of the parser of the command line
        command = getattr(getattr(error, "ctx", None), "command_path", "precision-time")
        return 2, f"Error: {ConfigError(f'{said()} To fix: {command} -h lists what it takes.')}"
    if isinstance(error, BrokenPipeError | _Stopped):
        return 0, ""  # the reader of a pipe (`| head`) has gone: nothing is wrong
    if isinstance(error, OSError) and error.errno is not None:
        text = printable(str(error), longest=500)
        return 2, f"Error: {text}. To fix: check file, folder, permissions and free space."
    return 70, f"{in_one_line(error)} --debug shows the traceback."


def _silence() -> None:
    """Let nothing buffered be written on the way out: it would fail again."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        sys.stdout.flush()
        return
    with contextlib.suppress(OSError, ValueError, AttributeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
