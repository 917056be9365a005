"""Files: written atomically, the cache folder, and the hash of the package that keys what is kept there."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import stat
import sys
import zlib
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from io import TextIOWrapper
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

from .cache import data, memo
from .errors import ConfigError, OutputError, shown

_Read = TypeVar("_Read")
HOME_VARIABLE = "PRECISION_TIME_HOME"
COMPILED = "compiled.json"
"""The shipped TOML files once more, as JSON; written when the package is installed (`hatch_build.py`)."""
_NOT_SOURCE = frozenset({"__pycache__"})
MOST_INPUT_BYTES = 2**29
"""Of a user's file that is read as a whole."""
_STREAMS = ("/dev/stdout", "/dev/stderr", "/dev/fd/", "/proc/self/fd/")
"""Names of what is already open: a pipe, or a file that the shell goes on writing to."""
_WRITE_THROUGH = -1
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
_MOST_ALIASED = 1_000_000
_MOST_DOCUMENTS = 10_000
_DEEPEST = 200
"""Levels of a YAML text."""


def write_atomically(path: Path, content: bytes | str) -> None:
    """Write a file in one step: a crash, or a disk that is full, leaves the old one in place.

    A symbolic link stays, and the file it points to is written. An existing file keeps its mode, a new one
    gets the usual one. A character device such as /dev/stdout or /dev/null is written to, not replaced.

    Raises:
        OutputError: If it cannot be written, or is a folder, pipe, socket or block device; nothing is left
            of the attempt.
    """
    data = content.encode("utf-8") if isinstance(content, str) else memoryview(content)
    with _output_errors(path):
        target = Path(os.path.realpath(path))
        permissions = _permissions_to_keep(path, target)
        if permissions == _WRITE_THROUGH:
            with path.open("ab") as stream:
                stream.write(data)
        else:
            _replace(target, data, permissions)


def check_replaceable(path: Path) -> None:
    """Refuse an output that `put_in_place` could not replace, before anything is computed for it.

    Raises:
        OutputError: If it is there and no regular file, or write-protected.
    """
    with _output_errors(path):
        if _permissions_to_keep(path, Path(os.path.realpath(path))) == _WRITE_THROUGH:
            raise OSError(errno.EINVAL, "it is not a regular file")


def put_in_place(part: Path, path: Path) -> None:
    """Give a finished file its name in one step; links and modes as `write_atomically` has them.

    Raises:
        OutputError: If the name stands for what is no regular file; the finished one is left.
    """
    check_replaceable(path)
    with _output_errors(path):
        target = Path(os.path.realpath(path))
        permissions = _permissions_to_keep(path, target)
        if permissions is not None:
            part.chmod(permissions)
        part.replace(target)


@contextlib.contextmanager
def _output_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if isinstance(error, OutputError):
            raise
        raise OutputError(
            f"{path} cannot be written: {error.strerror or error}. The rule: an output is a regular file in "
            "an existing folder. To fix: check folder, permissions and free space, or name another file."
        ) from error


def _permissions_to_keep(path: Path, target: Path) -> int | None:
    """Of the file that is to be replaced; None for a new file, `_WRITE_THROUGH` for an open stream."""
    if str(path).startswith(_STREAMS):
        return _WRITE_THROUGH
    try:
        mode = target.stat().st_mode
    except FileNotFoundError:
        return None
    if stat.S_ISCHR(mode):
        return _WRITE_THROUGH
    if not stat.S_ISREG(mode):
        raise OSError(errno.EINVAL, "it is not a regular file")
    if not os.access(target, os.W_OK):
        raise PermissionError(errno.EACCES, "it is write-protected")
    return stat.S_IMODE(mode)


def _replace(target: Path, data: bytes | memoryview, permissions: int | None) -> None:
    import secrets

    part = target.with_name(f".precision-time.{secrets.token_hex(8)}")
    handle, named = _part_of(part)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(handle)
            if not named:
                os.link(f"/proc/self/fd/{handle}", part, src_dir_fd=handle, follow_symlinks=True)
        if permissions is not None:
            part.chmod(permissions)
        part.replace(target)
    except BaseException:
        with contextlib.suppress(OSError):  # the first error is the one to report
            part.unlink(missing_ok=True)
        raise


def _part_of(part: Path) -> tuple[int, bool]:
    """A new file, and whether it has its name already: on Linux a kill while it is written leaves none."""
    if hasattr(os, "O_TMPFILE") and os.path.isdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # not on every file system
            return os.open(part.parent, os.O_WRONLY | os.O_TMPFILE, 0o666), False
    return os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666), True  # less the umask


def open_input(path: str | Path, *, most_bytes: int | None = MOST_INPUT_BYTES) -> BinaryIO:
    """A file of a user's, open for reading: every one is opened here.

    A pipe without a writer would never open, and a device such as /dev/zero never end. So neither is opened:
    nor is what a shell puts in the place of `<(command)`, which could be read only once.

    Args:
        path: The file.
        most_bytes: A larger one is refused; None for what is read piece by piece.

    Raises:
        OSError: If it cannot be opened, is no regular file, or too large; `strerror` says so.
    """
    _check_input(os.stat(path), path, most_bytes)
    # What a name stands for can change in between.
    handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    try:
        _check_input(os.fstat(handle), path, most_bytes)
        return os.fdopen(handle, "rb")
    except BaseException:
        os.close(handle)
        raise


def _check_input(found: os.stat_result, path: str | Path, most_bytes: int | None) -> None:
    if stat.S_ISDIR(found.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if not stat.S_ISREG(found.st_mode):
        text = "it is no regular file: save what a pipe gives first, or name - where a command takes that"
        raise OSError(errno.EINVAL, text, str(path))
    if most_bytes is not None and found.st_size > most_bytes:
        raise OSError(errno.EFBIG, f"it is larger than {most_bytes // 2**20} MiB", str(path))


def open_input_text(
    path: str | Path,
    *,
    encoding: str = "utf-8",
    errors: str = "strict",
    newline: str | None = None,
    most_bytes: int | None = MOST_INPUT_BYTES,
) -> TextIOWrapper:
    """As `open_input`, for text; arguments as `open` has them."""
    file = open_input(path, most_bytes=most_bytes)
    return TextIOWrapper(file, encoding=encoding, errors=errors, newline=newline)


def read_input(path: str | Path, *, encoding: str = "utf-8", errors: str = "strict") -> str:
    """The text of a file of a user's; errors as `open_input`, and UnicodeDecodeError."""
    with open_input_text(path, encoding=encoding, errors=errors) as file:
        return file.read()


def read_input_bytes(path: str | Path) -> bytes:
    """The content of a file of a user's; errors as `open_input`."""
    with open_input(path) as file:
        return file.read()


def table_cell(text: str) -> str:
    """A cell of a CSV: text that a spreadsheet would run as a formula stands behind an apostrophe.

    Reference: OWASP, CSV Injection.

    >>> [table_cell(text) for text in ("=1+1", "-0.5", "resnet50")]
    ["'=1+1", '-0.5', 'resnet50']
    """
    if not text.startswith(_FORMULA):
        return text
    try:
        float(text)
    except ValueError:
        return f"'{text}"
    return text


def unique(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """The object that pairs of a JSON text make.

    Raises:
        ValueError: If a key stands there twice: the last one would count, without a word.
    """
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"{shown(key)} stands in it twice")
        found[key] = value
    return found


def read_yaml(text: str, *, once: bool = False) -> Any:
    """The content of a YAML (or JSON) text: data only, and no more than its size lets expect.

    A few aliases of aliases stand for more values than any memory holds, so values are counted, each as often
    as it is referred to, before they are built.

    Args:
        text: What was written.
        once: Refuse a key that stands twice in a mapping, in what is written for this program alone.

    Raises:
        ValueError: If it is not YAML, holds itself, or stands for more than a million values beyond its own.
        RecursionError: If it is nested too deeply.
    """
    documents = read_yaml_documents(text, once=once)
    if len(documents) > 1:
        raise ValueError(f"it holds {len(documents)} documents, and one is read")
    return documents[0] if documents else None


def _count_values(node: Any, counted: dict[int, int | None], *, most: int, once: bool) -> int:
    """Values below a node, aliases counted each time."""
    known = counted.get(id(node), 0)
    if known is None:
        raise ValueError("a value holds itself by an alias")
    if known:
        return known
    counted[id(node)] = None
    parts = node.value if isinstance(node.value, list) else []
    total = 1
    if once:
        unique((str(part[0].value), None) for part in parts if isinstance(part, tuple))
    for part in parts:
        for item in part if isinstance(part, tuple) else (part,):
            total += _count_values(item, counted, most=most, once=once)
        if total > most:
            raise ValueError(f"by aliases it stands for more than {most:,} values")
    counted[id(node)] = total
    return total


def read_yaml_documents(text: str, *, once: bool = False) -> list[Any]:
    """The documents of a YAML (or JSON) text, parted by `---`; empty ones are left out.

    As `read_yaml`, for texts of any length: read by libyaml where PyYAML has it, whose depth is checked
    before anything is built. Dates and times of day stay texts, as in JSON.

    Raises:
        ValueError: As `read_yaml`, or if there are more documents or it is nested too deeply.
    """
    import yaml

    kind = _plain_loader()
    found: list[Any] = []
    left = _MOST_ALIASED + len(text)
    try:
        _check_depth(yaml.parse(text, Loader=kind))
        loader = kind(text)
        while loader.check_node():
            node = loader.get_node()
            left -= _count_values(node, {}, most=left, once=once)
            document = loader.construct_document(node)
            if document is not None:
                found.append(document)
            if len(found) > _MOST_DOCUMENTS:
                raise ValueError(f"it holds more than {_MOST_DOCUMENTS:,} documents")
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from error
    return found


@data
def _plain_loader() -> Any:
    """A loader to which dates, times of day (`22:22`), `=` and `<<` are texts, as to most readers of YAML."""
    import re

    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    tag = "tag:yaml.org,2002:"
    changed = [f"{tag}{name}" for name in ("timestamp", "value", "int", "float")]
    resolvers = {
        first: [rule for rule in known if rule[0] not in changed]
        for first, known in loader.yaml_implicit_resolvers.items()
    }
    kind: Any = type("Loader", (loader,), {"yaml_implicit_resolvers": resolvers})
    whole = r"[-+]?(?:0b[01_]+|0[0-7_]+|0|[1-9][0-9_]*|0x[0-9a-fA-F_]+)"
    fraction = r"[-+]?(?:[0-9][0-9_]*\.[0-9_]*|\.[0-9][0-9_]*)(?:[eE][-+][0-9]+)?"
    endless = r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)"
    for name, pattern in (("int", whole), ("float", f"{fraction}|{endless}")):
        kind.add_implicit_resolver(f"{tag}{name}", re.compile(rf"(?:{pattern})\Z"), list("-+.0123456789"))
    kind.add_constructor(f"{tag}merge", kind.construct_yaml_str)  # as a key it is handled before
    return kind


def _check_depth(events: Iterable[Any]) -> None:
    """Refuse what is nested so deeply that building it would end the process."""
    import yaml

    depth = 0
    for event in events:
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > _DEEPEST:
                raise ValueError(f"it is nested more than {_DEEPEST} levels deep")
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1


def cache_folder() -> Path:
    """Folder of results that can be computed again, in $PRECISION_TIME_HOME or the platform's cache."""
    home = os.environ.get(HOME_VARIABLE)
    return Path(home) / "cache" if home else _user_folder("Caches", "XDG_CACHE_HOME", ".cache")


def data_folder() -> Path:
    """Folder of the user's own data: $PRECISION_TIME_HOME or the platform's data folder."""
    home = os.environ.get(HOME_VARIABLE)
    return Path(home) if home else _user_folder("Application Support", "XDG_DATA_HOME", ".local/share")


def _user_folder(macos: str, variable: str, usual: str) -> Path:
    if sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA", Path.home() / "AppData" / "Local"))
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / macos
    else:
        base = Path(os.environ.get(variable, Path.home() / usual))
    return base / "precision-time"


def once_per_file(read: Callable[..., _Read], path: Path, *more: Hashable) -> _Read:
    """What a function reads of a user's file: again once the file was changed.

    Raises:
        OSError: If there is no such file.
    """
    found = path.stat()
    result: _Read = _of_file(read, path, os.path.abspath(path), (found.st_mtime_ns, found.st_size), *more)
    return result


@memo(32)
def _of_file(read: Callable[..., Any], path: Path, _place: str, _stamp: tuple[int, int], *more: Any) -> Any:
    return read(path, *more)


def packaged(package: str, name: str) -> Path:
    """Path of a file that ships in a package.

    >>> packaged("precision_time", "data").name
    'data'
    """
    # Not importlib.resources, which takes 4 ms to import: nothing here can be read from an archive.
    return Path(import_module(package).__path__[0], name)


@data
def packaged_toml(package: str, name: str) -> Mapping[str, Any]:
    """The tables of a TOML file that ships in `package`, read once; not to be changed.

    Parsing TOML takes twenty times as long as JSON, a tenth of a second for what one answer needs. So the
    tables of an installed package lie in `compiled.json` as well (`compiled`), each with the checksum of its
    file, and are taken from there while it holds; without that file the TOML is read.
    """
    content = packaged(package, name).read_bytes()
    checksum, tables = _compiled().get(f"{package}/{name}", (None, None))
    if tables is None or checksum != zlib.crc32(content):
        return _parsed(content)
    import msgspec  # not at the top: what builds the package has the standard library alone

    found: Mapping[str, Any] = msgspec.json.decode(tables)
    return found


@data
def _compiled() -> Mapping[str, tuple[int, Any]]:
    """By package and name: checksum of a TOML file, and its tables as JSON that is not read yet."""
    import msgspec

    path = Path(__file__).parent / COMPILED
    if not path.is_file():
        return {}
    return msgspec.json.decode(path.read_bytes(), type=dict[str, tuple[int, msgspec.Raw]])


def compiled(folder: Path) -> str:
    """What `compiled.json` has to hold for the package in `folder`: its TOML files that JSON can say."""
    tables = {}
    for path in sorted(folder.rglob("*.toml")):
        content = path.read_bytes()
        package = next((each.parent for each in path.parents if each.name == "data"), path.parent)
        name = f"{'.'.join(package.relative_to(folder.parent).parts)}/{path.relative_to(package).as_posix()}"
        parsed = _parsed(content)
        text = json.dumps(parsed, ensure_ascii=False, separators=(",", ":"), default=str)
        if json.loads(text) == parsed:
            tables[name] = f"[{zlib.crc32(content)},{text}]"
    return "{" + ",\n".join(f"{json.dumps(name)}:{table}" for name, table in tables.items()) + "}\n"


def _parsed(content: bytes) -> dict[str, Any]:
    import tomllib

    return tomllib.loads(content.decode("utf-8"))


@data
def package_hash() -> str:
    """Hash of every file of the package, code and data: a cached result of other code is never taken."""
    return folder_hash(Path(__file__).resolve().parent)


def folder_hash(folder: Path) -> str:
    """Hash of the names and contents of all files below a folder, compiled ones left out."""
    import hashlib

    digest = hashlib.blake2b(digest_size=8)
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        name = path.relative_to(folder)
        if not _NOT_SOURCE.intersection(name.parts):
            digest.update(f"{name.as_posix()}\0{path.stat().st_size}\0".encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()


def check_suffix(option: str, path: Path, kinds: Sequence[str]) -> None:
    """Refuse a file of another kind, before anything is computed for it.

    Raises:
        ConfigError: If its name ends in none of them.
    """
    if path.suffix.lower() not in kinds:
        raise ConfigError(
            f"{option} {path} is not {' or '.join(kinds)}. To fix: {path.with_suffix(kinds[0])}."
        )
