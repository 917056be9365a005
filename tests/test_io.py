"""Files are written atomically, and what is cached is keyed by the whole package."""

from pathlib import Path

import pytest

from precision_time.io import folder_hash, write_atomically


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    target = tmp_path / "kept.txt"
    target.write_text("old")
    with pytest.raises(TypeError):
        write_atomically(target, 3)  # type: ignore[arg-type]
    assert target.read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["kept.txt"]
    write_atomically(target, "new")
    assert target.read_text() == "new"


@pytest.mark.parametrize("name", ["learn/cross_validation.py", "evaluation/priced.py", "data/any.toml"])
def test_the_cache_key_changes_with_any_file_of_the_package(tmp_path: Path, name: str) -> None:
    for each in ("learn/cross_validation.py", "evaluation/priced.py", "data/any.toml"):
        (tmp_path / each).parent.mkdir(exist_ok=True)
        (tmp_path / each).write_text("one = 1\n")
    before = folder_hash(tmp_path)
    assert folder_hash(tmp_path) == before
    (tmp_path / name).write_text("one = 2\n")
    assert folder_hash(tmp_path) != before
