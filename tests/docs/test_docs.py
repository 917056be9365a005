"""What the documents say is what the program does."""

from __future__ import annotations

import importlib.util
import re
import shlex
from pathlib import Path
from types import ModuleType

import pytest

from precision_time.cli.main import command_paths

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
LINK = re.compile(r"\]\((?!https?://|#|mailto:)([^)#]+)(?:#[^)]*)?\)")
COMMANDS = command_paths()


@pytest.fixture(scope="module")
def update_docs() -> ModuleType:
    """`scripts/update_docs.py` as a module."""
    spec = importlib.util.spec_from_file_location("update_docs", ROOT / "scripts" / "update_docs.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_is_documented(command: str) -> None:
    assert f"## `precision-time {command}`" in (ROOT / "docs" / "reference" / "cli.md").read_text(
        encoding="utf-8"
    )


@pytest.mark.parametrize("page", DOCUMENTS, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    missing = [
        link for link in LINK.findall(page.read_text(encoding="utf-8")) if not (page.parent / link).exists()
    ]
    assert missing == []


@pytest.mark.parametrize("page", DOCUMENTS, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_make_target_that_is_named_exists(page: Path) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    named = set(
        re.findall(r"`make ([a-z-]+)`|^make ([a-z-]+)", page.read_text(encoding="utf-8"), re.MULTILINE)
    )
    assert {name for pair in named for name in pair if name} <= targets


@pytest.mark.slow
def test_generated_blocks_are_up_to_date(update_docs: ModuleType) -> None:
    stale = [str(page.relative_to(ROOT)) for page, _ in update_docs.outdated()]
    assert stale == [], "To fix: make docs"


def test_a_block_holds_the_output_of_its_command(update_docs: ModuleType) -> None:
    text = "before\n<!-- run: precision-time --version -->\nstale\n<!-- end -->\nafter\n"
    filled = update_docs.filled(text)
    from precision_time import __version__

    assert f"$ precision-time --version\n{__version__}\n" in filled
    assert "stale" not in filled
    assert filled.startswith("before\n")
    assert filled.endswith("after\n")
    assert update_docs.filled(filled) == filled


def test_a_python_block_holds_what_its_code_prints(update_docs: ModuleType) -> None:
    text = "<!-- python: -->\n\n```python\nprint(6 * 7)\n```\n\n<!-- end -->\n"
    assert "```text\n42\n```" in update_docs.filled(text)


def test_a_failing_command_is_an_error(update_docs: ModuleType) -> None:
    with pytest.raises(RuntimeError, match="No such command"):
        update_docs.run_block("precision-time predcit")


def test_only_our_own_commands_run(update_docs: ModuleType) -> None:
    with pytest.raises(RuntimeError, match="Only precision-time"):
        update_docs.run_block("true")


def readme_commands() -> list[str]:
    """Lines of the README's console blocks that call this program and are not generated ones."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    lines = [line.removeprefix("$ ").strip() for line in text.splitlines()]
    generated = set(re.findall(r"<!-- run: (.*?) -->", text))
    return [line for line in lines if line.startswith("precision-time ") and line not in generated]


@pytest.mark.slow
@pytest.mark.parametrize("command", readme_commands())
def test_readme_commands_run(command: str, update_docs: ModuleType) -> None:
    assert update_docs.output_of("-m", "precision_time", *shlex.split(command)[1:])


@pytest.mark.slow
def test_the_demo_shows_every_job(update_docs: ModuleType) -> None:
    shown = update_docs.output_of("scripts/demo.py")
    for model in ("resnet50", "bert-large", "llama3-8b"):
        assert f"$ precision-time predict {model}" in shown
    for precision in ("tf32", "fp16-mixed", "bf16-mixed", "fp8-mixed"):
        assert re.search(rf"^{precision} .* ms", shown, re.MULTILINE)
