"""Generated pages say what they describe: the command that made them, digests of corpus, predictor and code.

Scripts write their page by `write_page`, which ends it with a stamp. `pages.toml` lists the pages, the
command of each, and the parts of the package whose change makes it old.

    python tools/pages.py --check     fail if a page is older than what it describes, and not on the list
    python tools/pages.py --write     run the commands of the pages that are old, the cheapest first

A page that is late on purpose (learning is being worked on) has `late = DATE` in `pages.toml`; that is
accepted for 14 days.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import date
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LIST = ROOT / "tools" / "pages.toml"
PACKAGE = "src/precision_time"
CORPUS = f"{PACKAGE}/corpus/data/corpus.sqlite"
PREDICTOR = f"{PACKAGE}/learn/data/predictor.safetensors"
LATE_DAYS = 14
_STAMP = re.compile(r"\n<!-- made by `([^`]*)`:((?: [a-z]+ [0-9a-f?]+)*) -->\n?\Z")
Read = Callable[[str], bytes]
"""The content of a file of the repository, by its path."""


@dataclass(frozen=True, kw_only=True)
class Page:
    """A generated page, and what it stands on."""

    path: str
    command: str
    minutes: float
    """Of one processor."""
    corpus: bool = False
    predictor: bool = False
    code: tuple[str, ...] = ()
    """Files and folders whose change makes the page old, from the root of the repository."""
    late: date | None = None
    """Since when the page may be older than what it describes."""


def _now(path: str) -> bytes:
    return (ROOT / path).read_bytes()


def _files_now(folder: str) -> list[str]:
    place = ROOT / folder
    files = [place] if place.is_file() else sorted(place.rglob("*.py"))
    return [str(file.relative_to(ROOT)) for file in files]


@cache
def pages() -> tuple[Page, ...]:
    """The list, as it stands in `pages.toml`."""
    content = tomllib.loads(LIST.read_text(encoding="utf-8"))
    return tuple(
        Page(path=path, **{**entry, "code": tuple(entry.get("code", ()))}) for path, entry in content.items()
    )


def _without_words(source: bytes) -> bytes:
    """A syntax tree without docstrings and comments: words change no figure."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list):
            kept = [
                each
                for each in body
                if not (isinstance(each, ast.Expr) and isinstance(each.value, ast.Constant))
            ]
            node.body = kept  # type: ignore[attr-defined]
    return ast.dump(tree).encode()


def digests(page: Page, read: Read = _now, files: Callable[[str], list[str]] = _files_now) -> dict[str, str]:
    """What a page made now would be stamped with.

    Args:
        page: Of the list.
        read: Content of files: those of the working tree, or of a commit.
        files: Python files below a path.
    """

    def digest(contents: Iterator[bytes]) -> str:
        found = hashlib.sha256()
        for content in contents:
            found.update(hashlib.sha256(content).digest())
        return found.hexdigest()[:12]

    made = {}
    if page.corpus:
        made["corpus"] = digest(iter([read(CORPUS)]))
    if page.predictor:
        made["predictor"] = digest(iter([read(PREDICTOR)]))
    if page.code:
        paths = [path for part in page.code for path in files(part)]
        made["code"] = digest(_without_words(read(path)) for path in paths)
    return made


def stamp(page: Page, made: dict[str, str]) -> str:
    """The comment that ends a page."""
    return (
        f"\n<!-- made by `{page.command}`:{''.join(f' {name} {value}' for name, value in made.items())} -->\n"
    )


def write_page(path: Path, text: str) -> None:
    """Write a generated page, with the stamp of what it describes; a copy outside the repository has none.

    Raises:
        KeyError: If `pages.toml` does not list it.
    """
    if not path.resolve().is_relative_to(ROOT):
        path.write_text(text, encoding="utf-8")
        return
    page = {page.path: page for page in pages()}[str(path.resolve().relative_to(ROOT))]
    path.write_text(_STAMP.sub("", text).rstrip() + "\n" + stamp(page, digests(page)), encoding="utf-8")


def old(page: Page, text: str, today: date) -> list[str]:
    """In what a page is older than what it describes; nothing if it is not, or is late on purpose."""
    found = _STAMP.search(text)
    if found is None:
        return [f"{page.path} has no stamp: it is written by `write_page` of tools/pages.py"]
    words = found[2].split()
    stamped, current = dict(zip(words[::2], words[1::2], strict=True)), digests(page)
    differ = [name for name in current if stamped.get(name) != current[name]]
    differ += ["command"] if found[1] != page.command else []
    if page.late is not None:
        if not differ:
            return [f"{page.path} is up to date: take its `late` out of tools/pages.toml"]
        days = (today - page.late).days
        return [] if days <= LATE_DAYS else [f"{page.path} is late for {days} days: {page.command}"]
    return [f"{page.path} is older than its {' and '.join(differ)}: {page.command}"] if differ else []


def unlisted() -> list[str]:
    """Pages with a stamp that the list lacks."""
    listed = {page.path for page in pages()}
    return [
        name
        for path in sorted((ROOT / "docs").rglob("*.md"))
        if _STAMP.search(path.read_text(encoding="utf-8"))
        and (name := str(path.relative_to(ROOT))) not in listed
    ]


def check(today: date) -> list[str]:
    """What is wrong with the pages, a line each."""
    wrong = [
        line for page in pages() for line in old(page, (ROOT / page.path).read_text(encoding="utf-8"), today)
    ]
    return wrong + [f"{name} is not in tools/pages.toml" for name in unlisted()]


def main() -> None:
    """Check the pages, or write those that are old anew."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--check", action="store_true", help="fail if a page is old")
    what.add_argument("--write", action="store_true", help="run the commands of old pages")
    parser.add_argument("--minutes", type=float, default=60.0, help="leave out commands that take longer")
    given = parser.parse_args()
    if given.write:
        for page in sorted(pages(), key=lambda page: page.minutes):
            text = (ROOT / page.path).read_text(encoding="utf-8")
            if page.minutes <= given.minutes and (page.late or old(page, text, date.today())):
                print(f"{page.path}: {page.command}", flush=True)
                subprocess.run(shlex.split(page.command), cwd=ROOT, check=True)
    sys.exit("\n".join(check(date.today())) or None)


if __name__ == "__main__":
    main()
