"""The page: static files that ship in the wheel, read once, compressed once, and the fields of its form."""

from __future__ import annotations

import gzip
import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any, Literal, get_args, get_origin

from fastapi import APIRouter, Request, Response

from precision_time.cache import data
from precision_time.fields import plain_type
from precision_time.request.schema import RequestFields, sections_of_fields
from precision_time.request.validation import Field

from ..jobs import job_fields

router = APIRouter(include_in_schema=False)

_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}
"""What is served; the lock, the licenses and whatever else lies there is not."""
_INDEX, _FIELDS = "index.html", "fields.js"
_STYLE, _THEME = "style.css", "theme.js"
"""Named by the index itself: all other styles and modules are, without a list to keep."""
_VERSION, _MODULES = "{version}", "<!-- modules -->"
HEADERS = {
    # Scripts, styles, pictures and requests of this server alone; no text ever becomes a script.
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
        "require-trusted-types-for 'script'; trusted-types 'none'"
    ),
    "X-Frame-Options": "DENY",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Vary": "Accept-Encoding",
}
_FOREVER = "public, max-age=31536000, immutable"
_ASK_AGAIN = "no-cache"
_APART = frozenset({"model", "precision", "anchors"})
"""Fields of a job that the form has in another way: by source, several at once, of a stored cluster."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StaticFile:
    """One file of the page, as it is sent."""

    content: bytes
    compressed: bytes
    """By gzip."""
    media_type: str
    etag: str

    @classmethod
    def of(cls, name: str, content: bytes) -> StaticFile:
        """A file by its name, whose suffix says what it is."""
        return cls(
            content=content,
            compressed=gzip.compress(content, 9, mtime=0),
            media_type=_TYPES[name[name.rindex(".") :]],
            etag=f'"{_digest(content)}"',
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Page:
    """All files of the page."""

    version: str
    """Digest of all files; part of their addresses, so that browsers keep them for good."""
    index: StaticFile
    files: dict[str, StaticFile]
    """By path below `static/<version>/`."""

    @property
    def compressed_bytes(self) -> int:
        """What a first visit loads."""
        return sum(len(file.compressed) for file in (self.index, *self.files.values()))


@data
def page() -> Page:
    """The page of this installation."""
    contents = dict(_contents(files("precision_time_server") / "page"))
    # A module, so that it comes with the others and the first answer can be asked at once.
    contents[_FIELDS] = f"export default {json.dumps(form_fields(), separators=(',', ':'))};\n".encode()
    index = contents.pop(_INDEX).decode()
    version = _digest(b"".join(name.encode() + contents[name] for name in sorted(contents)) + index.encode())
    styles = [
        f'<link rel="stylesheet" href="static/{version}/{name}">'
        for name in sorted(contents)
        if name.endswith(".css") and name != _STYLE
    ]
    modules = [
        f'<link rel="modulepreload" href="static/{version}/{name}">'
        for name in sorted(contents)
        if name.endswith(".js") and name != _THEME
    ]
    index = index.replace(_VERSION, version).replace(_MODULES, "\n".join([*styles, *modules]))
    return Page(
        version=version,
        index=StaticFile.of(_INDEX, index.encode()),
        files={name: StaticFile.of(name, content) for name, content in contents.items()},
    )


def form_fields() -> list[dict[str, Any]]:
    """The fields of a request that the page's form has: name, kind, choices, help, default, section, flag."""
    found = []
    for name, info in RequestFields.model_fields.items():
        option = info.option
        if option is None or name in _APART or name not in job_fields():
            continue
        flag = next((flag for flag in option.flags if flag.startswith("--")), f"--{name.replace('_', '-')}")
        found.append(
            {
                "name": name,
                "kind": _kind(info),
                "choices": _choices(info.annotation),
                "help": option.help.replace("`", ""),
                "default": option.default or _default(info),
                "section": sections_of_fields().get(name, ""),
                "flag": flag,
                "complete": option.complete,
            }
        )
    return found


@router.get("/")
async def index(request: Request) -> Response:
    """The page itself."""
    return _sent(request, page().index, cache_control=_ASK_AGAIN)


@router.get("/static/{version}/{path:path}")
async def static(version: str, path: str, request: Request) -> Response:
    """One of its files: what was read at the start, by name, so that no path reaches the disk."""
    file = page().files.get(path)
    if file is None or version != page().version:
        return Response("Not found: the page was updated, or has no such file. To fix: reload it.", 404)
    return _sent(request, file, cache_control=_FOREVER)


def _sent(request: Request, file: StaticFile, *, cache_control: str) -> Response:
    headers = {**HEADERS, "Cache-Control": cache_control, "ETag": file.etag}
    if file.etag in (tag.strip().removeprefix("W/") for tag in _header(request, "if-none-match").split(",")):
        return Response(status_code=304, headers=headers)
    if "gzip" in _header(request, "accept-encoding"):
        headers["Content-Encoding"] = "gzip"
        return Response(file.compressed, media_type=file.media_type, headers=headers)
    return Response(file.content, media_type=file.media_type, headers=headers)


def _header(request: Request, name: str) -> str:
    return request.headers.get(name, "")


def _contents(folder: Traversable, prefix: str = "") -> Iterator[tuple[str, bytes]]:
    for entry in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if entry.is_dir():
            yield from _contents(entry, f"{prefix}{entry.name}/")
        elif entry.name.endswith(tuple(_TYPES)):
            yield prefix + entry.name, entry.read_bytes()


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]


def _kind(info: Field) -> str:
    """integer, number, boolean, choice, sizes (names and values) or text."""
    if _choices(info.annotation):
        return "choice"
    kinds: dict[Any, str] = {int: "integer", float: "number", bool: "boolean", dict: "sizes"}
    return kinds.get(plain_type(info.annotation), "text")


def _choices(annotation: Any) -> list[str]:
    if get_origin(annotation) is Literal:
        return [str(item) for item in get_args(annotation)]
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return [str(item.value) for item in annotation]
    return next((found for item in get_args(annotation) if (found := _choices(item))), [])


def _default(info: Field) -> str:
    default = info.default
    if isinstance(default, bool):
        return "yes" if default else "no"
    if default is None or default in ("", {}):
        return ""
    return str(default.value if isinstance(default, Enum) else default)
