"""Generated pages say what they describe: the command that made them, digests of corpus, predictor and code.

Scripts write their page by `write_page`, which ends it with a stamp. `pages.toml` lists the pages, the
command of each, and the parts of the package whose change makes it old.

    python tools/pages.py --check             fail if a page is older than what it describes and not late
    python tools/pages.py --list              what is old, and what it costs to write it
    python tools/pages.py --write             run the commands of the pages that are old, the cheapest first
    python tools/pages.py --write energy.md   those pages, old or not (`make pages ONLY="energy.md peers.md"`)

A page that is late on purpose (learning is being worked on) has `late = DATE` in `pages.toml`; that is
accepted for 14 days. What stands on a training or a campaign of hours has the command that writes the page
from its stored result, and `again`, which makes that result.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import re
import shlex
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable, Iterator, Sequence
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
    """Files, and folders of Python, whose change makes the page old, from the root of the repository."""
    again: str = ""
    """What makes the stored result that the command reads, if that is more than writing a page."""
    by_hand: str = ""
    """Why the command alone cannot write the page."""
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
        made["code"] = digest(
            _without_words(read(path)) if path.endswith(".py") else read(path) for path in paths
        )
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


def chosen(names: Sequence[str], minutes: float, today: date) -> list[tuple[Page, str]]:
    """The pages to write, the cheapest first, each with the reason why it is not, or nothing.

    Args:
        names: Ends of paths (`energy.md`); none: the pages that are old.
        minutes: Leave out what takes longer, of the pages that nobody named.
        today: Day of the check.

    Raises:
        ValueError: If a name is of no page, or of several.
    """
    for name in names:
        found = [page.path for page in pages() if Path(page.path).match(name)]
        if len(found) != 1:
            raise ValueError(f"{name} is {' and '.join(found) or 'no page of tools/pages.toml'}")
    wanted = []
    for page in sorted(pages(), key=lambda page: page.minutes):
        named = any(Path(page.path).match(name) for name in names)
        is_old = page.late or old(page, (ROOT / page.path).read_text(encoding="utf-8"), today)
        if named or (is_old and not names):
            costly = f"takes {page.minutes:g} minutes, more than {minutes:g}"
            wanted.append((page, page.by_hand or (costly if page.minutes > minutes and not named else "")))
    return wanted


def plan(wanted: Sequence[tuple[Page, str]]) -> Iterator[str]:
    """What will be written at which cost, and what will not."""
    now = [page for page, reason in wanted if not reason]
    minutes = sum(page.minutes for page in now)
    yield f"{len(now)} pages to write, about {minutes:g} minutes of one processor, the cheapest first:"
    for page, reason in wanted:
        left_out = f" (left out: {reason})" if reason else ""
        yield f"  {page.minutes:4g} min  {page.path}: {page.command}{left_out}"
        if page.again:
            yield f"            from its stored result, which `{page.again}` makes"


def write(wanted: Sequence[Page], run: Callable[[str], int]) -> list[str]:
    """Run the commands one after the other and go on after one that fails.

    Args:
        wanted: In this order.
        run: Runs a command; its exit status.

    Returns:
        A line for each page that was not written.
    """
    failed = []
    for number, page in enumerate(wanted, start=1):
        print(f"[{number}/{len(wanted)}] {page.path}: {page.command}, about {page.minutes:g} min", flush=True)
        before, start = (ROOT / page.path).read_text(encoding="utf-8"), time.monotonic()
        status = run(page.command)
        took = f"{(time.monotonic() - start) / 60.0:.1f} min"
        if status != 0:
            (ROOT / page.path).write_text(before, encoding="utf-8")
            failed.append(f"{page.path} is as it was: `{page.command}` ended with {status} after {took}")
            print(f"[{number}/{len(wanted)}] FAILED, {failed[-1]}", flush=True)
        elif still := _differs(page):
            failed.append(f"{page.path} is still older than its {' and '.join(still)}: `{page.command}`")
            print(f"[{number}/{len(wanted)}] FAILED, {failed[-1]}", flush=True)
        else:
            print(f"[{number}/{len(wanted)}] written in {took}", flush=True)
    return failed


def _differs(page: Page) -> list[str]:
    found = _STAMP.search((ROOT / page.path).read_text(encoding="utf-8"))
    words = found[2].split() if found else []
    stamped = dict(zip(words[::2], words[1::2], strict=True))
    return [name for name, value in digests(page).items() if stamped.get(name) != value]


def _run(command: str) -> int:
    program, *words = shlex.split(command)
    program = sys.executable if program == "python" else program
    return subprocess.run([program, *words], cwd=ROOT, check=False).returncode


def main() -> None:
    """Check the pages, or write those that are old anew."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--check", action="store_true", help="fail if a page is old")
    what.add_argument("--list", action="store_true", help="say what --write would do, and do nothing")
    what.add_argument("--write", action="store_true", help="run the commands of old pages")
    parser.add_argument("pages", nargs="*", help="only these, old or not")
    parser.add_argument("--minutes", type=float, default=60.0, help="leave out pages that take longer")
    given = parser.parse_args()
    if given.check:
        sys.exit("\n".join(check(date.today())) or None)
    try:
        wanted = chosen(given.pages, given.minutes, date.today())
    except ValueError as error:
        parser.error(str(error))
    print("\n".join(plan(wanted)), flush=True)
    if given.write:
        failed = write([page for page, reason in wanted if not reason], _run)
        print("Pages that quote their tables: `make docs`. Then --check says which `late` may go.")
        sys.exit("\n".join(["Not written:", *failed]) if failed else None)


if __name__ == "__main__":
    main()
