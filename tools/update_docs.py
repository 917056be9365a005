"""Fill the generated blocks of README.md and docs/ with the true output of the commands they name.

A block stands between two comments::

    <!-- run: precision-time list precisions -->
    <!-- end -->

The word before the colon says what fills it:

* `run: COMMAND`: the command and its output. Commands run in this process, in a copy of docs/examples, one
  copy per page, so that a page may write a file and read it later.
* `silent: COMMAND`: the command alone; it runs, but its output has times in it or is of no interest.
* `fails: COMMAND`: a command that is refused, and the error that it prints.
* `python:`: the Python block in between, and below it what it printed.
* `file: NAME`: a file of docs/examples.
* `help:`: the help of every command.
* `list: NAME`: what `precision-time NAME --json` lists, as a table (devices, node-types, precisions, stacks,
  models); `list: request`: the fields of a request.
* `service: routes`: the routes of the service (`service_reference.py`).
* `table: FILE HEADING | ROW; ROW | COLUMN; COLUMN`: the table below that heading of a page; with names, only
  those rows, and those columns in that order. A row is named by its first cell, or by as many as tell it from
  others: `bare / Unseen sources`; `ours, constants...` is the one that begins so. `*` stands for all rows.

Pictures of docs/images are drawn again too. With `--check` nothing is written, and the exit code is 1 if a
block or a picture is out of date.
"""

from __future__ import annotations

import io
import json
import os
import re
import shlex
import shutil
import sys
import tempfile
import textwrap
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from runpy import run_path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
EXAMPLES = DOCS / "examples"
PACKAGE = ROOT / "src" / "precision_time"
GLOSSARY = PACKAGE / "cli" / "data" / "glossary.md"
"""`precision-time list words` prints it; docs/ has a copy."""
BLOCK = re.compile(
    r"(<!-- (run|silent|fails|python|file|help|list|service|table): ?(.*?) ?-->\n)(.*?)(<!-- end -->)",
    re.DOTALL,
)
TABLE = re.compile(r"(?:^\|.*\n)+", re.MULTILINE)
PYTHON_CODE = re.compile(r"```python\n(.*?)```\n", re.DOTALL)
WEB_FONTS = re.compile(r"\s*@font-face \{.*?\}", re.DOTALL)
LANGUAGES = {".py": "python", ".csv": "text", ".jsonl": "json"}
PICTURES = {
    "predict.svg": "precision-time predict resnet50 -d A100-SXM4-80GB -g 8 -b 256"
    " -p tf32,fp16-mixed,bf16-mixed"
}
"""Terminal answers that are drawn: file of docs/images and command."""
PICTURE_COLUMNS = 112
PLOTS = {
    "plan-resnet50.svg": "precision-time plan resnet50 --epochs 90 --deadline 12h --max-gpus 16",
    "run-bert.svg": "precision-time predict run.yaml",
    "plan-queue.svg": "precision-time schedule queue.yaml --inventory queue-cluster.yaml",
}
"""Pictures of docs/images that a command writes with --out. They are not compared: matplotlib draws them."""


def pages() -> list[Path]:
    """The Markdown files that may hold generated blocks."""
    return [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]


class _Terminal(io.StringIO):
    """Text that is written as if to a terminal."""

    def isatty(self) -> bool:
        return True


@contextmanager
def sandbox() -> Iterator[Path]:
    """A copy of docs/examples as the working folder, importable, with a user folder of its own."""
    with tempfile.TemporaryDirectory() as name:
        folder, before = Path(name) / "examples", Path.cwd()
        shutil.copytree(EXAMPLES, folder)
        kept = {key: os.environ.get(key) for key in ("COLUMNS", "NO_COLOR", "PRECISION_TIME_HOME")}
        os.environ |= {"COLUMNS": "110", "NO_COLOR": "1", "PRECISION_TIME_HOME": str(Path(name) / "home")}
        os.chdir(folder)
        try:
            yield folder
        finally:
            os.chdir(before)
            for key, value in kept.items():
                os.environ.pop(key, None) if value is None else os.environ.update({key: value})


def output_of(command: Sequence[str], stdout: io.StringIO | None = None) -> str:
    """What a precision-time command prints, run in this process.

    Args:
        command: Words after the program's name.
        stdout: Where it prints to; a plain text buffer if None.

    Raises:
        RuntimeError: If it fails, with what it wrote to stderr.
    """
    from precision_time.cli.main import main as precision_time
    from precision_time.cli.options import NOTHING_FITS

    out, errors, code = stdout or io.StringIO(), io.StringIO(), 0
    with redirect_stdout(out), redirect_stderr(errors), warnings.catch_warnings():
        warnings.simplefilter("default")
        try:
            precision_time(list(command))
        except SystemExit as done:
            code = int(done.code or 0)
    if code not in (0, NOTHING_FITS):
        raise RuntimeError(f"precision-time {shlex.join(command)} failed with {code}:\n{errors.getvalue()}")
    return "\n".join(line.rstrip() for line in out.getvalue().strip("\n").splitlines())


def run_block(command: str) -> str:
    """The command as one would type it, and its output."""
    return f"```console\n$ {command}\n{output_of(_words_of(command))}\n```\n"


def _words_of(command: str) -> list[str]:
    program, *words = shlex.split(command)
    if program != "precision-time":
        raise RuntimeError(f"Only precision-time commands can be run, got {command!r}.")
    return words


def silent_block(command: str) -> str:
    """The command as one would type it; it has to succeed."""
    output_of(_words_of(command))
    return f"```console\n$ {command}\n```\n"


def fails_block(command: str) -> str:
    """A command as one would type it, and the error that it ends with."""
    try:
        output_of(_words_of(command))
    except RuntimeError as error:
        _, _, printed = str(error).partition("\n")
        lines = "\n".join(textwrap.wrap(printed.strip(), 110, break_long_words=False))
        return f"```console\n$ {command}\n{lines}\n```\n"
    raise RuntimeError(f"{command} did not fail.")


def python_block(body: str) -> str:
    """The Python code of `body`, and below it what it prints."""
    code = PYTHON_CODE.search(body)
    if code is None:
        raise RuntimeError("A python block needs a ```python code block.")
    out = io.StringIO()
    with redirect_stdout(out), warnings.catch_warnings():
        warnings.simplefilter("default")
        exec(compile(code.group(1), "<documentation>", "exec"), {"__name__": "__documentation__"})
    printed = "\n".join(line.rstrip() for line in out.getvalue().strip("\n").splitlines())
    return f"{code.group(0)}\n```text\n{printed}\n```\n"


def file_block(name: str) -> str:
    """A file of docs/examples as a code block."""
    path = EXAMPLES / name
    language = LANGUAGES.get(path.suffix, path.suffix.lstrip("."))
    return f"```{language}\n{path.read_text(encoding='utf-8').rstrip()}\n```\n"


def table_block(argument: str) -> str:
    """The table below the first heading that begins so, for `FILE HEADING | ROW; ROW | COLUMN; COLUMN`."""
    name, _, rest = argument.partition(" ")
    heading, chosen, columns = (part.strip() for part in f"{rest}||".split("|")[:3])
    text = (ROOT / name).read_text(encoding="utf-8")
    below = re.search(rf"^#+ {re.escape(heading)}.*\n", text, re.MULTILINE)
    found = TABLE.search(text, below.end()) if below else None
    if found is None:
        raise RuntimeError(f"{name} has no table below a heading '{heading}'.")
    if not chosen:
        return found.group()
    header, rule, *rows = found.group().splitlines()
    if chosen != "*":
        rows = [_row_named(row.strip(), rows) for row in chosen.split(";")]
    if columns:
        kept = [_column_named(title.strip(), _cells(header)) for title in columns.split(";")]
        header, rule, *rows = (
            f"| {' | '.join(_cells(row)[number] for number in kept)} |" for row in (header, rule, *rows)
        )
    return "\n".join([header, rule, *rows]) + "\n"


def _column_named(title: str, titles: Sequence[str]) -> int:
    """Its place among the titles of a table.

    Raises:
        RuntimeError: If there is none, or more than one.
    """
    if titles.count(title) != 1:
        raise RuntimeError(f"{titles.count(title)} columns of a table are named '{title}'.")
    return titles.index(title)


def _cells(row: str) -> list[str]:
    return [cell.strip() for cell in row.strip().strip("|").split("|")]


def _row_named(name: str, rows: Sequence[str]) -> str:
    """The one row whose first cells are these, or begin so where they end with dots.

    Raises:
        RuntimeError: If there is none, or more than one.
    """
    wanted = name.split(" / ")

    def has(row: str) -> bool:
        return all(
            cell.startswith(word.removesuffix("...")) if word.endswith("...") else cell == word
            for cell, word in zip(_cells(row), wanted, strict=False)
        )

    found = [row for row in rows if has(row)]
    if len(found) != 1:
        raise RuntimeError(f"{len(found)} rows of a table are named '{name}'.")
    return found[0]


def list_block(name: str) -> str:
    """A list of the catalogue as a Markdown table, from the JSON of its command."""
    if name == "request":
        return _request_table()
    command = ["list", *(["devices", "--node-types"] if name == "node-types" else [name])]
    [found] = json.loads(output_of([*command, "--json"])).values()
    rows = list(found.values()) if isinstance(found, dict) else found
    columns = _COLUMNS[name]
    lines = [
        "| " + " | ".join(columns) + " |",
        "|" + "|".join("---:" if title.startswith(_NUMBERS) else "---" for title in columns) + "|",
    ]
    lines += ["| " + " | ".join(str(cell(row)) for cell in columns.values()) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def _request_table() -> str:
    """The fields of a request with their options, meaning and defaults."""
    from precision_time.request.schema import RequestFields
    from precision_time.request.validation import REQUIRED

    lines = ["| field | option | meaning | default |", "|---|---|---|---|"]
    for name, info in RequestFields.model_fields.items():
        if (option := info.option) is None:
            continue
        value = info.default
        flags = option.flags
        if not any(flag.startswith("--") for flag in flags):
            flags = (f"--{name.replace('_', '-')}", *flags)
        if info.annotation in (bool, bool | None):
            flags = (*flags, f"--no-{name.replace('_', '-')}")
        shown = "first argument" if info.default is REQUIRED else ", ".join(f"`{flag}`" for flag in flags)
        default = "required" if info.default is REQUIRED else option.default or _default_text(value)
        lines.append(f"| `{name}` | {shown} | {option.help} | {default} |")
    return "\n".join(lines) + "\n"


def _default_text(value: Any) -> str:
    """A default value as one would give it."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:g}"
    return "-" if value in (None, "", {}) else str(value)


_Cell = Callable[[dict[str, Any]], str]
_NUMBERS = ("memory", "bandwidth", "peak", "parameters", "forward", "devices")


def _text(key: str) -> _Cell:
    return lambda row: "-" if row.get(key) in (None, "") else str(row[key]).replace("|", "\\|")


def _yes(key: str) -> _Cell:
    return lambda row: "yes" if row.get(key) else "-"


def _si(key: str, unit: str) -> _Cell:
    from precision_time.units import format_si

    return lambda row: format_si(row[key], unit) if row.get(key) else "-"


def _peak(dtype: str) -> _Cell:
    from precision_time.units import format_si

    return lambda row: (
        format_si(row["peak_flops_per_s"][dtype], "") if dtype in row["peak_flops_per_s"] else "-"
    )


def _gib(row: dict[str, Any]) -> str:
    return f"{row['memory_bytes'] / 2**30:.0f} GiB"


_COLUMNS: dict[str, dict[str, _Cell]] = {
    "devices": {
        "device": _text("name"),
        "vendor": _text("vendor"),
        "architecture": _text("arch"),
        "year": _text("release_year"),
        "memory": _gib,
        "bandwidth": _si("memory_bandwidth_bytes_per_s", "B/s"),
        **{f"peak {dtype}": _peak(dtype) for dtype in ("fp32", "tf32", "fp16", "bf16", "fp8", "fp4")},
    },
    "node-types": {
        "node type": _text("name"),
        "device": _text("device"),
        "devices": _text("devices"),
        "link inside a node": _text("intra_node"),
        "network between nodes": _text("inter_node"),
    },
    "precisions": {
        "precision": _text("name"),
        "products": _text("matmul"),
        "activations": _text("activation"),
        "parameters": _text("param"),
        "gradients": _text("grad"),
        "on the wire": _text("reduce"),
        "master weights": _text("master"),
        "loss scaling": _yes("loss_scaling"),
        "what it is": _text("summary"),
    },
    "stacks": {
        "stack": _text("name"),
        "framework": _text("framework"),
        "compiler": _text("compiler"),
        "what it is": _text("summary"),
    },
    "models": {
        "model": _text("name"),
        "family": _text("family"),
        "parameters": _si("params", ""),
        "forward FLOP per sample": _si("forward_flops", ""),
        "source": _text("source"),
    },
}


def picture(command: str) -> str:
    """The answer of a command as an SVG of the terminal, without fonts from the web."""
    from rich.console import Console
    from rich.text import Text

    kept = {key: os.environ.pop(key, None) for key in ("NO_COLOR", "FORCE_COLOR", "TERM")}
    columns = os.environ.get("COLUMNS")
    os.environ |= {"COLUMNS": str(PICTURE_COLUMNS), "TERM": "xterm-256color"}
    try:
        answer = output_of(_words_of(command), _Terminal())
    finally:
        os.environ.pop("TERM")
        os.environ |= {key: value for key, value in {**kept, "COLUMNS": columns}.items() if value is not None}
    console = Console(record=True, width=PICTURE_COLUMNS, file=io.StringIO(), force_terminal=True)
    console.print(Text(f"$ {command}"), soft_wrap=False)
    console.print(Text.from_ansi(answer))
    return WEB_FONTS.sub("", console.export_svg(title="precision-time")) + "\n"


def filled(text: str) -> str:
    """`text` with every block up to date."""

    def fill(block: re.Match[str]) -> str:
        start, kind, argument, body, end = block.groups()
        return f"{start}\n{_content(kind, argument, body)}\n{end}"

    with sandbox():
        return BLOCK.sub(fill, text)


def _content(kind: str, argument: str, body: str) -> str:
    if kind == "python":
        return python_block(body)
    if kind == "help":
        from command_page import command_page

        return command_page()
    return _FILLED_BY[kind](argument)


def service_block(what: str) -> str:
    """The routes of the service, with true answers to their examples."""
    del what
    found: str = run_path(str(ROOT / "tools" / "service_reference.py"))["reference"]()
    return found


_FILLED_BY = {
    "service": service_block,
    "run": run_block,
    "silent": silent_block,
    "fails": fails_block,
    "file": file_block,
    "table": table_block,
    "list": list_block,
}


def outdated() -> Iterator[tuple[Path, str]]:
    """Pages and pictures that differ from what the commands say now, with the new text."""
    for page in pages():
        text = page.read_text(encoding="utf-8")
        if BLOCK.search(text) and (new := filled(text)) != text:
            yield page, new
    glossary = GLOSSARY.read_text(encoding="utf-8")
    if glossary != (DOCS / GLOSSARY.name).read_text(encoding="utf-8"):
        yield DOCS / GLOSSARY.name, glossary
    for name, command in PICTURES.items():
        path = DOCS / "images" / name
        with sandbox():
            new = picture(command)
        if not path.exists() or path.read_text(encoding="utf-8") != new:
            yield path, new


def draw_plots() -> None:
    """Write the pictures that commands draw with matplotlib."""
    for name, command in PLOTS.items():
        with sandbox() as folder:
            output_of([*_words_of(command), "--out", name])
            (DOCS / "images" / name).write_bytes((folder / name).read_bytes())


def main(arguments: list[str]) -> int:
    """Write the pages, or with `--check` only say which are out of date."""
    check = "--check" in arguments
    sys.path.insert(0, "")
    stale = False
    for page, text in outdated():
        stale = True
        print(f"{'out of date' if check else 'updated'}: {page.relative_to(ROOT)}")
        if not check:
            page.parent.mkdir(exist_ok=True)
            page.write_text(text, encoding="utf-8")
    if not check:
        draw_plots()
    if check and stale:
        print("To fix: make docs")
    return int(check and stale)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
