"""The comparison of two commits finds what got worse, on the runs that both have."""

import pytest

from accuracy_diff import COLUMNS, compared, stratified, told


def _row(source: str, number: int, predicted: float) -> dict[str, object]:
    columns = dict.fromkeys(COLUMNS, predicted)
    groups = {"source": source, "device": "A100", "precision": "fp32", "family": "cnn"}
    return {"key": [source, number], "measured_s": 1.0, **groups, **columns}


def test_a_source_that_got_worse_is_named_and_rows_of_one_side_are_counted():
    before = (
        [_row("a", i, 1.1) for i in range(6)] + [_row("b", i, 1.1) for i in range(6)] + [_row("b", 9, 5.0)]
    )
    after = (
        [_row("a", i, 1.3) for i in range(6)] + [_row("b", i, 1.0) for i in range(6)] + [_row("c", 1, 9.0)]
    )
    result = compared(before, after)
    assert (result["rows"], result["only_before"], result["only_after"]) == (12, 1, 1)
    was, now = result["errors"]["unseen source"]
    assert was == pytest.approx([10.0, 10.0]) and now == pytest.approx([15.0, 15.0])
    worst = result["worse"]["unseen source"][0]
    assert worst[1:3] == ("source", "a") and worst[3:5] == pytest.approx((10.0, 30.0))
    assert "source a: 10.0 -> 30.0 % (n 6)" in told(result)


def test_every_source_is_drawn_from_and_none_decides():
    class Run:
        def __init__(self, source: str) -> None:
            self.source = source

    runs = [Run("large")] * 500 + [Run("small")] * 3
    drawn = stratified(runs, 20)
    assert [run.source for run in drawn].count("small") == 3
    assert len(drawn) == 20
