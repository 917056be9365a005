"""Weights survive a round trip, and nothing else is taken for such a file."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from precision_time.errors import NotFittedError
from precision_time_papers.ghn.weights import (
    initial_weights,
    load_weights,
    read_safetensors,
    save_weights,
    shipped_path,
    shipped_weights,
    write_safetensors,
)

ARRAYS = {
    "a.weight": np.arange(6, dtype=np.float32).reshape(2, 3),
    "b": np.array([[-1], [2**40]], dtype=np.int64),
    "empty": np.zeros((0, 4), dtype=np.float64),
    "flag": np.array([True, False]),
    "half": np.array(1.5, dtype=np.float16),
}


def test_arrays_and_metadata_survive(tmp_path: Path) -> None:
    write_safetensors(tmp_path / "x.safetensors", ARRAYS, {"card": "ünï"})
    arrays, metadata = read_safetensors(tmp_path / "x.safetensors")
    assert metadata == {"card": "ünï"}
    assert arrays.keys() == ARRAYS.keys()
    for name, array in ARRAYS.items():
        assert arrays[name].dtype == array.dtype
        np.testing.assert_array_equal(arrays[name], array)


def test_the_library_of_the_format_reads_and_writes_the_same(tmp_path: Path) -> None:
    from safetensors import numpy as library

    write_safetensors(tmp_path / "ours", ARRAYS, {"card": "x"})
    library.save_file(ARRAYS, tmp_path / "theirs", metadata={"card": "x"})
    read = library.load_file(tmp_path / "ours")
    ours, metadata = read_safetensors(tmp_path / "theirs")
    assert metadata == {"card": "x"}
    for name, array in ARRAYS.items():
        np.testing.assert_array_equal(read[name], array, strict=True)
        np.testing.assert_array_equal(ours[name], array, strict=True)


def test_every_truncation_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    write_safetensors(path, {"a": np.ones((2, 2), dtype=np.float32), "b": np.zeros(1)}, {})
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises(NotFittedError, match="To fix"):
            read_safetensors(path)


@given(st.binary(max_size=64), st.integers(min_value=0, max_value=2**63))
def test_any_other_bytes_are_a_clear_error(body: bytes, length: int) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x"
        for data in (body, struct.pack("<Q", length) + body):
            path.write_bytes(data)
            try:
                arrays, _ = read_safetensors(path)
            except NotFittedError:
                continue
            assert arrays == {}


def test_a_missing_file_says_so(tmp_path: Path) -> None:
    with pytest.raises(NotFittedError, match=r"nowhere.*cannot be read.*To fix"):
        read_safetensors(tmp_path / "nowhere")


def test_weights_of_another_shape_are_refused(tmp_path: Path) -> None:
    weights = initial_weights(0)
    path = tmp_path / "w.safetensors"
    arrays = {**weights.arrays, "gru.bias_ih": np.zeros(5, dtype=np.float32)}
    write_safetensors(path, arrays, {})
    with pytest.raises(NotFittedError, match=r"gru\.bias_ih.*train-ghn"):
        load_weights(path)
    write_safetensors(path, {**weights.arrays, "norm.bias": np.full(32, np.nan, dtype=np.float32)}, {})
    with pytest.raises(NotFittedError, match="not finite"):
        load_weights(path)
    save_weights(path, weights)
    assert load_weights(path).version == weights.version


def test_the_shipped_file_is_small_and_sound() -> None:
    assert shipped_path().stat().st_size < 1_000_000
    assert shipped_weights().version == load_weights(shipped_path()).version


def test_the_same_seed_gives_the_same_start() -> None:
    assert initial_weights(3).version == initial_weights(3).version
    assert initial_weights(3).version != initial_weights(4).version
