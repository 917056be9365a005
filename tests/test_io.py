"""Files are written atomically, YAML is bounded, and what is cached is keyed by the whole package."""

import os
import re
import signal
import stat
import zlib
from pathlib import Path

import msgspec
import pytest

import precision_time
from precision_time import io
from precision_time.errors import OutputError, PrecisionTimeError
from precision_time.io import COMPILED, compiled, folder_hash, read_yaml, write_atomically
from surface import shown, source_files


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_failed_write_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "kept.txt"
    target.write_text("old")
    with pytest.raises(TypeError):
        write_atomically(target, 3)  # type: ignore[arg-type]

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("os.fsync", full)
        with pytest.raises(OutputError, match="kept.txt cannot be written: No space left.*To fix") as caught:
            write_atomically(target, "new")
    assert isinstance(caught.value, PrecisionTimeError | OSError)
    assert target.read_text() == "old"
    assert names_in(tmp_path) == ["kept.txt"]
    write_atomically(target, "new")
    assert target.read_text() == "new"


@pytest.mark.skipif(not hasattr(os, "O_TMPFILE"), reason="only Linux has files without a name")
def test_a_kill_while_it_is_written_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    target = tmp_path / "kept.txt"
    target.write_text("old")
    child = os.fork()
    if not child:
        os.fsync = lambda _: os.kill(os.getpid(), signal.SIGKILL)  # type: ignore[assignment,misc]
        try:
            write_atomically(target, "new")
        finally:
            os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    assert (names_in(tmp_path), target.read_text()) == (["kept.txt"], "old")


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    real, link = tmp_path / "real.txt", tmp_path / "link.txt"
    real.write_text("old")
    link.symlink_to(real)
    write_atomically(link, "new")
    assert link.is_symlink()
    assert real.read_text() == "new"
    dangling = tmp_path / "dangling.txt"
    dangling.symlink_to(tmp_path / "made.txt")
    write_atomically(dangling, "new")
    assert (tmp_path / "made.txt").read_text() == "new"


def test_only_regular_files_are_replaced(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    for name in ("pipe", "folder"):
        with pytest.raises(OutputError, match=f"{name} cannot be written: it is not a regular file"):
            write_atomically(tmp_path / name, "new")
    assert names_in(tmp_path) == ["folder", "pipe"]
    write_atomically(Path("/dev/null"), "gone")
    assert stat.S_ISCHR(Path("/dev/null").stat().st_mode)
    with pytest.raises(OutputError, match="No such file"):
        write_atomically(tmp_path / "missing" / "file", "new")


def test_standard_output_is_written_through(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    write_atomically(Path("/dev/stdout"), "words\n")
    assert capfd.readouterr().out == "words\n"


def test_the_umask_and_the_old_mode_count(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        write_atomically(tmp_path / "new.txt", "a")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "new.txt").stat().st_mode) == 0o640
    (tmp_path / "new.txt").chmod(0o604)
    write_atomically(tmp_path / "new.txt", "b")
    assert stat.S_IMODE((tmp_path / "new.txt").stat().st_mode) == 0o604


def test_yaml_is_data_of_the_size_of_its_text() -> None:
    assert read_yaml("a: &x [1, 2]\nb: *x\n") == {"a": [1, 2], "b": [1, 2]}
    assert read_yaml("") is None
    lists = [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 9)]
    with pytest.raises(ValueError, match="aliases"):
        read_yaml("\n".join(["a0: &a0 [x, x]", *lists]))
    merged = [f"m{n}: &m{n}\n  <<: [{', '.join([f'*m{n - 1}'] * 9)}]" for n in range(1, 9)]
    with pytest.raises(ValueError, match="aliases"):
        read_yaml("\n".join(["m0: &m0 {k: v}", *merged]))
    with pytest.raises(ValueError, match="holds itself"):
        read_yaml("a: &a [*a]")
    with pytest.raises(ValueError, match="expected"):
        read_yaml("a: [")


@pytest.mark.parametrize("name", ["learn/training.py", "evaluation/pricing.py", "data/any.toml"])
def test_the_cache_key_changes_with_any_file_of_the_package(tmp_path: Path, name: str) -> None:
    for each in ("learn/training.py", "evaluation/pricing.py", "data/any.toml"):
        (tmp_path / each).parent.mkdir(exist_ok=True)
        (tmp_path / each).write_text("one = 1\n")
    before = folder_hash(tmp_path)
    assert folder_hash(tmp_path) == before
    (tmp_path / name).write_text("one = 2\n")
    assert folder_hash(tmp_path) != before


def test_the_compiled_tables_are_those_of_the_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Installing the package writes them (`hatch_build.py`); where they are not, the files are read."""
    folder = Path(precision_time.__file__).parent
    (tmp_path / COMPILED).write_text(compiled(folder), encoding="utf-8")
    monkeypatch.setattr(io, "__file__", str(tmp_path / "io.py"))
    tables = io._compiled.__wrapped__()
    read = io.packaged_toml.__wrapped__
    in_folders = sum("data" in path.relative_to(folder).parts for path in folder.rglob("*.toml"))
    assert in_folders * 0.9 < len(tables), "those in folders below data, too"
    for name, (checksum, text) in tables.items():
        package, _, path = name.partition("/")
        monkeypatch.setattr(io, "_compiled", dict)
        assert read(package, path) == msgspec.json.decode(text), name
        monkeypatch.setattr(io, "_compiled", lambda name=name: {name: (tables[name][0], b'{"it": "is"}')})
        assert read(package, path) == {"it": "is"} and checksum, name


def test_no_git_checkout_holds_the_compiled_tables() -> None:
    """They follow from the files beside them; a merge of two branches would leave them wrong."""
    root = Path(__file__).parents[1]
    ignored = (root / ".gitignore").read_text(encoding="utf-8").split()
    assert f"src/precision_time/{COMPILED}" in ignored
    assert "hatch_build.py" in (root / "pyproject.toml").read_text(encoding="utf-8")


def test_a_file_that_changed_is_read_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "a_package"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "some.toml").write_text("x = 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    checksum = zlib.crc32(b"x = 1\n")
    monkeypatch.setattr(io, "_compiled", lambda: {"a_package/some.toml": (checksum, b'{"x": "compiled"}')})
    read = io.packaged_toml.__wrapped__
    assert read("a_package", "some.toml") == {"x": "compiled"}
    (package / "some.toml").write_text("x = 2\n")
    assert read("a_package", "some.toml") == {"x": 2}


FILES = source_files()


def test_every_writer_of_tables_guards_formulas() -> None:
    writers = [path for path in FILES if re.search(r"csv\.(DictW|w)riter\(", path.read_text("utf-8"))]
    assert len(writers) > 5
    assert not [path.name for path in writers if "table_cell(" not in path.read_text("utf-8")
                and "map(table_cell" not in path.read_text("utf-8")]  # fmt: skip


def test_files_get_their_names_by_the_one_writer() -> None:
    """But folders of a registry, which are renamed within it, and of images, by whoever makes them first."""
    renamed = re.compile(
        r"os\.(replace|rename|renames|link)\(|shutil\.(move|copy)|\.rename\(|\w\.replace\([\w.]+\)"
    )
    found = {path.name for path in FILES if renamed.search(path.read_text("utf-8"))}
    assert found == {"images.py", "io.py", "registry.py"}


OPENED = re.compile(r"(?<![\w.])open\(|\.read_text\(|\.read_bytes\(|(?<!\bos)\.open\(")
OPEN_THEMSELVES = {
    "of the package, of the system or of Python": {
        "precision_time/executor.py",
        "precision_time_integrations/inventory/local.py", "precision_time/planning/precisions/risk.py",
        "precision_time/plugins.py", "precision_time/ray/executor.py", "precision_time/workload/zoo.py",
        "precision_time_integrations/measure/device.py", "precision_time_integrations/measure/processor.py",
        "precision_time_server/routes/page.py",
    },
    "made by this package in a place of its own": {
        "precision_time/array_file.py", "precision_time/client/operations.py", "precision_time/io.py",
        "precision_time/predict/sweep.py", "precision_time/testing/stores.py",
        "precision_time/capture/sources.py", "precision_time_integrations/measure/store.py",
        "precision_time_integrations/measure/steps/images.py",
        "precision_time_integrations/online/offer.py", "precision_time_integrations/slurm/submissions.py",
        
    },
    "logs, after a check that they are regular": {
        "precision_time_integrations/importers/bounded.py", "precision_time_integrations/importers/lines.py",
    },
}  # fmt: skip
"""By why they do."""


def test_files_of_users_are_opened_in_one_place() -> None:
    """But by studies and published predictors, which have files of their own (`precision_time_papers`)."""
    known = {name for names in OPEN_THEMSELVES.values() for name in names}
    found = set()
    for path in FILES:
        text = path.read_text("utf-8")
        lines = (line for line in text.splitlines() if not re.search(r"(files|packaged)\(__package__", line))
        name = shown(path)
        if not name.startswith("precision_time_papers/") and any(map(OPENED.search, lines)):
            found.add(name)
    assert found <= known, f"{sorted(found - known)}: open files of users by io.open_input"
    assert found == known, f"{sorted(known - found)} open none any more: take them from the list"


@pytest.mark.parametrize("kind", ["fifo", "zero_stage", "pipe", "folder", "long"])
def test_only_regular_files_of_bounded_length_are_read(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "given.txt"
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "zero_stage":
        path.symlink_to("/dev/zero")
    elif kind == "folder":
        path.mkdir()
    elif kind == "long":
        with path.open("wb") as file:
            file.truncate(io.MOST_INPUT_BYTES + 1)
    else:  # what a shell names in the place of <(command)
        reads, writes = os.pipe()
        path = Path(f"/dev/fd/{reads}")
    words = {"folder": "directory", "long": "larger than 512 MiB"}.get(kind, "no regular file.*named? -")
    for read in (io.read_input, io.read_input_bytes, io.open_input, io.open_input_text):
        with pytest.raises(OSError, match=words):
            read(path)
    if kind == "pipe":
        os.close(reads)
        os.close(writes)


def test_regular_files_are_read_as_they_are(tmp_path: Path) -> None:
    path = tmp_path / "given.txt"
    path.write_bytes(b"\xef\xbb\xbfa\r\nb\n")
    assert io.read_input(path, encoding="utf-8-sig") == path.read_text("utf-8-sig") == "a\nb\n"
    assert io.read_input_bytes(path) == path.read_bytes()
    with io.open_input_text(path, newline="") as file:
        assert [*file] == ["\ufeffa\r\n", "b\n"]
    with pytest.raises(FileNotFoundError):
        io.open_input(tmp_path / "none")
    with io.open_input(path, most_bytes=None) as file:
        assert not os.get_inheritable(file.fileno())
