"""Shared settings: the same examples on every run, no time limits, and what waits for the night."""

from __future__ import annotations

import gc
import os
import socket
import threading
import tomllib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from itertools import count
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest
from _pytest.doctest import DoctestModule
from hypothesis import settings

from unit import listed_s, slow_tests

pytest.register_assert_rewrite("precision_time.testing")
NIGHTLY = bool(os.environ.get("PRECISION_TIME_NIGHTLY"))
"""Everything runs: `make nightly`."""
settings.register_profile("reproducible", deadline=None, derandomize=True, max_examples=100 if NIGHTLY else 8)
settings.load_profile("reproducible")
os.environ.setdefault("KERAS_BACKEND", "torch")  # what is installed; Keras asks for TensorFlow otherwise
# Ray keeps its token in the home folder, and every test has another one: a second Ray would not start.
os.environ.setdefault("RAY_AUTH_TOKEN", "0123456789abcdef" * 4)
_tests = count()
ROOT = Path(__file__).parent
SKIPS = tomllib.loads((ROOT / "tests" / "skips.toml").read_text(encoding="utf-8"))
_took_s = pytest.StashKey[dict[str, float]]()


def _waits(item: pytest.Item) -> bool:
    """Marked `nightly`, or `sampled(n)` and not the one in n values that the checksum of its name draws."""
    sampled = item.get_closest_marker("sampled")
    drawn = sampled is None or crc32(item.name.partition("[")[2].encode()) % sampled.args[0] == 0
    return item.get_closest_marker("nightly") is not None or not drawn


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    waiting = set() if NIGHTLY else {item for item in items if _waits(item)}
    config.hook.pytest_deselected(items=[item for item in items if item in waiting])
    items[:] = [item for item in items if item not in waiting]


def _cpu_s() -> float:
    """Of this process and of those it waited for."""
    used = os.times()
    return used.user + used.system + used.children_user + used.children_system


def _rest() -> None:
    """What is loaded stays: the collector, which libraries and pytest call by themselves, passes by."""
    gc.collect()
    gc.freeze()


def pytest_collection_finish() -> None:
    _rest()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[Any]:
    started = _cpu_s()
    result = yield
    if nextitem is not None and nextitem.path != item.path:
        _rest()
    item.config.stash.setdefault(_took_s, {})[item.nodeid] = _cpu_s() - started
    return result


def _too_slow(config: pytest.Config) -> list[str]:
    """By day, where a whole part runs (`tools/unit.py`, which runs again what is said here)."""
    if NIGHTLY or not os.environ.get("PRECISION_TIME_SLOW_TESTS"):
        return []
    return slow_tests(config.stash.get(_took_s, {}), listed_s())


def _not_for_ci(config: pytest.Config) -> list[str]:
    """Tests and files that skipped on CI for a reason that skips.toml does not allow there, in words."""
    if os.environ.get("CI") != "true":
        return []
    reports = config.pluginmanager.getplugin("terminalreporter").stats.get("skipped", [])
    skipped = {report.nodeid: report.longrepr[2].removeprefix("Skipped: ") for report in reports}
    return [
        f"not for CI: {name}: {why}" for name, why in skipped.items() if not SKIPS.get(why, {}).get("on_ci")
    ]


def pytest_sessionfinish(session: pytest.Session) -> None:
    if _not_for_ci(session.config) and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if too_slow := _too_slow(config):
        terminalreporter.section("too slow")
        for line in too_slow:
            terminalreporter.line(line)
        terminalreporter.line(
            "To fix: make it cheaper, mark it nightly, or give it a line in tests/slow.toml."
        )
    if skipped := _not_for_ci(config):
        terminalreporter.section("skipped on CI")
        for line in skipped:
            terminalreporter.line(line)
        terminalreporter.line("To fix: install what is missing, or allow it in tests/skips.toml.")


@pytest.hookimpl(wrapper=True)
def pytest_collect_file(file_path: Path) -> Iterator[Any]:
    """Doctests are in the sources alone; a file without one is not imported to look for some.

    Either takes seconds per worker, longer than to run them all.
    """
    found = yield
    if file_path.is_relative_to(ROOT) and "src" in file_path.relative_to(ROOT).parts:
        has_one = file_path.suffix == ".py" and ">>> " in file_path.read_text(encoding="utf-8")
        return found if has_one else []
    return [each for each in found if not isinstance(each, DoctestModule)]


@pytest.fixture(autouse=True)
def _sandbox(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing a test does reaches the user's home folder, and no model hub is asked.

    The home folder of a test does not exist before something is written to it: thousands of empty folders
    take longer to make and remove than many tests.
    """
    monkeypatch.setenv("HOME", str(tmp_path_factory.getbasetemp() / "homes" / str(next(_tests))))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.delenv("PRECISION_TIME_PREDICTOR", raising=False)
    os.environ.setdefault("OMP_NUM_THREADS", "1")


@contextmanager
def _served(folder: Path, **settings: Any) -> Iterator[str]:
    """Host and port of a service in a thread of this process, with a store of its own."""
    import uvicorn

    from precision_time_server.app import create_app
    from precision_time_server.settings import Settings

    app = create_app(Settings.of({"store": f"sqlite:///{folder / 'service.sqlite'}", **settings}))
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        server = uvicorn.Server(uvicorn.Config(app, log_level="error", access_log=False))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [taken]})
        thread.start()
        try:
            yield f"127.0.0.1:{taken.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join(timeout=30)


@pytest.fixture(scope="session")
def served() -> Callable[..., AbstractContextManager[str]]:
    """`with served(folder, **settings) as address`: a service to ask."""
    return _served
