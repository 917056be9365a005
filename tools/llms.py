"""Write `llms.txt` and `llms-full.txt` beside the site: its pages as text for programs (a hook of mkdocs)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

_LEFT_OUT = ("reference/cli.md", "reference/devices.md", "reference/models.md")
"""Long lists that a command answers better."""


def on_post_build(config: Any) -> None:
    """Write both files into the folder of the site."""
    docs, site = Path(config["docs_dir"]), Path(config["site_dir"])
    pages = [(title, page) for title, page in _pages(config["nav"]) if (docs / page).is_file()]
    lines = [f"# {config['site_name']}", "", f"> {config['site_description']}", ""]
    lines += [f"- [{title}]({page})" for title, page in pages]
    (site / "llms.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    texts = [(docs / page).read_text(encoding="utf-8") for _, page in pages if page not in _LEFT_OUT]
    (site / "llms-full.txt").write_text("\n\n".join(texts), encoding="utf-8")


def _pages(nav: Any) -> list[tuple[str, str]]:
    """Title and file of every page of the navigation, in its order."""
    found: list[tuple[str, str]] = []
    for item in nav:
        for title, inner in item.items() if isinstance(item, dict) else [(str(item), str(item))]:
            found += _pages(inner) if isinstance(inner, list) else [(title, inner)]
    return found
