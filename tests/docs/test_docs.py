"""What the documents say is what the program does."""

from __future__ import annotations

import inspect
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import typer

import precision_time
import precision_time_papers
from command_page import command_paths, every_command
from precision_time.cli.main import app

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]
DOCUMENTS = [*PAGES, ROOT / "CONTRIBUTING.md"]
WRITTEN = [page for page in PAGES if page.parent.name not in ("devdocs", "reference")]
"""Pages for users whose examples are all run."""
LINK = re.compile(r"\]\((?!https?://|#|mailto:)([^)#]+)(?:#([^)]*))?\)")
GENERATED = re.compile(r"<!-- (?:run|silent|fails|python|file|help|list|table):.*?<!-- end -->", re.DOTALL)
FENCED = re.compile(r"(<!-- not run: \S.*? -->\n\n)?```(\w*)\n(.*?)```", re.DOTALL)
MAX_README_LINES = 150


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def commands_in(text: str) -> Iterator[list[str]]:
    """Words of the lines that call this program, those before a pipe left out."""
    for line in text.splitlines():
        call = line.removeprefix("$ ").rpartition("| ")[2]
        if call.startswith("precision-time "):
            yield shlex.split(call)[1:]


def anchors_of(page: Path) -> set[str]:
    """What may follow `#` in a link to a page: its headings in small letters, hyphens for spaces."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("command", command_paths())
def test_every_command_is_documented(command: str) -> None:
    page = (DOCS / "reference" / "cli.md").read_text(encoding="utf-8")
    assert f"## `precision-time {command}`" in page


def test_every_public_name_is_documented() -> None:
    page = (DOCS / "reference" / "python.md").read_text(encoding="utf-8")
    for package in (precision_time, precision_time_papers):
        documented = set(re.findall(rf"^::: {package.__name__}\.(\w+)$", page, re.MULTILINE))
        assert documented == set(package.__all__) - {"__version__"}


@pytest.mark.parametrize("page", DOCUMENTS, ids=name_of)
def test_links_lead_somewhere(page: Path) -> None:
    missing = [
        f"{link}#{anchor}"
        for link, anchor in LINK.findall(page.read_text(encoding="utf-8"))
        if not (page.parent / link).exists() or (anchor and anchor not in anchors_of(page.parent / link))
    ]
    assert missing == []


def test_pages_that_code_names_exist() -> None:
    """Messages, docstrings and scripts name pages by their path from the root."""
    folder = "(?:(?:reference|guides|explanation|devdocs)/)?"
    named = re.compile(rf"(?<![\w/.@:-])docs/{folder}[\w*-]+\.(?:md|svg|png)")
    missing = [
        f"{path.relative_to(ROOT)}: {name}"
        for top in ("src", "data", "tools", "benchmarks", "tests", "packages")
        for path in sorted((ROOT / top).rglob("*.py"))
        for name in named.findall(path.read_text(encoding="utf-8"))
        if not list(ROOT.glob(name))
    ]
    assert missing == [], "To fix: generated pages are in docs/reference/"


@pytest.mark.parametrize("page", DOCUMENTS, ids=name_of)
def test_every_make_target_that_is_named_exists(page: Path) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    named = set(
        re.findall(r"`make ([a-z-]+)`|^make ([a-z-]+)", page.read_text(encoding="utf-8"), re.MULTILINE)
    )
    assert {name for pair in named for name in pair if name} <= targets


@pytest.mark.parametrize("page", WRITTEN, ids=name_of)
def test_every_example_is_run(page: Path, update_docs: ModuleType) -> None:
    """Code outside generated blocks needs a reason; drawn commands are run by their picture."""
    drawn = {tuple(shlex.split(command)[1:]) for command in update_docs.PICTURES.values()}
    for excused, language, body in FENCED.findall(GENERATED.sub("", page.read_text(encoding="utf-8"))):
        assert excused or language != "python", f"not run: {body}"
        for words in commands_in(body):
            assert excused or tuple(words) in drawn, f"not run: {shlex.join(words)}"


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_commands_that_are_not_run_have_options_that_exist(page: Path) -> None:
    root: Any = typer.main.get_command(app)
    commands = dict(every_command(every_option=True, leaving=True))
    for _, _, body in FENCED.findall(GENERATED.sub("", page.read_text(encoding="utf-8"))):
        for words in commands_in(body):
            typed = " ".join(["", *words, ""])
            named = [found for path, found in commands.items() if f" {path} " in typed]
            options = [option for found in (root, *named) for option in found.params]
            known = {name for option in options for name in (*option.opts, *option.secondary_opts)}
            given = {word.partition("=")[0] for word in words if re.match(r"--?[a-z]", word)}
            assert given <= known | {"-h", "--help", "--version", "--set"}, shlex.join(words)


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= MAX_README_LINES


WAIT = dict.fromkeys(
    ("docs/guides/measure.md", "docs/guides/planning.md"),
    pytest.mark.nightly(
        covered_by="tests/docs/test_docs.py::test_generated_blocks_are_up_to_date[docs/guides/layouts.md]"
    ),
)
"""Pages whose commands take seconds of the processor: they plan many alternatives, or measure."""


@pytest.mark.slow
@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=WAIT.get(name_of(page), ()), id=name_of(page))
        for page in PAGES
        if GENERATED.search(page.read_text(encoding="utf-8"))
    ],
)
def test_generated_blocks_are_up_to_date(page: Path, update_docs: ModuleType) -> None:
    text = page.read_text(encoding="utf-8")
    assert update_docs.filled(text) == text, "To fix: make docs"


@pytest.mark.slow
def test_pictures_are_up_to_date(update_docs: ModuleType) -> None:
    for name, command in update_docs.PICTURES.items():
        with update_docs.sandbox():
            drawn = update_docs.picture(command)
        assert (DOCS / "images" / name).read_text(encoding="utf-8") == drawn, "To fix: make docs"
        assert "http" not in re.sub(r'xmlns="[^"]*"|<!--.*?-->', "", drawn), "loads something from the web"


def test_a_block_holds_the_output_of_its_command(update_docs: ModuleType) -> None:
    text = "before\n<!-- run: precision-time --version -->\nstale\n<!-- end -->\nafter\n"
    filled = update_docs.filled(text)
    assert f"$ precision-time --version\n{precision_time.__version__}\n" in filled
    assert "stale" not in filled
    assert filled.startswith("before\n")
    assert filled.endswith("after\n")
    assert update_docs.filled(filled) == filled


def test_a_python_block_holds_what_its_code_prints(update_docs: ModuleType) -> None:
    text = "<!-- python: -->\n\n```python\nprint(6 * 7)\n```\n\n<!-- end -->\n"
    assert "```text\n42\n```" in update_docs.filled(text)


def test_chosen_rows_of_a_table(update_docs: ModuleType) -> None:
    whole = update_docs.table_block("docs/reference/accuracy.md Protocols and targets")
    chosen = update_docs.table_block("docs/reference/accuracy.md Protocols and targets | Unseen models")
    header, rule, row = chosen.splitlines()
    assert whole.startswith(f"{header}\n{rule}\n")
    assert row in whole
    assert row.startswith("| Unseen models |")


def test_a_row_is_named_by_as_many_cells_as_tell_it_apart(update_docs: ModuleType) -> None:
    place = "docs/reference/questions.md Questions as people ask them"
    row = update_docs.table_block(f"{place} | bare / Unseen sources").splitlines()[-1]
    assert row.startswith("| bare | Unseen sources |")
    says, rows = row.split(" | ")[0], row.split(" | ")[2]
    turned = update_docs.table_block(f"{place} | bare / Unseen sources | rows; says").splitlines()
    assert turned == ["| rows | says |", "| ---: | --- |", f"| {rows} | {says.strip('| ')} |"]
    with pytest.raises(RuntimeError, match="6 rows of a table are named 'bare'"):
        update_docs.table_block(f"{place} | bare")
    assert (
        update_docs.table_block(f"{place} | layo... / Unseen sou...")
        .splitlines()[-1]
        .startswith("| layout |")
    )
    for columns, title in ((0, "no such column"), (3, "coverage %")):
        with pytest.raises(RuntimeError, match=f"{columns} columns of a table are named '{title}'"):
            update_docs.table_block(f"{place} | * | {title}")


def test_a_failing_command_is_an_error(update_docs: ModuleType) -> None:
    with pytest.raises(RuntimeError, match="No such command"):
        update_docs.run_block("precision-time predcit")
    assert "No such command" in update_docs.fails_block("precision-time predcit")
    with pytest.raises(RuntimeError, match="did not fail"):
        update_docs.fails_block("precision-time --version")


def test_only_our_own_commands_run(update_docs: ModuleType) -> None:
    with pytest.raises(RuntimeError, match="Only precision-time"):
        update_docs.run_block("true")


@pytest.mark.slow
def test_the_demo_shows_every_job() -> None:
    done = subprocess.run(
        [sys.executable, "tools/demo.py"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    for model in ("resnet50", "bert-large", "llama3-8b"):
        assert f"$ precision-time predict {model}" in done.stdout
    for precision in ("tf32", "fp16-mixed", "bf16-mixed", "fp8-mixed"):
        assert re.search(rf"^{precision} .* ms", done.stdout, re.MULTILINE)


def built_site(root: Path, site: Path) -> subprocess.CompletedProcess[str]:
    """The site as `make site` builds it."""
    recipes = (ROOT / "Makefile").read_text()
    [command] = re.findall(r"^\tNO_MKDOCS_2_WARNING=1 \$\(BIN\)/(mkdocs .*)$", recipes, re.M)
    return subprocess.run(
        [sys.executable, "-m", *command.split(), "--site-dir", str(site)],
        cwd=root,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.nightly(covered_by="tests/docs/test_docs.py::test_a_broken_link_fails_the_site_and_is_shown")
def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    done = built_site(ROOT, tmp_path / "site")
    assert done.returncode == 0, done.stderr
    assert "WARNING -" not in done.stderr
    assert (tmp_path / "site" / "reference" / "python.html").is_file()


@pytest.mark.parametrize(
    ("planted", "said"),
    [
        ("[gone](no-such-page.md)", "no-such-page.md"),
        ("[gone](other.md#nowhere)", "nowhere"),
    ],
)
def test_a_broken_link_fails_the_site_and_is_shown(tmp_path: Path, planted: str, said: str) -> None:
    stated = (ROOT / "mkdocs.yml").read_text()
    for name, of_all in (("plugins", "plugins: []\n"), ("nav", "nav: [index.md, other.md]\n")):
        stated = re.sub(rf"^{name}:\n(?:[ -].*\n)+", of_all, stated, flags=re.M)
    stated = stated.replace("tools/llms.py", str(ROOT / "tools" / "llms.py"))
    (tmp_path / "mkdocs.yml").write_text(stated)
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "other.md").write_text("# Other\n")
    for text, code in (("[other](other.md#other)", 0), (planted, 1)):
        (tmp_path / "docs" / "index.md").write_text(f"# Home\n\n{text}\n")
        done = built_site(tmp_path, tmp_path / "site")
        assert done.returncode == code, done.stderr
    assert said in done.stderr


def test_every_page_is_in_the_navigation_once() -> None:
    """What is not is a warning, which fails `make site`."""
    nav = (ROOT / "mkdocs.yml").read_text().partition("\nnav:\n")[2]
    named = re.findall(r"(\S+\.md)$", nav, re.M)
    pages = {path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")}
    assert sorted(named) == sorted(page for page in pages if not page.startswith("examples/"))


@pytest.mark.parametrize("name", [name for name in precision_time.__all__ if name[0].isupper()])
def test_parameters_that_a_class_describes_are_those_it_takes(name: str) -> None:
    """What it takes by `**options` alone is a warning of the page of the Python API."""
    described = getattr(precision_time, name)
    stated = re.findall(r"^ {4}(\w+): ", (inspect.getdoc(described) or "").partition("\nArgs:\n")[2], re.M)
    assert not stated or stated == [*inspect.signature(described).parameters]
