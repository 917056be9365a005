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


TODAYS = pages.Page(path="pages/today.md", command="today", minutes=1.0, code=CODE)
CHEAP = pages.Page(path="pages/cheap.md", command="cheap", minutes=2.0, code=CODE)
DEAR = pages.Page(path="pages/dear.md", command="dear", minutes=90.0, code=CODE, again="train for hours")
BY_HAND = pages.Page(path="pages/hand.md", command="hand", minutes=3.0, code=CODE, by_hand="needs a GPU")


@pytest.fixture
def of_four(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A repository of four pages, three of them old."""
    monkeypatch.setattr(pages, "pages", lambda: (DEAR, BY_HAND, CHEAP, TODAYS))
    made = {page.path: pages.digests(page) for page in pages.pages()}
    monkeypatch.setattr(pages, "digests", lambda page: made[page.path])
    monkeypatch.setattr(pages, "ROOT", tmp_path)
    (tmp_path / "pages").mkdir()
    for page in pages.pages():
        stamped = made[page.path] if page is TODAYS else {"code": "0" * 12}
        (tmp_path / page.path).write_text("text\n" + pages.stamp(page, stamped))
    return tmp_path


def test_old_pages_are_written_the_cheapest_first_and_each_cost_is_said(of_four: Path) -> None:
    wanted = pages.chosen([], 60.0, TODAY)
    assert [page for page, _ in wanted] == [CHEAP, BY_HAND, DEAR]
    assert [reason for _, reason in wanted] == ["", "needs a GPU", "takes 90 minutes, more than 60"]
    said = "\n".join(pages.plan(wanted))
    assert said.startswith("1 pages to write, about 2 minutes")
    assert "`train for hours`" in said and "  90 min  pages/dear.md" in said


def test_a_named_page_is_written_old_or_not_and_whatever_it_costs(of_four: Path) -> None:
    assert pages.chosen(["dear.md", "pages/today.md"], 60.0, TODAY) == [(TODAYS, ""), (DEAR, "")]
    with pytest.raises(ValueError, match=r"daer\.md is no page"):
        pages.chosen(["daer.md"], 60.0, TODAY)


def test_a_page_that_fails_is_as_it_was_and_the_others_are_written(
    of_four: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Planted: a command that breaks off, one that writes nothing, and one that writes its page."""
    before = (of_four / DEAR.path).read_text()

    def run(command: str) -> int:
        if command == "cheap":
            (of_four / CHEAP.path).write_text("new\n" + pages.stamp(CHEAP, pages.digests(CHEAP)))
        if command == "dear":
            (of_four / DEAR.path).write_text("half a pa")
        return 7 if command == "dear" else 0

    failed = pages.write([DEAR, BY_HAND, CHEAP], run)
    assert [line.split(" is ")[0] for line in failed] == ["pages/dear.md", "pages/hand.md"]
    assert "ended with 7" in failed[0] and "still older than its code" in failed[1]
    assert (of_four / DEAR.path).read_text() == before
    assert (of_four / CHEAP.path).read_text().startswith("new")
    assert "[3/3] written in" in capsys.readouterr().out
