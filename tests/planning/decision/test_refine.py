"""Branch and bound over whole searches for a layout finds what a search of everything finds."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from precision_time.planning.decision.refine import best_first

SHARE = st.floats(0.0, 1.0)
ROWS = st.lists(st.tuples(st.one_of(st.just(np.inf), st.floats(1.0, 100.0)), SHARE, SHARE), max_size=12)


@settings(max_examples=50, deadline=None)
@given(ROWS, st.integers(0, 12))
def test_the_least_is_that_of_a_search_of_everything(rows, most):
    bound = np.array([bound * min(known, 100.0) for known, bound, _ in rows])
    after = np.array([
        least + share * (min(known, 100.0) - least) for (known, _, share), least in zip(rows, bound,
    strict=True) ])  # fmt: skip
    known = np.array([each for each, *_ in rows])
    searched, left = best_first(known, bound, lambda row: float(after[row]), most)
    assert len(searched) == len({*searched}) <= most
    found = known.copy()
    found[searched] = np.minimum(known, after)[searched]
    if not left:
        assert found.min(initial=np.inf) == np.minimum(known, after).min(initial=np.inf)
    else:
        assert len(searched) == most
    # Nothing was searched that could not have become the least of what was known then.
    best = np.inf if not len(known) else known.min()
    for row in searched:
        assert bound[row] < best
        best = min(best, after[row])


def test_whole_searches_change_the_choice_alone_for_the_better(planned):
    asked = {
        "model": "gpt2", "devices": "T4,A100-SXM4-40GB", "gpus": [8], "max_gpus": 8, "epochs": None,
        "tokens": "100M", "global_batch_size": 64, "clouds": "aws",
    }  # fmt: skip
    usual, whole = planned(**asked), planned(**asked, layouts=9)
    assert whole.best.usd <= usual.best.usd
    assert any("no other one can be cheaper" in line for line in whole.assumptions)
    assert sum(whole.best.terms_s.values()) == np.float64(whole.best.time_s)
