"""No generated page is older than what it describes."""

from __future__ import annotations

from dataclasses import replace
from datetime import date, timedelta
from pathlib import Path

import pytest

import pages

TODAY = date(2026, 11, 23)
CODE = (f"{pages.PACKAGE}/units.py",)
PAGE = pages.Page(
    path="x.md",
    command="make x",
    minutes=1.0,
    corpus=True,
    predictor=True,
    code=CODE,
)


def test_no_page_is_older_than_what_it_describes() -> None:
    assert pages.check(date.today()) == []


def test_every_page_that_says_it_is_generated_is_listed() -> None:
    """Pages that `make docs` fills are compared block by block (test_docs.py)."""
    listed = {page.path for page in pages.pages()}
    generated = {
        str(path.relative_to(pages.ROOT))
        for path in (pages.ROOT / "docs").rglob("*.md")
        for line in path.read_text(encoding="utf-8").splitlines()[:4]
        if "do not edit" in line
    }
    assert len(generated) > 15
    assert generated <= listed


@pytest.mark.parametrize("part", ["corpus", "predictor", "code"])
def test_a_planted_change_is_found(part: str) -> None:
    made = pages.digests(PAGE)
    assert list(made) == ["corpus", "predictor", "code"]
    assert pages.old(PAGE, "text\n" + pages.stamp(PAGE, made), TODAY) == []
    stale = "text\n" + pages.stamp(PAGE, made | {part: "0" * 12})
    assert pages.old(PAGE, stale, TODAY) == [f"x.md is older than its {part}: make x"]
    late = replace(PAGE, late=TODAY - timedelta(days=14))
    assert pages.old(late, stale, TODAY) == []
    assert pages.old(late, stale, TODAY + timedelta(days=1)) == ["x.md is late for 15 days: make x"]
    assert "take its `late` out" in pages.old(late, "text\n" + pages.stamp(PAGE, made), TODAY)[0]
    assert "no stamp" in pages.old(PAGE, "text\n", TODAY)[0]


def test_words_make_no_page_old() -> None:
    """Comments and docstrings are left out of the digest, code is not."""
    page = pages.Page(path="x.md", command="make x", minutes=1.0, code=("any",))
    one, same, other = (
        pages.digests(page, lambda _, text=text: text, lambda _: ["a.py"])["code"]  # type: ignore[misc]
        for text in (b'"""Words."""\nx = 1  # one\n', b'"""Other words."""\nx = 1\n', b"x = 2\n")
    )
    assert one == same != other


def test_a_page_that_is_not_listed_is_refused_and_a_copy_elsewhere_has_no_stamp(tmp_path: Path) -> None:
    with pytest.raises(KeyError):
        pages.write_page(pages.ROOT / "docs" / "not-listed.md", "text")
    pages.write_page(tmp_path / "other.md", "text")
    assert (tmp_path / "other.md").read_text() == "text"
