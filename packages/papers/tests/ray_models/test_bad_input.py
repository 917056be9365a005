from __future__ import annotations

from pathlib import Path

import pytest

from precision_time.errors import ConfigError, CorpusError, PrecisionTimeError, UnknownNameError
from precision_time_papers.ray_models.points import points_of, read_csv
from precision_time_papers.ray_models.schema import prepared, read_study, study_of

ROWS = [{"w": str(w), "b": str(b), "net": "a", "t": str(0.1 * b + w)} for w in (1, 2, 4) for b in (1, 2, 3)]


def points(rows: list[dict[str, str]], **changes: object) -> object:
    given = {"target": "t", "columns": ["w", "b"], **changes}
    return points_of(rows, range(2, len(rows) + 2), **given)  # type: ignore[arg-type]


def changed(index: int, **cells: str) -> list[dict[str, str]]:
    return [{**row, **(cells if number == index else {})} for number, row in enumerate(ROWS)]


@pytest.mark.parametrize(
    ("rows", "changes", "kind", "words"),
    [
        (changed(3, t="0"), {}, CorpusError, r"Line 5: t = 0, but a time is above 0"),
        (changed(3, t="-1"), {}, CorpusError, r"Line 5: t = -1"),
        (changed(2, w=""), {}, CorpusError, r"Line 4: w is empty"),
        (changed(2, w="nan"), {}, CorpusError, r"Line 4: w = 'nan', but it must be a finite number"),
        (changed(2, b="inf"), {}, CorpusError, r"Line 4: b = 'inf'"),
        (changed(2, b="two"), {}, CorpusError, r"Line 4: b = 'two'"),
        (ROWS, {"columns": ["w", "bb"]}, UnknownNameError, r"Unknown column 'bb'. Did you mean 'b'"),
        (ROWS, {"categories": ["net"]}, ConfigError, r"The column net is a in all 9 rows"),
        (ROWS[:5], {}, ConfigError, r"5 rows, but a model needs at least 8"),
        (ROWS, {"where": {"w": ["4"]}}, ConfigError, r"3 rows after `where` \(9 in all\)"),
    ],
)
def test_cells_and_columns_are_named(
    rows: list[dict[str, str]], changes: dict[str, object], kind: type[PrecisionTimeError], words: str
) -> None:
    with pytest.raises(kind, match=words) as caught:
        points(rows, **changes)
    assert "To fix" in str(caught.value)


def test_a_row_of_another_length_is_named(tmp_path: Path) -> None:
    path = tmp_path / "d.csv"
    path.write_text("a,b\n1,2\n3\n", encoding="utf-8")
    with pytest.raises(CorpusError, match="line 3: 1 cells under 2 headings"):
        read_csv(path)
    path.write_text("", encoding="utf-8")
    with pytest.raises(CorpusError, match="is empty"):
        read_csv(path)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ({"columns": ["w"]}, "target: Field required"),
        ({"target": "t", "columns": []}, "columns: "),
        ({"target": "t", "columns": ["w"], "colums": 1}, "colums: Extra inputs"),
        ({"target": "t", "columns": ["w"], "validation": {"method": "interpolation"}}, "needs `column`"),
        ({"target": "t", "columns": ["w"], "validation": {"method": "extrapolation"}}, "needs `bounds`"),
        ({"target": "t", "columns": ["w"], "features": {"degree": 9}}, "features.degree"),
    ],
)
def test_a_field_that_breaks_its_rule_is_named(content: dict[str, object], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        study_of(content)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"target": "w"}, "target 'w' is among `columns`"),
        ({"features": {"log": ["x"]}}, "features.log: 'x' is none of `columns`"),
        ({"techniques": ["rigde"]}, "Unknown technique 'rigde'. Did you mean 'ridge'"),
        ({"features": {"terms": ["ernest"]}}, "need the roles workers, size"),
        ({"grey_box": {"fields": {"gpu": "w"}}}, "unknown field 'gpu'"),
        ({"grey_box": {"constants": {"model": "resnet50"}}}, "device, workers, batch_per_worker not given"),
    ],
)
def test_what_does_not_fit_together_is_named(change: dict[str, object], words: str, tmp_path: Path) -> None:
    path = tmp_path / "d.csv"
    path.write_text("w,b,t\n" + "".join(f"{r['w']},{r['b']},{r['t']}\n" for r in ROWS), encoding="utf-8")
    with pytest.raises(ConfigError, match=words):
        prepared(study_of({"target": "t", "columns": ["w", "b"], **change}), path)


def test_a_file_that_is_no_study_says_so(tmp_path: Path) -> None:
    path = tmp_path / "s.yaml"
    path.write_text("- a\n- b\n", encoding="utf-8")
    with pytest.raises(ConfigError, match="is not a study"):
        read_study(path)
    path.write_text("a: [", encoding="utf-8")
    with pytest.raises(ConfigError, match="cannot be read"):
        read_study(path)
