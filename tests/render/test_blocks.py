"""What is shown of a result is what it says, wherever it is shown."""

import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from precision_time.errors import ConfigError
from precision_time.render.blocks import GAP, TEXT_WIDTH, Bars, Block, Drawing, Text, Tone, warnings
from precision_time.render.html import page_of_blocks
from precision_time.render.result import Result
from precision_time.render.table import Table, write_columns
from precision_time.render.terminal import scatter, text_of_blocks
from precision_time.timeline.svg import Colors, areas, lanes

SVG = "{http://www.w3.org/2000/svg}"


@dataclass(frozen=True, kw_only=True, slots=True, repr=False)
class Answer(Result):
    DERIVED = ("twice",)

    name: str
    seconds: tuple[float, ...]
    table: object = field(default=None, repr=False, compare=False)

    @property
    def twice(self) -> float:
        return 2.0 * sum(self.seconds)

    def in_one_line(self) -> str:
        return self.name

    def blocks(self, *, width: int = TEXT_WIDTH, why: bool = False) -> Iterator[Block]:
        yield from (Text(f"{self.name} is the answer", Tone.LEAD), GAP)
        yield Table(columns=("what", ">how much"), rows=(("first", 1.25), ("second", None)), title="Figures")
        yield Bars(title="time", labels=("a", "b"), parts={"work": (3.0, 1.0), "wait": (1.0, 1.0)})
        yield Drawing("<svg></svg>")
        yield from warnings(["act"])


ANSWER = Answer(name="<b>42</b>", seconds=(1.0, 2.0))


def test_every_way_to_show_it_says_the_same() -> None:
    for shown in (str(ANSWER), re.sub("<[^>]+>", " ", page_of_blocks("t", ANSWER.blocks()))):
        for words in ("is the answer", "Figures", "first", "1.2", "second", "work", "wait", "Warning: act"):
            assert words in shown
    assert repr(ANSWER) == "<Answer <b>42</b>>"


def test_names_are_text_in_html() -> None:
    for shown in (ANSWER._repr_html_(), page_of_blocks("<i>", ANSWER.blocks())):
        assert "&lt;b&gt;42" in shown and "<b>42" not in shown and "<title><i>" not in shown
        for tag in ("div", "table", "span"):
            assert shown.count(f"<{tag}") == shown.count(f"</{tag}>")
        assert shown.count("<svg") == 1
    assert "svg" not in str(ANSWER)


def test_what_is_left_out_of_the_repr_is_neither_written_nor_read() -> None:
    said = Answer(name="x", seconds=(1.0,), table=object()).to_dict()
    assert said == {"name": "x", "seconds": (1.0,), "twice": 2.0}
    assert Answer.from_dict({**said, "table": 5}) == Answer(name="x", seconds=(1.0,))
    assert Answer.from_dict({**said, "table": 5}).table is None


@given(st.integers(1, 200), st.lists(st.integers(1, 30), min_size=4, max_size=4))
def test_columns_are_left_out_in_their_order_and_only_where_they_must(width: int, sizes: list[int]) -> None:
    names = ("a", "b", "c", "d")
    table = Table(columns=names, rows=(tuple("x" * size for size in sizes),), dispensable=("c", "b"))
    kept = table.fitting(width).columns
    assert kept in (names, ("a", "b", "d"), ("a", "d"))

    def needs(columns: tuple[str, ...]) -> int:
        return sum(sizes[names.index(name)] + 2 for name in columns)

    assert needs(kept) <= width or kept == ("a", "d")
    more = {("a", "b", "d"): names, ("a", "d"): ("a", "b", "d")}.get(kept)
    assert more is None or needs(more) > width


@given(st.lists(st.floats(1e-3, 1e6), min_size=1, max_size=5))
def test_the_longest_bar_is_the_longest_and_all_share_its_scale(sums: list[float]) -> None:
    labels = tuple(f"l{place}" for place in range(len(sums)))
    shown = text_of_blocks([Bars(title="t", labels=labels, parts={"p": tuple(sums)})], width=200)
    line = next(line for line in shown.splitlines() if line.startswith("p "))
    bars = [len(bar) for bar in re.findall("█+", line)]
    cells = [round(16 * value / max(sums)) for value in sums]
    assert bars == [count for count in cells if count]


def test_points_lie_at_their_place() -> None:
    assert scatter([("1", 1.0, 1.0)], width=80, x_text=str, y_text=str) == []
    points, short = [("1", 1.0, 1.0), ("2", 100.0, 10.0)], "{:g}".format
    lines = scatter(points, width=80, x_text=short, y_text=short)
    assert lines[0].endswith(" 2") and lines[0].split()[0] == "10"
    assert lines[11].split()[-1] == "|1" and lines[-1].split() == ["1", "100"]


@dataclass(frozen=True)
class Piece:
    name: str
    kind: str
    start_s: float
    end_s: float


@pytest.mark.parametrize("count", [3, 5000])
def test_a_lane_is_as_long_as_its_bars(count: int) -> None:
    """Few bars are drawn one by one; more than there are pixels by what fills each pixel."""
    pieces = [Piece("p", f"k{place % 2}", place / count, (place + 1) / count) for place in range(count)]
    drawn = lanes([("all", {"lane": pieces, "none": []})], Colors(of={"k0": "#000000"}), end_s=1.0, title="t")
    root = ET.fromstring(drawn)
    bars = [each for each in root.findall(f"{SVG}rect") if each.get("height") == "22"]
    assert sum(float(each.get("width", "0")) for each in bars) == pytest.approx(1000.0, abs=0.1)
    assert {text.text for text in root.iter(f"{SVG}text")} >= {"all", "lane", "k0", "k1"}


def test_areas_lie_on_each_other_up_to_the_peak() -> None:
    times, gib = np.array([0.0, 1.0, 2.0]), 2.0**30
    sizes = {"low": np.array([gib, gib]), "high": np.array([gib, 3 * gib])}
    drawn = areas(times, sizes, Colors(of={}), limit=2 * gib, limit_text="has", heading="h", title="t")
    root = ET.fromstring(drawn)
    peak = root.find(f"{SVG}circle")
    assert peak is not None and "peak 4.0 GiB from 1 s" in drawn
    tops = [
        min(float(point.split(",")[1]) for point in each.get("points", "").split())
        for each in root.findall(f"{SVG}polygon")
    ]
    assert min(tops) == pytest.approx(float(peak.get("cy", "0")), abs=0.1) and len(tops) == 2


def test_columns_are_written_as_they_are(tmp_path) -> None:
    columns = {"a": [1, None], "b": ["=x", "y"]}
    write_columns(columns, tmp_path / "t.csv")
    assert (tmp_path / "t.csv").read_text() == "a,b\n1,'=x\n,y\n"
    write_columns(columns, tmp_path / "t.jsonl")
    assert (tmp_path / "t.jsonl").read_text() == '{"a": 1, "b": "=x"}\n{"a": null, "b": "y"}\n'
    with pytest.raises(ConfigError, match=r"t\.txt"):
        write_columns(columns, tmp_path / "t.txt")
