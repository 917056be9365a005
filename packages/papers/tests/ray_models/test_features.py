from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from precision_time.errors import ConfigError, CorpusError
from precision_time_papers.ray_models.features import (
    engineered,
    feature_name,
    feature_table,
    overlap_features,
    term_features,
)


def test_products_leave_out_what_is_constant_or_zero() -> None:
    made = engineered(["w", "b"], {"net": ["a", "b", "c"]}, inverse=["w"], degree=2)
    names = [feature_name(item) for item in made]
    assert "w" in names and "inverse_w" in names and "net_is_b" in names
    assert "net_is_a" not in names, "the first word is told by all others being 0"
    assert not any(set(name.split("__")) == {"w", "inverse_w"} for name in names)
    assert not any(set(name.split("__")) == {"net_is_b", "net_is_c"} for name in names)
    assert any(set(name.split("__")) == {"b", "inverse_w"} for name in names)


def test_powers_only_where_asked() -> None:
    plain = {feature_name(item) for item in engineered(["w"], {}, degree=2)}
    powered = engineered(["w"], {}, degree=2, interactions_only=False)
    powers = {feature_name(item) for item in powered}
    assert plain == {"w"}
    assert powers == {"w", "w__w"}


@given(st.lists(st.floats(0.5, 1e4), min_size=1, max_size=8))
def test_features_are_products_of_their_atoms(values: list[float]) -> None:
    columns = {"w": np.array(values), "s": np.array(values) * 3.0}
    x = feature_table([(("inverse", "w"), ("value", "s")), (("log", "w"),), ()], columns)
    assert np.allclose(x[:, 0], 3.0)
    assert np.allclose(x[:, 1], np.log(values))
    assert (x[:, 2] == 1.0).all()


def test_an_unknown_function_is_refused() -> None:
    with pytest.raises(ConfigError, match="Unknown function 'exec'"):
        feature_table([(("exec", "w"),)], {"w": np.ones(1)})


@pytest.mark.parametrize("function", ["log", "inverse", "others"])
def test_a_value_without_the_function_names_row_and_column(function: str) -> None:
    columns = {"w": np.array([1.0, 0.0])}
    with pytest.raises(CorpusError, match=r"Row 7: w = 0, but .* To fix"):
        feature_table([((function, "w"),)], columns, lines=[6, 7])


def test_terms_are_those_of_the_papers() -> None:
    roles = {"workers": "w", "size": "s", "batch": "b", "nodes": "k"}
    assert [feature_name(item) for item in term_features("ernest", roles)] == ["inverse_w__s", "log_w", "w"]
    assert [feature_name(item) for item in term_features("optimus", roles)] == [
        "inverse_w__s",
        "others_w",
        "w",
    ]
    assert "several_k__inverse_k__w" in [feature_name(item) for item in term_features("ddp", roles)]
    with pytest.raises(ConfigError, match="need the roles workers, size; size is not given"):
        term_features("ernest", {"workers": "w"})


def test_one_node_is_assumed_where_none_is_named() -> None:
    assert overlap_features({"workers": "w"}) == ()
    batch, workers, nodes, per_node = overlap_features({"workers": "w", "batch": "b"})
    assert nodes == () and per_node == workers and batch != workers
