"""Plugins: what other packages add is found; what they break is left out and said."""

from __future__ import annotations

import re
import sys
import tomllib
import warnings
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

from precision_time import __version__, predict_time
from precision_time.errors import ConfigError, PrecisionTimeError
from precision_time.hardware.device_table import get_device, known_device_names
from precision_time.plugins import Plugin, check_member, forget_plugins, loaded, plugins
from surface import MEMBERS, PROJECTS


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    sys.modules.pop("their_devices", None)
    monkeypatch.undo()
    forget_plugins()


def install(folder: Path, code: str, entry: str = "their_devices:DEVICES", group: str = "devices") -> None:
    (folder / "their_devices.py").write_text(code)
    package = folder / "their-1.0.dist-info"
    package.mkdir()
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: their\nVersion: 1.0\n")
    (package / "entry_points.txt").write_text(f"[precision_time.{group}]\ntheirs = {entry}\n")
    forget_plugins()


def test_device_of_a_plugin_is_predicted_like_its_base(installed: Path) -> None:
    row = '{"base": "A100-SXM4-80GB", "memory_gb_per_s": 4078.0, "source": "https://example.org/sheet"}'
    install(installed, f'DEVICES = {{"Their-9000": {row}}}')
    assert "Their-9000" in known_device_names()
    device, base = get_device("their 9000"), get_device("A100-SXM4-80GB")
    assert device.memory_bandwidth_bytes_per_s == pytest.approx(2 * base.memory_bandwidth_bytes_per_s)
    assert device.peak_flops_per_s == base.peak_flops_per_s
    assert "https://example.org/sheet" in device.sources["tdp_w"]
    job = {"model": "resnet50", "batch_size": 128, "precision": "bf16-mixed"}
    assert predict_time(**job, device="their-9000").analytical_step_time_s < (
        predict_time(**job, device="A100-SXM4-80GB").analytical_step_time_s
    )


@pytest.mark.parametrize(
    ("code", "entry", "said"),
    [
        ("raise RuntimeError('no')", "their_devices:DEVICES", "cannot be loaded.*RuntimeError: no"),
        ("DEVICES = {'X': 1}", "their_devices:NONE", "cannot be loaded"),
        (
            "DEVICES = {'X': {'base': 'A100-SXM4-80GB'}, 'A100 SXM4 80GB': {}}",
            "their_devices:DEVICES",
            "has a d",
        ),
        ("DEVICES = {'X-1': {'memory_gib': 1}}", "their_devices:DEVICES", "lacks or misnames"),
        ("def DEVICES(): return 5", "their_devices:DEVICES", "AttributeError"),
    ],
)
def test_broken_plugin_is_left_out_and_named(installed: Path, code: str, entry: str, said: str) -> None:
    before = known_device_names()
    with pytest.warns(RuntimeWarning, match=f"their.*{said}"):
        install(installed, code, entry)
        assert known_device_names() == before
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        get_device("A100-SXM4-80GB")


def test_groups_are_known_and_nothing_is_loaded_where_nothing_is_declared() -> None:
    with pytest.raises(ConfigError, match="devices, stacks"):
        plugins("gpus")
    assert dict(loaded("devices")) == {}


def test_what_packages_declare_is_remembered_until_their_folder_changes(
    installed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from precision_time import plugins as code

    scanned: list[str] = []
    look = code._declared_in
    monkeypatch.setattr(code, "_declared_in", lambda folder: scanned.append(folder) or look(folder))
    install(installed, "DEVICES = {}")
    assert plugins("devices")["theirs"].value == "their_devices:DEVICES"
    assert str(installed) in scanned
    scanned.clear()
    forget_plugins()
    assert plugins("devices")["theirs"].value == "their_devices:DEVICES"
    assert str(installed) not in scanned
    (installed / "other-1.0.dist-info").mkdir()
    (installed / "other-1.0.dist-info" / "entry_points.txt").write_text("[precision_time.devices]\nX = a:B\n")
    forget_plugins()
    assert {"theirs", "X"} <= plugins("devices").keys()


@pytest.mark.parametrize("content", ["", "[]", '{"a": 1}', '{"a": [1, 2]}', '{"a": ["x", {}]}', "\udcff"])
def test_a_damaged_memory_of_plugins_is_looked_at_again(installed: Path, content: str) -> None:
    from precision_time.io import cache_folder

    cache_folder().mkdir(parents=True, exist_ok=True)
    (cache_folder() / "plugins.json").write_bytes(content.encode("utf-8", errors="surrogatepass"))
    install(installed, "DEVICES = {}")
    assert "theirs" in plugins("devices")


def test_what_is_declared_twice_alike_is_one(installed: Path) -> None:
    install(installed, "DEVICES = {}")
    (installed / "again-1.0.dist-info").mkdir()
    listed = "[precision_time.devices]\ntheirs = their_devices:DEVICES\na-theirs = their_devices:DEVICES\n"
    (installed / "again-1.0.dist-info" / "entry_points.txt").write_text(listed)
    forget_plugins()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert {"theirs", "a-theirs"} <= plugins("devices").keys()


@pytest.mark.parametrize("member", MEMBERS)
def test_what_a_member_declares_is_there_and_installed(member: str) -> None:
    """Each loads, and help, routes and completion find it: the environment has the same as the sources."""
    declared = tomllib.loads(PROJECTS[f"precision_time_{member}"].read_text(encoding="utf-8"))["project"]
    for group, entries in declared["entry-points"].items():
        found = plugins(group.removeprefix("precision_time."))
        for name, value in entries.items():
            assert Plugin(name=name, value=value).load() is not None
            assert found[name].value == value, "To fix: make .venv/.dev"


def test_all_distributions_have_one_version() -> None:
    projects = {
        name: tomllib.loads(path.read_text(encoding="utf-8"))["project"] for name, path in PROJECTS.items()
    }
    assert {each["version"] for each in projects.values()} == {__version__}
    assert {import_module(name).__version__ for name in projects} == {__version__}
    pins = {
        wanted
        for each in projects.values()
        for wanted in each["dependencies"]
        if wanted.startswith("precision-time")
    }
    assert pins == {f"precision-time=={__version__}", f"precision-time-integrations=={__version__}"}


def test_a_member_of_another_version_is_refused() -> None:
    check_member("precision-time-server", __version__)
    with pytest.raises(ConfigError, match=f"pip install 'precision-time-server=={re.escape(__version__)}'"):
        check_member("precision-time-server", "0.0.9")


def test_a_capture_of_a_plugin_is_asked_before_ours(installed: Path) -> None:
    """It turns objects of its own into graphs; of others it says None, and ours says what it needs."""
    code = """
from precision_time.workload.resolve import load_workload

class Net:
    pass

def capture(model, **options):
    return load_workload("resnet18").graph if isinstance(model, Net) else None
"""
    install(installed, code, "their_devices:capture", group="captures")
    net = import_module("their_devices").Net()
    job = {"device": "A100-SXM4-80GB", "batch_size": 32, "precision": "bf16-mixed"}
    assert predict_time(net, **job).params == predict_time("resnet18", **job).params
    with pytest.raises(PrecisionTimeError):
        predict_time(object(), **job)
