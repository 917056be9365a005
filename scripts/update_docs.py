"""Fill the generated blocks of README.md and docs/ with the true output of the commands they name.

A block stands between two comments::

    <!-- run: precision-time precisions -->
    <!-- end -->

`run:` puts the command and its output there; `help:` the help of every command; `python:` runs the Python
block in between and puts what it printed below it; `table: FILE N` copies the N-th table of a page. With
`--check` nothing is written, and the exit code is 1 if a block is out of date.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BLOCK = re.compile(r"(<!-- (run|help|python|table): ?(.*?) ?-->\n)(.*?)(<!-- end -->)", re.DOTALL)
TABLE = re.compile(r"(?:^\|.*\n)+", re.MULTILINE)
PYTHON_CODE = re.compile(r"```python\n(.*?)```\n", re.DOTALL)


def pages() -> list[Path]:
    """The Markdown files that may hold generated blocks."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def output_of(*arguments: str) -> str:
    """What the Python interpreter prints for `arguments`, in a fixed terminal.

    Raises:
        RuntimeError: If it fails, with what it wrote to stderr.
    """
    environment = {**os.environ, "COLUMNS": "110", "NO_COLOR": "1", "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, env=environment, cwd=ROOT, check=False
    )
    if done.returncode:
        raise RuntimeError(f"{shlex.join(arguments)} failed with {done.returncode}:\n{done.stderr}")
    return "\n".join(line.rstrip() for line in done.stdout.strip("\n").splitlines())


def run_block(command: str) -> str:
    """The command as one would type it, and its output."""
    program, *arguments = shlex.split(command)
    if program != "precision-time":
        raise RuntimeError(f"Only precision-time commands can be run, got {command!r}.")
    return f"```console\n$ {command}\n{output_of('-m', 'precision_time', *arguments)}\n```\n"


def help_block() -> str:
    """The help of every command, one heading each."""
    from precision_time.cli.main import command_paths

    parts = []
    for name in ["", *command_paths()]:
        title = f"precision-time {name}".strip()
        text = output_of("-m", "precision_time", *name.split(), "--help")
        parts.append(f"## `{title}`\n\n```text\n{text}\n```\n")
    return "\n".join(parts)


def python_block(body: str) -> str:
    """The Python code of `body`, and below it what it prints."""
    code = PYTHON_CODE.search(body)
    if code is None:
        raise RuntimeError("A python block needs a ```python code block.")
    return f"{code.group(0)}\n```text\n{output_of('-c', code.group(1))}\n```\n"


def table_block(argument: str) -> str:
    """The table below the first heading that begins so, for `FILE HEADING`."""
    name, _, heading = argument.partition(" ")
    text = (ROOT / name).read_text(encoding="utf-8")
    below = re.search(rf"^#+ {re.escape(heading)}.*\n", text, re.MULTILINE)
    found = TABLE.search(text, below.end()) if below else None
    if found is None:
        raise RuntimeError(f"{name} has no table below a heading '{heading}'.")
    return found.group()


def filled(text: str) -> str:
    """`text` with every block up to date."""

    def fill(block: re.Match[str]) -> str:
        start, kind, argument, body, end = block.groups()
        return f"{start}\n{_content(kind, argument, body)}\n{end}"

    return BLOCK.sub(fill, text)


def _content(kind: str, argument: str, body: str) -> str:
    if kind == "run":
        return run_block(argument)
    if kind == "table":
        return table_block(argument)
    return help_block() if kind == "help" else python_block(body)


def outdated() -> Iterator[tuple[Path, str]]:
    """Pages whose blocks differ from what the commands say now, with the new text."""
    for page in pages():
        text = page.read_text(encoding="utf-8")
        new = filled(text)
        if new != text:
            yield page, new


def main(arguments: list[str]) -> int:
    """Write the pages, or with `--check` only say which are out of date."""
    check = "--check" in arguments
    stale = list(outdated())
    for page, text in stale:
        print(f"{'out of date' if check else 'updated'}: {page.relative_to(ROOT)}")
        if not check:
            page.write_text(text, encoding="utf-8")
    if check and stale:
        print("To fix: make docs")
    return int(check and bool(stale))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
