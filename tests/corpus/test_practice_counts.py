"""The counted table of practice is that of the corpus that ships."""

import practice as counting
from precision_time.corpus.store import load_corpus


def test_the_counted_table_is_up_to_date() -> None:
    rows = counting.rows_of(item for item in load_corpus() if item.usable)
    assert len(rows) > 30_000
    text = counting.text_of(counting.tables_of(counting.counted(rows)))
    assert counting.COUNTED.read_text(encoding="utf-8") == text, "To fix: python data/practice.py"


def test_one_publisher_has_one_vote_in_every_class() -> None:
    rows = counting.rows_of(item for item in load_corpus() if item.source in ("sia", "pollux", "timm"))
    table = counting.tables_of(counting.counted(rows))["stack"]
    for classes in {tuple(row[:4]) for row in table["rows"]}:
        voters = {row.publisher for row in rows if (row.family, row.method, row.kind, row.scale) == classes}
        votes = sum(row[-2] for row in table["rows"] if tuple(row[:4]) == classes)
        assert len(voters) - 0.1 <= votes <= len(voters) + 0.01
